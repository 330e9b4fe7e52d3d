# SPDX-License-Identifier: Apache-2.0
"""The storage formats of a KV cache's rows: float32, float16, or int8 with a scale for each row.

A row holds the key or the value of one token in one head. A row of int8 is n int8 numbers followed by their scale, a
float32 in four more bytes; llama.cpp's Q8_0 likewise stores a scale with each block. So a cache of any format is one
tensor, which is appended to, copied and saved as such.

A cache has the rows of all tokens, or is a ring buffer: with R rows, row t % R is that of token t, until a later token
overwrites it. So a layer whose tokens attend to a window of keys needs no rows for all keys.

A ring buffer may come after K rows that stay, the attention sinks of StreamingLLM (Xiao et al. 2023): row t is that of
token t < K, and row K + (t - K) % (R - K) that of a later one. So a text has no end: tokens attend to its first K
tokens and to the last R - K ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.dims import Dim
from .quantized.nbits import quantize_activation_blocks

#: The dtypes that a cache may have.
CACHE_DTYPES = ("float32", "float16", "int8")
#: The rows of a ring buffer are a multiple of this number: that of the keys whose scores kernels of attention have in
#: workspace at a time. So these are neighbours, and sums are split as for a cache with the rows of all tokens.
RING_BLOCK = 256
#: The number of int8 elements that hold the float32 scale at the end of a row.
SCALE_ELEMENTS = 4


def stored_shape(shape: Sequence[Dim], dtype: str) -> tuple[Dim, ...]:
    """Returns the shape of the stored cache, [..., n] or, for int8, [..., n + 4], of rows [..., n]."""
    return (*shape[:-1], shape[-1] + SCALE_ELEMENTS) if dtype == "int8" else tuple(shape)


def numbers_shape(shape: Sequence[Dim], dtype: str) -> tuple[Dim, ...]:
    """Returns the shape of the rows, [..., n], of a stored cache; the inverse of `stored_shape`."""
    return (*shape[:-1], shape[-1] - SCALE_ELEMENTS) if dtype == "int8" else tuple(shape)


def ring_rows(window: int, new: int) -> int:
    """Returns the rows of a ring buffer for a window of this many keys, if a run appends at most `new` rows: when it
    has appended them, the window of its first token must still be there."""
    return -(-(window + new - 1) // RING_BLOCK) * RING_BLOCK


def stored_rows(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Converts rows float32 [..., n] to the storage format of a dtype. float16 is rounded to the nearest, ties to even;
    int8 is quantised as by the operator quantize_blocks, with each row as a block."""
    if dtype != "int8":
        with np.errstate(over="ignore"):
            return rows.astype(dtype)
    q, scale = quantize_activation_blocks(rows)
    return np.concatenate([q, scale[..., None].view(np.int8)], -1)


def widened_rows(stored: np.ndarray) -> np.ndarray:
    """Converts stored rows to float32 [..., n]. A number of int8 is rounded once, after the product with the scale."""
    if stored.dtype != np.int8:
        return stored.astype(np.float32)
    scale = np.ascontiguousarray(stored[..., -SCALE_ELEMENTS:]).view(np.float32)
    with np.errstate(all="ignore"):
        values: np.ndarray = stored[..., :-SCALE_ELEMENTS].astype(np.float32) * scale
    return values
