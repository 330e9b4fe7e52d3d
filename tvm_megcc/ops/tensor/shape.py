# SPDX-License-Identifier: Apache-2.0
"""Operators on shapes: ONNX's Reshape, Flatten, Squeeze, Unsqueeze and Expand; Shape and Size, whose results are
values; and ConstantOfShape, Range and EyeLike, which make tensors; with TVM's of the same meaning."""

from __future__ import annotations

import math

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim, ceildiv, differ, dim_max, floordiv, product
from ...ir.extent_bounds import limits
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, f32, register
from ..cast import element_type
from ..elementwise import cast_to
from ..memory import same_memory
from ..random.random import import_dropout_training
from ..rules import arange_along, axes_of, broadcast, emit_arange, shape_text
from .runtime_axes import squeeze_at_run_time, unsqueeze_at_run_time
from .runtime_operands import number_of_steps, resolve_expand_shape, resolve_reshape_shape


@register
class Reshape(Operator):
    """The elements of x, of any type, in another shape, in row-major order: ONNX's Reshape, Flatten, Squeeze and
    Unsqueeze. Attribute `shape`: its extents, of which one may be -1 to be inferred."""

    kind = "reshape"
    onnx = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
    relax = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")
    relay = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")
    cases = (Case((f32(2, 3, 4),), {"shape": (4, 6)}), Case((f32(2, 3, 4),), {"shape": (3, -1, 2)}),
             Case((f32(5),), {"shape": (1, 5, 1)}), Case((((2, 6), "int64"),), {"shape": (12,)}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        target = list(attrs.shape)
        known = product(dim for dim in target if dim != -1)
        if target.count(-1) > 1:
            raise ShapeError(f"target shape {shape_text(target)} leaves more than one extent open")
        if -1 in target:
            target[target.index(-1)] = floordiv(x.size, known) if known != 0 else 0
        size = product(target)
        why = f"{shape_text(x.shape)} with {x.size} elements cannot have shape {shape_text(attrs.shape)}"
        if differ(size, x.size):  # for some shapes of the inputs; `require_equal` refuses what no shape fits
            raise ShapeError(why)
        require_equal(size, x.size, why)
        for dim in target:
            require_at_most(0, dim, why)
        return (TensorType(x.dtype, tuple(target)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.reshape(attrs.shape),)

    @staticmethod
    def view_offset(attrs: Attrs, inputs, outputs) -> Dim | None:
        return 0 if same_memory(inputs[0], outputs[0], reshaped=True) else None

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        shape = node.type(0).shape
        if node.op_type in ("Squeeze", "Unsqueeze") and _has_run_time_axes(node):
            return squeeze_at_run_time(node, node.inputs[0], 1) if node.op_type == "Squeeze" else \
                unsqueeze_at_run_time(node, 1)
        target = _TARGETS[node.op_type](node, shape)
        if tuple(target) == shape:
            return node.inputs[:1]
        return node.emit("reshape", node.inputs[:1], shape=tuple(target))


def _has_run_time_axes(node: OnnxNode) -> bool:
    """Returns whether the axes of a Squeeze or Unsqueeze are known only at run time, and the model declares no
    shape."""
    return node.opset >= 13 and node.has(1) and not node.is_known(1) and node.declared_shape() is None


def _reshape_target(node: OnnxNode, shape: tuple[Dim, ...]) -> list[Dim]:
    """Returns the shape of the result of a Reshape of an operand of this shape."""
    if (target := node.declared_if_unknown(1)) is not None:
        return list(target)
    if node.is_known(1):
        target = list(node.dims(1, "shape"))
    else:
        # All elements are resolved, whichever (the argument) are known only at run time.
        target = list(node.resolve_dims(node.inputs[1], limit=product(shape),
                                        resolve=lambda _: resolve_reshape_shape(node)))
    if not node.attr("allowzero", 0):
        if any(dim == 0 and axis >= len(shape) for axis, dim in enumerate(target)):
            raise ShapeError(f"target shape {shape_text(target)} copies an axis that {shape_text(shape)} has not")
        target = [shape[axis] if dim == 0 else dim for axis, dim in enumerate(target)]
    if -1 in target:
        open_axis = target.index(-1)
        rest = product(dim for dim in target if dim != -1)
        are_known = isinstance(rest, int) and isinstance(product(shape), int)
        if rest == 0 or (are_known and product(shape) % rest):
            raise ShapeError(f"{shape_text(shape)} cannot have shape {shape_text(target)}")
        if target.count(-1) == 1:
            target[open_axis] = floordiv(product(shape), rest)
    return target


def _flatten_target(node: OnnxNode, shape: tuple[Dim, ...]) -> list[Dim]:
    """Returns the shape of the result of a Flatten: two axes, those before attribute `axis` and those from it on."""
    axis = node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ShapeError(f"axis {axis} of a tensor with {len(shape)} axes")
    axis = axis + len(shape) if axis < 0 else axis
    return [product(shape[:axis]), product(shape[axis:])]


def axes_operand(node: OnnxNode, since: int) -> tuple[int, ...] | None:
    """Returns the axes of a node, an attribute before operator set `since`, then the constant second operand; None if
    they are absent."""
    if node.opset >= since:
        axes = node.const(1, "axes")
        return None if axes is None else tuple(int(axis) for axis in axes.reshape(-1))
    axes = node.attr("axes")
    return None if axes is None else tuple(axes)


def _squeeze_target(node: OnnxNode, shape: tuple[Dim, ...]) -> list[Dim]:
    """Returns the shape of the result of a Squeeze."""
    if (target := node.declared_if_unknown(1)) is not None:
        return list(target)
    axes = axes_operand(node, 13)
    if axes is None:
        return [dim for dim in shape if dim != 1]
    axes = axes_of(axes, len(shape))
    wrong = [axis for axis in axes if isinstance(shape[axis], int) and shape[axis] != 1]
    if wrong:
        raise ShapeError(f"axis {wrong[0]} of {shape_text(shape)} is not 1 and cannot be squeezed")
    return [dim for axis, dim in enumerate(shape) if axis not in axes]


def _unsqueeze_target(node: OnnxNode, shape: tuple[Dim, ...]) -> list[Dim]:
    """Returns the shape of the result of an Unsqueeze."""
    if (target := node.declared_if_unknown(1)) is not None:
        return list(target)
    axes = axes_operand(node, 13)
    if axes is None:
        raise MegccError("has no axes")
    axes = axes_of(axes, len(shape) + len(axes))
    rest = iter(shape)
    return [1 if axis in axes else next(rest) for axis in range(len(shape) + len(axes))]


_TARGETS = {"Reshape": _reshape_target, "Flatten": _flatten_target, "Squeeze": _squeeze_target,
            "Unsqueeze": _unsqueeze_target}


@decomposes("Identity", "StopGradient")
def identity(node: OnnxNode) -> tuple[str, ...]:
    """Imports Identity and StopGradient, which return their operand."""
    return node.inputs[:1]


@decomposes("Dropout")
def dropout(node: OnnxNode) -> tuple[str, ...]:
    """Imports Dropout, in inference the identity with a mask of true. In training mode, from operator set 12 on, it
    drops elements at random."""
    if node.opset >= 12 and node.has(2):
        if not node.is_const(2) or node.const(2).any():
            return import_dropout_training(node, None if node.is_const(2) else node.inputs[2])[:node.num_outputs]
    elif node.opset < 7 and not node.attr("is_test", 0):
        raise MegccError("is in training mode; export the model for inference")
    if node.num_outputs > 1 and node.type(0).is_static:
        return node.inputs[0], *node.emit("full", (), shape=node.type(0).shape, value=True, dtype="bool")
    return node.inputs[:1]


@register
class Dims(Operator):
    """A tensor whose elements are extents, which may be symbolic. Attributes: `extents`: in row-major order; `shape`;
    `dtype`: int32 or int64."""

    kind = "dims"
    operands = ()
    cases = (Case((), {"extents": (2, 7, 11), "shape": (3,), "dtype": "int64"}),
             Case((), {"extents": (5,), "shape": (), "dtype": "int32"}))

    @staticmethod
    def infer(attrs: Attrs) -> tuple[TensorType, ...]:
        return (TensorType(attrs.dtype, attrs.shape),)

    @staticmethod
    def compute(attrs: Attrs) -> tuple[np.ndarray, ...]:
        return (np.array(attrs.extents, np.dtype(attrs.dtype)).reshape(attrs.shape),)


@register
class Shape(Operator):
    """ONNX's Shape: the extents of axes [start, end) of x, int64 [end - start]. The compiler always folds it.
    Attributes `start`, `end`."""

    kind = "shape"
    onnx = ("Shape",)
    relax = ("relax.shape_of",)
    relay = ("shape_of",)
    cases = (Case((f32(2, 3, 4),), {"start": 0, "end": 3}), Case((f32(2, 3, 4),), {"start": 1, "end": 2}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if not 0 <= min(attrs.start, attrs.end) <= max(attrs.start, attrs.end) <= x.rank:
            raise ShapeError(f"axes {attrs.start} to {attrs.end} of {x}")
        return (TensorType("int64", (max(attrs.end - attrs.start, 0),)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.array(x.shape[attrs.start:attrs.end], np.int64),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        rank = node.type(0).rank
        start, end, _ = slice(node.attr("start", 0), node.attr("end", rank)).indices(rank)
        return {"start": start, "end": end}


@register
class Size(Operator):
    """ONNX's Size: the number of elements of x, int64 []."""

    kind = "size"
    onnx = ("Size",)
    relax = ("relax.size",)
    relay = ("ndarray_size",)
    cases = (Case((f32(2, 3, 4),)),)

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType("int64", ()),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.array(x.size, np.int64),)


@register
class Full(Operator):
    """A tensor whose elements are one value: ONNX's ConstantOfShape, relax.full, zeros and ones. Attributes: `shape`,
    `value`, `dtype`."""

    kind = "full"
    operands = ()
    onnx = ("ConstantOfShape",)
    relax = ("relax.full", "relax.zeros", "relax.ones")
    relay = ("full", "zeros", "ones")
    cases = (Case((), {"shape": (2, 3), "value": 1.5, "dtype": "float32"}),
             Case((), {"shape": (4,), "value": 7, "dtype": "int64"}))

    @staticmethod
    def infer(attrs: Attrs) -> tuple[TensorType, ...]:
        for dim in attrs.shape:
            require_at_most(0, dim, f"shape {shape_text(attrs.shape)} has a negative extent")
        return (TensorType(attrs.dtype, attrs.shape),)

    @staticmethod
    def compute(attrs: Attrs) -> tuple[np.ndarray, ...]:
        return (np.full(attrs.shape, attrs.value, np.dtype(attrs.dtype)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        value = np.asarray(node.attr("value", np.zeros(1, np.float32))).reshape(-1)[:1]
        shape = node.declared_if_unknown(0) or node.dims(0, "shape")
        if all(isinstance(dim, int) for dim in shape):
            dtype = "bool" if value.dtype == np.bool_ else value.dtype.name
            return node.emit("full", (), shape=shape, value=value[0].item(), dtype=dtype)
        scalar = node.constant(value.reshape(()))
        return node.emit("expand", (scalar,), shape=shape)


@register
class Range(Operator):
    """ONNX's Range: start, start + delta, … before limit, [count]. The operands are constants [] of one dtype, which is
    the result's. Attribute `count`: the number of elements."""

    kind = "range"
    operands = ("start", "limit", "delta")
    relax = ("relax.arange",)
    relay = ("arange",)
    cases = (Case((((), "int64"),) * 3, constant=(0, 1, 2), attrs={"count": 4},
                  values={0: np.array(1), 1: np.array(9), 2: np.array(2)}),)

    @staticmethod
    def infer(attrs: Attrs, start: TensorType, limit: TensorType, delta: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(start.dtype, (attrs.count,)),)

    @staticmethod
    def compute(attrs: Attrs, start, limit, delta) -> tuple[np.ndarray, ...]:
        steps = np.arange(attrs.count).astype(start.dtype)
        return ((start.reshape(()) + steps * delta.reshape(())).astype(start.dtype),)


@decomposes("Range")
def import_range(node: OnnxNode) -> tuple[str, ...]:
    """Imports Range. Operands that are known only at run time give the shape that the model declares, or a
    data-dependent number of elements."""
    shape = node.declared_if_unknown(0) or node.declared_if_unknown(1) or node.declared_if_unknown(2)
    if shape is not None and len(shape) == 1:
        dtype = node.type(0).dtype
        start, delta = (node.emit("reshape", (node.inputs[index],), shape=())[0] for index in (0, 2))
        (count,) = shape
        node.require_budget(count)
        steps = node.constant(np.arange(count).astype(np.dtype(dtype)))
        return node.emit("add", (*node.emit("mul", (steps, delta)), start))
    if not all(map(node.is_const, range(3))) and all(map(node.is_known, range(3))):
        return _symbolic_range(node)
    if not all(map(node.is_const, range(3))):
        start, limit, delta = (node.emit("reshape", (name,), shape=())[0] for name in node.inputs)
        count = number_of_steps(node, start, limit, delta, None)
        (steps,) = node.emit("mul", (emit_arange(node, count, node.type(0).dtype), delta))
        return node.emit("add", (steps, start))
    start, limit, delta = (node.const(index, name).reshape(())
                           for index, name in enumerate(("start", "limit", "delta")))
    if delta == 0:
        raise ShapeError("delta is 0")
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return node.emit("range", node.inputs, count=count)


def _symbolic_range(node: OnnxNode) -> tuple[str, ...]:
    """Emits a range whose operands depend on shape symbols, as 0, 1, …, times delta, plus start."""
    start, limit, delta = (node.dims(index)[0] for index in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise MegccError(f"delta is {delta}, which has to be a number other than 0")
    count = ceildiv(limit - start, delta) if delta > 0 else ceildiv(start - limit, -delta)
    lower, _ = limits(count)
    count = count if lower is not None and lower >= 0 else dim_max(count, 0)
    dtype = np.dtype(node.type(0).dtype)
    steps = emit_arange(node, count, dtype.name)
    if delta != 1:
        (steps,) = node.emit("mul", (steps, node.constant(np.array(delta, dtype))))
    if start == 0:
        return (steps,)
    (first,) = node.emit("reshape", node.inputs[:1], shape=())
    return node.emit("add", (steps, first))


@decomposes("EyeLike")
def eye_like(node: OnnxNode) -> tuple[str, ...]:
    """Imports EyeLike: a matrix of the operand's shape with ones on diagonal `k`, zeros elsewhere."""
    type_, k = node.type(0), node.attr("k", 0)
    if type_.rank != 2:
        raise ShapeError(f"needs a matrix, not {type_}")
    dtype = element_type(node.attr("dtype")) if node.attr("dtype") else type_.dtype
    if not type_.is_static:
        rows, columns = (arange_along(node, extent, axis, 2) for axis, extent in enumerate(type_.shape))
        (hit,) = node.emit("equal", (*node.emit("add", (rows, node.constant(np.array(k)))), columns))
        return cast_to(node, hit, dtype)
    node.require_budget(*type_.shape)
    return (node.constant(np.eye(*type_.shape, k=k, dtype=np.dtype(dtype))),)


@register
class Expand(Operator):
    """ONNX's Expand, relax.broadcast_to: x, of any dtype, broadcast as by an elementwise operator with an operand of
    attribute `shape`. So axes of extent 1 in `shape` keep x's extent."""

    kind = "expand"
    onnx = ("Expand",)
    relax = ("relax.broadcast_to",)
    relay = ("broadcast_to",)
    cases = (Case((f32(3, 1),), {"shape": (2, 3, 4)}), Case((f32(1, 5),), {"shape": (4, 1)}),
             Case((((1, 3), "int64"),), {"shape": (2, 3)}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(x.dtype, broadcast(x.shape, attrs.shape)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.broadcast_to(x, np.broadcast_shapes(x.shape, attrs.shape)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        declared = node.declared_if_unknown(1)
        shape = declared or resolve_expand_shape(node)
        if broadcast(node.type(0).shape, shape) == node.type(0).shape and (declared or node.is_known(1)):
            return node.inputs[:1]
        return node.emit("expand", node.inputs[:1], shape=shape)
