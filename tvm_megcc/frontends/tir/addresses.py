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
from .common_subexpressions import Subexpressions
from .values import (
    Memory,
    Value,
    any_subexpression,
    count_nodes,
    dtype_of,
    int_value,
    is_float,
    is_integer,
    reads_memory,
)


class Addresses:
    """Prints addresses in the buffers of one function.

    analyzer: TVM's analyzer, which knows the ranges of variables.
    variables: variable of TIR -> its C expression.
    buffers: buffer of TIR -> its memory in C.
    helpers: the names of the helper functions used so far, in order.
    """

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.variables: dict[Var, Value] = {}
        self.buffers: dict[Var, Memory] = {}
        self.helpers: dict[str, None] = {}
        #: Elements that are in a local variable inside the loops being printed, such as the sum of a reduction:
        #: (buffer, offset in C, variable).
        self.elements_in_variables: list[tuple[Var, str, Value]] = []
        #: The subexpressions of the statement being printed; None where common ones get no names.
        self.subexpressions: Subexpressions | None = None

    def use(self, name: str) -> str:
        """Records that a helper is used, so that it will be printed, and returns its name. Raises MegccError if there
        is none of this name."""
        helpers.helper(name)
        self.helpers[name] = None
        return name

    def call(self, operation: str, dtype: str, *arguments: Value) -> Value:
        """Returns a call of the helper of an operation on values of a dtype."""
        name = self.use(f"{operation}_{DTYPES[dtype].short}")
        return Value(f"{name}({', '.join(argument.text for argument in arguments)})", ATOM, dtype)

    def bind(self, variable, value) -> None:
        """Tells the analyzer the value or the range of a variable of TIR, in place of an earlier one: a variable may
        occur in several loops or blocks."""
        self.analyzer.bind(variable, value, allow_override=True)

    def bounds(self, expr) -> tuple[int, int]:
        """Returns the smallest and the largest value that an integer expression may have."""
        bound = self.analyzer.const_int_bound(expr)
        return int(bound.min_value), int(bound.max_value)

    def fits(self, expr, minimum: int, maximum: int) -> bool:
        """Whether an integer expression certainly is in [minimum, maximum]."""
        smallest, largest = self.bounds(expr)
        return minimum <= smallest and largest <= maximum

    def simplified(self, expr):
        """Returns an integer expression simplified, with the variables of blocks replaced by their bindings. An
        expression with floats is returned unchanged, so that it is rounded as in TVM."""
        return self.analyzer.simplify(expr) if is_integer(expr) and not any_subexpression(expr, is_float) else expr

    def value(self, expr) -> Value:
        """Returns an expression in C."""
        raise NotImplementedError

    def text(self, expr, level: int = COMMA) -> str:
        """Returns an expression in C as an operand of an operator of this precedence; by default as an argument."""
        return self.value(expr).operand(level)

    def memory(self, source) -> Memory:
        """Returns the memory of a buffer; raises MegccError for one that is neither an operand nor a temporary."""
        if source not in self.buffers:
            raise MegccError(f"the buffer {getattr(source, 'name', source)} is not the function's own")
        return self.buffers[source]

    def offset(self, source, indices) -> str:
        """Returns the offset of an element in C, row-major over the axes that are in memory (`Memory.stored`), with a
        check of indices that may be out of bounds."""
        memory = self.memory(source)
        if memory.is_variable or not memory.shape:
            return "0"
        if any(dtype_of(index) not in ("int32", "int64") for index in indices):
            raise MegccError(f"an index of {memory.name} is no int32 or int64")
        shape = memory.stored(memory.shape)
        indices = [self.simplified(index) for index in memory.stored(indices)]
        within_bounds = [self.inside(index, extent) for index, extent in zip(indices, shape, strict=True)]
        # An index into all elements is often shorter: the indices i / 8 and i % 8 of a reshape merge to i.
        merged = self.simplified(_flattened(indices, shape))
        if len(indices) > 1 and count_nodes(merged) < sum(map(count_nodes, indices)):
            size = self.simplified(_product(shape))
            return self.element(merged, size, all(within_bounds) or self.inside(merged, size)).text
        offset: Value | None = None  # None is 0
        for index, extent, known in zip(indices, shape, within_bounds, strict=True):
            value = None if int_value(index) == 0 else self.element(index, extent, known)
            offset = value if offset is None else self._next_axis(offset, extent, value)
        return "0" if offset is None else offset.text

    def _next_axis(self, outer: Value, extent, index: Value | None) -> Value:
        """Returns outer * extent + index. outer: the offset by the axes before; index: None is 0."""
        size = self.value(extent)
        if outer.text.isdigit() and size.text.isdigit():
            start = Value(str(int(outer.text) * int(size.text)), ATOM, "int32")
        elif size.text == "1":
            start = outer
        else:
            start = Value(f"{outer.operand(PRODUCT)} * {size.operand(PRODUCT + 1)}", PRODUCT, "int32")
        return start if index is None else Value(f"{start.operand(SUM)} + {index.operand(SUM)}", SUM, "int32")

    def element(self, index, extent, known: bool) -> Value:
        """Returns an index into an axis as int32. known: whether it is known to be within bounds, so needs no check."""
        value = self.value(index)
        if not known:  # the check sets the kernel's variable `outside`, with which the kernel fails
            name = self.use(helpers.INDEX)
            return Value(f"{name}({value.text}, {self.text(extent)}, &outside)", ATOM, "int32")
        if value.dtype == "int64":
            return Value(f"(int32_t){value.operand(UNARY)}", UNARY, "int32")
        return value

    def inside(self, index, extent) -> bool:
        """Whether an index certainly is in [0, extent)."""
        return self.analyzer.can_prove(index >= 0) and self.analyzer.can_prove(index < extent)

    def assuming(self, condition):
        """Returns a scope in which the analyzer assumes a condition; without effect if it depends on data, which may
        change in the scope."""
        return nullcontext() if reads_memory(condition) else self.analyzer.constraint_scope(condition)

    @contextmanager
    def only_if(self, condition) -> Iterator[None]:
        """Yields a scope for expressions that are evaluated only if a condition holds."""
        with self.assuming(condition), self.subexpressions.conditional() if self.subexpressions else nullcontext():
            yield


def _flattened(indices, shape):
    """Returns the row-major offset of an element as an expression of TIR."""
    offset = indices[0]
    for index, extent in zip(indices[1:], list(shape)[1:], strict=True):
        offset = offset * extent + index
    return offset


def _product(shape):
    total = shape[0]
    for extent in list(shape)[1:]:
        total = total * extent
    return total
