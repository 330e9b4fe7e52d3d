# SPDX-License-Identifier: Apache-2.0
"""Dequantisation of int4 weights, two in a byte, with a scale and a zero point for each block of a row;
passes/quantization/int4.py emits it for ONNX's DequantizeLinear of such weights."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_equal
from ...ir.dims import Dim, ceildiv
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register


def pack_two_per_byte(numbers: np.ndarray) -> np.ndarray:
    """Packs numbers from 0 to 15, [N, K], to uint8 [N, ceil(K / 2)], the first of two in the low four bits."""
    even = np.pad(numbers.astype(np.uint8), ((0, 0), (0, numbers.shape[1] % 2)))
    return even[:, ::2] | even[:, 1::2] << 4


def unpack_two_per_byte(packed: np.ndarray, count: int) -> np.ndarray:
    """Unpacks uint8 [..., ceil(count / 2)] to numbers from 0 to 15, uint8 [..., count], the inverse of
    `pack_two_per_byte`."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)[..., :count]


def dequantize_int4(w: np.ndarray, scale: np.ndarray, zero: np.ndarray, block: int, depth: int) -> np.ndarray:
    """Returns (number - zero) * scale, float32 [..., depth].

    w: numbers, uint8 [..., ceil(depth / 2)]. scale, zero: float32 and uint8 [..., ceil(depth / block)].
    """
    numbers = unpack_two_per_byte(w, depth).astype(np.int32)
    block_of = np.arange(depth) // block  # the block of each number of a row
    values: np.ndarray = (numbers - zero[..., block_of].astype(np.int32)).astype(np.float32) * scale[..., block_of]
    return values


def _check(attrs: Attrs, w: TensorType, scale: TensorType, zero: TensorType, depth: Dim) -> None:
    """Raises ShapeError unless these are the types of weights with `depth` numbers in a row."""
    if attrs.block % 2 or attrs.block < 2:
        raise ShapeError(f"blocks of {attrs.block} numbers do not end at a byte")
    blocks = (*w.shape[:-1], ceildiv(depth, attrs.block))
    if w.dtype != "uint8" or (scale.dtype, zero.dtype) != ("float32", "uint8"):
        raise ShapeError(f"weights {w}, scales {scale}, zero points {zero}; wanted are uint8, float32, uint8")
    require_equal(w.shape[-1], ceildiv(depth, 2), f"{w} does not hold {depth} numbers of 4 bits a row")
    if scale.shape != blocks or zero.shape != blocks:
        raise ShapeError(f"scales {scale} and zero points {zero} for {w} in blocks of {attrs.block}")


@register
class DequantizeInt4(Operator):
    """(number - zero) * scale, for numbers of 4 bits.

    Operands: w, the numbers, uint8 [..., ceil(K / 2)], two in a byte; scale float32 and zero uint8
    [..., ceil(K / block)]. Result: float32 [..., K]. Attributes: `block`: the numbers of a row that share a scale, an
    even number; `depth`: K.
    """

    kind = "dequantize_int4"
    operands = ("w", "scale", "zero")

    @staticmethod
    def infer(attrs: Attrs, w: TensorType, scale: TensorType, zero: TensorType) -> tuple[TensorType, ...]:
        _check(attrs, w, scale, zero, attrs.depth)
        return (TensorType("float32", (*w.shape[:-1], attrs.depth)),)

    @staticmethod
    def compute(attrs: Attrs, w: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, ...]:
        return (dequantize_int4(w, scale, zero, attrs.block, attrs.depth),)


def _case(shape: tuple[int, ...], depth: int, block: int) -> Case:
    """Returns a case of random weights. shape: all axes of w but the last."""
    random = np.random.default_rng(depth)
    rows, blocks = int(np.prod(shape)), ceildiv(depth, block)
    arrays = (pack_two_per_byte(random.integers(0, 16, (rows, depth))), random.uniform(0.01, 0.1, (rows, blocks)),
              random.integers(0, 16, (rows, blocks)))
    operands = [array.reshape(*shape, -1) for array in arrays]
    return Case(tuple((array.shape, dtype)
                      for array, dtype in zip(operands, ("uint8", "float32", "uint8"), strict=True)),
                {"block": block, "depth": depth}, values=dict(enumerate(operands)))


DequantizeInt4.cases = (_case((7,), depth=64, block=16), _case((2, 3), depth=33, block=32),
                        _case((1,), depth=300, block=256))
