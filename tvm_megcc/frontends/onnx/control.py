# SPDX-License-Identifier: Apache-2.0
"""Imports If, Loop and Scan. A short loop with a known trip count is unrolled. Any other loop, and an If whose
condition is computed at run time, becomes an operator with subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim
from ...ir.types import TensorType
from ...ops.elementwise import cast_to
from ...ops.rules import axis_of
from ...ops.tensor.move import FAR
from .builder import Builder, Node
from .carried import Form, carried_forms, flattened, form_of, is_appended, restored, types_in
from .carried import found as found_of
from .loops import ENDLESS, Looped, loop_of
from .packed import Packed, bounds_of, capacity_of, changing, largest
from .trip_count import known_trip_count

if TYPE_CHECKING:
    from .importer import Importer, Scope

#: The most iterations of a loop that is unrolled, and the most nodes that unrolling may give if the loop could also
#: stay a loop.
MOST_ITERATIONS, MOST_NODES = 1024, 256

Opsets = Mapping[str, int]


def branch_of(node: Node, proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """Returns the subgraph in an attribute."""
    found = next((each.g for each in proto.attribute if each.name == name and each.HasField("g")), None)
    if found is None:
        raise MegccError(f"has no {name}; export the model again")
    return found


def chosen(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """Returns the outputs of an If."""
    if node.is_const(0):
        wanted = "then_branch" if node.const(0).reshape(-1)[0] else "else_branch"
        return importer.inlined(branch_of(node, proto, wanted), scope, opsets, {})
    (condition,) = node.emit("reshape", node.inputs[:1], shape=())
    builder, expanded = importer.builder, importer.expanded
    start, outside = builder.mark(), set(builder.counts.taken)
    values_of, found = [], []
    for name in ("then_branch", "else_branch"):
        mark, findings = builder.mark(), len(importer.findings)
        values = importer.inlined(branch_of(node, proto, name), scope, opsets, {})
        if None in values and (importer.unsupported or importer.refused):
            raise MegccError("its condition is computed at run time, and one of its branches is not supported; do what "
                             "is said above, or fix the input it depends on (--constant sr=16000)")
        if None in values:
            importer.warnings.append(f"If {node.name}: a run that takes its {name} fails: "
                                     + "; ".join(importer.findings[findings:]))
            builder.back_to(start)
            del importer.findings[findings:]
            return _the_other(importer, node, proto, scope, opsets, condition, name == "else_branch")
        values_of.append([found_of(importer.sequences, node, str(value)) for value in values])
        found.append(bounds_of(builder.ops))
        builder.back_to(mark)
    importer.expanded = expanded
    forms = [form_of(pair) for pair in zip(*values_of, strict=True)]
    types = [[type_ for value, form in zip(values, forms, strict=True) for type_ in types_in(value, form)]
             for values in values_of]
    names = [f"{output or node.name}.{part}" if form.parts is not None else output or f"{node.name}.{index}"
             for index, (output, form) in enumerate(zip(node.outputs, forms, strict=True))
             for part in range(1 if form.parts is None else form.parts)]
    plans = [_either(node, builder, name, pair, found, outside)
             for name, *pair in zip(names, *types, strict=True)]
    bodies, reads = {}, []
    for name, key in (("then_branch", "yes"), ("else_branch", "no")):
        first = len(builder.ops)
        values = importer.inlined(branch_of(node, proto, name), scope, opsets, {})
        with builder.importing(node.name):
            flat = [part for value, form in zip(values, forms, strict=True)
                    for part in flattened(importer.sequences, node, str(value), form)]
            results = [part for value, plan in zip(flat, plans, strict=True)
                       for part in (plan.pack(node, str(value)) if isinstance(plan, Packed)
                                    else [_shaped(node, str(value), plan)])]
        bodies[key], captured = builder.body(first, (), results)
        reads.append(captured)
    given = [type_ for plan in plans for type_ in (plan.types if isinstance(plan, Packed) else (plan,))]
    results = iter(node.emit("branch", (condition, *reads[0], *reads[1]), **bodies, reads=len(reads[0]),
                             types=tuple(given)))
    with builder.importing(node.name):
        flat = iter([plan.unpack(node, builder.counts, [next(results) for _ in plan.types])
                     if isinstance(plan, Packed) else next(results) for plan in plans])
    return [restored(importer.sequences, list(islice(flat, 1 if form.parts is None else form.parts)), form)
            for form in forms]


def _shaped(node: Node, value: str, type_: TensorType) -> str:
    return value if node.type_of(value) == type_ else node.emit("reshape", (value,), shape=type_.shape)[0]


def _either(node: Node, builder: Builder, name: str, types: Sequence[TensorType], found: Sequence[dict],
            outside: set[str]) -> TensorType | Packed:
    """Returns the form of an output of an If: a plain type, or packed if the branches give different extents."""
    yes, no = types
    axes = [] if yes.rank != no.rank else changing(types, outside)
    if yes == no and not axes:
        return yes
    if yes.dtype == no.dtype and yes.is_static and no.is_static and \
            [extent for extent in yes.shape if extent != 1] == [extent for extent in no.shape if extent != 1]:
        return min(yes, no, key=lambda type_: type_.rank)   # the types differ only in axes of extent 1
    if yes.dtype != no.dtype or yes.rank != no.rank:
        raise MegccError(f"its condition is computed at run time, and its branches give {yes} and {no}, which is "
                         "not supported; fix the input it depends on (--constant sr=16000), or export the model "
                         "with a fixed branch")
    capacities = {axis: builder.counts.bound(name, capacity_of([largest(type_.shape[axis], known, outside)
                                               for type_, known in zip(types, found, strict=True)])) for axis in axes}
    if None in capacities.values():
        raise MegccError(f"its branches give {yes} and {no}, and nothing limits how large that is; state a bound: "
                         f"--bound {name}=1000")
    return Packed(name, yes, capacities)


def _the_other(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets, condition: str,
               wanted: bool) -> list[str | None]:
    """Imports one branch of an If whose other branch contradicts the input shapes. A run that takes the other branch
    fails."""
    if not wanted:
        (condition,) = node.emit("cast", (condition,), dtype="int64")
    else:
        (condition,) = node.emit("cast", (node.emit("logical_not", (condition,))[0],), dtype="int64")
    importer.builder.counts.require_zero(condition, f"condition of {node.name}", node.name)
    branch = branch_of(node, proto, "then_branch" if wanted else "else_branch")
    return importer.inlined(branch, scope, opsets, {})


def loop(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """Returns the outputs of a Loop: the final loop-carried values, then the scan outputs."""
    body = branch_of(node, proto, "body")
    runs_once = not node.has(0) or (node.is_const(0) and (node.const(0) > 0).any())
    known = runs_once and (not node.has(1) or node.is_const(1))
    if not known or int(node.const(0).reshape(-1)[0] if node.has(0) else ENDLESS) * len(body.node) > MOST_NODES:
        return _looped(importer, node, body, scope, opsets)
    mark, findings = importer.builder.mark(), len(importer.findings)
    try:
        return _written_out(importer, node, body, scope, opsets)
    except _Undecided:
        importer.builder.back_to(mark)
        del importer.findings[findings:]
        return _looped(importer, node, body, scope, opsets)


class _Undecided(Exception):
    """Raised if the trip count of a loop is only known at run time."""


def _looped(importer: Importer, node: Node, body: onnx.GraphProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """Imports a loop with a run-time trip count, and returns its outputs. Scan outputs get the capacity of the largest
    trip count: that of the operand M, or the bound that the user states for the output."""
    builder, carried = importer.builder, list(node.inputs[2:])
    given = [value.name for value in body.input]
    if len(given) != len(carried) + 2 or len(body.output) < len(carried) + 1:
        raise ShapeError(f"has a body of {len(given)} inputs and {len(body.output)} outputs for {len(carried)} values")
    counted = known_trip_count(importer, node, body, scope, opsets)
    most = node.constant(np.array(ENDLESS if counted is None else counted))
    if node.has(0):
        (stated,) = node.emit("reshape", (cast_to(node, node.inputs[0], "int64")[0],), shape=())
        (most,) = (stated,) if counted is None else node.emit("min", (stated, most))
    if node.is_constant(most) or not builder.counts.known(most):
        (most,) = node.emit("max", (most, node.constant(np.array(0))))
    going = node.emit("reshape", (node.inputs[1],), shape=())[0] if node.has(1) else node.constant(np.array(True))

    # Not carried: loop-invariant values, such as the weights that exporters pass through loops, and sequences that
    # iterations only append to.
    sequences = importer.sequences
    results_of = [value.name for value in body.output[1:]]
    fixed = {index for index in range(len(carried)) if results_of[index] == given[2 + index]}
    added = [index for index in range(len(carried)) if carried[index] in sequences and index not in fixed
             and is_appended(body, given[2 + index], results_of[index])]
    moving = [index for index in range(len(carried)) if index not in fixed and index not in added]
    body_inputs = [given[2 + index] for index in moving]
    outer = {given[2 + index]: carried[index] for index in fixed} | {given[2 + index]: sequences.of(())
                                                                     for index in added}
    forms = carried_forms(importer, node, [carried[index] for index in moving], [*given[:2], *body_inputs],
                          lambda values: importer.inlined(body, scope, opsets, outer | values), moving)
    capacity = None if len(body.output) == len(carried) + 1 and not added else _capacity(node, builder, most)

    def iteration(values: Sequence[str]) -> list[str | None]:
        start = [restored(sequences, [value], form) for value, form in zip(values[2:], forms, strict=True)]
        results = importer.inlined(body, scope, opsets, outer | dict(zip(
            [*given[:2], *body_inputs], [*values[:2], *start], strict=True)))
        if None in results:
            return results
        going, *outputs = map(str, results)
        if counted is not None:  # the condition holds for all `counted` iterations, so only the trip count is checked
            going = node.constant(np.array(True))
        with builder.importing(node.name):
            moved = [part for index, form in zip(moving, forms, strict=True)
                     for part in flattened(sequences, node, outputs[index], form)]
        return [going, *moved, *outputs[len(carried):], *(sequences.elements[outputs[index]][0] for index in added)]

    outputs = [*node.outputs, *[""] * len(carried)]
    names = [*given[:2], *(outputs[index] or f"{node.name}.{index}" for index in moving)]
    exact = counted is not None and node.is_constant(most)
    starts = [flattened(sequences, node, carried[index], form)[0] for index, form in zip(moving, forms, strict=True)]
    found = loop_of(importer, node, Looped(names, body_inputs, starts, most, going, capacity, exact), iteration)
    if not found and len(fixed) < len(body.output) - 1:
        return []
    results = list(carried)
    for index, form, value in zip(moving, forms, found, strict=False):
        results[index] = restored(sequences, [str(value)], form)
    for index, value in zip(added, found[len(found) - len(added):], strict=True):
        results[index] = sequences.of_stack(_appended(importer, node, carried[index], str(value)))
    return [*results, *found[len(moving):len(found) - len(added)]]


def _appended(importer: Importer, node: Node, start: str, rows: str) -> str:
    """Appends the results of iterations to the tensors of a sequence."""
    type_ = node.type_of(rows)
    (first,) = flattened(importer.sequences, node, start, Form(element=type_.with_shape(type_.shape[1:])))
    return rows if node.type_of(first).shape[0] == 0 else node.emit("concat", (first, rows), axis=0)[0]


def _capacity(node: Node, builder: Builder, most: str) -> Dim:
    """Returns the largest possible trip count, which is the extent of the scan outputs."""
    if node.is_constant(most) and node.constant_of(most) == ENDLESS:
        bound = node.bound(None)
    else:
        bound = node.bound(node.extents(most)[0] if builder.counts.known(most)
                           else builder.counts.count(most, 0, None, node.name, node.inputs[0]))
    if bound is None:
        raise MegccError("has no number of iterations, so nothing limits what they give; state a bound: --bound "
                         f"{next(filter(None, node.outputs))}=1000")
    return bound


def _written_out(importer: Importer, node: Node, body: onnx.GraphProto, scope: Scope,
                 opsets: Opsets) -> list[str | None]:
    iterations = int(node.const(0, "the number of iterations").reshape(-1)[0]) if node.has(0) else MOST_ITERATIONS + 1
    going = not node.has(1) or bool(node.const(1, "the condition").reshape(-1)[0])
    carried: list[str | None] = list(node.inputs[2:])
    given = [value.name for value in body.input]
    if len(given) != len(carried) + 2 or len(body.output) < len(carried) + 1:
        raise ShapeError(f"has a body of {len(given)} inputs and {len(body.output)} outputs for {len(carried)} values")
    collected: list[list[str]] = [[] for _ in body.output[len(carried) + 1:]]
    iteration = 0
    while going and iteration < iterations:
        _limit(iteration)
        start = [node.constant(np.array(iteration, np.int64)), node.constant(np.array(True)), *carried]
        condition, *values = importer.inlined(body, scope, opsets, dict(zip(given, start, strict=True)))
        if condition is None or None in values:
            return []
        if not node.is_constant(condition):
            raise _Undecided
        going = bool(importer.builder.constants[condition].reshape(-1)[0])
        carried = values[:len(carried)]
        for rows, value in zip(collected, values[len(carried):], strict=True):
            rows.append(str(value))
        iteration += 1
    return [*carried, *(_stacked(node, rows, 0) for rows in collected)]


def _limit(iteration: int) -> None:
    if iteration >= MOST_ITERATIONS:
        raise MegccError(f"has more than {MOST_ITERATIONS} iterations, or no known end, which is not supported; export "
                         "the model with fewer")


def _stacked(node: Node, rows: Sequence[str], axis: int) -> str:
    """Stacks the results of the iterations along a new axis."""
    if not rows:
        raise MegccError("has no iterations, whose results have no shape")
    shape = node.type_of(rows[0]).shape
    axis = axis_of(axis, len(shape) + 1)
    wide = [node.emit("reshape", (row,), shape=(*shape[:axis], 1, *shape[axis:]))[0] for row in rows]
    return node.emit("concat", wide, axis=axis)[0] if len(wide) > 1 else wide[0]


def scan(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """Returns the outputs of a Scan over axes of known extent. Before operator set 9 a Scan has a batch axis, and its
    first operand is sequence lengths."""
    body, count = branch_of(node, proto, "body"), node.attr("num_scan_inputs")
    if node.opset < 9:
        return _by_batch(importer, node, body, count, scope, opsets)
    states = len(node.inputs) - count
    return _scanned(importer, node, body, list(node.inputs[:states]), list(node.inputs[states:]), scope, opsets,
                    (node.attr("scan_input_axes") or [0] * count, node.attr("scan_input_directions") or [0] * count,
                     node.attr("scan_output_axes"), node.attr("scan_output_directions")))


def _scanned(importer: Importer, node: Node, body: onnx.GraphProto, states: list, sources: list[str], scope: Scope,
             opsets: Opsets, how: tuple) -> list[str | None]:
    axes, backward, output_axes, output_backward = how
    given = [value.name for value in body.input]
    if len(given) != len(states) + len(sources) or not sources or {len(axes), len(backward)} != {len(sources)}:
        raise ShapeError(f"has a body of {len(given)} inputs for {len(states)} states and {len(sources)} sequences")
    types = [node.type_of(source) for source in sources]
    axes = [axis_of(axis, type_.rank) for axis, type_ in zip(axes, types, strict=True)]
    iterations = {type_.shape[axis] for axis, type_ in zip(axes, types, strict=True)}
    if len(iterations) != 1:
        raise MegccError(f"goes along axes of extents {', '.join(map(str, iterations))}; wants one")
    (length,) = iterations
    outputs = len(body.output) - len(states)
    output_axes, output_backward = output_axes or [0] * outputs, output_backward or [0] * outputs
    if not isinstance(length, int) or length == 0 or length * len(body.node) > MOST_NODES:
        sequences = list(zip(sources, axes, backward, strict=True))
        stacks = _scan_iterations(importer, node, body, states, sequences, length, scope, opsets)
        return [*stacks[:len(states)], *(
            _along(node, str(value), axis, back) for value, axis, back in
            zip(stacks[len(states):], output_axes, output_backward, strict=False))]
    collected: list[list[str]] = [[] for _ in range(outputs)]
    for iteration in range(length):
        _limit(iteration)
        parts = []
        for source, type_, axis, back in zip(sources, types, axes, backward, strict=True):
            at = length - 1 - iteration if back else iteration
            (part,) = node.emit("slice", (source,), axes=(axis,), starts=(at,), ends=(at + 1,), steps=(1,))
            parts += node.emit("reshape", (part,), shape=type_.shape[:axis] + type_.shape[axis + 1:])
        values = importer.inlined(body, scope, opsets, dict(zip(given, [*states, *parts], strict=True)))
        if None in values:
            return []
        states = values[:len(states)]
        for rows, value in zip(collected, values[len(states):], strict=True):
            rows.append(str(value))
    return [*states, *(_stacked(node, rows[::-1] if back else rows, axis) for rows, axis, back in
                       zip(collected, output_axes, output_backward, strict=True))]


def _scan_iterations(importer: Importer, node: Node, body: onnx.GraphProto, states: list, sequences: list, length: Dim,
                   scope: Scope, opsets: Opsets) -> list[str | None]:
    """Returns the final states, and the scan outputs stacked along a new first axis."""
    given = [value.name for value in body.input]
    def iteration(values: Sequence[str]) -> list[str | None]:
        at, going, *carried_values = values
        parts = []
        for source, axis, back in sequences:
            at_index = node.emit("sub", (node.extent(length - 1), at))[0] if back else at
            parts += node.emit("gather", (source, at_index), axis=axis)
        results = importer.inlined(body, scope, opsets, dict(zip(given, [*carried_values, *parts], strict=True)))
        return results if None in results else [going, *results]

    names = ["turn", "going", *(output or f"{node.name}.{index}"
                                for index, output in enumerate(node.outputs[:len(states)]))]
    return loop_of(importer, node, Looped(names, given, states, node.extent(length), node.constant(np.array(True)),
                                          length, exact=True), iteration)


def _along(node: Node, value: str, axis: int, back: bool) -> str:
    """Moves the first axis, the iterations, to `axis`; reverses their order if `back`."""
    rank = node.type_of(value).rank
    axis = axis_of(axis, rank)
    if back:
        (value,) = node.emit("slice", (value,), axes=(0,), starts=(-1,), ends=(-FAR,), steps=(-1,))
    if axis == 0:
        return value
    return node.emit("transpose", (value,), perm=(*range(1, axis + 1), 0, *range(axis + 1, rank)))[0]


def _by_batch(importer: Importer, node: Node, body: onnx.GraphProto, count: int, scope: Scope,
              opsets: Opsets) -> list[str | None]:
    if node.has(0):
        raise MegccError("has lengths of sequences, which are not supported")
    operands = list(node.inputs[1:])
    batch = node.type_of(operands[0]).shape[0]
    if not isinstance(batch, int) or batch > MOST_ITERATIONS:
        raise MegccError(f"has a batch of {batch}; wants a known one")
    rows = []
    for index in range(batch):
        parts = []
        for operand in operands:
            (part,) = node.emit("slice", (operand,), axes=(0,), starts=(index,), ends=(index + 1,), steps=(1,))
            parts += node.emit("reshape", (part,), shape=node.type_of(operand).shape[1:])
        states = len(parts) - count
        rows.append(_scanned(importer, node, body, parts[:states], parts[states:], scope, opsets,
                             ([0] * count, node.attr("directions") or [0] * count, None, None)))
    if any(None in row for row in rows) or not rows or not rows[0]:
        return []
    return [_stacked(node, [str(value) for value in values], 0) for values in zip(*rows, strict=True)]
