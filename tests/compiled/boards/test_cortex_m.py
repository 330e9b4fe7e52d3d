# SPDX-License-Identifier: Apache-2.0
"""Networks on an emulated Cortex-M4F: right results, flash, RAM and stack, and nothing of the C library but copies."""

import json
import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.models.networks import NETWORKS, assert_close, onnxruntime_outputs
from tests.onnx_models import model, node
from tests.qdq import Quantised
from tests.unit.passes.test_integers import drawn
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.codegen import bundle
from tvm_megcc.codegen.machines import STATIC_PROFILE
from tvm_megcc.compiler import compile_graph
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError, MissingTool, ToolError
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.build import build, build_all
from tvm_megcc.runtime.emulator import counting, firmware
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.reference import run
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS, parse_targets
from tvm_megcc.tools import verify

TARGET = TARGETS["cortex-m4"]
FORBIDDEN = ("malloc", "free", "calloc", "realloc", "printf", "fopen", "fread", "fwrite", "_sbrk", "pthread", "exp",
             "expf", "tanhf", "logf")


@pytest.fixture(scope="module", autouse=True)
def tools():
    try:
        find_compiler(TARGET)
        find_emulator(TARGET)
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", TARGET)
    return artifact.save(tmp_path_factory.mktemp("m4") / "digits_megcc")


def symbols(elf) -> set[str]:
    (compiler,) = find_compiler(TARGET).command
    nm = compiler.removesuffix("gcc") + "nm"
    text = subprocess.run([nm, str(elf)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in text.splitlines()}


@pytest.mark.slow
def test_more_inputs_and_outputs_than_digits(tmp_path):
    names = [f"x{index}" for index in range(12)]
    nodes = [node("Mul", f"{name} {name}", f"y{index}") for index, name in enumerate(names)]
    made = model(nodes, {name: [1, 2] for name in names}, {f"y{index}": [1, 2] for index in range(12)})
    session = load(tvm_megcc.compile(made, TARGET).save(tmp_path / "net"))
    found = session.run({name: np.full((1, 2), index, np.float32) for index, name in enumerate(names)})
    assert [int(found[f"y{index}"][0, 1]) for index in range(12)] == [index**2 for index in range(12)]


@pytest.mark.slow
def test_two_cores_with_the_same_instructions_share_a_table(tmp_path):
    """cortex-m4 and cortex-m7 are one instruction set."""
    compiled = tvm_megcc.compile(paths.examples() / "digits.onnx", "cortex-m4,cortex-m7", reproducible=True)
    report = verify.verify(compiled.save(tmp_path / "digits_megcc"))
    assert report["equal"] and all("sha256" in row for row in report["targets"])


def test_digits(digits):
    sample = np.load(paths.examples() / "digits.npz")
    session = load(digits)
    logits = session.run({"image": sample["in:image"]})["logits"]
    assert_close({"logits": logits}, {"logits": sample["out:logits"]})
    assert 0 < session.stack_bytes < firmware.LIMITS["stack"]


def test_an_embedded_model_is_the_same_firmware(digits, tmp_path):
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", TARGET)
    embedded = artifact.save(tmp_path / "digits_megcc", embed=True)
    sizes, expected = firmware.sizes(build(embedded).program), firmware.sizes(build(digits).program)
    assert sizes["ram"] == expected["ram"]
    assert abs(sizes["flash"] - expected["flash"]) <= 64, "but for alignment: the linker got the files in another order"


def test_bench_counts_instructions(digits, capsys):
    """Those of each call; the calls of a network do not change their work with its inputs."""
    found = []
    for seed in ("1", "2"):
        assert main(["bench", str(digits), "--seed", seed, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    first, second = found
    macs = sum(call["macs"] for call in load(digits).calls)
    assert macs / 2 < first["instructions"] < 10 * macs
    assert first["firmware"] == {**firmware.sizes(build(digits).program), "container": first["firmware"]["container"]}
    assert first["stack_bytes"] <= first["stack_at_most"] < 2 * first["stack_bytes"]
    assert first["stack_path"][0] == "reset" and not first["stack_unbounded"]
    for memory, left in (("flash", 0), ("ram", first["firmware"]["stack"])):
        assert 0 <= first["firmware"][memory] - left - sum(first["files"][memory].values()) < 512, "alignment"
    assert "uncounted" not in first and sum(call["instructions"] for call in first["calls"]) == first["instructions"]
    assert sum(call["cycles"] for call in first["calls"]) == first["cycles"]
    assert first["instructions"] < first["cycles"] < 3 * first["instructions"] and "Cortex-M4" in first["cycle_model"]
    assert len(first["calls"]) == len(load(digits).calls) and min(call["instructions"] for call in first["calls"]) > 100
    for one, other in zip(first["calls"], second["calls"], strict=True):
        if one["kind"] == "conv2d":
            assert abs(one["instructions"] - other["instructions"]) <= 80


def test_the_clock_counts_where_the_plugin_cannot(digits, monkeypatch, capsys):
    assert main(["bench", str(digits), "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)

    def none(*arguments):
        raise ToolError("there is no plugin")
    monkeypatch.setattr(counting, "options", none)
    assert main(["bench", str(digits), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["uncounted"] == "there is no plugin" and "cycles" not in found
    for one, other in zip(exact["calls"], found["calls"], strict=True):
        assert abs(one["instructions"] - other["instructions"]) <= 200
    assert main(["bench", str(digits)]) == 0
    assert "no cycles: there is no plugin" in capsys.readouterr().out


def test_no_heap_no_files(digits):
    found = symbols(build(digits).program)
    assert not found.intersection(FORBIDDEN)


def test_a_model_that_does_not_fit_is_refused_with_the_bytes(digits):
    needs = firmware.sizes(build(digits).program)
    with pytest.raises(MegccError, match=f"flash {needs['flash']:,} bytes, there are 8,192.*"
                                         f"ram {needs['ram']:,} bytes, there are 4,096"):
        build(digits, limits={"flash": 8 << 10, "ram": 4 << 10, "stack": needs["stack"]})


@pytest.mark.slow
@pytest.mark.parametrize("embed", [pytest.param(False, marks=pytest.mark.slow), True], ids=["file", "embedded"])
def test_targets_beside_it_cost_the_firmware_nothing(digits, embed, tmp_path):
    """Of a folder for two machines, the firmware has its own memory and data only, and the host its own."""
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "cortex-m4,native")
    both = artifact.save(tmp_path / "digits_megcc", embed)
    sizes, expected = (firmware.sizes(build(folder, TARGET).program) for folder in (both, digits))
    assert sizes["ram"] == expected["ram"]
    assert abs(sizes["flash"] - expected["flash"]) <= 64, "but for alignment"
    sample = np.load(paths.examples() / "digits.npz")
    for target in (TARGET, None):
        logits = load(both, target).run({"image": sample["in:image"]})["logits"]
        assert_close({"logits": logits}, {"logits": sample["out:logits"]})


@pytest.mark.parametrize("flags", [(), ("-DMEGCC_NO_STRINGS",)], ids=["strings", "no-strings"])
def test_another_core_is_a_compile_error(digits, flags):
    """It says what the folder is for and which flags that takes, instead of leaving out the kernels."""
    (compiler,) = find_compiler(TARGET).command
    command = [compiler, "-c", "kernels.c", "-Iruntime/include", "-o", "/dev/null", *flags]
    right = subprocess.run([*command, *TARGET.cflags], cwd=digits, capture_output=True, text=True, check=False)
    assert right.returncode == 0, right.stderr
    for core in ("cortex-m3", "cortex-m33", "cortex-a7"):
        wrong = subprocess.run([*command, f"-mcpu={core}"], cwd=digits, capture_output=True, text=True, check=False)
        assert wrong.returncode
        assert "digits was compiled for cortex-m4" in wrong.stderr and " ".join(TARGET.cflags) in wrong.stderr


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two models in one folder, and what one of them needs by itself."""
    artifacts = [tvm_megcc.compile(paths.examples() / "digits.onnx", TARGET, name=name, optimize=optimize)
                 for name, optimize in (("digits", "speed"), ("small", "size"))]
    return bundle.write(artifacts, tmp_path_factory.mktemp("two") / "two_megcc", embed=True)


def test_two_models_in_one_firmware(two, digits, tmp_path):
    """`megcc build` says what both take together; the image runs both."""
    (built,) = build_all(two)
    both, one = firmware.sizes(built.program), firmware.sizes(build(digits).program)
    assert both["ram"] > one["ram"] + 3000 and both["flash"] > one["flash"] + 10_000
    sample = np.load(paths.examples() / "digits.npz")
    for name in ("digits", "small"):
        sample["in:image"].tofile(tmp_path / f"{name}_in0.bin")
    subprocess.run(firmware.emulation(*find_emulator(TARGET), TARGET, built.program.resolve()), cwd=tmp_path,
                   check=True, stdin=subprocess.DEVNULL)
    for name in ("digits", "small"):
        logits = np.fromfile(tmp_path / f"{name}_out0.bin", np.float32).reshape(1, 10)
        assert_close({"logits": logits}, {"logits": sample["out:logits"]})
    with pytest.raises(MegccError, match="digits and small do not fit: they need flash"):
        build(two, limits={"flash": 8 << 10})


def test_one_of_two_models(two):
    sample = np.load(paths.examples() / "digits.npz")
    session = load(two, model="small")
    assert session.name == "small"
    assert_close(session.run({"image": sample["in:image"]}), {"logits": sample["out:logits"]})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist8", "resnet8_cifar10_f32", "kws_dscnn_f32"])
def test_network(name, tmp_path, record_property):
    network = NETWORKS[name]
    artifact = tvm_megcc.compile(network.path, TARGET, input_shapes=dict(network.shapes), name=name)
    folder = artifact.save(tmp_path / name)
    session = load(folder)
    for _file, inputs, outputs in network.references():
        assert_close(session.run(inputs), outputs)
    inputs = network.inputs(1)
    assert_close(session.run(inputs), onnxruntime_outputs(network.path, inputs))
    built = build(folder)
    assert not symbols(built.program).intersection(FORBIDDEN)
    sizes = firmware.sizes(built.program)
    record_property("sizes", sizes)
    print(f"\n{name}: flash {sizes['flash']:,}, RAM {sizes['ram']:,}, deepest stack {session.stack_bytes:,}")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [
    "-mcpu=cortex-m0plus -mfloat-abi=soft", "-mcpu=cortex-m3 -mfloat-abi=soft",
    "-mcpu=cortex-m33+nodsp -mfloat-abi=soft",
    "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16", "-mcpu=cortex-m55 -mfloat-abi=hard"])
def test_portable_c_on_cores_without_a_target(flags, tmp_path):
    """As docs/microcontrollers.md says; nothing of the C library is needed but what it names."""
    (compiler,) = find_compiler(TARGET).command
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "c", optimize="size")
    folder = artifact.save(tmp_path / "digits_c", embed=True)
    command = [compiler, "-mthumb", *flags.split(), "-std=c99", "-O2", "-ffp-contract=off", *STATIC_PROFILE,
               "-Iruntime/include", "-I.", "-r", "-nostdlib", "-o", "all.o",
               *(str(path) for pattern in ("*_data.c", "kernels.c", "kernels/*.c", "runtime/src/*.c")
                 for path in sorted(folder.glob(pattern)))]
    subprocess.run(command, cwd=folder, check=True)
    nm = compiler.removesuffix("gcc") + "nm"
    text = subprocess.run([nm, "-u", "all.o"], cwd=folder, capture_output=True, text=True, check=True).stdout
    wanted = {line.split()[-1] for line in text.splitlines()}
    assert {name for name in wanted if not name.startswith("__aeabi_")} == {"memcpy", "memset", "memcmp"}


def separable_network():
    """Quantised: pointwise to more channels, depthwise, pointwise to fewer, depthwise by two."""
    b = Quantised(3, "int8")
    scale, zero = b.parameters()
    x = b.real(b.input("x", 1, 8, 12, 10, dtype="int8"), scale, zero)
    for channels, kernel, stride in ((24, 1, 1), (24, 3, 1), (16, 1, 1), (16, 3, 2)):
        x = b.quantised(b.op("relu", b.convolution(x, channels, kernel, stride, kernel == 3)))
    return b.graph(b.source(x).inputs[0])


@pytest.mark.slow
def test_separable_convolutions_in_one_place(tmp_path):
    """Each of them takes the place of what it reads, whether that is larger or smaller."""
    graph = separable_network()
    artifact = compile_graph(graph, parse_targets("cortex-m4"))
    program = artifact.manifest["programs"][0]
    largest, scratch = 24 * 12 * 10, 4096
    assert program["arena_bytes"] < largest + scratch < 2 * largest + scratch
    assert {call["kernel"].split("__")[1].split("_")[0] for call in program["calls"]} >= {"triples", "planes"}
    inputs = drawn(graph)
    expected = run(before_layouts(graph, Context(TARGETS["c"])), inputs)
    found = tvm_megcc.load(artifact.save(tmp_path / "separable")).run(inputs)
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name])
