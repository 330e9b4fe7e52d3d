# SPDX-License-Identifier: Apache-2.0
"""The example of docs/audio.md that has two networks in one callback: beside ONNX Runtime and numpy's transforms."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.c_flags import WARNINGS
from tests.models.networks import Network
from tvm_megcc.cli import main
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.build import CFLAGS, c_sources
from tvm_megcc.runtime.toolchain import find_compiler, runs_here
from tvm_megcc.target import TARGETS, native

EXAMPLES = Path(__file__).resolve().parents[3] / "tutorials" / "audio"
RATE, PART, HOP, WINDOW = 16000, 64, 128, 512

#: Valgrind knows no wider vectors.
CPU = TARGETS["x86-64-v3"] if runs_here(TARGETS["x86-64-v3"]) else native()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The example as its page builds it."""
    folder = tmp_path_factory.mktemp("dtln")
    try:
        compiler = find_compiler(CPU)
    except MissingTool as missing:
        pytest.skip(str(missing))
    for stage in (1, 2):
        (folder / f"model_{stage}.onnx").symlink_to(Network(f"dtln_stage{stage}").path)
    shutil.copy(EXAMPLES / "dtln.json", folder)
    assert main(["compile", "--config", str(folder / "dtln.json"), "--target", CPU.name]) == 0
    made = folder / "dtln_megcc"
    base = [*compiler.command, *CPU.cflags, "-I.", "-Iruntime/include"]
    sources = [str(path.relative_to(made)) for path in c_sources(made)]
    subprocess.run([*base, "-std=c11", "-O2", *WARNINGS, "-c", str(EXAMPLES / "dtln.c"), "-o", "dtln.o"], cwd=made,
                   check=True)
    subprocess.run([*base, *CFLAGS, "-g", *sources, "dtln.o", "-lm", "-o", "dtln"], cwd=made, check=True)
    return made / "dtln"


def _speech(samples: int) -> np.ndarray:
    """A voice of some harmonics that comes and goes, and noise."""
    time = np.arange(samples) / RATE
    voice = sum(np.sin(2 * np.pi * 140 * n * time) / n for n in range(1, 12)) * (np.sin(2 * np.pi * 3 * time) > 0)
    return (0.1 * voice + 0.03 * np.random.default_rng(3).standard_normal(samples)).astype(np.float32)


def _expected(samples: np.ndarray) -> np.ndarray:
    """What the two networks make of it, window by window, without a delay but their own."""
    networks = [onnxruntime.InferenceSession(str(Network(f"dtln_stage{stage}").path)) for stage in (1, 2)]
    states = [np.zeros((1, 2, 128, 2), np.float32) for _ in networks]

    def run(stage: int, x: np.ndarray) -> np.ndarray:
        given, state = networks[stage].get_inputs()
        result, states[stage] = networks[stage].run(
            None, {given.name: x.astype(np.float32).reshape(1, 1, -1), state.name: states[stage]})
        return result.reshape(-1)

    window, total, clean = np.zeros(WINDOW), np.zeros(WINDOW), []
    for hop in samples.reshape(-1, HOP):
        window = np.concatenate([window[HOP:], hop])
        spectrum = np.fft.rfft(window)
        total = np.concatenate([total[HOP:], np.zeros(HOP)])
        total += run(1, np.fft.irfft(spectrum * run(0, np.abs(spectrum))))
        clean.append(total[:HOP])
    return np.concatenate(clean)


def test_it_is_what_the_networks_say(program):
    given = _speech(60 * HOP)
    found = np.frombuffer(subprocess.run([program], input=given.tobytes(), stdout=subprocess.PIPE, check=True).stdout,
                          np.float32)
    assert found.size == given.size and not found[:HOP].any()
    expected = _expected(given)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found[HOP:], expected[:-HOP], rtol=0, atol=1e-5)


def test_every_callback_executes_as_many_instructions_as_others(program, tmp_path):
    """By turns: one runs the first network, one the second; of noise, and of silence."""
    valgrind = shutil.which("valgrind") or pytest.skip("there is no valgrind to count instructions with")
    parts = 12
    counts = []
    for given in (_speech(parts * PART), np.zeros(parts * PART, np.float32)):
        out = tmp_path / f"counts{len(counts)}"
        subprocess.run([valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=dtln_callback",
                        "--dump-after=dtln_callback", program], input=given.tobytes(), capture_output=True, check=True,
                       env={**os.environ, "LD_BIND_NOW": "1"})
        dumps = sorted(tmp_path.glob(f"{out.name}.*"), key=lambda path: int(path.suffix[1:]))
        counts.append([int(re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)[1]) for path in dumps])
    noise, silence = counts
    assert noise == silence
    assert len(set(noise[1:parts:2])) == 1 and len(set(noise[2:parts:2])) == 1
