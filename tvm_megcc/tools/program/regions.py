# SPDX-License-Identifier: Apache-2.0
"""Steps between a detector with key points and a network of landmarks, as MediaPipe has them for hands, poses and
faces: boxes and key points of the detector, the one box of the likeliest object, the turned square around it, and
landmarks of that square in the picture.

Source: the graphs of MediaPipe (Lugaresi et al., "MediaPipe: A Framework for Building Perception Pipelines").
"""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, pi, prod, sin

import numpy as np

from ...errors import MegccError
from .functions import Function
from .nodes import FLOAT, Nodes
from .settings import Settings
from .steps import ValueType

_MAX_SIDE = 1 << 15
#: The limit of the absolute value of a score before the sigmoid, as MediaPipe clips it.
_LOGIT = 100.0
#: Sums and lengths are raised to it before something is divided by them.
_LEAST = 1e-9
_MAX_POINTS = 4096


def _columns(graph: Nodes, value: str, begin: int, end: int) -> str:
    return graph.add("Slice", [value, [begin], [end], [1]])


def _anchors(side: int, strides: tuple[int, ...]) -> np.ndarray:
    """Returns the centres of anchors in pixels, float32 [anchors, 2]: two for each stride of the list and each cell."""
    found = []
    for stride in dict.fromkeys(strides):
        cells = -(-side // stride)
        points = np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1).reshape(-1, 2) + 0.5
        found.append(np.repeat(points * (side / cells), 2 * strides.count(stride), 0))
    return np.concatenate(found).astype(np.float32)


def _mediapipe(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Decodes rows of x, y, width, height and key points, all in pixels: centres and points from the anchor on. A score
    is the sigmoid."""
    shape = given["results"].shape
    columns = shape[-1] if shape else 0
    if columns < 6 or columns % 2:
        raise MegccError(f"its input 'results' is float32[count,4 + 2 points], not {given['results']}")
    size, count = settings.sides("size", _MAX_SIDE), prod(shape[:-1])
    anchors = _anchors(size[0], settings.integers("strides", _MAX_SIDE))
    if size[0] != size[1] or len(anchors) != count or given["scores"].elements != count:
        raise MegccError(f"'size' is a square, whose 'strides' have {len(anchors)} anchors, two for each stride and "
                         f"cell; there are {count} results and {given['scores'].elements} scores")
    rows = graph.add("Reshape", ["results", [count, columns]])
    centres = graph.add("Add", [_columns(graph, rows, 0, 2), anchors])
    half = graph.add("Mul", [_columns(graph, rows, 2, 4), 0.5])
    graph.add("Concat", [graph.add("Sub", [centres, half]), graph.add("Add", [centres, half])], "out_boxes", axis=1)
    graph.add("Add", [_columns(graph, rows, 4, columns), np.tile(anchors, (columns - 4) // 2)], "out_points")
    clipped = graph.add("Clip", ["scores", np.float32(-_LOGIT), np.float32(_LOGIT)])
    graph.add("Reshape", [graph.add("Sigmoid", [clipped]), [count, 1]], "out_scores")
    return {"boxes": ValueType("float32", (count, 4)), "points": ValueType("float32", (count, columns - 4)),
            "scores": ValueType("float32", (count, 1))}


def _merge(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The likeliest box, as the mean of all boxes that overlap it, weighted by their scores; its key points likewise.
    `count` is 0 if its score is below `least`."""
    shape = given["boxes"].shape
    count = prod(shape[:-1])
    points = given["points"].shape[-1] if given["points"].shape else 0
    if shape[-1:] != (4,) or given["scores"].elements != count or not points \
            or given["points"].elements != count * points:
        raise MegccError("its inputs are 'boxes', float32[count,4], 'scores' and 'points' of as many, not "
                         f"{given['boxes']}, {given['scores']} and {given['points']}")
    overlap, least = settings.number("overlap", 0.3), settings.number("least", 0.5)
    boxes, rows = graph.add("Reshape", ["boxes", [count, 4]]), graph.add("Reshape", ["points", [count, points]])
    scores = graph.add("Reshape", ["scores", [count, 1]])
    best = graph.add("ArgMax", [scores], axis=0, keepdims=0)
    own, score = graph.add("Gather", [boxes, best], axis=0), graph.add("Gather", [scores, best], axis=0)
    low = graph.add("Max", [_columns(graph, boxes, 0, 2), _columns(graph, own, 0, 2)])
    high = graph.add("Min", [_columns(graph, boxes, 2, 4), _columns(graph, own, 2, 4)])
    shared = _area(graph, low, high)
    areas = [_area(graph, _columns(graph, each, 0, 2), _columns(graph, each, 2, 4)) for each in (boxes, own)]
    union = graph.add("Max", [graph.add("Sub", [graph.add("Add", areas), shared]), _LEAST])
    kept = graph.add("And", [graph.add("Greater", [graph.add("Div", [shared, union]), overlap]),
                             graph.add("GreaterOrEqual", [scores, least])])
    weights = graph.add("Mul", [scores, graph.add("Cast", [kept], to=FLOAT)])
    total = graph.add("Max", [graph.add("ReduceSum", [weights, [0]], keepdims=1), _LEAST])
    shares = graph.add("Transpose", [graph.add("Div", [weights, total])], perm=[1, 0])
    graph.add("Reshape", [graph.add("MatMul", [shares, boxes]), [4]], "out_box")
    graph.add("Reshape", [graph.add("MatMul", [shares, rows]), [points // 2, 2]], "out_points")
    graph.add("Reshape", [score, [1]], "out_score")
    is_found = graph.add("GreaterOrEqual", [score, least])
    graph.add("Reshape", [graph.add("Cast", [is_found], to=7), [1]], "out_count")
    return {"box": ValueType("float32", (4,)), "points": ValueType("float32", (points // 2, 2)),
            "score": ValueType("float32", (1,)), "count": ValueType("int64", (1,))}


def _area(graph: Nodes, low: str, high: str) -> str:
    sides = graph.add("Max", [graph.add("Sub", [high, low]), 0.0])
    return graph.add("Mul", [_columns(graph, sides, 0, 1), _columns(graph, sides, 1, 2)])


def _region(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Returns the matrix of `warp_affine` that cuts a turned square out: in it, the line from one key point to another
    has the direction `degrees`, from the right counterclockwise.

    The square is around the box, or without one around the first point, with the other one on its edge. `shift` moves
    it by fractions of the box, along its own axes; then it grows by `scale`.
    """
    if given["points"].elements % 2 or given["points"].elements < 4:
        raise MegccError(f"its input 'points' has pairs of x and y, and is {given['points']}")
    count = given["points"].elements // 2
    first, second = (settings.integer(key, 0, count - 1) for key in ("first", "second"))
    height, width = settings.sides("size", _MAX_SIDE)
    angle, scale = settings.number("degrees", 90.0) * pi / 180, settings.number("scale", 1.0)
    shift = settings.numbers("shift", 2, (0.0, 0.0))
    points = graph.add("Reshape", ["points", [count, 2]])
    begin, end = (graph.add("Slice", [points, [at], [at + 1], [0]]) for at in (first, second))
    line = graph.add("Sub", [end, begin])
    length = graph.add("Sqrt", [graph.add("ReduceSum", [graph.add("Mul", [line, line]), [1]], keepdims=1)])
    unit = graph.add("Div", [line, graph.add("Max", [length, _LEAST])])
    # The angle of the rotation is `degrees` minus that of the line, whose y points down.
    turn = graph.add("MatMul", [unit, np.array([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]], np.float32)])
    cosine, sine = _columns(graph, turn, 0, 1), _columns(graph, turn, 1, 2)
    if "box" in given:
        if given["box"].elements != 4:
            raise MegccError(f"its input 'box' is float32[4], not {given['box']}")
        box = graph.add("Reshape", ["box", [1, 4]])
        low, high = _columns(graph, box, 0, 2), _columns(graph, box, 2, 4)
        centre, sides = graph.add("Mul", [graph.add("Add", [low, high]), 0.5]), graph.add("Sub", [high, low])
    else:
        centre = begin
        sides = graph.add("Mul", [graph.add("Concat", [length, length], axis=1), 2.0])
    rotation = graph.add("Concat", [graph.add("Concat", [cosine, graph.add("Neg", [sine])], axis=1),
                                    graph.add("Concat", [sine, cosine], axis=1)], axis=0)
    moved = graph.add("Transpose", [graph.add("Mul", [sides, np.array([shift], np.float32)])], perm=[1, 0])
    middle = graph.add("Add", [graph.add("Transpose", [centre], perm=[1, 0]), graph.add("MatMul", [rotation, moved])])
    side = graph.add("Mul", [graph.add("ReduceMax", [sides, [1]], keepdims=1), scale])
    linear = graph.add("Mul", [rotation, graph.add("Mul", [side, np.array([[1 / width, 1 / height]], np.float32)])])
    corner = graph.add("MatMul", [linear, np.array([[width / 2], [height / 2]], np.float32)])
    matrix = graph.add("Concat", [linear, graph.add("Sub", [middle, corner])], axis=1)
    graph.add("Reshape", [matrix, [6]], "out_matrix")
    return {"matrix": ValueType("float32", (6,))}


def _transform(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Moves points, rows of x, y and other columns, by a matrix of six numbers. z, the third of `columns`, grows by the
    matrix's scale."""
    columns = settings.integer("columns", 2, 64, 2)
    if given["points"].elements % columns or given["points"].elements > _MAX_POINTS * columns:
        raise MegccError(f"its input 'points' has rows of {columns} numbers, and is {given['points']}")
    if ("matrix" in given) == ("matrix" in settings) or ("matrix" in given and given["matrix"].elements != 6):
        raise MegccError("it has 'matrix', a value or a list of 6 numbers")
    count = given["points"].elements // columns
    matrix = graph.add("Reshape", ["matrix", [2, 3]]) if "matrix" in given else graph.add(
        "Identity", [np.array(settings.numbers("matrix", 6), np.float32).reshape(2, 3)])
    rows = graph.add("Reshape", ["points", [count, columns]])
    linear, offset = _columns(graph, matrix, 0, 2), _columns(graph, matrix, 2, 3)
    moved = graph.add("Add", [graph.add("MatMul", [_columns(graph, rows, 0, 2), graph.add(
        "Transpose", [linear], perm=[1, 0])]), graph.add("Transpose", [offset], perm=[1, 0])])
    parts = [moved]
    if columns > 2:
        first = graph.add("Slice", [linear, [0], [1], [1]])
        scale = graph.add("Sqrt", [graph.add("ReduceSum", [graph.add("Mul", [first, first]), [0]], keepdims=1)])
        parts.append(graph.add("Mul", [_columns(graph, rows, 2, 3), scale]))
    if columns > 3:
        parts.append(_columns(graph, rows, 3, columns))
    graph.add("Concat", parts, "out_points", axis=1)
    return {"points": ValueType("float32", (count, columns))}


FUNCTIONS: dict[str, Function] = {
    "mediapipe": Function(keys=("size", "strides"), inputs=("results", "scores"),
                          outputs=("boxes", "points", "scores"), make=_mediapipe),
    "merge": Function(keys=("overlap", "least"), inputs=("boxes", "scores", "points"),
                      outputs=("box", "points", "score", "count"), make=_merge),
    "region": Function(keys=("size", "first", "second", "degrees", "scale", "shift"), inputs=("box", "points"),
                       outputs=("matrix",), make=_region, optional=("box",)),
    "transform": Function(keys=("matrix", "columns"), inputs=("points", "matrix"), outputs=("points",),
                          make=_transform, optional=("matrix",))}
