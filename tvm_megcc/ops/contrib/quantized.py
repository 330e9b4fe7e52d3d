# SPDX-License-Identifier: Apache-2.0
"""Imports operators of com.microsoft with operands of 8 or 4 bits, quantised dynamically or by blocks, and float
results. Source: ONNX Runtime's ContribOperators.md."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import ceildiv
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import given, onnx_operator
from ..quantized.blocks import BlockConstants, emit_block_gather
from ..quantized.int4 import pack_two_per_byte, unpack_two_per_byte
from ..rules import axis_of
from .fused import contrib


def quantize_dynamically(node: OnnxNode, value: str) -> tuple[str, str, str]:
    """Emits ONNX's DynamicQuantizeLinear of a float32 value. Returns the uint8 value, its scale float32 [] and its zero
    point uint8 []."""
    numbers, scale, point = node.emit("dynamic_quantize", (value,))
    return numbers, scale, point


def integer_product(node: OnnxNode, a: str, b: str, a_scale: str, b_scale: str, a_zero: str, b_zero: str,
                    bias: str) -> str:
    """Emits (a - a_zero) @ (b - b_zero) * a_scale * b_scale + bias as float32.

    a, b: int8 or uint8 matrices. a_scale: [] or [1]. b_scale: [] or [N]. a_zero, b_zero, bias: "" for none.
    """
    if node.type_of(a_scale).rank:
        (a_scale,) = node.emit("reshape", (a_scale,), shape=())
    sums = onnx_operator(node, "MatMulInteger", a, b, a_zero, b_zero)
    (factor,) = emit_broadcast(node, "mul", (a_scale, b_scale))
    (y,) = emit_broadcast(node, "mul", (*cast_to(node, sums, "float32"), factor))
    return emit_broadcast(node, "add", (y, bias))[0] if bias else y


@contrib("MatMulIntegerToFloat")
def matmul_integer_to_float(node: OnnxNode) -> tuple[str, ...]:
    """Imports MatMulIntegerToFloat. Operands: A, B, scale of A, scale of B, zero point of A, zero point of B, bias."""
    if node.type(2).size != 1:
        raise MegccError(f"A has scales {node.type(2)}; one is supported")
    return (integer_product(node, *node.inputs[:4], given(node, 4), given(node, 5), given(node, 6)),)


@contrib("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: OnnxNode) -> tuple[str, ...]:
    """Imports DynamicQuantizeMatMul. Operands: A float32, B int8 or uint8, its scale and zero point, bias."""
    a, scale, zero = quantize_dynamically(node, node.inputs[0])
    return (integer_product(node, a, node.inputs[1], scale, node.inputs[2], zero, given(node, 3), given(node, 4)),)


def _block_quantized_data(node: OnnxNode, axis: int, block: int, bits: int
                          ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the numbers, scales and zero points of a GatherBlockQuantized, with one scale and one zero point for each
    `block` numbers along `axis`.

    The uint8 data of a model may be packed int4, which nothing declares: it is taken as packed if there are scales for
    twice as many numbers, or if a value needs more than 4 bits.
    """
    data, scales = node.const(0, "data"), node.const(2, "scales")
    zeros = node.const(3, "zero_points") if node.has(3) else None
    if bits not in (4, 8):
        raise MegccError(f"has numbers of {bits} bits; those of 4 and 8 are supported")
    is_packed = bits == 4 and data.dtype == np.uint8 and (
        (data.size > 0 and data.max() > 15) or scales.shape[axis] != ceildiv(data.shape[axis], block))
    if is_packed:
        data = unpack_two_per_byte(data, 2 * data.shape[-1])
        zeros = None if zeros is None else unpack_two_per_byte(zeros, scales.shape[-1])
    if zeros is None:
        # The default is 2^(bits - 1) for uint8, else 0. 4-bit numbers that are not packed are uint4, which `const`
        # returns as uint8.
        is_centred = data.dtype == np.uint8 and (bits == 8 or is_packed)
        zeros = np.full(scales.shape, 1 << (bits - 1) if is_centred else 0, data.dtype)
    wanted = tuple(ceildiv(extent, block) if index == axis else extent for index, extent in enumerate(data.shape))
    if scales.shape != wanted or zeros.shape != wanted:
        raise ShapeError(f"scales {list(scales.shape)} and zero points {list(zeros.shape)} for numbers "
                         f"{list(data.shape)} in blocks of {block} on axis {axis}")
    return data, scales, zeros


def _packed_rows(node: OnnxNode, arrays: tuple[np.ndarray, np.ndarray, np.ndarray], bits: int
                 ) -> tuple[str, str, str] | None:
    """Returns the numbers of a GatherBlockQuantized in the form of a MatMulNBits with the same weights, so that both
    share constants; None for those that a MatMulNBits cannot have. arrays: as `_block_quantized_data` returns them."""
    numbers, scales, zeros = arrays
    if numbers.dtype != np.uint8 or scales.dtype != np.float32 or numbers.ndim != 2 or numbers.shape[1] % 2:
        return None
    offset = node.constant(-zeros.astype(np.float32) * scales) if (zeros != 1 << bits - 1).any() else ""
    return node.constant(pack_two_per_byte(numbers) if bits == 4 else numbers), node.constant(scales), offset


@contrib("GatherBlockQuantized")
def gather_block_quantized(node: OnnxNode) -> tuple[str, ...]:
    """Imports GatherBlockQuantized, which gathers slices of block-quantised data as floats. Operands: data, indices,
    scales, zero points; all but the indices are constants."""
    bits, block, rank = node.attr("bits", 4), node.attr("block_size", 128), node.type(0).rank
    if block < 1:
        raise ShapeError(f"blocks of {block} numbers")
    axis = axis_of(node.attr("gather_axis", 0), rank)
    quantize_axis = axis_of(node.attr("quantize_axis", 1), rank)
    arrays = _block_quantized_data(node, quantize_axis, block, bits)
    extent, indices = arrays[0].shape[quantize_axis], node.inputs[1]
    if (rows := _packed_rows(node, arrays, bits)) is not None and (rank, axis, quantize_axis) == (2, 0, 1):
        return (emit_block_gather(node, indices, BlockConstants(bits, block, extent, rows)),)
    if (rank, axis, quantize_axis, bits) == (2, 0, 1, 4) and block % 2 == 0:
        # The numbers stay packed: passes/quantization/int4.py.
        real = onnx_operator(node, "DequantizeLinear", *map(node.constant, arrays), axis=1, block_size=block)
        return (onnx_operator(node, "Gather", real, indices, axis=0),)
    if extent % block == 0 and axis != quantize_axis:  # the gathered slices consist of whole blocks
        slices = [onnx_operator(node, "Gather", node.constant(array), indices, axis=axis) for array in arrays]
        shift = node.type(1).rank - 1 if quantize_axis > axis else 0
        return (onnx_operator(node, "DequantizeLinear", *slices, axis=quantize_axis + shift, block_size=block),)
    # The gather cuts blocks, or the last block is not full: the data are dequantised when the model is compiled.
    numbers, scales, zeros = arrays
    scales, zeros = (np.repeat(array, block, quantize_axis).take(np.arange(extent), quantize_axis)
                     for array in (scales, zeros))
    real = node.constant((numbers.astype(np.int32) - zeros).astype(scales.dtype) * scales)
    return (onnx_operator(node, "Gather", real, indices, axis=axis),)
