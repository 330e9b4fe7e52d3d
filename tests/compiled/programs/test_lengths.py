# SPDX-License-Identifier: Apache-2.0
"""Programs whose run decides how long a value is, as text to speech does: durations of phonemes, noise by the caller's
seed, and a vocoder, beside ONNX Runtime. Weights are random."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.errors import MegccError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Carried, Loop, Network, Operator

pytestmark = pytest.mark.slow
SIZE, IDS, PHONEMES, FRAMES = 8, 12, 6, 20
#: Frames of each phoneme: from 0 to 4.
SPANS = np.arange(IDS) % 5


def networks(folder: Path) -> tuple[str, str]:
    """Returns a network from phonemes to frames, as many as their durations say, and a vocoder, as VITS has them."""
    random = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / 4).astype(np.float32)

    constants = {"table": 4 * weights(IDS, SIZE), "spans": SPANS, "first": np.array([0]), "second": np.array([1]),
                 "axis": np.array(0), "zero": np.array(0), "one": np.array(1)}
    acoustic = model([
        node("Gather", "table ids", "x"), node("Gather", "spans ids", "rows"), node("Squeeze", "rows first", "each"),
        node("CumSum", "each axis", "ends"), node("ReduceSum", "each", "total", keepdims=0),
        node("Range", "zero total one", "frames"), node("Unsqueeze", "frames second", "column"),
        node("GreaterOrEqual", "column ends", "past"), node("Cast", "past", "past_count", to=7),
        node("ReduceSum", "past_count second", "which", keepdims=0), node("Gather", "x which", "spread", axis=1),
        node("RandomNormalLike", "spread", "noise"), node("Mul", "noise scale", "scaled"),
        node("Add", "spread scaled", "latents")],
        {"ids": ("int64", [1, "n"]), "scale": ("float32", [1])}, {"latents": ("float32", [1, "t", SIZE])}, constants)
    vocoder = model([
        node("Transpose", "latents", "columns", perm=[0, 2, 1]), node("Conv", "columns w", "h", pads=[1, 1]),
        node("LeakyRelu", "h", "a", alpha=0.1),
        node("ConvTranspose", "a v", "u", strides=[4], pads=[2, 2], kernel_shape=[8]), node("Tanh", "u", "sound")],
        {"latents": ("float32", [1, "t", SIZE])}, {"sound": ("float32", [1, 1, "s"])},
        {"w": weights(SIZE, SIZE, 3), "v": weights(SIZE, 1, 8)})
    return saved(acoustic, folder / "acoustic.onnx"), saved(vocoder, folder / "vocoder.onnx")


def program(acoustic: str, vocoder: str) -> Program:
    return Program("speak", {"phonemes": f"int64[1,0..{PHONEMES}]", "scale": "float32[1]", "seed": "int64[1]"}, [
        Network(acoustic, {"ids": "phonemes", "scale": "scale", "seed": "seed"}, {"latents": "latents"},
                {"dims": {"n": f"0..{PHONEMES}"}, "bounds": {"frames": FRAMES}}),
        Network(vocoder, {"latents": "latents"}, {"sound": "wave"}, {"dims": {"t": f"1..{FRAMES}"}}),
        Operator("Mul", ["wave", 0.5], ["half"]), Operator("Reshape", ["half", [-1]], ["sound"]),
        Operator("Shape", ["sound"], ["samples"])], ["sound", "latents", "samples"])


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[str, str, Path]:
    folder = tmp_path_factory.mktemp("lengths")
    paths = networks(folder)
    return *paths, program(*paths).compile(folder / "speak")


def test_the_run_decides_how_long_the_sound_is(made):
    onnxruntime = pytest.importorskip("onnxruntime")
    acoustic, vocoder, folder = made
    # ONNX Runtime has another generator: the frames with noise are those of the numpy reference
    frames, (voice,) = import_onnx(acoustic), (onnxruntime.InferenceSession(
        vocoder, providers=["CPUExecutionProvider"]),)
    with tvm_megcc.load(folder) as session:
        assert [port.shape for port in session.outputs] == [("4..80",), (1, "0..20", SIZE), (1,)]
        for ids in ([1], [4] * 5, [1, 2, 3], [4, 4, 4, 4, 3, 1], [0, 9, 0]):
            for scale, seed in ((0, 0), (0.7, 1), (0.7, 2)):
                given = {"ids": np.array([ids]), "scale": np.float32([scale]), "seed": np.array([seed])}
                latents = reference.run(frames, given | {"seed": np.array(seed)})["latents"]
                (wave,) = voice.run(None, {"latents": latents})
                found = session.run({"phonemes": given["ids"], "scale": given["scale"], "seed": given["seed"]})
                assert found["sound"].shape == (4 * SPANS[ids].sum(),) and found["samples"] == found["sound"].size
                np.testing.assert_allclose(found["latents"], latents, atol=1e-6)
                np.testing.assert_allclose(found["sound"], wave.reshape(-1) / 2, atol=1e-6)


def test_another_seed_is_another_rendition_of_the_same_length(made):
    with tvm_megcc.load(made[2]) as session:
        one, again, other = (session(phonemes=np.array([[3, 4]]), scale=np.float32([1]), seed=np.array([seed]))[0]
                             for seed in (5, 5, 6))
    assert np.array_equal(one, again) and one.shape == other.shape and not np.allclose(one, other, atol=1e-3)


def test_a_run_that_exceeds_a_bound_says_so_and_the_next_one_works(made):
    with tvm_megcc.load(made[2]) as session:
        def run(ids: list[int]) -> np.ndarray:
            return session.run({"phonemes": np.array(ids, np.int64).reshape(1, -1), "scale": np.float32([1]),
                                "seed": np.array([0])})["sound"]

        first = run([4] * 5)  # exactly the largest number of frames
        with pytest.raises(MegccError, match=r"^speak: acoustic: an extent is 21, and memory was planned for at most "
                                             r"20 \(instruction \d+\)$"):
            run([4, 4, 4, 4, 4, 1])
        for ids in ([], [0]):  # no frames: the vocoder takes one at least
            with pytest.raises(MegccError, match=r"^speak: the model was not compiled for this shape: vocoder"):
                run(ids)
        with pytest.raises(ShapeError, match=r"expects 'phonemes': int64\[1,0\.\.6\], and was given int64\[1,7\]"):
            run([0] * 7)
        assert np.array_equal(run([4] * 5), first)


def under_asan(folder: Path, made: Path) -> Path:
    """Builds the folder's main.c with sanitizers. The folder is for any CPU, whose kernels compile quickly."""
    sources = [path for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
    subprocess.run([*find_compiler(native()).command, "-std=c99", "-g", "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", f"-I{folder}", f"-I{folder / 'runtime/include'}",
                    *map(str, sources), "-o", str(made), "-lm", "-pthread"], check=True)
    return made


def test_lengths_in_c_under_asan(made, tmp_path):
    """Lengths of 0, 1, the largest and one more; lengths of strangers, files that end early, and ids that are none."""
    folder = program(*made[:2]).compile(tmp_path / "speak", "c")
    program_, top = under_asan(folder, tmp_path / "run"), np.iinfo(np.int64).max

    def run(ids: list[int], length: int | None = None, cut: int = 0) -> subprocess.CompletedProcess:
        record = np.array([len(ids) if length is None else length, *ids]).tobytes()
        record += np.float32([0.5]).tobytes() + np.array([3]).tobytes()
        return subprocess.run([str(program_), str(folder / "speak.megcc")], input=record[:len(record) - cut],
                              capture_output=True, check=False)

    with tvm_megcc.load(made[2]) as session:
        for ids in ([1], [4] * 5, [3, 1, 4, 1], [1] * 6):
            found = run(ids)
            assert found.returncode == 0, found.stderr
            sound, latents, _ = session(np.array([ids]), np.float32([0.5]), np.array([3]))
            count = 4 * SPANS[ids].sum()
            assert np.frombuffer(found.stdout[:8], np.int64) == count
            # other kernels add in another order
            np.testing.assert_allclose(np.frombuffer(found.stdout[8:8 + 4 * count], np.float32), sound, atol=1e-6)
            assert found.stdout[8 + 4 * count:16 + 4 * count] == np.int64(latents.shape[1]).tobytes()
    for ids, length in (([], 0), ([0], 1), ([4] * 6, 6), ([1] * 7, 7), ([1], -1), ([1], top), ([1], -top - 1),
                        ([IDS], 1), ([top, -top - 1], 2)):
        ran = run(ids, length)
        assert ran.returncode == 1 and ran.stderr, (ids, length)
        assert b"Sanitizer" not in ran.stderr and b"runtime error" not in ran.stderr
    assert run([1, 2], cut=30).returncode == 0 and not run([1, 2], cut=30).stdout  # stdin ended


def test_a_loop_decides_the_length(tmp_path):
    """Frames come one after the other until one ends the loop; then they become a sound, in a loop of two volumes."""
    onnxruntime = pytest.importorskip("onnxruntime")
    _, vocoder = networks(tmp_path)
    loop = Loop("frames", [
        Operator("Mul", ["last", 1.3], ["grown"]), Operator("Gather", ["grown", [0]], ["height"], {"axis": 0}),
        Operator("Greater", ["height", [1.0]], ["ends"])], FRAMES, until="ends",
        carried={"last": Carried("grown", "first")}, outputs={"rows": "grown"}, trip_count="trips")
    volumes = Loop("volumes", [
        Operator("Mul", ["latents", "volume"], ["louder"]),
        Network(vocoder, {"latents": "louder"}, {"sound": "each"}, {"dims": {"t": f"0..{FRAMES}"}}),
        Operator("ReduceSum", ["each"], ["sum"], {"keepdims": 0})], 2, for_each={"volume": "both"},
        outputs={"sums": "sum"})
    described = Program("frames", {"first": f"float32[{SIZE}]", "both": "float32[2,1]"}, [
        loop, Operator("Slice", ["rows", [0], "trips", [0]], ["found"]),
        Operator("Unsqueeze", ["found", [0]], ["latents"]), volumes], ["latents", "sums"])
    voice, lengths = onnxruntime.InferenceSession(vocoder, providers=["CPUExecutionProvider"]), set()
    with tvm_megcc.load(described.compile(tmp_path / "frames")) as session:
        for start in (0.9, 0.5, 0.05, 1e-9):
            first, both = np.full(SIZE, start, np.float32), np.float32([[1], [0.5]])
            rows = [first * np.float32(1.3)]
            while rows[-1][0] <= 1 and len(rows) < FRAMES:
                rows.append(rows[-1] * np.float32(1.3))
            latents, sums = session(first, both)
            assert latents.shape == (1, len(rows), SIZE)
            np.testing.assert_allclose(latents[0], rows, rtol=1e-6)
            for volume, found in zip(both, sums.reshape(-1), strict=True):
                (wave,) = voice.run(None, {"latents": latents * volume})
                np.testing.assert_allclose(found, wave.sum(), atol=1e-5)
            lengths.add(len(rows))
    assert len(lengths) == 4 and FRAMES in lengths
