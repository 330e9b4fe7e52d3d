# SPDX-License-Identifier: Apache-2.0
"""The kernel of bilinear resizing of bytes with TFLite's arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.dims import ceildiv, number
from ...ir.types import DTYPES, NHWC, Layout
from ...ops.quantized.lookup_table import INT8_TYPES
from ...ops.vision.resize_bilinear import FRACTION_BITS
from ..base import ANY, CALL, Kernel, Lowered, Operand, extent_symbols, layout_pair
from ..parameters import UnitParameters
from ..site import Site


@dataclass(frozen=True)
class BilinearParameters(UnitParameters):
    """Parameters of `bilinear.c.j2`.

    short: the suffix of mgc functions for the dtype of x, such as "u8".
    fraction_bits: fractions are integers in units of 2 to minus this; 0: they are float32.
    """

    short: str
    fraction_bits: int


class BilinearBytes(Kernel):
    """Interpolates between two rows into scratch, then between its columns, by vectors along the channels. One task
    computes one row of the result."""

    name = "channels"
    dtypes = (INT8_TYPES, ANY)

    def layouts(self, site: Site) -> Iterator[tuple[tuple[Layout, ...], tuple[Layout, ...]]]:
        yield layout_pair(site, NHWC)

    def lower(self, site: Site) -> Lowered:
        x, y, is_float = site.x, site.y, site.x.dtype == "uint8"
        N, C, H, W, OH, OW = extent_symbols("N", "C", "H", "W", "OH", "OW")
        extents = {"N": x.shape[0], "C": x.shape[1], "H": x.shape[2], "W": x.shape[3], "OH": y.shape[2],
                   "OW": y.shape[3]}
        tables = tuple(Operand(name, index, OH if name.startswith("row") else OW) for index, name in enumerate((
            "row_lower", "row_upper", "row_fraction", "column_lower", "column_upper", "column_fraction"), 1))
        params = BilinearParameters(x.c_type, DTYPES[x.dtype].short, 0 if is_float else FRACTION_BITS)
        # Vectors of the last channels read past the end of a row of scratch.
        return Lowered("resize/bilinear", params, extents, (Operand("x", 0, N * H * W * C), *tables),
                       (Operand("y", 0, N * OH * OW * C),), N * OH, f"resize_bilinear_{x.dtype}", self.name,
                       scratch=4 * (2 if is_float else 1) * (W * C + site.isa.lanes))

    def cost(self, site: Site) -> float:
        n, c, oh, ow = map(number, site.y.shape)
        # 14 for a vector of a pixel's channels: four products, their sum, rounding and the store.
        return CALL + 14.0 * n * oh * ow * ceildiv(c, site.isa.lanes)
