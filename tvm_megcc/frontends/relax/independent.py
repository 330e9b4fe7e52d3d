# SPDX-License-Identifier: Apache-2.0
"""Joins regions that do not depend on each other. TVM's pass merges composites only along the values between them, so
branches of a network that have only inputs in common would be separate regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import ir, relax, tirx

from ..tvm_versions import (
    Call,
    RelaxTuple,
    Tuple,
    TupleGetItem,
    Var,
    add_function,
    has_extents,
    key_of,
    name_of,
    type_of,
)

Regions = Mapping[ir.GlobalVar, relax.Function]


def join(function: relax.Function, regions: Regions) -> tuple[relax.Function, dict[ir.GlobalVar, relax.Function]]:
    """Joins the regions that each dataflow block of a function calls, where neither needs a result of the other.

    Args:
        function: a function without branches and casts.
        regions: the regions that it calls.

    Returns:
        The function, and the regions that it calls now.
    """
    joiner = _Joiner(regions)
    joined = joiner.visit_expr(function)
    if not joiner.joined:
        return function, dict(regions)
    # The joined calls have results of their own; these passes remove the tuples of each region's.
    mod = relax.transform.CanonicalizeBindings()(tvm.IRModule({"main": joined}))
    joined = relax.transform.DeadCodeElimination(["main"])(mod)["main"]
    used = set(relax.analysis.all_global_vars(joined))  # equal regions are one function, which may still have calls
    called = {var: region for var, region in regions.items() if var in used}
    return joined, {**called, **joiner.joined}


@relax.expr_functor.mutator
class _Joiner(relax.PyExprMutator):
    """Replaces the calls of a group by one call, and moves the bindings that it depends on before it."""

    def __init__(self, regions: Regions):
        super().__init__()
        self.regions = regions
        self.joined: dict[ir.GlobalVar, relax.Function] = {}

    def visit_dataflow_block_(self, block):
        groups = _groups(block.bindings, self.regions)
        if not groups:
            return super().visit_dataflow_block_(block)
        self.builder_._begin_dataflow_block()
        for bindings in _schedule(block.bindings, groups):
            if len(bindings) == 1:
                self.visit_binding(bindings[0])
            else:
                self._emit_joined(bindings)
        return self.builder_._end_block()

    def _emit_joined(self, bindings: Sequence) -> None:
        calls = [binding.value for binding in bindings]
        arguments = list({key_of(argument): argument for call in calls for argument in call.args}.values())
        region = _joined_region(calls, arguments, self.regions)
        var = add_function(self.builder_, region, "megcc_joined")
        self.joined[var] = region
        results = self.builder_.emit(Call(var, [self.visit_expr(argument) for argument in arguments]))
        for index, binding in enumerate(bindings):
            is_inner = isinstance(binding.var, relax.DataflowVar)
            emit = self.builder_.emit if is_inner else self.builder_.emit_output
            self.set_var_remap(key_of(binding.var), emit(_result_of(results, index, calls)))


def _result_of(results: Var, index: int, calls: Sequence):
    """Returns the result of call `index` as an expression over `results`, a tuple of the results of all calls in their
    order."""
    first = sum(map(_num_results, calls[:index]))
    if not isinstance(type_of(calls[index]), RelaxTuple):
        return TupleGetItem(results, first)
    return Tuple([TupleGetItem(results, first + k) for k in range(_num_results(calls[index]))])


def _num_results(call) -> int:
    """Returns the number of fields of a call's result, 1 for a tensor."""
    return len(type_of(call).fields) if isinstance(type_of(call), RelaxTuple) else 1


def _joined_region(calls: Sequence, arguments: Sequence, regions: Regions) -> relax.Function:
    """Returns a region of these parameters that computes the results of all calls, as a tuple. arguments: the distinct
    arguments of the calls."""
    params = {key_of(argument): relax.Var(name_of(argument), type_of(argument)) for argument in arguments}
    builder = relax.BlockBuilder()
    with builder.function("joined", list(params.values())):
        results = []
        for call in calls:
            value = builder.emit(Call(call.op, [params[key_of(argument)] for argument in call.args]))
            results += [builder.emit(TupleGetItem(value, k)) for k in range(_num_results(call))] \
                if isinstance(type_of(call), RelaxTuple) else [value]
        builder.emit_func_output(Tuple(results))
    function = builder.get()["joined"].inline_functions({call.op: regions[call.op] for call in calls})
    return function.with_attrs({"Codegen": "megcc", "global_symbol": "joined"})


def _schedule(bindings: Sequence, groups: Sequence[_Group]) -> list[list]:
    """Returns the bindings in topological order, as lists of the bindings that become one: a group, or one binding."""
    group_of = {index: group.members for group in groups for index in group.members}
    index_of = {key_of(binding.var): index for index, binding in enumerate(bindings)}
    reads = [[index_of[key_of(var)] for var in relax.analysis.free_vars(binding.value) if key_of(var) in index_of]
             for binding in bindings]
    done: set[int] = set()
    ordered: list[list] = []
    # Depth first: a binding stays on the stack until everything that its group reads is done.
    stack = list(reversed(range(len(bindings))))
    while stack:
        members = group_of.get(stack[-1], [stack[-1]])
        missing = [read for member in members for read in reads[member] if read not in done]
        if stack[-1] in done or not missing:
            if stack.pop() not in done:
                ordered.append([bindings[member] for member in members])
                done.update(members)
        else:
            stack += missing
    return ordered


@dataclass
class _Group:
    """Calls of regions that become one call.

    symbols: the symbols of their types, which all calls have in common. members: the indices of their bindings.
    """

    symbols: frozenset[str]
    members: list[int] = field(default_factory=list)


def _groups(bindings: Sequence, regions: Regions) -> list[_Group]:
    """Returns the groups of two or more calls of regions that become one call. A call joins the first group with the
    same symbols that it neither depends on nor is a dependency of."""
    if any(isinstance(binding, relax.MatchCast) for binding in bindings):
        return []
    dependencies = _dependencies(bindings)
    groups: list[_Group] = []
    for index, binding in enumerate(bindings):
        symbols = _symbols(binding.value) if _is_region_call(binding.value, regions) else None
        if symbols is None:
            continue
        for group in groups:
            first = group.members[0]  # it stands for all members (`_merge_dependencies`)
            depend_on_each_other = dependencies[index] >> first & 1 or dependencies[first] >> index & 1
            if group.symbols == symbols and not depend_on_each_other:
                group.members.append(index)
                _merge_dependencies(dependencies, first, index)
                break
        else:
            groups.append(_Group(symbols, [index]))
    return [group for group in groups if len(group.members) > 1]


def _dependencies(bindings: Sequence) -> list[int]:
    """Returns the dependencies of each binding, direct and indirect, as an integer with bit i set for binding i."""
    index_of = {key_of(binding.var): index for index, binding in enumerate(bindings)}
    dependencies: list[int] = []
    for binding in bindings:
        required = 0
        for var in relax.analysis.free_vars(binding.value):
            if key_of(var) in index_of:
                required |= 1 << index_of[key_of(var)] | dependencies[index_of[key_of(var)]]
        dependencies.append(required)
    return dependencies


def _merge_dependencies(dependencies: list[int], first: int, second: int) -> None:
    """Updates the dependencies for two bindings that become one: bindings that depend on one depend on both, and on the
    dependencies of both."""
    both = 1 << first | 1 << second
    required = dependencies[first] | dependencies[second]
    dependencies[first] = dependencies[second] = required
    for index, needed in enumerate(dependencies):
        if needed & both:
            dependencies[index] = needed | both | required


def _is_region_call(value, regions: Regions) -> bool:
    """Whether an expression calls a region, with variables as arguments."""
    return isinstance(value, Call) and value.op in regions and all(isinstance(arg, Var) for arg in value.args)


def _symbols(call) -> frozenset[str] | None:
    """Returns the symbols in the types of a call's arguments and results; None if an extent is another expression."""
    found: set[str] = set()
    types = [*map(type_of, call.args), type_of(call)]
    while types:
        type_ = types.pop()
        if isinstance(type_, RelaxTuple):
            types.extend(type_.fields)
            continue
        if not has_extents(type_):
            return None
        for extent in type_.shape.values:
            if not isinstance(extent, (Var, tirx.IntImm)):
                return None
            if isinstance(extent, Var):
                found.add(name_of(extent))
    return frozenset(found)
