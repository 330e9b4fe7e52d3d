# SPDX-License-Identifier: Apache-2.0
"""Caches that a run overwrites in part: the output is written where its state lies."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node
from tvm_megcc.codegen.container import Storage
from tvm_megcc.errors import MegccError, MissingTool

SHAPE, ROWS = (2, 3, 8, 4), 2
STATES = {"present": "past"}
RNG = np.random.default_rng(0)
NEW = RNG.standard_normal((5, 2, 3, ROWS, 4)).astype(np.float32)
AT = np.array([[0, 6], [2, 0], [4, 4], [6, 5], [1, 2]])
Y = node("ReduceSum", "present axes", "y", keepdims=0)


def rows_of(at: np.ndarray) -> np.ndarray:
    """[2, 1, ROWS, 1]: the places of the rows that each of the batch writes."""
    return at.reshape(2, 1, 1, 1) + np.arange(ROWS).reshape(1, 1, -1, 1)


def elements(at: np.ndarray) -> np.ndarray:
    return np.broadcast_to(rows_of(at), NEW[0].shape)


def points(at: np.ndarray) -> np.ndarray:
    batch, head, row, _ = np.meshgrid(*map(np.arange, (2, 3, ROWS, 1)), indexing="ij")
    return np.concatenate([batch, head, row + at.reshape(2, 1, 1, 1)], -1)


#: The operator that writes, and its indices.
WRITERS = {
    "linear": (node("TensorScatter", "past new at", "present", axis=2), lambda at: at),
    "circular": (node("TensorScatter", "past new at", "present", axis=2, mode="circular"), lambda at: at),
    "elements": (node("ScatterElements", "past at new", "present", axis=2), elements),
    "points": (node("ScatterND", "past at new", "present"), points),
}


def cache(nodes, index=AT[0], results=("present", "y"), **inputs):
    shapes = {"present": SHAPE, "y": [2, 3, 4], "z": [2, 3, 4]}
    return model([*nodes], {"past": SHAPE, "new": NEW[0].shape, "at": ("int64", index.shape), **inputs},
                 {name: shapes[name] for name in results}, {"axes": np.array([2])}, opset=24, name="cache")


def compiled(proto, targets="c", **options):
    native_compiler()
    return tvm_megcc.compile(proto, targets, states=STATES, name="cache", **options)


def is_in_place(artifact) -> bool:
    (program,) = artifact.image.model.programs
    (state,) = program.states
    output, past = program.outputs[state.output], program.inputs[state.input]
    slots = program.device_models[0].tensors
    assert (program.tensors[output].storage == Storage.state) == (slots[output] == slots[past])
    return slots[output] == slots[past]


def written(past: np.ndarray, new: np.ndarray, at: np.ndarray) -> np.ndarray:
    result = past.copy()
    np.put_along_axis(result, elements(at) % SHAPE[2], new, 2)
    return result


@pytest.mark.parametrize("target", ["c", pytest.param("cortex-m4", marks=pytest.mark.slow),
                                    pytest.param("riscv64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", WRITERS)
def test_steps(kind, target, tmp_path):
    write, index = WRITERS[kind]
    artifact = compiled(cache([write, Y], index(AT[0])), target)
    assert is_in_place(artifact)
    assert artifact.image.model.programs[0].device_models[0].arena_bytes < 2 * 4 * np.prod(SHAPE) + 512
    assert "updated in place: past" in artifact.report
    try:
        session = tvm_megcc.load(artifact.save(tmp_path / "cache"), target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    past = np.zeros(SHAPE, np.float32)
    for new, at in zip(NEW, AT, strict=True):
        past = written(past, new, at)
        y = session.run({"new": new, "at": index(at)})["y"]
        np.testing.assert_allclose(y, past.sum(2), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(session.states["past"], past)
    begin = RNG.standard_normal(SHAPE).astype(np.float32)
    session.reset({"past": begin})
    session.run({"new": NEW[0], "at": index(AT[0])})
    np.testing.assert_array_equal(session.states["past"], written(begin, NEW[0], AT[0]))


@pytest.mark.parametrize("kind", ["linear", "elements", "points"])
def test_a_failed_run_may_be_repeated(kind, tmp_path):
    """It changes nothing but rows that it was to write; the run that follows writes them again."""
    write, index = WRITERS[kind]
    session = tvm_megcc.load(compiled(cache([write, Y], index(AT[0]))).save(tmp_path / "cache"))
    begin = RNG.standard_normal(SHAPE).astype(np.float32)
    for far in (7, 8, -9, 2 ** 40, -2 ** 40):
        session.reset({"past": begin})
        with pytest.raises(MegccError):
            session.run({"new": NEW[0], "at": index(np.array([3, far]))})
        changed = session.states["past"] != begin
        changed[0, :, 3:5] = changed[1, :, -1] = False
        assert not changed.any()
        session.run({"new": NEW[1], "at": index(np.array([3, 6]))})
        wanted = written(begin, NEW[1], np.array([3, 6]))
        np.testing.assert_array_equal(session.states["past"], wanted)


def test_threads_and_rows_that_the_run_counts(tmp_path):
    """Tasks on two threads, of a number of rows that is known when the session gets shapes."""
    proto = cache([WRITERS["elements"][0], Y], elements(AT[0]))
    for value in proto.graph.input[1:]:
        value.type.tensor_type.shape.dim[2].dim_param = "rows"
    artifact = compiled(proto, "native", threads=2, dispatch="new[2]=uniform(1,2,8)")
    assert is_in_place(artifact)
    session = tvm_megcc.load(artifact.save(tmp_path / "cache"))
    whole = RNG.standard_normal(SHAPE).astype(np.float32)
    y = session.run({"new": whole, "at": np.broadcast_to(np.arange(8).reshape(1, 1, 8, 1), SHAPE)})["y"]
    np.testing.assert_allclose(y, whole.sum(2), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(session.states["past"], whole)


def test_a_cache_that_is_transposed_to_be_written(tmp_path):
    """Transposed so that the axis of the rows is the first one; the same places for all of the batch."""
    nodes = [node("Transpose", "past", "p", perm=(2, 0, 1, 3)), node("Transpose", "new", "n", perm=(2, 0, 1, 3)),
             node("ScatterND", "p at n", "s"), node("Transpose", "s", "present", perm=(1, 2, 0, 3)), Y]
    artifact = compiled(cache(nodes, np.zeros((ROWS, 1))))
    assert is_in_place(artifact)
    session, past = tvm_megcc.load(artifact.save(tmp_path / "cache")), np.zeros(SHAPE, np.float32)
    for new, (first, _) in zip(NEW, AT, strict=True):
        past = written(past, new, np.array([first, first]))
        y = session.run({"new": new, "at": np.array([[first], [first + 1]])})["y"]
        np.testing.assert_allclose(y, past.sum(2), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(session.states["past"], past)


LINEAR = WRITERS["linear"][0]
Z = node("ReduceSum", "past axes", "z", keepdims=0)
TWICE = [node("TensorScatter", "past new at", "between", axis=2),
         node("TensorScatter", "between more at", "present", axis=2), Y]
COPIED = {
    "past is read": ([LINEAR, Y, Z], ("present", "y", "z"), {}, {}),
    "a sum": ([node("ScatterElements", "past at new", "present", axis=2, reduction="add"), Y], ("present", "y"), {},
              {"index": elements(AT[0])}),
    "computed before": ([node("Neg", "past", "n"), node("TensorScatter", "n new at", "present", axis=2), Y],
                        ("present", "y"), {}, {}),
    "computed behind": ([node("TensorScatter", "past new at", "p", axis=2), node("Neg", "p", "present"), Y],
                        ("present", "y"), {}, {}),
    "two writers": (TWICE, ("present", "y"), {}, {"more": NEW[0].shape}),
    "inputs are kept": ([LINEAR, Y], ("present", "y"), {"keep_inputs": True}, {}),
}


@pytest.mark.parametrize("name", COPIED)
def test_what_must_be_copied(name):
    nodes, results, options, inputs = COPIED[name]
    artifact = compiled(cache(nodes, results=results, **inputs), **options)
    assert not is_in_place(artifact) and "updated in place" not in artifact.report


@pytest.mark.slow
def test_group_query_attention(tmp_path):
    """Past keys and values with room for more: the same as when the caller gives them back."""
    shape, hidden = (2, 2, 16, 8), 32
    made = node("GroupQueryAttention", "q k v past_k past_v last total", "y present_k present_v",
                domain="com.microsoft", num_heads=4, kv_num_heads=2)
    proto = model([made], {"q": [2, 1, hidden], "k": [2, 1, 16], "v": [2, 1, 16], "past_k": shape, "past_v": shape,
                           "last": ("int32", [2])}, {"y": [2, 1, hidden], "present_k": shape, "present_v": shape},
                  {"total": np.array(16, np.int32)}, name="grouped")
    kept = tvm_megcc.compile(proto, "native", states={f"present_{x}": f"past_{x}" for x in "kv"}, name="kept")
    given = tvm_megcc.compile(proto, "native", name="given")
    assert "updated in place: past_k, past_v" in kept.report
    first, second = (tvm_megcc.load(each.save(tmp_path / each.name)) for each in (kept, given))
    past = {f"past_{x}": np.zeros(shape, np.float32) for x in "kv"}
    for step in range(4):
        inputs = {name: RNG.standard_normal((2, 1, size)).astype(np.float32) for name, size in
                  (("q", hidden), ("k", 16), ("v", 16))} | {"last": np.array([step, step + 5], np.int32)}
        results = second.run({**inputs, **past})
        np.testing.assert_array_equal(first.run(inputs)["y"], results["y"])
        past = {f"past_{x}": results[f"present_{x}"] for x in "kv"}
        np.testing.assert_array_equal(past["past_k"][1, :, step + 5].reshape(-1), inputs["k"][1, 0])
    for name, value in past.items():
        np.testing.assert_array_equal(first.states[name], value)
    with pytest.raises(MegccError):
        first.run({**inputs, "last": np.array([3, 16], np.int32)})
