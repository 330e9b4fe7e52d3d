# SPDX-License-Identifier: Apache-2.0
"""Imports a loop with a run-time trip count: builds the graph of its body and decides how each value is carried. A
value whose shape changes between iterations is carried packed (see `packed.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import MegccError
from ...ir.conditions import require_shape
from ...ir.dims import Dim, dim_max, symbols
from ...ir.extent_bounds import interval
from ...ir.graph import Body, Op
from ...ir.types import TensorType
from ...ops.tensor.move import emit_slice
from .builder import Builder, Node
from .packed import Packed, common_capacity, unbacked_bounds, upper_bound, varying_axes

if TYPE_CHECKING:
    from .nodes import Importer


#: The trip count of a loop that only its condition ends: the largest int64.
ENDLESS = 2**63 - 1
#: The types of the iteration number and of the condition, the first inputs of a loop's body.
LOOP_TYPES = TensorType("int64", ()), TensorType("bool", ())


@dataclass(frozen=True)
class LoopSpec:
    """A loop that is being imported, as ONNX's Loop.

    names: names of the iteration number, of the condition, and of the results for the loop-carried values.
    body_names: names of the loop-carried values in the body; names after these, such as those of a Scan's slices, are
        ignored.
    initial_values: the loop-carried values before the first iteration.
    max_trip_count, condition: the operands M and cond, int64 [] and bool [].
    capacity: of the stacked scan outputs in iterations; None if there are none, or without a limit.
    is_exact: whether the trip count equals `capacity`.
    """

    names: Sequence[str]
    body_names: Sequence[str]
    initial_values: Sequence[str]
    max_trip_count: str
    condition: str
    capacity: Dim | None
    is_exact: bool = False


#: Emits one iteration. It takes the iteration number, the condition and the loop-carried values. It returns the
#: condition, the loop-carried values and a row of each scan output; None for a value that could not be imported.
Iteration = Callable[[Sequence[str]], "list[str | None]"]


def emit_loop(importer: Importer, node: Node, loop: LoopSpec, iteration: Iteration) -> list[str | None]:
    """Emits an operator `loop` and returns its results: loop-carried values, then stacked scan outputs; an empty list
    if an iteration cannot be imported."""
    builder = importer.builder
    plans = _plan_carried_values(importer, node, loop, iteration)
    if plans is None:
        return []
    with builder.importing(node.name):
        starts = [tensor for value, plan in zip(loop.initial_values, plans, strict=True)
                  for tensor in _carried_tensors(node, plan, _initial_value(node, plan, value))]
    first_op, outer_symbols = len(builder.ops), set(builder.unbacked.taken)
    body_names = loop.body_names[:len(plans)]
    given = [add_loop_input(builder, name, type_) for name, type_ in zip(loop.names[:2], LOOP_TYPES, strict=True)]
    body_tensors = [[add_loop_input(builder, name, type_)
                     for type_ in (plan.types if isinstance(plan, Packed) else (plan,))]
                    for name, plan in zip(body_names, plans, strict=True)]
    with builder.importing(node.name):
        body_values = [plan.unpack(node, builder.unbacked, tensors, name) if isinstance(plan, Packed) else tensors[0]
                       for name, plan, tensors in zip(body_names, plans, body_tensors, strict=True)]
    with builder.seeds.in_loop(given[0]):
        results = iteration([*given, *body_values])
    if None in results:
        return []
    condition, *outputs = map(str, results)
    values, rows = outputs[:len(plans)], outputs[len(plans):]
    ends_by_count = condition == given[1] \
        or (node.is_constant(condition) and bool(np.all(node.constant_of(condition))))
    with builder.importing(node.name):
        conditions = [] if ends_by_count else node.emit("reshape", (condition,), shape=())
        carried = [tensor for value, plan in zip(values, plans, strict=True)
                   for tensor in _carried_tensors(node, plan, value)]
    row_types = [node.type_of(row) for row in rows]
    for type_ in row_types:
        if inner := sorted(set().union(*map(symbols, type_.shape)) - outer_symbols):
            raise MegccError(f"stacks rows of {', '.join(inner)} elements, which differ "
                             "from iteration to iteration; not supported")
    inputs = [*given, *(tensor for tensors in body_tensors for tensor in tensors)]
    body, captured = builder.body(first_op, inputs, [*conditions, *carried, *rows])
    types = [*map(node.type_of, starts), *(type_.with_shape((loop.capacity, *type_.shape)) for type_ in row_types)]
    trip_count, _, *emitted = add_loop_operator(node, loop.max_trip_count, loop.condition, starts, body, captured,
                                                types, ends_by_count)
    remaining = iter(emitted)
    with builder.importing(node.name):
        final = [plan.unpack(node, builder.unbacked, [next(remaining) for _ in plan.types])
                 if isinstance(plan, Packed) else next(remaining) for plan in plans]
    stacked = list(remaining)
    if loop.capacity is None or loop.is_exact:
        return [*final, *stacked]
    length = node.unbacked_extent(trip_count, loop.capacity)
    return [*final, *(emit_slice(node, value, 0, 0, length) for value in stacked)]


def _initial_value(node: Node, plan: TensorType | Packed, value: str) -> str:
    """Returns the initial value that the loop carries. A single number is broadcast if the first iteration turns it
    into a larger tensor."""
    type_ = node.type_of(value)
    if isinstance(plan, Packed) or type_ == plan or type_.size != 1 or not plan.is_static:
        return value
    (value,) = node.emit("reshape", (value,), shape=(1,) * plan.rank)
    return node.emit("expand", (value,), shape=plan.shape)[0] if plan.size != 1 else value


def _may_broadcast(start: TensorType, type_: TensorType, name: str, ops: Sequence[Op]) -> bool:
    """Whether an initial value of one element may be broadcast to the type of later iterations. It may if the body does
    not read it, or if the later values have one element too.

    name: the value in the body. ops: the body's operators.
    """
    return type_.dtype == start.dtype and start.size == 1 and type_.is_static \
        and (type_.size == 1 or not any(name in op.inputs for op in ops))


def _carried_tensors(node: Node, plan: TensorType | Packed, value: str) -> list[str]:
    """Returns the tensors that represent a loop-carried value. If extents are not known, the run checks that its shape
    is the plan's."""
    if isinstance(plan, Packed):
        return plan.pack(node, value)
    type_ = node.type_of(value)
    if type_ == plan:
        return [value]
    require_shape(type_.shape, plan.shape, _type_mismatch(plan, type_))
    return list(node.emit("reshape", (value,), shape=plan.shape))


def _type_mismatch(start: TensorType, type_: TensorType) -> str:
    """Returns the error text for a carried value that is of one type at first and of another after an iteration."""
    return f"has a value that is {start} at first and then {type_}, which is not supported"


class ChangingExtent(NamedTuple):
    """An extent of a loop-carried value that changes between iterations.

    value, axis: the index of the value among the carried ones, and the axis.
    initial: the extent before the first iteration.
    final: the extent after an iteration, over `symbol`, which stands for the extent before that iteration.
    """

    value: int
    axis: int
    initial: Dim
    final: Dim
    symbol: Dim


@dataclass
class _Trial:
    """The import of one iteration, which finds the types after it.

    types: of the carried values after the iteration. body_inputs: the names of the values before it. symbols: of each
    value, its changing axes -> the symbols of their extents before the iteration. ops: all operators of the builder
    after the import; those from `first_op` on are the iteration's. outer_symbols: those of the values around the loop.
    """

    types: list[TensorType]
    body_inputs: list[str]
    symbols: list[dict[int, Dim]]
    ops: tuple[Op, ...]
    first_op: int
    outer_symbols: set[str]


def _try_iteration(importer: Importer, node: Node, loop: LoopSpec, iteration: Iteration, starts: Sequence[TensorType],
                   axes: Sequence[set[int]]) -> _Trial | None:
    """Imports one iteration, and drops its operators again unless it cannot be imported, when it returns None.

    starts: the types of the carried values before the iteration. axes: their axes whose extents change, which become
    symbols.
    """
    builder, checkpoint = importer.builder, importer.checkpoint()
    outer_symbols = set(builder.unbacked.taken)
    given = [add_loop_input(builder, name, type_)
             for name, type_ in zip(("iteration", "condition"), LOOP_TYPES, strict=True)]
    body_inputs, symbols_of = [], []
    for name, type_, changing in zip(loop.body_names, starts, axes, strict=False):
        shape = list(type_.shape)
        for axis in changing:
            extent = add_loop_input(builder, f"{name}.extent", TensorType("int64", ()))
            shape[axis] = builder.unbacked.extent(extent, 0, None, node.name, f"{name}.extent{axis}")
        body_inputs.append(add_loop_input(builder, name, type_.with_shape(tuple(shape))))
        symbols_of.append({axis: shape[axis] for axis in changing})
    with builder.seeds.in_loop(given[0]):
        results = iteration([*given, *body_inputs])
    if None in results:
        return None
    types = [node.type_of(str(value)) for value in results[1:1 + len(starts)]]
    trial = _Trial(types, body_inputs, symbols_of, tuple(builder.ops), checkpoint.builder.ops, outer_symbols)
    importer.restore(checkpoint)
    return trial


def _plan_carried_values(importer: Importer, node: Node, loop: LoopSpec,
                         iteration: Iteration) -> list[TensorType | Packed] | None:
    """Decides how the loop carries each value: as it is, or packed with the capacity of the largest. Returns None if an
    iteration cannot be imported.

    Iterates to a fixed point: an iteration is imported repeatedly until no more extents are found to change. The last
    import gives their largest values.
    """
    starts = [node.type_of(value) for value in loop.initial_values]
    axes: list[set[int]] = [set() for _ in starts]
    while True:
        trial = _try_iteration(importer, node, loop, iteration, starts, axes)
        if trial is None:
            return None
        has_changed = False
        for index, (start, type_, changing) in enumerate(zip(starts, trial.types, axes, strict=True)):
            if start.rank != type_.rank and not changing \
                    and _may_broadcast(start, type_, trial.body_inputs[index], trial.ops[trial.first_op:]):
                starts[index], has_changed = type_, True
                continue
            if type_.dtype != start.dtype or type_.rank != start.rank:
                raise MegccError(_type_mismatch(start, type_))
            found = set(varying_axes((start, type_), trial.outer_symbols)) - changing
            changing |= found
            has_changed = has_changed or bool(found)
        if not has_changed:
            break
    return _plans_of(importer.builder, node, loop, starts, axes, trial)


def _plans_of(builder: Builder, node: Node, loop: LoopSpec, starts: Sequence[TensorType], axes: Sequence[set[int]],
              trial: _Trial) -> list[TensorType | Packed]:
    """Returns how each value is carried. starts: the types before the first iteration. axes: those that change.

    Raises:
        MegccError: if nothing limits an extent that grows.
    """
    extents = {(index, axis): ChangingExtent(index, axis, starts[index].shape[axis], trial.types[index].shape[axis],
                                             trial.symbols[index][axis])
               for index, changing in enumerate(axes) for axis in sorted(changing)}
    bounded, symbol_bounds = _find_bounded_extents(list(extents.values()), trial.ops)
    trip_count = _max_trip_count(node, builder, loop) if extents else None
    plans: list[TensorType | Packed] = []
    for index, (start, changing) in enumerate(zip(starts, axes, strict=True)):
        name = loop.names[2 + index]
        capacities: dict[int, Dim | None] = {}
        for axis in sorted(changing):
            largest = start.shape[axis] if (index, axis) in bounded else \
                _largest_extent(trip_count, extents[index, axis], symbol_bounds, trial.outer_symbols)
            capacities[axis] = builder.unbacked.bound(name, largest)
        if None in capacities.values() and all(_is_independent(extents[index, axis]) for axis in changing):
            capacities = {}  # taken as equal to the initial extents, which the run checks (`_carried_tensors`)
        if None in capacities.values():
            raise MegccError(f"has a value that is {start} at first and grows, and nothing limits how far; state a "
                             f"bound of its extents: --bound {name}=1000")
        plans.append(Packed(name, start, capacities) if capacities else start)
    return plans


def _find_bounded_extents(extents: Sequence[ChangingExtent],
                          ops: Sequence[Op]) -> tuple[set[tuple[int, int]], dict[str, int | None]]:
    """Finds extents that never exceed their initial value, by assuming it for all and dropping those that may grow.

    Returns the (value, axis) that do not grow, and the upper bounds of the symbols of an iteration. ops: the operators
    before the loop and of one iteration.
    """
    outer_bounds = unbacked_bounds(ops)
    limits: dict[tuple[int, int], int] = {}
    for extent in extents:
        known = {name: (0, outer_bounds.get(name)) for name in symbols(extent.initial)}
        if (limit := interval(extent.initial, known)[1]) is not None:
            limits[extent.value, extent.axis] = limit
    while True:
        kept = [extent for extent in extents if (extent.value, extent.axis) in limits]
        bounds = unbacked_bounds(ops, {str(extent.symbol): limits[extent.value, extent.axis] for extent in kept})
        unbounded = []
        for extent in kept:
            largest = upper_bound(extent.final, bounds, ())
            if not isinstance(largest, int) or largest > limits[extent.value, extent.axis]:
                unbounded.append(extent)
        if not unbounded:
            return set(limits), bounds
        for extent in unbounded:
            del limits[extent.value, extent.axis]


def _max_trip_count(node: Node, builder: Builder, loop: LoopSpec) -> Dim | None:
    """Returns the largest possible trip count; None for no limit."""
    if loop.capacity is not None:
        return loop.capacity
    if builder.unbacked.known(loop.max_trip_count):
        extents = node.extents(loop.max_trip_count)
        return extents[0] if extents != (ENDLESS,) else None
    if node.inputs[0] in builder.unbacked.bounds:
        return builder.unbacked.extent(loop.max_trip_count, 0, None, node.name, node.inputs[0])
    return None


def _is_independent(extent: ChangingExtent) -> bool:
    """Whether an extent after an iteration does not depend on the one before it."""
    return not symbols(extent.final) & symbols(extent.symbol)


def _largest_extent(trip_count: Dim | None, extent: ChangingExtent, bounds: dict[str, int | None],
                    outer_symbols: set[str]) -> Dim | None:
    """Returns the largest value of a changing extent over `outer_symbols`; None for no limit. bounds: the upper bounds
    of the symbols of an iteration."""
    initial = upper_bound(extent.initial, bounds, outer_symbols)
    growth = upper_bound(extent.final - extent.symbol, bounds, outer_symbols)
    if isinstance(growth, int) and growth <= 0:
        return initial
    if growth is not None and trip_count is not None and not symbols(growth) & symbols(extent.symbol):
        growth = growth if isinstance(growth, int) else dim_max(growth, 0)
        return None if initial is None else initial + trip_count * growth
    return common_capacity([initial, upper_bound(extent.final, bounds, outer_symbols)])


def add_branch_operator(node: Node, condition: str, branches: Sequence[tuple[Body, tuple[str, ...]]],
                        types: Sequence[TensorType]) -> tuple[str, ...]:
    """Adds an operator that computes one of two bodies, and returns its results.

    Args:
        condition: a bool scalar.
        branches: (body, outer values that it reads), first for true and then for false, from `Builder.body`.
        types: the types of the results.
    """
    (yes, yes_reads), (no, no_reads) = branches
    return node.emit("branch", (condition, *yes_reads, *no_reads), yes=yes, no=no, reads=len(yes_reads),
                     types=tuple(types))


def add_loop_operator(node: Node, max_trip_count: str, condition: str, initial_values: Sequence[str], body: Body,
                      captured: Sequence[str], types: Sequence[TensorType], ends_by_count: bool = False
                      ) -> tuple[str, ...]:
    """Adds a loop, and returns its trip count, its last condition, the loop-carried values and the stacked rows.

    Args:
        max_trip_count, condition: the operands M and cond of ONNX's Loop, int64 [] and bool [].
        initial_values: the loop-carried values before the first iteration.
        body, captured: the body and the outer values that it reads, from `Builder.body`.
        types: the types of the loop-carried values, then of the stacked rows.
        ends_by_count: whether only `max_trip_count` ends the loop, so that the body gives no condition.
    """
    return node.emit("loop", (max_trip_count, condition, *initial_values, *captured), carried=len(initial_values),
                     body=body, counted=ends_by_count, types=(*LOOP_TYPES, *types))


def add_loop_input(builder: Builder, name: str, type_: TensorType) -> str:
    """Adds an input of a loop body, which gets a value in each iteration, and returns its name."""
    name = builder.unique(name or "unused")
    builder.add_input(name, type_)
    return name
