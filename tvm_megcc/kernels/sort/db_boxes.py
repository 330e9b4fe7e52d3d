# SPDX-License-Identifier: Apache-2.0
"""The kernel of boxes of text."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import c_float
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class DbBoxesParameters(Parameters):
    """Parameters of `db_boxes.c.j2`.

    threshold: the probability above which a pixel is text, a float C literal.
    least: the lowest score of a box, a float C literal.
    ratio: a rectangle grows on all sides by area * ratio / circumference; a double C literal.
    dilated: whether text grows by a pixel to the right and down.
    height, width: those of the picture, to which boxes are scaled from the map [H][W].
    """

    threshold: str
    least: str
    ratio: str
    dilated: bool
    height: int
    width: int


class DbBoxesComponents(Kernel):
    """Fills one component after the other, in one task."""

    name = "components"
    dtypes = (FLOAT32,)

    def lower(self, site: Site) -> Lowered:
        attrs = site.attrs
        H, W, K = extent_symbols("H", "W", "K")
        height, width = site.x.shape
        parameters = DbBoxesParameters(c_float(attrs.threshold), repr(float(attrs.least)), repr(float(attrs.ratio)),
                                       bool(attrs.dilated), attrs.height, attrs.width)
        # Scratch: the stack of a fill int32 [H * W]; the first and last column of a component in each row int32 [2][H],
        # and the corners of its convex hull int32 [4 * H][2]; then uint8 [H * W], which pixels are left.
        return Lowered("sort/db_boxes", parameters, {"H": height, "W": width, "K": attrs.most},
                       (Operand("p", 0, H * W),),
                       (Operand("boxes", 0, 8 * K), Operand("scores", 1, K), Operand("number", 2, 1)), 1,
                       f"db_boxes_{attrs.height}x{attrs.width}" + "_dilated" * bool(attrs.dilated), self.name,
                       scratch=4 * H * W + 40 * H + H * W)
