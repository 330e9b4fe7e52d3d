# SPDX-License-Identifier: Apache-2.0
"""TFLite's SOFTMAX of int16, computed in integers as by LiteRT's reference kernel. Exponentials, and the reciprocal of
their sum, are interpolated linearly in tables of 513 points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most
from ...ir.expr import FUNCTIONS
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register
from ..rules import axis_of

#: The points of a table; the longest axis: a sum of as many 15-bit exponentials fits in int32.
POINTS, MAX_LENGTH = 513, 2**16 - 1
#: The table of exponentials covers differences to the maximum from -10 to 0.
EXP_RANGE = 10.0


def interpolate(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Interpolates linearly in a table of 513 points, one for every 128th value of int16. Returns int64."""
    wide = values.astype(np.int64)
    base, rise = table.astype(np.int64)[:-1], np.diff(table.astype(np.int64))
    index = 256 + (wide >> 7)
    interpolated: np.ndarray = (base[index] + ((rise[index] * (wide & 127) + 64) >> 7)).astype(np.int64)
    return interpolated


@register
class SoftmaxWide(Operator):
    """TFLite's SOFTMAX of int16 along an axis. The result has x's type and the scale 2^-15.

    Operands: x int16 of any shape; tables int16 [2, 513], exp over [-10, 0] and 1 / (1 + x) over [0, 1], in units of
    2^-15. Attributes: `axis`; `significand` in Q0.31 and `shift`, the multiplier from differences of x to units of
    10 / 65535, which `rescale_fixed` (ir/expr.py) takes.
    """

    kind = "softmax_wide"
    operands = ("x", "tables")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, tables: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        if x.dtype != "int16" or (tables.dtype, tables.shape) != ("int16", (2, POINTS)):
            raise ShapeError(f"softmax of {x} with tables of {tables}")
        if not 0 <= attrs.significand < 2**31 or not -31 <= attrs.shift <= 30:
            raise ShapeError(f"a factor of {attrs.significand} * 2^{attrs.shift - 31}")
        require_at_most(x.shape[axis], MAX_LENGTH, f"a sum of {x.shape[axis]} exponentials exceeds its accumulator")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, ...]:
        wide = x.astype(np.int32)
        below = wide - wide.max(attrs.axis, keepdims=True, initial=-2**15)
        scaled = FUNCTIONS["rescale_fixed"].numpy(below, np.int64(attrs.significand), np.int64(attrs.shift))
        powers = interpolate(np.clip(scaled.astype(np.int64) + 2**15 - 1, -2**15, 2**15 - 1), tables[0])
        total = np.maximum(powers.sum(attrs.axis, keepdims=True), 1)
        # The sum is (1 + f) * 2^exponent, with f in [0, 1). 1 + f has 16 fraction bits. The index into the table of
        # 1 / (1 + f) is f in units of 2^-16, minus 2^15 to make it an int16.
        exponent = np.frexp(total.astype(np.float64))[1].astype(np.int64) - 1
        one_plus_f = ((total << (30 - exponent)) + (1 << 13)) >> 14
        inverse = interpolate(np.clip(one_plus_f - 2**16 - 2**15, -2**15, 2**15 - 1), tables[1])
        half = np.int64(1) << exponent >> 1
        return (np.clip((powers * inverse + half) >> exponent, 0, 2**15 - 1).astype(np.int16),)


def _table(function: Callable[[np.ndarray], np.ndarray], start: float, stop: float) -> np.ndarray:
    """Returns the function at 513 points in [start, stop], int16 in units of 2^-15. As in LiteRT's reference, each
    point except the last is corrected by half of the error that the line to the next one has in its middle."""
    step = (stop - start) / (POINTS - 1)
    points = start + np.arange(POINTS) * step
    values = function(points) * 2**15
    middles = function(points[:-1] + step / 2) * 2**15
    nearest = _round_half_away(values)
    errors = _round_half_away((values[1:] + nearest[:-1]) / 2) - _round_half_away(middles)
    nearest[:-1] -= _round_half_away(errors / 2)
    table: np.ndarray = np.clip(nearest, -2**15, 2**15 - 1).astype(np.int16)
    return table


def _round_half_away(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest, ties away from zero."""
    rounded: np.ndarray = np.sign(values) * np.floor(np.abs(values) + 0.5)
    return rounded


def tables() -> np.ndarray:
    """Returns the operand `tables`."""
    return np.stack([_table(np.exp, -EXP_RANGE, 0.0), _table(lambda x: 1 / (1 + x), 0.0, 1.0)])


def _case(shape: tuple[int, ...], axis: int, shift: int) -> Case:
    numbers = np.random.default_rng(axis).integers(-2**15, 2**15, shape)
    return Case(((shape, "int16"), ((2, POINTS), "int16")), {"axis": axis, "significand": 1500000001, "shift": shift},
                (1,), {0: numbers, 1: tables()})


SoftmaxWide.cases = (_case((3, 12), 1, -1), _case((2, 5, 7), 1, 0), _case((1, 1001), 1, -3), _case((4, 1), 1, 2),
                     _case((7, 3), 0, -6), _case((2, 6, 3, 5), 3, -2), _case((2, 6, 3, 5), 1, -2))
