# SPDX-License-Identifier: Apache-2.0
"""Products with weights of 4 to 8 bits that have a scale for each block of a row: MatMulNBits of com.microsoft and the
weights of GGUF files. Activations are float32, or quantised to int8 in blocks at run time."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_equal
from ...ir.dims import Dim, ceildiv, round_up
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register
from ..elementwise import cast_to, emit_broadcast
from .int4 import pack_two_per_byte

#: The number of neighbouring activations that share a scale.
BLOCK = 32
#: The bits that a weight can have.
WEIGHT_BITS = (4, 5, 6, 8)
#: Blocks whose largest activation is smaller become zero. So no scale or factor is subnormal, and CPUs that flush
#: subnormal numbers to zero give the same bits.
MIN_BLOCK_MAXIMUM = np.float32(2.0 ** -100)


def default_zero_point(bits: int) -> int:
    """Returns the zero point of weights without offsets, 2^(bits - 1)."""
    return 1 << (bits - 1)


def operand_bits(bits: int) -> int:
    """Returns the bits that a weight takes in operand w; those of 5 and 6 bits take a byte there, and kernels pack
    them."""
    return bits if 8 % bits == 0 else 8


def unpack_weights(w: np.ndarray, bits: int, depth: int) -> np.ndarray:
    """Unpacks stored weights, uint8 [rows, ceil(depth * operand_bits / 8)], to numbers, uint8 [rows, depth]. The first
    number of a byte is in its lowest bits."""
    bits = operand_bits(bits)
    parts = [w >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(len(w), -1)[:, :depth]


def dequantize_weights(w: np.ndarray, scale: np.ndarray, offset: np.ndarray | None, bits: int, block: int,
                       depth: int) -> np.ndarray:
    """Returns stored weights as float32 [rows, depth]; the product is rounded, then the sum.

    w: as for `unpack_weights`. scale, offset: float32 [rows, ceil(depth / block)]; no offset stands for the zero point
    2^(bits - 1).
    """
    numbers = unpack_weights(w, bits, depth).astype(np.float32)
    block_of = np.arange(depth) // block  # the block of each number of a row
    if offset is None:
        return (numbers - np.float32(default_zero_point(bits))) * scale[:, block_of]
    return numbers * scale[:, block_of] + offset[:, block_of]


def check_weights(attrs: Attrs, w: TensorType, scale: TensorType, offset: TensorType | None, bias: TensorType | None,
                  depth: Dim) -> None:
    """Raises ShapeError unless operands of these types are weights with `depth` numbers in a row, as matmul_nbits has
    them."""
    if attrs.bits not in WEIGHT_BITS or attrs.block < 2 or attrs.block % 2:
        raise ShapeError(f"weights of {attrs.bits} bits in blocks of {attrs.block}")
    if w.dtype != "uint8" or w.rank != 2 or any(t.dtype != "float32" for t in (scale, offset, bias) if t is not None):
        raise ShapeError(f"weights {w}, scales {scale}; wanted are uint8 and float32")
    require_equal(w.shape[1], ceildiv(depth * operand_bits(attrs.bits), 8),
                  f"{w} does not hold {depth} numbers of {attrs.bits} bits a row")
    blocks = (w.shape[0], ceildiv(depth, attrs.block))
    if any(t is not None and t.shape != blocks for t in (scale, offset)):
        raise ShapeError(f"scales {scale} and offsets {offset} for {w} in blocks of {attrs.block}")
    if bias is not None and bias.shape != w.shape[:1]:
        raise ShapeError(f"bias {bias} for {w.shape[0]} columns")


@register
class MatMulNBits(Operator):
    """y = a @ wᵀ + bias, as MatMulNBits of com.microsoft. A weight is scale * (number - 2^(bits - 1)) or, with offsets,
    scale * number + offset.

    Operands: a float32 [..., M, K]; w, the numbers, uint8 [N, K] or, with 4 bits, [N, ceil(K / 2)], the first of two
    numbers in the low four bits; scale and offset float32 [N, ceil(K / block)]; bias float32 [N]. Result: float32
    [..., M, N].

    Attributes: `bits`: 4, 5, 6 or 8; `block`: the numbers of a row that share a scale; `activations`: "float32", or
    "int8" if the model allows a to be quantised (passes/quantization/activations.py).
    """

    kind = "matmul_nbits"
    operands = ("a", "w", "scale", "offset?", "bias?")
    channel_axis = -1

    @staticmethod
    def infer(attrs: Attrs, a: TensorType, w: TensorType, scale: TensorType, offset: TensorType | None = None,
              bias: TensorType | None = None) -> tuple[TensorType, ...]:
        if a.dtype != "float32" or a.rank < 2:
            raise ShapeError(f"product of {a} and {w}")
        check_weights(attrs, w, scale, offset, bias, a.shape[-1])
        return (TensorType("float32", (*a.shape[:-1], w.shape[0])),)

    @staticmethod
    def compute(attrs: Attrs, a, w, scale, offset=None, bias=None) -> tuple[np.ndarray, ...]:
        weights = dequantize_weights(w, scale, offset, attrs.bits, attrs.block, a.shape[-1])
        y = np.matmul(a.astype(np.float64), weights.T.astype(np.float64))
        return ((y if bias is None else y + bias).astype(np.float32),)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * inputs[0].shape[-1]


def quantize_activation_blocks(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantises float32 [..., K], whose rows are blocks, as `QuantizeBlocks` does. Returns int8 [..., K] and the
    scales, float32 [...]."""
    with np.errstate(all="ignore"):
        largest = np.abs(blocks).max(-1, initial=np.float32(0))
        known = np.isfinite(largest)
        is_scaled = known & (largest >= MIN_BLOCK_MAXIMUM)
        scale = np.where(is_scaled, largest / np.float32(127), np.where(known, np.float32(0), np.float32(np.nan)))
        codes = np.rint(blocks * (np.float32(127) / largest)[..., None])
        q = np.where(is_scaled[..., None], codes, 0).astype(np.int8)
    return q, scale.astype(np.float32)


@register
class QuantizeBlocks(Operator):
    """Quantises activations to int8 in blocks of 32 along the last axis: q = round(x * (127 / m)), ties to even, and
    scale = m / 127, with m the largest |x| of the block. Quotients and the product are rounded to float32. A block with
    m < 2^-100 becomes zero; with an infinity or NaN in a block, its scale is NaN and all q are zero.

    Attributes: `multiple`: a multiple of 32 to which the last axis is zero-padded; `part`: 16 or 32, the length of the
    sums of q. Results: q int8 [..., K]; scale float32 [..., K / 32]; sums int32 [..., K / part].
    """

    kind = "quantize_blocks"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype != "float32" or x.rank < 1 or attrs.multiple % BLOCK or attrs.part not in (16, BLOCK):
            raise ShapeError(f"quantises float32 in blocks of {BLOCK}, not {x} in parts of {attrs.part}")
        depth = round_up(x.shape[-1], attrs.multiple)
        return tuple(TensorType(dtype, (*x.shape[:-1], ceildiv(depth, part))) for dtype, part in (
            ("int8", 1), ("float32", BLOCK), ("int32", attrs.part)))

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        padding = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % attrs.multiple)]
        q, scale = quantize_activation_blocks(np.pad(x, padding).reshape(*x.shape[:-1], -1, BLOCK))
        sums = q.reshape(*scale.shape[:-1], -1, attrs.part).sum(-1, dtype=np.int32)
        return q.reshape(*scale.shape[:-1], -1), scale, sums


@register
class MatMulNBitsInt8(Operator):
    """matmul_nbits of activations that quantize_blocks has quantised.

    A row is summed in parts, the smaller of a block and 32 numbers. The sum of a part is exact:
    s = sum(q * (number - 2^(bits - 1))) or, with offsets, s = sum(q * number). For each part in order, starting from
    y = 0: y = y + s * (a_scale * scale), then y = y + (a_scale * sum(q)) * offset. The bias is added last. Each product
    and sum is rounded to float32, so the result has the same bits on every CPU.

    Without a_scale, a part is a block, there are no offsets, and y = y + s * scale. LiteRT's activations, whose rows
    have one scale each, are of this kind; operators after this one multiply by it
    (frontends/tflite/quantized/hybrid.py).

    Operands: a, a_scale and a_sum, as the results q, scale and sums of quantize_blocks with attribute `part` the
    smaller of the block and 32; w, scale, offset and bias as those of matmul_nbits. Without offsets, kernels that
    multiply by stored numbers subtract 2^(bits - 1) * a_sum. Result: float32 [..., M, N]. Attributes: `bits`: 4, 5, 6
    or 8; `block`: 16 (not with 5 bits) or a multiple of 32; `depth`: the numbers in a row of w.
    """

    kind = "matmul_nbits_int8"
    operands = ("a", "a_scale?", "a_sum", "w", "scale", "offset?", "bias?")
    channel_axis = -1

    @staticmethod
    def infer(attrs: Attrs, a: TensorType, a_scale: TensorType | None, a_sum: TensorType, w: TensorType,
              scale: TensorType, offset: TensorType | None = None, bias: TensorType | None = None) \
            -> tuple[TensorType, ...]:
        if (a.dtype, a_sum.dtype) != ("int8", "int32") or a.rank < 2 or (a_scale or scale).dtype != "float32" \
                or (a_scale is None and offset is not None):
            raise ShapeError(f"product of {a}, scales {a_scale}, sums {a_sum}")
        if not is_supported_block(attrs.block, attrs.bits):
            raise ShapeError(f"blocks of {attrs.block} numbers of {attrs.bits} bits are no parts of blocks of {BLOCK}")
        depth = round_up(attrs.depth, activation_multiple(attrs.block))
        for what, part in ((a, 1), (a_scale, BLOCK), (a_sum, min(attrs.block, BLOCK))):
            if what is not None and what.shape != (*a.shape[:-1], depth // part):
                raise ShapeError(f"{what} for {attrs.depth} numbers in blocks of {attrs.block}")
        check_weights(attrs, w, scale, offset, bias, attrs.depth)
        return (TensorType("float32", (*a.shape[:-1], w.shape[0])),)

    @staticmethod
    def compute(attrs: Attrs, a, a_scale, a_sum, w, scale, offset=None, bias=None) -> tuple[np.ndarray, ...]:
        part, depth = attrs.block if a_scale is None else min(attrs.block, BLOCK), a.shape[-1]
        padding = (0, 0), (0, depth // attrs.block - scale.shape[1])
        scale, offset = np.pad(scale, padding), None if offset is None else np.pad(offset, padding)
        numbers = np.zeros((len(w), depth), np.int64)
        numbers[:, :attrs.depth] = unpack_weights(w, attrs.bits, attrs.depth)
        if offset is None:
            numbers[:, :attrs.depth] -= default_zero_point(attrs.bits)
        y = np.zeros((*a.shape[:-1], len(w)), np.float32)
        with np.errstate(all="ignore"):
            for index, first in enumerate(range(0, depth, part)):
                columns = slice(first, first + part)
                block, a_block = first // attrs.block, first // BLOCK  # whose scales the part has
                sums = (a[..., columns].astype(np.int64) @ numbers[:, columns].T).astype(np.float32)
                y = y + sums * (scale[:, block] if a_scale is None else a_scale[..., a_block, None] * scale[:, block])
                if offset is not None:
                    a_total = a_scale[..., a_block] * a_sum[..., index].astype(np.float32)
                    y = y + a_total[..., None] * offset[:, block]
            return (y if bias is None else y + bias,)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * attrs.depth


def is_supported_block(block: int, bits: int) -> bool:
    """Returns whether a block of weights is a part or a multiple of a block of activations, and the fifth bits of a
    column in it fill whole bytes of a vector."""
    return (block == 16 and bits != 5) or block % BLOCK == 0


def activation_multiple(block: int) -> int:
    """Returns attribute `multiple` of `quantize_blocks` for weights in blocks of this size."""
    return max(block, BLOCK)


@decomposes("com.microsoft::MatMulNBits")
def matmul_nbits(node: OnnxNode) -> tuple[str, ...]:
    """Imports MatMulNBits. Operands: A [..., K], B uint8 [N, blocks, bytes of a block], scales [N, blocks], zero
    points, g_idx [K], the block whose scale and zero point each column of B has, and bias [N].

    Weights of 2 bits become numbers of 4 bits with the same distance from their zero point. If g_idx (GPTQ with
    act-order) gives each block as many columns as it has, columns of A and B are put in the order of blocks; else B is
    dequantised.

    Raises:
        ShapeError: if the operands contradict the attributes.
        MegccError: for other numbers of bits.
    """
    bits, block, k, n = node.attr("bits", 4), node.attr("block_size"), node.attr("K"), node.attr("N")
    if min(block, k, n) < 1:
        raise ShapeError(f"has {n} rows of {k} numbers in blocks of {block}")
    blocks = ceildiv(k, block)
    if bits not in (2, 4, 8):
        raise MegccError(f"has weights of {bits} bits; those of 2, 4 and 8 are supported")
    given = node.const(1, "B")
    if block < 2 or given.size != n * blocks * (block * bits // 8):
        raise ShapeError(f"B is {node.type(1)}, not {n} rows of {blocks} blocks of {block} numbers")
    scale = node.const(2, "scales").astype(np.float32).reshape(n, blocks)
    zero = _zero_points(node, bits, n, blocks)
    rows = np.ascontiguousarray(given.reshape(n, -1)[:, :ceildiv(k * bits, 8)])
    if bits == 2:
        excess, bits = default_zero_point(4) - default_zero_point(2), 4
        rows, zero = pack_two_per_byte(unpack_weights(rows, 2, k) + np.uint8(excess)), zero + excess
    (a,) = cast_to(node, node.inputs[0], "float32")
    block_of = _blocks_of_columns(node, k, blocks)
    if block_of is not None:
        order = np.argsort(block_of, kind="stable")
        numbers = unpack_weights(rows, bits, k)
        if not np.array_equal(block_of[order], np.arange(k) // block):
            weights = (numbers - zero[:, block_of]) * scale[:, block_of]
            (y,) = node.emit("matmul", (a, node.constant(weights)), trans_a=0, trans_b=1)
            return _biased(node, y)
        (a,) = node.emit("gather", (a, node.constant(order.astype(np.int32))), axis=node.type(0).rank - 1)
        rows = pack_two_per_byte(numbers[:, order]) if bits == 4 else np.ascontiguousarray(numbers[:, order])
    offset = node.constant(-zero * scale) if (zero != default_zero_point(bits)).any() else ""
    allows_int8 = node.attr("accuracy_level", 0) == 4  # ONNX Runtime: the lowest precision of activations is int8
    (y,) = node.emit("matmul_nbits", (a, node.constant(rows), node.constant(scale), offset), bits=bits, block=block,
                     activations="int8" if allows_int8 else "float32")
    return _biased(node, y)


def _biased(node: OnnxNode, y: str) -> tuple[str, ...]:
    """Adds the bias of MatMulNBits to a float32 product, if there is one, and converts the sum to the dtype of A."""
    if node.has(5):
        (y,) = emit_broadcast(node, "add", (y, *cast_to(node, node.inputs[5], "float32")))
    return cast_to(node, y, node.type(0).dtype)


def _blocks_of_columns(node: OnnxNode, k: int, blocks: int) -> np.ndarray | None:
    """Returns g_idx, the block of each of `k` columns; None if columns are in the order of blocks.

    Raises:
        ShapeError: if g_idx has fewer elements, or names a block that does not exist.
    """
    if not node.has(4):
        return None
    block_of = node.const(4, "g_idx").reshape(-1)[:k].astype(np.int64)
    if block_of.size < k or block_of.min() < 0 or block_of.max() >= blocks:
        raise ShapeError(f"g_idx {node.type(4)} does not give each of {k} columns one of {blocks} blocks")
    return None if np.array_equal(block_of, np.arange(k) // node.attr("block_size")) else block_of


def _zero_points(node: OnnxNode, bits: int, n: int, blocks: int) -> np.ndarray:
    """Returns the zero points, float32 [n, blocks]."""
    if not node.has(3):
        return np.full((n, blocks), default_zero_point(bits), np.float32)
    points = node.const(3, "zero_points")
    if points.dtype != np.uint8:
        return np.nan_to_num(points.astype(np.float32).reshape(n, blocks))
    return unpack_weights(points.reshape(n, -1), bits, blocks).astype(np.float32)


def random_weights(rows: int, depth: int, bits: int, block: int, seed: int, extreme: bool = False) -> list[np.ndarray]:
    """Returns random weights for tests: stored numbers, scales and offsets, as operands of matmul_nbits. Offsets are
    those of integer zero points or, if `rows` is a multiple of 3, any floats. extreme: the numbers are limits of their
    range: either limit if the seed is odd, else all are 0."""
    random, blocks = np.random.default_rng(seed), ceildiv(depth, block)
    numbers = random.integers(0, 1 << bits, (rows, depth))
    if extreme:
        numbers = np.where(random.integers(0, 2, numbers.shape), (1 << bits) - 1, 0) if seed % 2 else numbers * 0
    w = pack_two_per_byte(numbers) if bits == 4 else numbers.astype(np.uint8)
    scale = (random.uniform(0.01, 0.1, (rows, blocks)) * random.choice([-1, 1], (rows, blocks))).astype(np.float32)
    zero = random.integers(0, 1 << bits, scale.shape).astype(np.float32)
    return [w, scale, -(zero * scale) if rows % 3 else random.normal(size=scale.shape).astype(np.float32)]


def _float_case(a: tuple[int, ...], rows: int, bits: int, block: int, offset: bool = False, bias: bool = False) -> Case:
    """Returns a case of matmul_nbits. a: the shape of the activations. rows: those of the weights."""
    w, scale, offsets = random_weights(rows, a[-1], bits, block, rows)
    return Case((f32(*a), (w.shape, "uint8"), f32(*scale.shape), f32(*scale.shape) if offset else None,
                 f32(rows) if bias else None), {"bits": bits, "block": block, "activations": "float32"}, (1, 2, 3, 4),
                {1: w, 2: scale, **({3: offsets} if offset else {})})


def _int8_case(a: tuple[int, ...], rows: int, bits: int, block: int, offset: bool = False, bias: bool = False,
               float16_scales: bool = False, extreme: bool = False, has_a_scale: bool = True) -> Case:
    """Returns a case of matmul_nbits_int8.

    a: the shape of the activations. rows: those of the weights.
    float16_scales: scales and offsets are representable in float16.
    extreme: weights and activations are limits of their ranges.
    has_a_scale: whether the operand a_scale is present.
    """
    w, scale, offsets = random_weights(rows, a[-1], bits, block, rows, extreme)
    if float16_scales:
        scale, offsets = (reals.astype(np.float16).astype(np.float32) for reals in (scale, offsets))
    x = np.random.default_rng(block).standard_normal(a).astype(np.float32)
    if extreme:
        x = np.where(x > -0.5, np.float32(3), np.float32(-3))
    q = QuantizeBlocks.compute(Attrs(multiple=activation_multiple(block), part=min(block, BLOCK)), x)
    given = {**dict(enumerate(q)), 3: w, 4: scale, **({5: offsets} if offset else {})}
    if not has_a_scale:
        given.pop(1)
    return Case(tuple((given[i].shape, given[i].dtype.name) if i in given else None for i in range(6))
                + ((f32(rows) if bias else None),), {"bits": bits, "block": block, "depth": a[-1]}, (3, 4, 5, 6), given)


MatMulNBits.cases = (
    _float_case((1, 64), 40, 4, 16), _float_case((1, 128), 33, 4, 32, offset=True, bias=True),
    _float_case((5, 96), 70, 8, 32), _float_case((2, 3, 75), 17, 4, 16, offset=True, bias=True),
    _float_case((9, 256), 64, 4, 256), _float_case((1, 33), 5, 8, 128, offset=True),
    _float_case((13, 40), 3, 4, 40, offset=True, bias=True), _float_case((3, 64), 21, 6, 16),
    _float_case((2, 75), 17, 5, 32, offset=True))
QuantizeBlocks.cases = tuple(Case(
    (f32(*shape),), {"multiple": most, "part": part}, values={0: x}) for shape, most, part, x in (
    ((3, 64), 32, 32, np.random.default_rng(0).standard_normal((3, 64))),
    ((2, 2, 75), 32, 16, np.random.default_rng(1).standard_normal((2, 2, 75)) * 1e30),
    ((1, 33), 128, 32, np.linspace(-1, 1, 33) * 1e-27), ((2, 32), 32, 16, np.zeros((2, 32))),
    ((1, 1), 32, 32, [[-2.5]]),
    ((1, 160), 64, 32, np.where(np.arange(160) == 40, np.inf, np.where(np.arange(160) == 70, np.nan, np.arange(160))))))
MatMulNBitsInt8.cases = (
    _int8_case((1, 64), 40, 4, 32, float16_scales=True), _int8_case((1, 128), 33, 4, 32, offset=True, bias=True),
    _int8_case((5, 96), 70, 8, 32), _int8_case((2, 3, 75), 17, 4, 16, offset=True, bias=True),
    _int8_case((9, 256), 64, 8, 16, float16_scales=True), _int8_case((1, 33), 5, 8, 128, offset=True),
    _int8_case((7, 320), 131, 4, 64, offset=True, float16_scales=True),
    _int8_case((4, 64), 35, 4, 32, offset=True, extreme=True), _int8_case((4, 64), 34, 8, 32, extreme=True),
    _int8_case((6, 64), 33, 8, 32, offset=True, extreme=True),
    _int8_case((5, 256), 33, 4, 128, float16_scales=True, has_a_scale=False),
    _int8_case((3, 96), 35, 4, 32, extreme=True, has_a_scale=False),
    _int8_case((2, 48), 9, 8, 16, bias=True, has_a_scale=False), _int8_case((37, 64), 20, 4, 32),
    _int8_case((6, 192), 34, 8, 64, extreme=True, has_a_scale=False),
    _int8_case((1, 64), 40, 6, 16), _int8_case((5, 75), 35, 6, 16, offset=True, bias=True),
    _int8_case((6, 130), 34, 6, 32, float16_scales=True), _int8_case((3, 96), 9, 6, 32, offset=True, extreme=True),
    _int8_case((1, 64), 40, 5, 32, float16_scales=True), _int8_case((5, 75), 35, 5, 32, offset=True, bias=True),
    _int8_case((6, 130), 34, 5, 64, float16_scales=True), _int8_case((3, 96), 9, 5, 32, offset=True, extreme=True),
    _int8_case((4, 96), 35, 6, 32, extreme=True, has_a_scale=False))
