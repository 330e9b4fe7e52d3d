# SPDX-License-Identifier: Apache-2.0
"""Expressions and buffers in C, and predicates on TIR expressions, which all printers of TIR share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from ...errors import MegccError
from ...ir.c_text import CHOICE
from ...ir.types import DTYPES
from ..tvm_versions import TENSOR_READ, Expr, element_type

#: The precedence of bit operations: below that of C, so that as operands they always get parentheses.
BITS = CHOICE
#: The deepest nesting of operations in one expression that is printed.
MAX_DEPTH = 100


@dataclass(frozen=True)
class Value:
    """An expression in C.

    level: the precedence of its outermost operator (ir/c_text.py).
    dtype: TIR's dtype, except that an int64 that provably fits is "int32", and "bool" is a truth value; a float16 is a
        C float whose value is representable.
    """

    text: str
    level: int
    dtype: str

    def operand(self, level: int) -> str:
        """Returns the text as an operand of an operator of this precedence, in parentheses if it needs them."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(frozen=True)
class Memory:
    """A buffer in C.

    name: the name of the pointer, the array, or the variable if `is_variable`.
    shape: TIR's extents.
    is_variable: whether it is a variable of C, since it has one element.
    dropped_axes: axes that are not in memory.
    """

    name: str
    dtype: str
    shape: tuple
    is_variable: bool = False
    dropped_axes: frozenset[int] = frozenset()

    def stored(self, values) -> list:
        """Returns those of `values`, one for each logical axis, whose axes are in memory."""
        return [value for axis, value in enumerate(values) if axis not in self.dropped_axes]


def dtype_of(expr) -> str:
    """Returns the element type of an expression.

    Raises:
        MegccError: for vectors and unsupported types.
    """
    return require_dtype(element_type(expr))


def require_dtype(dtype: str) -> str:
    """Returns the dtype if TIR arithmetic on it can be printed. float16 is the only storage-only type for which it can.

    Raises:
        MegccError: for other dtypes.
    """
    if dtype not in DTYPES or (DTYPES[dtype].carrier and dtype != "float16"):
        raise MegccError(f"TIR's values of type {dtype} are not supported")
    return dtype


def is_integer(expr) -> bool:
    """Whether an expression is an integer or truth value of TIR's index arithmetic, which the analyzer simplifies."""
    return element_type(expr) in ("int32", "int64", "bool")


def int_value(expr) -> int | None:
    """Returns the value of an integer constant; None for any other expression."""
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def children(expr) -> list:
    """Returns the operands of an expression."""
    found = [getattr(expr, name) for name in ("a", "b", "value", "condition", "true_value", "false_value", "body")
             if isinstance(getattr(expr, name, None), Expr)]
    for name in ("args", "indices"):
        found += list(getattr(expr, name, None) or ())
    return found


def any_subexpression(expr, wanted: Callable) -> bool:
    """Whether `wanted` is true of an expression or of one in it. It is called in preorder until it is true."""
    return wanted(expr) or any(any_subexpression(part, wanted) for part in children(expr))


def is_deep(expr) -> bool:
    """Whether operations are nested more deeply than Python's recursion and C compilers support."""
    pending = [(expr, 1)]
    while pending:
        part, depth = pending.pop()
        if depth > MAX_DEPTH:
            return True
        pending += [(child, depth + 1) for child in children(part)]
    return False


def function_of_tir(expr) -> str:
    """Returns the function of TIR that an expression calls, such as "exp" for `tirx.exp`; "" for other expressions, and
    for intrinsics of other namespaces such as `tirx.ptx.sqrt` of GPUs, which only have the same names."""
    namespace, _, name = getattr(getattr(expr, "op", None), "name", "").rpartition(".")
    return name if namespace in ("tirx", "prim") else ""


def count_nodes(expr) -> int:
    """Returns the number of operations, variables and constants in an expression."""
    return 1 + sum(map(count_nodes, children(expr)))


def is_float(expr) -> bool:
    return "float" in element_type(expr)


def reads_memory(expr) -> bool:
    """Whether an expression reads an element of a buffer."""
    return any_subexpression(expr, lambda part: type(part).__name__ == TENSOR_READ)
