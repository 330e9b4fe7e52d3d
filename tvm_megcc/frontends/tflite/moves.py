# SPDX-License-Identifier: Apache-2.0
"""Imports operators that move elements. Axes are those of the file, whatever order the operand's value has them in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tflite

from ...errors import ShapeError
from ...ir.dims import Dim, floordiv, product, static
from ...ops.rules import END_OF_AXIS, axis_of, broadcast
from ...ops.tensor.move import regroup
from .node import Node, Results, imports
from .value import Value, plain


@imports("RESHAPE")
def reshape(node: Node) -> Results:
    """Reshapes to the second operand or, without one, to the shape in the options; -1 is inferred."""
    value = node.value(0)
    target = list(node.dims(1, "shape") if node.has(1) else
                  (int(extent) for extent in node.option("NewShape", np.zeros(0, np.int32))))
    if -1 in target:
        rest = product(extent for index, extent in enumerate(target) if index != target.index(-1))
        size = product(value.type.shape)
        if rest == 0 or (isinstance(rest, int) and isinstance(size, int) and size % rest):
            raise ShapeError(f"{value.type} cannot have shape {target}")
        target[target.index(-1)] = floordiv(size, rest)
    return [node.reshaped(value, target)]


@imports("DENSIFY")
def densify(node: Node) -> Results:
    """Returns the operand, since `file` reads sparse constants as dense ones."""
    return [node.value(0)]


@imports("EXPAND_DIMS")
def expand_dims(node: Node) -> Results:
    shape = list(node.type(0).shape)
    shape.insert(axis_of(node.number(1, "axis"), len(shape) + 1), 1)
    return [node.reshaped(node.value(0), shape)]


@imports("SQUEEZE")
def squeeze(node: Node) -> Results:
    shape = node.type(0).shape
    axes = [axis_of(int(axis), len(shape)) for axis in node.option("SqueezeDims", np.zeros(0, np.int32))]
    axes = axes or [axis for axis, extent in enumerate(shape) if extent == 1]
    return [node.without_axes(node.value(0), axes)]


@imports("TRANSPOSE")
def transpose(node: Node) -> Results:
    """Renumbers the axes without moving elements; an operator that needs another order transposes then."""
    value, perm = node.value(0), node.const(1, "perm").reshape(-1).tolist()
    rank = len(value.order)
    if sorted(axis + rank if axis < 0 else axis for axis in perm) != list(range(rank)):
        raise ShapeError(f"perm {perm} is no permutation of the axes of {value.type}")
    perm = [axis % rank for axis in perm]
    if value.is_constant:
        return [node.in_order(value, tuple(perm))]
    return [node.as_value(value.name, tuple(perm.index(axis) for axis in value.order))]


@imports("CONCATENATION", fused=True)
def concatenation(node: Node) -> Results:
    axis = axis_of(node.option("Axis"), len(node.value(0).order))
    return [joined(node, node.values, axis)]


def joined(node: Node, values: Sequence[Value], axis: int) -> Value:
    """Concatenates values along an axis."""
    ranks = {len(value.order) for value in values}
    if len(ranks) != 1:
        raise ShapeError("its operands have different numbers of axes")
    return node.in_common_order(values, lambda names, order: node.onnx("Concat", *names, axis=order.index(axis))[0])


@imports("PACK")
def pack(node: Node) -> Results:
    """Stacks the operands along a new axis."""
    shape = list(node.type(0).shape)
    axis = axis_of(node.option("Axis", 0), len(shape) + 1)
    shape.insert(axis, 1)
    return [joined(node, [node.reshaped(value, shape) for value in node.values], axis)]


@imports("UNPACK")
def unpack(node: Node) -> Results:
    value = node.value(0)
    axis = axis_of(node.option("Axis", 0), len(value.order))
    if value.type.shape[axis] != len(node.results):
        raise ShapeError(f"axis {axis} of {value.type} for {len(node.results)} results")
    return [node.without_axes(part, (axis,)) for part in parts(node, value, axis, [1] * len(node.results))]


def parts(node: Node, value: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    """Splits a value along an axis into parts of these sizes."""
    extents = node.builder.shape_constant(sizes, f"{node.name}.sizes")
    names = node.onnx("Split", value.name, extents, outputs=len(sizes), axis=value.order.index(axis))
    return [node.as_value(name, value.order) for name in names]


@imports("SPLIT")
def split(node: Node) -> Results:
    """Operands: axis, x."""
    value = node.value(1)
    axis, count = axis_of(node.number(0, "axis"), len(value.order)), len(node.results)
    extent = value.type.shape[axis]
    if not isinstance(extent, int) or extent % count:
        raise ShapeError(f"axis {axis} of {value.type} in {count} equal parts")
    return parts(node, value, axis, [extent // count] * count)


@imports("SPLIT_V")
def split_by_sizes(node: Node) -> Results:
    """Operands: x, sizes (one may be -1, which is inferred), axis."""
    value, sizes = node.value(0), list(node.dims(1, "size_splits"))
    axis = axis_of(node.number(2, "axis"), len(value.order))
    if len(sizes) != len(node.results):
        raise ShapeError(f"sizes {sizes} for {len(node.results)} results")
    if -1 in sizes:
        inferred = sizes.index(-1)
        sizes[inferred] = value.type.shape[axis] - sum(size for index, size in enumerate(sizes) if index != inferred)
    return parts(node, value, axis, sizes)


@imports("PAD", "PADV2")
def pad(node: Node) -> Results:
    return [padded(node, 0)]


def padded(node: Node, fill: float) -> Value:
    """Pads the operand with the operator's third operand or, without one, with `fill`."""
    value, pads = node.value(0), _pads(node)
    if node.has(2) and not node.value(2).is_constant:
        return _padded_at_run_time(node, value, pads)
    fill = node.const(2, "constant_values").reshape(-1)[0].item() if node.has(2) else fill
    before, after = ([pads[axis][side] for axis in value.order] for side in (0, 1))
    if all(amount == 0 for amount in (*before, *after)):
        return value
    return node.as_value(node.emit("pad", value.name, before=tuple(before), after=tuple(after), mode="constant",
                                   value=fill), value.order)


def _padded_at_run_time(node: Node, value: Value, pads: Sequence[tuple[int, int]]) -> Value:
    """Pads with a number that is computed at run time, by concatenating tensors filled with it."""
    name, number = node.in_order(value), node.emit("reshape", node.plain(2), shape=(1,) * len(pads))
    for axis, amounts in enumerate(pads):
        shape = node.type_of(name).shape
        rows = [node.emit("expand", number, shape=(*shape[:axis], amount, *shape[axis + 1:])) if amount else ""
                for amount in amounts]
        parts = [part for part in (rows[0], name, rows[1]) if part]
        name = node.emit("concat", *parts, axis=axis) if len(parts) > 1 else name
    return node.as_value(name)


def _pads(node: Node) -> list[tuple[int, int]]:
    """Returns the padding before and after each axis."""
    pads = node.const(1, "paddings").astype(np.int64)
    if pads.shape != (len(node.value(0).order), 2) or pads.min(initial=0) < 0:
        raise ShapeError(f"paddings {pads.tolist()} of {node.type(0)}")
    return [(begin, end) for begin, end in pads.tolist()]


@imports("MIRROR_PAD")
def mirror_pad(node: Node) -> Results:
    """Pads with mirrored elements at each end, without repeating the edge (REFLECT) or with it (SYMMETRIC)."""
    value, pads = node.value(0), _pads(node)
    if node.option("Mode") == tflite.MirrorPadMode.REFLECT:
        before, after = (tuple(pads[axis][side] for axis in value.order) for side in (0, 1))
        for axis, (begin, end) in enumerate(pads):
            extent = value.type.shape[axis]
            if isinstance(extent, int) and max(begin, end) >= max(extent, 1):
                raise ShapeError(f"reflects {max(begin, end)} elements of an axis of {extent}")
        return [node.as_value(node.emit("pad", value.name, before=before, after=after, mode="reflect", value=0),
                              value.order)]
    name, shape = value.name, value.type.shape
    for axis, (begin, end) in enumerate(pads):
        extent = shape[axis]
        if not isinstance(extent, int) or max(begin, end) > extent:
            raise ShapeError(f"reverses {max(begin, end)} elements of an axis of {extent}")
        if begin or end:
            node.require_budget(extent + begin + end)
            indices = np.concatenate([np.arange(begin)[::-1], np.arange(extent), extent - 1 - np.arange(end)])
            name = node.emit("gather", name, node.constant(indices, "int32"), axis=value.order.index(axis))
    return [node.as_value(name, value.order)]


@imports("TILE")
def tile(node: Node) -> Results:
    value, repeats = node.value(0), node.dims(1, "multiples")
    if len(repeats) != len(value.order):
        raise ShapeError(f"multiples {repeats} of {value.type}")
    wanted = node.builder.shape_constant([repeats[axis] for axis in value.order], f"{node.name}.repeats")
    return [node.as_value(node.onnx("Tile", value.name, wanted)[0], value.order)]


@imports("BROADCAST_TO")
def broadcast_to(node: Node) -> Results:
    return node.onnx("Expand", node.plain(0), node.plain(1))


@imports("SLICE")
def slice_(node: Node) -> Results:
    """Operands: x, begin, size; a size of -1 means up to the end of the axis."""
    value, begins, sizes = node.value(0), node.dims(1, "begin"), node.dims(2, "size")
    shape = value.type.shape
    if not len(begins) == len(sizes) == len(shape):
        raise ShapeError(f"begin {begins} and size {sizes} of {value.type}")
    for begin, size, extent in zip(begins, sizes, shape, strict=True):
        if (known := static((begin, size, extent))) is None:
            continue
        first, count, remaining = known
        if not (0 <= first <= remaining and -1 <= count <= remaining - first):
            raise ShapeError(f"begin {begins} and size {sizes} of {value.type}")
    ends = [END_OF_AXIS if size == -1 else begin + size for begin, size in zip(begins, sizes, strict=True)]
    return [sliced(node, value, begins, ends, [1] * len(shape))]


def sliced(node: Node, value: Value, starts: Sequence[Dim], ends: Sequence[Dim], steps: Sequence[int]) -> Value:
    """Slices a value; starts, ends and steps have an entry for each axis of the tensor."""
    def dims_tensor(dims: Sequence[Dim], what: str) -> str:
        return node.builder.shape_constant([dims[axis] for axis in value.order], f"{node.name}.{what}")

    axes = node.builder.shape_constant(list(range(len(value.order))), f"{node.name}.axes")
    (name,) = node.onnx("Slice", value.name, dims_tensor(starts, "starts"), dims_tensor(ends, "ends"), axes,
                        dims_tensor(steps, "steps"))
    return node.as_value(name, value.order)


@imports("STRIDED_SLICE")
def strided_slice(node: Node) -> Results:
    """Slices as Python's x[begin:end:stride, …]. Bit `entry` of a mask says that the entry is open at the beginning or
    end, is `...` or None (a new axis), or is a single index, whose axis is removed."""
    value = node.value(0)
    begins, ends, steps = (node.dims(index, what) for index, what in ((1, "begin"), (2, "end"), (3, "strides")))
    if node.option("Offset", default=False):
        ends = tuple(begin + size for begin, size in zip(begins, ends, strict=True))
    entries, shape = len(begins), value.type.shape
    masks = {name: [bool(node.option(f"{name}Mask", 0) >> entry & 1) for entry in range(entries)]
           for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    ellipsis = [entry for entry in range(entries) if masks["Ellipsis"][entry]] or [entries]
    if len(ends) != entries or len(steps) != entries or len(ellipsis) > 1:
        raise ShapeError(f"begin {begins}, end {ends} and strides {steps} do not belong together")
    sliced_axes = sum(entry not in ellipsis and not masks["NewAxis"][entry] for entry in range(entries))
    if sliced_axes > len(shape):
        raise ShapeError(f"{sliced_axes} slices of {value.type}")
    slices: list[tuple[Dim, Dim, int]] = []
    result: list[Dim | None] = []  # extents; None: that of the next sliced axis; -1: the next sliced axis is removed
    # Without `...` in the file, one stands after the last entry: the axes that no entry names are kept.
    for entry in range(max(entries, ellipsis[0] + 1)):
        if entry == ellipsis[0]:
            rest = len(shape) - sliced_axes
            slices += [(0, END_OF_AXIS, 1)] * rest
            result += [None] * rest
        elif masks["NewAxis"][entry]:
            result.append(1)
        else:
            axis_slice, stays = _slice_of_axis(node, entry, begins, ends, steps, masks, shape[len(slices)])
            slices.append(axis_slice)
            result.append(None if stays else -1)
    sliced_value = sliced(node, value, *zip(*slices, strict=True)) if slices else value
    kept_extents = iter(sliced_value.type.shape)
    extents: list[Dim] = []
    for extent in result:
        if extent is None:
            extents.append(next(kept_extents))
        elif extent == -1:
            next(kept_extents)
        else:
            extents.append(extent)
    return [node.reshaped(sliced_value, extents)]


def _slice_of_axis(node: Node, entry: int, begins, ends, steps, masks, extent: Dim
                   ) -> tuple[tuple[Dim, Dim, int], bool]:
    """Returns (start, end, step) of one entry, and whether its axis is kept."""
    start, step = begins[entry], steps[entry]
    if not isinstance(step, int) or step == 0:
        raise ShapeError(f"stride {step}")
    if masks["ShrinkAxis"][entry]:
        start = 0 if masks["Begin"][entry] else start
        if isinstance(start, int) and start < 0:
            start = extent + start
        if isinstance(start, int) and isinstance(extent, int) and not 0 <= start < extent:
            raise ShapeError(f"index {begins[entry]} of an axis of {extent}")
        return (start, start + 1, 1), False
    if masks["Begin"][entry]:
        start = 0 if step > 0 else END_OF_AXIS
    end = (END_OF_AXIS if step > 0 else -END_OF_AXIS) if masks["End"][entry] else ends[entry]
    if isinstance(start, int) and isinstance(end, int) and isinstance(extent, int) and \
            not range(*slice(start, end, step).indices(extent)):
        return (0, 0, 1), True  # empty; ONNX would clamp the start to the first element
    return (start, end, step), True


@imports("REVERSE_V2")
def reverse(node: Node) -> Results:
    value = node.value(0)
    axes = node.axes(1, len(value.order))
    reversed_axes = [axis in axes for axis in range(len(value.order))]
    return [sliced(node, value, [END_OF_AXIS if is_reversed else 0 for is_reversed in reversed_axes],
                   [-END_OF_AXIS if is_reversed else END_OF_AXIS for is_reversed in reversed_axes],
                   [-1 if is_reversed else 1 for is_reversed in reversed_axes])]


@imports("REVERSE_SEQUENCE")
def reverse_sequence(node: Node) -> Results:
    return node.onnx("ReverseSequence", node.plain(0), node.plain(1), time_axis=node.option("SeqDim"),
                     batch_axis=node.option("BatchDim", 0))


# --- shapes ----------------------------------------------------------------------------------------------------------

@imports("SHAPE")
def shape_of(node: Node) -> Results:
    return _shape(node, node.type(0).shape)


@imports("BROADCAST_ARGS")
def broadcast_args(node: Node) -> Results:
    """Returns the shape that two shapes, the operands, broadcast to."""
    return _shape(node, broadcast(node.dims(0, "shape"), node.dims(1, "shape")))


def _shape(node: Node, shape: Sequence[Dim]) -> Results:
    """Returns a shape as a result of the type that the file declares."""
    name = node.builder.shape_constant(list(shape), f"{node.name}.shape")
    return [name if node.results[0].dtype == "int64" else node.emit("cast", name, dtype="int32")]


@imports("RANK")
def rank_of(node: Node) -> Results:
    return [node.constant(len(node.value(0).order), "int32")]


@imports("FILL")
def fill(node: Node) -> Results:
    """Operands: shape, value."""
    return node.onnx("Expand", node.plain(1), node.builder.shape_constant(node.dims(0, "dims"), f"{node.name}.shape"))


@imports("RANGE")
def range_(node: Node) -> Results:
    return node.onnx("Range", *(node.emit("reshape", node.plain(index), shape=()) for index in range(3)))


# --- space to batch and back --------------------------------------------------------------------------------------

@imports("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> Results:
    return [space_in_batch(node, 0)]


def space_in_batch(node: Node, fill: float) -> str:
    """Imports SPACE_TO_BATCH_ND. Operands: x [N, spatial…, rest…], block [M], paddings [M, 2].

    Each of the M spatial axes is split into (extent / block, block), and the second parts move to the front into N.
    The padding is filled with `fill`.
    """
    block, pads = _block(node)
    rank, axes = len(node.value(0).order), len(block)
    x = node.plain(0)
    if pads.any():
        before, after = (tuple(pads[:, side].tolist()) for side in (0, 1))
        unpadded = (0,) * (rank - 1 - axes)
        x = node.emit("pad", x, before=(0, *before, *unpadded), after=(0, *after, *unpadded), mode="constant",
                      value=fill)
    batch, *extents = node.type_of(x).shape
    spatial, rest = extents[:axes], extents[axes:]
    if any(isinstance(extent, int) and extent % size for extent, size in zip(spatial, block, strict=True)):
        raise ShapeError(f"{node.type_of(x)} does not split into blocks of {block}")
    counts = [floordiv(extent, size) for extent, size in zip(spatial, block, strict=True)]
    split_extents = [extent for pair in zip(counts, block, strict=True) for extent in pair]
    block_axes = [2 + 2 * axis for axis in range(axes)]  # in [batch, count, block, count, block, …, rest…]
    perm = [*block_axes, 0, *(axis - 1 for axis in block_axes), *range(1 + 2 * axes, 1 + 2 * axes + len(rest))]
    return regroup(node.onnx_node(), x, (batch, *split_extents, *rest), perm,
                   (product((batch, *block)), *counts, *rest))


@imports("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> Results:
    """Operands: x, block [M], crops [M, 2]. It is the reverse of SPACE_TO_BATCH_ND, followed by cropping."""
    block, crops = _block(node)
    axes = len(block)
    batch, *extents = node.type(0).shape
    spatial, rest = extents[:axes], extents[axes:]
    blocks = product(block)
    if isinstance(batch, int) and batch % blocks:
        raise ShapeError(f"{node.type(0)} does not hold blocks of {block}")
    images = floordiv(batch, blocks)
    count_and_block_axes = [source for axis in range(axes) for source in (axes + 1 + axis, axis)]
    perm = [axes, *count_and_block_axes, *range(1 + 2 * axes, 1 + 2 * axes + len(rest))]
    result_extents = [extent * size for extent, size in zip(spatial, block, strict=True)]
    y = regroup(node.onnx_node(), node.plain(0), (*block, images, *spatial, *rest), perm,
                (images, *result_extents, *rest))
    starts = [0, *crops[:, 0].tolist(), *(0 for _ in rest)]
    ends = [END_OF_AXIS, *(extent - crop for extent, crop in zip(result_extents, crops[:, 1].tolist(), strict=True)),
            *(END_OF_AXIS for _ in rest)]
    return [sliced(node, node.as_value(y, plain(len(starts))), starts, ends, [1] * len(starts))]


def _block(node: Node) -> tuple[list[int], np.ndarray]:
    """Returns the M extents of a block (operand 1), and the padding or cropping at both ends of each of its axes, int64
    [M, 2] (operand 2)."""
    block = node.const(1, "block_shape").reshape(-1).tolist()
    ends = node.const(2, "paddings").astype(np.int64)
    fits = 0 < len(block) < len(node.value(0).order) and ends.shape == (len(block), 2)
    if not fits or min(block) < 1 or ends.min() < 0:
        raise ShapeError(f"blocks of {block}, with {ends.tolist()} at the ends, of {node.type(0)}")
    return block, ends
