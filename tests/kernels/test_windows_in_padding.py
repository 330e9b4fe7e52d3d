# SPDX-License-Identifier: Apache-2.0
"""Operators with windows some of which lie in part, or wholly, in the padding: drawn cases of every kernel that has
windows, each run with memory that held one pattern before, and another; and models.

`make test` has a few of the drawn cases. MEGCC_ALL_KERNELS=1 pytest tests/kernels/test_windows_in_padding.py has
thousands for every ISA; MEGCC_WINDOWS_SEED draws others.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.c_flags import poison
from tvm_megcc.errors import MissingTool
from tvm_megcc.ir.expr import X, arg, call, clip, maximum
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS

from .kernel_harness import HALVES, Job, Program, Tail, jobs_of
from .test_fences import BARE, BETWEEN, GUARD
from .test_fences import program as fenced
from .test_kernels import ALL_KERNELS, Firmware, is_portable, slow, toolchain
from .windows import AXES, drawn

pytestmark = pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="no C compiler")

#: Shape of x, of the weights, pads, strides, groups.
CASES = {
    "1x1": ((1, 3, 4, 4), (5, 3, 1, 1), (1, 1, 1, 1), (2, 2), 1),
    "1x1 in blocks": ((2, 32, 5, 6), (32, 32, 1, 1), (2, 1, 1, 2), (1, 1), 1),
    "1x1 in groups": ((1, 8, 4, 4), (8, 4, 1, 1), (1, 0, 2, 0), (1, 1), 2),
    "1x3": ((1, 16, 4, 7), (16, 16, 1, 3), (2, 1, 1, 1), (1, 1), 1),
    "3x3 of two rows": ((1, 16, 2, 7), (16, 16, 3, 3), (4, 4, 4, 4), (1, 2), 1),
    "depthwise 1x3": ((1, 16, 3, 6), (16, 1, 1, 3), (2, 3, 2, 3), (1, 1), 16),
    "depthwise 3x3": ((1, 8, 3, 3), (8, 1, 3, 3), (4, 4, 4, 4), (2, 1), 8),
}


SEED = int(os.environ.get("MEGCC_WINDOWS_SEED", "0"))
#: Operators whose results a tail of integers follows.
INTEGER = {"conv2d_integer", "sum_pool_integer"}
_EACH = (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int32", (-19, -2)))
#: What follows, by the number of the window. The least of all numbers, which a maximum of no element is, is for each of
#: these the same in numpy.
TAILS = (Tail(), Tail(maximum(X * arg(1) + arg(2), 0), (("channel", "float32", (0, 1)), ("full", "float32", (0, 1)))))
INTEGER_TAILS = (Tail(clip(call("rescale_down", X, arg(1), arg(2)) - 7, -128, 127), _EACH, "int8"), Tail(),
                 Tail(clip(call("rescale_once", X, arg(1), arg(2)) + 5, 0, 255), _EACH, "uint8"))


def drawn_jobs(kind: str, name: str, mode: str, windows: int, each: int) -> list[Job]:
    tails = INTEGER_TAILS if kind in INTEGER else TAILS
    return [job for number, case in drawn(kind, windows, each, SEED, mode in HALVES)
            for job in jobs_of(kind, case, number, TARGETS[name], mode, tails[number // 2 % len(tails)])]


def failures(kind: str, name: str, mode: str, windows: int, each: int, folder: Path) -> list[str]:
    """What is wrong with so many drawn cases of so many windows."""
    compiler, flags, runner = toolchain(name)
    jobs = drawn_jobs(kind, name, mode, windows, each)
    jobs = [job for job in jobs if is_portable(job)] if TARGETS[name].bare_metal else jobs
    if not jobs:
        pytest.skip(f"no kernel of {kind} for {name} in this mode")
    made = Program(jobs, folder, compiler, [*flags, *poison(compiler.command)], runner)
    print(f"{kind} {name} {mode}: {len(jobs)} calls of {len(made.index)} kernels")
    return made.run_poisoned()


@pytest.mark.parametrize(("kind", "name"), [("avg_pool", "c"), ("conv2d", "c"), *(
    slow(kind, name) for kind in ("conv2d", "conv2d_integer", "max_pool", "conv2d_transpose")
    for name in ("x86-64-v3", "arm64", "cortex-m4"))])
def test_a_few_drawn_windows(kind: str, name: str, tmp_path: Path):
    found = failures(kind, name, "shared-size", 2, 10, tmp_path)
    assert not found, "\n".join(found[:10])


#: Operators with windows that have kernels of half precision.
IN_HALVES = sorted(kind for kind in AXES if any(kernel.float16 for kernel in OPERATORS[kind].kernels))
#: Ways of knowing extents: windows, and cases of each.
EVERY = {"shared-size": (24, 30), "speed": (60, 1), "open": (12, 4)}
#: A target of each ISA; kernels of boards are built as C for this machine.
OF_EACH_ISA = list({target.isa.name: name for name, target in reversed(TARGETS.items())}.values())[::-1]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not ALL_KERNELS, reason="with MEGCC_ALL_KERNELS only")
@pytest.mark.parametrize("mode", EVERY)
@pytest.mark.parametrize("name", OF_EACH_ISA)
@pytest.mark.parametrize("kind", AXES)
def test_drawn_windows(kind: str, name: str, mode: str, tmp_path: Path):
    found = failures(kind, name, mode, *EVERY[mode], tmp_path)
    assert not found, "\n".join(found[:10])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not ALL_KERNELS, reason="with MEGCC_ALL_KERNELS only")
@pytest.mark.parametrize("mode", HALVES)
@pytest.mark.parametrize("name", ["arm64-v82", "arm64-v86"])
@pytest.mark.parametrize("kind", IN_HALVES)
def test_drawn_windows_of_half_precision(kind: str, name: str, mode: str, tmp_path: Path):
    found = failures(kind, name, mode, *EVERY["shared-size" if mode == "half-size" else "speed"], tmp_path)
    assert not found, "\n".join(found[:10])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not ALL_KERNELS, reason="with MEGCC_ALL_KERNELS only")
@pytest.mark.parametrize("mode", HALVES)
@pytest.mark.parametrize("kind", IN_HALVES)
def test_drawn_windows_of_half_precision_on_the_board(kind: str, mode: str, tmp_path: Path):
    """Helium's: there is no C for other machines."""
    target = TARGETS["cortex-m55"]
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    jobs = drawn_jobs(kind, target.name, mode, *((12, 20) if mode == "half-size" else (30, 1)))
    flags = ["-O2", *target.cflags, *poison(compiler.command)]
    made = Firmware(target, jobs, tmp_path, compiler, flags, [*emulator])
    print(f"{kind} {target} {mode}: {len(jobs)} calls of {len(made.index)} kernels on the board")
    found = made.run_poisoned()
    assert not found, "\n".join(found[:10])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not ALL_KERNELS, reason="with MEGCC_ALL_KERNELS only")
@pytest.mark.parametrize("mode", ["shared-size", "speed"])
@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("kind", ["conv2d_integer", "sum_pool_integer", "max_pool"])
def test_drawn_windows_between_fences(kind: str, name: str, mode: str, tmp_path: Path):
    """On the emulated board; what is larger than the memory between two fences is left out."""
    jobs = drawn_jobs(kind, name, mode, *((12, 20) if mode == "shared-size" else (30, 1)))
    made = fenced(jobs, name, tmp_path, "-O2")
    made.jobs = [job for job in made.jobs if max(made.bytes_of(job)) + GUARD <= BETWEEN]
    print(f"{kind} {name} {mode} between fences: {len(made.jobs)} of {len(jobs)} calls of {len(made.index)} kernels")
    assert len(made.jobs) > len(jobs) // 2
    found = made.failures(1)
    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("case", CASES)
def test_windows_without_a_tap_inside_give_the_bias(case, target, tmp_path):
    shape, kernel, pads, strides, group = CASES[case]
    generator = np.random.default_rng(1)
    weights = [numpy_helper.from_array(generator.standard_normal(size).astype(np.float32), name)
               for name, size in (("w", kernel), ("b", kernel[:1]))]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, strides=strides, group=group)
    graph = helper.make_graph([node], "padding", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = generator.standard_normal(shape).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    path = tmp_path / "padding.onnx"
    onnx.save(model, path)
    tvm_megcc.compile(str(path), target).save(tmp_path / "made")
    session = tvm_megcc.load(tmp_path / "made")
    session.run({"x": np.full(shape, np.nan, np.float32)})  # what scratch memory holds from now on
    np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
