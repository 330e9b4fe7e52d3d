# SPDX-License-Identifier: Apache-2.0
"""The networks that both front ends take, by Relax."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from tvm_megcc.dispatch import Dispatch

from ..tvm_cases import PARAMETERS, TARGET, FrontEnd, check_graph, check_open
from .modules import arrays_of, assert_same, megcc, tensors


@pytest.fixture(scope="module")
def front_end() -> FrontEnd:
    def session(partitioned):
        machine = relax.VirtualMachine(tvm.compile(partitioned, target=TARGET, relax_pipeline="megcc"), tvm.cpu())
        return lambda data: arrays_of(machine["main"](*tensors([data])))

    return FrontEnd(from_onnx, megcc.partition_for_megcc, megcc.report, session,
                    lambda mod, shape, ranges: Dispatch("main", {"data": shape}, ranges)(mod))


@pytest.mark.parametrize("graph", PARAMETERS)
def test_graph(front_end, graph):
    check_graph(front_end, graph, assert_same)


@pytest.mark.slow
def test_open_batch(front_end):
    check_open(front_end, assert_same)
