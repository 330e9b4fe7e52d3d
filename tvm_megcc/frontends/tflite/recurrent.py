# SPDX-License-Identifier: Apache-2.0
"""Imports float32 recurrent layers. Each run begins with zero states, as LiteRT does after `reset_all_variables`,
except for states that the user keeps."""

from __future__ import annotations

import numpy as np
import tflite

from ...errors import ShapeError
from .layer_states import clipping_bound, initial_state, keep_state, time_first
from .node import Node, Results, Unsupported, imports
from .recurrent_steps import STATES, needs_steps
from .recurrent_steps import lstm as lstm_steps
from .value import Value

#: Operands of an LSTM for the inputs, recurrent weights and biases, each in the order of ONNX's gates: i, o, f, c.
_INPUT, _RECURRENT, _BIAS = (1, 4, 2, 3), (5, 8, 6, 7), (12, 15, 13, 14)
#: The same for peepholes: i, o, f.
_PEEPHOLES = (9, 11, 10)

#: Fused activations -> ONNX's activations.
_ACTIVATIONS = {tflite.ActivationFunctionType.TANH: "Tanh", tflite.ActivationFunctionType.RELU: "Relu",
                tflite.ActivationFunctionType.NONE: "Affine"}


def _activation(node: Node) -> str:
    """Returns ONNX's activation for the layer's option."""
    function = node.option("FusedActivationFunction")
    if function not in _ACTIVATIONS:
        raise Unsupported(f"activation {function} of a recurrent layer is not supported")
    return _ACTIVATIONS[function]


@imports("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(node: Node) -> Results:
    """Imports an LSTM. Without weights of the input gate (a CIFG layer) that gate is 1 - f, computed as the sigmoid of
    f's negated sum."""
    if needs_steps(node):
        return lstm_steps(node)
    coupled = not node.has(_INPUT[0])
    w, r = (_stack_gates(node, operands, coupled) for operands in (_INPUT, _RECURRENT))
    bias = _stack_gates(node, _BIAS, coupled)
    peepholes = _stack_gates(node, _PEEPHOLES, coupled)[None] if any(map(node.has, _PEEPHOLES)) else None
    dtype = node.type(0).dtype
    activation = _activation(node)
    attrs = {"hidden_size": r.shape[1], "activations": ["Sigmoid", activation, activation],
             "cell_clip": clipping_bound(node, "CellClip")}
    x = node.checked_in_order(node.value(0), time_first(node))
    batch, units = node.type_of(x).shape[1], r.shape[1]
    initial_states = [initial_state(node, index, (1, batch, units)) for index in STATES]
    if any(initial_states):  # ONNX requires none or all
        initial_states = [name or node.constant(np.zeros((1, batch, units)), dtype) for name in initial_states]
    y, *last = node.onnx("LSTM", x, node.constant(w[None], dtype), node.constant(r[None], dtype),
                         node.constant(_with_recurrent_bias(bias), dtype), "", *initial_states,
                         "" if peepholes is None else node.constant(peepholes, dtype), outputs=3, **attrs)
    for index, value in zip(STATES, last, strict=True):
        keep_state(node, index, value)
    return [_without_directions(node, y)]


def _stack_gates(node: Node, operands: tuple[int, ...], coupled: bool) -> np.ndarray:
    """Stacks weights of the gates in the order i, o, f, c; peepholes have no c."""
    given = [node.const(index, "weights") if node.has(index) else None for index in operands]
    present = next((array for array in given if array is not None), None)
    if present is None:
        raise ShapeError(f"has none of the operands {', '.join(map(str, operands))}")
    arrays = [np.zeros_like(present) if array is None else array for array in given]
    if coupled:
        arrays[0] = -arrays[2]
    return np.concatenate(arrays)


@imports("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(node: Node) -> Results:
    """Operands: x, weights, recurrent weights, bias, state."""
    w, r, bias = (node.const(index, "weights") for index in (1, 2, 3))
    dtype = node.type(0).dtype
    x = node.checked_in_order(node.value(0), time_first(node))
    initial = initial_state(node, 4, (1, node.type_of(x).shape[1], r.shape[0]))
    both_biases = node.constant(_with_recurrent_bias(bias), dtype)
    weights, recurrent_weights = node.constant(w[None], dtype), node.constant(r[None], dtype)
    y, last = node.onnx("RNN", x, weights, recurrent_weights, both_biases, "", initial, outputs=2,
                        hidden_size=r.shape[0], activations=[_activation(node)])
    keep_state(node, 4, last)
    return [_without_directions(node, y)]


def _with_recurrent_bias(bias: np.ndarray) -> np.ndarray:
    """Returns ONNX's operand B, [1, 2 * gates * units]: the bias of the inputs and, which TFLite lacks, that of the
    recurrence."""
    return np.concatenate([bias, np.zeros_like(bias)])[None]


def _without_directions(node: Node, y: str) -> Value:
    """Returns [time, 1, batch, units] in the file's layout, without the axis of directions."""
    steps, _, batch, units = node.type_of(y).shape
    name = node.emit("reshape", y, shape=(steps, batch, units))
    return node.as_value(name, time_first(node))
