# SPDX-License-Identifier: Apache-2.0
"""Products of two 8-bit operands that are both known at run time only, by panels of floats with exact sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.types import DTYPES
from ...ops.quantized.conv_matmul import INT8_TYPES
from ..base import LARGE_CALL, Kernel, Lowered, extent_symbols
from ..matmul.packed import PanelMatMul, PanelParameters
from ..microkernel.panel_tile import PanelTile
from ..parameters import Scope
from ..site import Site
from .dot import zero_name
from .plain import PlainMatMulParameters

#: The largest number of products of differences of 8-bit numbers whose sum float32 holds exactly: 256 * 255^2 < 2^24.
MAX_EXACT_PRODUCTS = 256


@dataclass(frozen=True)
class BytePanelParameters(PlainMatMulParameters):
    """Parameters of `panel.c.j2`.

    a_short, b_short: suffixes of a's and b's types in mgc functions.
    result: C type of an element of y.
    vectors: vectors of columns in a panel.
    rows: rows of a tile.
    exact_products: products that are summed in float32 before they are added in int32.
    """

    a_short: str
    b_short: str
    result: str
    vectors: int
    rows: int
    exact_products: int

    def microkernel(self, scope: Scope) -> PanelTile:
        return PanelTile(self.vectors, scope)


class PanelBytesMatMul(Kernel):
    """Multiplies any operands. It copies panels of the right one and rows of the left one to scratch."""

    name = "panel"
    dtypes = (INT8_TYPES, INT8_TYPES, ("int32",))
    fuses_epilogue = True
    lane_kind = "i"  # its epilogue works on int32

    def refuse(self, site: Site):
        return "has no vectors of floats" if site.isa.lanes == 1 else None

    def lower(self, site: Site) -> Lowered:
        lowered = PanelMatMul().lower(site)
        panel: PanelParameters = lowered.params
        rows = 8 if site.isa.registers > 16 else 4
        a, b = site.x, site.inputs[1]
        zeros = site.attrs.a_zero, site.attrs.b_zero
        parameters = BytePanelParameters(
            trans_a=panel.trans_a, trans_b=panel.trans_b, bias=panel.bias, batch=panel.batch, a_type=a.c_type,
            b_type=b.c_type, a_zero=zeros[0], b_zero=zeros[1], a_short=DTYPES[a.dtype].short,
            b_short=DTYPES[b.dtype].short, result=site.y.c_type, vectors=panel.vectors, rows=rows,
            exact_products=MAX_EXACT_PRODUCTS)
        (K,) = extent_symbols("K")
        # Scratch, float32: a panel of b [K][columns], and the rows of a tile of a [rows][K]. All of K is summed at
        # once, so y gets no partial sums before the epilogue (`epilogue_in_place`).
        return replace(lowered, template="integer/panel", params=parameters, algorithm="panel",
                       operation=lowered.operation.replace("matmul", "matmul_integer") + "".join(map(zero_name, zeros)),
                       scratch=4 * K * (panel.vectors * site.isa.lanes + rows), epilogue_in_place=True)

    def cost(self, site: Site) -> float:
        depth = site.x.shape[-2 if site.attrs.trans_a else -1]
        # 1.6: a multiply-add of vectors, and the conversion of sums to int32; 4: an element of b is packed as a float.
        return LARGE_CALL + 1.6 * site.y.size * depth / site.isa.lanes + 4.0 * site.inputs[1].size
