# SPDX-License-Identifier: Apache-2.0
"""Activations as elementwise operators (ACTIVATIONS is their table, with the formulas of ONNX), and importers of those
whose operands or attributes differ from ours."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ...ir.expr import Expr, X, arg, call, clip, maximum, minimum
from ...ir.graph import Attrs
from ...ir.narrow import is_float
from ..base import Case, OnnxNode, decomposes, f32, register
from ..elementwise import Elementwise, Row, cast_to, declare, emit_broadcast

Y = arg(1)
LARGEST = float(np.finfo(np.float32).max)
_INVERSE_SQRT2 = 0.7071067811865476
_SQRT_2_OVER_PI = 0.7978845608028654


def _softplus(x: Expr) -> Expr:
    """Returns log(1 + exp(x)), in a form that does not overflow."""
    return maximum(x, 0) + call("log", 1 + call("exp", -call("abs", x)))


def _elu(attrs: Attrs) -> Expr:
    """Returns x for positive x, else alpha * (exp(x) - 1)."""
    return maximum(X, 0) + attrs.alpha * (call("exp", minimum(X, 0)) - 1)


#: Columns: kind, ONNX names, formula, and the number of operands if it is not 1. `call("if_lt", a, b, c, d)` is c where
#: a < b, else d.
ACTIVATIONS = (
    Row("relu", ("Relu",), maximum(X, 0), case_dtypes=("float32", "int32"), relax="relax.nn.relu", relay="nn.relu"),
    Row("sigmoid", ("Sigmoid",), call("sigmoid", X)),
    Row("tanh", ("Tanh",), call("tanh", X)),
    Row("silu", (), X * call("sigmoid", X), relax="relax.nn.silu"),
    Row("leaky_relu", ("LeakyRelu",), lambda attrs: maximum(X, 0) + attrs.alpha * minimum(X, 0),
        defaults={"alpha": 0.01}, relax="relax.nn.leakyrelu", relay="nn.leaky_relu"),
    Row("prelu", (), call("if_lt", X, 0, Y * X, X), 2, case_dtypes=("float32", "int32"), relax="relax.nn.prelu",
        relay="nn.prelu"),
    Row("elu", ("Elu",), _elu, defaults={"alpha": 1.0}, in_tvm=False),
    Row("selu", ("Selu",), lambda attrs: attrs.gamma * _elu(attrs),
        defaults={"alpha": 1.6732631921768188, "gamma": 1.0507010221481323}, in_tvm=False),
    Row("celu", ("Celu",), lambda attrs: maximum(X, 0)
        + attrs.alpha * (call("exp", minimum(X, 0) / attrs.alpha) - 1), defaults={"alpha": 1.0}, in_tvm=False),
    Row("hard_sigmoid", ("HardSigmoid",), lambda attrs: clip(X * attrs.alpha + attrs.beta, 0, 1),
        defaults={"alpha": 0.2, "beta": 0.5}, in_tvm=False),
    Row("hard_swish", ("HardSwish",), X * clip(X * (1 / 6) + 0.5, 0, 1), in_tvm=False),
    Row("softplus", ("Softplus",), _softplus(X), relax="relax.nn.softplus"),
    Row("softsign", ("Softsign",), X / (1 + call("abs", X)), in_tvm=False),
    Row("mish", ("Mish",), X * call("tanh", _softplus(X)), in_tvm=False),
    Row("thresholded_relu", ("ThresholdedRelu",), lambda attrs: call("if_lt", attrs.alpha, X, X, 0),
        defaults={"alpha": 1.0}, in_tvm=False),
    Row("shrink", (), lambda attrs: call("if_lt", X, -attrs.lambd, X + attrs.bias,
                                                  call("if_lt", attrs.lambd, X, X - attrs.bias, 0)),
        defaults={"lambd": 0.5, "bias": 0.0}, in_tvm=False),
    Row("swish", ("Swish",), lambda attrs: X * call("sigmoid", X * attrs.alpha), defaults={"alpha": 1.0}, in_tvm=False),
    Row("gelu", (), 0.5 * X * (1 + call("erf", X * _INVERSE_SQRT2)), relax="relax.nn.gelu"),
    Row("gelu_tanh", (), 0.5 * X * (1 + call("tanh", _SQRT_2_OVER_PI * (X + 0.044715 * X * X * X))),
        relax="relax.nn.gelu_tanh"),
)

for _row in ACTIVATIONS:
    declare(_row)


@register
class Clip(Elementwise):
    """Clamps each element to [lo, hi], as relax.clip and Relay's clip. Attributes `lo` and `hi`: infinite for no
    bound. The result has the operand's type."""

    kind = "clip"
    relax = ("relax.clip",)
    relay = ("clip",)
    formula = staticmethod(lambda attrs: _clip(attrs.lo, attrs.hi))
    cases = (Case((f32(3, 37),), {"lo": -0.5, "hi": 0.75}), Case((((9,), "int32"),), {"lo": 2, "hi": 6}),
             Case((f32(5),), {"lo": float("-inf"), "hi": 0.25}), Case((f32(5),), {"lo": -LARGEST, "hi": LARGEST}))


def _clip(lo: float, hi: float) -> Expr:
    """Returns the expression of `Clip`."""
    bounded = X if lo == float("-inf") else maximum(X, lo)
    return bounded if hi == float("inf") else minimum(bounded, hi)


@decomposes("Clip")
def import_clip(node: OnnxNode) -> tuple[str, ...]:
    """Imports Clip. Its bounds are attributes before operator set 11, then operands. A bound that is absent is the
    type's lowest or largest finite number, so an infinite element becomes finite."""
    dtype = node.type(0).dtype
    if node.opset < 11:
        return _emit_clip(node, node.inputs[0], node.attr("min", -LARGEST), node.attr("max", LARGEST))
    bounds = {1: -_largest_finite(dtype), 2: _largest_finite(dtype)}
    if all(not node.has(index) or node.is_const(index) for index in bounds):
        lo, hi = (float(node.const(index).reshape(())) if node.has(index) else bound for index, bound in bounds.items())
        # Attributes are floats. Bounds of int64 from 2**31 on could be rounded, so they stay operands.
        if is_float(dtype) or all(abs(bound) < 2**31 or abs(bound) == float("inf") for bound in (lo, hi)):
            return _emit_clip(node, node.inputs[0], lo, hi)
    value = node.inputs[0]
    for index, kind in ((1, "max"), (2, "min")):
        if node.has(index):
            (value,) = node.emit(kind, (value, node.inputs[index]))
    # The bounds that are absent remain.
    return _emit_clip(node, value, float("-inf") if node.has(1) else bounds[1],
                      float("inf") if node.has(2) else bounds[2])


def _emit_clip(node: OnnxNode, value: str, lo: float, hi: float) -> tuple[str, ...]:
    """Emits a clip. A bound beyond the type's finite numbers is left out; without bounds nothing is emitted."""
    largest = _largest_finite(node.type(0).dtype)
    lo, hi = (float("-inf") if lo < -largest else lo), (float("inf") if hi > largest else hi)
    if lo == float("-inf") and hi == float("inf"):
        return (value,)
    return node.emit("clip", (value,), lo=lo, hi=hi)


def _largest_finite(dtype: str) -> float:
    """Returns the largest finite number of a type of floats, infinity for integers."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).max) if is_float(dtype) else float("inf")


@decomposes("PRelu")
def import_prelu(node: OnnxNode) -> tuple[str, ...]:
    """Imports PRelu. Operands: x, slopes that broadcast to x or, before operator set 7, one for each channel."""
    x, slope = node.type(0), node.type(1)
    if x.dtype.startswith("uint"):  # unsigned integers are not negative
        return node.inputs[:1]
    if node.opset < 7 and slope.size != 1:
        (per_channel,) = node.emit("reshape", node.inputs[1:], shape=(slope.size, *(1,) * (x.rank - 2)))
        return emit_broadcast(node, "prelu", (node.inputs[0], per_channel))
    return emit_broadcast(node, "prelu", node.inputs)


@decomposes("Shrink")
def import_shrink(node: OnnxNode) -> tuple[str, ...]:
    """Imports Shrink, whose attributes are floats. Results for integers are truncated, and wrap if out of range."""
    dtype = node.type(0).dtype
    wide = dtype if is_float(dtype) else "float64"
    (value,) = node.emit("shrink", cast_to(node, node.inputs[0], wide),
                         lambd=float(node.attr("lambd", 0.5)), bias=float(node.attr("bias", 0.0)))
    if is_float(dtype):
        return (value,)
    if dtype != "uint64":
        return cast_to(node, *cast_to(node, value, "int64"), dtype)
    # uint64: int64 holds the negative results, which wrap, but not all positive ones. So both are cast on their own.
    (positive,) = node.emit("clip", (value,), lo=0.0, hi=float("inf"))
    (negative,) = node.emit("clip", (value,), lo=-float("inf"), hi=0.0)
    (wrapped,) = cast_to(node, *cast_to(node, negative, "int64"), dtype)
    return node.emit("add", (*cast_to(node, positive, dtype), wrapped))


@decomposes("Gelu")
def import_gelu(node: OnnxNode) -> tuple[str, ...]:
    """Imports Gelu, exact or, with attribute approximate = "tanh", approximated."""
    return node.emit("gelu_tanh" if node.attr("approximate", "none") == "tanh" else "gelu", node.inputs)
