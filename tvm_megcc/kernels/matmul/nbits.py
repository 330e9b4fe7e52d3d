# SPDX-License-Identifier: Apache-2.0
"""The kernels of products with weights of 4 to 8 bits that have a scale, and maybe an offset, for each block of a row.

A weight is element * scale + offset, where `element` is the stored integer (operators `matmul_nbits` and
`matmul_nbits_int8`). With float32 activations, the kernel `nbits` dequantizes weights in registers, and weights, scales
and offsets are packed as panels. With int8 activations, the kernel `dots` sums integers, and a stream of bytes holds
weights, scales and offsets in the order in which they are read. The kernel `blocks` makes int8 activations, of which
`BLOCK`, 32, share a scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import Dim, ceildiv, dim_min, floordiv, product, round_up
from ...ops.quantized.nbits import BLOCK, activation_multiple, default_zero_point, operand_bits, unpack_weights
from ...target import Isa
from ..base import LARGE_CALL, Kernel, Lowered, Operand, extent_symbols, present
from ..microkernel.panel_tile import PanelTile
from ..packing import packer
from ..parameters import Parameters, Scope
from ..site import Site
from .nbits_int8_arm_tile import PACKED_ROWS, NBitsInt8Arm
from .nbits_int8_tile import NBitsInt8Tile, has_complements, scale_and_offset_bytes, sums_columns, unpacked_bytes
from .scale_factors import SUPER_BLOCK, scale_factors
from .weight_dtype import fits_float16


@packer("panels")
def pack_panels(array: np.ndarray, width: int) -> np.ndarray:
    """Packs [N, X] as [N/width][X][width], with zeros after the last row."""
    rows = np.pad(array, ((0, -array.shape[0] % width), (0, 0)))
    return np.swapaxes(rows.reshape(-1, width, array.shape[1]), 1, 2)


def zero_points(scale: np.ndarray, offset: np.ndarray) -> np.ndarray | None:
    """Returns the uint8 zero points for which offset is -(zero * scale), rounded to float32; None if some offset has
    none. scale, offset: float32 arrays of one shape, which is that of the result."""
    with np.errstate(all="ignore"):
        zero = np.clip(np.rint(np.nan_to_num(offset / -scale)), 0, 255).astype(np.float32)
        return zero.astype(np.uint8) if np.array_equal(-(zero * scale), offset) else None


@packer("zero_panels")
def pack_zeros(offset: np.ndarray, scale: np.ndarray, width: int) -> np.ndarray:
    """Packs the zero points of offsets [N, X] as `panels` does."""
    zero = zero_points(scale, offset)
    assert zero is not None
    return pack_panels(zero, width)


def panel_width(isa: Isa, columns: int) -> int:
    """Returns the columns of a panel of weights for products of floats: two vectors, or four columns without vectors,
    but no more than hold the columns of the product."""
    return min(2 if isa.lanes > 1 else 4, -(-columns // isa.lanes)) * isa.lanes


def panel_operands(offset: str, width: int, weight_bytes: Dim, scales: Dim) -> tuple[Operand, ...]:
    """Returns weights, scales and offsets, operands 1 to 3 of an operator, as panels of `width` columns.

    offset: as `offset_kind` returns it. weight_bytes, scales: elements of the weights, and of scales and offsets.
    """
    offsets = Operand("offset", 3, scales, ("panels", width))
    if offset == "zero":
        offsets = Operand("offset", 3, scales, ("zero_panels", width), "uint8", also=(2,))
    return (Operand("w", 1, weight_bytes, ("panels", width)), Operand("scale", 2, scales, ("panels", width)), offsets)


def offset_kind(site: Site, scale: int, offset: int) -> str:
    """Returns how offsets are stored: "" if there are none, "zero" if they have uint8 zero points, else "real" (float).
    scale, offset: positions of these operands."""
    if not site.has(offset):
        return ""
    values = site.values.get(scale), site.values.get(offset)
    return "real" if any(array is None for array in values) or zero_points(*values) is None else "zero"


@dataclass(frozen=True)
class NBitsParameters(Parameters):
    """Parameters of `nbits.c.j2`.

    bits: the bits of a weight. Those of 5 and 6 bits take 8 here.
    block: the number of elements of a row that share a scale.
    offset: "real" if offsets are stored as floats, "zero" if they are stored as zero points, "" without offsets.
    bias: whether there is a bias.
    vectors: the number of vectors of columns in a panel.
    rows: the number of rows in a tile.
    """

    bits: int
    block: int
    offset: str
    bias: bool
    vectors: int
    rows: int

    def microkernel(self, scope: Scope) -> PanelTile:
        return PanelTile(self.vectors, scope)


class NBitsMatMul(Kernel):
    """Product of floats a [M, K] and weights [N, K]: y [M, N]. Weights are dequantized in registers and multiplied by
    some rows of a. One task computes one panel of columns."""

    name = "nbits"
    fuses_epilogue = True
    constants = (1, 2, 3, 4)

    def lower(self, site: Site) -> Lowered:
        isa, attrs, columns = site.isa, site.attrs, site.inputs[1].shape[0]
        width = panel_width(isa, columns)
        vectors, rows = width // isa.lanes, 4 if isa.registers > 16 else 2
        M, K, N = extent_symbols("M", "K", "N")
        extents = {"M": product(site.y.shape[:-1]), "K": site.x.shape[-1], "N": columns}
        stored_columns, blocks = ceildiv(N, width) * width, ceildiv(K, attrs.block)
        offset, bias = offset_kind(site, scale=2, offset=3), site.has(4)
        weights = panel_operands(offset, width, weight_bytes=stored_columns * ceildiv(K * operand_bits(attrs.bits), 8),
                                 scales=stored_columns * blocks)
        operands = present(site, Operand("a", 0, M * K), *weights, Operand("bias", 4, N))
        parameters = NBitsParameters(
            bits=attrs.bits, block=attrs.block, offset=offset, bias=bias, vectors=vectors, rows=rows)
        return Lowered("matmul/nbits", parameters, extents, operands, (Operand("y", 0, M * N),), ceildiv(N, width),
                       f"matmul_{attrs.bits}bits_{attrs.block}" + f"_{offset}" * bool(offset) + "_bias" * bias,
                       f"{self.name}_{vectors}v", channels=N)

    def cost(self, site: Site) -> float:
        # 2: a vector of weights is converted, and multiplied by the rows of a tile.
        return LARGE_CALL + 2.0 * site.y.size * site.x.shape[-1] / site.isa.lanes


@packer("nbits_stream")
def pack_stream(w: np.ndarray, scale: np.ndarray, *given) -> np.ndarray:
    """Packs weights w [N, bytes], scales [N, blocks] and offsets as one stream, in the order in which a product reads
    it: panels of `width` columns, which are rows of w; in each panel its blocks; in each block

        [width] scales, [width] offsets or zero points if there are any, [block / unit][width][group] bytes of elements

    If scales and offsets are factored (`scale_factors`), they are int8, and before the blocks of each super-block are
    [width] float16 by which its scales are multiplied, and [width] for its offsets if there are any.

    A unit is a group of 8-bit elements, or two groups of 4-bit elements, of which the first is in the low halves of the
    bytes. A part of a block (32 elements, or the block if that is less) of elements with 5 or 6 bits has their lower
    four bits as 4-bit elements, then the upper ones (`_pack_upper_bits`). Elements and scales after the last row of w
    and after its last element are zero. For Arm's tiles, elements lie as `_pack_for_tiles` says.

    given: offsets if there are any; then bits, block, depth, width, group; whether scales and offsets are float16;
    whether offsets are zero points; which elements have their highest bit inverted; whether vectors have
        elements of two columns; whether scales and offsets are factored; whether they are for Arm's tiles (`Stream`).
    """
    *offset, bits, block, depth, width, group, float16_scales, zero, flipped, pairs, factored, tiled = given
    missing_rows, padded = -w.shape[0] % width, round_up(depth, activation_multiple(block))
    elements = np.pad(unpack_weights(w, bits, depth), ((0, missing_rows), (0, padded - depth)))
    elements = elements.reshape(-1, width, padded // block, block)
    high = default_zero_point(bits)
    elements = elements ^ np.tile(np.array({"": (0, 0), "all": (high, high), "odd": (0, high)}[flipped], np.uint8),
                                  block // 2)
    stored = _pack_for_tiles(elements, bits, group) if tiled else _pack_elements(elements, bits, group, pairs)
    panels, blocks = elements.shape[0], elements.shape[2]
    parts, shared = [], []
    for array in (scale, *((zero_points(scale, offset[0]),) if zero else offset)):
        values = np.pad(array, ((0, missing_rows), (0, blocks - array.shape[1])))
        if factored and values.dtype != np.uint8:
            factors = scale_factors(values, block)
            assert factors is not None
            shared.append(_by_block(factors[0], width))
            values = factors[1]
        elif values.dtype != np.uint8:
            values = values.astype(np.float16 if float16_scales else np.float32)
        parts.append(_by_block(values, width))
    packed = np.concatenate([*parts, stored], 2)
    return np.concatenate([*shared, packed.reshape(panels, shared[0].shape[1], -1)], 2) if shared else packed


def _by_block(values: np.ndarray, width: int) -> np.ndarray:
    """Returns the bytes of values [rows, blocks] as [panels, blocks, bytes of `width` rows]."""
    by_panel = values.reshape(-1, width, values.shape[1])
    return np.ascontiguousarray(by_panel.swapaxes(1, 2)).view(np.uint8)


def _pack_elements(elements: np.ndarray, bits: int, group: int, pairs: bool) -> np.ndarray:
    """Packs uint8 elements [panels, width, blocks, block] as `pack_stream` says: [panels, blocks, bytes]."""
    panels, width, blocks, block = elements.shape
    part = min(block, BLOCK)
    by_part = elements.reshape(panels, width, blocks, block // part, part)
    if bits == 8:
        return _interleave(by_part.reshape(*by_part.shape[:4], -1, group)).reshape(panels, blocks, -1)
    low_and_high = by_part.reshape(*by_part.shape[:4], -1, 2, group) & 15
    planes = [_interleave(low_and_high[..., 0, :] | low_and_high[..., 1, :] << 4)]
    if bits > 4:
        planes.append(_pack_upper_bits(by_part >> 4, bits - 4, pairs))
    return np.concatenate(planes, -1).reshape(panels, blocks, -1)


def _pack_for_tiles(elements: np.ndarray, bits: int, group: int) -> np.ndarray:
    """Packs uint8 elements of 4 or 8 bits, [panels, width, blocks, block], as [panels, blocks, bytes]. The bytes of a
    block are [block / part][width / 4][part / unit][4][group]; unit and part are those of `pack_stream`."""
    panels, width, blocks, block = elements.shape
    part = min(block, BLOCK)
    by_unit = elements.reshape(panels, width // 4, 4, blocks, block // part, -1, 8 // bits, group)
    stored = by_unit[..., 0, :] if bits == 8 else by_unit[..., 0, :] | by_unit[..., 1, :] << 4
    return stored.transpose(0, 3, 4, 1, 5, 2, 6).reshape(panels, blocks, -1)


def _interleave(groups: np.ndarray) -> np.ndarray:
    """Puts groups [panels, width, blocks, parts, groups, group] of all columns beside each other: [panels, blocks,
    parts, bytes]."""
    return groups.transpose(0, 2, 3, 4, 1, 5).reshape(groups.shape[0], *groups.shape[2:4], -1)


def _pack_upper_bits(upper: np.ndarray, bits: int, pairs: bool) -> np.ndarray:
    """Packs the upper `bits` bits of elements [panels, width, blocks, parts, part]: [panels, blocks, parts, bytes].

    A byte has those of 8 / bits vectors with which a product multiplies one after the other, the first in its lowest
    bits (`NBitsInt8Tile.elements`). A vector has four elements of each column or, with `pairs`, eight of each of two.
    """
    panels, width, blocks, parts, part = upper.shape
    per_byte = 8 // bits
    if pairs:  # two columns: the first eight elements, the next eight; then the next two columns
        by_pair = upper.reshape(panels, width // 4, 2, 2, blocks, parts, part // 16, 2, 8)
        vectors = by_pair.transpose(0, 4, 5, 6, 2, 7, 1, 3, 8)
    else:
        vectors = upper.reshape(panels, width, blocks, parts, -1, 4).transpose(0, 2, 3, 4, 1, 5)
    vectors = vectors.reshape(panels, blocks, parts, -1, per_byte, width * 4)
    shifted = vectors << (bits * np.arange(per_byte, dtype=np.uint8))[:, None]
    return np.bitwise_or.reduce(shifted, -2).reshape(panels, blocks, parts, -1)


@dataclass(frozen=True)
class Stream:
    """The layout of packed weights for products of integers (`nbits_stream`).

    bits: the bits of a weight.
    block: the number of elements of a row that share a scale.
    depth: the number of elements of a row.
    padded: the same, rounded up to a multiple of the blocks of activations.
    width: the number of columns in a panel.
    group: the number of elements of a column that lie together.
    float16_scales: whether scales and offsets are stored as float16.
    offset: "real", "zero" or "" (`offset_kind`).
    flipped: which elements have their highest bit inverted: "all", "odd", those at odd positions, or "".
    pairs: whether vectors have elements of two columns, for SMMLA.
    factored: whether scales and offsets are factored (`scale_factors`).
    tiled: whether Arm's tiles read them (`has_arm_tiles`).
    """

    bits: int
    block: int
    depth: int
    padded: int
    width: int
    group: int
    float16_scales: bool
    offset: str
    flipped: str
    pairs: bool
    factored: bool
    tiled: bool

    @staticmethod
    def of(site: Site, w: int) -> Stream:
        """Returns the stream of the operands w, w + 1 (scales) and w + 2 (offsets) of an operator."""
        isa, attrs, columns = site.isa, site.attrs, site.inputs[w].shape[0]
        group = group_of(isa, attrs.bits, min(attrs.block, BLOCK))
        # Without vectors, uint8 zero points would misalign the floats after them, which some CPUs cannot load.
        offset = offset_kind(site, scale=w + 1, offset=w + 2)
        offset = "real" if offset and isa.lanes == 1 else offset
        stored_floats = [site.values.get(index) for index in ((w + 1, w + 2) if offset == "real" else (w + 1,))]
        # The DSP extension's conversion of float16 is for finite numbers.
        float16_scales = all(array is not None and fits_float16(array)
                             and (not isa.dsp or bool(np.isfinite(array).all())) for array in stored_floats)
        factored = not float16_scales and SUPER_BLOCK % attrs.block == 0 and attrs.depth % SUPER_BLOCK == 0 and all(
            array is not None and scale_factors(array, attrs.block) is not None for array in stored_floats)
        tiled = has_arm_tiles(isa, attrs.bits, factored)
        width = (4 if tiled else _tile(isa, attrs.bits)[0]) * isa.lanes
        # Arm's tiles take signed elements of 4 bits, unless there are offsets for unsigned ones.
        return Stream(
            bits=attrs.bits, block=attrs.block, depth=attrs.depth,
            padded=round_up(attrs.depth, activation_multiple(attrs.block)),
            width=width if isa.dsp else min(width, -(-columns // isa.lanes) * isa.lanes), group=group,
            float16_scales=float16_scales, offset=offset,
            flipped=_flipped(isa) if attrs.bits == 8 else "all" if tiled and not offset else "",
            pairs=isa.dot_product == "smmla", factored=factored, tiled=tiled)

    def column_bytes(self, depth: Dim) -> Dim:
        """Returns the bytes of a column of `depth` elements, with its scales and offsets."""
        scales, shared = scale_and_offset_bytes(self.offset, self.float16_scales, self.factored)
        block_bytes = self.block * self.bits // 8 + scales
        if not self.factored:
            return ceildiv(depth, self.block) * block_bytes
        return ceildiv(depth, SUPER_BLOCK) * (shared + SUPER_BLOCK // self.block * block_bytes)

    def operand(self, w: int, columns: Dim, depth: Dim) -> Operand:
        """Returns the stream as operand w of an operator. columns, depth: extents or symbols that its size is over."""
        size = ceildiv(columns, self.width) * self.width * self.column_bytes(depth)
        packing = ("nbits_stream", self.bits, self.block, self.depth, self.width, self.group, self.float16_scales,
                   self.offset == "zero", self.flipped, self.pairs, self.factored, self.tiled)
        return Operand("w", w, size, packing, "uint8", also=(w + 1, w + 2) if self.offset else (w + 1,))


@dataclass(frozen=True)
class NBitsInt8Shared(Parameters):
    """Parameters that `nbits_int8.c.j2` and `nbits_int8_arm.c.j2` share.

    bits: the bits of a weight.
    block: the number of elements of a row that share a scale.
    part: the number of elements of x that share a scale and a sum: 32, or `block` if that is less.
    block_sums: whether integers are summed over a block, because x has no scales and weights have no offsets; else over
        a part of it.
    offset: "real" if offsets are stored as floats, "zero" if they are stored as zero points, "" without offsets.
    bias: whether there is a bias.
    float16_scales: whether scales and offsets are stored as float16.
    weight_offset: the difference of stored elements and weights; times the sum of a part of x, it is subtracted.
    vectors: the number of vectors of columns in a panel.
    rows: the number of rows of the tallest tile.
    pairs: whether rows are multiplied two at a time.
    factored: whether scales and offsets are int8, and a super-block of elements has float16 by which they are
        multiplied.
    """

    bits: int
    block: int
    part: int
    block_sums: bool
    offset: str
    bias: bool
    float16_scales: bool
    weight_offset: int
    vectors: int
    rows: int
    pairs: bool
    factored: bool


@dataclass(frozen=True)
class NBitsInt8Parameters(NBitsInt8Shared):
    """Parameters of `nbits_int8.c.j2`.

    unpacks: whether x is unpacked into scratch first (mgc_dots_unpack of simd/dsp_blocks.h).
    """

    unpacks: bool

    def microkernel(self, scope: Scope) -> NBitsInt8Tile:
        return NBitsInt8Tile(self, scope)


@dataclass(frozen=True)
class NBitsInt8ArmParameters(NBitsInt8Shared):
    """Parameters of `nbits_int8_arm.c.j2`."""

    def microkernel(self, scope: Scope) -> NBitsInt8Arm:
        return NBitsInt8Arm(self, scope)


class NBitsInt8MatMul(Kernel):
    """Product of int8 x [M, K] and weights [N, K]: y [M, N] of floats. Sums over a part of a block are integers, those
    over a row are floats. One task computes one panel of columns."""

    name = "dots"
    fuses_epilogue = True
    constants = (3, 4, 5, 6)

    def lower(self, site: Site) -> Lowered:
        isa, stream, columns = site.isa, Stream.of(site, 3), site.inputs[3].shape[0]
        bits, block, offset, float16_scales = stream.bits, stream.block, stream.offset, stream.float16_scales
        part, rows, pairs = min(block, BLOCK), 8 if stream.tiled else _tile(isa, bits)[1], isa.dot_product == "smmla"
        vectors, width = stream.width // isa.lanes, stream.width
        M, K, N = extent_symbols("M", "K", "N")
        extents = {"M": product(site.y.shape[:-1]), "K": stream.padded, "N": columns}
        w = stream.operand(3, N, K)
        weight_offset = default_zero_point(bits) * (bool(not offset) - bool(stream.flipped))
        sums = [Operand("x_sum", 2, M * ceildiv(K, part))] * bool(weight_offset or offset)
        operands = present(site, Operand("x", 0, M * K), Operand("x_scale", 1, M * ceildiv(K, BLOCK)), *sums, w,
                           Operand("bias", 6, N))
        bias, block_sums = site.has(6), not site.has(1)
        shared = NBitsInt8Shared(
            bits=bits, block=block, part=part, block_sums=block_sums, offset=offset, bias=bias,
            float16_scales=float16_scales, weight_offset=weight_offset, vectors=vectors, rows=rows, pairs=pairs,
            factored=stream.factored)
        unpacks = isa.dsp and bits == 8
        parameters = (NBitsInt8ArmParameters(**vars(shared)) if stream.tiled else
                      NBitsInt8Parameters(**vars(shared), unpacks=unpacks))
        scratch = (M * ceildiv(K, part) * unpacked_bytes(part) if unpacks else
                   ceildiv(K, part) * width * 4 if has_complements(isa, bits) else 0)
        # For the name: "whole" if sums are those of whole blocks, "half" for scales in half precision (float16).
        suffix = "_whole" * block_sums + f"_{offset}" * bool(offset) + "_half" * float16_scales \
            + "_factored" * stream.factored + "_bias" * bias
        if stream.tiled:
            # Bytes of a packed row of x. With SMMLA, factors of parts are there twice (nbits_int8_arm.c.j2).
            factors = ceildiv(K, BLOCK) * (not block_sums) + ceildiv(K, part) * (bool(offset) + bool(weight_offset))
            packed_rows = dim_min(floordiv(M + 5, 8) * 8, PACKED_ROWS)  # as in the template
            scratch = packed_rows * (K + 4 * factors * (1 + pairs))
        return Lowered("matmul/nbits_int8_arm" if stream.tiled else "matmul/nbits_int8", parameters, extents, operands,
                       (Operand("y", 0, M * N),), ceildiv(N, width), f"matmul_{bits}bits_{block}_int8{suffix}",
                       f"{self.name}_{vectors}v", scratch=scratch, channels=N)

    def cost(self, site: Site) -> float:
        # 0.3: four products of each lane in one instruction.
        return LARGE_CALL + 0.3 * site.y.size * site.x.shape[-1] / site.isa.lanes


def _flipped(isa: Isa) -> str:
    """Returns which 8-bit elements of weights have their highest bit inverted, as `Stream.flipped`."""
    # mgc_dots_8 takes int8 weights, with VNNI uint8 (megcc_blocks.h), and mgc_dots_quad_8 uint8 at even positions
    # (simd/dsp_blocks.h). Code in plain C takes uint8.
    if isa.dsp:
        return "odd"
    return "all" if isa.lanes > 1 and isa.dot_dtype != "uint8" else ""


def has_arm_tiles(isa: Isa, bits: int, factored: bool) -> bool:
    """Returns whether products are those of `nbits_int8_arm.c.j2`, for Arm with dot products of int8."""
    return isa.dot_product in ("sdot", "smmla") and bits in (4, 8) and not factored


def group_of(isa: Isa, bits: int, part: int) -> int:
    """Returns how many elements of a column are neighbours in a panel. part: the elements whose sum is an integer."""
    # The DSP extension takes words (simd/dsp_blocks.h). In plain C, a byte holds one 4-bit element of each half of a
    # part. A vector of weights has eight elements of each column for SMMLA, otherwise four (megcc_blocks.h).
    if isa.lanes == 1:
        return 4 if isa.dsp and bits in (4, 8) else part // 2
    if sums_columns(isa, bits, part):
        return 16
    return 8 if isa.dot_product == "smmla" else 4


def _tile(isa: Isa, bits: int) -> tuple[int, int]:
    """Returns (vectors of columns, rows) of a tile of weights of `bits` bits."""
    if isa.lanes == 1:  # columns share the loads of x, if registers hold their sums
        return 4 if isa.dsp or isa.registers > 16 else 1, 1
    # Float sums of four rows do not fit in 16 registers, but magnitudes are computed once for all rows.
    return (2, 4) if isa.registers > 16 or has_complements(isa, bits) else (2, 2)


@dataclass(frozen=True)
class QuantizeBlocksParameters(Parameters):
    """Parameters of `quant/blocks.c.j2`. part: the number of elements that share a sum, 16 or 32."""

    part: int


class QuantizeBlocksKernel(Kernel):
    """Quantizes floats x [M, K] to int8, with a scale for each 32 elements and the sum of each part. One task quantizes
    one row."""

    name = "blocks"

    def lower(self, site: Site) -> Lowered:
        M, K, D = extent_symbols("M", "K", "D")
        part = site.attrs.part
        extents = {"M": product(site.x.shape[:-1]), "K": site.x.shape[-1],
                   "D": round_up(site.x.shape[-1], site.attrs.multiple)}
        results = (Operand("q", 0, M * D), Operand("scale", 1, M * ceildiv(D, BLOCK)),
                   Operand("sum", 2, M * ceildiv(D, part)))
        return Lowered("quant/blocks", QuantizeBlocksParameters(part), extents, (Operand("x", 0, M * K),), results, M,
                       f"quantize_blocks_{part}", self.name)

    def cost(self, site: Site) -> float:
        # For each element: 2 for the conversion and the sum; 8 for a vector, whose largest magnitude and scale are
        # found.
        return (2.0 + 8.0 / site.isa.lanes) * site.likely.x.size
