# SPDX-License-Identifier: Apache-2.0
"""Boxes of text from the map of a network for text detection by differentiable binarization (DB). It is an operator of
our own ONNX domain "megcc", which programs use (tools/program/text_lines.py)."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register

#: The largest side of a map and of a picture.
MAX_SIDE = 1 << 14
#: The largest number of boxes.
MAX_BOXES = 1 << 12
#: The largest ratio; PaddleOCR uses 1.5 to 3.
MAX_RATIO = 100.0
#: Text whose rectangle has a shorter side is left out, in pixels of the map; and what its grown rectangle (map) and its
#: box (picture) must have at least. PaddleOCR: min_size, min_size + 2, and sides of the box, as integers, above 3.
_MIN_SIDE, _MIN_GROWN_SIDE, _MIN_BOX_SIDE = 3, 5, 4
#: Boxes whose top left corners differ by fewer pixels in height are in one line of text.
_LINE_HEIGHT = 10

_Point = tuple[float, float]


class _Rectangle(NamedTuple):
    """The corners of a rectangle, as from `_clockwise`, and its shorter and its longer side."""

    corners: list[_Point]
    short: float
    long: float


class _Box(NamedTuple):
    """The corners of a box in the picture, and its score."""

    corners: list[_Point]
    score: float


@register
class DbBoxes(Operator):
    """Rectangles around text. H, W: height and width of the map. K: capacity.

    Operand: probabilities of text float32 [H,W]. Results: corners float32 [K,4,2], x and y of top left, top right,
    bottom right and bottom left, whole pixels of the picture; scores float32 [K], the mean probability in each
    rectangle; their number int64 [1]. Rows after the last box are 0. Boxes are in the order in which one reads: by
    their top left corners, from top to bottom, and in a line from left to right.

    Attributes: `threshold`: the probability above which a pixel is text; `dilated`: text grows by a pixel to the right
    and down; `least`: the lowest score; `ratio`: a rectangle grows on all sides by area * ratio / circumference;
    `most`: K; `height`, `width`: those of the picture. If there are more than K boxes, those are given that begin first
    in the map.

    Source: Liao et al., "Real-time Scene Text Detection with Differentiable Binarization" (2019), section 3.4, with
    PaddleOCR's rectangles; holes in text are no text. A rectangle is that of the smallest area, which has a side on an
    edge of the convex hull (Freeman, Shapira, 1975).
    """

    kind = "db_boxes"
    operands = ("probabilities",)

    @staticmethod
    def infer(attrs: Attrs, probabilities: TensorType) -> tuple[TensorType, ...]:
        if probabilities.rank != 2 or not all(isinstance(side, int) and 1 <= side <= MAX_SIDE
                                              for side in probabilities.shape):
            raise ShapeError(f"a map of probabilities is float32 [height, width] with sides up to {MAX_SIDE}, not "
                             f"{probabilities}")
        if not 1 <= attrs.most <= MAX_BOXES or not all(1 <= side <= MAX_SIDE for side in (attrs.height, attrs.width)):
            raise ShapeError(f"up to {MAX_BOXES} boxes of a picture with sides up to {MAX_SIDE} are supported")
        if not (0 <= attrs.ratio <= MAX_RATIO and isfinite(attrs.threshold) and isfinite(attrs.least)):
            raise ShapeError(f"a ratio from 0 to {MAX_RATIO:g}, a finite threshold and a finite lowest score "
                             "are supported")
        return (TensorType("float32", (attrs.most, 4, 2)), TensorType("float32", (attrs.most,)),
                TensorType("int64", (1,)))

    @staticmethod
    def compute(attrs: Attrs, probabilities: np.ndarray) -> tuple[np.ndarray, ...]:
        found: list[_Box] = []
        for component in _components(_mask(probabilities, attrs)):
            if len(found) == attrs.most:
                break
            rectangle = _rectangle(_hull(component), margin=0)
            if rectangle is None or rectangle.short < _MIN_SIDE:
                continue
            score = _score(probabilities, rectangle.corners)
            if not score >= attrs.least:  # NaN is left out
                continue
            area, circumference = rectangle.short * rectangle.long, 2 * (rectangle.short + rectangle.long)
            # The corners are truncated to whole pixels, as PaddleOCR does before it grows a polygon.
            grown = _rectangle([(int(x), int(y)) for x, y in rectangle.corners],
                               margin=area * attrs.ratio / circumference)
            if grown is None or grown.short < _MIN_GROWN_SIDE:
                continue
            box = _in_picture(grown.corners, probabilities.shape, attrs)
            if min(_distance(box[0], box[1]), _distance(box[0], box[3])) >= _MIN_BOX_SIDE:
                found.append(_Box(box, score))
        boxes, scores = np.zeros((attrs.most, 4, 2), np.float32), np.zeros(attrs.most, np.float32)
        for row, (corners, score) in enumerate(_in_order(found)):
            boxes[row], scores[row] = corners, score
        return boxes, scores, np.array([len(found)])

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def _mask(probabilities: np.ndarray, attrs: Attrs) -> np.ndarray:
    """Returns which pixels are text, bool [H,W]; attribute `dilated` adds the pixels to the right of text and below."""
    mask: np.ndarray = probabilities > np.float32(attrs.threshold)
    if attrs.dilated:
        mask = mask | np.pad(mask[:-1], ((1, 0), (0, 0)))
        mask = mask | np.pad(mask[:, :-1], ((0, 0), (1, 0)))
    return mask


def _components(mask: np.ndarray) -> Iterator[dict[int, tuple[int, int]]]:
    """Yields each component of pixels that touch, also at corners: row -> its first and last column. They come in the
    order of their first pixels."""
    remaining = mask.copy()
    for start in np.flatnonzero(mask):
        row, column = divmod(int(start), mask.shape[1])
        if not remaining[row, column]:
            continue
        remaining[row, column] = False
        pixels = [(row, column)]
        ends: dict[int, tuple[int, int]] = {}
        while pixels:
            y, x = pixels.pop()
            low, high = ends.get(y, (x, x))
            ends[y] = min(low, x), max(high, x)
            for v in range(max(y - 1, 0), min(y + 2, mask.shape[0])):
                for u in range(max(x - 1, 0), min(x + 2, mask.shape[1])):
                    if remaining[v, u]:
                        remaining[v, u] = False
                        pixels.append((v, u))
        yield ends


def _hull(ends: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the corners of the convex hull, x and y. Source: Andrew's monotone chain (1979), from top to bottom."""
    def chain(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
        corners: list[tuple[int, int]] = []
        for x, y in points:
            while len(corners) > 1 and (corners[-1][0] - corners[-2][0]) * (y - corners[-2][1]) <= \
                    (corners[-1][1] - corners[-2][1]) * (x - corners[-2][0]):
                corners.pop()
            corners.append((x, y))
        return corners[:-1]

    points = [(x, y) for y in sorted(ends) for x in dict.fromkeys(ends[y])]
    return points if len(points) < 2 else chain(points) + chain(points[::-1])


def _rectangle(points: list[tuple[int, int]], margin: float) -> _Rectangle | None:
    """Returns the rectangle of the smallest area around the polygon, with a margin; None if all points are equal.

    One of its sides is on an edge of the polygon, (dx, dy). The points in coordinates along the edge and across it,
    times the length of the edge, give the rectangle for this edge.
    """
    best = inf
    found: _Rectangle | None = None
    for index, (x, y) in enumerate(points):
        dx, dy = points[(index + 1) % len(points)][0] - x, points[(index + 1) % len(points)][1] - y
        square = float(dx * dx + dy * dy)
        if not square:
            continue
        along = [px * dx + py * dy for px, py in points]
        across = [py * dx - px * dy for px, py in points]
        length = sqrt(square)
        sides = [float(max(values) - min(values)) / length + 2 * margin for values in (along, across)]
        if sides[0] * sides[1] < best:
            best = sides[0] * sides[1]
            a, b = ([min(values) - margin * length, max(values) + margin * length] for values in (along, across))
            corners = [((u * dx - v * dy) / square, (u * dy + v * dx) / square)
                       for u, v in ((a[0], b[0]), (a[1], b[0]), (a[1], b[1]), (a[0], b[1]))]
            found = _Rectangle(_clockwise(corners), min(sides), max(sides))
    return found


def _clockwise(points: list[_Point]) -> list[_Point]:
    """Returns four corners: of the two that are further left the upper and, at the end, the lower one, and in between
    the same of the other two."""
    points = sorted(points, key=lambda point: point[0])
    (first, last), (second, third) = (
        (pair[0], pair[1]) if pair[1][1] >= pair[0][1] else (pair[1], pair[0]) for pair in (points[:2], points[2:]))
    return [first, second, third, last]


def _score(probabilities: np.ndarray, corners: list[_Point]) -> float:
    """Returns the mean of the pixels that the polygon of the corners, in whole pixels, covers, with those of its edges
    as Bresenham draws them."""
    points = [(floor(x), floor(y)) for x, y in corners]
    height, width = probabilities.shape
    total, count = 0.0, 0
    for y in range(max(min(point[1] for point in points), 0), min(max(point[1] for point in points), height - 1) + 1):
        low, high = inf, -inf  # the first and the last column of the polygon in row y
        for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
            if not min(ay, by) <= y <= max(ay, by):
                continue
            if ay == by:
                ends: tuple[float, ...] = ax, bx
            elif abs(bx - ax) <= abs(by - ay):  # a steep edge has one pixel in a row, a flat one several
                ends = (floor(ax + (y - ay) * (bx - ax) / (by - ay) + 0.5),)
            else:
                ends = tuple(min(max(ax + (y + half - ay) * (bx - ax) / (by - ay), min(ax, bx)), max(ax, bx))
                             for half in (-0.5, 0.5))
            low, high = min(low, ceil(min(ends))), max(high, floor(max(ends)))
        for x in range(max(int(low), 0), min(int(high), width - 1) + 1):
            total, count = total + float(probabilities[y, x]), count + 1
    return total / count if count else 0.0


def _in_picture(corners: list[_Point], shape: tuple[int, ...], attrs: Attrs) -> list[_Point]:
    """Returns the corners in the picture, in whole pixels of it."""
    scaled = [(floor(x / shape[1] * attrs.width + 0.5), floor(y / shape[0] * attrs.height + 0.5)) for x, y in corners]
    inside = [(float(min(max(x, 0), attrs.width - 1)), float(min(max(y, 0), attrs.height - 1))) for x, y in scaled]
    return _clockwise(inside)


def _distance(one: _Point, other: _Point) -> float:
    """Returns the distance of two points."""
    return sqrt((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2)


def _in_order(found: list[_Box]) -> list[_Box]:
    """Returns boxes in the order in which one reads: sorted by the height of their top left corners, then each is moved
    before those of its line that are further right, as PaddleOCR's sorted_boxes does."""
    found = sorted(found, key=lambda box: (box.corners[0][1], box.corners[0][0]))
    for index in range(len(found) - 1):
        for row in range(index, -1, -1):
            (x, y), (later_x, later_y) = found[row].corners[0], found[row + 1].corners[0]
            if abs(later_y - y) >= _LINE_HEIGHT or later_x >= x:
                break
            found[row], found[row + 1] = found[row + 1], found[row]
    return found


@decomposes("megcc::DbBoxes")
def import_db_boxes(node: OnnxNode) -> tuple[str, ...]:
    """Imports DbBoxes of the domain megcc, with the operand and results of `DbBoxes`. Attributes: `most`: K, by default
    100; `threshold`: 0.3; `dilated`: 1; `least`: 0.5; `ratio`: 1.6; `height` and `width`: by default the map's."""
    if len(node.inputs) != 1 or node.type_of(node.inputs[0]).dtype != "float32":
        raise ShapeError("requires one operand, a map of float32")
    shape = node.type_of(node.inputs[0]).shape
    sides = {name: node.attr(name, side) for name, side in zip(("height", "width"), shape[-2:], strict=True)}
    return node.emit("db_boxes", node.inputs, threshold=float(node.attr("threshold", 0.3)),
                     least=float(node.attr("least", 0.5)), ratio=float(node.attr("ratio", 1.6)),
                     dilated=node.attr("dilated", 1), most=node.attr("most", 100), **sides)


def _case(seed: int, rows: int, columns: int, most: int = 40, hostile: bool = False, lines: int = 12,
          **attrs: float) -> Case:
    """Returns a case. lines: the number of rectangles of any direction that have values of text. hostile: the map has
    NaN and infinities."""
    random = np.random.default_rng(seed)
    scores = random.uniform(0, 0.28, (rows, columns))
    down, across = np.mgrid[:rows, :columns]
    for _ in range(lines):
        x, y, angle = random.uniform(0, columns), random.uniform(0, rows), random.choice([0, 0, 0.1, -0.6, 1.5])
        u = (across - x) * np.cos(angle) + (down - y) * np.sin(angle)
        v = (down - y) * np.cos(angle) - (across - x) * np.sin(angle)
        inside = (np.abs(u) < random.uniform(2, 3 + columns / 4)) & (np.abs(v) < random.uniform(0.5, 1 + rows / 12))
        scores[inside] = random.uniform(0.4, 1) * random.uniform(0.8, 1, inside.sum())
    if hostile:
        scores[random.random(scores.shape) < 0.05] = np.nan
        scores[random.random(scores.shape) < 0.02] = np.inf
    settings = {"threshold": 0.3, "least": 0.5, "ratio": 1.6, "dilated": 1, "most": most, "height": rows,
                "width": columns}
    return Case((f32(rows, columns),), {**settings, **attrs}, (), {0: scores.astype(np.float32)})


DbBoxes.cases = (
    _case(1, 60, 90), _case(2, 80, 64, most=3, dilated=0, width=200), _case(3, 40, 120, hostile=True, least=0.0),
    _case(4, 1, 1), _case(5, 70, 70, height=35, width=30, ratio=3.0), _case(6, 50, 50, lines=0, threshold=-1.0),
    _case(7, 33, 1, threshold=0.1), _case(8, 64, 64, threshold=0.24, least=0.1),
    _case(8, 64, 64, most=2, threshold=0.24, least=0.1),  # as many boxes as there may be
)
