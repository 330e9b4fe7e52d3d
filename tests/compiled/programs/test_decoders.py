# SPDX-License-Identifier: Apache-2.0
"""Searches in loops, beside the same loops over ONNX Runtime: greedy search with a prompt over an encoder and a decoder
with a KV cache that grows, until the end token, and over transducers (RNN-T, TDT). Weights are random."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Carried, Loop, Network, Operator, Search, Text

pytestmark = pytest.mark.slow
FRAMES, SIZE, TOKENS, MOST = 6, 16, 24, 20
PROMPT, END = [3, 7, 5], 0


def networks(folder: Path) -> tuple[str, str]:
    """Returns an encoder, and a decoder with the keys and values of its past, in the form of common exporters."""
    random = np.random.default_rng(4)

    def weights(*names: str) -> dict[str, np.ndarray]:
        return {name: (random.standard_normal((SIZE, SIZE)) / 6).astype(np.float32) for name in names}

    encoder = model([node("MatMul", "sound w", "h"), node("Tanh", "h", "memory")],
                    {"sound": ("float32", [1, FRAMES, SIZE])}, {"memory": ("float32", [1, FRAMES, SIZE])}, weights("w"))
    constants = weights("wq", "wk", "wv", "wc") | {
        "table": random.standard_normal((TOKENS, SIZE)).astype(np.float32),
        "places": (3 * random.standard_normal((MOST, SIZE))).astype(np.float32), "one": np.array([1]),
        "back": np.ascontiguousarray(random.standard_normal((SIZE, TOKENS)).astype(np.float32))}
    past = {name: ("float32", [1, "past", SIZE]) for name in ("past_k", "past_v")}
    present = {name: ("float32", [1, "now", SIZE]) for name in ("present_k", "present_v")}
    decoder = model([
        node("Gather", "table token", "embedded"),
        node("Shape", "past_k", "shape"), node("Gather", "shape one", "length"),
        node("Gather", "places length", "place"), node("Add", "embedded place", "x"),
        node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v"),
        node("Concat", "past_k k", "present_k", axis=1), node("Concat", "past_v v", "present_v", axis=1),
        node("Transpose", "present_k", "keys", perm=[0, 2, 1]), node("MatMul", "q keys", "scores"),
        node("Softmax", "scores", "shares", axis=-1), node("MatMul", "shares present_v", "attended"),
        node("Add", "x attended", "y"), node("MatMul", "y wc", "asked"),
        node("Transpose", "memory", "columns", perm=[0, 2, 1]), node("MatMul", "asked columns", "cross"),
        node("Softmax", "cross", "parts", axis=-1), node("MatMul", "parts memory", "heard"),
        node("Add", "y heard", "z"),
        node("MatMul", "z back", "logits")],
        {"token": ("int64", [1, 1]), "memory": ("float32", [1, FRAMES, SIZE]), **past},
        {"logits": ("float32", [1, 1, TOKENS]), **present}, constants)
    return saved(encoder, folder / "encoder.onnx"), saved(decoder, folder / "decoder.onnx")


def program(encoder: str, decoder: str) -> Program:
    body = [
        # the prompt's tokens come first, after it each is the one that was found
        Operator("Gather", [[*PROMPT, *[0] * (MOST - len(PROMPT))], "index"], ["given"]),
        Operator("Less", ["index", [len(PROMPT)]], ["is_prompt"]),
        Operator("Where", ["is_prompt", "given", "last"], ["token"]),
        Network(decoder, {"token": "token", "memory": "encoded"}, {"logits": "logits"},
                {"states": {"present_k": "past_k", "present_v": "past_v"}, "bounds": {"past": MOST}}),
        Operator("ArgMax", ["logits"], ["best"], {"axis": 2, "keepdims": 0}),
        Operator("Reshape", ["best", [1]], ["following"]),
        Operator("Equal", ["following", [END]], ["is_end"]),
        Operator("GreaterOrEqual", ["index", [len(PROMPT) - 1]], ["is_found"]),
        Operator("And", ["is_end", "is_found"], ["ends"])]
    loop = Loop("words", body, MOST, until="ends", index="index",
                carried={"last": Carried("following", type="int64[1]")},
                outputs={"tokens": "following", "all_logits": "logits"}, trip_count="count")
    return Program("speech", {"sound": f"float32[1,{FRAMES},{SIZE}]"}, [
        Network(encoder, {"sound": "sound"}, {"memory": "encoded"}), loop], ["tokens", "count", "all_logits"])


def test_greedy_search_with_a_growing_cache(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    encoder, decoder = networks(tmp_path)
    encode, decode = (onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                      for path in (encoder, decoder))
    random, lengths = np.random.default_rng(9), set()
    with tvm_megcc.load(program(encoder, decoder).compile(tmp_path / "speech")) as session:
        for _ in range(12):
            sound = (2 * random.standard_normal((1, FRAMES, SIZE))).astype(np.float32)
            (memory,), found, logits = encode.run(None, {"sound": sound}), [], []
            keys = values = np.zeros((1, 0, SIZE), np.float32)
            for index in range(MOST):
                token = PROMPT[index] if index < len(PROMPT) else found[-1]
                scores, keys, values = decode.run(["logits", "present_k", "present_v"], {
                    "token": np.array([[token]]), "memory": memory, "past_k": keys, "past_v": values})
                found.append(int(scores.argmax()))
                logits.append(scores[0, 0])
                if found[-1] == END and index >= len(PROMPT) - 1:
                    break
            result = session.run({"sound": sound})
            count = result["count"].item()
            lengths.add(count)
            assert result["tokens"][:count].reshape(-1).tolist() == found
            np.testing.assert_allclose(result["all_logits"][:count].reshape(count, -1), logits, atol=1e-4)
            assert not result["tokens"][count:].any()
    assert len(lengths) > 2, "the end token decides"


LONG, CLASSES, BLANK, MAX_SYMBOLS = 30, 9, 8, 3


def transducer(folder: Path, durations: list[int]) -> tuple[str, str]:
    """Returns a prediction network, a recurrent one, and a joint network with scores of classes and of durations."""
    random = np.random.default_rng(6)
    prediction = model([
        node("Gather", "table token", "embedded"), node("MatMul", "hidden w", "past"),
        node("Add", "embedded past", "sum"),
        node("Tanh", "sum", "next")], {"token": ("int64", [1]), "hidden": ("float32", [1, SIZE])},
        {"next": ("float32", [1, SIZE])},
        {"table": (2 * random.standard_normal((CLASSES, SIZE))).astype(np.float32),
         "w": (random.standard_normal((SIZE, SIZE)) / 3).astype(np.float32)})
    scale = np.concatenate([np.ones(CLASSES), np.full(len(durations), 0.3)])
    joint = model([node("Add", "frame hidden", "both"), node("Tanh", "both", "h"), node("MatMul", "h w", "p"),
                   node("Add", "p bias", "scores")],
                  {"frame": ("float32", [1, SIZE]), "hidden": ("float32", [1, SIZE])},
                  {"scores": ("float32", [1, CLASSES + len(durations)])},
                  {"w": (random.standard_normal((SIZE, len(scale))) * scale).astype(np.float32),
                   "bias": np.eye(len(scale), dtype=np.float32)[BLANK] * np.float32(3)})
    return saved(prediction, folder / "prediction.onnx"), saved(joint, folder / "joint.onnx")


def transducer_program(prediction: str, joint: str, durations: list[int]) -> Program:
    settings = {"blank": -1, "max_symbols": MAX_SYMBOLS, **({"durations": durations} if durations else {})}
    after_token = Loop("update", [Network(prediction, {"token": "token", "hidden": "old"}, {"next": "updated"})], 1,
                       count="is_token", carried={"old": Carried("updated", "hidden")}, final={"following": "old"})
    loop = Loop("search", [
        Operator("Identity", ["frame"], ["frame_of"]), Operator("Gather", ["sound", "frame"], ["row"]),
        Network(joint, {"frame": "row", "hidden": "hidden"}, {"scores": "scores"}),
        Search("transducer", {"scores": "scores", "frame": "frame", "symbols": "symbols", "length": "length"},
               {"token": "token", "frame": "next_frame", "symbols": "more", "is_token": "is_token", "ends": "ends"},
               settings), after_token],
        LONG * (MAX_SYMBOLS + 1), until="ends", outputs={"tokens": "token", "frames": "frame_of"}, trip_count="count",
        carried={"hidden": Carried("following", "first"), "frame": Carried("next_frame", type="int64[1]"),
                 "symbols": Carried("more", type="int64[1]")})
    return Program("transducer", {"sound": f"float32[{LONG},{SIZE}]", "length": "int64[1]", "start": "int64[1]",
                                  "silence": f"float32[1,{SIZE}]"}, [
        Network(prediction, {"token": "start", "hidden": "silence"}, {"next": "first"}), loop,
        Text("labels", {"tokens": "tokens", "count": "count"}, {"text": "text"}, {"labels": list("abcdefgh")})],
        ["tokens", "frames", "count", "text"])


@pytest.mark.parametrize("durations", [[], [0, 1, 2, 4]], ids=["rnnt", "tdt"])
def test_greedy_search_over_a_transducer(tmp_path, durations):
    onnxruntime = pytest.importorskip("onnxruntime")
    paths = transducer(tmp_path, durations)
    predict, join = (onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in paths)
    random, total = np.random.default_rng(2), 0
    silence, start = np.zeros((1, SIZE), np.float32), np.array([BLANK])
    with tvm_megcc.load(transducer_program(*paths, durations).compile(tmp_path / "transducer")) as session:
        for length in (LONG, 17, 1):
            sound = (2 * random.standard_normal((LONG, SIZE))).astype(np.float32)
            (hidden,) = predict.run(None, {"token": start, "hidden": silence})
            frame, emitted, expected = 0, 0, []
            while frame < length:
                (scores,) = join.run(None, {"frame": sound[frame:frame + 1], "hidden": hidden})
                token = int(scores[0, :CLASSES].argmax())
                step = durations[int(scores[0, CLASSES:].argmax())] if durations else 0
                if token != BLANK:
                    (hidden,) = predict.run(None, {"token": np.array([token]), "hidden": hidden})
                    expected.append((token, frame))
                    emitted += 1
                if step:
                    frame, emitted = frame + step, 0
                elif token == BLANK or emitted == MAX_SYMBOLS:
                    frame, emitted = frame + 1, 0
            found = session.run({"sound": sound, "length": np.array([length]), "start": start, "silence": silence})
            count = found["count"].item()
            tokens, frames = (found[name][:count].reshape(-1) for name in ("tokens", "frames"))
            assert [(token, frame) for token, frame in zip(tokens, frames, strict=True) if token >= 0] == expected
            assert bytes(found["text"]).rstrip(b"\0").decode() == "".join("abcdefgh"[token] for token, _ in expected)
            total += len(expected)
    assert total > 15


def test_hostile_tokens_and_lengths_under_asan(tmp_path):
    """A token that is none, and more frames than there are, end with a message and exit status 1, without overrun."""
    program = transducer_program(*transducer(tmp_path, [0, 1, 2, 4]), [0, 1, 2, 4])
    folder, made = program.compile(tmp_path / "transducer"), tmp_path / "run"
    sources = [path for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
    subprocess.run([*find_compiler(native()).command, "-std=c99", "-O1", "-g", "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", *native().cflags, f"-I{folder}", f"-I{folder / 'runtime/include'}",
                    *map(str, sources), "-o", str(made), "-pthread"], check=True)
    random, top = np.random.default_rng(8), np.iinfo(np.int64).max
    sound = (2 * random.standard_normal((LONG, SIZE))).astype(np.float32)
    for start, length, status in ((BLANK, LONG, 0), (BLANK, 0, 0), (BLANK, -top, 0), (CLASSES, LONG, 1), (top, 5, 1),
                                  (-top - 1, 5, 1), (BLANK, LONG + 9, 1), (BLANK, top, 1)):
        for values in (sound, np.full_like(sound, np.nan), np.full_like(sound, 3e38)):
            record = b"".join(x.tobytes() for x in (values, np.array([length]), np.array([start]),
                                                    np.zeros(SIZE, np.float32)))
            ran = subprocess.run([str(made), str(folder / "transducer.megcc")], input=record, capture_output=True,
                                 check=False)
            assert ran.returncode == status, (start, length, ran.stderr)
            assert b"Sanitizer" not in ran.stderr and b"runtime error" not in ran.stderr
            assert bool(ran.stderr) == bool(status)
