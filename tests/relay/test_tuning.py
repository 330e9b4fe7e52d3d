# SPDX-License-Identifier: Apache-2.0
"""Tuned Relay modules: their regions carry the times, also those with extents that are Any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.relay.importer import import_region
from tvm_megcc.frontends.tvm_common import tune
from tvm_megcc.ir.shapes import EVERYTHING, Bucket
from tvm_megcc.runtime.timing import LocalRunner
from tvm_megcc.target import parse_targets
from tvm_megcc.tuning_log import TuningLog

from . import stand_in
from .relay_or_skip import needs_relay

(SCALAR,) = parse_targets("c")


def dense(rows: int | None) -> stand_in.Function:
    """A product of a matrix with this number of rows, None for Any, and constant weights."""
    x = stand_in.var("x", (rows, 8))
    weights = stand_in.const(np.ones((4, 8), np.float32))
    attrs = {"units": 4, "out_dtype": "float32", "auto_scheduler_rewritten_layout": ""}
    return stand_in.Function(None, params=[x], body=stand_in.call(
        "nn.dense", [x, weights], stand_in.TensorType((rows, 4)), attrs))


def graphs(functions: dict, buckets=lambda function: (EVERYTHING,)) -> dict:
    return tune.graphs_of(functions, lambda function: str(function.params[0].checked_type.shape[0]), import_region,
                          buckets)


def test_regions_that_differ_in_bounds_share_a_graph():
    """It has the likely values of the largest range."""
    open_rows = dense(None)
    twin = stand_in.Function(None, params=open_rows.params, body=open_rows.body)
    highs = {open_rows: 4, twin: 16}
    found = tune.graphs_of({"first": open_rows, "second": twin}, lambda function: "same", import_region,
                           lambda function: (Bucket((("x_0", 1, highs[function]),)),))
    assert found["first"] is found["second"]
    assert found["first"].types["x"].shape == (16, 8)


@pytest.mark.slow
def test_regions_get_the_rows_of_their_own_calls(tmp_path):
    log = tmp_path / "tune.jsonl"
    both = graphs({"small": dense(3), "large": dense(30)})
    rows = tune.tuned_rows(both, SCALAR, "speed", 1, log, LocalRunner())
    assert {row.kind for row in TuningLog.read(log).rows.values()} == {"matmul"}
    for region, text in rows.items():
        (row,) = tune.log_of(text).rows.values()
        assert f"[{3 if region == 'small' else 30},8]" in row.call
    assert tune.rows_of(graphs({"other": dense(5)}), TuningLog.read(log), SCALAR, "speed") == {"other": ""}
    assert tune.rows_of(both, TuningLog.read(log), SCALAR, "size") == {"small": "", "large": ""}


@pytest.mark.parametrize(("arguments", "message"), [
    ({"trials": 0, "log": None}, "trials is a number of 1 or more, or None, not 0"),
    ({"trials": None, "log": 3}, "log is the path of a file or None, not 3")])
def test_arguments_of_another_kind(arguments, message):
    with pytest.raises(MegccError, match=message):
        tune.require_tuning_arguments(**arguments)


@needs_relay
def test_tuned_module(tmp_path, monkeypatch):
    """The build has the times, without the log; the log does as well as the tuned module."""
    from tvm_megcc.frontends.relay import backend

    from .modules import TARGET, assert_same, conv_relu, evaluated, megcc, module, random_inputs, run_vm

    mod = module(conv_relu, (None, 3, 6, 6))
    log = tmp_path / "tune.jsonl"
    tuned = megcc.tune_megcc_kernels(mod, target=TARGET, trials=2, log=log)
    (region,) = [function for function in tuned.functions.values() if megcc.is_ours(function)]
    calls = {row.call for row in backend.log_of(region).rows.values()}
    assert any(call.startswith("conv2d(float32[2,3,6,6]") for call in calls), calls
    given = []
    compile_graph = backend.compile_graph
    monkeypatch.setattr(backend, "compile_graph",
                        lambda *args, **kwargs: given.append(kwargs["log"]) or compile_graph(*args, **kwargs))
    inputs = random_inputs(mod, {"x0_0": 3})
    assert_same(run_vm(megcc.build_megcc_kernels(tuned), inputs), evaluated(mod["main"], inputs))
    megcc.build_megcc_kernels(megcc.partition_for_megcc(mod, target=TARGET), log=log)
    assert len(given) == 3 and all(rows.rows == given[0].rows and len(rows) for rows in given)


@needs_relay
def test_another_target_for_partitioned_regions():
    from .modules import TARGET, conv_relu, megcc, module

    partitioned = megcc.partition_for_megcc(module(conv_relu, (1, 3, 6, 6)), target=TARGET)
    built = megcc.build_megcc_kernels(partitioned, target="megcc-native")
    (region,) = [function for function in built.functions.values() if megcc.is_ours(function)]
    assert str(region.attrs["megcc_target"]) == megcc.our_target("native").name


@needs_relay
def test_a_module_without_regions(tmp_path: Path):
    """Nothing to measure, nothing to compile."""
    from .modules import megcc, module, relay

    mod = module(lambda x: relay.unique(x)[0], (7,))
    tuned = megcc.tune_megcc_kernels(mod, log=tmp_path / "tune.jsonl")
    assert not any(map(megcc.is_ours, tuned.functions.values()))
    assert not any(map(megcc.is_ours, megcc.build_megcc_kernels(tuned).functions.values()))


@needs_relay
@pytest.mark.parametrize("function", ["partition_for_megcc", "tune_megcc_kernels", "build_megcc_kernels", "build"])
def test_what_is_no_module(function):
    from .modules import megcc

    with pytest.raises(MegccError, match=rf"^{function} takes a module of TVM \(tvm.IRModule\), not str"):
        getattr(megcc, function)("x")
