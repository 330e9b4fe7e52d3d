# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes, argmax and argmin, and cumulative sums and products: ONNX's Reduce…, ArgMax, ArgMin, Hardmax,
CumSum and CumProd, and TVM's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import ml_dtypes
import numpy as np

from ...ir.conditions import require_at_most
from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, f32, register
from ..elementwise import cast_to
from ..rules import arange_along, axes_of, axis_of
from ..tensor.runtime_axes import reduce_run_time_axes, select_run_time_axes, select_run_time_axis
from ..tensor.shape import axes_operand


class Reduction(Operator):
    """The base of reductions over axes. The result has the dtype of x.

    Attributes: `axes`: sorted and not negative; `keepdims`: reduced axes stay, with extent 1.

    numpy: the function that reduces an array over a tuple of axes.
    """

    numpy: Callable

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axes = axes_of(attrs.axes, x.rank)
        shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape)
                      if attrs.keepdims or axis not in axes)
        return (TensorType(x.dtype, shape),)

    @classmethod
    def compute(cls, attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        exact = x.astype(np.float64) if x.dtype.kind == "f" else x
        with np.errstate(all="ignore"):
            result = cls.numpy(exact, tuple(attrs.axes))
        shape = tuple(1 if axis in attrs.axes else dim for axis, dim in enumerate(x.shape))
        result = np.asarray(result).astype(x.dtype).reshape(shape)
        return (result if attrs.keepdims else result.squeeze(tuple(attrs.axes)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        """Imports a reduction. Its axes are an attribute before operator set 18 (13 for ReduceSum), then an operand."""
        return _reduce_over_axes(node, 13 if cls.kind == "reduce_sum" else 18, lambda axes: reduce(
            node, cls.kind, node.inputs[0], axes, bool(node.attr("keepdims", 1))))


def _lowest_and_largest(dtype: np.dtype) -> tuple:
    """Returns the lowest and the largest value of a dtype: the results of max and of min over no elements."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    return (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _mean(x: np.ndarray, axes) -> np.ndarray:
    """Returns means; those of integers are truncated."""
    if x.dtype.kind == "f":
        return x.mean(axes)
    return np.trunc(x.sum(axes) / product(x.shape[axis] for axis in axes))


class _Row(NamedTuple):
    """A row of the table of reductions: our kind is "reduce_" + name. in_tvm: whether Relax and Relay have it, by the
    same name. numpy: as in `Reduction`."""

    name: str
    onnx: str
    numpy: Callable
    in_tvm: bool = True


_REDUCTIONS = (
    _Row("sum", "ReduceSum", lambda x, axes: x.sum(axes)),
    _Row("mean", "ReduceMean", _mean),
    _Row("max", "ReduceMax", lambda x, axes: x.max(axes, initial=_lowest_and_largest(x.dtype)[0])),
    _Row("min", "ReduceMin", lambda x, axes: x.min(axes, initial=_lowest_and_largest(x.dtype)[1])),
    _Row("prod", "ReduceProd", lambda x, axes: x.prod(axes)),
    _Row("l1", "ReduceL1", lambda x, axes: np.abs(x).sum(axes), in_tvm=False),
    _Row("l2", "ReduceL2", lambda x, axes: np.sqrt((x * x).sum(axes)), in_tvm=False),
    _Row("sum_square", "ReduceSumSquare", lambda x, axes: (x * x).sum(axes), in_tvm=False),
    _Row("log_sum", "ReduceLogSum", lambda x, axes: np.log(x.sum(axes)), in_tvm=False),
)


def _cases(name: str) -> tuple[Case, ...]:
    """Returns the test cases of the reduction of this name."""
    shapes = [((3, 5, 7), (1,), True), ((2, 3, 4, 5), (2, 3), False), ((4, 37), (1,), False), ((37, 4), (0,), True)]
    if name in ("sum", "mean", "max"):
        shapes += [((2, 3, 4, 5), (1, 3), True), ((2, 3, 4), (0, 1, 2), False)]
    cases = [Case((f32(*shape),), {"axes": axes, "keepdims": keep}) for shape, axes, keep in shapes]
    if name in ("sum", "max", "min", "prod", "l1", "sum_square"):
        cases += [Case((((3, 6), dtype),), {"axes": (1,), "keepdims": False}) for dtype in ("int32", "uint8", "int64")]
    cases.append(Case((((3, 5, 7), "float64"),), {"axes": (1,), "keepdims": True}))
    if name in ("max", "min"):
        # A NaN as the first element, in the middle and as the last; a row of NaN.
        rows = np.where(np.isin(np.arange(7 * 35) % 38, (0, 13)), np.nan, np.arange(7 * 35) % 11 - 5).reshape(7, 35)
        rows[2] = np.nan
        cases += [Case(((rows.shape, dtype),), {"axes": (axis,), "keepdims": True}, values={0: rows})
                  for axis in (0, 1) for dtype in ("float32", "float64")]
        cases.append(Case((f32(49, 5),), {"axes": (1,), "keepdims": False}, values={0: rows.reshape(49, 5)}))
    if name == "log_sum":
        cases = [Case(case.inputs, case.attrs, values={0: 1.0 + np.arange(product(case.inputs[0][0])) % 7})
                 for case in cases]
    return tuple(cases)


def _declare(row: _Row) -> None:
    """Makes a subclass of `Reduction` from a row of the table, and registers it."""
    register(type(f"Reduce{row.name.title().replace('_', '')}", (Reduction,), {
        "__doc__": f"ONNX's {row.onnx}.", "kind": f"reduce_{row.name}", "onnx": (row.onnx,),
        "relax": (f"relax.{row.name}",) * row.in_tvm, "relay": (row.name,) * row.in_tvm,
        "numpy": staticmethod(row.numpy), "cases": _cases(row.name),
    }))


def _reduce_over_axes(node: OnnxNode, since: int,
                      make: Callable[[tuple[int, ...]], tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the results of `make` for the axes that a node reduces.

    Args:
        since: the operator set from which on the axes are an operand.
        make: emits the reduction over axes, given sorted and not negative, and returns its results.
    """
    rank = node.type(0).rank
    axes_if_empty = () if node.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    if node.opset < since or not node.has(1) or node.is_known(1):
        return make(axes_of(axes_operand(node, since) or axes_if_empty, rank))
    if node.type(1).static_size == 0:
        return make(axes_if_empty)
    result = node.declared_shape()
    if result is None:
        return reduce_run_time_axes(node, 1, bool(node.attr("keepdims", 1)), make)
    return _reduce_to_declared_shape(node, result, axes_if_empty, make)


def _reduce_to_declared_shape(node: OnnxNode, result: tuple[int, ...], axes_if_empty: tuple[int, ...],
                              make: Callable[[tuple[int, ...]], tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the results of `make` for axes that are known only at run time, where the model declares the shape of the
    result.

    Only the choices of axes that give this shape are possible, and the run selects one of them. Each choice has all
    axes of extent 1, since it makes no difference to the elements whether these are reduced.

    Args:
        result: the declared shape.
        axes_if_empty: the axes that an operand without elements stands for.
        make: as of `_reduce_over_axes`.
    """
    shape, keepdims = node.type(0).shape, bool(node.attr("keepdims", 1))
    unit_axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    candidates = {axes for count in range(len(shape) + 1) for axes in combinations(range(len(shape)), count)
                  if set(unit_axes) <= set(axes) and _gives_shape(shape, axes, keepdims, result)}
    count = node.type(1).shape[0] if node.type(1).rank == 1 else 1
    has_axes = isinstance(count, int) and count > 0
    may_return_x = not axes_if_empty and result == shape
    # If a run may give no axes, the declared shape has to leave a single choice: one candidate, and not x itself.
    is_decided = has_axes or (len(candidates) == 1 and not may_return_x)
    if not candidates or not is_decided:
        return reduce_run_time_axes(node, 1, keepdims, make)

    def emit_choice(axes: tuple[int, ...]) -> tuple[str, ...]:
        results = make(axes)
        # Without keepdims the axes of extent 1 are gone, some of which the declared shape may have.
        return results if node.type_of(results[0]).shape == result else node.emit("reshape", results, shape=result)
    return select_run_time_axes(node, 1, candidates, unit_axes, emit_choice, None if has_axes else axes_if_empty)


def _gives_shape(shape: tuple[Dim, ...], axes: tuple[int, ...], keepdims: bool, result: tuple[int, ...]) -> bool:
    """Returns whether reducing these axes of a shape gives `result`. Without `keepdims`, axes of extent 1 are
    ignored."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)) == result
    remaining = [extent for axis, extent in enumerate(shape) if axis not in axes]
    return remaining == [extent for extent in result if extent != 1]


@decomposes("ReduceLogSumExp")
def reduce_log_sum_exp(node: OnnxNode) -> tuple[str, ...]:
    """Imports ReduceLogSumExp as log(sum(exp(x - max))) + max; an infinite max is replaced by a finite number."""
    return _reduce_over_axes(node, 18, lambda axes: _log_sum_exp(node, axes) if axes else node.inputs[:1])


def _log_sum_exp(node: OnnxNode, axes: tuple[int, ...]) -> tuple[str, ...]:
    """Emits log(sum(exp(x - max))) + max over axes, of which there is at least one."""
    keepdims, dtype = bool(node.attr("keepdims", 1)), node.type(0).dtype
    (x,) = cast_to(node, node.inputs[0], _accumulator_dtype("reduce_log_sum", dtype))
    (top,) = reduce(node, "reduce_max", x, axes, keepdims=True)
    float_type = np.dtype(node.type_of(x).dtype)
    for kind, limit in (("max", ml_dtypes.finfo(float_type).min), ("min", ml_dtypes.finfo(float_type).max)):
        (top,) = node.emit(kind, (top, node.constant(np.asarray(limit, float_type))))
    (shifted,) = node.emit("sub", (x, top))
    (sum_,) = reduce(node, "reduce_log_sum", *node.emit("exp", (shifted,)), axes, keepdims)
    if not keepdims:
        (top,) = node.emit("reshape", (top,), shape=node.type_of(sum_).shape)
    return cast_to(node, node.emit("add", (sum_, top))[0], dtype)


#: Reductions whose result over one element is that element.
_IDENTITY_OVER_ONE_ELEMENT = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")


def _accumulator_dtype(kind: str, dtype: str) -> str:
    """Returns the dtype to compute a reduction in: uint8 for bool, float64 for means, roots and logarithms of integers,
    else the operand's."""
    if dtype == "bool":
        return "uint8"
    return "float64" if kind in ("reduce_mean", "reduce_l2", "reduce_log_sum") and "int" in dtype else dtype


def reduce(node: OnnxNode, kind: str, value: str, axes: tuple[int, ...] | None, keepdims: bool) -> tuple[str, ...]:
    """Emits a reduction that keeps its axes, so that it can have any layout, and removes them afterwards.

    axes: None for all. If empty, the reduction is over a new axis of extent 1, since a norm still takes the magnitude.
    """
    type_ = node.type_of(value)
    rank = type_.rank
    axes = axes_of(range(rank) if axes is None else axes, rank)
    if not axes:
        if kind in _IDENTITY_OVER_ONE_ELEMENT:
            return (value,)
        (with_axis,) = node.emit("reshape", (value,), shape=(*type_.shape, 1))
        return reduce(node, kind, with_axis, (rank,), keepdims=False)
    (value,) = cast_to(node, value, _accumulator_dtype(kind, type_.dtype))
    (result,) = node.emit(kind, (value,), axes=axes, keepdims=True)
    (result,) = cast_to(node, result, type_.dtype)
    if keepdims:
        return (result,)
    shape = tuple(dim for axis, dim in enumerate(node.type_of(value).shape) if axis not in axes)
    return node.emit("reshape", (result,), shape=shape)


for _row in _REDUCTIONS:
    _declare(_row)


#: Rows with NaNs at several positions, and one of NaNs only.
_NANS = np.array([[1, np.nan, 0, 3, 3, 2], [np.nan, 2, 1, np.nan, 0, 0], [np.nan] * 6, [2, 1, 5, 5, 0, np.nan]])


class ArgExtreme(Operator):
    """The base of ArgMax and ArgMin: the index of the extreme element along an axis, int64.

    Attributes: `axis`; `keepdims`: the axis stays, with extent 1; `last`: the last of equal elements is taken, else the
    first; `nan_yields`, optional: NaNs are compared as by TVM, where a NaN replaces the extreme so far and is replaced
    by the next element. Without it the first NaN is the extreme.

    numpy: numpy's function. better: whether an element replaces another one as the extreme.
    """

    numpy: Callable
    better: Callable
    cases = (Case((f32(3, 5, 7),), {"axis": 1, "keepdims": True, "last": False}),
             Case((f32(2, 37),), {"axis": 1, "keepdims": False, "last": False}),
             Case((((4, 30), "int32"),), {"axis": 1, "keepdims": False, "last": False}),
             Case((((30, 4), "int32"),), {"axis": 0, "keepdims": False, "last": True}),
             *(Case((((9, n), dtype),), {"axis": 1, "keepdims": False, "last": last},
                    values={0: np.random.default_rng(n).choice(np.array(ends, dtype), (9, n))})
               for n, dtype, last, ends in ((3, "int8", False, (-128, -127, 0)), (21, "uint8", False, (0, 1, 254, 255)),
                                            (32, "int8", True, (-128, -1, 127)), (75, "uint8", True, (0, 254, 255)))),
             *(Case((f32(4, 6),), {"axis": 1, "keepdims": False, "last": last, "nan_yields": yields}, values={0: _NANS})
               for last in (False, True) for yields in (False, True)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        require_at_most(1, x.shape[axis], f"axis {axis} of {x} is empty")
        one: tuple[Dim, ...] = (1,) if attrs.keepdims else ()
        return (TensorType("int64", (*x.shape[:axis], *one, *x.shape[axis + 1:])),)

    @classmethod
    def compute(cls, attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        if attrs.get("nan_yields", False):
            index = cls.compared(np.moveaxis(x, attrs.axis, 0), attrs.last)
        elif attrs.last:
            index = x.shape[attrs.axis] - 1 - cls.numpy(np.flip(x, attrs.axis), attrs.axis)
        else:
            index = cls.numpy(x, attrs.axis)
        index = index.astype(np.int64)
        return (np.expand_dims(index, attrs.axis) if attrs.keepdims else index,)

    @classmethod
    def compared(cls, x: np.ndarray, last: bool) -> np.ndarray:
        """Returns the indices along the first axis, comparing one element after another as TVM does."""
        best, index = x[0], np.zeros(x.shape[1:], int)
        for position, value in enumerate(x[1:], start=1):
            keeps = cls.better(best, value) if last else cls.better(best, value) | (best == value)
            best, index = np.where(keeps, best, value), np.where(keeps, index, position)
        return index

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {"axis": axis_of(node.attr("axis", 0), node.type(0).rank), "keepdims": bool(node.attr("keepdims", 1)),
                "last": bool(node.attr("select_last_index", 0))}


@register
class ArgMax(ArgExtreme):
    """The index of the largest element along an axis: ONNX's ArgMax."""

    kind, onnx, relax, relay = "arg_max", ("ArgMax",), ("relax.argmax",), ("argmax",)
    numpy, better = staticmethod(np.argmax), staticmethod(np.greater)


@register
class ArgMin(ArgExtreme):
    """The index of the smallest element along an axis: ONNX's ArgMin."""

    kind, onnx, relax, relay = "arg_min", ("ArgMin",), ("relax.argmin",), ("argmin",)
    numpy, better = staticmethod(np.argmin), staticmethod(np.less)


@decomposes("Hardmax")
def hardmax(node: OnnxNode) -> tuple[str, ...]:
    """Imports Hardmax: 1 for the first of the greatest elements, 0 for all others. Before operator set 13 the axes from
    `axis` on are flattened."""
    x = node.type(0)
    if not x.rank:
        return (node.constant(np.ones((), np.dtype(x.dtype))),)
    if x.static_size == 0:
        return node.inputs[:1]
    axis = axis_of(node.attr("axis", -1 if node.opset >= 13 else 1), x.rank)
    if node.opset >= 13 or all(extent == 1 for extent in x.shape[axis + 1:]):
        return _hardmax(node, node.inputs[0], axis)
    (rows,) = node.emit("reshape", node.inputs[:1], shape=(product(x.shape[:axis]), product(x.shape[axis:])))
    return node.emit("reshape", _hardmax(node, rows, 1), shape=x.shape)


def _hardmax(node: OnnxNode, value: str, axis: int) -> tuple[str, ...]:
    """Emits 1 at the first of the greatest elements along an axis, 0 elsewhere."""
    type_ = node.type_of(value)
    (index,) = node.emit("arg_max", (value,), axis=axis, keepdims=True, last=False)
    (hit,) = node.emit("equal", (index, arange_along(node, type_.shape[axis], axis, type_.rank)))
    return node.emit("cast", (hit,), dtype=type_.dtype)


class Cumulative(Operator):
    """The base of cumulative reductions: y[i] is the reduction of x[0], …, x[i] along an axis, in x's shape and dtype.

    Attributes: `axis`; `exclusive`: without x[i] itself; `reverse`: from the end of the axis.

    numpy: numpy's function. start: the result over no elements.
    """

    numpy: Callable
    start: int
    cases = tuple(Case((((3, 5, 4), dtype),), {"axis": 1, "exclusive": exclusive, "reverse": reverse})
                  for dtype, exclusive, reverse in (("float32", False, False), ("float32", True, True),
                                                    ("int32", True, False), ("int64", False, True),
                                                    ("float64", True, False)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axis_of(attrs.axis, x.rank)
        return (TensorType(x.dtype, x.shape),)

    @classmethod
    def compute(cls, attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        x = np.flip(x, attrs.axis) if attrs.reverse else x
        result = cls.numpy(x, attrs.axis, dtype=x.dtype)
        if attrs.exclusive:
            first = np.full_like(np.take(x, range(min(x.shape[attrs.axis], 1)), attrs.axis), cls.start)
            before = np.take(result, range(max(x.shape[attrs.axis] - 1, 0)), attrs.axis)
            result = np.concatenate([first, before], attrs.axis)
        return (np.flip(result, attrs.axis) if attrs.reverse else result,)


@register
class CumulativeSum(Cumulative):
    """Cumulative sums: ONNX's CumSum."""

    kind, relax, relay = "cumsum", ("relax.cumsum",), ("cumsum",)
    numpy, start = staticmethod(np.cumsum), 0


@register
class CumulativeProduct(Cumulative):
    """Cumulative products: ONNX's CumProd."""

    kind, relay = "cumprod", ("cumprod",)
    numpy, start = staticmethod(np.cumprod), 1


@decomposes("CumSum", "CumProd")
def cumulative(node: OnnxNode) -> tuple[str, ...]:
    """Imports CumSum and CumProd, whose axis is an operand."""
    rank = node.type(0).rank

    def emit(axis: int) -> str:
        return node.emit(node.op_type.lower(), node.inputs[:1], axis=axis, exclusive=bool(node.attr("exclusive", 0)),
                         reverse=bool(node.attr("reverse", 0)))[0]
    if not node.is_const(1):
        return select_run_time_axis(node, 1, range(rank), emit)
    return (emit(axis_of(int(node.const(1, "axis").reshape(-1)[0]), rank)),)
