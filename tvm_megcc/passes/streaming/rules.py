# SPDX-License-Identifier: Apache-2.0
"""Streaming rules: a function for each kind of operator that rewrites it for blocks. It determines which elements of
earlier blocks the operator reads, and the delay of its result (`flow.py`).

* `flow.widened(before, after)`: each element of the result depends on so many more elements before and after its own.
* `s.settled(flow)`: the padding that a negative delay stands for is made real, for operators that change padding.
* `s.padded(flow, value)`: all elements before the sequence get this value, as the operator's padding has it.
* delay - count: after `count` elements of padding, element i of the operand is element i + count of the result.
* `s`, the first argument of a rule, is the `Streamer` with the graph for blocks.
* Height: a 1-D convolution is computed as a 2-D one, on values that have an axis of extent 1 before their last.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...ir.dims import number
from ...ir.graph import Attrs, Op
from ...ops.base import operator
from ...ops.elementwise import Elementwise
from ...ops.math.reduce import Reduction
from ...ops.recurrent.rnn import Recurrent
from ...ops.rules import axes_of, axis_of, slice_axes
from .flow import BYTES, Dequantised, Flow, Refused, Rule, Streamer


def rule_of(op: Op) -> Rule:
    """Returns the rule of an operator with an operand in blocks.

    Raises:
        Refused: if there is none.
    """
    declaration = operator(op.kind)
    if op.kind in RULES:
        return RULES[op.kind]
    if op.epilogue is None and (issubclass(declaration, Elementwise) or declaration.expression(op.attrs) is not None):
        return elementwise
    if issubclass(declaration, Recurrent):
        return recurrent
    if issubclass(declaration, Reduction):
        return reduction
    if op.kind.startswith("global_"):
        raise Refused("it reads the whole sequence")
    raise Refused("there is no rule for it in blocks")


def _common_delay(s: Streamer, flows: dict[str, Flow]) -> tuple[int, int]:
    """Returns the largest delay of operands that are read elementwise, and the streamed axis, counted from the end."""
    axes_from_end = {s.types[flow.name].rank - flow.axis for flow in flows.values()}
    if len(axes_from_end) > 1 or len({(flow.block, flow.step) for flow in flows.values()}) > 1:
        raise Refused("its operands flow along different axes, or one flows faster than the other")
    return max(0, *(flow.delay for flow in flows.values())), axes_from_end.pop()


def _joined(flows: list[Flow], result: Flow) -> Flow:
    """Returns the flow of a result that depends on the same elements of several operands."""
    first = None if any(flow.first is None for flow in flows) else min(flow.first for flow in flows)
    return replace(result, first=first, last=max(flow.last for flow in flows))


def elementwise(s: Streamer, op: Op) -> None:
    """Rewrites an elementwise operator: its operands get the same delay."""
    flows = {name: s.flows[name] for name in op.inputs if name in s.flows}
    delay, axis_from_end = _common_delay(s, flows)
    for name in op.inputs:
        shape = s.types[name].shape if name and name not in flows else ()
        if len(shape) >= axis_from_end and shape[-axis_from_end] != 1:
            raise Refused(f"its operand '{name}' is as long as the sequence")
    _combined(s, op, flows, delay, axis_from_end, op.attrs, _keeps_height(s, flows))


def _combined(s: Streamer, op: Op, flows: dict[str, Flow], delay: int, axis_from_end: int, attrs: Attrs,
              keeps_height: bool) -> None:
    """Adds an operator whose operands are read element by element.

    Args:
        flows: operand in blocks -> its flow.
        delay, axis_from_end: the delay of the result, and the streamed axis, counted from the end.
        keeps_height: whether operands and result have an axis of height (`_keeps_height`).
    """
    inputs = []
    for name in op.inputs:
        if keeps_height and name in s.with_height:
            # In blocks, and computed with an axis of height.
            operand = s.delayed(s.with_height[name], delay).name
        elif name in flows:
            # In blocks, and computed without height.
            operand = s.delayed(flows[name], delay).name
            operand = _with_height(s, operand) if keeps_height else operand
        else:
            # Not in blocks: a constant, or a value that is the same in all runs.
            operand = _with_height(s, name) if keeps_height else name
        inputs.append(operand)
    first = next(iter(flows.values()))
    rank = max(s.types[name].rank for name in inputs)
    result = s.emit(replace(first, delay=delay, padding_value=0), op.kind, attrs, tuple(inputs), rank - axis_from_end)
    result = _joined(list(flows.values()), result)
    s.define(op, _without_height(s, op.outputs[0], result) if keeps_height else result)


def _keeps_height(s: Streamer, flows: dict[str, Flow]) -> bool:
    """Returns whether an operator with operands in blocks keeps the axis of height of a 1-D convolution: one operand
    has it, and all are [N, C, T]. So nothing is reshaped between two such convolutions."""
    return any(name in s.with_height for name in flows) \
        and all(s.types[flow.name].rank == 3 and flow.axis == 2 for flow in flows.values())


def _with_height(s: Streamer, name: str) -> str:
    """Returns an operand [..., T] as [..., 1, T]; an operand of rank 0 or 1 broadcasts as it is."""
    shape = s.types[name].shape
    if len(shape) < 2:
        return name
    if len(shape) > 3:
        raise Refused(f"its operand '{name}' has more axes than the value that it is added to")
    return _reshaped(s, name, (*shape[:-1], 1, shape[-1]))


def _reshaped(s: Streamer, name: str, shape: tuple[int, ...]) -> str:
    """Returns a value or constant in another shape."""
    if name in s.constants:
        return s.constant(name, s.constants[name].reshape(shape))
    return s.result("reshape", Attrs(shape=shape), (name,))


def _without_height(s: Streamer, name: str, flow: Flow) -> Flow:
    """Returns the flow of a value [N, C, 1, T] as [N, C, T]. `s.with_height` keeps the former for `name`, the value of
    the original graph."""
    shape = s.types[flow.name].shape
    s.with_height[name] = flow
    return s.emit(flow, "reshape", Attrs(shape=(*shape[:2], shape[3])), (flow.name,), 2)


def reshape(s: Streamer, op: Op) -> None:
    """Rewrites a reshape that leaves the streamed axis alone. If the whole sequence is a single window, the axis is of
    extent 1 behind it, and the reshape may drop it (Flatten): then the results of windows are rows."""
    flow = s.flow(op)
    old, new = s.graph.types[op.inputs[0]].shape, s.graph.types[op.outputs[0]].shape
    extent = old[flow.axis]
    axes = [axis for axis, dim in enumerate(new) if dim == extent and prod(new[:axis]) == prod(old[:flow.axis])]
    if not axes and extent == 1 and new[:1] == (1,):
        order = (flow.axis, *(axis for axis in range(len(old)) if axis != flow.axis))
        flow = s.emit(flow, "transpose", Attrs(perm=order), (flow.name,), 0)
        s.define(op, s.emit(flow, "reshape", Attrs(shape=(flow.block, *new[1:])), (flow.name,), 0))
        return
    if not axes:
        raise Refused(f"it makes {list(new)} of {list(old)}, in which axis {flow.axis} is no axis any more")
    axis = axes[0]
    if len(old) == 3 and flow.axis == 2 and new == (*old[:2], 1, old[2]) and op.inputs[0] in s.with_height:
        s.define(op, s.with_height[op.inputs[0]])
    elif len(new) == 3 and axis == 2 and flow.axis == 3 and old == (*new[:2], 1, new[2]):
        s.define(op, _without_height(s, op.outputs[0], flow))
    else:
        shape = (*new[:axis], flow.block, *new[axis + 1:])
        s.define(op, s.emit(flow, "reshape", Attrs(shape=shape), (flow.name,), axis))


def transpose(s: Streamer, op: Op) -> None:
    """Rewrites a transpose, which moves the streamed axis."""
    flow = s.flow(op)
    s.define(op, s.emit(flow, op.kind, op.attrs, (flow.name,), op.attrs.perm.index(flow.axis)))


def cut(s: Streamer, op: Op) -> None:
    """Rewrites a slice. Along the streamed axis it may drop only a few elements at the ends, such as padding, or take
    every n-th element."""
    flow = s.flow(op)
    cuts = slice_axes(op.attrs, s.graph.types[op.inputs[0]].shape)
    start, count, step = cuts.get(flow.axis, (0, 0, 1))
    if flow.axis in cuts:
        extent = s.graph.types[op.inputs[0]].shape[flow.axis]
        # A slice that keeps less than half of the sequence selects a part of it, and does not crop its ends.
        if step < 1 or not isinstance(extent, int) or 2 * number(count) * step < extent:
            raise Refused(f"it selects {count} of {extent} elements of the sequence; a stream can only leave out "
                          "elements at its begin and end")
    if step == 1:
        # Element i of the result is element i + start of the operand: it is computed `start` elements later.
        flow = flow.widened(-start, start)
        flow = replace(flow, delay=flow.delay + start)
    else:
        # Element i of the result is element i * step + start of the operand: a window of one element, whose padding is
        # -start. The window operator would skip the elements between; here a slice of the block does.
        flow = s.window(s.settled(flow), 0, step, -start)
        every = Attrs(axes=(flow.axis,), starts=(0,), ends=(s.types[flow.name].shape[flow.axis],), steps=(step,))
        flow = replace(flow, name=s.result("slice", every, (flow.name,)))
    other_positions = [index for index, axis in enumerate(op.attrs.axes) if axis != flow.axis]
    if other_positions:
        attrs = Attrs({key: tuple(op.attrs[key][index] for index in other_positions)
                       for key in ("axes", "starts", "ends", "steps")})
        flow = replace(flow, name=s.result("slice", attrs, (flow.name,)))
    elif op.inputs[0] in s.with_height and step == 1:
        with_height = s.with_height[op.inputs[0]]
        s.with_height[op.outputs[0]] = replace(with_height, delay=with_height.delay + start).widened(-start, start)
    s.define(op, flow)


def pad(s: Streamer, op: Op) -> None:
    """Rewrites a pad. Padding before the sequence lowers the delay; padding after it has no effect on a stream."""
    flow = s.flow(op)
    before, after = list(op.attrs.before), list(op.attrs.after)
    with_height = s.with_height.get(op.inputs[0])
    if before[flow.axis] or after[flow.axis]:
        bytes_ = s.types[flow.name].dtype in BYTES
        if before[flow.axis] > 0 and (op.attrs.mode != "constant" or (op.attrs.value != 0 and not bytes_)):
            raise Refused(f"it pads the begin of the sequence in mode {op.attrs.mode} with {op.attrs.value}, and not "
                          "with zero")
        if min(before[flow.axis], after[flow.axis]) < 0:
            raise Refused("it crops the sequence by negative pads; a slice does that")
        count = before[flow.axis]
        padding_value = int(op.attrs.value) if count else flow.padding_value
        before[flow.axis] = after[flow.axis] = 0
        if with_height and not any(before) and not any(after):
            with_height = s.padded(with_height, padding_value)
            with_height = replace(with_height, delay=with_height.delay - count).widened(count, -count)
            s.define(op, _without_height(s, op.outputs[0], with_height))
            return
        flow = s.padded(flow, padding_value)
        flow = replace(flow, delay=flow.delay - count).widened(count, -count)
    if any(before) or any(after):
        flow = s.settled(flow) if op.attrs.value != 0 else flow
        flow = s.emit(flow, "pad", Attrs(op.attrs, before=tuple(before), after=tuple(after)), (flow.name,))
    s.define(op, flow)


def concat(s: Streamer, op: Op) -> None:
    """Rewrites a concat: along the streamed axis as a pad with zeros, along another axis with equal delays."""
    flows = {name: s.flows[name] for name in op.inputs if name in s.flows}
    axis = axis_of(op.attrs.axis, s.graph.types[op.outputs[0]].rank)
    if any(flow.axis == axis for flow in flows.values()):
        zeros = [name for name in op.inputs if name not in flows]
        positions = [index for index, name in enumerate(op.inputs) if name in flows]
        front = op.inputs[:positions[0]]
        if len(positions) != 1 or any(name not in s.constants or s.constants[name].any() for name in zeros):
            raise Refused("it pads the sequence with values that are not zero")
        count = sum(s.types[name].shape[axis] for name in front)
        flow = s.padded(s.flow(op, positions[0]))
        s.define(op, replace(flow, delay=flow.delay - count).widened(count, -count))
        return
    if any(name not in flows for name in op.inputs):
        raise Refused("an operand is no stream: it is as long as the sequence")
    delay, axis_from_end = _common_delay(s, flows)
    keeps_height = axis == 1 and _keeps_height(s, flows)
    _combined(s, op, flows, delay, axis_from_end, Attrs(axis=axis), keeps_height)


def _spatial(op: Op, flow: Flow, axes: int) -> int:
    """Returns which of an operator's spatial axes is streamed; -1 for the batch axis.

    Raises:
        Refused: if it is the channel axis.
    """
    if flow.axis == 1:
        raise Refused("it adds up channels, which is the axis of the stream")
    if flow.axis >= 2 + axes:
        raise Refused(f"it has no axis {flow.axis}")
    return flow.axis - 2 if flow.axis >= 2 else -1


def convolution(s: Streamer, op: Op) -> None:
    """Rewrites a convolution."""
    flow, kernel = s.flow(op), s.types[op.inputs[1]].shape[2:]
    _windows(s, op, flow, kernel, op.attrs.get("x_zero", 0))


def pool(s: Streamer, op: Op) -> None:
    """Rewrites a pool whose padding, if any, counts as zeros."""
    flow = s.flow(op)
    spatial_axis = _spatial(op, flow, len(op.attrs.kernel))
    padded = spatial_axis >= 0 and op.attrs.pads[spatial_axis] > 0
    if padded and (op.kind == "max_pool" or (op.kind == "avg_pool" and not op.attrs.get("count_pads", 0))):
        raise Refused("it pads the begin of the sequence with values that are not zero; pad with zeros before it")
    _windows(s, op, flow, op.attrs.kernel)


def _windows(s: Streamer, op: Op, flow: Flow, kernel: tuple[int, ...], padding_value: int = 0) -> None:
    """Rewrites an operator over windows. kernel: the extents of the window along the spatial axes."""
    axes, spatial_axis = len(kernel), _spatial(op, flow, len(kernel))
    attrs = op.attrs
    if spatial_axis >= 0:
        reach = (kernel[spatial_axis] - 1) * attrs.dilations[spatial_axis]
        flow = s.window(flow, reach, attrs.strides[spatial_axis], attrs.pads[spatial_axis], padding_value)
        pads = list(attrs.pads)
        pads[spatial_axis] = pads[axes + spatial_axis] = 0
        attrs = Attrs(attrs, pads=tuple(pads))
        if attrs.get("ceil", 0) and any(stride > 1 for i, stride in enumerate(attrs.strides) if i != spatial_axis):
            raise Refused("its last windows hang over the end along another axis (ceil)")
        if "ceil" in attrs:
            attrs = Attrs(attrs, ceil=False)
    else:
        flow = s.settled(flow)
    name = s.result(op.kind, attrs, (flow.name, *op.inputs[1:]))
    s.define(op, replace(flow, name=name))


def matmul(s: Streamer, op: Op) -> None:
    """Rewrites a matrix product whose left operand is in blocks, along an axis that is not summed."""
    flow = s.settled(s.flow(op))
    rank = s.types[flow.name].rank
    contracted = rank - 2 if op.attrs.trans_a else rank - 1
    if rank < 2 or flow.axis == contracted:
        raise Refused("it adds up along the axis of the stream")
    others = s.types[op.inputs[1]]
    # The rows of the result are the last but one axis; with trans_a they are the last axis of the operand.
    is_last_with_trans_a = op.attrs.trans_a and flow.axis == rank - 1
    axis_from_end = 2 if is_last_with_trans_a else rank - flow.axis
    if axis_from_end > 2 and others.rank >= axis_from_end and others.shape[-axis_from_end] != 1:
        raise Refused(f"its operand {others} is as long as the sequence")
    inputs = (flow.name, *op.inputs[1:])
    name = s.result(op.kind, op.attrs, inputs)
    s.define(op, replace(flow, name=name, axis=s.types[name].rank - axis_from_end))


def along(axis_name: str) -> Rule:
    """Returns the rule of operators along one axis, which must not be the streamed one. axis_name: the attribute with
    the axis; "": the last axis."""
    def rule(s: Streamer, op: Op) -> None:
        flow = s.settled(s.flow(op))
        rank = s.types[flow.name].rank
        if (axis_of(op.attrs[axis_name], rank) if axis_name else rank - 1) == flow.axis:
            raise Refused("it reads the whole sequence")
        s.define(op, s.emit(flow, op.kind, op.attrs, (flow.name, *op.inputs[1:])))
    return rule


def reduction(s: Streamer, op: Op) -> None:
    """Rewrites a reduction over axes other than the streamed one."""
    flow = s.settled(s.flow(op))
    axes = axes_of(op.attrs.axes, s.types[flow.name].rank)
    if flow.axis in axes:
        raise Refused("it reads the whole sequence")
    axis = flow.axis if op.attrs.keepdims else flow.axis - sum(other < flow.axis for other in axes)
    s.define(op, s.emit(flow, op.kind, op.attrs, (flow.name, *op.inputs[1:]), axis))


def unchanged(s: Streamer, op: Op) -> None:
    """Rewrites an operator on each element of its first operand."""
    flow = s.settled(s.flow(op))
    s.define(op, s.emit(flow, op.kind, op.attrs, (flow.name, *op.inputs[1:])))


def quantised(s: Streamer, op: Op) -> None:
    """Rewrites quantize_linear and dequantize_linear. The padding before the sequence is converted between 0 and the
    zero point."""
    if any(name not in s.constants or s.constants[name].ndim for name in op.inputs[1:] if name):
        unchanged(s, op)
        return
    zero = int(s.constants[op.inputs[2]]) if len(op.inputs) > 2 and op.inputs[2] else 0
    is_dequantize = op.kind == "dequantize_linear"
    padding_before, padding_after = (zero, 0) if is_dequantize else (0, zero)
    if zero and (s.types[s.flow(op).name].dtype if is_dequantize else op.attrs.dtype) not in BYTES:
        unchanged(s, op)
        return
    flow = s.flow(op)
    keeps_height = _keeps_height(s, {op.inputs[0]: flow})
    if keeps_height:
        flow = s.with_height[op.inputs[0]]
    if flow.delay < 0 and flow.padding_value != padding_before:
        flow, keeps_height = s.settled(s.flow(op)), False
    name = s.dequantised(Dequantised(flow.name, zero, Attrs(op.attrs, axis=0), op.inputs[1:])) if is_dequantize else \
        s.result(op.kind, op.attrs, (flow.name, *op.inputs[1:]))
    result = replace(flow, name=name, padding_value=padding_after)
    s.define(op, _without_height(s, op.outputs[0], result) if keeps_height else result)


def recurrent(s: Streamer, op: Op) -> None:
    """Rewrites a recurrent layer along the sequence: its final states are the initial states of the next run."""
    flow, declaration = s.flow(op), operator(op.kind)
    names = dict(zip(declaration.operands, op.inputs, strict=False))
    if flow.axis != 0:
        raise Refused("it does not run along the axis of the stream")
    if op.attrs.direction != "forward":
        raise Refused(f"direction {op.attrs.direction} needs the end of the sequence first")
    if names.get("lengths?"):
        raise Refused("sequences have lengths of their own; a stream has none")
    # With a delay of whole blocks, the sequence begins with the first element of a block. In the runs before it, a mask
    # keeps the initial states.
    flow = s.delayed(flow, -(-max(flow.delay, 0) // flow.block) * flow.block)
    inputs = list(op.inputs) + [""] * (len(declaration.operands) - len(op.inputs))
    batch, units = s.types[flow.name].shape[1], s.types[op.inputs[1]].shape[2]
    of_block = s.value(f"{op.outputs[0]}.block", s.types[flow.name].with_shape((flow.block, 1, batch, units)))
    results, requested, first_state = [of_block], op.attrs.results, declaration.operands.index("initial_h?")
    for position, state in enumerate(declaration.states):
        index = first_state + position
        begin = inputs[index]
        if begin and begin not in s.constants:
            raise Refused(f"its state begins as '{begin}', which is not known; leave it out or fix it with --constant")
        type_ = s.types[flow.name].with_shape((1, batch, units))
        last = s.value(f"{of_block}.{state}", type_)
        inputs[index] = s.value(f"stream_{len(s.states) + position}", type_)
        if begin and s.constants[begin].any():
            s.initial_states[inputs[index]] = s.constants[begin]
        results.append(last)
    inputs[0] = flow.name
    while not inputs[-1]:
        inputs.pop()
    s.ops.append(Op(op.kind, Attrs(op.attrs, results=("Y", *declaration.states)), tuple(inputs), tuple(results),
                    origin=op.origin))
    for position, last in enumerate(results[1:]):
        if flow.delay:
            exists = s.cut(s.mask(flow.delay, flow.block), 0, flow.block - 1, flow.block)
            last = s.where(exists, last, s.initial_states.get(inputs[first_state + position], 0))
        s.keep(last, inputs[first_state + position], copies=1)  # after the run
    for name, what in zip(op.outputs, requested, strict=True):
        if what == "Y":
            s.flows[name] = replace(flow, name=of_block, first=None)
        else:
            s.not_streamed.add(name)


#: Kind of an operator -> its rule. `rule_of` has the rules of families of operators.
RULES: dict[str, Rule] = {
    "reshape": reshape, "transpose": transpose, "slice": cut, "pad": pad, "concat": concat, "conv2d": convolution,
    "conv3d": convolution, "max_pool": pool, "avg_pool": pool, "sum_pool": pool, "matmul": matmul,
    "softmax": along("axis"), "log_softmax": along("axis"), "softmax_fixed": along("axis"),
    "log_softmax_fixed": along("axis"), "layer_norm": along(""), "rms_norm": along(""),
    "cast": unchanged, "copy": unchanged, "quantize_linear": quantised, "dequantize_linear": quantised,
    "conv2d_integer": convolution, "matmul_integer": matmul, "lookup": unchanged}
