# SPDX-License-Identifier: Apache-2.0
"""How Relay spells our operators where it has attributes or operands of its own; `tvm_ops.py` has what Relax spells the
same way.

Nothing here imports TVM. An operator without attributes is imported by the `relay` names of its declaration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import MegccError
from ..ir.types import numpy_dtype
from ..ops.elementwise import cast_to
from ..ops.rules import axis_of
from . import tvm_ops
from .tvm_node import Importer, TvmNode, Values, importer_of, into, ints, is_known
from .tvm_ops import SPATIAL, reduced

IMPORTERS: dict[str, Importer] = dict(tvm_ops.IMPORTERS)
imports = into(IMPORTERS)

#: Further names of what our patterns speak of.
ALSO = {"add": ("nn.bias_add",), "matmul": ("nn.matmul",)}
#: Those that add a constant to channels, and nothing else.
BIASES = ("nn.bias_add",)
#: Operators that are recognised and stay with TVM, by the beginning of their names, and why.
LEFT = {
    "qnn.": "it computes with quantised integers, which TVM does",
    "dyn.": "its attributes are computed at run time",
    "vm.": "it is TVM's own", "memory.": "it is TVM's own", "annotation.": "it is TVM's own",
    "nn.deformable_conv2d": "TVM takes what is beyond an edge for the edge, we for zero",
    "on_device": "it is TVM's own", "device_copy": "it is TVM's own", "shape_of": "TVM knows shapes",
}


def importer(name: str) -> Importer | None:
    """What imports a Relay operator; None if nothing does."""
    left = name not in IMPORTERS and name.startswith(tuple(LEFT))
    return None if left else importer_of(name, IMPORTERS, "relay")


def refused(name: str) -> str:
    """Why nothing imports an operator."""
    return next((reason for prefix, reason in LEFT.items() if name.startswith(prefix)), "there is no kernel for it")


# --- the same operator under another name ----------------------------------------------------------------------

@imports("copy", "annotation.stop_fusion")
def identity(node: TvmNode) -> Values:
    return node.onnx("Identity")


@imports("nn.dropout")
def dropout(node: TvmNode) -> Values:
    """Nothing is dropped where nobody trains. The second result says what was kept: all."""
    kept = node.types[1]
    if not kept.is_static:
        raise MegccError("a mask whose shape changes")
    return *node.onnx("Identity"), node.constant(np.ones(kept.shape), kept.dtype)


@imports("nn.leaky_relu")
def leaky_relu(node: TvmNode) -> Values:
    return node.onnx("LeakyRelu", alpha=float(node.attrs.alpha))


@imports("clip")
def clip(node: TvmNode) -> Values:
    dtype = node.types[0].dtype
    bounds = [node.constant(_bound(float(bound), dtype), dtype) for bound in (node.attrs.a_min, node.attrs.a_max)]
    return node.onnx("Clip", node.inputs[0], *bounds)


def _bound(bound: float, dtype: str) -> float:
    """What an element type can hold of a bound, which Relay keeps as a double."""
    kind = np.dtype(numpy_dtype(dtype))
    limits = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
    return min(max(bound, limits.min), limits.max)


@imports("cast", "cast_like")
def cast(node: TvmNode) -> Values:
    return cast_to(node.spelled(inputs=node.inputs), node.inputs[0], node.types[0].dtype)


@imports("left_shift", "right_shift")
def shift(node: TvmNode) -> Values:
    return (node.emit({"left_shift": "shift_left", "right_shift": "shift_right"}[node.op], *node.inputs),)


@imports("floor_divide")
def floor_divide(node: TvmNode) -> Values:
    if not node.types[0].dtype.startswith("float"):
        raise MegccError(f"a quotient of {node.types[0].dtype} that is rounded down")
    return node.onnx("Floor", *node.onnx("Div"))


@imports("log2", "log10")
def logarithm(node: TvmNode) -> Values:
    factor = 1 / np.log({"log2": 2, "log10": 10}[node.op])
    return node.onnx("Mul", *node.onnx("Log"), node.constant(factor, node.types[0].dtype))


@imports("isfinite")
def is_finite(node: TvmNode) -> Values:
    return node.onnx("Not", *node.onnx("Or", *node.onnx("IsNaN"), *node.onnx("IsInf")))


@imports("zeros_like", "ones_like")
def filled_like(node: TvmNode) -> Values:
    type_ = node.types[0]
    if not type_.is_static:
        raise MegccError("a constant whose shape changes")
    value = {"zeros_like": 0, "ones_like": 1}[node.op]
    return (node.constant(np.full(type_.shape, value), type_.dtype),)


# --- products --------------------------------------------------------------------------------------------------

@imports("nn.bias_add")
def bias_add(node: TvmNode) -> Values:
    x, bias = node.inputs
    rank = node.type_of(x).rank
    axis = axis_of(int(node.attrs.axis), rank)
    return node.onnx("Add", x, node.reshaped(bias, [*node.type_of(bias).shape, *[1] * (rank - axis - 1)]))


@imports("nn.dense")
def dense(node: TvmNode) -> Values:
    x, w = node.inputs
    return node.onnx("MatMul", x, _swapped(node, w))


@imports("nn.matmul", "nn.batch_matmul")
def matmul(node: TvmNode) -> Values:
    a, b = node.inputs
    a = _swapped(node, a) if node.attrs.transpose_a else a
    b = _swapped(node, b) if node.attrs.transpose_b else b
    return node.onnx("MatMul", a, b)


def _swapped(node: TvmNode, value: str) -> str:
    """The value with its last two axes exchanged."""
    rank = node.type_of(value).rank
    return node.onnx("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])[0]


# --- windows ---------------------------------------------------------------------------------------------------

_GLOBAL = {"avg": "GlobalAveragePool", "max": "GlobalMaxPool"}


@imports(*(f"nn.global_{mode}_pool{axes}d" for mode in _GLOBAL for axes in (1, 2, 3)))
def global_pool(node: TvmNode) -> Values:
    layout = str(node.attrs.layout)
    logical = f"NC{SPATIAL[len(layout) - 2]}"
    x = node.transposed(node.inputs[0], layout, logical)
    (y,) = node.onnx(_GLOBAL[node.op.removeprefix("nn.global_")[:3]], x)
    return (node.transposed(y, logical, str(node.attrs.out_layout) or layout),)


@imports("nn.adaptive_max_pool1d", "nn.adaptive_max_pool2d", "nn.adaptive_max_pool3d")
def adaptive_max_pool(node: TvmNode) -> Values:
    layout = str(node.attrs.layout)
    logical = f"NC{SPATIAL[len(layout) - 2]}"
    x = node.transposed(node.inputs[0], layout, logical)
    extents = node.type_of(x).shape[2:]
    wanted = ints(node.attrs.output_size) or extents
    if not all(extent % size == 0 for extent, size in zip(extents, wanted, strict=True)):
        raise MegccError(f"maxima of windows of several sizes, from {extents} to {wanted}")
    kernel = [extent // size for extent, size in zip(extents, wanted, strict=True)]
    (y,) = node.onnx("MaxPool", x, kernel_shape=kernel, strides=kernel)
    return (node.transposed(y, logical, str(node.attrs.out_layout) or layout),)


_UPSAMPLING = {"nearest_neighbor": "nearest", "bilinear": "linear"}


@imports("nn.upsampling")
def upsampling(node: TvmNode) -> Values:
    a = node.attrs
    if a.method not in _UPSAMPLING:
        raise MegccError(f"upsampling by method '{a.method}' is not supported")
    layout = str(a.layout)
    x = node.transposed(node.inputs[0], layout, "NCHW")
    result = dict(zip(layout, node.types[0].shape, strict=True))
    sizes = node.extents([*node.type_of(x).shape[:2], result["H"], result["W"]])
    (y,) = node.onnx("Resize", x, "", "", sizes, mode=_UPSAMPLING[a.method], nearest_mode="floor",
                     coordinate_transformation_mode="align_corners" if a.align_corners else "asymmetric")
    return (node.transposed(y, "NCHW", layout),)


@imports("nn.depth_to_space", "nn.space_to_depth")
def depth_and_space(node: TvmNode) -> Values:
    a = node.attrs
    x = node.transposed(node.inputs[0], a.layout, "NCHW")
    if node.op == "nn.depth_to_space":
        (y,) = node.onnx("DepthToSpace", x, blocksize=int(a.block_size), mode=str(a.mode))
    else:
        (y,) = node.onnx("SpaceToDepth", x, blocksize=int(a.block_size))
    return (node.transposed(y, "NCHW", a.layout),)


# --- normalisation and reduction ---------------------------------------------------------------------------------

def _require_affine(node: TvmNode) -> None:
    if not (node.attrs.center and node.attrs.scale):
        raise MegccError("center and scale cannot be switched off")


def _require_axis(node: TvmNode, wanted: int) -> None:
    axis = axis_of(int(node.attrs.axis), node.type_of(node.inputs[0]).rank)
    if axis != wanted:
        raise MegccError(f"over axis {axis}: only axis {wanted} is supported")


@imports("nn.layer_norm")
def layer_norm(node: TvmNode) -> Values:
    _require_affine(node)
    _require_axis(node, node.type_of(node.inputs[0]).rank - 1)
    return node.onnx("LayerNormalization", axis=-1, epsilon=float(node.attrs.epsilon))[:1]


@imports("nn.group_norm")
def group_norm(node: TvmNode) -> Values:
    _require_affine(node)
    _require_axis(node, 1)
    return node.onnx("GroupNormalization", num_groups=int(node.attrs.num_groups), epsilon=float(node.attrs.epsilon))


@imports("nn.instance_norm")
def instance_norm(node: TvmNode) -> Values:
    _require_affine(node)
    _require_axis(node, 1)
    return node.onnx("InstanceNormalization", epsilon=float(node.attrs.epsilon))


@imports("nn.l2_normalize")
def l2_normalize(node: TvmNode) -> Values:
    (x,) = node.inputs
    squares = reduced(node, "ReduceSum", node.emit("mul", x, x), keepdims=True)
    least = node.constant(float(node.attrs.eps), node.types[0].dtype)
    return (node.emit("div", x, node.emit("sqrt", node.emit("max", squares, least))),)


@imports("nn.lrn")
def lrn(node: TvmNode) -> Values:
    _require_axis(node, 1)
    a = node.attrs
    return node.onnx("LRN", size=int(a.size), alpha=float(a.alpha), beta=float(a.beta), bias=float(a.bias))


@imports("variance")
def variance(node: TvmNode) -> Values:
    """Of values and their mean."""
    if node.attrs.unbiased:
        raise MegccError("a variance over one less than the number of elements")
    centred = node.emit("sub", *node.inputs)
    return (reduced(node, "ReduceMean", node.emit("mul", centred, centred), bool(node.attrs.keepdims)),)


@imports("argmax", "argmin")
def arg_extreme(node: TvmNode) -> Values:
    a = node.attrs
    axes = tvm_ops.reduction_axes(node)
    op_type = {"argmax": "ArgMax", "argmin": "ArgMin"}[node.op]
    (x,) = node.inputs
    last = int(a.select_last_index)
    if axes is not None and len(axes) > 1:
        raise MegccError(f"an index over axes {axes}")
    if axes is None:
        (y,) = node.onnx(op_type, node.reshaped(x, (-1,)), axis=0, keepdims=0, select_last_index=last)
        y = node.reshaped(y, node.types[0].shape)
    else:
        (y,) = node.onnx(op_type, x, axis=axes[0], keepdims=int(a.keepdims), select_last_index=last)
    return cast_to(node.spelled(inputs=(y,)), y, node.types[0].dtype)


@imports("cumprod")
def cumulative_product(node: TvmNode) -> Values:
    axis = node.attrs.axis
    x = node.reshaped(node.inputs[0], (-1,)) if axis is None else node.inputs[0]
    position = node.constant(0 if axis is None else int(axis), "int64")
    return node.onnx("CumProd", x, position, exclusive=int(node.attrs.exclusive or 0))


# --- moving elements ---------------------------------------------------------------------------------------------

@imports("reshape")
def reshape(node: TvmNode) -> Values:
    """Where the result's shape is not known, by Relay's rules as far as ONNX has them: 0 keeps, -1 is the rest."""
    if is_known(node.types[0].shape):
        return (node.reshaped(node.inputs[0], node.types[0].shape),)
    wanted = ints(node.attrs.newshape)
    if min(wanted, default=0) < -1 or node.attrs.allowzero:
        raise MegccError(f"the new shape {wanted} of a tensor whose shape changes")
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
    """Axes that are not named are the first ones; of axes without an end, everything behind the beginning."""
    a, shape = node.attrs, node.type_of(node.inputs[0]).shape
    begins, ends, steps = ints(a.begin), ints(a.end), ints(a.strides)
    axes = ints(a.axes) if a.axes is not None else tuple(range(len(begins)))
    steps = steps + (1,) * (len(begins) - len(steps))
    if a.slice_mode == "size":
        sizes, steps = ends, (1,) * len(begins)
        ends = tuple(_END if size < 0 else begin + size for begin, size in zip(begins, sizes, strict=True))
    ends = ends + (_END,) * (len(begins) - len(ends))
    if any(step < 0 for step in steps) and not all(isinstance(shape[axis], int) for axis in axes):
        raise MegccError("from behind, of a tensor whose shape changes")
    return _slice(node, axes, begins, ends, steps)


_END = 2**31 - 1


def _slice(node: TvmNode, axes: Sequence[int], begins, ends, steps) -> Values:
    return node.onnx("Slice", node.inputs[0], *(node.constant(values, "int64")
                                                for values in (begins, ends, axes, steps)))


@imports("slice_like")
def slice_like(node: TvmNode) -> Values:
    rank = node.types[0].rank
    axes = [axis_of(axis, rank) for axis in ints(node.attrs.axes or ())] or range(rank)
    ends = [node.types[0].shape[axis] for axis in axes]
    if not is_known(ends):
        raise MegccError("its shape is that of a tensor whose shape changes")
    return _slice(node, list(axes), [0] * len(ends), ends, [1] * len(ends))


@imports("reverse")
def reverse(node: TvmNode) -> Values:
    return _slice(node, [int(node.attrs.axis)], [-1], [-2**31], [-1])


@imports("take")
def take(node: TvmNode) -> Values:
    """Mode "clip" brings indices into range as TVM does; "fast" leaves the error to our kernel."""
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
        least, most = (node.constant(bound, dtype) for bound in (0, extent - 1))
        (indices,) = node.onnx("Min", *node.onnx("Max", indices, least), most)
    return node.onnx("Gather", x, indices, axis=axis)


@imports("gather")
def gather(node: TvmNode) -> Values:
    return node.onnx("GatherElements", axis=int(node.attrs.axis))


@imports("gather_nd")
def gather_nd(node: TvmNode) -> Values:
    x, indices = node.inputs
    return node.onnx("GatherND", x, _positions_last(node, indices), batch_dims=int(node.attrs.batch_dims))


@imports("scatter_nd")
def scatter_nd(node: TvmNode) -> Values:
    x, indices, updates = node.inputs
    return node.onnx("ScatterND", x, _positions_last(node, indices), updates, reduction=_reduction(node.attrs.mode))


@imports("scatter_elements")
def scatter_elements(node: TvmNode) -> Values:
    return node.onnx("ScatterElements", axis=int(node.attrs.axis), reduction=_reduction(node.attrs.reduction))


def _positions_last(node: TvmNode, indices: str) -> str:
    """Relay has the coordinates of a position on the first axis, ONNX on the last."""
    rank = node.type_of(indices).rank
    return node.onnx("Transpose", indices, perm=[*range(1, rank), 0])[0]


def _reduction(mode: str) -> str:
    if mode not in ("update", "add", "mul", "min", "max"):
        raise MegccError(f"updates of mode '{mode}' are not supported")
    return {"update": "none"}.get(mode, str(mode))


@imports("one_hot")
def one_hot(node: TvmNode) -> Values:
    indices, on, off = node.inputs
    values = node.onnx("Concat", *(node.reshaped(value, (1,)) for value in (off, on)), axis=0)[0]
    (y,) = node.onnx("OneHot", indices, node.constant(int(node.attrs.depth), "int64"), values,
                     axis=int(node.attrs.axis))
    return cast_to(node.spelled(inputs=(y,)), y, node.types[0].dtype)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


@imports("nn.pad")
def pad(node: TvmNode) -> Values:
    x, value = node.inputs
    if node.attrs.pad_mode not in _PAD_MODES:
        raise MegccError(f"pad mode '{node.attrs.pad_mode}' is not supported")
    return node.onnx("Pad", x, _widths(node), value, mode=_PAD_MODES[node.attrs.pad_mode])


@imports("nn.mirror_pad")
def mirror_pad(node: TvmNode) -> Values:
    if node.attrs.mode != "REFLECT":
        raise MegccError(f"pad mode '{node.attrs.mode}' is not supported")
    return node.onnx("Pad", node.inputs[0], _widths(node), mode="reflect")


def _widths(node: TvmNode) -> str:
    pairs = [ints(pair) for pair in node.attrs.pad_width]
    return node.constant([pair[side] for side in (0, 1) for pair in pairs], "int64")


@imports("tile")
def tile(node: TvmNode) -> Values:
    repeats, shape = ints(node.attrs.reps), node.type_of(node.inputs[0]).shape
    rank = max(len(repeats), len(shape))
    x = node.reshaped(node.inputs[0], (1,) * (rank - len(shape)) + shape)
    return node.onnx("Tile", x, node.constant((1,) * (rank - len(repeats)) + repeats, "int64"))


@imports("repeat")
def repeat(node: TvmNode) -> Values:
    """Each element several times: a new axis that is broadcast and joined with the one before it."""
    shape = node.type_of(node.inputs[0]).shape
    axis, times = axis_of(int(node.attrs.axis), len(shape)), int(node.attrs.repeats)
    unit = node.reshaped(node.inputs[0], [*shape[:axis + 1], 1, *shape[axis + 1:]])
    (y,) = node.onnx("Expand", unit, node.extents([*shape[:axis + 1], times, *shape[axis + 1:]]))
    return (node.reshaped(y, [*shape[:axis], shape[axis] * times, *shape[axis + 1:]]),)
