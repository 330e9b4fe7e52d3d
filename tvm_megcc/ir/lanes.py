# SPDX-License-Identifier: Apache-2.0
"""Expressions over integers and floats: the kinds of their values, evaluation in numpy, and printing in C.

Each value is a vector lane of int32 (kind "i") or of float32 (kind "f"). 8- and 16-bit operands are loaded as int32.
Sums and products of int32 wrap. The result of an expression is saturated to its dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .c_text import Text, called, infix
from .expr import FUNCTIONS, Arg, Call, Const, Expr, c_float, vector_call
from .reciprocals import reciprocal

#: dtype -> the kind of lane in which its elements are computed.
KINDS = {**dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), "i"), "float32": "f"}
#: Functions of int32 lanes -> their names in C.
_INTEGER = {"add": "mgc_iadd", "sub": "mgc_isub", "mul": "mgc_imul", "min": "mgc_imin", "max": "mgc_imax"}
#: Functions -> cheaper functions with the same positive results, and any result <= 0 elsewhere.
_POSITIVE = {"rescale_fixed": "rescale_positive", "rescale_down": "rescale_down_positive"}
_LANES = {"i": np.int32, "f": np.float32}


def kind_of(expr: Expr, kinds: Sequence[str]) -> str:
    """Returns the kind of an expression, "i" or "f"; "" if it has constants only. kinds: kinds of the operands."""
    if isinstance(expr, Arg):
        return kinds[expr.index]
    if isinstance(expr, Const):
        return ""
    return FUNCTIONS[expr.fn].gives or next(filter(None, (kind_of(a, kinds) for a in expr.args)), "")


def refusal(expr: Expr, kinds: Sequence[str]) -> str | None:
    """Returns the reason why the expression is invalid for operands of these kinds; None if it is valid."""
    if not isinstance(expr, Call):
        return None
    argument_kinds = _argument_kinds(expr, kinds, kind_of(expr, kinds) or "f")
    for argument, kind in zip(expr.args, argument_kinds, strict=True):
        actual = kind_of(argument, kinds)
        if actual and actual != kind:
            return f"{expr.fn} of {_plural(actual)} where {_plural(kind)} are wanted"
        if isinstance(argument, Const) and kind == "i" and not _is_int32(argument.value):
            return f"{argument.value:g} is no int32"
        reason = refusal(argument, kinds)
        if reason:
            return reason
    if argument_kinds[:1] == "i" and not FUNCTIONS[expr.fn].takes and expr.fn not in _INTEGER:
        return f"there is no {expr.fn} of integers"
    return None


def evaluate(expr: Expr, operands: Sequence[np.ndarray], dtype: str, precise: bool = False) -> np.ndarray:
    """Evaluates the expression over arrays that broadcast, and saturates the result to `dtype`.

    Args:
        precise: each function of floats is computed in float64 and rounded to float32, so that the result does not
            depend on the accuracy of numpy's functions.
    """
    kinds = [KINDS[array.dtype.name] for array in operands]
    lanes = [array.astype(_LANES[kind]) for array, kind in zip(operands, kinds, strict=True)]
    kind = kind_of(expr, kinds) or "f"
    with np.errstate(all="ignore"):
        result = _evaluate(expr, lanes, kinds, kind, np.dtype(np.float64 if precise else np.float32))
    result_dtype = np.dtype(dtype)
    if result_dtype.kind == "f":
        return np.asarray(result, result_dtype)
    limits = np.iinfo(result_dtype)
    limited: np.ndarray = np.clip(result, limits.min, limits.max)
    return limited.astype(result_dtype)


def _evaluate(expr: Expr, lanes: Sequence[np.ndarray], kinds: Sequence[str], kind: str, real: np.dtype) -> np.ndarray:
    """Returns the value of an expression as int32 or float32. kind: that of an expression of constants only. real: the
    dtype in which functions of floats are computed."""
    if isinstance(expr, Arg):
        return lanes[expr.index]
    if isinstance(expr, Const):
        return np.asarray(expr.value).astype(_LANES[kind])
    argument_kinds = _argument_kinds(expr, kinds, kind)
    values = [_evaluate(argument, lanes, kinds, lane, real)
              for argument, lane in zip(expr.args, argument_kinds, strict=True)]
    if real == np.float32 or (kind_of(expr, kinds) or kind) == "i":
        return np.asarray(FUNCTIONS[expr.fn].numpy(*values))
    values = [value.astype(real) if lane == "f" else value for value, lane in zip(values, argument_kinds, strict=True)]
    return np.asarray(FUNCTIONS[expr.fn].numpy(*values)).astype(np.float32)


def to_c(expr: Expr, names: Sequence[str], kinds: Sequence[str], kind: str = "", floor: int | None = None) -> str:
    """Returns the expression in C over `mgc_i` and `mgc_v`.

    Args:
        names, kinds: the C name and the kind of lane of each operand.
        kind: the kind of an expression that has constants only.
        floor: values below it need not be exact; None: all values are.
    """
    simpler = _without_divisions(_without_zero_points(expr, kinds), kinds)
    return _text(_relaxed_below(simpler, kinds, floor), names, kinds, kind).text


def to_int32x4(expr: Expr, names: Sequence[str], kinds: Sequence[str], floor: int | None) -> str:
    """Returns an expression of integers in C over `mgc_int32x4` (simd/helium_integer.h), with arguments as `to_c`."""
    return _int32x4(_relaxed_below(_without_zero_points(expr, kinds), kinds, floor), names).text


def _int32x4(expr: Expr, names: Sequence[str]) -> Text:
    if isinstance(expr, Arg):
        return Text(names[expr.index])
    if isinstance(expr, Const):
        return Text(f"mgc_int32x4_dup({_c_int(int(expr.value))})")
    first, *others = expr.args
    # Helium has no minimum or maximum of a vector and a scalar.
    if expr.fn in ("min", "max") or not all(isinstance(other, Const) for other in others):
        return called(f"mgc_int32x4_{expr.fn}", *(_int32x4(argument, names) for argument in expr.args))
    constants = (Text(_c_int(int(other.value))) for other in others if isinstance(other, Const))
    return called(f"mgc_int32x4_{expr.fn}_by", _int32x4(first, names), *constants)


def lower_limit(dtype: str) -> int | None:
    """Returns the lower limit that results are saturated to, for a dtype of 8 or 16 bits; None for others."""
    return int(np.iinfo(dtype).min) if dtype in KINDS and dtype not in ("int32", "float32") else None


def _relaxed_below(expr: Expr, kinds: Sequence[str], floor: int | None) -> Expr:
    """Returns a cheaper expression with the same values above `floor`, and any values of at most `floor` elsewhere.
    Results that a Relu clips at a zero point, for example, need no exact rounding of negative numbers."""
    if not isinstance(expr, Call):
        return expr
    first, others = expr.args[0], tuple(_relaxed_below(argument, kinds, None) for argument in expr.args[1:])
    if expr.fn in _POSITIVE and floor is not None and floor >= 0:
        return Call(_POSITIVE[expr.fn], (_relaxed_below(first, kinds, None), *others))
    inner = None
    if kind_of(expr, kinds) == "i" and others and isinstance(others[0], Const):
        inner = _operand_floor(expr.fn, int(others[0].value), floor)
    return Call(expr.fn, (_relaxed_below(first, kinds, inner), *others))


def _operand_floor(fn: str, constant: int, floor: int | None) -> int | None:
    """Returns the `floor` of a function's first operand, from the `floor` of its result; None if there is none. A sum
    with a constant below 2^16 does not overflow, since its other operand has been shifted right by requantization."""
    if fn == "max":
        return constant if floor is None else max(floor, constant)
    if floor is None or abs(constant) >= 2**16:
        return None
    return {"min": floor, "add": floor - constant, "sub": floor + constant}.get(fn)


def _without_zero_points(expr: Expr, kinds: Sequence[str]) -> Expr:
    """Returns the expression without zero points that are added and subtracted again. That is exact: integers wrap."""
    if not isinstance(expr, Call):
        return expr
    expr = Call(expr.fn, tuple(_without_zero_points(argument, kinds) for argument in expr.args))
    if expr.fn == "sub" and kind_of(expr, kinds) == "i":
        sum_, zero = expr.args
        if isinstance(zero, Const) and isinstance(sum_, Call) and sum_.fn == "add" and sum_.args[1] == zero:
            return sum_.args[0]
    return expr


def _without_divisions(expr: Expr, kinds: Sequence[str], rounded: bool = False) -> Expr:
    """Returns the expression with products in place of divisions by constants of which an integer is made. The integers
    are the same: the quotients are but for those below 2^-100, which are 0 as integers (reciprocals.py).

    rounded: the result is an operand of an expression that makes integers of floats.
    """
    if not isinstance(expr, Call):
        return expr
    inner = kind_of(expr, kinds) == "i" or rounded
    expr = Call(expr.fn, tuple(_without_divisions(argument, kinds, inner) for argument in expr.args))
    if not rounded or expr.fn != "div" or not isinstance(expr.args[1], Const) or kind_of(expr, kinds) != "f":
        return expr
    divisor = float(np.float32(expr.args[1].value))
    parts = reciprocal(divisor)
    return Call("quotient", (expr.args[0], Const(divisor), *map(Const, parts))) if parts else expr


#: The limits of 8-bit dtypes.
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
#: The right shifts that 8-bit stores can apply to the upper 16 bits of int32 (mgc_requantize_store4 in
#: simd/neon_integer.h).
STORE_SHIFTS = range(3, 7)
#: The largest magnitude of `StoreTail.zero`: shifted left by a store's shift, it fits in int16.
_MAX_ZERO_POINT = 255


class StoreTail(NamedTuple):
    """An integer expression `min(max(inner, …), …) + zero`, whose last operations an 8-bit store performs.

    inner: the expression that remains to be computed.
    down: if it is not 0, the store also shifts right by 16 + down bits.
    zero: the zero point.
    lower, upper: the limits, after the zero point is added, within those of the dtype.
    """

    inner: Expr
    down: int
    zero: int
    lower: int
    upper: int

    @property
    def floor(self) -> int | None:
        """The number below which `inner` need not be exact; None: it has to be."""
        return None if self.down else self.lower - self.zero


def store_tail(expr: Expr, kinds: Sequence[str], dtype: str) -> StoreTail | None:
    """Returns an expression as `StoreTail`; None if it has another form, or `dtype` is not 8-bit. A missing limit is
    that of the dtype."""
    if dtype not in LIMITS or kind_of(expr, kinds) != "i":
        return None
    zero = 0
    if isinstance(expr, Call) and expr.fn == "add" and isinstance(expr.args[1], Const):
        zero, expr = int(expr.args[1].value), expr.args[0]
    limits: dict[str, int] = {}
    for name in ("min", "max"):
        if isinstance(expr, Call) and expr.fn == name and isinstance(expr.args[1], Const):
            limits[name] = int(expr.args[1].value) + zero
            expr = expr.args[0]
    least, greatest = LIMITS[dtype]
    lower, upper = limits.get("max", least), limits.get("min", greatest)
    if not least <= lower <= upper <= greatest or abs(zero) > _MAX_ZERO_POINT:
        return None
    # Without a clip, adding the zero point to any int32 may wrap; results of these functions are far from the ends.
    is_far_from_ends = isinstance(expr, Call) and expr.fn in ("nearest_within", "nearest_away", "shift_down")
    may_wrap = (zero > 0 and "min" not in limits) or (zero < 0 and "max" not in limits)
    if may_wrap and not is_far_from_ends:
        return None
    down = 0
    if isinstance(expr, Call) and expr.fn == "shift_down" and isinstance(expr.args[1], Const) \
            and expr.args[1].value - 16 in STORE_SHIFTS:
        down = int(expr.args[1].value) - 16
        expr = expr.args[0]
    return StoreTail(expr, down, zero, lower, upper)


def _text(expr: Expr, names: Sequence[str], kinds: Sequence[str], kind: str) -> Text:
    """Returns the expression in C, with its precedence. Arguments: as those of `to_c`."""
    kind = kind_of(expr, kinds) or kind or "f"
    if isinstance(expr, Arg):
        return Text(names[expr.index])
    if isinstance(expr, Const):
        return Text(f"mgc_iset1({_c_int(int(expr.value))})" if kind == "i" else f"mgc_set1({c_float(expr.value)})")
    if kind == "f":
        expr = vector_call(expr)
    function = FUNCTIONS[expr.fn]
    strings = [_text(argument, names, kinds, argument_kind)
             for argument, argument_kind in zip(expr.args, _argument_kinds(expr, kinds, kind), strict=True)]
    if kind == "f" and function.infix:
        return infix(strings[0], function.infix, strings[1])
    if kind == "i" and not function.takes:
        return called(_INTEGER[expr.fn], *strings)
    return called("mgc_to_float" if expr.fn == "real" else f"mgc_{expr.fn}", *strings)


def _argument_kinds(expr: Call, kinds: Sequence[str], kind: str) -> str:
    """Returns the kind of each argument of a call, a letter each. kind: that of a call with constant arguments only."""
    return FUNCTIONS[expr.fn].takes or (kind_of(expr, kinds) or kind) * len(expr.args)


def _is_int32(value: float) -> bool:
    return value == int(value) and -2**31 <= value < 2**31


def _c_int(value: int) -> str:
    return "INT32_MIN" if value == -2**31 else str(value)


def _plural(kind: str) -> str:
    return {"i": "integers", "f": "floats"}[kind]
