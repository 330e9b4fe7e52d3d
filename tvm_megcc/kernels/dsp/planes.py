# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution on cores with Arm's DSP extension. It unpacks four channels at a time to planes of int16, in
which two neighbours of a row are one operand of an instruction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...ir.dims import ceildiv, likely, product, static
from ...ir.types import DTYPES
from ..base import PACKING_CALL, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, Geometry
from ..integer.dot import packed_zero, packing_offset, zero_name
from ..integer.products import OneFilterAChannel
from ..integer.requantize import Requantization, requantization
from ..packing import packer
from ..site import Site

#: Neighbouring outputs of a row that are computed together.
_OUTPUTS = 2
#: The most words in the planes of a task.
_MAX_WORDS = 1 << 10
#: The most pairs of weights in a window that the code unrolls.
_MAX_UNROLLED_PAIRS = 16


class Step(NamedTuple):
    """The product of a word of x and a pair of weights, which is added to the sum of an output.

    function: the suffix of the mgc function. "pairs" adds both products, "bt" the product of the word's lower half and
        the pair's upper half; "bb", "tb" and "tt" likewise.
    """

    output: int
    function: str
    word: int
    pair: int


@dataclass(frozen=True)
class PlanesParameters(ConvParameters):
    """Parameters of `planes.c.j2`.

    unit, result: the C types of an element of x and of y.
    short: suffix of x's type in mgc functions, such as "i8".
    x_zero: the zero point of x.
    pairs: taps (a, b) of a row of the window whose weights form one operand, two int16 in a word; b is -1 if there is
        none.
    steps: the products of a row of the window, for two neighbouring outputs: (output, instruction, word of x, index in
        `pairs`), as in `Step`.
    words: the words of a row of a plane that these read, counted from the window's first column; a word has two
        columns.
    in_registers: the window is unrolled, and its weights are in variables; else a loop goes over its rows.
    has_weight_zero: packed weights have a zero point, the operand `zero`, which is subtracted from each.
    requantization: prints the requantization of a sum (integer/requantize.py): factors(c), store(…).
    """

    unit: str
    result: str
    short: str
    x_zero: int
    pairs: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]
    words: tuple[int, ...]
    in_registers: bool
    has_weight_zero: bool
    requantization: Requantization


@packer("planes")
def pack_planes(array: np.ndarray, zero: int) -> np.ndarray:
    """Packs [C, 1, KH, KW] as [C, KH, KW], made int8 by `packing_offset`."""
    return (array[:, 0].astype(np.int32) - packing_offset(array.dtype.name, zero)).astype(np.int8)


def steps_of(kw: int, stride: int, dilation: int) -> tuple[tuple[Step, ...], tuple[tuple[int, int], ...]]:
    """Returns the products of a row of the window and its pairs of weights. One instruction makes two products where
    two neighbours of x, from an even column on, are multiplied by two neighbours of the window."""
    doubles: list[tuple[int, int, int]] = []
    singles: list[tuple[int, int, int]] = []
    for output in range(_OUTPUTS):
        tap = 0
        while tap < kw:
            column = output * stride + tap * dilation
            if dilation == 1 and column % 2 == 0 and tap + 1 < kw:
                doubles.append((output, column // 2, tap))
                tap += 2
            else:
                singles.append((output, column, tap))
                tap += 1
    pairs = list(dict.fromkeys((tap, tap + 1) for _, _, tap in doubles))
    for _, _, tap in singles:
        if not any(tap in pair for pair in pairs):
            pairs.append((tap, tap + 1 if tap + 1 < kw else -1))
    steps = [Step(output, "pairs", word, pairs.index((tap, tap + 1))) for output, word, tap in doubles]
    for output, column, tap in singles:
        # "b" is the lower half of a word, its even column, "t" the upper half; likewise for the two taps of a pair.
        index = next(i for i, pair in enumerate(pairs) if tap in pair)
        steps.append(Step(output, "bt"[column % 2] + "bt"[pairs[index].index(tap)], column // 2, index))
    return tuple(sorted(steps, key=lambda step: (step.word, step.output))), tuple(pairs)


class DspDepthwise(OneFilterAChannel):
    """Depthwise convolution; one task computes some rows of four channels."""

    name = "planes"

    def refuse(self, site: Site):
        if not site.isa.dsp:
            return "for cores with Arm's DSP extension"
        return super().refuse(site)

    def lower(self, site: Site) -> Lowered:
        s, zeros = Geometry.of(site), (site.attrs.x_zero, site.attrs.w_zero)
        N, C, IH, IW, OH, OW, ROWS = extent_symbols("N", "C", "IH", "IW", "OH", "OW", "ROWS")
        # y may begin where x does if a task copies all rows of its four channels before it writes a result: channels
        # do not share addresses.
        rows = _rows(s)
        fits_in_place = s.oh == rows and site.y.itemsize == 1 and (
            (s.ih, s.iw) == (s.oh, s.ow) or (s.n == 1 and _is_no_larger(s)))
        # At -O size the kernel allows it for calls that share it; `no_takeover` forbids it for this call.
        takes_over = ((0, 0),) if fits_in_place or (site.compact and site.y.itemsize == 1) else ()
        operands = present(site, Operand("x", 0, N * IH * IW * C),
                           Operand("w", 1, C * s.taps, ("planes", site.attrs.w_zero), "int8"), Operand("b", 2, C))
        if has_weight_zero := packed_zero(site.inputs[1].dtype, site.attrs.w_zero) != 0:
            operands += (Operand("zero", 1, 1, ("packed_zero", site.attrs.w_zero), "int32"),)
        steps, pairs = steps_of(s.kw, s.strides[1], s.dilations[1])
        epilogue = requantization(site, zeros, outputs_first=True)
        parameters = PlanesParameters(
            *s.window, bias=s.bias, unit=site.x.c_type, result=site.y.c_type, short=DTYPES[site.x.dtype].short,
            x_zero=zeros[0], pairs=pairs, steps=steps, words=tuple(sorted({step.word for step in steps})),
            in_registers=s.kh * len(pairs) <= _MAX_UNROLLED_PAIRS, has_weight_zero=has_weight_zero,
            requantization=epilogue)
        # The words of a row, up to the last one that its last outputs read.
        last = (s.strides[1] + (s.kw - 1) * s.dilations[1]) // 2
        # Scratch, in words of two int16: planes [4 channels][rows][row_words], then pairs of weights [KH][pairs].
        row_words = ceildiv(OW, _OUTPUTS) * s.strides[1] + last + 1 - s.strides[1]
        return Lowered("dsp/planes", parameters, self.extents(s) | {"ROWS": rows}, operands,
                       (Operand("y", 0, N * OH * OW * C),), N * ceildiv(C, 4) * ceildiv(OH, ROWS),
                       s.name("depthwise_integer") + zero_name(zeros[0]),
                       "planes" + "_weight_zero" * has_weight_zero + epilogue.name,
                       scratch=16 * s.rows_read(ROWS) * row_words + 4 * len(pairs) * s.kh,
                       takes_over=takes_over, no_takeover=not fits_in_place, channels=C)

    def cost(self, site: Site) -> float:
        s = Geometry.of(site)
        # For each output: 0.9 for a tap, 15 for the requantization and the store, 2 for each element that is unpacked.
        return PACKING_CALL + product((s.n, s.g, s.oh, s.ow)) * (s.taps * 0.9 + 15 + 2 * product(s.strides))


def _is_no_larger(s: Geometry) -> bool:
    """Returns whether the output is known to have no more pixels than the input."""
    extents = static((s.ih, s.iw, s.oh, s.ow))
    return extents is not None and extents[2] * extents[3] <= extents[0] * extents[1]


def _rows(s: Geometry) -> int:
    """Returns the output rows in a task: all if their planes take at most half of the bytes of y, because y may then
    begin where x does, which saves more memory."""
    # Words of a row of x in the planes of four channels; a word has two columns.
    four_row_words = 4 * ((likely(s.ow) * s.strides[1] + s.kw * s.dilations[1]) // 2 + 1)
    rows, y_bytes = likely(s.oh), math.prod(map(likely, (s.g, s.oh, s.ow)))
    if 4 * four_row_words * s.rows_read(rows) <= y_bytes // 2:
        return rows
    # The most rows for which `four_row_words * s.rows_read(rows)` is at most _MAX_WORDS.
    fitting_rows = (_MAX_WORDS // four_row_words - s.rows_read(1)) // s.strides[0] + 1
    return max(1, min(rows, fitting_rows))
