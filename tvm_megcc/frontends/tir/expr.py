# SPDX-License-Identifier: Apache-2.0
"""Prints TIR expressions as C. Operations that may overflow or divide by zero call a function (helpers.py)."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from ...errors import MegccError
from ...ir.c_text import AND, ATOM, CHOICE, EQUAL, LESS, OR, PRODUCT, SUM, UNARY
from ...ir.expr import c_double, c_float
from ...ir.types import DTYPES
from ..tvm_versions import TENSOR_READ, buffer_of
from . import helpers
from .calls import BITWISE, SHIFTS, Calls
from .values import Value, dtype_of

_INT32 = (-2**31, 2**31 - 1)
#: TVM's analyzer gives an unknown integer a range beyond this one.
_INT64 = (-2**62, 2**62)

#: TIR's arithmetic -> C's operator, its precedence, and the helper where the operator could overflow.
_INFIX = {"Add": ("+", SUM, "add"), "Sub": ("-", SUM, "sub"), "Mul": ("*", PRODUCT, "mul")}
#: TIR's divisions -> C's operator where that is the same, and the helper for the other cases.
_QUOTIENTS = {"Div": ("/", "div"), "FloorDiv": ("/", "floordiv"), "Mod": ("%", "mod"), "FloorMod": ("%", "floormod")}
#: TIR's comparisons -> C's operator and its precedence.
_COMPARISONS = {"EQ": ("==", EQUAL), "NE": ("!=", EQUAL), "LT": ("<", LESS), "LE": ("<=", LESS), "GT": (">", LESS),
                "GE": (">=", LESS)}


class Expressions(Calls):
    """Prints expressions of one function."""

    def value(self, expr) -> Value:
        """Returns an expression in C.

        Raises:
            MegccError: naming what in it cannot be printed.
        """
        return self._value(self.simplified(expr))

    def _value(self, expr) -> Value:
        """Returns an expression in C; within a statement, a placeholder for one that may be common."""
        value = self._print_by_kind(expr)
        if self.subexpressions is None or value.text.isidentifier():
            return value
        is_call = value.level == ATOM and value.text.endswith(")")
        if value.level == ATOM and not is_call:
            return value
        return Value(self.subexpressions.subexpression(value.text, value.dtype, is_call), value.level, value.dtype)

    def _print_by_kind(self, expr) -> Value:
        """Prints an expression by a table, or by the method that is called like the class of TIR."""
        kind = type(expr).__name__
        if kind == "Call":
            return self._call(expr)
        if kind == TENSOR_READ:
            return self._load(expr)
        if kind in _INFIX:
            return self._infix(expr, *_INFIX[kind])
        if kind in _QUOTIENTS:
            return self._quotient(expr, *_QUOTIENTS[kind])
        if kind in _COMPARISONS:
            return self._comparison(expr, *_COMPARISONS[kind])
        if kind in BITWISE:
            return self._bitwise(BITWISE[kind], dtype_of(expr), expr.a, expr.b)
        if kind in SHIFTS:
            return self._shift(SHIFTS[kind], dtype_of(expr), expr.a, expr.b)
        printer = getattr(self, f"_{kind}", None)
        if printer is None:
            raise MegccError(f"TIR's {kind} is not supported")
        return printer(expr)

    def _IntImm(self, expr) -> Value:
        value, dtype = int(expr.value), dtype_of(expr)
        if dtype == "bool":
            return Value(str(value), ATOM, "bool")
        if dtype in ("int32", "int64") and _INT32[0] < value <= _INT32[1]:
            return Value(str(value), ATOM if value >= 0 else UNARY, "int32")
        if dtype.startswith("int"):
            # C has no literal for these two: it reads -2^63 as the negation of a number that is too large
            text = {-2**63: "INT64_MIN", _INT32[0]: "INT32_MIN"}.get(value, f"INT64_C({value})")
            return Value(text if dtype in ("int32", "int64") else str(value), UNARY if value < 0 else ATOM, dtype)
        return Value(f"{value}u" if value <= 2**32 - 1 else f"UINT64_C({value})", ATOM, dtype)

    def _FloatImm(self, expr) -> Value:
        dtype, value = dtype_of(expr), float(expr.value)
        value = float(np.float16(value)) if dtype == "float16" else value
        text = c_double(value).text if dtype == "float64" else c_float(value)
        return Value(text, UNARY if text.startswith("-") else ATOM, dtype)

    def _Var(self, expr) -> Value:
        if expr in self.variables:
            return self.variables[expr]
        known = self.analyzer.simplify(expr)
        if known.same_as(expr):
            raise MegccError(f"the variable {expr.name} has no value")
        return self._value(known)

    def _load(self, expr) -> Value:
        memory = self.memory(buffer_of(expr))
        offset = self.offset(buffer_of(expr), expr.indices)
        offset_without_placeholders = self.subexpressions.expand(offset) if self.subexpressions else offset
        for buffer, offset_in_variable, value in self.elements_in_variables:
            if buffer.same_as(buffer_of(expr)) and offset_in_variable == offset_without_placeholders:
                return value
        text = memory.name if memory.is_variable else f"{memory.name}[{offset}]"
        if self.subexpressions is not None and not memory.is_variable:
            text = self.subexpressions.load(text, memory.dtype)
        if memory.dtype == "bool":
            return Value(f"{text} != 0", EQUAL, "bool")
        if memory.dtype == "float16":
            return Value(f"mgc_from_float16({text})", ATOM, "float16")
        return Value(text, ATOM, memory.dtype)

    def _infix(self, expr, symbol: str, level: int, helper: str) -> Value:
        dtype = dtype_of(expr)
        a, b = self._value(expr.a), self._value(expr.b)
        if dtype in ("int32", "int64"):
            return self._signed_arithmetic(expr, a, b, symbol, level, helper)
        text = f"{a.operand(level)} {symbol} {b.operand(level + 1)}"
        if dtype.startswith("uint") and DTYPES[dtype].bytes >= 4:
            return Value(text, level, dtype)
        if dtype.startswith(("int", "uint")):
            return self.call(helper, dtype, a, b)
        return self._round_if_float16(Value(text, level, dtype))

    def _round_if_float16(self, value: Value) -> Value:
        """Returns the result of float arithmetic, rounded if its dtype is float16."""
        if value.dtype != "float16":
            return value
        return Value(f"{self.use(helpers.ROUND_FLOAT16)}({value.text})", ATOM, "float16")

    def _signed_arithmetic(self, expr, a: Value, b: Value, symbol: str, level: int, helper: str) -> Value:
        """Prints arithmetic of signed integers: in int32 if the operands and the result provably fit, else in int64 if
        they provably fit, else as a call of a helper without undefined behaviour."""
        dtype = dtype_of(expr)
        right = b.operand(level + 1)
        if self.fits(expr, *_INT32) and a.dtype == b.dtype == "int32":
            return Value(f"{a.operand(level)} {symbol} {right}", level, "int32")
        if dtype == "int64" and self.fits(expr, *_INT64):
            left = a.operand(level) if "int64" in (a.dtype, b.dtype) else f"(int64_t){a.operand(UNARY)}"
            return Value(f"{left} {symbol} {right}", level, "int64")
        return self.call(helper, dtype, a, b)

    def _quotient(self, expr, symbol: str, helper: str) -> Value:
        dtype = dtype_of(expr)
        a, b = self._value(expr.a), self._value(expr.b)
        if dtype.startswith("float"):
            if helper != "div":
                raise MegccError(f"TIR's {type(expr).__name__} of {dtype} is not supported")
            return self._round_if_float16(Value(f"{a.operand(PRODUCT)} / {b.operand(PRODUCT + 1)}", PRODUCT, dtype))
        signed = dtype in ("int32", "int64")
        if signed and self.bounds(expr.a)[0] >= 0 and self.bounds(expr.b)[0] > 0:
            wide = "int64" if "int64" in (a.dtype, b.dtype) else "int32"
            return Value(f"{a.operand(PRODUCT)} {symbol} {b.operand(PRODUCT + 1)}", PRODUCT, wide)
        return self.call(helper, dtype, a, b)

    def _comparison(self, expr, symbol: str, level: int) -> Value:
        # Compilers warn about comparisons of comparisons without parentheses.
        strings = [value.operand(UNARY if value.dtype == "bool" else level + 1)
                 for value in (self.value(expr.a), self.value(expr.b))]
        return Value(f"{strings[0]} {symbol} {strings[1]}", level, "bool")

    def _And(self, expr) -> Value:
        left = self.value(expr.a)
        with self.only_if(expr.a):
            right = self.value(expr.b)
        return Value(f"{left.operand(AND)} && {right.operand(AND)}", AND, "bool")

    def _Or(self, expr) -> Value:
        left = self.value(expr.a)
        with self.only_if(tirx.Not(expr.a)):
            right = self.value(expr.b)
        # Compilers warn about && within || without parentheses.
        strings = [value.operand(UNARY if value.level == AND else OR) for value in (left, right)]
        return Value(f"{strings[0]} || {strings[1]}", OR, "bool")

    def _Not(self, expr) -> Value:
        return Value(f"!{self.value(expr.a).operand(UNARY)}", UNARY, "bool")

    def _Min(self, expr) -> Value:
        return self._extreme("min", expr)

    def _Max(self, expr) -> Value:
        return self._extreme("max", expr)

    def _extreme(self, name: str, expr) -> Value:
        dtype = dtype_of(expr)
        a, b = self._value(expr.a), self._value(expr.b)
        if dtype == "float16":
            return Value(self.call(name, "float32", a, b).text, ATOM, dtype)
        if dtype == "int64" and a.dtype == b.dtype == "int32":
            dtype = "int32"
        return self.call(name, dtype, a, b)

    def _Select(self, expr) -> Value:
        return self._conditional(expr.condition, expr.true_value, expr.false_value, dtype_of(expr))

    def _conditional(self, condition, yes, no, dtype: str) -> Value:
        """Prints a conditional expression. Only the chosen branch reads memory, as in TVM's if_then_else."""
        chosen = self.value(condition)
        if chosen.text in ("0", "1"):
            return self.value(yes if chosen.text == "1" else no)
        with self.only_if(condition):
            first = self.value(yes)
        with self.only_if(tirx.Not(condition)):
            second = self.value(no)
        if first.dtype != second.dtype:
            dtype = "int64"
        elif dtype in ("int32", "int64"):
            dtype = first.dtype
        return Value(f"{chosen.operand(OR)} ? {first.operand(OR)} : {second.operand(CHOICE)}", CHOICE, dtype)

    def _Let(self, expr) -> Value:
        self.variables[expr.var] = self._value(expr.value)
        return self._value(expr.body)
