# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows and over images: ONNX's MaxPool, AveragePool, LpPool and Global…Pool, and TVM's. A NaN makes
the results of its windows NaN."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.expr import X, arg, maximum
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import onnx_operator
from ..math.reduce import reduce
from .windows import count_window_elements, output_extent, pad_for_windows, symbolic_pads


class _Pool(Operator):
    """The base of pools over two or three spatial axes. Operand: x [N, C, H, W] or [N, C, D, H, W]; the result has its
    dtype, and an extent for each position of the window.

    Attributes: `kernel`, `strides`, `dilations` (h, w or d, h, w); `pads` (all begins, then all ends); `ceil`: whether
    the last window of an axis may extend beyond the end.
    """

    channel_axis = 1

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axes = len(attrs.kernel)
        if x.rank != 2 + axes:
            raise ShapeError(f"windows over {axes} axes require an operand of rank {2 + axes}, not {x}")
        spatial = [output_extent(x.shape[2 + i], attrs.kernel[i], attrs.strides[i], attrs.dilations[i],
                                 attrs.pads[i], attrs.pads[axes + i], bool(attrs.ceil)) for i in range(axes)]
        return (TensorType(x.dtype, (*x.shape[:2], *spatial)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        return emit_pool(node, cls.kind, node.inputs[0], cls.onnx_attrs(node))


def emit_pool(node: OnnxNode, kind: str, value: str, attributes: dict) -> tuple[str, ...]:
    """Emits the pool of an ONNX node over a value. One spatial axis is imported as two with height 1.

    attributes: those of `kind` besides those of all pools.

    Raises:
        ShapeError: for other than 1 to 3 spatial axes.
    """
    x = node.type_of(value)
    if x.rank not in (3, 4, 5):
        raise ShapeError(f"pooling over {x.rank - 2} spatial axes; 1 to 3 are supported")
    kernel = tuple(node.attr("kernel_shape"))
    pads = symbolic_pads(node, kernel)
    if pads and kind == "avg_pool" and not attributes["count_pads"]:
        return _avg_pool_symbolic_pads(node, value, kernel, pads)
    fill: float = 0
    if kind in ("max_pool", "max_pool_indices"):
        fill = int(np.iinfo(x.dtype).min) if np.dtype(x.dtype).kind in "iu" else -np.inf  # bfloat16's kind is V
    value, attrs = pad_for_windows(node, value, kernel, fill)
    attrs.update(attributes)
    results = _emit_pool_of_value(node, kind, value, attrs)
    if pads and kind == "max_pool_indices":
        return results[0], _indices_without_pads(node, results[1], pads, attributes["order"] == "column")
    return results


def _avg_pool_symbolic_pads(node: OnnxNode, value: str, kernel: tuple[int, ...],
                            pads: tuple[Dim, ...]) -> tuple[str, ...]:
    """Emits an average pool whose pads are symbolic and do not count: the sum of a window, divided by the number of
    elements that are inside of x, which is a product of one number for each axis."""
    dtype = node.type_of(value).dtype
    sum_dtype = "float64" if dtype == "float64" else "float32"
    (value,) = cast_to(node, value, sum_dtype)
    total, *_ = _emit_pool_of_value(node, "sum_pool", *pad_for_windows(node, value, kernel, 0))
    counts = [cast_to(node, count, sum_dtype)[0] for count in count_window_elements(node, kernel, pads)]
    expr = X / maximum(functools.reduce(operator.mul, map(arg, range(1, len(counts) + 1))), 1)
    (mean,) = emit_broadcast(node, "elementwise", (total, *counts), expr=expr, dtype=sum_dtype)
    return cast_to(node, mean, dtype)


def _indices_without_pads(node: OnnxNode, indices: str, pads: tuple[Dim, ...], by_columns: bool) -> str:
    """Converts flat indices in the padded operand to flat indices in the operand, int64. by_columns: indices are
    column-major."""
    extents, axes = node.type(0).shape[2:], len(pads) // 2
    order = range(axes) if by_columns else range(axes - 1, -1, -1)  # from the innermost axis on
    rest, coordinates = indices, []
    for axis in order:
        padded_extent = node.extent(extents[axis] + pads[axis] + pads[axes + axis])
        padded_coordinate = onnx_operator(node, "Mod", rest, padded_extent)
        coordinates.append(onnx_operator(node, "Sub", padded_coordinate, node.extent(pads[axis])))
        rest = onnx_operator(node, "Div", rest, padded_extent)
    flat = rest
    for axis, coordinate in zip(reversed(order), reversed(coordinates), strict=True):
        flat = onnx_operator(node, "Add", onnx_operator(node, "Mul", flat, node.extent(extents[axis])), coordinate)
    return flat


def _emit_pool_of_value(node: OnnxNode, kind: str, value: str, attrs: dict) -> tuple[str, ...]:
    """Emits the pool `kind` of a value with one, two or three spatial axes; one axis is pooled as two with height 1.

    attrs: the attributes for two or three axes.
    """
    x = node.type_of(value)
    if x.rank > 3:
        return node.emit(kind, (value,), **attrs)
    (tall,) = node.emit("reshape", (value,), shape=(*x.shape[:2], 1, x.shape[2]))
    results = []
    for result in node.emit(kind, (tall,), **attrs):
        shape = node.type_of(result).shape
        results += node.emit("reshape", (result,), shape=(*shape[:2], shape[3]))
    return tuple(results)


def window_taps(attrs: Attrs, x: np.ndarray, fill: float) -> Iterator[np.ndarray]:
    """Yields for each tap of the window the elements of x that it reads, as an array of the result's shape.

    fill: the value of pads.
    """
    count = len(attrs.kernel)
    axes = list(zip(x.shape[2:], attrs.kernel, attrs.strides, attrs.dilations, attrs.pads[:count], attrs.pads[count:],
                    strict=True))
    outputs = [output_extent(*axis, bool(attrs.ceil)) for axis in axes]
    padded_extents = [max((output - 1) * stride + (kernel - 1) * dilation + 1, extent + before)
                      for output, (extent, kernel, stride, dilation, before, _) in zip(outputs, axes, strict=True)]
    padded = np.full((*x.shape[:2], *padded_extents), fill, x.dtype)
    padded[(..., *(slice(before, before + extent) for extent, _, _, _, before, _ in axes))] = x
    for tap in np.ndindex(*attrs.kernel):
        yield padded[(..., *(slice(t * dilation, t * dilation + (output - 1) * stride + 1, stride)
                             for t, output, (_, _, stride, dilation, _, _) in zip(tap, outputs, axes, strict=True)))]


@register
class MaxPool(_Pool):
    """The largest element of each window, without pads: ONNX's MaxPool, relax.nn.max_pool2d, Relay's nn.max_pool2d."""

    kind = "max_pool"
    onnx = ("MaxPool",)
    relax = ("relax.nn.max_pool2d",)
    relay = ("nn.max_pool2d",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.maximum.reduce(list(window_taps(attrs, x, _lowest_value(x)))),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        if node.num_outputs == 1 or not node.outputs[1]:
            return super().from_onnx(node)
        order = "column" if node.attr("storage_order", 0) else "row"
        return emit_pool(node, "max_pool_indices", node.inputs[0], {"order": order})


def _lowest_value(x: np.ndarray) -> float:
    """Returns the lowest value of the array's dtype."""
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


@register
class MaxPoolIndices(_Pool):
    """The largest element of each window and its flat index in the operand, int64: ONNX's MaxPool with two outputs. If
    elements are equal, the first one counts.

    Attribute `order`: "row" for row-major indices, "column" for indices that are column-major within an image.
    """

    kind = "max_pool_indices"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        (largest,) = _Pool.infer(attrs, x)
        return largest, TensorType("int64", largest.shape)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        spatial = x.shape[2:]
        image = np.arange(np.prod(spatial)).reshape(spatial if attrs.order == "row" else spatial[::-1])
        image = image if attrs.order == "row" else image.T
        indices = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(spatial)) * image.size + image
        values = np.stack(list(window_taps(attrs, x, _lowest_value(x))))
        indices = np.stack(list(window_taps(attrs, indices, -1)))
        best = np.where(indices < 0, -np.inf, values).argmax(0)[None]
        return np.take_along_axis(values, best, 0)[0], np.take_along_axis(indices, best, 0)[0]


@register
class AvgPool(_Pool):
    """The mean of each window: ONNX's AveragePool, relax.nn.avg_pool2d, Relay's nn.avg_pool2d.

    Attribute `count_pads`: whether pads count as zeros; else the mean is over the elements inside of x.
    """

    kind = "avg_pool"
    onnx = ("AveragePool",)
    relax = ("relax.nn.avg_pool2d",)
    relay = ("nn.avg_pool2d",)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {"count_pads": node.attr("count_include_pad", 0)}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        axes = len(attrs.kernel)
        total = sum(window_taps(attrs, x, 0))
        # The elements that count in each window are a sum over the windows of an array of ones.
        counted_extents, counted_attrs = x.shape[2:], attrs
        if attrs.get("count_pads", 0):
            counted_extents = np.add(x.shape[2:], np.add(attrs.pads[:axes], attrs.pads[axes:]))
            counted_attrs = Attrs({**attrs, "pads": (0,) * (2 * axes)})
        counts = sum(window_taps(counted_attrs, np.ones((1, 1, *counted_extents), x.dtype), 0))
        # With `ceil` a further window may start in the ones of the pad at the end, where none of x may start.
        counts = counts[(..., *(slice(n) for n in total.shape[2:]))]
        return ((total / np.maximum(counts, 1)).astype(x.dtype),)


@register
class SumPool(_Pool):
    """The sum of each window; pads are zeros. Importers emit it for pools that are computed from sums."""

    kind = "sum_pool"

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (sum(window_taps(attrs, x, 0)),)


@decomposes("LpPool")
def lp_pool(node: OnnxNode) -> tuple[str, ...]:
    """Imports LpPool: the p-th root of the sum of p-th powers in each window."""
    return _lp_norm(node, lambda powers: emit_pool(node, "sum_pool", powers, {}))


@decomposes("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> tuple[str, ...]:
    """Imports GlobalLpPool: the p-th root of the sum of p-th powers over the spatial axes."""
    axes = tuple(range(2, node.type(0).rank))
    return _lp_norm(node, lambda powers: reduce(node, "reduce_sum", powers, axes, keepdims=True))


def _lp_norm(node: OnnxNode, emit_sum: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Emits the p-th root of sums of p-th powers; powers of float16 and bfloat16 are computed in float32, since they
    may overflow.

    emit_sum: emits the sums of a value.
    """
    p, dtype = node.attr("p", 2), node.type(0).dtype
    sum_dtype = "float32" if dtype in ("float16", "bfloat16") else dtype
    (value,) = cast_to(node, node.inputs[0], sum_dtype)
    (total,) = emit_sum(_power(node, value, p, sum_dtype))
    return cast_to(node, _root(node, total, p, sum_dtype), dtype)


def _power(node: OnnxNode, value: str, p: int, dtype: str) -> str:
    """Emits |value|^p."""
    if p == 2:
        return node.emit("mul", (value, value))[0]
    (magnitude,) = node.emit("abs", (value,))
    return magnitude if p == 1 else node.emit("pow", (magnitude, node.constant(np.array(p, dtype))))[0]


def _root(node: OnnxNode, value: str, p: int, dtype: str) -> str:
    """Emits the p-th root of a value."""
    if p == 2:
        return node.emit("sqrt", (value,))[0]
    return value if p == 1 else node.emit("pow", (value, node.constant(np.array(1 / p, dtype))))[0]


class _GlobalPool(Operator):
    """The base of pools over all spatial axes: x [N, C, …] to [N, C, 1, …], of x's dtype."""

    channel_axis = 1
    cases = (Case((f32(1, 32, 7, 7),)), Case((f32(2, 19, 5, 3),)), Case((f32(1, 3, 1, 1),)),
             Case((f32(1, 7, 13, 29),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 3:
            raise ShapeError(f"requires an operand with spatial axes, not {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:]))),)


@register
class GlobalAvgPool(_GlobalPool):
    """The mean of each channel: ONNX's GlobalAveragePool."""

    kind = "global_avg_pool"
    onnx = ("GlobalAveragePool",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=np.float64).astype(x.dtype),)


@register
class GlobalMaxPool(_GlobalPool):
    """The largest element of each channel: ONNX's GlobalMaxPool."""

    kind = "global_max_pool"
    onnx = ("GlobalMaxPool",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True, initial=_lowest_value(x)),)


def _case(x, kernel, strides=None, pads=None, dilations=None, ceil=False, dtype="float32", **attributes) -> Case:
    ones = (1,) * len(kernel)
    return Case(((x, dtype),), {"kernel": kernel, "strides": strides or ones, "pads": pads or (0,) * (2 * len(kernel)),
                                "dilations": dilations or ones, "ceil": ceil, **attributes})


MaxPool.cases = (
    _case((1, 16, 8, 8), (2, 2), (2, 2)),
    _case((2, 20, 23, 37), (3, 3), (2, 2), (1, 1, 1, 1)),
    _case((1, 33, 9, 10), (3, 3), (2, 2), ceil=True),
    _case((1, 5, 26, 26), (5, 5), (1, 1), (2, 2, 2, 2)),
    _case((1, 4, 11, 9), (2, 3), (1, 2), (0, 1, 1, 0), (2, 2)),
    _case((1, 1, 1, 1), (1, 1)),
    _case((2, 37, 4, 3), (4, 3), (2, 1)),
    _case((2, 3, 5, 7, 6), (2, 3, 2), (1, 2, 2), (1, 0, 1, 0, 1, 0), (2, 1, 3), ceil=True),
    _case((1, 5, 9, 7), (3, 2), (2, 1), (1, 0, 1, 1), dtype="uint8"),
    _case((1, 5, 9, 7), (3, 2), (2, 1), (1, 0, 1, 1), dtype="int8"),
    _case((2, 70, 9, 7), (3, 2), (2, 1), (1, 0, 1, 1), (2, 1), dtype="int8"),
    _case((1, 130, 5, 5), (3, 3), (2, 2), (1, 1, 1, 1), ceil=True, dtype="uint8"),
)
#: NaNs at a corner and inside, some of them neighbours.
_NANS = np.where(np.isin(np.arange(2 * 18 * 11 * 13) % 143, (0, 70, 71, 100)), np.nan, 0).reshape(2, 18, 11, 13) \
    + np.arange(2 * 18 * 11 * 13).reshape(2, 18, 11, 13) % 17
MaxPool.cases += tuple(
    replace(_case(_NANS.shape, *window), values={0: _NANS})
    for window in (((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 2), (1, 1)), ((3, 2), (2, 1), (0, 1, 0, 0), (2, 2))))
GlobalMaxPool.cases += (Case((f32(*_NANS.shape),), values={0: _NANS}),)
MaxPoolIndices.cases = (
    _case((2, 3, 9, 7), (3, 2), (2, 1), (1, 0, 1, 1), order="row"),
    _case((2, 3, 9, 7), (2, 3), (2, 2), (0, 1, 0, 1), ceil=True, order="column"),
    _case((1, 2, 5, 4, 6), (2, 2, 3), (2, 1, 2), dilations=(1, 2, 1), order="row"),
    _case((1, 2, 3, 4, 5), (2, 2, 2), order="column", dtype="int8"),
)
AvgPool.cases = (
    _case((1, 16, 8, 8), (2, 2), (2, 2)),
    _case((1, 64, 25, 5), (25, 5)),
    _case((2, 37, 4, 3), (4, 3), (4, 3)),
    _case((2, 20, 13, 17), (3, 3), (2, 2), (1, 1, 1, 1)),
    _case((2, 20, 13, 17), (3, 3), (2, 2), (1, 1, 1, 1), count_pads=1),
    _case((1, 33, 9, 10), (3, 3), (2, 2), ceil=True),
    _case((1, 6, 10, 9), (3, 3), (2, 2), (1, 0, 1, 1), ceil=True, count_pads=1),
    _case((1, 3, 10, 40), (2, 3), (1, 1), (1, 1, 0, 2), (2, 2), count_pads=1),
    _case((1, 2, 6, 5, 7), (2, 3, 2), (2, 1, 2), (1, 1, 0, 0, 1, 1), ceil=True),
    _case((1, 2, 6, 5, 7), (2, 3, 2), (2, 1, 2), (1, 1, 0, 0, 1, 1), (2, 1, 1), ceil=True, count_pads=1),
)
SumPool.cases = (
    _case((1, 20, 13, 17), (3, 3), (2, 2), (1, 1, 1, 1)),
    _case((1, 2, 6, 5, 7), (2, 3, 2), (2, 1, 2), (1, 1, 0, 0, 1, 1)),
)
