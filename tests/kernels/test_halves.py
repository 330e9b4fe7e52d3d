# SPDX-License-Identifier: Apache-2.0
"""Networks of float16: what is rounded and where, and that they are computed as their float32 twins are."""

import json

import numpy as np
import pytest
from onnx import numpy_helper

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.cli import main
from tvm_megcc.compiler import context_of
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS

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


def emulated(proto, feeds, tmp_path, target: str, **options) -> dict[str, np.ndarray]:
    if not can_run(target):
        pytest.skip(f"no compiler or emulator for {target}")
    artifact = tvm_megcc.compile(proto, target, name="net", half=True, **options)
    with tvm_megcc.load(artifact.save(tmp_path / target / "net_megcc"), target=target) as session:
        return session.run(feeds)


def can_run(name: str) -> bool:
    try:
        return bool(find_compiler(TARGETS[name]) and find_emulator(TARGETS[name]))
    except MissingTool:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_precision_is_near_and_the_same_on_both_levels(dtype, image, tmp_path):
    wanted = ran(network("float32"), image.astype(np.float32), tmp_path / "float")["y"]
    found = [emulated(network(dtype), {"x": image.astype(dtype)}, tmp_path, target)["y"]
             for target in ("arm64-v82", "arm64-v86")]
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=4e-3)
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_half_precision_of_helium_is_near(image, tmp_path):
    wanted = ran(network("float32"), image.astype(np.float32), tmp_path / "float")["y"]
    found = emulated(network("float16"), {"x": image}, tmp_path, "cortex-m55")["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-3)


@pytest.mark.parametrize(("channels", "kernel", "target"), [
    *((*case, "arm64-v82") for case in ((40, 1), (2000, 1), (130, 3), (64, 5), (3, 11))),
    pytest.param(2000, 1, "cortex-m55", marks=pytest.mark.slow),
    pytest.param(130, 3, "cortex-m55", marks=pytest.mark.slow)])
def test_the_error_of_a_sum_is_bounded(channels, kernel, target, tmp_path):
    """Of numbers that are all positive, whose sums lose most: docs/half.md has the bound."""
    w = GENERATOR.uniform(0, 0.01, (24, channels, kernel, kernel)).astype(np.float16)
    x = GENERATOR.uniform(0, 1, (1, channels, kernel + 4, kernel + 5)).astype(np.float16)
    net = model([node("Conv", "x w", "y")], {"x": ("float16", list(x.shape))}, {"y": ("float16", None)}, {"w": w})
    y = emulated(net, {"x": x}, tmp_path, target)["y"]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64)[0], (kernel, kernel), axis=(1, 2))
    exact = np.einsum("chwij,ocij->ohw", windows, w.astype(np.float64))[None]
    longest = max(144, 16 * kernel)
    assert np.abs(y - exact).max() <= (min(channels * kernel**2, longest) + 3) * 2**-11 * exact.max()
    # It does not grow with the number of products: a sum of halves from end to end would stop at 2,048 times a product.
    assert np.abs(y / exact - 1).max() < 0.01


def test_activations_and_weights_lie_in_half_the_memory():
    nodes = [node("Conv", "x p", "a"), node("Relu", "a", "y")]
    sizes = []
    for half in (False, True):
        net = model(nodes, {"x": [1, 20, 40, 40]}, {"y": None}, {"p": WEIGHTS["p"].astype(np.float32)})
        (program,) = tvm_megcc.compile(net, "arm64-v82", name="net", half=half).manifest["programs"]
        sizes.append(program["weight_bytes"])
    assert sizes[1] == sizes[0] / 2


def test_a_constant_beyond_float16_stays_float32(image, tmp_path):
    nodes = [node("Conv", "x w b", "a", pads=[1, 1, 1, 1]), node("Mul", "a large", "c"), node("Mul", "c small", "y")]
    net = network("float32", nodes)
    for name, number in (("large", 1e6), ("small", 1e-6)):
        net.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), name))
    found = emulated(net, {"x": image.astype(np.float32)}, tmp_path, "arm64-v82")["y"]
    assert np.isfinite(found).all()
    wanted = ran(net, image.astype(np.float32), tmp_path / "float")["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2**-8 * np.abs(wanted).max())


def test_half_and_reproducible_exclude_each_other():
    with pytest.raises(MegccError, match="either half or reproducible"):
        tvm_megcc.compile(network("float16"), "arm64-v82", half=True, reproducible=True)


@pytest.mark.slow
def test_compare_knows_what_halves_have(tmp_path, capsys):
    path = saved(network("float16", outputs=("a",)), tmp_path / "net.onnx")
    assert main(["compare", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tolerance"] == 2**-10
    if can_run("arm64-v82"):
        assert main(["compare", path, "--target", "arm64-v82", "--half"]) == 0
        assert main(["compare", path, "--target", "arm64-v82", "--half", "--tolerance", "1e-6"]) == 1


def test_a_choice_between_a_constant_and_what_was_computed_is_not_rounded():
    """A chain goes through operators that only move, wherever in their operands it stands."""
    rows = np.array([[True], [False]])
    source = model([node("Sigmoid", "x", "s"), node("Where", "rows zero s", "w"), node("Exp", "w", "y")],
                   {"x": ("float16", [2, 3])}, {"y": ("float16", [2, 3])}, {"rows": rows, "zero": np.float16(0)})
    graph = import_onnx(source)
    graph = before_layouts(graph, context_of(graph, TARGETS["x86-64-v3"]))
    assert sum(op.kind == "cast" for op in graph.ops) == 2
