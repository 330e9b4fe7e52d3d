# SPDX-License-Identifier: Apache-2.0
"""Texts without an end in a KV cache of fixed size, beside StreamingLLM in float64."""

from __future__ import annotations

import io
import subprocess

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests import decoder_folders, decoders
from tests.c_flags import native_compiler
from tests.compiled.runtime.test_runtime import call, need
from tests.compiled.tools.test_language_model import SHAPE, TENSORS, WORDS, _written
from tests.unit.gguf.files import SHAPES, Sinks, logits, weights, write
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.frontends.onnx_decoders import Ports, decoder
from tvm_megcc.tools.lm import hugging_face
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel

pytest.importorskip("gguf")
pytestmark = pytest.mark.slow

ROWS, FIRST = 16, 3
TOKENS = np.random.default_rng(0).integers(0, 40, 80)


def run(path, runs: list[int], **options) -> np.ndarray:
    """The logits behind each run of a compiled file."""
    try:
        model = tvm_megcc.compile(path, name="decoder", dims="sequence_length=1,2..8", sinks=FIRST,
                                  bounds={"past_sequence_length": ROWS}, **options)
        session = tvm_megcc.load(model.save(path.parent / "made"))
    except MissingTool as missing:
        pytest.skip(str(missing))
    ends = np.cumsum(runs)
    return np.array([session.run({"input_ids": TOKENS[None, end - count:end]})["logits"][0]
                     for count, end in zip(runs, ends, strict=True)])


@pytest.mark.parametrize("shape, runs", [
    (SHAPES["llama"], [2, 1, 8, 8, 8, 1, 1, 5, 8, *[1] * 16, 3]), (SHAPES["gemma3"], [5, 8, 8, *[1] * 9, 7, 2]),
    (SHAPES["phi3"].with_(window=20, layers=1), [8, 8, 8, 1, 1, 8])], ids=["llama", "windows", "window of the context"])
def test_logits(shape, runs, tmp_path):
    """Beside StreamingLLM; until the cache is full, beside the whole sequence too."""
    path = write(tmp_path / "drawn.gguf", shape, weights(shape))
    tokens, ends = list(TOKENS[:sum(runs)]), np.cumsum(runs)
    found = run(path, runs)
    wanted = logits(shape, weights(shape), tokens, sinks=Sinks(FIRST, ROWS, runs))[ends - 1]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)
    full = logits(shape, weights(shape), tokens)[ends - 1]
    inside = ends <= ROWS
    np.testing.assert_allclose(found[inside], full[inside], rtol=1e-4, atol=2e-5)
    assert np.abs(found - full)[~inside].max() > 0.01  # both are told apart


def test_a_cache_of_int8(tmp_path):
    """Rows are rounded as they are stored, those of the sinks in each run."""
    shape, runs = SHAPES["llama"].with_(layers=1), [8, *[1] * 12, 8, 8, 1]
    path = write(tmp_path / "drawn.gguf", shape, weights(shape))
    wanted = logits(shape, weights(shape), list(TOKENS[:sum(runs)]), sinks=Sinks(FIRST, ROWS, runs))
    found = run(path, runs, cache="int8")
    assert 0 < np.abs(found - wanted[np.cumsum(runs) - 1]).max() < 0.03 * np.abs(wanted).max()


def test_distant_positions(tmp_path):
    """After 2^30 tokens, distances of positions are as exact as at the beginning."""
    shape = SHAPES["llama"].with_(layers=1)
    path = write(tmp_path / "drawn.gguf", shape, weights(shape))
    try:
        model = tvm_megcc.compile(path, name="decoder", sinks=FIRST, bounds={"past_sequence_length": ROWS})
        session = tvm_megcc.load(model.save(tmp_path / "made"))
    except MissingTool as missing:
        pytest.skip(str(missing))
    ring = ROWS - FIRST

    def after(first: int) -> np.ndarray:
        """Logits of the last of so many tokens that the cache has none but the sinks and later ones."""
        session.reset()
        for token in TOKENS[:FIRST]:
            session.run({"input_ids": token.reshape(1, 1)})
        states = session.states
        states["past_sequence_length"][0] = first
        session.reset(states)
        return np.array([session.run({"input_ids": token.reshape(1, 1)})["logits"][0]
                         for token in TOKENS[FIRST:FIRST + 3 * ring]])[-1]

    np.testing.assert_allclose(after(FIRST + ring * (2 ** 30 // ring)), after(FIRST + ring * 4), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", ["optimum", "genai"])
def test_onnx_files(kind, tmp_path, monkeypatch):
    """In one layer, keys depend on their token alone: after a run, logits are those of the tokens in the cache."""
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(decoder_folders, "LAYERS", 1)
    path, ports = tmp_path / "llama.onnx", Ports()
    if kind == "genai":
        path = decoder_folders.genai(tmp_path / "genai") / "text.onnx"
        ports = hugging_face.read(path.parent).ports
    else:
        onnx.save(decoders.llama(layers=1), path)
    found, runs = decoder(path, ports), [2, 6, 1, 6, 6, 8, *[1] * 15, 5]
    logits_of, tokens = runtime.InferenceSession(decoder_folders.exact(path)), TOKENS % 30
    try:
        model = tvm_megcc.compile(found.model, states=found.states, name="decoder", dims="sequence_length=1,2..8",
                                  bounds={"past_sequence_length": ROWS}, sinks=FIRST, activations="float32")
        session = tvm_megcc.load(model.save(tmp_path / "made"))
    except MissingTool as missing:
        pytest.skip(str(missing))
    for count, end in zip(runs, np.cumsum(runs), strict=True):
        kept = np.concatenate([tokens[:FIRST], tokens[max(FIRST, end - ROWS + FIRST):end]])[None, :end]
        wanted = logits_of.run(["logits"], decoder_folders.feeds(logits_of, kept))[0][0, -1]
        result = session.run({"input_ids": tokens[None, end - count:end]})["logits"][0]
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def test_positions_that_are_learned(tmp_path, capsys):
    folder = decoder_folders.hugging_face(tmp_path / "learned")
    assert main(["lm", "compile", str(folder), "--sinks", "2", "-q", "-o", str(tmp_path / "made")]) == 1
    said = capsys.readouterr().err
    assert "depends on positions, and is no rotary angle or mask" in said and "--sinks 2 is for decoders with" in said


def expected(prompt: str, count: int, rows: int, runs: list[int]) -> str:
    """The likeliest letters behind a prompt that is read in these runs."""
    tokens = [WORDS.index(letter) for letter in prompt]
    for _ in range(count):
        row = logits(SHAPE, TENSORS, tokens, sinks=Sinks(2, rows, runs + [1] * (len(tokens) - len(prompt))))[-1]
        tokens.append(int(row.argmax()))
        if tokens[-1] == 0:
            tokens.pop()
            break
    return "".join(WORDS[token] for token in tokens[len(prompt):])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("tokenizers")
    native_compiler()
    path = _written(tmp_path_factory.mktemp("lm") / "small.gguf", WORDS)
    made = path.parent / "small"
    assert main(["lm", "compile", str(path), "--context", "10", "--sinks", "2", "--prompt", "4", "-q", "-o",
                 str(made)]) == 0
    return made


def test_texts(folder, capsys, monkeypatch):
    """Texts, prompts and conversations are longer than the context, in Python, in C and in the command."""
    need("make")
    model, prompt = LanguageModel(folder), "cdefghkkcbadef"
    wanted = expected(prompt, 30, 10, [4, 4, 4, 2])
    assert len(wanted) > 12 and wanted != expected(prompt, 30, 1000, [4, 4, 4, 2])
    assert "".join(model.generate(prompt, max_tokens=30)) == wanted and model.settings.sinks == 2
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{prompt}\n"))
    assert main(["lm", "chat", str(folder), "--max-tokens", "30", "-q"]) == 0
    assert capsys.readouterr().out == wanted + "\n"
    assert main(["lm", "bench", str(folder), "--prompt", "9", "--max-tokens", "9", "--repeats", "1", "-q"]) == 0
    call(["make", "CFLAGS=-O0"], cwd=folder)
    for text, status, printed in ((prompt[:9], 0, expected(prompt[:9], 30, 10, [4, 4, 1]) + "\n"),
                                  ("c" * 11, 1, "wrong argument: context (0), needed 11")):
        found = subprocess.run(["build/make/small_chat", "-n", "30", "-g", text], capture_output=True, text=True,
                               cwd=folder, check=False)
        assert found.returncode == status and printed in found.stdout + found.stderr and len(printed) > 12


def test_saved_beginnings(folder):
    """Of fewer and of more tokens than the context, they go on as the same text does."""
    model, other = LanguageModel(folder), LanguageModel(folder)
    for prompt in ("cde", "cdefghkkcbadefgh"):
        model.reset()
        model.read(model.encode(prompt))
        other.load(model.save())
        assert other.tokens == model.tokens
        np.testing.assert_array_equal(other.read([5, 6, 7]), model.read([5, 6, 7]))


def test_what_is_refused(folder, tmp_path, capsys):
    path = folder.parent / "small.gguf"
    for options, message in (
            (["--sinks", "24"], "--sinks 24: as many tokens as these stay, of a context of 24"),
            (["--sinks", "4", "--prompt", "21"], "from 1 to 20, the context without its sinks"),
            (["--sinks", "4", "--sequences", "2"], "attention sinks are for one sequence, not 2")):
        assert main(["lm", "compile", str(path), "--context", "24", "-q", "-o", str(tmp_path / "x"), *options]) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(MegccError, match="of a cache of 8 tokens a run can replace 6, and it has 8 new ones"):
        tvm_megcc.compile(path, sinks=2, dims="sequence_length=1..8", bounds={"past_sequence_length": 8})
    with pytest.raises(MegccError, match="sinks: -1 is no number of tokens"):
        tvm_megcc.compile(path, sinks=-1)
    with pytest.raises(MegccError, match="attention sinks are for language models"):
        tvm_megcc.compile(b"", sinks=4)
    assert compile_model(path, tmp_path / "made", "c", tvm_megcc.CompileOptions(sinks=20), context=24).is_dir()
