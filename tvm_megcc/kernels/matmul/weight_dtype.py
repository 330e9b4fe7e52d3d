# SPDX-License-Identifier: Apache-2.0
"""Chooses the dtype in which the constant matrix of a product is stored. A kernel widens 16-bit floats when it loads
them, so the results have the same bits as with float32."""

from __future__ import annotations

import numpy as np

from ..site import Site, once

#: The elements of a matrix from which on half of its memory is worth a conversion at each load.
MIN_ELEMENTS = 4096


@once
def weight_dtype(site: Site) -> str:
    """Returns the dtype in which operand 1 of a product is stored: "float16" or "bfloat16" if it represents all numbers
    exactly and the ISA widens it in a few instructions, else "", the operand's own."""
    weights = site.values.get(1)
    if weights is None or weights.dtype != np.float32 or weights.size < MIN_ELEMENTS or not site.isa.widens_16_bits:
        return ""
    return "float16" if fits_float16(weights) else "bfloat16" if fits_bfloat16(weights) else ""


def fits_float16(array: np.ndarray) -> bool:
    """Returns whether float16 represents all elements exactly; False if one is NaN."""
    with np.errstate(over="ignore"):
        return np.array_equal(array.astype(np.float16).astype(np.float32), array)


def fits_bfloat16(array: np.ndarray) -> bool:
    """Returns whether bfloat16, the upper half of a float32, represents all elements exactly."""
    return not np.any(np.ascontiguousarray(array).view(np.uint32) & 0xffff)
