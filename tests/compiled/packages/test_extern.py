# SPDX-License-Identifier: Apache-2.0
"""Operators of the user's own: C beside the kernels, a shape rule in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc import MegccError, extern
from tvm_megcc.cli import main
from tvm_megcc.ops.base import DECOMPOSITIONS, OPERATORS

OPS = Path(__file__).parent / "extern" / "my_ops.py"


def mine(kind: str, inputs: str, outputs: str, **attributes):
    return node(kind, inputs, outputs, f"the_{kind.lower()}", domain="com.example", **attributes)


def clipped(shape=(3, 5), **attributes):
    nodes = [node("Add", "x x", "twice"), mine("SoftClip", "twice", "once", power=2, **attributes),
             mine("SoftClip", "once", "y", power=1, limit=0.25)]
    return model(nodes, {"x": shape}, ["y"])


def pairs(*shapes):
    inputs = {name: ("int32", shape) for name, shape in zip("ab", shapes, strict=True)}
    return model([mine("Pairs", "a b", "s p")], inputs, {"s": ("int32", None), "p": ("int32", None)})


def session(source, tmp_path, **options):
    tvm_megcc.compile(source, "native", extern=OPS, name="mine", **options).save(tmp_path / "out")
    return tvm_megcc.load(tmp_path / "out")


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_a_function_with_attributes(optimize: str, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    y = (2 * x) ** 2
    y = y / (1 + np.abs(y) / 3)
    y = y / (1 + np.abs(y) / 0.25)
    np.testing.assert_allclose(session(clipped(limit=3.0), tmp_path, optimize=optimize).run({"x": x})["y"], y, 1e-5)


def test_two_operands_open_shapes_tasks_and_workspace(tmp_path):
    run = session(pairs(("n",), ("m",)), tmp_path, dispatch="a[0]=log(1,64);b[0]=log(1,64)", threads=2).run
    for n, m in ((1, 1), (7, 3), (40, 64)):
        a, b = np.arange(n, dtype=np.int32), np.arange(m, dtype=np.int32) - 2
        results = run({"a": a, "b": b})
        assert np.array_equal(results["s"], a[:, None] + b) and np.array_equal(results["p"], a[:, None] * b)
    with pytest.raises(MegccError, match="kernel"):
        run({"a": np.array([-1], np.int32), "b": np.array([1], np.int32)})


def test_the_command(tmp_path, capsys):
    path, folder = tmp_path / "mine.onnx", tmp_path / "out"
    path.write_bytes(clipped().SerializeToString())
    assert main(["compile", str(path), "--target", "c", "-o", str(folder), "--extern", str(OPS)]) == 0
    assert (folder / "kernels" / "soft_clip.c").read_text().endswith((OPS.parent / "soft_clip.c").read_text())
    capsys.readouterr()
    assert main(["explain", str(path), "--target", "c", "--extern", str(OPS)]) == 0
    assert "the_softclip" in (text := capsys.readouterr().out) and "soft_clip" in text
    assert main(["compare", str(path), "--target", "c", "--extern", str(OPS), "--reference", "numpy"]) == 0
    capsys.readouterr()
    assert main(["compile", str(path), "--target", "c", "-o", str(folder)]) == 1
    assert "com.example::SoftClip 'the_softclip'" in (text := capsys.readouterr().err) and "--extern" in text


def test_nothing_is_left_behind():
    before = dict(OPERATORS), dict(DECOMPOSITIONS)
    tvm_megcc.compile(clipped(), "c", extern=OPS)
    assert (OPERATORS, DECOMPOSITIONS) == before
    with pytest.raises(MegccError, match="not supported"):
        tvm_megcc.compile(clipped(), "c")


def declared(**changes) -> extern.Operator:
    arguments = {"domain": "com.example", "name": "SoftClip", "source": OPS.parent / "soft_clip.c",
                 "inputs": {"x": "float32"}, "outputs": {"y": "float32"},
                 "attributes": {"limit": 1.0, "power": int}}
    return extern.Operator(**{**arguments, **changes})


@pytest.mark.parametrize("changes, message", [
    ({"domain": ""}, "a domain of its own"),
    ({"inputs": {"x_0": "float32"}}, "'x_0' is no name for an operand"),
    ({"outputs": {"y": "bfloat16"}}, "element type bfloat16"),
    ({"attributes": {"mode": "linear"}}, "a float or an int"),
    ({"source": "not_there.c"}, "not_there.c cannot be read: No such file"),
    ({"inputs": {"x": "int8"}}, r"has operands \(float32\).*has the operands \(int8\)"),
    ({"attributes": {"power": 1}}, "has an attribute 'limit', which the extern"),
    ({"attributes": {"limit": float, "power": float}}, "attribute 'power' is 2"),
    ({"attributes": {"limit": 1.0, "power": 1, "more": int}}, "has no attribute 'more'"),
    ({"shapes": lambda attrs, x: [x[5:][0]]}, "the rule 'shapes' of the extern .* raised IndexError"),
    ({"shapes": lambda attrs, x: x}, "gives 1 shapes"),
    ({"source": OPS}, "my_ops.py is no C file"),
    ({"headers": ("kernels.h",)}, "kernels.h has the name of a header"),
    ({"workspace": lambda attrs, x: 4}, "conflicting types for .soft_clip"),
])
def test_what_is_wrong_is_said(changes, message: str, tmp_path):
    with pytest.raises(MegccError, match=message):
        tvm_megcc.compile(clipped(limit=0.5), "c", extern=declared(**changes)).save(tmp_path / "out")
        tvm_megcc.load(tmp_path / "out", "c")


@pytest.mark.parametrize("text, message", [
    ("x = 1", "declares no tvm_megcc.extern.Operator"), ("1 / 0", "raised ZeroDivisionError"),
    (None, "does not exist; extern requires a Python file")])
def test_files_that_declare_nothing(text: str | None, message: str, tmp_path):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(MegccError, match=message):
        tvm_megcc.compile(clipped(), "c", extern=path)


def test_reports_take_them_too(tmp_path):
    onnx.save(clipped(limit=3.0), tmp_path / "mine.onnx")
    for given in (OPS, str(OPS), [OPS]):
        assert tvm_megcc.explain(tmp_path / "mine.onnx", extern=given)["supported"]
    assert tvm_megcc.compare(tmp_path / "mine.onnx", extern=OPS)["equal"]
