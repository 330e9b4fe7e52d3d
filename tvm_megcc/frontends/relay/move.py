# SPDX-License-Identifier: Apache-2.0
"""Importers of Relay operators that reshape, slice, gather, scatter or repeat elements. Does not import TVM."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import MegccError
from ...ops.elementwise import cast_to
from ...ops.rules import END_OF_AXIS, axis_of
from ..tvm_common.node import Importer, TvmNode, Values, ints, is_known, registers_in
from ..tvm_common.ops import scatter_reduction

#: Importers by the names of operators.
IMPORTERS: dict[str, Importer] = {}
imports = registers_in(IMPORTERS)


@imports("reshape")
def reshape(node: TvmNode) -> Values:
    """Imports reshape. If the result's shape is unknown, `newshape` is used, as far as ONNX has the same codes: 0 keeps
    an extent, -1 is inferred."""
    if is_known(node.types[0].shape):
        return (node.reshaped(node.inputs[0], node.types[0].shape),)
    wanted = ints(node.attrs.newshape)
    if min(wanted, default=0) < -1 or node.attrs.allowzero:
        raise MegccError(f"newshape {list(wanted)} of an operand with unknown extents is not supported: only extents, "
                         "0 and -1 are")
    return node.onnx("Reshape", node.inputs[0], node.constant(wanted, "int64"))


@imports("squeeze")
def squeeze(node: TvmNode) -> Values:
    if is_known(node.types[0].shape) or node.attrs.axis is None:
        return (node.reshaped(node.inputs[0], node.types[0].shape),)
    return node.onnx("Squeeze", node.inputs[0], node.constant(ints(node.attrs.axis), "int64"))


@imports("expand_dims")
def expand_dims(node: TvmNode) -> Values:
    shape = node.type_of(node.inputs[0]).shape
    axis = axis_of(int(node.attrs.axis), len(shape) + 1)
    return (node.reshaped(node.inputs[0], [*shape[:axis], *[1] * int(node.attrs.num_newaxis), *shape[axis:]]),)


@imports("nn.batch_flatten")
def batch_flatten(node: TvmNode) -> Values:
    return node.onnx("Flatten", axis=1)


@imports("broadcast_to_like", "reshape_like", "collapse_sum_like")
def like(node: TvmNode) -> Values:
    if node.op == "collapse_sum_like" or (node.op == "reshape_like" and not is_known(node.types[0].shape)):
        raise MegccError("its shape is that of a tensor whose shape changes")
    if node.op == "reshape_like":
        return (node.reshaped(node.inputs[0], node.types[0].shape),)
    return node.onnx("Expand", node.inputs[0], node.extents(node.type_of(node.inputs[1]).shape))


@imports("strided_slice")
def strided_slice(node: TvmNode) -> Values:
    """Imports strided_slice. Without `axes` the first axes are sliced. Missing strides are 1, and an axis for which
    `end` has no entry is kept up to its last element. In mode "size" `end` has extents, -1 for all that remain."""
    a, shape = node.attrs, node.type_of(node.inputs[0]).shape
    begins, ends, steps = ints(a.begin), ints(a.end), ints(a.strides)
    axes = ints(a.axes) if a.axes is not None else tuple(range(len(begins)))
    steps = steps + (1,) * (len(begins) - len(steps))
    if a.slice_mode == "size":
        sizes, steps = ends, (1,) * len(begins)
        ends = tuple(END_OF_AXIS if size < 0 else begin + size for begin, size in zip(begins, sizes, strict=True))
    ends = ends + (END_OF_AXIS,) * (len(begins) - len(ends))
    if any(step < 0 for step in steps) and not all(isinstance(shape[axis], int) for axis in axes):
        raise MegccError("a negative step on an axis of unknown extent")
    return _slice(node, axes, begins, ends, steps)


def _slice(node: TvmNode, axes: Sequence[int], begins, ends, steps) -> Values:
    """Emits a slice with begins, ends and steps by axis."""
    return node.onnx("Slice", node.inputs[0], *(node.constant(values, "int64")
                                                for values in (begins, ends, axes, steps)))


@imports("slice_like")
def slice_like(node: TvmNode) -> Values:
    rank = node.types[0].rank
    axes = [axis_of(axis, rank) for axis in ints(node.attrs.axes or ())] or range(rank)
    ends = [node.types[0].shape[axis] for axis in axes]
    if not is_known(ends):
        raise MegccError("its shape is that of a tensor whose shape changes")
    return _slice(node, list(axes), begins=[0] * len(ends), ends=ends, steps=[1] * len(ends))


@imports("reverse")
def reverse(node: TvmNode) -> Values:
    return _slice(node, axes=[int(node.attrs.axis)], begins=[-1], ends=[-END_OF_AXIS], steps=[-1])


@imports("take")
def take(node: TvmNode) -> Values:
    """Imports take. Mode "clip" clamps indices. In mode "fast" our kernel reports indices out of bounds as an error."""
    x, indices = node.inputs
    a = node.attrs
    if int(a.batch_dims):
        raise MegccError(f"{a.batch_dims} axes of both operands that go together")
    if a.axis is None:
        x = node.reshaped(x, (-1,))
    axis = 0 if a.axis is None else axis_of(int(a.axis), node.type_of(x).rank)
    extent = node.type_of(x).shape[axis]
    if a.mode == "wrap" or (a.mode == "clip" and not isinstance(extent, int)):
        raise MegccError(f"indices of mode '{a.mode}' on an axis of {extent}")
    if a.mode == "clip":
        dtype = node.type_of(indices).dtype
        first, last = (node.constant(bound, dtype) for bound in (0, extent - 1))
        (indices,) = node.onnx("Min", *node.onnx("Max", indices, first), last)
    return node.onnx("Gather", x, indices, axis=axis)


@imports("gather_nd")
def gather_nd(node: TvmNode) -> Values:
    x, indices = node.inputs
    return node.onnx("GatherND", x, _positions_last(node, indices), batch_dims=int(node.attrs.batch_dims))


@imports("scatter_nd")
def scatter_nd(node: TvmNode) -> Values:
    x, indices, updates = node.inputs
    return node.onnx("ScatterND", x, _positions_last(node, indices), updates,
                     reduction=scatter_reduction(node.attrs.mode))


def _positions_last(node: TvmNode, indices: str) -> str:
    """Moves the first axis of indices, where Relay has an element's coordinates, to the end, where ONNX has them."""
    rank = node.type_of(indices).rank
    return node.onnx("Transpose", indices, perm=[*range(1, rank), 0])[0]


@imports("one_hot")
def one_hot(node: TvmNode) -> Values:
    indices, on, off = node.inputs
    values = node.onnx("Concat", *(node.reshaped(value, (1,)) for value in (off, on)), axis=0)[0]
    (y,) = node.onnx("OneHot", indices, node.constant(int(node.attrs.depth), "int64"), values,
                     axis=int(node.attrs.axis))
    return cast_to(node.onnx_node(inputs=(y,)), y, node.types[0].dtype)


#: Modes of padding, which have the same names in ONNX.
_PAD_MODES = ("constant", "reflect", "edge")


@imports("nn.pad")
def pad(node: TvmNode) -> Values:
    x, value = node.inputs
    if node.attrs.pad_mode not in _PAD_MODES:
        raise MegccError(f"pad mode '{node.attrs.pad_mode}' is not supported")
    return node.onnx("Pad", x, _widths(node), value, mode=str(node.attrs.pad_mode))


@imports("nn.mirror_pad")
def mirror_pad(node: TvmNode) -> Values:
    if node.attrs.mode != "REFLECT":
        raise MegccError(f"pad mode '{node.attrs.mode}' is not supported")
    return node.onnx("Pad", node.inputs[0], _widths(node), mode="reflect")


def _widths(node: TvmNode) -> str:
    """Returns Relay's pairs of pads in ONNX's order, all begins and then all ends, as int64."""
    pairs = [ints(pair) for pair in node.attrs.pad_width]
    return node.constant([pair[side] for side in (0, 1) for pair in pairs], "int64")
