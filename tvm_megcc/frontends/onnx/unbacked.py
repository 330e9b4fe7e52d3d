# SPDX-License-Identifier: Apache-2.0
"""Unbacked symbols: extents that are computed at run time, such as the number of nonzero elements, or the elements of a
shape operand."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, Symbol, SymbolicDim, dim_min, symbols
from ...ir.graph import EXTENT, Attrs, Op
from .shapes import follows, shape_value

if TYPE_CHECKING:
    from .builder import Builder

#: The most elements of a tensor that is used as a shape.
LARGEST = 64
#: The longest chain of operators through which the elements of a shape are traced.
DEEPEST = 100


class UnbackedSymbols:
    """The unbacked symbols of a model.

    bounds: the user's upper bounds, by the name of a symbol, or of a value, for all of its elements.
    """

    def __init__(self, builder: Builder, bounds: Mapping[str, int] | None = None):
        self.builder = builder
        self.bounds = dict(bounds or {})
        self.used: set[str] = set()
        self.taken: set[str] = set()
        self._symbols: dict[tuple[str, int], Symbol] = {}

    def extents(self, value: str, most: Dim | None, origin: str) -> np.ndarray:
        """Returns the elements of an integer tensor as extents. Elements that are not known become unbacked symbols of
        at most `most`; None for no limit.

        Raises:
            MegccError: if the tensor cannot be a shape.
        """
        found = self._followed(value, most, origin, 0)
        if found is None:
            raise MegccError(f"'{value}' is {self.builder.types[value]}, and a few integers are wanted")
        return found

    def resolved(self, value: str, most: Dim | None, origin: str,
                 resolve: Callable[[Collection[int]], str]) -> np.ndarray:
        """Returns the elements as `extents` does, flat, for a tensor of numbers that need not be extents, such as -1 in
        a shape or a negative pad.

        resolve: emits the extents that the elements at these positions stand for, as an int64 tensor of the same size.

        Raises:
            MegccError: if the tensor cannot be a shape.
        """
        builder = self.builder
        first = len(builder.ops)
        found = self.extents(value, most, origin).reshape(-1)
        read = {op.attrs.symbol: op for op in builder.ops[first:] if op.kind == EXTENT}
        positions = [index for index, dim in enumerate(found) if isinstance(dim, Symbol) and dim in read]
        if not positions:
            return found
        other_symbols = set().union(*(symbols(dim) for index, dim in enumerate(found) if index not in positions))
        self._unread({op.outputs[0]: op for symbol, op in read.items() if symbol.name not in other_symbols}, first)
        meant = resolve(positions)
        for index in positions:
            symbol, bound = found[index], read[found[index]].attrs.bound
            found[index] = self.count(meant, index, bound if most is None else most if bound is None
                                      else dim_min(bound, most), origin, symbol.name)
        return found

    def _unread(self, ops: Mapping[str, Op], first: int) -> None:
        """Removes operators that define unbacked symbols, and frees the symbols' names. ops: the operators by their
        results; they are among those from `first` on."""
        builder, names = self.builder, {op.attrs.symbol.name for op in ops.values()}
        builder.ops[first:] = [op for op in builder.ops[first:] if op.outputs[0] not in ops]
        for result in ops:
            builder.types.pop(result)
            builder.producers.pop(result)
        self.forget(names)
        self.taken -= names

    def known(self, value: str) -> bool:
        """Whether the elements of an integer tensor follow from extents, without unbacked symbols being created."""
        return self._followed(value, None, "", 0, asks=False) is not None

    def _followed(self, value: str, most: Dim | None, origin: str, depth: int, asks: bool = True) -> np.ndarray | None:
        builder = self.builder
        known, type_ = builder.integers(value), builder.types[value]
        if known is not None or (size := type_.static_size) is None or size > LARGEST:
            return known
        op = builder.producers.get(value)
        if op is not None and follows(op.kind) and type_.dtype.startswith(("int", "bool")) and depth < DEEPEST \
                and all(not name or builder.types[name].dtype[0] in "iub" for name in op.inputs):
            parts = [self._followed(name, None, origin, depth + 1, asks) if name else None for name in op.inputs]
            found = None
            if not any(part is None for part, name in zip(parts, op.inputs, strict=True) if name):
                found = shape_value(op.kind, op.attrs, parts, [builder.types[name] if name else None
                                                               for name in op.inputs], type_)
            if found is not None:
                return found
        if not type_.dtype.startswith(("int", "uint")) \
                or not (asks or all((value, element) in self._symbols for element in range(type_.size))):
            return None
        read = np.empty(type_.size, object)
        read[:] = [self.count(value, element, most, origin) for element in range(type_.size)]
        return read.reshape(type_.shape)

    def count(self, value: str, element: int, most: Dim | None, origin: str, name: str = "") -> Dim:
        """Returns an element of an integer tensor as an extent: its number if known, else an unbacked symbol called
        `name`, or named after its tensor."""
        builder = self.builder
        known = builder.integers(value)
        if known is not None:
            found = known.reshape(-1)[element]
            if isinstance(found, SymbolicDim) or found >= 0:
                return found if isinstance(found, SymbolicDim) else int(found)
            raise ShapeError(f"'{name or value}' is {found}, and no extent is negative")
        if (value, element) not in self._symbols:
            if builder.types[value].dtype != "int64":
                (wide,) = builder.emit("cast", (value,), Attrs(dtype="int64"), origin, f"{value}.int64")
            else:
                wide = value
            name = self._name(name or (value if builder.types[value].size == 1 else f"{value}[{element}]"))
            bound = self.bound(name, most, value)
            self._symbols[value, element] = Symbol(name, least=0)
            builder.emit(EXTENT, (wide,), Attrs(symbol=self._symbols[value, element], element=element, bound=bound),
                         origin, f"{name}.extent")
        return self._symbols[value, element]

    def require_zero(self, value: str, name: str, origin: str) -> None:
        """Adds a run-time check that an int64 value is 0; otherwise the run fails."""
        symbol = Symbol(self._name(name), least=0)
        attrs = Attrs(symbol=symbol, element=0, bound=0, required=True)
        self.builder.emit(EXTENT, (value,), attrs, origin, symbol.name)

    def forget(self, names: Collection[str]) -> None:
        """Forgets these symbols, because the part of the model that defines them is finished or dropped."""
        self._symbols = {key: symbol for key, symbol in self._symbols.items() if symbol.name not in names}

    def _name(self, name: str) -> str:
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def bound(self, name: str, most: Dim | None, value: str = "") -> Dim | None:
        """Returns the smaller of `most` and the bound that the user states for the extent `name` or the value."""
        given = next((key for key in (name, value) if key in self.bounds), None)
        if given is None:
            return most
        self.used.add(given)
        return self.bounds[given] if most is None else dim_min(most, self.bounds[given])

    def require_used(self, dims: Collection[str] = ()) -> None:
        """Raises ShapeError for bounds whose names are not unbacked symbols. dims: the symbols of the inputs."""
        unused = sorted(set(self.bounds) - self.used)
        if not unused:
            return
        name = unused[0]
        if name in dims:
            size = shlex.quote(f"{name}=1..{self.bounds[name] or 'MOST'}")
            raise ShapeError(f"bound of '{name}': that is a dimension of inputs, which has a size or a range: "
                             f"--dim {size}; a bound is for what a run computes, and for the rows of states: "
                             "--state OUTPUT=INPUT")
        have = ", ".join(sorted(symbol.name for symbol in self._symbols.values())) or "none"
        rows = f"; dimensions of inputs, which states may grow along: {', '.join(sorted(dims))}" if dims else ""
        raise ShapeError(f"bound of '{name}': no extent that a run computes is called so; there are: {have}{rows}")
