# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax along one axis: ONNX's Softmax and LogSoftmax, and TVM's."""

from __future__ import annotations

import numpy as np

from ...ir.dims import product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register
from ..rules import axis_of

_CASES = (Case((f32(3, 37),), {"axis": 1}), Case((f32(2, 5, 7),), {"axis": 1}), Case((f32(4, 3, 2),), {"axis": 2}),
          Case((f32(37, 2),), {"axis": 0}), Case((f32(45, 3),), {"axis": 1}),
          Case((f32(2, 4),), {"axis": 1}, values={0: np.array([[1e4, -1e4, 0, 3], [-np.inf, 0, 1, 2]])}))


@register
class Softmax(Operator):
    """exp(x - max) / sum(exp(x - max)) along attribute `axis`. The result has the type of x, which is of floats."""

    kind = "softmax"
    relax = ("relax.nn.softmax",)
    relay = ("nn.softmax",)
    onnx = ("Softmax",)
    cases = _CASES

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axis_of(attrs.axis, x.rank)
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            exponents = np.exp((x - x.max(attrs.axis, keepdims=True, initial=-np.inf)).astype(np.float64))
            return ((exponents / exponents.sum(attrs.axis, keepdims=True)).astype(x.dtype),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        """Imports a softmax. Before operator set 13 the axes from `axis` on are flattened."""
        dtype, shape = node.type_of(node.inputs[0]).dtype, node.type_of(node.inputs[0]).shape
        if dtype == "float64" and shape:
            return cls._decomposed(node)
        if dtype == "float64":  # over one element: 1, or 0 for the logarithm; NaN for NaN
            (difference,) = node.emit("sub", node.inputs[:1] * 2)
            return (difference,) if cls.kind == "log_softmax" else node.emit("exp", (difference,))
        axis = axis_of(node.attr("axis", -1 if node.opset >= 13 else 1), len(shape)) if shape else 0
        if not shape or (node.opset < 13 and any(dim != 1 for dim in shape[axis + 1:])):
            (value,) = node.emit("reshape", node.inputs, shape=(product(shape[:axis]), product(shape[axis:])))
            (value,) = node.emit(cls.kind, (value,), axis=1)
            return node.emit("reshape", (value,), shape=shape)
        return node.emit(cls.kind, node.inputs, axis=axis)

    @classmethod
    def _decomposed(cls, node: OnnxNode) -> tuple[str, ...]:
        """Emits the softmax as simpler operators, for float64, which has no softmax kernel."""
        rank = node.type_of(node.inputs[0]).rank
        axis = axis_of(node.attr("axis", -1 if node.opset >= 13 else 1), rank)
        axes = (axis,) if node.opset >= 13 else tuple(range(axis, rank))
        (top,) = node.emit("reduce_max", node.inputs, axes=axes, keepdims=True)
        (shifted,) = node.emit("sub", (node.inputs[0], top))
        (exponents,) = node.emit("exp", (shifted,))
        if cls.kind == "log_softmax":
            return node.emit("sub", (shifted, *node.emit("reduce_log_sum", (exponents,), axes=axes, keepdims=True)))
        return node.emit("div", (exponents, *node.emit("reduce_sum", (exponents,), axes=axes, keepdims=True)))


@register
class LogSoftmax(Softmax):
    """x - max - log(sum(exp(x - max))) along attribute `axis`. The result has the type of x, which is of floats."""

    kind = "log_softmax"
    relax = ("relax.nn.log_softmax",)
    relay = ("nn.log_softmax",)
    onnx = ("LogSoftmax",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            shifted = (x - x.max(attrs.axis, keepdims=True, initial=-np.inf)).astype(np.float64)
            return ((shifted - np.log(np.exp(shifted).sum(attrs.axis, keepdims=True))).astype(x.dtype),)
