# SPDX-License-Identifier: Apache-2.0
"""Operands that are usually constants, computed by a run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_is_added_around():
    made = model([node("Pad", "x pads v", "y")], {"x": [2, 3], "v": []}, {"y": [4, 4]}, {"pads": [1, 0, 1, 1]},
                 opset=13)
    (y,) = run(import_onnx(made), {"x": X, "v": np.float32(-1.5)}).values()
    np.testing.assert_array_equal(y, np.pad(X, ((1, 1), (0, 1)), constant_values=-1.5))


def test_sizes_that_the_result_tells():
    shape = {"x": [1, 1, 2, 3], "sizes": ("int64", [4])}
    (y,) = run(import_onnx(model([node("Resize", "x   sizes", "y", mode="nearest")], shape, {"y": [1, 1, 4, 6]},
                                 opset=19)), {"x": X[None, None], "sizes": np.array([1, 1, 4, 6])}).values()
    np.testing.assert_array_equal(y[0, 0], X.repeat(2, 0).repeat(2, 1))
    kept = import_onnx(model([node("Resize", "x   sizes", "y", axes=[2, 3], keep_aspect_ratio_policy="not_larger")],
                             {"x": [1, 1, 2, 3], "sizes": ("int64", [2])}, {"y": [1, 1, 4, 6]}, opset=19))
    (y,) = run(kept, {"x": X[None, None], "sizes": np.array([4, 9])}).values()
    np.testing.assert_array_equal(y[0, 0], X.repeat(2, 0).repeat(2, 1))
    with pytest.raises(ShapeError, match="4 elements of an axis of 2 that is scaled"):
        run(kept, {"x": X[None, None], "sizes": np.array([4, 3])})


def results(made, feeds, **options):
    graph = import_onnx(made, **options)
    return [next(iter(run(graph, given).values())) for given in feeds]


@pytest.mark.parametrize(("shapes", "allowzero"), [
    ([[3, 4], [3, -1], [-1, 12], [0, -1], [-1, 6], [0, 0]], 0), ([[3, -1], [12, 1]], 1)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_shapes_that_leave_an_extent_open_or_copy_one(shapes, allowzero, is_constant):
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    made = model([node("Reshape", "x s", "y", allowzero=allowzero)], {"s": ("int64", [2])} | ({} if is_constant else
                 {"x": [2, 6]}), ["y"], {"x": x} if is_constant else {})
    feeds = [{"s": np.array(shape)} | ({} if is_constant else {"x": x}) for shape in shapes]
    for given, found in zip(feeds, results(made, feeds), strict=True):
        np.testing.assert_array_equal(found, ReferenceEvaluator(made).run(None, given)[0])
    for shape in ([5, -1], [-2, -6], [7, 2], [0, 7]):
        with pytest.raises((ShapeError, ValueError)):
            results(made, [feeds[0] | {"s": np.array(shape)}])


def test_parts_of_a_shape_that_a_run_tells():
    """A number of the run beside an extent and a product of it: the number by itself may be 0 or -1."""
    made = model([node("Shape", "x", "n", start=0, end=1), node("Concat", "n k", "s", axis=0),
                  node("Reshape", "x s", "y"), node("Expand", "one k", "z")],
                 {"x": ["n", 6], "k": ("int64", [1])}, ["y", "z"], {"one": np.ones(1, np.float32)})
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert results(made, [{"x": x, "k": np.array([6])}])[0].shape == (2, 6)
    made = model(made.graph.node[:3], {"x": ["n", 6], "k": ("int64", [1])}, ["y"])
    for number in (6, -1, 0):
        assert results(made, [{"x": x, "k": np.array([number])}])[0].shape == (2, 6)


@pytest.mark.parametrize(("extents", "shapes", "wrong"), [
    ((2, 1), ([1, 1], [2, 3], [1, 0]), ([3, 1], [0, 1])), ((3,), ([1, 1], [4, 3], [2, 1]), ([1, 2],)),
    ((2, 1, 3), ([1, 1], [5, 3]), ([1, 2],)), (("n", "m"), ([2, 1], [1, 3], [2, 3]), ([4, 1],))])
def test_values_keep_an_extent_where_the_shape_that_a_run_tells_has_1(extents, shapes, wrong):
    """Also where the shape is of an operator before, too."""
    x = np.zeros([{"n": 2, "m": 3}.get(extent, extent) for extent in extents], np.float32)
    x.flat = np.arange(x.size)
    nodes = [node("ConstantOfShape", "s", "z"), node("Expand", "x s", "y")]
    for made in (model(nodes[1:], {"x": list(extents), "s": ("int64", [2])}, ["y"]),
                 model(nodes, {"x": list(extents), "s": ("int64", [2])}, ["y", "z"])):
        feeds = [{"x": x, "s": np.array(shape)} for shape in shapes]
        for given, found in zip(feeds, results(made, feeds), strict=True):
            np.testing.assert_array_equal(found, x * np.ones(given["s"], np.float32))
        for shape in wrong:
            with pytest.raises((ShapeError, ValueError)):
                results(made, [{"x": x, "s": np.array(shape)}])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [[1, 0, 0, 2], [0, -1, 0, 0], [-1, -2, 0, 1], [0, 2, -1, -2], [-1, -3, 1, 0]])
def test_pads_that_crop(pads, mode):
    """Also where the run tells the axes, too."""
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    for axes in ([0, 1], [-1, 0]):
        given = [pads[axis % 2] for axis in axes] + [pads[2 + axis % 2] for axis in axes]
        made = model([node("Pad", "x pads  axes", "y", mode=mode)], {"x": [3, 8], "pads": ("int64", [4]),
                                                                     "axes": ("int64", [2])}, ["y"], opset=18)
        cropped = x[max(-pads[0], 0):3 - max(-pads[2], 0), max(-pads[1], 0):8 - max(-pads[3], 0)]
        widths = [(max(low, 0), max(high, 0)) for low, high in zip(pads[:2], pads[2:], strict=True)]
        expected = np.pad(cropped, widths, mode=mode)
        feed = {"x": x, "pads": np.array(given), "axes": np.array(axes)}
        np.testing.assert_array_equal(results(made, [feed])[0], expected)
        fixed = model([node("Pad", "x pads", "y", mode=mode)], {"x": [3, 8], "pads": ("int64", [4])}, ["y"], opset=18)
        (found,) = results(fixed, [{"x": x, "pads": np.array(pads)}], bounds={"pads": 3})
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(ShapeError):
            results(made, [feed | {"pads": np.array([-9, 0, 0, 0])}])


@pytest.mark.parametrize("number", [0.0, 2.0])
def test_where_a_scalar_is_not_zero(number):
    """ONNX wants (0, N) where numpy once had (1, N)."""
    x = np.array(number, np.float32)
    made = model([node("NonZero", "x", "y")], {"x": []}, ["y"])
    assert results(made, [{"x": x}])[0].shape == (0, int(number != 0))
    constant = model([node("NonZero", "x", "y")], {"z": [1]}, ["y"], {"x": x})
    assert results(constant, [{"z": np.ones(1, np.float32)}])[0].shape == (0, int(number != 0))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("rank", [0, 1])
def test_as_many_places_as_a_run_says(dtype, rank):
    made = model([node("OneHot", "i d v", "y", axis=0)], {"i": ("int64", [3]), "d": (dtype, [1] * rank)}, ["y"],
                 {"v": np.array([-1, 3], np.float32)})
    for depth in (3, 5, 1):
        given = {"i": np.array([0, 2, -1]), "d": np.full([1] * rank, depth, dtype)}
        expected = np.full((depth, 3), -1, np.float32)
        for column, index in enumerate((0, 2, depth - 1)):
            expected[index:index + 1, column] = 3
        np.testing.assert_array_equal(results(made, [given], bounds={"d": 5} if dtype == "int64" else {})[0], expected)


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_triangles_of_open_extents(k):
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    for upper in (0, 1):
        for inputs, constants in (({"x": ["n", "m"]}, {"k": np.array(k)}), ({"x": ["n", "m"], "k": ("int64", [])}, {})):
            made = model([node("Trilu", "x k", "y", upper=upper)], inputs, ["y"], constants)
            feed = {"x": x} | ({} if constants else {"k": np.array(k)})
            np.testing.assert_array_equal(results(made, [feed])[0], np.triu(x, k) if upper else np.tril(x, k))
    for dtype in (None, 7, 9):
        made = model([node("EyeLike", "x", "y", k=k, **({} if dtype is None else {"dtype": dtype}))], {"x": ["n", "m"]},
                     {"y": (dtype or 1, None)})
        found, expected = results(made, [{"x": x}])[0], ReferenceEvaluator(made).run(None, {"x": x})[0]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_that_the_run_tells(onesided):
    """Of the step and the length of a short-time transform, also where the model states no shape."""
    signal = np.random.default_rng(1).normal(size=(2, 50, 1)).astype(np.float32)
    for lengths, shapes in (({}, {"w": [8]}), ({"l": ("int64", [])}, {})):
        inputs = {"x": [2, 50, 1], "s": ("int64", []), **shapes, **lengths}
        source = model([node("STFT", "x s w" if shapes else "x s  l", "y", onesided=onesided)], inputs, ["y"])
        graph = import_onnx(source)
        for step, length in ((8, 8), (3, 8), (50, 8), *(((4, 13), (1, 50)) if lengths else ())):
            given = {"x": signal, "s": np.array(step), "w": np.hanning(8).astype(np.float32), "l": np.array(length)}
            given = {name: given[name] for name in inputs}
            (expected,) = ReferenceEvaluator(source).run(None, given)
            (found,) = run(graph, given).values()
            np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("onesided", [0, 1])
def test_a_window_of_a_length_that_the_run_tells(onesided):
    signal = np.random.default_rng(1).normal(size=(2, 50, 1)).astype(np.float32)
    source = model([node("STFT", "x s w", "y", onesided=onesided)], {"x": [2, 50, 1], "w": ["n"]}, ["y"],
                   {"s": np.array(5)})
    graph = import_onnx(source)
    for length in (8, 13):
        given = {"x": signal, "w": np.hanning(length).astype(np.float32)}
        (expected,) = ReferenceEvaluator(source).run(None, given)
        np.testing.assert_allclose(run(graph, given)["y"], expected, atol=1e-4)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0])
def test_scales_that_are_none(scale):
    with pytest.raises(ModelError, match=f"scales an axis by {scale}"):
        import_onnx(model([node("Resize", "x  v", "y", mode="linear")], {"x": [1, 4]}, ["y"],
                          {"v": np.array([1, scale], np.float32)}))


@pytest.mark.parametrize("scale", [0.0, 1e-38])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_to_nothing(mode, scale):
    scales, x = np.array([1, 1, scale, 0.5], np.float32), np.ones((1, 1, 4, 4), np.float32)
    how = {"mode": mode, "antialias": 1}
    for shape in ([1, 1, 4, 4], [1, 1, "h", 4]):
        known = import_onnx(model([node("Resize", "x  v", "y", **how)], {"x": shape}, ["y"], {"v": scales}, opset=18))
        at_run_time = import_onnx(model([node("Resize", "x  v", "y", **how)], {"x": shape, "v": [4]}, ["y"], opset=18))
        assert run(known, {"x": x})["y"].shape == (1, 1, 0, 2)
        assert run(at_run_time, {"x": x, "v": scales})["y"].shape == (1, 1, 0, 2)
