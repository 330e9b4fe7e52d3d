# SPDX-License-Identifier: Apache-2.0
"""Divisions by a constant as two products have the bits of divisions."""

from fractions import Fraction

import numpy as np
import pytest

from tvm_megcc.ir.reciprocals import _float32, _risky, reciprocal


@pytest.mark.parametrize("divisor", [float(np.float32(value)) for value in (
    1 / 255, 1 / 127, 0.1, -0.0235, 3.0, 7.0, 48.137978, 1.2330310e-05, 0.99999994, 2.2204461e-10)])
def test_products_have_the_bits_of_divisions(divisor):
    high, low = reciprocal(divisor)
    random = np.random.default_rng(0).integers(2**23, 2**24, 200)
    for x in (*_risky(abs(Fraction(divisor))), *map(Fraction, map(int, random))):
        product = _float32(x * Fraction(abs(low)))
        assert _float32(x * Fraction(abs(high)) + product) == _float32(x / abs(Fraction(divisor)))
        assert _float32(x / abs(Fraction(divisor))) == Fraction(abs(float(np.float32(int(x)) / np.float32(divisor))))
    assert np.float32(np.inf) * np.float32(low) == np.copysign(np.float32(np.inf), divisor)


def test_the_numbers_that_are_tried_are_all_that_are_nearest_to_halfway():
    divisor = Fraction(float(np.float32(1 / 255)))
    x = np.arange(2**23, 2**24, dtype=np.int64)
    significand = int(divisor * 2**31)
    tried = {int(number) for number in _risky(divisor)}
    for shift in (24, 25):
        doubled = (x << shift + 1) // significand
        near = [number for number, halfway in zip(x[:200000].tolist(), doubled[:200000].tolist(), strict=True)
                if abs((number << shift) - significand * (halfway + 1 >> 1)) <= 16 and (halfway + 1 >> 1) % 2
                and 2**24 <= (halfway + 1 >> 1) < 2**25]
        assert set(near) <= tried


@pytest.mark.parametrize("divisor", [1.0, 0.25, -8.0, 0.0, float("inf"), float("nan"), 1e-30, 1e30])
def test_divisors_without_a_reciprocal(divisor):
    assert reciprocal(divisor) is None
