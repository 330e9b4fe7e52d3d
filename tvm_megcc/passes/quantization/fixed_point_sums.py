# SPDX-License-Identifier: Apache-2.0
"""Rewrites quantised sums of two 8-bit integers to fewer instructions. Each rewrite is verified for all pairs of
integers, so results have the same bits. TFLite's fixed-point sums become float sums, which saves three 64-bit products
for each element. ONNX's float sums lose their division, or become integer products.

Functions of expressions here (`ir/expr.py` defines all): `real` converts an integer to float32, `nearest_within` rounds
a float to int32 (ties to even), `rescale_fixed` is TFLite's fixed-point product, `shift_down` shifts an int32 right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ...context import Context
from ...ir import lanes
from ...ir.expr import Arg, Call, Const, Expr, arg, call, clip, maximum, minimum, substitute
from ...ir.graph import Attrs, Graph
from ...ir.intervals import INT32, Interval, interval
from ...ops.quantized.lookup_table import INT8_TYPES, all_values
from ..edit import Editor

#: The relative changes to the exact factors that are tried. `_TIE_CHANGES` make factors slightly larger, so that ties
#: are rounded away from zero.
_FACTOR_CHANGES = tuple(2.0**-23 * steps for steps in (0, 1, -1, 2, -2, 4, -4))
_TIE_CHANGES = (0.0, *(2.0**power for power in (-21, -20, -19, -18, -17)))
#: Pairs whose sum is at most this far from a tie are checked first.
_TIE_DISTANCE = 2.0**-7
#: The largest range (greatest minus least) of an operand for which all pairs are checked: at most 2^18 pairs.
_MAX_RANGE = 511
#: The largest magnitude of a factor: the sum of two products with 9-bit integers then fits in int32.
_MAX_FACTOR = 2**20


class _Term(NamedTuple):
    """A term factor * (operand - zero)."""

    factor: float
    zero: int


def sum_in_float32(graph: Graph, context: Context) -> Graph:
    """Rewrites sums in elementwise operators to float32, except on CPUs without vectors, which may lack an FPU, and on
    Helium, which has instructions for fixed-point multiplication."""
    edit = Editor(graph)
    for op in graph.ops if context.isa.lanes > 1 and not context.isa.helium else ():
        if op.kind != "elementwise" or "dtype" not in op.attrs or len(op.inputs) != 2:
            continue
        dtypes = *(graph.types[name].dtype for name in op.inputs), op.attrs.dtype
        found = as_float32(op.attrs.expr, *dtypes) if {*dtypes} <= {*INT8_TYPES} else None
        if found is not None:
            edit.replace(op, op.with_(attrs=Attrs(op.attrs, expr=found)))
    return edit.finish()


@lru_cache(maxsize=256)
def as_float32(expr: Expr, a: str, b: str, dtype: str) -> Expr | None:
    """Returns an equal expression that is computed in float32, for operands of dtypes `a` and `b` and a result of
    `dtype`; None if none is found."""
    core, limits = expr, []
    while isinstance(core, Call) and core.fn in ("min", "max") and isinstance(core.args[1], Const):
        limits.append((core.fn, core.args[1]))
        core = core.args[0]
    zero = 0.0
    if isinstance(core, Call) and core.fn == "add" and isinstance(core.args[1], Const):
        core, zero = core.args[0], core.args[1].value
    terms = _terms(core) if isinstance(core, Call) and core.fn == "rescale_fixed" else None
    if terms is None or set(terms) != {0, 1} or any(abs(term.factor) > _MAX_FACTOR for term in terms.values()):
        return None
    columns, rows = (grid.ravel() for grid in np.meshgrid(all_values(b), all_values(a)))
    sums = sum(term.factor * (grid.astype(np.float64) - term.zero)
               for grid, term in ((rows, terms[0]), (columns, terms[1])))

    def candidates() -> Iterator[Expr]:
        for factors in _factors(terms):
            found = _Sum(*factors).of([arg(index) - terms[index].zero for index in range(2)]) + zero
            for fn, limit in reversed(limits):
                found = (minimum if fn == "min" else maximum)(found, limit)
            yield found

    return _first_equal(candidates(), expr, (rows, columns), sums, dtype)


def _first_equal(candidates: Iterable[Expr], expected: Expr, pairs: tuple[np.ndarray, np.ndarray], sums: np.ndarray,
                 dtype: str) -> Expr | None:
    """Returns the first candidate that equals an expression for all pairs of operands; None if there is none.

    Candidates are compared on pairs close to a tie first. One that equals there, but not elsewhere, ends the search:
    others would fail too.

    Args:
        expected: the expression.
        pairs: the two operands, each an array with an element for each pair.
        sums: the exact results, without rounding.
    """
    results = lanes.evaluate(expected, pairs, dtype)
    close = np.abs(sums - np.floor(sums) - 0.5) < _TIE_DISTANCE
    close_pairs = [operand[close] for operand in pairs]
    for candidate in candidates:
        if np.array_equal(lanes.evaluate(candidate, close_pairs, dtype), results[close]):
            return candidate if np.array_equal(lanes.evaluate(candidate, pairs, dtype), results) else None
    return None


class _Sum(NamedTuple):
    """The function round((first * a + second * b) / number) if `fn` is "div", round((…) * number) if it is "mul", and
    round(…) if it is ""."""

    first: float
    second: float
    fn: str = ""
    number: float = 1.0

    def of(self, integers: Sequence[Expr]) -> Call:
        """Returns the function of two integer expressions."""
        total = call("real", integers[0]) * self.first + call("real", integers[1]) * self.second
        return call("nearest_within", call(self.fn, total, self.number) if self.fn else total)

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of a and b, including `number`."""
        number_factor = 1 / self.number if self.fn == "div" else self.number
        return self.first * number_factor, self.second * number_factor


def simpler_sums(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str], in_integers: bool,
                 limits: tuple[float, float] = INT32) -> Expr:
    """Returns an equal expression in which sums of multiples of two integers of small range take fewer instructions.

    Args:
        operands: the range of each operand.
        kinds: what each operand's vector lanes hold, such as "int32" (`ir/lanes.py`).
        in_integers: integer products are as fast as float ones, and stores can shift (`lanes.STORE_SHIFTS`).
        limits: the range to which the result is clipped.
    """
    if not isinstance(expr, Call):
        return expr
    is_limit = _is_by_number(expr, "min") or _is_by_number(expr, "max")
    inner = _clipped_limits(expr, limits) if is_limit else INT32
    expr = Call(expr.fn, tuple(simpler_sums(argument, operands, kinds, in_integers, inner) for argument in expr.args))
    sum_of_two = _sum_of_two(expr)
    if sum_of_two is None:
        return expr
    integers, total = sum_of_two
    ranges = [interval(integer, operands, kinds) for integer in integers]
    if any(bounds is None or bounds[1] - bounds[0] > _MAX_RANGE for bounds in ranges):
        return expr
    found = _simpler_sum(total, *ranges, in_integers, limits)
    return expr if found is None else substitute(found, integers)


def _sum_of_two(expr: Call) -> tuple[list[Expr], _Sum] | None:
    """Returns an expression as a sum of multiples of two integers; None for another expression."""
    if expr.fn != "nearest_within":
        return None
    total, fn, number = expr.args[0], "", 1.0
    for name in ("div", "mul"):
        if _is_by_number(total, name):
            fn, number, total = name, total.args[1].value, total.args[0]
            break
    if not isinstance(total, Call) or total.fn != "add":
        return None
    if not all(_is_by_number(term, "mul") and isinstance(term.args[0], Call) and term.args[0].fn == "real"
               for term in total.args):
        return None
    first, second = (term.args[1].value for term in total.args)
    return [term.args[0].args[0] for term in total.args], _Sum(first, second, fn, number)


def _is_by_number(expr: Expr, fn: str) -> bool:
    """Returns whether an expression is a call of `fn` whose second argument is a constant."""
    return isinstance(expr, Call) and expr.fn == fn and isinstance(expr.args[1], Const)


def _clipped_limits(limit: Call, limits: tuple[float, float]) -> tuple[float, float]:
    """Returns limits narrowed by a call of min or max with a constant."""
    assert isinstance(limit.args[1], Const)
    lower, upper = limits
    number = min(max(limit.args[1].value, lower), upper)
    return (lower, number) if limit.fn == "min" else (number, upper)


@lru_cache(maxsize=256)
def _simpler_sum(total: _Sum, first: tuple[float, float], second: tuple[float, float], in_integers: bool,
                 limits: tuple[float, float]) -> Expr | None:
    """Returns an expression of two integers (operands 0 and 1) that equals `total` when both are clipped to the limits;
    None if none is found. first, second: the ranges of the integers."""
    rows, columns = (grid.ravel().astype(np.int32) for grid in np.meshgrid(
        *(np.arange(lower, upper + 1) for lower, upper in (first, second)), indexing="ij"))
    sums = total.factors[0] * rows + total.factors[1] * columns
    candidates = [_in_integers(total, first, second)] if in_integers else []
    for expressions in [*candidates, *([_undivided(total)] if total.fn == "div" else [])]:
        within = (clip(found, *limits) for found in expressions)
        found = _first_equal(within, clip(total.of((arg(0), arg(1))), *limits), (rows, columns), sums, "int32")
        if found is not None:
            return found.args[0].args[0]  # without the minimum and maximum that `clip` added
    return None


def _in_integers(total: _Sum, *ranges: tuple[float, float]) -> Iterator[Expr]:
    """Yields candidates in integers: sums of multiples with as many bits as fit in int32, which 8-bit stores shift
    right."""
    largest = sum(abs(factor) * max(map(abs, bounds)) for factor, bounds in zip(total.factors, ranges, strict=True))
    # A store keeps the byte from bit 16 on, or from a higher bit that the CPU can shift to (`lanes.STORE_SHIFTS`). The
    # 2 is a margin for the rounding of the shift and for factors that differ from the exact ones.
    shift = next((16 + down for down in reversed(lanes.STORE_SHIFTS) if (largest + 2) * 2.0**(16 + down) < 2**31), None)
    if shift is None:
        return
    first, second = (round(factor * 2.0**shift) for factor in total.factors)
    # The factors of the sum are rounded, so integers near them are tried too, the nearest first.
    for a, b in sorted(product(range(-8, 9), repeat=2), key=lambda steps: (abs(steps[0]) + abs(steps[1]), steps)):
        yield call("shift_down", arg(0) * (first + a) + arg(1) * (second + b), shift)


def _undivided(total: _Sum) -> Iterator[Expr]:
    """Yields candidates in float32 without a division, with factors near the quotients: two factors, then three."""
    integers, (first, second) = (arg(0), arg(1)), total.factors
    for a, b in product(_FACTOR_CHANGES, _FACTOR_CHANGES):
        yield _Sum(float(np.float32(first * (1 + a))), float(np.float32(second * (1 + b)))).of(integers)
    for change in _FACTOR_CHANGES:
        # The changes are halved, because neighbours in float32 differ by 2^-24 of a number with a mantissa near 2.
        factor = float(np.float32((1 + change / 2) / total.number))
        yield _Sum(total.first, total.second, "mul", factor).of(integers)


def _factors(terms: dict[int, _Term]) -> Iterator[tuple[float, float]]:
    """Yields float32 factors for both terms, near the exact ones."""
    for away, first, second in product(_TIE_CHANGES, _FACTOR_CHANGES, _FACTOR_CHANGES):
        yield (float(np.float32(terms[0].factor * (1 + away + first))),
               float(np.float32(terms[1].factor * (1 + away + second))))


def _terms(expr: Expr) -> dict[int, _Term] | None:
    """Returns an expression as a sum of terms factor * (operand - zero), ignoring rounding; None for others."""
    if isinstance(expr, Arg):
        return {expr.index: _Term(1.0, 0)}
    if not isinstance(expr, Call) or expr.fn not in ("add", "sub", "mul", "rescale_fixed"):
        return None
    first, second = _terms(expr.args[0]), expr.args[1]
    if first is None:
        return None
    if expr.fn == "rescale_fixed":
        factor, shift = expr.args[1:]
        return _scaled(first, factor.value * 2.0**(shift.value - 31)) \
            if isinstance(factor, Const) and isinstance(shift, Const) else None
    sign = -1 if expr.fn == "sub" else 1
    if isinstance(second, Const):
        if expr.fn == "mul":
            return _scaled(first, second.value)
        # operand - zero, plus a number: only the zero changes. With a factor, or for a sum, this is no term.
        moved = {index: _Term(1.0, term.zero - sign * int(second.value)) for index, term in first.items()}
        return moved if [term.factor for term in first.values()] == [1.0] else None
    second_terms = _terms(second)
    if expr.fn == "mul" or second_terms is None or {*first} & {*second_terms}:
        return None
    return first | _scaled(second_terms, sign)


def _scaled(terms: dict[int, _Term], factor: float) -> dict[int, _Term]:
    """Returns the terms multiplied by a factor."""
    return {index: _Term(term.factor * factor, term.zero) for index, term in terms.items()}
