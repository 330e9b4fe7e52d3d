# SPDX-License-Identifier: Apache-2.0
"""Divisions by a constant in two operations, a product and a fused product with a sum, with the bits of the division.

The algorithm is that of Brisebarre, Muller and Raina ("Accelerating correctly rounded floating-point division when the
divisor is known in advance", IEEE Transactions on Computers 53, 2004): 1 / d is split into two float32, high + low, and
x / d is fused(x * high + round(x * low)). That is the correctly rounded quotient unless x / d is so close to a number
halfway between two float32 that the error of the sum crosses it. A divisor has few such x, which `reciprocal` tries.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

#: Bits of a float32's significand.
_BITS = 24
#: Divisors beyond these have reciprocals whose low part, or whose product with a float32 of usual size, is subnormal.
_SMALLEST, _LARGEST = 2.0**-60, 2.0**60
#: The error of the sum, x * (1 / d - high - low) and the rounding of x * low, is below 2^-45 of x / d; so for x whose
#: quotient lies nearer than that to halfway between two float32, |X * 2^s - D * M| <= 16 (`_risky` has these integers).
_REACH = 16


@lru_cache(maxsize=4096)
def reciprocal(divisor: float) -> tuple[float, float] | None:
    """Returns two float32, high and low, for which float32(x * high + float32(x * low)), rounded twice in all, is the
    float32 quotient x / divisor of every float32 x: to the last bit if |x / divisor| >= 2^-100, and infinite and NaN
    where the quotient is. None if there are none.

    Args:
        divisor: a float32; a power of two has none, because a product with its reciprocal is exact.
    """
    if not _SMALLEST <= abs(divisor) <= _LARGEST:
        return None
    exact = 1 / Fraction(abs(divisor))
    high = _float32(exact)
    if high > exact:    # both parts have the same sign, so that infinite x have a sum
        high = Fraction(float(np.nextafter(np.float32(high), np.float32(0))))
    if high == exact:
        return None
    risky = _risky(Fraction(abs(divisor)))
    low = np.float32(float(exact - high))
    for candidate in (low, np.nextafter(low, np.float32(0)), np.nextafter(low, np.float32(1e30))):
        if all(_float32(x * high + _float32(x * Fraction(float(candidate)))) == _float32(x * exact) for x in risky):
            sign = 1 if divisor > 0 else -1
            return sign * float(high), sign * float(candidate)
    return None


def _risky(divisor: Fraction) -> list[Fraction]:
    """Returns all significands of x, in [2^23, 2^24), for which x / divisor is nearest to halfway between two float32.

    With the significand D of the divisor, an odd M of 25 bits that is twice the number halfway, and s = 24 or 25 so
    that the quotient has its place, X * 2^s - D * M = r is small. So M is -r / D modulo 2^s.
    """
    while divisor.denominator > 1 or divisor < 2**(_BITS - 1):
        divisor *= 2
    while divisor >= 2**_BITS:
        divisor /= 2
    significand = int(divisor)
    twos = (significand & -significand).bit_length() - 1
    found = set()
    for shift in (_BITS, _BITS + 1):
        modulus = 2**(shift - twos)
        inverse = pow(significand >> twos, -1, modulus)
        for rest in range(-_REACH, _REACH + 1):
            if rest == 0 or rest % 2**twos:
                continue
            first = -(rest >> twos) * inverse % modulus
            for halfway in range(first, 2**(_BITS + 1), modulus):
                x = (significand * halfway + rest) >> shift
                if halfway >= 2**_BITS and 2**(_BITS - 1) <= x < 2**_BITS:
                    found.add(Fraction(x))
    return sorted(found)


def _float32(value: Fraction) -> Fraction:
    """Rounds a positive number to float32, ties to even, as if exponents had no limits."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - _BITS
    scale = Fraction(2)**exponent
    if value / scale >= 2**_BITS:
        scale *= 2
    return round(value / scale) * scale
