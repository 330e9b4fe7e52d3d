# SPDX-License-Identifier: Apache-2.0
"""Computes the intervals of expressions over integers and floats (ir/lanes.py), and simplifies expressions by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Union

from . import lanes
from .expr import Arg, Call, Const, Expr, call

#: The least and the greatest value; None if they are not known, or the value may be NaN.
Interval = Union[tuple[float, float], None]
INT32 = (-2.0**31, 2.0**31 - 1)
#: The limits of dtypes to which stores saturate.
SATURATED = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-2**15, 2**15 - 1), "uint16": (0, 2**16 - 1)}
#: An upper bound of the relative rounding error of a float32 operation, by which bounds are widened.
_ROUNDED = 2.0**-20


def interval(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str]) -> Interval:
    """Returns the interval of an expression. kinds: kinds of the operands' lanes."""
    if isinstance(expr, Const):
        return expr.value, expr.value
    if isinstance(expr, Arg):
        return operands[expr.index]
    if expr.fn == "nearest_within":
        return interval(expr.args[0], operands, kinds)
    known = [interval(argument, operands, kinds) for argument in expr.args]
    whole = lanes.kind_of(expr, kinds) == "i"
    found = _of_call(expr.fn, [bounds for bounds in known if bounds]) if None not in known else None
    if found and not all(map(math.isfinite, found)):
        found = None
    if not whole:
        return found and (found[0] - abs(found[0]) * _ROUNDED, found[1] + abs(found[1]) * _ROUNDED)
    return found if found and INT32[0] <= found[0] and found[1] <= INT32[1] else INT32


def _of_call(fn: str, known: Sequence[tuple[float, float]]) -> Interval:
    a = known[0]
    b = known[1] if len(known) == 2 else a
    if fn == "add":
        return a[0] + b[0], a[1] + b[1]
    if fn == "sub":
        return a[0] - b[1], a[1] - b[0]
    if fn in ("mul", "div"):
        if fn == "div" and b[0] <= 0 <= b[1]:
            return None
        ends = [x * y if fn == "mul" else x / y for x in a for y in b]
        return min(ends), max(ends)
    if fn == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if fn == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if fn == "real":
        return a
    if fn == "shift_down":
        return math.floor(a[0] / 2**b[1]), math.ceil(a[1] / 2**b[0])
    if fn == "nearest":
        return max(a[0] - 1, INT32[0]), min(a[1] + 1, INT32[1])
    return None


def simplified(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str], dtype: str = "") -> Expr:
    """Rewrites an expression to fewer instructions with the same values. dtype: the integer type that results are
    saturated to, "" if they are not."""
    found = _simplified(expr, operands, kinds)
    return _unlimited(found, operands, kinds, *SATURATED[dtype]) if dtype in SATURATED else found


def _simplified(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str]) -> Expr:
    if not isinstance(expr, Call):
        return expr
    expr = Call(expr.fn, tuple(_simplified(argument, operands, kinds) for argument in expr.args))
    first, second = expr.args[0], expr.args[1] if len(expr.args) == 2 else None
    if expr.fn == "nearest" and _lies_within(interval(first, operands, kinds), INT32[0] + 2**10, INT32[1] - 2**10):
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
    if expr.fn == "add" or (expr.fn == "sub" and second.value > INT32[0]):
        return _added(first, second.value if expr.fn == "add" else -second.value)
    return expr


def _added(expr: Expr, value: float) -> Expr:
    """Adds a constant to an int32. Sums wrap, so two constants can be added first."""
    if isinstance(expr, Call) and expr.fn == "add" and isinstance(expr.args[1], Const) \
            and abs(expr.args[1].value + value) < 2**31:
        value += expr.args[1].value
        expr = expr.args[0]
    return expr + value if value else expr


def _unlimited(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str], low: int, high: int,
               added: float = 0.0) -> Expr:
    """Removes clips to the limits of the dtype, which the saturation of stores does."""
    if isinstance(expr, Call) and len(expr.args) == 2 and isinstance(expr.args[1], Const) \
            and lanes.kind_of(expr, kinds) == "i":
        inner, value = expr.args[0], expr.args[1].value
        if expr.fn == "add" and not added:
            return _added(_unlimited(inner, operands, kinds, low, high, value), value)
        bounds = interval(inner, operands, kinds)
        idle = value + added >= high if expr.fn == "min" else expr.fn == "max" and value + added <= low
        if idle and _lies_within(bounds, INT32[0] + abs(added), INT32[1] - abs(added)):
            return _unlimited(inner, operands, kinds, low, high, added)
        if expr.fn in ("min", "max"):
            # The inner of two limits: below it what is left is no wider than before.
            return Call(expr.fn, (_unlimited(inner, operands, kinds, low, high, added), expr.args[1]))
    return expr


def _lies_within(bounds: Interval, low: float, high: float) -> bool:
    return bounds is not None and low <= bounds[0] and bounds[1] <= high
