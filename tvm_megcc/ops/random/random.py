# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's random operators.

RandomNormal, RandomUniform, their Like forms and Dropout with a seed and a known shape become constants, equal to the
results of ONNX's reference, which uses NumPy's `RandomState` (Mersenne Twister: M. Matsumoto and T. Nishimura, ACM
Transactions on Modeling and Computer Simulation 8 (1998)). All others are computed in each run by `philox.Draw`, from
their attribute `seed` or from the network's input `seed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from ...errors import MegccError
from ...ir.conditions import require_at_most
from ...ir.dims import Dim
from ..base import OnnxNode, decomposes
from ..cast import element_type
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number, onnx_operator
from .philox import PRECISION

#: The largest finite number, by dtype, of the dtypes that random numbers may have.
MAX_FINITE = {dtype: float(ml_dtypes.finfo(dtype).max) for dtype in PRECISION}


def _seed(node: OnnxNode) -> int | None:
    """Returns attribute seed as an integer, None if it is absent; raises MegccError if it is out of range."""
    seed = node.attr("seed")
    if seed is not None and (not math.isfinite(seed) or not 0 <= int(seed) < 2**32):
        raise MegccError(f"its seed is {seed}; it has to be from 0 to {2**32 - 1}")
    return None if seed is None else int(seed)


def _reference_generator(node: OnnxNode, shape: tuple[Dim, ...]) -> np.random.RandomState | None:
    """Returns the generator with which ONNX's reference fills an array of this shape; None without a seed, or if the
    shape is not known."""
    seed = _seed(node)
    if seed is None or not all(isinstance(extent, int) for extent in shape):
        return None
    node.require_budget(*shape)  # the constant must not be too large
    return np.random.RandomState(seed)


def _random_numbers(node: OnnxNode, law: str, shape: tuple[Dim, ...], dtype: str) -> str:
    """Emits random numbers of the distribution `law` (as in `philox.Draw`) with the precision of `dtype`, as float64
    for float64, else as float32."""
    seed = _seed(node)
    # Operators without a seed share the key that comes from the network's input `seed`, and are numbered.
    key, index = node.random_key() if seed is None else (number(node, seed, "int64"), 0)
    drawn_dtype = "float64" if dtype == "float64" else "float32"
    return node.emit("draw", (key,), shape=shape, number=index, law=law, dtype=drawn_dtype,
                     precision=PRECISION[dtype])[0]


def _dtype(node: OnnxNode, default: str) -> str:
    """Returns attribute dtype, else the default; raises MegccError if it is not supported."""
    dtype = element_type(node.attr("dtype")) if node.attr("dtype") else default
    if dtype not in PRECISION:
        raise MegccError(f"draws {dtype}; {', '.join(PRECISION)} are supported")
    return dtype


@decomposes("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def scaled_random(node: OnnxNode) -> tuple[str, ...]:
    """Imports RandomNormal, RandomUniform, and those whose names end in Like and that take the shape of their operand,
    as scale * random + offset."""
    like = node.op_type.endswith("Like")
    shape = node.type(0).shape if like else tuple(node.attr("shape"))
    dtype = _dtype(node, node.type(0).dtype if like else "float32")
    if node.op_type.startswith("RandomUniform"):
        offset = node.attr("low", 0.0)
        scale, law = node.attr("high", 1.0) - offset, "uniform"
    else:
        offset, scale, law = node.attr("mean", 0.0), node.attr("scale", 1.0), "normal"
    if not (abs(offset) <= MAX_FINITE[dtype] and abs(scale) <= MAX_FINITE[dtype]):  # false for NaN too
        raise MegccError(f"has an offset of {offset:g} and a scale of {scale:g}, which {dtype} cannot hold")
    reference = _reference_generator(node, shape)
    if reference is not None:
        draw: Callable = reference.random_sample if law == "uniform" else reference.standard_normal
        scalar = np.dtype(dtype).type
        return (node.constant(np.asarray(draw(shape)).astype(dtype) * scalar(scale) + scalar(offset)),)
    value = _random_numbers(node, law, shape, dtype)
    scalar = node.type_of(value).dtype
    for kind, operand, neutral in (("mul", scale, 1.0), ("add", offset, 0.0)):
        if operand != neutral:
            (value,) = emit_broadcast(node, kind, (value, number(node, operand, scalar)))
    return cast_to(node, value, dtype)


@decomposes("Bernoulli")
def bernoulli(node: OnnxNode) -> tuple[str, ...]:
    """Imports Bernoulli: 1 where a uniform number is less than the operand, the probability of 1; else 0."""
    x = node.type(0)
    (chance,) = cast_to(node, node.inputs[0], "float64" if x.dtype == "float64" else "float32")
    uniform = _random_numbers(node, "uniform", x.shape, node.type_of(chance).dtype)
    (ones,) = node.emit("less", (uniform, chance))
    return cast_to(node, ones, element_type(node.attr("dtype")) if node.attr("dtype") else x.dtype)


@decomposes("Multinomial")
def multinomial(node: OnnxNode) -> tuple[str, ...]:
    """Imports Multinomial: samples classes for rows of log-weights. A sample is the number of cumulative weights that
    are at most a uniform share of the total. A class of weight 0 is never drawn; a row with a NaN gives class 0."""
    x, dtype = node.type(0), element_type(node.attr("dtype", 6))  # 6: ONNX's INT32
    samples = node.attr("sample_size", 1)
    if x.rank != 2 or dtype not in ("int32", "int64"):
        raise MegccError(f"samples {dtype} from {x}; requires operands [rows, classes] and results of int32 or int64")
    (rows, classes) = x.shape
    require_at_most(1, classes, f"draws one of the classes of {x}")
    weights = onnx_operator(node, "Softmax", cast_to(node, node.inputs[0], "float32")[0], axis=-1)
    (sums,) = node.emit("cumsum", cast_to(node, weights, "float64"), axis=1, exclusive=False, reverse=False)
    (total,) = node.emit("slice", (sums,), axes=(1,), starts=(classes - 1,), ends=(classes,), steps=(1,))
    uniforms = _random_numbers(node, "uniform", (rows, samples), "float64")
    (threshold,) = emit_broadcast(node, "mul", (uniforms, total))
    (threshold,) = node.emit("reshape", (threshold,), shape=(rows, samples, 1))
    (sums,) = node.emit("reshape", (sums,), shape=(rows, 1, classes))
    (below,) = emit_broadcast(node, "less_equal", (sums, threshold))
    count = onnx_operator(node, "ReduceSum", cast_to(node, below, dtype)[0], node.constant(np.array([2])), keepdims=0)
    return (count,)


def import_dropout_training(node: OnnxNode, training: str | None) -> tuple[str, str]:
    """Imports Dropout in training mode. Returns the elements that are kept, times 1 / (1 - ratio), so that the mean
    stays the same, with zeros for the others; and the mask, true for elements that are kept.

    Args:
        training: the value of the operand training_mode, bool [], if it is known only at run time; None: the mode is
        on.
    """
    x, shape = node.inputs[0], node.type(0).shape
    ratio = node.inputs[1] if node.has(1) else number(node, 0.5, node.type(0).dtype)
    (ratio,) = cast_to(node, ratio, "float64")
    reference = _reference_generator(node, shape)
    if reference is not None:
        (mask,) = emit_broadcast(node, "greater_equal", (
            node.constant(np.asarray(reference.random_sample(shape))), ratio))
    else:
        float32_ratio = cast_to(node, ratio, "float32")[0]
        uniforms = _random_numbers(node, "uniform", shape, "float32")
        (mask,) = emit_broadcast(node, "greater_equal", (uniforms, float32_ratio))
    (kept_share,) = node.emit("sub", (number(node, 1.0, "float64"), ratio))
    (scale,) = cast_to(node, node.emit("div", (number(node, 1.0, "float64"), kept_share))[0], node.type(0).dtype)
    (scaled,) = emit_broadcast(node, "mul", (x, scale))
    (result,) = node.emit("where", (mask, scaled, number(node, 0.0, node.type(0).dtype)))
    if training is None:
        return result, mask
    (is_inference,) = node.emit("logical_not", (training,))
    (mask,) = emit_broadcast(node, "logical_or", (mask, is_inference))
    return node.emit("where", (training, result, x))[0], mask
