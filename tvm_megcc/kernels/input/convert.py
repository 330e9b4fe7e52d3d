# SPDX-License-Identifier: Apache-2.0
"""The kernel `runs` of convert_input: converts the caller's data, such as the bytes of an image, to a float input."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv, product
from ...ir.types import PLAIN
from ..base import Kernel, Lowered, Operand, extent_symbols, layout_pair, possible_layouts
from ..conv2d.geometry import stored
from ..parameters import UnitParameters
from ..site import Site

#: Pixels of a task: their results, in blocks of 16 channels, stay in L1 or L2.
RUN = 512


@dataclass(frozen=True)
class ConvertParameters(UnitParameters):
    """Parameters of `convert.c.j2`.

    unit: C type of an element of the input.
    channels_last: the input is [N][pixels][C], not [N][C][pixels].
    reverse: the input has its channels in reverse order, such as BGR for RGB.
    per_channel: each channel has its own mean and scale.
    run: pixels of a task.
    to, block: kind of the result's layout, and the channels in a block of it.
    is_float16: the input is float16.
    """

    channels_last: bool
    reverse: bool
    per_channel: bool
    run: int
    to: str
    block: int
    is_float16: bool


class ConvertRuns(Kernel):
    """Converts all channels of a run of pixels, directly to the layout that the consumer wants."""

    name = "runs"

    def layouts(self, site: Site):
        for layout in possible_layouts(site.y, site.target):
            yield layout_pair(site, PLAIN, layout)

    def lower(self, site: Site) -> Lowered:
        (x, mean, _), (y,) = site.inputs, site.outputs
        per_channel = mean.size != 1
        channels_last, reverse, layout = site.attrs.channels_last, site.attrs.reverse, y.layout
        shape = y.shape
        if not (per_channel or channels_last or reverse) and layout == PLAIN:
            shape = (1, 1, y.size)  # one run of equal elements
        extents = {"N": shape[0], "C": shape[1], "P": product(shape[2:])}
        n, c, pixels = extent_symbols(*extents)
        stored_channels = stored(c, layout.kind, layout.block)
        params = ConvertParameters(
            unit=x.c_type, channels_last=channels_last, reverse=reverse, per_channel=per_channel, run=RUN,
            to=layout.kind, block=layout.block, is_float16=x.dtype == "float16")
        order = "nhwc" if channels_last else "nchw"
        operation = f"input_{x.dtype}_{order}{'_reversed' * reverse}{'_channels' * per_channel}_{layout}"
        values = c if per_channel else 1
        return Lowered("input/convert", params, extents,
                       (Operand("x", 0, n * c * pixels), Operand("mean", 1, values), Operand("scale", 2, values)),
                       (Operand("y", 0, n * stored_channels * pixels),), n * ceildiv(pixels, RUN), operation,
                       self.name)

    def cost(self, site: Site) -> float:
        # 2: an element is converted and scaled; 0.25: stores skip a pad lane, so they reach more cache lines.
        y = site.y
        return 2.0 * y.size + 0.25 * (y.stored - y.size)
