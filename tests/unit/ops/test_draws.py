# SPDX-License-Identifier: Apache-2.0
"""Random operators: with a seed and a known shape what ONNX's reference draws, else numbers of a key and a counter."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.random.philox import philox
from tvm_megcc.runtime.reference import run

X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)


@pytest.mark.parametrize("kind, attributes", [
    ("RandomNormal", {"shape": [3, 5], "seed": 7.0, "mean": 2.0, "scale": 0.5}),
    ("RandomNormalLike", {"seed": 0.0}), ("RandomNormalLike", {"seed": 3.0, "dtype": 11}),
    ("RandomUniformLike", {"seed": 4.0, "low": -2.0, "high": 3.0, "dtype": 11}),
    ("RandomUniform", {"shape": [3, 5], "seed": 1.0, "low": -2.0, "high": 3.0, "dtype": 10})])
def test_a_seed_gives_the_numbers_of_the_reference(kind, attributes):
    source = model([node(kind, "x" * kind.endswith("Like"), "r", **attributes), node("Cast", "r", "c", to=1),
                    node("Add", "c x", "y")], {"x": [3, 5]}, {"y": [3, 5]})
    (expected,) = ReferenceEvaluator(source).run(None, {"x": X})
    np.testing.assert_allclose(run(import_onnx(source), {"x": X})["y"], expected, rtol=1e-6)


def test_dropout_in_training():
    source = model([node("Dropout", "x ratio training", "y mask", seed=5)],
                   {"x": [3, 5], "ratio": [], "training": ("bool", [])}, {"y": [3, 5], "mask": ("bool", [3, 5])})
    graph = import_onnx(source)
    for ratio, training in ((0.5, True), (0.25, True), (0.0, True), (0.5, False)):
        given = {"x": X, "ratio": np.float32(ratio), "training": np.array(training)}
        y, mask = ReferenceEvaluator(source).run(None, given)
        found = run(graph, given)
        np.testing.assert_allclose(found["y"], y, rtol=1e-6)
        np.testing.assert_array_equal(found["mask"], mask)


@pytest.mark.parametrize("made, why", [
    (node("RandomNormalLike", "x", "y", seed=-1.0), "its seed is -1.0"),
    (node("Bernoulli", "x", "y", seed=2.0**32), "its seed is 4294967296.0"),
    (node("RandomUniform", "", "y", shape=[9, 9], seed=float("nan")), "its seed is nan"),
    (node("RandomUniformLike", "x", "y", dtype=6), "draws int32; float64, float32, float16, bfloat16"),
    (node("RandomUniformLike", "x", "y", low=-3.4e38, high=3.4e38), "which float32 cannot hold"),
    (node("RandomNormalLike", "x", "y", scale=1e6, dtype=10), "which float16 cannot hold"),
    (node("RandomNormalLike", "x", "y", mean=float("nan")), "an offset of nan"),
    (node("RandomUniformLike", "x", "y", low=float("inf")), "an offset of inf"),
    (node("Multinomial", "e", "y"), "draws one of the classes of"),
    (node("RandomUniform", "", "y", shape=[-1]), "extents lie between"),
    (node("RandomUniform", "", "y", shape=[1 << 20, 1 << 20]), "2 GB"),
    (node("Multinomial", "x", "y", sample_size=-2), "extents lie between"),
    (node("Multinomial", "x", "y", sample_size=1 << 40), "extents lie between"),
    (node("Multinomial", "r", "y"), "requires operands .rows, classes."),
    (node("Multinomial", "x", "y", dtype=1), "samples float32")])
def test_what_is_refused(made, why):
    with pytest.raises(ModelError, match=why):
        import_onnx(model([made], {"x": [3, 5]}, ["y"], {"r": np.float32(0.5), "e": np.zeros((2, 0), np.float32)}))


def test_a_huge_draw_is_not_made():
    source = model([node("RandomNormal", "", "y", shape=[1 << 20, 1 << 20], seed=1.0)], {"x": [1]}, ["y"])
    with pytest.raises(ModelError, match="too large"):
        import_onnx(source)


@pytest.mark.parametrize("counter, key, words", [
    ((0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))])
def test_philox_gives_the_words_that_its_authors_state(counter, key, words):
    """Of their file of known answers the one whose counter has no words beyond ours."""
    assert tuple(map(int, philox(key, counter[1], counter[0] + 1)[counter[0]])) == words


def drawn(kind: str, shape: list, seed: int = 1, inputs: dict | None = None, **attributes) -> np.ndarray:
    """What one operator draws."""
    given = {name: np.asarray(value) for name, value in (inputs or {}).items()}
    declared = {name: (value.dtype.name, list(value.shape)) for name, value in given.items()}
    if not kind.endswith("Like") and not given:
        attributes["shape"] = shape
    source = model([node(kind, " ".join(given), "y", **attributes)], declared, ["y"])
    return run(import_onnx(source), {**given, "seed": np.array(seed)})["y"]


def distance(sample: np.ndarray, distribution) -> float:
    """Kolmogorov's and Smirnov's, times the root of the number: above 1.95 for one sample in a thousand."""
    x = np.sort(np.asarray(sample, np.float64).reshape(-1))
    upto = distribution(x)
    place = np.arange(len(x) + 1) / len(x)
    return max(np.max(place[1:] - upto), np.max(upto - place[:-1])) * math.sqrt(len(x))


normal = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))


@pytest.mark.parametrize("dtype", [1, 11])
@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1])
def test_laws(dtype, seed):
    n = 40_000
    uniform = drawn("RandomUniform", [4, n // 4], seed, dtype=dtype, low=-1.0, high=3.0)
    assert uniform.dtype == {1: np.float32, 11: np.float64}[dtype] and -1 <= uniform.min() and uniform.max() < 3
    assert distance((uniform + 1) / 4, lambda x: x) < 1.95
    assert abs(uniform.mean() - 1) < 4 * 4 / math.sqrt(12 * n) and abs(uniform.var() / (16 / 12) - 1) < 0.03
    gauss = drawn("RandomNormal", [4, n // 4], seed, dtype=dtype, mean=2.0, scale=3.0).astype(np.float64)
    assert distance((gauss - 2) / 3, normal) < 1.95
    assert abs(gauss.mean() - 2) < 4 * 3 / math.sqrt(n) and abs(gauss.var() / 9 - 1) < 4 * math.sqrt(2 / n)
    one = (gauss.reshape(-1) - 2) / 3
    assert abs(np.mean(one[:-1] * one[1:])) < 4 / math.sqrt(n), "neighbours have nothing in common"


@pytest.mark.parametrize("dtype, bits", [(10, 11), (16, 8)])
def test_small_floats_are_below_one(dtype, bits):
    drawn_ = drawn("RandomUniform", [5000], dtype=dtype).astype(np.float64)
    assert drawn_.max() == 1 - 2.0**-bits and drawn_.min() == 0 and abs(drawn_.mean() - 0.5) < 0.02


def test_bernoulli_and_multinomial():
    chances = np.array([0.0, 0.25, 0.5, 0.9, 1.0, 2.0, -1.0, np.nan], np.float32)
    ones = drawn("Bernoulli", [], inputs={"x": np.repeat(chances[None], 4000, 0)}, dtype=6)
    assert ones.dtype == np.int32
    np.testing.assert_allclose(ones.mean(0), [0, 0.25, 0.5, 0.9, 1, 1, 0, 0], atol=0.03)
    weights = np.array([[0.1, 0.0, 0.6, 0.3], [1.0, 0.0, 0.0, 0.0], [np.nan] * 4], np.float32)
    with np.errstate(divide="ignore"):
        classes = drawn("Multinomial", [], inputs={"x": np.log(weights) + np.float32(3)}, sample_size=8000, dtype=7)
    assert classes.shape == (3, 8000) and classes.dtype == np.int64
    share = np.stack([(classes == each).mean(1) for each in range(4)], 1)
    np.testing.assert_allclose(share[:2], weights[:2], atol=0.02)
    assert (share[:2][weights[:2] == 0] == 0).all() and (classes[2] == 0).all()


def test_dropout_draws_in_training():
    source = model([node("Dropout", "x ratio training", "y mask")],
                   {"x": [100, 50], "ratio": [], "training": ("bool", [])},
                   {"y": [100, 50], "mask": ("bool", [100, 50])})
    graph, x = import_onnx(source), np.ones((100, 50), np.float32)
    found = run(graph, {"x": x, "ratio": np.float32(0.2), "training": np.array(True), "seed": np.array(3)})
    np.testing.assert_array_equal(found["y"], np.where(found["mask"], np.float32(1.25), 0))
    assert abs(found["mask"].mean() - 0.8) < 0.03
    found = run(graph, {"x": x, "ratio": np.float32(0.2), "training": np.array(False), "seed": np.array(3)})
    assert (found["y"] == x).all() and found["mask"].all()


TWO = [node("RandomUniformLike", "x", "a"), node("RandomUniformLike", "x", "b")]


def test_two_operators_draw_apart_and_a_seed_of_their_own_draws_alike():
    given = {"x": X, "seed": np.array(4)}
    found = run(import_onnx(model(TWO, {"x": [3, 5]}, ["a", "b"])), given)
    assert not np.isin(found["a"], found["b"]).any()
    again = run(import_onnx(model(TWO, {"x": [3, 5]}, ["a", "b"])), given)
    assert (again["a"] == found["a"]).all()
    alike = [node("RandomUniformLike", "x", name, seed=9.0) for name in "ab"]
    graph = import_onnx(model(alike, {"x": [3, 5]}, ["a", "b"]))
    assert graph.inputs == ("x",)
    found = run(graph, {"x": X})
    np.testing.assert_array_equal(found["a"], found["b"])


def test_a_seed_of_its_own_with_a_shape_of_the_run():
    source = model([node("RandomNormalLike", "x", "y", seed=9.0)], {"x": ["N", 5]}, {"y": ["N", 5]})
    graph = import_onnx(source)
    assert graph.inputs == ("x",) and [op.kind for op in graph.ops] == ["draw"]


def test_names_of_the_seed():
    source = model([node("RandomNormalLike", "seed", "y")], {"seed": [2]}, ["y"], {"seed_2": np.zeros(3)})
    assert import_onnx(source).inputs == ("seed", "seed_3")
    source = model([node("RandomNormalLike", "x", "seed"), node("Neg", "seed", "y")], {"x": [2]}, ["y"])
    graph = import_onnx(source)
    assert graph.inputs == ("x", "seed") and graph.types["seed"].dtype == "int64"
    source = model([node("RandomNormalLike", "x", "seed")], {"x": [2]}, ["seed"])
    assert import_onnx(source).inputs == ("x", "seed_2")
    unread = model([node("RandomNormalLike", "x", "r"), node("Shape", "r", "y")], {"x": [2]}, ["y"])
    assert import_onnx(unread).inputs == ("x",)


def test_a_seed_that_is_known():
    source = model(TWO, {"x": [3, 5]}, ["a", "b"])
    open_, fixed = import_onnx(source), import_onnx(source, constants={"seed": 12})
    assert fixed.inputs == ("x",)
    given = run(open_, {"x": X, "seed": np.array(12)})
    np.testing.assert_array_equal(run(fixed, {"x": X})["b"], given["b"])
    with pytest.raises(ModelError, match=r"cannot hold the constant 0\.5"):
        import_onnx(source, constants={"seed": 0.5})
    with pytest.raises(ModelError, match="no operator draws random numbers"):
        import_onnx(model([node("Neg", "x", "y")], {"x": [2]}, ["y"]), constants={"seed": 1})


def loop_of_draws(turns: str) -> onnx.ModelProto:
    """Rows of two numbers that are drawn in each turn of a loop in a loop; turns: an input, or a constant."""
    body = onnx.helper.make_graph(
        [node("RandomUniform", "", "r", shape=[2]), node("Identity", "going", "on"), node("Identity", "r", "row")],
        "inner", [onnx.helper.make_tensor_value_info("i", 7, []), onnx.helper.make_tensor_value_info("going", 9, [])],
        [onnx.helper.make_tensor_value_info("on", 9, []), onnx.helper.make_tensor_value_info("row", 1, [2])])
    outer = onnx.helper.make_graph(
        [node("Loop", "three ", "rows", body=body), node("Identity", "go", "still")],
        "outer", [onnx.helper.make_tensor_value_info("j", 7, []), onnx.helper.make_tensor_value_info("go", 9, [])],
        [onnx.helper.make_tensor_value_info("still", 9, []), onnx.helper.make_tensor_value_info("rows", 1, [3, 2])])
    return model([node("Loop", f"{turns} ", "y", body=outer)], {"turns": ("int64", [])}, ["y"],
                 {"three": np.array(3), "two": np.array(2)})


@pytest.mark.parametrize("turns", ["turns", "two"])
def test_each_turn_of_a_loop_draws_anew(turns):
    graph = import_onnx(loop_of_draws(turns), bounds={"y": 4} if turns == "turns" else None)
    y = run(graph, {"turns": np.array(2), "seed": np.array(5)})["y"]
    assert y.shape == (2, 3, 2) and len(np.unique(y)) == 12
