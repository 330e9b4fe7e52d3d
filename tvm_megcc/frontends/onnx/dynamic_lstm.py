# SPDX-License-Identifier: Apache-2.0
"""Decomposes com.microsoft's DynamicQuantizeLSTM, to which ONNX Runtime's dynamic quantisation converts an LSTM, into a
Scan.

As in ONNX Runtime, the whole input is quantised once and the hidden state in each step. Both matrix products are of
integers; the gates are computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx.parser

from ...errors import MegccError
from .builder import Node

if TYPE_CHECKING:
    from .nodes import Importer, Scope

_OPSETS = {"ai.onnx": 18, "com.microsoft": 1}
#: Operands by position. B to P and the zero points may be absent. X: [steps, batch, input]. W, R: the weights of input
#: and hidden state, [directions, input, 4 * hidden] and [directions, hidden, 4 * hidden]. lens: the lengths of the
#: sequences. h0, c0: the first states. P: the peephole weights.
_OPERANDS = ("X", "W", "R", "B", "lens", "h0", "c0", "P", "W_scale", "W_zero", "R_scale", "R_zero")
_ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def dynamic_lstm(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
                 opsets: Mapping[str, int]) -> list[str | None]:
    """Returns Y of shape [steps, directions, batch, hidden], then the final hidden and cell states."""
    direction = node.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise MegccError(f"has direction {direction}; forward, reverse or bidirectional are supported")
    if node.has(_OPERANDS.index("lens")) or node.attr("input_forget", 0):
        raise MegccError("has lengths of its sequences, or forget gates that are coupled, which is not supported")
    backward_flags = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]
    directions = range(len(backward_flags))
    hidden, clip = int(node.attr("hidden_size")), float(node.attr("clip", 0))
    names = [_activation(name) for name in node.attr("activations") or ["Sigmoid", "Tanh", "Tanh"] * len(directions)]
    if len(names) != 3 * len(directions):
        raise MegccError(f"has {len(names)} activations for {len(directions)} directions; three each are supported")
    given = {name: node.inputs[index] for index, name in enumerate(_OPERANDS) if node.has(index)}
    nodes = "".join(_direction_nodes(given, _Direction(index, backward_flags[index], names[3 * index:3 * index + 3],
                                                       hidden, clip)) for index in directions)
    joined = "\n".join(f"{output} = Concat <axis = {axis}> ({', '.join(f'{output}{index}' for index in directions)})"
                       for output, axis in (("Y", 1), ("Y_h", 0), ("Y_c", 0)))
    graph = onnx.parser.parse_graph(f"lstm ({', '.join(given)}) => (Y, Y_h, Y_c) {{{nodes}{joined}}}")
    # A new scope, since the graph reads its own inputs only. Its class is in `nodes`, which imports this module.
    return importer.inline(graph, type(scope)(), _OPSETS, given)[:len(proto.output)]


def _activation(name: str) -> str:
    """Returns the ONNX operator of an activation."""
    if name.lower() not in _ACTIVATIONS:
        raise MegccError(f"has activation {name}, which is not supported here")
    return _ACTIVATIONS[name.lower()]


@dataclass(frozen=True)
class _Direction:
    """One direction of an LSTM.

    index: its index in the operands; names of its values end in it.
    backward: 1 if it reads the sequence from the end, else 0.
    activations: the operators of ONNX that its LSTM calls f, g and h: of the gates, the cell's input and its output.
    hidden: the number of hidden units.
    clip: bound of the gates' sums; 0 for none.
    """

    index: int
    backward: int
    activations: Sequence[str]
    hidden: int
    clip: float


def _direction_nodes(given: Mapping[str, str], direction: _Direction) -> str:
    """Returns the nodes of one direction in ONNX's text format, with the outputs Y, Y_h and Y_c of that direction.

    given: operand -> value, for those that are not absent.
    """
    index = direction.index
    operands = {name: f"{name}{index}" for name in given if name != "X"}
    setup = "\n".join(f"{name} = Gather <axis = 0> ({operand}, direction{index})" for operand, name in operands.items())
    if "B" in operands:
        setup += f"\nWb_Rb{index} = Reshape ({operands['B']}, bias_shape{index})\n" \
                 f"bias{index} = ReduceSum <keepdims = 0> (Wb_Rb{index}, zeros{index})"
    if "P" in operands:
        setup += f"\npi{index}, po{index}, pf{index} = Split <axis = 0, num_outputs = 3> ({operands['P']})"
    states = "\n".join(
        f"first_{state}{index} = Identity ({operands[f'{state}0']})" if f"{state}0" in operands else
        f"first_{state}{index} = Expand (zero{index}, state_shape{index})" for state in "hc")
    return f"""
direction{index} = Constant <value_int = {index}> ()
zeros{index} = Constant <value_ints = [0]> ()
bias_shape{index} = Constant <value_ints = [2, -1]> ()
zero{index} = Constant <value_float = 0.0> ()
min{index} = Constant <value_float = {-direction.clip:.9g}> ()
max{index} = Constant <value_float = {direction.clip:.9g}> ()
batch{index} = Shape <start = 1, end = 2> (X)
hidden{index} = Constant <value_ints = [{direction.hidden}]> ()
state_shape{index} = Concat <axis = 0> (batch{index}, hidden{index})
{setup}
{states}
x{index} = com.microsoft.DynamicQuantizeMatMul (X, {operands['W']}, {operands['W_scale']}, {operands.get('W_zero', '')})
last_h{index}, last_c{index}, all{index} = Scan <num_scan_inputs = 1, scan_input_directions = [{direction.backward}],
    scan_output_directions = [{direction.backward}],
    body = step (float h, float c, float x) => (float h1, float c1, float y) {{
{_step_nodes(operands, direction)}
    }}> (first_h{index}, first_c{index}, x{index})
one{index} = Constant <value_ints = [1]> ()
Y{index} = Unsqueeze (all{index}, one{index})
Y_h{index} = Unsqueeze (last_h{index}, zeros{index})
Y_c{index} = Unsqueeze (last_c{index}, zeros{index})
"""


def _step_nodes(operands: Mapping[str, str], direction: _Direction) -> str:
    """Returns the nodes of one step of a direction.

    Weights hold the gates in the order input, output, forget, cell. One step computes, as ONNX's LSTM does (i, o, f, g:
    the gates; P: peephole weights; F, G, H: the activations):

        i, o, f, g = split(x W + h R + Wb + Rb)
        c' = F(f + Pf c) * c + F(i + Pi c) * G(g)
        h' = F(o + Po c') * H(c')

    operands: operand -> its value in this direction.
    """
    index, (of_gates, of_input, of_output) = direction.index, direction.activations
    clipped = f"Clip ({{0}}, min{index}, max{index})" if direction.clip else "Identity ({0})"
    peephole = {gate: f"p{gate}{index}" if "P" in operands and gate != "g" else "" for gate in "iofg"}
    gates = "\n".join(_gate_nodes(gate, activation, peephole[gate], "c", clipped)
                      for gate, activation in (("i", of_gates), ("f", of_gates), ("g", of_input)))
    weights = f"{operands['R']}, {operands['R_scale']}, {operands.get('R_zero', '')}"
    return f"""
        hR = com.microsoft.DynamicQuantizeMatMul (h, {weights})
        xW_hR = Add (x, hR)
        sums = {f"Add (xW_hR, bias{index})" if "B" in operands else "Identity (xW_hR)"}
        i_sum, o_sum, f_sum, g_sum = Split <axis = -1, num_outputs = 4> (sums)
        {gates}
        fc = Mul (f, c)
        ig = Mul (i, g)
        c1 = Add (fc, ig)
        {_gate_nodes("o", of_gates, peephole["o"], "c1", clipped)}
        activated_c = {of_output} (c1)
        h1 = Mul (o, activated_c)
        y = Identity (h1)"""


def _gate_nodes(gate: str, activation: str, peephole: str, cell: str, clipped: str) -> str:
    """Returns the nodes that compute a gate, such as `i`, from its sum, `i_sum`.

    peephole: the name of its peephole weights, "" for none. cell: the name of the cell state that they read. clipped: a
    format string of the node that clips a sum.
    """
    total, nodes = f"{gate}_sum", ""
    if peephole:
        total = f"{gate}_peephole_sum"
        nodes = f"{gate}_peephole = Mul ({peephole}, {cell})\n{total} = Add ({gate}_sum, {gate}_peephole)\n"
    return f"{nodes}{gate}_clipped = {clipped.format(total)}\n{gate} = {activation} ({gate}_clipped)"
