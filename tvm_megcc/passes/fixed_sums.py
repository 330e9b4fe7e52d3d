# SPDX-License-Identifier: Apache-2.0
"""Sums of two numbers of 8 bits by fewer instructions where no pair tells the difference: all of them are tried, so the
bits are the same. Fixed-point sums, as TFLite rounds them, become sums of reals: three products of 64 bits less for
each element. Sums of reals that are divided, as ONNX says, do without the division."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ..context import Context
from ..ir import lanes
from ..ir.expr import Arg, Call, Const, Expr, arg, call, maximum, minimum
from ..ir.graph import Attrs, Graph
from ..ir.intervals import Interval, interval
from ..ops.lookup import BYTES, numbers
from .edit import Editor

#: By how much factors may differ from the quotients of scales. Halves go away from zero where both are a bit greater.
_NUDGES = tuple(2.0**-23 * steps for steps in (0, 1, -1, 2, -2, 4, -4))
_AWAY = (0.0, *(2.0**power for power in (-21, -20, -19, -18, -17)))
#: Sums this close to a half are tried first.
_CLOSE = 2.0**-11
#: Greatest less least integer of those whose pairs are tried.
_MOST = 511


class _Term(NamedTuple):
    """factor * (operand - zero)."""

    factor: float
    zero: int


def sum_reals(graph: Graph, context: Context) -> Graph:
    """Of elementwise operators; CPUs without vectors may have no unit for reals."""
    edit = Editor(graph)
    for op in graph.ops if context.isa.lanes > 1 else ():
        if op.kind != "elementwise" or "dtype" not in op.attrs or len(op.inputs) != 2:
            continue
        dtypes = *(graph.types[name].dtype for name in op.inputs), op.attrs.dtype
        found = as_reals(op.attrs.expr, *dtypes) if {*dtypes} <= {*BYTES} else None
        if found is not None:
            edit.replace(op, op.with_(attrs=Attrs(op.attrs, expr=found)))
    return edit.finish()


@lru_cache(maxsize=256)
def as_reals(expr: Expr, a: str, b: str, dtype: str) -> Expr | None:
    """The same function of operands of two types with a result of `dtype`, by way of reals; None if there is none."""
    core, limits = expr, []
    while isinstance(core, Call) and core.fn in ("min", "max") and isinstance(core.args[1], Const):
        limits.append((core.fn, core.args[1]))
        core = core.args[0]
    zero = 0.0
    if isinstance(core, Call) and core.fn == "add" and isinstance(core.args[1], Const):
        core, zero = core.args[0], core.args[1].value
    terms = _terms(core) if isinstance(core, Call) and core.fn == "rescale_fixed" else None
    if terms is None or set(terms) != {0, 1} or any(abs(term.factor) > 2**20 for term in terms.values()):
        return None
    columns, rows = (grid.ravel() for grid in np.meshgrid(numbers(b), numbers(a)))
    wanted = lanes.evaluate(expr, [rows, columns], dtype)
    sums = sum(term.factor * (grid.astype(np.float64) - term.zero)
               for grid, term in ((rows, terms[0]), (columns, terms[1])))
    close = np.abs(sums - np.floor(sums) - 0.5) < _CLOSE
    for factors in _factors(terms):
        first, second = (call("real", arg(index) - terms[index].zero) * factor for index, factor in enumerate(factors))
        found: Expr = call("nearest_within", first + second) + zero
        for fn, limit in reversed(limits):
            found = (minimum if fn == "min" else maximum)(found, limit)
        if not np.array_equal(lanes.evaluate(found, [rows[close], columns[close]], dtype), wanted[close]):
            continue
        # Where no half is near, other factors would not help.
        return found if np.array_equal(lanes.evaluate(found, [rows, columns], dtype), wanted) else None
    return None


def undivided(expr: Expr, operands: Sequence[Interval], kinds: Sequence[str]) -> Expr:
    """The same function, without divisions of sums of two multiples of integers of a small range.

    Args:
        operands, kinds: intervals and lanes of the operands.
    """
    if not isinstance(expr, Call):
        return expr
    expr = Call(expr.fn, tuple(undivided(argument, operands, kinds) for argument in expr.args))
    parts = _quotient(expr)
    if parts is None:
        return expr
    integers, numbers_ = parts
    ranges = [interval(integer, operands, kinds) for integer in integers]
    if any(bounds is None or bounds[1] - bounds[0] > _MOST for bounds in ranges):
        return expr
    factors = _without_divisor(*numbers_, *ranges)
    return expr if factors is None else _sum_of(integers, *factors)


def _quotient(expr: Call) -> tuple[list[Expr], list[float]] | None:
    """The integers a and b, and the numbers f, g and d, of nearest((f * a + g * b) / d)."""
    if expr.fn != "nearest_within" or not _is_by_number(expr.args[0], "div"):
        return None
    total, divisor = expr.args[0].args
    if not isinstance(total, Call) or total.fn != "add":
        return None
    if not all(_is_by_number(term, "mul") and isinstance(term.args[0], Call) and term.args[0].fn == "real"
               for term in total.args):
        return None
    return [term.args[0].args[0] for term in total.args], [*(term.args[1].value for term in total.args), divisor.value]


def _is_by_number(expr: Expr, fn: str) -> bool:
    return isinstance(expr, Call) and expr.fn == fn and isinstance(expr.args[1], Const)


def _sum_of(integers: Sequence[Expr], first: float, second: float, whole: float = 1.0) -> Expr:
    """The nearest of a multiple of a sum of multiples."""
    total = call("real", integers[0]) * first + call("real", integers[1]) * second
    return call("nearest_within", total if whole == 1 else total * whole)


@lru_cache(maxsize=256)
def _without_divisor(first: float, second: float, divisor: float, *ranges: tuple[float, float]
                     ) -> tuple[float, ...] | None:
    """Factors of `_sum_of` that give the same as two and the divisor for all pairs of integers within ranges."""
    rows, columns = (grid.ravel().astype(np.int32) for grid in np.meshgrid(
        *(np.arange(low, high + 1) for low, high in ranges), indexing="ij"))
    total = call("real", arg(0)) * first + call("real", arg(1)) * second
    wanted = lanes.evaluate(call("nearest_within", total / divisor), [rows, columns], "int32")
    sums = (first * rows + second * columns) / divisor
    close = np.abs(sums - np.floor(sums) - 0.5) < _CLOSE
    for factors in _factors_of_quotient(first, second, divisor):
        found = _sum_of((arg(0), arg(1)), *factors)
        if np.array_equal(lanes.evaluate(found, [rows[close], columns[close]], "int32"), wanted[close]) \
                and np.array_equal(lanes.evaluate(found, [rows, columns], "int32"), wanted):
            return factors
    return None


def _factors_of_quotient(first: float, second: float, divisor: float) -> Iterator[tuple[float, ...]]:
    """In float32, near the quotients: two, then three."""
    for a, b in product(_NUDGES, _NUDGES):
        yield float(np.float32(first / divisor * (1 + a))), float(np.float32(second / divisor * (1 + b)))
    for nudge in _NUDGES:
        yield first, second, float(np.float32((1 + nudge / 2) / divisor))


def _factors(terms: dict[int, _Term]) -> Iterator[tuple[float, float]]:
    """Of both terms, in float32, near what they should be."""
    for away, first, second in product(_AWAY, _NUDGES, _NUDGES):
        yield (float(np.float32(terms[0].factor * (1 + away + first))),
               float(np.float32(terms[1].factor * (1 + away + second))))


def _terms(expr: Expr) -> dict[int, _Term] | None:
    """A sum of multiples of operands, less a number each, as if nothing were rounded; None of anything else."""
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
        moved = {index: _Term(1.0, term.zero - sign * int(second.value)) for index, term in first.items()}
        return moved if [term.factor for term in first.values()] == [1.0] else None
    other = _terms(second)
    if expr.fn == "mul" or other is None or {*first} & {*other}:
        return None
    return first | _scaled(other, sign)


def _scaled(terms: dict[int, _Term], factor: float) -> dict[int, _Term]:
    return {index: _Term(term.factor * factor, term.zero) for index, term in terms.items()}
