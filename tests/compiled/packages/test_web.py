# SPDX-License-Identifier: Apache-2.0
"""WebAssembly: what a model computes in node and wasmtime, and how it is timed there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tests.models.networks import assert_close
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.errors import MissingTool, ToolError
from tvm_megcc.runtime import toolchain
from tvm_megcc.target import TARGETS

DIGITS = paths.examples() / "digits.onnx"


def image() -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)}


def session(target: str, folder: Path, model=DIGITS) -> tvm_megcc.Session:
    """By default of the digits; skips where no compiler or engine is."""
    try:
        return tvm_megcc.load(tvm_megcc.compile(model, target).save(folder / target), target)
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_the_same_numbers_with_vectors_and_without(tmp_path):
    wanted = tvm_megcc.load(tvm_megcc.compile(DIGITS, "c").save(tmp_path / "c")).run(image())
    for target in ("wasm32", "wasm32-simd128"):
        assert_close(session(target, tmp_path).run(image()), wanted)


@pytest.mark.slow
def test_weights_that_stay_in_the_first_cache(tmp_path):
    """Sums over many channels are put aside between groups of them: of a convolution, and of a product's rows."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((40, 602, 1, 1)), "b": rng.standard_normal(40),
                 "m": rng.standard_normal((1101, 72))}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"]), helper.make_node("MatMul", ["a", "m"], ["c"])]
    shapes = {"x": [1, 602, 7, 9], "a": [37, 1101]}
    graph = helper.make_graph(
        nodes, "deep",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yc"],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found = session("wasm32-simd128", tmp_path, model)
    text = "".join(path.read_text() for path in (found.folder / "kernels").glob("*.c"))
    assert text.count("for (int32_t kept = from;") == 2
    wanted = {"y": np.einsum("ncij,oc->noij", given["x"], constants["w"][..., 0, 0]) + constants["b"][:, None, None],
              "c": given["a"].astype(float) @ constants["m"]}
    for name, value in found.run(given).items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=2e-4, err_msg=name)


@pytest.mark.slow
def test_times(tmp_path, capsys):
    """They are those of the engine: one for each run, and for each call."""
    found = session("wasm32-simd128", tmp_path)
    times = found.times(image(), 5, 3)
    assert len(times.seconds) == 5 and len(times.calls) == len(found.calls) and min(times.seconds) > 0
    assert main(["bench", str(found.folder), "--repeat", "5"]) == 0
    said = capsys.readouterr().out
    assert "digits on wasm32-simd128, " in said and "of 5 runs" in said and "conv2d" in said


@pytest.mark.slow
def test_wasmtime_gives_the_same_bits(tmp_path):
    if not importlib.util.find_spec("wasmtime"):
        pytest.skip("no wasmtime: pip install wasmtime")
    found = session("wasm32-simd128", tmp_path)
    wanted = found.run(image())
    found._emulator = (sys.executable, str(Path(toolchain.__file__).parent / "wasm" / "wasi.py"))
    np.testing.assert_array_equal(found.run(image())["logits"], wanted["logits"])


@pytest.mark.slow
def test_the_command_of_the_makefile(tmp_path):
    """As the generated folder says it for those who do not have us."""
    found = session("wasm32-simd128", tmp_path)
    if not found.target.clang or "zig" in str(toolchain.find_compiler(found.target)):
        pytest.skip("no clang with wasi-libc on this machine")
    first = (found.folder / "Makefile").read_text().split("\n\n")[0].split("\nCC")[0]
    command = first.split("make ", 1)[1].replace("\\\n#", "")
    subprocess.run(f"make -j2 {command}", shell=True, cwd=found.folder, check=True, capture_output=True)
    program = found.folder / "build" / "wasm32-simd128" / "main"
    done = subprocess.run([*toolchain.find_emulator(found.target), program], cwd=found.folder, capture_output=True,
                          text=True, check=True)
    assert len(done.stdout.split()) == 10


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(toolchain, "_version", lambda command: None)
    monkeypatch.setattr(toolchain, "zig_command", lambda: ())
    with pytest.raises(ToolError, match=r"no C compiler for wasm32 .*clang --target=wasm32-wasi.*wasi-libc"):
        toolchain.find_compiler(TARGETS["wasm32"])
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match="'apt-get install nodejs' or 'pip install wasmtime'"):
        toolchain.find_emulator(TARGETS["wasm32"])
