# SPDX-License-Identifier: Apache-2.0
"""Beam search over a decoder whose KV cache follows the beams, beside the same search in Python over ONNX Runtime:
that of `generate(num_beams=…)` of transformers, written as its paper has it, with a list of sequences that ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.programs.test_lengths import under_asan
from tests.onnx_models import model, node, saved
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.program import functions, searches
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Carried, Loop, Network, Operator, Search, ValueType

pytestmark = pytest.mark.slow
FRAMES, SIZE, TOKENS, MOST, END = 5, 16, 12, 9, 0
PROMPT = [3, 7, 5]
Scores = Callable[[np.ndarray, np.ndarray], np.ndarray]


def decoder(folder: Path, beams: int) -> str:
    """Returns a decoder with the keys and values of its past, a row for each beam, over the memory of an encoder."""
    random = np.random.default_rng(4)
    constants = {name: (random.standard_normal((SIZE, SIZE)) / 3).astype(np.float32) for name in "qkvc"} | {
        "table": random.standard_normal((TOKENS, SIZE)).astype(np.float32), "second": np.array([1]),
        "places": (2 * random.standard_normal((MOST + len(PROMPT), SIZE))).astype(np.float32),
        "back": (random.standard_normal((SIZE, TOKENS)) / 3).astype(np.float32)}
    past = {name: ("float32", [beams, "past", SIZE]) for name in ("past_k", "past_v")}
    return saved(model([
        node("Gather", "table token", "embedded"), node("Shape", "past_k", "shape"),
        node("Gather", "shape second", "length"), node("Gather", "places length", "place"),
        node("Add", "embedded place", "x"), *(node("MatMul", f"x {name}", f"of_{name}") for name in "qkv"),
        node("Concat", "past_k of_k", "present_k", axis=1), node("Concat", "past_v of_v", "present_v", axis=1),
        node("Transpose", "present_k", "keys", perm=[0, 2, 1]), node("MatMul", "of_q keys", "scores"),
        node("Softmax", "scores", "shares", axis=-1), node("MatMul", "shares present_v", "attended"),
        node("Add", "x attended", "y"), node("MatMul", "y c", "asked"),
        node("Transpose", "memory", "columns", perm=[0, 2, 1]), node("MatMul", "asked columns", "cross"),
        node("Softmax", "cross", "parts", axis=-1), node("MatMul", "parts memory", "heard"),
        node("Add", "y heard", "z"), node("MatMul", "z back", "logits")],
        {"token": ("int64", [beams, 1]), "memory": ("float32", [beams, FRAMES, SIZE]), **past},
        {"logits": ("float32", [beams, 1, TOKENS]), "present_k": ("float32", [beams, "now", SIZE]),
         "present_v": ("float32", [beams, "now", SIZE])}, constants), folder / f"decoder{beams}.onnx")


def program(path: str, beams: int, prompt: list[int], **settings: object) -> Program:
    """A search after a prompt of at least one token."""
    names = ["sums", "tokens", "found", "found_scores", "found_counts"]
    types = {"sums": f"float32[{beams}]", "tokens": f"int64[{beams},{MOST}]", "found": f"int64[{beams},{MOST}]",
             "found_scores": f"float32[{beams}]", "found_counts": f"int64[{beams}]", "last": f"int64[{beams}]",
             "beam": f"int64[{beams}]"}
    next_ = {name: f"next_{name}" for name in types} | {"last": "token"}
    loop = Loop("words", [
        Operator("Sub", ["index", [len(prompt) - 1]], ["place"]),
        Operator("Gather", [[*prompt, *[0] * MOST], "index"], ["given"]),
        Operator("Less", ["index", [len(prompt)]], ["is_given"]),
        Operator("Where", ["is_given", "given", "last"], ["all"]),
        Operator("Reshape", ["all", [beams, 1]], ["column"]),
        Network(path, {"token": "column", "memory": "heard"}, {"logits": "logits"},
                {"states": {"present_k": "past_k", "present_v": "past_v"}, "bounds": {"past": MOST + len(prompt)}},
                reorder="beam"),
        Search("beam", {"scores": "logits", "position": "place", **{name: name for name in names}},
               {**{name: next_[name] for name in names}, "token": "token", "beam": "next_beam", "ends": "ends"},
               {"end": END, **settings})], MOST + len(prompt) - 1, until="ends", index="index",
        carried={name: Carried(next_[name], type=type_) for name, type_ in types.items()},
        final={"best": "found", "scores": "found_scores", "counts": "found_counts"}, trip_count="trips")
    return Program("beams", {"sound": f"float32[1,{FRAMES},{SIZE}]"}, [
        Operator("Expand", ["sound", [beams, 1, 1]], ["heard"]), loop], ["best", "scores", "counts", "trips"])


def searched(scores_of: Scores, beams: int, penalty: float, early: bool) -> tuple[list[tuple[float, list[int]]], int]:
    """Returns the best sequences with their scores, and the number of steps. scores_of: the logarithms of probabilities
    of the next tokens, of the parents of the beams and their last tokens."""
    running, done, steps = [(0.0, [])] + [(-1e9, [])] * (beams - 1), [], 0
    order, last = np.arange(beams), np.zeros(beams, np.int64)
    while True:
        rows = scores_of(order, last)
        steps += 1
        sums = (rows.astype(np.float64) + np.array([[score] for score, _ in running])).reshape(-1)
        best = np.argsort(-sums, kind="stable")[:2 * beams]
        following = []
        for rank, at in enumerate(best):
            parent, token = divmod(int(at), rows.shape[1])
            tokens = [*running[parent][1], token]
            if token == END or steps == MOST:
                if rank < beams:
                    done = sorted([*done, (sums[at] / steps**penalty, tokens)], key=lambda x: -x[0])[:beams]
            elif len(following) < beams:
                following.append((sums[at], tokens, parent))
        if steps == MOST or (len(done) == beams and (early or following[0][0] / steps**penalty <= done[-1][0])):
            return done, steps
        running = [(score, tokens) for score, tokens, _ in following]
        order, last = (np.array(column) for column in zip(*(
            (parent, tokens[-1]) for _, tokens, parent in following), strict=True))


@pytest.mark.parametrize(("beams", "penalty", "early", "prompt"), [
    (1, 1.0, False, [2]), (4, 1.0, False, PROMPT), (4, 0.0, True, PROMPT), (5, 2.0, False, [2])])
def test_equal_to_the_search_of_transformers(tmp_path, beams, penalty, early, prompt):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = decoder(tmp_path, beams)
    decode = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    random, lengths = np.random.default_rng(9), set()
    made = program(path, beams, prompt, length_penalty=penalty, early_stopping=early).compile(tmp_path / "beams")
    with tvm_megcc.load(made) as session:
        for _ in range(10):
            memory = (2 * random.standard_normal((1, FRAMES, SIZE))).astype(np.float32)
            cache = [np.zeros((beams, 0, SIZE), np.float32)] * 2
            given = list(prompt)

            def scores_of(order: np.ndarray, last: np.ndarray) -> np.ndarray:
                cache[:] = [part[order] for part in cache]  # noqa: B023
                for token in [np.full(beams, each) for each in given] or [last]:  # noqa: B023
                    logits, *cache[:] = decode.run(["logits", "present_k", "present_v"], {  # noqa: B023
                        "token": token.reshape(-1, 1), "memory": np.repeat(memory, beams, 0),  # noqa: B023
                        "past_k": cache[0], "past_v": cache[1]})  # noqa: B023
                given.clear()  # noqa: B023
                shifted = logits[:, 0].astype(np.float64)
                return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))

            expected, steps = searched(scores_of, beams, penalty, early)
            best, scores, counts, trips = session(memory)
            assert trips == steps + len(prompt) - 1
            assert [row[:count].tolist() for row, count in zip(best, counts, strict=True) if count] == [
                tokens for _, tokens in expected]
            np.testing.assert_allclose(scores[:len(expected)], [score for score, _ in expected], rtol=1e-4, atol=1e-4)
            lengths.add((*map(int, counts), steps))
    assert len(lengths) > 2, "the end token decides"


def test_rows_of_a_cache_move_in_c_under_asan(tmp_path):
    """All orders of rows, with and without repetition, and numbers that are no row."""
    rows, width = 4, 70  # more bytes than are moved at once
    path = saved(model([node("Add", "past x", "present"), node("Identity", "present", "sum")],
                       dict.fromkeys(("x", "past"), ("float32", [rows, width])),
                       dict.fromkeys(("present", "sum"), ("float32", [rows, width]))), tmp_path / "sums.onnx")
    loop = Loop("each", [
        Network(path, {"x": "given"}, {"sum": "sum"}, {"states": {"present": "past"}}, reorder="order")], 8,
        count="count", for_each={"given": "values", "order": "orders"}, outputs={"sums": "sum"})
    described = Program("moves", {"values": f"float32[8,{rows},{width}]", "orders": f"int64[8,{rows}]",
                                  "count": "int64[1]"}, [loop], ["sums"])
    folder = described.compile(tmp_path / "moves", "c")
    made, random = under_asan(folder, tmp_path / "run"), np.random.default_rng(1)
    every = np.array([(i % 4, i // 4 % 4, i // 16 % 4, i // 64) for i in range(256)])
    values = random.standard_normal((33, 8, rows, width)).astype(np.float32)
    orders = np.concatenate([random.permutation(every), every[:8]]).reshape(33, 8, rows)
    done = subprocess.run([str(made), str(folder / "moves.megcc")], capture_output=True, check=True, input=b"".join(
        x.tobytes() + order.tobytes() + np.int64(8).tobytes() for x, order in zip(values, orders, strict=True)))
    found = np.frombuffer(done.stdout, np.float32).reshape(33, 8, rows, width)
    for x, order, sums in zip(values, orders, found, strict=True):
        expected = np.zeros((rows, width), np.float32)
        for step in range(8):
            expected = expected[order[step]] + x[step]
            np.testing.assert_allclose(sums[step], expected, atol=1e-5)
    for wrong in (-1, rows, np.iinfo(np.int64).max, np.iinfo(np.int64).min):
        order = np.zeros((8, rows), np.int64)
        order[3, 2] = wrong
        done = subprocess.run([str(made), str(folder / "moves.megcc")], capture_output=True, check=False,
                              input=values[0].tobytes() + order.tobytes() + np.int64(8).tobytes())
        assert done.returncode == 1 and b"wrong argument: sums" in done.stderr and b"Sanitizer" not in done.stderr


@pytest.mark.parametrize(("changed", "message"), [
    ({"tokens": "int64[9]"}, "'tokens' and 'found' are int64[beams,tokens]"),
    ({"found": "int64[2,8]"}, "'tokens' and 'found' are int64[beams,tokens]"),
    ({"scores": "float32[3,12]"}, "'scores' is float32[2,classes]"),
    ({"scores": "float32[12,2]"}, "'scores' is float32[2,classes]"),
    ({"scores": "float32[2,1]"}, "'scores' is float32[2,classes]"),
    ({"tokens": "int64[65,9]", "found": "int64[65,9]", "scores": "float32[65,12]"}, "at most 64 beams"),
    ({"tokens": "int64[2,65537]", "found": "int64[2,65537]"}, "of at most 65536 tokens"),
    ({"sums": "float32[3]"}, "'sums' is float32[2]"), ({"position": "int64[2]"}, "'position' is int64[1]"),
    ({"found_counts": "int64[1]"}, "'found_counts' is int64[2]"),
    ({"found_scores": "int64[2]"}, "'found_scores' is float32")])
def test_a_search_is_checked(changed, message):
    types = {"scores": "float32[2,12]", "position": "int64[1]", "sums": "float32[2]", "tokens": "int64[2,9]",
             "found": "int64[2,9]", "found_scores": "float32[2]", "found_counts": "int64[2]"} | changed
    step = Search("beam", {name: name for name in types}, {"token": "t"}, {"end": 0})
    with pytest.raises(MegccError) as refused:
        functions.model(step, searches.FUNCTIONS, {name: ValueType.of(text) for name, text in types.items()})
    assert message in str(refused.value)


@pytest.mark.parametrize(("order", "reorder", "message"), [
    ("int64[3]", "order", "'reorder' has 3 rows, and the state 'past_k' is float32[2,"),
    ("int64[65]", "order", "'reorder' is int64[rows] of at most 64 rows, not int64[65]"),
    ("float32[2]", "order", "'reorder' is int64[rows]"), ("int64[1..2]", "order", "takes values of one shape"),
    ("int64[2]", "orders", "uses 'orders', which is neither")])
def test_rows_that_do_not_fit_are_refused(tmp_path, order, reorder, message):
    step = Network(decoder(tmp_path, 2), {"token": "token", "memory": "sound"}, {"logits": "logits"},
                   {"states": {"present_k": "past_k", "present_v": "past_v"}, "bounds": {"past": 4}}, reorder=reorder)
    with pytest.raises(MegccError) as refused:
        Program("p", {"token": "int64[2,1]", "sound": f"float32[2,{FRAMES},{SIZE}]", "order": order}, [step],
                ["logits"]).compile(tmp_path / "p", "c")
    assert message in str(refused.value)
