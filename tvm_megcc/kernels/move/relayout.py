# SPDX-License-Identifier: Apache-2.0
"""Copies of a tensor into another layout."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, ceildiv
from ...ir.graph import Op
from ...ir.types import DTYPES, NHWC, PLAIN, Layout, TensorType, nchwc
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site
from .copies import copy_cost
from .strided import TransposeMatrix


@dataclass(frozen=True)
class BlocksParameters(Parameters):
    """Parameters of `relayout.c.j2`.

    to_blocks: whether the result is in blocks; otherwise the operand is.
    other: the kind of the layout that is not in blocks, "plain" or "nhwc".
    pixels: the number of pixels in a task.
    """

    to_blocks: bool
    other: str
    pixels: int


@dataclass(frozen=True)
class ElementsParameters(BlocksParameters):
    """Parameters of `relayout_elements.c.j2`. unit: the C type of an element."""

    unit: str


class RelayoutMatrix(TransposeMatrix):
    """Converts between plain and nhwc: a transpose of channels and pixels."""

    name = "tiled"

    def layouts(self, site: Site):
        if site.x.rank == 4:
            yield (PLAIN,), (NHWC,)
            yield (NHWC,), (PLAIN,)

    @staticmethod
    def _matrices(op: Op, x: TensorType, y: TensorType) -> tuple[Dim, Dim, Dim] | None:
        n, c, h, w = x.shape
        return (n, c, h * w) if x.layout == PLAIN else (n, h * w, c)

    def refuse(self, site: Site):
        return None


class RelayoutBlocks(Kernel):
    """Converts between blocks of channels and plain or nhwc, by vectors."""

    name = "blocks"
    dtypes = (FLOAT32,)
    template = "move/relayout"
    #: Most pixels of a block in a task: 64 KB if vectors have 16 lanes.
    PIXELS = 1024

    def layouts(self, site: Site):
        if site.x.rank == 4 and site.isa.lanes > 1:
            for other in (PLAIN, NHWC):
                yield (other,), (nchwc(site.isa.lanes),)
                yield (nchwc(site.isa.lanes),), (other,)

    def parameters(self, type_: TensorType, to_blocks: bool, other: Layout) -> BlocksParameters:
        return BlocksParameters(to_blocks, other.kind, self.PIXELS)

    def lower(self, site: Site) -> Lowered:
        n, c, pixels = extent_symbols("N", "C", "HW")
        shape = site.x.shape
        extents = {"N": shape[0], "C": shape[1], "HW": shape[2] * shape[3]}
        block = site.isa.lanes
        padded = ceildiv(c, block) * block * n * pixels
        source, result = site.x.layout, site.y.layout
        sizes = [padded if layout.kind == "nchwc" else n * c * pixels for layout in (source, result)]
        to_blocks = result.kind == "nchwc"
        params = self.parameters(site.x, to_blocks, source if to_blocks else result)
        return Lowered(self.template, params, extents, (Operand("x", 0, sizes[0]),), (Operand("y", 0, sizes[1]),),
                       n * ceildiv(c, block) * ceildiv(pixels, self.PIXELS), f"relayout_{source}_{result}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=1.5)


class RelayoutElements(RelayoutBlocks):
    """Converts element by element, for any other type: each type needs a way between all layouts."""

    name = "elements"
    dtypes = (tuple(dtype for dtype in DTYPES if dtype != "float32"),)  # float32 uses vectors
    template = "move/relayout_elements"

    def parameters(self, type_: TensorType, to_blocks: bool, other: Layout) -> ElementsParameters:
        return ElementsParameters(to_blocks, other.kind, self.PIXELS, type_.c_type)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=4.0)
