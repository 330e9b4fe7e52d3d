# SPDX-License-Identifier: Apache-2.0
"""The networks that both front ends take, by Relay."""

from __future__ import annotations

import pytest

from tvm_megcc.dispatch import Dispatch

from ..tvm_cases import PARAMETERS, TARGET, FrontEnd, check_graph, check_open
from .modules import assert_same, flat, machine_of, megcc, relay


@pytest.fixture(scope="module")
def front_end() -> FrontEnd:
    def imported(model):
        mod, params = relay.frontend.from_onnx(model)
        assert not params
        return mod

    def session(partitioned):
        machine = machine_of(partitioned, TARGET)
        return lambda data: flat(machine.run(data))

    return FrontEnd(imported, megcc.partition_for_megcc, megcc.report, session,
                    lambda mod, shape, ranges: Dispatch("main", {"data": shape}, ranges)(mod))


@pytest.mark.parametrize("graph", PARAMETERS)
def test_graph(front_end, graph):
    check_graph(front_end, graph, assert_same)


@pytest.mark.slow
def test_open_batch(front_end):
    check_open(front_end, assert_same)
