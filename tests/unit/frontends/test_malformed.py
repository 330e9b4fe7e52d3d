# SPDX-License-Identifier: Apache-2.0
"""Malformed models: each is refused with a message or computed as ONNX says, within 4 GB and 30 seconds."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.unit.frontends.malformed import MUTATIONS, SEEDS, malformed, seed_model
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx

ROOT = Path(__file__).parents[3]


def judgements(first: int, count: int) -> list[dict]:
    """In a process of its own, which has a limit."""
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # stacks of threads count as memory
    result = subprocess.run([sys.executable, "-m", "tests.unit.frontends.malformed", str(first), str(count)], cwd=ROOT,
                            text=True, capture_output=True, check=False,
                            env={**os.environ, **one_thread, "PYTHONPATH": str(ROOT)})
    assert result.returncode == 0, result.stderr[-2000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


def assert_sound(rows: list[dict]) -> None:
    wrong = [row for row in rows if row["result"] not in ("right", "compiled", "refused")]
    assert not wrong, "\n".join(map(str, wrong[:10]))
    assert all(row["message"].strip() for row in rows if row["result"] == "refused")
    counts = Counter(row["result"] for row in rows)
    assert counts["refused"] > len(rows) // 3 and counts["right"] > len(rows) // 12, f"{counts} tests little"


def test_some_malformed_models():
    assert_sound(judgements(0, 60))


@pytest.mark.slow
@pytest.mark.parametrize("first", [60, 1000, 2000])
def test_malformed_models(first):
    assert_sound(judgements(first, 700))


def test_the_seeds_are_well_formed():
    """What is not changed is imported, so that what is refused is refused for the change."""
    for kind in SEEDS:
        assert import_onnx(seed_model(kind)).outputs == ("y",), kind


def test_the_models_are_the_same_every_time():
    assert [malformed(number) for number in range(50)] == [malformed(number) for number in range(50)]
    assert len(MUTATIONS) >= 13 and len({data for _, data in map(malformed, range(600))}) > 500


def with_node(kind: str, **attributes) -> onnx.ModelProto:
    model = seed_model(kind)
    node = model.graph.node[1]
    kept = [attribute for attribute in node.attribute if attribute.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items()
                                    if value is not None)])
    return model


# What the generator found, each by itself.


@pytest.mark.parametrize("batch", [-1, -2, -2**63, 3, 2**62])
def test_points_with_a_number_of_common_axes_that_cannot_be(batch):
    with pytest.raises(ModelError, match="GatherND"):
        import_onnx(with_node("GatherND", batch_dims=batch))


@pytest.mark.parametrize("branch", [None, 1, "text"])
def test_a_condition_without_branches(branch):
    with pytest.raises(ModelError, match="has no then_branch"):
        import_onnx(with_node("If", then_branch=branch))


@pytest.mark.parametrize("kind", ["Concat", "Sum", "Max", "Einsum"])
def test_one_of_many_operands_that_is_absent(kind):
    model = seed_model("Concat" if kind in ("Sum", "Max") else kind)
    model.graph.node[1].op_type = kind
    model.graph.node[1].input[:] = ["h", ""]
    if kind in ("Sum", "Max"):
        del model.graph.node[1].attribute[:]
    with pytest.raises(ModelError, match=f"{kind} .*is ill-formed"):
        import_onnx(model)


def test_a_graph_where_none_belongs():
    model = seed_model("If")
    model.graph.node[1].op_type = "QuantizeLinear"
    with pytest.raises(ModelError, match="QuantizeLinear 'if': is ill-formed: a graph is among its attributes"):
        import_onnx(model)
