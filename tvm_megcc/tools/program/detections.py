# SPDX-License-Identifier: Apache-2.0
"""Steps after an object detector: decoding its outputs to boxes, non-maximum suppression, coordinates of the image
before a letterbox, and the alignment of a face by five points. Each becomes a network of ONNX operators.

Boxes are float32[count, 4], left, top, right and bottom in pixels; those of `ssd` are fractions of the image. Scores
are float32[count, classes].
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from ...errors import MegccError
from .functions import Function
from .images import letterboxed
from .nodes import FLOAT, INT64, Nodes
from .settings import Settings
from .steps import ValueType

#: The largest side of an image in pixels, and the largest stride.
_MAX_SIDE = 1 << 15
#: The largest number of boxes of a detector, and of scores that non-maximum suppression reads.
_MAX_BOXES = 1 << 20
#: The largest number of boxes that non-maximum suppression keeps, and the default.
_MAX_KEPT, _DEFAULT_KEPT = 4096, 100
#: The most rows or columns of a map of anchors.
_MAX_MAP_SIDE = 4096
#: The most numbers in a row of points.
_MAX_COORDINATES = 64
#: Both eyes, nose and both corners of the mouth, [x, y] in pixels, in the aligned face of 112 by 112 pixels that
#: ArcFace was trained on (Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", 2019).
FACE = np.array([[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]])


def _rows(given: Mapping[str, ValueType], name: str, columns: int) -> int:
    """Returns the number of rows of an input that has so many columns.

    Raises:
        MegccError: if its last extent is another, or if it has more than `_MAX_BOXES` rows.
    """
    shape = given[name].shape
    if not shape or shape[-1] != columns or prod(shape) // columns > _MAX_BOXES:
        raise MegccError(f"its input '{name}' is float32[count,{columns}], not {given[name]}")
    return prod(shape) // columns


def _cells(settings: Settings, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Returns column and row of each cell of the grids of all strides, [count, 2], and its stride, [count, 1].

    Raises:
        MegccError: if the grids have another number of cells than `count`.
    """
    height, width = settings.sides("size", _MAX_SIDE)
    strides = settings.integers("strides", _MAX_SIDE, (8, 16, 32))
    positions = [np.stack(np.meshgrid(np.arange(width // stride), np.arange(height // stride)), -1).reshape(-1, 2)
              for stride in strides]
    if sum(map(len, positions)) != count:
        raise MegccError(f"'size' {height}, {width} has {sum(map(len, positions))} cells of 'strides' "
                         f"{', '.join(map(str, strides))}, and there are {count} results")
    lengths = np.repeat(np.array(strides, np.float32), [len(points) for points in positions])
    return np.concatenate(positions).astype(np.float32), lengths[:, None]


def _corners(graph: Nodes, centres: str, sizes: str, output: str) -> None:
    """Adds boxes, left, top, right and bottom, from their centres and sizes, each [count, 2]."""
    half = graph.add("Mul", [sizes, 0.5])
    graph.add("Concat", [graph.add("Sub", [centres, half]), graph.add("Add", [centres, half])], output, axis=1)


def _columns(graph: Nodes, value: str, begin: int, end: int) -> str:
    """Returns columns `begin` to `end`, without the latter."""
    return graph.add("Slice", [value, [begin], [end], [1]])


def _boxes(count: int) -> ValueType:
    return ValueType("float32", (count, 4))


def _yolox(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Decodes rows of x, y, width, height, objectness and the scores of classes: x and y are offsets to the cell's
    corner, width and height logarithms, all in strides. A score is class * objectness.

    Source: Ge et al., "YOLOX: Exceeding YOLO Series in 2021".
    """
    columns = given["results"].shape[-1] if given["results"].shape else 0
    if columns < 6:
        raise MegccError(f"its input 'results' is float32[count,5 + classes], not {given['results']}")
    count = _rows(given, "results", columns)
    cells, strides = _cells(settings, count)
    rows = graph.add("Reshape", ["results", [count, columns]])
    centres = graph.add("Mul", [graph.add("Add", [_columns(graph, rows, 0, 2), cells]), strides])
    _corners(graph, centres, graph.add("Mul", [graph.add("Exp", [_columns(graph, rows, 2, 4)]), strides]), "out_boxes")
    graph.add("Mul", [_columns(graph, rows, 5, columns), _columns(graph, rows, 4, 5)], "out_scores")
    return {"boxes": _boxes(count), "scores": ValueType("float32", (count, columns - 5))}


def _yolo(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Decodes rows of centre, size, objectness and scores, as YOLOv5 to YOLOv7 have them, or columns of centre, size
    and scores, as YOLOv8 has them. A score is class * objectness, if there is one."""
    by_columns = settings.one_of("layout", ("rows", "columns"), "rows") == "columns"
    shape = given["results"].shape
    has_objectness = settings.flag("objectness", not by_columns)
    first = 5 if has_objectness else 4  # the index of the first class
    if len(shape) < 2 or prod(shape[:-2]) != 1 or min(shape[-2:]) < 1 or shape[-2 if by_columns else -1] <= first:
        raise MegccError(f"its input 'results' has {'columns' if by_columns else 'rows'} of more than {first} numbers, "
                         f"and is {given['results']}")
    rows = graph.add("Reshape", ["results", list(shape[-2:])])
    if by_columns:
        rows = graph.add("Transpose", [rows], perm=[1, 0])
    count, columns = (shape[-1], shape[-2]) if by_columns else shape[-2:]
    _corners(graph, _columns(graph, rows, 0, 2), _columns(graph, rows, 2, 4), "out_boxes")
    scores = _columns(graph, rows, first, columns)
    graph.add("Mul", [scores, _columns(graph, rows, 4, 5) if has_objectness else 1.0], "out_scores")
    return {"boxes": _boxes(count), "scores": ValueType("float32", (count, columns - first))}


def _ssd(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Decodes offsets to anchors, each times its element of `variances`: of the centre in sizes of the anchor, and
    the logarithm of the ratio of sizes.

    Source: Liu et al., "SSD: Single Shot MultiBox Detector", section 2.2; `variances` are those of its code.
    """
    count = _rows(given, "offsets", 4)
    maps, anchors = settings.table("maps", 2), settings.tables("anchors", 2)
    if len(maps) != len(anchors) or any(side != int(side) or not 1 <= side <= _MAX_MAP_SIDE
                                        for sides in maps for side in sides):
        raise MegccError("'maps' has [rows, columns] of each map, and 'anchors' a list of [width, height] for each")
    priors = sum(int(sides[0]) * int(sides[1]) * len(shapes) for sides, shapes in zip(maps, anchors, strict=True))
    if priors != count:
        raise MegccError(f"'maps' and 'anchors' have {priors} boxes, and there are {count} results")
    centres, sizes = [], []
    for (rows, columns), shapes in zip(maps, anchors, strict=True):
        points = np.stack(np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows), -1)
        centres.append(np.repeat(points.reshape(-1, 2), len(shapes), 0))
        sizes.append(np.tile(np.array(shapes), (int(rows * columns), 1)))
    centre, size = (np.concatenate(parts).astype(np.float32) for parts in (centres, sizes))
    variances = np.array(settings.numbers("variances", 4, (0.1, 0.1, 0.2, 0.2)), np.float32)
    offsets = graph.add("Reshape", ["offsets", [count, 4]])
    if settings.one_of("order", ("xy", "yx"), "xy") == "yx":
        offsets = graph.add("Gather", [offsets, [1, 0, 3, 2]], axis=1)
    moved = graph.add("Mul", [_columns(graph, offsets, 0, 2), size * variances[:2]])
    grown = graph.add("Exp", [graph.add("Mul", [_columns(graph, offsets, 2, 4), variances[2:]])])
    _corners(graph, graph.add("Add", [moved, centre]), graph.add("Mul", [grown, size]), "out_boxes")
    return {"boxes": _boxes(count)}


def _yunet(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Decodes faces with five points each, [count, 10], x and y of each point in turn. Boxes and points are as those of
    YOLOX. A score is sqrt(class * objectness), as in OpenCV's FaceDetectorYN.

    Source: Wu et al., "YuNet: A Tiny Millisecond-level Face Detector".
    """
    count = _rows(given, "boxes", 4)
    for name, columns in (("classes", 1), ("objects", 1), ("points", 10)):
        if _rows(given, name, columns) != count:
            raise MegccError(f"its inputs 'boxes' and '{name}' have different counts")
    cells, strides = _cells(settings, count)
    rows = graph.add("Reshape", ["boxes", [count, 4]])
    centres = graph.add("Mul", [graph.add("Add", [_columns(graph, rows, 0, 2), cells]), strides])
    _corners(graph, centres, graph.add("Mul", [graph.add("Exp", [_columns(graph, rows, 2, 4)]), strides]), "out_boxes")
    both = [graph.add("Clip", [graph.add("Reshape", [name, [count, 1]]), np.float32(0), np.float32(1)])
            for name in ("classes", "objects")]
    graph.add("Sqrt", [graph.add("Mul", both)], "out_scores")
    points = graph.add("Add", [graph.add("Reshape", ["points", [count, 10]]), np.tile(cells, 5)])
    graph.add("Mul", [points, strides], "out_points")
    return {"boxes": _boxes(count), "scores": ValueType("float32", (count, 1)),
            "points": ValueType("float32", (count, 10))}


def _nms(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Non-maximum suppression of each class by itself: boxes by descending score, without those whose intersection
    over union with a kept box is more than `overlap`. Rows after `count` have score 0, class -1 and index -1."""
    count = _rows(given, "boxes", 4)
    shape = given["scores"].shape
    classes = shape[-1] if shape and prod(shape) != count else 1
    if prod(shape) != count * classes or count * classes > _MAX_BOXES:
        raise MegccError(f"its input 'scores' is float32[{count},classes], not {given['scores']}")
    most = settings.integer("most", 1, min(count * classes, _MAX_KEPT), min(count * classes, _DEFAULT_KEPT))
    overlap, least = settings.number("overlap", 0.5), settings.number("least", 0.25)
    if not 0 < overlap <= 1 or not 0 < least:
        raise MegccError("'overlap' is above 0 and at most 1, 'least' positive")
    boxes, scores = graph.add("Reshape", ["boxes", [count, 4]]), graph.add("Reshape", ["scores", [count, classes]])
    # The boxes, classes and scores that are kept, and how many they are: all float32.
    best, classes_of_best, values, number = graph.several(
        "Detections", [boxes, scores], ["best", "columns", "values", "number"], domain="megcc", count=most,
        least=least, overlap=overlap)
    found = graph.add("Less", [np.arange(most, dtype=np.float32), number])
    none = np.array(-1)  # the class and index of rows after the last box
    graph.add("Reshape", [best, [most, 4]], "out_boxes")
    graph.add("Reshape", [values, [most]], "out_scores")
    graph.add("Cast", [number], "out_count", to=INT64)
    column = graph.add("Reshape", [graph.add("Cast", [classes_of_best], to=INT64), [most]])
    graph.add("Where", [found, column, none], "out_classes")
    # The operator returns no indices: the index is the first row that has this box and this score.
    equal = graph.add("Equal", [graph.add("Reshape", [best, [most, 1, 4]]),
                                graph.add("Reshape", [boxes, [1, count, 4]])])
    same_box = graph.add("ReduceMin", [graph.add("Cast", [equal], to=FLOAT), [2]], keepdims=0)
    class_scores = graph.add("Gather", [graph.add("Transpose", [scores], perm=[1, 0]), column], axis=0)
    equal = graph.add("Equal", [class_scores, graph.add("Reshape", [values, [most, 1]])])
    same_score = graph.add("Cast", [equal], to=FLOAT)
    row = graph.add("ArgMax", [graph.add("Mul", [same_box, same_score])], axis=1, keepdims=0)
    graph.add("Where", [found, row, none], "out_indices")
    return {"boxes": _boxes(most), "scores": ValueType("float32", (most,)),
            "classes": ValueType("int64", (most,)), "indices": ValueType("int64", (most,)),
            "count": ValueType("int64", (1,))}


def _unletterbox(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Converts points in a letterbox, rows of x and y, to points of the image before it, clipped to that image."""
    shape = given["places"].shape
    if not shape or shape[-1] % 2 or not 2 <= shape[-1] <= _MAX_COORDINATES:
        raise MegccError(f"its input 'places' has pairs of x and y, and is {given['places']}")
    count = _rows(given, "places", shape[-1])
    (rows, columns), (height, width) = settings.sides("size", _MAX_SIDE), settings.sides("picture", _MAX_SIDE)
    x, y, inner_width, inner_height = letterboxed(rows, columns, height, width, settings)
    scale = np.tile(np.array([width / inner_width, height / inner_height], np.float32), shape[-1] // 2)
    moved = graph.add("Sub", [graph.add("Reshape", ["places", [count, shape[-1]]]),
                              np.tile(np.array([x, y], np.float32), shape[-1] // 2)])
    limits = np.tile(np.array([width, height], np.float32), shape[-1] // 2)
    graph.add("Min", [graph.add("Max", [graph.add("Mul", [moved, scale]), 0.0]), limits], "out_places")
    return {"places": ValueType("float32", (count, shape[-1]))}


def _five_points(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Returns the matrix of `warp_affine` that aligns a face, float32[6], from the aligned face to the image: the
    inverse of the similarity transform that brings the five points nearest to `FACE`, scaled to `size`, by least
    squares.

    Source: Umeyama, "Least-squares estimation of transformation parameters between two point patterns", 1991.
    """
    if prod(given["points"].shape) != 10:
        raise MegccError(f"its input 'points' has five pairs of x and y, and is {given['points']}")
    height, width = settings.sides("size", _MAX_SIDE)
    side = min(height, width)
    # `FACE` is in an image of 112 by 112 pixels; here it is in the largest square in the middle of the result.
    target = FACE * side / 112 + np.array([width - side, height - side]) / 2
    centre = target.mean(0)
    centred = (target - centre).astype(np.float32)
    points = graph.add("Reshape", ["points", [5, 2]])
    mean = graph.add("ReduceMean", [points, [0]], keepdims=1)
    own = graph.add("Sub", [points, mean])
    # With points (x, y) and targets (u, v), both without their means, `pairs` are the sums of x u + y v and x v - y u.
    # The transform from points to targets is their ratio to the sum of x^2 + y^2; its inverse divides by their squares.
    pairs = [graph.add("ReduceSum", [graph.add("Mul", [own, other]), [0, 1]], keepdims=1)
             for other in (centred, np.stack([centred[:, 1], -centred[:, 0]], 1))]
    square = graph.add("ReduceSum", [graph.add("Mul", [own, own]), [0, 1]], keepdims=1)
    squares = graph.add("Add", [graph.add("Mul", [pairs[0], pairs[0]]), graph.add("Mul", [pairs[1], pairs[1]])])
    scale = graph.add("Div", [square, graph.add("Max", [squares, 1e-20])])
    cosine, sine = (graph.add("Mul", [component, scale]) for component in pairs)
    # The scaled rotation [[cosine, sine], [-sine, cosine]], and the translation that brings mean to mean.
    rotation = graph.add("Concat", [graph.add("Concat", [cosine, sine], axis=1),
                                    graph.add("Concat", [graph.add("Neg", [sine]), cosine], axis=1)], axis=0)
    translation = graph.add("Sub", [graph.add("Reshape", [mean, [2, 1]]),
                                    graph.add("MatMul", [rotation, centre.astype(np.float32)[:, None]])])
    graph.add("Reshape", [graph.add("Concat", [rotation, translation], axis=1), [6]], "out_matrix")
    return {"matrix": ValueType("float32", (6,))}


FUNCTIONS: dict[str, Function] = {
    "yolox": Function(keys=("size", "strides"), inputs=("results",), outputs=("boxes", "scores"), make=_yolox),
    "yolo": Function(keys=("layout", "objectness"), inputs=("results",), outputs=("boxes", "scores"), make=_yolo),
    "ssd": Function(keys=("maps", "anchors", "variances", "order"), inputs=("offsets",), outputs=("boxes",), make=_ssd),
    "yunet": Function(keys=("size", "strides"), inputs=("classes", "objects", "boxes", "points"),
                      outputs=("boxes", "scores", "points"), make=_yunet),
    "nms": Function(keys=("most", "overlap", "least"), inputs=("boxes", "scores"),
                    outputs=("boxes", "scores", "classes", "indices", "count"), make=_nms),
    "unletterbox": Function(keys=("size", "picture", "align"), inputs=("places",), outputs=("places",),
                            make=_unletterbox),
    "five_points": Function(keys=("size",), inputs=("points",), outputs=("matrix",), make=_five_points)}
