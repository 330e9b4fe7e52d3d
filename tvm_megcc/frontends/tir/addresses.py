# SPDX-License-Identifier: Apache-2.0
"""Prints addresses of elements in C, using the known ranges of index expressions.

TIR computes indices in int64. Here loop variables, extents and every integer that provably fits are int32_t; others are
int64_t. Indices that may be out of bounds are checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from ...errors import MegccError
from ...ir.c_text import ATOM, COMMA, PRODUCT, SUM, UNARY
from ...ir.types import DTYPES
from ..tvm_versions import Analyzer, Var
from . import helpers
from .common import Parts
from .values import Memory, Value, any_part, dtype_of, int_value, is_float, is_integer, nodes, reads


class Addresses:
    """Prints addresses in the buffers of one function.

    analyzer: TVM's analyzer, which knows the ranges of variables. variables: variable -> its C expression. buffers: by
    their variables. helpers: the names of helpers used so far, in order.
    """

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.variables: dict[Var, Value] = {}
        self.buffers: dict[Var, Memory] = {}
        self.helpers: dict[str, None] = {}
        #: (buffer, offset, variable that currently holds this element).
        self.in_variables: list[tuple[Var, str, Value]] = []
        #: The common parts of the statement that is being printed.
        self.parts: Parts | None = None

    def use(self, name: str) -> str:
        """Records that a helper is used, so that it will be printed, and returns its name."""
        helpers.helper(name)
        self.helpers[name] = None
        return name

    def call(self, operation: str, dtype: str, *arguments: Value) -> Value:
        name = self.use(f"{operation}_{DTYPES[dtype].short}")
        return Value(f"{name}({', '.join(argument.text for argument in arguments)})", ATOM, dtype)

    def bounds(self, expr) -> tuple[int, int]:
        """Returns the least and the largest value of an integer expression."""
        bound = self.analyzer.const_int_bound(expr)
        return int(bound.min_value), int(bound.max_value)

    def fits(self, expr, least: int, most: int) -> bool:
        low, high = self.bounds(expr)
        return least <= low and high <= most

    def simplified(self, expr):
        """Replaces the variables of blocks by their bindings, and simplifies if that makes the expression shorter."""
        return self.analyzer.simplify(expr) if is_integer(expr) and not any_part(expr, is_float) else expr

    def value(self, expr) -> Value:
        """Returns an expression in C."""
        raise NotImplementedError

    def text(self, expr, level: int = COMMA) -> str:
        return self.value(expr).at(level)

    def memory(self, source) -> Memory:
        if source not in self.buffers:
            raise MegccError(f"the buffer {getattr(source, 'name', source)} is not the function's own")
        return self.buffers[source]

    def offset(self, source, indices) -> str:
        """Returns the offset of an element in C, with a check of indices that may be out of bounds."""
        memory = self.memory(source)
        if memory.single or not memory.shape:
            return "0"
        if any(dtype_of(index) not in ("int32", "int64") for index in indices):
            raise MegccError(f"an index of {memory.name} is no int32 or int64")
        shape = memory.stored(memory.shape)
        indices = [self.simplified(index) for index in memory.stored(indices)]
        within_bounds = [self.inside(index, extent) for index, extent in zip(indices, shape, strict=True)]
        flat = _flattened(indices, shape)
        merged = self.simplified(flat)
        if len(indices) > 1 and nodes(merged) < sum(map(nodes, indices)):
            size = self.simplified(_product(shape))
            return self.element(merged, size, all(within_bounds) or self.inside(merged, size)).text
        row: Value | None = None
        for index, extent, known in zip(indices, shape, within_bounds, strict=True):
            value = None if int_value(index) == 0 else self.element(index, extent, known)
            row = value if row is None else self._row(row, extent, value)
        return "0" if row is None else row.text

    def _row(self, outer: Value, extent, value: Value | None) -> Value:
        size = self.value(extent)
        if outer.text.isdigit() and size.text.isdigit():
            outer, size = Value(str(int(outer.text) * int(size.text)), ATOM, "int32"), Value("1", ATOM, "int32")
        own = outer if size.text == "1" else Value(f"{outer.at(PRODUCT)} * {size.at(PRODUCT + 1)}", PRODUCT, "int32")
        return own if value is None else Value(f"{own.at(SUM)} + {value.at(SUM)}", SUM, "int32")

    def element(self, index, extent, known: bool) -> Value:
        """Returns an index into an axis as int32. known: whether it is known to be within bounds, so needs no check."""
        value = self.value(index)
        if not known:
            name = self.use(helpers.INDEX)
            return Value(f"{name}({value.text}, {self.text(extent)}, &outside)", ATOM, "int32")
        if value.dtype == "int64":
            return Value(f"(int32_t){value.at(UNARY)}", UNARY, "int32")
        return value

    def inside(self, index, extent) -> bool:
        """Whether an index certainly is in [0, extent)."""
        return self.analyzer.can_prove(index >= 0) and self.analyzer.can_prove(index < extent)

    def assuming(self, condition):
        """Returns a scope in which the analyzer assumes a condition; without effect if it depends on data, which may
        change in the scope."""
        return nullcontext() if reads(condition) else self.analyzer.constraint_scope(condition)

    @contextmanager
    def only_if(self, condition) -> Iterator[None]:
        """Yields a scope for expressions that are evaluated only if a condition holds."""
        with self.assuming(condition), self.parts.conditional() if self.parts else nullcontext():
            yield


def _flattened(indices, shape):
    flat = indices[0]
    for index, extent in zip(indices[1:], list(shape)[1:], strict=True):
        flat = flat * extent + index
    return flat


def _product(shape):
    total = shape[0]
    for extent in list(shape)[1:]:
        total = total * extent
    return total
