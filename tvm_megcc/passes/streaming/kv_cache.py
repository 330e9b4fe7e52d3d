# SPDX-License-Identifier: Apache-2.0
"""KV caches: states with the keys and values of a decoder's past, to which each run appends those of its new tokens.

The model has inputs with an extent p (past) and outputs with p + n, which are Concat(past, new). This rewrite gives
such a state the capacity that the user states. A run writes the new rows into it in place, and readers of the concat
read its first p + n rows. A state whose readers attend to a window of rows becomes a ring buffer of fewer rows, with
token t in row t modulo their number; readers gather the rows in the order of the tokens. p is an unbacked symbol. Its
value is another state, which is 0 at first and p + n after a run. So the runtime has no states that grow: it checks p
like any data-dependent extent.

With attention sinks (ops/cache_rows.py) the state counts all tokens, and p is at most the capacity minus n. Readers get
the rows in the order in which they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import ModelError
from ...ir.conditions import Condition, recording, require_at_most
from ...ir.dims import Dim, Symbol, symbols
from ...ir.graph import EXTENT, Attrs, CacheInput, Graph, Op, unused
from ...ir.shapes import with_symbols
from ...ir.types import TensorType
from ..edit import Editor


@dataclass(frozen=True)
class _KVCache:
    """A KV cache.

    output, input: the names of the state.
    axis, past: the axis that grows, and the symbol of its extent in the input.
    new: the number of rows that a run adds.
    concat: the operator that computes the output.
    """

    output: str
    input: str
    axis: int
    past: Symbol
    new: Dim
    concat: Op


@dataclass(frozen=True)
class BatchRows:
    """The inputs, int64 [batch], with the numbers of rows of a batch of caches.

    past: rows in the caches, which becomes a state.
    new: rows that a run appends, at most as many as there are new ones; the first of them are appended.
    """

    past: str
    new: str


@dataclass(frozen=True)
class Sinks:
    """Attention sinks: rows that stay in full caches, as new rows replace the oldest others.

    past: the input, int64 [1], with the number of past tokens, which becomes a state.
    rows: how many stay, from the first on.
    first: states -> the values of these rows after a run, which replace those in the cache; as of `Append`. Rows of
        other states stay as they are.
    """

    past: str
    rows: int
    first: Mapping[str, str]


#: The most tokens that a model with attention sinks counts. Their positions, as float64, are exact.
MAX_TOKENS = 1 << 53


def capacities_of(inputs: Mapping[str, tuple[int | str, ...]], states: Mapping[str, str],
                  bounds: Mapping[str, int]) -> dict[str, int]:
    """Returns the bounds that are capacities of states: symbol -> rows. inputs: the shapes of the model's inputs."""
    extents = {dim for name in states.values() for dim in inputs.get(name, ()) if isinstance(dim, str)}
    return {name: rows for name, rows in bounds.items() if name in extents}


def grow_states(graph: Graph, states: Mapping[str, str], capacities: Mapping[str, int],
                rings: Mapping[str, int] | None = None, batch: BatchRows | None = None,
                sinks: Sinks | None = None) -> Graph:
    """Turns states that grow into KV caches with a fixed capacity, and adds a state with the number of rows in use for
    each symbol that grows, with the symbol's name.

    Args:
        states: output -> input.
        capacities: name of the symbol of an extent that grows -> the largest number of rows.
        rings: states that become ring buffers -> their rows. Readers must ignore the rows of tokens that later ones
            have overwritten.
        batch: the inputs with the numbers of rows of each element of a batch, if these differ; for one symbol.
        sinks: the rows of the states that stay when these are full, if any; for one symbol, without rings and batch.

    Raises:
        ModelError: listing the states that cannot grow, and why.
    """
    if not capacities:
        return graph
    caches: list[_KVCache] = []
    problems = []
    for output, state in states.items():
        if output in graph.outputs and state in graph.inputs and _symbols(graph.types[state]) & set(capacities):
            cache = _kv_cache(graph, output, state, capacities)
            if isinstance(cache, str):
                problems.append(f"state '{output}={state}': {cache}")
            else:
                caches.append(cache)
    steps = {cache.past: cache.new for cache in caches}
    problems += [f"state '{cache.output}={cache.input}': {cache.past} grows by {cache.new}, and by {steps[cache.past]} "
                 "elsewhere" for cache in caches if steps[cache.past] != cache.new]
    if problems:
        raise ModelError(graph.name, problems, "A state grows by Concat(past, new) along one axis; its other extents "
                                               "have one size each: give it with --dim NAME=SIZE.")
    graph = with_symbols(_with_totals(graph, steps), {name: Symbol(name, least=0) for name in capacities})
    return _Growth(graph, caches, steps, capacities, rings or {}, batch, sinks).run()


def _symbols(type_: TensorType) -> frozenset[str]:
    return frozenset().union(*map(symbols, type_.shape))


def _kv_cache(graph: Graph, output: str, state: str, capacities: Mapping[str, int]) -> _KVCache | str:
    """Returns the KV cache of a state, or the reason why there is none."""
    past, present = graph.types[state], graph.types[output]
    axes = [axis for axis, dim in enumerate(past.shape) if isinstance(dim, Symbol) and dim.name in capacities]
    if len(axes) != 1 or not past.with_shape(
            0 if axis in axes else dim for axis, dim in enumerate(past.shape)).is_static:
        return f"'{state}' is {past}: its other extents are not known"
    axis = axes[0]
    op = graph.producers().get(output)
    if op is None or op.kind != "concat" or op.epilogue is not None or len(op.inputs) != 2 or op.inputs[0] != state \
            or op.attrs.axis % past.rank != axis:
        return f"'{output}' is {present}, and not Concat('{state}', new) along axis {axis}"
    new = graph.types[op.inputs[1]].shape[axis]
    if not isinstance(new, (int, Symbol)) or new == past.shape[axis]:
        return f"'{state}' grows by {new}, and not by a number or an extent of an input"
    return _KVCache(output, state, axis, past.shape[axis], new, op)  # type: ignore[arg-type]


def _with_totals(graph: Graph, steps: Mapping[Symbol, Dim]) -> Graph:
    """Returns the graph with past + new in place of symbols of inputs that must equal it, such as those of masks."""
    totals = {}
    for past, new in steps.items():
        total = past + new
        for dim in {dim for name in graph.inputs for dim in graph.types[name].shape if isinstance(dim, Symbol)}:
            if dim not in steps and dim != new and _is_equal(graph.conditions, dim, total):
                totals[dim.name] = total
    return with_symbols(graph, totals) if totals else graph


def _is_equal(conditions: tuple[Condition, ...], dim: Dim, expected: Dim) -> bool:
    """Returns whether the conditions state that two extents are equal."""
    stated = {(condition.lhs, condition.relation, condition.rhs) for condition in conditions}
    return any((a, "==", b) in stated or ((a, "<=", b) in stated and (b, "<=", a) in stated)
               for a, b in ((dim, expected), (expected, dim)))


class _Growth:
    """The graph during the rewrite. Caches that grow together have one symbol as the extent of the rows in use.

    caches: the Concats whose result is a state, which become `append`.
    steps: symbol -> the rows that a run appends.
    capacities: name of the symbol -> the largest number of rows.
    rings: states that become ring buffers -> their rows.
    batch: the inputs with the numbers of rows of each element of a batch; None if all have as many.
    sinks: the rows that stay in full caches; None for caches that are full then.
    count_states: symbol -> (output, input) of the state that holds the number of rows in use.
    count_values: symbol -> the value of that state in a run, once `Extent` has defined the symbol by it.
    ring_indices: (number of tokens, rows of a ring buffer) -> the value with the tokens' rows.
    cache_inputs: other inputs that have the rows of a cache, such as attention masks.
    """

    def __init__(self, graph: Graph, caches: list[_KVCache], steps: Mapping[Symbol, Dim],
                 capacities: Mapping[str, int], rings: Mapping[str, int], batch: BatchRows | None,
                 sinks: Sinks | None):
        self.caches, self.steps, self.capacities, self.rings = caches, steps, capacities, rings
        self.batch, self.sinks = batch, sinks
        types = dict(graph.types)
        self.count_states: dict[Symbol, tuple[str, str]] = {}
        for past in steps:
            state = batch.past if batch else sinks.past if sinks else unused(past.name, types)
            self.count_states[past] = unused(f"{state}.next", types), state
            types.update(dict.fromkeys(self.count_states[past], types.get(state, TensorType("int64", (1,)))))
        count_inputs = [state for _, state in self.count_states.values() if state not in graph.inputs]
        self.graph = graph.with_(types=types,
                                 inputs=(*graph.inputs, *count_inputs),
                                 outputs=(*graph.outputs, *(after for after, _ in self.count_states.values())),
                                 states=(*graph.states, *self.count_states.values()),
                                 cache_capacities={state: MAX_TOKENS if sinks else capacities[past.name]
                                                   for past, (_, state) in self.count_states.items()})
        self.edit = Editor(self.graph)
        self.count_values: dict[Symbol, str] = {}
        self.ring_indices: dict[tuple[Dim, int], str] = {}
        self.cache_inputs: dict[str, CacheInput] = {}

    def run(self) -> Graph:
        """Returns the rewritten graph."""
        conditions = tuple(condition for past, new in self.steps.items() for condition in self._counted(past, new))
        for cache in self.caches:
            self._append(cache)
        for name, axis, past in self._inputs_with_cache_rows():
            self._grow_input(name, axis, past)
        return self.edit.finish().with_(cache_inputs=self.cache_inputs,
                                        conditions=(*conditions, *self.graph.conditions))

    def _counted(self, past: Symbol, new: Dim) -> tuple[Condition, ...]:
        """Defines the symbol `past` by a state with the number of rows, and computes that number after the run."""
        capacity, (after, state) = self.capacities[past.name], self.count_states[past]
        count = self._longest_past(new) if self.batch else self._kept_past(new, capacity) if self.sinks else state
        self.count_values[past] = self.edit.value(f"{state}.rows", self.edit.types[count])
        self.edit.add_after("", Op(EXTENT, Attrs(symbol=past, element=0, bound=capacity - new), (count,),
                                    (self.count_values[past],), origin=past.name))
        if self.batch:
            self.count_values[past] = state
            self.edit.add_after("", Op("add", Attrs(), (state, self.batch.new), (after,)))
        elif self.sinks:
            self.count_values[past] = state
            self.edit.add_after("", Op("add", Attrs(), (state, self._dims("new.rows", new)), (after,)))
        else:
            self.edit.add_after("", Op("dims", Attrs(extents=(past + new,), shape=(1,), dtype="int64"), (), (after,)))
        with recording(f"capacity of {past}") as conditions:
            require_at_most(past + new, capacity, "the rows of the KV cache exceed its capacity")
        return tuple(conditions)

    def _longest_past(self, new: Dim) -> str:
        """Returns a number of past rows, int64 [1], that together with `new` rows are those of the longest cache after
        the run, or as many as are new."""
        assert self.batch is not None
        edit = self.edit
        count = self._dims("new.rows", new)
        zero, value = edit.constant("no.rows", np.zeros(1, np.int64)), self.batch.past
        for kind, operands, attrs in (("add", (self.batch.new,), Attrs()), ("sub", (count,), Attrs()),
                                      ("max", (zero,), Attrs()),
                                      ("reduce_max", (), Attrs(axes=(0,), keepdims=True))):
            result = edit.result(f"past.{kind}", kind, attrs, (value, *operands))
            edit.add_after("", Op(kind, attrs, (value, *operands), (result,), origin="past"))
            value = result
        return value

    def _kept_past(self, new: Dim, capacity: int) -> str:
        """Returns the number of past rows, int64 [1], that are still in the caches when `new` rows are appended."""
        assert self.sinks is not None
        inputs = self.sinks.past, self._dims("kept.rows", capacity - new)
        result = self.edit.result("past.min", "min", Attrs(), inputs)
        self.edit.add_after("", Op("min", Attrs(), inputs, (result,), origin="past"))
        return result

    def _dims(self, name: str, extent: Dim) -> str:
        """Returns an extent as int64 [1]."""
        value = self.edit.value(name, TensorType("int64", (1,)))
        self.edit.add_after("", Op("dims", Attrs(extents=(extent,), shape=(1,), dtype="int64"), (), (value,)))
        return value

    def _append(self, cache: _KVCache) -> None:
        """Replaces the Concat of a cache by an operator that appends to it in place."""
        edit, type_ = self.edit, self.graph.types[cache.input]
        rows = self.rings.get(cache.input, self.capacities[cache.past.name])
        full_type = type_.with_shape(rows if axis == cache.axis else dim for axis, dim in enumerate(type_.shape))
        type_before = edit.types[cache.output]
        edit.types[cache.input] = edit.types[cache.output] = full_type
        others: tuple[str, ...] = (self.batch.new,) if self.batch else ()
        wraps, sinks = cache.input in self.rings, 0
        if self.sinks:
            others = ("", self.sinks.first[cache.input]) if cache.input in self.sinks.first else ()
            wraps, sinks = True, self.sinks.rows
        inputs = (*cache.concat.inputs, self.count_values[cache.past], *others)
        edit.replace(cache.concat, Op("append", Attrs(axis=cache.axis, wraps=wraps, sinks=sinks), inputs,
                                      (cache.output,), origin=cache.concat.origin))
        ring = self.rings.get(cache.input, 0)
        self._valid_rows(cache.output, cache.axis, type_before, ring=ring)
        if any(op is not cache.concat and cache.input in op.inputs for op in self.graph.ops):
            self._valid_rows(cache.input, cache.axis, type_, cache.output, ring)

    def _valid_rows(self, name: str, axis: int, type_: TensorType, appended: str = "", ring: int = 0) -> None:
        """Lets the readers of a value read its first rows or, of a ring buffer, its rows in the order of the tokens.

        Args:
            type_: the type of what they read.
            appended: the output of the cache, whose `append` goes on reading the whole value.
            ring: the rows of the ring buffer; 0 if it is none.
        """
        part = self.edit.value(f"{name}.rows", type_)
        self.edit.redirect({name: part})
        if appended:
            op = self.edit.producer(appended)
            assert op is not None
            self.edit.replace(op, op.with_(inputs=(name, *op.inputs[1:])))
        if ring:
            indices = self._ring_indices(type_.shape[axis], ring)
            self.edit.add_after(name, Op("gather", Attrs(axis=axis), (name, indices), (part,)))
        else:
            attrs = Attrs(axes=(axis,), starts=(0,), ends=(type_.shape[axis],), steps=(1,))
            self.edit.add_after(name, Op("slice", attrs, (name,), (part,)))

    def _ring_indices(self, tokens: Dim, ring: int) -> str:
        """Returns the rows of the first tokens in a ring buffer of `ring` rows, int32 [tokens]."""
        if (tokens, ring) not in self.ring_indices:
            edit = self.edit
            value = edit.constant("one", np.ones(1, np.int32))
            modulus = edit.constant("ring", np.array([ring], np.int32))
            for kind, attrs, operands in (("expand", Attrs(shape=(tokens,)), ()),
                                          ("cumsum", Attrs(axis=0, exclusive=True, reverse=False), ()),
                                          ("mod", Attrs(), (modulus,))):
                result = edit.result(f"ring.{kind}", kind, attrs, (value, *operands))
                edit.add_after("", Op(kind, attrs, (value, *operands), (result,), origin="ring"))
                value = result
            self.ring_indices[tokens, ring] = value
        return self.ring_indices[tokens, ring]

    def _inputs_with_cache_rows(self) -> Iterator[tuple[str, int, Symbol]]:
        """Yields inputs that grow with the states but are not states: (name, axis, extent)."""
        states = {cache.input for cache in self.caches}
        for name in self.graph.inputs:
            for axis, dim in enumerate(self.graph.types[name].shape):
                for past in self.steps:
                    if name not in states and past.name in symbols(dim):
                        yield name, axis, past

    def _grow_input(self, name: str, axis: int, past: Symbol) -> None:
        """Gives an input with the extent p + n the extent of the capacity; elements beyond p + n are not read."""
        type_, new = self.graph.types[name], self.steps[past]
        capacity = self.capacities[past.name]
        if type_.shape[axis] != past + new or name in self.cache_inputs:
            raise ModelError(self.graph.name, [f"input '{name}' is {type_}, and only one axis may grow with "
                                               f"{past}, by {new}"])
        self.edit.types[name] = type_.with_shape(capacity if i == axis else dim for i, dim in enumerate(type_.shape))
        self._valid_rows(name, axis, type_)
        self.cache_inputs[name] = CacheInput(axis, self.count_states[past][1], new
                                                 if isinstance(new, int) else str(new))
