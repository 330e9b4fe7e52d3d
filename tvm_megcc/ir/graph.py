# SPDX-License-Identifier: Apache-2.0
"""The operator graph: operators over named values, with types and constants. It is immutable: a stage of the compiler
receives a graph and returns a new one."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .conditions import Condition
from .dims import SymbolicDim, symbols
from .expr import Expr
from .streams import Streamed
from .types import TensorType


class Attrs(Mapping[str, Any]):
    """The attributes of an operator: immutable, hashable, sorted by name. They are read by name too: `attrs.axis`. The
    operator's declaration defines their types."""

    __slots__ = ("_items", "_hash")

    def __init__(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        items = {**(values or {}), **more}
        self._items = {k: tuple(items[k]) if isinstance(items[k], list) else items[k] for k in sorted(items)}
        self._hash = hash(tuple(self._items.items()))

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self._items[key]
        except KeyError:
            raise AttributeError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return ", ".join(f"{k}={_attr_text(v)}" for k, v in self._items.items())


def _attr_text(value: object) -> str:
    return "(" + ",".join(map(_attr_text, value)) + ")" if isinstance(value, tuple) else str(value)


class Body:
    """A subgraph of an operator, such as the body of a loop. It is compared by identity. The operator's declaration
    defines the order of its inputs and outputs."""

    def __init__(self, graph: Graph):
        self.graph = graph

    def __repr__(self) -> str:
        return f"{len(self.graph.ops)} operators"


@dataclass(frozen=True)
class Op:
    """An operator of a graph.

    kind: the name of its declaration in `ops`.
    inputs: names of values; "" stands for an absent optional operand. The operands of the epilogue come last.
    outputs: names of the results.
    epilogue: an elementwise expression that is fused into the operator. Its operand 0 is the operator's own result, its
        operand i is inputs[epilogue_start + i - 1].
    epilogue_start: the number of inputs that are not operands of the epilogue.
    origin: the name of the operator in the source model, for messages and profiles.
    """

    kind: str
    attrs: Attrs
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    epilogue: Expr | None = None
    epilogue_start: int = -1
    origin: str = ""

    @property
    def own_inputs(self) -> tuple[str, ...]:
        """The inputs without the operands of the epilogue."""
        return self.inputs if self.epilogue is None else self.inputs[:self.epilogue_start]

    @property
    def epilogue_inputs(self) -> tuple[str, ...]:
        return () if self.epilogue is None else self.inputs[self.epilogue_start:]

    def with_(self, **changes: Any) -> Op:
        return replace(self, **changes)


def bodies_of(op: Op) -> tuple[Body, ...]:
    """Returns the subgraphs of an operator."""
    return tuple(value for value in op.attrs.values() if isinstance(value, Body))


class CacheInput(NamedTuple):
    """An input, such as an attention mask, of which a run reads only the first elements along an axis.

    axis: the axis.
    past: the state that holds the number of rows in the KV cache.
    new: the number of rows that the run adds, or the name of an input's symbol: `past + new` elements are read.
    """

    axis: int
    past: str
    new: int | str


@dataclass(frozen=True)
class Graph:
    """Operators in topological order over named values.

    inputs, outputs: names of values.
    types: value name -> type, also of constants.
    constants: value name -> array, with the axes in ONNX's order.
    states: pairs (output, input): after a run, the output's value becomes the input's value of the next run.
    initial_states: input -> initial value; other states begin with zeros.
    conditions: conditions on symbols, recorded at import. Operators that remain after the passes state theirs again.
    quantised: (scale, zero point) of integer inputs and outputs that no quantisation operator determines.
    stream: block sizes and latencies, if the network takes a sequence in blocks (streaming).
    strings: the table of the model's strings.
    string_ports: the string inputs and outputs. Their values are int64: indices in `strings`, or negative numbers for
        strings that are not in the table.
    labels: value name -> public name, for outputs that are copies of inputs or of other outputs.
    caller_outputs: outputs in memory that the caller binds before each run; a plan has none for them.
    cache_inputs: inputs that grow with a KV cache, such as attention masks; their tensors have the cache's full
        capacity.
    cache_capacities: states that hold the number of rows in a KV cache -> the cache's capacity.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[Op, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, np.ndarray]
    states: tuple[tuple[str, str], ...] = ()
    initial_states: Mapping[str, np.ndarray] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    quantised: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    stream: Streamed | None = None
    strings: tuple[str, ...] = ()
    string_ports: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    caller_outputs: frozenset[str] = frozenset()
    cache_inputs: Mapping[str, CacheInput] = field(default_factory=dict)
    cache_capacities: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    def with_(self, **changes: Any) -> Graph:
        return replace(self, **changes)

    def label(self, name: str) -> str:
        """Returns the public name of an input or output."""
        return self.labels.get(name, name)

    def type_of(self, name: str) -> TensorType | None:
        """Returns the type of a value; None for the absent operand ""."""
        return self.types[name] if name else None

    def input_types(self, op: Op) -> tuple[TensorType | None, ...]:
        return tuple(self.type_of(name) for name in op.inputs)

    def output_types(self, op: Op) -> tuple[TensorType, ...]:
        return tuple(self.types[name] for name in op.outputs)

    def producers(self) -> dict[str, Op]:
        """Returns value name -> operator that computes it."""
        return {name: op for op in self.ops for name in op.outputs}

    def consumers(self) -> dict[str, list[Op]]:
        """Returns value name -> operators that read it, in order; graph outputs are not consumers."""
        users: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                if name:
                    users.setdefault(name, []).append(op)
        return users


def unused(name: str, *names: Container[str]) -> str:
    """Returns the name or, if it is in one of `names`, a similar one that is not."""
    while any(name in used for used in names):
        name += "'"
    return name


def network_bytes(graph: Graph) -> int:
    """Returns the bytes of weights that an inference reads: all constants except tables that only `gather` reads."""
    read = {name for op in graph.ops for index, name in enumerate(op.inputs)
            if name in graph.constants and not (op.kind.startswith("gather") and index == 0)}
    return sum(graph.constants[name].nbytes for name in read)


#: The operator that defines an unbacked symbol: its operand, computed at run time, is the symbol's value.
EXTENT = "extent"


def waits_for(ops: Sequence[Op], types: Mapping[str, TensorType]) -> list[tuple[str, ...]]:
    """Returns for each operator the values that have to be computed before it: its operands, and the values that define
    the unbacked symbols on which its extents depend."""
    definitions = {op.attrs.symbol.name: op.outputs[0] for op in ops if op.kind == EXTENT}
    if not definitions:
        return [op.inputs for op in ops]
    return [(*op.inputs, *(definitions[name] for name in sorted(_symbols_of(op, types) & set(definitions))))
            for op in ops]


def _symbols_of(op: Op, types: Mapping[str, TensorType]) -> frozenset[str]:
    """Returns the symbols in an operator's types and attributes; for the definition of an unbacked symbol, those of its
    bound."""
    if op.kind == EXTENT:
        return _symbols_in(op.attrs.bound)
    return frozenset().union(*(symbols(dim) for name in (*op.inputs, *op.outputs) if name
                               for dim in types[name].shape), *map(_symbols_in, op.attrs.values()))


def is_open(attrs: Attrs) -> bool:
    """Returns whether attributes depend on symbols, so that their values are not known when the model is compiled."""
    return any(map(_symbols_in, attrs.values()))


def _symbols_in(value: Any) -> frozenset[str]:
    if isinstance(value, tuple):
        return frozenset().union(*map(_symbols_in, value))
    if isinstance(value, Body):
        unbacked = {op.attrs.symbol.name for op in value.graph.ops if op.kind == EXTENT}
        return frozenset().union(*(_symbols_of(op, value.graph.types) for op in value.graph.ops)) - unbacked
    return symbols(value) if isinstance(value, SymbolicDim) else frozenset()


def prune(graph: Graph) -> Graph:
    """Removes operators, types and constants that no output needs, and optional results that nothing reads."""
    needed = set(graph.outputs)
    kept: list[Op] = []
    definitions = {op.outputs[0]: op.attrs.symbol.name for op in graph.ops if op.kind == EXTENT}
    used_symbols: set[str] = set()
    for op in reversed(graph.ops):
        is_checked = op.attrs.get("required")  # `UnbackedSymbol.required`
        if needed.intersection(op.outputs) or definitions.get(op.outputs[0]) in used_symbols or is_checked:
            kept.append(_with_results(op, needed))
            needed.update(filter(None, op.inputs))
            if definitions:
                used_symbols.update(_symbols_of(op, graph.types))
    kept.reverse()
    names = needed.union(graph.inputs, *(op.outputs for op in kept))
    return graph.with_(
        ops=tuple(kept),
        types={n: t for n, t in graph.types.items() if n in names},
        constants={n: c for n, c in graph.constants.items() if n in names})


def _with_results(op: Op, needed: Container[str]) -> Op:
    """Returns the operator without results that nothing reads, if its attribute `results` lists the results."""
    if "results" not in op.attrs:
        return op
    read = [index for index, name in enumerate(op.outputs) if name in needed]
    return op.with_(attrs=Attrs(op.attrs, results=tuple(op.attrs.results[index] for index in read)),
                    outputs=tuple(op.outputs[index] for index in read))


def in_order(reads: Sequence[Iterable[str]], makes: Sequence[Iterable[str]]) -> tuple[list[int], list[int]]:
    """Sorts nodes topologically and stably (Kahn's algorithm).

    Args:
        reads: the names that each node reads; names that no node makes are available from the beginning.
        makes: the names that each node makes.

    Returns:
        The indices of the nodes in order, and the indices of the nodes on a cycle or after one.
    """
    available = {name for names in makes for name in names}
    missing = [{name for name in names if name in available} for names in reads]
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(missing):
        for name in names:
            readers.setdefault(name, []).append(index)
    ready = [index for index, names in enumerate(missing) if not names]
    ordered: list[int] = []
    while ready:
        ordered.append(heapq.heappop(ready))
        for name in makes[ordered[-1]]:
            for reader in readers.pop(name, ()):
                missing[reader].discard(name)
                if not missing[reader]:
                    heapq.heappush(ready, reader)
    return ordered, [index for index, names in enumerate(missing) if names]


def toposort(ops: Sequence[Op], types: Mapping[str, TensorType] = MappingProxyType({})) -> tuple[Op, ...]:
    """Sorts the operators topologically and stably.

    Raises:
        ValueError: with the names of operators on a cycle.
    """
    ordered, rest = in_order(waits_for(ops, types), [op.outputs for op in ops])
    if rest:
        raise ValueError(", ".join(ops[index].origin or ops[index].kind for index in rest))
    return tuple(ops[index] for index in ordered)
