# SPDX-License-Identifier: Apache-2.0
"""What is compiled of a network is the same by either front end, where TVM's importers write it with the same
operators: container byte for byte, kernels but for comments.

Relay's regions are those that TVM 0.19 has recorded; where there is Relay, they are compared with what it makes now."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tvm_megcc.compiler import compile_graph
from tvm_megcc.frontends.relay import importer as relay_importer
from tvm_megcc.target import TARGETS

from ..tvm_cases import GRAPHS, TARGET
from .recorded_regions import partitioned_region, region_of
from .relay_or_skip import HAS_RELAY, needs_relay

NETWORKS = [pytest.param(graph, id=graph.name) for graph in GRAPHS]
CPU = TARGETS[TARGET.removeprefix("megcc-")]


def compiled(graph):
    return compile_graph(graph, [CPU], name="region0")


def without_comments(sources: dict[str, str]) -> dict[str, str]:
    return {name: re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) for name, text in sources.items()}


def assert_same(one, other) -> None:
    assert one.container == other.container
    assert without_comments(one.sources) == without_comments(other.sources)


@pytest.mark.skipif(HAS_RELAY or not importlib.util.find_spec("tvm"), reason="TVM with Relax is not installed")
@pytest.mark.parametrize("graph", NETWORKS)
def test_relax_gives_the_same(graph):
    from tvm.relax.frontend.onnx import from_onnx

    import tvm_megcc.frontends.relax as megcc
    from tvm_megcc.frontends.relax.importer import import_region

    partitioned = megcc.partition_for_megcc(from_onnx(graph.model()), target=TARGET)
    (region,) = [function for function in partitioned.functions.values() if megcc.is_ours(function)]
    by_relay, by_relax = relay_importer.import_region(region_of(graph), "region"), import_region(region, "region")
    if graph.differs:
        assert [op.kind for op in by_relay.ops] != [op.kind for op in by_relax.ops]
    else:
        assert_same(compiled(by_relay), compiled(by_relax))


@needs_relay
@pytest.mark.parametrize("graph", NETWORKS)
def test_the_recording_is_what_this_tvm_makes(graph):
    assert_same(compiled(relay_importer.import_region(region_of(graph), "region")),
                compiled(relay_importer.import_region(partitioned_region(graph), "region")))
