# SPDX-License-Identifier: Apache-2.0
"""Imports quantised recurrent layers, which compute in integers. Each run begins with zero states."""

from __future__ import annotations

import numpy as np

from ....errors import ShapeError
from ....ir.expr import X, arg, call, clip
from ....ops.elementwise import emit_broadcast
from ....ops.recurrent.lstm_int8 import FACTORS, HIDDEN, MAX_CELL_BITS, NORMS, PEEPHOLES, PROJECTION
from ..file import Quantization
from ..layer_states import clipping_bound, initial_state, is_kept, keep_state
from ..node import Node, Results, Unsupported
from . import fixed_point
from .fixed_point import Multiplier
from .importers import imports_quantised, operand, quantization_of, result, zero

#: Operands of an LSTM, in our order of gates: i, f, c, o; peepholes in the order i, f, o.
_INPUT, _RECURRENT, _PEEPHOLES, _BIAS = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11), (12, 13, 14, 15)
#: The gate of each peephole.
_PEEPHOLE_GATES = (0, 1, 3)
_PROJECTION, _STATE, _CELL, _NORMS = (16, 17), 18, 19, (20, 21, 22, 23)
#: The scale of the gates' sums, the inputs of sigmoid and tanh.
_ONE = np.float32(2**-12)
#: The smallest variance in layer normalisation of the gates, in units of their multipliers.
_GUARD = np.float32(10000)


@imports_quantised("UNIDIRECTIONAL_SEQUENCE_LSTM", any_bits=True)
def lstm(node: Node) -> Results:
    """Imports an int8 LSTM with an int16 cell state. One matrix product computes the inputs' part of the gates for all
    steps.

    bits is the number of integer bits of the cell state: its scale is 2^(bits - 15). `factors` are the fixed-point
    multipliers that the operator `lstm_fixed` documents.
    """
    coupled, normalised, projects = not node.has(_INPUT[0]), any(map(node.has, _NORMS)), node.has(_PROJECTION[0])
    gates = range(1 if coupled else 0, 4)
    x, cell = operand(node, 0), quantization_of(node.tensors[_CELL], ("int16",))
    state = quantization_of(node.tensors[_STATE], ("int8",))
    hidden = _intermediate_quantization(node, 4, ("int8", "int16")) if len(node.intermediates) > 4 else result(node)
    bits = 15 + _power(cell)
    if not 0 <= bits <= MAX_CELL_BITS or node.type(0).dtype != "int8":
        raise Unsupported(f"cells of {bits} whole bits, or inputs that are not int8, are not supported")
    gate_scales = [_intermediate_quantization(node, gate, ("int16",)).scale[0] if normalised else _ONE
                   for gate in range(4)]
    weights, recurrent = (_concatenated(node, [operands[gate] for gate in gates]) for operands in (_INPUT, _RECURRENT))
    units, outputs = recurrent.shape[0] // len(gates), recurrent.shape[1]
    from_inputs = [_multiplier(_scale(node, _INPUT[gate]) * x.scale[0] / gate_scales[gate]) for gate in gates]
    factors = np.zeros((FACTORS, 2), np.int32)
    for gate in gates:
        factors[gate] = _multiplier(_scale(node, _RECURRENT[gate]) * state.scale[0] / gate_scales[gate])
    constant = node.onnx_node().constant
    peepholes = any(map(node.has, _PEEPHOLES))
    peephole_weights = np.zeros((3, units), np.int16)
    for row, index in enumerate(_PEEPHOLES if peepholes else ()):
        if coupled and row == 0:  # there is no input gate
            continue
        peephole_weights[row] = node.const(index, "peepholes").reshape(-1)
        scale = float(quantization_of(node.tensors[index], ("int16",)).scale[0])
        gate_scale = float(gate_scales[_PEEPHOLE_GATES[row]])
        factors[PEEPHOLES][row] = _multiplier(np.float32(2.0**(bits - 15) * scale / gate_scale))
    factors[HIDDEN] = _multiplier(np.float32(2.0**-15 / float(hidden.scale[0]) * 2.0**-15))
    norms, guards = ["", ""], (1, 1, 1, 1)
    if normalised:
        scales = [quantization_of(node.tensors[_NORMS[gate]], ("int16",)).scale[0] if gate in gates else _ONE
                  for gate in range(4)]
        for gate in gates:
            significand, shift = fixed_point.multiplier(float(scales[gate]))
            factors[NORMS][gate] = significand, _require_shift(shift + 12)
        guards = tuple(max(1, int(_GUARD * scale)) for scale in scales)
        norms = [constant(_concatenated(node, [operands[gate] for gate in gates]).reshape(len(gates), -1).astype(dtype))
                 for operands, dtype in ((_NORMS, np.int16), (_BIAS, np.int32))]
    # TFLite subtracts the hidden state's zero point where it should be added; only saturated values show it.
    projection, hidden_zero = ["", ""], -zero(hidden)
    if projects:
        projection_weights = node.const(_PROJECTION[0], "projection")
        factors[PROJECTION] = _multiplier(_scale(node, _PROJECTION[0]) * hidden.scale[0] / state.scale[0])
        bias = np.zeros(outputs, np.int32)
        if node.has(_PROJECTION[1]):
            bias = node.const(_PROJECTION[1], "bias").reshape(-1)
        projection = [constant(projection_weights), constant(_minus_zero_point(bias, projection_weights, hidden_zero))]
    biases = [] if normalised else [_BIAS[gate] for gate in gates]
    sums = _input_sums(node, weights, biases, zero(x), from_inputs, units)
    operands = [sums, constant(recurrent), constant(_minus_zero_point(np.zeros(len(recurrent)), recurrent,
                                                                      zero(state))),
                constant(factors), constant(peephole_weights) if peepholes else "", *norms, *projection]
    batch = node.type_of(sums).shape[1]
    initial_states = [initial_state(node, index, (batch, size)) for index, size in ((_STATE, outputs), (_CELL, units))]
    outputs_zero = zero(state if projects else hidden)
    if not initial_states[0] and zero(state) != outputs_zero:
        # The initial state is the state's own zero point, which may differ from the results'.
        initial_states[0] = node.emit("expand", node.constant([[zero(state)]], "int8"), shape=(batch, outputs))
    kept_states = [row for row in (("Y_h", _STATE), ("Y_c", _CELL)) if is_kept(node, row[1])]
    y, *last = node.onnx_node().emit(
        "lstm_fixed", (*operands, *initial_states), cell_bits=bits, cell_clip=_clip(node, "CellClip", cell, 2**15 - 1),
        projection_clip=_clip(node, "ProjClip", result(node), 127) if projects else 0,
        zero=outputs_zero, hidden_zero=hidden_zero, coupled=coupled, guards=guards,
        batch_major=not node.option("TimeMajor", False),
        results=("Y", *(name for name, _ in kept_states)))
    for (_, index), value in zip(kept_states, last, strict=True):
        keep_state(node, index, value)
    return [node.as_value(y, _order(node))]


def _intermediate_quantization(node: Node, index: int, dtypes: tuple[str, ...]) -> Quantization:
    """Returns the quantisation of one of the operator's intermediate tensors."""
    if index >= len(node.intermediates):
        raise ShapeError(f"has {len(node.intermediates)} intermediate tensors, and wants number {index}")
    return quantization_of(node.intermediates[index], dtypes)


def _clip(node: Node, option: str, quantization: Quantization, bound: int) -> int:
    """Returns a clipping bound in units of the clipped tensor's scale, at most `bound`; 0 for none."""
    limit = clipping_bound(node, option)
    return int(min(np.float32(limit) / quantization.scale[0], bound)) if limit > 0 else 0


def _minus_zero_point(bias: np.ndarray, weights: np.ndarray, zero_point: int) -> np.ndarray:
    """Returns the bias minus the products of weights with the zero point. int32 overflow wraps."""
    return (bias.astype(np.int64) - zero_point * weights.astype(np.int64).sum(1)).astype(np.int32)


def _input_sums(node: Node, weights: np.ndarray, biases: list[int], zero_point: int, factors: list[Multiplier],
            units: int) -> str:
    """Computes the inputs' part of the gates for all steps, int16 [T, N, gates * units]."""
    x = node.checked_in_order(node.value(0), _order(node))
    steps, batch, inputs = node.type_of(x).shape
    rows = node.emit("reshape", x, shape=(steps * batch, inputs))
    constant = node.onnx_node().constant
    bias = constant(_concatenated(node, biases).astype(np.int32)) if biases else ""
    sums = node.emit("matmul_integer", rows, constant(weights), bias, trans_a=0, trans_b=1, a_zero=zero_point, b_zero=0)
    columns = [constant(np.repeat(np.array(part, np.int32), units)) for part in zip(*factors, strict=True)]
    expr = clip(call("rescale_fixed", X, arg(1), arg(2)), -2**15, 2**15 - 1)
    (gates,) = emit_broadcast(node.onnx_node(), "elementwise", (sums, *columns), expr=expr, dtype="int16")
    return node.emit("reshape", gates, shape=(steps, batch, weights.shape[0]))


def _order(node: Node) -> tuple[int, ...]:
    """Returns the permutation of a sequence's axes that puts time first."""
    return (0, 1, 2) if node.option("TimeMajor", False) else (1, 0, 2)


def _concatenated(node: Node, operands: list[int]) -> np.ndarray:
    """Returns constant operands concatenated along the first axis."""
    return np.concatenate([node.const(index, "weights") for index in operands])


def _scale(node: Node, index: int) -> np.float32:
    """Returns the scale of int8 weights."""
    return quantization_of(node.tensors[index], ("int8",)).scale[0]


def _multiplier(real: np.float32) -> Multiplier:
    """Returns the fixed-point multiplier of a factor; raises Unsupported for one of 2^30 or more."""
    factor = fixed_point.multiplier(float(real))
    return Multiplier(factor.significand, _require_shift(factor.shift))


def _require_shift(shift: int) -> int:
    if shift > 30:
        raise Unsupported(f"its scales differ by a factor of 2^{shift}")
    return shift


def _power(cell: Quantization) -> int:
    """Returns the exponent of the cell state's scale, which is a power of two."""
    fraction, power = np.frexp(cell.scale[0])
    if abs(2 * float(fraction) - 1) > 1e-3:
        raise ShapeError(f"its cells have the scale {cell.scale[0]}, which is no power of two")
    return int(power) - 1
