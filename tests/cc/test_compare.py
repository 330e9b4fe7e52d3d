# SPDX-License-Identifier: Apache-2.0
"""`megcc compare`, `explain` and `run` on a model whose shapes change, and on values that a kernel refuses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node, saved
from tvm_megcc.cli import REFUSED, main

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


def test_a_shape_outside(capsys):
    assert main(["compare", "net.onnx", "--shape", "words=(17)", *RANGES]) == REFUSED
    assert "was not compiled for inputs" in capsys.readouterr().err


def test_explain_the_largest(capsys):
    assert main(["explain", "net.onnx", *RANGES]) == 0
    assert "matmul" in capsys.readouterr().out
    assert main(["explain", "net.onnx"]) == REFUSED
    assert '--dispatch "words[0]=' in capsys.readouterr().err


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


def test_how_much_the_reference_differs_from_itself(capsys):
    """Of an output that differs; the tolerance is below what single precision has."""
    pytest.importorskip("onnxruntime")
    generator = np.random.default_rng(1)
    weights = {"a": generator.standard_normal((300, 300)).astype(np.float32)}
    saved(model([node("MatMul", "x a", "h"), node("MatMul", "h a", "y")], {"x": [7, 300]}, {"y": [7, 300]}, weights),
          "products.onnx")
    assert main(["compare", "products.onnx", "--tolerance", "1e-12"]) == 1
    own, itself = capsys.readouterr().out.splitlines()[1:3]
    assert "✗ y: max error" in own and "ONNX Runtime, optimiser on: " in itself
