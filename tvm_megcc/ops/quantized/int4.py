# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits, two in a byte, with a scale and a zero point for each block of a row: products with them, and rows
of them as floats."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_equal
from ...ir.dims import Dim, ceildiv
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..spelling import onnx_operator


def packed(numbers: np.ndarray) -> np.ndarray:
    """[N, K] of 0 to 15 → uint8 [N, K / 2], the first of two in the low half; a last one alone beside 0."""
    even = np.pad(numbers.astype(np.uint8), ((0, 0), (0, numbers.shape[1] % 2)))
    return even[:, ::2] | even[:, 1::2] << 4


def dequantized(w: np.ndarray, scale: np.ndarray, zero: np.ndarray, block: int, depth: int) -> np.ndarray:
    """[..., depth] of float32: (number - zero) * scale."""
    numbers = np.stack([w & 15, w >> 4], -1).reshape(*w.shape[:-1], -1)[..., :depth].astype(np.int32)
    along = np.arange(depth) // block
    return (numbers - zero[..., along].astype(np.int32)).astype(np.float32) * scale[..., along]


def _check(attrs: Attrs, w: TensorType, scale: TensorType, zero: TensorType, depth: Dim) -> None:
    if attrs.block % 2 or attrs.block < 2:
        raise ShapeError(f"blocks of {attrs.block} numbers do not end at a byte")
    blocks = (*w.shape[:-1], ceildiv(depth, attrs.block))
    if w.dtype != "uint8" or (scale.dtype, zero.dtype) != ("float32", "uint8"):
        raise ShapeError(f"weights {w}, scales {scale}, zero points {zero}; wanted are uint8, float32, uint8")
    require_equal(w.shape[-1], ceildiv(depth, 2), f"{w} does not hold {depth} numbers of 4 bits a row")
    if scale.shape != blocks or zero.shape != blocks:
        raise ShapeError(f"scales {scale} and zero points {zero} for {w} in blocks of {attrs.block}")


@register
class MatMulInt4(Operator):
    """a @ w', w being (number - zero) * scale, plus a bias.

    Attribute `block`: numbers of a row that share a scale. Operands: a float32 [..., M, K]; w uint8 [N, K / 2], the
    first of two numbers in the low half; scale float32 and zero uint8 [N, blocks]; bias [N].
    """

    kind = "matmul_int4"
    operands = ("a", "w", "scale", "zero", "bias?")
    channel_axis = -1

    @staticmethod
    def infer(attrs: Attrs, a: TensorType, w: TensorType, scale: TensorType, zero: TensorType,
              bias: TensorType | None = None) -> tuple[TensorType, ...]:
        if a.dtype != "float32" or a.rank < 2 or w.rank != 2:
            raise ShapeError(f"product of {a} and {w}")
        _check(attrs, w, scale, zero, a.shape[-1])
        if bias is not None and bias.shape != w.shape[:1]:
            raise ShapeError(f"bias {bias} for {w.shape[0]} columns")
        return (TensorType("float32", (*a.shape[:-1], w.shape[0])),)

    @staticmethod
    def compute(attrs: Attrs, a, w, scale, zero, bias=None) -> tuple[np.ndarray, ...]:
        y = np.matmul(a.astype(np.float64), dequantized(w, scale, zero, attrs.block, a.shape[-1]).T)
        return ((y if bias is None else y + bias).astype(np.float32),)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * inputs[0].shape[-1]


@register
class DequantizeInt4(Operator):
    """(number - zero) * scale. Attributes `block` as of matmul_int4, `depth`: numbers of a row."""

    kind = "dequantize_int4"
    operands = ("w", "scale", "zero")

    @staticmethod
    def infer(attrs: Attrs, w: TensorType, scale: TensorType, zero: TensorType) -> tuple[TensorType, ...]:
        _check(attrs, w, scale, zero, attrs.depth)
        return (TensorType("float32", (*w.shape[:-1], attrs.depth)),)

    @staticmethod
    def compute(attrs: Attrs, w, scale, zero) -> tuple[np.ndarray, ...]:
        return (dequantized(w, scale, zero, attrs.block, attrs.depth),)


@decomposes("com.microsoft::MatMulNBits")
def matmul_nbits(node: OnnxNode) -> tuple[str, ...]:
    """A, B [N, blocks, bytes of a block], scales [N, blocks], zero points or the middle, order, bias. Numbers of 8 bits
    are 16 times their upper half and the lower one: two products."""
    bits, block, k, n = node.attr("bits", 4), node.attr("block_size"), node.attr("K"), node.attr("N")
    if min(block, k, n) < 1:
        raise ShapeError(f"has {n} rows of {k} numbers in blocks of {block}")
    blocks = ceildiv(k, block)
    if bits not in (4, 8):
        raise MegccError(f"has weights of {bits} bits; those of 4 and 8 are supported")
    given = node.const(1, "B")
    if block < 2 or given.size != n * blocks * (block * bits // 8):
        raise ShapeError(f"B is {node.type(1)}, not {n} rows of {blocks} blocks of {block} numbers")
    if node.has(4) and not np.array_equal(node.const(4, "g_idx").reshape(-1)[:k], np.arange(k) // block):
        raise MegccError("has an order of blocks (g_idx) that is not supported")
    zero, behind = _zeros(node, bits, n, blocks)
    scale = node.const(2, "scales").astype(np.float32).reshape(n, blocks)
    rows = given.reshape(n, -1)[:, :ceildiv(k * bits, 8)]
    (a,) = cast_to(node, node.inputs[0], "float32")
    y = product_with_blocks(node, a, bits, block, (rows, scale, zero), behind * scale)
    if node.has(5):
        (y,) = emit_broadcast(node, "add", (y, *cast_to(node, node.inputs[5], "float32")))
    return cast_to(node, y, node.type(0).dtype)


def product_with_blocks(node: OnnxNode, a: str, bits: int, block: int,
                        weights: tuple[np.ndarray, np.ndarray, np.ndarray], less: np.ndarray) -> str:
    """a times rows of numbers, two in a byte where they have 4 bits, with a scale and a zero point a block; less the
    sum of each block of a times its number in `less`."""
    rows, scale, zero = weights
    parts = [weights] if bits == 4 else [
        (packed(rows & 15), scale, zero & 15), (packed(rows >> 4), scale * np.float32(16), zero >> 4)]
    products = [node.emit("matmul_int4", (a, *(node.constant(np.ascontiguousarray(each)) for each in part)),
                          block=block)[0] for part in parts]
    (y,) = products if bits == 4 else node.emit("add", tuple(products))
    return _less(node, y, a, less, block) if less.any() else y


def _zeros(node: OnnxNode, bits: int, n: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Zero points [n, blocks] as integers, and what those of floats have besides."""
    rest = np.zeros((n, blocks), np.float32)
    if not node.has(3):
        return np.full((n, blocks), 1 << (bits - 1), np.uint8), rest
    points = node.const(3, "zero_points")
    if points.dtype != np.uint8:
        points = points.astype(np.float32).reshape(n, blocks)
        zero = np.clip(np.rint(np.nan_to_num(points)), 0, (1 << bits) - 1)
        return zero.astype(np.uint8), points - zero
    points = points.reshape(n, -1)
    return points if bits == 8 else np.stack([points & 15, points >> 4], -1).reshape(n, -1)[:, :blocks], rest


def _less(node: OnnxNode, y: str, a: str, number: np.ndarray, block: int) -> str:
    """y less the sum of each block of a times its number [n, blocks]."""
    shape, blocks = node.type_of(a).shape, number.shape[1]
    ends = [0] * (2 * len(shape) - 1) + [blocks * block - shape[-1]]
    a = onnx_operator(node, "Pad", a, node.constant(np.array(ends))) if ends[-1] else a
    (a,) = node.emit("reshape", (a,), shape=(*shape[:-1], blocks, block))
    (sums,) = node.emit("reduce_sum", (a,), axes=(len(shape),), keepdims=False)
    weights = node.constant(np.ascontiguousarray(number.T, np.float32))
    (moved,) = node.emit("matmul", (sums, weights), trans_a=0, trans_b=0)
    return node.emit("sub", (y, moved))[0]


def _values(rows: int, depth: int, block: int) -> dict[int, np.ndarray]:
    drawn = np.random.default_rng(depth)
    blocks = -(-depth // block)
    return {1: packed(drawn.integers(0, 16, (rows, depth))), 2: drawn.uniform(0.01, 0.1, (rows, blocks)),
            3: drawn.integers(0, 16, (rows, blocks))}


def _case(a: tuple[int, ...], rows: int, block: int, bias: bool = False) -> Case:
    values = _values(rows, a[-1], block)
    operands = ((values[1].shape, "uint8"), f32(*values[2].shape), (values[3].shape, "uint8"))
    return Case((f32(*a), *operands, f32(rows) if bias else None), {"block": block}, (1, 2, 3, 4), values)


def _rows(shape: tuple[int, ...], depth: int, block: int) -> Case:
    values = _values(int(np.prod(shape)), depth, block)
    arrays = [values[index].reshape(*shape, -1) for index in (1, 2, 3)]
    return Case(tuple((array.shape, dtype) for array, dtype in zip(arrays, ("uint8", "float32", "uint8"), strict=True)),
                {"block": block, "depth": depth}, values=dict(enumerate(arrays)))


MatMulInt4.cases = (
    _case((1, 64), 40, 16), _case((1, 128), 33, 32, True), _case((5, 96), 70, 32), _case((2, 3, 75), 17, 16, True),
    _case((9, 256), 64, 256), _case((1, 33), 5, 128), _case((13, 40), 3, 40, True))
DequantizeInt4.cases = (_rows((7,), 64, 16), _rows((2, 3), 33, 32), _rows((1,), 300, 256))
