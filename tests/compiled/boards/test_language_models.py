# SPDX-License-Identifier: Apache-2.0
"""A small language model: the same tokens on every kind of CPU, and text from tokenizer, network and sampler in C on
microcontrollers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.gguf.stories import STORIES, write_stories
from tvm_megcc.cli import main
from tvm_megcc.errors import MissingTool
from tvm_megcc.frontends.decoder_names import PAST
from tvm_megcc.frontends.decoder_names import TOKENS as TOKENS_INPUT
from tvm_megcc.options import CompileOptions
from tvm_megcc.runtime.emulator import text
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel
from tvm_megcc.tools.lm.sampling import Sampling

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

pytestmark = pytest.mark.slow
PROMPT, TOKENS = "once upon a", 32
#: One layer of the 260 K model, and a context that few tokens fill.
SMALL = STORIES.with_(layers=1, context=48)
SAMPLING = {"temperature": 0.8, "seed": 7}


def require(target: str) -> None:
    try:
        find_compiler(TARGETS[target]), find_emulator(TARGETS[target])
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=["Q8_0", "Q4_0"])
def encoded(request, tmp_path_factory):
    """The file, and the tokens and the text that portable C gives."""
    path = write_stories(tmp_path_factory.mktemp("stories") / "stories.gguf", request.param, SMALL)
    return path, *generated(path, "c")


def compiled(path, target: str):
    return compile_model(path, path.parent / f"{path.stem}_{target}", target, CompileOptions(reproducible=True),
                         prompt=1)


def generated(path, target: str) -> tuple[list[int], str]:
    model, found = LanguageModel(compiled(path, target), target), []
    pieces = model.generate(PROMPT, TOKENS, Sampling(**SAMPLING), log_probabilities=found)
    text_of_pieces = "".join(pieces)
    return [token for token, _ in found], text_of_pieces


@pytest.mark.parametrize("target", ["x86-64-v3", "arm64", "riscv64", "wasm32-simd128"])
def test_same_tokens(encoded, target: str):
    require(target)
    path, *wanted = encoded
    assert list(generated(path, target)) == wanted and len(wanted[0]) == TOKENS and len(set(wanted[0])) > 8


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "riscv32"])
def test_text_on_a_microcontroller(encoded, target: str):
    require(target)
    path, wanted, wanted_text = encoded
    found = text.generate(compiled(path, target), PROMPT, TOKENS, SAMPLING)
    assert list(found.tokens) == wanted and found.stack_bytes < 4096
    # The package tokenizers shows all bytes of a run that is no UTF-8 as U+FFFD, the C code only those that are not.
    assert found.text.partition("\ufffd")[0] == wanted_text.partition("\ufffd")[0] != ""


def test_cycles_of_a_token(tmp_path):
    """Of the whole model, after 64 tokens, with the bits that portable C gives here."""
    require("cortex-m7")
    path = write_stories(tmp_path / "stories.gguf")
    logits, sessions = [], {}
    for target in ("c", "cortex-m7"):
        session = sessions[target] = LanguageModel(compiled(path, target), target).session
        rng = np.random.default_rng(0)
        session.reset({port.name: np.array([64], np.int64) if port.name == PAST else
                       rng.standard_normal(port.shape).astype(np.float32) for port in session.state_ports})
        session.counted = True
        logits.append(session.run({TOKENS_INPUT: np.array([[100]], np.int64)})["logits"])
    assert logits[0].tobytes() == logits[1].tobytes()
    assert sum(sessions["cortex-m7"].cycles) < 500_000


def test_the_command(tmp_path, capsys):
    """The cache in fast memory, the weights in flash."""
    require("cortex-m7")
    path = write_stories(tmp_path / "stories.gguf", "Q4_0", SMALL)
    options = ["--target", "cortex-m7", "--prompt", "1", "--cache", "int8", "--region", "dtcm=32K,flash=1M"]
    assert main(["lm", "compile", str(path), *options, "-o", str(tmp_path / "m7")]) == 0
    assert main(["lm", "generate", str(tmp_path / "m7"), "once upon", "--max-tokens", "4"]) == 0
    printed = capsys.readouterr()
    assert "4 tokens, deepest stack" in printed.err and printed.out.strip()
