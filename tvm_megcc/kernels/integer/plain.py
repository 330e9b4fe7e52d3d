# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of any 8-bit operands, one product at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import product
from ...ops.quantized.conv_matmul import CENTRED_TYPES, INT8_TYPES
from ..base import FALLBACK_CALL, Kernel, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..matmul.packed import PanelMatMul, PanelParameters, ProductParameters
from ..site import Site
from .dot import zero_name
from .products import ByteParameters


@dataclass(frozen=True)
class PlainConvParameters(ByteParameters):
    """Parameters of `plain_conv.c.j2`. w_zero: zero point of w."""

    w_zero: int


class PlainBytesConv(Kernel):
    """Any convolution in plain layout with unpacked weights. It is slow; it accepts all that others refuse."""

    name = "plain"
    dtypes = (CENTRED_TYPES, INT8_TYPES, ("int32",))

    def lower(self, site: Site) -> Lowered:
        s = Geometry.of(site)
        zeros = site.attrs.x_zero, site.attrs.w_zero
        extents = s.extents(s.oh, s.ow)
        N, G, IC, IH, IW, OC, OH, OW, *_ = extent_symbols(*extents)
        operands = present(site, Operand("x", 0, N * G * IC * IH * IW), Operand("w", 1, G * OC * IC * s.taps),
                           Operand("b", 2, G * OC))
        parameters = PlainConvParameters(*s.window, bias=s.bias, unit=site.x.c_type, weight=site.inputs[1].c_type,
                                         x_zero=zeros[0], w_zero=zeros[1])
        return Lowered("integer/plain_conv", parameters, extents, operands,
                       (Operand("y", 0, N * G * OC * OH * OW),), N * G * OC * OH,
                       s.name("conv2d_integer") + "".join(map(zero_name, zeros)), "plain")

    def cost(self, site: Site) -> float:
        s = Geometry.of(site)
        # 4 rough cycles (`Kernel.cost`): a product of one element, with its loads and the test whether it is in x.
        return FALLBACK_CALL + 4.0 * product((s.n, s.g, s.oc, s.oh, s.ow, s.ic, s.taps))


@dataclass(frozen=True)
class PlainMatMulParameters(ProductParameters):
    """Parameters of `plain_matmul.c.j2`.

    a_type, b_type: the C types of elements of a and b.
    a_zero, b_zero: their zero points.
    """

    a_type: str
    b_type: str
    a_zero: int
    b_zero: int


class PlainBytesMatMul(Kernel):
    """Any matrix product; one task computes one row of the result."""

    name = "plain"
    dtypes = (INT8_TYPES, INT8_TYPES, ("int32",))

    def lower(self, site: Site) -> Lowered:
        lowered = PanelMatMul().lower(site)
        panel: PanelParameters = lowered.params
        zeros = site.attrs.a_zero, site.attrs.b_zero
        parameters = PlainMatMulParameters(
            trans_a=panel.trans_a, trans_b=panel.trans_b, bias=panel.bias, batch=panel.batch, a_type=site.x.c_type,
            b_type=site.inputs[1].c_type, a_zero=zeros[0], b_zero=zeros[1])
        rows = product(extent_symbols("M", *(f"D{i}" for i in range(len(panel.batch)))))
        # The template copies no panel, so it needs no scratch; it has no epilogue, so no operands per channel.
        return replace(lowered, template="integer/plain_matmul", params=parameters, tasks=rows, algorithm="plain",
                       operation=lowered.operation.replace("matmul", "matmul_integer") + "".join(map(zero_name, zeros)),
                       scratch=0, channels=None)

    def cost(self, site: Site) -> float:
        depth = site.x.shape[-2 if site.attrs.trans_a else -1]
        # 4 cycles (rough, `Kernel.cost`): a product of one element, with its loads.
        return FALLBACK_CALL + 4.0 * site.y.size * depth
