# SPDX-License-Identifier: Apache-2.0
"""A folder with several models, in the hands of the command and of Python: which one is meant, and what all take."""

import json

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node, saved
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models, first: y = x + x over [n, 3], second: y = -x over [n, 4] and z = -w over [m]; a third is digits."""
    native_compiler()
    folder = tmp_path_factory.mktemp("models")
    saved(model([node("Add", "x x", "y")], {"x": ["n", 3]}, ["y"]), folder / "first.onnx")
    saved(model([node("Neg", "x", "y"), node("Neg", "w", "z")], {"x": ["n", 4], "w": ["m"]}, ["y", "z"]),
          folder / "second.onnx")
    return folder


@pytest.fixture(scope="module")
def both(models):
    folder = models / "both"
    assert main(["compile", str(models / "first.onnx"), str(models / "second.onnx"), "--target", "native", "-q",
                 "-o", str(folder), "--input-shapes", "first:x=(2,3);second:x=(5,4);w=(7)"]) == 0
    return folder


def test_shapes_of_each_model(both):
    manifest = json.loads((both / "manifest.json").read_text())
    assert [[row["shape"] for row in model["inputs"]] for model in manifest["models"]] == [[[2, 3]], [[5, 4], [7]]]


@pytest.mark.parametrize(("shapes", "message"), [
    ("first:x=(2,3);second:x=(5,4);v=(7)",
     "input shape 'v': no model has such an input: 'first' has x; 'second' has x, w"),
    ("first:w=(2)", "input shape 'first:w': no model has such an input")])
def test_shapes_of_no_model(models, shapes, message, capsys):
    paths_ = [str(models / f"{name}.onnx") for name in ("first", "second")]
    assert main(["compile", *paths_, "--input-shapes", shapes]) == REFUSED
    assert message in capsys.readouterr().err


def test_names(models, tmp_path, capsys):
    same = ["compile", *[str(models / "first.onnx")] * 2, "--target", "c", "--input-shapes", "x=(1,3)", "-q",
            "-o", str(tmp_path / "out")]
    assert main(same) == REFUSED and "two models have the same name, 'first'" in capsys.readouterr().err
    assert main([*same, "--name", "a"]) == REFUSED and "1 names for 2 models" in capsys.readouterr().err
    assert main([*same, "--name", "a,b"]) == 0 and (tmp_path / "out" / "b.h").exists()


@pytest.mark.slow
def test_python_is_asked_which(both):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises(MegccError, match="has the models first, second: say which with model"):
        tvm_megcc.load(both)
    with pytest.raises(MegccError, match="has no model 'third'; it has first, second"):
        tvm_megcc.load(both, model="third")
    assert np.array_equal(tvm_megcc.load(both, model="first").run({"x": x})["y"], 2 * x)
    second = tvm_megcc.load(both / "second.megcc")
    assert [port.name for port in second.inputs] == ["x", "w"]


@pytest.mark.parametrize("verb", ["run", "bench"])
def test_the_command_is_asked_which(both, verb, capsys):
    assert main([verb, str(both), "--repeat", "1"]) == REFUSED
    assert "say which with --model" in capsys.readouterr().err
    for path, options in ((both, ["--model", "second"]), (both / "second.megcc", [])):
        assert main([verb, str(path), *options, "--repeat", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == "second"


def test_build_makes_all_or_one(both, capsys):
    def products(*options):
        assert main(["build", str(both), "--json", *options]) == 0
        return [row["path"].rpartition("/")[2] for row in json.loads(capsys.readouterr().out)["products"]]
    assert products() == ["libfirst.so", "libsecond.so"]
    assert products("--model", "second") == ["libsecond.so"]


def test_compare_takes_a_folder(models, both, capsys):
    assert main(["compare", str(models / "first.onnx"), "--folder", str(both), "--model", "first", "--reference",
                 "numpy"]) == 0
    assert "equal" in capsys.readouterr().out
    assert main(["compare", str(both)]) == REFUSED
    assert "--folder" in capsys.readouterr().err


def test_a_target_that_is_none(both, capsys):
    assert main(["run", str(both), "--model", "first", "--target", "foo"]) == REFUSED
    assert "unknown target 'foo'; one of: native, c," in capsys.readouterr().err
    assert main(["run", str(both), "--model", "first", "--target", "cortex-m4"]) == REFUSED
    assert "not for cortex-m4; compile the model again with --target" in capsys.readouterr().err
