# SPDX-License-Identifier: Apache-2.0
"""SentencePiece in C (c_runtime/lm) against the package sentencepiece."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC, SANITIZE, has_flags
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.tokenizers import file as tokenizer_file
from tvm_megcc.tools.lm.tokenizers import sentencepiece as reader

from .same_tokens import NO_TEXT, SameTokens, compare_program, fuzz, run_sanitized
from .tokenizer_texts import Compiled, text, training

sentencepiece = pytest.importorskip("sentencepiece")
pytest.importorskip("tokenizers")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]

KINDS = {
    "unigram": {"model_type": "unigram"},
    "unigram bytes": {"model_type": "unigram", "byte_fallback": True,
                      "user_defined_symbols": ["<p>", "\u2581<q>", "ab"]},
    "unigram as is": {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False,
                      "remove_extra_whitespaces": False, "split_by_whitespace": False},
    "unigram suffix": {"model_type": "unigram", "treat_whitespace_as_suffix": True,
                       "normalization_rule_name": "nfkc_cf"},
    "pairs": {"model_type": "bpe", "remove_extra_whitespaces": False},
    "pairs bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
                    "user_defined_symbols": ["<p>", "<p>>", "\u2581<q>", "hello"]},
    "pairs suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
}
_PIECES = ["<p>", "<p", "<p>>", " <q>", "\u2581<q>", "  ", " ", "\u3000", "\t", "\u2581", "\ufdfa", "\u1e9b\u0323",
           "e\u0301", "\uff21", "\u2460", "\uac00", "\u1100\u1161", "\x00", "\ufffd", "\u00ad", "abab", "hello"]


def words(seed: int) -> str:
    draw = random.Random(seed + (1 << 41))
    return "".join(draw.choice([text(seed + at), draw.choice(_PIECES), draw.choice(_PIECES), " "]) for at in range(4))


def model(kind: str, size: int = 2500) -> bytes:
    """A tokenizer.model, trained on drawn texts."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([each for each in training() if "\0" not in each]), model_writer=written,
        vocab_size=size, minloglevel=2, hard_vocab_limit=False, num_threads=1,
        character_coverage=0.98, **KINDS[kind])
    return written.getvalue()


class InC(Compiled):
    """The tokenizer of a file."""

    kind = "sentencepiece"

    def __init__(self, folder, given: bytes):
        self.given = given
        (folder / "tokenizer.model").write_bytes(given)
        self.pieces = tokenizer_file.read(folder)
        super().__init__(folder, self.pieces.text("t"))

    def encode(self, data: bytes, room: int = -1, work: int = -1) -> list[int]:
        most = 20 * len(data) + 8
        return self.run(data, (), room if room >= 0 else most, work if work >= 0 else 6 * most)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A model in Python and in C."""
    given = model(request.param)
    return (sentencepiece.SentencePieceProcessor(model_proto=given),
            InC(tmp_path_factory.mktemp("sentencepiece"), given))


class TestSameTokens(SameTokens):
    def words(self, seed: int) -> str:
        return words(seed)

    def place(self, character: str) -> str:
        """Between letters, and between spaces."""
        return f" a{character}b{character} {character}"

    def wanted(self, python, given: str) -> list[int]:
        return python.encode(given)


def test_bytes_that_are_no_text(kind):
    python, c = kind
    for given in NO_TEXT:
        assert c.encode(given) == python.encode(given), given


def test_long_texts(kind):
    python, c = kind
    draw = random.Random(5)
    for letters in ("ab", "abcdefghij ", "\u00e9\u4e2d"):
        given = "".join(draw.choice(letters) for _ in range(20000))
        assert c.encode(given.encode()) == python.encode(given)


def test_too_little_room(kind):
    python, c = kind
    given = "hello hello hello"
    wanted, size = python.encode(given), len(given) + 9  # a space before or behind, and two within, of 3 bytes
    for room in range(len(wanted) + 2):
        assert c.encode(given.encode(), room=room) == wanted[:room]
    assert c.encode(given.encode(), work=5 * (size + 1) + size // 4 + 2) == wanted
    for work in range(5 * len(given)):
        with pytest.raises(AssertionError, match="the work memory is too small"):
            c.encode(given.encode(), work=work)
    assert c.encode(b"", work=0) == []


def test_the_command_writes_a_program(kind, tmp_path):
    _, c = kind
    (tmp_path / "given.model").write_bytes(c.given)
    compare_program(c, tmp_path / "given.model", tmp_path / "made", "<p>")


def message(*fields: tuple[int, object]) -> bytes:
    """Fields below 16: bytes, or a number below 128."""
    return b"".join(bytes([field << 3, value]) if isinstance(value, int)
                    else bytes([field << 3 | 2, len(value)]) + value for field, value in fields)


_UNKNOWN = (1, message((1, b"<unk>"), (3, 2)))
_A = (1, message((1, b"a")))


@pytest.mark.parametrize("data, wanted", [
    (b"", "no pieces"), (b"\n", "within a number"), (b"\n\x05a", "beyond its end"), (b"\x0b", "another kind"),
    (b"\x0a" + b"\xff" * 10, "too long"), (message((1, b"\x0a\x01\xff")), "not UTF-8"),
    (message((1, b"")), "without text"), (message(_A), "unknown"), (message(_UNKNOWN), "no other piece"),
    (message(_UNKNOWN, _A, _A), "equal"), (message(_UNKNOWN, _A, (2, message((3, 4)))), "type"),
    (message(_UNKNOWN, _A, (3, message((2, b"\x10\0\0\0"))),), "damaged"),
    (message(_UNKNOWN, _A, (3, message((2, b"\x04\0\0\0\0\0\0\0"))),), "beyond its end"),
    (message(_UNKNOWN, _A, (1, message((1, b"b"), (3, 5))), (2, message((3, 2)))), "unused"),
    (message(_UNKNOWN, (1, message((1, b"a\0")))), "U\\+0000"),
    (message(_UNKNOWN, _A, (3, message((3, b"x")))), "a number"),
    (message(_UNKNOWN, (1, message((1, b"<0x41>"), (3, 6))), _A), "bytes")])
def test_refusals(data, wanted):
    with pytest.raises(MegccError, match=wanted):
        reader.of(data)


@pytest.mark.parametrize("kind", ["unigram", "unigram bytes"])
def test_gguf(kind):
    """The metadata of a GGUF file say the same as a tokenizer.model."""
    wanted = reader.of(model(kind))
    rules = b"" if not wanted.trie else (np.uint32(4 * len(wanted.trie)).tobytes() + np.array(
        wanted.trie, "<u4").tobytes() + wanted.replaced[:-1])
    metadata = {"tokenizer.ggml.precompiled_charsmap": np.frombuffer(rules, np.uint8),
                "tokenizer.ggml.remove_extra_whitespaces": True}
    assert reader.of_gguf(metadata, wanted.tokens, wanted.types, wanted.scores) == wanted
    for change in ({"scores": wanted.scores[1:]}, {"types": [9, *wanted.types[1:]]},
                   {"scores": [np.nan, *wanted.scores[1:]]}, {"scores": [-1e300, *wanted.scores[1:]]},
                   {"tokens": ["", *wanted.tokens[1:]]}):
        given = {"tokens": wanted.tokens, "types": wanted.types, "scores": wanted.scores} | change
        with pytest.raises(MegccError):
            reader.of_gguf(metadata, given["tokens"], given["types"], given["scores"])
    with pytest.raises(MegccError, match="not an array of bytes"):
        reader.of_gguf({"tokenizer.ggml.precompiled_charsmap": [3]}, wanted.tokens, wanted.types, wanted.scores)


def test_mutants(tmp_path):
    """Changed files are read or refused, and what is read stays in its tables."""
    data, draw, read = model("unigram bytes"), random.Random(3), 0
    for index in range(300):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(changed))
            changed[at:at + draw.randrange(3)] = draw.choice([b"", b"\xff", bytes([draw.randrange(256)])])
        try:
            found = reader.of(bytes(changed))
        except MegccError:
            continue
        read += 1
        if read <= 3 and has_flags(*SANITIZE):
            folder = tmp_path / str(index)
            folder.mkdir()
            _fuzz(folder, found, 2000)
    assert 0 < read < 300


FUZZ = fuzz("sentencepiece", work="4u * MEGCC_SENTENCEPIECE_WORK(6000)", special="")


def _fuzz(folder, found, count: int) -> None:
    run_sanitized(folder, FUZZ, found.text("t"), ("sentencepiece",), count, found.tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_random_bytes(kind, tmp_path):
    _fuzz(tmp_path, reader.of(model(kind)), 10_000)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["unigram", "unigram bytes", "pairs bytes", "pairs suffix"])
def test_many_random_bytes(kind, tmp_path):
    _fuzz(tmp_path, reader.of(model(kind)), 1_000_000)
