# SPDX-License-Identifier: Apache-2.0
"""Tuned Relax modules: their regions carry the times, also those with symbolic extents."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")

from tvm.relax import op  # noqa: E402

from tvm_megcc import build_megcc_kernels, partition_for_megcc, tune_megcc_kernels  # noqa: E402
from tvm_megcc.frontends.relax.importer import region_bucket  # noqa: E402
from tvm_megcc.frontends.relax.regions import is_ours  # noqa: E402
from tvm_megcc.frontends.relax.tune import log_of  # noqa: E402
from tvm_megcc.frontends.tvm_versions import RelaxTensor  # noqa: E402
from tvm_megcc.tuning_log import TuningLog  # noqa: E402

from .modules import assert_same, f32, module, random_inputs, run, weights  # noqa: E402


def regions_of(mod) -> list:
    return [function for function in mod.functions.values() if is_ours(function)]


@pytest.mark.slow
def test_symbolic_extents(tmp_path):
    """They are measured at the values that the compiler's choices are made for."""
    n = tvm.tirx.Var("n", "int64")
    mod = module(lambda emit, x: emit(op.nn.relu(emit(op.nn.conv2d(x, weights(4, 3, 3, 3))))),
                 RelaxTensor((n, 3, 6, 6), "float32"))
    partitioned = partition_for_megcc(mod)
    (region,) = regions_of(partitioned)
    (likely,) = region_bucket(region).representative.values()
    tuned = tune_megcc_kernels(partitioned, trials=2, log=tmp_path / "tune.jsonl")
    (region,) = regions_of(tuned)
    calls = {row.call for row in log_of(region).rows.values()}
    assert any(call.startswith(f"conv2d(float32[{likely},3,6,6]") for call in calls)
    inputs = random_inputs(mod, symbols={"n": 3})
    assert_same(run(tvm.compile(build_megcc_kernels(tuned), "llvm"), inputs), run(tvm.compile(mod, "llvm"), inputs))


def test_a_module_without_regions(tmp_path):
    """Nothing to measure, nothing to compile."""
    mod = module(lambda emit, x: emit(op.unique(x)), f32(3, 4))
    tuned = tune_megcc_kernels(mod, log=tmp_path / "tune.jsonl")
    assert not regions_of(tuned)
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(build_megcc_kernels(tuned), "llvm"), inputs), run(tvm.compile(mod, "llvm"), inputs))


def test_a_log_of_other_calls(tmp_path):
    """Regions carry the rows of their own calls only."""
    mod = partition_for_megcc(module(lambda emit, x: emit(op.matmul(x, weights(12, 7))), f32(5, 12)))
    log = tmp_path / "tune.jsonl"
    tune_megcc_kernels(mod, log=log)
    other = partition_for_megcc(module(lambda emit, x: emit(op.matmul(x, weights(9, 7))), f32(5, 9)))
    tuned = tune_megcc_kernels(other, log=log)
    (region,) = regions_of(tuned)
    assert 0 < len(log_of(region)) < len(TuningLog.read(log))
