# SPDX-License-Identifier: Apache-2.0
"""Importers of Relax's operators with attributes. `tvm_common/ops.py` has those that are the same in Relay, `select.py`
those that select and order elements.

An operator without attributes is imported by the `relax` names of its declaration. The others have a function, which
mostly rewrites the call as an ONNX node (`node.onnx`), so that one importer serves all front ends.
"""

from __future__ import annotations

import numpy as np
from tvm import ir

from ...errors import MegccError
from ...ops.base import OPERATORS
from ...ops.rules import axis_of
from ..tvm_common import ops as tvm_ops
from ..tvm_common.node import Importer, TvmNode, Values, importer_of, ints, registers_in
from ..tvm_common.ops import reduced, require_affine
from ..tvm_versions import number_of
from . import select

PREFIX = "relax."
IMPORTERS: dict[str, Importer] = {
    PREFIX + name: function for name, function in {**tvm_ops.IMPORTERS, **select.IMPORTERS}.items()}
imports = registers_in(IMPORTERS, PREFIX)


def importer(name: str) -> Importer | None:
    """Returns the importer of a Relax operator; None if there is none."""
    return importer_of(name, IMPORTERS, "relax")


def importable() -> list[str]:
    """Returns the names of the Relax operators of the installed TVM that can be imported."""
    declared = [name for declaration in OPERATORS.values() for name in declaration.relax]
    known = {str(name) for name in ir.Op.list_op_names()}
    return [name for name in dict.fromkeys((*IMPORTERS, *declared)) if name in known]


@imports("matmul")
def matmul(node: TvmNode) -> Values:
    """Imports a matrix product. TVM's ONNX importer writes MatMulInteger as an int32 product of 8-bit integers minus
    their zero points, which is recognised here."""
    if node.types[0].dtype == "int32":
        centred = [_split_zero_point(node, value) for value in node.inputs]
        if None not in centred:
            (a, a_zero), (b, b_zero) = centred
            return node.onnx("MatMulInteger", a, b, a_zero, b_zero)
    return tvm_ops.matmul(node)


def _split_zero_point(node: TvmNode, value: str) -> tuple[str, str] | None:
    """Returns the 8-bit value and the scalar zero point whose difference is the given int32 value: that of a constant,
    of cast(x), or of cast(x) - zero point. Returns None for other values."""
    if node.is_constant(value):
        return _split_constant(node, value)
    producer = node.builder.producers.get(value)
    zero = ""
    if producer is not None and producer.kind == "sub":
        value, zero = producer.inputs
        producer = node.builder.producers.get(value)
    if producer is None or producer.kind != "cast" or node.type_of(producer.inputs[0]).dtype not in ("int8", "uint8"):
        return None
    source = producer.inputs[0]
    zero_point = _zero_point(node, zero, node.type_of(source).dtype)
    return None if zero_point is None else (source, zero_point)


def _split_constant(node: TvmNode, value: str) -> tuple[str, str] | None:
    """Returns an int32 constant as int8 with the zero point 0, or as uint8 with the smallest possible zero point; None
    if its values do not fit."""
    numbers = node.builder.constants[value]
    if not numbers.size:
        return None
    minimum, maximum = int(numbers.min()), int(numbers.max())
    if -128 <= minimum and maximum <= 127:
        return node.constant(numbers, "int8"), node.constant(0, "int8")
    zero = max(-minimum, 0)
    if zero > 255 or maximum + zero > 255:
        return None
    return node.constant(numbers + zero, "uint8"), node.constant(zero, "uint8")


def _zero_point(node: TvmNode, zero: str, dtype: str) -> str | None:
    """Returns a scalar int32 value, or "" for 0, as a value of an 8-bit type: a constant, or the operand of a cast.
    Returns None for other values."""
    if not zero:
        return node.constant(0, dtype)
    if node.type_of(zero).size != 1:
        return None
    if node.is_constant(zero):
        number, limits = int(node.builder.constants[zero].reshape(())), np.iinfo(dtype)
        return node.constant(number, dtype) if limits.min <= number <= limits.max else None
    producer = node.builder.producers.get(zero)
    if producer is None or producer.kind != "cast" or node.type_of(producer.inputs[0]).dtype != dtype:
        return None
    return producer.inputs[0]


@imports("nn.softplus")
def softplus(node: TvmNode) -> Values:
    """Imports log(1 + exp(x)). Above the threshold TVM returns x, which is the same in float32 from 20 on."""
    if float(node.attrs.beta) != 1 or float(node.attrs.threshold) < 20:
        raise MegccError(f"softplus with beta {node.attrs.beta} and threshold {node.attrs.threshold}")
    return node.onnx("Softplus")


@imports("ewise_fma")
def fma(node: TvmNode) -> Values:
    a, b, c = node.inputs
    return node.onnx("Add", *node.onnx("Mul", a, b), c)


@imports("clip")
def clip(node: TvmNode) -> Values:
    dtype = node.types[0].dtype
    bounds = [node.constant(number_of(bound).value, dtype) for bound in node.args[1:3]]
    return node.onnx("Clip", node.inputs[0], *bounds)


@imports("nn.selu")
def selu(node: TvmNode) -> Values:
    """Imports SELU. ONNX's default alpha and gamma are float32, TVM's float64, so they are given explicitly."""
    return node.onnx("Selu", alpha=1.6732632423543772, gamma=1.0507009873554805)


@imports("image.resize2d", "image.resize3d")
def resize(node: TvmNode) -> Values:
    """Imports a resize. Rounding "round" takes the even one of two equally near elements, which no ONNX mode does, so
    elements are gathered axis by axis then."""
    a = node.attrs
    if a.method != "nearest_neighbor" or tvm_ops.rounding_of(a) != "round":
        return tvm_ops.resize(node)
    x, gathers = node.inputs[0], []   # gathers: (axis, indices)
    for axis, letter in enumerate(a.layout):
        extent, size = node.type_of(x).shape[axis], node.types[0].shape[axis]
        if letter not in "NC" and extent != size:
            if not isinstance(extent, int) or not isinstance(size, int):
                raise MegccError("positions are rounded to even ones on an axis of symbolic extent")
            gathers.append((axis, _nearest_even(extent, size, a.coordinate_transformation_mode)))
    for axis, indices in gathers:
        (x,) = node.onnx("Gather", x, node.constant(indices, "int64"), axis=axis)
    return (x,)


def _nearest_even(extent: int, size: int, mode: str) -> np.ndarray:
    """Returns the indices of the nearest elements, ties to even, computed in float32 as in TVM.

    Raises:
        MegccError: for a coordinate_transformation_mode that is not supported.
    """
    float32 = np.float32
    coordinates, scale = np.arange(size, dtype=float32), float32(extent) / float32(size)
    if mode == "align_corners":
        positions = float32(extent - 1) / float32(max(size - 1, 1)) * coordinates
    elif mode == "asymmetric":
        positions = scale * coordinates
    elif mode in ("half_pixel", "pytorch_half_pixel"):
        positions = coordinates
        if size > 1 or mode == "half_pixel":
            positions = (coordinates + float32(0.5)) * scale - float32(0.5)
    else:
        raise MegccError(f"coordinate_transformation_mode {mode} is not supported")
    return np.clip(np.rint(positions), 0, extent - 1).astype(np.int64)


# --- normalisation and reduction -----------------------------------------------------------------------------------

def _require_spatial_axes(node: TvmNode) -> None:
    """Refuses a normalisation unless channels are on axis 1 and it is over all spatial axes, as in ONNX."""
    rank = node.type_of(node.inputs[0]).rank
    axes = sorted(axis_of(axis, rank) for axis in ints(node.attrs.axes))
    if axis_of(int(node.attrs.channel_axis), rank) != 1 or axes != list(range(2, rank)):
        raise MegccError(f"over axes {axes}: only channels on axis 1 and all spatial axes are supported")


def _first_trailing_axis(node: TvmNode) -> int:
    """Returns the first of the axes that a normalisation is over, which must be the last axes of the operand."""
    rank = node.type_of(node.inputs[0]).rank
    axes = sorted(axis_of(axis, rank) for axis in ints(node.attrs.axes))
    if axes != list(range(axes[0], rank)):
        raise MegccError(f"over axes {axes}: only the last axes are supported")
    return axes[0]


@imports("nn.layer_norm")
def layer_norm(node: TvmNode) -> Values:
    require_affine(node)
    return node.onnx("LayerNormalization", axis=_first_trailing_axis(node), epsilon=float(node.attrs.epsilon))[:1]


@imports("nn.rms_norm")
def rms_norm(node: TvmNode) -> Values:
    return node.onnx("RMSNormalization", axis=_first_trailing_axis(node), epsilon=float(node.attrs.epsilon))


@imports("nn.group_norm")
def group_norm(node: TvmNode) -> Values:
    require_affine(node)
    _require_spatial_axes(node)
    return node.onnx("GroupNormalization", num_groups=int(node.attrs.num_groups), epsilon=float(node.attrs.epsilon))


@imports("nn.instance_norm")
def instance_norm(node: TvmNode) -> Values:
    require_affine(node)
    _require_spatial_axes(node)
    return node.onnx("InstanceNormalization", epsilon=float(node.attrs.epsilon))


@imports("variance", "std")
def variance(node: TvmNode) -> Values:
    mean = reduced(node, "ReduceMean", node.inputs[0], True)
    centred = node.emit("sub", node.inputs[0], mean)
    value = reduced(node, "ReduceMean", node.emit("mul", centred, centred), bool(node.attrs.keepdims))
    return (value if node.op == "variance" else node.emit("sqrt", value),)


# --- moving elements -----------------------------------------------------------------------------------------------


@imports("strided_slice")
def strided_slice(node: TvmNode) -> Values:
    """Imports a slice whose axes, begins, ends and steps are operands; steps may be absent."""
    axes, begins, ends, *steps = (node.constant(ints(map(number_of, argument.fields)), "int64")
                             for argument in node.args[1:])
    return node.onnx("Slice", node.inputs[0], begins, ends, axes, *steps)


@imports("flip")
def flip(node: TvmNode) -> Values:
    """Reverses an axis by a slice with step -1 that starts beyond any extent."""
    operands = [node.constant([value], "int64") for value in (2**31 - 1, -2**31, int(node.attrs.axis), -1)]
    return node.onnx("Slice", node.inputs[0], *operands)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@imports("nn.pad")
def pad(node: TvmNode) -> Values:
    a = node.attrs
    if a.pad_mode not in _PAD_MODES:
        raise MegccError(f"pad mode '{a.pad_mode}' is not supported")
    widths = ints(a.pad_width)
    pads = node.constant(widths[::2] + widths[1::2], "int64")
    value = node.constant(float(a.pad_value), node.types[0].dtype)
    return node.onnx("Pad", node.inputs[0], pads, value, mode=_PAD_MODES[a.pad_mode])


@imports("nn.pixel_shuffle")
def pixel_shuffle(node: TvmNode) -> Values:
    return node.onnx("DepthToSpace", blocksize=int(node.attrs.upscale_factor), mode="CRD")
