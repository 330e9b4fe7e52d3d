# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows and over whole images. A NaN makes the results of its windows NaN."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
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
from .windows import elements_in_windows, output_extent, padded, symbolic_pads


class _Pool(Operator):
    """A pool. Attributes: `kernel`, `strides`, `dilations` (h, w or d, h, w); `pads` (all begins, then all ends);
    `ceil`: whether the last window of an axis may extend beyond its end."""

    channel_axis = 1

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axes = len(attrs.kernel)
        if x.rank != 2 + axes:
            raise ShapeError(f"windows over {axes} axes want an operand of rank {2 + axes}, not {x}")
        spatial = [output_extent(x.shape[2 + i], attrs.kernel[i], attrs.strides[i], attrs.dilations[i],
                                 attrs.pads[i], attrs.pads[axes + i], bool(attrs.ceil)) for i in range(axes)]
        return (TensorType(x.dtype, (*x.shape[:2], *spatial)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        return emit_pool(node, cls.kind, node.inputs[0], cls.onnx_attrs(node))


def emit_pool(node: OnnxNode, kind: str, value: str, attributes: dict) -> tuple[str, ...]:
    """Emits the pool of a node. One spatial axis is imported as two with height 1."""
    x = node.type_of(value)
    if x.rank not in (3, 4, 5):
        raise ShapeError(f"pooling over {x.rank - 2} spatial axes; 1 to 3 are supported")
    kernel = tuple(node.attr("kernel_shape"))
    pads = symbolic_pads(node, kernel)
    if pads and kind == "avg_pool" and not attributes["count_pads"]:
        return _mean_of_inside(node, value, kernel, pads)
    fill: float = 0
    if kind in ("max_pool", "max_pool_indices"):
        fill = int(np.iinfo(x.dtype).min) if np.dtype(x.dtype).kind in "iu" else -np.inf  # bfloat16's kind is V
    value, attrs = padded(node, value, kernel, fill)
    attrs.update(attributes)
    results = _pooled(node, kind, value, attrs)
    if pads and kind == "max_pool_indices":
        return results[0], _indices_without_pads(node, results[1], pads, attributes["order"] == "column")
    return results


def _mean_of_inside(node: OnnxNode, value: str, kernel: tuple[int, ...], pads: tuple[Dim, ...]) -> tuple[str, ...]:
    """Emits an average pool with symbolic pads that do not count."""
    dtype = node.type_of(value).dtype
    wide = "float64" if dtype == "float64" else "float32"
    (real,) = cast_to(node, value, wide)
    total, *_ = _pooled(node, "sum_pool", *padded(node, real, kernel, 0))
    counts = [cast_to(node, count, wide)[0] for count in elements_in_windows(node, kernel, pads)]
    expr = X / maximum(functools.reduce(operator.mul, map(arg, range(1, len(counts) + 1))), 1)
    (mean,) = emit_broadcast(node, "elementwise", (total, *counts), expr=expr, dtype=wide)
    return cast_to(node, mean, dtype)


def _indices_without_pads(node: OnnxNode, indices: str, pads: tuple[Dim, ...], by_columns: bool) -> str:
    """Returns flat indices in the padded operand as flat indices in the operand, int64."""
    extents, axes = node.type(0).shape[2:], len(pads) // 2
    order = range(axes) if by_columns else range(axes - 1, -1, -1)  # from the innermost axis on
    rest, parts = indices, []
    for axis in order:
        size = node.extent(extents[axis] + pads[axis] + pads[axes + axis])
        within = onnx_operator(node, "Mod", rest, size)
        parts.append(onnx_operator(node, "Sub", within, node.extent(pads[axis])))
        rest = onnx_operator(node, "Div", rest, size)
    for axis, part in zip(reversed(order), reversed(parts), strict=True):
        rest = onnx_operator(node, "Add", onnx_operator(node, "Mul", rest, node.extent(extents[axis])), part)
    return rest


def _pooled(node: OnnxNode, kind: str, value: str, attrs: dict) -> tuple[str, ...]:
    """Emits a pool. attrs: those of two or three axes; an operand of one axis is pooled with height 1."""
    x = node.type_of(value)
    if x.rank > 3:
        return node.emit(kind, (value,), **attrs)
    (tall,) = node.emit("reshape", (value,), shape=(*x.shape[:2], 1, x.shape[2]))
    results = []
    for result in node.emit(kind, (tall,), **attrs):
        shape = node.type_of(result).shape
        results += node.emit("reshape", (result,), shape=(*shape[:2], shape[3]))
    return tuple(results)


def at_taps(attrs: Attrs, x: np.ndarray, fill: float):
    """Yields for each tap of the window the input elements that it reads, as an array of the output's shape."""
    axes = len(attrs.kernel)
    rows = list(zip(x.shape[2:], attrs.kernel, attrs.strides, attrs.dilations, attrs.pads[:axes], attrs.pads[axes:],
                    strict=True))
    results = [output_extent(*row, bool(attrs.ceil)) for row in rows]
    reach = [max((result - 1) * stride + (kernel - 1) * dilation + 1, extent + before)
             for result, (extent, kernel, stride, dilation, before, _) in zip(results, rows, strict=True)]
    padded = np.full((*x.shape[:2], *reach), fill, x.dtype)
    padded[(..., *(slice(row[4], row[4] + row[0]) for row in rows))] = x
    for tap in np.ndindex(*attrs.kernel):
        yield padded[(..., *(slice(i * row[3], i * row[3] + (result - 1) * row[2] + 1, row[2])
                             for i, result, row in zip(tap, results, rows, strict=True)))]


@register
class MaxPool(_Pool):
    """The largest element of each window, ignoring pads."""

    kind = "max_pool"
    onnx = ("MaxPool",)
    relax = ("relax.nn.max_pool2d",)
    relay = ("nn.max_pool2d",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.maximum.reduce(list(at_taps(attrs, x, _lowest(x)))),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        if node.num_outputs == 1 or not node.outputs[1]:
            return super().from_onnx(node)
        order = "column" if node.attr("storage_order", 0) else "row"
        return emit_pool(node, "max_pool_indices", node.inputs[0], {"order": order})


def _lowest(x: np.ndarray) -> float:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


@register
class MaxPoolIndices(_Pool):
    """The largest element of each window and its flat index in the whole operand; of equal elements the first.

    Attribute `order`: indices are row-major ("row") or, within an image, column-major ("column").
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
        values = np.stack(list(at_taps(attrs, x, _lowest(x))))
        indices = np.stack(list(at_taps(attrs, indices, -1)))
        best = np.where(indices < 0, -np.inf, values).argmax(0)[None]
        return np.take_along_axis(values, best, 0)[0], np.take_along_axis(indices, best, 0)[0]


@register
class AvgPool(_Pool):
    """The mean of each window, over the elements inside or, with `count_pads`, over those of the padded input."""

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
        extents, counted = x.shape[2:], attrs
        if attrs.get("count_pads", 0):
            extents = np.add(extents, np.add(attrs.pads[:axes], attrs.pads[axes:]))
            counted = Attrs({**attrs, "pads": (0,) * (2 * axes)})
        total = sum(at_taps(attrs, x, 0))
        counts = sum(at_taps(counted, np.ones((1, 1, *extents), x.dtype), 0))
        counts = counts[(..., *(slice(n) for n in total.shape[2:]))]
        return ((total / np.maximum(counts, 1)).astype(x.dtype),)


@register
class SumPool(_Pool):
    """The sum of each window; pads are zeros."""

    kind = "sum_pool"

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (sum(at_taps(attrs, x, 0)),)


@decomposes("LpPool")
def lp_pool(node: OnnxNode) -> tuple[str, ...]:
    """Imports LpPool: the p-th root of the sum of p-th powers in each window."""
    return _of_powers(node, lambda powers: emit_pool(node, "sum_pool", powers, {}))


@decomposes("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> tuple[str, ...]:
    axes = tuple(range(2, node.type(0).rank))
    return _of_powers(node, lambda powers: reduce(node, "reduce_sum", powers, axes, True))


def _of_powers(node: OnnxNode, summed: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the p-th root of sums of p-th powers. Those of float16 are float32: 40 ** 3 is no float16."""
    p, dtype = node.attr("p", 2), node.type(0).dtype
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    (value,) = cast_to(node, node.inputs[0], wide)
    (total,) = summed(_power(node, value, p, wide))
    return cast_to(node, _root(node, total, p, wide), dtype)


def _power(node: OnnxNode, value: str, p: int, dtype: str) -> str:
    if p == 2:
        return node.emit("mul", (value, value))[0]
    (magnitude,) = node.emit("abs", (value,))
    return magnitude if p == 1 else node.emit("pow", (magnitude, node.constant(np.array(p, dtype))))[0]


def _root(node: OnnxNode, value: str, p: int, dtype: str) -> str:
    if p == 2:
        return node.emit("sqrt", (value,))[0]
    return value if p == 1 else node.emit("pow", (value, node.constant(np.array(1 / p, dtype))))[0]


class _GlobalPool(Operator):
    channel_axis = 1
    cases = (Case((f32(1, 32, 7, 7),)), Case((f32(2, 19, 5, 3),)), Case((f32(1, 3, 1, 1),)),
             Case((f32(1, 7, 13, 29),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 3:
            raise ShapeError(f"wants an operand with spatial axes, not {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:]))),)


@register
class GlobalAvgPool(_GlobalPool):
    """The mean of each channel."""

    kind = "global_avg_pool"
    onnx = ("GlobalAveragePool",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=np.float64).astype(x.dtype),)


@register
class GlobalMaxPool(_GlobalPool):
    """The largest element of each channel."""

    kind = "global_max_pool"
    onnx = ("GlobalMaxPool",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True, initial=_lowest(x)),)


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
    replace(_case(_NANS.shape, *how), values={0: _NANS})
    for how in (((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 2), (1, 1)), ((3, 2), (2, 1), (0, 1, 0, 0), (2, 2))))
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
