# SPDX-License-Identifier: Apache-2.0
"""`megcc export --for tvm-ffi`: the library, loaded with apache-tvm-ffi alone from Python, C++ and Rust."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")

import tvm_megcc  # noqa: E402
from tests.onnx_models import graph_proto, model, node  # noqa: E402
from tvm_megcc import paths  # noqa: E402
from tvm_megcc.cli import main  # noqa: E402
from tvm_megcc.errors import MegccError  # noqa: E402
from tvm_megcc.tools.export import tvm_ffi as library  # noqa: E402

DIGITS = paths.examples() / "digits.onnx"
MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[4] / "shared" / "models"))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ffi") / "digits"
    assert main(["export", str(DIGITS), "--for", "tvm-ffi", "-o", str(folder), "--target", "native", "-q"]) == 0
    return folder


@pytest.fixture(scope="module")
def network(package):
    return tvm_ffi.load_module(str(package / "digits.so"))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    tvm_megcc.compile(DIGITS, "native").save(folder / "out")
    return tvm_megcc.load(folder / "out")


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 1, 8, 8)).astype(np.float32)


def computed(function, *inputs: np.ndarray) -> np.ndarray:
    result = np.full((1, 10), np.nan, np.float32)
    function(*map(tvm_ffi.from_dlpack, [*inputs, result]))
    return result


def test_the_bits_of_the_session(network, session):
    for seed in range(3):
        (expected,) = session.run({"image": image(seed)}).values()
        np.testing.assert_array_equal(computed(network["run"], image(seed)), expected)


def test_what_it_says_of_itself(network):
    described = json.loads(network["describe"]())
    assert described["name"] == "digits"
    assert described["inputs"] == [{"name": "image", "dtype": "float32", "shape": [1, 1, 8, 8]}]
    assert [network["get_input_name"](0), network["get_output_name"](0)] == ["image", described["outputs"][0]["name"]]
    assert (network["get_num_inputs"](), network["get_num_outputs"]()) == (1, 1)
    assert network["get_memory_bytes"]() > 1000


def test_profile(network, session):
    result = np.zeros((1, 10), np.float32)
    calls = json.loads(network["profile"](*map(tvm_ffi.from_dlpack, [image(), result])))
    assert [call["kernel"] for call in calls] == [call["kernel"] for call in session.profile({"image": image()})]
    assert all(call["nanoseconds"] >= 0 for call in calls)
    np.testing.assert_array_equal(result, computed(network["run"], image()))


@pytest.mark.parametrize(("call", "kind", "told"), [
    (lambda n: n["get_input_name"](1), IndexError, "there are 1, counted from 0"),
    (lambda n: n["get_output_name"]("logits"), TypeError, "asked for by its index"),
    (lambda n: n["run"](3), TypeError, "called with 1 arguments; it has 1 inputs and 1 outputs"),
    (lambda n: n["run"](3, 4), TypeError, "input 0 is no tensor"),
    (lambda n: computed(n["run"], image()[0]), ValueError, "input 0 has 3 axes, not 4"),
    (lambda n: computed(n["profile"], image().astype(np.int32)), TypeError, "input 0 has element type code 0"),
])
def test_wrong_calls(network, call, kind, told):
    with pytest.raises(kind, match=f"digits: .*{told}"):
        call(network)


def test_threads(network):
    expected = [computed(network["run"], image(seed)) for seed in range(4)]
    results: dict[int, list[np.ndarray]] = {}
    threads = [threading.Thread(target=lambda seed=seed: results.update(
        {seed: [computed(network["run"], image(seed)) for _ in range(50)]})) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found, expected[seed]) for seed in range(4) for found in results[seed])


def printed(command, **more) -> list[float]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, **more)
    name, _, numbers = done.stdout.strip().partition(":")
    assert name == "logits"
    return [float(number) for number in numbers.split()]


def config(option: str) -> list[str]:
    script = "import sys; from tvm_ffi.config import __main__ as main; main()"
    return subprocess.run([sys.executable, "-c", script, option], capture_output=True, text=True,
                          check=True).stdout.split()


@pytest.fixture(scope="module")
def zeros(network):
    return computed(network["run"], np.zeros((1, 1, 8, 8), np.float32))[0].tolist()


def test_python_example(package, zeros):
    """It imports neither TVM nor this package."""
    script = ("import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
              "assert not {'tvm', 'tvm_megcc'} & sys.modules.keys()")
    np.testing.assert_allclose(printed([sys.executable, "-c", script, str(package / "example" / "run.py")]), zeros)


@pytest.mark.slow
def test_cpp_example(package, zeros, tmp_path):
    compiler = shutil.which("g++") or pytest.skip("g++ is not installed")
    subprocess.run([compiler, *config("--cxxflags"),
                    str(package / "example" / "run.cpp"), "-o", str(tmp_path / "run"), *config("--ldflags"),
                    *config("--libs"), f"-Wl,-rpath,{config('--libdir')[0]}"], check=True)
    np.testing.assert_allclose(printed([tmp_path / "run", package / "digits.so"]), zeros)
    failed = subprocess.run([tmp_path / "run", tmp_path / "none.so"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "none.so" in failed.stderr


@pytest.mark.slow
def test_rust_example(package, zeros, tmp_path):
    compiler = shutil.which("rustc") or pytest.skip("rustc is not installed")
    libraries = config("--libdir")[0]
    subprocess.run([compiler, "-D", "warnings", package / "example" / "run.rs", "-o", tmp_path / "run", "-L", libraries,
                    "-l", "tvm_ffi", "-C", f"link-arg=-Wl,-rpath,{libraries}"], check=True)
    np.testing.assert_allclose(printed([tmp_path / "run", package / "digits.so"]), zeros, rtol=1e-6)


def test_several_operands_and_names(tmp_path):
    """Inputs and outputs of several types, with names that are no identifiers."""
    proto = model([node("Add", "a/b c", 'sum"one"'), node("ReduceSum", "n", "größe", keepdims=0)],
                  {"a/b": (2, 3), "c": (2, 3), "n": ("int32", (4,))}, ['sum"one"', "größe"])
    files = library.package(tvm_megcc.compile(proto, "c", name="two").save(tmp_path / "two"), "two")
    assert files == library.package(tmp_path / "two", "two"), "the same model gives the same bytes"
    (tmp_path / "two.so").write_bytes(files["two.so"])
    network = tvm_ffi.load_module(str(tmp_path / "two.so"))
    assert [network["get_output_name"](index) for index in range(2)] == ['sum"one"', "größe"]
    total, count = np.zeros((2, 3), np.float32), np.zeros((), np.int32)
    a, c, n = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.int32)
    network["run"](*map(tvm_ffi.from_dlpack, [a, c, n, total, count]))
    assert np.array_equal(total, a + c) and count == 6


def branching():
    """x + x if its sum is above 0, else x * x."""
    branches = [graph_proto([node(kind, "x x", result)], {}, {result: [3]}, name=kind)
                for kind, result in (("Add", "more"), ("Mul", "square"))]
    return model([node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero", "above"),
                  node("If", "above", "y", then_branch=branches[0], else_branch=branches[1])],
                 {"x": [3]}, {"y": [3]}, {"zero": np.float32(0)})


def counting():
    """The sum of the places where x is above 0: how many there are is known only then."""
    return model([node("Greater", "x zero", "above"), node("NonZero", "above", "places"),
                  node("ReduceSum", "places", "sum", keepdims=0), node("Cast", "sum", "y", to=1)],
                 {"x": [3]}, {"y": []}, {"zero": np.float32(0)})


@pytest.mark.parametrize("network, expected", [
    (branching, lambda x: x + x if x.sum() > 0 else x * x),
    (counting, lambda x: np.float32(np.flatnonzero(x > 0).sum())),
])
def test_what_a_run_decides(tmp_path, network, expected):
    tvm_megcc.compile(network(), "c", name="net").save(tmp_path / "out")
    (tmp_path / "net.so").write_bytes(library.package(tmp_path / "out")["net.so"])
    run = tvm_ffi.load_module(str(tmp_path / "net.so"))["run"]
    for x in np.float32([[1, 2, 3], [-1, -2, -3], [-4, 0.5, 1]]):
        result = np.full_like(expected(x), np.nan)
        run(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(result))
        np.testing.assert_array_equal(result, expected(x))


def test_shapes_that_a_run_finds_are_refused(tmp_path):
    folder = tvm_megcc.compile(model([node("NonZero", "x", "y")], {"x": [4]}, {"y": [1, "k"]}), "c", name="m")
    with pytest.raises(MegccError, match=r"the shape of 'y' changes from run to run.*with other output_names"):
        library.package(folder.save(tmp_path / "m"))


@pytest.mark.parametrize(("target", "shape", "states", "told"), [
    ("cortex-m4", (1, 4), None, "for cortex-m4, but a library is for levels of one machine .*: x86_64, aarch64"),
    ("x86-64,arm64", (1, 4), None, "for arm64, x86-64, but a library is for levels of one machine"),
    ("c", ("n", 4), None, "the shape of 'x' changes from run to run.*again with dims=\"n=SIZE\", or take a wheel"),
    ("c", (1, 4), "y=x", r"keeps states \(x\), and functions of a library have none.*without states"),
])
def test_refused(tmp_path, target, shape, states, told):
    folder = tvm_megcc.compile(model([node("Relu", "x", "y")], {"x": shape}, ["y"]), target, name="m", states=states,
                               dims="n=1..8" if "n" in shape else None).save(tmp_path / "m")
    with pytest.raises(MegccError, match=told):
        library.package(folder)


@pytest.mark.slow
def test_resnet8(tmp_path):
    """What is needed beside the library is TVM's FFI, no runtime of TVM."""
    path = MODELS / "resnet8_cifar10_f32" / "model.onnx"
    if not path.exists():
        pytest.skip("resnet8_cifar10_f32 is not on this machine (set MEGCC_MODELS)")
    arrays = np.load(path.parent / "reference.npz")
    assert main(["export", str(path), "--for", "tvm-ffi", "-o", str(tmp_path / "out"), "--name", "resnet8", "-q",
                 "--input-shapes", "input_1=(1,32,32,3)"]) == 0
    (x,), (y,) = ([arrays[key] for key in arrays.files if key.startswith(end)] for end in ("in:", "out:"))
    result = np.zeros_like(y)
    tvm_ffi.load_module(str(tmp_path / "out" / "resnet8.so"))["run"](*map(tvm_ffi.from_dlpack, [x, result]))
    np.testing.assert_allclose(result, y, atol=1e-5)
    assert (tmp_path / "out" / "resnet8.so").stat().st_size < 1_500_000
