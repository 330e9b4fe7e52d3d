# SPDX-License-Identifier: Apache-2.0
"""Append: writes rows after the valid ones of a tensor with spare capacity, such as a KV cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, f32, register
from ..rules import same_dtype


def _case(shape: tuple[int, ...], count: int, axis: int, at: int, dtype: str = "float32") -> Case:
    rows = tuple(count if i == axis else extent for i, extent in enumerate(shape))
    return Case(((shape, dtype), (rows, dtype), ((1,), "int64")), {"axis": axis}, values={2: np.array([at])})


@register
class Append(Operator):
    """y = x with y[…, at + i, …] = rows[…, i, …] along `axis`; at: int64 [1]. A run whose rows do not fit fails."""

    kind = "append"
    operands = ("x", "rows", "at")
    cases = (Case((f32(2, 3, 8, 4), f32(2, 3, 2, 4), ((1,), "int64")), {"axis": 2}, values={2: np.array([6])}),
             _case((1, 5, 7, 3), 1, 2, 0), _case((2, 9), 4, 1, 3, "float16"), _case((6, 5), 6, 0, 0, "int8"))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, rows: TensorType, at: TensorType) -> tuple[TensorType, ...]:
        same_dtype(x, rows)
        if at.dtype != "int64" or at.size != 1 or rows.rank != x.rank:
            raise ShapeError(f"rows {rows} at {at} of {x}")
        for axis, (extent, count) in enumerate(zip(x.shape, rows.shape, strict=True)):
            if axis == attrs.axis:
                require_at_most(count, extent, f"rows {rows} for {x}")
            else:
                require_equal(count, extent, f"rows {rows} for {x}")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, rows: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, ...]:
        first, result = int(at.reshape(())), x.copy()
        if not 0 <= first <= x.shape[attrs.axis] - rows.shape[attrs.axis]:
            raise ShapeError(f"{rows.shape[attrs.axis]} rows do not fit from {first} on into {x.shape[attrs.axis]}")
        result[(slice(None),) * attrs.axis + (slice(first, first + rows.shape[attrs.axis]),)] = rows
        return (result,)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        x, rows = inputs[:2]
        return {2: (0, x.shape[attrs.axis] - rows.shape[attrs.axis])}  # type: ignore[union-attr]

    @staticmethod
    def overwrites(attrs: Attrs) -> bool:
        return True
