# SPDX-License-Identifier: Apache-2.0
"""Importers of operators whose attributes have the same names in Relax and Relay.

Most of them rewrite the call as an ONNX node (`node.onnx`), so that one importer serves all front ends.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError
from ...ops.elementwise import cast_to
from ...ops.rules import axis_of
from ...ops.vision.resample import adaptive_means
from .node import Importer, TvmNode, Values, ints, registers_in

#: Importers by the operators' names, without the prefix "relax." of Relax.
IMPORTERS: dict[str, Importer] = {}
imports = registers_in(IMPORTERS)


# --- the same operator under another name ----------------------------------------------------------------------------

#: TVM's name -> the ONNX operator with the same operands and results.
_RENAMED = {"power": "Pow", "isnan": "IsNaN", "isinf": "IsInf", "where": "Where", "nn.gelu": "Gelu"}


def _as_onnx(op_type: str) -> Importer:
    return lambda node: node.onnx(op_type)


for _name, _op_type in _RENAMED.items():
    imports(_name)(_as_onnx(_op_type))


@imports("matmul")
def matmul(node: TvmNode) -> Values:
    return node.onnx("MatMul", *node.widened_inputs())


@imports("nn.leakyrelu", "nn.leaky_relu")   # the second name is Relay's
def leaky_relu(node: TvmNode) -> Values:
    return node.onnx("LeakyRelu", alpha=float(node.attrs.alpha))


@imports("nn.prelu")
def prelu(node: TvmNode) -> Values:
    x = node.type_of(node.inputs[0])
    axis = axis_of(int(node.attrs.axis), x.rank)
    slope = node.reshaped(node.inputs[1], [-1 if index == axis else 1 for index in range(axis, x.rank)])
    return node.onnx("PRelu", node.inputs[0], slope)


@imports("mod")
def truncated_mod(node: TvmNode) -> Values:
    return node.onnx("Mod", fmod=1)


@imports("floor_mod")
def floor_mod(node: TvmNode) -> Values:
    return node.onnx("Mod", fmod=0)


@imports("not_equal")
def not_equal(node: TvmNode) -> Values:
    return node.onnx("Not", *node.onnx("Equal"))


@imports("square")
def square(node: TvmNode) -> Values:
    return (node.emit("mul", node.inputs[0], node.inputs[0]),)


@imports("astype", "cast", "cast_like")   # the last two are Relay's
def cast(node: TvmNode) -> Values:
    return cast_to(node.onnx_node(inputs=node.inputs), node.inputs[0], node.types[0].dtype)


# --- windows ---------------------------------------------------------------------------------------------------------

#: Number of spatial axes -> their letters in TVM's layouts.
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def pads_of(padding, axes: int) -> tuple[int, ...]:
    """Returns ONNX pads, all begins and then all ends.

    Args:
        padding: TVM's pads: all begins and ends, one number for both ends of an axis, or one number for all axes.
        axes: the number of spatial axes.
    """
    pads = ints(padding)
    if len(pads) == 1:
        return pads * (2 * axes)
    return pads * 2 if len(pads) == axes else pads


@imports(*(f"nn.conv{axes}d{suffix}" for axes in (1, 2, 3) for suffix in ("", "_transpose")))
def conv(node: TvmNode) -> Values:
    a = node.attrs
    transposed, spatial = node.op.endswith("_transpose"), SPATIAL[len(a.strides)]
    x, w = node.widened_inputs()
    x = node.transposed(x, a.data_layout, f"NC{spatial}")
    w = node.transposed(w, a.kernel_layout, ("IO" if transposed else "OI") + spatial)
    output_padding = {"output_padding": ints(a.output_padding)} if transposed else {}
    (y,) = node.onnx("ConvTranspose" if transposed else "Conv", x, w, strides=ints(a.strides),
                     pads=pads_of(a.padding, len(a.strides)), dilations=ints(a.dilation), group=int(a.groups),
                     **output_padding)
    return (node.transposed(y, f"NC{spatial}", a.out_layout or a.data_layout),)


@imports(*(f"nn.{mode}_pool{axes}d" for mode in ("max", "avg") for axes in (1, 2, 3)))
def pool(node: TvmNode) -> Values:
    a = node.attrs
    average = "avg" in node.op
    if average and a.ceil_mode and a.count_include_pad:
        raise MegccError("count_include_pad with ceil_mode: TVM divides by another number of elements than tvm_megcc")
    logical = f"NC{SPATIAL[len(a.strides)]}"
    x = node.transposed(node.inputs[0], a.layout, logical)
    (y,) = node.onnx("AveragePool" if average else "MaxPool", x, kernel_shape=ints(a.pool_size),
                     strides=ints(a.strides), pads=pads_of(a.padding, len(a.strides)), dilations=ints(a.dilation),
                     ceil_mode=int(a.ceil_mode), count_include_pad=int(average and a.count_include_pad))
    return (node.transposed(y, logical, a.out_layout or a.layout),)


@imports("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def adaptive_average_pool(node: TvmNode) -> Values:
    a = node.attrs
    logical = f"NC{SPATIAL[len(a.layout) - 2]}"
    x = node.transposed(node.inputs[0], a.layout, logical)
    extents = node.type_of(x).shape[2:]
    wanted = ints(a.output_size) if a.output_size is not None else extents
    if set(wanted) == {1}:
        (y,) = node.onnx("GlobalAveragePool", x)  # it takes symbolic extents as well
    elif all(extent % size == 0 for extent, size in zip(extents, wanted, strict=True)):
        kernel = [extent // size for extent, size in zip(extents, wanted, strict=True)]
        (y,) = node.onnx("AveragePool", x, kernel_shape=kernel, strides=kernel)
    else:
        y = x
        for axis, size in enumerate(wanted, 2):
            y = adaptive_means(node.onnx_node(), y, axis, size)
    return (node.transposed(y, logical, a.out_layout or a.layout),)


def rounding_of(attrs) -> str:
    """Returns the rounding method for the position of the nearest element."""
    return attrs.rounding_method or ("round" if attrs.coordinate_transformation_mode == "align_corners" else "floor")


_RESIZE_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}


@imports("image.resize1d", "image.resize2d", "image.resize3d")
def resize(node: TvmNode) -> Values:
    a = node.attrs
    logical = f"NC{SPATIAL[len(a.layout) - 2]}"
    x = node.transposed(node.inputs[0], a.layout, logical)
    result = dict(zip(a.layout, node.types[0].shape, strict=True))
    sizes = node.extents([*node.type_of(x).shape[:2], *(result[axis] for axis in logical[2:])])
    coordinates = a.coordinate_transformation_mode
    if coordinates in ("tf_half_pixel_for_nn", "tf_crop_and_resize"):
        raise MegccError(f"coordinate_transformation_mode {coordinates} is not supported")
    rounding = "round_prefer_ceil" if rounding_of(a) == "round" else rounding_of(a)
    (y,) = node.onnx("Resize", x, "", "", sizes, mode=_RESIZE_METHODS.get(a.method, a.method),
                     coordinate_transformation_mode=coordinates, nearest_mode=rounding,
                     cubic_coeff_a=float(a.cubic_alpha), exclude_outside=int(a.cubic_exclude and a.method == "cubic"))
    return (node.transposed(y, logical, a.layout),)


@imports("image.grid_sample")
def grid_sample(node: TvmNode) -> Values:
    """Imports grid_sample. TVM's grid is [N, 2, H, W], ONNX's [N, H, W, 2]."""
    a = node.attrs
    if a.method == "bicubic" and a.padding_mode != "zeros":
        raise MegccError(f"TVM applies padding '{a.padding_mode}' to neighbours only, we to their centre, too")
    x, grid = node.inputs
    logical = f"NC{SPATIAL[len(a.layout) - 2]}"
    rank = node.type_of(grid).rank
    grid = node.onnx("Transpose", grid, perm=[0, *range(2, rank), 1])[0]
    (y,) = node.onnx("GridSample", node.transposed(x, a.layout, logical), grid, mode=a.method,
                     padding_mode=a.padding_mode, align_corners=int(a.align_corners))
    return (node.transposed(y, logical, a.layout),)


def _split_regions(node: TvmNode) -> tuple[str, str]:
    """Splits TVM's regions of interest, rows [image, x1, y1, x2, y2], into int64 image indices [n] and corners [n, 4].
    """
    onnx_node = node.onnx_node()
    image, corners = (onnx_node.emit("slice", node.inputs[1:2], axes=(1,), starts=(start,), ends=(end,), steps=(1,))[0]
                      for start, end in ((0, 1), (1, 5)))
    return node.reshaped(cast_to(onnx_node, image, "int64")[0], node.type_of(image).shape[:1]), corners


@imports("vision.roi_align")
def roi_align(node: TvmNode) -> Values:
    a = node.attrs
    image, corners = _split_regions(node)
    if a.mode != "avg":
        raise MegccError("TVM's maxima are of samples, ours of their weighted neighbours")
    aligned = getattr(a, "aligned", False)  # only Relax has it
    if aligned:
        # ONNX's half_pixel also shifts regions by half a pixel; TVM's flag only allows them to be smaller than a pixel.
        dtype = node.type_of(corners).dtype
        corners = node.emit("add", corners, node.constant(0.5 / float(a.spatial_scale), dtype))
    height, width = ints(a.pooled_size)
    (y,) = node.onnx("RoiAlign", node.transposed(node.inputs[0], a.layout, "NCHW"), corners, image,
                     output_height=height, output_width=width, spatial_scale=float(a.spatial_scale),
                     sampling_ratio=max(int(a.sample_ratio), 0), mode="avg",
                     coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel")
    return (node.transposed(y, "NCHW", a.layout),)


@imports("vision.roi_pool")
def roi_pool(node: TvmNode) -> Values:
    a = node.attrs
    x = node.transposed(node.inputs[0], a.layout, "NCHW")
    (y,) = node.onnx("MaxRoiPool", x, node.inputs[1], pooled_shape=ints(a.pooled_size),
                     spatial_scale=float(a.spatial_scale))
    return (node.transposed(y, "NCHW", a.layout),)


# --- normalisation and reduction -------------------------------------------------------------------------------------

def require_affine(node: TvmNode) -> None:
    """Refuses a normalisation without scale or bias, which are operands in ONNX."""
    if not (node.attrs.center and node.attrs.scale):
        raise MegccError("center and scale cannot be switched off")


@imports("nn.batch_norm")
def batch_norm(node: TvmNode) -> Values:
    a = node.attrs
    if getattr(a, "training", False):
        raise MegccError("is in training mode; run relax.transform.DecomposeOpsForInference before")
    x, scale, shift, mean, variance = node.inputs
    if not a.scale:
        scale = node.constant(np.ones(node.type_of(mean).shape), node.type_of(mean).dtype)
    if not a.center:
        shift = node.constant(np.zeros(node.type_of(mean).shape), node.type_of(mean).dtype)
    rank = node.type_of(x).rank
    axis = axis_of(int(a.axis), rank)
    perm = [0, axis, *(index for index in range(1, rank) if index != axis)]
    moved = node.onnx("Transpose", x, perm=perm)[0]
    (y,) = node.onnx("BatchNormalization", moved, scale, shift, mean, variance, epsilon=float(a.epsilon))
    (y,) = node.onnx("Transpose", y, perm=[perm.index(index) for index in range(rank)])
    return y, mean, variance


def reduction_axes(node: TvmNode) -> tuple[int, ...] | None:
    """Returns the axes that an operator reduces, None for all. Relay's `exclude` names the axes that are kept."""
    axis = node.attrs.axis
    if axis is None:
        return None
    axes = ints(axis if hasattr(axis, "__len__") else [axis])
    if not getattr(node.attrs, "exclude", False):
        return axes
    rank = node.type_of(node.inputs[0]).rank
    return tuple(index for index in range(rank) if index not in [axis_of(axis, rank) for axis in axes])


def reduced(node: TvmNode, op_type: str, value: str, keepdims: bool) -> str:
    """Returns a value reduced over the axes of the call. op_type: ONNX's reduction, such as ReduceSum."""
    axes = reduction_axes(node)
    operands = (value,) if axes is None else (value, node.constant(axes, "int64"))
    return node.onnx(op_type, *operands, keepdims=int(keepdims))[0]


def _reduction(op_type: str) -> Importer:
    return lambda node: (reduced(node, op_type, node.inputs[0], bool(node.attrs.keepdims)),)


for _name, _op_type in {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
                        "prod": "ReduceProd"}.items():
    imports(_name)(_reduction(_op_type))


@imports("cumsum", "cumprod")
def cumulative(node: TvmNode) -> Values:
    """Imports the sums or products of the elements so far, over all elements in row-major order without an axis."""
    axis = node.attrs.axis
    x = node.reshaped(node.inputs[0], (-1,)) if axis is None else node.inputs[0]
    onnx_axis = node.constant(0 if axis is None else int(axis), "int64")
    op_type = {"cumsum": "CumSum", "cumprod": "CumProd"}[node.op]
    return node.onnx(op_type, x, onnx_axis, exclusive=int(node.attrs.exclusive or 0))


@imports("argmax", "argmin")
def arg_extreme(node: TvmNode) -> Values:
    (value,), axis = node.inputs, node.attrs.axis
    if axis is None:
        index = extreme_index(node, node.reshaped(value, (-1,)), 0, keepdims=False)
        return (node.reshaped(index, node.types[0].shape),)
    return (extreme_index(node, value, int(axis), bool(node.attrs.keepdims)),)


def extreme_index(node: TvmNode, value: str, axis: int, keepdims: bool, last: bool = False) -> str:
    """Returns the index of the minimum or maximum as TVM computes it; it differs from ONNX's if there are NaNs. last:
    of several equal ones, the last, not the first."""
    return node.emit({"argmax": "arg_max", "argmin": "arg_min"}[node.op], value,
                     axis=axis_of(axis, node.builder.types[value].rank), keepdims=keepdims, last=last, nan_yields=True)


@imports("nn.softmax", "nn.log_softmax")
def softmax(node: TvmNode) -> Values:
    op_type = {"nn.softmax": "Softmax", "nn.log_softmax": "LogSoftmax"}[node.op]
    return node.onnx(op_type, axis=int(node.attrs.axis))


# --- moving elements -------------------------------------------------------------------------------------------------

@imports("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten")
def reshape(node: TvmNode) -> Values:
    return (node.reshaped(node.inputs[0], node.types[0].shape),)


@imports("permute_dims", "transpose")
def permute_dims(node: TvmNode) -> Values:
    axes, rank = node.attrs.axes, node.type_of(node.inputs[0]).rank
    perm = range(rank - 1, -1, -1) if axes is None else [axis_of(axis, rank) for axis in ints(axes)]
    return node.onnx("Transpose", perm=list(perm))


@imports("concat", "concatenate")
def concat(node: TvmNode) -> Values:
    axis = node.attrs.axis
    inputs = node.inputs if axis is not None else [node.reshaped(value, (-1,)) for value in node.inputs]
    return node.onnx("Concat", *inputs, axis=0 if axis is None else int(axis))


@imports("stack")
def stack(node: TvmNode) -> Values:
    shape = node.type_of(node.inputs[0]).shape
    axis = axis_of(int(node.attrs.axis), len(shape) + 1)
    unit = [*shape[:axis], 1, *shape[axis:]]
    return node.onnx("Concat", *(node.reshaped(value, unit) for value in node.inputs), axis=axis)


@imports("split")
def split(node: TvmNode) -> Values:
    axis = axis_of(int(node.attrs.axis), node.types[0].rank)
    sizes = node.extents([type_.shape[axis] for type_ in node.types])
    return node.onnx("Split", node.inputs[0], sizes, outputs=len(node.types), axis=axis)


@imports("take")
def take(node: TvmNode) -> Values:
    x = node.inputs[0]
    indices = node.inputs[1] if len(node.inputs) > 1 else node.constant(int(node.args[1]), "int64")
    axis = node.attrs.axis
    if axis is None:
        x = node.reshaped(x, (-1,))
    # Other modes than "fast" clip or wrap indices that are out of bounds. The importer of Gather checks constant ones.
    if node.attrs.mode != "fast" and not node.is_constant(indices):
        raise MegccError(f"indices of mode '{node.attrs.mode}' that are computed at run time")
    return node.onnx("Gather", x, indices, axis=0 if axis is None else int(axis))


@imports("broadcast_to")
def broadcast_to(node: TvmNode) -> Values:
    return node.onnx("Expand", node.inputs[0], node.extents(node.types[0].shape))


@imports("tile")
def tile(node: TvmNode) -> Values:
    """Imports tile, which adds leading axes to the operand if there are more repeats than axes, and the reverse."""
    repeats = ints(node.attrs.repeats if hasattr(node.attrs, "repeats") else node.attrs.reps)   # reps is Relay's
    shape = node.type_of(node.inputs[0]).shape
    rank = max(len(repeats), len(shape))
    x = node.reshaped(node.inputs[0], (1,) * (rank - len(shape)) + shape)
    return node.onnx("Tile", x, node.constant((1,) * (rank - len(repeats)) + repeats, "int64"))


@imports("repeat")
def repeat(node: TvmNode) -> Values:
    """Imports repeat: adds an axis, broadcasts it, and merges it with the axis before."""
    x, count = node.inputs[0], int(node.attrs.repeats)
    if node.attrs.axis is None:
        x = node.reshaped(x, (-1,))
    shape = node.type_of(x).shape
    axis = 0 if node.attrs.axis is None else axis_of(int(node.attrs.axis), len(shape))
    with_axis = node.reshaped(x, (*shape[:axis + 1], 1, *shape[axis + 1:]))
    (expanded,) = node.onnx("Expand", with_axis, node.extents((*shape[:axis + 1], count, *shape[axis + 1:])))
    return (node.reshaped(expanded, (*shape[:axis], shape[axis] * count, *shape[axis + 1:])),)


@imports("gather_elements", "gather")   # the second name is Relay's
def gather_elements(node: TvmNode) -> Values:
    return node.onnx("GatherElements", axis=int(node.attrs.axis))


#: TVM's reductions of scatters -> ONNX's.
_SCATTER_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def scatter_reduction(reduction: str) -> str:
    """Returns ONNX's name of the reduction of a scatter."""
    if reduction not in _SCATTER_REDUCTIONS:
        raise MegccError(f"reduction '{reduction}' is not supported")
    return _SCATTER_REDUCTIONS[reduction]


@imports("scatter_elements")
def scatter_elements(node: TvmNode) -> Values:
    return node.onnx("ScatterElements", axis=int(node.attrs.axis), reduction=scatter_reduction(node.attrs.reduction))


@imports("reverse_sequence")
def reverse_sequence(node: TvmNode) -> Values:
    return node.onnx("ReverseSequence", time_axis=int(node.attrs.seq_axis), batch_axis=int(node.attrs.batch_axis))


# --- quantisation ----------------------------------------------------------------------------------------------------

@imports("quantize", "dequantize", "qnn.dequantize")
def quantize_or_dequantize(node: TvmNode) -> Values:
    quantizes = node.op == "quantize"
    x, scale, zero_point = node.inputs
    dtype = node.types[0].dtype if quantizes else node.type_of(x).dtype
    if node.type_of(zero_point).dtype != dtype:
        if not node.is_constant(zero_point):
            raise MegccError(f"a zero point of {node.type_of(zero_point).dtype} for {dtype}")
        (zero_point,) = cast_to(node.onnx_node(), zero_point, dtype)
    scales = node.type_of(scale)
    if node.type_of(zero_point).size == 1 != scales.size:  # TVM has one for all channels where ONNX has one for each
        (zero_point,) = node.onnx("Expand", zero_point, node.extents(scales.shape))
    return node.onnx("QuantizeLinear" if quantizes else "DequantizeLinear", x, scale, zero_point,
                     axis=int(node.attrs.axis))
