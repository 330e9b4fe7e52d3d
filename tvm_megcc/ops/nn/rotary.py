# SPDX-License-Identifier: Apache-2.0
"""Rotary position embeddings (Su et al. 2021)."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, f32, register


@register
class Rotary(Operator):
    """Rotates pairs of the first 2 * P elements of each row by angles; elements after them stay as they are.

    Operands, of one dtype of floats: x [B, N, S, H]; cosines and sines of the angles, both [B, N, S, P], where an
    extent may be 1 instead. Result: as x. Attribute `interleaved`: whether a pair is two neighbours, 2 * i and
    2 * i + 1; else it is i and P + i.
    """

    kind = "rotary"
    operands = ("x", "cos", "sin")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, cos: TensorType, sin: TensorType) -> tuple[TensorType, ...]:
        is_float = x.dtype.startswith(("float", "bfloat"))
        if cos != sin or {x.rank, cos.rank} != {4} or x.dtype != cos.dtype or not is_float:
            raise ShapeError(f"rotates rows of {x} by angles of {cos} and {sin}")
        for angles, extent in zip(cos.shape[:3], x.shape[:3], strict=True):
            if angles != 1:
                require_equal(angles, extent, f"angles of {cos} for rows of {x}")
        require_at_most(cos.shape[3] * 2, x.shape[3], f"rows of {x} have fewer elements than pairs of {cos}")
        return (x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, ...]:
        y, pairs = x.copy(), cos.shape[3]
        first, second = (np.s_[..., 0:2 * pairs:2], np.s_[..., 1:2 * pairs:2]) if attrs.interleaved else \
            (np.s_[..., :pairs], np.s_[..., pairs:2 * pairs])
        a, b = x[first], x[second]
        y[first], y[second] = a * cos - b * sin, a * sin + b * cos
        return (y,)


def _case(x: tuple[int, ...], angles: tuple[int, ...], interleaved: bool) -> Case:
    return Case((f32(*x), f32(*angles), f32(*angles)), {"interleaved": interleaved})


Rotary.cases = tuple(
    _case(x, angles, interleaved) for interleaved in (False, True)
    for x, angles in (((1, 3, 1, 64), (1, 1, 1, 32)), ((2, 3, 5, 38), (1, 1, 5, 19)), ((2, 3, 4, 13), (2, 1, 4, 5)),
                      ((1, 2, 3, 8), (1, 2, 1, 4))))
