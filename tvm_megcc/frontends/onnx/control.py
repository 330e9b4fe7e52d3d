# SPDX-License-Identifier: Apache-2.0
"""Imports If, Loop and Scan. A short loop with a known trip count is unrolled. Any other loop, and an If whose
condition is computed at run time, becomes an operator with subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim
from ...ir.types import TensorType
from ...ops.elementwise import cast_to
from ...ops.rules import END_OF_AXIS, axis_of
from .builder import Builder, Node
from .carried import Form, carried_forms, form_of, from_tensors, only_appends, tensor_types, to_tensors, types_of
from .loops import ENDLESS, LoopSpec, add_branch_operator, emit_loop
from .packed import Packed, common_capacity, unbacked_bounds, upper_bound, varying_axes
from .stacked import element_type
from .trip_count import known_trip_count

if TYPE_CHECKING:
    from .nodes import Importer, Scope

#: The most iterations of a loop that is unrolled.
MAX_UNROLLED_ITERATIONS = 1024
#: The most nodes that unrolling may give if the loop could also become an operator.
MAX_UNROLLED_NODES = 256

#: Domain -> version of its operator set, for the nodes of a subgraph.
Opsets = Mapping[str, int]


def subgraph_of(proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """Returns the subgraph in the attribute `name`.

    Raises:
        MegccError: if the node has no such attribute.
    """
    for attribute in proto.attribute:
        if attribute.name == name and attribute.HasField("g"):
            return attribute.g
    raise MegccError(f"has no {name}; export the model again")


def import_if(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """Returns the outputs of an If. A constant condition selects its branch; otherwise both branches are imported: once
    to learn the types of their outputs, then as the bodies of an operator `branch`."""
    if node.is_const(0):
        branch = "then_branch" if node.const(0).reshape(-1)[0] else "else_branch"
        return importer.inline(subgraph_of(proto, branch), scope, opsets, {})
    (condition,) = node.emit("reshape", node.inputs[:1], shape=())
    builder, checkpoint = importer.builder, importer.checkpoint()
    outer_symbols = set(builder.unbacked.taken)
    branch_values, branch_bounds = [], []
    for name, other in (("then_branch", "else_branch"), ("else_branch", "then_branch")):
        values = importer.inline(subgraph_of(proto, name), scope, opsets, {})
        if None in values and (importer.has_unknown_operator or importer.has_unsupported_node):
            raise MegccError("its condition is computed at run time, and one of its branches is not supported; do what "
                             "is said above, or fix the input it depends on (--constant sr=16000)")
        if None in values:
            importer.warnings.append(f"If {node.name}: a run that takes its {name} fails: "
                                     + "; ".join(importer.findings_since(checkpoint)))
            importer.restore(checkpoint)
            return _only_branch(importer, node, proto, scope, opsets, condition, other)
        branch_values.append([types_of(importer.sequences, node, str(value)) for value in values])
        branch_bounds.append(unbacked_bounds(builder.ops))
        importer.restore(checkpoint)
    forms = [form_of(pair) for pair in zip(*branch_values, strict=True)]
    types = [[type_ for value, form in zip(values, forms, strict=True) for type_ in tensor_types(value, form)]
             for values in branch_values]
    plans = [_output_plan(node, builder, name, pair, branch_bounds, outer_symbols)
             for name, *pair in zip(_tensor_names(node, forms), *types, strict=True)]
    return _emit_branch(importer, node, proto, scope, opsets, condition, forms, plans)


def _tensor_names(node: Node, forms: Sequence[Form]) -> list[str]:
    """Returns the names of the tensors that represent the outputs of an If; `forms` has a form for each output."""
    names: list[str] = []
    for index, (output, form) in enumerate(zip(node.outputs, forms, strict=True)):
        if form.parts is None:
            names.append(output or f"{node.name}.{index}")
        else:
            names += [f"{output or node.name}.{part}" for part in range(form.parts)]
    return names


def _emit_branch(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets, condition: str,
                 forms: Sequence[Form], plans: Sequence[TensorType | Packed]) -> list[str | None]:
    """Emits the operator `branch` with the bodies `yes` and `no`, and returns the outputs of the If.

    forms: one for each output of the If. plans: one for each tensor that represents an output.
    """
    builder = importer.builder
    branches = []
    for name in ("then_branch", "else_branch"):
        first_op = len(builder.ops)
        values = importer.inline(subgraph_of(proto, name), scope, opsets, {})
        with builder.importing(node.name):
            tensors = [tensor for value, form in zip(values, forms, strict=True)
                       for tensor in to_tensors(importer.sequences, node, str(value), form)]
            results = [part for tensor, plan in zip(tensors, plans, strict=True)
                       for part in (plan.pack(node, tensor) if isinstance(plan, Packed)
                                    else [_with_shape_of(node, tensor, plan)])]
        branches.append(builder.body(first_op, (), results))
    types = [type_ for plan in plans for type_ in (plan.types if isinstance(plan, Packed) else (plan,))]
    emitted = iter(add_branch_operator(node, condition, branches, types))
    with builder.importing(node.name):
        unpacked = iter([plan.unpack(node, builder.unbacked, [next(emitted) for _ in plan.types])
                         if isinstance(plan, Packed) else next(emitted) for plan in plans])
    return [from_tensors(importer.sequences, list(islice(unpacked, 1 if form.parts is None else form.parts)), form)
            for form in forms]


def _with_shape_of(node: Node, value: str, type_: TensorType) -> str:
    return value if node.type_of(value) == type_ else node.emit("reshape", (value,), shape=type_.shape)[0]


def _output_plan(node: Node, builder: Builder, name: str, types: Sequence[TensorType], bounds: Sequence[dict],
                 outer_symbols: set[str]) -> TensorType | Packed:
    """Returns how an If gives one tensor: with a plain type, or packed if the branches give different extents.

    types: the tensor's type in then_branch and in else_branch. bounds: the bounds of the symbols of each branch.
    """
    yes, no = types
    axes = [] if yes.rank != no.rank else varying_axes(types, outer_symbols)
    if yes == no and not axes:
        return yes
    if yes.dtype == no.dtype and yes.is_static and no.is_static and \
            [extent for extent in yes.shape if extent != 1] == [extent for extent in no.shape if extent != 1]:
        return min(yes, no, key=lambda type_: type_.rank)   # the types differ only in axes of extent 1
    if yes.dtype != no.dtype or yes.rank != no.rank:
        raise MegccError(f"its condition is computed at run time, and its branches give {yes} and {no}, which is "
                         "not supported; fix the input it depends on (--constant sr=16000), or export the model "
                         "with a fixed branch")
    capacities: dict[int, Dim | None] = {}
    for axis in axes:
        largest = [upper_bound(type_.shape[axis], known, outer_symbols)
                   for type_, known in zip(types, bounds, strict=True)]
        capacities[axis] = builder.unbacked.bound(name, common_capacity(largest))
    if None in capacities.values():
        raise MegccError(f"its branches give {yes} and {no}, and nothing limits how large that is; state a bound: "
                         f"--bound {name}=1000")
    return Packed(name, yes, capacities)


def _only_branch(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets, condition: str,
                 branch: str) -> list[str | None]:
    """Imports the branch in the attribute `branch` of an If whose other branch contradicts the input shapes. A run that
    takes the other branch fails."""
    if branch == "then_branch":
        (condition,) = node.emit("logical_not", (condition,))
    (condition,) = node.emit("cast", (condition,), dtype="int64")
    importer.builder.unbacked.require_zero(condition, f"condition of {node.name}", node.name)
    return importer.inline(subgraph_of(proto, branch), scope, opsets, {})


def import_loop(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
                opsets: Opsets) -> list[str | None]:
    """Returns the outputs of a Loop: the final loop-carried values, then the scan outputs."""
    body = subgraph_of(proto, "body")
    # Unrolling no iteration would give scan outputs without a shape, so a trip count of 0 is left to the operator.
    has_iterations = not node.has(0) or (node.is_const(0) and (node.const(0) > 0).any())
    can_unroll = has_iterations and (not node.has(1) or node.is_const(1))
    max_trip_count = int(node.const(0).reshape(-1)[0]) if can_unroll and node.has(0) else ENDLESS
    if not can_unroll or max_trip_count * len(body.node) > MAX_UNROLLED_NODES:
        return _import_as_operator(importer, node, body, scope, opsets)
    checkpoint = importer.checkpoint()
    try:
        return _unrolled_loop(importer, node, body, scope, opsets)
    except _RuntimeTripCount:
        importer.restore(checkpoint)
        return _import_as_operator(importer, node, body, scope, opsets)


class _RuntimeTripCount(Exception):
    """Raised if the trip count of a loop is only known at run time."""


def _require_consistent_body(body: onnx.GraphProto, num_carried: int) -> None:
    """Raises ShapeError unless a Loop's body takes (iteration number, condition, carried values) and returns
    (condition, carried values, scan outputs)."""
    if len(body.input) != num_carried + 2 or len(body.output) < num_carried + 1:
        raise ShapeError(f"has a body of {len(body.input)} inputs and {len(body.output)} outputs for {num_carried} "
                         "values")


def _trip_count_operands(importer: Importer, node: Node, trip_count: int | None) -> tuple[str, str]:
    """Returns the greatest trip count and the condition of a Loop, int64 [] and bool []. trip_count: that which follows
    from the condition; None if it is not known."""
    maximum = node.constant(np.array(ENDLESS if trip_count is None else trip_count))
    if node.has(0):
        (stated,) = node.emit("reshape", (cast_to(node, node.inputs[0], "int64")[0],), shape=())
        (maximum,) = (stated,) if trip_count is None else node.emit("min", (stated, maximum))
    # A negative trip count means no iteration. One that is computed from extents is not negative.
    if node.is_constant(maximum) or not importer.builder.unbacked.known(maximum):
        (maximum,) = node.emit("max", (maximum, node.constant(np.array(0))))
    condition = node.emit("reshape", (node.inputs[1],), shape=())[0] if node.has(1) else node.constant(np.array(True))
    return maximum, condition


def _kinds_of_values(body: onnx.GraphProto, is_sequence: Sequence[bool]) -> tuple[list[int], list[int], list[int]]:
    """Sorts the values that a Loop's body takes and returns, by index: invariant ones, such as the weights that
    exporters pass through loops; sequences that iterations only append to; and those that the loop must carry."""
    taken = [value.name for value in body.input][2:]  # after the iteration number and the condition
    returned = [value.name for value in body.output][1:]  # after the condition
    invariant, appended, carried = [], [], []
    for index, sequence in enumerate(is_sequence):
        if returned[index] == taken[index]:
            invariant.append(index)
        elif sequence and only_appends(body, taken[index], returned[index]):
            appended.append(index)
        else:
            carried.append(index)
    return invariant, appended, carried


def _import_as_operator(importer: Importer, node: Node, body: onnx.GraphProto, scope: Scope,
                        opsets: Opsets) -> list[str | None]:
    """Imports a Loop as an operator `loop`, and returns its outputs. Scan outputs get the capacity of the largest trip
    count: that of the operand M, or the bound that the user states for the output."""
    builder, initial = importer.builder, list(node.inputs[2:])
    body_names = [value.name for value in body.input]
    _require_consistent_body(body, len(initial))
    trip_count = known_trip_count(importer, node, body, scope, opsets)
    max_trip_count, condition = _trip_count_operands(importer, node, trip_count)

    sequences = importer.sequences
    invariant, appended, carried = _kinds_of_values(body, [value in sequences for value in initial])
    body_inputs = [body_names[2 + index] for index in carried]
    outer = {body_names[2 + index]: initial[index] for index in invariant}
    # Each iteration appends to an empty sequence, so the tensor that it appends is the only element afterwards.
    outer |= {body_names[2 + index]: sequences.of(()) for index in appended}
    forms = carried_forms(importer, node, [initial[index] for index in carried], [*body_names[:2], *body_inputs],
                          lambda values: importer.inline(body, scope, opsets, outer | values), carried)
    has_rows = len(body.output) > len(initial) + 1 or bool(appended)
    capacity = _capacity(node, builder, max_trip_count) if has_rows else None

    def iteration(values: Sequence[str]) -> list[str | None]:
        start = [from_tensors(sequences, [value], form) for value, form in zip(values[2:], forms, strict=True)]
        results = importer.inline(body, scope, opsets, outer | dict(zip(
            [*body_names[:2], *body_inputs], [*values[:2], *start], strict=True)))
        if None in results:
            return results
        next_condition, *outputs = map(str, results)
        if trip_count is not None:  # the condition holds for all iterations, so only the trip count is checked
            next_condition = node.constant(np.array(True))
        with builder.importing(node.name):
            tensors = [tensor for index, form in zip(carried, forms, strict=True)
                       for tensor in to_tensors(sequences, node, outputs[index], form)]
        appended_rows = [sequences.elements[outputs[index]][0] for index in appended]
        return [next_condition, *tensors, *outputs[len(initial):], *appended_rows]

    output_names = [*node.outputs, *[""] * len(initial)]
    names = [*body_names[:2], *(output_names[index] or f"{node.name}.{index}" for index in carried)]
    is_exact = trip_count is not None and node.is_constant(max_trip_count)
    starts = [to_tensors(sequences, node, initial[index], form)[0] for index, form in zip(carried, forms, strict=True)]
    spec = LoopSpec(names, body_inputs, starts, max_trip_count, condition, capacity, is_exact)
    emitted = emit_loop(importer, node, spec, iteration)
    has_results = len(invariant) < len(body.output) - 1
    if has_results and not emitted:  # an iteration could not be imported
        return []
    # `emitted` has the order of what `iteration` returns, without the condition.
    first_appended = len(emitted) - len(appended)
    carried_values, scan_outputs = emitted[:len(carried)], emitted[len(carried):first_appended]
    final: list[str | None] = list(initial)
    for index, form, value in zip(carried, forms, carried_values, strict=True):
        final[index] = from_tensors(sequences, [str(value)], form)
    for index, value in zip(appended, emitted[first_appended:], strict=True):
        final[index] = sequences.of_stack(_append_rows(importer, node, initial[index], str(value)))
    return [*final, *scan_outputs]


def _append_rows(importer: Importer, node: Node, start: str, rows: str) -> str:
    """Appends the rows that the iterations give to the tensors of the sequence `start`, and returns the stack."""
    (first,) = to_tensors(importer.sequences, node, start, Form(element=element_type(node.type_of(rows))))
    return rows if node.type_of(first).shape[0] == 0 else node.emit("concat", (first, rows), axis=0)[0]


def _capacity(node: Node, builder: Builder, max_trip_count: str) -> Dim:
    """Returns an upper bound of the trip count, which is the extent of the scan outputs. max_trip_count: the greatest
    trip count as a value."""
    if node.is_constant(max_trip_count) and node.constant_of(max_trip_count) == ENDLESS:
        bound = node.extent_bound(None)
    else:
        bound = node.extent_bound(node.extents(max_trip_count)[0] if builder.unbacked.known(max_trip_count)
                           else builder.unbacked.extent(max_trip_count, 0, None, node.name, node.inputs[0]))
    if bound is None:
        raise MegccError("has no number of iterations, so nothing limits what they give; state a bound: --bound "
                         f"{next(filter(None, node.outputs))}=1000")
    return bound


def _unrolled_loop(importer: Importer, node: Node, body: onnx.GraphProto, scope: Scope,
                   opsets: Opsets) -> list[str | None]:
    """Imports the body of a Loop once for each iteration, and returns the outputs.

    Raises:
        _RuntimeTripCount: if the condition depends on run-time values.
    """
    iterations = MAX_UNROLLED_ITERATIONS + 1
    if node.has(0):
        iterations = int(node.const(0, "the number of iterations").reshape(-1)[0])
    condition = not node.has(1) or bool(node.const(1, "the condition").reshape(-1)[0])
    carried: list[str | None] = list(node.inputs[2:])
    _require_consistent_body(body, len(carried))
    body_names = [value.name for value in body.input]
    scan_rows: list[list[str]] = [[] for _ in body.output[len(carried) + 1:]]
    iteration = 0
    while condition and iteration < iterations:
        _require_few_iterations(iteration)
        start = [node.constant(np.array(iteration, np.int64)), node.constant(np.array(True)), *carried]
        next_condition, *values = importer.inline(body, scope, opsets, dict(zip(body_names, start, strict=True)))
        if next_condition is None or None in values:
            return []
        if not node.is_constant(next_condition):
            raise _RuntimeTripCount
        condition = bool(importer.builder.constants[next_condition].reshape(-1)[0])
        carried = values[:len(carried)]
        for rows, value in zip(scan_rows, values[len(carried):], strict=True):
            rows.append(str(value))
        iteration += 1
    return [*carried, *(_stack(node, rows, axis=0) for rows in scan_rows)]


def _require_few_iterations(iteration: int) -> None:
    if iteration >= MAX_UNROLLED_ITERATIONS:
        raise MegccError(f"has more than {MAX_UNROLLED_ITERATIONS} iterations, or no known end, which is not "
                         "supported; export the model with fewer")


def _stack(node: Node, rows: Sequence[str], axis: int) -> str:
    """Stacks the results of the iterations along a new axis."""
    if not rows:
        raise MegccError("has no iterations, whose results have no shape")
    shape = node.type_of(rows[0]).shape
    axis = axis_of(axis, len(shape) + 1)
    with_axis = [node.emit("reshape", (row,), shape=(*shape[:axis], 1, *shape[axis:]))[0] for row in rows]
    return node.emit("concat", with_axis, axis=axis)[0] if len(with_axis) > 1 else with_axis[0]


class ScanAxes(NamedTuple):
    """The attributes of a Scan: the axes along which it reads and stacks, and whether it does so backwards (1) or
    forwards (0). There is an entry for each scan input or scan output; None for the defaults, 0."""

    input_axes: Sequence[int]
    input_directions: Sequence[int]
    output_axes: Sequence[int] | None = None
    output_directions: Sequence[int] | None = None


def import_scan(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
                opsets: Opsets) -> list[str | None]:
    """Returns the outputs of a Scan: the final states, then the scan outputs. Before operator set 9 a Scan has a batch
    axis, and its first operand is sequence lengths."""
    body, num_scan_inputs = subgraph_of(proto, "body"), node.attr("num_scan_inputs")
    if node.opset < 9:
        return _batched_scan(importer, node, body, num_scan_inputs, scope, opsets)
    num_states, default = len(node.inputs) - num_scan_inputs, [0] * num_scan_inputs
    axes = ScanAxes(node.attr("scan_input_axes") or default, node.attr("scan_input_directions") or default,
                    node.attr("scan_output_axes"), node.attr("scan_output_directions"))
    return _scan(importer, node, body, list(node.inputs[:num_states]), list(node.inputs[num_states:]), scope, opsets,
                 axes)


def _scan(importer: Importer, node: Node, body: onnx.GraphProto, states: list, sources: list[str], scope: Scope,
          opsets: Opsets, scan_axes: ScanAxes) -> list[str | None]:
    """Imports a Scan over `sources`, the scan inputs: unrolled if it is short, else as an operator `loop`."""
    input_axes, backwards, output_axes, output_backwards = scan_axes
    body_names = [value.name for value in body.input]
    if len(body_names) != len(states) + len(sources) or not sources \
            or {len(input_axes), len(backwards)} != {len(sources)}:
        raise ShapeError(f"has a body of {len(body_names)} inputs for {len(states)} states and {len(sources)} "
                         "sequences")
    types = [node.type_of(source) for source in sources]
    axes = [axis_of(axis, type_.rank) for axis, type_ in zip(input_axes, types, strict=True)]
    lengths = {type_.shape[axis] for axis, type_ in zip(axes, types, strict=True)}
    if len(lengths) != 1:
        raise MegccError(f"goes along axes of the extents {', '.join(map(str, lengths))}, which have to be equal")
    (length,) = lengths
    num_outputs = len(body.output) - len(states)
    output_axes, output_backwards = output_axes or [0] * num_outputs, output_backwards or [0] * num_outputs
    if not isinstance(length, int) or length == 0 or length * len(body.node) > MAX_UNROLLED_NODES:
        scan_inputs = list(zip(sources, axes, backwards, strict=True))
        results = _scan_as_loop(importer, node, body, states, scan_inputs, length, scope, opsets)
        return [*results[:len(states)], *(
            _move_iterations(node, str(value), axis, is_backward) for value, axis, is_backward in
            zip(results[len(states):], output_axes, output_backwards, strict=False))]
    scan_rows: list[list[str]] = [[] for _ in range(num_outputs)]
    for iteration in range(length):
        _require_few_iterations(iteration)
        slices = []
        for source, type_, axis, is_backward in zip(sources, types, axes, backwards, strict=True):
            index = length - 1 - iteration if is_backward else iteration
            (part,) = node.emit("slice", (source,), axes=(axis,), starts=(index,), ends=(index + 1,), steps=(1,))
            slices += node.emit("reshape", (part,), shape=type_.shape[:axis] + type_.shape[axis + 1:])
        values = importer.inline(body, scope, opsets, dict(zip(body_names, [*states, *slices], strict=True)))
        if None in values:
            return []
        states = values[:len(states)]
        for rows, value in zip(scan_rows, values[len(states):], strict=True):
            rows.append(str(value))
    return [*states, *(_stack(node, rows[::-1] if is_backward else rows, axis) for rows, axis, is_backward in
                       zip(scan_rows, output_axes, output_backwards, strict=True))]


def _scan_as_loop(importer: Importer, node: Node, body: onnx.GraphProto, states: list,
                  scan_inputs: Sequence[tuple[str, int, int]], length: Dim, scope: Scope,
                  opsets: Opsets) -> list[str | None]:
    """Returns the final states, and the scan outputs stacked along a new first axis.

    scan_inputs: (value, axis, whether it is read backwards). length: the trip count.
    """
    body_names = [value.name for value in body.input]

    def iteration(values: Sequence[str]) -> list[str | None]:
        number, condition, *carried = values
        slices = []
        for source, axis, is_backward in scan_inputs:
            index = node.emit("sub", (node.extent(length - 1), number))[0] if is_backward else number
            slices += node.emit("gather", (source, index), axis=axis)
        results = importer.inline(body, scope, opsets, dict(zip(body_names, [*carried, *slices], strict=True)))
        return results if None in results else [condition, *results]

    names = ["iteration", "condition", *(output or f"{node.name}.{index}"
                                          for index, output in enumerate(node.outputs[:len(states)]))]
    return emit_loop(importer, node, LoopSpec(names, body_names, states, node.extent(length),
                                              node.constant(np.array(True)),
                                              length, is_exact=True), iteration)


def _move_iterations(node: Node, value: str, axis: int, is_backward: bool) -> str:
    """Moves the first axis, the iterations, to `axis`; reverses their order if `is_backward`."""
    rank = node.type_of(value).rank
    axis = axis_of(axis, rank)
    if is_backward:
        (value,) = node.emit("slice", (value,), axes=(0,), starts=(-1,), ends=(-END_OF_AXIS,), steps=(-1,))
    if axis == 0:
        return value
    return node.emit("transpose", (value,), perm=(*range(1, axis + 1), 0, *range(axis + 1, rank)))[0]


def _batched_scan(importer: Importer, node: Node, body: onnx.GraphProto, num_scan_inputs: int, scope: Scope,
                  opsets: Opsets) -> list[str | None]:
    """Returns the outputs of a Scan of operator set 8: scans each element of the batch, the first axis of all operands,
    by itself and stacks the results."""
    if node.has(0):
        raise MegccError("has lengths of sequences, which are not supported")
    operands = list(node.inputs[1:])
    batch = node.type_of(operands[0]).shape[0]
    if not isinstance(batch, int) or batch > MAX_UNROLLED_ITERATIONS:
        raise MegccError(f"has a batch of {batch}, which has to be a number of at most {MAX_UNROLLED_ITERATIONS}")
    axes = ScanAxes([0] * num_scan_inputs, node.attr("directions") or [0] * num_scan_inputs)
    results = []
    for index in range(batch):
        slices = []
        for operand in operands:
            (part,) = node.emit("slice", (operand,), axes=(0,), starts=(index,), ends=(index + 1,), steps=(1,))
            slices += node.emit("reshape", (part,), shape=node.type_of(operand).shape[1:])
        num_states = len(slices) - num_scan_inputs
        results.append(_scan(importer, node, body, slices[:num_states], slices[num_states:], scope, opsets, axes))
    if any(None in values for values in results) or not results or not results[0]:
        return []
    return [_stack(node, [str(value) for value in values], axis=0) for values in zip(*results, strict=True)]
