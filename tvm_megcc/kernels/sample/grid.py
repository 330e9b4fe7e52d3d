# SPDX-License-Identifier: Apache-2.0
"""Kernels that sample an image at the points of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, product, round_up
from ...ir.types import PLAIN
from ..base import CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair
from ..conv2d.geometry import blocked
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class GridParameters(Parameters):
    """Parameters of `grid.c.j2`.

    axes: the letters of the image's axes, "HW" or "DHW".
    mode: ONNX's: "nearest", "linear" or "cubic".
    padding: ONNX's `padding_mode`, for neighbours outside the image: "zeros", "border" or "reflection".
    align: ONNX's `align_corners`: -1 and 1 are the centres of the corner pixels, not their outer edges.
    blocked: whether the image has layout nchwc; else it is plain.
    """

    axes: str
    mode: str
    padding: str
    align: bool
    blocked: bool


class GridPixels(Kernel):
    """Samples pixel by pixel: indices and weights once, then all channels.

    Channels of images are computed in vectors, those of volumes one at a time.
    """

    name = "pixels"
    dtypes = (FLOAT32,)

    def layouts(self, site: Site):
        layout = blocked(site.target) if site.x.rank == 4 else PLAIN
        yield layout_pair(site, layout)

    def lower(self, site: Site) -> Lowered:
        (n, c, *spatial), layout = site.x.shape, site.x.layout
        axes = "DHW"[-len(spatial):]
        extents: dict[str, Dim] = {"N": n, "C": c, "P": product(site.y.shape[2:])}
        extents.update((f"I{axis}", extent) for axis, extent in zip(axes, spatial, strict=True))
        N, C, P, *source = extent_symbols(*extents)
        padded_c = C if layout == PLAIN else round_up(C, site.isa.lanes)
        a = site.attrs
        return Lowered("sample/grid",
                       GridParameters(
                           axes=axes, mode=a.mode, padding=a.padding, align=bool(a.align), blocked=layout != PLAIN),
                       extents,
                       (Operand("x", 0, N * padded_c * product(source)), Operand("grid", 1, N * P * len(axes))),
                       (Operand("y", 0, N * padded_c * P),), N * P,
                       f"grid_sample_{a.mode}{len(axes)}d_{a.padding}" + "_align" * bool(a.align), self.name)

    def cost(self, site: Site) -> float:
        taps = {"nearest": 1, "linear": 2, "cubic": 4}[site.attrs.mode] ** (site.y.rank - 2)
        # For each tap of a pixel: a multiply-add for each vector of channels, and 10 for its weight and address.
        return CALL + taps * (site.y.stored / site.isa.lanes + 10.0 * product(site.y.shape[2:]))
