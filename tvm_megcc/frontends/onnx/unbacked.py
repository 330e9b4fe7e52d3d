# SPDX-License-Identifier: Apache-2.0
"""Unbacked symbols: extents that are computed at run time, such as the number of nonzero elements, or the elements of a
shape operand. The name is from PyTorch's torch.export."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, Symbol, SymbolicDim, dim_min, symbols
from ...ir.graph import EXTENT, Attrs, Op
from .shapes import can_evaluate, shape_value

if TYPE_CHECKING:
    from .builder import Builder

#: The most elements of a tensor that is computed at run time and used as a shape.
MAX_TRACED_ELEMENTS = 64
#: The longest chain of operators through which the elements of a shape are traced.
MAX_TRACE_DEPTH = 100


class UnbackedSymbols:
    """The unbacked symbols of a model.

    bounds: the user's upper bounds, by the name of a symbol, or of a value, for all of its elements. used: the names in
    `bounds` that were applied. taken: the names of all symbols.

    An extent is computed by an operator `extent`, which reads one element of an int64 tensor and defines a symbol.
    """

    def __init__(self, builder: Builder, bounds: Mapping[str, int] | None = None):
        self.builder = builder
        self.bounds = dict(bounds or {})
        self.used: set[str] = set()
        self.taken: set[str] = set()
        #: (value, index of an element) -> the symbol that stands for the element.
        self._symbols: dict[tuple[str, int], Symbol] = {}

    def extents(self, value: str, limit: Dim | None, origin: str) -> np.ndarray:
        """Returns the elements of an integer tensor as extents. Elements that are not known become unbacked symbols of
        at most `limit`; None for no limit.

        Raises:
            MegccError: if the tensor cannot be a shape.
        """
        extents = self._evaluate(value, limit, origin, 0)
        if extents is None:
            raise MegccError(f"'{value}' is {self.builder.types[value]}, and a few integers are wanted")
        return extents

    def resolved(self, value: str, limit: Dim | None, origin: str,
                 resolve: Callable[[Collection[int]], str]) -> np.ndarray:
        """Returns the extents that the elements of a tensor stand for, in one dimension. Unlike in `extents`, a number
        may stand for an extent, such as -1 in a shape or a negative pad.

        resolve: takes the positions of the elements that are only known at run time. It emits the extents that all
            elements stand for, as an int64 tensor of the same size, and returns its name.

        Raises:
            MegccError: if the tensor cannot be a shape.
        """
        builder = self.builder
        first_op = len(builder.ops)
        extents = self.extents(value, limit, origin).reshape(-1)
        # `extents` defined symbols for the tensor's numbers, such as -1. An element whose symbol is older is an extent
        # already.
        definitions = {op.attrs.symbol: op for op in builder.ops[first_op:] if op.kind == EXTENT}
        positions = [index for index, dim in enumerate(extents) if isinstance(dim, Symbol) and dim in definitions]
        if not positions:
            return extents
        # Symbols of the resolved extents replace these symbols, which go unless other elements depend on them.
        other_symbols = set().union(*(symbols(dim) for index, dim in enumerate(extents) if index not in positions))
        self._remove_definitions({op.outputs[0]: op for symbol, op in definitions.items()
                                  if symbol.name not in other_symbols}, first_op)
        resolved = resolve(positions)
        for index in positions:
            # `extents` bounds an element that it traces through operators without `limit`.
            symbol, bound = extents[index], definitions[extents[index]].attrs.bound
            if bound is None or limit is None:
                bound = limit if bound is None else bound
            else:
                bound = dim_min(bound, limit)
            extents[index] = self.extent(resolved, index, bound, origin, symbol.name)
        return extents

    def _remove_definitions(self, ops: Mapping[str, Op], first_op: int) -> None:
        """Removes operators that define unbacked symbols, and frees the symbols' names. ops: the operators by their
        results; they are among those from `first_op` on."""
        builder, names = self.builder, {op.attrs.symbol.name for op in ops.values()}
        builder.ops[first_op:] = [op for op in builder.ops[first_op:] if op.outputs[0] not in ops]
        for result in ops:
            builder.types.pop(result)
            builder.producers.pop(result)
        self.forget(names)
        self.taken -= names

    def known(self, value: str) -> bool:
        """Whether the elements of an integer tensor follow from extents, without unbacked symbols being created."""
        return self._evaluate(value, None, "", 0, may_create=False) is not None

    def _evaluate(self, value: str, limit: Dim | None, origin: str, depth: int,
                  may_create: bool = True) -> np.ndarray | None:
        """Returns the elements of an integer tensor as extents, through the operators that compute it; None if they are
        not known.

        depth: the number of operators traced so far. may_create: whether unknown elements become new symbols.
        """
        builder = self.builder
        known, type_ = builder.integers(value), builder.types[value]
        if known is not None or (size := type_.static_size) is None or size > MAX_TRACED_ELEMENTS:
            return known
        extents = self._evaluate_producer(value, origin, depth, may_create)
        if extents is not None:
            return extents
        has_symbols = all((value, element) in self._symbols for element in range(type_.size))
        if not type_.dtype.startswith(("int", "uint")) or not (may_create or has_symbols):
            return None
        extents = np.empty(type_.size, object)
        extents[:] = [self.extent(value, element, limit, origin) for element in range(type_.size)]
        return extents.reshape(type_.shape)

    def _evaluate_producer(self, value: str, origin: str, depth: int, may_create: bool) -> np.ndarray | None:
        """Returns the elements of an integer tensor as its operator computes them from those of its operands; None if
        the operator cannot be evaluated."""
        builder = self.builder
        op, type_ = builder.producers.get(value), builder.types[value]
        if op is None or not can_evaluate(op.kind) or depth >= MAX_TRACE_DEPTH \
                or not type_.dtype.startswith(("int", "bool")) \
                or any(name and builder.types[name].dtype[0] not in "iub" for name in op.inputs):
            return None
        operands = [self._evaluate(name, None, origin, depth + 1, may_create) if name else None for name in op.inputs]
        if any(operand is None for operand, name in zip(operands, op.inputs, strict=True) if name):
            return None
        types = [builder.types[name] if name else None for name in op.inputs]
        return shape_value(op.kind, op.attrs, operands, types, type_)

    def extent(self, value: str, element: int, limit: Dim | None, origin: str, name: str = "") -> Dim:
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
                (int64_value,) = builder.emit("cast", (value,), Attrs(dtype="int64"), origin, f"{value}.int64")
            else:
                int64_value = value
            name = self._name(name or (value if builder.types[value].size == 1 else f"{value}[{element}]"))
            bound = self.bound(name, limit, value)
            self._symbols[value, element] = Symbol(name, least=0)
            attrs = Attrs(symbol=self._symbols[value, element], element=element, bound=bound)
            builder.emit(EXTENT, (int64_value,), attrs, origin, f"{name}.extent")
        return self._symbols[value, element]

    def require_zero(self, value: str, name: str, origin: str) -> None:
        """Adds a run-time check that an int64 value is 0; otherwise the run fails. The value is 1 if a condition
        chooses a branch that is removed.

        Args:
            name: of the condition, for the error text.
        """
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

    def bound(self, name: str, limit: Dim | None, value: str = "") -> Dim | None:
        """Returns the smaller of `limit` and the bound that the user states for the extent `name` or the value."""
        given = next((key for key in (name, value) if key in self.bounds), None)
        if given is None:
            return limit
        self.used.add(given)
        return self.bounds[given] if limit is None else dim_min(limit, self.bounds[given])

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
