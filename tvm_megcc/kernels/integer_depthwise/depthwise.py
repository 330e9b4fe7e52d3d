# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution of 8-bit operands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...ir.dims import Dim, ceildiv, likely, product
from ...ir.types import DTYPES
from ..base import CALL, PACKING_CALL, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, Geometry
from ..integer.dot import PackedForm, is_narrow, weight_type, with_sums, zero_name
from ..integer.products import ByteParameters, OneFilterAChannel
from ..integer.requantize import Requantization, requantization
from ..packing import packer
from ..parameters import Scope
from ..site import Site
from .tiles import FLOATS, PAIRS, QUADS, ArmTile, Dot4Tile, RvvRow, VectorTile


@dataclass(frozen=True)
class DepthwiseParameters(ByteParameters):
    """Parameters of `depthwise.c.j2`.

    x_short: suffix of x's type in mgc functions.
    in_registers: the weights of all taps stay in registers.
    pixels_at_once: pixels whose sums are in registers together.
    """

    x_short: str
    in_registers: bool
    pixels_at_once: int

    def microkernel(self, scope: Scope) -> VectorTile:
        return VectorTile(self, scope, FLOATS, "taps")


@dataclass(frozen=True)
class PairsParameters(DepthwiseParameters):
    """Parameters of `depthwise_pairs.c.j2`. weight_short: suffix of the weights' type in mgc functions."""

    weight_short: str

    def microkernel(self, scope: Scope) -> VectorTile:
        return VectorTile(self, scope, PAIRS)


@dataclass(frozen=True)
class _QuadParameters(ConvParameters):
    """Parameters of templates that pack four rows of x in a lane.

    unit: the C type of an element of x.
    fill: the value of padding.
    quads: groups of four rows of x that are packed for `rows_at_once` output rows, in each lane four bytes of a column.
    rows_at_once: output rows that are computed from one packed copy of rows of x.
    in_registers, pixels_at_once: as in `DepthwiseParameters`.
    """

    unit: str
    fill: int
    quads: int
    rows_at_once: int
    in_registers: bool
    pixels_at_once: int


@dataclass(frozen=True)
class Dot4Parameters(_QuadParameters):
    """Parameters of `depthwise_dot4.c.j2`. result: C type of an element of y."""

    result: str

    def microkernel(self, scope: Scope) -> Dot4Tile:
        return Dot4Tile(self, scope)


@dataclass(frozen=True)
class QuadsParameters(_QuadParameters):
    """Parameters of `depthwise_quads.c.j2`.

    x_short: suffix of x's type in mgc functions, such as "u8".
    x_zero: the zero point of x.
    """

    x_short: str
    x_zero: int

    def microkernel(self, scope: Scope) -> VectorTile:
        return VectorTile(self, scope, QUADS)


@dataclass(frozen=True)
class Int16Parameters(ByteParameters):
    """Parameters of `depthwise_int16.c.j2`.

    result: the C type of an element of y.
    in_registers, pixels_at_once: as in `DepthwiseParameters`.
    """

    result: str
    in_registers: bool
    pixels_at_once: int

    def microkernel(self, scope: Scope) -> ArmTile:
        return ArmTile(self, scope)


@dataclass(frozen=True)
class PaddedRowsParameters(ByteParameters):
    """Parameters of `depthwise_rows.c.j2`.

    result: the C type of an element of y.
    requantization: prints the requantization of a sum (integer/requantize.py): factors(c), store(…).
    """

    result: str
    requantization: Requantization


@dataclass(frozen=True)
class WideParameters(ConvParameters):
    """Parameters of `depthwise_wide.c.j2`.

    unit: the C type of an element of x.
    flip: the highest bit of elements of x is inverted when they are packed, so that uint8 becomes int8 minus 128.
    fill: the value of padding, with this bit inverted.
    int16_taps: taps whose products are added in int16.
    block: channels that are computed at once.
    """

    unit: str
    flip: bool
    fill: int
    int16_taps: int
    block: int

    def microkernel(self, scope: Scope) -> RvvRow:
        return RvvRow(self, scope)


@packer("depthwise_bytes")
def pack_depthwise(array: np.ndarray, zero: int) -> np.ndarray:
    """Packs [C, 1, KH, KW] minus the zero point as [KH, KW, C]."""
    return np.moveaxis((array[:, 0].astype(np.int32) - zero).astype(weight_type(array.dtype.name, zero)), 0, -1)


@packer("depthwise_rows")
def pack_rows(array: np.ndarray, zero: int) -> np.ndarray:
    """Packs [C, 1, KH, KW] minus the zero point as [C, KH, KW]."""
    return (array[:, 0].astype(np.int32) - zero).astype(weight_type(array.dtype.name, zero))


#: `outputs_first` of the packers: weights are [C, 1, KH, KW].
_OUTPUTS_FIRST = True
#: Values of `Isa.dot_product` of Arm ISAs with dot products of four bytes.
_DOTS = ("sdot", "smmla")


class DepthwiseBytes(OneFilterAChannel):
    """Depthwise convolution by vectors of channels, channels last. All taps of a pixel are summed before the next. The
    ISA and the dtypes decide on the template. If packed x keeps a zero point, `with_sums` subtracts from the bias what
    it adds to the sums."""

    name = "depthwise"

    def refuse(self, site: Site) -> str | None:
        if refusal := super().refuse(site):
            return refusal
        # |x - zero point| and |w - zero point| are at most 255.
        taps = Geometry.of(site).taps
        return None if taps * 255 * 255 < 2**24 else "float32 does not hold sums of so many taps"

    def lower(self, site: Site) -> Lowered:
        s, isa, zero = Geometry.of(site), site.isa, site.attrs.x_zero
        weight = weight_type(site.inputs[1].dtype, site.attrs.w_zero)
        form = PackedForm.of(isa, site.x.dtype, zero)  # x for 8-bit dot products: its dtype, and its zero point then
        int8_weights, adjacent_rows = weight == "int8", s.dilations[0] == 1
        scalar = self._scalar(site, s, weight)
        # Cores without vectors that have mgc_requantize_sum_ functions (simd/pairs_integer.h).
        if isa.pairs:
            return self._padded_rows(site, s, scalar, weight)
        if isa.lanes == 1:
            return scalar
        # `RvvRow` moves by strides and dilations with ADDI, which adds at most 2047 bytes: 31 columns of 64 channels.
        if isa.wide and int8_weights and max(s.strides[1], s.dilations[1]) < 32:
            return self._wide(site, s, scalar)
        if isa.dot_product in _DOTS and int8_weights and form.dtype == isa.dot_dtype:
            return self._dot4(site, s, scalar, form)
        # Any other NEON.
        if isa.requantizing_stores:
            return self._int16(site, s, scalar)
        # A lane has two or four neighbouring rows of x, so rows of the window must be neighbours.
        if form.dtype == "uint8" and int8_weights and adjacent_rows:
            return self._quads(site, s, scalar, form)
        if isa.int16_step == 2 and adjacent_rows:
            return self._pairs(site, s, scalar, DTYPES[weight].short)
        return self._floats(site, s, scalar)

    def _scalar(self, site: Site, s: Geometry, weight: str) -> Lowered:
        """Returns the call for CPUs without vectors. weight: the dtype of packed weights."""
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        operands = present(site, Operand("x", 0, N * IH * IW * C),
                           Operand("w", 1, C * s.taps, ("depthwise_bytes", site.attrs.w_zero), weight),
                           Operand("b", 2, C))
        params = ByteParameters(*s.window, s.bias, site.x.c_type, DTYPES[weight].c_type, site.attrs.x_zero)
        return Lowered("integer_depthwise/depthwise_scalar", params, self.extents(s), operands,
                       (Operand("y", 0, N * OH * OW * C),), N * OH, _operation(site, s, s.bias), "scalar", channels=C)

    @staticmethod
    def _padded_rows(site: Site, s: Geometry, scalar: Lowered, weight: str) -> Lowered:
        """Returns the call for cores without vectors: one channel after the other, from padded rows."""
        zeros = site.attrs.x_zero, site.attrs.w_zero
        C, OW = extent_symbols("C", "OW")
        x, _, *bias = scalar.inputs
        weights = Operand("w", 1, C * s.taps, ("depthwise_rows", zeros[1]), weight)
        operands = with_sums(site, (x, weights, *bias), (_OUTPUTS_FIRST, zeros[1]), zeros[0], C)
        epilogue = requantization(site, zeros, _OUTPUTS_FIRST)
        has_bias = len(operands) > 2
        # Scratch: the rows of x that a task reads, with padding, bytes [KH][columns][C].
        params = PaddedRowsParameters(
            *s.window, bias=has_bias, unit=site.x.c_type, weight=DTYPES[weight].c_type, x_zero=zeros[0],
            result=site.y.c_type, requantization=epilogue)
        return replace(scalar, template="integer_depthwise/depthwise_rows", params=params, inputs=operands,
                       algorithm="padded_rows" + epilogue.name, scratch=s.kh * s.columns_read(OW) * C,
                       operation=_operation(site, s, has_bias))

    @staticmethod
    def _floats(site: Site, s: Geometry, scalar: Lowered) -> Lowered:
        """Returns the call for other vectors: sums in float32."""
        lanes, many_registers = site.isa.lanes, site.isa.registers > 16
        in_registers = s.taps <= (25 if many_registers else 4)
        params = DepthwiseParameters(
            **vars(scalar.params), x_short=DTYPES[site.x.dtype].short, in_registers=in_registers,
            pixels_at_once=_pixels_at_once(site, s.taps if in_registers else 0))
        OW, ROWS = extent_symbols("OW", "ROWS")
        # Scratch, float32: weights [taps][lanes], then padded rows of x [rows][columns][lanes].
        return _by_strips(scalar, "depthwise", params, _rows(s, 4 * lanes, _l2_bytes(site)), lanes,
                          4 * lanes * (s.taps + s.rows_read(ROWS) * s.columns_read(OW)), "strips")

    @staticmethod
    def _wide(site: Site, s: Geometry, scalar: Lowered) -> Lowered:
        """Returns the call for vectors that take several registers, in blocks of channels."""
        lanes, w_zero = site.isa.lanes, site.attrs.w_zero
        # Sums in int32 take a group of eight registers, the longest there is, or half of it with registers of 512 bits.
        block, flip = min(4, site.isa.registers // 4) * lanes, site.x.dtype == "uint8"
        fill = site.attrs.x_zero - 128 * flip
        C, OW, ROWS = extent_symbols("C", "OW", "ROWS")
        operands = with_sums(site, scalar.inputs, (_OUTPUTS_FIRST, w_zero), fill, C)
        has_bias, int16_taps = len(operands) > 2, 1 + is_narrow(site, w_zero)
        params = WideParameters(
            *s.window, bias=has_bias, unit=site.x.c_type, flip=flip, fill=fill, int16_taps=int16_taps, block=block)
        # Scratch: initial sums int32 [block]; the sums of a row int32 [OW][block]; weights int8 [taps][block]; padded
        # rows of x int8 [rows][columns][block].
        scratch = block * (4 + 4 * OW + s.taps + s.rows_read(ROWS) * s.columns_read(OW))
        rows = _rows(s, 4 * lanes, _l2_bytes(site))
        return replace(_by_strips(scalar, "depthwise_wide", params, rows, block, scratch,
                                  "wide" + "_unpaired" * (int16_taps == 1), operands),
                       operation=_operation(site, s, has_bias))

    @staticmethod
    def _pairs(site: Site, s: Geometry, scalar: Lowered, weight_short: str) -> Lowered:
        """Returns the call for instructions that add two int16 products in a lane, of two rows of a column."""
        # With an odd stride, windows begin with the first or with the second row of a pair, and have weights for each.
        lanes, parities = site.isa.lanes, 1 + s.strides[0] % 2
        window_pairs = (s.kh + 2) // 2  # pairs of rows of a window that begins with the second row of a pair
        taps = window_pairs * s.kw
        in_registers = taps <= site.isa.registers // 2
        params = PairsParameters(
            **vars(scalar.params), x_short=DTYPES[site.x.dtype].short, in_registers=in_registers,
            pixels_at_once=_pixels_at_once(site, taps if in_registers else 0), weight_short=weight_short)
        OW, ROWS = extent_symbols("OW", "ROWS")
        # Scratch, int32 of two int16: weights [parities][taps of pairs of rows][lanes], then pairs of padded rows of x
        # [row_pairs][columns][lanes].
        row_pairs = ceildiv((ROWS - 1) * s.strides[0] + s.kh, 2)
        return _by_strips(scalar, "depthwise_pairs", params, _rows(s, 2 * lanes, _l2_bytes(site)), lanes,
                          4 * lanes * (parities * taps + row_pairs * s.columns_read(OW)), "pairs")

    @staticmethod
    def _int16(site: Site, s: Geometry, scalar: Lowered) -> Lowered:
        """Returns the call for int16 products, eight channels at a time."""
        # Of 32 registers, 8 are for the sums of four pixels and 9 for weights; of 16, 4 are for those of two pixels.
        many_registers = site.isa.registers > 16
        params = Int16Parameters(**vars(scalar.params), result=site.y.c_type,
                                 in_registers=many_registers and s.taps <= 9, pixels_at_once=4 if many_registers else 2)
        OW, ROWS = extent_symbols("OW", "ROWS")
        # Scratch, int16: weights [taps][8], then padded rows of x [rows][columns][8].
        return _by_strips(scalar, "depthwise_int16", params, _rows(s, 16), 8,
                          16 * (s.taps + s.rows_read(ROWS) * s.columns_read(OW)), "int16")

    @staticmethod
    def _dot4(site: Site, s: Geometry, scalar: Lowered, form: PackedForm) -> Lowered:
        """Returns the call for Arm's instructions that add four 8-bit products in a lane, of four rows of a column."""
        quads, rows_at_once = _packed_quads(s)
        taps = 2 * quads * s.kw * rows_at_once  # vectors of packed weights
        C, OW = extent_symbols("C", "OW")
        operands = with_sums(site, scalar.inputs, (_OUTPUTS_FIRST, site.attrs.w_zero), form.zero, C)
        # At most 12 registers of weights, and 8 of sums: two halves of the channels of each output row and pixel.
        params = Dot4Parameters(
            *s.window, bias=len(operands) > 2, unit=site.x.c_type, fill=form.zero, quads=quads,
            rows_at_once=rows_at_once, in_registers=taps <= 12, pixels_at_once=max(1, min(4, 8 // (2 * rows_at_once))),
            result=site.y.c_type)
        # Scratch, int8, for two times eight channels: weights [2][quads][kw][rows_at_once][8][4], then packed x
        # [2][quads][columns][8][4].
        return _by_strips(scalar, "depthwise_dot4", params, _rows_in_multiples(s, rows_at_once), 16,
                          32 * taps + 64 * quads * s.columns_read(OW), "dot4", operands)

    @staticmethod
    def _quads(site: Site, s: Geometry, scalar: Lowered, form: PackedForm) -> Lowered:
        """Returns the call for such instructions on other CPUs, a vector of channels at a time."""
        lanes, (quads, rows_at_once) = site.isa.lanes, _packed_quads(s)
        taps = quads * s.kw
        in_registers = taps <= site.isa.registers // 2
        # Four pixels or eight, because a store takes four.
        at_once = max(1, _pixels_at_once(site, taps if in_registers else 0) // 4 * 4)
        C, OW = extent_symbols("C", "OW")
        operands = with_sums(site, scalar.inputs, (_OUTPUTS_FIRST, site.attrs.w_zero), form.zero, C)
        params = QuadsParameters(
            *s.window, bias=len(operands) > 2, unit=site.x.c_type, fill=form.zero, quads=quads,
            rows_at_once=rows_at_once, in_registers=in_registers, pixels_at_once=at_once,
            x_short=DTYPES[site.x.dtype].short, x_zero=site.attrs.x_zero)
        # Scratch, int32 of four bytes: weights [rows_at_once][taps][lanes], then packed x [quads][columns][lanes].
        return _by_strips(scalar, "depthwise_quads", params, _rows_in_multiples(s, rows_at_once), lanes,
                          4 * lanes * (rows_at_once * taps + quads * s.columns_read(OW)), "quads", operands)

    def cost(self, site: Site) -> float:
        s, isa = Geometry.of(site), site.isa
        # The outputs that are computed together; for each vector of them, the cycles of a tap, and those of the
        # requantization and the store.
        call, lanes, tap, store = CALL, isa.lanes, 1.2, 8
        if isa.dot_product in _DOTS:
            call, lanes, tap, store = PACKING_CALL, 8, 0.7, 10
        elif isa.requantizing_stores:
            call, lanes, tap, store = PACKING_CALL, 8, 2.5, 16
        elif isa.pairs:
            call, lanes, tap, store = PACKING_CALL, 1, 3, 25
        elif isa.dsp or isa.helium:
            tap = 8.0  # bounds of each tap are checked, or registers are few
        return call + product((s.n, ceildiv(s.g, lanes), s.oh, s.ow)) * (s.taps * tap + store)


#: The pixels of a task that packs its rows anew for each few output rows.
_TASK_PIXELS = 1024

#: Bytes of packed rows that a task reads repeatedly; more where L2 is large.
_STRIP_BYTES = 40 << 10


def _operation(site: Site, s: Geometry, bias: bool) -> str:
    """Returns the operation's part of the symbol."""
    return replace(s, bias=bias).name("depthwise_integer") + zero_name(site.attrs.x_zero)


def _by_strips(scalar: Lowered, template: str, params: ByteParameters, rows: int, block: int, scratch: Dim,
               algorithm: str, operands: tuple[Operand, ...] | None = None) -> Lowered:
    """Returns the call of a template whose tasks compute `rows` output rows of `block` channels. operands: x, weights
    and bias, if they are not those of the scalar template."""
    N, C, OH, ROWS = extent_symbols("N", "C", "OH", "ROWS")
    return replace(scalar, template=f"integer_depthwise/{template}", params=params, inputs=operands or scalar.inputs,
                   extents=dict(scalar.extents) | {"ROWS": rows}, tasks=N * ceildiv(C, block) * ceildiv(OH, ROWS),
                   algorithm=algorithm, scratch=scratch)


def _l2_bytes(site: Site) -> int:
    """Returns the bytes of packed rows that a task keeps in L2."""
    return max(_STRIP_BYTES, site.target.l2 // 8)


def _pixels_at_once(site: Site, weight_registers: int) -> int:
    """Returns the pixels of a tile, at most eight: their sums take the registers besides those of weights, and four for
    x and operands of the epilogue."""
    return max(1, min(8, site.isa.registers - 4 - weight_registers))


def _packed_quads(s: Geometry) -> tuple[int, int]:
    """Returns (groups of four packed rows that a window needs, output rows whose windows lie in these groups)."""
    window_rows = s.rows_read(1)
    quads = -(-window_rows // 4)
    return quads, (4 * quads - window_rows) // s.strides[0] + 1


def _rows(s: Geometry, column_bytes: int, strip_bytes: int = _STRIP_BYTES) -> int:
    """Returns the output rows of a task: its packed rows stay in a cache, and few rows are packed by two tasks.
    column_bytes: those of a packed column of a row."""
    columns = likely(s.ow) * s.strides[1] + s.kw * s.dilations[1]
    packed_rows = strip_bytes // (column_bytes * columns)
    return max(1, min(likely(s.oh), (packed_rows - s.kh * s.dilations[0]) // s.strides[0]))


def _rows_in_multiples(s: Geometry, rows_at_once: int) -> int:
    """Returns the output rows of a task that packs its rows anew for each `rows_at_once` of them."""
    rows = max(1, min(likely(s.oh), _TASK_PIXELS // likely(s.ow)))
    return -(-rows // rows_at_once) * rows_at_once
