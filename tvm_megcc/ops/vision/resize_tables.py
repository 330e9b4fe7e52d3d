# SPDX-License-Identifier: Apache-2.0
"""The tables of a resize whose scale, extent or region is computed at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, register
from .interpolation import Interpolation, source_coordinates, tables
from .resample import run_tables

#: The coordinate mode that resizes a region of the operand.
CROP = "tf_crop_and_resize"


def interpolation(attrs: Attrs) -> Interpolation:
    return Interpolation(attrs.mode, attrs.rounding, attrs.cubic_a, attrs.excludes, attrs.antialias)


def described(how: Interpolation) -> dict[str, Any]:
    """Returns the interpolation as attributes."""
    return {"mode": how.mode, "rounding": how.rounding, "cubic_a": how.cubic_a, "excludes": how.excludes,
            "antialias": how.antialias}


@register
class ResizeTables(Operator):
    """Computes the tables of a resized axis: the operands after x of a `resize` or of a `resample`.

    Operands: scale, float64 [1]; extent of the axis, int64 []; for tf_crop_and_resize the region's start and end,
    float64 [2], as fractions of the axis. Attributes: `size`, elements of the result, which differs by less than 1 from
    extent * scale; `coordinates`; the fields of an `Interpolation`; `taps`, the most neighbours of an element, if they
    are more than two.

    Results: for nearest the index of each element, int32 [size]; for linear with two neighbours the lower one, int32
    [size], and the weight of the upper one, float32 [size]; else the first neighbour, int32 [size], and the weights,
    float32 [size, taps]. For tf_crop_and_resize also bool [size]: which elements are outside of the operand.
    """

    kind = "resize_tables"
    operands = ("scale", "extent", "region?")

    @staticmethod
    def infer(attrs: Attrs, scale: TensorType, extent: TensorType,
              region: TensorType | None = None) -> tuple[TensorType, ...]:
        crops = attrs.coordinates == CROP
        if scale != TensorType("float64", (1,)) or extent != TensorType("int64", ()) \
                or region != (TensorType("float64", (2,)) if crops else None):
            raise ShapeError(f"a scale {scale} of an extent {extent} with a region {region}")
        size, how = attrs.size, interpolation(attrs)
        weights = () if how.mode == "nearest" else ((size,),) if how.by_tables else ((size, attrs.taps),)
        return (TensorType("int32", (size,)), *(TensorType("float32", shape) for shape in weights),
                *((TensorType("bool", (size,)),) if crops else ()))

    @staticmethod
    def compute(attrs: Attrs, scale: np.ndarray, extent: np.ndarray,
                region: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        ratio, axis, how = float(scale[0]), int(extent), interpolation(attrs)
        if not abs(axis * ratio - attrs.size) < 1:
            raise ShapeError(f"{attrs.size} elements of an axis of {axis} that is scaled by {ratio}")
        part = (0.0, 1.0) if region is None else (float(region[0]), float(region[1]))
        position = source_coordinates(axis, attrs.size, ratio, attrs.coordinates, part)
        results = tables(position, axis, how.mode, how.rounding) if how.by_tables else \
            run_tables(*how.windows(position, axis, ratio), axis, attrs.taps)
        return (*results, *(((position < 0) | (position > axis - 1),) if attrs.coordinates == CROP else ()))

    @classmethod
    def of(cls, node: OnnxNode, operands: tuple[str, ...], how: Interpolation, **attrs: Any) -> tuple[str, ...]:
        return node.emit(cls.kind, operands, **attrs, **described(how))


def _case(extent: int, scale: float, coordinates: str, how: Interpolation, taps: int = 0,
          region: tuple[float, float] = (0.0, 1.0), size: int | None = None) -> Case:
    crops = coordinates == CROP
    inputs = (((1,), "float64"), ((), "int64"), *((((2,), "float64"),) if crops else ()))
    return Case(inputs, {"size": int(extent * scale) if size is None else size, "coordinates": coordinates,
                         "taps": taps, **described(how)},
                values={0: np.array([scale]), 1: np.array(extent), **({2: np.array(region)} if crops else {})})


def _linear(excludes: bool = False, antialias: bool = False) -> Interpolation:
    return Interpolation("linear", "floor", -0.75, excludes, antialias)


ResizeTables.cases = (
    _case(5, 2.0, "asymmetric", Interpolation("nearest", "floor", -0.75, False, False)),
    _case(9, 0.6, "asymmetric", Interpolation("nearest", "simple", -0.75, False, False)),
    _case(9, 1.1, "asymmetric", Interpolation("nearest", "simple", -0.75, False, False)),
    _case(9, 0.6, "half_pixel", Interpolation("nearest", "round_prefer_floor", -0.75, False, False)),
    _case(4, 1.75, "align_corners", Interpolation("nearest", "round_prefer_ceil", -0.75, False, False)),
    _case(7, 0.93, CROP, Interpolation("nearest", "ceil", -0.75, False, False), region=(0.2, 1.3)),
    _case(4, 2.5, "half_pixel", _linear()), _case(1, 3.0, "align_corners", _linear()),
    _case(6, 0.2, "pytorch_half_pixel", _linear()), _case(5, 0.7, "half_pixel_symmetric", _linear()),
    _case(6, 1.5, CROP, _linear(), region=(-0.3, 0.7)), _case(3, 2.0, "half_pixel", _linear(excludes=True), 2),
    _case(11, 0.4, "half_pixel", _linear(antialias=True), 6),
    _case(11, 0.35, "half_pixel", _linear(antialias=True), 11),
    _case(5, 1.6, "half_pixel", Interpolation("cubic", "floor", -0.75, False, False), 4),
    _case(3, 2.4, "align_corners", Interpolation("cubic", "floor", -0.5, True, False), 3),
    _case(13, 0.5, "asymmetric", Interpolation("cubic", "floor", -0.6, False, True), 8),
    _case(9, 0.72, "half_pixel", Interpolation("cubic", "floor", -0.75, False, False), 4, size=7),
)
