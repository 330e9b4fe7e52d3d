# SPDX-License-Identifier: Apache-2.0
"""Descriptions that ship, on small random networks with the inputs and outputs of the real ones: equal to ONNX Runtime,
step by step (step_by_step.py)."""

from __future__ import annotations

import json
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_cv import library
from tests.compiled.programs.step_by_step import StepByStep, networks_of
from tests.compiled.programs.test_tokenizers import byte_pairs
from tests.compiled.tokenizers import test_c_wordpiece
from tests.onnx_models import model, node, saved
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import SHIPPED, Program

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")]

#: Ports of a network: name -> shape of float32, or (dtype, shape).
Ports = dict[str, "list[int] | tuple[str, list[int]]"]


def integers(*shape: int) -> tuple[str, list[int]]:
    return "int64", list(shape)


BERT = {name: integers(1, 128) for name in ("input_ids", "attention_mask", "token_type_ids")}
PAIR = {name: integers(1, 256) for name in BERT}
YUNET = {f"{kind}_{stride}": [1, 480 * 640 // stride**2, columns] for kind, columns in (
    ("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)) for stride in (8, 16, 32)}
VAD = ({"input": [1, 576], "state": [2, 1, 128]}, {"output": [1, 1], "stateN": [2, 1, 128]})
#: Description -> network -> inputs and outputs.
NETWORKS: dict[str, dict[str, tuple[Ports, Ports]]] = {
    "embed-text": {"all-MiniLM-L6-v2/model": (BERT, {"last_hidden_state": [1, 128, 384]})},
    "rank-texts": {"ms-marco-MiniLM-L6-v2/model": (PAIR, {"logits": [1, 1]})},
    "classify-text": {"distilbert-sst2/model": (dict(list(BERT.items())[:2]), {"logits": [1, 2]})},
    "hand": {"palm_detection_full": ({"input_1": [1, 192, 192, 3]}, {"Identity": [1, 2016, 18],
                                                                    "Identity_1": [1, 2016, 1]}),
             "hand_landmark_full": ({"input_1": [1, 224, 224, 3]}, {"Identity": [1, 63], "Identity_1": [1, 1],
                                                                   "Identity_2": [1, 1]})},
    "pose": {"pose_detection": ({"input_1": [1, 224, 224, 3]}, {"Identity": [1, 2254, 12], "Identity_1": [1, 2254, 1]}),
             "pose_landmark_full": ({"input_1": [1, 256, 256, 3]}, {"Identity": [1, 195], "Identity_1": [1, 1]})},
    "segment-person": {"selfie_segmentation": ({"input_1": [1, 256, 256, 3]}, {"activation_10": [1, 256, 256, 1]})},
    "recognize-face": {"yunet_n_dynamic/model": ({"input": [1, 3, 480, 640]}, YUNET),
                       "w600k_r50": ({"input.1": [1, 3, 112, 112]}, {"683": [1, 512]})},
    "detect-yolov8": {"yolov8n": ({"images": [1, 3, 640, 640]}, {"output0": [1, 84, 8400]})},
    "detect-yolos": {"yolos-tiny": ({"pixel_values": [1, 3, 512, 672]}, {"logits": [1, 100, 92],
                                                                        "pred_boxes": [1, 100, 4]})},
    "estimate-depth": {"depth-anything-v2-small": ({"pixel_values": [1, 3, 392, 518]},
                                                   {"predicted_depth": [1, 392, 518]})},
    "transcribe-music": {"basic_pitch_nmp/model": (
        {"serving_default_input_2:0": [1, 43844, 1]},
        {"StatefulPartitionedCall:0": [1, 172, 264], "StatefulPartitionedCall:1": [1, 172, 88],
         "StatefulPartitionedCall:2": [1, 172, 88]})},
    "denoise": {"dtln_stage1/model": ({"input_2": [1, 1, 257], "input_3": [1, 2, 128, 2]},
                                      {"activation_2": [1, 1, 257], "tf_op_layer_stack_2": [1, 2, 128, 2]}),
                "dtln_stage2/model": ({"input_4": [1, 1, 512], "input_5": [1, 2, 128, 2]},
                                      {"conv1d_3": [1, 1, 512], "tf_op_layer_stack_5": [1, 2, 128, 2]})},
    "listen": {"silero_vad_16k": VAD,
               "embedding_model": ({"serving_default_input_1:0": [1, 76, 32, 1]},
                                   {"StatefulPartitionedCall:0": [1, 1, 1, 96]}),
               "okay_nabu": ({"serving_default_onnx_tf__tf_Flatten_0_c338b170:0": [1, 16, 96]},
                             {"PartitionedCall:0": [1, 1]})},
    "transcribe-ctc": {"wav2vec2-base-960h": ({"input_values": [1, 160000]}, {"logits": [1, 499, 32]})},
    "transcribe-transducer": {"encoder": ({"x": [1, 998, 80], "x_lens": integers(1)}, {"encoder_out": [1, 248, 512]}),
                              "decoder": ({"y": integers(1, 2)}, {"decoder_out": [1, 512]}),
                              "joiner": ({"encoder_out": [1, 512], "decoder_out": [1, 512]}, {"logit": [1, 500]})},
}
#: The most elements of an input that a network reads, and the numbers that it makes of all of them.
_READ, _HIDDEN = 2048, 4


def network(inputs: Ports, outputs: Ports, path: Path, seed: int) -> None:
    """Saves a network: every output depends on some elements of every input."""
    draw = np.random.default_rng(seed)
    types = {name: type_ if isinstance(type_, tuple) else ("float32", type_) for name, type_ in inputs.items()}
    nodes, sums, constants = [], [], {}
    for at, (name, (dtype, shape)) in enumerate(types.items()):
        step = max(1, prod(shape) // _READ)
        size = len(range(0, prod(shape), step))
        scale = 300 if dtype == "int64" else 1
        constants |= {f"w{at}": (draw.standard_normal((size, _HIDDEN)) / np.sqrt(size) / scale * 3).astype(np.float32),
                      f"row{at}": np.array([1, -1]), f"begin{at}": np.array([0]), f"axis{at}": np.array([1]),
                      f"end{at}": np.array([1 << 40]), f"step{at}": np.array([step])}
        nodes += [node("Cast", name, f"x{at}", to=1), node("Reshape", f"x{at} row{at}", f"y{at}"),
                  node("Slice", f"y{at} begin{at} end{at} axis{at} step{at}", f"z{at}"),
                  node("MatMul", f"z{at} w{at}", f"s{at}")]
        sums.append(f"s{at}")
    nodes += [node("Sum", " ".join(sums), "sum"), node("Tanh", "sum", "h")]
    for at, (name, shape) in enumerate(outputs.items()):
        assert isinstance(shape, list)
        constants |= {f"v{at}": (2 * draw.standard_normal((_HIDDEN, prod(shape)))).astype(np.float32),
                      f"shape{at}": np.array(shape)}
        nodes += [node("MatMul", f"h v{at}", f"o{at}"), node("Reshape", f"o{at} shape{at}", name)]
    path.parent.mkdir(parents=True, exist_ok=True)
    saved(model(nodes, types, outputs, constants), path)


def program(name: str, folder: Path) -> Program:
    """A description with small networks; those of TFLite are ONNX's here, too."""
    text = (SHIPPED / f"{name}.toml").read_text("utf-8").replace(".tflite", ".onnx")
    (folder / f"{name}.toml").write_text(text, "utf-8")
    for seed, (path, (inputs, outputs)) in enumerate(NETWORKS[name].items()):
        network(inputs, outputs, folder / f"{path}.onnx", seed)
    if "tokenizer =" in text:
        pytest.importorskip("tokenizers")
        for path in NETWORKS[name]:
            vocabulary = test_c_wordpiece.vocabulary("uncased", 400)
            (folder / path).with_name("tokenizer.json").write_text(json.dumps(vocabulary))
    if "tokens.txt" in text:
        (folder / "tokens.txt").write_text("".join(f"{'▁' * (at % 3 == 0)}{chr(97 + at % 26)} {at}\n"
                                                   for at in range(500)), "utf-8")
    return Program.read(folder / f"{name}.toml")


def strings(rows: int, size: int, seed: int) -> np.ndarray:
    found = np.zeros((rows, size), np.uint8)
    for row, string in enumerate(found):
        text = test_c_wordpiece.words(seed * 100 + row).replace("\0", "").encode("utf-8", "replace")
        text = text[:size].decode("utf-8", "ignore").encode()
        string[:len(text)] = np.frombuffer(text, np.uint8)
    return found


def inputs_of(described: Program, seed: int) -> dict[str, np.ndarray]:
    draw, found = np.random.default_rng(seed), {}
    for name, text in described.inputs.items():
        dtype, _, extents = text.partition("[")
        shape = [int(extent) for extent in extents[:-1].split(",")]
        if dtype == "float32":
            found[name] = (0.3 * draw.standard_normal(shape)).astype(np.float32)
        elif dtype == "int64":
            found[name] = np.array([4])
        elif len(shape) == 3:  # a picture with areas
            small = draw.integers(0, 256, (shape[0] // 40, shape[1] // 40, shape[2]), np.uint8)
            found[name] = small.repeat(40, 0).repeat(40, 1)
        else:
            rows = strings(prod(shape[:-1]), shape[-1], seed)
            found[name] = rows.reshape(shape)
    return found


@pytest.fixture(scope="module")
def cv(tmp_path_factory):
    return library(native().name, tmp_path_factory.mktemp("cv"))


@pytest.mark.parametrize("name", NETWORKS)
def test_equal_to_onnxruntime(name, cv, tmp_path):
    pytest.importorskip("onnxruntime")
    described = program(name, tmp_path)
    assert {Path(step.path).relative_to(tmp_path).with_suffix("").as_posix() for step in networks_of(described)} == set(
        NETWORKS[name])
    other = StepByStep(described, cv)
    with tvm_megcc.load(described.compile(tmp_path / "compiled")) as session:
        for seed in range(3 if described.states else 1):
            given = inputs_of(described, seed)
            found, expected = session.run(given), other.run(given)
            for output, values in expected.items():
                size = float(np.abs(values).max(initial=1))
                np.testing.assert_allclose(found[output].reshape(-1).astype(np.float64), values.reshape(-1), rtol=0,
                                           atol=1e-4 * size, err_msg=output)


def table(folder: Path) -> tuple[Program, Any, np.ndarray]:
    """The description of a pipeline, the pipeline of scikit-learn (scaling and logistic regression, in the operators
    that skl2onnx writes), and the rows on which it was trained: scikit-learn's wines."""
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, kinds = datasets.load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, kinds)
    scaler, regression = (step for _, step in pipeline.steps)
    saved(model([
        node("Scaler", "X", "scaled", domain="ai.onnx.ml", offset=scaler.mean_.tolist(),
             scale=(1 / scaler.scale_).tolist()),
        node("LinearClassifier", "scaled", "label scores", domain="ai.onnx.ml", multi_class=0, post_transform="SOFTMAX",
             classlabels_ints=[0, 1, 2], coefficients=regression.coef_.reshape(-1).tolist(),
             intercepts=regression.intercept_.tolist()),
        node("Normalizer", "scores", "probabilities", domain="ai.onnx.ml", norm="L1")],
        {"X": [None, 13]}, {"label": ("int64", [None]), "probabilities": [None, 3]}), folder / "pipeline.onnx")
    return Program.read("classify-table", folder), pipeline, rows


def test_a_pipeline_of_scikit_learn(tmp_path):
    described, pipeline, rows = table(tmp_path)
    with tvm_megcc.load(described.compile(tmp_path / "table")) as session:
        for row in rows[::9].astype(np.float32)[:, None]:
            found = session.run({"row": row})
            assert found["kind"] == pipeline.predict(row)
            expected = pipeline.predict_proba(row.astype(np.float64))
            np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)


def turned(point: tuple[float, float], degrees: float) -> np.ndarray:
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) @ point


def test_regions_of_points(tmp_path):
    """A square whose line between two points is upright, and points of it in the picture again; and boxes that are
    averaged, by loops in numpy."""
    degrees = Program.Detection("region", {"points": "points", "box": "box"}, {"matrix": "cut"}, {
        "first": 0, "second": 1, "size": [50, 100], "degrees": 90.0, "scale": 2.0, "shift": [0.25, -0.5]})
    around = Program.Detection("region", {"points": "points"}, {"matrix": "around"}, {
        "first": 0, "second": 1, "size": [64, 64], "degrees": 0.0})
    moved = Program.Detection("transform", {"points": "marks", "matrix": "cut"}, {"points": "moved"}, {"columns": 4})
    merged = Program.Detection("merge", {"boxes": "boxes", "scores": "scores", "points": "marks_of_boxes"},
                               {"box": "best", "points": "best_points", "score": "score", "count": "count"})
    steps = [degrees, around, moved, merged]
    described = Program("regions", {"points": "float32[2,2]", "box": "float32[4]", "marks": "float32[3,4]",
                                    "boxes": "float32[30,4]", "scores": "float32[30,1]",
                                    "marks_of_boxes": "float32[30,6]"}, steps,
                        [name for step in steps for name in step.produced])
    draw = np.random.default_rng(3)
    corners, sizes = draw.uniform(0, 20, (30, 2)), draw.uniform(10, 30, (30, 2))
    boxes, scores, marks = np.concatenate([corners, corners + sizes], 1), draw.uniform(0, 1, (30, 1)), draw.normal(
        0, 9, (3, 4))
    marks_of_boxes = draw.normal(0, 9, (30, 6))
    box, points = np.array([10.0, 20, 50, 40]), np.array([[30.0, 35], [40, 25]])  # up and right: 45 degrees
    given = {"points": points, "box": box, "marks": marks, "boxes": boxes, "scores": scores,
             "marks_of_boxes": marks_of_boxes}
    with tvm_megcc.load(described.compile(tmp_path / "regions")) as session:
        found = session.run({name: value.astype(np.float32) for name, value in given.items()})
        nothing = session.run({name: (value * (name != "scores")).astype(np.float32) for name, value in given.items()})
    matrix = found["cut"].reshape(2, 3).astype(np.float64)
    # a rotation by 90 - 45 degrees counterclockwise, of a square of 2 * 40 pixels in 100 columns and 50 rows
    middle = np.array([30, 30]) + turned((0.25 * 40, -0.5 * 20), -45)
    np.testing.assert_allclose(matrix @ [50, 25, 1], middle, atol=1e-4)
    np.testing.assert_allclose(matrix[:, :2] @ [100, 0], turned((80, 0), -45), atol=1e-4)
    np.testing.assert_allclose(matrix[:, :2] @ [0, 50], turned((0, 80), -45), atol=1e-4)
    own = found["around"].reshape(2, 3).astype(np.float64)
    np.testing.assert_allclose(own @ [32, 32, 1], points[0], atol=1e-4)
    np.testing.assert_allclose(own @ [64, 32, 1], points[1], atol=1e-4)
    np.testing.assert_allclose(found["moved"][:, :2], marks[:, :2] @ matrix[:, :2].T + matrix[:, 2], atol=1e-4)
    np.testing.assert_allclose(found["moved"][:, 2], marks[:, 2] * 0.8, atol=1e-4)
    np.testing.assert_allclose(found["moved"][:, 3], marks[:, 3], atol=1e-6)
    best = int(scores.argmax())
    total, sum_of_boxes, sum_of_points = 0.0, np.zeros(4), np.zeros(6)
    for at in range(30):
        sides = np.maximum(np.minimum(boxes[at, 2:], boxes[best, 2:]) - np.maximum(boxes[at, :2], boxes[best, :2]), 0)
        shared = sides.prod()
        union = sizes[at].prod() + sizes[best].prod() - shared
        if scores[at, 0] >= 0.5 and shared / union > 0.3:
            total += scores[at, 0]
            sum_of_boxes += scores[at, 0] * boxes[at]
            sum_of_points += scores[at, 0] * marks_of_boxes[at]
    np.testing.assert_allclose(found["best"], sum_of_boxes / total, rtol=1e-5)
    np.testing.assert_allclose(found["best_points"].reshape(-1), sum_of_points / total, rtol=1e-4, atol=1e-5)
    assert found["score"].item() == np.float32(scores.max())
    assert (found["count"].item(), nothing["count"].item()) == (1, 0)
    assert not nothing["best"].any()


def test_a_language_model(tmp_path):
    """Greedy search over a small Llama with random weights, beside the same in numpy."""
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    from tests.unit.gguf.files import logits, weights
    from tests.unit.gguf.stories import STORIES, vocabulary, write_stories
    from tvm_megcc.frontends.gguf.file import read
    from tvm_megcc.tools.lm.tokenizers.tokenizer import Vocabulary, tokenizer_of

    path = write_stories(tmp_path / "SmolLM2-135M-Instruct-Q8_0.gguf", "F32")
    tokenizer, tensors = tokenizer_of(Vocabulary.of(read(path).metadata)), weights(STORIES, seed=260)
    names = vocabulary()[0]
    with tvm_megcc.load(Program.read("complete-text", tmp_path).compile(tmp_path / "lm")) as session:
        for prompt in ("once upon a time", "lily loved", "the dog " * 40):
            tokens, expected = tokenizer.encode(prompt).ids[:64], []
            while len(expected) < 12:
                expected.append(int(logits(STORIES, tensors, [*tokens, *expected])[-1].argmax()))
                if expected[-1] in (0, 2):
                    break
            found = session.run({"prompt": prompt})
            assert found["tokens"][:len(expected)].tolist() == expected
            assert found["count"].item() == 64 or found["tokens"][found["count"].item() - 1] in (0, 2)
            kept = found["tokens"][:found["count"].item()].tolist()
            text = b"".join(b"" if token in (1, 2) else bytes([token - 3]) if 3 <= token < 259 else
                            names[token].replace("\u2581", " ").encode() for token in kept)
            assert found["text"].tobytes()[:found["length"].item()] == text


#: Layers, heads and the size of a head of Whisper base; the frames of its encoder, and its tokens.
LAYERS, HEADS, HEAD, FRAMES, VOCABULARY = 6, 8, 64, 1500, 51865


def cache(prefix: str, kind: str) -> list[str]:
    return [f"{prefix}.{layer}.{kind}.{part}" for layer in range(LAYERS) for part in ("key", "value")]


def attention(query: str, keys: str, values: str, name: str) -> list:
    return [node("Transpose", keys, f"{name}_t", perm=[0, 1, 3, 2]), node("MatMul", f"{query} {name}_t", f"{name}_s"),
            node("Softmax", f"{name}_s", f"{name}_p", axis=-1), node("MatMul", f"{name}_p {values}", name)]


def whisper(folder: Path, beams: int = 1) -> None:
    """Networks with the inputs and outputs of Whisper base: keys and values of the sound, then a decoder whose own ones
    grow, with a row for each beam. Few tokens are likely, among them the end."""
    folder.mkdir()
    draw = np.random.default_rng(8)
    network({"input_features": [1, 80, 3000]}, {"last_hidden_state": [1, FRAMES, HEADS * HEAD]},
            folder / "encoder_model.onnx", 1)
    parts = [node("Reshape", "encoder_hidden_states split", "rows"),
             node("Transpose", "rows", "heads", perm=[0, 2, 1, 3])]
    constants: dict = {"split": np.array([1, FRAMES, HEADS, HEAD])}
    for at, name in enumerate(cache("present", "encoder")):
        constants[f"f{at}"] = draw.normal(0, 0.05, (HEADS, 1, HEAD)).astype(np.float32)  # so that softmax is not sharp
        parts.append(node("Mul", f"heads f{at}", name))
    parts += [node("Cast", "input_ids", "number", to=1), node("Identity", "number", "logits")]
    size = [1, HEADS, FRAMES, HEAD]
    saved(model(parts, {"input_ids": integers(1, 1), "encoder_hidden_states": [1, FRAMES, HEADS * HEAD]},
                {"logits": [1, 1], **dict.fromkeys(cache("present", "encoder"), size)}, constants),
          folder / "decoder_model.onnx")
    likely = np.array([*range(20, 58), 50257, 30000])
    table = np.zeros((VOCABULARY, HEADS * HEAD), np.float32)
    table[[*likely, 50258, 50259, 50359, 50363]] = draw.normal(0, 1, (44, HEADS * HEAD))
    back = np.zeros((HEADS * HEAD, VOCABULARY), np.float32)
    back[:, likely] = draw.normal(0, 1, (HEADS * HEAD, 40))
    back[:, 50257] = 1.05 * back[:, 49]  # so that texts end
    parts = [node("Gather", "table input_ids", "x"), node("Reshape", "x heads", "x0")]
    constants = {"table": table, "back": back, "heads": np.array([beams, HEADS, 1, HEAD]),
                 "row": np.array([beams, 1, HEADS * HEAD])}
    for layer in range(LAYERS):
        for part in ("key", "value"):
            constants[f"{part}{layer}"] = draw.normal(0, 0.05, (HEADS, HEAD, HEAD)).astype(np.float32)
            own = f"decoder.{part}"
            parts += [node("MatMul", f"x{layer} {part}{layer}", f"new_{part}{layer}"),
                      node("Concat", f"past_key_values.{layer}.{own} new_{part}{layer}", f"present.{layer}.{own}",
                           axis=2)]
        parts += attention(f"x{layer}", f"present.{layer}.decoder.key", f"present.{layer}.decoder.value", f"own{layer}")
        names = (f"past_key_values.{layer}.encoder.{part}" for part in ("key", "value"))
        parts += [*attention(f"x{layer}", *names, f"cross{layer}"), node("Add", f"x{layer} own{layer}", f"y{layer}"),
                  node("Add", f"y{layer} cross{layer}", f"z{layer}"), node("Tanh", f"z{layer}", f"x{layer + 1}")]
    parts += [node("Reshape", f"x{LAYERS} row", "last"), node("MatMul", "last back", "logits")]
    past = [beams, HEADS, "past_decoder_sequence_length", HEAD]
    present = [beams, HEADS, "past_decoder_sequence_length + 1", HEAD]
    saved(model(parts, {"input_ids": integers(beams, 1), **dict.fromkeys(cache("past_key_values", "decoder"), past),
                        **{name: [beams, *size[1:]] for name in cache("past_key_values", "encoder")}},
                {"logits": [beams, 1, VOCABULARY], **dict.fromkeys(cache("present", "decoder"), present)}, constants),
          folder / "decoder_with_past_model.onnx")
    (folder / "tokenizer.json").write_text(json.dumps(byte_pairs()))


@pytest.mark.long
@pytest.mark.parametrize(("name", "beams"), [("transcribe", 1), ("transcribe-beams", 5)])
def test_whisper(name, beams, cv, tmp_path):
    """A search over an encoder and a decoder with a KV cache in 12 states, and the tokens' text: greedy, and by
    beams with its score."""
    pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers")
    whisper(tmp_path / "whisper-base", beams)
    described = Program.read(name, tmp_path)
    package = tokenizers.Tokenizer.from_file(str(tmp_path / "whisper-base" / "tokenizer.json"))
    with tvm_megcc.load(described.compile(tmp_path / "compiled")) as session:
        for seed in range(3):
            given = inputs_of(described, seed)
            found, expected = session.run(given), StepByStep(described, cv).run(given)
            count = expected["count"].item()
            assert 1 < count < 221, "the end token decides"
            for output, values in expected.items():
                np.testing.assert_allclose(found[output].reshape(-1), values.reshape(-1), rtol=0,
                                           atol=1e-4 * (output == "score"), err_msg=output)
            text = package.decode(found["tokens"][:count].tolist())
            assert session.with_strings(found)["text"] == text.lstrip()


def hearing(folder: Path) -> None:
    """The networks of `transcribe-stream` but Whisper's: of "listen", with a voice activity that hears what is loud."""
    for seed, (path, (inputs, outputs)) in enumerate(NETWORKS["listen"].items()):
        network(inputs, outputs, folder / f"{path}.onnx", seed)
    saved(model([node("Slice", "input begin end axis", "now"), node("Abs", "now", "size"),
                 node("ReduceMax", "size", "output", axes=[1]), node("Identity", "state", "stateN")], *VAD,
                {"begin": np.array([64]), "end": np.array([576]), "axis": np.array([1])}),
          folder / "silero_vad_16k.onnx")


def loud_and_quiet(pattern: str) -> np.ndarray:
    """Returns blocks, loud where the pattern has "L"."""
    sound = np.random.default_rng(4).uniform(0.6, 1, (len(pattern), 2560)).astype(np.float32)
    return sound * np.where(np.array(list(pattern)) == "L", 1, 0.01).astype(np.float32)[:, None]


def test_texts_of_a_stream(tmp_path):
    """A text begins with the block before speech, unless that is of the text before it, and ends with four blocks
    without speech, or with its 187th block."""
    hearing(tmp_path)
    text = (SHIPPED / "transcribe-stream.toml").read_text("utf-8").replace(".tflite", ".onnx")
    text = text[:text.index('[[step.step]]\nfeature = "log_mel"\npreset = "whisper"')].replace(
        'outputs = { text = "words_said", length = "bytes_said", count = "token_count" }',
        'outputs = { heard_all = "sound" }')
    text = text.replace('["text", "length", "count", "is_said", "speech", "wake"]', '["heard_all", "is_said"]')
    (tmp_path / "cut.toml").write_text(text, "utf-8")
    blocks = loud_and_quiet("..LL.L" + "....." + "L...." + "L" * 190 + "....")
    expected = [(1, 10), (10, 16), (16, 203), (203, 210)]
    found = []
    with tvm_megcc.load(Program.read(tmp_path / "cut.toml").compile(tmp_path / "compiled")) as session:
        for at, block in enumerate(blocks):
            results = session.run({"audio": block})
            if results["is_said"].item():
                first, end = expected[len(found)]
                sound = np.zeros(480000, np.float32)
                sound[:2560 * (end - first)] = blocks[first:end].reshape(-1)
                np.testing.assert_array_equal(results["heard_all"].reshape(-1), sound)
                found.append(at + 1)
    assert found == [end for _, end in expected]


@pytest.mark.long
def test_a_stream_of_texts(cv, tmp_path):
    """Whisper runs where a text ends, and nowhere else."""
    pytest.importorskip("onnxruntime")
    hearing(tmp_path)
    whisper(tmp_path / "whisper-base")
    text = (SHIPPED / "transcribe-stream.toml").read_text("utf-8").replace(".tflite", ".onnx")
    (tmp_path / "stream.toml").write_text(text, "utf-8")
    described = Program.read(tmp_path / "stream.toml")
    other = StepByStep(described, cv, {"text": np.zeros((1, 2048), np.uint8), "length": np.zeros(1, np.int64),
                                       "count": np.zeros(1, np.int64)})
    texts = 0
    with tvm_megcc.load(described.compile(tmp_path / "compiled")) as session:
        for block in loud_and_quiet(".LL.....L....."):
            found, expected = session.run({"audio": block}), other.run({"audio": block})
            texts += found["is_said"].item()
            for name, values in expected.items():
                size = float(np.abs(values).max(initial=1))
                np.testing.assert_allclose(found[name].reshape(-1).astype(np.float64), values.reshape(-1), rtol=0,
                                           atol=1e-4 * size if values.dtype == np.float32 else 0, err_msg=name)
    assert texts == 2
