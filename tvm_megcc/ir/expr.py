# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions as expressions. An expression is evaluated in numpy, and printed in C for vectors of floats and
for doubles.

It is built with Python's operators and the functions below from `X` (the first operand) and `arg(i)`:

    hard_swish = X * clip(X + 3, 0, 6) / 6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from .c_text import ATOM, CHOICE, OR, UNARY, Text, called, infix


class _Operators:
    """Python's arithmetic operators, which build expressions."""

    def __add__(self, other: Operand) -> Call: return call("add", self, other)
    def __radd__(self, other: Operand) -> Call: return call("add", other, self)
    def __sub__(self, other: Operand) -> Call: return call("sub", self, other)
    def __rsub__(self, other: Operand) -> Call: return call("sub", other, self)
    def __mul__(self, other: Operand) -> Call: return call("mul", self, other)
    def __rmul__(self, other: Operand) -> Call: return call("mul", other, self)
    def __truediv__(self, other: Operand) -> Call: return call("div", self, other)
    def __rtruediv__(self, other: Operand) -> Call: return call("div", other, self)
    def __neg__(self) -> Call: return call("neg", self)


@dataclass(frozen=True)
class Arg(_Operators):
    """Operand `index` of the operator; in text "x" for 0, "e1" and so on for the others."""

    index: int

    def __str__(self) -> str:
        return "x" if self.index == 0 else f"e{self.index}"


@dataclass(frozen=True)
class Const(_Operators):
    """A constant."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class Call(_Operators):
    """A call of the function `fn`, a key of `FUNCTIONS`."""

    fn: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        sign = FUNCTIONS[self.fn].infix

        def argument_text(argument: Expr) -> str:
            is_infix = isinstance(argument, Call) and FUNCTIONS[argument.fn].infix != ""
            return f"({argument})" if sign and is_infix else str(argument)

        strings = [argument_text(argument) for argument in self.args]
        if sign:
            return f"{strings[0]} {sign} {strings[1]}"
        return f"{self.fn}({', '.join(strings)})"


Expr = Union[Arg, Const, Call]
Operand = Union[_Operators, float]
X = Arg(0)
#: The largest number of calls of an expression that passes create. A value that is used twice is duplicated, so without
#: a limit n additions could give 2^n calls. C99 only guarantees 63 nested parentheses.
MAX_EXPRESSION_CALLS = 60


def arg(index: int) -> Arg:
    """Returns operand `index`."""
    return Arg(index)


def call(fn: str, *args: Operand) -> Call:
    """Returns a call; numbers among the arguments become constants. Raises KeyError for an unknown function."""
    if fn not in FUNCTIONS:
        raise KeyError(f"no elementwise function '{fn}'")
    return Call(fn, tuple(map(_expr, args)))


def _expr(operand: Operand) -> Expr:
    """Returns an expression unchanged, and a number as a constant."""
    if isinstance(operand, (Arg, Const, Call)):
        return operand
    assert not isinstance(operand, _Operators)
    return Const(float(operand))


@dataclass(frozen=True)
class Function:
    """An elementwise function.

    numpy: its implementation, on arrays.
    infix: its operator in C; "" if it is the C function mgc_<name>.
    cost: the number of vector instructions, for the cost model.
    takes, gives: the kinds of lanes (ir/lanes.py) of the arguments and of the result, a letter each, for functions
        between integers and floats; "" if all are of the same kind.
    """

    numpy: Callable[..., Any]  # of as many arrays as the function has operands
    infix: str = ""
    cost: float = 1.0
    takes: str = ""
    gives: str = ""


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        result: np.ndarray = 1 / (1 + np.exp(-x))
    return result.astype(x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.vectorize(math.erf, otypes=[x.dtype])(x))


def _rescale_fixed(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns x * multiplier * 2^(shift - 31) as TFLite's `MultiplyByQuantizedMultiplier` rounds it: the doubled high
    half of the product, ties up, then a division by a power of two, ties away from zero. The arrays are int32; the
    multiplier is not negative; shifts are clipped to [-31, 30]."""
    shift = np.clip(shift, -31, 30).astype(np.int64)  # before numpy 2 the dtype of the sums would be used
    wide = (x << np.maximum(shift, 0)).astype(np.int32).astype(np.int64)
    high = (wide * multiplier + (1 << 30)) >> 31
    right = np.maximum(-shift, 0)
    mask = (np.int64(1) << right) - 1
    result: np.ndarray = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    return result.astype(np.int32)


def _rescale_positive(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns max(`_rescale_fixed`, 0). The C function may return any number <= 0 instead of 0, since its users raise
    negative results to a bound >= 0 afterwards."""
    result: np.ndarray = np.maximum(_rescale_fixed(x, multiplier, shift), 0)
    return result


def _rescale_once(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns x * multiplier * 2^(shift - 31), rounded once to the nearest int32, ties up. The arrays are int32; the
    multiplier is not negative; shifts are clipped to [-31, 30]."""
    right_shift = 31 - np.clip(shift, -31, 30).astype(np.int64)
    result: np.ndarray = (x.astype(np.int64) * multiplier + (np.int64(1) << (right_shift - 1))) >> right_shift
    return result.astype(np.int32)


def _shift_down(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns x / 2^shift, rounded to the nearest int32, ties up."""
    result: np.ndarray = (x.astype(np.int64) + (np.int64(1) << (shift.astype(np.int64) - 1))) >> shift
    return result.astype(np.int32)


def _if_less(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns x where a < b, else y."""
    return np.where(a < b, x, y).astype(x.dtype)


def _nearest(x: np.ndarray) -> np.ndarray:
    """Rounds to the nearest int32, ties to even; NaN becomes 0."""
    limits = np.iinfo(np.int32)
    result: np.ndarray = np.clip(np.rint(np.nan_to_num(x.astype(np.float64), nan=0.0)), limits.min, limits.max)
    return result.astype(np.int32)


def _nearest_away(x: np.ndarray) -> np.ndarray:
    """Rounds to the nearest int32, ties away from zero, by adding the largest float32 below 1/2 to the magnitude and
    truncating: 0.5 becomes 1, the float32 below it 0."""
    result: np.ndarray = np.trunc(x + np.copysign(np.float32(0.49999997), x)).astype(np.int32)
    return result


#: An offset that is added by a fused multiply-add so that float32 rounds the product to an integer: between 2^23 and
#: 2^24, float32 numbers are integers.
FUSED_ZERO = 1.5 * 2**23


def _nearest_fused(x: np.ndarray, factor: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """Returns real(x) * factor + addend - FUSED_ZERO, rounded to the nearest integer, ties to even. Only the sum is
    rounded, not the product.

    x: int32. factor: float32. addend: float32, FUSED_ZERO plus an integer. The result's magnitude is less than 2^22.
    """
    product = x.astype(np.float32).astype(np.float64) * factor
    floor = np.floor(product)
    fraction, rounded_down = product - floor, floor + (addend.astype(np.float64) - FUSED_ZERO)
    result: np.ndarray = rounded_down + ((fraction > 0.5) | ((fraction == 0.5) & (rounded_down % 2 == 1)))
    return result.astype(np.int32)


def _nearest_odd(x: np.ndarray, offset: np.ndarray, factor: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """Returns sign(x) * _nearest_fused(|x| + offset, factor, addend), an odd function of x, as requantization with ties
    away from zero is. offset: int32."""
    result: np.ndarray = np.sign(x) * _nearest_fused(np.abs(x) + offset, factor, addend)
    return result.astype(np.int32)


#: The elementwise functions by name.
FUNCTIONS = {
    "add": Function(np.add, "+"), "sub": Function(np.subtract, "-"),
    "mul": Function(np.multiply, "*"), "div": Function(np.divide, "/", 8),
    # x / divisor, where 1 / divisor is the sum of two float32, `high` and `low` (reciprocals.py).
    "quotient": Function(lambda x, divisor, high, low: x / divisor, cost=2),
    "neg": Function(np.negative), "abs": Function(np.abs),
    "min": Function(np.minimum), "max": Function(np.maximum),
    # min and max of two computed operands in C, which propagate a NaN of either. Only `vector_call` makes them: the
    # functions minimum() and maximum() below make "min" and "max".
    "minimum": Function(np.minimum, cost=3), "maximum": Function(np.maximum, cost=3),
    "sqrt": Function(np.sqrt, cost=12), "exp": Function(np.exp, cost=14), "log": Function(np.log, cost=16),
    "tanh": Function(np.tanh, cost=18), "sigmoid": Function(_sigmoid, cost=20), "erf": Function(_erf, cost=20),
    "floor": Function(np.floor), "ceil": Function(np.ceil), "round": Function(np.rint),
    "pow": Function(np.power, cost=40),
    "sin": Function(np.sin, cost=400), "cos": Function(np.cos, cost=400), "tan": Function(np.tan, cost=400),
    "asin": Function(np.arcsin, cost=400), "acos": Function(np.arccos, cost=400), "atan": Function(np.arctan, cost=300),
    "sinh": Function(np.sinh, cost=400), "cosh": Function(np.cosh, cost=400), "asinh": Function(np.arcsinh, cost=400),
    "acosh": Function(np.arccosh, cost=400), "atanh": Function(np.arctanh, cost=400),
    "if_lt": Function(_if_less, cost=2),
    "rescale_fixed": Function(_rescale_fixed, cost=12, takes="iii", gives="i"),
    "rescale_positive": Function(_rescale_positive, cost=9, takes="iii", gives="i"),
    # rescale_fixed for negative shifts.
    "rescale_down": Function(_rescale_fixed, cost=10, takes="iii", gives="i"),
    "rescale_down_positive": Function(_rescale_positive, cost=8, takes="iii", gives="i"),
    "rescale_once": Function(_rescale_once, cost=12, takes="iii", gives="i"),
    "shift_down": Function(_shift_down, takes="ii", gives="i"),
    "real": Function(lambda x: x.astype(np.float32), takes="i", gives="f"),
    "nearest": Function(_nearest, cost=2, takes="f", gives="i"),
    # nearest, for operands that are within int32 and not NaN.
    "nearest_within": Function(_nearest, takes="f", gives="i"),
    # For operands that are within int32 and not NaN.
    "nearest_away": Function(_nearest_away, cost=3, takes="f", gives="i"),
    # nearest_within(real(x) * f).
    "nearest_product": Function(lambda x, f: _nearest(x.astype(np.float32) * f), cost=3, takes="if", gives="i"),
    "nearest_fused": Function(_nearest_fused, cost=3, takes="iff", gives="i"),
    "nearest_odd": Function(_nearest_odd, cost=6, takes="iiff", gives="i"),
}


def minimum(a: Operand, b: Operand) -> Call:
    return call("min", a, b)


def maximum(a: Operand, b: Operand) -> Call:
    return call("max", a, b)


def clip(x: Operand, lo: Operand, hi: Operand) -> Call:
    return minimum(maximum(x, lo), hi)


def evaluate(expr: Expr, args: Sequence[np.ndarray]) -> np.ndarray:
    """Evaluates the expression over numpy arrays, which broadcast as in ONNX."""
    if isinstance(expr, Arg):
        return args[expr.index]
    if isinstance(expr, Const):
        return np.asarray(expr.value, args[0].dtype)
    result: np.ndarray = FUNCTIONS[expr.fn].numpy(*(evaluate(a, args) for a in expr.args))
    return result


def substitute(expr: Expr, args: Sequence[Expr]) -> Expr:
    """Returns the expression with args[i] in place of operand i."""
    if isinstance(expr, Arg):
        return args[expr.index]
    if isinstance(expr, Const):
        return expr
    return Call(expr.fn, tuple(substitute(a, args) for a in expr.args))


def cost(expr: Expr) -> float:
    """Estimates the vector instructions of one evaluation."""
    if isinstance(expr, Call):
        return FUNCTIONS[expr.fn].cost + sum(map(cost, expr.args))
    return 0.0


def size(expr: Expr) -> int:
    """Counts the calls in the expression. A call that occurs twice counts twice, because every traversal meets it
    twice."""
    return 1 + sum(map(size, expr.args)) if isinstance(expr, Call) else 0


def functions_of(expr: Expr) -> set[str]:
    """Returns the names of the functions that an expression calls."""
    if isinstance(expr, Call):
        return {expr.fn}.union(*map(functions_of, expr.args))
    return set()


def vector_call(expr: Call) -> Call:
    """Returns a call whose C propagates NaN. `mgc_min` and `mgc_max` propagate a NaN of their first operand only, so a
    constant becomes the second operand; for two computed operands the call is "minimum" or "maximum"."""
    if expr.fn not in ("min", "max"):
        return expr
    first, second = expr.args
    if _is_number(second):
        return expr
    if _is_number(first):
        return Call(expr.fn, (second, first))
    return Call({"min": "minimum", "max": "maximum"}[expr.fn], expr.args)


def _is_number(expr: Expr) -> bool:
    """Returns whether the expression is a constant other than NaN."""
    return isinstance(expr, Const) and expr.value == expr.value


def to_c(expr: Expr, names: Sequence[str]) -> str:
    """Prints the expression in C over the vector type `mgc_v`; mgc_set1() broadcasts scalars."""
    return _vectors(expr, names).text


def _vectors(expr: Expr, names: Sequence[str]) -> Text:
    """Returns the expression in C over `mgc_v`, with its precedence. names: the C names of the operands."""
    if isinstance(expr, Arg):
        return Text(names[expr.index])
    if isinstance(expr, Const):
        return called("mgc_set1", Text(c_float(expr.value)))
    expr = vector_call(expr)
    strings = [_vectors(a, names) for a in expr.args]
    sign = FUNCTIONS[expr.fn].infix
    return infix(strings[0], sign, strings[1]) if sign else called(f"mgc_{expr.fn}", *strings)


def to_c_double(expr: Expr, names: Sequence[str]) -> str:
    """Prints the expression in C over doubles, with the functions of megcc_double.h."""
    return _doubles(expr, names).text


def _doubles(expr: Expr, names: Sequence[str]) -> Text:
    """Returns the expression in C over doubles, with its precedence. names: the C names of the operands."""
    if isinstance(expr, Arg):
        return Text(names[expr.index])
    if isinstance(expr, Const):
        return c_double(expr.value)
    strings = [_doubles(a, names) for a in expr.args]
    sign = FUNCTIONS[expr.fn].infix
    if sign:
        return infix(strings[0], sign, strings[1])
    if expr.fn == "neg":
        return Text(f"-{strings[0].at(ATOM)}", UNARY)
    if expr.fn == "if_lt":
        condition = infix(strings[0], "<", strings[1]).text
        return Text(f"{condition} ? {strings[2].at(OR)} : {strings[3].at(OR)}", CHOICE)
    return called(f"mgd_{expr.fn}", *strings)


def c_double(value: float) -> Text:
    """Returns a float64 as a C literal that reads back exactly."""
    if value != value:
        return Text("MGD_NAN")
    if value in (float("inf"), float("-inf")):
        return Text("MGD_INF") if value > 0 else Text("-MGD_INF", UNARY)
    text = repr(float(value))
    return Text(text, UNARY if text.startswith("-") else ATOM)


def c_float(value: float) -> str:
    """Returns a float32 as a C literal that reads back exactly."""
    value = float(np.float32(value))
    if value != value:
        return "MGC_NAN"
    if value in (float("inf"), float("-inf")):
        return "MGC_INF" if value > 0 else "-MGC_INF"
    is_short_integer = value == int(value) and abs(value) < 1e7
    # 9 significant digits distinguish all float32 numbers.
    text = repr(value) if is_short_integer else f"{value:.9g}"
    return (text if any(c in text for c in ".e") else text + ".0") + "f"
