# SPDX-License-Identifier: Apache-2.0
"""The kernels of pooling over windows and of global pooling: by vectors of channels in blocks of channels, and in plain
layout, which any number of axes and any element type may have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import ceildiv, product, round_up
from ...ir.types import NHWC, PLAIN, TensorType
from ..base import CALL, FLOAT32, LARGE_CALL, NUMBERS, Kernel, Lowered, Operand, extent_symbols
from ..conv2d.geometry import WindowParameters, blocked, window_name
from ..conv2d.register_tile import MAX_FLOAT16_TERMS
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class ModeParameters(Parameters):
    """Parameters of `global_plain.c.j2`. mode: "max", "avg" or "sum"."""

    mode: str


@dataclass(frozen=True)
class GlobalParameters(ModeParameters):
    """Parameters of `global.c.j2`. channels_last: whether the layout of x is nhwc, not nchwc."""

    channels_last: bool


@dataclass(frozen=True)
class WindowPoolParameters(WindowParameters):
    """Parameters of `window.c.j2`.

    mode: "max", "avg" or "sum".
    count_pads: whether an average divides by the taps in the pads, too.
    channels_last: whether the layout is nhwc, not nchwc.
    """

    mode: str
    count_pads: bool
    channels_last: bool


@dataclass(frozen=True)
class PlainPoolParameters(ModeParameters):
    """Parameters of `plain.c.j2`.

    count_pads: whether an average divides by the taps in the pads, too.
    windows: (letter of the axis, extent, stride and dilation of the window) for each axis; the last axis is W.
    order: order in which the indices of maxima count elements, "row" or "column"; "" if indices are not a result.
    unit: C type of an element; of averages and sums it is float.
    lowest: C constant of the lowest value of the element type.
    """

    count_pads: bool
    windows: tuple[tuple[str, int, int, int], ...]
    order: str
    unit: str
    lowest: str


def _mode(op) -> str:
    """Returns how a pool combines elements: "max", "avg" or "sum"."""
    return next(mode for mode in ("max", "avg", "sum") if mode in op.kind)


class WindowPool(Kernel):
    """Pooling over windows by vectors of channels. Neighbouring outputs share loads."""

    name = "window"
    dtypes = (FLOAT32,)
    float16 = True
    fuses_epilogue = True

    def layouts(self, site):
        if site.x.rank == 4:
            yield (blocked(site.target),), (blocked(site.target),)
            yield (NHWC,), (NHWC,)

    def refuse(self, site):
        if site.is_half and _mode(site.op) != "max" and product(site.attrs.kernel) > MAX_FLOAT16_TERMS:
            return f"adds more than {MAX_FLOAT16_TERMS} elements in float16"
        return None

    def lower(self, site):
        (kh, kw), (sh, sw), (dh, dw) = site.attrs.kernel, site.attrs.strides, site.attrs.dilations
        mode, count_pads, lanes = _mode(site.op), bool(site.attrs.get("count_pads", 0)), site.isa.lanes
        (n, c, ih, iw), (oh, ow) = site.x.shape, site.y.shape[2:]
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        top, left, bottom, right = site.attrs.pads
        extents = {"N": n, "C": c, "IH": ih, "IW": iw, "OH": oh, "OW": ow, "PT": top, "PL": left}
        if mode == "avg" and count_pads:  # EH, EW: the image with its pads, in which the elements of a window count
            extents.update(EH=ih + top + bottom, EW=iw + left + right)
        channels_last = site.x.layout == NHWC
        channels, blocks = (C, 1) if channels_last else (round_up(C, lanes), ceildiv(C, lanes))
        return Lowered(
            "pool/window", WindowPoolParameters(
                kh, kw, sh, sw, dh, dw, mode=mode, count_pads=count_pads, channels_last=channels_last), extents,
            (Operand("x", 0, N * channels * IH * IW),), (Operand("y", 0, N * channels * OH * OW),),
            N * blocks * OH, _name(site.op) + "_x_nhwc" * channels_last, "window", channels=channels)

    def cost(self, site):
        # For each vector of y: 1.5 to load and combine a tap; 2 for the store.
        return CALL + _vectors(site.y, site.isa.lanes) * (product(site.attrs.kernel) * 1.5 + 2)


class PlainPool(Kernel):
    """Pooling over windows of one to three axes in plain layout, one output at a time, for any element type. It also
    computes the indices of maxima."""

    name = "plain"
    dtypes = (NUMBERS,)

    def layouts(self, site):
        yield (PLAIN,), (PLAIN,) * len(site.outputs)

    def refuse(self, site):
        return None if _mode(site.op) == "max" or site.x.dtype == "float32" else "averages and sums of float32 only"

    def lower(self, site):
        attrs, spatial = site.attrs, site.x.shape[2:]
        axes = "DHW"[-len(spatial):]
        extents = {"R": product(site.x.shape[:2])}
        for index, (axis, extent, result) in enumerate(zip(axes, spatial, site.y.shape[2:], strict=True)):
            before, after = attrs.pads[index], attrs.pads[len(axes) + index]
            extents.update({f"I{axis}": extent, f"O{axis}": result, f"P{axis}": before,
                            f"E{axis}": extent + before + after})
        R, *image = extent_symbols("R", *(f"I{axis}" for axis in axes))
        outputs = extent_symbols(*(f"O{axis}" for axis in axes))
        results = [Operand(name, index, R * product(outputs))
                   for index, name in enumerate(("y", "where")[:len(site.outputs)])]
        windows = tuple(zip(axes, attrs.kernel, attrs.strides, attrs.dilations, strict=True))
        order = attrs.get("order", "")
        params = PlainPoolParameters(_mode(site.op), bool(attrs.get("count_pads", 0)), windows, order, site.x.c_type,
                                     _lowest_value(site.x.dtype))
        return Lowered("pool/plain", params, extents, (Operand("x", 0, R * product(image)),), tuple(results),
                       R * product(outputs[:-1]), _name(site.op) + (f"_{order}_major" if order else ""), "plain")

    def cost(self, site):
        # For each tap of an output 4, to test whether it lies inside x, load and combine it.
        return LARGE_CALL + 4.0 * site.y.size * product(site.attrs.kernel)


def _lowest_value(dtype: str) -> str:
    """Returns the C constant of the lowest value of an element type."""
    if dtype.startswith("float"):
        return "-MGC_INF"
    return f"INT{8 * np.dtype(dtype).itemsize}_MIN" if np.iinfo(dtype).min < 0 else "0"


class GlobalPool(Kernel):
    """Global pooling by vectors of channels, also for pools whose only window is the image."""

    name = "global"
    dtypes = (FLOAT32,)
    float16 = True
    fuses_epilogue = True

    def layouts(self, site):
        # Without vectors, `blocked` is the plain layout, which a tensor of any rank may have.
        if site.x.rank == 4 or site.isa.lanes == 1:
            yield (blocked(site.target),), (blocked(site.target),)
        if site.x.rank == 4:
            yield (NHWC,), (NHWC,)

    def refuse(self, site):
        return _global_refusal(site)

    def reorders_sums(self, site):
        # With --reproducible all CPUs add in one order: for pools with a window that of the window kernels, row by row;
        # otherwise that of this kernel if x has four axes, and of `PlainGlobalPool` if it has others.
        return site.x.rank != 4 or "kernel" in site.attrs

    def lower(self, site):
        lanes = site.isa.lanes
        N, C, S = extent_symbols("N", "C", "S")
        n, c = site.x.shape[:2]
        channels_last = site.x.layout == NHWC
        channels, blocks = (C, 1) if channels_last else (round_up(C, lanes), ceildiv(C, lanes))
        return Lowered("pool/global", GlobalParameters(_mode(site.op), channels_last),
                       {"N": n, "C": c, "S": product(site.x.shape[2:])},
                       (Operand("x", 0, N * channels * S),), (Operand("y", 0, N * channels),), N * blocks,
                       f"global_{_mode(site.op)}_pool" + "_x_nhwc" * channels_last,
                       "channels" if channels_last else "blocks", channels=channels)

    def cost(self, site):
        # 1 for each vector of x.
        return CALL + _vectors(site.x, site.isa.lanes)


class PlainGlobalPool(Kernel):
    """Global pooling in plain layout, one channel at a time, whose pixels are neighbours in memory."""

    name = "global_plain"
    dtypes = (FLOAT32,)

    def refuse(self, site):
        return _global_refusal(site)

    def reorders_sums(self, site):
        return site.x.rank == 4 or "kernel" in site.attrs  # see GlobalPool

    def lower(self, site):
        R, S = extent_symbols("R", "S")
        return Lowered("pool/global_plain", ModeParameters(_mode(site.op)),
                       {"R": product(site.x.shape[:2]), "S": product(site.x.shape[2:])},
                       (Operand("x", 0, R * S),), (Operand("y", 0, R),), R, f"global_{_mode(site.op)}_pool", "plain")

    def cost(self, site):
        # 1.5: a vector of pixels is loaded and combined; 12: the lanes of a channel's sum are combined.
        return CALL + 1.5 * site.x.size / site.isa.lanes + 12 * site.y.size


def _vectors(type_: TensorType, lanes: int) -> float:
    """Returns the vectors of channels in a tensor."""
    return product(type_.shape) / type_.shape[1] * ceildiv(type_.shape[1], lanes)


def _global_refusal(site: Site) -> str | None:
    """Returns why a pool has other windows than one that is the image; None if it has only that one."""
    if "kernel" not in site.attrs:
        return None
    is_global = tuple(site.attrs.kernel) == tuple(site.x.shape[2:]) and not any(site.attrs.pads) \
        and all(extent == 1 for extent in site.y.shape[2:]) and set(site.attrs.dilations) == {1}
    return None if is_global else "has other windows than the image"


def _name(op) -> str:
    """Returns the operation's part of the symbol, such as `max_pool_3x3_s2`."""
    window = window_name(op.attrs.kernel, op.attrs.strides, op.attrs.dilations)
    return f"{_mode(op)}_pool_{window}" + "_pads" * bool(op.attrs.get("count_pads", 0))
