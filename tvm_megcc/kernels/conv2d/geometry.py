# SPDX-License-Identifier: Apache-2.0
"""The geometry of a convolution: its extents, window and pads, as its kernels need them. Transposed convolution,
pooling and integer convolution use it, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ...ir.dims import Dim, dim_max, round_up
from ...ir.types import PLAIN, Layout, nchwc
from ...target import Target
from ..microkernel.window import Taps, Window
from ..parameters import Parameters, Scope
from ..site import Site, once

#: A number of rows or columns: an int gives an int.
Extent = TypeVar("Extent", int, Dim)


def blocked(target: Target) -> Layout:
    """Returns the target's layout with vectors of channels; without vectors, the plain one."""
    return nchwc(target.isa.lanes) if target.isa.lanes > 1 else PLAIN


@dataclass(frozen=True)
class Geometry:
    """The geometry of one convolution.

    n: images. g: groups. ic, oc: input and output channels of one group. ih, iw, oh, ow: rows and columns of an image
    of the input and of the output. kh, kw: rows and columns of the window. strides, dilations: (rows, columns).
    pads: (top, left, bottom, right), as in ONNX. bias: the operator has one.
    """

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
    bias: bool = False

    @staticmethod
    @once
    def of(site: Site) -> Geometry:
        """Returns the geometry of the convolution at a site. With vectors, an image of one column is turned to one row,
        because tiles go along rows."""
        (n, _, ih, iw), (oc, ic, kh, kw) = site.x.shape, site.inputs[1].shape
        groups = site.attrs.groups
        geometry = Geometry(n, groups, ic, ih, iw, oc // groups, *site.y.shape[2:], kh, kw, tuple(site.attrs.strides),
                            tuple(site.attrs.dilations), tuple(site.attrs.pads), site.has(2))
        one_column = geometry.iw == geometry.ow == geometry.kw == 1 and not (geometry.pads[1] or geometry.pads[3])
        # Without vectors there are no tiles of pixels, and short rows need less workspace.
        return geometry._as_row() if one_column and site.isa.lanes > 1 else geometry

    def _as_row(self) -> Geometry:
        """Returns the geometry of an image of one column as that of an image of one row, which is the same memory."""
        top, _, bottom, _ = self.pads
        return replace(self, ih=1, iw=self.ih, oh=1, ow=self.oh, kh=1, kw=self.kh, strides=self.strides[::-1],
                       dilations=self.dilations[::-1], pads=(0, top, 0, bottom))

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in (self.n, self.ih, self.iw, self.oh, self.ow))

    @property
    def taps(self) -> int:
        return self.kh * self.kw

    @property
    def is_pointwise(self) -> bool:
        return self.taps == 1 and self.strides == (1, 1) and not any(self.pads)

    @property
    def window(self) -> tuple[int, int, int, int, int, int]:
        """Returns (kh, kw, sh, sw, dh, dw): extents, strides and dilations of the window."""
        return self.kh, self.kw, *self.strides, *self.dilations

    @property
    def vpad(self) -> bool:
        """Whether some window reaches outside the input above or below."""
        return self._overhangs(0)

    @property
    def hpad(self) -> bool:
        """Whether some window reaches outside the input at the left or right."""
        return self._overhangs(1)

    def _overhangs(self, axis: int) -> bool:
        """Returns whether some window reaches outside the input along the axis: 0 rows, 1 columns."""
        pad_before = self.pads[axis]
        extent, read = ((self.ih, self.rows_read(self.oh)), (self.iw, self.columns_read(self.ow)))[axis]
        overhang = read - pad_before - extent
        # If extents are unknown, the last window is taken to reach into the pad after the input.
        return pad_before > 0 or (overhang > 0 if isinstance(overhang, int) else self.pads[2 + axis] > 0)

    def extents(self, oh: Dim, ow: Dim) -> dict[str, Dim]:
        """Returns the extents by the names that kernels use. oh, ow: rows and columns of the output; a pointwise
        convolution may divide its pixels into rows in any way."""
        ih, iw = (oh, ow) if self.is_pointwise else (self.ih, self.iw)
        return {"N": self.n, "G": self.g, "IC": self.ic, "IH": ih, "IW": iw, "OC": self.oc, "OH": oh, "OW": ow,
                "PT": self.pads[0], "PL": self.pads[1]}

    def area(self, ih: Dim, iw: Dim, oh: Dim, ow: Dim) -> Dim:
        """Returns the elements that an input channel must have for any extents of a call. Kernels without `vpad`
        (`hpad`) read every row (column) of a window unchecked, so these count too, in case that a container gives
        extents of y that do not fit those of x."""
        height = ih if self.vpad else dim_max(ih, self.rows_read(oh))
        return height * (iw if self.hpad else dim_max(iw, self.columns_read(ow)))

    def rows_read(self, outputs: Extent) -> Extent:
        """Returns the input rows from the first to the last that neighbouring output rows read, with padding."""
        return (outputs - 1) * self.strides[0] + (self.kh - 1) * self.dilations[0] + 1

    def columns_read(self, outputs: Extent) -> Extent:
        """Returns the input columns from the first to the last that neighbouring output columns read, with padding."""
        return (outputs - 1) * self.strides[1] + (self.kw - 1) * self.dilations[1] + 1

    def name(self, operation: str = "conv2d", **flags) -> str:
        """Returns the operation's name with its window and those flags that are True, such as `conv2d_3x3_s2_hpad`."""
        window = window_name((self.kh, self.kw), self.strides, self.dilations)
        return "_".join([operation, window] + [flag for flag, is_set in flags.items() if is_set] + ["bias"] * self.bias)


def window_name(kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> str:
    """Returns the window as a part of a kernel's name, such as `3x3_s2`."""
    return "x".join(map(str, kernel)) + steps_name(strides, dilations)


def steps_name(strides: Sequence[int], dilations: Sequence[int]) -> str:
    """Returns strides and dilations as a part of a kernel's name, such as `_s2_d1x3`: one number if all axes have the
    same; nothing if they are 1."""
    parts = [""]
    for letter, values in (("s", strides), ("d", dilations)):
        if set(values) != {1}:
            parts.append(letter + "x".join(map(str, values if len(set(values)) > 1 else values[:1])))
    return "_".join(parts)


def stored(channels: Dim, layout: str, lanes: int) -> Dim:
    """Returns the channels in memory, with pad lanes. layout: the kind of the layout."""
    return round_up(channels, lanes) if layout == "nchwc" else channels


#: `Geometry.window` of a 1x1 convolution.
POINT = (1, 1, 1, 1, 1, 1)


@dataclass(frozen=True)
class WindowParameters(Parameters):
    """Parameters of templates that work on windows.

    kh, kw, sh, sw, dh, dw: extents (k), strides (s) and dilations (d) of the window, in rows (h) and in columns (w).
    """

    kh: int
    kw: int
    sh: int
    sw: int
    dh: int
    dw: int

    @property
    def taps(self) -> Window:
        """The window, with the taps of its rows and of its columns."""
        return Window(Taps(self.kh, self.sh, self.dh), Taps(self.kw, self.sw, self.dw))

    def microkernel(self, scope: Scope) -> object:
        """The window: `rows` and `columns` (microkernel/window.py), which print what taps lie inside x, and `taps`."""
        return self.taps

    def facts(self) -> tuple[str, ...]:
        # The first six facts are those of the six fields, which these three join.
        return (f"kernel = {self.kh}x{self.kw}", f"stride = {self.sh}x{self.sw}", f"dilation = {self.dh}x{self.dw}",
                *super().facts()[6:])


@dataclass(frozen=True)
class ConvParameters(WindowParameters):
    """Parameters that the templates of convolution share. bias: whether the operator has a bias."""

    bias: bool
