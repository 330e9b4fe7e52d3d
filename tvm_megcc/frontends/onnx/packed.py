# SPDX-License-Identifier: Apache-2.0
"""Packs values whose extents change between iterations of a loop, or with the branch that is taken. A packed value is a
vector with the capacity of the largest value, and each changing extent as int64 []."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import MegccError
from ...ir.dims import Dim, dim_max, product, symbols
from ...ir.extent_bounds import interval
from ...ir.graph import EXTENT, Op
from ...ir.limits import MAX_BYTES
from ...ir.types import TensorType
from .builder import Node

if TYPE_CHECKING:
    from .unbacked import UnbackedSymbols


@dataclass(frozen=True)
class Packed:
    """The packed form of a value.

    name: the value's name, from which the symbols of its extents are named.
    type: its type, in which the changing extents are ignored.
    capacities: the largest value of each changing extent, by axis.
    """

    name: str
    type: TensorType
    capacities: Mapping[int, Dim]

    @property
    def vector(self) -> TensorType:
        """The type of the vector."""
        shape = tuple(self.capacities.get(axis, dim) for axis, dim in enumerate(self.type.shape))
        return TensorType(self.type.dtype, (product(shape),))

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of the packed form: the vector's, then int64 [] for each changing extent."""
        return (self.vector, *(TensorType("int64", ()) for _ in self.capacities))

    def pack(self, node: Node, value: str) -> list[str]:
        """Returns the vector, which is zero after the value's elements, and the changing extents."""
        type_, (elements,) = node.type_of(value), self.vector.shape
        if isinstance(elements, int) and elements * type_.itemsize > MAX_BYTES:
            raise MegccError(f"'{self.name}' may have {elements:,} elements, more than {MAX_BYTES:,} bytes; give a "
                             f"bound of its extents: --bound {self.name}=1000")
        (vector,) = node.emit("reshape", (value,), shape=(type_.size,))
        if type_.size != elements:
            (vector,) = node.emit("pad", (vector,), before=(0,), after=(elements - type_.size,), mode="constant",
                                  value=0)
        return [vector, *(node.extent(type_.shape[axis]) for axis in self.capacities)]

    def unpack(self, node: Node, unbacked: UnbackedSymbols, values: Sequence[str], name: str = "") -> str:
        """Returns the value; its changing extents become unbacked symbols.

        values: the vector and the extents. name: the value's name, after which the symbols are named; "": that of this
            object.
        """
        vector, *extents = values
        name, shape = name or self.name, list(self.type.shape)
        for (axis, capacity), extent in zip(self.capacities.items(), extents, strict=True):
            symbol = name if len(self.capacities) == 1 else f"{name}[{axis}]"
            shape[axis] = unbacked.extent(extent, 0, capacity, node.name, symbol)
        (part,) = node.emit("slice", (vector,), axes=(0,), starts=(0,), ends=(product(shape),), steps=(1,))
        return node.emit("reshape", (part,), shape=tuple(shape))[0]


def varying_axes(types: Sequence[TensorType], outer_symbols: Iterable[str]) -> list[int]:
    """Returns the axes along which types of the same rank differ, or have extents over symbols that are not among
    `outer_symbols`."""
    return [axis for axis, dims in enumerate(zip(*(type_.shape for type_ in types), strict=True))
            if len(set(dims)) > 1 or not symbols(dims[0]) <= set(outer_symbols)]


def upper_bound(dim: Dim, bounds: Mapping[str, Dim | None], outer_symbols: Iterable[str]) -> Dim | None:
    """Returns an upper bound of an extent over `outer_symbols` only; None for no limit. bounds: the upper bounds of the
    other symbols."""
    if symbols(dim) <= set(outer_symbols):
        return dim
    return interval(dim, {name: (0, bounds.get(name)) for name in symbols(dim)})[1]


def unbacked_bounds(ops: Iterable[Op], given: Mapping[str, int | None] | None = None) -> dict[str, int | None]:
    """Returns the upper bounds of the unbacked symbols that operators define; those in `given` are taken from it."""
    bounds: dict[str, int | None] = dict(given or {})
    for op in ops:
        if op.kind == EXTENT and op.attrs.symbol.name not in bounds:
            bound = op.attrs.bound
            bounds[op.attrs.symbol.name] = None if bound is None else \
                interval(bound, {name: (0, bounds.get(name)) for name in symbols(bound)})[1]
    return bounds


def common_capacity(dims: Sequence[Dim | None]) -> Dim | None:
    """Returns an extent that is at least each of the given ones; None, which stands for no limit, if one is None."""
    capacity: Dim | None = 0
    for dim in dims:
        if capacity is None or dim is None:
            return None
        capacity = dim if capacity == 0 else dim_max(capacity, dim)
    return capacity
