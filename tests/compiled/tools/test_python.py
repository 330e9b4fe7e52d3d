# SPDX-License-Identifier: Apache-2.0
"""Python as people write it who come from ONNX Runtime, PyTorch and pandas."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import warnings

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.errors import ARGUMENTS, MegccError, MegccWarning, ShapeError, for_the_command
from tvm_megcc.frontends import torch_models
from tvm_megcc.options import CompileKeywords, CompileOptions, all_options
from tvm_megcc.target import TARGETS

DIGITS = paths.examples() / "digits.onnx"


@pytest.fixture(scope="module", autouse=True)
def compiler():
    native_compiler()


def sums():
    """Two columns, their sum and difference."""
    return model([node("Add", "a b", "sum"), node("Sub", "a b", "difference")], {"a": ["n", 1], "b": ["n", 1]},
                 {"sum": ["n", 1], "difference": ["n", 1]}, name="sums")


@pytest.fixture(scope="module")
def session():
    return tvm_megcc.load(tvm_megcc.compile(sums(), "c", dims={"n": "1..4"}, threads=2))


A, B = np.float32([[1], [2]]), np.float32([[3], [5]])


def test_an_artifact_is_loaded(session):
    assert np.array_equal(session(A, B)[0], A + B)
    again = tvm_megcc.load(tvm_megcc.compile(sums(), "c", dims={"n": "1..4"}, threads=2))
    assert again.folder == session.folder, "built once"


def test_as_onnx_runtime_takes_it(session):
    total, difference = session.run(None, {"a": A, "b": B})
    assert np.array_equal(total, A + B) and np.array_equal(difference, A - B)
    (difference,) = session.run(["difference"], {"a": A, "b": B})
    assert np.array_equal(difference, A - B)
    with pytest.raises(ShapeError, match="no output 'quotient'; its outputs are sum, difference"):
        session.run(["quotient"], {"a": A, "b": B})


class Table:
    """What of pandas.DataFrame is looked at."""

    iloc = None

    def __init__(self, **columns):
        self.columns, self._values = list(columns), columns

    def __getitem__(self, name):
        return self._values[name]

    def __array__(self, dtype=None, copy=None):
        return np.stack([self._values[name] for name in self.columns], 1).astype(dtype or float)


def test_tables(session):
    table = Table(b=np.array([3.0, 5.0]), a=np.array([1.0, 2.0]), more=np.array([0.0, 0.0]))
    assert np.array_equal(session.run(table)["difference"], A - B)
    assert np.array_equal(session.run({"a": Table(x=A[:, 0]), "b": B})["sum"], A + B)
    one = tvm_megcc.load(tvm_megcc.compile(model([node("Neg", "x", "y")], {"x": [2, 3]}, {"y": [2, 3]}), "c"))
    assert np.array_equal(one.run(table)["y"], -np.float32([[3, 1, 0], [5, 2, 0]]))


def test_threads(session):
    for threads in (1, 2):
        assert np.array_equal(tvm_megcc.load(session.folder, threads=threads)(A, B)[0], A + B)
    for threads in (0, 3, True, "2"):
        with pytest.raises(MegccError, match=r"no number from 1 to 2.*compile it again with threads 3 for more"):
            tvm_megcc.load(session.folder, threads=threads)


def test_states_before_the_first_run():
    """Of shapes that are not known yet."""
    nodes = [node("Add", "x past", "total"), node("ReduceSum", "total axes", "kept", keepdims=1)]
    proto = model(nodes, {"x": ["n", 1], "past": [1, 1]}, {"total": ["n", 1], "kept": [1, 1]},
                  {"axes": np.array([0])}, opset=13)
    session = tvm_megcc.load(tvm_megcc.compile(proto, "c", dims={"n": "1..4"}, states={"kept": "past"}))
    session.reset()
    assert session.states["past"] == 0
    session.reset({"past": [[7]]})
    assert session.states["past"] == 7
    assert session.run({"x": A})["total"].tolist() == [[8], [9]] and session.states["past"] == 17
    session.reset()
    assert session.run({"x": A})["total"].tolist() == [[1], [2]]


def test_texts_as_the_command_takes_them():
    """What a message proposes can be pasted."""
    proto = model([node("Add", "x h_in", "h_out"), node("Mul", "h_out scale", "y")],
                  {"x": ["n", 2], "h_in": [1, 2], "scale": [1]}, {"h_out": ["n", 2], "y": ["n", 2]})
    session = tvm_megcc.load(tvm_megcc.compile(proto, "c", dims="n=1", states="h_out=h_in", constants="scale=2",
                                               output_names="h_out,y"))
    assert [port.name for port in session.inputs] == ["x"] and "h_in" in session.states


def test_half_where_it_does_nothing(capsys, tmp_path):
    proto = model([node("Neg", "x", "y")], {"x": [2]}, {"y": [2]})
    with pytest.warns(MegccWarning, match="half changes nothing: c has no vectors of half"):
        tvm_megcc.compile(proto, "c", half=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tvm_megcc.compile(proto, "arm64-v82,c", half=True)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    assert main(["compile", str(tmp_path / "m.onnx"), "--target", "c", "--half", "-o", str(tmp_path / "out")]) == 0
    assert "megcc: --half changes nothing" in capsys.readouterr().err


@pytest.mark.parametrize("command, python", [
    ('give --input-shapes "x=(1,2)"; or --dispatch', 'give input_shapes="x=(1,2)"; or dispatch'),
    ("for example: --dim batch=1 --dim n=1..64", 'for example: dims="batch=1;n=1..64"'),
    ("--dim 'a b=1'", 'dims="a b=1"'), ("leave out --ram and --flash", "leave out ram and flash"),
    ("say --bound boxes=300, or", 'say bounds="boxes=300", or'), ("with --inputs FILE.npz:", 'with arrays="FILE.npz":'),
    ("--bound NAME=1000.", 'bounds="NAME=1000".'), ("so:\n      optimum-cli export onnx --model x onnx", None),
    ("so:\n      python -m tf2onnx.convert --inputs INPUT:0", None), ("'megcc compile … --dump DIR' writes", None),
    ("clang --target=wasm32-wasi", None)])
def test_messages_name_what_their_reader_writes(command, python):
    assert str(MegccError(command)) == (python or command)
    with for_the_command():
        assert str(MegccError(command)) == command


def test_every_option_has_its_argument():
    """By one table: fields of the options, their keywords for type checkers, and what messages name."""
    names = {row.name: row.type for row in dataclasses.fields(CompileOptions)}
    assert set(CompileKeywords.__annotations__) == set(names)
    for name, option in all_options():
        assert option.flag == "-O" or ARGUMENTS[option.flag] == name
        assert re.search(rf"^        {name}: ", CompileOptions.__doc__, re.MULTILINE), name


def test_what_torch_onnx_gives():
    program = type("ONNXProgram", (), {"__module__": "torch.onnx._internal.exporter._onnx_program",
                                       "model_proto": sums()})()
    assert tvm_megcc.compile(program, "c", dims={"n": 2}).manifest["inputs"][0]["shape"] == [2, 1]


class Module:
    """What of torch.nn.Module is looked at."""

    def __init__(self):
        self.training = True

    def modules(self):
        return [self]

    def eval(self):
        self.training = False


def test_a_module_with_an_example(monkeypatch):
    """PyTorch is not among the packages of the tests: its exporter is stood in for."""
    asked = []

    def export(module, arguments, *, kwargs, dynamo, verbose):
        asked.append((arguments, kwargs, module.training))
        if not (arguments or kwargs):
            raise RuntimeError("there is no example")
        return types.SimpleNamespace(model_proto=sums())

    torch = types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module), onnx=types.SimpleNamespace(export=export))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch_models.importlib.util, "find_spec", lambda name: object())
    module = Module()
    for example, wanted in (((1, 2), ((1, 2), {})), ([1], ((1,), {})), ({"a": 1}, ((), {"a": 1})), (3, ((3,), {}))):
        assert tvm_megcc.compile(module, "c", example_inputs=example, dims={"n": 1}).name == "module"
        assert asked.pop() == (*wanted, False) and module.training
    with pytest.raises(MegccError, match="does not export the module: RuntimeError: there is no example"):
        tvm_megcc.compile(module, "c", example_inputs=())
    with pytest.raises(MegccError, match="example_inputs are for a module of PyTorch"):
        tvm_megcc.compile(sums(), "c", example_inputs=(1,))


def test_targets_as_a_list():
    one, other = TARGETS["arm64"], TARGETS["c"]
    made = [tvm_megcc.compile(DIGITS, target) for target in ("arm64,c", ["c", "arm64"], (one, other), [other, "arm64"])]
    assert made[3].manifest == made[0].manifest == made[1].manifest == made[2].manifest


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: tvm_megcc.compile(DIGITS, input_shapes=(1, 1, 8, 8)), MegccError,
     "input_shapes: (1, 1, 8, 8) names no input; give shapes by"),
    (lambda: tvm_megcc.compile(DIGITS, threads="two"), MegccError, "threads: 'two' is no number between 1 and 256"),
    (lambda: tvm_megcc.compile(None), MegccError, "None is no model that can be compiled"),
    (lambda: tvm_megcc.bench(DIGITS, repeats=3), TypeError, "keyword argument 'repeats', did you mean 'repeat'?"),
    (lambda: tvm_megcc.bench(DIGITS, thread=3), TypeError, "keyword argument 'thread', did you mean 'threads'?")])
def test_mistakes_in_python(call, error, said):
    with pytest.raises(error, match=re.escape(said)):
        call()
