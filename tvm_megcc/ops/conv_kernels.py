# SPDX-License-Identifier: Apache-2.0
"""Kernel candidates of conv2d. Layouts, packed weights and loop orders are described in docs/kernels.md."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..ir.dims import Dim, ceildiv, dim_max, product, round_up
from ..ir.graph import Attrs, Op
from ..ir.types import NHWC, PLAIN, Layout, nchwc
from ..target import Target
from .base import Kernel, Lowered, Operand, Site, extent_symbols, once
from .blocking import Kept, chunks_first
from .sharing import Cut, is_large, waiting
from .tiling import BLOCK, Tiling


def blocked(target: Target) -> Layout:
    """The layout with channels in vectors; for scalar code that is the plain one."""
    return nchwc(target.isa.lanes) if target.isa.lanes > 1 else PLAIN


@dataclass(frozen=True)
class Geometry:
    """The geometry of one convolution. ic, oc: channels of one group."""

    n: Dim
    g: int
    ic: int
    ih: Dim
    iw: Dim
    oc: int
    oh: Dim
    ow: Dim
    kh: int
    kw: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    @staticmethod
    @once
    def of(site: Site) -> Geometry:
        (n, _, ih, iw), (oc, ic, kh, kw) = site.x.shape, site.inputs[1].shape
        groups = site.attrs.groups
        return Geometry(n, groups, ic, ih, iw, oc // groups, *site.y.shape[2:], kh, kw, tuple(site.attrs.strides),
                      tuple(site.attrs.dilations), tuple(site.attrs.pads))

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in (self.n, self.ih, self.iw, self.oh, self.ow))

    @property
    def taps(self) -> int:
        return self.kh * self.kw

    @property
    def is_pointwise(self) -> bool:
        return self.taps == 1 and self.strides == (1, 1) and not any(self.pads)

    def overhangs(self, axis: int) -> bool:
        """Whether some window leaves the input along the axis."""
        before = self.pads[axis]
        extent, out, kernel = ((self.ih, self.oh, self.kh), (self.iw, self.ow, self.kw))[axis]
        last = (out - 1) * self.strides[axis] + (kernel - 1) * self.dilations[axis] + 1 - before - extent
        # Where extents are not known, the last window reaches into the pad behind, if there is one.
        return before > 0 or (last > 0 if isinstance(last, int) else self.pads[2 + axis] > 0)

    def name(self, **flags) -> str:
        """`conv2d_3x3_s2`: what the kernel's code is specialised to."""
        parts = [f"conv2d_{self.kh}x{self.kw}"]
        if self.strides != (1, 1):
            parts.append("s" + "x".join(map(str, dict.fromkeys(self.strides))))
        if self.dilations != (1, 1):
            parts.append("d" + "x".join(map(str, dict.fromkeys(self.dilations))))
        return "_".join(parts + [flag for flag, is_set in flags.items() if is_set])


def has_bias(op: Op) -> bool:
    """Whether the optional third operand is there."""
    return len(op.own_inputs) > 2 and bool(op.own_inputs[2])


class DirectConv(Kernel):
    """Register tiles straight over the input; 1x1 convolutions see the image as rows of any length.

    vectors: of output channels in the main tile; 0: what covers the shape best.
    """

    name = "direct"
    fuses_epilogue = True
    constants = (1, 2)

    def __init__(self, vectors: int = 0):
        self.vectors = vectors
        self.tile = f"{vectors}v" if vectors else ""

    def layouts(self, site):
        rest = (PLAIN,) * (len(site.op.own_inputs) - 1)
        for x in dict.fromkeys((blocked(site.target), PLAIN, NHWC)):
            for y in (blocked(site.target), NHWC):
                yield (x, *rest), (y,)

    def refuse(self, site):
        if any(t is not None and t.dtype != "float32" for t in (*site.inputs, *site.outputs)):
            return "works on float32 only"
        groups, lanes = site.attrs.groups, site.isa.lanes
        if groups > 1:
            if site.x.layout != blocked(site.target) or site.y.layout != blocked(site.target):
                return "works on groups in the blocked layout only"
            if site.inputs[1].shape[1] % lanes or site.inputs[1].shape[0] // groups % lanes:
                return f"groups of {site.inputs[1].shape[1]} channels are no whole vectors"
        return None

    def _cut(self, site: Site) -> Cut:
        s, x = Geometry.of(site), site.x.layout
        rows = s.is_pointwise and x == blocked(site.target) and not site.compact
        tiling = Tiling.of(site.isa, site.isa.lane_fma and x != PLAIN, self.vectors, assembler=rows)
        return Cut.of(tiling, s.ic * s.taps, s.oc, s.n * s.g, s.oh, s.ow, s.is_pointwise, site.context)

    def lower(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        x_layout = site.x.layout.kind
        y_layout = "nchwc" if site.y.layout == blocked(site.target) else site.y.layout.kind
        cut = self._cut(site)
        tiling, oh, ow, chunks = cut.tiling, cut.rows, cut.pixels, cut.chunks
        ih, iw = (oh, ow) if s.is_pointwise else (s.ih, s.iw)
        vpad, hpad = s.overhangs(0), s.overhangs(1)
        bias = has_bias(site.op)
        row = ow if isinstance(ow, int) else None
        vectors = tiling.best(row, s.oc)
        block = BLOCK if site.compact else tiling.block(row, vectors)
        packed = (block, vectors * lanes) if block > BLOCK else ()
        pixels = max(p for group in tiling.plan(row, s.oc, vectors) for p, _ in group.tiles)

        kept, first = None, False
        if tiling.assembler and row is not None and pixels < row:
            kept = Kept.of(s.ic, vectors * lanes, row, site.target)
        if kept and s.is_static and chunks > 1:
            first = chunks_first(4 * s.n * oh * row * s.ic, 4 * s.ic * s.oc, s.n * oh, chunks, site.target)

        def columns(pixels: int) -> int:
            return (pixels - 1) * s.strides[1] + (s.kw - 1) * s.dilations[1] + 1

        N, G, IC, IH, IW, OC, OH, OW, CHUNKS, PATCH = extent_symbols(
            "N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "CHUNKS", "PATCH")
        extents = {"N": s.n, "G": s.g, "IC": s.ic, "IH": ih, "IW": iw, "OC": s.oc, "OH": oh, "OW": ow,
                   "PT": s.pads[0], "PL": s.pads[1], "CHUNKS": chunks}
        scratch: Dim = 0
        if hpad:
            extents["PATCH"] = columns(pixels)
            scratch = 4 * s.kh * _stored(IC, x_layout, lanes) * dim_max(PATCH, columns(tiling.small()[0]))
        elif kept:
            scratch = kept.sums(s.ic, row)
        height = IH if vpad else reach(IH, OH, s.strides[0], s.kh, s.dilations[0])
        width = IW if hpad else reach(IW, OW, s.strides[1], s.kw, s.dilations[1])
        operands = [Operand("x", 0, N * G * _stored(IC, x_layout, lanes) * height * width),
                    Operand("w", 1, G * round_up(OC, lanes) * IC * s.taps, ("conv_oihw", lanes, s.g, *packed))]
        if bias:
            operands.append(Operand("b", 2, round_up(G * OC, lanes), ("channel", lanes)))
        flags = {"x_" + x_layout: x_layout != "nchwc", "y_" + y_layout: y_layout != "nchwc", "grouped": s.g > 1,
                 "vpad": vpad, "hpad": hpad, "bias": bias}
        return Lowered(
            "conv2d/direct",
            Attrs(kh=s.kh, kw=s.kw, sh=s.strides[0], sw=s.strides[1], dh=s.dilations[0], dw=s.dilations[1],
                  x_layout=x_layout, y_layout=y_layout, vpad=vpad, hpad=hpad, bias=bias, grouped=s.g > 1,
                  tiling=tiling, block=block, kept=kept, chunks_first=first),
            extents, tuple(operands),
            (Operand("y", 0, N * G * _stored(OC, y_layout, lanes) * OH * OW),),
            N * G * OH * CHUNKS, s.name(**flags), self.label, scratch=scratch,
            channels=round_up(G * OC, lanes))

    def tiled(self, site):
        s = Geometry.of(site)
        if s.is_static:
            cut = DirectConv()._cut(site)
            yield from map(type(self), cut.tiling.others(cut.pixels, s.oc))

    def cost(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        if not s.is_static:
            return float(s.ic * s.oc)
        wide = -(-s.oc // lanes)
        # AVX-512 takes a pixel from memory while it multiplies, NEON four channels of one by lane.
        load = 0.5 if lanes == 16 else 0.8
        if site.x.layout != PLAIN and (lanes == 16 or site.isa.lane_fma):
            load = 0.25
        if site.isa.assembler and s.is_pointwise and s.ic >= lanes:
            # Instructions for each multiply-add: in assembler; in C; in C, with inputs loaded one by one.
            wide *= {blocked(site.target): 1.09, NHWC: 1.2, PLAIN: 1.45}[site.x.layout]
        vectors = s.n * s.g * s.oh * s.ow * s.ic * s.taps * (wide + load / min(wide, 4))
        other = (site.x.layout != blocked(site.target)) + 2 * (site.y.layout != blocked(site.target))
        # Lanes behind the last channel of a blocked input are memory all the same.
        padded = s.n * s.g * s.ih * s.iw * (-s.ic % lanes) if site.x.layout == blocked(site.target) else 0
        return vectors + (other * site.y.size + 2 * padded) / lanes + 200


def reach(extent: Dim, outputs: Dim, stride: int, kernel: int, dilation: int) -> Dim:
    """Length of an axis as far as unclipped windows read it: its extent, whatever the call says of the outputs."""
    return dim_max(extent, (outputs - 1) * stride + (kernel - 1) * dilation + 1)


def _stored(channels: Dim, layout: str, lanes: int) -> Dim:
    return round_up(channels, lanes) if layout == "nchwc" else channels


class DepthwiseConv(Kernel):
    """One filter a channel: all its weights stay in registers along a row."""

    name = "depthwise"
    fuses_epilogue = True
    constants = (1, 2)

    def layouts(self, site):
        layout = blocked(site.target)
        yield (layout, *(PLAIN,) * (len(site.op.own_inputs) - 1)), (layout,)

    def refuse(self, site):
        if any(t is not None and t.dtype != "float32" for t in (*site.inputs, *site.outputs)):
            return "works on float32 only"
        outputs_, per_group = site.inputs[1].shape[:2]
        if per_group != 1 or outputs_ != site.attrs.groups:
            return "needs one filter a channel"
        return None

    def lower(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        bias = has_bias(site.op)
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        blocks = ceildiv(C, lanes)
        extents = {"N": s.n, "C": s.g, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0],
                   "PL": s.pads[1]}
        vpad, hpad = s.overhangs(0), s.overhangs(1)
        height = IH if vpad else reach(IH, OH, s.strides[0], s.kh, s.dilations[0])
        width = IW if hpad else reach(IW, OW, s.strides[1], s.kw, s.dilations[1])
        operands = [Operand("x", 0, N * blocks * lanes * height * width),
                    Operand("w", 1, blocks * lanes * s.taps, ("depthwise", lanes))]
        if bias:
            operands.append(Operand("b", 2, blocks * lanes, ("channel", lanes)))
        return Lowered(
            "conv2d/depthwise",
            Attrs(kh=s.kh, kw=s.kw, sh=s.strides[0], sw=s.strides[1], dh=s.dilations[0], dw=s.dilations[1],
                  vpad=vpad, hpad=hpad, bias=bias, tiling=Tiling.of(site.isa)),
            extents, tuple(operands), (Operand("y", 0, N * blocks * lanes * OH * OW),), N * blocks * OH,
            "depthwise_" + s.name(vpad=vpad, hpad=hpad, bias=bias), "rows", scratch=4 * lanes * IW if vpad else 0,
            channels=blocks * lanes)

    def cost(self, site):
        s = Geometry.of(site)
        if not s.is_static:
            return float(s.g)
        return 200 + s.n * -(-s.g // site.isa.lanes) * s.oh * s.ow * (s.taps * 1.3 + 2)


class PixelConv(Kernel):
    """Vectors of neighbouring pixels in plain layout: groups and channels of any number."""

    name = "pixels"
    fuses_epilogue = True
    constants = (1, 2)
    #: Bytes of the rows that a task copies, where it has a choice, and at most.
    COPY, MOST_COPY = 32 << 10, 128 << 10

    def refuse(self, site):
        if any(t is not None and t.dtype != "float32" for t in (*site.inputs, *site.outputs)):
            return "works on float32 only"
        if site.isa.lanes == 1:
            return "has nothing to gain without vectors"
        s = Geometry.of(site)
        if not s.is_pointwise:
            if not isinstance(s.oh, int) or not isinstance(s.ow, int):
                return "copies rows of a known length only"
            if self._copied(s, site.target, 1) > self.MOST_COPY:
                return f"a copy of the rows that {s.ic} channels need is too large"
        return None

    @staticmethod
    def _tiling(site: Site) -> Tiling:
        return Tiling.of(site.isa, assembler=Geometry.of(site).is_pointwise and not site.compact)

    @staticmethod
    def _columns(s: Geometry, target: Target) -> int:
        """Of a stride phase of the copy."""
        columns = round_up(s.ow, target.isa.lanes) + (s.kw - 1) * s.dilations[1] // s.strides[1]
        # Rows that start at vectors are loaded in pairs (ldp).
        return round_up(columns, target.isa.lanes) if target.isa.lane_fma else columns

    @staticmethod
    def _copied(s: Geometry, target: Target, rows: Dim, channels: Dim = 0, columns: Dim = 0) -> Dim:
        """Bytes of the copy for so many output rows."""
        phases = min(s.strides[1], (s.kw - 1) * s.dilations[1] + 1)
        height = (rows - 1) * s.strides[0] + (s.kh - 1) * s.dilations[0] + 1
        return 4 * ((channels or s.ic) * height * phases * (columns or PixelConv._columns(s, target))
                    + 2 * target.isa.lanes)

    def _split(self, site: Site) -> tuple[Dim, Dim, int]:
        """(rows, pixels a row, rows a task) of the output; the shape of an image that does not matter is chosen."""
        s = Geometry.of(site)
        if not isinstance(s.oh, int) or not isinstance(s.ow, int):
            return (1, s.oh * s.ow, 1) if s.is_pointwise else (s.oh, s.ow, 1)
        if s.is_pointwise:
            return *_pixel_rows(self._tiling(site), s.oh * s.ow, s.oc, s.ic, site.target), 1
        rows = max(r for r in range(1, s.oh + 1) if r == 1 or self._copied(s, site.target, r) <= self.COPY)
        return s.oh, s.ow, -(-s.oh // -(-s.oh // rows))

    def lower(self, site):
        s = Geometry.of(site)
        tiling = self._tiling(site)
        bias = has_bias(site.op)
        vpad, hpad = s.overhangs(0), s.overhangs(1)
        oh, ow, rows = self._split(site)
        ih, iw = (oh, ow) if s.is_pointwise else (s.ih, s.iw)
        N, G, IC, IH, IW, OC, OH, OW, ROWS, COLUMNS = extent_symbols(
            "N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "ROWS", "COLUMNS")
        extents = {"N": s.n, "G": s.g, "IC": s.ic, "IH": ih, "IW": iw, "OC": s.oc, "OH": oh, "OW": ow,
                   "PT": s.pads[0], "PL": s.pads[1], "ROWS": rows}
        if s.is_pointwise:
            small = tiling.small_pixels()[0]
            vectors = tiling.pixel_tile(ow if isinstance(ow, int) else None, s.oc)[0]
            extents["COLUMNS"] = vectors * site.isa.lanes
            scratch = self._copied(s, site.target, 1, IC, dim_max(COLUMNS, small * site.isa.lanes))
        else:
            extents["COLUMNS"] = self._columns(s, site.target)
            scratch = self._copied(s, site.target, ROWS, IC, COLUMNS)
        height = IH if vpad else reach(IH, OH, s.strides[0], s.kh, s.dilations[0])
        width = IW if hpad else reach(IW, OW, s.strides[1], s.kw, s.dilations[1])
        operands = [Operand("x", 0, N * G * IC * height * width),
                    Operand("w", 1, G * OC * IC * s.taps, ("conv_oihw", 1, s.g))]
        if bias:
            operands.append(Operand("b", 2, G * OC))
        return Lowered(
            "conv2d/pixels",
            Attrs(kh=s.kh, kw=s.kw, sh=s.strides[0], sw=s.strides[1], dh=s.dilations[0], dw=s.dilations[1],
                  in_place=s.is_pointwise, bias=bias, tiling=tiling),
            extents, tuple(operands), (Operand("y", 0, N * G * OC * OH * OW),), N * G * ceildiv(OH, ROWS),
            s.name(vpad=vpad, hpad=hpad, bias=bias), "pixels", scratch=scratch, channels=G * OC)

    def cost(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        if not s.is_static:
            return float(s.ic * s.oc * 4)
        tiling, (height, pixels, rows) = self._tiling(site), self._split(site)
        tile = tiling.pixel_tile(pixels, s.oc)
        steps = tiling.pixel_cost(pixels, s.oc, *tile) * s.ic * s.taps
        if not site.isa.lane_fma and not s.is_pointwise:
            steps *= 0.86  # measured on AVX-512: loads hide behind multiply-adds (benchmarks/cost_model.py)
        tiles = sum(count for _, count in tiling.pixel_runs(pixels, tile[0]))
        if site.isa.lane_fma and (s.ic, s.oc) == (1, 1) and 4 <= s.taps <= 25:
            steps, tiles = -(-pixels // lanes) * s.taps * 1.2, tiles / 2  # two rows at once share their inputs
        copied = 0.0
        if not s.is_pointwise:
            # Columns of stride 2 are taken apart by shuffles, others one by one.
            vector = {1: 2.0, 2: 8.0}.get(s.strides[1], 2.0 * lanes)
            lines = ((rows - 1) * s.strides[0] + (s.kh - 1) * s.dilations[0] + 1) / rows
            copied = s.ic * lines * s.strides[1] * (10 + vector * pixels / lanes)
        return 200 + s.n * s.g * height * (steps + copied + 30 * tiles)


@lru_cache(maxsize=1024)
def _pixel_rows(tiling: Tiling, pixels: int, channels: int, depth: int, target: Target) -> tuple[int, int]:
    """(rows, pixels a row) of an image whose shape does not matter: rows that fill vectors and tiles, and workers."""
    options = [(rows, pixels // rows) for rows in range(1, pixels + 1) if pixels % rows == 0]
    short = [option for option in options if option[1] <= 1024] or options[-1:]

    def cost(rows: int, row: int) -> float:
        shared = target.l2 and not tiling.assembler and is_large(pixels * channels * depth)
        return (rows * (8 + tiling.pixel_cost(row, channels, *tiling.pixel_tile(row, channels)))
                * (waiting(1, 1, 1, rows) if shared else 1))

    return min(short, key=lambda option: (cost(*option), option[1]))


class PlainConv(Kernel):
    """Any convolution in plain layout, weights as they are: slow, and always there."""

    name = "plain"
    fuses_epilogue = True

    def refuse(self, site):
        if any(t is not None and t.dtype != "float32" for t in (*site.inputs, *site.outputs)):
            return "works on float32 only"
        return None

    def lower(self, site):
        s = Geometry.of(site)
        bias = has_bias(site.op)
        names = ("N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "PT", "PL")
        values = (s.n, s.g, s.ic, s.ih, s.iw, s.oc, s.oh, s.ow, *s.pads[:2])
        N, G, IC, IH, IW, OC, OH, OW = extent_symbols(*names[:8])
        operands = [Operand("x", 0, N * G * IC * IH * IW), Operand("w", 1, G * OC * IC * s.taps)]
        if bias:
            operands.append(Operand("b", 2, G * OC))
        return Lowered("conv2d/plain",
                       Attrs(bias=bias, kh=s.kh, kw=s.kw, sh=s.strides[0], sw=s.strides[1], dh=s.dilations[0],
                             dw=s.dilations[1]),
                       dict(zip(names, values, strict=True)), tuple(operands),
                       (Operand("y", 0, N * G * OC * OH * OW),), N * G * OC * OH, s.name(bias=bias), "plain",
                       channels=G * OC)

    def cost(self, site):
        s = Geometry.of(site)
        if not s.is_static:
            return float(s.ic * s.oc * 1000)
        return 1000 + 4.0 * product((s.n, s.g, s.oc, s.oh, s.ow, s.ic, s.taps))
