# SPDX-License-Identifier: Apache-2.0
"""Extents of tensors: an int if known, else an expression over the model's shape symbols.

A shape rule is written once, over `Dim`. On ints it computes a number. On symbols it builds an expression in normal
form (a sum of products), which the run-time shape function computes in C. Arithmetic is that of Python (`//` and `%`
round towards minus infinity). In C, `//` requires non-negative operands, which extents are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Union, overload

from ..errors import ShapeError

#: The largest number of leaves of an expression, and the largest nesting depth. Real networks have some tens; a
#: malicious model could have any number, by multiplying extents with themselves or nesting `min` and `+`.
MAX_LEAVES, MAX_DEPTH = 1000, 60
_TOO_LARGE = "an extent depends on the input shapes in too long a formula; give fixed input shapes"


class SymbolicDim:
    """The base class of expressions: immutable, hashable, compared by structure.

    leaves, depth: the number of leaves, and the nesting depth.
    """

    leaves = 1
    depth = 1

    def _measure(self, leaves: int, operands: Iterable[Dim]) -> None:
        """Sets `leaves` and `depth`. leaves: those that are not in operands. Raises ShapeError for a too large
        expression."""
        depth = 0
        for operand in operands:
            if isinstance(operand, SymbolicDim):
                leaves, depth = leaves + operand.leaves, max(depth, operand.depth)
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
    """A dimension with a name, such as `batch`, or an unbacked symbol: an extent that a run computes.

    Symbols with the same name are equal; the other fields are not compared.

    likely: the value that speed is optimised for.
    least: the lower bound: 0 for an unbacked symbol and for dimensions that may be empty, else 1.
    """

    name: str
    likely: int = field(default=1, compare=False)
    least: int = field(default=1, compare=False)

    def __repr__(self) -> str:
        return self.name


#: A product of symbols (sorted factors) -> its coefficient in a sum.
Terms = dict[tuple[SymbolicDim, ...], int]


@dataclass(frozen=True)
class Sum(SymbolicDim):
    """A sum `constant + coefficient * product + …`. terms: (factors of a product, coefficient), sorted and distinct."""

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
    """A quotient `numerator // denominator`."""

    numerator: Dim
    denominator: Dim

    def __post_init__(self) -> None:
        self._measure(1, (self.numerator, self.denominator))

    def __repr__(self) -> str:
        return f"{_atom(self.numerator)}//{_atom(self.denominator)}"


@dataclass(frozen=True)
class Extreme(SymbolicDim):
    """The minimum or maximum of two dims. name: "min" or "max"."""

    name: str
    lhs: Dim
    rhs: Dim

    def __post_init__(self) -> None:
        self._measure(1, (self.lhs, self.rhs))

    def __repr__(self) -> str:
        return f"{self.name}({self.lhs!r}, {self.rhs!r})"


def _atom(dim: Dim) -> str:
    """Returns the text of an operand, in parentheses if it is a sum or quotient."""
    return f"({dim!r})" if isinstance(dim, (Sum, FloorDiv)) else repr(dim)


def _terms(dim: Dim) -> tuple[Terms, int]:
    """Returns a dim as the terms and the constant of a sum."""
    if isinstance(dim, int):
        return {}, dim
    if isinstance(dim, Sum):
        return dict(dim.terms), dim.constant
    return {(dim,): 1}, 0


def _from_terms(terms: Terms, constant: int) -> Dim:
    """Returns a sum in normal form: an int if no term remains, a single factor without `Sum`."""
    nonzero = sorted(((factors, coefficient) for factors, coefficient in terms.items() if coefficient),
                     key=lambda term: (len(term[0]), repr(term[0])))
    if not nonzero:
        return constant
    factors, coefficient = nonzero[0]
    if not constant and len(nonzero) == 1 and coefficient == 1 and len(factors) == 1:
        return factors[0]
    return Sum(tuple(nonzero), constant)


def _add(lhs: Dim, rhs: Dim) -> Dim:
    terms, constant = _terms(lhs)
    for factors, coefficient in _terms(rhs)[0].items():
        terms[factors] = terms.get(factors, 0) + coefficient
    return _from_terms(terms, constant + _terms(rhs)[1])


def _mul(lhs: Dim, rhs: Dim) -> Dim:
    """Returns the product of two dims, multiplied out."""
    (lhs_terms, lhs_constant), (rhs_terms, rhs_constant) = _terms(lhs), _terms(rhs)
    terms: Terms = {}
    if len(lhs_terms) * len(rhs_terms) > MAX_LEAVES:
        raise ShapeError(_TOO_LARGE)
    for lhs_factors, lhs_coefficient in [*lhs_terms.items(), ((), lhs_constant)]:
        for rhs_factors, rhs_coefficient in [*rhs_terms.items(), ((), rhs_constant)]:
            factors = tuple(sorted(lhs_factors + rhs_factors, key=repr))
            terms[factors] = terms.get(factors, 0) + lhs_coefficient * rhs_coefficient
    constant = terms.pop((), 0)
    return _from_terms(terms, constant)


@overload
def floordiv(numerator: int, denominator: int) -> int: ...
@overload
def floordiv(numerator: Dim, denominator: Dim) -> Dim: ...
def floordiv(numerator: Dim, denominator: Dim) -> Dim:
    """Returns `numerator // denominator`. Terms whose coefficients the denominator divides are divided exactly."""
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
        divisible = {f: c // denominator for f, c in terms.items() if c % denominator == 0}
        remainder = {f: c for f, c in terms.items() if c % denominator}
        if not remainder:
            return _from_terms(divisible, constant // denominator)
        if divisible:
            return _add(_from_terms(divisible, constant // denominator),
                        FloorDiv(_from_terms(remainder, constant % denominator), denominator))
    elif isinstance(denominator, SymbolicDim):
        quotient = _exact_quotient(terms, constant, denominator)
        if quotient is not None:
            return quotient
    return FloorDiv(numerator, denominator)


def _nested_quotient(terms: Terms, constant: int, denominator: Dim) -> Dim | None:
    """Returns (a//b + c) // d, which occurs for windows of windows, as (a + b*c) // (b*d), for positive b and d; None
    for a numerator of another form."""
    if len(terms) != 1 or not isinstance(denominator, int) or denominator < 1:
        return None
    ((factors, coefficient),) = terms.items()
    inner = factors[0]
    if coefficient != 1 or len(factors) != 1 or not isinstance(inner, FloorDiv) \
            or not isinstance(inner.denominator, int) or inner.denominator < 1:
        return None
    return floordiv(inner.numerator + inner.denominator * constant, inner.denominator * denominator)


def _exact_quotient(terms: Terms, constant: int, denominator: SymbolicDim) -> Dim | None:
    """Returns a quotient by cancelling a common product of symbols, as in (batch*heads*64) // (batch*heads), or the
    whole denominator, as in (512*batch*frames - 3072*batch) // (batch*frames - 6*batch); None if neither is possible.
    """
    d_terms, d_constant = _terms(denominator)
    if terms.keys() == d_terms.keys():
        factor_ = next(terms[factors] // d_terms[factors] for factors in terms)
        if constant == factor_ * d_constant and all(terms[factors] == factor_ * d_terms[factors] for factors in terms):
            return factor_
    if d_constant or len(d_terms) != 1 or constant:
        return None
    ((d_factors, d_coefficient),) = d_terms.items()
    quotient: Terms = {}
    constant_quotient = 0
    for factors, coefficient in terms.items():
        remaining = list(factors)
        for factor in d_factors:
            if factor not in remaining:
                return None
            remaining.remove(factor)
        if coefficient % d_coefficient:
            return None
        if remaining:
            quotient[tuple(remaining)] = coefficient // d_coefficient
        else:
            constant_quotient = coefficient // d_coefficient
    return _from_terms(quotient, constant_quotient)


@overload
def ceildiv(numerator: int, denominator: int) -> int: ...
@overload
def ceildiv(numerator: Dim, denominator: Dim) -> Dim: ...
def ceildiv(numerator: Dim, denominator: Dim) -> Dim:
    """Returns the quotient, rounded up."""
    return floordiv(numerator + denominator - 1, denominator)


@overload
def dim_max(lhs: int, rhs: int) -> int: ...
@overload
def dim_max(lhs: Dim, rhs: Dim) -> Dim: ...
def dim_max(lhs: Dim, rhs: Dim) -> Dim:
    """Returns the larger of two extents."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        return max(lhs, rhs)
    return lhs if lhs == rhs else Extreme("max", lhs, rhs)


@overload
def dim_min(lhs: int, rhs: int) -> int: ...
@overload
def dim_min(lhs: Dim, rhs: Dim) -> Dim: ...
def dim_min(lhs: Dim, rhs: Dim) -> Dim:
    """Returns the smaller of two extents."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        return min(lhs, rhs)
    return lhs if lhs == rhs else Extreme("min", lhs, rhs)


#: `Extreme.name` -> its function.
COMBINED = {"max": dim_max, "min": dim_min}


def static(dims: Iterable[Dim]) -> tuple[int, ...] | None:
    """Returns the extents as numbers, or None if one of them is symbolic."""
    extents = tuple(dims)
    numbers = tuple(dim for dim in extents if isinstance(dim, int))
    return numbers if len(numbers) == len(extents) else None


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
    """Returns the product of extents; 1 if there are none."""
    result: Dim = 1
    for dim in dims:
        result = dim * result
    return result


@overload
def round_up(dim: int, multiple: int) -> int: ...
@overload
def round_up(dim: Dim, multiple: int) -> Dim: ...
def round_up(dim: Dim, multiple: int) -> Dim:
    """Returns the extent, rounded up to a multiple."""
    return ceildiv(dim, multiple) * multiple


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Returns the dim with its symbols replaced by `values`; symbols that are not in `values` stay."""
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
    return dim if isinstance(dim, int) else evaluate(dim, {s.name: s.likely for s in symbols_of(dim)})


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """Returns the value of the dim for these values of its symbols.

    Raises:
        ShapeError: for a symbol that `values` does not have.
    """
    return number(substitute(dim, values))


def differ(a: Dim, b: Dim) -> bool:
    """Returns whether two extents differ for some sample values of their symbols.

    Equal expressions can have different normal forms, so they are compared on samples. The samples have many divisors,
    because some expressions are equal only for valid inputs, such as multiples of 32. Extents with unbacked symbols
    never count as different.
    """
    if a == b or may_be_zero(a, b):
        return False
    names = sorted(symbols(a) | symbols(b))
    return any(substitute(a, point) != substitute(b, point) for point in (
        {name: _SAMPLES[(i + j) % len(_SAMPLES)] for j, name in enumerate(names)} for i in range(len(_SAMPLES))))


def may_be_zero(*dims: Dim) -> bool:
    """Returns whether one of the extents depends on a symbol that may be 0, such as an unbacked symbol."""
    return any(symbol.least == 0 for dim in dims for symbol in symbols_of(dim))


#: Large numbers with many divisors: 2520 and 5040 are divisible by 1 to 10, 27720 is by 1 to 12. The powers of two are
#: divisible by strides and block sizes.
_SAMPLES = (2520 * 64, 5040 * 256, 27720 * 128)


def symbols(dim: Dim) -> frozenset[str]:
    """Returns the names of all symbols in the expression."""
    return frozenset(symbol.name for symbol in symbols_of(dim))


def symbols_of(dim: Dim) -> frozenset[Symbol]:
    """Returns the symbols in the expression, with their bounds and likely values."""
    if isinstance(dim, Symbol):
        return frozenset({dim})
    if isinstance(dim, FloorDiv):
        return symbols_of(dim.numerator) | symbols_of(dim.denominator)
    if isinstance(dim, Extreme):
        return symbols_of(dim.lhs) | symbols_of(dim.rhs)
    if isinstance(dim, Sum):
        return frozenset().union(*(symbols_of(f) for factors, _ in dim.terms for f in factors))
    return frozenset()


def to_c(dim: Dim, names: Mapping[str, str] | None = None) -> str:
    """Returns the expression as C over int64_t, in the saturating arithmetic of megcc_kernel.h.

    Args:
        names: symbol -> C expression of its value; default: the symbol's name.
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
        parts.append(_balanced_calls("mul", [*([str(coefficient)] if coefficient != 1 else []), *strings]))
    return _balanced_calls("add", parts + ([str(dim.constant)] if dim.constant else []))


def _balanced_calls(name: str, strings: list[str]) -> str:
    """Returns `megcc_size_NAME` over all operands as a balanced tree of binary calls, which limits the nesting in C."""
    if len(strings) == 1:
        return strings[0]
    middle = len(strings) // 2
    return f"megcc_size_{name}({_balanced_calls(name, strings[:middle])}, {_balanced_calls(name, strings[middle:])})"
