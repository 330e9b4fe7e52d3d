# SPDX-License-Identifier: Apache-2.0
"""Imports a loop with a run-time trip count: builds the graph of its body and decides how each value is carried. A
value whose shape changes between iterations is carried packed (see `packed.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from ...ir.conditions import require_shape
from ...ir.dims import Dim, dim_max, interval, symbols
from ...ir.graph import Op
from ...ir.types import TensorType
from ...ops.tensor.move import emit_slice
from .builder import Builder, Node
from .packed import Packed, bounds_of, capacity_of, changing, largest

if TYPE_CHECKING:
    from .importer import Importer


#: The trip count of a loop that only its condition ends: the largest int64.
ENDLESS = 2**63 - 1


@dataclass(frozen=True)
class Looped:
    """A loop that is being imported, as ONNX's Loop.

    names: names of the iteration number, of the condition, and of the results for the loop-carried values.
    inside: names of the loop-carried values in the body.
    carried: their initial values.
    most, going: the operands M (greatest trip count) and cond.
    capacity: of the stacked scan outputs in iterations; None if there are none, or without a limit.
    exact: whether the trip count equals `capacity`.
    """

    names: Sequence[str]
    inside: Sequence[str]
    carried: Sequence[str]
    most: str
    going: str
    capacity: Dim | None
    exact: bool = False


#: Emits one iteration. It takes the iteration number, the condition and the loop-carried values. It returns the
#: condition, the loop-carried values and a row of each scan output; None for a value that could not be imported.
Body = Callable[[Sequence[str]], "list[str | None]"]


def loop_of(importer: Importer, node: Node, loop: Looped, iteration: Body) -> list[str | None]:
    """Returns the loop's results: loop-carried values, then stacked scan outputs; an empty list if an iteration cannot
    be imported."""
    builder = importer.builder
    plans = _plans(importer, node, loop, iteration)
    if plans is None:
        return []
    with builder.importing(node.name):
        starts = [part for value, plan in zip(loop.carried, plans, strict=True)
                  for part in _packed(node, plan, _filling(node, plan, value))]
    first, outside = len(builder.ops), set(builder.counts.taken)
    given = [loop_input(builder, loop.names[0], TensorType("int64", ())),
             loop_input(builder, loop.names[1], TensorType("bool", ()))]
    parts = [[loop_input(builder, name, type_) for type_ in (plan.types if isinstance(plan, Packed) else (plan,))]
             for name, plan in zip(loop.inside, plans, strict=False)]
    with builder.importing(node.name):
        inside = [plan.unpack(node, builder.counts, values, name) if isinstance(plan, Packed) else values[0]
                  for name, plan, values in zip(loop.inside, plans, parts, strict=False)]
    with builder.seeds.within(given[0]):
        results = iteration([*given, *inside])
    if None in results:
        return []
    going, *values = map(str, results)
    counted = going == given[1] or (node.is_constant(going) and bool(np.all(node.constant_of(going))))
    with builder.importing(node.name):
        goes = [] if counted else node.emit("reshape", (going,), shape=())
        packed = [part for value, plan in zip(values, plans, strict=False) for part in _packed(node, plan, value)]
    stacked = values[len(plans):]
    rows = [node.type_of(name) for name in stacked]
    for row in rows:
        if inner := sorted(set().union(*map(symbols, row.shape)) - outside):
            raise MegccError(f"stacks rows of {', '.join(inner)} elements, which differ "
                             "from iteration to iteration; not supported")
    inputs = [*given, *(part for values in parts for part in values)]
    body, captured = builder.body(first, inputs, [*goes, *packed, *stacked])
    types = (TensorType("int64", ()), TensorType("bool", ()), *map(node.type_of, starts),
             *(row.with_shape((loop.capacity, *row.shape)) for row in rows))
    trip_count, _, *ends = node.emit("loop", (loop.most, loop.going, *starts, *captured), carried=len(starts),
                                     body=body, counted=counted, types=types)
    left = iter(ends)
    with builder.importing(node.name):
        final = [plan.unpack(node, builder.counts, [next(left) for _ in plan.types]) if isinstance(plan, Packed)
                 else next(left) for plan in plans]
    if loop.capacity is None or loop.exact:
        return [*final, *left]
    count = node.count(trip_count, loop.capacity)
    return [*final, *(emit_slice(node, value, 0, 0, count) for value in left)]


def _filling(node: Node, plan: TensorType | Packed, value: str) -> str:
    """Returns the initial value that the loop carries. A single number is broadcast if the first iteration turns it
    into a larger tensor."""
    type_ = node.type_of(value)
    if isinstance(plan, Packed) or type_ == plan or type_.size != 1 or not plan.is_static:
        return value
    (value,) = node.emit("reshape", (value,), shape=(1,) * plan.rank)
    return node.emit("expand", (value,), shape=plan.shape)[0] if plan.size != 1 else value


def _may_fill(start: TensorType, type_: TensorType, name: str, ops: Sequence[Op]) -> bool:
    """Whether a single-number initial value may be broadcast to the type of later iterations. It may if the body does
    not read it, or if the later values have one element too."""
    return type_.dtype == start.dtype and start.size == 1 and type_.is_static \
        and (type_.size == 1 or not any(name in op.inputs for op in ops))


def _packed(node: Node, plan: TensorType | Packed, value: str) -> list[str]:
    """Returns the tensors that represent a loop-carried value. If extents are not known, the run checks that its shape
    is the plan's."""
    if isinstance(plan, Packed):
        return plan.pack(node, value)
    type_ = node.type_of(value)
    if type_ == plan:
        return [value]
    require_shape(type_.shape, plan.shape, _differs(plan, type_))
    return list(node.emit("reshape", (value,), shape=plan.shape))


def _differs(start: TensorType, type_: TensorType) -> str:
    return f"has a value that is {start} at first and then {type_}, which is not supported"


def _plans(importer: Importer, node: Node, loop: Looped, iteration: Body) -> list[TensorType | Packed] | None:
    """Decides how the loop carries each value: as it is, or packed with the capacity of the largest. Returns None if an
    iteration cannot be imported.

    Iterates to a fixed point: an iteration is imported repeatedly until no more extents are found to change. The last
    import gives their largest values.
    """
    builder, expanded = importer.builder, importer.expanded
    starts = [node.type_of(value) for value in loop.carried]
    axes: list[set[int]] = [set() for _ in starts]
    while True:
        mark, outside, findings = builder.mark(), set(builder.counts.taken), len(importer.findings)
        given = [loop_input(builder, name, TensorType(dtype, ()))
                 for name, dtype in (("turn", "int64"), ("going", "bool"))]
        body_inputs, symbols_of = [], []
        for name, type_, changed in zip(loop.inside, starts, axes, strict=False):
            shape = list(type_.shape)
            for axis in changed:
                extent = loop_input(builder, f"{name}.extent", TensorType("int64", ()))
                shape[axis] = builder.counts.count(extent, 0, None, node.name, f"{name}.extent{axis}")
            body_inputs.append(loop_input(builder, name, type_.with_shape(tuple(shape))))
            symbols_of.append({axis: shape[axis] for axis in changed})
        with builder.seeds.within(given[0]):
            results = iteration([*given, *body_inputs])
        if None in results:
            return None
        types = [node.type_of(str(value)) for value in results[1:1 + len(starts)]]
        ops = tuple(builder.ops)
        body = ops[mark.ops:]
        builder.back_to(mark)
        importer.expanded = expanded
        del importer.findings[findings:]
        has_changed = False
        for index, (start, type_, changed) in enumerate(zip(starts, types, axes, strict=True)):
            if start.rank != type_.rank and not changed and _may_fill(start, type_, body_inputs[index], body):
                starts[index], has_changed = type_, True
                continue
            if type_.dtype != start.dtype or type_.rank != start.rank:
                raise MegccError(_differs(start, type_))
            found = {axis for axis in changing((start, type_), outside)} - changed
            changed |= found
            has_changed = has_changed or bool(found)
        if not has_changed:
            break
    extents = [(index, axis, starts[index].shape[axis], types[index].shape[axis], symbols_of[index][axis])
               for index, changed in enumerate(axes) for axis in sorted(changed)]
    settled, known = _fixed_extents(extents, ops)
    plans: list[TensorType | Packed] = []
    trip_count = _trip_count(node, builder, loop) if any(axes) else None
    for index, (start, type_, changed) in enumerate(zip(starts, types, axes, strict=True)):
        name = loop.names[2 + index]
        capacity = {axis: builder.counts.bound(name, start.shape[axis] if (index, axis) in settled else _largest(
            trip_count, start.shape[axis], type_.shape[axis], symbols_of[index][axis], known, outside))
            for axis in sorted(changed)}
        if None in capacity.values() and all(_may_stay(start.shape[axis], type_.shape[axis], symbols_of[index][axis])
                                             for axis in changed):
            capacity = {}  # checked at run time
        if None in capacity.values():
            raise MegccError(f"has a value that is {start} at first and grows, and nothing limits how far; state a "
                             f"bound of its extents: --bound {name}=1000")
        plans.append(Packed(name, start, capacity) if capacity else start)
    return plans


def _fixed_extents(extents: Sequence[tuple[int, int, Dim, Dim, Dim]],
                 ops: Sequence[Op]) -> tuple[set[tuple[int, int]], dict[str, int | None]]:
    """Finds extents that never exceed their initial value, by assuming it for all and dropping those that may grow.

    extents: (value, axis, initial extent, extent after an iteration, symbol inside the iteration). Returns the
    (value, axis) that do not grow, and the limits of the symbols of an iteration.
    """
    outer = bounds_of(ops)
    left = {(index, axis): (top, then, str(body_extent)) for index, axis, first, then, body_extent in extents
            if (top := interval(first, {name: (0, outer.get(name)) for name in symbols(first)})[1]) is not None}
    while True:
        known = bounds_of(ops, {body_extent: top for top, _, body_extent in left.values()})
        grow = [key for key, (top, then, _) in left.items()
                if (most := largest(then, known, ())) is None or not isinstance(most, int) or most > top]
        if not grow:
            return set(left), known
        for key in grow:
            del left[key]


def _trip_count(node: Node, builder: Builder, loop: Looped) -> Dim | None:
    """Returns the largest possible trip count; None for no limit."""
    if loop.capacity is not None:
        return loop.capacity
    if builder.counts.known(loop.most):
        return node.extents(loop.most)[0] if node.extents(loop.most) != (ENDLESS,) else None
    if node.inputs[0] in builder.counts.bounds:
        return builder.counts.count(loop.most, 0, None, node.name, node.inputs[0])
    return None


def _may_stay(start: Dim, then: Dim, body_extent: Dim) -> bool:
    """Whether an extent after an iteration does not depend on the one before it."""
    return not symbols(then) & symbols(body_extent)


def _largest(trip_count: Dim | None, start: Dim, then: Dim, body_extent: Dim, known: dict,
             outside: set[str]) -> Dim | None:
    """Returns the largest extent of a value that is `start` at first, and after an iteration is `then`, an expression
    over `body_extent`, the extent before the iteration."""
    first = largest(start, known, outside)
    growth = largest(then - body_extent, known, outside)
    if isinstance(growth, int) and growth <= 0:
        return first
    if growth is not None and trip_count is not None and not symbols(growth) & symbols(body_extent):
        growth = growth if isinstance(growth, int) else dim_max(growth, 0)
        return None if first is None else first + trip_count * growth
    return capacity_of([first, largest(then, known, outside)])


def loop_input(builder: Builder, name: str, type_: TensorType) -> str:
    """Adds an input of a loop body, which gets a value in each iteration, and returns its name."""
    name = builder.unique(name or "unused")
    builder.add_input(name, type_)
    return name
