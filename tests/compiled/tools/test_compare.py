# SPDX-License-Identifier: Apache-2.0
"""`megcc compare`, `explain` and `run` on a model whose shapes change, and on values that a kernel refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.onnx_models import graph_proto, model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import InternalError
from tvm_megcc.runtime.session import Port
from tvm_megcc.tools import in_subprocess
from tvm_megcc.tools.run import seeded

RANGES = ["--dispatch", "words[0]=log(1,16)"]


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Rows of a table by number, and a product with them: net.onnx in the present folder."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    weights = {"table": generator.standard_normal((10, 12)).astype(np.float32),
               "w": generator.standard_normal((12, 9)).astype(np.float32)}
    nodes = [node("Gather", "table words", "rows", "look_up"), node("MatMul", "rows w", "product"),
             node("Softmax", "product", "y")]
    saved(model(nodes, {"words": ("int64", ["n"])}, {"y": ["n", 9]}, weights, opset=13), "net.onnx")


@pytest.mark.parametrize("count", [5, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 16))])
def test_layers_at_some_shape(count: int, capsys):
    command = ["compare", "net.onnx", "--layers", "--reference", "numpy", "--shape", f"words=({count})"]
    assert main([*command, *RANGES]) == 0
    text = capsys.readouterr().out
    assert "no layer differs" in text and " product: max error" in text


def test_layers_around_a_loop(capsys):
    """A call in the loop runs several times; those before and after it keep their own results."""
    body = graph_proto([node("Add", "v v", "twice"), node("Identity", "go", "on")],
                       {"i": ("int64", []), "go": ("bool", []), "v": [4, 3]}, {"on": ("bool", []), "twice": [4, 3]})
    nodes = [node("Sqrt", "x", "begin"), node("Loop", "count  begin", "looped", body=body),
             node("MatMul", "looped w", "product"), node("Softmax", "product", "y")]
    saved(model(nodes, {"x": [4, 3], "count": ("int64", [])}, {"y": [4, 5]},
                {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)}), "loop.onnx")
    np.savez("in.npz", x=np.arange(12, dtype=np.float32).reshape(4, 3) / 99, count=np.int64(3))
    assert main(["compare", "loop.onnx", "--layers", "--reference", "numpy", "--inputs", "in.npz", "--target",
                 "c"]) == 0
    text = capsys.readouterr().out
    assert "no layer differs" in text and " begin: max error" in text and " product: max error" in text


@pytest.mark.parametrize("above", [True, False])
def test_layers_around_a_branch(above: bool, capsys):
    """Calls of the branch that is not taken have no result."""
    branches = {f"{name}_branch": graph_proto([node(kind, "begin", f"{name}_h"), node(kind, f"{name}_h", name)], [],
                                              {name: [4, 3]}) for name, kind in (("then", "Exp"), ("else", "Neg"))}
    nodes = [node("Sqrt", "x", "begin"), node("If", "above", "chosen", **branches),
             node("MatMul", "chosen w", "product"), node("Softmax", "product", "y")]
    saved(model(nodes, {"x": [4, 3], "above": ("bool", [])}, {"y": [4, 5]},
                {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)}), "branch.onnx")
    np.savez("in.npz", x=np.arange(12, dtype=np.float32).reshape(4, 3), above=np.bool_(above))
    assert main(["compare", "branch.onnx", "--layers", "--reference", "numpy", "--inputs", "in.npz", "--target",
                 "c"]) == 0
    text = capsys.readouterr().out
    assert "no layer differs" in text and " begin: max error" in text and " product: max error" in text


def test_layers_of_shapes_that_the_run_finds(capsys):
    nodes = [node("NonZero", "x", "places"), node("Transpose", "places", "rows", perm=[1, 0]),
             node("Cast", "rows", "floats", to=1), node("MatMul", "floats w", "product"),
             node("Softmax", "product", "y")]
    saved(model(nodes, {"x": [4, 3]}, {"y": ["n", 5]},
                {"w": np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)}), "places.onnx")
    np.savez("in.npz", x=np.arange(12, dtype=np.float32).reshape(4, 3) % 4)
    assert main(["compare", "places.onnx", "--layers", "--reference", "numpy", "--inputs", "in.npz", "--target",
                 "c"]) == 0
    text = capsys.readouterr().out
    assert "no layer differs" in text and " product: max error" in text


def test_sizes_of_dimensions(capsys):
    """Compiled for a range, run at one size."""
    for verb, more in (("compare", ["--reference", "numpy"]), ("bench", ["--repeat", "1"]), ("run", ["--repeat", "1"])):
        assert main([verb, "net.onnx", "--dim", "n=1..16", "--shape", "n=3", "--target", "c", *more]) == 0, verb
        assert main([verb, "net.onnx", "--dim", "n=4..16", "--target", "c", *more]) == REFUSED
        assert '--shape "n=4"' in capsys.readouterr().err


def test_a_shape_outside(capsys):
    assert main(["compare", "net.onnx", "--shape", "words=(17)", *RANGES]) == REFUSED
    assert "was not compiled for inputs" in capsys.readouterr().err


def test_explain_the_largest(capsys):
    assert main(["explain", "net.onnx", *RANGES]) == 0
    assert "matmul" in capsys.readouterr().out
    assert main(["explain", "net.onnx"]) == REFUSED
    assert "--dim n=1..64" in capsys.readouterr().err


def test_a_number_off_the_table_names_the_operator(capsys):
    np.savez("in.npz", words=np.array([3, 10, 1]))
    assert main(["run", "net.onnx", "--inputs", "in.npz", *RANGES]) == REFUSED
    assert "gather from look_up" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_that_onnx_runtime_does_not_read(capsys):
    """Such as one of a newer version than it knows: its words, and what to do."""
    pytest.importorskip("onnxruntime")
    model = onnx.load("net.onnx")
    model.ir_version = 99
    onnx.save(model, "new.onnx")
    command = ["compare", "new.onnx", "--shape", "words=(3)", *RANGES]
    assert main([*command, "--reference", "onnxruntime"]) == REFUSED
    assert "ONNX Runtime" in (text := capsys.readouterr().err) and "--reference numpy" in text
    assert main([*command, "--reference", "numpy"]) == 0


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [7, 3, 5]}, {"classlabels_strings": ["no", "yes", "a"]}])
def test_scores_by_the_names_of_classes(labels, capsys):
    """As scikit-learn's classifiers are exported: ONNX Runtime gives dictionaries, ordered by keys, not by classes."""
    pytest.importorskip("onnxruntime")
    scores = onnx.helper.make_node("ZipMap", ["scores"], ["y"], domain="ai.onnx.ml", **labels)
    saved(model([node("Softmax", "x", "scores"), scores], {"x": [4, 3]}, [onnx.ValueInfoProto(name="y")]),
          "classifier.onnx")
    for more in ([], ["--layers"]):
        assert main(["compare", "classifier.onnx", "--target", "c", "--reference", "onnxruntime", *more]) == 0
    assert "y: max error" in capsys.readouterr().out


def test_how_much_the_reference_differs_from_itself(capsys):
    """Of an output that differs; the tolerance is below what single precision has."""
    pytest.importorskip("onnxruntime")
    generator = np.random.default_rng(1)
    weights = {"a": generator.standard_normal((300, 300)).astype(np.float32)}
    saved(model([node("MatMul", "x a", "h"), node("MatMul", "h a", "y")], {"x": [7, 300]}, {"y": [7, 300]}, weights),
          "products.onnx")
    assert main(["compare", "products.onnx", "--tolerance", "1e-12"]) == 1
    own, itself, verdict = capsys.readouterr().out.splitlines()[1:]
    assert "✗ y: max error" in own and "ONNX Runtime, optimiser on: " in itself and verdict.startswith("DIFFERENT")


def test_a_network_quantised_at_run_time_that_differs(capsys):
    """The report offers the reference that rounds as the C code does; this one finds no difference."""
    pytest.importorskip("onnxruntime")
    nodes = [node("Tanh", "x", "h"), node("DynamicQuantizeLinear", "h", "codes scale zero"),
             node("DequantizeLinear", "codes scale zero", "q"), node("Tanh", "q", "y")]
    saved(model(nodes, {"x": [500]}, {"y": [500]}), "dynamic.onnx")
    command = ["compare", "dynamic.onnx", "--tolerance", "1e-12"]
    assert main(command) == 1
    assert "--reference numpy" in capsys.readouterr().out.splitlines()[-1]
    assert main([*command, "--tolerance", "1e-6", "--reference", "numpy"]) == 0
    assert "--reference" not in capsys.readouterr().out


@pytest.mark.parametrize("kind, reason", [("Sqrt", "is NaN everywhere"), ("Relu", "is 0.0 everywhere"),
                                          ("Compress", "is empty")])
def test_outputs_that_say_nothing(kind, reason, capsys):
    """Of negative numbers there is no root; beside an output that says something."""
    inputs = {"x": [2, 3]}
    last = node("Compress", "a none", "y", axis=0) if kind == "Compress" else node(kind, "a", "y")
    saved(model([node("Exp", "x", "b"), node("Neg", "b", "a"), last], inputs, {"y": ["n", 3], "b": [2, 3]},
                {"none": np.zeros(2, bool)}, opset=13), "nothing.onnx")
    command = ["compare", "nothing.onnx", "--reference", "numpy"]
    assert main(command) == REFUSED
    said = capsys.readouterr().out
    assert f"warning: this output {reason}" in said and said.splitlines()[-1].startswith("equal; not all"), said
    assert main([*command, "--allow"]) == 0
    report = tvm_megcc.compare("nothing.onnx", reference="numpy")
    assert report["equal"] and [row.get("uninformative") for row in report["outputs"]] == [reason, None]


def attention(additive: bool) -> onnx.ModelProto:
    """Scores of which a mask leaves those that it has a 1 for: what is left over is -inf."""
    lowest = {"lowest": np.array(-np.inf, np.float32), "axes": np.array([1]), "one": np.float32(1)}
    nodes = [node("Unsqueeze", "keys axes", "k"), node("Cast", "k", "kept", to=onnx.TensorProto.BOOL)]
    if additive:
        nodes += [node("Cast", "kept", "real", to=onnx.TensorProto.FLOAT), node("Log", "real", "added"),
                  node("Add", "x added", "scores")]
    else:
        nodes += [node("Where", "kept x lowest", "scores")]
    return model([*nodes, node("Softmax", "scores", "y", axis=-1)], {"x": [4, 3, 2], "keys": ("int64", [4, 2])},
                 {"y": [4, 3, 2]}, lowest, opset=13)


@pytest.mark.parametrize("additive", [False, True])
def test_masks_are_drawn_as_masks(additive, capsys):
    """Rows of zeros would be NaN: of four rows of two there would be one for most seeds."""
    saved(attention(additive), "masked.onnx")
    session = tvm_megcc.load(tvm_megcc.compile("masked.onnx", "c"))
    assert [port.mask for port in session.inputs] == [False, True]
    for seed in range(8):
        feeds = seeded(session.inputs, seed)
        assert np.isin(feeds["keys"], (0, 1)).all() and feeds["keys"].any(-1).all() and feeds["x"].std() > 0.1
        assert not np.isnan(session.run(feeds)["y"]).any()


def test_masks_by_name():
    port = Port
    feeds = seeded([port("attention_mask", "int64", (3, 40)), port("src_Mask", "float32", (40,)),
                                        port("mask", "bool", ()), port("ids", "int64", (3, 40))])
    for name in ("attention_mask", "src_Mask"):
        assert set(np.unique(feeds[name])) == {0, 1} and (feeds[name][..., 0] == 1).all()
    assert feeds["mask"].dtype == bool and len(np.unique(feeds["ids"])) > 2


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_inputs_are_drawn_from_all_their_numbers(dtype):
    feeds = seeded([Port("x", dtype, (64, 64))])
    assert feeds["x"].dtype == dtype and {feeds["x"].min(), feeds["x"].max()} == {
        np.iinfo(dtype).min, np.iinfo(dtype).max}


def ended(how: str):
    """What an engine might do."""
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        sys.stderr.write("engine: no\n")
        os._exit(3)
    if how == "raise":
        raise KeyError("its own")
    if how == "refuse":
        raise in_subprocess.Refused("not this", "Engine 1.0")
    return os.getpid(), np.arange(3)


def test_what_ends_a_process_does_not_end_ours():
    for how, words in (("signal", "SIGSEGV"), ("exit", "status 3, engine: no")):
        with pytest.raises(in_subprocess.Ended, match=words):
            in_subprocess.call(__name__, "ended", how)
    other, array = in_subprocess.call(__name__, "ended", "")
    assert other != os.getpid() and array.tolist() == [0, 1, 2]
    with pytest.raises(in_subprocess.Refused, match="not this"):
        in_subprocess.call(__name__, "ended", "refuse")
    with pytest.raises(InternalError, match="its own"):
        in_subprocess.call(__name__, "ended", "raise")
    assert in_subprocess.call(__name__, "ended", "")[0] == other, "one process for all calls"


def test_an_engine_that_dies(monkeypatch, capsys, tmp_path):
    """A package of its name that kills the process in which it is imported."""
    (tmp_path / "onnxruntime.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.syspath_prepend(tmp_path)
    in_subprocess._close()
    try:
        assert main(["compare", "net.onnx", "--shape", "words=(3)", *RANGES, "--reference", "onnxruntime"]) == REFUSED
    finally:
        in_subprocess._close()
    assert "ONNX Runtime ended its process on net.onnx: SIGSEGV" in capsys.readouterr().err


def test_interrupted_while_modules_are_imported():
    """The command ends without a trace, as everywhere."""
    code = """
import sys, runpy
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
sys.argv = ["megcc", "explain", "net.onnx"]
runpy.run_module("tvm_megcc", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_folder_of_another_model(tmp_path, capsys):
    other = saved(model([node("Relu", "x", "y")], {"x": [1, 4]}, ("y",)), tmp_path / "other.onnx")
    folder = tvm_megcc.compile(paths.examples() / "digits.onnx", "c").save(tmp_path / "digits")
    assert main(["compare", other, "--folder", str(folder), "--target", "c"]) == REFUSED
    said = f"{folder} has the inputs image, but {other} has no image; its inputs are x. Was the folder"
    assert said in capsys.readouterr().err
