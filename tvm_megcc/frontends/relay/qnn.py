# SPDX-License-Identifier: Apache-2.0
"""Imports Relay's quantised operators, bit for bit as TVM lowers them (src/relay/qnn/op) with its default arithmetic:
rounding "UPWARD", computed in "int64".

Scales and zero points are operands, which must be constants, as for TVM's lowering. Numbers in calls of `parameter`
and `scalar_parameter` are indices of operands, in the order that each importer gives.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError
from ...ir.expr import Arg, Expr, X, arg, call, clip
from ...ops.elementwise import emit_broadcast
from ...ops.rules import axis_of
from ..fixed_point import MAX_SHIFT, integer_range, multiplier
from ..tvm_common.node import Importer, TvmNode, Values, ints, registers_in
from ..tvm_common.ops import pads_of

BYTE_DTYPES = ("int8", "uint8")
IMPORTERS: dict[str, Importer] = {}
imports = registers_in(IMPORTERS, "qnn.")


def parameter(node: TvmNode, index: int) -> np.ndarray:
    """Returns a scale or a zero point: a scalar or a vector.

    Raises:
        MegccError: for one that is computed at run time.
    """
    name = node.inputs[index]
    if not node.is_constant(name):
        raise MegccError("its scales and zero points are computed at run time")
    return node.builder.constants[name].reshape(-1)


def scalar_parameter(node: TvmNode, index: int):
    """Returns a scale or zero point as a scalar; a vector must have equal elements."""
    values = parameter(node, index)
    if (values != values[0]).any():
        raise MegccError("it has a scale or zero point for each channel, which is not supported here")
    return values[0].item()


def scale_array(node: TvmNode, index: int) -> np.ndarray:
    """Returns a scalar scale as float32 [1], which `requantized` takes."""
    return np.array([scalar_parameter(node, index)], np.float32)


def emit_expression(node: TvmNode, expr: Expr, *names: str, dtype: str = "") -> str:
    """Emits an expression over integers and floats. dtype: dtype of the result, by default that of the call."""
    return emit_broadcast(node.onnx_node(), "elementwise", names, expr=expr, dtype=dtype or node.types[0].dtype)[0]


def saturated(expr: Expr, dtype: str) -> Expr:
    """Clips an integer expression to the range of a dtype; int32 is left as it is."""
    return expr if dtype == "int32" else clip(expr, *integer_range(dtype))


class ChannelOperands:
    """The operands of an elementwise expression with per-channel constants. names: the values of the operands so
    far."""

    def __init__(self, node: TvmNode, *names: str):
        self.node, self.names = node, list(names)

    def of(self, values: np.ndarray, axis: int) -> Expr | int:
        """Returns an expression for the constants of the channels, which become a further operand unless all are equal.

        values: int32 [channels]. axis: the axis of the channels in the first operand.
        """
        if (values == values[0]).all():
            return values[0].item()
        rank = self.node.type_of(self.names[0]).rank
        along_axis = values.reshape(-1, *(1,) * (rank - 1 - axis_of(axis, rank)))
        self.names.append(self.node.constant(along_axis, "int32"))
        return arg(len(self.names) - 1)


def requantized(operands: ChannelOperands, centred: Expr, scale: np.ndarray, result_scale: float, axis: int = -1
                ) -> Expr:
    """Returns `centred`, integers minus their zero point, requantized to another scale, as TVM's RequantizeLowerInt
    does.

    operands: those of the expression. scale: the scale of `centred`, float32 [1] or [channels]. axis: the axis of the
    channels, if there are several scales.

    Raises:
        MegccError: if scales are out of range.
    """
    if scale.size == 1 and scale[0] == np.float32(result_scale):
        return centred
    if not 0 < result_scale < float("inf"):
        raise MegccError(f"the scale of its result is {result_scale}")
    factors = [multiplier(float(channel_scale) / float(np.float32(result_scale))) for channel_scale in scale]
    if max(factor.shift for factor in factors) > MAX_SHIFT:
        raise MegccError("its scales differ too much")
    parts = [np.array(part) for part in zip(*factors, strict=True)]
    return call("rescale_once", centred, *(operands.of(part, axis) for part in parts))


def require_default_arithmetic(attrs) -> None:
    """Raises MegccError if attributes ask for other than TVM's default arithmetic."""
    if str(attrs.rounding) not in ("None", "UPWARD") or str(attrs.compute_dtype) not in ("None", "int64"):
        raise MegccError(f"rounding '{attrs.rounding}' in {attrs.compute_dtype}")


@imports("requantize")
def requantize(node: TvmNode) -> Values:
    """Imports requantize. Operands: x, its scale and zero point, those of the result."""
    require_default_arithmetic(node.attrs)
    operands, axis, dtype = ChannelOperands(node, node.inputs[0]), int(node.attrs.axis), node.types[0].dtype
    if node.type_of(node.inputs[0]).dtype not in (*BYTE_DTYPES, "int16", "int32"):
        raise MegccError(f"of {node.type_of(node.inputs[0]).dtype}")
    zeros = parameter(node, 2)
    centred = X - operands.of(zeros, axis) if zeros.any() else X
    expr = requantized(operands, centred, parameter(node, 1), scalar_parameter(node, 3), axis)
    expr = expr + scalar_parameter(node, 4)
    return (emit_expression(node, saturated(expr, dtype), *operands.names),)


@imports("quantize")
def quantize(node: TvmNode) -> Values:
    """Imports quantize: rounds to the nearest, ties away from zero, then adds the zero point, in float32. Operands: x,
    scale and zero point of the result."""
    dtype, scale, zero = node.types[0].dtype, parameter(node, 1), parameter(node, 2)
    if node.type_of(node.inputs[0]).dtype != "float32" or dtype not in (*BYTE_DTYPES, "int16", "int32"):
        raise MegccError(f"from {node.type_of(node.inputs[0]).dtype} to {dtype}")
    if dtype == "int32" or scale.size > 1 or zero.size > 1:
        raise MegccError("scales for each channel, or results of int32")
    if not 0 < scale[0] < float("inf"):
        raise MegccError(f"its scale is {scale[0]}")
    low, high = integer_range(dtype)
    # Clipped before the conversion, so that large numbers do not overflow the integer type.
    real = clip(X / float(scale[0]), low - int(zero[0]) - 1, high - int(zero[0]) + 1)
    expr = call("nearest_away", real) + int(zero[0])
    return (emit_expression(node, saturated(expr, dtype), node.inputs[0]),)


def integer_sums(node: TvmNode, kind: str, x: str, w: str, zeros: tuple[str, str], **attrs) -> str:
    """Emits a matrix product or convolution of 8-bit integers with int32 sums.

    kind: our operator. x, w: its operands. zeros: the names of its attributes for their zero points, which are operands
    2 and 3 of the node.
    """
    dtypes = {node.type_of(name).dtype for name in (x, w)}
    if not dtypes <= {*BYTE_DTYPES} or node.types[0].dtype != "int32":
        raise MegccError(f"of {', '.join(sorted(dtypes))} to {node.types[0].dtype}")
    x_zero, w_zero = (int(scalar_parameter(node, index)) for index in (2, 3))
    return node.emit(kind, x, w, **attrs, **{zeros[0]: x_zero, zeros[1]: w_zero})


@imports("conv2d")
def conv(node: TvmNode) -> Values:
    a = node.attrs
    x = node.transposed(node.inputs[0], a.data_layout, "NCHW")
    w = node.transposed(node.inputs[1], a.kernel_layout, "OIHW")
    y = integer_sums(node, "conv2d_integer", x, w, ("x_zero", "w_zero"), strides=ints(a.strides),
                     pads=pads_of(a.padding, 2), dilations=ints(a.dilation), groups=int(a.groups))
    return (node.transposed(y, "NCHW", a.out_layout or a.data_layout),)


@imports("dense")
def dense(node: TvmNode) -> Values:
    return (integer_sums(node, "matmul_integer", *node.inputs[:2], ("a_zero", "b_zero"), trans_a=0, trans_b=1),)


@imports("batch_matmul")
def batch_matmul(node: TvmNode) -> Values:
    """Imports batch_matmul, whose second operand is always transposed in TVM."""
    a = node.attrs
    if bool(a.transpose_a) or not bool(a.transpose_b):
        raise MegccError("only transpose_a=False with transpose_b=True is supported")
    return (integer_sums(node, "matmul_integer", *node.inputs[:2], ("a_zero", "b_zero"), trans_a=0, trans_b=1),)


@imports("add", "subtract")
def add(node: TvmNode) -> Values:
    """Imports add and subtract: requantizes each operand to the result's scale, then adds. Operands: a, b, scale and
    zero point of a, of b, of the result."""
    dtype, sign = node.types[0].dtype, {"qnn.add": 1, "qnn.subtract": -1}[node.op]
    if dtype not in BYTE_DTYPES:
        raise MegccError(f"of {dtype}")
    operands = ChannelOperands(node, *node.inputs[:2])
    parts = []
    for index, (scale, zero) in enumerate(((2, 3), (4, 5))):
        centred = Arg(index) - int(scalar_parameter(node, zero))
        parts.append(requantized(operands, centred, scale_array(node, scale), scalar_parameter(node, 6)))
    total = parts[0] + sign * parts[1] + int(scalar_parameter(node, 7))
    return (emit_expression(node, saturated(total, dtype), *operands.names),)


@imports("mul")
def mul(node: TvmNode) -> Values:
    """Imports mul. Operands: as those of add."""
    dtype = node.types[0].dtype
    if dtype not in BYTE_DTYPES:
        raise MegccError(f"of {dtype}")
    operands = ChannelOperands(node, *node.inputs[:2])
    product_scale = scale_array(node, 2) * scale_array(node, 4)
    products = (X - int(scalar_parameter(node, 3))) * (arg(1) - int(scalar_parameter(node, 5)))
    expr = requantized(operands, products, product_scale, scalar_parameter(node, 6))
    expr = expr + int(scalar_parameter(node, 7))
    return (emit_expression(node, saturated(expr, dtype), *operands.names),)


@imports("avg_pool2d")
def average_pool(node: TvmNode) -> Values:
    """Imports avg_pool2d: sums the integers, with pads of 0, and divides rounding towards zero. Operands: x, its scale
    and zero point, those of the result."""
    a, dtype = node.attrs, node.types[0].dtype
    kernel, pads = ints(a.pool_size), pads_of(a.padding, 2)
    count = int(np.prod(kernel))
    if dtype not in BYTE_DTYPES or count * 255 >= 2**24 or a.ceil_mode or (any(pads) and not a.count_include_pad):
        raise MegccError(f"of {dtype} with these windows")
    if [scalar_parameter(node, 1), scalar_parameter(node, 2)] != [scalar_parameter(node, 3), scalar_parameter(node, 4)]:
        raise MegccError("its result has another scale than its operand")
    x = node.transposed(node.inputs[0], a.layout, "NCHW")
    total = node.emit("sum_pool_integer", x, kernel=kernel, strides=ints(a.strides), dilations=ints(a.dilation),
                      pads=pads, ceil=False, x_zero=0)
    # Sums are exact in float32. A quotient that is not an integer differs from one by more than the rounding error.
    quotient = call("real", X) / float(count)
    magnitude = call("floor", call("abs", quotient))
    truncated = call("if_lt", quotient, 0, -magnitude, magnitude)
    y = emit_expression(node, saturated(call("nearest", truncated), dtype), total)
    return (node.transposed(y, "NCHW", a.out_layout or a.layout),)


@imports("concatenate")
def concatenate(node: TvmNode) -> Values:
    """Imports concatenate: requantizes each operand to the result's scale. Operands: n tensors, their n scales, their n
    zero points (TVM's tuples, flattened), scale and zero point of the result."""
    count, dtype = (len(node.inputs) - 2) // 3, node.types[0].dtype
    if dtype not in BYTE_DTYPES or len(node.inputs) != 3 * count + 2:
        raise MegccError(f"of {dtype}")
    scale, zero = scalar_parameter(node, -2), int(scalar_parameter(node, -1))
    parts = []
    for index, name in enumerate(node.inputs[:count]):
        x_scale, x_zero = scale_array(node, count + index), int(scalar_parameter(node, 2 * count + index))
        if (x_scale[0], x_zero) != (np.float32(scale), zero):
            operands = ChannelOperands(node, name)
            expr = requantized(operands, X - x_zero, x_scale, scale) + zero
            name = emit_expression(node, saturated(expr, dtype), *operands.names)
        parts.append(name)
    return node.onnx("Concat", *parts, axis=int(node.attrs.axis))
