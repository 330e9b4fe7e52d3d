# SPDX-License-Identifier: Apache-2.0
"""Random programs with branches, loops, scans and extents that a run computes, against ONNX Runtime, else onnx's own
evaluator: by the interpreter, and compiled under sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.drawn_programs import drawn, inputs
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.build import build
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS

SANITIZE = "-O1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"
RUNS = 4
ROOT = Path(__file__).parents[3]


def expected(program: onnx.ModelProto, runs: Sequence[dict]) -> list[list[np.ndarray] | None] | None:
    """What each run gives; None for one that fails, and for all if the program is not valid."""
    names = {value.name for value in program.graph.input}
    try:
        import onnxruntime
    except ImportError:
        session = onnx.reference.ReferenceEvaluator(program)
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(program.SerializeToString(), options,
                                                   providers=["CPUExecutionProvider"])
        except Exception:  # extents that contradict each other
            return None
    results = []
    for run in runs:
        try:
            results.append(list(session.run(None, {name: run[name] for name in names})))
        except Exception:  # it reshapes, or gathers from, nothing
            results.append(None)
    return results


def bounded(compile: Callable, program: onnx.ModelProto):
    """With the bounds that messages ask for; None for what is refused, by a message that says what to do or why."""
    bounds: dict[str, int] = {}
    while True:
        try:
            return compile(program, bounds)
        except tvm_megcc.MegccError as error:
            asked = re.search(r"--bound (\w+)=1000", str(error))
            if asked is None or asked[1] in bounds:
                assert "contradict" not in str(error), error
                return None
            bounds[asked[1]] = 40


def check(seed: int, program: onnx.ModelProto, wanted: Sequence[list | None], found: Callable[[int], dict]) -> int:
    """How many numbers were compared."""
    numbers = 0
    for run, arrays in enumerate(wanted):
        if arrays is None:
            continue
        results = found(run)
        numbers += sum(array.size for array in arrays)
        for value, array in zip(program.graph.output, arrays, strict=True):
            actual, where = results[value.name], f"seed {seed}, run {run}, {value.name}"
            if actual.size == array.size == 0:  # of no turns: ONNX Runtime does not know the other extents
                continue
            assert actual.shape == array.shape, where
            np.testing.assert_allclose(actual, array, rtol=1e-4, atol=1e-4, err_msg=where)
    return numbers


def interpreted(seeds: Sequence[int]) -> int:
    """How many programs were right; the others are not valid, or refused."""
    right = 0
    for seed in seeds:
        program, runs = drawn(seed), inputs(seed, RUNS)
        wanted = expected(program, runs)
        graph = None if wanted is None else bounded(lambda each, bounds: import_onnx(each, bounds=bounds), program)
        if graph is not None:
            check(seed, program, wanted, lambda run, graph=graph, runs=runs: reference.run(
                graph, {name: runs[run][name] for name in graph.inputs}))
            right += 1
    return right


def compiled(seeds: Sequence[int], folder: Path, target: str) -> tuple[int, int]:
    """How many programs were right, and did nothing that sanitizers find; how many of their numbers were compared."""
    numbers = 0
    compiler = find_compiler(TARGETS[target]).command[0]
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip(f"{compiler} has no sanitizer library")
    programs = {}
    for seed in seeds:
        program, runs = drawn(seed), inputs(seed, RUNS)
        wanted = expected(program, runs)
        artifact = None if wanted is None else bounded(
            lambda each, bounds, seed=seed: tvm_megcc.compile(each, target, name="drawn", bounds=bounds,
                                                              optimize="size" if seed % 2 else "speed"), program)
        if artifact is not None:
            place = folder / str(seed)
            build(artifact.save(place), cc=f"{compiler} {SANITIZE}")
            np.savez(f"{place}.in.npz", **{f"{run}/{name}": array for run, given in enumerate(runs)
                                           for name, array in given.items()})
            programs[seed] = (program, wanted, place)
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([sys.executable, "-m", "tests.compiled.models.drawn_runs", f"{compiler} {SANITIZE}",
                           *(place for _, _, place in programs.values())], env=environment, capture_output=True,
                          text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-100:] + done.stderr[-4000:]
    for seed, (program, wanted, place) in programs.items():
        with np.load(f"{place}.out.npz") as results:
            def found(run: int, results=results, seed=seed) -> dict:
                assert f"{run}/" not in results, f"seed {seed}, run {run}: {results[f'{run}/']}"
                return {key.split("/", 1)[1]: results[key] for key in results if key.startswith(f"{run}/")}
            numbers += check(seed, program, wanted, found)
    return len(programs), numbers


@pytest.mark.slow
def test_some_interpreted():
    assert interpreted(range(1000, 1040)) > 30


@pytest.mark.slow
def test_some_compiled(tmp_path):
    assert compiled(range(3), tmp_path, "c")[0] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(0, 500, 25))
def test_five_hundred_compiled(seed: int, tmp_path, record_property):
    target = "x86-64-v3" if seed % 100 == 75 else "c"
    programs, numbers = compiled(range(seed, seed + 25), tmp_path, target)
    for what, count in (("random programs", 25), ("of these valid, compiled and equal", programs),
                        ("their numbers compared", numbers)):
        record_property("counted", (what, count))
    assert programs > 15
