# SPDX-License-Identifier: Apache-2.0
"""The cycle model: which class an instruction is of, what rows of them cost on each core, and what jumps do."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tflite_files import Quantized, written
from tvm_megcc.runtime.emulator.counting import Block, Disassembly, instructions, read
from tvm_megcc.runtime.emulator.cycles import CORES, class_of, cycles

CODE = """ldr.w r0, [r1], #4
ldrh r2, [r3]
smlad r4, r0, r2, r4
str r4, [r5]
ldmia.w r6!, {r0, r1, r2, r7}
subs r3, r3, #1
bne.n 0"""


def code(text: str) -> Disassembly:
    lines = [(name, operands.strip()) for name, _, operands in (line.partition(" ") for line in text.splitlines())]
    return Disassembly(tuple(range(0, 4 * len(lines), 4)), tuple(lines), {})


def cost(core: str, text: str, times: int = 1, jumps: int = 0) -> int:
    found = code(text)
    return cycles(CORES[core], found, [Block(0, len(found.lines), times, jumps)])


@pytest.mark.parametrize("line, kind", [
    ("ldrsb.w r0, [r1]", "load"), ("ldrd r0, r1, [r2]", "pair"), ("strh r0, [r1]", "store"),
    ("push {r4, lr}", "several"),
    ("smmulr r0, r1, r2", "multiply"), ("sxtb16 r0, r1", "other"), ("bics r0, r1", "other"), ("bls.n 4", "branch"),
    ("cbz r0, 8", "branch"), ("udiv r0, r1, r2", "divide"), ("vfma.f32 s0, s1, s2", "float multiply-add"),
    ("vldr s0, [r1]", "float load"), ("vsqrt.f32 s0, s1", "float divide"), ("vcvt.s32.f32 s0, s1", "float"),
    ("vldrb.u8 q0, [r1]", "vector load"), ("vmladava.s8 r0, q0, q1", "vector multiply"),
    ("vadd.i32 q0, q1, q2", "vector"), ("vstrw.32 q0, [r1]", "vector store"),
    ("vqrdmulh.s32 q0, q1, r2", "vector multiply"),
    ("le lr, 4", "loop"),
    ("vmax.s8 q0, q1, q2", "vector"), ("bx lr", "branch"), ("bfi r0, r1, #2, #3", "other")])
def test_classes(line, kind):
    assert class_of(*line.split(" ", 1)) == kind


def test_a_loop_of_the_m4():
    # A load 2, the next 1, a product 1, a store 1, four of several 5, subtract 1, branch 1; 2 more where it is taken.
    assert cost("cortex-m4", CODE) == 12
    assert cost("cortex-m4", CODE, 10, 9) == 120 + 18
    assert cost("cortex-m4", "sdiv r0, r1, r2\nvdiv.f32 s0, s1, s2\nvfma.f32 s0, s1, s2") == 7 + 14 + 3


def test_two_a_cycle_on_the_m7():
    assert cost("cortex-m7", "adds r0, r1, r2\nadds r3, r4, r5") == 1
    assert cost("cortex-m7", "adds r0, r1, r2\nadds r3, r0, r5") == 2, "the second needs the first"
    assert cost("cortex-m7", "ldr r0, [r1]\nsmlad r4, r5, r6, r4") == 1
    assert cost("cortex-m7", "smlad r0, r1, r2, r0\nsmlad r4, r5, r6, r4") == 2, "one multiplier"
    assert cost("cortex-m7", "ldr r0, [r1]\nadds r2, r0, r3") == 3, "a value comes a cycle later"
    assert cost("cortex-m7", "smulbb r0, r1, r2\nadds r3, r1, r4") == 1, "r1 is an operand, not a second result"
    assert cost("cortex-m7", "smull r0, r1, r2, r3\nadds r4, r1, r5") == 2, "r1 is the second result"
    assert cost("cortex-m7", "adds r0, r1, r2\nadds r3, r4, r5\nadds r6, r7, r8") == 2
    assert cost("cortex-m7", CODE, 10, 9) == 10 * cost("cortex-m7", CODE), "branches are predicted"


def test_beats_of_the_m55():
    assert cost("cortex-m55", "vldrb.u8 q0, [r1]\nvmladava.s8 r0, q0, q1\nvldrb.u8 q2, [r3]\nvmladava.s8 r2, q2, q1") \
        == 4
    assert cost("cortex-m55", "vldrb.u8 q0, [r1]\nvldrb.u8 q2, [r3]") == 3
    assert cost("cortex-m55", "vadd.i32 q0, q1, q2\nle lr, 0", 10, 9) == 10, "the end of a loop is free"
    assert cost("cortex-m55", "adds r0, r0, r1\nb.n 0", 10, 9) == 20 + 18


def test_what_the_plugin_writes():
    blocks = read("0 1f0 3 5 2\n1 1f0 3 1 0\n0 200 2 7 7\n")
    assert blocks == [[Block(0x1f0, 3, 5, 2), Block(0x200, 2, 7, 7)], [Block(0x1f0, 3, 1, 0)]]
    assert instructions(blocks) == [29, 3]


@pytest.fixture(scope="module")
def mlperf_tiny():
    path = Path(__file__).parents[3] / "benchmarks" / "mlperf_tiny.py"
    spec = importlib.util.spec_from_file_location("mlperf_tiny", path)
    module = sys.modules["mlperf_tiny"] = importlib.util.module_from_spec(spec)  # for its dataclasses
    spec.loader.exec_module(module)
    return module


def test_models_that_are_not_there(mlperf_tiny, tmp_path, capsys):
    assert mlperf_tiny.main(["--models", str(tmp_path), "--only", "vww", "--dtype", "int8"]) == 1
    said = capsys.readouterr().err
    assert "visual_wake_words/trained_models/vww_96_int8.tflite  (vww, int8)" in said
    assert "git clone https://github.com/mlcommons/tiny" in said and str(tmp_path) in said


def test_the_wake_word_beside_its_frames(mlperf_tiny):
    """Milliseconds at the board's clock, with waiting for its flash, of a frame's 32."""
    whole, frames = (network for network in mlperf_tiny.NETWORKS if network.task.startswith("sww"))
    assert frames.stream and not whole.stream and whole.path == frames.path
    rows = [mlperf_tiny.Row(network, "cortex-m4", 1, cycles, 1, 1, 1, 1, waits, fast)
            for network, cycles, waits, fast in ((whole, 1_200_000, 720_000, 120_000), (frames, 150_000, 42_000, 6000))]
    assert list(mlperf_tiny.duty(rows))[2:] == ["| `cortex-m4` | 120 MHz | 16.00 ms | 50.0% | 1.60 ms | 5.0% |"]
    assert [line.split("|")[3:] for line in mlperf_tiny.with_flash(rows)][2:] == [
        [" without wait states ", *[" – "] * 4, " 10.00 ", " 1.25 ", ""],
        [" in flash ", *[" – "] * 4, " 16.00 ", " 1.60 ", ""], [" in RAM ", *[" – "] * 4, " 11.00 ", " 1.30 ", ""]]


@pytest.mark.slow
def test_images_whose_class_is_known(mlperf_tiny, tmp_path, capsys):
    """Of CIFAR-10's layout: a class, then planes. Each class has rows of its own that are bright; half are misnamed."""
    images = np.random.default_rng(2).integers(0, 50, (6, 3, 32, 32)).astype(np.uint8)
    weights = np.zeros((10, 32, 32, 3), np.int8)
    for number in range(10):
        weights[number, 3 * number:3 * number + 3] = 100
        images[number:number + 1, :, 3 * number:3 * number + 3] = 255
    tensors = {"x": Quantized((1, 32, 32, 3), 0.01, -128), "w": Quantized(weights.shape, 0.01, array=weights),
               "b": Quantized((10,), 1e-4, 0, "int32", array=np.zeros(10, np.int32)),
               "y": Quantized((1, 1, 1, 10), 10.0, 0)}
    fields = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    model = tmp_path / "resnet8_cifar10_int8" / "model.tflite"
    model.parent.mkdir()
    model.write_bytes(written(tensors, [("CONV_2D", "Conv2DOptions", fields, ["x", "w", "b"], ["y"])], ["x"], ["y"]))
    named = [number + number % 2 for number in range(6)]
    (tmp_path / "some.bin").write_bytes(b"".join(bytes([n]) + i.tobytes() for n, i in zip(named, images, strict=True)))
    asked = ["--models", str(tmp_path), "--cifar10"]
    assert mlperf_tiny.main([*asked, str(tmp_path / "some.bin")]) == 0
    assert "3 of 6 images" in capsys.readouterr().out
    assert mlperf_tiny.main([*asked, str(model)]) == 1
    assert "3,073 each" in capsys.readouterr().err


def test_tables_of_the_benchmark(mlperf_tiny, tmp_path):
    (tmp_path / "vww_96_int8").mkdir()
    (tmp_path / "vww_96_int8" / "model.tflite").touch()
    found = {network: network.find(tmp_path) for network in mlperf_tiny.NETWORKS}
    (vww,) = [network for network, path in found.items() if path]
    assert (vww.task, vww.dtype) == ("vww", "int8") and len(found) == 10
    row = mlperf_tiny.Row(vww, "cortex-m4", 8_000_000, 12_000_000, 90_000, 20_000, 50_000, 900)
    assert "| 8,000,000 | 12,000,000 | 120 MHz | 100.00 | 90,000 |" in "\n".join(mlperf_tiny.table([row]))
    lines = list(mlperf_tiny.beside([row]))
    assert lines[2] == "| `cortex-m4` | model, 120 MHz | megcc | – | – | 100.00 | – |" and len(lines) == 8
