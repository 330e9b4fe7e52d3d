# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression as TFLite's operator TFLite_Detection_PostProcess computes it; also an operator of our own
ONNX domain "megcc", which programs use (tools/program/detections.py)."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register

#: The largest number of results: boxes times classes of each.
MAX_RESULTS = 1 << 16


@register
class Detections(Operator):
    """Boxes of decreasing score, without those that overlap a better one. B: boxes, C: classes, D: results.

    Operands: boxes float32 [B,4], y and x of one corner, then of the other; scores float32 [B,C]. Results, all float32:
    boxes [1,D,4], classes [1,D] and scores [1,D], with zeros after the last result; the number of results [1].

    Attributes: `count`: the largest number of boxes; `classes`: the number of best classes that are given for each box
    as results of their own, so D is count * classes; `per_class`: if not 0, suppression is done for each class
    separately with at most this many boxes, and a result is a box with a class, at most `count` of them; `background`:
    the number of leading columns of scores that are not classes; `least`: the lowest score of a result; `overlap`: the
    IoU above which the worse box is dropped. If scores are equal, the first box is better; NaN is the lowest score.
    """

    kind = "detections"
    operands = ("boxes", "scores")

    @staticmethod
    def infer(attrs: Attrs, boxes: TensorType, scores: TensorType) -> tuple[TensorType, ...]:
        if boxes.rank != 2 or scores.rank != 2 or boxes.shape[1] != 4:
            raise ShapeError(f"boxes {boxes} with scores {scores}")
        require_shape(boxes.shape[:1], scores.shape[:1], f"boxes {boxes} with scores {scores}")
        columns = scores.shape[1]
        rows = attrs.count * attrs.classes
        if not 0 < rows <= MAX_RESULTS or min(attrs.count, attrs.classes) < 1 or attrs.per_class < 0:
            raise ShapeError(f"{attrs.count} boxes of {attrs.classes} classes; up to {MAX_RESULTS} results are "
                             "supported")
        if not isinstance(columns, int) or not 0 <= attrs.background < columns or not 0 < attrs.overlap <= 1:
            raise ShapeError(f"scores {scores} with {attrs.background} columns of background, overlap {attrs.overlap}")
        return tuple(TensorType("float32", shape) for shape in ((1, rows, 4), (1, rows), (1, rows), (1,)))

    @staticmethod
    def compute(attrs: Attrs, boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, ...]:
        class_scores = scores[:, attrs.background:]
        detections: list[tuple[float, int, int]] = []  # score, box, class
        if attrs.per_class:
            for column in range(class_scores.shape[1]):
                for box in _suppress(attrs, boxes, class_scores[:, column], min(attrs.per_class, attrs.count)):
                    detections.append((class_scores[box, column], box, column))
            detections = sorted(detections, key=lambda detection: -detection[0])[:attrs.count]
            count = len(detections)
        else:
            best = np.where(np.isnan(class_scores), -np.inf, class_scores).max(1)
            chosen = _suppress(attrs, boxes, best, attrs.count)
            count = len(chosen)
            for box in chosen:
                order = np.argsort(-np.where(np.isnan(class_scores[box]), -np.inf, class_scores[box]), kind="stable")
                detections += [(class_scores[box, order[rank]], box, int(order[rank])) if rank < len(order)
                               else (0.0, -1, 0) for rank in range(attrs.classes)]  # box -1: there are fewer classes
        rows = attrs.count * attrs.classes
        results = np.zeros((1, rows, 4), np.float32), np.zeros((1, rows), np.float32), np.zeros((1, rows), np.float32)
        for row, (score, box, column) in enumerate(detections):
            if box >= 0:
                results[0][0, row], results[1][0, row], results[2][0, row] = boxes[box], column, score
        return *results, np.array([count], np.float32)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


@decomposes("megcc::Detections")
def import_detections(node: OnnxNode) -> tuple[str, ...]:
    """Imports Detections of the domain megcc, with the operands and results of `Detections`, and suppression for each
    class separately. Attributes: `count`: D, by default 100; `least`: 0.25; `overlap`: 0.5."""
    if len(node.inputs) != 2 or any(node.type_of(name).dtype != "float32" for name in node.inputs):
        raise ShapeError("requires boxes and scores of float32")
    count = node.attr("count", 100)
    return node.emit("detections", node.inputs, count=count, classes=1, per_class=count, background=0,
                     least=float(node.attr("least", 0.25)), overlap=float(node.attr("overlap", 0.5)))


def _suppress(attrs: Attrs, boxes: np.ndarray, scores: np.ndarray, count: int) -> list[int]:
    """Returns the indices of up to `count` boxes that remain after suppression, the best first."""
    candidates = scores >= np.float32(attrs.least)
    chosen: list[int] = []
    while len(chosen) < count and candidates.any():
        best = int(np.argmax(np.where(candidates, scores, -np.inf)))
        # If all candidates have the score -inf, argmax may find another box.
        best = best if candidates[best] else int(np.flatnonzero(candidates)[0])
        chosen.append(best)
        candidates[best] = False
        candidates &= ~(_iou(boxes[best], boxes) > np.float32(attrs.overlap))
    return chosen


def _iou(one: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Returns the intersection over union (IoU) of a box [4] with others [B,4], float32 [B]; 0 if one has no area."""
    def areas(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        products: np.ndarray = (upper[..., 0] - lower[..., 0]) * (upper[..., 1] - lower[..., 1])
        return products

    with np.errstate(all="ignore"):
        area, other_areas = areas(one[:2], one[2:]), areas(boxes[:, :2], boxes[:, 2:])
        sides = np.maximum(np.minimum(one[2:], boxes[:, 2:]) - np.maximum(one[:2], boxes[:, :2]), np.float32(0))
        intersection = sides[:, 0] * sides[:, 1]
        have_area = (area > 0) & (other_areas > 0)
        return np.where(have_area, intersection / (area + other_areas - intersection), np.float32(0))


def _case(boxes: int, columns: int, count: int, classes: int = 1, per_class: int = 0, background: int = 1,
          least: float = 0.1, overlap: float = 0.3) -> Case:
    random = np.random.default_rng(boxes + columns)
    corners = random.uniform(0, 8, (boxes, 2))
    scores = random.integers(0, 30, (boxes, columns)) / 30  # many are equal
    return Case((f32(boxes, 4), f32(boxes, columns)),
                {"count": count, "classes": classes, "per_class": per_class, "background": background, "least": least,
                 "overlap": overlap}, (),
                {0: np.concatenate([corners, corners + random.uniform(0, 4, (boxes, 2))], 1), 1: scores})


Detections.cases = (
    _case(40, 5, 10), _case(30, 4, 40, background=0, least=0.0), _case(25, 6, 7, classes=3),
    _case(20, 3, 5, classes=4, background=0), _case(50, 4, 12, per_class=5),
    _case(33, 7, 60, per_class=100, overlap=0.9), _case(1, 2, 3), _case(9, 3, 4, least=2.0),
)
