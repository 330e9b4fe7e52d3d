# SPDX-License-Identifier: Apache-2.0
"""Symbols of graphs with dynamic shapes, buckets of their values, and substitution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .dims import Dim, Symbol, SymbolicDim, likely, substitute, symbols
from .extent_bounds import free, interval
from .graph import EXTENT, Attrs, Body, Graph, bodies_of
from .types import TensorType


@dataclass(frozen=True)
class Bucket:
    """A range of input shapes.

    bounds: name, least and largest value of each symbol, in the graph's order; None for no upper limit.
    """

    bounds: tuple[tuple[str, int, int | None], ...] = ()

    def __str__(self) -> str:
        def text(name: str, lower: int, upper: int | None) -> str:
            return f"{name} {lower}" if lower == upper else f"{name} {lower} to {'any' if upper is None else upper}"

        return ", ".join(text(*bound) for bound in self.bounds) or "every shape"

    @property
    def limits(self) -> dict[str, tuple[int, int | None]]:
        """The bounds by symbol."""
        return {name: (lower, upper) for name, lower, upper in self.bounds}

    def ordered(self, names: Sequence[str]) -> Bucket:
        """Returns the bucket with its bounds in this order of symbols."""
        return Bucket(tuple((name, *self.limits[name]) for name in names))

    @property
    def representative(self) -> dict[str, int]:
        """The values of symbols that speed is optimised for: the largest or, without a limit, twice the least."""
        return {name: 2 * max(lower, 1) if upper is None else upper for name, lower, upper in self.bounds}

    def largest(self, dim: Dim) -> int | None:
        """Returns the largest value of an extent or size in this bucket; None for no limit. The result is at least
        0: conditions refuse shapes for which an extent is negative."""
        upper = interval(dim, self.limits)[1]
        return upper if upper is None else max(upper, 0)


def hull(buckets: Sequence[Bucket]) -> Bucket:
    """Returns the smallest bucket that contains all buckets. They have the same symbols in the same order."""
    def union(name: str) -> tuple[str, int, int | None]:
        lowers, uppers = zip(*(bucket.limits[name] for bucket in buckets), strict=True)
        return name, min(lowers), None if None in uppers else max(uppers)

    return Bucket(tuple(union(name) for name in buckets[0].limits))


def unbounded_symbols(buckets: Sequence[Bucket]) -> list[str]:
    """Returns the symbols without an upper limit in one of the buckets."""
    return sorted({name for bucket in buckets for name, _, upper in bucket.bounds if upper is None})


#: The likely value of an unbacked symbol is at least this, if its bound allows it.
LIKELY_UNBACKED = 64
#: The one bucket of a graph without symbols.
EVERYTHING = Bucket()


def graph_symbols(graph: Graph) -> tuple[str, ...]:
    """Returns the names of the symbols in the shapes of a graph's inputs, in the order in which they first appear."""
    names: dict[str, None] = {}
    for name in graph.inputs:
        for dim in graph.types[name].shape:
            names.update(dict.fromkeys(sorted(symbols(dim))))
    return tuple(names)


def with_symbols(graph: Graph, values: Mapping[str, Dim]) -> Graph:
    """Returns the graph with some of its symbols replaced, in types and attributes."""
    types = {name: _type_with(type_, values) for name, type_ in graph.types.items()}
    ops = tuple(op.with_(attrs=_attrs_with(op.attrs, values)) for op in graph.ops)
    return graph.with_(ops=ops, types=types, conditions=tuple(c.with_symbols(values) for c in graph.conditions))


@dataclass(frozen=True)
class UnbackedSymbol:
    """An unbacked symbol: an extent that a run computes.

    symbol: its name.
    value, element: the int64 tensor that holds its value, and the index of the element.
    bound: its largest value, over symbols of inputs and earlier unbacked symbols; None for no limit.
    required: whether a run computes and checks the value although no extent depends on it: the value is 1, above its
        bound 0, if a condition chooses a branch that was removed when the model was compiled. The run fails then.
    """

    symbol: str
    value: str
    element: int
    bound: Dim | None
    required: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The values that are read before the step, as those of copies and jumps (codegen/flow.py)."""
        return (self.value,)


def unbacked_symbols(graph: Graph) -> tuple[UnbackedSymbol, ...]:
    """Returns the unbacked symbols of a graph and its subgraphs, in the order in which they are computed."""
    found: list[UnbackedSymbol] = []
    for op in graph.ops:
        if op.kind == EXTENT:
            found.append(UnbackedSymbol(op.attrs.symbol.name, op.inputs[0], op.attrs.element, op.attrs.bound,
                                        required=bool(op.attrs.get("required"))))
        for body in bodies_of(op):
            found += unbacked_symbols(body.graph)
    return tuple(found)


def with_unbacked_symbols(bucket: Bucket, symbols: Sequence[UnbackedSymbol]) -> Bucket:
    """Adds bounds of unbacked symbols to a bucket."""
    for unbacked in symbols:
        upper = None if unbacked.bound is None else bucket.largest(unbacked.bound)
        bucket = Bucket((*bucket.bounds, (unbacked.symbol, 0, upper)))
    return bucket


def with_likely(graph: Graph, values: Mapping[str, int]) -> Graph:
    """Returns the graph with these likely values of the symbols of its inputs. The likely value of an unbacked symbol
    is a quarter of its bound, but see `LIKELY_UNBACKED`."""
    ranges = free(*(dim for name in graph.inputs for dim in graph.types[name].shape))
    replaced = {name: Symbol(name, likely=value, least=ranges[name][0]) for name, value in values.items()}
    for unbacked in unbacked_symbols(graph):
        bound = LIKELY_UNBACKED if unbacked.bound is None else likely(substitute(unbacked.bound, replaced))
        value = min(bound, max(LIKELY_UNBACKED, bound // 4))
        replaced[unbacked.symbol] = Symbol(unbacked.symbol, likely=value, least=0)
    return with_symbols(graph, replaced)


def likely_type(type_: TensorType | None, least: int = 0) -> TensorType | None:
    """Returns the type with the likely values of its extents, but no extent less than `least`."""
    if type_ is None or type_.is_static:
        return type_
    return type_.with_shape(dim if isinstance(dim, int) else max(likely(dim), least) for dim in type_.shape)


def likely_types(types: Sequence[TensorType | None], least: int = 0) -> tuple[TensorType | None, ...]:
    return tuple(likely_type(type_, least) for type_ in types)


def _type_with(type_: TensorType, values: Mapping[str, Dim]) -> TensorType:
    return type_ if type_.is_static else type_.with_shape(substitute(dim, values) for dim in type_.shape)


def _attrs_with(attrs: Attrs, values: Mapping[str, Dim]) -> Attrs:
    changed = {name: _value_with(value, values) for name, value in attrs.items()}
    return Attrs(changed) if any(changed[name] is not attrs[name] for name in attrs) else attrs


def _value_with(value: Any, values: Mapping[str, Dim]) -> Any:
    """Returns the value of an attribute with some symbols replaced."""
    if isinstance(value, SymbolicDim):
        return substitute(value, values)
    if isinstance(value, TensorType):
        return _type_with(value, values)
    if isinstance(value, Body):
        return Body(with_symbols(value.graph, values))
    if isinstance(value, tuple):
        changed = tuple(_value_with(item, values) for item in value)
        return changed if any(a is not b for a, b in zip(changed, value, strict=True)) else value
    return value
