# SPDX-License-Identifier: Apache-2.0
"""The operator that computes the tables of a resize (vision/resize.py); it is folded unless the scale, extent or region
is known only at run time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.dims import number
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, register
from .interpolation import Interpolation, axis_tables, source_coordinates
from .resample import resample_tables

#: The coordinate mode that resizes a region of the operand.
CROP = "tf_crop_and_resize"


def interpolation_of(attrs: Attrs) -> Interpolation:
    """Returns the interpolation that the attributes of a `resize_tables` describe."""
    return Interpolation(attrs.mode, attrs.rounding, attrs.cubic_a, attrs.excludes, attrs.antialias)


def interpolation_attrs(interpolation: Interpolation) -> dict[str, Any]:
    """Returns the interpolation as attributes."""
    return dataclasses.asdict(interpolation)


def _result_types(attrs: Attrs) -> tuple[TensorType, ...]:
    """Returns the types of the results of a `resize_tables`."""
    size, interpolation = attrs.size, interpolation_of(attrs)
    results = [TensorType("int32", (size,))]
    if interpolation.has_windows:
        results.append(TensorType("float32", (size, attrs.taps)))
    elif interpolation.mode != "nearest":
        results.append(TensorType("float32", (size,)))
    if attrs.coordinates == CROP:
        results.append(TensorType("bool", (size,)))
    return tuple(results)


@register
class ResizeTables(Operator):
    """Computes the tables of a resized axis: the operands after x of a `resize` or of a `resample`.

    Operands: scale float64 [1]; extent of the axis int64 []; for tf_crop_and_resize region float64 [2], its start and
    end as fractions of the axis.

    Results: for nearest, the index of each element int32 [size]; for linear with two neighbours, the lower one int32
    [size] and the weight of the upper one float32 [size]; else the first neighbour int32 [size] and the weights float32
    [size, taps]. For tf_crop_and_resize also which elements are outside of the operand, bool [size].

    Attributes: `size`: the extent of the result, which differs by less than 1 from extent * scale; `coordinates`: one
    of COORDINATES; the fields of an `Interpolation`; `taps`: the number of neighbours of an element in the results, if
    there may be more than two.
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
        return _result_types(attrs)

    @staticmethod
    def compute(attrs: Attrs, scale: np.ndarray, extent: np.ndarray,
                region: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        if attrs.size == 0:  # there is no element, and the scale may be 0
            return tuple(np.zeros(tuple(map(number, type_.shape)), type_.dtype) for type_ in _result_types(attrs))
        ratio, axis, interpolation = float(scale[0]), int(extent), interpolation_of(attrs)
        if not abs(axis * ratio - attrs.size) < 1:
            raise ShapeError(f"{attrs.size} elements of an axis of {axis} that is scaled by {ratio}")
        part = (0.0, 1.0) if region is None else (float(region[0]), float(region[1]))
        position = source_coordinates(axis, attrs.size, ratio, attrs.coordinates, part)
        if interpolation.has_windows:
            results = list(resample_tables(*interpolation.windows(position, axis, ratio), axis, attrs.taps))
        else:
            results = axis_tables(position, axis, interpolation.mode, interpolation.rounding)
        if attrs.coordinates == CROP:
            results.append((position < 0) | (position > axis - 1))
        return tuple(results)

    @classmethod
    def of(cls, node: OnnxNode, operands: tuple[str, ...], interpolation: Interpolation,
           **attrs: Any) -> tuple[str, ...]:
        """Emits the operator with an interpolation as attributes."""
        return node.emit(cls.kind, operands, **attrs, **interpolation_attrs(interpolation))


def _case(extent: int, scale: float, coordinates: str, interpolation: Interpolation, taps: int = 0,
          region: tuple[float, float] = (0.0, 1.0), size: int | None = None) -> Case:
    crops = coordinates == CROP
    inputs = (((1,), "float64"), ((), "int64"), *((((2,), "float64"),) if crops else ()))
    return Case(inputs, {"size": int(extent * scale) if size is None else size, "coordinates": coordinates,
                         "taps": taps, **interpolation_attrs(interpolation)},
                values={0: np.array([scale]), 1: np.array(extent), **({2: np.array(region)} if crops else {})})


def _linear(excludes: bool = False, antialias: bool = False) -> Interpolation:
    return Interpolation("linear", "floor", -0.75, excludes, antialias)


ResizeTables.cases = (
    _case(5, 2.0, "asymmetric", Interpolation("nearest", "floor", -0.75, excludes=False, antialias=False)),
    _case(9, 0.6, "asymmetric", Interpolation("nearest", "simple", -0.75, excludes=False, antialias=False)),
    _case(9, 1.1, "asymmetric", Interpolation("nearest", "simple", -0.75, excludes=False, antialias=False)),
    _case(9, 0.6, "half_pixel", Interpolation("nearest", "round_prefer_floor", -0.75, excludes=False, antialias=False)),
    _case(4, 1.75, "align_corners",
          Interpolation("nearest", "round_prefer_ceil", -0.75, excludes=False, antialias=False)),
    _case(7, 0.93, CROP, Interpolation("nearest", "ceil", -0.75, excludes=False, antialias=False), region=(0.2, 1.3)),
    _case(4, 2.5, "half_pixel", _linear()), _case(1, 3.0, "align_corners", _linear()),
    _case(6, 0.2, "pytorch_half_pixel", _linear()), _case(5, 0.7, "half_pixel_symmetric", _linear()),
    _case(6, 1.5, CROP, _linear(), region=(-0.3, 0.7)), _case(3, 2.0, "half_pixel", _linear(excludes=True), 2),
    _case(11, 0.4, "half_pixel", _linear(antialias=True), 6),
    _case(11, 0.35, "half_pixel", _linear(antialias=True), 11),
    _case(5, 1.6, "half_pixel", Interpolation("cubic", "floor", -0.75, excludes=False, antialias=False), 4),
    _case(3, 2.4, "align_corners", Interpolation("cubic", "floor", -0.5, excludes=True, antialias=False), 3),
    _case(13, 0.5, "asymmetric", Interpolation("cubic", "floor", -0.6, excludes=False, antialias=True), 8),
    _case(9, 0.72, "half_pixel", Interpolation("cubic", "floor", -0.75, excludes=False, antialias=False), 4, size=7),
)
