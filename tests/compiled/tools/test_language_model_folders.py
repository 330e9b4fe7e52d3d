# SPDX-License-Identifier: Apache-2.0
"""`megcc lm` on folders of Hugging Face and ONNX Runtime GenAI: tokens are those of ONNX Runtime."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.compiled.runtime.test_runtime import call, need
from tests.decoder_folders import CONTEXT, WORDS, genai, hugging_face, likeliest
from tvm_megcc.cli import main
from tvm_megcc.options import CompileOptions
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.slow
#: Folder -> its ONNX file.
MADE = {genai: "text.onnx", hugging_face: "onnx/decoder_model_merged.onnx"}


@pytest.fixture(scope="module", params=MADE, ids=lambda make: make.__name__)
def folder(request, tmp_path_factory):
    """The compiled folder, and the model's file."""
    native_compiler()
    source = request.param(tmp_path_factory.mktemp("lm") / "small")
    made = compile_model(source, source.parent / "made", options=CompileOptions(activations="float32"), prompt=4)
    return made, source / MADE[request.param]


def test_tokens(folder):
    """A prompt in one run and in several; keys and values are states."""
    made, path = folder
    with tvm_megcc.load(made) as model:
        assert isinstance(model, LanguageModel) and model.settings.ends == (1,) and model.settings.bos == 0
        assert model.settings.context == CONTEXT and [port.name for port in model.inputs] == ["input_ids"]
        for parts in ("cde", ["ab", *"cdefghK"]):
            model.reset()
            tokens = model.encode("".join(parts))
            assert tokens == [0, *map(WORDS.index, parts)]
            wanted, found = likeliest(path, tokens, 20), []
            logits = model.read(tokens)
            for _ in range(20):
                found.append(int(logits.argmax()))
                logits = model.read(found[-1:])
            assert found == wanted


def test_text_in_c(folder, capsys):
    """The program prints what Python does, with and without a chat template."""
    made, _ = folder
    need("make")
    assert main(["lm", "generate", str(made), "cdef", "--chat", "--max-tokens", "9", "-q"]) == 0
    text = capsys.readouterr().out
    call(["make", "CFLAGS=-O1"], cwd=made)
    name = next((made / "build/make").glob("*_chat"))
    for options in (["cdef"], ["-g", "cdef"]):
        assert subprocess.run([name, "-n", "9", *options], capture_output=True, text=True, cwd=made,
                              check=True).stdout == text


def test_the_network_alone(folder):
    """The .megcc file gives a session; a language model is one too."""
    made, _ = folder
    tokens = {"input_ids": np.array([[0, 3, 4]])}
    model, session = tvm_megcc.load(made), tvm_megcc.load(next(made.glob("*.megcc")))
    assert not isinstance(session, LanguageModel)
    np.testing.assert_array_equal(model.run(tokens)["logits"], session.run(tokens)["logits"])
    assert set(model.states) == set(session.states)
    model.reset()
    assert model.states["past_sequence_length"] == [0]
