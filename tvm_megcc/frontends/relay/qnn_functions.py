# SPDX-License-Identifier: Apache-2.0
"""Imports Relay's quantised functions, bit for bit as TVM lowers them: tables of 256 results, softmax in integers
(Shiftmax of Li and Gu, I-ViT, arXiv 2207.01405), leaky relu in fixed point."""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np

from ...errors import MegccError
from ...ir.expr import X, arg
from ...ops.elementwise import emit_broadcast
from ...ops.rules import axis_of
from ..fixed_point import BELOW_HALF32, MAX_SHIFT, floor_shift, integer_range, multiplier, times_power_of_two
from ..tvm_common.node import TvmNode, Values
from .qnn import BYTE_DTYPES, ChannelOperands, emit_expression, imports, requantized, saturated, scalar_parameter


def _hard_swish(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x + np.float32(3.0), np.float32(0.0), np.float32(6.0)) / np.float32(6.0)


#: Operator -> its float function, computed by numpy in float32 as in TVM.
_TABLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: np.float32(1) / np.sqrt(x), "exp": np.exp, "log": np.log, "tanh": np.tanh,
    "sigmoid": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)), "abs": np.abs, "hardswish": _hard_swish,
    "erf": lambda x: np.vectorize(erf, otypes=[np.float64])(x)}


@imports(*_TABLES)
def function(node: TvmNode) -> Values:
    """Imports a function of one 8-bit operand as a table of 256 results. Operands: x, its scale and zero point, and
    those of the result."""
    dtype, minimum, maximum, scale, zero = _parameters(node)
    real = (np.arange(minimum, maximum + 1) - zero[0]).astype(np.float32) * scale[0]
    with np.errstate(all="ignore"):
        quotients = _TABLES[node.op.removeprefix("qnn.")](real).astype(np.float32) / scale[1]
        rounded = np.sign(quotients) * np.floor(np.abs(quotients) + np.float32(BELOW_HALF32))
        # NaN gives the largest result, as TVM's comparisons do.
        table = np.where(np.isnan(rounded), maximum, np.clip(rounded + np.float32(zero[1]), minimum, maximum))
    return (node.emit("lookup", node.inputs[0], node.constant(table, dtype)),)


@imports("leaky_relu")
def leaky_relu(node: TvmNode) -> Values:
    """Imports leaky_relu: requantizes to the result's scale, with the factor alpha below the operand's zero point."""
    dtype, minimum, maximum, scale, zero = _parameters(node)
    alpha, codes = float(node.attrs.alpha), np.arange(minimum, maximum + 1)
    if not alpha >= 0:
        raise MegccError(f"alpha {alpha}")
    requantized_codes = codes
    if (scale[0], zero[0]) != (scale[1], zero[1]):
        centred = codes - zero[0]
        requantized_codes = centred if scale[0] == scale[1] else _times(centred, float(scale[0]) / float(scale[1]))
        requantized_codes = requantized_codes + zero[1]
    terms = _times(requantized_codes, alpha), _times(np.array([zero[1]]), 1 - alpha)
    # TVM computes in int32.
    if max(abs(numbers).max() for numbers in (requantized_codes, *terms, terms[0] + terms[1])) >= 2**31:
        raise MegccError("its scales differ too much")
    table = np.clip(np.where(codes < zero[0], terms[0] + terms[1], requantized_codes), minimum, maximum)
    return (node.emit("lookup", node.inputs[0], node.constant(table, dtype)),)


def _times(values: np.ndarray, factor: float) -> np.ndarray:
    """Multiplies by a 31-bit fixed-point factor, rounding to the nearest, ties up."""
    significand, shift = multiplier(abs(factor))
    if shift > MAX_SHIFT:
        raise MegccError("its scales differ too much")
    product = values.astype(np.int64) * (significand if factor >= 0 else -significand)
    return (product + (np.int64(1) << (30 - shift))) >> (31 - shift)


def _parameters(node: TvmNode) -> tuple[str, int, int, list[np.float32], list[int]]:
    """Returns the dtype, its smallest and largest value, the scales of the operand and of the result, and their zero
    points."""
    dtype = node.types[0].dtype
    if dtype not in BYTE_DTYPES or node.type_of(node.inputs[0]).dtype != dtype:
        raise MegccError(f"of {node.type_of(node.inputs[0]).dtype} in {dtype}")
    scale, zero = ([scalar_parameter(node, index) for index in operands] for operands in ((1, 3), (2, 4)))
    if not all(0 < channel_scale < float("inf") for channel_scale in scale):
        raise MegccError(f"its scales are {scale[0]} and {scale[1]}")
    return dtype, *integer_range(dtype), [np.float32(value) for value in scale], [int(value) for value in zero]


#: Fractional bits of the reciprocals of sums, and of the result before it is requantized.
_RECIPROCAL_BITS, _RESULT_BITS = 30, 7
#: The largest right shift of an exponential.
_MAX_EXPONENTIAL_SHIFT = 20


@imports("softmax")
def softmax(node: TvmNode) -> Values:
    """Imports softmax in integers, with exp interpolated linearly between powers of two."""
    dtype, _, _, scale, zero = _parameters(node)
    type_ = node.type_of(node.inputs[0])
    axis = axis_of(int(node.attrs.axis), type_.rank)
    # 1 / scale, rounded to an integer, stands for 1: with a scale above 1 it has no bits for a significand.
    if dtype != "int8" or scale[0] > 1 or not isinstance(type_.shape[axis], int):
        raise MegccError(f"of {type_} with the scale {scale[0]}; supported are int8, a scale of at most 1 and a known "
                         "extent of the axis")
    with np.errstate(over="ignore"):
        one_code = int(min(np.floor(np.float32(1) / scale[0] + np.float32(0.5)), 2**31 - 1))
    shifts, significands = _exponentials(one_code)
    if int(significands.max()) * 2**int(shifts.max()) * type_.shape[axis] >= 2**31:
        raise MegccError("the sum of its exponentials may not fit in int32")
    x, along = node.inputs[0], {"axes": (axis,), "keepdims": True}
    largest = node.emit("reduce_max", x, **along)
    difference = emit_expression(node, arg(1) - X, x, largest, dtype="uint8")
    shift, significand = (node.emit("lookup", difference, node.constant(table, "int32"))
                          for table in (shifts, significands))
    largest_shift = node.emit("reduce_max", shift, **along)
    # exp(x - max) in units of the smallest: significand * 2^(largest shift - shift)
    powers = emit_expression(node, times_power_of_two(X, arg(1) - arg(2)), significand, largest_shift, shift,
                             dtype="int32")
    total = node.emit("reduce_sum", powers, **along)
    inverse = emit_broadcast(node.onnx_node(), "div", (node.constant(2**_RECIPROCAL_BITS, "int32"), total))[0]
    quotient = floor_shift(X * arg(1), _RECIPROCAL_BITS - _RESULT_BITS)
    operands = ChannelOperands(node, powers, inverse)
    expr = requantized(operands, quotient, np.array([2.0**-_RESULT_BITS], np.float32), float(scale[1])) + zero[1]
    return (emit_expression(node, saturated(expr, dtype), *operands.names),)


def _exponentials(one_code: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns shifts and significands for max - x from 0 to 255: exp(x - max) is about
    significand / one_code * 2^-shift, with a significand between one_code / 2 and one_code.

    one_code: the integer that represents 1.
    """
    x = -np.arange(256, dtype=np.int64)
    exponent = x + (x >> 1) - (x >> 4)  # x * 1.4375, about x * log2(e)
    shifts = np.clip(exponent // -one_code, 0, _MAX_EXPONENTIAL_SHIFT)
    return shifts, ((exponent + shifts * one_code) >> 1) + one_code
