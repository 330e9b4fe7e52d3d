# SPDX-License-Identifier: Apache-2.0
"""int16 softmax in integers, as in TFLite's reference kernel. Exponentials, and the reciprocal of their sum, are
interpolated linearly in tables of 513 points."""

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

#: The points of a table; the most 15-bit exponentials whose sum fits in int32.
POINTS, LONGEST = 513, 2**16 - 1
#: int16 differences to the maximum cover the range from -10 to 0.
LEAST = 10.0


def between(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Interpolates linearly in a table of 513 points, one for every 128th value of int16."""
    wide = values.astype(np.int64)
    base, rise = table.astype(np.int64)[:-1], np.diff(table.astype(np.int64))
    index = 256 + (wide >> 7)
    between: np.ndarray = (base[index] + ((rise[index] * (wide & 127) + 64) >> 7)).astype(np.int64)
    return between


@register
class SoftmaxWide(Operator):
    """Softmax along attribute `axis` of x, int16. The result's scale is 2^-15.

    Operand `tables`: int16 [2,513], exp over [-10, 0] and 1 / (1 + x) over [0, 1], in units of 2^-15. Attributes
    `significand`, `shift`: the multiplier from differences of x to units of 10 / 65535, as `rescale_fixed` takes it.
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
        require_at_most(x.shape[axis], LONGEST, f"sums of {x.shape[axis]} exponentials have no room")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, ...]:
        wide = x.astype(np.int32)
        below = wide - wide.max(attrs.axis, keepdims=True, initial=-2**15)
        scaled = FUNCTIONS["rescale_fixed"].numpy(below, np.int64(attrs.significand), np.int64(attrs.shift))
        powers = between(np.clip(scaled.astype(np.int64) + 2**15 - 1, -2**15, 2**15 - 1), tables[0])
        total = np.maximum(powers.sum(attrs.axis, keepdims=True), 1)
        bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
        significand = ((total << (31 - bits)) + (1 << 13)) >> 14
        inverse = between(np.clip(significand - 3 * 2**15, -2**15, 2**15 - 1), tables[1])
        right = bits - 1
        return (np.clip((powers * inverse + (np.int64(1) << right >> 1)) >> right, 0, 2**15 - 1).astype(np.int16),)


def _table(function: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> np.ndarray:
    """Returns the function at 513 points in [low, high], in units of 2^-15. As in TFLite's reference, each point except
    the last is corrected by half of the error that the line to the next one has in its middle."""
    points = low + np.arange(POINTS) * ((high - low) / (POINTS - 1))
    values = function(points) * (2**16 / ((2**16 - 1) * (2.0 / (2**16 - 1))))
    middles = function(points[:-1] + (high - low) / (POINTS - 1) / 2) * 2**15
    nearest = _rounded(values)
    beyond = _rounded((values[1:] + nearest[:-1]) / 2) - _rounded(middles)
    nearest[:-1] -= _rounded(beyond / 2)
    table: np.ndarray = np.clip(nearest, -2**15, 2**15 - 1).astype(np.int16)
    return table


def _rounded(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest, ties away from zero."""
    rounded: np.ndarray = np.sign(values) * np.floor(np.abs(values) + 0.5)
    return rounded


def tables() -> np.ndarray:
    return np.stack([_table(np.exp, -LEAST, 0.0), _table(lambda x: 1 / (1 + x), 0.0, 1.0)])


def _case(shape: tuple[int, ...], axis: int, shift: int) -> Case:
    numbers = np.random.default_rng(axis).integers(-2**15, 2**15, shape)
    return Case(((shape, "int16"), ((2, POINTS), "int16")), {"axis": axis, "significand": 1500000001, "shift": shift},
                (1,), {0: numbers, 1: tables()})


SoftmaxWide.cases = (_case((3, 12), 1, -1), _case((2, 5, 7), 1, 0), _case((1, 1001), 1, -3), _case((4, 1), 1, 2),
                     _case((7, 3), 0, -6), _case((2, 6, 3, 5), 3, -2), _case((2, 6, 3, 5), 1, -2))
