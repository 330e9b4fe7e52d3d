# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution of 8-bit operands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...ir.dims import ceildiv, likely, product
from ...ir.types import DTYPES
from ..base import Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, Geometry
from ..integer.dot import ByteParameters, PackedForm, is_narrow, weight_type, with_sums, zero_name
from ..integer.products import OneFilterAChannel
from ..integer.requantize import Requantization, requantization
from ..packing import packer
from ..parameters import Scope
from ..site import Site
from .tiles import FLOATS, PAIRS, QUADS, ArmTile, Dot4Tile, RvvRow, VectorTile


@dataclass(frozen=True)
class DepthwiseParameters(ByteParameters):
    """Parameters of `depthwise.c.j2`.

    x_short: suffix of x's type in mgc functions.
    in_registers: all taps stay in registers.
    pixels_at_once: pixels that are summed together.
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
class _RowsByFour(ConvParameters):
    """unit: C type of an element of x. fill: value of padding. quads: groups of four rows of x that are packed for
    `rows_at_once` output rows. in_registers, pixels_at_once: as in `DepthwiseParameters`."""

    unit: str
    fill: int
    quads: int
    rows_at_once: int
    in_registers: bool
    pixels_at_once: int


@dataclass(frozen=True)
class Dot4Parameters(_RowsByFour):
    """Parameters of `depthwise_dot4.c.j2`. result: C type of an element of y."""

    result: str

    def microkernel(self, scope: Scope) -> Dot4Tile:
        return Dot4Tile(self, scope)


@dataclass(frozen=True)
class QuadsParameters(_RowsByFour):
    """Parameters of `depthwise_quads.c.j2`. x_short: suffix of x's type in mgc functions. x_zero: its zero point."""

    x_short: str
    x_zero: int

    def microkernel(self, scope: Scope) -> VectorTile:
        return VectorTile(self, scope, QUADS)


@dataclass(frozen=True)
class Int16Parameters(ByteParameters):
    """Parameters of `depthwise_int16.c.j2`.

    result: C type of y.
    in_registers, pixels_at_once: as in `DepthwiseParameters`.
    """

    result: str
    in_registers: bool
    pixels_at_once: int

    def microkernel(self, scope: Scope) -> ArmTile:
        return ArmTile(self, scope)


@dataclass(frozen=True)
class PaddedRowsParameters(ByteParameters):
    """Parameters of `depthwise_rows.c.j2`. result: C type of an element of y. close: the epilogue."""

    result: str
    requantization: Requantization


@dataclass(frozen=True)
class WideParameters(ConvParameters):
    """Parameters of `depthwise_wide.c.j2`.

    unit: C type of an element of x; flip: its highest bit is inverted.
    fill: value of padding after that.
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
def pack_lines(array: np.ndarray, zero: int) -> np.ndarray:
    """Packs [C, 1, KH, KW] minus the zero point as [C, KH, KW]."""
    return (array[:, 0].astype(np.int32) - zero).astype(weight_type(array.dtype.name, zero))


#: Values of `Isa.sums` of Arm ISAs with dot products of four bytes.
_DOTS = ("sdot", "smmla")


class DepthwiseBytes(OneFilterAChannel):
    """Depthwise convolution by vectors of channels, channels last. All taps of a pixel are summed before the next."""

    name = "depthwise"

    def refuse(self, site: Site):
        if refusal := super().refuse(site):
            return refusal
        # |x - zero point| and |w - zero point| are at most 255.
        taps = Geometry.of(site).taps
        return None if taps * 255 * 255 < 2**24 else "float32 does not hold sums of so many taps"

    def lower(self, site: Site) -> Lowered:
        s, lanes = Geometry.of(site), site.isa.lanes
        zero, weight = site.attrs.x_zero, weight_type(site.inputs[1].dtype, site.attrs.w_zero)
        N, C, IH, IW, OH, OW, ROWS = extent_symbols("N", "C", "IH", "IW", "OH", "OW", "ROWS")
        extents = {"N": s.n, "C": s.g, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0],
                   "PL": s.pads[1]}
        operands = present(site, Operand("x", 0, N * IH * IW * C),
                           Operand("w", 1, C * s.taps, ("depthwise_bytes", site.attrs.w_zero), weight),
                           Operand("b", 2, C))
        window = (*s.window, s.bias, site.x.c_type, DTYPES[weight].c_type, zero)
        lowered = Lowered("integer_depthwise/depthwise_scalar", ByteParameters(*window), extents, operands,
                          (Operand("y", 0, N * OH * OW * C),), N * OH, s.name("depthwise_integer") + zero_name(zero),
                          "scalar", channels=C)
        if site.isa.pairs:
            return self._by_padded_rows(site, s, lowered, weight)
        if lanes == 1:
            return lowered
        if site.isa.wide and weight == "int8" and max(s.strides[1], s.dilations[1]) < 32:
            return self._by_registers(site, s, lowered)
        form = PackedForm.of(site.isa, site.x.dtype, zero)
        if site.isa.dot_product in _DOTS and weight == "int8" and form.dtype == site.isa.dot_dtype:
            return self._by_dot4(site, s, lowered, form)
        if site.isa.requantizing_stores:
            return self._by_int16(site, s, lowered)
        if form.dtype == "uint8" and weight == "int8" and s.dilations[0] == 1:
            return self._by_quads(site, s, lowered, form)
        if site.isa.int16_step == 2 and s.dilations[0] == 1:
            return self._by_pairs(site, s, lowered, DTYPES[weight].short)
        in_registers = s.taps <= (25 if site.isa.registers > 16 else 9) // (1 if site.isa.registers > 16 else 2)
        at_once = max(1, min(8, site.isa.registers - 4 - s.taps * in_registers))
        reached = (ROWS - 1) * s.strides[0] + (s.kh - 1) * s.dilations[0] + 1
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        rows = _rows(s, lanes, max(_STRIP, site.target.l2 // 8))
        return replace(lowered, template="integer_depthwise/depthwise", extents=extents | {"ROWS": rows},
                       params=DepthwiseParameters(*window, DTYPES[site.x.dtype].short, in_registers, at_once),
                       tasks=N * ceildiv(C, lanes) * ceildiv(OH, ROWS), algorithm="strips",
                       scratch=4 * lanes * (s.taps + reached * columns))

    @staticmethod
    def _by_padded_rows(site: Site, s: Geometry, lowered: Lowered, weight: str) -> Lowered:
        """Returns the call for cores without vectors: one channel after the other, from padded rows."""
        zeros = site.attrs.x_zero, site.attrs.w_zero
        C, OW = extent_symbols("C", "OW")
        x, _, *bias = lowered.inputs
        weights = Operand("w", 1, C * s.taps, ("depthwise_rows", zeros[1]), weight)
        operands = with_sums(site, (x, weights, *bias), (True, zeros[1]), zeros[0], C)
        epilogue = requantization(site, zeros, True)
        has_bias = len(operands) > 2
        parameters = PaddedRowsParameters(*s.window, has_bias, site.x.c_type, DTYPES[weight].c_type, zeros[0],
                                     site.y.c_type, epilogue)
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        return replace(lowered, template="integer_depthwise/depthwise_rows", params=parameters, inputs=operands,
                       algorithm="padded_rows" + epilogue.name, scratch=s.kh * columns * C,
                       operation=replace(s, bias=has_bias).name("depthwise_integer") + zero_name(zeros[0]))

    @staticmethod
    def _by_registers(site: Site, s: Geometry, lowered: Lowered) -> Lowered:
        """Returns the call for vectors that take several registers, in blocks of channels."""
        lanes, zeros = site.isa.lanes, (site.attrs.x_zero, site.attrs.w_zero)
        # The sums take the longest group of registers, or half of it.
        block, flip = min(4, site.isa.registers // 4) * lanes, site.x.dtype == "uint8"
        fill = zeros[0] - 128 * flip
        N, C, OH, OW, ROWS = extent_symbols("N", "C", "OH", "OW", "ROWS")
        operands = with_sums(site, lowered.inputs, (True, zeros[1]), fill, C)
        int16_taps = 1 + is_narrow(site, zeros[1])
        parameters = WideParameters(*s.window, len(operands) > 2, site.x.c_type, flip, fill, int16_taps, block)
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        reached = (ROWS - 1) * s.strides[0] + (s.kh - 1) * s.dilations[0] + 1
        return replace(lowered, template="integer_depthwise/depthwise_wide", params=parameters, inputs=operands,
                       extents=dict(lowered.extents) | {"ROWS": _rows(s, lanes, max(_STRIP, site.target.l2 // 8))},
                       tasks=N * ceildiv(C, block) * ceildiv(OH, ROWS),
                       algorithm="wide" + "_unpaired" * (int16_taps == 1),
                       scratch=block * (4 + 4 * OW + s.taps + reached * columns),
                       operation=replace(s, bias=len(operands) > 2).name("depthwise_integer") + zero_name(zeros[0]))

    @staticmethod
    def _by_pairs(site: Site, s: Geometry, lowered: Lowered, weight: str) -> Lowered:
        """Returns the call for instructions that add two int16 products in a lane, of two rows of a column."""
        lanes, parities = site.isa.lanes, 1 + s.strides[0] % 2
        taps = (s.kh + 2) // 2 * s.kw
        in_registers = taps <= site.isa.registers // 2
        at_once = max(1, min(8, site.isa.registers - 4 - taps * in_registers))
        N, C, OH, OW, ROWS = extent_symbols("N", "C", "OH", "OW", "ROWS")
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        parameters = PairsParameters(**vars(lowered.params), x_short=DTYPES[site.x.dtype].short,
                                     in_registers=in_registers,
                                     pixels_at_once=at_once, weight_short=weight)
        return replace(lowered, template="integer_depthwise/depthwise_pairs", params=parameters, algorithm="pairs",
                       extents=dict(lowered.extents) | {"ROWS": _rows(s, lanes // 2, max(_STRIP, site.target.l2 // 8))},
                       tasks=N * ceildiv(C, lanes) * ceildiv(OH, ROWS),
                       scratch=4 * lanes * (parities * taps + ceildiv((ROWS - 1) * s.strides[0] + s.kh, 2) * columns))

    @staticmethod
    def _by_int16(site: Site, s: Geometry, lowered: Lowered) -> Lowered:
        """Returns the call for int16 products, eight channels at a time."""
        N, C, OH, OW, ROWS = extent_symbols("N", "C", "OH", "OW", "ROWS")
        many = site.isa.registers > 16
        parameters = Int16Parameters(**vars(lowered.params), result=site.y.c_type, in_registers=many and s.taps <= 9,
                                      pixels_at_once=4 if many else 2)
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        reached = (ROWS - 1) * s.strides[0] + (s.kh - 1) * s.dilations[0] + 1
        return replace(lowered, template="integer_depthwise/depthwise_int16", params=parameters,
                       extents=dict(lowered.extents) | {"ROWS": _rows(s, 4)}, algorithm="int16",
                       tasks=N * ceildiv(C, 8) * ceildiv(OH, ROWS), scratch=16 * (s.taps + reached * columns))

    @staticmethod
    def _by_dot4(site: Site, s: Geometry, lowered: Lowered, form: PackedForm) -> Lowered:
        """Returns the call for Arm's instructions that add four 8-bit products in a lane, of four rows of a column."""
        reach = (s.kh - 1) * s.dilations[0] + 1
        quads = -(-reach // 4)
        rows_at_once = (4 * quads - reach) // s.strides[0] + 1
        taps = 2 * quads * s.kw * rows_at_once
        at_once = max(1, min(4, 8 // (2 * rows_at_once)))
        rows = -(-max(1, min(likely(s.oh), _OUTPUTS // likely(s.ow))) // rows_at_once) * rows_at_once
        N, C, OH, OW, ROWS = extent_symbols("N", "C", "OH", "OW", "ROWS")
        operands = with_sums(site, lowered.inputs, (True, site.attrs.w_zero), form.zero, C)
        parameters = Dot4Parameters(*s.window, len(operands) > 2, site.x.c_type, form.zero, quads, rows_at_once,
                                     taps <= 12, at_once, site.y.c_type)
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        return replace(lowered, template="integer_depthwise/depthwise_dot4", params=parameters,
                       extents=dict(lowered.extents) | {"ROWS": rows}, inputs=operands, algorithm="dot4",
                       tasks=N * ceildiv(C, 16) * ceildiv(OH, ROWS), scratch=32 * taps + 64 * quads * columns)

    @staticmethod
    def _by_quads(site: Site, s: Geometry, lowered: Lowered, form: PackedForm) -> Lowered:
        """Returns the call for such instructions on other CPUs, a vector of channels at a time."""
        lanes, quads = site.isa.lanes, -(-s.kh // 4)
        rows_at_once = (4 * quads - s.kh) // s.strides[0] + 1
        taps = quads * s.kw
        in_registers = taps <= site.isa.registers // 2
        at_once = max(1, min(8, site.isa.registers - 4 - taps * in_registers) // 4 * 4)
        rows = -(-max(1, min(likely(s.oh), _OUTPUTS // likely(s.ow))) // rows_at_once) * rows_at_once
        N, C, OH, OW, ROWS = extent_symbols("N", "C", "OH", "OW", "ROWS")
        operands = with_sums(site, lowered.inputs, (True, site.attrs.w_zero), form.zero, C)
        parameters = QuadsParameters(*s.window, len(operands) > 2, site.x.c_type, form.zero, quads, rows_at_once,
                                     in_registers, at_once, DTYPES[site.x.dtype].short, site.attrs.x_zero)
        columns = (OW - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1
        return replace(lowered, template="integer_depthwise/depthwise_quads", params=parameters, algorithm="quads",
                       extents=dict(lowered.extents) | {"ROWS": rows}, inputs=operands,
                       tasks=N * ceildiv(C, lanes) * ceildiv(OH, ROWS),
                       scratch=4 * lanes * (rows_at_once * taps + quads * columns))

    def cost(self, site: Site) -> float:
        s = Geometry.of(site)
        if site.isa.requantizing_stores and site.isa.dot_product not in _DOTS:
            return 300 + product((s.n, ceildiv(s.g, 8), s.oh, s.ow)) * (s.taps * 2.5 + 16)
        if site.isa.dot_product in _DOTS:
            return 300 + product((s.n, ceildiv(s.g, 8), s.oh, s.ow)) * (s.taps * 0.7 + 10)
        if site.isa.pairs:
            return 300 + product((s.n, s.g, s.oh, s.ow)) * (s.taps * 3 + 25)
        slow = site.isa.dsp or site.isa.helium
        tap = 8.0 if slow else 1.2  # slow: bounds of each tap are checked, or registers are few
        return 200 + product((s.n, ceildiv(s.g, site.isa.lanes), s.oh, s.ow)) * (s.taps * tap + 8)


#: Pixels of 16 channels in a task.
_OUTPUTS = 1024

#: Bytes of packed rows that a task reads repeatedly; more where L2 is large.
_STRIP = 40 << 10


def _rows(s: Geometry, lanes: int, strip: int = _STRIP) -> int:
    """Returns the output rows of a task: its packed rows stay in a cache, and few rows are packed by two tasks."""
    columns = likely(s.ow) * s.strides[1] + s.kw * s.dilations[1]
    fit = strip // (4 * lanes * columns)
    return max(1, min(likely(s.oh), (fit - s.kh * s.dilations[0]) // s.strides[0]))
