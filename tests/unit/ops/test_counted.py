# SPDX-License-Identifier: Apache-2.0
"""Operators that find as many elements as there are: as many as the model states, or a count that the run computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import model, node
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.graph import EXTENT
from tvm_megcc.ir.shapes import EVERYTHING
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

X = np.array([[0, 3, 0], [4, 0, 5]], np.float32)


@pytest.mark.parametrize(("made", "inputs", "result", "expected"), [
    (node("NonZero", "x", "y"), {"x": X}, ("int64", [2, 3]), [[0, 1, 1], [1, 0, 2]]),
    (node("Compress", "x c", "y", axis=1), {"x": X, "c": np.array([True, False, True])}, ("float32", [2, 2]),
     X[:, [0, 2]]),
    (node("Compress", "x c", "y"), {"x": X, "c": np.array([0, 1, 0, 0, 1, 0], bool)}, ("float32", [2]), [3, 0]),
], ids=["nonzero", "axis", "all"])
def test_as_many_as_stated_or_found(made, inputs, result, expected):
    described = {name: (array.dtype.name, list(array.shape)) for name, array in inputs.items()}
    graph = import_onnx(model([made], described, {"y": result}))
    np.testing.assert_array_equal(run(graph, inputs)["y"], expected)
    ones = {name: np.ones_like(array) for name, array in inputs.items()}
    with pytest.raises(ShapeError, match="where the model states"):
        run(graph, ones)
    source = model([made], described, {"y": (result[0], ["n"] * len(result[1]))})
    graph = import_onnx(source)
    np.testing.assert_array_equal(run(graph, inputs)["y"], expected)
    assert run(graph, ones)["y"].size > len(np.ravel(expected))
    few = import_onnx(source, bounds={"y": 3})
    np.testing.assert_array_equal(run(few, inputs)["y"], expected)
    if made.op_type == "NonZero":
        with pytest.raises(ShapeError, match="'y' is 6; it has to be between 0 and 3"):
            run(few, ones)
    with pytest.raises(ShapeError, match="bound of 'z': no extent that a run computes is called so; there are: y"):
        import_onnx(source, bounds={"z": 3})
    constants = {name: array for name, array in inputs.items() if name != "x" or len(inputs) == 1}
    rest = {name: described[name] for name in inputs if name not in constants}
    source = model([made, node("Identity", "y", "z")], rest, {"z": (result[0], None)}, constants)
    np.testing.assert_array_equal(run(import_onnx(source), {"x": X} if rest else {})["z"], expected)


def test_counts_come_before_what_has_them():
    """Whatever order passes and the schedule choose; a count that nothing depends on is not computed."""
    nodes = [node("NonZero", "x", "a"), node("Shape", "a", "s"), node("NonZero", "b", "c"),
             node("GatherND", "x t", "g"), node("Transpose", "a", "t"), node("Expand", "one s", "e"),
             node("ReduceSum", "e", "r", keepdims=0), node("Exp", "g", "y")]
    graph = import_onnx(model(nodes, {"x": [4, 5], "b": [3]}, ["y", "r"], {"one": np.ones((1, 1), np.float32)}))
    assert [str(op.attrs.symbol) for op in graph.ops if op.kind == EXTENT] == ["a"]
    plan = lower(graph, Context(TARGETS["c"], "speed", 0)).plan
    (bucket,) = plan.buckets([EVERYTHING])
    assert bucket.bounds == (("a", 0, 20),)
    ((step, (count,)),) = plan.before.items()
    assert count.value in plan.steps[step - 1].outputs and plan.unbounded([bucket]) == frozenset()


def test_a_shape_is_followed_to_what_the_run_computes():
    """Of a Concat with a number and the extent of an input, only the part that nothing else tells is read."""
    nodes = [node("Shape", "x", "n", start=0, end=1), node("Cast", "k", "k64", to=7),
             node("Mul", "k64 two", "kk"), node("Concat", "n kk one", "s", axis=0), node("Reshape", "x s", "y")]
    graph = import_onnx(model(nodes, {"x": ["n", 6], "k": ("int32", [1])}, ["y"],
                              {"two": np.array([2]), "one": np.array([-1])}))
    assert str(graph.types["y"]) == "float32[n,2*k,6*n//(2*k*n)]" or graph.types["y"].shape[1] is not None
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert run(graph, {"x": x, "k": np.array([1], np.int32)})["y"].shape == (2, 2, 3)
    with pytest.raises(ShapeError, match="has to be between 0 and"):
        run(graph, {"x": x, "k": np.array([-1], np.int32)})


def test_the_error_says_what_no_shape_is():
    with pytest.raises(ModelError, match="a few integers are wanted"):
        import_onnx(model([node("Reshape", "x s", "y")], {"x": [2, 3], "s": ("float32", [2])}, ["y"]))


@pytest.mark.parametrize("starts", [0, 2, -3, -99, 99])
@pytest.mark.parametrize("ends", [1, -1, 2**40, -(2**40)])
def test_slices_that_the_run_computes(starts: int, ends: int):
    """From either end, in either direction, of axes that the run tells as well."""
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    described = {"x": [4, 5], "b": ("int64", [1]), "e": ("int64", [1]), "a": ("int64", [1]), "s": ("int64", [1])}
    whole, known = (model([node("Slice", names, "y")], {name: described[name] for name in names.split()}, ["y"])
                    for names in ("x b e a s", "x b e"))
    for axis, step in ((0, 1), (-1, 2), (1, -1)):
        feeds = {"x": x, "b": np.array([starts]), "e": np.array([ends]), "a": np.array([axis]), "s": np.array([step])}
        cut = [slice(None)] * 2
        cut[axis] = slice(max(starts, -x.shape[axis]), ends, step)  # where numpy takes nothing, ONNX takes the first
        np.testing.assert_array_equal(run(import_onnx(whole), feeds)["y"], x[tuple(cut)])
    np.testing.assert_array_equal(run(import_onnx(known), {name: feeds[name] for name in "xbe"})["y"], x[starts:ends])


@pytest.mark.parametrize(("ends", "dtype"), [((2, 9, 3), "int64"), ((5, -4, -2), "int32"), ((1, 1, 1), "int64"),
                                             ((0.5, 2.0, 0.25), "float32"), ((3, 0, 1), "float64")])
def test_ranges_that_the_run_computes(ends, dtype: str):
    graph = import_onnx(model([node("Range", "b e s", "y")], {name: (dtype, []) for name in "bes"}, ["y"]))
    feeds = {name: np.array(end, np.dtype(dtype)) for name, end in zip("bes", ends, strict=True)}
    np.testing.assert_allclose(run(graph, feeds)["y"], np.arange(*ends, dtype=np.dtype(dtype)))


def test_a_range_whose_declared_shape_has_no_rank_of_one():
    """The declaration is wrong, so the run finds the number of elements."""
    graph = import_onnx(model([node("Range", "b e s", "y")], {name: ("int64", []) for name in "bes"},
                              {"y": ("int64", [4, 2])}))
    feeds = {name: np.array(end) for name, end in zip("bes", (2, 9, 3), strict=True)}
    np.testing.assert_array_equal(run(graph, feeds)["y"], [2, 5, 8])


@pytest.mark.parametrize("odd", [None, 0.0, np.inf, np.nan])
def test_boxes_by_their_centres(odd):
    """ONNX Runtime takes a box of negative width for one without an area."""
    onnxruntime = pytest.importorskip("onnxruntime")
    names = ("boxes", "scores", "most", "share", "least")
    source = model([node("NonMaxSuppression", " ".join(names), "found", center_point_box=1)],
                   {"boxes": [1, 60, 4], "scores": [1, 2, 60], "most": ("int64", [1]), "share": [1], "least": [1]},
                   {"found": ("int64", [None, 3])})
    generator = np.random.default_rng(7)
    boxes = generator.uniform(-1, 1, (1, 60, 4)).astype(np.float32)
    if odd is not None:
        boxes[generator.random(boxes.shape) < 0.1] = odd
    feeds = {"boxes": boxes, "scores": generator.random((1, 2, 60)).astype(np.float32), "most": np.array([60]),
             "share": np.array([0.05], np.float32), "least": np.array([0.05], np.float32)}
    with np.errstate(all="ignore"):
        found = run(import_onnx(source), feeds)["found"]
    (expected,) = onnxruntime.InferenceSession(source.SerializeToString()).run(None, feeds)
    assert (boxes[..., 2:] < 0).any() and len(expected) < (feeds["scores"] > 0.05).sum()
    np.testing.assert_array_equal(found, expected)
