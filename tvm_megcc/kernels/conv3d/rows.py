# SPDX-License-Identifier: Apache-2.0
"""The kernel `rows`: 3-D convolution of floats, x [N, C, D, H, W]."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, ceildiv, product
from ..base import FALLBACK_CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import window_name
from ..parameters import Parameters


@dataclass(frozen=True)
class RowsParameters(Parameters):
    """Parameters of `rows.c.j2`.

    kernel, strides, dilations: extents, strides and dilations of the window, for depth, height and width.
    bias: whether there is a bias.
    channels: the number of output channels that share loads of inputs.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    bias: bool
    channels: int


class RowsConv3d(Kernel):
    """3-D convolution in plain layout with unpacked weights. Vectors hold neighbouring outputs of a row."""

    name = "rows"
    dtypes, static = (FLOAT32,), (1,)  # the extents of the weights
    fuses_epilogue = True
    #: Output channels that share loads of inputs.
    CHANNELS = 4

    def lower(self, site):
        (n, _, *spatial), (outs, ic, *kernel), groups = site.x.shape, site.inputs[1].shape, site.attrs.groups
        extents: dict[str, Dim] = {"N": n, "G": groups, "IC": ic, "OC": outs // groups}
        for axis, extent, result, pad in zip("DHW", spatial, site.y.shape[2:], site.attrs.pads[:3], strict=True):
            extents.update({f"I{axis}": extent, f"O{axis}": result, f"P{axis}": pad})
        N, G, IC, OC, ID, IH, IW, OD, OH, OW = extent_symbols("N", "G", "IC", "OC", "ID", "IH", "IW", "OD", "OH", "OW")
        operands = present(site, Operand("x", 0, N * G * IC * ID * IH * IW),
                           Operand("w", 1, G * OC * IC * product(kernel)), Operand("b", 2, G * OC))
        window, bias = (tuple(kernel), site.attrs.strides, site.attrs.dilations), site.has(2)
        return Lowered("conv3d/rows", RowsParameters(*window, bias, self.CHANNELS), extents, operands,
                       (Operand("y", 0, N * G * OC * OD * OH * OW),), N * G * ceildiv(OC, self.CHANNELS) * OD * OH,
                       f"conv3d_{window_name(*window)}" + "_bias" * bias, self.name, channels=G * OC)

    def cost(self, site):
        # 2: a multiply-add of a vector, with its load.
        return FALLBACK_CALL + 2.0 * site.y.size * product(site.inputs[1].shape[1:]) / site.isa.lanes
