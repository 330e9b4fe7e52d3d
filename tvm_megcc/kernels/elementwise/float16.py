# SPDX-License-Identifier: Apache-2.0
"""Conversions between float32 and float16."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import ceildiv, product
from ...ir.types import NHWC, PLAIN, nchwc
from ..base import CALL, Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..parameters import Parameters
from ..site import Site
from .loops import VectorKernel

_BOTH = {"float32", "float16"}


class Float16Loops(VectorKernel):
    """Converts between tensors of the same layout."""

    name = "float16"
    dtypes, uniform, float16 = (("float32", "float16"),), False, False

    def layouts(self, site: Site):
        blocks = possible_layouts(site.y, site.target)
        # Where float16 has its own blocked layout, float16 and float32 tensors have different layouts.
        for layout in (layout for layout in blocks if not site.context.half or layout in (PLAIN, NHWC)):
            yield (layout,), (layout,)

    def refuse(self, site: Site):
        return None if {site.x.dtype, site.y.dtype} == _BOTH else "converts between float32 and float16"

    def formula(self, site: Site) -> str:
        return "a0"

    def lower(self, site: Site) -> Lowered:
        # The base class would name a template float16.
        return replace(super().lower(site), template="elementwise/vector")

    def cost(self, site: Site) -> float:
        # 2: a vector is loaded, converted and stored.
        return 2.0 * site.y.size / site.isa.lanes


@dataclass(frozen=True)
class Float16BlocksParameters(Parameters):
    """Parameters of `float16_blocks.c.j2`.

    narrow: whether float32 is converted to float16; else float16 to float32.
    float16_lanes: channels in a block of float16, a multiple of those in a block of float32.
    """

    narrow: bool
    float16_lanes: int


class Float16Blocks(Kernel):
    """Converts between layout blocks that are vectors of float16 and those that are vectors of float32."""

    name = "float16_blocks"
    dtypes = (("float32", "float16"),)

    def layouts(self, site: Site):
        float16_target = site.context.target.float16_target
        if site.context.half and float16_target and site.x.rank == 4 and site.isa.lanes > 1:
            of_float32, of_float16 = (nchwc(site.isa.lanes),), (nchwc(float16_target.isa.lanes),)
            yield (of_float32, of_float16) if site.y.dtype == "float16" else (of_float16, of_float32)

    def refuse(self, site: Site):
        return None if {site.x.dtype, site.y.dtype} == _BOTH else "converts between float32 and float16"

    def lower(self, site: Site) -> Lowered:
        narrow, lanes, width = site.y.dtype == "float16", site.isa.lanes, site.context.target.float16_target.isa.lanes
        N, C, S = extent_symbols("N", "C", "S")
        sizes = N * ceildiv(C, lanes) * lanes * S, N * ceildiv(C, width) * width * S
        x, y = sizes if narrow else sizes[::-1]
        return Lowered("elementwise/float16_blocks", Float16BlocksParameters(narrow, width),
                       {"N": site.x.shape[0], "C": site.x.shape[1], "S": product(site.x.shape[2:])},
                       (Operand("x", 0, x),), (Operand("y", 0, y),), N * ceildiv(C, width),
                       f"cast_blocks_{site.y.layout}", self.name)

    def cost(self, site: Site) -> float:
        # 2: a vector is loaded, converted and stored.
        return CALL + 2.0 * site.y.stored / site.isa.lanes


FLOAT16_LOOPS = Float16Loops()
FLOAT16_BLOCKS = Float16Blocks()
