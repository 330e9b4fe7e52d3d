# SPDX-License-Identifier: Apache-2.0
"""Code that kernels of 8-bit convolutions with channels last share."""

from __future__ import annotations

from ...ir.types import NHWC
from ...ops.quantized.conv_matmul import BYTES
from ..base import Kernel, around
from ..site import Site


class ChannelsLast(Kernel):
    """The base of kernels with constant weights, int32 sums and an epilogue over them."""

    dtypes: tuple[tuple[str, ...], ...] = (BYTES, BYTES, ("int32",))
    fuses_epilogue, lanes = True, "i"
    constants = (1, 2)

    def layouts(self, site: Site):
        yield around(site, NHWC)


class OneFilterAChannel(ChannelsLast):
    """Depthwise convolution."""

    def refuse(self, site: Site) -> str | None:
        outputs, per_group, *_ = site.inputs[1].shape
        return None if per_group == 1 and outputs == site.attrs.groups else "needs one filter a channel"
