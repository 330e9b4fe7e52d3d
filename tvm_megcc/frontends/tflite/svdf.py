# SPDX-License-Identifier: Apache-2.0
"""Imports SVDF, a layer of keyword spotters. Each run appends one feature for each filter to those of the last runs,
and sums them with weights.

Source: "Compressing Deep Neural Networks using a Rank-Constrained Topology" (Nakkiran et al., 2015).
"""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.expr import X, arg, clip
from ...ops.elementwise import emit_broadcast
from .layer_states import append_step
from .node import Node, Results, Unsupported, imports
from .quantized import fixed_point
from .quantized.hybrid import imports_hybrid, multiply_by_operand, scales
from .quantized.importers import emit_as_result, imports_quantised, operand, quantization_of, requantize, result, zero

#: Operands: x [N,inputs], feature weights [filters,inputs], time weights [filters,memory], bias, state.
_FEATURES, _TIMES, _BIAS, _STATE = 1, 2, 3, 4


def _append_features(node: Node, features: str) -> tuple[str, int]:
    """Appends features [N,filters] to the state. Returns the last features of each filter, [N,filters,memory] with the
    newest last, and the rank: the number of filters of a unit."""
    filters, memory = node.type(_TIMES).shape
    (batch, found), rank = node.type_of(features).shape, node.option("Rank")
    if not isinstance(filters, int) or not isinstance(memory, int) or found != filters or rank < 1 or filters % rank:
        raise ShapeError(f"{found} features of rank {rank} for weights {node.type(_TIMES)}")
    name = node.states.input_for(node.operator.inputs[_STATE])
    before = node.emit("reshape", name, shape=(batch, filters, memory))
    window = append_step(node, before, node.emit("reshape", features, shape=(batch, filters, 1)), axis=2)
    node.states.keep(name, node.as_value(node.emit("reshape", window, shape=node.type_of(name).shape)))
    return window, rank


def _sum_units(node: Node, weighted: str, rank: int) -> str:
    """Sums weighted features [N,filters,memory] over the filters of each unit and adds the bias: [N,units]."""
    batch, filters, memory = node.type_of(weighted).shape
    by_unit = node.emit("reshape", weighted, shape=(batch, filters // rank, rank * memory))
    sums = node.emit("reduce_sum", by_unit, axes=(2,), keepdims=False)
    return emit_broadcast(node.onnx_node(), "add", (sums, node.plain(_BIAS)))[0] if node.has(_BIAS) else sums


def _float_svdf(node: Node, features: str, times: str) -> Results:
    """Returns the result in float32, from features [N,filters] and time weights [filters,memory]."""
    window, rank = _append_features(node, features)
    (weighted,) = emit_broadcast(node.onnx_node(), "mul", (window, times))
    return [_sum_units(node, weighted, rank)]


@imports("SVDF", fused=True)
def svdf(node: Node) -> Results:
    (features,) = node.onnx("Gemm", node.plain(0), node.plain(_FEATURES), "", transB=1)
    return _float_svdf(node, features, node.plain(_TIMES))


@imports_hybrid("SVDF", fused=True)
def hybrid_svdf(node: Node) -> Results:
    weight_scales, asymmetric = scales(node, _FEATURES, 0), bool(node.option("AsymmetricQuantizeInputs", default=False))
    if len(weight_scales) > 1 or len(scales(node, _TIMES, 0)) > 1:
        raise Unsupported("weights with several scales are not supported")
    features = multiply_by_operand(node, node.plain(0), _FEATURES, weight_scales, asymmetric)
    times = node.const(_TIMES, "weights").astype(np.float32) * scales(node, _TIMES, 0)
    return _float_svdf(node, features, node.onnx_node().constant(times.astype(np.float32)))


@imports_quantised("SVDF", also_int16=True)
def quantised_svdf(node: Node) -> Results:
    """Imports an int8 SVDF whose time weights and state are int16 (LiteRT) or int8 (TFLite Micro). Both ignore the
    activation."""
    x, y, state = operand(node, 0), result(node), quantization_of(node.tensors[_STATE], ("int8", "int16"))
    state_dtype = node.type(_TIMES).dtype
    feature = quantization_of(node.tensors[_FEATURES], ("int8",))
    time = quantization_of(node.tensors[_TIMES], (state_dtype,))
    if (node.type(0).dtype, node.results[0].dtype) != ("int8", "int8") or zero(feature) or zero(time):
        raise Unsupported(f"{node.type(0)} with results of {node.results[0].dtype}, or weights with a zero point, is "
                          "not supported")
    if node.tensors[_STATE].dtype != state_dtype:
        raise ShapeError(f"has a state of {node.tensors[_STATE].dtype}, and time weights of {state_dtype}")
    sums = node.emit("matmul_integer", node.plain(0), node.plain(_FEATURES), trans_a=0, trans_b=1, a_zero=zero(x),
                     b_zero=0)
    feature_factor = fixed_point.multiplier(float(x.scale[0] * feature.scale[0] / state.scale[0]))
    feature_expr = clip(requantize(X, feature_factor) + zero(state), *fixed_point.integer_range(state_dtype))
    (features,) = emit_broadcast(node.onnx_node(), "elementwise", (sums,), dtype=state_dtype, expr=feature_expr)
    window, rank = _append_features(node, features)
    (weighted,) = emit_broadcast(node.onnx_node(), "elementwise", (window, node.plain(_TIMES)),
                                 expr=(X - zero(state)) * arg(1), dtype="int32")
    result_factor = fixed_point.multiplier(float(state.scale[0] * time.scale[0] / y.scale[0]))
    expr = clip(requantize(X, result_factor) + zero(y), *fixed_point.integer_range("int8"))
    return [emit_as_result(node, expr, _sum_units(node, weighted, rank))]
