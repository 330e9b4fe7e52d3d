# SPDX-License-Identifier: Apache-2.0
"""WordPiece in C (c_runtime/lm) against the package tokenizers."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.tokenizers import file as tokenizer_file
from tvm_megcc.tools.lm.tokenizers.wordpiece import WordPieces

from .same_tokens import SameTokens, compare_program, fuzz, run_sanitized
from .tokenizer_texts import Compiled, mutants, text, training

pytest.importorskip("tokenizers")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
#: Normalizations: clean, ideographs, accents are stripped (None: as case), lower case.
KINDS = {"uncased": (True, True, None, True), "cased": (True, True, None, False), "accents": (True, True, False, True),
         "stripped": (True, False, True, False), "raw": (False, True, True, True), "none": None}
#: What normalization and splitting treat apart: marks that are sorted, characters that become punctuation, and others.
_PIECES = [
    "\u302e\U0001d165", "a\u302e\u1b44\u302f", "\u302e\u1885\U0001d165", "\u1b44\u0301\u302e", "\u037e", "\u226e",
    "\u0130\u0130", "\u00c5\u0301", "\uac01\ub3c4", "\ufb1d", "\uf900", "\U0002f800", "\u4e00\u4e01a", "\u200b",
    "\x00", "\ufffd", "\ue000", "\U000f0000", "\U000e0100", "\u00ad", "\u2028", "##", "#ab", "[MASK]", "[UNK]",
    "[CLS", "x" * 99, "x" * 100, "x" * 101, "\u00e9" * 100, "\u03a3\u03c2", "\u1e9e", "\u2126", "\u212a",
    "\U0001d7d8", "@_@"]


def words(seed: int) -> str:
    draw = random.Random(seed + (1 << 40))
    return "".join(draw.choice([text(seed + at), draw.choice(_PIECES), draw.choice(_PIECES), " "]) for at in range(3))


def vocabulary(kind: str, size: int = 1500) -> dict:
    """A tokenizer.json, trained on drawn texts."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    if KINDS[kind]:
        made.normalizer = normalizers.BertNormalizer(*KINDS[kind])
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator([*training(), *(words(seed) for seed in range(300))], trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=SPECIAL))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
    return json.loads(made.to_str())


class InC(Compiled):
    """The tokenizer of a file."""

    kind = "wordpiece"
    unit = np.uint8

    def __init__(self, folder, given: dict):
        self.given = json.dumps(given)
        (folder / "tokenizer.json").write_text(self.given)
        self.pieces = tokenizer_file.read(folder)
        super().__init__(folder, self.pieces.text("t"))

    def encode(self, data: bytes, special: bool = True, room: int = -1, work: int = 400) -> list[int]:
        return self.run(data, (special,), room if room >= 0 else len(data) + 8, work)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A vocabulary in Python and in C."""
    from tokenizers import Tokenizer

    given = vocabulary(request.param)
    return Tokenizer.from_str(json.dumps(given)), InC(tmp_path_factory.mktemp("wordpiece"), given)


class TestSameTokens(SameTokens):
    def words(self, seed: int) -> str:
        return words(seed)

    def place(self, character: str) -> str:
        """Between letters, and before a space."""
        return f" a{character}b{character}"


def test_ends_and_room(kind):
    python, c = kind
    given = "hello hello [MASK] hello, \u4e2d"
    wanted = python.encode(given, add_special_tokens=False).ids
    assert python.encode(given).ids == [c.pieces.first, *wanted, c.pieces.last]
    for room in range(len(wanted) + 2):
        assert c.encode(given.encode(), room=room) == wanted[:room]
    with pytest.raises(AssertionError, match="the work memory is too small"):
        c.encode(b"a", work=399)
    assert python.token_to_id("[MASK]") not in c.encode(b"a [MASK] b", special=False)


def test_the_command_writes_a_program(kind, tmp_path):
    _, c = kind
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(c.given)
    for _ in range(2):  # the second time it is replaced
        compare_program(c, folder, tmp_path / "made", "[MASK]")
    (tmp_path / "made" / "mine.c").write_text("")
    assert main(["lm", "tokenizer", str(folder), "-o", str(tmp_path / "made")]) == 1
    assert main(["lm", "tokenizer", str(tmp_path / "none"), "-o", str(tmp_path / "new")]) == 1


def test_gguf():
    """It has a sign where words begin, and none inside them."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581he", "llo", "\u2581,"]
    metadata = {"tokenizer.ggml.model": "bert", "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.cls_token_id": 2,
                "tokenizer.ggml.seperator_token_id": 3}
    found = WordPieces.of(metadata, tokens, [3, 2, 3, 3, 1, 1, 1])
    assert found.tokens == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "he", "##llo", ",")
    assert (found.unknown, found.first, found.last, found.special) == (1, 2, 3, ("[PAD]", "[CLS]", "[SEP]"))
    with pytest.raises(MegccError, match="unknown words"):
        WordPieces.of({}, ["a"], [1])


@pytest.mark.parametrize("change, message", [
    ({"model": None}, "no model"), ({"model": {"type": "Unigram"}}, "Unigram"),
    ({"pre_tokenizer": {"type": "Whitespace"}}, "BertPreTokenizer"),
    ({"normalizer": {"type": "NFC"}}, "BertNormalizer"),
    ({"normalizer": {"type": "BertNormalizer", "lowercase": 3}}, "neither true nor false"),
    ({"post_processor": {"type": "RobertaProcessing"}}, "post-processor"),
    ({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": 3}]}}, "post-processor"),
    ({"added_tokens": [{"content": "x y z", "id": -1}]}, "number"),
    ({"added_tokens": [{"content": "x y z", "id": 1 << 40}]}, "number"),
    ({"added_tokens": [{"content": "\ud800", "id": 3000}]}, "cannot be UTF-8"), ({"added_tokens": 3}, "no vocabulary"),
    ({"added_tokens": [{"content": "[MASK]", "lstrip": True}]}, "lstrip")])
def test_refusals(change, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary("uncased", 300) | change))
    with pytest.raises(MegccError, match=message):
        tokenizer_file.read(tmp_path)


def test_mutants(tmp_path):
    mutants(json.dumps(vocabulary("uncased", 100), indent=0).encode(), 1000, tmp_path)


FUZZ = fuzz("wordpiece", work="MEGCC_WORDPIECE_WORK(t_tokenizer.longest_word)", unit="uint8_t")


def sanitized(folder, kind: str, count: int) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary(kind)))
    found = tokenizer_file.read(folder)
    run_sanitized(folder, FUZZ, found.text("t"), ("wordpiece",), count, found.tokens)


@pytest.mark.parametrize("kind", ["uncased", "none"])
def test_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["uncased", "none"])
def test_many_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 1_000_000)
