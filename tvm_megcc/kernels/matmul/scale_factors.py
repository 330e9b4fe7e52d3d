# SPDX-License-Identifier: Apache-2.0
"""Scales that are products of a small integer and a float16 that several blocks share, as those of K-quants of GGUF."""

from __future__ import annotations

import numpy as np

#: The elements of a row that share a float16: a super-block of GGUF.
SUPER_BLOCK = 256
#: The bits of a float32's significand.
_SIGNIFICAND = 24


def scale_factors(values: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors scales or offsets of blocks of `block` elements.

    A float32 is an integer times a power of two. The greatest common divisor of the integers of a super-block is the
    shared float16 times that of its small integers, if there are any such factors.

    Args:
        values: float32 [rows, blocks]. Rows are whole super-blocks.

    Returns:
        float16 [rows, super-blocks] and int8 [rows, blocks], whose products are the values exactly; None if some values
        have no such factors.
    """
    if len(values) > 1 and scale_factors(values[:1], block) is None:  # at once, for scales of other kinds
        return None
    together = SUPER_BLOCK // block
    by_super_block = values.reshape(-1, together).astype(np.float64)
    exponents = np.frexp(by_super_block)[1]
    lowest = np.where(by_super_block == 0, np.iinfo(np.int32).max, exponents).min(1)
    lowest = np.where(lowest == np.iinfo(np.int32).max, 0, lowest)
    # Small integers have at most 8 bits: the exponents of their products differ by no more.
    highest = exponents.max(1, where=by_super_block != 0, initial=-9999)
    if not np.isfinite(by_super_block).all() or (highest > lowest + 8).any():
        return None
    integers = np.ldexp(by_super_block, _SIGNIFICAND - lowest[:, None]).astype(np.int64)
    divisor = np.gcd.reduce(integers, 1)
    ratios = integers // np.maximum(divisor, 1)[:, None]
    sign = np.where(ratios.max(1) > -ratios.min(1), -1, 1)  # int8 has one more negative number
    ratios, signed = ratios * sign[:, None], np.ldexp((divisor * sign).astype(np.float64), lowest - _SIGNIFICAND)
    shared, small = np.zeros(len(ratios), np.float16), np.zeros(ratios.shape, np.int8)
    missing = np.arange(len(ratios))
    for factor in range(1, 129):
        with np.errstate(over="ignore"):
            candidate = (signed[missing] / factor).astype(np.float16)
            scaled = ratios[missing] * factor
            found = (candidate.astype(np.float64) * factor == signed[missing]) & (scaled.min(1) >= -128) \
                & (scaled.max(1) <= 127)
        shared[missing[found]], small[missing[found]] = candidate[found], scaled[found]
        missing = missing[~found]
        if not missing.size:
            return shared.reshape(len(values), -1), small.reshape(values.shape)
    return None
