# SPDX-License-Identifier: Apache-2.0
"""Prints functions, conversions and bit operations of TIR as C."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import MegccError
from ...ir.c_text import ATOM, EQUAL, OR, SHIFT, SUM, UNARY
from ...ir.types import DTYPES
from . import helpers
from .addresses import Addresses
from .values import BITS, Value, dtype_of, function_of_tir

#: Bit operations, as TIR's nodes and as its functions -> C's operators.
BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "bitwise_and": "&", "bitwise_or": "|",
            "bitwise_xor": "^"}
#: Shifts -> helpers.
SHIFTS = {"LShift": "shl", "RShift": "shr", "shift_left": "shl", "shift_right": "shr"}
#: TIR's functions whose helpers have other names.
_RENAMED = {"fabs": "abs", "nearbyint": "round", "power": "pow"}
#: TIR's elementary functions.
_FUNCTIONS = ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin",
              "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil",
              "trunc", "abs", "fabs", "nearbyint", "round", "pow", "power", "fmod", "atan2", "hypot", "copysign")
#: TIR's predicates of a float -> their C.
_PREDICATES = {"isnan": "{0} != {0}", "isinf": "{0} == MGC_INF || {0} == -MGC_INF"}


class Calls(Addresses):
    """Prints calls of functions, casts and bit operations; `Expressions` prints the rest."""

    def _value(self, expr) -> Value:
        """Returns an expression in C as `value` does, without simplifying it: it is part of a simplified one."""
        raise NotImplementedError

    def _conditional(self, condition, yes, no, dtype: str) -> Value:
        """Returns a conditional expression in C."""
        raise NotImplementedError

    def _Cast(self, expr) -> Value:
        return self.cast(self.value(expr.value), dtype_of(expr.value), dtype_of(expr))

    def cast(self, value: Value, source: str, result: str) -> Value:
        """Converts a value from the dtype `source` to the dtype `result`."""
        if source == result:
            return value
        to_float = result.startswith("float")
        if source == "float16":  # in C it is a float already
            value, source = Value(value.text, value.level, "float32"), "float32"
        if source.startswith("float"):
            if result == "bool":
                return Value(f"{value.operand(EQUAL + 1)} != 0", EQUAL, "bool")
            if result == "float16":
                narrow = value.text if source == "float32" else f"(float){value.operand(UNARY)}"
                return Value(f"{self.use(helpers.ROUND_FLOAT16)}({narrow})", ATOM, result)
            if to_float:
                if source == result:
                    return Value(value.text, value.level, result)
                return Value(f"({DTYPES[result].c_type}){value.operand(UNARY)}", UNARY, result)
            name = self.use(f"{DTYPES[result].short}_of_{DTYPES[source].short}")
            return Value(f"{name}({value.text})", ATOM, result)
        if result == "float16":
            return Value(f"{self.use(helpers.ROUND_FLOAT16)}((float){value.operand(UNARY)})", ATOM, result)
        if result == "bool":
            return Value(f"{value.operand(EQUAL + 1)} != 0", EQUAL, "bool")
        if to_float:
            return Value(f"({DTYPES[result].c_type}){value.operand(UNARY)}", UNARY, result)
        if source == "bool":
            return Value(value.text, value.level, "int32" if result in ("int32", "int64") else result)
        # `value.dtype` rather than `source`: an int64 that provably fits is an int32 in C.
        if result in ("int32", "int64") and value.dtype in ("int32", "int8", "int16", "uint8", "uint16"):
            return Value(value.text, value.level, "int32")  # C promotes narrower types to int
        if result == "int64" and value.dtype == "int64":
            return value
        return Value(f"({DTYPES[result].c_type}){value.operand(UNARY)}", UNARY, result)

    def _call(self, call) -> Value:
        name = getattr(call.op, "name", str(call.op))  # such as "tirx.exp"
        short, dtype = function_of_tir(call), dtype_of(call)
        if short == "if_then_else":
            return self._conditional(*call.args, dtype)
        if short == "likely":
            return self._value(call.args[0])
        if short in BITWISE:
            return self._bitwise(BITWISE[short], dtype, *call.args)
        if short in SHIFTS:
            return self._shift(SHIFTS[short], dtype, *call.args)
        if short == "bitwise_not":
            return self._BitwiseNot(call)
        if short in _PREDICATES:
            text = _PREDICATES[short].format(self._value(call.args[0]).operand(UNARY))
            return Value(text, OR if "||" in text else EQUAL, "bool")
        if short == "isfinite":
            x = self._value(call.args[0])
            return Value(f"{x.operand(SUM)} - {x.operand(SUM + 1)} == 0", EQUAL, "bool")  # inf - inf is NaN
        if short in _FUNCTIONS:
            return self._function(_RENAMED.get(short, short), dtype, call.args)
        of_function = ""
        if "call_" in name and call.args and hasattr(call.args[0], "value"):  # such as call_extern("name", …)
            of_function = f" of {call.args[0].value}"
        raise MegccError(f"TIR's {name}{of_function} is not supported")

    def _function(self, name: str, dtype: str, arguments: Iterable) -> Value:
        """Returns a call of an elementary function. float16 is computed in float32 and rounded; rounding an integer
        changes nothing."""
        values = [self._value(argument) for argument in arguments]
        if dtype == "float16":
            result = self.call(name, "float32", *values)
            return self._round_if_float16(Value(result.text, ATOM, "float16"))
        if name in ("floor", "ceil", "round", "trunc") and not dtype.startswith("float"):
            return values[0]
        return self.call(name, dtype, *values)

    def _bitwise(self, symbol: str, dtype: str, a, b) -> Value:
        left, right = self._value(a), self._value(b)
        text = f"{left.operand(UNARY)} {symbol} {right.operand(UNARY)}"
        if dtype == "bool":
            return Value(text, BITS, "bool")
        if dtype in ("int32", "int64"):
            return Value(text, BITS, "int64" if "int64" in (left.dtype, right.dtype) else "int32")
        if DTYPES[dtype].bytes < 4:
            return Value(f"({DTYPES[dtype].c_type})({text})", UNARY, dtype)
        return Value(text, BITS, dtype)

    def _BitwiseNot(self, expr) -> Value:
        value, dtype = self._value(expr.args[0] if hasattr(expr, "args") else expr.a), dtype_of(expr)
        if dtype == "bool":
            return Value(f"!{value.operand(UNARY)}", UNARY, "bool")
        if DTYPES[dtype].bytes < 4:
            return Value(f"({DTYPES[dtype].c_type})~{value.operand(UNARY)}", UNARY, dtype)
        return Value(f"~{value.operand(UNARY)}", UNARY, value.dtype)

    def _shift(self, helper: str, dtype: str, a, b) -> Value:
        left, right = self._value(a), self._value(b)
        if helper == "shr" and dtype in ("int32", "int64") and self.bounds(a)[0] >= 0 and self.fits(b, 0, 31):
            return Value(f"{left.operand(SUM + 1)} >> {right.operand(SUM + 1)}", SHIFT, left.dtype)
        return self.call(helper, dtype, left, right)
