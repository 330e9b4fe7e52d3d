#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the programs that ship, each beside the Python that people write for it: OpenCV and numpy around ONNX Runtime
or LiteRT, or the package that does the whole. One thread, if nothing else is asked for.

    pip install onnxruntime ai-edge-litert opencv-python-headless rapidocr-onnxruntime pyopen-wakeword faster-whisper
    benchmarks/programs.py MODELS               # a table; MODELS: a folder with the models of the descriptions
    benchmarks/programs.py MODELS --only faces
    benchmarks/programs.py MODELS --only transcribe,transcribe-int8 --threads 2

Whisper is beside faster-whisper, float32 and int8 on both sides: MODELS has whisper-base/ for the description, with
weights that equal those of faster-whisper-base/, and Debian's espeak-ng speaks.

Each side is a process of its own. They run in turns, a round of calls each; a ratio is the median of those of the
rounds. Memory is the most that a process had resident, with Python and its packages.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transcribe_stream import RATE, SENTENCES, spoken

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Run = Callable[[np.ndarray], object]
STRIDES = (8, 16, 32)


def onnx_network(path: Path) -> Callable[..., list[np.ndarray]]:
    """Returns a function of a network's inputs, in order, in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # warnings of old models
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def litert_network(path: Path, *shape: int) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Returns a function of a network's input in LiteRT."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    given = interpreter.get_input_details()[0]["index"]
    if shape:
        interpreter.resize_tensor_input(given, shape)
    interpreter.allocate_tensors()
    results = [row["index"] for row in interpreter.get_output_details()]

    def run(x: np.ndarray) -> list[np.ndarray]:
        interpreter.set_tensor(given, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]
    return run


def package_file(package: str, *parts: str) -> Path:
    """Returns a file of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"pip install {package.replace('_', '-')}")
    return Path(found.origin).parent.joinpath(*parts)


def normalised(picture: np.ndarray, mean: Any, std: Any) -> np.ndarray:
    """Returns uint8 [H, W, 3] as float32 [1, 3, H, W]."""
    return np.ascontiguousarray(((picture.astype(np.float32) - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)[
        None])


def grid(rows: int, columns: int) -> np.ndarray:
    """Returns column, row and stride of each cell of a detector."""
    return np.concatenate([np.stack([*(axis.reshape(-1) for axis in np.meshgrid(
        np.arange(columns // stride), np.arange(rows // stride))), np.full(rows * columns // stride**2, stride)], 1)
        for stride in STRIDES]).astype(np.float32)


def centred(boxes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Returns boxes as x, y, width, height in pixels."""
    centre = (boxes[:, :2] + cells[:, :2]) * cells[:, 2:]
    size = np.exp(boxes[:, 2:4]) * cells[:, 2:]
    return np.concatenate([centre - size / 2, size], 1)


def classify(models: Path) -> Run:
    import cv2

    network = onnx_network(models / "mobilenet_v1_025_224_f32/model.onnx")

    def run(picture: np.ndarray) -> object:
        small = cv2.resize(picture[:, 80:560], (224, 224), interpolation=cv2.INTER_AREA)
        (scores,) = network((small[None].astype(np.float32) - 127.5) / 127.5)
        best = np.argsort(-scores[0])[:5]
        return best, scores[0][best]
    return run


def segment(models: Path) -> Run:
    import cv2

    network = onnx_network(models / "deeplab_v3_257/model.onnx")
    return lambda picture: network(
        cv2.resize(picture, (257, 257))[None].astype(np.float32) / 127.5 - 1)[0][0].argmax(-1)


def detect_coco(models: Path) -> Run:
    import cv2

    network = litert_network(models / "ssd_mobilenet_v1_coco_int8/model.tflite")

    def run(picture: np.ndarray) -> object:
        boxes, *others = network(cv2.resize(picture, (300, 300))[None])
        return boxes[0][:, [1, 0, 3, 2]] * [640, 480, 640, 480], others
    return run


def detect_objects(models: Path) -> Run:
    import cv2

    network, cells = onnx_network(models / "yolox_nano_416/model.onnx"), grid(416, 416)

    def run(picture: np.ndarray) -> object:
        square = np.full((416, 416, 3), 114, np.uint8)
        square[:312] = cv2.resize(picture, (416, 312))
        (rows,) = network(np.ascontiguousarray(square[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32)))[0]
        boxes, scores = centred(rows, cells), rows[:, 5:] * rows[:, 4:5]
        classes, best = scores.argmax(1), scores.max(1)
        kept = cv2.dnn.NMSBoxesBatched(boxes.tolist(), best.tolist(), classes.tolist(), 0.3, 0.45)[:100]
        return boxes[kept] * 640 / 416, best[kept], classes[kept]
    return run


#: Where eyes, nose and mouth are in an upright face of 112 by 112 (ArcFace).
UPRIGHT = np.array([[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]],
                   np.float32)


def faces(models: Path) -> Run:
    import cv2

    network, cells = onnx_network(models / "yunet_n_dynamic/model.onnx"), grid(480, 640)

    def run(picture: np.ndarray) -> object:
        results = network(np.ascontiguousarray(picture[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32)))
        classes, objects, places, points = (np.concatenate([part[0] for part in results[first:first + 3]])
                                            for first in range(0, 12, 3))
        scores = np.sqrt(np.clip(classes, 0, 1) * np.clip(objects, 0, 1))[:, 0]
        boxes = centred(places, cells)
        kept = cv2.dnn.NMSBoxes(boxes.tolist(), scores.tolist(), 0.6, 0.3)[:10]
        marks = (points[kept].reshape(len(kept), 5, 2) + cells[kept, None, :2]) * cells[kept, None, 2:]
        matrix, _ = cv2.estimateAffinePartial2D(marks[0], UPRIGHT)
        return boxes[kept], scores[kept], marks, cv2.warpAffine(picture, matrix, (112, 112))
    return run


def enlarge(models: Path) -> Run:
    network = onnx_network(models / "super_resolution_10/model.onnx")
    return lambda picture: np.rint(np.clip(network(
        picture[None, :, :, 0][None].astype(np.float32) / 255)[0][0, 0] * 255, 0, 255)).astype(np.uint8)


def portrait(models: Path) -> Run:
    import cv2

    detector = onnx_network(models / "ultraface_rfb320/model.onnx")
    segmentation = onnx_network(models / "sinet_portrait_seg/model.onnx")
    mean, std = (102.890434, 111.25247, 126.91212), (16047.8946, 16019.4519, 16920.704775)

    def run(frame: np.ndarray) -> object:
        scores, boxes = detector(normalised(cv2.resize(frame, (320, 240)), 127, 128))
        best = scores[0, :, 1].argmax()
        x1, y1, x2, y2 = boxes[0, best] * [640, 480, 640, 480]
        width, height = x2 - x1, y2 - y1
        matrix = np.array([[2 * width / 320, 0, x1 - width / 2], [0, 2 * height / 320, y1 - height / 2]])
        cut = cv2.warpAffine(frame, matrix, (320, 320), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                             borderMode=cv2.BORDER_REPLICATE)
        return scores[0, best], segmentation(normalised(cut[:, :, ::-1], mean, std))[0][0, 1]
    return run


def machine_sound(models: Path) -> Run:
    from tvm_megcc.tools.program.mel import mel_weights

    network = onnx_network(models / "ad_autoencoder_f32/model.onnx")
    weights = np.asarray(mel_weights(16000, 1024, 128, 0.0, 8000.0, "slaney", True), np.float32)
    window = np.hanning(1025)[:-1].astype(np.float32)

    def run(sound: np.ndarray) -> object:
        frames = np.lib.stride_tricks.sliding_window_view(sound, 1024)[::512] * window
        spectrum = np.abs(np.fft.rfft(frames).astype(np.complex64)) ** 2
        vector = (10 * np.log10(np.maximum(spectrum @ weights, 1e-10))).reshape(1, 640).astype(np.float32)
        return np.square(vector - network(vector)[0]).mean(1)
    return run


def voice_activity(models: Path) -> Run:
    network = onnx_network(models / "silero_vad_16k_static/model.onnx")
    state = {"context": np.zeros(64, np.float32), "state": np.zeros((2, 1, 128), np.float32)}

    def run(block: np.ndarray) -> object:
        window = np.concatenate([state["context"], block])
        speech, state["state"] = network(window[None], state["state"])
        state["context"] = window[-64:]
        return speech
    return run


def wake_word(_models: Path) -> Run:
    def network(name: str, *shape: int) -> Callable[[np.ndarray], list[np.ndarray]]:
        return litert_network(package_file("pyopen_wakeword", "models", f"{name}.tflite"), *shape)

    spectrum, embedding, word = (network("melspectrogram", 1, 1760), network("embedding_model", 1, 76, 32, 1),
                                 network("okay_nabu", 1, 16, 96))
    state = {"heard": np.zeros(480, np.float32), "frames": np.zeros((76, 32), np.float32),
             "embeddings": np.zeros((16, 96), np.float32)}

    def run(block: np.ndarray) -> object:
        window = np.concatenate([state["heard"], block * np.float32(32768)])
        state["heard"] = window[-480:]
        frames = spectrum(window[None])[0].reshape(8, 32) / 10 + 2
        state["frames"] = np.concatenate([state["frames"], frames])[-76:]
        vector = embedding(state["frames"].reshape(1, 76, 32, 1))[0].reshape(1, 96)
        state["embeddings"] = np.concatenate([state["embeddings"], vector])[-16:]
        return word(state["embeddings"][None])[0]
    return run


def read_page(_models: Path) -> Run:
    from rapidocr_onnxruntime import RapidOCR

    reader = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
    return lambda picture: reader(np.ascontiguousarray(picture[:, :, ::-1]))


def read_line(_models: Path) -> Run:
    from rapidocr_onnxruntime import RapidOCR

    reader = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
    return lambda picture: reader(np.ascontiguousarray(picture[:, :, ::-1]), use_det=False, use_cls=False)


def transcribe(compute_type: str) -> Callable[[Path], Run]:
    def pipeline(models: Path) -> Run:
        from faster_whisper import WhisperModel

        model = WhisperModel(str(models / "faster-whisper-base"), compute_type=compute_type,
                             cpu_threads=int(os.environ["OMP_NUM_THREADS"]))

        def run(sound: np.ndarray) -> object:
            parts, _ = model.transcribe(sound, language="en", beam_size=1, temperature=0.0, without_timestamps=True,
                                        condition_on_previous_text=False)
            return "".join(part.text for part in parts)
        return run
    return pipeline


def speech(_models: Path) -> np.ndarray:
    """Returns sentences with pauses, as many as 30 seconds have room for, float32 [480000]."""
    sound = np.zeros(30 * RATE, np.float32)
    at = 0
    for sentence in SENTENCES:
        voice = spoken(sentence)
        if at + len(voice) <= len(sound):
            sound[at:at + len(voice)] = voice
            at += len(voice) + RATE // 3
    return sound


def in_int8(steps: Sequence[Any]) -> list[Any]:
    """Returns the steps of a program with the weights of products of its networks in int8."""
    from tvm_megcc.tools.program.steps import Loop, Network

    return [replace(step, options={**step.options, "weight_dtype": "int8"}) if isinstance(step, Network)
            else replace(step, steps=in_int8(step.steps)) if isinstance(step, Loop) else step for step in steps]


def photograph(models: Path) -> np.ndarray:
    """Returns the photograph of UltraFace's reference, twice as large: uint8 [480, 640, 3]."""
    stored = np.load(models / "ultraface_rfb320/reference.npz")["in:input"][0]
    return np.rint(stored * 128 + 127).astype(np.uint8).transpose(1, 2, 0).repeat(2, 0).repeat(2, 1)


def page(height: int, width: int, lines: int, size: int) -> np.ndarray:
    """Returns a picture with lines of text, uint8 [height, width, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (width, height), (250, 248, 240))
    for line in range(lines):
        ImageDraw.Draw(picture).text((20, 10 + line * height // lines), f"Invoice {line} of 2024-0815: 37.50 in all",
                                     fill=(20, 20, 60), font=ImageFont.load_default(size))
    return np.asarray(picture)


def sound(count: int) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal(count) / 10).astype(np.float32)


#: Description -> the usual pipeline, the name of the program's input, what is given, calls of a round.
PROGRAMS: dict[str, tuple[Callable[[Path], Run], str, Callable[[Path], np.ndarray], int]] = {
    "classify": (classify, "picture", photograph, 20),
    "segment": (segment, "picture", photograph, 3),
    "detect-coco": (detect_coco, "picture", photograph, 5),
    "detect-objects": (detect_objects, "picture", photograph, 5),
    "faces": (faces, "picture", photograph, 5),
    "enlarge": (enlarge, "picture", lambda models: photograph(models)[100:324, 200:424, 1:2], 3),
    "portrait": (portrait, "frame", photograph, 5),
    "machine-sound": (machine_sound, "sound", lambda _: sound(3072), 200),
    "voice-activity": (voice_activity, "audio", lambda _: sound(512), 200),
    "wake-word": (wake_word, "audio", lambda _: sound(1280), 50),
    "read-line": (read_line, "picture", lambda _: page(96, 960, 1, 52), 3),
    "read-page": (read_page, "picture", lambda _: page(1024, 736, 12, 30), 1),
    "transcribe": (transcribe("float32"), "sound", speech, 1),
    "transcribe-int8": (transcribe("int8"), "sound", speech, 1),
}
#: Description -> the package whose models it takes, and their folder in it.
PACKAGES = {"wake-word": ("pyopen_wakeword", "models"), "read-line": ("rapidocr_onnxruntime", "models"),
            "read-page": ("rapidocr_onnxruntime", "models")}


def work(name: str, models: Path, folder: str) -> None:
    """Answers each line of stdin with the seconds of a call, the median of a round. folder: of the compiled program;
    "": runs the usual pipeline."""
    pipeline, port, given, calls = PROGRAMS[name]
    x = np.ascontiguousarray(given(models))
    if folder:
        import tvm_megcc

        session = tvm_megcc.load(folder)

        def run(x: np.ndarray) -> object:
            return session.run({port: x})
    else:
        run = pipeline(models)
    for _ in sys.stdin:
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            run(x)
            seconds.append(time.perf_counter() - start)
        print(json.dumps([statistics.median(seconds), peak_memory()]), flush=True)


def peak_memory() -> int:
    """Returns the most bytes that this process had resident since it was started."""
    # getrusage also counts what the process had before exec, as a copy of its parent.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])


def measured(name: str, models: Path, rounds: int, folder: str) -> dict[str, float]:
    """Returns seconds of both, the ratio of times, and bytes of both."""
    sides = [subprocess.Popen([sys.executable, __file__, str(models), "--work", name, "--folder", where],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for where in (folder, "")]
    rows: list[list[list[float]]] = []
    for _ in range(rounds + 1):  # the first is not counted
        row = []
        for side in sides:
            assert side.stdin is not None and side.stdout is not None
            print(file=side.stdin, flush=True)
            row.append(json.loads(side.stdout.readline()))
        rows.append(row)
    for side in sides:
        side.communicate()
    ours, theirs = ([row[index][0] for row in rows[1:]] for index in (0, 1))
    return {"ours": statistics.median(ours), "theirs": statistics.median(theirs),
            "speed": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
            "our bytes": rows[-1][0][1], "their bytes": rows[-1][1][1]}


def table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the results as Markdown."""
    lines = ["| program | ours, ms | theirs, ms | theirs / ours | memory, MB | theirs, MB |",
             "|---|--:|--:|--:|--:|--:|"]
    lines += [f"| `{name}` | {1e3 * row['ours']:.2f} | {1e3 * row['theirs']:.2f} | {row['speed']:.2f} "
              f"| {row['our bytes'] / 1e6:.0f} | {row['their bytes'] / 1e6:.0f} |" for name, row in results.items()]
    speed = statistics.geometric_mean(row["speed"] for row in results.values())
    memory = statistics.geometric_mean(row["our bytes"] / row["their bytes"] for row in results.values())
    return "\n".join([*lines, "", f"Geometric means: {speed:.2f} times as fast, {memory:.2f} of the memory."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, help="a folder with the models of the descriptions")
    parser.add_argument("--only", help="names of programs, with commas between them")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="of transcribe and of our side; others have one")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.models, args.folder)
        return
    from tvm_megcc import load
    from tvm_megcc.errors import MegccError
    from tvm_megcc.tools.program.program import Program

    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    results = {}
    for name in args.only.split(",") if args.only else PROGRAMS:
        models = package_file(*PACKAGES[name]) if name in PACKAGES else args.models
        with tempfile.TemporaryDirectory() as folder:
            program = Program.read(name.removesuffix("-int8"), models)
            if name.endswith("-int8"):
                program = replace(program, steps=in_int8(program.steps))
            try:
                program.compile(Path(folder, "program"), "native", threads=args.threads)
            except MegccError as error:
                if args.only or "does not exist" not in str(error):
                    raise
                print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
                continue
            load(Path(folder, "program")).close()  # builds it; a folder is built once
            results[name] = measured(name, args.models, args.rounds, str(Path(folder, "program")))
        print(f"{name}: {results[name]['speed']:.2f}", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
