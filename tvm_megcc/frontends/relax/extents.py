# SPDX-License-Identifier: Apache-2.0
"""Converts the symbolic extents of a Relax function to extents of our graph.

Shapes in TVM are expressions over the function's variables; a *raw* extent here is such an expression as a `Dim`, whose
symbols are marked as TVM's. The symbols of our graphs are extents of inputs: a variable that is the extent of an input
axis, or an expression such as `h // 2` that is the extent of one while `h` itself is not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from tvm import tirx

from ...errors import MegccError
from ...ir.dims import (
    COMBINED,
    Dim,
    Extreme,
    FloorDiv,
    Sum,
    Symbol,
    dim_max,
    dim_min,
    evaluate,
    floordiv,
    product,
    substitute,
    symbols,
)
from ...ir.extent_bounds import interval
from ...ir.shapes import Bucket
from ..tvm_common.node import UNKNOWN
from ..tvm_versions import RelaxTensor, RelaxTuple, Var, has_extents, name_of

#: TVM's function attributes with the bounds of symbolic extents, by name. TVM's memory planner reads them.
LOWER, UPPER = "tir_var_lower_bound", "tir_var_upper_bound"
#: Our attribute of the functions that are called for shapes in no bucket.
OUTSIDE = "megcc_outside"
#: Two expressions count as equal if their values agree at 12 points, with variables from 64 to 4096.
_NUM_POINTS, _MIN_VALUE, _MAX_VALUE = 12, 64, 4096

#: TVM's integer expressions of two operands -> the same arithmetic on `Dim`.
_ARITHMETIC = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Max": dim_max, "Min": dim_min,
    # Extents are not negative, so rounding down and rounding towards zero are the same.
    "FloorDiv": floordiv, "Div": floordiv, "FloorMod": lambda a, b: a - floordiv(a, b) * b,
    "Mod": lambda a, b: a - floordiv(a, b) * b,
}


class Extents:
    """Maps the extents in the types of one function to extents of the graph.

    known: (raw extent, extent of the graph), in the order in which they are tried.
    """

    def __init__(self):
        self.known: list[tuple[Dim, Dim]] = []
        #: Symbol of the graph -> its raw extent, for the function whose inputs are the graph's.
        self.declared: dict[str, Dim] = {}
        self._names: dict[Var, str] = {}

    def declare(self, types: Iterable) -> None:
        """Creates a symbol for each variable that is an extent of a tensor type among these."""
        for dim in _extents_in(types):
            if isinstance(dim, Var):
                self._add_symbol(self.raw(dim), name_of(dim))

    def input_shape(self, type_: RelaxTensor) -> tuple[Dim, ...]:
        """Returns the shape of an input of the graph. An extent that does not follow from other inputs becomes a
        symbol."""
        for dim in _extents_in([type_]):
            raw = self.raw(dim)
            if not self.is_known(raw):
                self._add_symbol(raw, repr(raw).replace(UNKNOWN, ""))
        return self.shape(type_)

    def _add_symbol(self, raw: Dim, name: str) -> None:
        """Creates a symbol of the graph for a raw extent that does not follow from others."""
        if self.is_known(raw):
            return
        while name in self.declared:
            name += "_"
        self.declared[name] = raw
        self.bind(raw, Symbol(name, least=0))

    def bind(self, raw: Dim, ours: Dim) -> None:
        """Records that a raw extent is the extent `ours` of the graph. For an expression such as `n + 1` this also
        determines `n`."""
        if isinstance(raw, int) or self.is_known(raw):
            return
        self.known.append((raw, ours))
        if isinstance(raw, Sum) and len(raw.terms) == 1:
            ((factors, coefficient),) = raw.terms
            if coefficient == 1 and len(factors) == 1:
                self.bind(factors[0], ours - raw.constant)

    def is_known(self, raw: Dim) -> bool:
        """Whether a raw extent follows from the extents of inputs."""
        return not any(name.startswith(UNKNOWN) for name in symbols(self.ours(raw)))

    def raw(self, expr) -> Dim:
        """Converts an integer expression of TVM to a raw extent.

        Raises:
            MegccError: for an expression that is not arithmetic.
        """
        if isinstance(expr, (int, tirx.IntImm)):
            return int(expr)
        if isinstance(expr, Var):
            if expr not in self._names:
                taken = set(self._names.values())
                name = UNKNOWN + name_of(expr)
                while name in taken:
                    name += "_"
                self._names[expr] = name
            return Symbol(self._names[expr])
        kind = type(expr).__name__
        if kind == "Cast":
            return self.raw(expr.value)
        if kind not in _ARITHMETIC:
            raise MegccError(f"the extent {expr} is no arithmetic that we have")
        return _ARITHMETIC[kind](self.raw(expr.a), self.raw(expr.b))

    def ours(self, raw: Dim) -> Dim:
        """Returns a raw extent over the graph's symbols. Variables that do not follow from the inputs stay marked as
        TVM's."""
        for expression, value in self.known:
            if expression == raw:
                return value
        if isinstance(raw, Sum):
            terms = (product(self.ours(factor) for factor in factors) * coefficient
                     for factors, coefficient in raw.terms)
            return sum(terms, start=raw.constant)
        if isinstance(raw, FloorDiv):
            return floordiv(self.ours(raw.numerator), self.ours(raw.denominator))
        if isinstance(raw, Extreme):
            return COMBINED[raw.name](self.ours(raw.lhs), self.ours(raw.rhs))
        return raw

    def shape(self, type_: RelaxTensor) -> tuple[Dim, ...]:
        """Returns the shape of a tensor type over the graph's symbols."""
        return tuple(self.ours(self.raw(dim)) for dim in type_.shape.values)

    def may_be_equal(self, lhs: Dim, rhs: Dim) -> bool:
        """Whether two extents of the graph are equal, in whatever form they are written.

        Symbols of the graph and variables of TVM cannot be compared, so extents that have both count as equal. That
        occurs in functions inside a region only, whose extents were compared when the pattern was matched.
        """
        lhs, rhs = substitute(lhs, self.declared), substitute(rhs, self.declared)
        names = sorted(symbols(lhs) | symbols(rhs))
        has_both_kinds = len({name.startswith(UNKNOWN) for name in names}) > 1
        if lhs == rhs or has_both_kinds:
            return True
        generator = random.Random(0)
        points = ({name: generator.randint(_MIN_VALUE, _MAX_VALUE) for name in names} for _ in range(_NUM_POINTS))
        return all(evaluate(lhs, point) == evaluate(rhs, point) for point in points)

    def bucket(self, limits: Mapping[str, tuple[int, int | None]]) -> Bucket:
        """Returns the bounds of the graph's symbols. limits: the bounds of TVM's variables, by name."""
        bounds = []
        for name, raw in self.declared.items():
            lower, upper = interval(raw, {variable: limits.get(variable.removeprefix(UNKNOWN), (0, None))
                                       for variable in symbols(raw)})
            bounds.append((name, max(lower or 0, 0), upper))
        return Bucket(tuple(bounds))


def declared_shape(type_: RelaxTensor) -> tuple[int | str | None, ...]:
    """Returns the shape of a tensor type: numbers, names of symbols, and None for expressions."""
    return tuple(int(dim) if isinstance(dim, tirx.IntImm) else name_of(dim) if isinstance(dim, Var) else None
                 for dim in type_.shape.values)


def bounds_of(function) -> dict[str, tuple[int, int | None]]:
    """Returns the bounds of symbolic extents that a function's attributes state, by name."""
    attrs = function.attrs or {}
    lower, upper = ({str(name): int(value) for name, value in (attrs.get(key) or {}).items()} for key in (LOWER, UPPER))
    return {name: (max(lower.get(name, 0), 0), upper.get(name)) for name in (*lower, *upper)}


def _extents_in(types: Iterable) -> Iterable:
    """Yields the extents of the tensor types among types, also of those in tuples."""
    for type_ in types:
        if isinstance(type_, RelaxTuple):
            yield from _extents_in(type_.fields)
        elif has_extents(type_):
            yield from type_.shape.values
