# SPDX-License-Identifier: Apache-2.0
"""Imports TFLite_Detection_PostProcess, the custom operator at the end of detectors: decodes boxes from anchors, and
selects the best by non-maximum suppression."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir.dims import number
from ...ir.expr import Expr, X, arg, call
from ...ops.elementwise import emit_broadcast
from .file import flexible
from .moves import sliced
from .node import Node, Results, Unsupported, imports
from .quantized.importers import imports_quantised, quantization_of, zero
from .value import plain

#: The default number of detections for each class.
_DEFAULT_PER_CLASS = 100


@imports("CUSTOM TFLite_Detection_PostProcess")
@imports_quantised("CUSTOM TFLite_Detection_PostProcess")
def detections(node: Node) -> Results:
    """Operands: box encodings relative to the anchors, [1,B,≥4]; scores, [1,B,C]; anchors, [B,4]. Encodings and anchors
    are y, x, height, width. They are float32, or uint8 with scales."""
    options = flexible(node.operator.custom)

    def option(name: str, default: float | None = None) -> float:
        value = options.get(name, default)
        if not isinstance(value, (int, float)) or value != value or abs(value) > 2**31 - 1:
            raise ShapeError(f"has no number {name} among its options")
        return value

    encodings, scores, anchors = (_floats(node, index) for index in range(3))
    (one, count, coded), (batch, boxes, columns) = (node.type_of(name).shape for name in (encodings, scores))
    if one != 1 or batch != 1:
        raise Unsupported(f"{one} images in one run are not supported; use a batch of 1")
    classes = int(option("num_classes"))
    if boxes != count or not isinstance(columns, int) or columns - classes not in (0, 1) or number(coded) < 4:
        raise ShapeError(f"boxes {node.type(0)} with scores {node.type(1)} of {classes} classes")
    decoded_boxes = _boxes(node, encodings, anchors, [option(f"{side}_scale") for side in "yxhw"])
    scores = node.emit("reshape", scores, shape=(boxes, columns))
    # 0 stands for TFLite's fast kind: suppression of boxes by their best class, not in each class.
    per_class = int(option("detections_per_class", _DEFAULT_PER_CLASS)) if options.get("use_regular_nms", False) else 0
    return node.onnx_node().emit(
        "detections", (decoded_boxes, scores), count=int(option("max_detections")),
        classes=int(option("max_classes_per_detection")), per_class=per_class, background=columns - classes,
        least=float(option("nms_score_threshold")), overlap=float(option("nms_iou_threshold")))


def _floats(node: Node, index: int) -> str:
    """Returns an operand as float32, dequantized if it is uint8."""
    name, tensor = node.plain(index), node.tensors[index]
    if node.type(index).dtype == "float32":
        return name
    given = quantization_of(tensor, ("uint8",))
    expr = call("real", X - zero(given)) * float(given.scale[0])
    return emit_broadcast(node.onnx_node(), "elementwise", (name,), expr=expr, dtype="float32")[0]


def _boxes(node: Node, encodings: str, anchors: str, scales: list[float]) -> str:
    """Returns both corners of each box, float32 [B,4] as y1, x1, y2, x2, computed in float64 as TFLite does.

        centre = encoding / scale * anchor size + anchor centre
        size = exp(encoding / scale) * anchor size

    Args:
        encodings: the encodings, [1,B,≥4].
        scales: of y, x, height and width.
    """
    _, boxes, _ = node.type_of(encodings).shape
    flat = node.emit("reshape", encodings, shape=(boxes, node.type_of(encodings).shape[2]))

    def pair(name: str, first: int) -> str:
        """Returns columns `first` and `first` + 1 as float64."""
        tensor = node.as_value(name, plain(2))
        return node.emit("cast", sliced(node, tensor, (0, first), (boxes, first + 2), (1, 1)).name, dtype="float64")

    # float32 first, as TFLite stores them.
    centre_scales, size_scales = (node.emit("cast", node.constant(pair_of_scales, "float32"), dtype="float64")
                                  for pair_of_scales in (scales[:2], scales[2:]))

    def computed(expr: Expr, *names: str) -> str:
        return node.emit("cast", emit_broadcast(node.onnx_node(), "elementwise", names, expr=expr)[0], dtype="float32")

    sides = pair(anchors, 2)
    centre = computed(X / arg(1) * arg(2) + arg(3), pair(flat, 0), centre_scales, sides, pair(anchors, 0))
    half_size = computed(0.5 * call("exp", X / arg(1)) * arg(2), pair(flat, 2), size_scales, sides)
    return node.emit("concat", node.emit("sub", centre, half_size), node.emit("add", centre, half_size), axis=1)
