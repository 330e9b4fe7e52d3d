# SPDX-License-Identifier: Apache-2.0
"""Extents: an int where it is known, otherwise an expression over the model's shape symbols.

A shape rule is written once, over `Dim`: on ints it computes, on symbols it builds an expression in normal form,
printed as C it is the run-time shape function. Arithmetic is that of Python (`//` and `%` round towards minus
infinity); the C printer asks only for non-negative operands of `//`, which is what extents are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union


class SymbolicDim:
    """Base of every expression. Immutable, hashable, comparable by structure."""

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

    def __mod__(self, other: Dim) -> Dim:
        return self - floordiv(self, other) * other

    def __neg__(self) -> Dim:
        return _mul(self, -1)


Dim = Union[int, SymbolicDim]


@dataclass(frozen=True)
class Symbol(SymbolicDim):
    """A dimension the user names, such as `batch`. Its value is at least 1."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Sum(SymbolicDim):
    """constant + sum of coefficient * product, products sorted and distinct."""

    terms: tuple[tuple[tuple[SymbolicDim, ...], int], ...]
    constant: int

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
    numerator: SymbolicDim
    denominator: Dim

    def __repr__(self) -> str:
        return f"{_atom(self.numerator)}//{_atom(self.denominator)}"


@dataclass(frozen=True)
class Extreme(SymbolicDim):
    """`min` or `max` of two dims."""

    name: str
    lhs: Dim
    rhs: Dim

    def __repr__(self) -> str:
        return f"{self.name}({self.lhs!r}, {self.rhs!r})"


def _atom(dim: Dim) -> str:
    return f"({dim!r})" if isinstance(dim, (Sum, FloorDiv)) else repr(dim)


def _terms(dim: Dim) -> tuple[dict[tuple[SymbolicDim, ...], int], int]:
    if isinstance(dim, int):
        return {}, dim
    if isinstance(dim, Sum):
        return dict(dim.terms), dim.constant
    return {(dim,): 1}, 0


def _from_terms(terms: dict[tuple[SymbolicDim, ...], int], constant: int) -> Dim:
    kept = sorted(((f, c) for f, c in terms.items() if c), key=lambda item: (len(item[0]), repr(item[0])))
    if not kept:
        return constant
    if not constant and len(kept) == 1 and kept[0][1] == 1 and len(kept[0][0]) == 1:
        return kept[0][0][0]
    return Sum(tuple(kept), constant)


def _add(lhs: Dim, rhs: Dim) -> Dim:
    terms, constant = _terms(lhs)
    for factors, coefficient in _terms(rhs)[0].items():
        terms[factors] = terms.get(factors, 0) + coefficient
    return _from_terms(terms, constant + _terms(rhs)[1])


def _mul(lhs: Dim, rhs: Dim) -> Dim:
    (lhs_terms, lhs_constant), (rhs_terms, rhs_constant) = _terms(lhs), _terms(rhs)
    terms: dict[tuple[SymbolicDim, ...], int] = {}
    for lf, lc in [*lhs_terms.items(), ((), lhs_constant)]:
        for rf, rc in [*rhs_terms.items(), ((), rhs_constant)]:
            factors = tuple(sorted(lf + rf, key=repr))
            terms[factors] = terms.get(factors, 0) + lc * rc
    constant = terms.pop((), 0)
    return _from_terms(terms, constant)


def floordiv(numerator: Dim, denominator: Dim) -> Dim:
    """`numerator // denominator`; divides exactly where every coefficient allows it."""
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if denominator == 1:
        return numerator
    if numerator == denominator:
        return 1
    if isinstance(numerator, int) and numerator == 0:
        return 0
    terms, constant = _terms(numerator)
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


def _exact_quotient(terms: dict, constant: int, denominator: SymbolicDim) -> Dim | None:
    """Cancels a product of symbols, as in (batch*heads*64) // (batch*heads)."""
    d_terms, d_constant = _terms(denominator)
    if d_constant or len(d_terms) != 1 or constant:
        return None
    ((d_factors, d_coefficient),) = d_terms.items()
    quotient: dict[tuple[SymbolicDim, ...], int] = {}
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


def ceildiv(numerator: Dim, denominator: Dim) -> Dim:
    return floordiv(numerator + denominator - 1, denominator)


def dim_max(lhs: Dim, rhs: Dim) -> Dim:
    if isinstance(lhs, int) and isinstance(rhs, int):
        return max(lhs, rhs)
    return lhs if lhs == rhs else Extreme("max", lhs, rhs)


def dim_min(lhs: Dim, rhs: Dim) -> Dim:
    if isinstance(lhs, int) and isinstance(rhs, int):
        return min(lhs, rhs)
    return lhs if lhs == rhs else Extreme("min", lhs, rhs)


def product(dims) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = dim * result
    return result


def round_up(dim: Dim, multiple: int) -> Dim:
    return ceildiv(dim, multiple) * multiple


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dim with symbols replaced; symbols that are not in `values` stay."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Symbol):
        return values.get(dim.name, dim)
    if isinstance(dim, FloorDiv):
        return floordiv(substitute(dim.numerator, values), substitute(dim.denominator, values))
    if isinstance(dim, Extreme):
        combine = dim_max if dim.name == "max" else dim_min
        return combine(substitute(dim.lhs, values), substitute(dim.rhs, values))
    result: Dim = dim.constant
    for factors, coefficient in dim.terms:
        result = result + product(substitute(f, values) for f in factors) * coefficient
    return result


def symbols(dim: Dim) -> frozenset[str]:
    """Names of all symbols in the expression."""
    if isinstance(dim, Symbol):
        return frozenset({dim.name})
    if isinstance(dim, FloorDiv):
        return symbols(dim.numerator) | symbols(dim.denominator)
    if isinstance(dim, Extreme):
        return symbols(dim.lhs) | symbols(dim.rhs)
    if isinstance(dim, Sum):
        return frozenset().union(*(symbols(f) for factors, _ in dim.terms for f in factors))
    return frozenset()


def to_c(dim: Dim, names: Mapping[str, str] | None = None) -> str:
    """The expression as C over int64_t. `names` maps a symbol to the C expression that holds it."""
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, Symbol):
        return names[dim.name] if names else dim.name
    if isinstance(dim, FloorDiv):
        return f"({to_c(dim.numerator, names)}) / ({to_c(dim.denominator, names)})"
    if isinstance(dim, Extreme):
        return f"mgc_i64_{dim.name}({to_c(dim.lhs, names)}, {to_c(dim.rhs, names)})"
    parts = []
    for factors, coefficient in dim.terms:
        text = " * ".join(f"({to_c(f, names)})" if isinstance(f, (Sum, FloorDiv)) else to_c(f, names)
                          for f in factors)
        parts.append(text if coefficient == 1 else f"{coefficient} * {text}")
    if dim.constant:
        parts.append(str(dim.constant))
    return " + ".join(parts).replace("+ -", "- ")
