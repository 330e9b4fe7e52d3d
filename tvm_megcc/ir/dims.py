# SPDX-License-Identifier: Apache-2.0
"""Extents of tensors: an int if known, else an expression over the model's shape symbols.

A shape rule is written once, over `Dim`. On ints it computes a number. On symbols it builds an expression in normal
form, which is printed as C in the run-time shape function. Arithmetic is that of Python (`//` and `%` round towards
minus infinity). The C printer requires non-negative operands of `//`; extents are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Union, overload

from ..errors import ShapeError

#: The most leaves of an expression, and its deepest nesting. Real networks have up to some tens; a malicious model
#: could have any number, by multiplying extents with themselves or nesting `min` and `+`.
MAX_LEAVES, MAX_DEPTH = 1000, 60
_TOO_LARGE = "an extent depends on the input shapes in too long a formula; give fixed input shapes"


class SymbolicDim:
    """The base of every expression: immutable, hashable, compared by structure. leaves, depth: its size."""

    leaves = 1
    depth = 1

    def _measure(self, leaves: int, parts: Iterable[Dim]) -> None:
        """Sets the size of an expression from its parts. Raises ShapeError if it is too large."""
        depth = 0
        for part in parts:
            if isinstance(part, SymbolicDim):
                leaves, depth = leaves + part.leaves, max(depth, part.depth)
        if leaves > MAX_LEAVES or depth >= MAX_DEPTH:
            raise ShapeError(_TOO_LARGE)
        object.__setattr__(self, "leaves", leaves)
        object.__setattr__(self, "depth", depth + 1)

    def __add__(self, other: Dim) -> Dim:
        return _add(self, other)

    def __radd__(self, other: Dim) -> Dim:
        return _add(other, self)

    def __sub__(self, other: Dim) -> Dim:
        return _add(self, _mul(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return _add(other, _mul(self, -1))

    def __mul__(self, other: Dim) -> Dim:
        return _mul(self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return _mul(other, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - floordiv(self, other) * other

    def __rmod__(self, other: Dim) -> Dim:
        return other - floordiv(other, self) * self

    def __neg__(self) -> Dim:
        return _mul(self, -1)


Dim = Union[int, SymbolicDim]


@dataclass(frozen=True)
class Symbol(SymbolicDim):
    """A dimension that the user names, such as `batch`, or an unbacked symbol: an extent that a run computes.

    likely: the value that speed is optimised for. least: the lower bound, 1, or 0 for an unbacked symbol. Neither is
        part of the symbol's identity.
    """

    name: str
    likely: int = field(default=1, compare=False)
    least: int = field(default=1, compare=False)

    def __repr__(self) -> str:
        return self.name


#: Product of symbols -> its coefficient in a sum.
Terms = dict[tuple[SymbolicDim, ...], int]


@dataclass(frozen=True)
class Sum(SymbolicDim):
    """constant + sum of coefficient * product, products sorted and distinct."""

    terms: tuple[tuple[tuple[SymbolicDim, ...], int], ...]
    constant: int

    def __post_init__(self) -> None:
        self._measure(len(self.terms), (factor for factors, _ in self.terms for factor in factors))

    def __repr__(self) -> str:
        parts = []
        for factors, coefficient in self.terms:
            text = "*".join(map(_atom, factors))
            parts.append(text if coefficient == 1 else f"{coefficient}*{text}")
        if self.constant:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@dataclass(frozen=True)
class FloorDiv(SymbolicDim):
    numerator: Dim
    denominator: Dim

    def __post_init__(self) -> None:
        self._measure(1, (self.numerator, self.denominator))

    def __repr__(self) -> str:
        return f"{_atom(self.numerator)}//{_atom(self.denominator)}"


@dataclass(frozen=True)
class Extreme(SymbolicDim):
    """`min` or `max` of two dims."""

    name: str
    lhs: Dim
    rhs: Dim

    def __post_init__(self) -> None:
        self._measure(1, (self.lhs, self.rhs))

    def __repr__(self) -> str:
        return f"{self.name}({self.lhs!r}, {self.rhs!r})"


def _atom(dim: Dim) -> str:
    return f"({dim!r})" if isinstance(dim, (Sum, FloorDiv)) else repr(dim)


def _terms(dim: Dim) -> tuple[Terms, int]:
    if isinstance(dim, int):
        return {}, dim
    if isinstance(dim, Sum):
        return dict(dim.terms), dim.constant
    return {(dim,): 1}, 0


def _from_terms(terms: Terms, constant: int) -> Dim:
    nonzero = sorted(((f, c) for f, c in terms.items() if c), key=lambda item: (len(item[0]), repr(item[0])))
    if not nonzero:
        return constant
    if not constant and len(nonzero) == 1 and nonzero[0][1] == 1 and len(nonzero[0][0]) == 1:
        return nonzero[0][0][0]
    return Sum(tuple(nonzero), constant)


def _add(lhs: Dim, rhs: Dim) -> Dim:
    terms, constant = _terms(lhs)
    for factors, coefficient in _terms(rhs)[0].items():
        terms[factors] = terms.get(factors, 0) + coefficient
    return _from_terms(terms, constant + _terms(rhs)[1])


def _mul(lhs: Dim, rhs: Dim) -> Dim:
    (lhs_terms, lhs_constant), (rhs_terms, rhs_constant) = _terms(lhs), _terms(rhs)
    terms: Terms = {}
    if len(lhs_terms) * len(rhs_terms) > MAX_LEAVES:
        raise ShapeError(_TOO_LARGE)
    for lf, lc in [*lhs_terms.items(), ((), lhs_constant)]:
        for rf, rc in [*rhs_terms.items(), ((), rhs_constant)]:
            factors = tuple(sorted(lf + rf, key=repr))
            terms[factors] = terms.get(factors, 0) + lc * rc
    constant = terms.pop((), 0)
    return _from_terms(terms, constant)


@overload
def floordiv(numerator: int, denominator: int) -> int: ...
@overload
def floordiv(numerator: Dim, denominator: Dim) -> Dim: ...
def floordiv(numerator: Dim, denominator: Dim) -> Dim:
    """Returns `numerator // denominator`, divided exactly if all coefficients allow it."""
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if denominator == 1:
        return numerator
    if numerator == denominator:
        return 1
    if isinstance(numerator, int) and numerator == 0:
        return 0
    terms, constant = _terms(numerator)
    nested = _nested_quotient(terms, constant, denominator)
    if nested is not None:
        return nested
    if isinstance(denominator, int) and denominator > 0:
        whole = {f: c // denominator for f, c in terms.items() if c % denominator == 0}
        rest = {f: c for f, c in terms.items() if c % denominator}
        if not rest:
            return _from_terms(whole, constant // denominator)
        if whole:
            return _add(_from_terms(whole, constant // denominator),
                        FloorDiv(_from_terms(rest, constant % denominator), denominator))
    elif isinstance(denominator, SymbolicDim):
        quotient = _exact_quotient(terms, constant, denominator)
        if quotient is not None:
            return quotient
    return FloorDiv(numerator, denominator)


def _nested_quotient(terms: Terms, constant: int, denominator: Dim) -> Dim | None:
    """Rewrites (a//b + c) // d, as nested windows give, to (a + b*c) // (b*d), for positive b and d."""
    if len(terms) != 1 or not isinstance(denominator, int) or denominator < 1:
        return None
    ((factors, coefficient),) = terms.items()
    inner = factors[0]
    if coefficient != 1 or len(factors) != 1 or not isinstance(inner, FloorDiv) \
            or not isinstance(inner.denominator, int) or inner.denominator < 1:
        return None
    return floordiv(inner.numerator + inner.denominator * constant, inner.denominator * denominator)


def _exact_quotient(terms: Terms, constant: int, denominator: SymbolicDim) -> Dim | None:
    """Cancels a common product of symbols, as in (batch*heads*64) // (batch*heads), and a multiple of the whole
    denominator, as in (512*batch*frames - 3072*batch) // (batch*frames - 6*batch)."""
    d_terms, d_constant = _terms(denominator)
    if terms.keys() == d_terms.keys():
        times = next(terms[factors] // d_terms[factors] for factors in terms)
        if constant == times * d_constant and all(terms[each] == times * d_terms[each] for each in terms):
            return times
    if d_constant or len(d_terms) != 1 or constant:
        return None
    ((d_factors, d_coefficient),) = d_terms.items()
    quotient: Terms = {}
    rest = 0
    for factors, coefficient in terms.items():
        left = list(factors)
        for factor in d_factors:
            if factor not in left:
                return None
            left.remove(factor)
        if coefficient % d_coefficient:
            return None
        if left:
            quotient[tuple(left)] = coefficient // d_coefficient
        else:
            rest = coefficient // d_coefficient
    return _from_terms(quotient, rest)


@overload
def ceildiv(numerator: int, denominator: int) -> int: ...
@overload
def ceildiv(numerator: Dim, denominator: Dim) -> Dim: ...
def ceildiv(numerator: Dim, denominator: Dim) -> Dim:
    return floordiv(numerator + denominator - 1, denominator)


@overload
def dim_max(lhs: int, rhs: int) -> int: ...
@overload
def dim_max(lhs: Dim, rhs: Dim) -> Dim: ...
def dim_max(lhs: Dim, rhs: Dim) -> Dim:
    if isinstance(lhs, int) and isinstance(rhs, int):
        return max(lhs, rhs)
    return lhs if lhs == rhs else Extreme("max", lhs, rhs)


@overload
def dim_min(lhs: int, rhs: int) -> int: ...
@overload
def dim_min(lhs: Dim, rhs: Dim) -> Dim: ...
def dim_min(lhs: Dim, rhs: Dim) -> Dim:
    if isinstance(lhs, int) and isinstance(rhs, int):
        return min(lhs, rhs)
    return lhs if lhs == rhs else Extreme("min", lhs, rhs)


COMBINED = {"max": dim_max, "min": dim_min}


def static(dims: Iterable[Dim]) -> tuple[int, ...] | None:
    """Returns the extents as numbers, or None if one of them is symbolic."""
    known = tuple(dims)
    numbers = tuple(dim for dim in known if isinstance(dim, int))
    return numbers if len(numbers) == len(known) else None


def number(dim: Dim) -> int:
    """Returns an extent that must be known at compile time.

    Raises:
        ShapeError: if it is symbolic.
    """
    if isinstance(dim, SymbolicDim):
        raise ShapeError(f"the extent {dim} has to be known when compiling; give the input a shape")
    return dim


@overload
def product(dims: Iterable[int]) -> int: ...
@overload
def product(dims: Iterable[Dim]) -> Dim: ...
def product(dims: Iterable[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = dim * result
    return result


@overload
def round_up(dim: int, multiple: int) -> int: ...
@overload
def round_up(dim: Dim, multiple: int) -> Dim: ...
def round_up(dim: Dim, multiple: int) -> Dim:
    return ceildiv(dim, multiple) * multiple


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Replaces symbols in the dim; those that are not in `values` stay."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Symbol):
        return values.get(dim.name, dim)
    if isinstance(dim, FloorDiv):
        return floordiv(substitute(dim.numerator, values), substitute(dim.denominator, values))
    if isinstance(dim, Extreme):
        combine = COMBINED[dim.name]
        return combine(substitute(dim.lhs, values), substitute(dim.rhs, values))
    assert isinstance(dim, Sum)
    result: Dim = dim.constant
    for factors, coefficient in dim.terms:
        result = result + product(substitute(f, values) for f in factors) * coefficient
    return result


def likely(dim: Dim) -> int:
    """Returns the value of the dim for the likely values of its symbols."""
    return dim if isinstance(dim, int) else evaluate(dim, {s.name: s.likely for s in _symbols(dim)})


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """Returns the value of the dim; `values` has every symbol."""
    return number(substitute(dim, values))


def differ(a: Dim, b: Dim) -> bool:
    """Returns whether two extents differ for some sample values of their symbols.

    Equal expressions mostly, but not always, have the same normal form. The samples have many divisors, since some
    expressions are equal only for valid inputs, such as multiples of 32. Extents with unbacked symbols never count as
    different.
    """
    if a == b or counted(a, b):
        return False
    found = sorted(symbols(a) | symbols(b))
    return any(substitute(a, point) != substitute(b, point) for point in (
        {name: _SAMPLES[(i + j) % len(_SAMPLES)] for j, name in enumerate(found)} for i in range(len(_SAMPLES))))


def counted(*dims: Dim) -> bool:
    """Returns whether one of the extents depends on an unbacked symbol, which may be 0."""
    return any(symbol.least == 0 for dim in dims for symbol in _symbols(dim))


#: Large numbers with many divisors.
_SAMPLES = (2520 * 64, 5040 * 256, 27720 * 128)


def interval(dim: Dim, bounds: Mapping[str, tuple[int, int | None]]) -> tuple[int | None, int | None]:
    """Returns the least and largest value for symbols within their bounds; None for no limit. The interval is never too
    narrow."""
    low, high = _interval(dim, {name: (least, math.inf if most is None else most)
                                for name, (least, most) in bounds.items()})
    return _finite(low), _finite(high)


def _finite(end: float) -> int | None:
    return None if abs(end) == math.inf else int(end)


def limits(dim: Dim) -> tuple[int | None, int | None]:
    """Returns the least and largest value over all symbols; None for no limit."""
    return interval(dim, free(dim))


def never_above(dim: Dim, high: Dim) -> bool:
    """Returns whether dim <= high whatever their symbols are."""
    difference, _ = limits(high - dim)
    return difference is not None and difference >= 0


def free(*dims: Dim) -> dict[str, tuple[int, int | None]]:
    """Returns the full ranges of the symbols of some extents: from the lower bound without an upper one."""
    return {symbol.name: (symbol.least, None) for dim in dims for symbol in _symbols(dim)}


def _interval(dim: Dim, bounds: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """The ends are ints, of any size, or infinite."""
    if isinstance(dim, int):
        return dim, dim
    if isinstance(dim, Symbol):
        return bounds[dim.name]
    if isinstance(dim, FloorDiv):
        ends = [_quotient(a, b) for a in _interval(dim.numerator, bounds)
                for b in (max(end, 1) for end in _interval(dim.denominator, bounds))]
        return min(ends), max(ends)
    if isinstance(dim, Extreme):
        choose = min if dim.name == "min" else max
        (lhs_low, lhs_high), (rhs_low, rhs_high) = _interval(dim.lhs, bounds), _interval(dim.rhs, bounds)
        return choose(lhs_low, rhs_low), choose(lhs_high, rhs_high)
    assert isinstance(dim, Sum)
    least: float = dim.constant
    most: float = dim.constant
    for factors, coefficient in dim.terms:
        low: float = coefficient
        high: float = coefficient
        for factor in factors:
            ends = [_times(a, b) for a in (low, high) for b in _interval(factor, bounds)]
            low, high = min(ends), max(ends)
        least, most = least + low, most + high
    return least, most


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _quotient(a: float, b: float) -> float:
    if abs(a) == math.inf:
        return a
    return (0 if a >= 0 else -1) if b == math.inf else a // b


def symbols(dim: Dim) -> frozenset[str]:
    """Returns the names of all symbols in the expression."""
    return frozenset(symbol.name for symbol in _symbols(dim))


def _symbols(dim: Dim) -> frozenset[Symbol]:
    if isinstance(dim, Symbol):
        return frozenset({dim})
    if isinstance(dim, FloorDiv):
        return _symbols(dim.numerator) | _symbols(dim.denominator)
    if isinstance(dim, Extreme):
        return _symbols(dim.lhs) | _symbols(dim.rhs)
    if isinstance(dim, Sum):
        return frozenset().union(*(_symbols(f) for factors, _ in dim.terms for f in factors))
    return frozenset()


def to_c(dim: Dim, names: Mapping[str, str] | None = None) -> str:
    """Prints the expression as C over int64_t, in the saturating arithmetic of megcc_kernel.h.

    names: maps a symbol to the C expression that holds it; by default that is its name.
    """
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, Symbol):
        return names[dim.name] if names else dim.name
    if isinstance(dim, FloorDiv):
        return f"megcc_size_div({to_c(dim.numerator, names)}, {to_c(dim.denominator, names)})"
    if isinstance(dim, Extreme):
        return f"megcc_size_{dim.name}({to_c(dim.lhs, names)}, {to_c(dim.rhs, names)})"
    assert isinstance(dim, Sum)
    parts = []
    for factors, coefficient in dim.terms:
        strings = [to_c(factor, names) for factor in factors]
        parts.append(_nested("mul", [*([str(coefficient)] if coefficient != 1 else []), *strings]))
    return _nested("add", parts + ([str(dim.constant)] if dim.constant else []))


def _nested(name: str, strings: list[str]) -> str:
    if len(strings) == 1:
        return strings[0]
    middle = len(strings) // 2
    return f"megcc_size_{name}({_nested(name, strings[:middle])}, {_nested(name, strings[middle:])})"
