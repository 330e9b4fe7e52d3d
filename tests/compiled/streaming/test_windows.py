# SPDX-License-Identifier: Apache-2.0
"""Layers with a sliding window, whose keys and values are ring buffers, beside the same layers with all keys, to the
bit, and beside the formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.unit.gguf.files import SHAPES, logits, weights, write
from tvm_megcc.errors import MissingTool
from tvm_megcc.frontends.gguf import importer
from tvm_megcc.ir.shapes import Bucket
from tvm_megcc.target import native

pytest.importorskip("gguf")
pytestmark = pytest.mark.slow

CONTEXT = 640
TOKENS = np.random.default_rng(2).integers(0, 40, CONTEXT)


def compiled(folder, name: str, window: int, longest: int = 8, targets: str = "native", **options):
    """The folder of a model, and its shape."""
    shape = SHAPES[name].with_(window=window, context=CONTEXT)
    path = write(folder / "model.gguf", shape, weights(shape))
    try:
        return tvm_megcc.compile(path, targets, dims=f"sequence_length=1,2..{longest}",
                                 bounds={"past_sequence_length": CONTEXT}, **options), shape
    except MissingTool as missing:
        pytest.skip(str(missing))


def run(session, sizes) -> np.ndarray:
    """Logits behind each part of the tokens."""
    found, at = [], 0
    for size in sizes:
        found.append(session.run({"input_ids": TOKENS[None, at:at + size]})["logits"][0])
        at += size
    return np.array(found)


def both(folder, monkeypatch, name: str, window: int, **options):
    """Sessions with ring buffers, and with all keys."""
    ring = tvm_megcc.load(compiled(folder, name, window, **options)[0].save(folder / "ring"))
    monkeypatch.setattr(importer, "_rings", lambda *_: {})
    return ring, tvm_megcc.load(compiled(folder, name, window, **options)[0].save(folder / "all"))


@pytest.mark.parametrize("name, window, cache", [("phi3", 1, "float16"), ("phi3", 5, "float32"),
                                                 ("gemma3", 249, "int8"), ("gemma3", 300, "float32")])
def test_bits(name, window, cache, tmp_path, monkeypatch):
    """Tokens one by one and several at once, which reach over the end of the buffer at each offset. A prompt is longer
    than the window."""
    ring, full = both(tmp_path, monkeypatch, name, window, cache=cache)
    rows = 512 if window > 249 else 256
    assert [session.states["past_key_values.0.key"].shape[2] for session in (ring, full)] == [rows, CONTEXT]
    for offset in range(8 if window == 5 else 1):
        sizes = [8] * (rows // 8 - 1) + [1] * offset + [8, 8] + [3, 1, 1, 8, 8]
        np.testing.assert_array_equal(run(ring, sizes), run(full, sizes))
        ring.reset()
        full.reset()


def test_formulas(tmp_path):
    model, shape = compiled(tmp_path, "gemma3", 20, longest=237)
    session = tvm_megcc.load(model.save(tmp_path / "model"))
    sizes = [237, 150, 1, 1, 130]
    wanted = logits(shape, weights(shape), list(TOKENS[:sum(sizes)]))[np.cumsum(sizes) - 1]
    np.testing.assert_allclose(run(session, sizes), wanted, rtol=2e-4, atol=2e-4)


def test_a_window_that_needs_all_rows(tmp_path):
    """There is no ring buffer if it were as large; one more token of a run, and it needs another block of rows."""
    shape = SHAPES["phi3"].with_(window=600, context=CONTEXT)
    for window, longest, rows in ((600, 8, CONTEXT), (249, 9, 512), (249, 8, 256), (249, None, CONTEXT),
                                  (0, 8, CONTEXT)):
        path = write(tmp_path / "model.gguf", shape.with_(window=window), weights(shape))
        graph = importer.import_gguf(path, {"input_ids": (1, "n")}, None, Bucket((("n", 1, longest),)))
        assert graph.types["past_key_values.0.key"].shape[2] == rows


def test_the_same_bits_for_two_workers_and_everywhere(tmp_path):
    names = list(dict.fromkeys((native().name, "c", "arm64")))
    model, _ = compiled(tmp_path, "phi3", 5, targets=",".join(names), threads=2, cache="int8", reproducible=True)
    folder, sizes, found = model.save(tmp_path / "model"), [8] * 31 + [5, 1, 8], []
    for target in names:
        for threads in (1, 2) if target != "arm64" else (1,):  # an emulator has one
            try:
                found.append(run(tvm_megcc.load(folder, target, threads=threads), sizes))
            except MissingTool as missing:
                pytest.skip(str(missing))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])
