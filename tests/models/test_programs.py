# SPDX-License-Identifier: Apache-2.0
"""The programs that ship, on real models, beside the same pipelines written by hand with numpy and a session a network.
Results are equal bit for bit."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_cv import AREA, LINEAR, called, image_of, library
from tests.models.networks import CHECKOUT
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS, native
from tvm_megcc.tools.program import features, operators
from tvm_megcc.tools.program.description import ValueType
from tvm_megcc.tools.program.program import Program

MODELS = Path(os.environ.get("MEGCC_MODELS", CHECKOUT.parent / "shared" / "models"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")]


def compiled(name: str, tmp_path: Path, target: str = "native") -> Path:
    program = Program.read(name, MODELS)
    missing = [step.path for step in program.steps if step.kind == "network" and not Path(step.path).exists()]
    if missing:
        pytest.skip(f"{missing[0]} is not on this machine (set MEGCC_MODELS)")
    return program.compile(tmp_path / name, target)


def by_hand(model: str, tmp_path: Path, **options):
    """A session of one network alone."""
    name = model.partition("/")[0]
    return tvm_megcc.load(tvm_megcc.compile(MODELS / model, name=name, **options).save(tmp_path / f"alone_{name}"))


@pytest.fixture(scope="module")
def cv(tmp_path_factory):
    return library(native().name, tmp_path_factory.mktemp("cv"))


def resized(cv, x: np.ndarray, rows: int, columns: int, method: int) -> np.ndarray:
    result = np.empty((rows, columns, x.shape[2]), x.dtype)
    bytes_ = cv.megcc_cv_resize_bytes(ctypes.byref(image_of(x)), ctypes.byref(image_of(result)), method)
    work = np.empty(bytes_, np.uint8)
    return called(cv, "resize", x, result.shape, method, work.ctypes.data_as(ctypes.c_void_p)).copy()


def test_voice_activity(tmp_path):
    """A stream of speech: the probabilities of a session with numpy before it, and those of ONNX Runtime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = compiled("voice-activity", tmp_path)
    model = MODELS / "silero_vad_16k_static"
    blocks = np.load(model / "sequence_speech.npz")["in:input"][:, 0, 64:]
    reference = onnxruntime.InferenceSession(str(model / "model.onnx"), providers=["CPUExecutionProvider"])
    alone = by_hand("silero_vad_16k_static/model.onnx", tmp_path, states={"stateN": "state"})
    context, expected, stored, state = np.zeros((1, 64), np.float32), [], [], np.zeros((2, 1, 128), np.float32)
    for block in blocks:
        window = np.concatenate([context, block[None]], 1)
        context = window[:, -64:]
        expected.append(alone.run({"input": window})["output"])
        speech, state = reference.run(None, {"input": window, "state": state})
        stored.append(speech)
    with tvm_megcc.load(folder) as program:
        first = [program.run({"audio": block})["speech"] for block in blocks]
        program.reset()
        again = [program(block) for block in blocks]
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_allclose(first, stored, atol=1e-5)

    np.savez(tmp_path / "blocks.npz", audio=blocks)
    files = ["--inputs", str(tmp_path / "blocks.npz"), "--outputs", str(tmp_path / "speech.npz")]
    assert main(["program", "run", str(folder), "--sequence", *files]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "speech.npz")["speech"], expected)


def test_machine_sound(tmp_path):
    folder = compiled("machine-sound", tmp_path)
    step = Program.read("machine-sound", MODELS).steps[0]
    front = tvm_megcc.load(tvm_megcc.compile(features.model(step, ValueType.of("float32[3072]")), name="front").save(
        tmp_path / "front"))
    network = by_hand("ad_autoencoder_f32/model.onnx", tmp_path, input_shapes="input_1=(1,640)")
    generator = np.random.default_rng(5)
    with tvm_megcc.load(folder) as program:
        for loudness in (1.0, 0.01):
            sound = (loudness * np.cumsum(generator.standard_normal(3072)) / 40).astype(np.float32)
            frames = front.run({"sound": sound})["features"]
            windows = np.lib.stride_tricks.sliding_window_view(sound.astype(np.float64), 1024)[::512]
            spectrum = np.abs(np.fft.rfft(windows * np.hanning(1025)[:-1])) ** 2
            sums = spectrum @ features.mel_weights(16000, 1024, 128, 0.0, 8000.0, "slaney",
                                                   True).astype(np.float64)
            np.testing.assert_allclose(frames, 10 * np.log10(np.maximum(sums, 1e-10)), rtol=1e-5, atol=2e-4)
            vector = frames.reshape(1, 640)
            errors = (vector - network.run({"input_1": vector})["Identity"]) ** 2
            found = program.run({"sound": sound})["anomaly"]
            np.testing.assert_allclose(found, errors.astype(np.float64).mean(1), rtol=1e-6)


def test_classify(tmp_path, cv):
    folder = compiled("classify", tmp_path)
    network = by_hand("mobilenet_v1_025_224_f32/model.onnx", tmp_path, inputs="input=uint8,mean=127.5,std=127.5")
    picture = np.random.default_rng(2).integers(0, 256, (60, 80, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    small = resized(cv, np.ascontiguousarray(picture[:, 80:560]), 224, 224, AREA)
    (probabilities,) = network.run({"input": small[None]}).values()
    likeliest = np.argsort(-probabilities, kind="stable")[:, :5]
    with tvm_megcc.load(folder) as program:
        found = program.run({"picture": picture})
    np.testing.assert_array_equal(found["classes"], likeliest)
    np.testing.assert_array_equal(found["scores"], np.take_along_axis(probabilities, likeliest, 1))


def test_portrait(tmp_path, cv):
    """The frame is the photograph of the detector's reference, twice as large, so its results are known."""
    folder = compiled("portrait", tmp_path)
    stored = np.load(MODELS / "ultraface_rfb320" / "reference.npz")
    small = np.rint(stored["in:input"][0] * 128 + 127).astype(np.uint8).transpose(1, 2, 0)
    frame = np.ascontiguousarray(small.repeat(2, 0).repeat(2, 1))
    with tvm_megcc.load(folder) as program:
        found = program.run({"frame": frame})
    best = stored["out:scores"][0, :, 1].argmax()
    np.testing.assert_allclose(found["face"].item(), stored["out:scores"][0, best, 1], atol=1e-4)
    np.testing.assert_allclose(found["box"][0], stored["out:boxes"][0, best], atol=1e-4)
    assert 0.1 < (found["person"] > 0.5).mean() < 0.9, "there is a person in the cut, and something around it"

    detector = by_hand("ultraface_rfb320/model.onnx", tmp_path, inputs="input=uint8,NHWC,mean=127,std=128")
    mean, std = "102.890434:111.25247:126.91212", "16047.8946:16019.4519:16920.704775"
    segmentation = by_hand("sinet_portrait_seg/model.onnx", tmp_path,
                           inputs=f"data=uint8,NHWC,BGR,mean={mean},std={std}")
    (step,) = [step for step in Program.read("portrait", MODELS).steps if step.name == "place"]
    product = tvm_megcc.load(tvm_megcc.compile(operators.model(step, {"box": ValueType.of("float32[1,4]")}),
                                               name="product").save(tmp_path / "product"))
    results = detector.run({"input": resized(cv, frame, 240, 320, LINEAR)[None]})
    faces = results["scores"][0, :, 1]
    box = results["boxes"][:, faces.argmax()]
    np.testing.assert_array_equal(found["face"][0], faces.max())
    np.testing.assert_array_equal(found["box"], box)
    matrix = product(box)
    x1, y1, x2, y2 = box[0].astype(np.float64)
    np.testing.assert_allclose(matrix[0], [4 * (x2 - x1), 0, 960 * x1 - 320 * x2, 0, 3 * (y2 - y1),
                                           720 * y1 - 240 * y2], rtol=1e-5, atol=1e-4)
    cut = called(cv, "warp_affine", frame, (320, 320, 3), matrix.ctypes.data_as(ctypes.c_void_p), 1, None)
    person = segmentation.run({"data": np.ascontiguousarray(cut)[None]})["Softmax/1"]
    np.testing.assert_array_equal(found["person"], person[:, 1:2])


def test_the_program_of_c_is_that_of_python(tmp_path):
    """main.c takes raw bytes from stdin, here and on an emulated arm64."""
    blocks = np.load(MODELS / "silero_vad_16k_static" / "sequence_speech.npz")["in:input"][:6, 0, 64:] \
        if (MODELS / "silero_vad_16k_static").exists() else pytest.skip("set MEGCC_MODELS")
    found = {}
    for name in (native().name, "arm64"):
        target = TARGETS[name]
        emulator = find_emulator(target)
        compiler = find_compiler(target)
        folder = compiled("voice-activity", tmp_path / name, name)
        made = tmp_path / f"program_{name}"
        sources = [path for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
        subprocess.run([*compiler.command, "-std=c99", "-O2", "-ffp-contract=off", *target.cflags, "-Wall", "-Wextra",
                        "-Wcast-qual", "-Wconversion", "-Werror", "-pedantic", "-I", str(folder), "-I",
                        str(folder / "runtime/include"), *map(str, sources), "-o", str(made), "-pthread",
                        *(("-static",) if emulator else ())], check=True)
        command = [*emulator, str(made), str(folder / "voice_activity.megcc")]
        data = subprocess.run(command, input=np.ascontiguousarray(blocks).tobytes(), capture_output=True, check=True)
        found[name] = np.frombuffer(data.stdout, np.float32)
        if name == native().name:
            with tvm_megcc.load(folder) as program:
                np.testing.assert_array_equal(found[name], [program(block).item() for block in blocks])
    np.testing.assert_allclose(found["arm64"], found[native().name], atol=1e-5)


def test_memory_and_weights_are_shared(tmp_path):
    facts = read_manifest(compiled("portrait", tmp_path, "c"))["program"]
    assert facts["block_bytes"] == facts["lower_bound"]
    assert facts["block_bytes"] < 0.6 * facts["unshared"]["block_bytes"]
