# SPDX-License-Identifier: Apache-2.0
"""Imports quantised recurrent layers, which compute in integers. Each run begins with zero states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import ShapeError
from ....ir.dims import Dim
from ....ir.expr import X, arg, call, clip
from ....ops.elementwise import emit_broadcast
from ....ops.recurrent.lstm_int8 import FACTOR_COUNT, HIDDEN, MAX_CELL_BITS, NORMS, PEEPHOLES, PROJECTION
from ...fixed_point import MAX_SHIFT
from ..file import Quantization
from ..layer_states import clipping_bound, initial_state, is_kept, keep_state, time_first
from ..node import Node, Results, Unsupported
from . import fixed_point
from .fixed_point import Multiplier
from .importers import imports_quantised, operand, quantization_of, result, zero

#: Operands of an LSTM, in our order of gates: i, f, c, o; peepholes in the order i, f, o.
_INPUT, _RECURRENT, _PEEPHOLES, _BIAS = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11), (12, 13, 14, 15)
#: The gate of each peephole.
_PEEPHOLE_GATES = (0, 1, 3)
_PROJECTION, _STATE, _CELL, _NORMS = (16, 17), 18, 19, (20, 21, 22, 23)
#: The intermediate tensors of a layer: 0 to 3 are the sums of the gates, this one is the hidden state before the
#: projection.
_HIDDEN_INTERMEDIATE = 4
#: The scale of the sums of gates that are not normalised, the inputs of sigmoid and tanh.
_GATE_SCALE = np.float32(2**-12)
#: LiteRT's smallest variance in layer normalisation is this number times the scale of a gate's weights (lstm.cc).
_VARIANCE_GUARD = np.float32(10000)


@dataclass(frozen=True)
class _Layer:
    """An int8 LSTM of the file.

    gates: the gates that it has, of 0 to 3; a coupled LSTM has no input gate.
    coupled, normalised, projects: whether the input gate is 1 - forget gate, whether gates are normalised, and whether
        the hidden state is projected.
    x, state, cell, hidden: quantisations of the input, the hidden state, the cell state, and the hidden state before
        the projection.
    cell_bits: the number of integer bits of the cell state: its scale is 2^(cell_bits - 15).
    gate_scales: the scale of each gate's sums.
    units, outputs: the numbers of cells and of elements of the hidden state.
    """

    node: Node
    gates: range
    coupled: bool
    normalised: bool
    projects: bool
    x: Quantization
    state: Quantization
    cell: Quantization
    hidden: Quantization
    cell_bits: int
    gate_scales: Sequence[np.float32]
    units: int
    outputs: int

    @classmethod
    def of(cls, node: Node) -> _Layer:
        """Reads the layer. Raises Unsupported for dtypes and cell scales that TFLite's kernel does not have."""
        coupled, normalised = not node.has(_INPUT[0]), any(map(node.has, _NORMS))
        gates = range(1 if coupled else 0, 4)
        cell = quantization_of(node.tensors[_CELL], ("int16",))
        hidden = result(node) if len(node.intermediates) <= _HIDDEN_INTERMEDIATE \
            else _intermediate_quantization(node, _HIDDEN_INTERMEDIATE, ("int8", "int16"))
        cell_bits = 15 + _power(cell)
        if not 0 <= cell_bits <= MAX_CELL_BITS or node.type(0).dtype != "int8":
            raise Unsupported(f"cells of {cell_bits} whole bits, or inputs that are not int8, are not supported")
        gate_scales = [_intermediate_quantization(node, gate, ("int16",)).scale[0] if normalised else _GATE_SCALE
                       for gate in range(4)]
        state, shape = quantization_of(node.tensors[_STATE], ("int8",)), node.const(_RECURRENT[-1], "weights").shape
        return cls(node, gates, coupled, normalised, node.has(_PROJECTION[0]), operand(node, 0), state, cell, hidden,
                   cell_bits, gate_scales, units=shape[0], outputs=shape[1])

    def concatenated(self, operands: Sequence[int]) -> np.ndarray:
        """Returns the constant operands of the layer's gates, concatenated along the first axis."""
        return np.concatenate([self.node.const(operands[gate], "weights") for gate in self.gates])

    def multipliers(self, weights: Sequence[int], quantization: Quantization) -> dict[int, Multiplier]:
        """Returns gate -> fixed-point multiplier from products of its weights with a tensor to the gate's sums."""
        return {gate: _multiplier(_scale(self.node, weights[gate]) * quantization.scale[0] / self.gate_scales[gate])
                for gate in self.gates}


@imports_quantised("UNIDIRECTIONAL_SEQUENCE_LSTM", also_int16=True)
def lstm(node: Node) -> Results:
    """Imports an int8 LSTM with an int16 cell state. One matrix product computes the inputs' part of the gates for all
    steps. `factors` are the fixed-point multipliers that the operator `lstm_fixed` documents."""
    layer = _Layer.of(node)
    state, hidden, recurrent = layer.state, layer.hidden, layer.concatenated(_RECURRENT)
    constant = node.onnx_node().constant
    factors = np.zeros((FACTOR_COUNT, 2), np.int32)
    for gate, multiplier in layer.multipliers(_RECURRENT, state).items():
        factors[gate] = multiplier
    # The hidden state is sigmoid(o) * tanh(c), both in units of 2^-15.
    factors[HIDDEN] = _multiplier(np.float32(2.0**-15 / float(hidden.scale[0]) * 2.0**-15))
    peepholes = _peephole_weights(layer, factors)
    norms, guards = _normalisation(layer, factors)
    # TFLite subtracts the hidden state's zero point where it should be added; only saturated values show it.
    hidden_zero = -zero(hidden)
    projection = _projection(layer, factors, hidden_zero)
    sums = _input_sums(layer)
    bias = _minus_zero_point(np.zeros(len(recurrent)), recurrent, zero(state))
    operands = [sums, constant(recurrent), constant(bias),
                *(constant(part) if part is not None else "" for part in (factors, peepholes, *norms, *projection))]
    outputs_zero = zero(state if layer.projects else hidden)
    kept_states = [row for row in (("Y_h", _STATE), ("Y_c", _CELL)) if is_kept(node, row[1])]
    y, *last = node.onnx_node().emit(
        "lstm_fixed", (*operands, *_initial_states(layer, node.type_of(sums).shape[1], outputs_zero)),
        cell_bits=layer.cell_bits, cell_clip=_clip(node, "CellClip", layer.cell, 2**15 - 1),
        projection_clip=_clip(node, "ProjClip", result(node), 127) if layer.projects else 0,
        zero=outputs_zero, hidden_zero=hidden_zero, coupled=layer.coupled, guards=guards,
        batch_major=not node.option("TimeMajor", default=False),
        results=("Y", *(name for name, _ in kept_states)))
    for (_, index), value in zip(kept_states, last, strict=True):
        keep_state(node, index, value)
    return [node.as_value(y, time_first(node))]


def _peephole_weights(layer: _Layer, factors: np.ndarray) -> np.ndarray | None:
    """Returns the peephole weights, int16 [3, units], and sets their factors; None if there are none."""
    node = layer.node
    if not any(map(node.has, _PEEPHOLES)):
        return None
    weights = np.zeros((3, layer.units), np.int16)
    for row, (index, gate) in enumerate(zip(_PEEPHOLES, _PEEPHOLE_GATES, strict=True)):
        if gate in layer.gates:
            weights[row] = node.const(index, "peepholes").reshape(-1)
            scale = float(quantization_of(node.tensors[index], ("int16",)).scale[0])
            factors[PEEPHOLES][row] = _multiplier(
                np.float32(2.0**(layer.cell_bits - 15) * scale / float(layer.gate_scales[gate])))
    return weights


def _normalisation(layer: _Layer, factors: np.ndarray) \
        -> tuple[tuple[np.ndarray | None, np.ndarray | None], tuple[int, ...]]:
    """Returns the weights, int16 [gates, units], and biases, int32 [gates, units], of layer normalisation, then the
    smallest variance of each gate, and sets the gates' factors. The arrays are None if gates are not normalised."""
    if not layer.normalised:
        return (None, None), (1, 1, 1, 1)
    scales = [quantization_of(layer.node.tensors[_NORMS[gate]], ("int16",)).scale[0] if gate in layer.gates
              else _GATE_SCALE for gate in range(4)]
    for gate in layer.gates:
        significand, shift = fixed_point.multiplier(float(scales[gate]))
        factors[NORMS][gate] = significand, _require_shift(shift + 12)  # divided by `_GATE_SCALE`
    weights, bias = (layer.concatenated(operands).reshape(len(layer.gates), -1).astype(dtype)
                     for operands, dtype in ((_NORMS, np.int16), (_BIAS, np.int32)))
    return (weights, bias), tuple(max(1, int(_VARIANCE_GUARD * scale)) for scale in scales)


def _projection(layer: _Layer, factors: np.ndarray, hidden_zero: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns weights, int8 [outputs, units], and biases, int32 [outputs], of the projection, and sets its factor; None
    if there is none. hidden_zero: the zero point of the projected tensor."""
    node = layer.node
    if not layer.projects:
        return None, None
    weights = node.const(_PROJECTION[0], "projection")
    factors[PROJECTION] = _multiplier(_scale(node, _PROJECTION[0]) * layer.hidden.scale[0] / layer.state.scale[0])
    bias = node.const(_PROJECTION[1], "bias").reshape(-1) if node.has(_PROJECTION[1]) \
        else np.zeros(layer.outputs, np.int32)
    return weights, _minus_zero_point(bias, weights, hidden_zero)


def _initial_states(layer: _Layer, batch: Dim, outputs_zero: int) -> list[str]:
    """Returns the values of the initial hidden and cell state; "" for zeros. outputs_zero: the zero point of the
    results, which the operator takes for that of a hidden state that begins as zeros."""
    node = layer.node
    hidden, cell = (initial_state(node, index, (batch, size))
                    for index, size in ((_STATE, layer.outputs), (_CELL, layer.units)))
    if not hidden and zero(layer.state) != outputs_zero:
        hidden = node.emit("expand", node.constant([[zero(layer.state)]], "int8"), shape=(batch, layer.outputs))
    return [hidden, cell]


def _intermediate_quantization(node: Node, index: int, dtypes: tuple[str, ...]) -> Quantization:
    """Returns the quantisation of one of the operator's intermediate tensors."""
    if index >= len(node.intermediates):
        raise ShapeError(f"has {len(node.intermediates)} intermediate tensors, but needs the scale of number {index}")
    return quantization_of(node.intermediates[index], dtypes)


def _clip(node: Node, option: str, quantization: Quantization, bound: int) -> int:
    """Returns a clipping bound in units of the clipped tensor's scale, at most `bound`; 0 for none."""
    limit = clipping_bound(node, option)
    return int(min(np.float32(limit) / quantization.scale[0], bound)) if limit > 0 else 0


def _minus_zero_point(bias: np.ndarray, weights: np.ndarray, zero_point: int) -> np.ndarray:
    """Returns the bias minus the products of weights with the zero point. int32 overflow wraps."""
    return (bias.astype(np.int64) - zero_point * weights.astype(np.int64).sum(1)).astype(np.int32)


def _input_sums(layer: _Layer) -> str:
    """Computes the inputs' part of the gates for all steps, int16 [T, N, gates * units]."""
    node, weights = layer.node, layer.concatenated(_INPUT)
    x = node.checked_in_order(node.value(0), time_first(node))
    steps, batch, inputs = node.type_of(x).shape
    rows = node.emit("reshape", x, shape=(steps * batch, inputs))
    constant = node.onnx_node().constant
    bias = "" if layer.normalised else constant(layer.concatenated(_BIAS).astype(np.int32))
    sums = node.emit("matmul_integer", rows, constant(weights), bias, trans_a=0, trans_b=1, a_zero=zero(layer.x),
                     b_zero=0)
    multipliers = layer.multipliers(_INPUT, layer.x).values()
    columns = [constant(np.repeat(np.array(part, np.int32), layer.units)) for part in zip(*multipliers, strict=True)]
    expr = clip(call("rescale_fixed", X, arg(1), arg(2)), -2**15, 2**15 - 1)
    (gates,) = emit_broadcast(node.onnx_node(), "elementwise", (sums, *columns), expr=expr, dtype="int16")
    return node.emit("reshape", gates, shape=(steps, batch, weights.shape[0]))


def _scale(node: Node, index: int) -> np.float32:
    """Returns the scale of int8 weights."""
    return quantization_of(node.tensors[index], ("int8",)).scale[0]


def _multiplier(real: np.float32) -> Multiplier:
    """Returns the fixed-point multiplier of a factor; raises Unsupported for one of 2^30 or more."""
    factor = fixed_point.multiplier(float(real))
    return Multiplier(factor.significand, _require_shift(factor.shift))


def _require_shift(shift: int) -> int:
    if shift > MAX_SHIFT:
        raise Unsupported(f"its scales differ by a factor of 2^{shift}")
    return shift


def _power(cell: Quantization) -> int:
    """Returns the exponent of the cell state's scale, which is a power of two."""
    fraction, power = np.frexp(cell.scale[0])
    if abs(2 * float(fraction) - 1) > 1e-3:
        raise ShapeError(f"its cells have the scale {cell.scale[0]}, which is no power of two")
    return int(power) - 1
