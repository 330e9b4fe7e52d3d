# SPDX-License-Identifier: Apache-2.0
"""States that a run overwrites in part: what is checked of a plan that says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.onnx_models import model, node
from tests.tflite_files import Tensor, written
from tvm_megcc.codegen.flow import Move
from tvm_megcc.codegen.memory.planner import plan_memory
from tvm_megcc.codegen.states import verify_updates
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.errors import InternalError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.passes.canonicalize import transposes
from tvm_megcc.passes.streaming.states import keep_states
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS


def planned(*nodes):
    """A cache [2, 8, 4] that gets rows [2, 3, 4], and operators besides."""
    made = model([node("ScatterElements", "past at new", "present", axis=1), *nodes],
                 {"past": [2, 8, 4], "new": [2, 3, 4], "at": ("int64", [2, 3, 4])},
                 ["present", *(each.output[0] for each in nodes)], {"axes": np.array([1])}, opset=18)
    graph = keep_states(import_onnx(made), {"present": "past"})
    plan = lower(graph, Context(TARGETS["c"])).plan
    return plan, plan_memory(plan)


def refusal(plan, memory, offsets=None, updated=None):
    with pytest.raises(InternalError) as refused:
        verify_updates(plan, updated or memory.updated, offsets or memory.offsets, memory.sizes)
    return str(refused.value)


def test_an_update_in_place():
    plan, memory = planned(node("ReduceSum", "present axes", "y"))
    assert memory.updated == {"present": "past"} and memory.offsets["present"] == memory.offsets["past"]
    assert [b.kind for b in memory.buffers if b.bytes == 256] == ["state"]
    kept = plan_memory(plan, keep_inputs=True)
    assert not kept.updated and kept.offsets["present"] != kept.offsets["past"]


def test_of_tflite(tmp_path):
    """DYNAMIC_UPDATE_SLICE: rows of a cache from a place on that the run is told."""
    tensors = {"past": Tensor((1, 8, 2, 4)), "new": Tensor((1, 1, 2, 4)), "at": Tensor((4,), "int32"),
               "present": Tensor((1, 8, 2, 4)), "y": Tensor((1, 8, 2, 4))}
    path = tmp_path / "cache.tflite"
    path.write_bytes(written(tensors, [("DYNAMIC_UPDATE_SLICE", "", {}, ["past", "new", "at"], ["present"]),
                                       ("EXP", "", {}, ["present"], ["y"])],
                             ["past", "new", "at"], ["present", "y"]))
    plan = lower(keep_states(import_tflite(path), {"present": "past"}), Context(TARGETS["c"])).plan
    memory = plan_memory(plan)
    assert memory.updated and memory.offsets["present"] == memory.offsets["past"]


def test_plans_that_are_wrong():
    plan, memory = planned(node("ReduceSum", "present axes", "y"))
    write, read = plan.steps
    early = replace(read, inputs=("past", *read.inputs[1:]))
    for steps, said in (((read, write), "reads of the state 'past' what it may not"),
                        ((early, write), "reads the state 'past', which is updated"),
                        ((write, early), "reads of the state 'past' what it may not"),
                        ((write, write), "something else than its one update"),
                        ((replace(read, outputs=("present",)), write), "something else than its one update"),
                        ((read, ), "reads of the state"), ((), "nothing updates")):
        assert said in refusal(replace(plan, steps=steps), memory)
    other = dict(memory.offsets, present=memory.offsets["y"])
    assert "does not lie where" in refusal(plan, memory, other)
    assert "copy or jump" in refusal(replace(plan, before={1: (Move("y", "past"),)}), memory)


def test_a_state_that_is_read_elsewhere_is_copied():
    plan, memory = planned(node("ReduceSum", "past axes", "z"))
    assert not memory.updated
    assert "past" in refusal(plan, memory, dict(memory.offsets, present=memory.offsets["past"]), {"present": "past"})


MOVED = node("Transpose", "new", "n", perm=(2, 0, 1, 3))


def exported(rows, written, *nodes, perm=(2, 0, 1, 3), reduction="none"):
    """cache[:, :, at] = rows, with the axis of the rows brought to the front."""
    nodes = [*nodes, node("Transpose", "past", "p", perm=perm),
             node("ScatterND", f"p at {written}", "s", reduction=reduction),
             node("Transpose", "s", "present", perm=(1, 2, 0, 3))]
    inputs = {"past": [2, 5, 8, 4], "new": rows, "at": ("int64", [3, 1])}
    return import_onnx(model(nodes, inputs, ["present"], opset=18))


@pytest.mark.parametrize(("graph", "kinds"), [
    (exported([3, 2, 5, 4], "new"), "reshape expand transpose scatter_elements"),
    (exported([2, 5, 3, 4], "n", MOVED), "reshape expand scatter_elements"),
    (exported([3, 2, 5, 4], "new", reduction="add"), "reshape expand transpose scatter_elements"),
    (exported([3, 5, 2, 4], "new", perm=(2, 1, 0, 3)), "transpose scatter_nd transpose")])
def test_a_cache_that_is_transposed_to_be_written(graph, kinds):
    """It stays as it lies: the rows are moved, or what moves them is left out; unless the transposes are others."""
    made = transposes.absorb_transposes(graph, Context(TARGETS["c"]))
    assert sorted(op.kind for op in made.ops) == sorted(kinds.split())
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(graph.types[name].shape).astype(np.float32) for name in ("past", "new")}
    inputs["at"] = np.array([[6], [-8], [6]])
    np.testing.assert_array_equal(run(made, inputs)["present"], run(graph, inputs)["present"])


def test_such_a_cache_is_a_state_in_place():
    graph = keep_states(exported([2, 5, 3, 4], "n", MOVED), {"present": "past"})
    assert plan_memory(lower(graph, Context(TARGETS["c"])).plan).updated == {"present": "past"}
