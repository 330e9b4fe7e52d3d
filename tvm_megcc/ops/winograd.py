# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution: fewer products for square kernels of stride 1, on transformed tiles.

The points of interpolation are 0, ±2/3, ±3/2 and infinity: the product of 2/3 and 3/2 is 1, which keeps the
transforms short, and rounding costs half a digit against the direct sum, where the usual 0, ±1, ±2 cost a whole one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..ir.dims import ceildiv, likely, round_up
from ..ir.graph import Attrs
from ..ir.types import PLAIN
from ..target import Target
from .base import Kernel, Lowered, Operand, extent_symbols
from .conv_kernels import Geometry, blocked, has_bias
from .tiling import Tiling

WINDOW = 6
"""Rows and columns of x that a tile reads; it computes WINDOW + 1 - kernel rows and columns of y."""
NEAR, FAR = 2 / 3, 3 / 2
_POINTS = (0.0, NEAR, -NEAR, FAR, -FAR)
#: Cost of the transforms of a vector of channels of a tile, in multiply-adds of vectors.
_INPUT, _OUTPUT = 260, 200


@lru_cache(maxsize=8)
def kernel_transform(taps: int) -> np.ndarray:
    """[WINDOW, taps]: a line of a kernel at the points, each divided by the product of its distances to the others."""
    rows = [[point ** tap / np.prod([point - other for other in _POINTS if other != point]) for tap in range(taps)]
            for point in _POINTS]
    return np.array([*rows, [0.0] * (taps - 1) + [1.0]])


class WinogradConv(Kernel):
    """Tiles of 6x6 inputs, transformed, times transformed weights: 36 products a tile for its 16 outputs, where the
    sum itself takes 144. For each of the 36 places the product is one of matrices: tiles × input channels × output
    channels. A task is a group of tiles of one image with a part of the output channels. 5x5 kernels would take 36 for
    4 outputs; on digits of mnist8 their rounding was half as much again as the direct sum's, so they do without.

    An input that is not finite spoils its whole tile, not only the outputs whose window it lies in.
    """

    name = "winograd"
    fuses_epilogue = True
    constants = (1, 2)
    #: Tasks that an image should give, and output channels that are worth transforming the input for once more.
    TASKS, CHUNK = 4, 128
    FEWEST = 8

    def layouts(self, op, inputs, outputs, target):
        yield (blocked(target), *(PLAIN,) * (len(op.own_inputs) - 1)), (blocked(target),)

    def refuse(self, op, inputs, outputs, target):
        if any(t is not None and t.dtype != "float32" for t in (*inputs, *outputs)):
            return "works on float32 only"
        if target.compact:
            return "its weights are several times as large as the model's"
        if not target.l2:
            return "needs a cache for its tiles"
        s = Geometry.of(op, inputs, outputs)
        if (s.kh, s.kw) != (3, 3):
            return f"needs a kernel of 3x3, not {s.kh}x{s.kw}"
        if s.strides != (1, 1) or s.dilations != (1, 1) or s.g > 1:
            return "needs strides, dilations and groups of 1"
        if s.ic < self.FEWEST:
            return f"{s.ic} input channels do not pay for transforming them"
        return None

    def lower(self, op, inputs, outputs, target):
        s, lanes = Geometry.of(op, inputs, outputs), target.isa.lanes
        bias, size = has_bias(op), WINDOW + 1 - s.kh
        tiling, vectors, pixels, tiles, chunks = _blocking(s, target)
        N, IH, IW, OH, OW, CHUNKS = extent_symbols("N", "IH", "IW", "OH", "OW", "CHUNKS")
        extents = {"N": s.n, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0], "PL": s.pads[1],
                   "CHUNKS": chunks}
        inputs_, outputs_ = round_up(s.ic, lanes), round_up(s.oc, lanes)
        operands = [Operand("x", 0, N * inputs_ * IH * IW),
                    Operand("w", 1, outputs_ * s.ic * WINDOW ** 2, ("winograd", lanes))]
        if bias:
            operands.append(Operand("b", 2, outputs_, ("channel", lanes)))
        parts = ceildiv(ceildiv(OH, size) * ceildiv(OW, size), tiles)
        return Lowered(
            "conv2d/winograd",
            Attrs(ic=s.ic, oc=s.oc, size=size, bias=bias, tiling=tiling, vectors=vectors, pixels=pixels, tiles=tiles,
                  near=NEAR, far=FAR),
            extents, tuple(operands), (Operand("y", 0, N * outputs_ * OH * OW),), N * parts * CHUNKS,
            f"{s.name(bias=bias)}_ic{s.ic}oc{s.oc}", f"winograd_{tiles}x{pixels}x{vectors}",
            scratch=_scratch(inputs_ // lanes, tiles, pixels, vectors, lanes), channels=outputs_)

    def cost(self, op, inputs, outputs, target):
        s, lanes = Geometry.of(op, inputs, outputs), target.isa.lanes
        tiling, vectors, pixels, tiles, chunks = _blocking(s, target)
        size = WINDOW + 1 - s.kh
        count = -(-(-(-s.oh // size) * -(-s.ow // size)) // pixels) * pixels
        steps = _steps(tiling, pixels, s.oc, vectors) * WINDOW ** 2 * s.ic / pixels
        transforms = _INPUT * chunks * -(-s.ic // lanes) + _OUTPUT * -(-s.oc // lanes)
        weights = WINDOW ** 2 * s.ic * round_up(s.oc, lanes) / 2
        return 400 + s.n * (count * (steps + transforms) + -(-count // tiles) * weights)


def _steps(tiling: Tiling, pixels: int, channels: int, vectors: int) -> float:
    """Cost of one step of the sums of a tile of the product with all output channels."""
    cost = 0.0
    for group in tiling.plan(pixels, channels, vectors):
        step = (tiling.assembler_step(pixels, group.vectors) if tiling.assembler else
                pixels * group.vectors + 0.5 * (group.vectors + 0.25 * pixels) + 0.5)
        cost += step * -(-(group.end - group.start) // (group.vectors * tiling.lanes))
    return cost


def _scratch(blocks: int, tiles: int, pixels: int, vectors: int, lanes: int) -> int:
    """Bytes of the transformed tiles, of a part of their products, of half a transform and of zeros."""
    places = tiles // pixels * ((blocks * pixels // 2 * 2 + 1) + (vectors * pixels // 2 * 2 + 1)) + 1
    return 4 * lanes * (WINDOW ** 2 * places + WINDOW)


def _blocking(s: Geometry, target: Target) -> tuple[Tiling, int, int, int, int]:
    """(tiling, vectors of output channels, tiles of a product, tiles of a task, chunks of output channels)."""
    tiling = Tiling.of(target.isa, target.isa.lane_fma, assembler=True)
    size = WINDOW + 1 - s.kh
    count = max(1, -(-likely(s.oh) // size) * -(-likely(s.ow) // size))
    best = None
    for vectors in tiling.widths():
        most = tiling.most_pixels(vectors)
        # In assembler, tiles of fewer pixels that divide the count are worth what they load more.
        for pixels in range(most // 2 + 1, most + 1) if tiling.assembler else (-(-count // -(-count // most)),):
            products = -(-count // pixels)
            cost = products * _steps(tiling, pixels, s.oc, vectors)
            if best is None or cost < best[0]:
                best = (cost, vectors, pixels, products)
    _, vectors, pixels, products = best
    lanes = target.isa.lanes
    bytes_ = _scratch(ceildiv(s.ic, lanes), pixels, pixels, vectors, lanes)
    room = target.l2 // 4
    if tiling.assembler:
        # Each task reads all weights again: the more they are, the more tiles should share that.
        room = min(target.l2 // 2, max(target.l2 // 8, 2 * WINDOW ** 2 * s.ic * s.oc))
    fitting = max(1, min(products, room // bytes_))
    parts = -(-products // fitting)
    chunks = max(1, min(-(-WinogradConv.TASKS // parts), s.oc // WinogradConv.CHUNK))
    return tiling, vectors, pixels, -(-products // parts) * pixels, chunks
