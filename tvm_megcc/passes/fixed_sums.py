# SPDX-License-Identifier: Apache-2.0
"""Fixed-point sums of two numbers of 8 bits, as TFLite rounds them, become sums of reals where no pair tells the
difference: three products of 64 bits less for each element. All 65,536 pairs are tried, so the bits are the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ..context import Context
from ..ir import lanes
from ..ir.expr import Arg, Call, Const, Expr, arg, call, maximum, minimum
from ..ir.graph import Attrs, Graph
from ..ops.lookup import BYTES, numbers
from .edit import Editor

#: By how much factors may differ from the quotients of scales. Halves go away from zero where both are a bit greater.
_NUDGES = tuple(2.0**-23 * steps for steps in (0, 1, -1, 2, -2, 4, -4))
_AWAY = (0.0, *(2.0**power for power in (-21, -20, -19, -18, -17)))
#: Sums this close to a half are tried first.
_CLOSE = 2.0**-11


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
