# SPDX-License-Identifier: Apache-2.0
"""Random numbers, compiled: the interpreter's, for any number of threads; the same bits on every CPU."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tests.unit.ops.test_draws import loop_of_draws
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS

from ...kernels.kernel_harness import Program
from ...kernels.test_kernels import calls, slow, toolchain


def sampler():
    """What speech synthesis draws, and what picks a word."""
    nodes = [node("RandomNormalLike", "x", "n", mean=1.0, scale=0.5), node("Add", "x n", "noisy"),
             node("Bernoulli", "x", "b"), node("RandomUniformLike", "x", "u", low=-2.0, high=2.0, dtype=11),
             node("Multinomial", "noisy", "word", sample_size=3), node("Dropout", "x half yes", "kept"),
             node("RandomNormalLike", "x", "own", seed=7.0)]
    shape = ["rows", 37]
    return model(nodes, {"x": shape}, {"noisy": shape, "b": shape, "u": ("float64", shape),
                                       "word": ("int32", ["rows", 3]), "kept": shape, "own": shape},
                 {"half": np.float32(0.5), "yes": np.array(True)})


@pytest.mark.slow
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_compiled(optimize, tmp_path):
    source = sampler()
    graph = import_onnx(source)
    folders = [tvm_megcc.compile(source, "native", dispatch="x[0]=1..64", optimize=optimize, threads=threads,
                                 name="sampler").save(tmp_path / str(threads)) for threads in (1, 3)]
    with tvm_megcc.load(folders[0]) as one, tvm_megcc.load(folders[1]) as three:
        assert [port.name for port in one.inputs] == ["x", "seed"]
        for rows, seed in ((1, 0), (64, -1), (5, 2**62)):
            given = {"x": np.random.default_rng(rows).random((rows, 37), np.float32), "seed": np.array(seed)}
            results, again, expected = one.run(given), three.run(given), reference.run(graph, given)
            for name, value in expected.items():
                np.testing.assert_array_equal(results[name], again[name])
                if name in ("b", "word", "kept"):
                    np.testing.assert_array_equal(results[name], value)
                np.testing.assert_allclose(results[name], value, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_in_loops(tmp_path):
    source = loop_of_draws("turns")
    folder = tvm_megcc.compile(source, "native", bounds={"y": 6}).save(tmp_path / "net")
    with tvm_megcc.load(folder) as session:
        for turns in (6, 0, 2):
            given = {"turns": np.array(turns), "seed": np.array(8)}
            expected = reference.run(import_onnx(source, bounds={"y": 6}), given)["y"]
            np.testing.assert_array_equal(session.run(given)["y"], expected)


#: Of what the cases draw: where this changes, so do the results of everybody's seeds.
DIGEST = "7aeb2bfecdb31079"


@pytest.mark.parametrize("name", ["c", *map(slow, ("x86-64-v3", "armv7", "arm64", "riscv64", "cortex-m4"))])
def test_the_same_bits_on_every_cpu(name: str, tmp_path: Path):
    compiler, flags, runner = toolchain(name)
    jobs = calls("draw", TARGETS[name], "speed")
    results = {}
    for job, status, (flat,) in Program(jobs, tmp_path, compiler, flags, runner).results(3):
        results[job.title.split()[0]] = flat.tobytes()
        if "normal" not in job.title or flat.dtype == np.float32:
            np.testing.assert_array_equal(flat, job.expected[0].reshape(-1), job.title + status)
    assert hashlib.sha256(b"".join(results.values())).hexdigest()[:16] == DIGEST
