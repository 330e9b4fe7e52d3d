# SPDX-License-Identifier: Apache-2.0
"""Rows of a KV cache as they are stored: float32, float16, or int8 with a scale for each row.

A row has the keys or values of one token and one head. A row of int8 has n numbers and then its scale, a float32 in the
last four bytes, as blocks of llama.cpp's Q8_0 have theirs beside the numbers. So a cache is one tensor of any dtype,
which grows, is copied and is saved as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.dims import Dim
from .quantized.nbits import quantized_blocks

#: The dtypes that a cache may have.
CACHE_DTYPES = ("float32", "float16", "int8")
#: Elements of the scale at the end of a row of int8.
SCALE = 4


def stored_shape(shape: Sequence[Dim], dtype: str) -> tuple[Dim, ...]:
    """Returns the shape of a cache whose rows have the last extent as their numbers."""
    return (*shape[:-1], shape[-1] + SCALE) if dtype == "int8" else tuple(shape)


def numbers_shape(shape: Sequence[Dim], dtype: str) -> tuple[Dim, ...]:
    """Returns the shape of the numbers of a stored cache."""
    return (*shape[:-1], shape[-1] - SCALE) if dtype == "int8" else tuple(shape)


def stored_rows(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Returns float32 [..., n] as a cache of this dtype stores it. float16 is rounded to the nearest, ties to even;
    int8 is quantised as by `quantize_blocks`, with a block in each row."""
    if dtype != "int8":
        with np.errstate(over="ignore"):
            return rows.astype(dtype)
    q, scale = quantized_blocks(rows)
    return np.concatenate([q, scale[..., None].view(np.int8)], -1)


def widened_rows(stored: np.ndarray) -> np.ndarray:
    """Returns the numbers of stored rows as float32; those of int8 are rounded once, after the product with the
    scale."""
    if stored.dtype != np.int8:
        return stored.astype(np.float32)
    scale = np.ascontiguousarray(stored[..., -SCALE:]).view(np.float32)
    with np.errstate(all="ignore"):
        values: np.ndarray = stored[..., :-SCALE].astype(np.float32) * scale
    return values
