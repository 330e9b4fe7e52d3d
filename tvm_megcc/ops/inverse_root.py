# SPDX-License-Identifier: Apache-2.0
"""1 / sqrt of whole numbers in fixed point, as TFLite's reference kernels compute it."""

from __future__ import annotations

import numpy as np

from .softmax_fixed import doubling_high, halved

#: Newton's steps; sqrt(2) / 2 in Q0.31.
STEPS, HALF_ROOT = 5, 1518500250


def inverse_root(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Significands and shifts of int32 that are not negative, as `rescale_fixed` takes them; of 0 those of 1."""
    small = np.asarray(values, np.int64)
    wide = np.maximum(small, 2)
    shift = np.full(wide.shape, 11, np.int64)
    while (wide >= 1 << 29).any():
        shift += wide >= 1 << 29
        wide = np.where(wide >= 1 << 29, wide // 4, wide)
    pairs = (31 - np.frexp(wide.astype(np.float64))[1]) // 2 - 1
    shift -= pairs
    whole = wide << (2 * pairs)
    half = halved(whole >> 1, 1)
    x = np.full(wide.shape, 1 << 28, np.int64)
    for _ in range(STEPS):
        cube = _left(doubling_high(doubling_high(x, x), x), 6)
        x = _left(doubling_high(np.int64(3 << 27), x) - doubling_high(half, cube), 3)
    significand = doubling_high(x, np.int64(HALF_ROOT))
    significand, shift = significand << np.maximum(-shift, 0), np.maximum(shift, 0)
    one = small <= 1
    return np.where(one, 2**31 - 1, significand), np.where(one, 0, -shift)


def _left(a: np.ndarray, bits: int) -> np.ndarray:
    return np.clip(a << bits, -2**31, 2**31 - 1)
