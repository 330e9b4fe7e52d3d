# SPDX-License-Identifier: Apache-2.0
"""Finds the commands in README and docs, and writes small models with the names that they use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from tests import decoders, tflite_files
from tests.onnx_models import model, node

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)

#: (regular expression of commands, the reason why they are not run here)
NOT_HERE = (
    (r"--rpc ", "there is no board"), (r"^program (compile|run) ", "tests/models/test_programs.py does"),
    (r"^lm |\.gguf", "tests/compiled/tools/test_language_model.py does"),
    (r"^export smollm2", "tests/compiled/packages/test_language_models.py does"),
    (r"^export voice_activity", "tests/compiled/packages/test_programs.py does"),
    (r"^bench stories", "tests/compiled/boards/test_language_models.py does"),
    (r"--for android|--for swift", "tests/compiled/packages/test_mobile.py does"),
    (r"bench .*--against", "tests/compiled/tools/test_against.py does, with the engines that are installed"),
    (r"NAME\.onnx", "a name to complete"), (r"--log rpi4", "the log of a board"),
    (r"--config dtln\.json", "tests/compiled/streaming/test_dtln.py does"),
    (r"--folder wrong|run wrong", "it is about a wrong one"),
    (r"--blocks 100000", "takes a minute"), (r"^report ", "tests/compiled/tools/test_report.py does"),
    (r"--extern my_ops\.py", "tests/compiled/packages/test_extern.py does"),
    (r"--for (go|rust|npm|cpp)", "tests/compiled/packages/test_languages.py does"))
#: Commands that take seconds, or that read a file which such a command writes.
LONG = re.compile(r"^(bench|tune|quantize|verify) |--log tune\.jsonl|model_int8|--time|run .*--target wasm32")
#: Page -> commands that it assumes to have been run.
BEFORE = {"updates.md": ["compile kws.onnx --name kws --target cortex-m4 -o kws"]}


def commands(page: Path) -> list[str]:
    """Returns the commands of a page's code blocks without the word `megcc` and without comments. Continued lines are
    joined."""
    found = []
    for block in _INDENTED.findall(_FENCED.sub("", page.read_text())):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            for part in re.split(r"&&|;(?=\s)", re.sub(r"\s#.*", "", line)):
                match = re.fullmatch(r"\s*megcc (\w.*?)\s*", part)
                if match and ":" not in match[1].split()[0] and "…" not in part:
                    found.append(match[1])
    return found


def reason_not_to_run(command: str) -> str:
    """Returns the reason from `NOT_HERE`, "" if a command is run."""
    return next((reason for pattern, reason in NOT_HERE if re.search(pattern, command)), "")


def python_blocks(page: Path) -> list[str]:
    return [text for language, text in _FENCED.findall(page.read_text()) if language == "python"]


def image(batch: int | str = 1, name: str = "data", shape: tuple = (3, 8, 8)) -> onnx.ModelProto:
    """Returns a classifier of images."""
    generator = np.random.default_rng(0)
    weights = {"w": generator.standard_normal((4, 3, 3, 3)).astype(np.float32), "m": 0.5 * np.eye(4, dtype=np.float32)}
    nodes = [node("Conv", f"{name} w", "a"), node("Relu", "a", "b"), node("GlobalAveragePool", "b", "c"),
             node("Flatten", "c", "d"), node("MatMul", "d m", "prob")]
    return model(nodes, {name: [batch, *shape]}, {"prob": [batch, 4]}, weights, opset=17)


def stateful(state: str, kept: str, shape: tuple, inputs: dict | None = None, other: str = "x") -> onnx.ModelProto:
    """Returns a model that computes kept = x + state and an output -kept. state, kept: names of the state's input and
    output. other: the name of x."""
    nodes = [node("Add", f"{other} {state}", kept), node("Neg", kept, "activation_2")]
    return model(nodes, {other: list(shape), state: list(shape), **(inputs or {})},
                 {"activation_2": list(shape), kept: list(shape)})


def vad() -> onnx.ModelProto:
    """Returns a model like Silero VAD, with an If on the sampling rate."""
    def branch(factor: float, name: str) -> onnx.GraphProto:
        return onnx.helper.make_graph(
            [onnx.helper.make_node("Constant", [], [f"{name}_f"], value_float=factor),
             onnx.helper.make_node("Mul", ["input", f"{name}_f"], [name])], name, [],
            [onnx.helper.make_tensor_value_info(name, 1, None)])

    nodes = [node("Equal", "sr rate", "fast"),
             onnx.helper.make_node("If", ["fast"], ["y"], then_branch=branch(2.0, "t"), else_branch=branch(3.0, "e")),
             node("Identity", "state", "stateN")]
    return model(nodes, {"input": ["b", "n"], "state": [2, "b", 128], "sr": ("int64", [])},
                 {"y": ["b", "n"], "stateN": [2, "b", 128]}, {"rate": np.int64(16000)}, opset=17)


def found_boxes(name: str = "data") -> onnx.ModelProto:
    nodes = [node("Greater", f"{name} zero", "above"), node("NonZero", "above", "boxes")]
    return model(nodes, {name: [10, 40]}, {"boxes": ("int64", [2, "n"])}, {"zero": np.float32(0)}, opset=13)


def audio(length: int | str = "n") -> onnx.ModelProto:
    w = np.random.default_rng(0).standard_normal((1, 1, 9)).astype(np.float32)
    return model([node("Conv", "audio w", "y")], {"audio": [1, 1, length]}, {"y": [1, 1, "m"]}, {"w": w}, opset=17)


def classes(name: str, length: int) -> onnx.ModelProto:
    w = np.random.default_rng(0).standard_normal((length, 4)).astype(np.float32)
    return model([node("MatMul", f"{name} w", "logits")], {name: [1, length]}, {"logits": [1, 4]}, {"w": w})


def spoken() -> onnx.ModelProto:
    return model([node("RandomNormal", "", "noise", shape=[1, 8]), node("Add", "x noise", "y")], {"x": [1, 8]},
                 {"y": [1, 8]})


def cache() -> onnx.ModelProto:
    """Returns a model that writes new elements into its states by ScatterElements."""
    nodes = [node(kind, f"past.0.{what} place new", f"present.0.{what}", axis=1)
             for kind, what in (("ScatterElements", "key"), ("ScatterElements", "value"))]
    shape = [1, 8, 4]
    return model(nodes, {"past.0.key": shape, "past.0.value": shape, "place": ("int64", [1, 1, 4]), "new": [1, 1, 4]},
                 {"present.0.key": shape, "present.0.value": shape}, opset=18)


#: (name of a file, regular expression of commands, function that returns the model). The first matching row counts.
MODELS: tuple[tuple[str, str, Callable[[], object]], ...] = (
    ("model.onnx", "--dim batch|--dispatch .data", lambda: image("batch")),
    ("model.onnx", "--state h_out=h_in", lambda: stateful("h_in", "h_out", (1, 4))),
    ("model.onnx", "--bound boxes", found_boxes), ("detector.onnx", "--bound boxes", found_boxes),
    ("detector.onnx", "", lambda: image("batch", "input", (3, "height", "width"))),
    ("speech.onnx", "wav", lambda: classes("wav", 160)), ("speech.onnx", "", lambda: classes("audio", 16000)),
    ("resnet8.onnx", "", lambda: model([node("Transpose", "input_1", "a", perm=[0, 3, 1, 2]), node("Relu", "a", "y")],
                                       {"input_1": ["n", 32, 32, 3]}, {"y": ["n", 3, 32, 32]})),
    ("dtln_stage1.onnx", "", lambda: stateful("input_3", "tf_op_layer_stack_2", (1, 1, 257), other="input_2")),
    ("amp.onnx", "--input-shapes", audio), ("amp.onnx", "", lambda: audio(8192)),
    ("tts.onnx", "", spoken), ("silero_vad.onnx", "", vad),
    ("decoder.onnx", "present.0.key=past.0.key", cache),
    ("decoder_onnx/model.onnx", "", lambda: decoders.llama(layers=1)),
    ("kws.onnx", "", lambda: classes("samples", 64)), ("kws_v2.onnx", "", lambda: classes("samples", 64)),
    ("encoder.onnx", "", lambda: classes("samples", 64)),
    ("wake.onnx", "", lambda: classes("samples", 64)), ("digits.onnx", "", lambda: (
        ROOT / "tvm_megcc" / "examples" / "digits.onnx").read_bytes()),
    ("resnet8_int8.onnx", "", lambda: image()), ("wake.tflite", "", tflite_files.network),
    ("model.tflite", "", tflite_files.network), ("kws.tflite", "", tflite_files.network),
    ("vww.tflite", "", tflite_files.network), ("model_int8.onnx", "", lambda: image()),
    ("other.onnx", "", lambda: image()), ("model.onnx", "", lambda: image()))


def prepare(command: str, folder: Path) -> None:
    """Writes the models and arrays that a command names."""
    names = [*re.findall(r"[\w./-]+\.(?:onnx|tflite)", command),
             *(name for name in ("wake.tflite", "speech.onnx") if "models.json" in command)]
    done = set()
    for file, pattern, make in MODELS:
        if file in names and file not in done and re.search(pattern, command):
            made = make()
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
            done.add(file)
    if "models.json" in command:
        text = next(text for language, text in _FENCED.findall((ROOT / "docs" / "command.md").read_text())
                    if language == "json")
        (folder / "models.json").write_text(text)
    generator = np.random.default_rng(0)
    if "samples.npz" in command:
        np.savez(folder / "samples.npz", data=generator.standard_normal((8, 1, 3, 8, 8)).astype(np.float32))
    if "in.npz" in command:
        np.savez(folder / "in.npz", data=generator.standard_normal((1, 3, 8, 8)).astype(np.float32))
    if "speech.npz" in command:
        np.savez(folder / "speech.npz", input_2=generator.standard_normal((4, 1, 1, 257)).astype(np.float32))


def words(command: str) -> list[str]:
    return shlex.split(command)
