# SPDX-License-Identifier: Apache-2.0
"""scripts/onnxruntime_tests.py tells what is right, refused and wrong in a collection of ONNX Runtime's tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/onnxruntime_tests.py"
X = np.array([1.5, -2, 3], np.float32)


def _write(folder: Path, kind: str, wanted: np.ndarray, allowed: float | None = None, axis: np.ndarray | None = None):
    """A test of one operator on X, with the output that it is to have. axis: a second operand."""
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    value = helper.make_tensor_value_info
    inputs = [value("x", 1, [3])]
    if axis is not None:
        inputs.append(value("axis", 6, axis.shape))
        (data / "input_1.pb").write_bytes(numpy_helper.from_array(axis, "axis").SerializeToString())
    graph = helper.make_graph([helper.make_node(kind, [each.name for each in inputs], ["y"],
                                                domain="" if kind == "Neg" else "com.microsoft")],
                              "g", inputs, [value("y", 1, wanted.shape)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "model.onnx")
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(X, "x").SerializeToString())
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(wanted, "y").SerializeToString())
    outputs = [{"name": "y", "relative_error": None, "absolute_error": allowed, "sort_output": False}]
    (folder / "validation.json").write_text(json.dumps({"expects_failure": False, "outputs": outputs}))


def _run(*args: str | Path):
    return subprocess.run([sys.executable, SCRIPT, "--jobs", "1", *args], capture_output=True, text=True)


@pytest.mark.slow
def test_says_what_came_of_each(tmp_path: Path):
    tests = tmp_path / "onnxruntime/test/contrib_ops"
    _write(tests / "right", "Neg", -X)
    _write(tests / "within", "Neg", -X + np.float32(0.01), allowed=0.1)
    _write(tests / "beyond", "Neg", -X + np.float32(0.01))
    _write(tests / "shape", "Neg", -X[:, None])
    _write(tests / "unknown", "Oops", -X)
    _write(tests / "constant", "ExpandDims", X[None], axis=np.array(0, np.int32))
    _write(tmp_path / "onnxruntime-negative/test/contrib_ops/taken", "Neg", -X)
    _write(tmp_path / "onnxruntime-negative/test/contrib_ops/refused", "Oops", -X)
    ended = _run(tmp_path, "--numpy", "--list")
    found = {line.split()[1].split("/")[-1]: line.split()[0] for line in ended.stdout.splitlines()}
    assert found == {"right": "passed", "within": "passed", "beyond": "wrong", "shape": "wrong", "unknown": "refused",
                     "constant": "passed", "taken": "refused", "refused": "passed"}
    assert ended.returncode == 1
    assert "y: 3 of 3 differ, element 0 is -1.5, not -1.49" in ended.stdout
    page = _run(tmp_path, "--numpy", "--source", "a test").stdout
    assert "**3 of 6 pass** (50.0%), 1 of them" in page
    assert "| operators of com.microsoft | 6 | 3 | 1 | 0 | 2 | 0 |" in page


@pytest.mark.slow
def test_compiled(tmp_path: Path):
    _write(tmp_path / "right", "Neg", -X)
    _write(tmp_path / "wrong", "Neg", X)
    verdicts = [line.split()[0] for line in _run(tmp_path, "--list").stdout.splitlines()]
    assert verdicts == ["passed", "wrong"]


def test_skips_aloud_what_is_not_there(tmp_path: Path):
    (tmp_path / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    ended = _run(tmp_path)
    assert ended.returncode == 0 and not ended.stdout
    assert "skipped" in ended.stderr and "git lfs pull" in ended.stderr
