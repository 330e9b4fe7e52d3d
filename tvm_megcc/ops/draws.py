# SPDX-License-Identifier: Apache-2.0
"""Random numbers. A seed gives the same ones in every run, so they are constants: those of ONNX's reference, which
draws them with NumPy's `RandomState` (Mersenne Twister: M. Matsumoto and T. Nishimura, ACM Transactions on Modeling
and Computer Simulation 8 (1998))."""

from __future__ import annotations

import math

import numpy as np

from ..errors import MegccError
from ..ir.types import TensorType
from .base import OnnxNode, decomposes
from .elementwise import cast_to, emit_broadcast
from .spelling import number


def _generator(node: OnnxNode, shape: tuple) -> np.random.RandomState:
    """Of the node's seed, for an array of this shape."""
    seed = node.attr("seed")
    if seed is None:
        raise MegccError("draws other numbers in every run; give it a seed, or make what it draws an input of the "
                         "model")
    if not math.isfinite(seed) or not 0 <= int(seed) < 2**32:
        raise MegccError(f"its seed is {seed}; wants 0 to {2**32 - 1}")
    if not all(isinstance(extent, int) for extent in shape):
        raise MegccError(f"draws {TensorType('float32', shape)}, whose shape has to be known; give the input a shape")
    node.require_room(*shape)
    return np.random.RandomState(int(seed))


@decomposes("RandomNormal", "RandomNormalLike", "RandomUniform")
def drawn(node: OnnxNode) -> tuple[str, ...]:
    """A constant."""
    import onnx
    like = node.op_type.endswith("Like")
    shape = node.type(0).shape if like else tuple(node.attr("shape"))
    dtype = np.dtype(node.type(0).dtype) if like and node.attr("dtype") is None else \
        onnx.helper.tensor_dtype_to_np_dtype(node.attr("dtype", onnx.TensorProto.FLOAT))
    if dtype.name not in ("float16", "float32", "float64"):
        raise MegccError(f"draws {dtype.name}; floats of 16, 32 and 64 bits are supported")
    generator = _generator(node, shape)
    if node.op_type == "RandomUniform":
        low, high = node.attr("low", 0.0), node.attr("high", 1.0)
        return (node.constant(generator.random_sample(shape).astype(dtype) * dtype.type(high - low) + dtype.type(low)),)
    mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
    return (node.constant(generator.standard_normal(shape).astype(dtype) * dtype.type(scale) + dtype.type(mean)),)


def dropped_out(node: OnnxNode, training: str | None) -> tuple[str, str]:
    """Dropout in training: what is kept, times as much as keeps the mean, and the mask of it.

    Args:
        training: whether it is on, a bool that the run computes; None: it is.
    """
    x, shape = node.inputs[0], node.type(0).shape
    ratio = node.inputs[1] if node.has(1) else number(node, 0.5, node.type(0).dtype)
    (ratio,) = cast_to(node, ratio, "float64")
    draws = node.constant(np.asarray(_generator(node, shape).random_sample(shape)))
    (mask,) = emit_broadcast(node, "greater_equal", (draws, ratio))
    (share,) = node.emit("sub", (number(node, 1.0, "float64"), ratio))
    (scale,) = cast_to(node, node.emit("div", (number(node, 1.0, "float64"), share))[0], node.type(0).dtype)
    (scaled,) = emit_broadcast(node, "mul", (x, scale))
    (kept,) = node.emit("where", (mask, scaled, number(node, 0.0, node.type(0).dtype)))
    if training is None:
        return kept, mask
    (idle,) = node.emit("logical_not", (training,))
    (mask,) = emit_broadcast(node, "logical_or", (mask, idle))
    return node.emit("where", (training, kept, x))[0], mask
