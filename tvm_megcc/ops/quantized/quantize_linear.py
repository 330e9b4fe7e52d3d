# SPDX-License-Identifier: Apache-2.0
"""ONNX's QuantizeLinear and DequantizeLinear, per tensor, per axis or per block of an axis, with TVM's operators of the
same meaning: a number q stands for scale * (q - zero_point).

Storage-only dtypes, such as int4 and 8-bit floats, are converted to their carrier, the dtype in which their numbers are
computed (ir/narrow.py).
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_equal, require_shape
from ...ir.dims import ceildiv
from ...ir.graph import Attrs
from ...ir.narrow import SIXTEEN_BITS, SMALL_INTEGERS, carrier, is_float, limits
from ...ir.types import DTYPES, TensorType
from ..base import Case, OnnxNode, Operator, f32, register
from ..cast import element_type, rounding
from ..elementwise import cast_to, emit_broadcast
from ..rules import axis_of, shape_text


def _broadcast_parameter(parameter: np.ndarray, shape: tuple[int, ...], attrs: Attrs) -> np.ndarray:
    """Reshapes a scale or zero point so that it broadcasts against a tensor of this shape."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if parameter.ndim == 1:
        return parameter.reshape([-1 if axis == attrs.axis else 1 for axis in range(len(shape))])
    extent = shape[attrs.axis]
    # Each entry is repeated for the elements of its block. A block may be much longer than the axis.
    return np.repeat(parameter, min(attrs.block, max(extent, 1)), attrs.axis).take(range(extent), attrs.axis)


def _check(attrs: Attrs, x: TensorType, scale: TensorType, zero_point: TensorType | None) -> None:
    """Raises ShapeError if scale and zero point do not fit x."""
    if zero_point is not None and not scale.size == zero_point.size == 1:
        require_shape(zero_point.shape, scale.shape, f"zero point {zero_point} for scale {scale}")
    if attrs.block and scale.rank != x.rank:
        raise ShapeError(f"scale {scale} for {x} in blocks of {attrs.block}")
    if scale.rank == 1 and scale.size != 1:
        axis = axis_of(attrs.axis, x.rank)
        require_equal(scale.shape[0], x.shape[axis],
                      f"{scale.shape[0]} scales for axis {axis} of {shape_text(x.shape)}")
    elif scale.rank > 1:
        if attrs.block < 1:
            raise ShapeError(f"scale {scale} with block size {attrs.block}")
        axis = axis_of(attrs.axis, x.rank)
        blocks = [ceildiv(extent, attrs.block) if i == axis else extent for i, extent in enumerate(x.shape)]
        require_shape(scale.shape, blocks, f"scale {scale} for {x} in blocks of {attrs.block} on axis {axis}")


class _Quantisation(Operator):
    """The base of quantisation and dequantisation. The result has x's shape and the dtype of an attribute.

    Operands: x; scale, a float []; or [C] with one for each index along `axis`; or of x's rank with one for each
    `block` elements along `axis`; zero_point of scale's shape, 0 if absent.
    Attributes: `axis`; `block`: 0 for no blocks; `dtype`: that of the result.
    """

    operands = ("x", "scale", "zero_point?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, scale: TensorType,
              zero_point: TensorType | None = None) -> tuple[TensorType, ...]:
        _check(attrs, x, scale, zero_point)
        return (TensorType(attrs.dtype, x.shape),)


@register
class DequantizeLinear(_Quantisation):
    """(x - zero_point) * scale, for x of integers: ONNX's DequantizeLinear, relax.dequantize, Relay's
    qnn.dequantize."""

    kind = "dequantize_linear"
    folds = False  # constants stay integers, so that passes/quantization finds quantised weights
    onnx = ("DequantizeLinear",)
    relax = ("relax.dequantize",)
    relay = ("qnn.dequantize",)
    cases = (Case((((3, 5), "int8"), f32(), ((), "int8")), {"axis": 1, "block": 0, "dtype": "float32"}),
             Case((((3, 5), "uint8"), f32(5), ((5,), "uint8")), {"axis": 1, "block": 0, "dtype": "float32"}),
             Case((((2, 3, 4, 5), "int8"), f32(3), ((3,), "int8")), {"axis": 1, "block": 0, "dtype": "float32"}),
             Case((((7,), "int32"), f32()), {"axis": 0, "block": 0, "dtype": "float32"}))

    @staticmethod
    def compute(attrs: Attrs, x, scale, zero_point=None) -> tuple[np.ndarray, ...]:
        centred = x.astype(np.int64)
        if zero_point is not None:
            centred = centred - _broadcast_parameter(zero_point.astype(np.int64), x.shape, attrs)
        return (centred.astype(scale.dtype) * _broadcast_parameter(scale, x.shape, attrs),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        if node.attr("block_size", 0) and not _is_int4(node):
            (value,) = _dequantize_blocks(node)
        else:
            dtype = carrier(node.type(0).dtype)
            x, *zero = (cast_to(node, name, dtype)[0] for name in (node.inputs[0], *node.inputs[2:]))
            if is_float(dtype):  # zero points of float types are 0
                (value,) = _multiply_by_scale(node, x)
            else:
                (value,) = node.emit(cls.kind, (x, node.inputs[1], *zero), axis=_axis(node),
                                     block=node.attr("block_size", 0), dtype=node.type(1).dtype)
        result_type = node.attr("output_dtype", 0)
        return cast_to(node, value, element_type(result_type)) if result_type else (value,)


@register
class QuantizeLinear(_Quantisation):
    """round(x / scale) + zero_point, with ties to even, saturated to `dtype`, for x of floats: ONNX's QuantizeLinear,
    relax.quantize, Relay's qnn.quantize. Optional attribute `precision`: the dtype of 16 bits in which it divides."""

    kind = "quantize_linear"
    onnx = ("QuantizeLinear",)
    relax = ("relax.quantize",)
    relay = ("qnn.quantize",)
    cases = (Case((f32(3, 5), f32(), ((), "uint8")), {"axis": 1, "block": 0, "dtype": "uint8"},
                  values={1: np.array(0.02)}),
             Case((f32(3, 5), f32(5), ((5,), "int8")), {"axis": 1, "block": 0, "dtype": "int8"},
                  values={1: np.linspace(0.01, 0.1, 5)}),
             Case((f32(2, 20, 3, 5), f32(), ((), "int8")), {"axis": 1, "block": 0, "dtype": "int8"},
                  values={1: np.array(0.01)}),
             Case((f32(4), f32()), {"axis": 0, "block": 0, "dtype": "uint8"},
                  values={0: np.array([np.nan, np.inf, -np.inf, 0.05]), 1: np.array(0.02)}))

    @staticmethod
    def compute(attrs: Attrs, x, scale, zero_point=None) -> tuple[np.ndarray, ...]:
        result_limits = np.iinfo(np.dtype(attrs.dtype))
        scale = _broadcast_parameter(scale, x.shape, attrs)
        if "precision" in attrs:
            x, scale = (array.astype(np.dtype(attrs.precision)) for array in (x, scale))
        with np.errstate(all="ignore"):
            rounded = np.rint(x / scale)
        rounded = np.nan_to_num(rounded, nan=0.0)
        if zero_point is not None:
            rounded = rounded + _broadcast_parameter(zero_point, x.shape, attrs).astype(np.float64)
        return (np.clip(rounded, result_limits.min, result_limits.max).astype(np.dtype(attrs.dtype)),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        attrs = {"axis": _axis(node), "block": node.attr("block_size", 0), "dtype": _result_dtype(node)}
        precision = _precision(node)
        return attrs | {"precision": precision} if precision in SIXTEEN_BITS else attrs

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        precision = _precision(node)
        if precision not in ("float32", *SIXTEEN_BITS):
            raise MegccError(f"divides in {precision}, which is not supported")
        is_storage_only = bool(DTYPES[_result_dtype(node)].carrier)
        if node.attr("block_size", 0) or is_storage_only:
            return _decompose_quantize(node)
        scale = node.inputs[1] if is_float(node.type(1).dtype) else cast_to(node, node.inputs[1], "float32")[0]
        value = node.inputs[0]
        if not is_float(node.type(0).dtype):
            (value,) = cast_to(node, value, node.type_of(scale).dtype)
        return node.emit(cls.kind, (value, scale, *node.inputs[2:]), **cls.onnx_attrs(node))


def _is_int4(node: OnnxNode) -> bool:
    """Returns whether the operand is a constant matrix whose numbers fit in 4 bits, with constant float32 scales: it
    stays packed (passes/quantization/int4.py)."""
    are_constant = all(node.is_const(index) for index in range(3) if node.has(index))  # x, scale, zero_point
    if not are_constant or node.type(0).rank != 2:
        return False
    lowest, largest = (-8, 7) if carrier(node.type(0).dtype) == "int8" else (0, 15)
    numbers = node.const(0)
    fits = numbers.size > 0 and lowest <= numbers.min() and numbers.max() <= largest
    return bool(fits) and node.type(1).dtype == "float32"


def _result_dtype(node: OnnxNode) -> str:
    """Returns the dtype of the zero point, else of attribute output_dtype, else uint8."""
    wanted = node.attr("output_dtype", 0)
    dtype = node.type(2).dtype if node.has(2) else element_type(wanted) if wanted else "uint8"
    if wanted and element_type(wanted) != dtype:
        raise ShapeError(f"output_dtype is {element_type(wanted)}, the zero point {dtype}")
    return dtype


def _precision(node: OnnxNode) -> str:
    """Returns the dtype in which a QuantizeLinear divides: attribute precision or, if it is absent, float32 or (from
    operator set 23 on) the 16-bit dtype of the scale."""
    given = node.attr("precision", 0)
    if given:
        return element_type(given)
    dtype = node.type(1).dtype
    return dtype if dtype in SIXTEEN_BITS and node.opset >= 23 else "float32"


def _round_to(node: OnnxNode, value: str, precision: str) -> str:
    """Emits a value rounded to a dtype of 16 bits, as float32."""
    (value,) = cast_to(node, value, "float32")
    for attrs in rounding(precision):
        (value,) = node.emit("cast", (value,), **attrs)
    return value


def _axis(node: OnnxNode) -> int:
    """Returns the axis of several scales, counted from the front; 0 for one scale."""
    rank = node.type(0).rank
    scale = node.type(1)
    per_tensor = scale.rank == 0 or (scale.rank == 1 and scale.size == 1)
    return 0 if per_tensor else axis_of(node.attr("axis", 1), rank)


def _split_blocks(node: OnnxNode) -> tuple[str, str, str, tuple]:
    """Emits the operand of a quantisation by blocks with its axis split into two, [blocks, block]. Returns it, scale
    and zero point ("" for none) as [..., blocks, 1, ...], and the operand's original shape."""
    x, block = node.type(0), node.attr("block_size")
    if node.type(1).rank != x.rank:
        raise ShapeError(f"scale {node.type(1)} for {x} in blocks of {block}")
    axis = axis_of(node.attr("axis", 1), x.rank)
    blocks = node.type(1).shape[axis]
    require_equal(x.shape[axis], blocks * block, f"{blocks} blocks of {block} elements on axis {axis} of {x}")

    def split(value: str, inner: int) -> str:
        shape = node.type_of(value).shape
        return node.emit("reshape", (value,), shape=(*shape[:axis], blocks, inner, *shape[axis + 1:]))[0]

    zero = split(node.inputs[2], 1) if node.has(2) else ""
    return split(node.inputs[0], block), split(node.inputs[1], 1), zero, x.shape


def _dequantize_blocks(node: OnnxNode) -> tuple[str, ...]:
    """Emits a dequantisation by blocks as simpler operators."""
    value, scale, zero, shape = _split_blocks(node)
    (value,) = cast_to(node, value, "int32")
    if zero:
        (value,) = emit_broadcast(node, "sub", (value, *cast_to(node, zero, "int32")))
    (value,) = cast_to(node, value, node.type(1).dtype)
    return node.emit("reshape", emit_broadcast(node, "mul", (value, scale)), shape=shape)


def _reshape_parameter(node: OnnxNode, value: str) -> str:
    """Reshapes a scale or zero point, per tensor or per axis, so that it broadcasts against the operand."""
    type_, rank = node.type_of(value), node.type(0).rank
    if type_.rank != 1 or type_.size == 1:
        return node.emit("reshape", (value,), shape=())[0]
    axis = axis_of(node.attr("axis", 1), rank)
    return node.emit("reshape", (value,), shape=[-1 if i == axis else 1 for i in range(rank)])[0]


def _multiply_by_scale(node: OnnxNode, x: str) -> tuple[str, ...]:
    """Emits floats of 8 bits or less, converted to float32, times their scales."""
    dtype = node.type(1).dtype
    (scale,) = cast_to(node, _reshape_parameter(node, node.inputs[1]), "float32")
    return cast_to(node, *emit_broadcast(node, "mul", (x, scale)), dtype)


def _decompose_quantize(node: OnnxNode) -> tuple[str, ...]:
    """Emits a quantisation by blocks, or to a storage-only dtype, as simpler operators."""
    if node.attr("block_size", 0):
        value, scale, zero, shape = _split_blocks(node)
    else:
        value, scale, shape = node.inputs[0], _reshape_parameter(node, node.inputs[1]), node.type(0).shape
        zero = _reshape_parameter(node, node.inputs[2]) if node.has(2) else ""
    dtype = _result_dtype(node)
    if not is_float(node.type_of(value).dtype):
        (value,) = cast_to(node, value, node.type_of(scale).dtype)
    precision = _precision(node)
    if precision in SIXTEEN_BITS:
        value, scale = (_round_to(node, operand, precision) for operand in (value, scale))
    (value,) = emit_broadcast(node, "div", (value, scale))
    if precision in SIXTEEN_BITS:
        value = _round_to(node, value, precision)
    if not is_float(dtype):
        (value,) = node.emit("round", (value,))
    if zero and not dtype.startswith("float8"):  # zero points of float8 are 0
        (value,) = emit_broadcast(node, "add", (value, *cast_to(node, zero, node.type_of(value).dtype)))
    if dtype in SMALL_INTEGERS:  # casts to other dtypes saturate by themselves
        lowest, largest = (node.constant(np.array(limit, np.dtype(node.type_of(value).dtype)))
                           for limit in limits(dtype))
        (value,) = node.emit("max", node.emit("min", (value, largest)) + (lowest,))
    attrs = {"saturate": False} if dtype.startswith("float8") and not node.attr("saturate", 1) else {}
    return node.emit("reshape", node.emit("cast", (value,), dtype=dtype, **attrs), shape=shape)
