# SPDX-License-Identifier: Apache-2.0
"""Steps between a detector of text and a network that reads lines: boxes of text, and the matrices that cut each of
them out upright. Each is a network of ONNX operators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import MegccError
from ...ops.vision.db_boxes import MAX_BOXES, MAX_SIDE
from .functions import Function
from .nodes import Nodes
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

    Boxes that are at least 1.5 times as high as wide are turned to the left, as PaddleOCR does. A line is what a box of
    whole pixels, resized, would be.

    Source: Heckbert, "Fundamentals of Texture Mapping and Image Warping" (1989), section 2.2.3: from a square to a
    quadrilateral.
    """
    shape = given["points"].shape
    if len(shape) < 2 or shape[-2:] != (4, 2) or given["points"].elements > 8 * MAX_BOXES:
        raise MegccError(f"its input 'points' is float32[count,4,2], not {given['points']}")
    count = given["points"].elements // 8
    height, width = settings.sides("size", MAX_SIDE)
    rows = graph.add("Reshape", ["points", [count, 8]])
    across, down = _longer(graph, rows, 0), _longer(graph, rows, 1)
    is_high = graph.add("GreaterOrEqual", [down, graph.add("Mul", [across, 1.5])])
    turned_rows = graph.add("Gather", [rows, [2, 3, 4, 5, 6, 7, 0, 1]], axis=1)
    rows = graph.add("Where", [is_high, turned_rows, rows])
    columns = graph.add("Where", [is_high, down, across])
    lines = graph.add("Where", [is_high, across, down])
    scaled = graph.add("Ceil", [graph.add("Div", [graph.add("Mul", [columns, float(height)]), lines])])
    widths = graph.add("Min", [scaled, float(width)])
    square = _square_to_quadrilateral(graph, rows)
    heights = graph.add("Add", [graph.add("Mul", [lines, 0.0]), float(height)])
    for name, sign in (("out_matrices", 1.0), ("out_rotated", -1.0)):
        _scaled(graph, square, (columns, widths), (lines, heights), sign, name)
    inside = graph.add("Less", [np.arange(width, dtype=np.float32)[None], widths])
    graph.add("Cast", [inside], "out_masks", to=1)
    graph.add("Cast", [graph.add("Reshape", [widths, [count]])], "out_widths", to=7)
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
    (0, 1) to those of the rows, each [count, 1]."""
    x, y = ([_column(graph, rows, 2 * corner + axis) for corner in range(4)] for axis in (0, 1))

    def cross(one: tuple[str, str], other: tuple[str, str]) -> str:
        return graph.add("Sub", [graph.add("Mul", [one[0], other[1]]), graph.add("Mul", [one[1], other[0]])])

    def minus(one: int, other: int) -> tuple[str, str]:
        return graph.add("Sub", [x[one], x[other]]), graph.add("Sub", [y[one], y[other]])

    right, lower = minus(1, 2), minus(3, 2)
    skew = tuple(graph.add("Sub", [one, other]) for one, other in zip(minus(0, 1), minus(3, 2), strict=True))
    area = cross(right, lower)
    area = graph.add("Where", [graph.add("Equal", [area, 0.0]), 1.0, area])  # of rows after the last box
    g = graph.add("Div", [cross((skew[0], skew[1]), lower), area])
    h = graph.add("Div", [cross(right, (skew[0], skew[1])), area])

    def axis(of: list[str]) -> list[str]:
        return [graph.add("Add", [graph.add("Sub", [of[end], of[0]]), graph.add("Mul", [slope, of[end]])])
                for end, slope in ((1, g), (3, h))] + [of[0]]

    return [*axis(x), *axis(y), g, h]


def _scaled(graph: Nodes, square: list[str], columns: tuple[str, str], lines: tuple[str, str], sign: float,
            output: str) -> None:
    """Adds the matrices from pixels of lines to pixels of the picture. columns, lines: width and height of the box, and
    of its line. sign: -1 for lines that are upside down."""
    scales, offsets = [], []
    for source, result in (columns, lines):
        # u = ((pixel + 1/2) * source / result - 1/2) / source, or from the other end
        scales.append(graph.add("Div", [sign, result]))
        first = graph.add("Add", [graph.add("Mul", [scales[-1], 0.5]), 0.0 if sign > 0 else 1.0])
        offsets.append(graph.add("Sub", [first, graph.add("Div", [0.5, source])]))
    parts = []
    for row in (square[0:3], square[3:6], [square[6], square[7], ""]):
        last = row[2] or graph.add("Add", [graph.add("Mul", [square[6], 0.0]), 1.0])
        moved = graph.add("Add", [graph.add("Mul", [row[0], offsets[0]]), graph.add("Mul", [row[1], offsets[1]])])
        parts += [graph.add("Mul", [row[0], scales[0]]), graph.add("Mul", [row[1], scales[1]]),
                  graph.add("Add", [moved, last])]
    graph.add("Concat", parts, output, axis=1)


#: The functions: their keys, inputs, outputs, and what makes them.
FUNCTIONS = {
    "db_boxes": Function(("picture", "most", "threshold", "least", "ratio", "dilated"), ("map",),
                         ("points", "scores", "count"), _db_boxes),
    "text_lines": Function(("size",), ("points",), ("matrices", "rotated", "masks", "widths"), _text_lines)}
