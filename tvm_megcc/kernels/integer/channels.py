# SPDX-License-Identifier: Apache-2.0
"""Base classes of kernels for 8-bit convolutions, channels last."""

from __future__ import annotations

from ...ir.types import NHWC
from ...ops.quantized.conv_matmul import BYTES
from ..base import Kernel, layout_pair
from ..site import Site


class ChannelsLast(Kernel):
    """The base class of kernels with constant weights, int32 sums and an epilogue on them."""

    dtypes: tuple[tuple[str, ...], ...] = (BYTES, BYTES, ("int32",))
    fuses_epilogue, lanes = True, "i"
    constants = (1, 2)

    def layouts(self, site: Site):
        yield layout_pair(site, NHWC)


class OneFilterAChannel(ChannelsLast):
    """The base class of depthwise convolutions."""

    def refuse(self, site: Site) -> str | None:
        outputs, per_group, *_ = site.inputs[1].shape
        return None if per_group == 1 and outputs == site.attrs.groups else "needs one filter a channel"
