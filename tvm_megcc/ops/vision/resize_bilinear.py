# SPDX-License-Identifier: Apache-2.0
"""The operator `resize_bilinear`: bilinear resizing of bytes, with the arithmetic of TFLite's reference kernels
(tensorflow/lite/kernels/internal/reference/resize_bilinear.h). The front end of TFLite emits it."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register

#: Fractions of int8 are multiples of 2^-10.
FRACTION_BITS = 10


@register
class ResizeBilinear(Operator):
    """Bilinear interpolation of int8 or uint8 along height and width.

    Operands: x int8 or uint8 [N, C, H, W]; for rows, then for columns, the indices of the neighbours below and above
    each position, int32 [extent of the result], and the fraction of the way between them. Result: x's dtype.

    Fractions of int8 are int32 in units of 2^-10, and sums of products are exact; they are rounded to the nearest, ties
    away from zero. Fractions of uint8 are float32: each element is multiplied by the factor of its row, rounded, then
    by that of its column; the four products are summed in the order of the columns, and ties round up.
    """

    kind = "resize_bilinear"
    operands = ("x", "row_lower", "row_upper", "row_fraction", "column_lower", "column_upper", "column_fraction")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, *tables: TensorType) -> tuple[TensorType, ...]:
        dtypes = ["int32", "int32", {"int8": "int32", "uint8": "float32"}.get(x.dtype)] * 2
        if x.rank != 4 or [table.dtype for table in tables] != dtypes or any(table.rank != 1 for table in tables):
            raise ShapeError(f"{x} is not resized by tables {', '.join(map(str, tables))}")
        rows, columns = tables[0].shape, tables[3].shape
        for table, shape in zip(tables, (rows,) * 3 + (columns,) * 3, strict=True):
            require_shape(table.shape, shape, f"tables {', '.join(map(str, tables))} differ in length")
        return (TensorType(x.dtype, (*x.shape[:2], *rows, *columns)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, ...]:
        row_lower, row_upper, y, column_lower, column_upper, right = tables
        down = y[:, None]
        if x.dtype == np.uint8:
            first, second = x[:, :, row_lower] * (1 - down), x[:, :, row_upper] * down
            total = first[..., column_lower] * (1 - right) + second[..., column_lower] * (1 - right) \
                + first[..., column_upper] * right + second[..., column_upper] * right
            return (np.clip(np.floor(total + np.float32(0.5)), 0, 255).astype(np.uint8),)
        steps = 1 << FRACTION_BITS
        rows = x[:, :, row_lower] * (steps - down) + x[:, :, row_upper] * down
        sums = rows[..., column_lower] * (steps - right) + rows[..., column_upper] * right
        rounded = (sums - (sums < 0) + steps * steps // 2) >> (2 * FRACTION_BITS)
        return (np.clip(rounded, -128, 127).astype(np.int8),)


def int8_tables(extent: int, size: int, corners: bool, half_pixel: bool) -> tuple[np.ndarray, ...]:
    """Returns the operands of `ResizeBilinear` for int8 along an axis: int32 indices below and above each position, and
    fractions between them in units of 2^-10. A position after the last element has its value.

    Args:
        extent, size: of the operand's and the result's axis.
        corners, half_pixel: TFLite's options AlignCorners and HalfPixelCenters.
    """
    steps = 1 << FRACTION_BITS
    over, under = (extent - 1, size - 1) if corners and size > 1 else (extent, size)
    scale = (steps * over + under // 2) // under
    coordinate = np.arange(size, dtype=np.int64) * scale + (scale // 2 - steps // 2 if half_pixel else 0)
    below = np.clip(np.trunc(coordinate / steps).astype(np.int64), 0, extent - 1)
    above = np.minimum(np.trunc((coordinate + steps - 1) / steps).astype(np.int64), extent - 1)
    return below.astype(np.int32), above.astype(np.int32), (coordinate - steps * below).astype(np.int32)


def uint8_tables(extent: int, size: int, corners: bool, half_pixel: bool) -> tuple[np.ndarray, ...]:
    """Returns the operands of `ResizeBilinear` for uint8 along an axis, like `int8_tables`, with float32 fractions."""
    aligned = corners and size > 1
    scale = np.float32(extent - 1 if aligned else extent) / np.float32(size - 1 if aligned else size)
    coordinate = np.arange(size, dtype=np.float32)
    coordinate = (coordinate + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel else coordinate * scale
    below = np.clip(np.floor(coordinate).astype(np.int64), 0, extent - 1)
    above = np.minimum(np.ceil(coordinate).astype(np.int64), extent - 1)
    return below.astype(np.int32), above.astype(np.int32), (coordinate - below.astype(np.float32)).astype(np.float32)


def _case(shape: tuple[int, ...], dtype: str, sizes: tuple[int, int], corners: bool = False, half_pixel: bool = False
          ) -> Case:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(shape[1]).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    make = int8_tables if dtype == "int8" else uint8_tables
    tables = [table for extent, size in zip(shape[2:], sizes, strict=True)
              for table in make(extent, size, corners, half_pixel)]
    return Case(((shape, dtype), *((table.shape, table.dtype.name) for table in tables)), {}, tuple(range(1, 7)),
                {0: x, **dict(enumerate(tables, 1))})


ResizeBilinear.cases = tuple(
    _case(shape, dtype, sizes, *options) for dtype in ("int8", "uint8") for shape, sizes, options in (
        ((1, 21, 5, 7), (9, 13), (True, False)), ((2, 3, 4, 5), (7, 9), (False, True)),
        ((1, 1, 6, 9), (3, 31), (False, False)), ((1, 37, 1, 3), (3, 1), (True, False)),
        ((2, 16, 2, 1), (1, 4), (False, True))))
