# SPDX-License-Identifier: Apache-2.0
"""Networks of float16: what is rounded and where, and that they are computed as their float32 twins are."""

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node

GENERATOR = np.random.default_rng(3)
WEIGHTS = {"w": GENERATOR.standard_normal((20, 3, 3, 3)), "b": GENERATOR.standard_normal(20),
           "d": GENERATOR.standard_normal((20, 1, 3, 3)), "p": GENERATOR.standard_normal((24, 20, 1, 1)),
           "m": GENERATOR.standard_normal((24, 5)) / 8}
NODES = [node("Conv", "x w b", "a", pads=[1, 1, 1, 1]), node("Sigmoid", "a", "s"), node("Mul", "a s", "f"),
         node("Conv", "f d", "g", pads=[1, 1, 1, 1], group=20), node("Relu", "g", "h"), node("Add", "h f", "i"),
         node("Conv", "i p", "j"), node("GlobalAveragePool", "j", "k"), node("Flatten", "k", "l"),
         node("MatMul", "l m", "n"), node("Softmax", "n", "y")]


def network(dtype: str, nodes=NODES, outputs=("y",), **attributes):
    constants = {name: array.astype(np.float16).astype(dtype) for name, array in WEIGHTS.items()}
    return model(nodes, {"x": (dtype, [1, 3, 9, 9])}, {name: (dtype, None) for name in outputs}, constants,
                 **attributes)


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return GENERATOR.standard_normal((1, 3, 9, 9)).astype(np.float16)


def ran(proto, image, tmp_path, target="native", **options) -> dict[str, np.ndarray]:
    artifact = tvm_megcc.compile(proto, target, name="net", **options)
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        return session.run({"x": image})


def test_a_network_of_halves_is_its_float32_twin_rounded_once(image, tmp_path):
    halves = ran(network("float16"), image, tmp_path / "half")
    floats = ran(network("float32"), image.astype(np.float32), tmp_path / "float")
    np.testing.assert_array_equal(halves["y"], floats["y"].astype(np.float16))


def test_conversions_are_all_that_it_has_more():
    kinds: dict[str, list[list[str]]] = {}
    for dtype in ("float16", "float32"):
        artifact = tvm_megcc.compile(network(dtype), "x86-64-v3,arm64", name="net")
        programs = artifact.manifest["programs"]
        kinds[dtype] = [sorted(call["kernel"] for call in program["calls"]) for program in programs]
    without = [[kernel for kernel in calls if not kernel.startswith("cast")] for calls in kinds["float16"]]
    assert without == kinds["float32"]
    assert [len(calls) for calls in kinds["float16"]] == [len(calls) + 2 for calls in kinds["float32"]]


def test_a_conversion_of_the_model_rounds(image, tmp_path):
    """What a model converts to float16 and back has 11 bits, whatever is between."""
    to = [node("Cast", "x", "h", to=10), node("Cast", "h", "f", to=1), node("Add", "f f", "y")]
    x = np.linspace(-3, 70000, 243, dtype=np.float32).reshape(1, 3, 9, 9)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16).astype(np.float32) * 2
    np.testing.assert_array_equal(ran(network("float32", to), x, tmp_path)["y"], wanted)


def test_outputs_in_the_middle_are_rounded_and_what_reads_them_is_not(image, tmp_path):
    halves = ran(network("float16", outputs=("a", "y")), image, tmp_path / "half")
    floats = ran(network("float32", outputs=("a", "y")), image.astype(np.float32), tmp_path / "float")
    np.testing.assert_array_equal(halves["a"], floats["a"].astype(np.float16))
    np.testing.assert_array_equal(halves["y"], floats["y"].astype(np.float16))
