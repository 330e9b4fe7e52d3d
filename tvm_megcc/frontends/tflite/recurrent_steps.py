# SPDX-License-Identifier: Apache-2.0
"""Imports recurrent layers with int8 weights and float activations, projections, or layer-normalised gates. One matrix
product computes the inputs' part of the gates for all steps. Each run begins with zero states, except states that the
user keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tflite

from .layer_states import clipping_bound, initial_state, is_kept, keep_state, time_first
from .node import Node, Results, Unsupported
from .quantized.hybrid import imports_hybrid, multiply_by, scales

#: Operands of an LSTM, in our order of gates: i, f, c, o; peepholes in the order i, f, o.
INPUT, RECURRENT, PEEPHOLES, BIAS = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11), (12, 13, 14, 15)
PROJECTION, PROJECTION_BIAS, STATES, NORMS = 16, 17, (18, 19), (20, 21, 22, 23)

#: Fused activations -> those of operator `recurrent_steps`; "affine" is none.
_ACTIVATIONS = {tflite.ActivationFunctionType.TANH: "tanh", tflite.ActivationFunctionType.RELU: "relu",
                tflite.ActivationFunctionType.NONE: "affine"}


def needs_steps(node: Node) -> bool:
    """Whether a float LSTM has features that ONNX's LSTM lacks."""
    return any(map(node.has, (PROJECTION, PROJECTION_BIAS, *NORMS)))


@imports_hybrid("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(node: Node) -> Results:
    """Imports an LSTM, also of float weights. Without weights of the input gate (a CIFG layer) that gate is 1 - f."""
    coupled = not node.has(INPUT[0])
    gates, normalised = range(int(coupled), 4), any(map(node.has, NORMS))
    r = _concatenated(node, [RECURRENT[gate] for gate in gates])
    peepholes = norms = ""
    if any(map(node.has, PEEPHOLES)):
        rows = [_float_constant(node, index) if node.has(index) else None for index in PEEPHOLES]
        units = next(row for row in rows if row is not None).size
        peepholes = node.constant([np.zeros(units) if row is None else row.reshape(-1) for row in rows], "float32")
    biases = _concatenated(node, [BIAS[gate] for gate in gates])
    if normalised:
        factors = _concatenated(node, [NORMS[gate] for gate in gates])
        norms = node.constant([factors.reshape(-1), biases.reshape(-1)], "float32")
    projection = node.plain(PROJECTION) if node.has(PROJECTION) else ""
    projections = [PROJECTION] if projection else []
    _require_same_dtype(node, [*(group[gate] for group in (INPUT, RECURRENT) for gate in gates), *projections])
    scale = _scales(node, [*(RECURRENT[gate] for gate in gates), *projections], r)
    input_sums = _input_sums(node, [INPUT[gate] for gate in gates], None if normalised else biases)
    other_operands = [peepholes, norms, projection, node.optional(PROJECTION_BIAS)]
    y = _emit_steps(node, input_sums, r, scale, other_operands, gates=len(gates), states=STATES,
                    cell_clip=clipping_bound(node, "CellClip"), projection_clip=clipping_bound(node, "ProjClip"))
    return [node.as_value(y, time_first(node))]


@imports_hybrid("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(node: Node) -> Results:
    """Operands: x, weights, recurrent weights, bias, state. The cell is one gate, without peepholes, norms or a
    projection."""
    _require_same_dtype(node, [1, 2])
    r, bias = node.const(2, "weights"), node.const(3, "bias")
    y = _emit_steps(node, _input_sums(node, [1], bias), r, _scales(node, [2], r), other_operands=[""] * 4, gates=1,
                    states=(4,), cell_clip=0.0, projection_clip=0.0)
    return [node.as_value(y, time_first(node))]


def _emit_steps(node: Node, input_sums: str, r: np.ndarray, scale: str, other_operands: Sequence[str], gates: int,
                states: Sequence[int], **attrs) -> str:
    """Emits the recurrent operator over all steps and returns its results, [T, N, outputs].

    Args:
        input_sums: the inputs' part of the gates, [T, N, gates * units].
        r: the recurrent weights, [gates * units, outputs], of the gates in our order.
        scale: the scales of int8 weights, "" for float ones.
        other_operands: peepholes, norms, projection and its bias; "" for absent ones.
        states: indices of the operands h and, for an LSTM, c.
    """
    function = node.option("FusedActivationFunction")
    if function not in _ACTIVATIONS:
        raise Unsupported(f"activation {function} of a recurrent layer is not supported")
    _, batch, columns = node.type_of(input_sums).shape
    sizes = r.shape[1], columns // gates  # of h and c
    initial_states = [initial_state(node, index, (batch, size)) for index, size in zip(states, sizes, strict=False)]
    kept = [(name, index) for name, index in zip(("Y_h", "Y_c"), states, strict=False) if is_kept(node, index)]
    operands = input_sums, node.onnx_node().constant(r), scale, *other_operands, *initial_states
    y, *last = node.onnx_node().emit("recurrent_steps", operands, gates=gates, activation=_ACTIVATIONS[function],
                                     results=("Y", *(name for name, _ in kept)),
                                     asymmetric=bool(node.option("AsymmetricQuantizeInputs", default=False)), **attrs)
    for (_, index), value in zip(kept, last, strict=True):
        keep_state(node, index, value)
    return y


def _input_sums(node: Node, operands: Sequence[int], biases: np.ndarray | None) -> str:
    """Computes the contribution of the inputs of all steps to the gates: [T, N, gates * units]."""
    x, weights = node.checked_in_order(node.value(0), time_first(node)), _concatenated(node, operands)
    steps, batch, inputs = node.type_of(x).shape
    rows = node.emit("reshape", x, shape=(steps * batch, inputs))
    constant = node.onnx_node().constant
    name, bias = constant(weights), "" if biases is None else constant(biases.reshape(-1))
    if weights.dtype == np.int8:
        row_scales = np.concatenate([np.repeat(_scale(node, index), node.type(index).shape[0]) for index in operands])
        asymmetric = bool(node.option("AsymmetricQuantizeInputs", default=False))
        sums = multiply_by(node, rows, name, weights, row_scales, asymmetric, bias)
    else:
        (sums,) = node.onnx("Gemm", rows, name, bias, transB=1)
    return node.emit("reshape", sums, shape=(steps, batch, len(weights)))


def _concatenated(node: Node, operands: Sequence[int]) -> np.ndarray:
    """Returns constant operands concatenated along the first axis."""
    return np.concatenate([node.const(index, "weights") for index in operands])


def _require_same_dtype(node: Node, operands: Sequence[int]) -> None:
    dtypes = {node.type(index).dtype for index in operands}
    if len(dtypes) != 1 or not dtypes <= {"int8", "float32"}:
        raise Unsupported(f"weights of {', '.join(sorted(dtypes))} are not supported")


def _scale(node: Node, index: int) -> np.ndarray:
    """Returns the only scale of int8 weights, float32 [1]."""
    weight_scales = scales(node, index, 0)
    if len(weight_scales) != 1:
        raise Unsupported("weights with several scales are not supported")
    return weight_scales


def _scales(node: Node, operands: Sequence[int], r: np.ndarray) -> str:
    """Returns the scales of the recurrent weights of each gate and of the projection (1 if there is none) as a constant
    float32 [gates + 1]; "" for float weights."""
    if r.dtype != np.int8:
        return ""
    found = [_scale(node, index)[0] for index in operands]
    return node.constant(found if PROJECTION in operands else [*found, 1.0], "float32")


def _float_constant(node: Node, index: int) -> np.ndarray:
    """Returns a constant as float32; int8 is dequantised."""
    array = node.const(index, "weights")
    return array if array.dtype == np.float32 else array.astype(np.float32) * _scale(node, index)
