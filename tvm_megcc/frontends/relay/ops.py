# SPDX-License-Identifier: Apache-2.0
"""Importers of Relay's operators with attributes. `tvm_common/ops.py` has those that are the same in Relax, `move.py`
those that move elements.

Does not import TVM. An operator without attributes is imported by the `relay` names of its declaration.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError
from ...ops.elementwise import cast_to
from ...ops.rules import axis_of
from ..tvm_common import ops as tvm_ops
from ..tvm_common.node import Importer, TvmNode, Values, importer_of, ints, registers_in
from ..tvm_common.ops import SPATIAL, extreme_index, reduced, require_affine
from . import move, qnn, qnn_functions  # noqa: F401  (the last registers importers)

IMPORTERS: dict[str, Importer] = {**tvm_ops.IMPORTERS, **move.IMPORTERS, **qnn.IMPORTERS}
imports = registers_in(IMPORTERS)

#: Operators of `patterns.py` -> further Relay operators that they match, besides those of the declaration.
MORE_NAMES = {"add": ("nn.bias_add",), "matmul": ("nn.matmul",)}
#: Operators that match only with a constant operand: they add it to channels.
BIASES = ("nn.bias_add",)
#: Prefixes of operators that stay with TVM -> the reason.
LEFT_TO_TVM = {
    "qnn.": "this operator on quantised integers is TVM's",
    "dyn.": "its attributes are computed at run time",
    "vm.": "it is TVM's own", "memory.": "it is TVM's own", "annotation.": "it is TVM's own",
    "nn.deformable_conv2d": "TVM reads elements outside the image as the nearest edge, we read them as 0",
    "on_device": "it is TVM's own", "device_copy": "it is TVM's own", "shape_of": "TVM computes shapes",
}


def importer(name: str) -> Importer | None:
    """Returns the importer of a Relay operator; None if there is none."""
    stays_with_tvm = name not in IMPORTERS and name.startswith(tuple(LEFT_TO_TVM))
    return None if stays_with_tvm else importer_of(name, IMPORTERS, "relay")


def refusal_reason(name: str) -> str:
    """Returns why an operator cannot be imported."""
    return next((reason for prefix, reason in LEFT_TO_TVM.items() if name.startswith(prefix)),
                "there is no kernel for it")


# --- the same operator under another name ----------------------------------------------------------------------

@imports("copy", "annotation.stop_fusion")
def identity(node: TvmNode) -> Values:
    return node.onnx("Identity")


@imports("nn.dropout")
def dropout(node: TvmNode) -> Values:
    """Imports dropout, which is the identity in inference. The second result, the mask, is all ones."""
    mask_type = node.types[1]
    if not mask_type.is_static:
        raise MegccError("a mask whose shape changes")
    return *node.onnx("Identity"), node.constant(np.ones(mask_type.shape), mask_type.dtype)


@imports("clip")
def clip(node: TvmNode) -> Values:
    dtype = node.types[0].dtype
    bounds = [node.constant(_bound(float(bound), dtype), dtype) for bound in (node.attrs.a_min, node.attrs.a_max)]
    return node.onnx("Clip", node.inputs[0], *bounds)


def _bound(bound: float, dtype: str) -> float:
    """Limits a bound, which Relay stores as float64, to the range of a dtype."""
    kind = np.dtype(dtype)
    limits = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
    return min(max(bound, limits.min), limits.max)


@imports("left_shift", "right_shift")
def shift(node: TvmNode) -> Values:
    return (node.emit({"left_shift": "shift_left", "right_shift": "shift_right"}[node.op], *node.inputs),)


@imports("floor_divide")
def floor_divide(node: TvmNode) -> Values:
    if not node.types[0].dtype.startswith("float"):
        raise MegccError(f"a quotient of {node.types[0].dtype} that is rounded down")
    return node.onnx("Floor", *node.onnx("Div"))


@imports("round")
def round_away(node: TvmNode) -> Values:
    """Rounds to the nearest, ties away from zero. ONNX's and Relax's Round take the even number of a tie."""
    dtype = node.types[0].dtype
    magnitude = node.emit("abs", *node.inputs)
    floor = node.emit("floor", magnitude)
    up = node.emit("greater_equal", node.emit("sub", magnitude, floor), node.constant(0.5, dtype))
    (up,) = cast_to(node.onnx_node(inputs=(up,)), up, dtype)
    return (node.emit("mul", node.emit("sign", *node.inputs), node.emit("add", floor, up)),)


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
    """Transposes the last two axes of a value."""
    rank = node.type_of(value).rank
    return node.onnx("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])[0]


# --- windows ---------------------------------------------------------------------------------------------------

#: Relay's global pools -> the ONNX operators.
_GLOBAL_POOLS = {f"nn.global_{mode}_pool{axes}d": op_type for axes in (1, 2, 3)
                 for mode, op_type in (("avg", "GlobalAveragePool"), ("max", "GlobalMaxPool"))}


@imports(*_GLOBAL_POOLS)
def global_pool(node: TvmNode) -> Values:
    layout = str(node.attrs.layout)
    logical = f"NC{SPATIAL[len(layout) - 2]}"
    x = node.transposed(node.inputs[0], layout, logical)
    (y,) = node.onnx(_GLOBAL_POOLS[node.op], x)
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

def _require_axis(node: TvmNode, supported: int) -> None:
    """Refuses an operator whose attribute `axis` is another one than the supported."""
    axis = axis_of(int(node.attrs.axis), node.type_of(node.inputs[0]).rank)
    if axis != supported:
        raise MegccError(f"over axis {axis}: only axis {supported} is supported")


@imports("nn.layer_norm")
def layer_norm(node: TvmNode) -> Values:
    require_affine(node)
    _require_axis(node, node.type_of(node.inputs[0]).rank - 1)
    return node.onnx("LayerNormalization", axis=-1, epsilon=float(node.attrs.epsilon))[:1]


@imports("nn.group_norm")
def group_norm(node: TvmNode) -> Values:
    require_affine(node)
    _require_axis(node, 1)
    return node.onnx("GroupNormalization", num_groups=int(node.attrs.num_groups), epsilon=float(node.attrs.epsilon))


@imports("nn.instance_norm")
def instance_norm(node: TvmNode) -> Values:
    require_affine(node)
    _require_axis(node, 1)
    return node.onnx("InstanceNormalization", epsilon=float(node.attrs.epsilon))


@imports("nn.l2_normalize")
def l2_normalize(node: TvmNode) -> Values:
    (x,) = node.inputs
    squares = reduced(node, "ReduceSum", node.emit("mul", x, x), keepdims=True)
    epsilon = node.constant(float(node.attrs.eps), node.types[0].dtype)
    return (node.emit("div", x, node.emit("sqrt", node.emit("max", squares, epsilon))),)


@imports("nn.lrn")
def lrn(node: TvmNode) -> Values:
    _require_axis(node, 1)
    a = node.attrs
    return node.onnx("LRN", size=int(a.size), alpha=float(a.alpha), beta=float(a.beta), bias=float(a.bias))


@imports("variance")
def variance(node: TvmNode) -> Values:
    """Imports the variance; the mean is an operand."""
    if node.attrs.unbiased:
        raise MegccError("a variance over one less than the number of elements")
    centred = node.emit("sub", *node.inputs)
    return (reduced(node, "ReduceMean", node.emit("mul", centred, centred), bool(node.attrs.keepdims)),)


@imports("argmax", "argmin")
def arg_extreme(node: TvmNode) -> Values:
    a = node.attrs
    axes = tvm_ops.reduction_axes(node)
    (x,) = node.inputs
    last = bool(a.select_last_index)
    if axes is not None and len(axes) > 1:
        raise MegccError(f"an index over axes {axes}")
    if axes is None:
        index = extreme_index(node, node.reshaped(x, (-1,)), 0, keepdims=False, last=last)
        y = node.reshaped(index, node.types[0].shape)
    else:
        y = extreme_index(node, x, axes[0], keepdims=bool(a.keepdims), last=last)
    return cast_to(node.onnx_node(inputs=(y,)), y, node.types[0].dtype)
