# SPDX-License-Identifier: Apache-2.0
"""Networks whose input shapes change: one container each, random shapes against ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.errors import MissingTool, ShapeError
from tvm_megcc.runtime.build import build
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native

from .networks import Network, onnxruntime_outputs

Draw = Callable[[np.random.Generator], dict[str, np.ndarray]]
SANITIZE = "-g -O1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"


@dataclass(frozen=True)
class Dynamic:
    """dispatch: ranges it is compiled for. draw: random inputs inside; outside: inputs in none of them.

    shapes: extents that do not change. constants: inputs with a fixed value.
    """

    name: str
    dispatch: str
    draw: Draw
    outside: Draw
    shapes: str | None = None
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def expected(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return onnxruntime_outputs(self.path, {**inputs, **self.constants})

    @property
    def path(self) -> Path:
        return Network(self.name).path


def images(batch: tuple[int, int], side: Callable[[np.random.Generator], int]) -> Draw:
    return lambda g: {"input": g.uniform(0, 255, (g.integers(*batch), 3, side(g), side(g))).astype(np.float32)}


def tokens(batch: tuple[int, int], length: tuple[int, int]) -> Draw:
    def draw(g):
        shape = g.integers(*batch), g.integers(*length)
        mask = (np.arange(shape[1]) < g.integers(1, shape[1] + 1, (shape[0], 1))).astype(np.int64)
        return {"input_ids": g.integers(0, 500, shape), "attention_mask": mask,
                "token_type_ids": np.zeros(shape, np.int64)}
    return draw


def rows(name: str, batch: tuple[int, int], *rest: int) -> Draw:
    return lambda g: {name: g.standard_normal((g.integers(*batch), *rest)).astype(np.float32)}


def speech(batch: tuple[int, int]) -> Draw:
    def draw(g):
        count = g.integers(*batch)
        return {"input": g.uniform(-1, 1, (count, 576)).astype(np.float32),
                "state": g.standard_normal((2, count, 128)).astype(np.float32)}
    return draw


DYNAMIC = {model.name: model for model in (
    Dynamic("resnet8_cifar10_f32", "input_1[0]=log(1,16)", rows("input_1", (1, 17), 32, 32, 3),
            rows("input_1", (17, 18), 32, 32, 3)),
    Dynamic("yunet_n_dynamic", "input[0]=1,2;input[2,3]=uniform(64,64,256)",
            images((1, 3), lambda g: 32 * g.integers(2, 9)), images((3, 4), lambda g: 64)),
    Dynamic("minilm_l1_f32", "input_ids[0]=log(1,4);input_ids[1]=log(1,64)", tokens((1, 5), (1, 65)),
            tokens((1, 2), (65, 66))),
    Dynamic("vespa_tiny_transformer", "input[0]=log(1,4);input[1]=1..8,9..*",
            lambda g: {"input": g.integers(0, 30, (g.integers(1, 5), g.integers(1, 65))).astype(np.int32)},
            lambda g: {"input": np.zeros((5, 4), np.int32)}),
    Dynamic("silero_vad_op18_ifless", "input[0]=log(1,8)", speech((1, 9)), speech((9, 10)), "input=(?,576)",
            {"sr": np.array(16000, np.int64)}),
)}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in DYNAMIC])
def model(request, tmp_path_factory):
    model = DYNAMIC[request.param]
    artifact = tvm_megcc.compile(model.path, "native,arm64", dispatch=model.dispatch, input_shapes=model.shapes,
                                 constants=model.constants, name=model.name)
    return model, artifact.save(tmp_path_factory.mktemp("dynamic") / model.name)


def close(actual, expected) -> None:
    """≤ 1e-4 of the output's largest magnitude, shapes equal; where the largest is tiny, of 1."""
    assert set(actual) == set(expected)
    for name, want in expected.items():
        got = actual[name]
        assert got.shape == want.shape, f"{name}: {got.shape}, not {want.shape}"
        assert float(np.abs(got - want).max()) <= 1e-4 * max(float(np.abs(want).max()), 1e-2), name


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_random_shapes(model, count: int):
    network, folder = model
    session, generator = tvm_megcc.load(folder), np.random.default_rng(count)
    for _ in range(count):
        inputs = network.draw(generator)
        close(session.run(inputs), network.expected(inputs))


def test_shapes_outside_are_refused_and_the_next_call_works(model):
    network, folder = model
    session, generator = tvm_megcc.load(folder), np.random.default_rng(0)
    inputs = network.draw(generator)
    before = session.run(inputs)
    with pytest.raises(ShapeError, match="was not compiled for inputs"):
        session.run(network.outside(generator))
    for name, array in session.run(inputs).items():
        assert np.array_equal(array, before[name])


@pytest.mark.slow
def test_sanitizers_find_nothing(model, tmp_path):
    network, folder = model
    compiler = find_compiler(native()).command[0]
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip(f"{compiler} has no sanitizer library")
    generator = np.random.default_rng(7)
    runs = {f"{index}": (network.outside if index % 20 == 19 else network.draw)(generator) for index in range(200)}
    np.savez(tmp_path / "in.npz", **{f"{run}/{name}": array for run, inputs in runs.items()
                                     for name, array in inputs.items()})
    # Here, where the compiler itself need not run under the sanitizer; the process below finds it built.
    build(folder, cc=f"{compiler} {SANITIZE}")
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([sys.executable, Path(__file__).with_name("dynamic_runs.py"), folder, tmp_path / "in.npz",
                           tmp_path / "out.npz", f"{compiler} {SANITIZE}"], env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    outputs, session = np.load(tmp_path / "out.npz"), tvm_megcc.load(folder)
    for run, inputs in runs.items():
        if int(run) % 20 == 19:
            assert f"{run}/refused" in outputs
            continue
        for name, array in session.run(inputs).items():
            assert np.allclose(outputs[f"{run}/{name}"], array, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_emulated(model):
    network, folder = model
    try:
        session = tvm_megcc.load(folder, "arm64")
    except MissingTool as missing:
        pytest.skip(str(missing))
    generator = np.random.default_rng(3)
    for _ in range(3):
        inputs = network.draw(generator)
        close(session.run(inputs), network.expected(inputs))
    with pytest.raises(ShapeError, match="was not compiled for inputs"):
        session.run(network.outside(generator))
