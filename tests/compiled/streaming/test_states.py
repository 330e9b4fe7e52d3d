# SPDX-License-Identifier: Apache-2.0
"""Streaming: a session keeps the value of an output as an input of the next run."""

from __future__ import annotations

import subprocess

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError, MissingTool, ModelError, ShapeError

FLOAT = onnx.TensorProto.FLOAT
STEPS = np.random.default_rng(0).standard_normal((5, 1, 3)).astype(np.float32)


def accumulator() -> onnx.ModelProto:
    """sum_out = x + sum_in, count_out = count_in + 1, mean = sum_out / count_out."""
    nodes = [node("Add", "x sum_in", "sum_out"), node("Add", "count_in one", "count_out"),
             node("Cast", "count_out", "count", to=FLOAT), node("Div", "sum_out count", "mean")]
    count = "int64", [1]
    return model(nodes, {"sum_in": [1, 3], "x": [1, 3], "count_in": count},
                 {"count_out": count, "mean": [1, 3], "sum_out": [1, 3]}, {"one": np.array([1])}, name="accumulator")


STATES = {"sum_out": "sum_in", "count_out": "count_in"}
MEANS = np.cumsum(STEPS, axis=0) / np.arange(1, 6, dtype=np.float32).reshape(5, 1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    native_compiler()
    artifact = tvm_megcc.compile(accumulator(), "native,arm64", states=STATES, name="accumulator")
    return artifact.save(tmp_path_factory.mktemp("states") / "accumulator_megcc")


@pytest.fixture(params=["native", pytest.param("arm64", marks=pytest.mark.slow)])
def session(request, folder):
    try:
        return tvm_megcc.load(folder, request.param)
    except MissingTool as missing:
        pytest.skip(str(missing))


def means(session) -> np.ndarray:
    return np.stack([session.run({"x": step})["mean"] for step in STEPS])


def test_states_are_kept_and_reset(session):
    assert [port.name for port in session.inputs] == ["x"]
    assert [port.name for port in session.outputs] == ["mean"]
    np.testing.assert_allclose(means(session), MEANS, rtol=1e-5)
    np.testing.assert_allclose(session.states["sum_in"], STEPS.sum(0), rtol=1e-5)
    assert session.states["count_in"].tolist() == [5]
    session.reset()
    assert session.states["count_in"].tolist() == [0]
    np.testing.assert_allclose(means(session), MEANS, rtol=1e-5)


def test_states_begin_as_given(session):
    session.reset({"sum_in": np.full((1, 3), 10, np.float32)})
    np.testing.assert_allclose(session.run({"x": STEPS[0]})["mean"], STEPS[0] + 10, rtol=1e-5)


def test_sessions_are_independent(folder):
    first, second = tvm_megcc.load(folder), tvm_megcc.load(folder)
    first.run({"x": STEPS[4]})
    np.testing.assert_allclose(means(second), MEANS, rtol=1e-5)
    assert first.states["count_in"].tolist() == [1]


def test_wrong_use(session):
    for inputs, message in (({"x": STEPS[0], "sum_in": STEPS[0]}, "'sum_in' is a state of accumulator"),
                            ({}, "misses its input 'x'")):
        with pytest.raises(ShapeError, match=message):
            session.run(inputs)
    for states, message in (({"x": STEPS[0]}, "has no state 'x'; it has 'sum_in'"),
                            ({"count_in": np.zeros(1)}, r"expects the state 'count_in': int64\[1\]")):
        with pytest.raises(ShapeError, match=message):
            session.reset(states)
    for states in ("sum_in", 5, [STEPS[0]]):
        with pytest.raises(TypeError, match="have to be a dictionary"):
            session.reset(states)


@pytest.mark.slow
def test_the_example_and_the_documents(folder):
    header, readme = (folder / "accumulator.h").read_text(), (folder / "README.md").read_text()
    assert '"sum_in", float32[1,3], a state: sum_out of the last run' in header
    assert "The session keeps the states sum_in, count_in from run to run" in readme and "megcc_session_reset" in readme
    subprocess.run(["make", "-s", "CFLAGS=-O1 -Wall -Wextra -Werror"], cwd=folder, check=True)
    out = subprocess.run(["build/make/main"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert out.split() == ["0", "0", "0"]


def test_a_stream_from_files(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("steps.npz", x=STEPS)
    assert main(["run", str(folder), "--inputs", "steps.npz", "--sequence", "--outputs", "means.npz"]) == 0
    np.testing.assert_allclose(np.load("means.npz")["mean"], MEANS, rtol=1e-5)
    capsys.readouterr()
    assert main(["run", str(folder), "--sequence"]) == REFUSED
    assert "--sequence runs the steps" in capsys.readouterr().err


@pytest.mark.slow
def test_compare_includes_the_states(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(accumulator(), "accumulator.onnx")
    options = ["--reference", "numpy", "--state", "sum_out=sum_in", "--state", "count_out=count_in"]
    assert main(["compare", "accumulator.onnx", *options]) == 0
    text = capsys.readouterr().out
    assert "sum_out" in text and "count_out" in text and text.endswith("equal\n")


@pytest.mark.parametrize(("states", "messages"), [
    ({"sums": "sum_in"}, ["the model has no output 'sums'; its outputs are count_out, mean, sum_out"]),
    ({"sum_out": "sums"}, ["the model has no input 'sums'; its inputs are sum_in, x, count_in"]),
    ({"sum_out": "sum_in", "mean": "sum_in"}, ["state 'mean=sum_in': input 'sum_in' is in another state too"]),
    ({"sum_out": "count_in"}, ["output 'sum_out' is float32[1,3], input 'count_in' is int64[1]"]),
    ({"a": "b", "sum_out": "count_in"}, ["no output 'a'", "no input 'b'", "state 'sum_out=count_in'"]),
])
def test_states_that_do_not_fit(states, messages):
    with pytest.raises(ModelError) as refused:
        tvm_megcc.compile(accumulator(), "c", states=states)
    assert all(message in str(refused.value) for message in messages)


def test_a_state_of_unknown_shape():
    model = accumulator()
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(ModelError, match="the shape of a state is fixed"):
        tvm_megcc.compile(model, "c", states={"sum_out": "sum_in"}, dispatch="x[0]=uniform(1,1,4)")


def test_a_state_whose_output_knows_its_size():
    made = model([node("Relu", "x", "h"), node("Neg", "g", "y")], {"x": [1, 3], "g": ["n", 3]},
                 {"h": [1, 3], "y": ["n", 3]})
    with pytest.raises(ModelError, match=r'as large as the output that it becomes: dims="n=1"\. A state is'):
        tvm_megcc.compile(made, "c", states={"h": "g"}, dims="n=1..4")
    tvm_megcc.compile(made, "c", states={"h": "g"}, dims="n=1")


@pytest.mark.parametrize("text", ["h", "h=", "=h", "a=b a=c"])
def test_wrong_pairs_on_the_command_line(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(accumulator(), "accumulator.onnx")
    options = [word for pair in text.split() for word in ("--state", pair)]
    assert main(["compile", "accumulator.onnx", *options]) == REFUSED
    assert f"state '{text.split()[-1]}'" in capsys.readouterr().err


def test_the_plan_keeps_states_apart():
    """Nothing may lie in the memory of a state, whatever else is dead."""
    artifact = tvm_megcc.compile(accumulator(), "c", states=STATES)
    rows = [line for line in artifact.report.splitlines() if " state " in line]
    assert len(rows) == 2
    with pytest.raises(MegccError):
        tvm_megcc.compile(accumulator(), "c", states={"mean": "x", "sum_out": "x"})
