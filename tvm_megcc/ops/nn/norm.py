# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's normalisations as simpler operators; passes fuse some of them again (nn/layer_norm.py)."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, product
from ..base import OnnxNode, decomposes
from ..elementwise import cast_to
from ..emit_onnx import number
from ..math.reduce import reduce
from ..rules import axis_of


@decomposes("BatchNormalization")
def batch_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports BatchNormalization as x * factor + shift per channel; both are constants if the statistics are.

    Raises:
        MegccError: for the training mode before operator set 14, and for spatial = 0.
    """
    training = node.attr("training_mode", 0) if node.opset >= 7 else not node.attr("is_test", 0)
    # Only in training mode, which has no flag in some operator sets, are there results after y: running statistics.
    if (training and node.opset < 14) or (not training and any(node.outputs[1:])):
        raise MegccError("is in training mode; export the model for inference")
    if node.attr("spatial", 1) != 1:
        raise MegccError("attribute spatial=0 is not supported")
    x = node.type(0)
    if x.rank < 2:
        raise ShapeError(f"needs channels on axis 1, and the operand is {x}")
    channels, names = x.shape[1], ("scale", "B", "mean", "var")
    for index, name in enumerate(names, 1):
        if node.type(index).shape != (channels,):
            raise ShapeError(f"{name} is {node.type(index)} where the operand has {channels} channels")
    epsilon = node.attr("epsilon", 1e-5)
    if training:
        return _batch_norm_in_training(node, epsilon)
    if all(node.is_const(index) for index in range(1, 5)):
        scale, bias, mean, variance = (node.const(index).astype(np.float64) for index in range(1, 5))
        factor = scale / np.sqrt(variance + epsilon)
        per_channel = [node.constant(array.astype(np.dtype(x.dtype)).reshape(1, -1, *(1,) * (x.rank - 2)))
                       for array in (factor, bias - mean * factor)]
    else:
        wide = _common_dtype(node, *range(5))
        scale, bias, mean, variance = (cast_to(node, value, wide)[0] for value in node.inputs[1:5])
        (factor,) = node.emit("mul", (scale, _inverse_root(node, variance, epsilon)))
        (shift,) = node.emit("sub", (bias, *node.emit("mul", (mean, factor))))
        per_channel = [_per_channel(node, *cast_to(node, value, x.dtype), x.rank) for value in (factor, shift)]
    (scaled,) = node.emit("mul", (node.inputs[0], per_channel[0]))
    return node.emit("add", (scaled, per_channel[1]))


def _common_dtype(node: OnnxNode, *operands: int) -> str:
    """Returns the dtype that can represent the values of all these operands, by numpy's promotion."""
    return np.result_type(*(np.dtype(node.type(index).dtype) for index in operands)).name


def _batch_norm_in_training(node: OnnxNode, epsilon: float) -> tuple[str, ...]:
    """Imports batch norm in training mode: normalises by the batch's statistics, and returns the running ones too."""
    x, (scale, bias, *running) = node.type(0), node.inputs[1:5]
    axes, momentum = (0, *range(2, x.rank)), float(node.attr("momentum", 0.9))
    (mean,) = reduce(node, "reduce_mean", node.inputs[0], axes, keepdims=True)
    (centred,) = node.emit("sub", (node.inputs[0], mean))
    (variance,) = reduce(node, "reduce_mean", node.emit("mul", (centred, centred))[0], axes, keepdims=True)
    (y,) = node.emit("mul", (centred, _inverse_root(node, variance, epsilon)))
    scale, bias = (_per_channel(node, *cast_to(node, value, x.dtype), x.rank) for value in (scale, bias))
    (y,) = node.emit("mul", (y, scale))
    results = list(node.emit("add", (y, bias)))
    for old, new in zip(running, (mean, variance), strict=True):
        dtype = node.type_of(old).dtype
        (new,) = cast_to(node, node.emit("reshape", (new,), shape=(x.shape[1],))[0], dtype)
        shares = [node.emit("mul", (value, number(node, coefficient, dtype)))[0]
                  for value, coefficient in ((old, momentum), (new, 1 - momentum))]
        results += node.emit("add", tuple(shares))
    return tuple(results)


def _inverse_root(node: OnnxNode, variance: str, epsilon: float) -> str:
    """Emits 1 / sqrt(variance + epsilon)."""
    (sum_,) = node.emit("add", (variance, number(node, epsilon, node.type_of(variance).dtype)))
    return node.emit("rsqrt", (sum_,))[0]


def _per_channel(node: OnnxNode, value: str, rank: int) -> str:
    """Emits a value [C] as [1, C, 1, …] of this rank."""
    (channels,) = node.type_of(value).shape
    return node.emit("reshape", (value,), shape=(1, channels, *(1,) * (rank - 2)))[0]


def _normalise(node: OnnxNode, value: str, axes: Sequence[int], epsilon: float) -> tuple[str, str, str]:
    """Emits (x - mean) / sqrt(variance + epsilon), with mean and variance over some axes. Returns it, the mean and
    1 / sqrt(variance + epsilon).

    Mean and variance of float16 are computed in float32 (attribute stash_type of LayerNormalization), since the squares
    of numbers from 256 on overflow float16.
    """
    dtype = node.type_of(value).dtype
    (value,) = cast_to(node, value, statistics_dtype(dtype))
    (mean,) = reduce(node, "reduce_mean", value, tuple(axes), keepdims=True)
    (centred,) = node.emit("sub", (value, mean))
    (square,) = node.emit("mul", (centred, centred))
    (variance,) = reduce(node, "reduce_mean", square, tuple(axes), keepdims=True)
    inverse = _inverse_root(node, variance, epsilon)
    (value,) = cast_to(node, node.emit("mul", (centred, inverse))[0], dtype)
    return value, mean, inverse


def statistics_dtype(dtype: str) -> str:
    """Returns the dtype that means and squares of values are computed in."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


@decomposes("InstanceNormalization")
def instance_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports InstanceNormalization. Operands: x [N, C, …], scale [C], bias [C]."""
    rank = node.type(0).rank
    value, _, _ = _normalise(node, node.inputs[0], range(2, rank), node.attr("epsilon", 1e-5))
    (value,) = node.emit("mul", (value, _per_channel(node, node.inputs[1], rank)))
    return node.emit("add", (value, _per_channel(node, node.inputs[2], rank)))


@decomposes("LayerNormalization")
def layer_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports LayerNormalization over the axes from attribute `axis` on. Several axes of known extents are flattened to
    one. Results: the normalised value, the mean, 1 / the standard deviation."""
    shape = node.type(0).shape
    axis = axis_of(node.attr("axis", -1), len(shape))
    rows, normalised = shape[:axis], shape[axis:]
    x, *factors = node.inputs[0], *(node.inputs[index] for index in (1, 2) if node.has(index))
    is_flattened = len(normalised) > 1 and all(isinstance(extent, int) for extent in normalised) \
        and all(node.type_of(factor).shape == normalised for factor in factors)
    if is_flattened:
        (x,) = node.emit("reshape", (x,), shape=(*rows, product(normalised)))
        factors = [node.emit("reshape", (factor,), shape=(product(normalised),))[0] for factor in factors]
    value, mean, inverse = _normalise(node, x, range(axis, axis + 1 if is_flattened else len(shape)),
                                      node.attr("epsilon", 1e-5))
    for kind, factor in zip(("mul", "add"), factors, strict=False):
        (value,) = node.emit(kind, (value, factor))
    if not is_flattened:
        return value, mean, inverse
    statistics_shape = (*rows, *(1,) * len(normalised))
    return tuple(node.emit("reshape", (result,), shape=result_shape)[0] for result, result_shape in
                 ((value, shape), (mean, statistics_shape), (inverse, statistics_shape)))


@decomposes("RMSNormalization")
def rms_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports RMSNormalization over the axes from attribute `axis` on, times the scale, the second operand."""
    value, _ = divide_by_rms(node, node.inputs[0], node.attr("axis", -1), node.attr("epsilon", 1e-5))
    (value,) = cast_to(node, value, node.type(1).dtype)
    return node.emit("mul", (value, node.inputs[1]))


def divide_by_rms(node: OnnxNode, value: str, axis: int, epsilon: float) -> tuple[str, str]:
    """Emits x / sqrt(mean(x²) + epsilon), with the mean over the axes from `axis` on. Returns it and 1 / the root, both
    in the dtype of `statistics_dtype`."""
    rank = node.type_of(value).rank
    (x,) = cast_to(node, value, statistics_dtype(node.type_of(value).dtype))
    (square,) = node.emit("mul", (x, x))
    (mean,) = reduce(node, "reduce_mean", square, tuple(range(axis_of(axis, rank), rank)), keepdims=True)
    inverse = _inverse_root(node, mean, epsilon)
    return node.emit("mul", (x, inverse))[0], inverse


@decomposes("GroupNormalization")
def group_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports GroupNormalization. Scale and bias are per group before operator set 21, per channel since."""
    shape = node.type(0).shape
    groups = node.attr("num_groups")
    if isinstance(shape[1], int) and (groups < 1 or shape[1] % groups):
        raise ShapeError(f"{shape[1]} channels do not make {groups} groups")
    grouped: tuple[Dim, ...] = (shape[0], groups, shape[1] // groups, *shape[2:])
    (value,) = node.emit("reshape", node.inputs[:1], shape=grouped)
    value, _, _ = _normalise(node, value, range(2, len(grouped)), node.attr("epsilon", 1e-5))
    per_group = node.opset < 21
    if not per_group:
        (value,) = node.emit("reshape", (value,), shape=shape)
    rank = len(grouped) if per_group else len(shape)
    (value,) = node.emit("mul", (value, _per_channel(node, node.inputs[1], rank)))
    (value,) = node.emit("add", (value, _per_channel(node, node.inputs[2], rank)))
    return node.emit("reshape", (value,), shape=shape) if per_group else (value,)


@decomposes("LpNormalization")
def lp_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports LpNormalization: divides by the L1 or L2 norm (attribute `p`) along an axis."""
    axis = axis_of(node.attr("axis", -1), node.type(0).rank)
    (norm,) = reduce(node, f"reduce_l{node.attr('p', 2)}", node.inputs[0], (axis,), keepdims=True)
    dtype = node.type(0).dtype
    smallest = ml_dtypes.finfo(np.dtype(dtype)).tiny  # so that zeros give 0, not NaN
    (norm,) = node.emit("max", (norm, number(node, smallest, dtype)))
    return node.emit("div", (node.inputs[0], norm))


@decomposes("MeanVarianceNormalization")
def mean_variance_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports MeanVarianceNormalization over attribute `axes`. The epsilon is that of ONNX's function definition."""
    value, _, _ = _normalise(node, node.inputs[0], node.attr("axes", [0, 2, 3]), 1e-9)
    return (value,)
