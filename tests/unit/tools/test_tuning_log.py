# SPDX-License-Identifier: Apache-2.0
"""Logs that older versions wrote."""

import json

import pytest

import tvm_megcc.kernels  # noqa: F401 registers the kernels of operators
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.tuning_log import RENAMED_KERNELS, LogWriter, TuningLog


@pytest.mark.parametrize("kind, old", RENAMED_KERNELS)
def test_old_names_of_kernels_are_read_as_the_new_ones(kind, old):
    new, names = RENAMED_KERNELS[kind, old], {kernel.name for kernel in OPERATORS[kind].kernels}
    assert new in names and old not in names
    row = {"format": 1, "target": "arm64", "optimize": "speed", "call": f"{kind}(float32[4]) -> float32[4] {{}}",
           "kernel": old, "layouts": "plain -> plain", "ns": 5.0, "cost": 4.0, "code": "0"}
    log = TuningLog.parse(json.dumps(row), "log")
    assert log.times("arm64", "speed").time(row["call"], new, "", row["layouts"]) == 5.0


@pytest.mark.parametrize("tail", ['{"format": 1, "tar', "[" * 100_000])
def test_an_incomplete_last_line_is_removed(tail, tmp_path):
    path = tmp_path / "log"
    path.write_text("{}\n" + tail)
    LogWriter(path).close()
    assert path.read_text() == "{}\n"
