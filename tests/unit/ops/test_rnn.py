# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN with their attributes, through importer and interpreter against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.onnx_models import fed, model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.recurrent.activations import ACTIVATIONS
from tvm_megcc.ops.recurrent.rnn import DIRECTIONS
from tvm_megcc.runtime import reference

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUTS, UNITS = 6, 3, 4, 5
LENGTHS = np.array([6, 0, 3], np.int32)
#: Activations, for one direction, other than the default ones.
OTHERS = {"LSTM": ["HardSigmoid", "Relu", "Softsign"], "GRU": ["HardSigmoid", "Softplus"], "RNN": ["Affine"]}
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


def operands(op: str, direction: str, lengths=None, states=True, bias=True, peepholes=False) -> dict:
    """Seeded operands in ONNX's order; None for an absent one."""
    generator, gates, d = np.random.default_rng(0), GATES[op], len(DIRECTIONS[direction])

    def draw(*shape):
        return (0.7 * generator.standard_normal(shape)).astype(np.float32)

    values = {"X": draw(STEPS, BATCH, INPUTS), "W": draw(d, gates * UNITS, INPUTS), "R": draw(d, gates * UNITS, UNITS),
              "B": draw(d, 2 * gates * UNITS) if bias else None, "lengths": lengths}
    for name in ("initial_h", "initial_c")[:2 if op == "LSTM" else 1]:
        values[name] = draw(d, BATCH, UNITS) if states else None
    if op == "LSTM":
        values["P"] = draw(d, 3 * UNITS) if peepholes else None
    return values


def model_of(op: str, values: dict, constant=("W", "R", "B", "P"), **attributes) -> tuple[onnx.ModelProto, dict]:
    """A model of one node, and what it is fed."""
    names = [name if value is not None else "" for name, value in values.items()]
    while not names[-1]:
        names.pop()
    results = ["Y", "Y_h", "Y_c"][:3 if op == "LSTM" else 2]
    layer = node(op, " ".join(names), " ".join(results), hidden_size=values["R"].shape[-1], **attributes)
    feeds = {name: value for name, value in values.items() if value is not None and name not in constant}
    weights = {name: values[name] for name in constant if values.get(name) is not None}
    return model([layer], fed(feeds), results, weights, opset=14), feeds


def run(model: onnx.ModelProto, feeds: dict) -> dict[str, np.ndarray]:
    return reference.run(import_onnx(model), feeds)


VARIANTS = [({}, {}), ({"states": False, "bias": False}, {}), ({"lengths": LENGTHS}, {}), ({}, {"clip": 0.3})]
LAYERS = [(op, direction, *variant) for op in GATES for direction in DIRECTIONS for variant in VARIANTS]
for _direction in DIRECTIONS:
    _d = len(DIRECTIONS[_direction])
    LAYERS += [("LSTM", _direction, {"peepholes": True}, {}), ("LSTM", _direction, {}, {"input_forget": 1}),
               ("LSTM", _direction, {"peepholes": True, "lengths": LENGTHS}, {"input_forget": 1, "clip": 0.4}),
               ("GRU", _direction, {}, {"linear_before_reset": 1}),
               ("GRU", _direction, {"bias": False}, {"linear_before_reset": 1, "clip": 0.3})]
    LAYERS += [(op, _direction, {}, {"activations": OTHERS[op] * _d, "activation_alpha": [0.3] * _d,
                                     "activation_beta": [0.4] * _d}) for op in GATES]
LAYERS += [(op, "bidirectional", {"lengths": LENGTHS},
            {"activations": OTHERS[op] + DEFAULTS[op], "activation_alpha": [0.3], "activation_beta": [0.4]})
           for op in GATES]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda row: "-".join((row[0], row[1], *row[2], *row[3])))
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "variable"])
def test_layer(layer, constant: bool):
    onnxruntime = pytest.importorskip("onnxruntime")
    op, direction, present, attributes = layer
    weights = ("W", "R", "B", "P") if constant else ()
    model, feeds = model_of(op, operands(op, direction, **present), weights, direction=direction, **attributes)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for actual, expected in zip(run(model, feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, atol=3e-6)


@pytest.mark.parametrize("op", GATES)
def test_batch_first_is_a_transposition(op: str):
    values = operands(op, "bidirectional", LENGTHS)
    first = run(*model_of(op, values, direction="bidirectional"))
    swapped = {name: np.ascontiguousarray(np.swapaxes(value, 0, 1)) if name in ("X", "initial_h", "initial_c")
               else value for name, value in values.items()}
    second = run(*model_of(op, swapped, direction="bidirectional", layout=1))
    np.testing.assert_allclose(second.pop("Y"), first.pop("Y").transpose(2, 0, 1, 3), atol=1e-6)
    for name, value in second.items():
        np.testing.assert_allclose(value, first[name].swapaxes(0, 1), atol=1e-6)


#: With their default parameters, at -2, -0.5, 0.5, 2.
EXPECTED = {
    "affine": lambda x: x, "relu": lambda x: np.maximum(x, 0), "leakyrelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "thresholdedrelu": lambda x: np.where(x > 1, x, 0), "tanh": np.tanh, "scaledtanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "hardsigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "elu": lambda x: np.where(x < 0, np.exp(x) - 1, x), "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_default_parameters_are_those_of_the_operators(name: str):
    x = np.array([-2, -0.5, 0.5, 2], np.float32)
    values = {"X": x.reshape(1, 4, 1), "W": np.ones((1, 1, 1), np.float32), "R": np.zeros((1, 1, 1), np.float32)}
    model, feeds = model_of("RNN", values, activations=[name])
    np.testing.assert_allclose(run(model, feeds)["Y"].ravel(), EXPECTED[name](x), rtol=1e-5)


def test_results_that_nothing_reads_are_not_computed():
    values = operands("LSTM", "forward", states=False)
    model, feeds = model_of("LSTM", values)
    del model.graph.output[:1]
    del model.graph.output[1:]
    graph = import_onnx(model)
    (op,) = (op for op in graph.ops if op.kind == "lstm")
    assert op.attrs.results == ("Y_h",) and op.outputs == ("Y_h",)
    assert list(reference.run(graph, feeds)) == ["Y_h"]


def test_lengths_of_whole_sequences_and_states_of_zeros_are_dropped():
    values = operands("GRU", "forward", np.full(BATCH, STEPS, np.int32))
    values["initial_h"] = np.zeros_like(values["initial_h"])
    model, _ = model_of("GRU", values, ("W", "R", "B", "lengths", "initial_h"))
    (op,) = (op for op in import_onnx(model).ops if op.kind == "gru")
    assert len(op.inputs) == 2


@pytest.mark.parametrize(("attributes", "message"), [
    ({"activations": ["Sigmoid", "Tanh", "Cube"]}, "activation 'Cube' is not one of affine, elu"),
    ({"activations": ["Sigmoid"]}, "has 1 activations (Sigmoid) where 3 a direction are wanted"),
    ({"direction": "bidirectional"}, "has direction 'bidirectional' and weights for 1 directions"),
])
def test_contradictions(attributes, message):
    model, _ = model_of("LSTM", operands("LSTM", "forward"), **attributes)
    with pytest.raises(ModelError) as refused:
        import_onnx(model)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["W", "R", "initial_c", "P"])
def test_wrong_shapes(name: str):
    values = operands("LSTM", "forward", peepholes=True)
    values[name] = values[name][..., :-1]
    model, _ = model_of("LSTM", values)
    with pytest.raises(ModelError, match="LSTM 'Y'"):
        import_onnx(model)
