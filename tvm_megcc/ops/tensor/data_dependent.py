# SPDX-License-Identifier: Apache-2.0
"""Operators with data-dependent extents: ONNX's NonZero, Compress and NonMaxSuppression, and `extent`, which makes an
element of a tensor an extent.

If the model declares the number of elements, a run that finds another number fails. Otherwise the number is an unbacked
symbol, whose value the run computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim, dim_min
from ...ir.graph import EXTENT, Attrs
from ...ir.limits import MAX_BYTES
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from ..rules import axis_of
from .gather import Gather
from .move import emit_slice


def _require_count(count: int, found: int) -> None:
    """Raises ShapeError unless as many elements were found as the model declares."""
    if count != found:
        raise ShapeError(f"found {found} elements where the model states {count}")


@register
class Extent(Operator):
    """Defines the value of an unbacked symbol as an element of the operand, int64 of any static shape. The result is
    the operand, unchanged.

    Attributes: `symbol`; `element`: the index of the element in row-major order; `bound`: the largest value, None for
    no limit; `required`: no extent depends on the symbol, but the run has to check its value. It is the check of a
    branch that was removed because it is impossible for the shapes of the inputs: with bound 0, the run fails if the
    condition chooses that branch.
    """

    kind = EXTENT

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype != "int64" or not x.is_static or attrs.element >= x.size:
            raise ShapeError(f"element {attrs.element} of {x} is no extent")
        return (x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x,)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        return {} if attrs.bound is None else {0: (0, attrs.bound)}

    @staticmethod
    def view_offset(attrs: Attrs, inputs: Types, outputs: Types) -> Dim | None:
        return 0 if inputs[0].layout == outputs[0].layout else None


@register
class NonZero(Operator):
    """ONNX's NonZero: the indices of the nonzero elements of x in row-major order, int64 [rank of x, count].

    Operand: x of any dtype and rank ≥ 1. Attribute `count`: the number of these elements.
    """

    kind = "nonzero"
    cases = (Case((((3, 5), "bool"),), {"count": 4}, values={0: np.isin(np.arange(15), (0, 3, 9, 14))}),
             Case((f32(2, 3, 4),), {"count": 3}, values={0: np.where(np.isin(np.arange(24), (5, 6, 20)), -0.5, 0.0)}),
             Case((((7,), "int64"),), {"count": 7}, values={0: np.arange(1, 8)}),
             Case((((40,), "uint8"),), {"count": 2}, values={0: np.isin(np.arange(40), (7, 39))}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 1:
            raise ShapeError(f"requires an axis to count along, not {x}")
        return (TensorType("int64", (x.rank, attrs.count)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        result = np.stack(np.nonzero(x)).astype(np.int64)
        _require_count(attrs.count, result.shape[1])
        return (result,)


@register
class CountNonZero(Operator):
    """The number of nonzero elements of x, of any type: int64 []."""

    kind = "count_nonzero"
    cases = (Case((((3, 5), "bool"),)), Case((f32(2, 3, 4),), values={0: np.where(np.arange(24) % 5, 0.0, -0.5)}),
             Case((((70,), "int64"),)), Case((((1,), "uint8"),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType("int64", ()),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.array(np.count_nonzero(x), np.int64),)


def _emit_nonzero(node: OnnxNode, value: str, count: Dim | None) -> str:
    """Emits the indices of the nonzero elements of a value: int64 [rank, count]. count: None if it is
    data-dependent."""
    if count is None:
        count = node.unbacked_extent(node.emit("count_nonzero", (value,))[0], node.type_of(value).size)
    return node.emit("nonzero", (value,), count=count)[0]


@decomposes("NonZero")
def non_zero(node: OnnxNode) -> tuple[str, ...]:
    """Imports NonZero. A string that is not empty counts as nonzero."""
    value, declared = node.inputs[0], node.declared_shape()
    if node.is_string(0):
        (empty,) = emit_broadcast(node, "equal", (value, node.constant(np.array(node.string_index("")))))
        (value,) = node.emit("logical_not", (empty,))
    if not node.type(0).rank:  # a scalar has no axes: the result has the shape [0, 1], or [0, 0] for 0
        count = node.unbacked_extent(node.emit("count_nonzero", (value,))[0], 1)
        return node.emit("expand", (node.constant(np.zeros((0, 1), np.int64)),), shape=(0, count))
    if node.is_constant(value):
        return (node.constant(np.stack(np.nonzero(node.constant_of(value))).astype(np.int64)),)
    return (_emit_nonzero(node, value, declared[1] if declared is not None and len(declared) == 2 else None),)


@decomposes("Compress")
def compress(node: OnnxNode) -> tuple[str, ...]:
    """Imports Compress: the slices along an axis, or the elements of the flattened operand, for which the second
    operand, bool, is true."""
    value, axis, declared = node.inputs[0], node.attr("axis"), node.declared_shape()
    if axis is None:
        (value,) = node.emit("reshape", (value,), shape=(node.type(0).size,))
    axis = 0 if axis is None else axis_of(axis, node.type(0).rank)
    if node.is_const(1):
        indices = node.constant(np.flatnonzero(node.const(1)))
    else:
        condition, extent = node.inputs[1], node.type_of(value).shape[axis]
        if node.type(1).shape != (extent,):
            require_at_most(node.type(1).size, extent, f"a condition {node.type(1)} for an axis of {extent}")
        indices = _emit_nonzero(node, condition, declared[axis] if declared is not None else None)
        (indices,) = node.emit("reshape", (indices,), shape=node.type_of(indices).shape[1:])
    return node.emit(Gather.kind, (value, indices), axis=axis)


@register
class NonMaxSuppression(Operator):
    """ONNX's NonMaxSuppression: batch element, class and index of each box that no better box of its class overlaps.

    Operands: boxes float32 [B, N, 4], two corners each; scores float32 [B, C, N]; max_boxes int64 [1], the largest
    number of boxes of each class; iou_threshold float32 [1], the IoU above which the worse box is dropped;
    score_threshold float32 [1], which the score of a box must exceed. Result: int64 [count, 3], for each batch element
    and class the best box first; of equal scores, the first box is better.

    Attributes: `count`; `counted`: `count` is a capacity, and there is a second result int64 [], the number of boxes,
    which may exceed it.
    """

    kind = "non_max_suppression"
    operands = ("boxes", "scores", "max_boxes", "iou_threshold", "score_threshold")

    @staticmethod
    def infer(attrs: Attrs, boxes: TensorType, scores: TensorType, *limits: TensorType) -> tuple[TensorType, ...]:
        why = f"boxes {boxes} with scores {scores} and limits {', '.join(map(str, limits))}"
        if boxes.rank != 3 or scores.rank != 3 or boxes.shape[2] != 4 or {boxes.dtype, scores.dtype} != {"float32"} \
                or limits != (TensorType("int64", (1,)), *(TensorType("float32", (1,)),) * 2):
            raise ShapeError(why)
        require_equal(boxes.shape[0], scores.shape[0], why)
        require_equal(boxes.shape[1], scores.shape[2], why)
        found = TensorType("int64", (attrs.count, 3))
        return (found, TensorType("int64", ())) if attrs.counted else (found,)

    @staticmethod
    def compute(attrs: Attrs, boxes: np.ndarray, scores: np.ndarray, *limits: np.ndarray) -> tuple[np.ndarray, ...]:
        selected = [(b, c, i) for b in range(len(scores)) for c in range(scores.shape[1])
                    for i in _select_boxes(boxes[b], scores[b, c], *(limit[0] for limit in limits))]
        rows = np.array(selected, np.int64).reshape(-1, 3)
        if not attrs.counted:
            _require_count(attrs.count, len(rows))
            return (rows,)
        padded = np.zeros((attrs.count, 3), np.int64)
        padded[:len(rows)] = rows[:attrs.count]
        return padded, np.array(len(rows), np.int64)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def _select_boxes(boxes: np.ndarray, scores: np.ndarray, max_boxes: int, iou_threshold: float,
                  score_threshold: float) -> list[int]:
    """Returns the indices of the boxes [N, 4] that remain after suppression, for the scores [N] of a class, the best
    first."""
    candidates = scores > np.float32(score_threshold)
    lower, upper = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    area = (upper - lower).prod(1)
    selected: list[int] = []
    while len(selected) < max_boxes and candidates.any():
        best = int(np.argmax(np.where(candidates, scores, -np.inf)))
        selected.append(best)
        sides = np.minimum(upper, upper[best]) - np.maximum(lower, lower[best])
        intersection = np.where((sides > 0).all(1), sides.prod(1), np.float32(0))
        union = area + area[best] - intersection
        with np.errstate(all="ignore"):
            overlaps = intersection / union > np.float32(iou_threshold)
        # A box without an area overlaps none.
        candidates &= (area <= 0) | (area[best] <= 0) | (union <= 0) | ~overlaps
        candidates[best] = False
    return selected


@decomposes("NonMaxSuppression")
def non_max_suppression(node: OnnxNode) -> tuple[str, ...]:
    """Imports NonMaxSuppression. Operands: boxes; scores; and the optional limits max_output_boxes_per_class,
    iou_threshold and score_threshold, scalars."""
    boxes, declared = node.inputs[0], node.declared_shape()
    if node.attr("center_point_box", 0):
        boxes = _corners_of(node, boxes)
    limits = []
    # max_output_boxes_per_class, iou_threshold, score_threshold; the default of the first selects nothing.
    for index, dtype, default in ((2, "int64", 0), (3, "float32", 0.0), (4, "float32", float("-inf"))):
        limit = cast_to(node, node.inputs[index], dtype)[0] if node.has(index) else number(node, default, dtype)
        limits += node.emit("reshape", (limit,), shape=(1,))
    operands = (boxes, node.inputs[1], *limits)
    if declared is not None and len(declared) == 2:
        return node.emit(NonMaxSuppression.kind, operands, count=declared[0], counted=False)
    (batch, classes, per_class) = node.type(1).shape
    if node.is_const(2):
        max_boxes = int(node.const(2).reshape(-1)[0])
        if max_boxes < MAX_BYTES:  # PyTorch writes 2^63 - 1 for no limit
            per_class = dim_min(per_class, max(max_boxes, 0))
    capacity = node.extent_bound(batch * classes * (per_class if node.has(2) else 0))
    rows, count = node.emit(NonMaxSuppression.kind, operands, count=capacity, counted=True)
    return (emit_slice(node, rows, 0, 0, node.unbacked_extent(count, capacity)),)


def _corners_of(node: OnnxNode, boxes: str) -> str:
    """Converts boxes [B, N, 4] from centre (x, y), width and height to two corners (y, x). A negative width counts as
    0; otherwise its corners would be taken in the other order."""
    x, y, width, height = (emit_slice(node, boxes, 2, i, i + 1) for i in range(4))
    corners = []
    for kind in ("sub", "add"):
        for centre, size in ((y, height), (x, width)):
            half_size = emit_broadcast(node, "mul", (size, number(node, 0.5, "float32")))
            corners += node.emit(kind, (centre, *node.emit("relu", half_size)))
    return node.emit("concat", corners, axis=2)[0]


def _case(batch: int, boxes: int, classes: int, max_boxes: int, iou_threshold: float, score_threshold: float,
          capacity: int | None = None) -> Case:
    random = np.random.default_rng(boxes + classes)
    first = random.uniform(0, 8, (batch, boxes, 2))
    corners = np.concatenate([first, first + random.uniform(-4, 4, (batch, boxes, 2))], 2).astype(np.float32)
    scores = (random.integers(0, 30, (batch, classes, boxes)) / 30).astype(np.float32)  # many are equal
    count = sum(len(_select_boxes(corners[b], scores[b, c], max_boxes, iou_threshold, score_threshold))
                for b in range(batch) for c in range(classes))
    values = {0: corners, 1: scores, 2: np.array([max_boxes]), 3: np.array([iou_threshold]),
              4: np.array([score_threshold])}
    limits = (((1,), "int64"), f32(1), f32(1))
    attrs = {"count": count, "counted": False} if capacity is None else {"count": capacity, "counted": True}
    return Case((f32(*corners.shape), f32(*scores.shape), *limits), attrs, (), values)


NonMaxSuppression.cases = (_case(1, 40, 3, 10, 0.3, 0.1), _case(2, 25, 2, 25, 0.5, float("-inf")),
                           _case(1, 9, 1, 3, 0.0, 0.5), _case(1, 70, 5, 4, 0.7, 0.2),
                           _case(1, 40, 3, 10, 0.3, 0.1, 30), _case(2, 12, 2, 5, 0.3, 0.1, 4))
