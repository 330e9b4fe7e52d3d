# SPDX-License-Identifier: Apache-2.0
"""Expressions over integers and floats together: each value is a lane of int32 ("i") or of float32 ("f").

8- and 16-bit operands are int32 lanes. Sums and products of int32 wrap. The result of an expression is saturated to its
element type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .c_text import Text, called, infix
from .expr import FUNCTIONS, Arg, Call, Const, Expr, c_float, vector_call

#: Element types -> the kind of lane their elements are computed in.
KINDS = {**dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), "i"), "float32": "f"}
#: Functions of int32 lanes, as C spells them.
_INTEGER = {"add": "mgc_iadd", "sub": "mgc_isub", "mul": "mgc_imul", "min": "mgc_imin", "max": "mgc_imax"}
#: Functions -> cheaper ones with the same results where these are positive, and results ≤ 0 elsewhere.
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
    """Says why these lanes do not allow the expression; None if they do."""
    if not isinstance(expr, Call):
        return None
    wanted = _wanted(expr, kinds, kind_of(expr, kinds) or "f")
    for argument, kind in zip(expr.args, wanted, strict=True):
        found = kind_of(argument, kinds)
        if found and found != kind:
            return f"{expr.fn} of {_name(found)} where {_name(kind)} are wanted"
        if isinstance(argument, Const) and kind == "i" and not _is_int32(argument.value):
            return f"{argument.value:g} is no int32"
        reason = refusal(argument, kinds)
        if reason:
            return reason
    if wanted[:1] == "i" and not FUNCTIONS[expr.fn].takes and expr.fn not in _INTEGER:
        return f"there is no {expr.fn} of integers"
    return None


def evaluate(expr: Expr, operands: Sequence[np.ndarray], dtype: str, precise: bool = False) -> np.ndarray:
    """Evaluates the expression over arrays that broadcast, and saturates to `dtype`.

    precise: functions of floats are computed in float64 and rounded to float32, one after the other, so that the result
        does not depend on the machine's library.
    """
    kinds = [KINDS[array.dtype.name] for array in operands]
    lanes = [array.astype(_LANES[kind]) for array, kind in zip(operands, kinds, strict=True)]
    kind = kind_of(expr, kinds) or "f"
    with np.errstate(all="ignore"):
        result = _evaluate(expr, lanes, kinds, kind, np.dtype(np.float64 if precise else np.float32))
    wanted = np.dtype(dtype)
    if wanted.kind == "f":
        return np.asarray(result, wanted)
    limits = np.iinfo(wanted)
    limited: np.ndarray = np.clip(result, limits.min, limits.max)
    return limited.astype(wanted)


def _evaluate(expr: Expr, lanes: Sequence[np.ndarray], kinds: Sequence[str], kind: str, real: np.dtype) -> np.ndarray:
    if isinstance(expr, Arg):
        return lanes[expr.index]
    if isinstance(expr, Const):
        return np.asarray(expr.value).astype(_LANES[kind])
    wanted = _wanted(expr, kinds, kind)
    values = [_evaluate(argument, lanes, kinds, lane, real) for argument, lane in zip(expr.args, wanted, strict=True)]
    if real == np.float32 or (kind_of(expr, kinds) or kind) == "i":
        return np.asarray(FUNCTIONS[expr.fn].numpy(*values))
    values = [value.astype(real) if lane == "f" else value for value, lane in zip(values, wanted, strict=True)]
    return np.asarray(FUNCTIONS[expr.fn].numpy(*values)).astype(np.float32)


def to_c(expr: Expr, names: Sequence[str], kinds: Sequence[str], kind: str = "", least: int | None = None) -> str:
    """Prints the expression in C over `mgc_i` and `mgc_v`. least: below this, the exact value does not matter."""
    return _text(_limited(_cancelled(expr, kinds), kinds, least), names, kinds, kind).text


def to_int32x4(expr: Expr, names: Sequence[str], kinds: Sequence[str], least: int | None) -> str:
    """Prints an expression of integers in C over `mgc_four` (simd/helium_integer.h); least: as `to_c` has it."""
    return _four(_limited(_cancelled(expr, kinds), kinds, least), names).text


def _four(expr: Expr, names: Sequence[str]) -> Text:
    if isinstance(expr, Arg):
        return Text(names[expr.index])
    if isinstance(expr, Const):
        return Text(f"mgc_four_dup({_c_int(int(expr.value))})")
    first, *others = expr.args
    if expr.fn in ("min", "max") or not all(isinstance(other, Const) for other in others):
        return called(f"mgc_four_{expr.fn}", *(_four(argument, names) for argument in expr.args))
    constants = (Text(_c_int(int(other.value))) for other in others if isinstance(other, Const))
    return called(f"mgc_four_{expr.fn}_by", _four(first, names), *constants)


def least(dtype: str) -> int | None:
    """Returns the least number of an element type of 8 or 16 bits, to which results are saturated."""
    return int(np.iinfo(dtype).min) if dtype in KINDS and dtype not in ("int32", "float32") else None


def _limited(expr: Expr, kinds: Sequence[str], least: int | None) -> Expr:
    """Returns an expression with the same values above `least`, and values of at most `least` elsewhere. Results that a
    Relu clips at a zero point need no exact rounding of negative numbers."""
    if not isinstance(expr, Call):
        return expr
    first, others = expr.args[0], tuple(_limited(argument, kinds, None) for argument in expr.args[1:])
    if expr.fn in _POSITIVE and least is not None and least >= 0:
        return Call(_POSITIVE[expr.fn], (_limited(first, kinds, None), *others))
    inner = None
    if kind_of(expr, kinds) == "i" and others and isinstance(others[0], Const):
        inner = _reached(expr.fn, int(others[0].value), least)
    return Call(expr.fn, (_limited(first, kinds, inner), *others))


def _reached(fn: str, constant: int, least: int | None) -> int | None:
    """Returns the number below which the first operand's exact value does not matter, if the result's does not matter
    below `least`; None if there is none. Requantized numbers were shifted right, so they are far from overflow here."""
    if fn == "max":
        return constant if least is None else max(least, constant)
    if least is None or abs(constant) >= 2**16:
        return None
    return {"min": least, "add": least - constant, "sub": least + constant}.get(fn)


def functions(expr: Expr) -> set[str]:
    """Returns the names of the functions that an expression calls."""
    return {expr.fn}.union(*map(functions, expr.args)) if isinstance(expr, Call) else set()


def _cancelled(expr: Expr, kinds: Sequence[str]) -> Expr:
    """Cancels zero points that are added and subtracted again, which is exact, since integers wrap."""
    if not isinstance(expr, Call):
        return expr
    expr = Call(expr.fn, tuple(_cancelled(argument, kinds) for argument in expr.args))
    if expr.fn == "sub" and kind_of(expr, kinds) == "i":
        sum_, zero = expr.args
        if isinstance(zero, Const) and isinstance(sum_, Call) and sum_.fn == "add" and sum_.args[1] == zero:
            return sum_.args[0]
    return expr


#: The limits of 8-bit dtypes.
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


#: The right shifts that 8-bit stores can apply to the upper halves of int32 (mgc_requantize_store4 in
#: simd/neon_integer.h).
CLOSED_DOWN = range(3, 7)


class Closed(NamedTuple):
    """An integer expression that ends in `max(min(inner, …), …) + zero`, which 8-bit stores can do themselves. low,
    high: its limits with the zero point added, within those of the dtype. down: if not 0, inner is still to be shifted
    right by 16 bits more than this."""

    inner: Expr
    down: int
    zero: int
    low: int
    high: int

    @property
    def least(self) -> int | None:
        """The number below which the exact value of `inner` does not matter."""
        return None if self.down else self.low - self.zero


def closed(expr: Expr, kinds: Sequence[str], dtype: str) -> Closed | None:
    """Returns an expression in this form; None if it does not end so, or `dtype` is not 8-bit. A missing limit is the
    dtype's."""
    zero = 0
    if isinstance(expr, Call) and expr.fn == "add" and isinstance(expr.args[1], Const):
        zero, expr = int(expr.args[1].value), expr.args[0]
    least, most = LIMITS.get(dtype, (0, -1))
    limits = {"min": most, "max": least}
    missing = {"min": 1, "max": -1}
    for name in ("min", "max"):
        if isinstance(expr, Call) and expr.fn == name and isinstance(expr.args[1], Const):
            limits[name] = int(expr.args[1].value) + zero
            del missing[name]
            expr = expr.args[0]
    if kind_of(expr, kinds) != "i" or not least <= limits["max"] <= limits["min"] <= most or abs(zero) > 255:
        return None
    # Without a limit, adding the zero point may have overflowed.
    is_far = not (isinstance(expr, Call) and expr.fn in ("nearest_within", "shift_down"))
    if is_far and any(zero * sign > 0 for sign in missing.values()):
        return None
    down = 0
    if isinstance(expr, Call) and expr.fn == "shift_down" and isinstance(expr.args[1], Const) \
            and expr.args[1].value - 16 in CLOSED_DOWN:
        down = int(expr.args[1].value) - 16
        expr = expr.args[0]
    return Closed(expr, down, zero, limits["max"], limits["min"])


def _text(expr: Expr, names: Sequence[str], kinds: Sequence[str], kind: str) -> Text:
    kind = kind_of(expr, kinds) or kind or "f"
    if isinstance(expr, Arg):
        return Text(names[expr.index])
    if isinstance(expr, Const):
        return Text(f"mgc_iset1({_c_int(int(expr.value))})" if kind == "i" else f"mgc_set1({c_float(expr.value)})")
    if kind == "f":
        expr = vector_call(expr)
    function = FUNCTIONS[expr.fn]
    strings = [_text(argument, names, kinds, wanted)
             for argument, wanted in zip(expr.args, _wanted(expr, kinds, kind), strict=True)]
    if kind == "f" and function.infix:
        return infix(strings[0], function.infix, strings[1])
    if kind == "i" and not function.takes:
        return called(_INTEGER[expr.fn], *strings)
    return called("mgc_to_float" if expr.fn == "real" else f"mgc_{expr.fn}", *strings)


def _wanted(expr: Call, kinds: Sequence[str], kind: str) -> str:
    """Returns the kind of each argument of a call whose result is of `kind`."""
    return FUNCTIONS[expr.fn].takes or (kind_of(expr, kinds) or kind) * len(expr.args)


def _is_int32(value: float) -> bool:
    return value == int(value) and -2**31 <= value < 2**31


def _c_int(value: int) -> str:
    return "INT32_MIN" if value == -2**31 else str(value)


def _name(kind: str) -> str:
    return {"i": "integers", "f": "floats"}[kind]
