# SPDX-License-Identifier: Apache-2.0
"""Steps between a detector of text and a network that reads lines: boxes of text, and the matrices that cut each of
them out upright. Each is a network of ONNX operators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import MegccError
from ...ops.vision.db_boxes import MAX_BOXES, MAX_SIDE
from .functions import Function
from .nodes import FLOAT, INT64, Nodes
from .settings import Settings
from .steps import ValueType


def _db_boxes(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Rectangles around text; the operator is ops/vision/db_boxes.py."""
    shape = given["map"].shape
    if len(shape) < 2 or given["map"].elements != shape[-2] * shape[-1] or max(shape) > MAX_SIDE:
        raise MegccError(f"its input 'map' is float32[height,width] with sides up to {MAX_SIDE}, not {given['map']}")
    height, width = settings.sides("picture", MAX_SIDE) if "picture" in settings else shape[-2:]
    most = settings.integer("most", 1, MAX_BOXES, 100)
    results = ["out_points", "out_scores", "out_count"]
    graph.several("DbBoxes", [graph.add("Reshape", ["map", list(shape[-2:])])], results, domain="megcc", most=most,
                  height=height, width=width, threshold=settings.number("threshold", 0.3),
                  least=settings.number("least", 0.5), ratio=settings.number("ratio", 1.6),
                  dilated=int(settings.flag("dilated", True)))
    return {"points": ValueType("float32", (most, 4, 2)), "scores": ValueType("float32", (most,)),
            "count": ValueType("int64", (1,))}


def _text_lines(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The matrices of `warp_perspective` that cut quadrilaterals out as lines of one height.

    Corners are upper left, upper right, lower right and lower left. Boxes that are at least 1.5 times as high as wide
    are turned to the left, as PaddleOCR does (get_rotate_crop_image). Sides are whole pixels, as if the box were cut
    out and then resized. `rotated` are the matrices for the same lines upside down.

    Source: Heckbert, "Fundamentals of Texture Mapping and Image Warping" (1989), section 2.2.3: from a square to a
    quadrilateral.
    """
    shape = given["points"].shape
    if len(shape) < 2 or shape[-2:] != (4, 2) or given["points"].elements > 8 * MAX_BOXES:
        raise MegccError(f"its input 'points' is float32[count,4,2], not {given['points']}")
    count = given["points"].elements // 8
    height, width = settings.sides("size", MAX_SIDE)
    rows = graph.add("Reshape", ["points", [count, 8]])
    upper_side, left_side = _longer(graph, rows, 0), _longer(graph, rows, 1)
    is_high = graph.add("GreaterOrEqual", [left_side, graph.add("Mul", [upper_side, 1.5])])
    # Turned to the left, the upper right corner becomes the upper left one, and so on.
    turned_rows = graph.add("Gather", [rows, [2, 3, 4, 5, 6, 7, 0, 1]], axis=1)
    rows = graph.add("Where", [is_high, turned_rows, rows])
    box_widths = graph.add("Where", [is_high, left_side, upper_side])
    box_heights = graph.add("Where", [is_high, upper_side, left_side])
    scaled = graph.add("Ceil", [graph.add("Div", [graph.add("Mul", [box_widths, float(height)]), box_heights])])
    widths = graph.add("Min", [scaled, float(width)])
    square = _square_to_quadrilateral(graph, rows)
    heights = graph.add("Add", [graph.add("Mul", [box_heights, 0.0]), float(height)])  # [count, 1], like `widths`
    for name, is_upright in (("out_matrices", True), ("out_rotated", False)):
        _scaled(graph, square, (box_widths, widths), (box_heights, heights), is_upright, name)
    inside = graph.add("Less", [np.arange(width, dtype=np.float32)[None], widths])
    graph.add("Cast", [inside], "out_masks", to=FLOAT)
    graph.add("Cast", [graph.add("Reshape", [widths, [count]])], "out_widths", to=INT64)
    return {"matrices": ValueType("float32", (count, 9)), "rotated": ValueType("float32", (count, 9)),
            "masks": ValueType("float32", (count, width)), "widths": ValueType("int64", (count,))}


def _column(graph: Nodes, rows: str, index: int) -> str:
    return graph.add("Slice", [rows, [index], [index + 1], [1]])


def _longer(graph: Nodes, rows: str, direction: int) -> str:
    """Returns the length of the longer one of two opposite sides in whole pixels, at least 1, [count, 1]. direction: 0
    for the upper and the lower side, 1 for the others."""
    lengths = []
    for one, other in (((0, 1), (2, 3)), ((0, 3), (1, 2)))[direction]:
        ends = [graph.add("Slice", [rows, [2 * corner], [2 * corner + 2], [1]]) for corner in (one, other)]
        lengths.append(graph.add("ReduceL2", [graph.add("Sub", ends), [1]], keepdims=1))
    return graph.add("Max", [graph.add("Floor", [graph.add("Max", lengths)]), 1.0])


def _square_to_quadrilateral(graph: Nodes, rows: str) -> list[str]:
    """Returns a to h of the matrix [[a, b, c], [d, e, f], [g, h, 1]] that moves the corners (0, 0), (1, 0), (1, 1) and
    (0, 1) to those of the rows, each [count, 1]. The names are those of Heckbert's formulas (`_text_lines`)."""
    x, y = ([_column(graph, rows, 2 * corner + axis) for corner in range(4)] for axis in (0, 1))

    def cross(one: tuple[str, str], other: tuple[str, str]) -> str:
        """Returns the determinant of two vectors."""
        return graph.add("Sub", [graph.add("Mul", [one[0], other[1]]), graph.add("Mul", [one[1], other[0]])])

    def minus(one: int, other: int) -> tuple[str, str]:
        """Returns corner `one` minus corner `other`."""
        return graph.add("Sub", [x[one], x[other]]), graph.add("Sub", [y[one], y[other]])

    right, lower = minus(1, 2), minus(3, 2)
    skew = tuple(graph.add("Sub", [one, other]) for one, other in zip(minus(0, 1), minus(3, 2), strict=True))
    area = cross(right, lower)
    # Rows after the last box are zeros: 1 instead of their area, so that nothing is divided by 0.
    area = graph.add("Where", [graph.add("Equal", [area, 0.0]), 1.0, area])
    g = graph.add("Div", [cross((skew[0], skew[1]), lower), area])
    h = graph.add("Div", [cross(right, (skew[0], skew[1])), area])

    def axis(corners: list[str]) -> list[str]:
        """Returns a, b and c for the coordinates x of the corners, or d, e and f for y: a = x1 - x0 + g x1,
        b = x3 - x0 + h x3, c = x0."""
        return [graph.add("Add", [graph.add("Sub", [corners[end], corners[0]]),
                                  graph.add("Mul", [slope, corners[end]])])
                for end, slope in ((1, g), (3, h))] + [corners[0]]

    return [*axis(x), *axis(y), g, h]


def _scaled(graph: Nodes, square: list[str], widths: tuple[str, str], heights: tuple[str, str], is_upright: bool,
            output: str) -> None:
    """Adds the matrices from pixels of lines to pixels of the picture.

    square: the matrix from the unit square to the box. widths, heights: those of the box and of its line. is_upright:
    false for lines that are upside down.
    """
    scales, offsets = [], []
    for source, result in (widths, heights):
        # u, the coordinate in the unit square, is ((pixel + 1/2) * source / result - 1/2) / source; for a line that is
        # upside down, 1 - (pixel + 1/2) / result - 1/2 / source. So u = scale * pixel + offset.
        scales.append(graph.add("Div", [1.0 if is_upright else -1.0, result]))
        first = graph.add("Add", [graph.add("Mul", [scales[-1], 0.5]), 0.0 if is_upright else 1.0])
        offsets.append(graph.add("Sub", [first, graph.add("Div", [0.5, source])]))
    ones = graph.add("Add", [graph.add("Mul", [square[6], 0.0]), 1.0])  # [count, 1], the last element of each matrix
    parts = []
    for row in (square[0:3], square[3:6], [square[6], square[7], ones]):
        moved = graph.add("Add", [graph.add("Mul", [row[0], offsets[0]]), graph.add("Mul", [row[1], offsets[1]])])
        parts += [graph.add("Mul", [row[0], scales[0]]), graph.add("Mul", [row[1], scales[1]]),
                  graph.add("Add", [moved, row[2]])]
    graph.add("Concat", parts, output, axis=1)


FUNCTIONS = {
    "db_boxes": Function(keys=("picture", "most", "threshold", "least", "ratio", "dilated"), inputs=("map",),
                         outputs=("points", "scores", "count"), make=_db_boxes),
    "text_lines": Function(keys=("size",), inputs=("points",), outputs=("matrices", "rotated", "masks", "widths"),
                           make=_text_lines)}
