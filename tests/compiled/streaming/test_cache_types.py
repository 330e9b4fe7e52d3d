# SPDX-License-Identifier: Apache-2.0
"""Decoders with KV caches of float16 and int8 in C, beside the formulas in float64 with the same rounding of keys and
values."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.streaming.test_grown_states import MODELS, Grown, compiled
from tests.compiled.streaming.test_grown_states import TOKENS as ONNX_TOKENS
from tests.unit.gguf.files import SHAPES, logits, weights, write
from tvm_megcc.errors import MissingTool
from tvm_megcc.ops.cache_rows import stored_rows, widened_rows
from tvm_megcc.target import native

pytest.importorskip("gguf")
pytestmark = pytest.mark.slow

TOKENS = [3, 17, 0, 39, 17, 8, 25, 1, 30, 12]
#: A prompt, tokens one by one, and several at once.
PARTS = (5, 1, 1, 2, 1)


def stored(dtype: str):
    """What a cache makes of rows of float64."""
    return lambda rows: widened_rows(stored_rows(rows.astype(np.float32), dtype)).astype(np.float64)


def sessions(name: str, folder, targets: str, threads: tuple[int, ...] = (1,), **options):
    """A session for each target and number of workers."""
    shape = SHAPES[name]
    path = write(folder / "model.gguf", shape, weights(shape))
    try:
        compiled = tvm_megcc.compile(path, targets, dims="sequence_length=1,2..8", bounds={"past_sequence_length": 24},
                                     threads=max(threads), **options).save(folder / "model")
        return [tvm_megcc.load(compiled, target, threads=count) for target in targets.split(",") for count in threads]
    except MissingTool as missing:
        pytest.skip(str(missing))


def run(session) -> np.ndarray:
    found, at = [], 0
    for size in PARTS:
        found.append(session.run({"input_ids": np.array([TOKENS[at:at + size]])})["logits"][0])
        at += size
    return np.array(found)


@pytest.mark.parametrize("target", ["native", "c", "arm64", "riscv64-v"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_logits(dtype, target, tmp_path):
    """Nearer to the formulas with the rounding than these are to those without; a second sequence is as the first."""
    (session,) = sessions("llama", tmp_path, target, cache=dtype)
    behind = np.cumsum(PARTS) - 1
    exact, wanted = (logits(SHAPES["llama"], weights(SHAPES["llama"]), TOKENS, each)[behind]
                     for each in (lambda rows: rows, stored(dtype)))
    found = run(session)
    assert 0 < 10 * np.abs(found - wanted).max() < np.abs(exact - wanted).max()
    for name, value in session.states.items():
        assert name == "past_sequence_length" or value.dtype == dtype
    session.reset()
    np.testing.assert_array_equal(run(session), found)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_window(dtype, tmp_path):
    """Of gemma3, whose layers attend to the last keys or to all."""
    (session,) = sessions("gemma3", tmp_path, "native", cache=dtype)
    exact, wanted = (logits(SHAPES["gemma3"], weights(SHAPES["gemma3"]), TOKENS, each)[np.cumsum(PARTS) - 1]
                     for each in (lambda rows: rows, stored(dtype)))
    assert 0 < 3 * np.abs(run(session) - wanted).max() < np.abs(exact - wanted).max()


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_the_same_bits(dtype, tmp_path):
    """On every CPU with `reproducible`, in the caches too."""
    targets = ",".join(dict.fromkeys((native().name, "c", "arm64")))
    found = sessions("llama", tmp_path, targets, cache=dtype, reproducible=True)
    first = run(found[0])
    for session in found[1:]:
        np.testing.assert_array_equal(run(session), first)
        for name, value in session.states.items():
            np.testing.assert_array_equal(value, found[0].states[name])


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_the_same_bits_for_two_workers(dtype, tmp_path):
    one, two = sessions("llama", tmp_path, native().name, (1, 2), cache=dtype)
    np.testing.assert_array_equal(run(one), run(two))


@pytest.mark.parametrize("dtype, bound", [("float16", 1e-3), ("int8", 0.02)])
def test_a_decoder_of_onnx(dtype, bound, tmp_path):
    """Beside ONNX Runtime, whose keys and values are float32: as near as the steps of the cache are wide."""
    proto = MODELS["llama"]
    other, session = Grown(proto), tvm_megcc.load(compiled(proto, cache=dtype).save(tmp_path / "decoder"))
    for count in (4, 1, 2):
        given = other.given(ONNX_TOKENS[:, other.length:other.length + count])
        found, wanted = session.run(given)["logits"], other.run(given)
        assert 1e-5 < np.abs(found - wanted).max() / np.abs(wanted).max() < bound
    assert session.states["past_key_values.0.key"].dtype == dtype


def test_memory(tmp_path):
    """The arena is smaller by what the caches are, but for workspace: the keys of a tile as float32."""
    shape, room = SHAPES["llama"], 24
    path = write(tmp_path / "model.gguf", shape, weights(shape))
    arena = {dtype: tvm_megcc.compile(path, "c", dims={"sequence_length": 1}, bounds={"past_sequence_length": room},
                                      cache=dtype).manifest["programs"][0]["arena_bytes"]
             for dtype in ("float32", "float16", "int8")}
    rows = 2 * shape.layers * shape.groups * room
    widened = 4 * 8 * shape.head
    for dtype, saved in (("float16", rows * shape.head * 2), ("int8", rows * (shape.head * 3 - 4))):
        assert saved - widened <= arena["float32"] - arena[dtype] <= saved
