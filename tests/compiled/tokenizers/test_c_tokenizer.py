# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in C (c_runtime/lm) against the package tokenizers."""

from __future__ import annotations

import random
import unicodedata
from dataclasses import replace

import pytest

from tests.compiled.runtime.test_runtime import CC, FLAGS, SMALL, call, has_flags
from tvm_megcc.tools.lm.tokenizers.tables import classes, tables
from tvm_megcc.tools.lm.tokenizers.tokenizer import Vocabulary, tokenizer_of

from .same_tokens import NO_TEXT, SameTokens, run_sanitized
from .tokenizer_texts import LM, SPECIAL, SPLITS, InC, byte_level, pieces, text

pytest.importorskip("tokenizers")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]

KINDS = {**{split: (byte_level, {"split": split}) for split in SPLITS},
         "wide": (byte_level, {"split": "llama-bpe"}), "NFC": (byte_level, {"split": "qwen2"}),
         "pieces": (pieces, {}), "no prefix": (pieces, {"prefix": False}), "no bytes": (pieces, {"every_byte": False})}


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A vocabulary in C and in Python."""
    make, options = KINDS[request.param]
    metadata = make(**options)
    if request.param == "wide":  # numbers beyond 16 bits
        more = [f"<unused{index}>" for index in range(70000)]
        metadata["tokenizer.ggml.tokens"] = [*more, *metadata["tokenizer.ggml.tokens"]]
        metadata["tokenizer.ggml.token_type"] = [1] * 70000 + metadata["tokenizer.ggml.token_type"]
    vocabulary = replace(Vocabulary.of(metadata), form="NFC" if request.param == "NFC" else "")
    return vocabulary, tokenizer_of(vocabulary), InC(tmp_path_factory.mktemp("tokenizer"), vocabulary)


class TestSameTokens(SameTokens):
    at_once = 500

    def place(self, character: str) -> str:
        return f" {character}a"

    def compare(self, kind, seeds: range) -> None:
        vocabulary, python, c = kind
        super().compare(kind, seeds)
        for seed in seeds:
            given = text(seed)
            tokens = self.wanted(python, given)
            shown = python.decode(tokens, skip_special_tokens=False)
            assert "".join(c.decode(tokens)) == shown, (seed, given)
            if not vocabulary.pieces:  # the package shows letters of the last special token as bytes
                assert shown == given or vocabulary.form or SPECIAL[-1] in given
                drawn = random.Random(seed).choices(range(len(vocabulary.tokens)), k=12)
                assert "".join(c.decode(drawn)) == python.decode(drawn, skip_special_tokens=False), drawn


def test_long_words(kind):
    """One word of 30,000 characters: the time of a merge does not grow with it."""
    _, python, c = kind
    draw = random.Random(5)
    for letters in ("ab", "abcdefghij", "\u00e9\u4e2d"):
        given = "".join(draw.choice(letters) for _ in range(30000))
        assert c.encode(given.encode()) == python.encode(given, add_special_tokens=False).ids


def test_long_words_that_are_composed(kind):
    """What composes a word lies in work memory, and the words behind it are read there after it was encoded."""
    _, python, c = kind
    given = " ".join("e\u0301" * count for count in range(1, 60))
    assert c.encode(given.encode()) == python.encode(given, add_special_tokens=False).ids


def test_too_little_room(kind):
    _, python, c = kind
    given = "hello hello <|end|> hello"
    wanted = python.encode(given, add_special_tokens=False).ids
    for room in range(len(wanted) + 2):
        assert c.encode(given.encode(), room=room) == wanted[:room]
    with pytest.raises(AssertionError, match="the work memory is too small"):
        c.encode(b"abcdefghijklmnop", work=5)
    assert c.encode(b"", work=0) == []


def test_room_of_composed_texts(kind):
    """Little work memory, where a normalizer writes too, is enough or is said to be too small; nothing behind it
    changes."""
    _, python, c = kind
    for end in range(4):
        given = "e\u0301 " * 8 + "a" * end
        for work in range(6, 6 * len(given.encode()), 6):
            try:
                found = c.encode(given.encode(), work=work)
            except AssertionError as error:
                assert "the work memory is too small" in str(error), work
            else:
                assert found == python.encode(given, add_special_tokens=False).ids


def test_special_tokens_as_text(kind):
    vocabulary, python, c = kind
    end = python.token_to_id("<|end|>")
    assert end in c.encode(b"a<|end|>b") and end not in c.encode(b"a<|end|>b", special=False)
    if not vocabulary.pieces:
        assert "".join(c.decode(c.encode(b"a<|end|>b", special=False))) == "a<|end|>b"


def test_characters_are_whole(kind):
    """Pieces of a text are valid UTF-8 at each token (`decode` of the harness is strict), and arrive when complete."""
    vocabulary, _, c = kind
    tokens = c.encode("\u4e2d\U0001f642\U00012345".encode())
    found = c.decode(tokens)
    if "<0x00>" in vocabulary.tokens or not vocabulary.pieces:
        assert "".join(found).endswith("\U00012345") and found[-1] == ""
        assert "".join(c.decode(tokens[:-1])).endswith("\ufffd")


def test_bytes_that_are_no_text(kind):
    """They come back from bytes; a byte that begins no character stands alone, and is U+FFFD once it was normalized."""
    vocabulary, _, c = kind
    for given in NO_TEXT:
        tokens = c.encode(given)
        if vocabulary.form:
            assert "".join(c.decode(tokens)) == "".join(chr(byte) if byte < 0x80 else "\ufffd" for byte in given)
        elif not vocabulary.pieces:
            assert "".join(c.decode(tokens)) == given.decode("utf-8", "replace")


def test_classes():
    """They differ from the ones of Python in few characters, which are of another version of Unicode."""
    rows, bits, different = classes(), 0, 0
    table = {row >> 4: row & 15 for row in rows}
    for code in range(0x20000):
        bits = table.get(code, bits)
        category = unicodedata.category(chr(code))[0]
        different += (bits & 3) != {"L": 1, "N": 2}.get(category, 0)
    assert rows == sorted(rows) and different < 10000 and table[0x20] == 4 and table[0x21] == 0


FUZZ = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "megcc_tokenizer.h"
extern const megcc_tokenizer t_tokenizer;
int main(int argc, char **argv)
{
    uint64_t x = 88172645463325252u;
    const long count = argc > 1 ? atol(argv[1]) : 0;
    for (long i = 0; i < count; i++) {
        char text[64];
        size_t size = 0;
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        const size_t wanted = x % 64u;
        while (size < wanted) { /* bytes, or what the vocabulary knows */
            x ^= x << 13; x ^= x >> 7; x ^= x << 17;
            size_t length;
            const char *known = megcc_tokenizer_text(&t_tokenizer, (uint32_t)(x >> 8) % t_tokenizer.tokens, &length);
            if (x & 128u && length <= wanted - size) {
                memcpy(text + size, known, length);
                size += length;
            } else
                text[size++] = (char)(x >> 40);
        }
        char *exact = malloc(size + 1u); /* so that a byte behind the text is seen */
        memcpy(exact, text, size);
        exact = realloc(exact, size ? size : 1u);
        uint32_t *work = malloc(4u * MEGCC_TOKENIZER_WORK(64)), tokens[80];
        const size_t bytes = x & 1u ? 4u * MEGCC_TOKENIZER_WORK(64) : x / 2u % 400u;
        const int32_t room = x & 2u ? 80 : (int32_t)(x / 4u % 8u);
        const int32_t found = megcc_tokenizer_encode(&t_tokenizer, exact, size, x / 4u & 1u, tokens, room, work, bytes);
        megcc_decoder decoder = { { 0 }, 0, 0 };
        char *out = malloc(MEGCC_DECODER_ROOM(t_tokenizer.longest));
        const size_t most = x & 4u ? MEGCC_DECODER_ROOM(t_tokenizer.longest) : x / 16u % 8u;
        for (int32_t k = 0; k < found && k < room; k++)
            if (megcc_decoder_add(&t_tokenizer, &decoder, tokens[k], out, most) > most)
                return 1;
        megcc_decoder_add(&t_tokenizer, &decoder, (uint32_t)x, out, most);
        megcc_decoder_end(&decoder, out, most);
        free(exact);
        free(work);
        free(out);
    }
    puts("done");
    return 0;
}
"""


def sanitized(folder, kind: str, count: int) -> None:
    make, options = KINDS[kind]
    run_sanitized(folder, FUZZ, tables("t", Vocabulary.of(make(**options))), ("tokenizer",), count)


@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "llama-bpe", "qwen2", "pieces", "no bytes"])
def test_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "llama-bpe", "qwen2", "pieces", "no bytes"])
def test_many_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 1_000_000)


@pytest.mark.parametrize("switches", [[], [flag for flag in SMALL if flag.startswith("-D")]], ids=["all", "small"])
def test_warnings(switches):
    for compiler in (CC, "clang"):
        if has_flags(cc=compiler):
            call([compiler, *FLAGS, *switches, "-fsyntax-only", f"-I{LM}", *LM.glob("*.c")])
