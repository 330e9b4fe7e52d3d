# SPDX-License-Identifier: Apache-2.0
"""Networks of 8 bits on every microcontroller that there is a row for: the same bits, and no code for another core."""

from __future__ import annotations

import subprocess
from itertools import pairwise

import numpy as np
import pytest

from tests.tflite_files import Quantized, written
from tests.tflite_networks import Network
from tvm_megcc import api, paths
from tvm_megcc.codegen.boards import boards_of
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MissingTool
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, parse_targets

BARE = [name for name, target in TARGETS.items() if target.bare_metal]


def test_every_microcontroller_has_a_board():
    assert set(firmware.BOARDS) == set(BARE)


def test_packages_are_for_this_core_and_no_other():
    """Without a row of its own a target would be for any CPU."""
    for name in BARE:
        boards = boards_of([TARGETS[name]])
        assert boards.kconfig and (boards.cores or TARGETS[name].machine != "thumb"), name


class Separable(Network):
    """Convolutions, some with a filter a channel, and a sum."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.random = np.random.default_rng([seed, 78])
        self.dtype, self.tensors, self.operators, self.name = "int8", {}, [], "x"
        self.x = self.made("x", (1, 9, 7, 3), 0.05)
        self.size = 4.0
        for kind in ("conv", "depthwise", "conv", "sum", "depthwise", "conv"):
            getattr(self, kind)()
        self.file = written(self.tensors, self.operators, ["x"], [self.name])
        self.feeds = {"x": self.random.integers(-128, 128, (1, 9, 7, 3)).astype(np.int8)}


#: One of each kind of code; the others have the code of one of these.
FIRST = {TARGETS[name].isa.name: name for name in reversed(BARE)}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in FIRST.values() else pytest.mark.long) for name in BARE])
def test_same_bits(name: str, tmp_path):
    varied = 0
    for seed in range(2):
        network = Separable(seed)
        path = tmp_path / f"{seed}.tflite"
        path.write_bytes(network.file)
        graph = import_tflite(path)
        expected = reference.run(graph, network.feeds)
        folder = compile_graph(graph, parse_targets(name), optimize=("speed", "size")[seed]).save(tmp_path / str(seed))
        try:
            session = load(folder)
        except MissingTool as missing:
            pytest.skip(str(missing))
        for output, array in session.run(network.feeds).items():
            np.testing.assert_array_equal(array, expected[output])
            varied += len(np.unique(array)) > 1
    assert varied


@pytest.mark.slow
def test_floats_by_the_unit_of_a_risc_v_core(tmp_path):
    """It is switched on before the program begins."""
    try:
        session = load(api.compile(paths.examples() / "digits.onnx", "riscv32-f").save(tmp_path))
    except MissingTool as missing:
        pytest.skip(str(missing))
    sample = np.load(paths.examples() / "digits.npz")
    np.testing.assert_allclose(session.run({"image": sample["in:image"]})["logits"], sample["out:logits"], 1e-4, 1e-4)


@pytest.mark.slow
def test_code_for_another_core_is_an_error(tmp_path):
    path = tmp_path / "network.tflite"
    path.write_bytes(Separable(0).file)
    folders = {name: compile_graph(import_tflite(path), parse_targets(name)).save(tmp_path / name)
               for name in FIRST.values()}
    for name, folder in folders.items():
        for other in FIRST.values():
            try:
                (compiler,) = find_compiler(TARGETS[other]).command
            except MissingTool as missing:
                pytest.skip(str(missing))
            flags = ("-Iruntime/include", "-ffreestanding", *TARGETS[other].cflags)
            command = [compiler, "-c", "kernels.c", "-o", "/dev/null", *flags]
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            # A Cortex-M55 runs the code of a Cortex-M33.
            runs = other == name or (name, other) == ("cortex-m33", "cortex-m55")
            assert (result.returncode == 0) == runs, (name, other, result.stderr)


@pytest.mark.slow
def test_a_cortex_m23_takes_the_code_of_a_cortex_m0(tmp_path):
    """It has all of its instructions and more, which its compiler uses: jumps on zero, division."""
    path = tmp_path / "network.tflite"
    path.write_bytes(Separable(0).file)
    folder = compile_graph(import_tflite(path), parse_targets("cortex-m0plus")).save(tmp_path / "folder")
    sources = [*map(str, folder.glob("kernels/*.c")), "kernels.c", "runtime/src/cpu.c"]
    for name in ("cortex-m0plus", "cortex-m23"):
        try:
            (compiler,) = find_compiler(TARGETS[name]).command
        except MissingTool as missing:
            pytest.skip(str(missing))
        command = [compiler, "-O2", *TARGETS[name].cflags, "-Iruntime/include", "-ffreestanding", "-S", "-o", "-"]
        codes = [subprocess.run([*command, source], cwd=folder, check=True, capture_output=True, text=True).stdout
                 for source in sources]
        assert any("\tcbz\t" in code for code in codes) == (name == "cortex-m23")
        assert any("asrs r4, r4, #16\n\tadcs" in code for code in codes), "products of two pixels are in assembler"


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in (
    "cortex-m3", "cortex-m0plus", "cortex-m23", "riscv32", "riscv64")])
@pytest.mark.parametrize("dtype", ["int8", pytest.param("uint8", marks=pytest.mark.long)])
def test_words_of_two_pixels_hold_the_largest_sums(name: str, dtype: str, tmp_path):
    """Operands at their ends, with all signs next to each other: no half of a word reaches the other. Weights of uint8
    that have -128, less their zero point, are for another kernel; those of one pixel have not."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    random = np.random.default_rng(5)
    for number, (channels, size, outputs, height, width) in enumerate((
            (12, 3, 5, 5, 3), (40, 1, 9, 5, 3), (7, 3, 3, 5, 3), (71, 1, 21, 1, 1), (8, 1, 40, 1, 1))):
        shape, weights, single = (1, height, width, channels), (outputs, size, size, channels), height == 1
        least = -127 if dtype == "int8" else int(single)
        w = random.choice([least, high], weights)
        w[0], w[1], w[2, ..., ::2] = high, least, high
        scale = 0.02 / (size * channels**0.5)
        tensors = {
            "x": Quantized(shape, 0.5, low + 100, dtype),
            "w": Quantized(weights, 0.01, 0 if dtype == "int8" else 128, dtype, 0, w.astype(dtype)),
            "b": Quantized((outputs,), 0.005, 0, "int32", 0, random.integers(-9999, 9999, outputs).astype(np.int32)),
            "y": Quantized((1, height, width, outputs), 1 / (32 * scale), low + 120, dtype)}
        options = {"Padding": 0, "StrideW": 1, "StrideH": 1}
        path = tmp_path / f"{number}.tflite"
        operator = "CONV_2D", "Conv2DOptions", options, ["x", "w", "b"], ["y"]
        path.write_bytes(written(tensors, [operator], ["x"], ["y"]))
        graph = import_tflite(path)
        x = random.choice([low, high], shape).astype(dtype)
        if not single:
            x[:, :2], x[:, 2, ::2] = low, high
        inputs = [x, np.full_like(x, low), np.full_like(x, high)] if single else [x]
        expected = [reference.run(graph, {"x": x})["y"] for x in inputs]
        assert len(np.unique(expected)) > 8
        folder = compile_graph(graph, parse_targets(name)).save(tmp_path / str(number))
        try:
            session = load(folder, name)
        except MissingTool as missing:
            pytest.skip(str(missing))
        kernel = session.calls[0]["kernel"]
        assert "_single_flat" in kernel if single else ("_pairs" in kernel) == (dtype == "int8" or name == "riscv64")
        np.testing.assert_array_equal([session.run({"x": x})["y"] for x in inputs], expected)


@pytest.mark.parametrize("name", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55", "riscv32"])
def test_rows_of_any_length_share_a_kernel(name: str, tmp_path):
    """At -O size: layers whose rows are whole words, and others."""
    random, lengths = np.random.default_rng(3), (12, 16, 32, 7, 9, 5)
    tensors, operators = {"y0": Quantized((1, lengths[0]), 0.5, 3, "int8")}, []
    for n, (length, outputs) in enumerate(pairwise(lengths)):
        weights = random.integers(-127, 128, (outputs, length)).astype(np.int8)
        tensors |= {f"w{n}": Quantized((outputs, length), 0.01, 0, "int8", 0, weights),
                    f"b{n}": Quantized((outputs,), 0.005, 0, "int32", 0, np.full(outputs, 9, np.int32)),
                    f"y{n + 1}": Quantized((1, outputs), 0.5, 3, "int8")}
        operators.append(("FULLY_CONNECTED", "FullyConnectedOptions", {}, [f"y{n}", f"w{n}", f"b{n}"], [f"y{n + 1}"]))
    path = tmp_path / "network.tflite"
    path.write_bytes(written(tensors, operators, ["y0"], ["y5"]))
    artifact = compile_graph(import_tflite(path), parse_targets(name), optimize="size")
    (program,) = artifact.manifest["programs"]
    assert len({call["kernel"] for call in program["calls"]}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FULLY_CONNECTED", "CONV_2D"])
def test_three_rows_that_follow_one_another(kind: str, tmp_path):
    """Where the first row ends the second begins: the compiler knows it, and keeps one register for both."""
    random = np.random.default_rng(3)
    rows, weights = ((3, 8), (4, 8)) if kind == "FULLY_CONNECTED" else ((1, 1, 3, 8), (4, 1, 1, 8))
    tensors = {
        "x": Quantized(rows, 0.5, 3, "int8"),
        "w": Quantized(weights, 0.01, 0, "int8", 0, random.integers(-127, 128, weights).astype(np.int8)),
        "b": Quantized((4,), 0.005, 0, "int32", 0, random.integers(-999, 999, 4).astype(np.int32)),
        "y": Quantized((*rows[:-1], 4), 2.5, -4, "int8")}
    options = ("FullyConnectedOptions", {}) if kind == "FULLY_CONNECTED" else \
        ("Conv2DOptions", {"Padding": 1, "StrideW": 1, "StrideH": 1})
    path = tmp_path / "network.tflite"
    path.write_bytes(written(tensors, [(kind, *options, ["x", "w", "b"], ["y"])], ["x"], ["y"]))
    graph = import_tflite(path)
    x = random.integers(-128, 128, rows).astype(np.int8)
    expected = reference.run(graph, {"x": x})["y"]
    assert len(np.unique(expected)) > 8
    folder = compile_graph(graph, parse_targets("cortex-m4")).save(tmp_path / "folder")
    try:
        session = load(folder, "cortex-m4")
    except MissingTool as missing:
        pytest.skip(str(missing))
    np.testing.assert_array_equal(session.run({"x": x})["y"], expected)


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "stride", "zeros"), [(4, 1, (0, 255)), (32, 1, (255, 0)), (13, 2, (255, 255))])
def test_depthwise_of_uint8_by_helium(channels: int, stride: int, zeros: tuple[int, int], tmp_path):
    """Zero points at both ends, numbers at theirs: in rows of neighbouring pixels, and pixel by pixel."""
    random = np.random.default_rng(channels)
    height, width = (11 + stride - 1) // stride, (13 + stride - 1) // stride
    tensors = {
        "x": Quantized((1, 11, 13, channels), 0.5, zeros[0], "uint8"),
        "w": Quantized((1, 3, 3, channels), 0.01, zeros[1], "uint8", 0,
                       random.choice([0, 3, 255], (1, 3, 3, channels)).astype(np.uint8)),
        "b": Quantized((channels,), 0.005, 0, "int32", 0, random.integers(-9999, 9999, channels).astype(np.int32)),
        "y": Quantized((1, height, width, channels), 9.0, 120, "uint8")}
    options = {"Padding": 0, "StrideW": stride, "StrideH": stride, "DepthMultiplier": 1}
    path = tmp_path / "depthwise.tflite"
    operator = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", options, ["x", "w", "b"], ["y"]
    path.write_bytes(written(tensors, [operator], ["x"], ["y"]))
    graph = import_tflite(path)
    x = random.choice([0, 130, 255], (1, 11, 13, channels)).astype(np.uint8)
    expected = reference.run(graph, {"x": x})["y"]
    assert len(np.unique(expected)) > 8
    folder = compile_graph(graph, parse_targets("cortex-m55")).save(tmp_path / "folder")
    try:
        session = load(folder, "cortex-m55")
    except MissingTool as missing:
        pytest.skip(str(missing))
    kernel = session.calls[0]["kernel"]
    assert "_wide" in kernel and ("_rows" in kernel) == (stride == 1)
    np.testing.assert_array_equal(session.run({"x": x})["y"], expected)


_KINDS = ("pixels", "windows", "one pixel", "depthwise")
#: Target, what is computed, zero point of the weights.
_ZERO_POINTS = [*(("cortex-m4", kind, zero) for kind in _KINDS for zero in (0, 255)),
                ("cortex-m4", "windows", 129), ("cortex-m4", "depthwise", 127),
                *(("cortex-m3", kind, 99) for kind in _KINDS),
                *(pytest.param(target, kind, zero, marks=pytest.mark.long) for target in ("cortex-m0plus", "riscv32")
                  for kind in _KINDS for zero in (0, 255))]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "kind", "zero"), _ZERO_POINTS)
@pytest.mark.parametrize("optimize", ["speed", pytest.param("size", marks=pytest.mark.long)])
def test_zero_points_of_weights(target: str, kind: str, zero: int, optimize: str, tmp_path):
    """What no int8 holds: numbers at their ends, windows that are no whole fours, and an odd number of channels."""
    random = np.random.default_rng(zero)
    least = 0 if target == "cortex-m4" else 1  # two products of a weight of -128 do not fit in 16 bits
    depthwise, size = kind == "depthwise", {"pixels": 1, "one pixel": 1}.get(kind, 3)
    height, width = (1, 1) if kind == "one pixel" else (7, 5)
    channels, outputs = (13, 13) if depthwise else (23, 9)
    weights = (1, size, size, channels) if depthwise else (outputs, size, size, channels)
    steps = 255 * 255 * (size * size * (1 if depthwise else channels))**0.5
    tensors = {
        "x": Quantized((1, height, width, channels), 0.5, 255 - zero, "uint8"),
        "w": Quantized(weights, 0.01, zero, "uint8", 0, random.choice([least, 3, 128, 255], weights).astype(np.uint8)),
        "b": Quantized((outputs,), 0.005, 0, "int32", 0, random.integers(-9999, 9999, outputs).astype(np.int32)),
        "y": Quantized((1, height, width, outputs), 0.005 * steps / 64, 120, "uint8")}
    options = {"Padding": 0, "StrideW": 1, "StrideH": 1} | ({"DepthMultiplier": 1} if depthwise else {})
    name, table = (("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions"))
    path = tmp_path / "network.tflite"
    path.write_bytes(written(tensors, [(name, table, options, ["x", "w", "b"], ["y"])], ["x"], ["y"]))
    graph = import_tflite(path)
    x = random.choice([0, 1, 130, 255], (1, height, width, channels)).astype(np.uint8)
    expected = reference.run(graph, {"x": x})["y"]
    assert len(np.unique(expected)) > (3 if kind == "one pixel" else 8)
    folder = compile_graph(graph, parse_targets(target), optimize=optimize).save(tmp_path / "folder")
    try:
        session = load(folder, target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    assert ("_padded_rows" if depthwise and target != "cortex-m4" else "_weight_zero") in session.calls[0]["kernel"]
    np.testing.assert_array_equal(session.run({"x": x})["y"], expected)
