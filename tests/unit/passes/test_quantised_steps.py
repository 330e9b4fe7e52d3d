# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN between QuantizeLinear and DequantizeLinear: weights and results stay integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import model, node
from tvm_megcc.context import Context
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.graph import Graph
from tvm_megcc.ops.recurrent.rnn import DIRECTIONS
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, INPUTS, UNITS = 9, 6, 20
CONTEXT = Context(TARGETS["x86-64-v3"])


def quantised_layer(op: str, direction: str = "forward", dtype: str = "int8", zero: int = 0, axis: int | None = None,
                    results: str = "Y Y_h", **attributes) -> tuple[Graph, dict[str, np.ndarray]]:
    """A layer whose operands are dequantised, and whose results are quantised. axis: of several scales of weights."""
    generator, gates, d = np.random.default_rng(1), GATES[op], len(DIRECTIONS[direction])
    limits = np.iinfo(dtype)
    constants, nodes = {"zero": np.array(3, dtype), "step": np.float32(0.02)}, []
    for name, shape in (("W", (d, gates * UNITS, INPUTS)), ("R", (d, gates * UNITS, UNITS)),
                        ("B", (d, 2 * gates * UNITS))):
        several = axis is not None and name != "B"
        count = shape[axis] if several else 1
        constants[f"{name}q"] = np.clip(generator.normal(zero, 40, shape).round(), limits.min, limits.max).astype(dtype)
        constants[f"{name}s"] = generator.uniform(0.002, 0.004, count if several else ()).astype(np.float32)
        constants[f"{name}z"] = np.full(count if several else (), zero, dtype)
        nodes.append(node("DequantizeLinear", f"{name}q {name}s {name}z", name, axis=axis if several else 1))
    nodes.append(node("DequantizeLinear", "x step zero", "real"))
    nodes.append(node(op, "real W R B", results, hidden_size=UNITS, direction=direction, **attributes))
    made = results.split()
    nodes += [node("QuantizeLinear", f"{name} step zero", f"{name}q_out") for name in made]
    inputs = {"x": generator.integers(limits.min, limits.max + 1, (STEPS, 2, INPUTS)).astype(dtype)}
    outputs = {f"{name}q_out": (dtype, None) for name in made}
    return import_onnx(model(nodes, {"x": (dtype, [STEPS, 2, INPUTS])}, outputs, constants)), inputs


@pytest.mark.parametrize(("op", "how"), [
    ("LSTM", {}), ("GRU", {"linear_before_reset": 1}), ("GRU", {"axis": 1}), ("RNN", {"results": "Y"}),
    ("LSTM", {"dtype": "uint8", "zero": 130, "direction": "bidirectional", "results": "Y Y_h Y_c"}),
    ("LSTM", {"direction": "bidirectional", "axis": 0}), ("LSTM", {"axis": 1, "direction": "reverse"}),
])
def test_weights_and_results_stay_integers(op, how):
    """One kernel between integer tensors, and within one of the float meaning."""
    before, inputs = quantised_layer(op, **how)
    after = before_layouts(before, CONTEXT)
    assert [each.kind for each in after.ops] == ["matmul_integer", op.lower()]
    layer = after.ops[-1]
    assert {after.types[name].dtype for name in layer.outputs} == {how.get("dtype", "int8")}
    integers = sum(array.nbytes for name, array in before.constants.items() if name[1:] == "q")
    rows = 4 * before.constants["Rq"].size // UNITS
    # The sum of both biases is real, and so may be a scale for each row.
    held = integers + (4 if op == "LSTM" and "axis" not in how else 12) * rows
    assert sum(array.nbytes for array in after.constants.values()) <= held
    expected, actual = (reference.run(graph, inputs) for graph in (before, after))
    for name, array in expected.items():
        difference = np.abs(array.astype(int) - actual[name])
        assert difference.max() <= 1 and difference.mean() < 0.01, name
        assert len(np.unique(array)) > 10


def test_zero_points_that_leave_room_are_taken_off():
    """uint8 about 128 is int8; about 100 it is not, and the kernel takes the zero point off."""
    for zero, dtype, kept in ((128, "int8", 0), (100, "uint8", 100)):
        graph, _ = quantised_layer("LSTM", dtype="uint8", zero=zero)
        graph = graph.with_(constants={**graph.constants, "Rq": np.clip(graph.constants["Rq"], 0, 255)})
        spread = graph.constants["Rq"].copy()
        spread.flat[:2] = 0, 255
        after = before_layouts(graph.with_(constants={**graph.constants, "Rq": spread}), CONTEXT)
        layer = after.ops[-1]
        assert (after.types[layer.inputs[1]].dtype, layer.attrs.r_zero) == (dtype, kept)


def test_weights_with_scales_along_sums_are_reals():
    """Scales of columns of the recurrent weights do not come out of the sums."""
    before, inputs = quantised_layer("LSTM", axis=2)
    after = before_layouts(before, CONTEXT)
    assert after.types[after.ops[-1].inputs[1]].dtype == "float32"
    for name, expected in reference.run(before, inputs).items():
        assert np.abs(expected.astype(int) - reference.run(after, inputs)[name]).max() <= 1


def test_a_result_that_is_read_twice_stays_real():
    before, inputs = quantised_layer("GRU", results="Y")
    second = before.ops[-1].with_(outputs=("again",))
    before = before.with_(ops=(*before.ops, second), outputs=(*before.outputs, "again"),
                          types={**before.types, "again": before.types[before.outputs[0]]})
    after = before_layouts(before, CONTEXT)
    layer = next(op for op in after.ops if op.kind == "gru")
    assert after.types[layer.outputs[0]].dtype == "float32"
    results = list(reference.run(after, inputs).values())
    np.testing.assert_array_equal(results[0], results[1])
