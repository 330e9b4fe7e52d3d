# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands by dot products. A task packs its input in the order that the ISA's
instruction reads, and multiplies it by packed weights. Sums stay in registers up to the epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ...ir.dims import Dim, ceildiv, likely, product, round_up
from ...ir.types import DTYPES
from ...ops.quantized.conv_matmul import CENTRED_TYPES, INT8_TYPES
from ...target import Isa
from ..base import PACKING_CALL, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, Extent, Geometry
from ..packing import packer
from ..parameters import Scope
from ..site import Site
from .dot_microkernel import DotMicrokernel
from .products import IntegerConv, IntegerMatMul, IntegerProducts, pixel_extents
from .tiles import Tile, block


@dataclass(frozen=True)
class DotParameters(ConvParameters):
    """Parameters of `dot.c.j2`.

    unit, result: the C types of an element of x and of y.
    x_zero: the number that is subtracted from x when it is packed.
    packed_type: the C type of an element of packed x.
    step: elements of packed x in one dot product.
    fill: the value of padding in packed x.
    packed_short, x_short: suffixes of types in mgc functions, such as "i8".
    vectors: vectors of output channels in a tile.
    rest: vectors of output channels in the last tile if it has fewer, 0 if all tiles are whole.
    heights, balanced: as in `Tile`.
    flat: windows are 1x1 without padding.
    packs_x: whether a task packs its part of x; if not (only if flat), products read x itself.
    arm_sums: the instructions of Arm that sum products (`neon_sums.ACCUMULATE`); "" if mgc_dot_ functions do.
    narrow: no weight is -128.
    has_weight_zero: packed weights still have a zero point, because int8 cannot hold weights minus their zero point.
    prefetch: weights that tiles prefetch: "tile" those of the next tile's channels, "page" those 4 KB later.
    is_pmaddubsw_form: weights are lists of entries for pmaddubsw, which `pmaddubsw.py` explains.
    """

    unit: str
    result: str
    x_zero: int
    packed_type: str
    step: int
    fill: int
    packed_short: str
    x_short: str
    vectors: int
    rest: int
    heights: tuple[int, ...]
    balanced: bool
    flat: bool
    packs_x: bool
    arm_sums: str
    narrow: bool
    has_weight_zero: bool
    prefetch: str
    is_pmaddubsw_form: bool

    def microkernel(self, scope: Scope) -> DotMicrokernel:
        return DotMicrokernel.of(self, scope.isa, scope.ep, scope.known)


@dataclass(frozen=True)
class PackedForm:
    """The packed form of x: its element type, the elements of one dot product, the number that is subtracted, the zero
    point of the difference, and the type's suffix in mgc functions if it differs from the type's own."""

    dtype: str
    step: int
    x_offset: int
    zero: int
    name: str = ""

    @staticmethod
    def of(isa: Isa, dtype: str, zero: int) -> PackedForm:
        """Returns the packed form of an operand. If the ISA has 8-bit dot products, x keeps its zero point: what that
        adds to the sums is known, and is subtracted in the bias. Otherwise operands are packed as int16 minus the zero
        point."""
        if not isa.dot_dtype or dtype not in INT8_TYPES:
            return PackedForm("int16", isa.int16_step, zero, 0)
        # Inverting the highest bit converts int8 and uint8 into each other.
        return PackedForm(isa.dot_dtype, isa.dot_step, 0, zero + np.iinfo(isa.dot_dtype).min - np.iinfo(dtype).min)


#: The most bytes of weights that stay in L1.
_MAX_L1_WEIGHT_BYTES = 8 << 10
#: `Isa.dot_product` -> cycles per product, on Arm without dot-product instructions: instructions, as an estimate.
_PRODUCT_CYCLES = {"smull": 0.23, "smull_in_c": 0.45}


def zero_name(zero: int) -> str:
    """Returns a zero point as a part of a kernel's name, such as "_zm3" for -3."""
    return f"_z{zero}".replace("-", "m")


def weight_type(dtype: str, zero: int) -> str:
    """Returns the type of weights minus their zero point: int8 if it holds all values of the type, else int16."""
    return "int8" if packing_offset(dtype, zero) == zero else "int16"


def as_outputs(array: np.ndarray, outputs_first: bool) -> np.ndarray:
    """Returns the weights of a convolution or a product as [O, I, KH, KW]."""
    return array if array.ndim == 4 else (array if outputs_first else array.T)[:, :, None, None]


class WeightPacking(NamedTuple):
    """The arguments of `pack_weights`.

    outputs_first: a weight matrix is [O, I], otherwise [I, O].
    zero: the zero point of the weights.
    groups: groups of the convolution.
    runs: contiguous runs of a window, each of which is padded to a multiple of `step`.
    lanes, vectors: a tile has lanes * vectors channels; a group's last block may have fewer, in whole vectors.
    step: neighbouring weights of one channel, as many as one instruction takes.
    flipped_bits: bits that are inverted in all packed weights (dsp/pairs.py).
    padding: the weight after the last channel and after the end of a run.
    """

    outputs_first: bool
    zero: int
    groups: int
    runs: int
    lanes: int
    vectors: int
    step: int
    flipped_bits: int = 0
    padding: int = 0


@packer("dot")
def pack_weights(array: np.ndarray, *packing) -> np.ndarray:
    """Packs weights [O, I, KH, KW], or a matrix, as [groups][O/width][runs][K/step][width][step].

    They become int8 by subtraction of `packing_offset`. K is in the order (kh, kw, i), divided into runs. width:
    lanes * vectors. packing: the values of `WeightPacking`. Returns int8 of one dimension.
    """
    p = WeightPacking(*packing)
    width, packed = p.vectors * p.lanes, []
    for group in np.split(as_outputs(array, p.outputs_first), p.groups):
        outputs = group.shape[0]
        depth = np.moveaxis(group, (2, 3, 1, 0), (0, 1, 2, 3)).reshape(p.runs, -1, outputs)
        padded_shape = p.runs, round_up(depth.shape[1], p.step), round_up(outputs, p.lanes)
        padded = np.full(padded_shape, p.padding, np.int8)
        padded[:, :depth.shape[1], :outputs] = depth.astype(np.int32) - packing_offset(array.dtype.name, p.zero)
        for first in range(0, padded.shape[2], width):
            part = padded[:, :, first:first + width]
            packed.append(np.swapaxes(part.reshape(-1, p.step, part.shape[2]), 1, 2).reshape(-1))
    return np.concatenate(packed) ^ np.int8(p.flipped_bits)


def packing_offset(dtype: str, zero: int) -> int:
    """Returns the number to subtract from 8-bit weights to make them int8: their zero point if that suffices."""
    limits = np.iinfo(dtype)
    return zero if limits.min - zero >= -128 and limits.max - zero <= 127 else limits.min + 128


def packed_zero(dtype: str, zero: int) -> int:
    """Returns the zero point that weights still have after packing."""
    return zero - packing_offset(dtype, zero)


@packer("packed_zero")
def pack_zero(array: np.ndarray, zero: int) -> np.ndarray:
    """Returns the zero point of packed weights, int32 [1]: a constant of the model, so that layers with different ones
    share a kernel."""
    return np.array([packed_zero(array.dtype.name, zero)], np.int32)


@packer("dot_sums")
def pack_sums(array: np.ndarray, outputs_first: bool, zero: int, x_zero: int, zeros_after: int = 0) -> np.ndarray:
    """Returns int32 [O]: what the zero point of x adds to the sums, negated, followed by `zeros_after` zeros."""
    weights = as_outputs(array, outputs_first)
    sums = -x_zero * (weights.reshape(weights.shape[0], -1).astype(np.int64) - zero).sum(axis=1)
    return np.pad(sums.astype(np.int32), (0, zeros_after))


@packer("dot_bias")
def pack_bias(bias: np.ndarray, array: np.ndarray, *arguments) -> np.ndarray:
    """Returns the bias plus `pack_sums` of these arguments, int32 [O]; sums wrap."""
    sums = pack_sums(array, *arguments).astype(np.uint32)
    sums[:bias.size] += bias.reshape(-1).astype(np.uint32)
    return sums.astype(np.int32)


def is_narrow(site: Site, zero: int) -> bool:
    """Returns whether two products of any x with packed weights fit in int16, that is, no weight is -128."""
    weights = site.values.get(1)
    return weights is not None and weights.size > 0 and int(weights.min()) - packing_offset(weights.dtype.name,
                                                                                            zero) > -128


def with_sums(site: Site, operands: tuple[Operand, ...], weights: tuple[bool, int], x_zero: int, size: Dim,
              zeros_after: int | None = None) -> tuple[Operand, ...]:
    """Returns the operands with the correction for x's zero point added to the bias.

    weights: (outputs_first, zero point) of `pack_sums`. size: elements of the bias. zeros_after: zeros that follow the
    bias, which then always exists, because kernels read it for whole tiles of channels (dsp/pairs.py).
    """
    if not x_zero and zeros_after is None:
        return operands
    arguments, size = (*weights, x_zero, zeros_after or 0), size + (zeros_after or 0)
    if site.has(2):
        return (*operands[:2], Operand("b", 2, size, ("dot_bias", *arguments), also=(1,)))
    return (*operands, Operand("b", 1, size, ("dot_sums", *arguments), "int32"))


def _arm_sums(isa: Isa, form: PackedForm) -> str:
    """Returns the instructions of Arm that sum products of packed x; "" if mgc_dot_ functions do."""
    return isa.dot_product if form.dtype == isa.dot_dtype else ""


def _packed_depth(s: Geometry, form: PackedForm) -> int:
    """Returns the length of a channel's packed weights."""
    runs, length = runs_of(s)
    return runs * round_up(length, form.step)


def _packed_steps(s: Geometry) -> tuple[int, int]:
    """Returns (rows, columns) of packed x from one output to the next. Pixels between windows of one row or column are
    not packed."""
    return s.strides[0] if s.kh > 1 else 1, s.strides[1] if s.kw > 1 else 1


def _packed_columns(s: Geometry, outputs: Extent) -> Extent:
    """Returns the columns of packed x that a row of outputs reads."""
    return (outputs - 1) * _packed_steps(s)[1] + s.columns_read(1)


def _packed_elements(s: Geometry) -> Dim:
    """Returns the elements of x that a task packs, over the extents."""
    IC, OW, ROWS = extent_symbols("IC", "OW", "ROWS")
    if s.is_pointwise:
        return ROWS * IC
    return ((ROWS - 1) * _packed_steps(s)[0] + s.rows_read(1)) * _packed_columns(s, OW) * IC


def _prefetched(site: Site, form: PackedForm, tile: Tile, s: Geometry) -> str:
    """Returns which weights tiles prefetch (`DotParameters.prefetch`).

    "": none, because L1 holds all weights or 8-bit dot products leave no time.
    "tile": the weights of a tile are a short stream, at whose end the hardware prefetcher stops.
    "page": the weights are a long stream, which the hardware prefetcher follows to the end of a page. This is also for
        single pixels, which read the weights of all tiles as one stream, and for pmaddubsw (uint16), where the distance
        to the next tile's weights is not known because lists differ in length.
    """
    depth = _packed_depth(s, form)
    if not site.isa.prefetch_bytes or site.compact or form.dtype == site.isa.dot_dtype:
        return ""
    if s.g * s.oc * depth < _MAX_L1_WEIGHT_BYTES:
        return ""
    is_short = depth * tile.vectors * site.isa.lanes <= site.isa.prefetch_bytes
    return "tile" if is_short and tile.heights != (1,) and form.dtype == "int16" else "page"


def runs_of(s: Geometry) -> tuple[int, int]:
    """Returns (contiguous runs in a window, elements of each)."""
    return (s.kh, s.kw * s.ic) if 1 in (s.kw, s.dilations[1]) else (s.taps, s.ic)


class DotProducts(IntegerProducts):
    """The base class of `DotConv` and `DotMatMul`."""

    name = "dot"

    #: Whether weights are lists of entries (pmaddubsw.py).
    is_pmaddubsw: ClassVar[bool] = False

    def form(self, site: Site, zero: int) -> PackedForm:
        """Returns the packed form of x, whose zero point is `zero`."""
        return PackedForm.of(site.isa, site.x.dtype, zero)

    def operands(self, site: Site, s: Geometry, x: Operand, weights: tuple[bool, int], form: PackedForm,
                 vectors: int) -> tuple[tuple[Operand, ...], dict]:
        """Returns (the operands x, weights and bias, their own extents). weights: (outputs_first, zero point). vectors:
        vectors of channels in a tile."""
        G, IC, OC = extent_symbols("G", "IC", "OC")
        runs, length = runs_of(s)
        depth = runs * round_up(IC * (length // s.ic), form.step)
        packing = WeightPacking(*weights, groups=s.g, runs=runs, lanes=site.isa.lanes, vectors=vectors, step=form.step)
        packed = Operand("w", 1, G * round_up(OC, site.isa.lanes) * depth, ("dot", *packing), "int8")
        return with_sums(site, (x, packed, *present(site, Operand("b", 2, G * OC))), weights, form.zero, G * OC), {}

    def call(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        w_zero, flat, form = zeros[1], s.is_pointwise, self.form(site, zeros[0])
        has_weight_zero = packed_zero(site.inputs[1].dtype, w_zero) != 0
        packs_x = not flat or form.dtype != site.x.dtype or bool(form.x_offset) or s.ic % form.step > 0
        tile, channels, rows = self.tile_of(site, s, form)
        _, extents, x_size, y_size = pixel_extents(s)
        operands, extra_extents = self.operands(site, s, Operand("x", 0, x_size), (outputs_first, w_zero), form,
                                                tile.vectors)
        bias = any(operand.name == "b" for operand in operands)
        if has_weight_zero:
            operands += (Operand("zero", 1, 1, ("packed_zero", w_zero), "int32"),)
        arm_sums, fill = _arm_sums(site.isa, form), 0 if flat else form.zero
        narrow = arm_sums.startswith("smull") and is_narrow(site, w_zero)
        parameters = DotParameters(
            *s.window, bias=bias, unit=site.x.c_type, result=site.y.c_type, x_zero=form.x_offset,
            packed_type=DTYPES[form.dtype].c_type, step=form.step, fill=fill,
            packed_short=form.name or DTYPES[form.dtype].short, x_short=DTYPES[site.x.dtype].short,
            vectors=tile.vectors, rest=tile.rest, heights=tile.heights, balanced=tile.balanced, flat=flat,
            packs_x=packs_x, arm_sums=arm_sums, narrow=narrow, has_weight_zero=has_weight_zero,
            prefetch=_prefetched(site, form, tile, s), is_pmaddubsw_form=self.is_pmaddubsw)
        # "_there": products read x where it lies.
        name = self.name + ("" if not flat else "_flat" if packs_x else "_there") + "_weight_zero" * has_weight_zero
        N, G, OC, OH, OW, ROWS, CHANNELS = extent_symbols("N", "G", "OC", "OH", "OW", "ROWS", "CHANNELS")
        strips = ceildiv(N, ROWS) if flat else N * ceildiv(OH, ROWS)
        # Scratch: `zero_sums`, an int32 for each pixel of a task, if packed weights have a zero point; then packed x.
        zero_sums_bytes = 4 * (ROWS if flat else ROWS * OW) * has_weight_zero
        # 16: the last load of packed x may read so many bytes after its end.
        packed_bytes = DTYPES[form.dtype].bytes * _packed_elements(s) + 16 if packs_x else 0
        extents |= {"ROWS": rows, "CHANNELS": channels} | extra_extents
        operation += "_bias" * bias + zero_name(form.x_offset or fill)
        return Lowered("integer/dot", parameters, extents, operands, (Operand("y", 0, y_size),),
                       strips * G * ceildiv(OC, CHANNELS), operation,
                       f"{name}{'_narrow' * narrow}_{tile.name}", scratch=zero_sums_bytes + packed_bytes,
                       channels=G * OC)

    def tile_of(self, site: Site, s: Geometry, form: PackedForm) -> tuple[Tile, int, int]:
        """Returns (tile, channels of a task, output rows of a task; if windows are 1x1, pixels of a task)."""
        target, flat, depth = site.target, s.is_pointwise, _packed_depth(s, form)
        sums = "pmaddubsw" if self.is_pmaddubsw else _arm_sums(site.isa, form)
        pixels: Dim = s.n * s.oh * s.ow if flat else s.ow
        pixel_bytes = DTYPES[form.dtype].bytes * s.ic
        # `Tile.pixels` gives 0 if a balanced tile cannot cover the pixels of the last task; then another tile is taken.
        for may_balance in (True, False):
            tile = Tile.of(site, sums, depth // form.step, s.oc, pixels, may_balance)
            channels = block(target, tile, depth, s.oc)
            some_channels = channels < s.oc
            if not flat:
                row_bytes = pixel_bytes * _packed_columns(s, likely(s.ow))
                rows = tile.rows(target, row_bytes, _packed_steps(s)[0], s.rows_read(1), likely(s.oh), some_channels)
                break
            if rows := tile.pixels(target, pixel_bytes, some_channels, pixels):
                break
        return tile, channels, rows

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool) -> float:
        form = PackedForm.of(site.isa, site.x.dtype, 0)
        outputs, depth = product((s.n, s.g, s.oh, s.ow)), _packed_depth(s, form)
        # On cores without dot products, for each result: the cycles of a product, and of the requantization and the
        # store. These are estimates.
        if site.isa.dsp or site.isa.pairs:
            return PACKING_CALL + outputs * s.oc * (4.0 * depth + 25)  # loads, products and sums one by one in C
        if site.isa.helium:
            return PACKING_CALL + outputs * s.oc * (1.5 * depth + 10)
        if site.isa.dot_product in _PRODUCT_CYCLES and form.dtype == site.isa.dot_dtype:
            return PACKING_CALL + outputs * depth * s.oc * _PRODUCT_CYCLES[site.isa.dot_product]
        # 1.2: a dot product of vectors, of `step` elements in each lane; 0.1: an element of x is packed.
        return PACKING_CALL + outputs * depth * (ceildiv(s.oc, site.isa.lanes) * 1.2 / form.step + 0.1)


class DotConv(DotProducts, IntegerConv):
    """Computes convolutions, channels last."""

    dtypes = (CENTRED_TYPES, INT8_TYPES, ("int32",))


class DotMatMul(DotProducts, IntegerMatMul):
    """Computes products with a constant matrix on the right, as 1x1 convolutions whose pixels are the rows of a."""
