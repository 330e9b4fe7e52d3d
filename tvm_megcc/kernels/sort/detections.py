# SPDX-License-Identifier: Apache-2.0
"""The kernel of detection postprocessing with non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import c_float
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class DetectionsParameters(Parameters):
    """Parameters of `detections.c.j2`.

    count: the number of boxes that are detected.
    classes: the number of classes of a detected box.
    per_class: the most boxes of a class if each class is suppressed by itself; 0 if all are together.
    background: the number of first classes that are left out.
    score_threshold, overlap_threshold: the lowest score of a result, and the intersection over union above which the
        worse of two boxes is dropped; C literals.
    """

    count: int
    classes: int
    per_class: int
    background: int
    score_threshold: str
    overlap_threshold: str


class DetectionsSearch(Kernel):
    """Repeatedly takes the best remaining box and removes those that overlap it, in one task."""

    name = "search"
    dtypes = (FLOAT32,)

    def lower(self, site: Site) -> Lowered:
        attrs = site.attrs
        B, C = extent_symbols("B", "C")
        rows = attrs.count * attrs.classes
        parameters = DetectionsParameters(
            count=attrs.count, classes=attrs.classes, per_class=attrs.per_class, background=attrs.background,
            score_threshold=c_float(attrs.least), overlap_threshold=c_float(attrs.overlap))
        results = {"result_boxes": 4 * rows, "result_classes": rows, "result_scores": rows, "result_count": 1}
        # Scratch: the scores of boxes float32 [B], then whether each remains, uint8 [B].
        return Lowered("sort/detections", parameters, {"B": site.x.shape[0], "C": site.inputs[1].shape[1]},
                       (Operand("boxes", 0, 4 * B), Operand("scores", 1, B * C)),
                       tuple(Operand(name, index, size) for index, (name, size) in enumerate(results.items())),
                       1, f"detections_{attrs.count}x{attrs.classes}" + "_each" * bool(attrs.per_class), self.name,
                       scratch=4 * B + B)

    def cost(self, site: Site) -> float:
        # For each score and result 8, to compare the score, or its box with the result. At most 32 results are counted,
        # since most boxes are soon removed.
        return 8.0 * site.likely.inputs[1].size * min(site.attrs.count, 32)
