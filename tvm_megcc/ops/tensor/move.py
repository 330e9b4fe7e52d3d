# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements without computing on them: ONNX's Transpose, Concat, Slice, Split, Pad, Tile,
DepthToSpace and SpaceToDepth, TVM's, and conversions of layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim, ceildiv
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, f32, register
from ..memory import memory_axes, same_memory
from ..rules import END_OF_AXIS, axis_of, clamp_slice, common_extent, same_dtype, shape_text, slice_axes
from .runtime_operands import pads_of_run_time_axes, read_pads, slice_at_run_time


@register
class Transpose(Operator):
    """ONNX's Transpose: axis i of the result is axis perm[i] of the operand, of any type. Attribute `perm`."""

    kind = "transpose"
    onnx = ("Transpose",)
    relax = ("relax.permute_dims",)
    relay = ("transpose",)
    cases = (Case((f32(5, 7),), {"perm": (1, 0)}), Case((f32(2, 3, 5, 7),), {"perm": (0, 2, 3, 1)}),
             Case((f32(2, 5, 7, 3),), {"perm": (0, 3, 1, 2)}), Case((f32(2, 3, 4, 5, 6),), {"perm": (4, 2, 0, 3, 1)}),
             Case((f32(1, 24, 5, 3),), {"perm": (0, 2, 3, 1)}), Case((f32(3, 17, 33),), {"perm": (0, 2, 1)}),
             Case((((3, 4, 5), "int64"),), {"perm": (2, 1, 0)}), Case((((3, 4, 5), "uint8"),), {"perm": (1, 0, 2)}),
             Case((f32(2, 3, 4, 5),), {"perm": (0, 2, 1, 3)}),
             *(Case((f32(2, *shape),), {"perm": (0, 2, 1)})
               for few in (2, 4, 8, 16) for shape in ((few, 53), (53, few))),
             *(Case(((shape, dtype),), {"perm": (0, 2, 1)}) for dtype, shape in (
                 ("uint8", (2, 19, 67)), ("int8", (1, 16, 16)), ("int8", (2, 49, 130)), ("uint8", (3, 130, 15)))),
             *(Case(((shape, dtype),), {"perm": (0, 2, 1)})
               for few, dtype in ((2, "uint8"), (3, "uint8"), (4, "uint8"), (3, "float32"), (3, "int32"))
               for shape in ((2, few, 53), (2, 53, few), (1, few, 5), (1, 4101, few), (1, few, 4101))))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if sorted(attrs.perm) != list(range(x.rank)):
            raise ShapeError(f"perm {attrs.perm} is no permutation of the {x.rank} axes")
        return (TensorType(x.dtype, tuple(x.shape[axis] for axis in attrs.perm)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.transpose(x, attrs.perm),)

    @staticmethod
    def view_offset(attrs: Attrs, inputs, outputs) -> Dim | None:
        return 0 if same_memory(inputs[0], outputs[0], permutation=attrs.perm) else None

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        rank = node.type(0).rank
        perm = tuple(node.attr("perm", range(rank - 1, -1, -1)))
        if perm == tuple(range(rank)):
            return node.inputs[:1]
        return node.emit("transpose", node.inputs, perm=perm)


@register
class Relayout(Operator):
    """Copies a tensor to another memory layout, that of the result's type; passes/layout/choose.py inserts it."""

    kind = "relayout"
    cases = (Case((f32(2, 3, 5, 7),)), Case((f32(1, 16, 4, 4),)), Case((f32(2, 37, 1, 1),)), Case((f32(1, 1, 6, 5),)),
             Case((f32(1, 40, 9, 11),)), Case((f32(2, 18, 31, 37),)),
             *(Case((((2, 18, 3, 5), dtype),)) for dtype in ("uint8", "float16", "int32", "float64", "bool")),
             Case((((2, 3, 5, 9), "int8"),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x,)

    @staticmethod
    def view_offset(attrs: Attrs, inputs, outputs) -> Dim | None:
        return 0 if same_memory(inputs[0], outputs[0]) else None


@register
class Concat(Operator):
    """ONNX's Concat: concatenates operands of one dtype, and of shapes that are equal but for an axis, along attribute
    `axis`."""

    kind = "concat"
    fan_in = 32  # a kernel has at most 61 operands and results (ir/limits.py)
    operands = ("x*",)
    onnx = ("Concat",)
    relax = ("relax.concat",)
    relay = ("concatenate",)
    cases = (Case((f32(2, 3), f32(2, 5)), {"axis": 1}), Case((f32(2, 3), f32(4, 3)), {"axis": 0}),
             Case((f32(2, 16, 3, 5), f32(2, 32, 3, 5), f32(2, 5, 3, 5)), {"axis": 1}),
             Case((f32(1, 6, 3, 5), f32(1, 6, 2, 5)), {"axis": 2}),
             Case((f32(1, 6, 3, 5), f32(1, 6, 3, 4)), {"axis": 3}),
             Case((f32(1, 5, 3, 5), f32(1, 6, 3, 5)), {"axis": 1}),
             Case((f32(1, 16, 33, 43), f32(1, 9, 33, 43)), {"axis": 1}),
             Case((((2, 1, 3), "int64"), ((2, 2, 3), "int64")), {"axis": 1}))

    @staticmethod
    def infer(attrs: Attrs, *inputs: TensorType) -> tuple[TensorType, ...]:
        first = inputs[0]
        axis = axis_of(attrs.axis, first.rank)
        total: Dim = 0
        shape = list(first.shape)
        for type_ in inputs:
            why = f"{shape_text(first.shape)} and {shape_text(type_.shape)} differ on other axes than {axis}"
            if type_.rank != first.rank:
                raise ShapeError(why)
            shape = [a if i == axis else common_extent(a, b, why)
                     for i, (a, b) in enumerate(zip(shape, type_.shape, strict=True))]
            total = total + type_.shape[axis]
        shape[axis] = total
        return (TensorType(same_dtype(*inputs), tuple(shape)),)

    @staticmethod
    def compute(attrs: Attrs, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.concatenate(inputs, attrs.axis),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        axis = axis_of(node.attr("axis", 1), node.type(0).rank)
        inputs = [name for index, name in enumerate(node.inputs)
                  if node.type(index).rank != node.type(0).rank or node.type(index).shape[axis] != 0] or node.inputs[:1]
        return tuple(inputs) if len(inputs) == 1 else node.emit("concat", inputs, axis=axis)


@register
class Slice(Operator):
    """ONNX's Slice: x[start:end:step] along some axes, with ONNX's clamping of bounds. x is of any type.

    Attributes `axes`, `starts`, `ends`, `steps`, of equal length. Axes are not negative; bounds may be expressions.
    """

    kind = "slice"
    onnx = ("Slice",)
    relax = ("relax.strided_slice",)
    relay = ("strided_slice",)
    cases = (Case((f32(5, 7),), {"axes": (0, 1), "starts": (1, 2), "ends": (4, -1), "steps": (1, 1)}),
             Case((f32(2, 3, 8, 8),),
                  {"axes": (2, 3), "starts": (1, 0), "ends": (END_OF_AXIS, END_OF_AXIS), "steps": (2, 2)}),
             Case((f32(4, 6),), {"axes": (1,), "starts": (-1,), "ends": (-END_OF_AXIS,), "steps": (-1,)}),
             Case((f32(1, 32, 3, 5),), {"axes": (1,), "starts": (16,), "ends": (32,), "steps": (1,)}),
             Case((((3, 7), "uint8"),), {"axes": (1,), "starts": (6,), "ends": (0,), "steps": (-2,)}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        shape = list(x.shape)
        for axis, (_, count, _) in slice_axes(attrs, x.shape).items():
            shape[axis] = count
        return (TensorType(x.dtype, tuple(shape)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        for axis, (first, count, step) in slice_axes(attrs, x.shape).items():
            x = np.take(x, first + step * np.arange(count), axis)
        return (x,)

    @staticmethod
    def view_offset(attrs: Attrs, inputs, outputs) -> Dim | None:
        """Returns the offset if the slice is contiguous: axes of extent 1, then one sliced axis, then whole axes."""
        x, y = inputs[0], outputs[0]
        block = x.layout.block
        if x.layout != y.layout or (block and not (x.is_static and y.is_static)):
            return None
        sliced = slice_axes(attrs, x.shape)
        if any(step != 1 for _, _, step in sliced.values()):
            return None
        if block and 1 in sliced and (sliced[1][0] % block or y.shape[1] % block):
            return None  # the channels of the slice are not whole layout blocks
        offset, stride, covers_inner_axes = 0, 1, True  # in elements, from the innermost axis outwards
        # In a blocked layout the channel axis is two axes in memory, "block" and "lane".
        for (axis, part, extent), (_, _, result_extent) in zip(reversed(memory_axes(x)), reversed(memory_axes(y)),
                                                               strict=True):
            first = sliced[axis][0] if axis in sliced and part != "lane" else 0
            first = first // block if part == "block" else first
            if not covers_inner_axes and result_extent != 1:
                return None
            covers_inner_axes = covers_inner_axes and result_extent == extent
            offset += first * stride
            stride *= extent
        return offset * x.itemsize

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        rank = node.type(0).rank
        if node.opset >= 10 and not all(map(node.is_shape_derived, (1, 2, 3, 4))):
            return (slice_at_run_time(node),)
        if node.opset >= 10:
            starts, ends = node.dims(1, "starts"), node.dims(2, "ends")
            axes, steps = node.dims(3, "axes"), node.dims(4, "steps")
        else:
            starts, ends, axes, steps = node.attr("starts"), node.attr("ends"), node.attr("axes"), None
        axes = [axis_of(axis, rank) for axis in (range(len(starts)) if axes is None else axes)]
        steps = [1] * len(axes) if steps is None else steps
        if not len(axes) == len(starts) == len(ends) == len(steps) or len(set(axes)) != len(axes):
            raise ShapeError(f"axes {axes}, starts {starts}, ends {ends} and steps {steps} do not belong together")
        bounds = [clamp_slice(node.type(0).shape[axis], _limit(start), _limit(end), step)
                  for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)]
        attrs = Attrs(axes=tuple(axes), starts=tuple(start for start, _ in bounds),
                      ends=tuple(end for _, end in bounds), steps=tuple(map(_limit, steps)))
        if cls.infer(attrs, node.type(0))[0] == node.type(0) and all(step == 1 for step in steps):
            return node.inputs[:1]
        # A slice of a slice along other axes becomes one slice.
        source = node.inputs[0]
        inner = node.producer(source)
        if inner is not None and inner.kind == "slice" and not set(inner.attrs.axes) & set(attrs.axes):
            source = inner.inputs[0]
            attrs = Attrs({name: inner.attrs[name] + value for name, value in attrs.items()})
        return node.emit("slice", (source,), **attrs)


def _limit(bound: Dim) -> Dim:
    """Returns a bound or step of a slice, limited to values that have a meaning of their own."""
    return max(-END_OF_AXIS, min(bound, END_OF_AXIS)) if isinstance(bound, int) else bound


def emit_slice(node: OnnxNode, value: str, axis: int, start: Dim, end: Dim) -> str:
    """Emits value[start:end] along an axis."""
    (result,) = node.emit("slice", (value,), axes=(axis,), starts=(start,), ends=(end,), steps=(1,))
    return result


@decomposes("Split")
def split(node: OnnxNode) -> tuple[str, ...]:
    """Imports Split as one slice for each output."""
    axis = axis_of(node.attr("axis", 0), node.type(0).rank)
    extent = node.type(0).shape[axis]
    declared = [None] if node.opset < 13 else [node.declared_if_unknown(1, output)
                                               for output in range(node.num_outputs)]
    if None not in declared:
        sizes = [shape[axis] for shape in declared]
    else:
        sizes = node.dims(1, "split") if node.opset >= 13 else node.attr("split")
    if sizes is None:
        parts = node.attr("num_outputs", node.num_outputs)
        size = ceildiv(extent, parts)
        sizes = [size] * (parts - 1) + [extent - size * (parts - 1)]
    total = sum(sizes, start=0)
    why = f"parts {shape_text(sizes)} of an axis of {extent}, for {node.num_outputs} outputs"
    if len(sizes) < node.num_outputs:
        raise ShapeError(why)
    require_equal(total, extent, why)
    if len(sizes) == 1:
        return node.inputs[:1]
    results, start = [], 0
    for size in sizes[:node.num_outputs]:
        results.append(emit_slice(node, node.inputs[0], axis, start, start + size))
        start = start + size
    return tuple(results)


#: The modes of `Pad`; numpy's have the same names.
PAD_MODES = ("constant", "reflect", "edge", "wrap")


def _crop(x: np.ndarray, pads: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns x without the elements that negative pads, (before, after) of each axis, take away."""
    return x[tuple(slice(max(-before, 0), max(extent - max(-after, 0), 0))
                   for (before, after), extent in zip(pads, x.shape, strict=True))]


@register
class Pad(Operator):
    """ONNX's Pad: adds elements before and after each axis of x, of any dtype, or takes some away.

    Attributes: `before`, `after`: the numbers of elements, an entry for each axis, which is negative to take elements
    away; `mode`; `value`. Modes: "constant", elements are `value`; "reflect", a mirror image without the border;
    "edge", the border is repeated; "wrap", the axis is periodic. Kernels take no elements away: the importer emits a
    slice for negative pads.
    """

    kind = "pad"
    onnx = ("Pad",)
    relax = ("relax.nn.pad",)
    relay = ("nn.pad",)
    cases = (Case((f32(3, 4),), {"before": (1, 0), "after": (2, 3), "mode": "constant", "value": 1.5}),
             *(Case((f32(1, 2, 4, 5),), {"before": (0, 0, 2, 1), "after": (0, 0, 3, 4), "mode": mode, "value": 0.0})
               for mode in PAD_MODES),
             Case((f32(1, 5, 4, 5),), {"before": (0, 0, 1, -1), "after": (0, 0, -1, 2), "mode": "constant",
                                       "value": 0.0}),
             Case((((3, 4), "float16"),), {"before": (0, 1), "after": (1, 0), "mode": "constant", "value": -1.5}),
             Case((((3, 4), "int64"),), {"before": (1, 1), "after": (0, 0), "mode": "constant", "value": -3}),
             Case((f32(1, 2, 1, 3, 2),), {"before": (1, 0, 2, 1, 1), "after": (1, 1, 0, 2, 1), "mode": "constant",
                                          "value": 0.0}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if not len(attrs.before) == len(attrs.after) == x.rank:
            raise ShapeError(f"{len(attrs.before)} pads for {x.rank} axes")
        shape = tuple(begin + dim + end for begin, dim, end in zip(attrs.before, x.shape, attrs.after, strict=True))
        for begin, dim, end, padded in zip(attrs.before, x.shape, attrs.after, shape, strict=True):
            require_at_most(0, padded, f"pads {attrs.before}, {attrs.after} leave nothing of {shape_text(x.shape)}")
            for amount in (begin, end):
                if not isinstance(amount, int):
                    require_at_most(0, amount, f"pads {attrs.before}, {attrs.after} crop, which has to be known")
            if attrs.mode != "constant" and (begin, end) != (0, 0):
                require_at_most(1, dim, f"mode {attrs.mode} has nothing to repeat on an empty axis")
        return (TensorType(x.dtype, shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        pairs = list(zip(attrs.before, attrs.after, strict=True))
        widths = [(max(begin, 0), max(end, 0)) for begin, end in pairs]
        if attrs.mode != "constant":
            return (np.pad(_crop(x, pairs), widths, mode=attrs.mode),)
        # Cropped last: one side may crop what the other adds.
        return (_crop(np.pad(x, widths, constant_values=np.asarray(attrs.value).astype(x.dtype)), pairs),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        type_ = node.type(0)
        mode = node.attr("mode", "constant")
        run_time_fill = node.inputs[2] if node.has(2) and not node.is_const(2) and mode == "constant" else ""
        if node.opset >= 11:
            axes = None if node.has(3) and not node.is_const(3) else node.const(3, "axes")
            pads = pads_of_run_time_axes(node) if node.has(3) and axes is None else node.inputs[1]
            fill = node.const(2, "constant_value") if mode == "constant" and not run_time_fill else None
            default = node.string_index("") if node.is_string(0) else 0
            fill = default if fill is None else fill.reshape(-1)[0].item()
        else:
            pads, fill, axes = node.constant(np.array(node.attr("pads"))), node.attr("value", 0.0), None
        axes = range(type_.rank) if axes is None else [axis_of(int(a), type_.rank) for a in axes.reshape(-1)]
        added, cropped = read_pads(node, pads, axes)
        before, after = [0] * type_.rank, [0] * type_.rank
        if mode not in PAD_MODES:
            raise MegccError(f"mode '{mode}' is not supported; one of {', '.join(PAD_MODES)}")
        value = node.inputs[0]
        # Negative pads become a slice before the padding.
        for axis, begin, end, first, last in zip(axes, added, added[len(axes):], cropped, cropped[len(axes):],
                                                strict=False):
            before[axis], after[axis] = begin, end
            if (first, last) != (0, 0):
                extent = type_.shape[axis]
                require_at_most(first + last, extent, f"pads crop {first} and {last} of an axis of {extent}")
                value = emit_slice(node, value, axis, first, extent - last)
        if all(dim == 0 for dim in (*before, *after)):
            return (value,)
        amounts = {"before": tuple(before), "after": tuple(after), "mode": mode}
        (result,) = node.emit("pad", (value,), value=fill, **amounts)
        if not run_time_fill:
            return (result,)
        # A value that is known only at run time replaces the elements that are added, where a padded mask is false.
        (is_operand,) = node.emit("expand", (node.constant(np.array(True)),), shape=node.type_of(value).shape)
        (is_operand,) = node.emit("pad", (is_operand,), value=0, **amounts)
        return node.emit("where", (is_operand, result, *node.emit("reshape", (run_time_fill,), shape=())))


@register
class Tile(Operator):
    """ONNX's Tile: repeats x, of any dtype, along each axis. Attribute `repeats`: an entry for each axis."""

    kind = "tile"
    onnx = ("Tile",)
    relax = ("relax.tile",)
    relay = ("tile",)
    cases = (Case((f32(2, 3),), {"repeats": (2, 3)}), Case((f32(1, 3, 1),), {"repeats": (2, 1, 4)}),
             Case((((2, 3), "int64"),), {"repeats": (1, 2)}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        why = f"repeats {attrs.repeats} for {x.rank} axes"
        if len(attrs.repeats) != x.rank:
            raise ShapeError(why)
        for times in attrs.repeats:
            require_at_most(0, times, why)
        return (TensorType(x.dtype, tuple(dim * times for dim, times in zip(x.shape, attrs.repeats, strict=True))),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.tile(x, attrs.repeats),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        shape, declared = node.type(0).shape, node.declared_if_unknown(1)
        if declared is not None and len(declared) == len(shape) and 0 not in shape:
            repeats = tuple(after // before for before, after in zip(shape, declared, strict=True))
        else:
            repeats = node.dims(1, "repeats")
        if all(times == 1 for times in repeats) and len(repeats) == node.type(0).rank:
            return node.inputs[:1]
        return node.emit("tile", node.inputs[:1], repeats=repeats)


def regroup(node: OnnxNode, value: str, split_shape: Sequence[Dim], perm: Sequence[int], shape: Sequence[Dim]) -> str:
    """Emits a reshape to `split_shape`, a transpose by `perm`, and a reshape to `shape`."""
    (value,) = node.emit("reshape", (value,), shape=tuple(split_shape))
    (value,) = node.emit("transpose", (value,), perm=tuple(perm))
    (value,) = node.emit("reshape", (value,), shape=tuple(shape))
    return value


def _image_shape(node: OnnxNode) -> tuple[Dim, Dim, Dim, Dim]:
    """Returns the extents [N, C, H, W] of the first operand."""
    if node.type(0).rank != 4:
        raise ShapeError(f"needs a tensor with 4 axes, not {node.type(0)}")
    return node.type(0).shape


@decomposes("DepthToSpace")
def depth_to_space(node: OnnxNode) -> tuple[str, ...]:
    """Imports DepthToSpace, [N, C, H, W] to [N, C / b², H * b, W * b], with the order of attribute `mode`."""
    n, c, h, w = _image_shape(node)
    b = node.attr("blocksize")
    if b < 1 or (isinstance(c, int) and c % (b * b)):
        raise ShapeError(f"{c} channels do not make blocks of {b} x {b}")
    depth = c // (b * b)
    shape = (n, depth, h * b, w * b)
    # The axes of the result are n, depth, h, b, w, b. DCR (depth, column, row): the depth is the inner axis of C.
    if node.attr("mode", "DCR") == "DCR":
        return (regroup(node, node.inputs[0], (n, b, b, depth, h, w), (0, 3, 4, 1, 5, 2), shape),)
    return (regroup(node, node.inputs[0], (n, depth, b, b, h, w), (0, 1, 4, 2, 5, 3), shape),)


@decomposes("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> tuple[str, ...]:
    """Imports SpaceToDepth, [N, C, H, W] to [N, C * b², H / b, W / b]."""
    n, c, h, w = _image_shape(node)
    b = node.attr("blocksize")
    if b < 1 or any(isinstance(dim, int) and dim % b for dim in (h, w)):
        raise ShapeError(f"{shape_text((h, w))} does not split into blocks of {b} x {b}")
    split_shape = (n, c, h // b, b, w // b, b)
    perm = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return (regroup(node, node.inputs[0], split_shape, perm, (n, c * b * b, h // b, w // b)),)
