# SPDX-License-Identifier: Apache-2.0
"""Decomposes com.microsoft's DynamicQuantizeLSTM, to which ONNX Runtime's dynamic quantisation converts an LSTM, into a
Scan.

As in ONNX Runtime, the whole input is quantised once and the hidden state in each step. Both matrix products are of
integers; the gates are computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx.parser

from ...errors import MegccError
from .builder import Node

if TYPE_CHECKING:
    from .importer import Importer, Scope

_OPSETS = {"ai.onnx": 18, "com.microsoft": 1}
#: Operands by position; those from the fifth to the eighth may be absent.
_OPERANDS = ("X", "W", "R", "B", "lens", "h0", "c0", "P", "W_scale", "W_zero", "R_scale", "R_zero")
_ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def dynamic_lstm(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
                 opsets: Mapping[str, int]) -> list[str | None]:
    """Returns Y of shape [steps, directions, batch, hidden], then the final hidden and cell states."""
    direction = node.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise MegccError(f"has direction {direction}; forward, reverse or bidirectional are supported")
    if node.has(4) or node.attr("input_forget", 0):
        raise MegccError("has lengths of its sequences, or forget gates that are coupled, which is not supported")
    backwards = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]
    hidden, clip = int(node.attr("hidden_size")), float(node.attr("clip", 0))
    names = [_activation(name) for name in node.attr("activations") or ["Sigmoid", "Tanh", "Tanh"] * len(backwards)]
    if len(names) != 3 * len(backwards):
        raise MegccError(f"has {len(names)} activations for {len(backwards)} directions; three each are supported")
    given = {name: node.inputs[index] for index, name in enumerate(_OPERANDS) if node.has(index)}
    parts = [_one(given, index, backward, names[3 * index:3 * index + 3], hidden, clip)
             for index, backward in enumerate(backwards)]
    joined = "\n".join(f"{y} = Concat <axis = {axis}> ({', '.join(f'{y}{index}' for index in range(len(parts)))})"
                       for y, axis in (("Y", 1), ("Y_h", 0), ("Y_c", 0)))
    graph = onnx.parser.parse_graph(f"lstm ({', '.join(given)}) => (Y, Y_h, Y_c) {{{''.join(parts)}{joined}}}")
    return importer.inlined(graph, type(scope)(), _OPSETS, given)[:len(proto.output)]


def _activation(name: str) -> str:
    if name.lower() not in _ACTIVATIONS:
        raise MegccError(f"has activation {name}, which is not supported here")
    return _ACTIVATIONS[name.lower()]


def _one(given: Mapping[str, str], index: int, backward: int, activations: list[str], hidden: int,
         clip: float) -> str:
    """Returns the ONNX nodes of one direction. Weights hold the gates in the order input, output, forget, cell."""
    f, g, h = activations
    of = {name: f"{name}{index}" for name in given if name != "X"}
    chosen = "\n".join(f"{name} = Gather <axis = 0> ({operand}, at{index})" for operand, name in of.items())
    sums = f"s0 = com.microsoft.DynamicQuantizeMatMul (h, {of['R']}, {of['R_scale']}, {of.get('R_zero', '')})\n" \
           "s = Add (x, s0)"
    if "B" in of:
        chosen += f"\nhalf{index} = Reshape ({of['B']}, two{index})\n" \
                  f"bias{index} = ReduceSum <keepdims = 0> (half{index}, zeros{index})"
        sums += f"\nt = Add (s, bias{index})"
    else:
        sums += "\nt = Identity (s)"
    if "P" in of:
        chosen += f"\npi{index}, po{index}, pf{index} = Split <axis = 0, num_outputs = 3> ({of['P']})"
    states = "\n".join(
        f"first_{state}{index} = Identity ({of[f'{state}0']})" if f"{state}0" in of else
        f"first_{state}{index} = Expand (zero{index}, size{index})" for state in "hc")
    bound = f"Clip ({{0}}, least{index}, most{index})" if clip else "Identity ({0})"
    gates = "\n".join(_gate(gate, kind, peephole, cell, index, "P" in of, bound) for gate, kind, peephole, cell in (
        ("i", f, "pi", "c"), ("f", f, "pf", "c"), ("g", g, "", "")))
    return f"""
at{index} = Constant <value_int = {index}> ()
zeros{index} = Constant <value_ints = [0]> ()
two{index} = Constant <value_ints = [2, -1]> ()
zero{index} = Constant <value_float = 0.0> ()
least{index} = Constant <value_float = {-clip:.9g}> ()
most{index} = Constant <value_float = {clip:.9g}> ()
batch{index} = Shape <start = 1, end = 2> (X)
wide{index} = Constant <value_ints = [{hidden}]> ()
size{index} = Concat <axis = 0> (batch{index}, wide{index})
{chosen}
{states}
x{index} = com.microsoft.DynamicQuantizeMatMul (X, {of['W']}, {of['W_scale']}, {of.get('W_zero', '')})
last_h{index}, last_c{index}, all{index} = Scan <num_scan_inputs = 1, scan_input_directions = [{backward}],
    scan_output_directions = [{backward}], body = turn (float h, float c, float x) => (float h1, float c1, float y) {{
        {sums}
        i0, o0, f0, g0 = Split <axis = -1, num_outputs = 4> (t)
        {gates}
        fc = Mul (f, c)
        ig = Mul (i, g)
        c1 = Add (fc, ig)
        {_gate("o", f, "po", "c1", index, "P" in of, bound)}
        c2 = {h} (c1)
        h1 = Mul (o, c2)
        y = Identity (h1)
    }}> (first_h{index}, first_c{index}, x{index})
one{index} = Constant <value_ints = [1]> ()
Y{index} = Unsqueeze (all{index}, one{index})
Y_h{index} = Unsqueeze (last_h{index}, zeros{index})
Y_c{index} = Unsqueeze (last_c{index}, zeros{index})
"""


def _gate(gate: str, activation: str, peephole: str, cell: str, index: int, peeps: bool, bound: str) -> str:
    """Returns the nodes of one gate of a step, from its sum `i0` to its value `i`."""
    if not peeps or not peephole:
        return f"{gate}1 = {bound.format(f'{gate}0')}\n{gate} = {activation} ({gate}1)"
    return f"{gate}2 = Mul ({peephole}{index}, {cell})\n{gate}3 = Add ({gate}0, {gate}2)\n" \
           f"{gate}1 = {bound.format(f'{gate}3')}\n{gate} = {activation} ({gate}1)"
