# SPDX-License-Identifier: Apache-2.0
"""Decoders that take new tokens of several sequences in one run, beside the formulas in float64 and beside the same
decoders of one sequence."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.tools.test_language_model import WORDS, _written
from tests.unit.gguf.files import SHAPES, logits, weights, write
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel, Sequences

pytest.importorskip("gguf")
pytestmark = pytest.mark.slow

TOKENS = np.random.default_rng(0).integers(0, 40, (3, 300))


def session(folder, shape, sequences: int, **options):
    path = write(folder / f"{sequences}.gguf", shape, weights(shape))
    try:
        model = tvm_megcc.compile(path, input_shapes={"input_ids": (sequences, None)}, name="decoder",
                                  dims="sequence_length=1,2..8", **options)
        return tvm_megcc.load(model.save(folder / str(sequences)))
    except MissingTool as missing:
        pytest.skip(str(missing))


def run(decoder, past, new) -> np.ndarray:
    """Logits behind the next tokens of each sequence; `past` becomes what the sequences have then."""
    ids = np.full((len(new), max(new)), 39, np.int64)
    for sequence, count in enumerate(new):
        ids[sequence, :count] = TOKENS[sequence, past[sequence]:past[sequence] + count]
        past[sequence] += count
    return decoder.run({"input_ids": ids, "new_tokens": np.array(new)})["logits"]


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_logits(name, tmp_path):
    """Sequences of different lengths, some without new tokens; one is full, and others go on."""
    shape = SHAPES[name]
    decoder, past = session(tmp_path, shape, 3, bounds={"past_sequence_length": 24}), [0, 0, 0]
    wanted = [logits(shape, weights(shape), list(tokens[:24])) for tokens in TOKENS]
    for new in ((5, 8, 0), (1, 0, 1), (1, 1, 1), (0, 0, 8), (8, 8, 3), (8, 7, 1), (1, 0, 1), (0, 0, 8)):
        found = run(decoder, past, new)
        for sequence in np.flatnonzero(new):
            np.testing.assert_allclose(found[sequence], wanted[sequence][past[sequence] - 1], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(decoder.states["past_sequence_length"], past)
    assert past[0] == 24
    with pytest.raises(MegccError, match="the KV cache is full"):
        run(decoder, list(past), (1, 0, 0))
    for new in ((-1, 1, 1), (0, 1, 2)):
        with pytest.raises(MegccError):
            decoder.run({"input_ids": np.zeros((3, 1), np.int64), "new_tokens": np.array(new)})


def test_windows_have_the_bits_of_one_sequence(tmp_path):
    """In ring buffers of int8, of which one wraps around while the other has begun."""
    options = {"cache": "int8", "reproducible": True}
    shape = SHAPES["phi3"].with_(window=5, context=300)
    several, past = session(tmp_path, shape, 2, **options), [0, 0]
    assert several.states["past_key_values.0.key"].shape[2] == 256
    steps = [(8, 0)] * 31 + [(5, 3), (1, 1), (8, 2), (0, 8), (3, 1)]
    found = [run(several, past, new) for new in steps]
    one, at = session(tmp_path, shape, 1, **options), 0
    for (count, _), together in zip(steps, found, strict=True):
        if count:
            alone = one.run({"input_ids": TOKENS[:1, at:at + count]})["logits"][0]
            np.testing.assert_array_equal(together[0], alone)
            at += count


def test_texts(tmp_path):
    """Texts are those of one sequence. What one has read is copied, saved, loaded and reset."""
    pytest.importorskip("tokenizers")
    path = _written(tmp_path / "small.gguf", WORDS)
    try:
        model, sequences = (cls(compile_model(path, tmp_path / cls.__name__, context=24, prompt=4, sequences=count))
                            for cls, count in ((LanguageModel, 1), (Sequences, 3)))
    except MissingTool as missing:
        pytest.skip(str(missing))
    prompts, alone = ["cdefgh", "abc", "kk"], []
    for prompt in prompts:
        alone.append("".join(model.generate(prompt, max_tokens=6)))
        model.reset()
    assert sequences.generate(prompts, max_tokens=6) == alone
    saved, read = sequences.save(0), list(sequences.tokens[0])
    sequences.copy(0, 1)
    sequences.reset(2)
    sequences.load(2, saved)
    assert sequences.tokens == [read] * 3
    after = sequences.read({sequence: [5] for sequence in range(3)})
    for each in (1, 2):
        np.testing.assert_array_equal(after[each], after[0])
    sequences.reset(1)
    assert sequences.tokens[1] == [] and sequences.session.states["past_sequence_length"][1] == 0
    for wrong, reason in ((lambda: sequences.read({3: [1]}), "there is no sequence 3"),
                          (lambda: sequences.read({0: [1] * 24}), "24 tokens; 1 to"),
                          (lambda: sequences.load(0, saved[:-9]), "damaged"),
                          (lambda: LanguageModel(tmp_path / "Sequences"), "compiled for 3 sequences"),
                          (lambda: Sequences(tmp_path / "LanguageModel"), "compiled for one sequence"),
                          (lambda: compile_model(path, tmp_path / "x", sequences=257), "256 at most")):
        with pytest.raises(MegccError, match=reason):
            wrong()
