# SPDX-License-Identifier: Apache-2.0
"""WordPiece in C (c_runtime/lm) against the package tokenizers."""

from __future__ import annotations

import json
import os
import random

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC, SANITIZE, call, has_flags
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm import tokenizer_file
from tvm_megcc.tools.lm.wordpiece import WordPieces

from .tokenizer_texts import LM, Compiled, mutants, text, training

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


def compare(kind, seeds: range) -> None:
    python, c = kind
    for seed in seeds:
        given = words(seed)
        assert c.encode(given.encode()) == python.encode(given, add_special_tokens=False).ids, (seed, given)


def test_texts(kind):
    compare(kind, range(1000))


@pytest.mark.long
def test_many_texts(kind):
    compare(kind, range(1000, int(os.environ.get("MEGCC_TEXTS", "100000"))))


def test_characters(kind):
    _compare_characters(kind, [*range(0x3100), *range(0x3100, 0x110000, 61)])


@pytest.mark.long
def test_all_characters(kind):
    _compare_characters(kind, range(0x110000))


def _compare_characters(kind, codes) -> None:
    """Characters between a letter of their own and one that follows."""
    python, c = kind
    given = [f" a{chr(code)}b{chr(code)}" for code in codes if not 0xd800 <= code < 0xe000]
    for begin in range(0, len(given), 200):
        part = "".join(given[begin:begin + 200])
        assert c.encode(part.encode()) == python.encode(part, add_special_tokens=False).ids, hex(codes[begin])


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
        assert main(["lm", "tokenizer", str(folder), "-o", str(tmp_path / "made")]) == 0
    call(["make", "-s", "-C", tmp_path / "made", f"CC={CC}"])
    given = ["hello [MASK]", "", "A\u0301B, \u4e2d!"]
    printed = call([tmp_path / "made" / "given_tokens"], input="\n".join(given) + "\n").splitlines()
    assert printed == [" ".join(map(str, c.encode(line.encode()))) for line in given]
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


FUZZ = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "megcc_wordpiece.h"
extern const megcc_wordpiece t_tokenizer;
int main(int argc, char **argv)
{
    uint64_t x = 88172645463325252u;
    const long count = argc > 1 ? atol(argv[1]) : 0;
    for (long i = 0; i < count; i++) {
        char text[300];
        size_t size = 0;
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        const size_t wanted = x % (x & 1024u ? 300u : 40u);
        while (size < wanted) { /* bytes, or what the vocabulary knows */
            x ^= x << 13; x ^= x >> 7; x ^= x << 17;
            const uint32_t token = (uint32_t)(x >> 8) % t_tokenizer.tokens;
            const size_t length = t_tokenizer.text[token + 1u] - t_tokenizer.text[token];
            if (x & 128u && length <= wanted - size) {
                memcpy(text + size, t_tokenizer.bytes + t_tokenizer.text[token], length);
                size += length;
            } else
                text[size++] = (char)(x >> 40);
        }
        char *exact = malloc(size ? size : 1u); /* so that a byte behind the text is seen */
        memcpy(exact, text, size);
        const size_t bytes = x & 1u ? MEGCC_WORDPIECE_WORK(t_tokenizer.longest_word) : x / 2u % 500u;
        const int32_t room = x & 2u ? 80 : (int32_t)(x / 4u % 8u);
        uint8_t *work = malloc(bytes + 1u);
        uint32_t *tokens = malloc(4u * (uint32_t)room + 1u);
        megcc_wordpiece_encode(&t_tokenizer, exact, size, x / 4u & 1u, tokens, room, work, bytes);
        free(exact);
        free(work);
        free(tokens);
    }
    puts("done");
    return 0;
}
"""


def sanitized(folder, kind: str, count: int) -> None:
    if not has_flags(*SANITIZE):
        pytest.skip("the compiler has no sanitizers")
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary(kind)))
    (folder / "tables.c").write_text(tokenizer_file.read(folder).text("t"))
    (folder / "fuzz.c").write_text(FUZZ)
    call([CC, "-std=c99", f"-I{LM}", *SANITIZE, folder / "fuzz.c", folder / "tables.c",
          LM / "megcc_wordpiece.c", "-o", folder / "fuzz"])
    assert call([folder / "fuzz", count]) == "done\n"


@pytest.mark.parametrize("kind", ["uncased", "none"])
def test_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["uncased", "none"])
def test_many_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 1_000_000)
