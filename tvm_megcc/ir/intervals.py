# SPDX-License-Identifier: Apache-2.0
"""Interval arithmetic for expressions over int32 and float32 lanes (ir/lanes.py), and simplifications that follow from
the intervals. Quantisation passes use both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Union

from . import lanes
from .expr import Arg, Call, Const, Expr, call

#: The least and the greatest value; None if they are unknown or the value may be NaN.
Interval = Union[tuple[float, float], None]
#: The values of an int32 lane.
INT32 = (-2.0**31, 2.0**31 - 1)
#: The dtypes that stores saturate to -> their limits.
SATURATED = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-2**15, 2**15 - 1), "uint16": (0, 2**16 - 1)}
#: An upper bound of the relative rounding error of a float32 operation; intervals are widened by it.
_ROUNDED = 2.0**-20
#: float32 numbers in this interval are int32 after rounding. The margin is several steps of float32 at 2^31, which are
#: 2^8 above and 2^7 below.
_SAFELY_INT32 = (INT32[0] + 2**10, INT32[1] - 2**10)


def interval(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str]) -> Interval:
    """Returns the interval of an expression.

    Args:
        operands: the interval of each operand.
        kinds: the kind of each operand's lanes, "i" (int32) or "f" (float32).
    """
    if isinstance(expr, Const):
        return expr.value, expr.value
    if isinstance(expr, Arg):
        return operands[expr.index]
    if expr.fn == "nearest_within":
        unrounded = interval(expr.args[0], operands, kinds)
        return unrounded and (math.floor(unrounded[0]), math.ceil(unrounded[1]))
    arguments = [interval(argument, operands, kinds) for argument in expr.args]
    is_integer = lanes.kind_of(expr, kinds) == "i"
    known = [argument for argument in arguments if argument]
    bounds = _call_interval(expr.fn, known) if len(known) == len(arguments) else None
    if bounds and not all(map(math.isfinite, bounds)):
        bounds = None
    if is_integer:
        return bounds if bounds and INT32[0] <= bounds[0] and bounds[1] <= INT32[1] else INT32
    return bounds and (bounds[0] - abs(bounds[0]) * _ROUNDED, bounds[1] + abs(bounds[1]) * _ROUNDED)


def _call_interval(fn: str, arguments: Sequence[tuple[float, float]]) -> Interval:
    """Returns the interval of a function of arguments with these intervals, without rounding and overflow."""
    a = arguments[0]
    b = arguments[1] if len(arguments) == 2 else a
    if fn == "add":
        return a[0] + b[0], a[1] + b[1]
    if fn == "sub":
        return a[0] - b[1], a[1] - b[0]
    if fn in ("mul", "div"):
        if fn == "div" and b[0] <= 0 <= b[1]:
            return None
        corners = [x * y if fn == "mul" else x / y for x in a for y in b]
        return min(corners), max(corners)
    if fn == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if fn == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if fn == "real":
        return a
    if fn == "shift_down":
        if not 1 <= b[0] <= b[1] <= 31:
            return None
        corners = [number / 2**shift for number in a for shift in b]
        return math.floor(min(corners)), math.ceil(max(corners))
    if fn in ("nearest", "nearest_away"):
        return max(a[0] - 1, INT32[0]), min(a[1] + 1, INT32[1])
    return None


def simplify(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str], dtype: str = "") -> Expr:
    """Returns an expression of fewer instructions with the same values for operands within their intervals.

    Args:
        operands, kinds: as `interval` takes them.
        dtype: the integer type that a store saturates results to; "" if it does not.
    """
    found = _simplify(expr, operands, kinds)
    return _without_clips(found, operands, kinds, *SATURATED[dtype]) if dtype in SATURATED else found


def _simplify(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str]) -> Expr:
    """Returns the result of `simplify` for an expression whose result is not saturated."""
    if not isinstance(expr, Call):
        return expr
    expr = Call(expr.fn, tuple(_simplify(argument, operands, kinds) for argument in expr.args))
    first, second = expr.args[0], expr.args[1] if len(expr.args) == 2 else None
    if expr.fn == "nearest" and _lies_within(interval(first, operands, kinds), *_SAFELY_INT32):
        return call("nearest_within", first)
    if expr.fn == "rescale_fixed" and _lies_within(interval(expr.args[2], operands, kinds), INT32[0], -1):
        return Call("rescale_down", expr.args)
    if not isinstance(second, Const) or lanes.kind_of(expr, kinds) != "i":
        return expr
    bounds = interval(first, operands, kinds)
    if expr.fn == "min" and bounds and bounds[1] <= second.value:
        return first
    if expr.fn == "max" and bounds and bounds[0] >= second.value:
        return first
    if expr.fn == "add" or (expr.fn == "sub" and second.value > INT32[0]):  # no int32 is 2^31, its negative
        return _add_constant(first, second.value if expr.fn == "add" else -second.value)
    return expr


def _add_constant(expr: Expr, value: float) -> Expr:
    """Returns the sum of an int32 expression and a constant. If the expression adds a constant already, the two are
    added first, which is exact because int32 sums wrap."""
    if isinstance(expr, Call) and expr.fn == "add" and isinstance(expr.args[1], Const) \
            and abs(expr.args[1].value + value) < 2**31:
        value += expr.args[1].value
        expr = expr.args[0]
    return expr + value if value else expr


def _without_clips(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str], lower: int, upper: int,
                   added: float = 0.0) -> Expr:
    """Returns the expression without clips to [lower, upper], to which the store saturates anyway. added: the constant
    that is added to the expression before the store."""
    if isinstance(expr, Call) and len(expr.args) == 2 and isinstance(expr.args[1], Const) \
            and lanes.kind_of(expr, kinds) == "i":
        inner, value = expr.args[0], expr.args[1].value
        if expr.fn == "add" and not added:
            return _add_constant(_without_clips(inner, operands, kinds, lower, upper, value), value)
        bounds = interval(inner, operands, kinds)
        if expr.fn == "min":
            is_beyond_store = value + added >= upper
        else:
            is_beyond_store = expr.fn == "max" and value + added <= lower
        # The store sees the sum with `added`, so that sum must not wrap either.
        if is_beyond_store and _lies_within(bounds, INT32[0] + abs(added), INT32[1] - abs(added)):
            return _without_clips(inner, operands, kinds, lower, upper, added)
        if expr.fn in ("min", "max"):
            # The expression ends in min(max(…)) or max(min(…)): the inner clip may be removed too.
            return Call(expr.fn, (_without_clips(inner, operands, kinds, lower, upper, added), expr.args[1]))
    return expr


def _lies_within(bounds: Interval, lower: float, upper: float) -> bool:
    """Returns whether an interval is known and a part of [lower, upper]."""
    return bounds is not None and lower <= bounds[0] and bounds[1] <= upper
