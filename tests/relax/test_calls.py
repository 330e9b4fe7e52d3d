# SPDX-License-Identifier: Apache-2.0
"""Calls of regions through TVM's FFI: any memory, any thread, every failure with its text; exported libraries."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

import tvm_megcc
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.frontends.tvm_versions import RelaxTensor
from tvm_megcc.runtime.toolchain import PACKAGES, find_compiler, find_emulator, runs_here
from tvm_megcc.target import TARGETS

from .modules import arrays_of, assert_same, f32, megcc, module, random_inputs, run, tensors, weights


def network(emit, x):
    y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(8, 3, 3, 3), padding=1))))
    return emit(op.nn.max_pool2d(y, 2, 2)), emit(op.mean(y, [2, 3]))


@pytest.fixture(scope="module")
def mod():
    return module(network, f32(1, 3, 8, 6))


@pytest.fixture(scope="module")
def expected(mod):
    return run(tvm.compile(mod, target="llvm"), random_inputs(mod))


@pytest.fixture(scope="module")
def region(mod):
    """The region's function, called with inputs and outputs."""
    executable = tvm_megcc.build(mod)
    return executable.jit().get_function(name_of_region(mod), query_imports=True)


def name_of_region(mod, target=None) -> str:
    """Name of the only region of a module."""
    (name,) = megcc.report(megcc.partition_for_megcc(mod, target=target)).regions
    return name


def outputs():
    return tensors([np.full((1, 8, 4, 3), np.nan, "float32"), np.full((1, 8), np.nan, "float32")])


@pytest.mark.slow
def test_in_memory_and_exported(mod, expected, tmp_path):
    executable = tvm_megcc.build(mod)
    inputs = random_inputs(mod)
    assert_same(run(executable, inputs), expected)
    executable.export_library(str(tmp_path / "model.so"))
    assert_same(run(tvm.runtime.load_module(str(tmp_path / "model.so")), inputs), expected)


def test_weights_are_in_the_library_once(tmp_path):
    """Among them one of no elements, such as the sizes that ONNX's importer leaves behind."""
    nothing = relax.const(np.zeros((1, 0, 2048), "float32"))
    mod = module(lambda emit, x: emit(op.concat([emit(op.matmul(x, weights(512, 2048))), nothing], 1)), f32(1, 3, 512))
    inputs, path = random_inputs(mod), tmp_path / "model.so"
    executable = tvm_megcc.build(mod, "megcc-c")
    executable.export_library(str(path))
    assert 4 * 512 * 2048 < path.stat().st_size < 6 * 512 * 2048
    assert_same(run(tvm.runtime.load_module(str(path)), inputs), run(tvm.compile(mod, target="llvm"), inputs))


@pytest.mark.slow
def test_only_the_entries_are_exported(mod):
    """Of the object that is linked into a library, nothing but the regions and their profiles can be seen."""
    objects: dict[str, str] = {}

    def look(_output, files, **_options):
        for file in files:
            objects[file] = subprocess.run(["nm", "-g", "--defined-only", file], capture_output=True, text=True,
                                           check=False).stdout

    look.output_format = "so"
    tvm_megcc.build(mod).export_library("unused.so", fcompile=look)
    (names,) = [text for text in objects.values() if "megcc" in text]
    entry = f"__tvm_ffi_{name_of_region(mod)}"
    assert [line.split()[-1] for line in names.splitlines()] == [entry, f"{entry}_profile"]


def test_profile(mod, expected, tmp_path):
    """Regions by name, and inside them by kernel; in memory and from a library."""
    executable = tvm_megcc.build(mod, "megcc-c")
    executable.export_library(str(tmp_path / "model.so"))
    for library in (executable, tvm.runtime.load_module(str(tmp_path / "model.so"))):
        machine = relax.VirtualMachine(library, tvm.cpu())
        profile = megcc.profile(machine, "main", *tensors(random_inputs(mod)))
        (row,) = (row for row in profile.rows if row.kernels)
        assert row.function == name_of_region(mod, "megcc-c") and row.seconds > 0
        kernels = [name for name, seconds in row.kernels if seconds >= 0]
        assert [name.split("_")[0] for name in kernels] == ["conv2d", "max", "global"], kernels
        assert row.function in str(profile) and kernels[0] in str(profile)
        assert_same(arrays_of(machine["main"](*tensors(random_inputs(mod)))), expected)


def test_a_profile_of_wrong_arguments_is_an_error(mod, region):
    watched = tvm_megcc.build(mod).jit().get_function(f"{name_of_region(mod)}_profile", query_imports=True)
    with pytest.raises(TypeError, match="called with 1 arguments; it has 1 inputs and 2 outputs"):
        watched(*tensors(random_inputs(mod)))


@pytest.mark.slow
def test_two_modules_in_one_process(mod, expected):
    other = module(lambda emit, x: emit(op.nn.conv2d(x, weights(8, 3, 3, 3, seed=7), padding=1)), f32(1, 3, 8, 6))
    first, second = tvm_megcc.build(mod), tvm_megcc.build(other)
    inputs = random_inputs(mod)
    machines = [relax.VirtualMachine(executable, tvm.cpu()) for executable in (first, second)]
    want = run(tvm.compile(other, target="llvm"), inputs)
    for _ in range(2):
        assert_same([machines[1]["main"](*tensors(inputs)).numpy()], want)
        assert_same([result.numpy() for result in machines[0]["main"](*tensors(inputs))], expected)


def test_views_with_offset_and_strides(mod, region, expected):
    """Inputs and outputs that are not row-major are copied."""
    (x,) = random_inputs(mod)
    results = outputs()
    region(strided(x), *results)
    assert_same([result.numpy() for result in results], expected)
    wide = np.full((1, 8, 4, 6), np.nan, "float32")
    region(tvm.runtime.tensor(x), view_of(wide[..., ::2]), results[1])
    assert_same([wide[..., ::2]], expected[:1])
    assert np.isnan(wide[..., 1::2]).all()


def view_of(array: np.ndarray):
    """A tensor that looks into the memory of an array as it is."""
    return tvm_ffi.from_dlpack(array, require_alignment=0, require_contiguous=False)


def strided(array: np.ndarray):
    """The same values as a view with gaps, axes in another order, and an offset."""
    n, c, h, w = array.shape
    memory = np.full((n, h, 2 * w + 1, c), np.nan, array.dtype)
    view = memory[:, :, 1::2, :].transpose(0, 3, 1, 2)
    view[...] = array
    return view_of(view)


def test_misaligned_memory(mod, region, expected):
    (x,) = random_inputs(mod)
    memory = np.zeros(x.nbytes + 16, np.uint8)
    offset = (1 - memory.ctypes.data) % 4
    view = memory[offset:offset + x.nbytes].view("float32").reshape(x.shape)
    view[...] = x
    results = outputs()
    region(view_of(view), *results)
    assert_same([result.numpy() for result in results], expected)


@pytest.mark.parametrize(("arguments", "kind", "text"), [
    (lambda x, o: (x[:, :2], *o), ValueError, "input 0 has extent 2 on axis 1, not 3"),
    (lambda x, o: (x[0], *o), ValueError, "input 0 has 3 axes, not 4"),
    (lambda x, o: (x.astype("float64"), *o), TypeError, "input 0 has element type code 2 with 64 bits, not float32"),
    (lambda x, o: (x, *o[::-1]), ValueError, "output 0 has 2 axes, not 4"),
    (lambda x, o: (x, o[0]), TypeError, "called with 2 arguments; it has 1 inputs and 2 outputs"),
    (lambda x, o: (3, *o), TypeError, "input 0 is no tensor"),
])
def test_wrong_arguments(mod, region, arguments, kind, text):
    given = arguments(random_inputs(mod)[0], outputs())
    given = [tvm.runtime.tensor(np.ascontiguousarray(a)) if isinstance(a, np.ndarray) else a for a in given]
    with pytest.raises(kind, match=text) as raised:
        region(*given)
    assert f"{name_of_region(mod)}: " in str(raised.value)


@pytest.mark.slow
def test_threads(mod, region):
    """Many threads in one region, each with its own worker of the pool, again and again."""
    generator = np.random.default_rng(1)
    inputs = [generator.standard_normal((1, 3, 8, 6)).astype("float32") for _ in range(6)]
    want = [run(tvm.compile(mod, target="llvm"), [x]) for x in inputs]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(50):
                results = outputs()
                region(tvm.runtime.tensor(inputs[index]), *results)
                assert_same([result.numpy() for result in results], want[index])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_failing_kernel_is_an_error_of_tvm():
    """An index off its axis: refused by our kernel, reported with the runtime's words; the next call works."""
    mod = module(lambda emit, x, i: emit(op.take(x, i, axis=0)), f32(4, 3), RelaxTensor((2,), "int64"))
    machine = relax.VirtualMachine(tvm_megcc.build(mod), tvm.cpu())
    x = np.arange(12, dtype="float32").reshape(4, 3)
    with pytest.raises(RuntimeError, match=rf"{name_of_region(mod)}: .*kernel"):
        machine["main"](*tensors([x, np.array([0, 99])]))
    np.testing.assert_array_equal(machine["main"](*tensors([x, np.array([3, 1])])).numpy(), x[[3, 1]])


#: Machine of the ELF header by target; what is slow to compile for beside arm64 is left to the full suite.
MACHINES = {"arm64": 0xb7, "arm64-v86": 0xb7, "armv7": 0x28, "riscv64": 0xf3}
CROSS = [pytest.param(name, marks=[pytest.mark.slow] * (name != "arm64")) for name in MACHINES]


@pytest.mark.slow
@pytest.mark.parametrize("name", CROSS)
def test_cross_export(mod, name, tmp_path):
    """`tvm.compile` for another CPU, linked by its compiler."""
    try:
        find_compiler(TARGETS[name])
    except MissingTool as missing:
        pytest.skip(str(missing))
    library = tmp_path / "model.so"
    tvm_megcc.build(mod, f"megcc-{name}").export_library(str(library))
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == MACHINES[name]
    executable = tvm.compile(mod, target=f"megcc-{name}", relax_pipeline="megcc")
    executable.export_library(str(tmp_path / "again.so"))
    assert (tmp_path / "again.so").stat().st_size == library.stat().st_size


def test_tags():
    """Every CPU that runs an operating system has a tag."""
    for target in TARGETS.values():
        if not target.bare_metal:
            tag = tvm.target.Target(f"megcc-{target}")
            assert tag.kind.name == "llvm" and tag.attrs["model"] == target.name
            assert megcc.our_target(tag) is target
    assert megcc.our_target("megcc-native") is megcc.our_target(tvm.target.Target("megcc-native"))
    assert megcc.our_target(tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})).name == "arm64"
    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    assert megcc.our_target(tvm.target.Target({"kind": "opencl"}, host)).name == "arm64"
    with pytest.raises(megcc.MegccError, match="target 'opencl' is no CPU"):
        megcc.our_target("opencl")
    with tvm.target.Target("megcc-arm64"):
        assert megcc.our_target().name == "arm64"


def test_tags_that_are_not_there(mod):
    """The one that was meant is said, by TVM's own functions too."""
    for use in (megcc.our_target, lambda name: tvm.compile(mod, target=name),
                lambda name: tvm_megcc.partition_for_megcc(mod, target=name)):
        with pytest.raises(MegccError, match="unknown target 'megcc-nativ', did you mean 'megcc-native'"):
            use("megcc-nativ")
    with pytest.raises(MegccError, match="did you mean 'megcc-native'"):
        megcc.our_target("nativ")


@pytest.mark.parametrize("name", CROSS)
def test_cross_library_runs_in_an_emulator(name, tmp_path):
    """The library, called through its C entry under qemu."""
    target = TARGETS[name]
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    if not emulator:
        pytest.skip(f"this machine runs {name} itself")
    roots = [root for root in (f"/usr/{triple.removesuffix('-')}" for triple in target.triples) if Path(root).is_dir()]
    if not roots:
        pytest.skip(f"there is no C library for {name} (install {PACKAGES[target.machine][0]})")
    mod = module(lambda emit, x: emit(op.nn.relu(emit(op.nn.conv2d(x, weights(5, 3, 3, 3), padding=1)))),
                 f32(1, 3, 8, 6))
    tvm_megcc.build(mod, f"megcc-{name}").export_library(str(tmp_path / "model.so"))
    shapes = ["-DIN_SHAPE=1,3,8,6", f"-DIN_SIZE={3 * 8 * 6}", "-DOUT_SHAPE=1,5,8,6", f"-DOUT_SIZE={5 * 8 * 6}"]
    source = Path(__file__).with_name("entry.c")
    subprocess.run([*compiler.command, "-O1", *shapes, str(source), "-rdynamic", "-ldl", "-pthread", "-o",
                    str(tmp_path / "entry")], check=True)
    (x,) = random_inputs(mod)
    x.tofile(tmp_path / "in.bin")
    subprocess.run([*emulator, "-L", roots[0], str(tmp_path / "entry"), str(tmp_path / "model.so"),
                    f"__tvm_ffi_{name_of_region(mod, target)}", str(tmp_path / "in.bin"), str(tmp_path / "out.bin")],
                   check=True)
    result = np.fromfile(tmp_path / "out.bin", "float32").reshape(1, 5, 8, 6)
    assert_same([result], run(tvm.compile(mod, target="llvm"), [x]))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "c"))
                                  for name, target in TARGETS.items() if runs_here(target)])
def test_every_target_of_this_machine(mod, expected, name):
    executable = tvm.compile(mod, target=f"megcc-{name}", relax_pipeline="megcc")
    assert_same(run(executable, random_inputs(mod)), expected)
