# SPDX-License-Identifier: Apache-2.0
"""Unigram of a tokenizer.json in C (c_runtime/lm) against the package tokenizers."""

from __future__ import annotations

import base64
import json
import random

import pytest

from tests.compiled.runtime.test_runtime import CC
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.tokenizers import code_points
from tvm_megcc.tools.lm.tokenizers import file as tokenizer_file

from .same_tokens import NO_TEXT, SameTokens, compare_program, fuzz, run_sanitized
from .tokenizer_texts import Compiled, mutants, text, training

pytest.importorskip("tokenizers")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]

SPECIAL = ["<pad>", "</s>", "<unk>", "<mask>"]
_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}
_ALBERT = [{"type": "Replace", "pattern": {"String": given}, "content": '"'} for given in ("``", "''")]
_LINE = {"type": "Metaspace", "replacement": "\u2581"}
_OLD = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {**_LINE, "add_prefix_space": True}]}
#: Replacements of strings, as many as are needed to see the clusters that Precompiled replaces.
STRINGS = {"a": "b", "\u00a9": "(c)", "\u0915": "ka", "\u1100": "g", "e\u0301": "E", "\u0600": "", "\u3000": " ",
           "\u00a0": " ", "\r": " ", "\ufb01": "fi", "\u0301": "", "\uac00": "ga", "\u00df": "ss", "b\u0300": "B"}
PRECOMPILED = {"type": "Precompiled",
               "precompiled_charsmap": base64.b64encode(code_points.charsmap(STRINGS)).decode()}
#: Normalizers, pre-tokenizer, and whether there are tokens of bytes.
KINDS = {
    "xlm-r": ([PRECOMPILED], _OLD, False),
    "t5": ([PRECOMPILED, {"type": "Strip", "strip_left": False, "strip_right": True}, _SPACES],
           {**_LINE, "prepend_scheme": "always", "split": True}, False),
    "albert": ([*_ALBERT, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, PRECOMPILED], _OLD, False),
    "first": ([{"type": "NFC"}], {**_LINE, "prepend_scheme": "first", "split": False}, True),
    "nfkc": ([{"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True}],
             {**_LINE, "prepend_scheme": "never"}, True),
    "nfd": ([{"type": "NFD"}, {"type": "Nmt"}], _LINE, True),
    "none": ([], {**_LINE, "prepend_scheme": "first"}, False),
}
#: What normalizers treat apart: clusters, marks out of order, composed and decomposed characters.
_PIECES = [
    "a\u0301", "a\u0301\u0301", "\u0600a", "\u0600\u0301", "\u00a9\u200d", "\u00a9\u200d\u00a9\u0301", "\u0915\u0301",
    "\u0915\u094d\u0915\u0301", "\u0915\u094d\u200d\u0915\u0301", "\u0915\u094d", "\u1100\u1161\u11a8", "\u1100\u0301",
    "\uac00\u11a8", "\uac00\u0301", "\u1161\u1161", "e\u0301", "e\u0301\u0327", "e\u0327\u0301", "e\u0323\u0302",
    "\u0344", "\u0f71\u0f72\u0f74", "\u1e9b\u0323", "\ufdfa", "\ufb01", "\r\n", "\n\u0301", "\u00ad", "``", "'''",
    "\u0130", "\u03a3", "\u212b", "\u2126", "\u0958", "\u09c7\u09be", "\u3099\u304b\u3099", "\U0001d165\u302a",
    "\U0001f468\u200d\U0001f469", "\U0001f1e6\U0001f1e7a", "  ", "   ", "\u2581", "\t", "\u0085", "\u2003<mask>",
    " <mask>", "<mask> ", "<mask", "<unk>", "<unk>\u4e00", "</s>", "b\u0300", "\u1b44\u0300", "\u00df", "<0x41>",
    "\u0315\u0300\u05ae\u0300\u0315b", "\u0340a\u0345\u0301"]


def words(seed: int) -> str:
    draw = random.Random(seed + (1 << 42))
    return "".join(draw.choice([text(seed + at), draw.choice(_PIECES), draw.choice(_PIECES), " "]) for at in range(5))


def vocabulary(kind: str, size: int = 2500) -> dict:
    """A tokenizer.json, trained on drawn texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    normalizers, splitter, every_byte = KINDS[kind]
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(training(), trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, special_tokens=SPECIAL, unk_token="<unk>"))
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    given = json.loads(made.to_str())
    for each in given["added_tokens"]:
        each["lstrip"] = each["content"] == "<mask>"
    if every_byte:
        given["model"]["byte_fallback"] = True
        known = {token for token, _ in given["model"]["vocab"]}
        given["model"]["vocab"] += [[token, -30.0] for token in (f"<0x{value:02X}>" for value in range(256))
                                    if token not in known]
    given["normalizer"] = {"type": "Sequence", "normalizers": normalizers} if normalizers else None
    return {**given, "pre_tokenizer": splitter}


class InC(Compiled):
    """The tokenizer of a file."""

    kind = "unigram"
    more = ("normalizer",)

    def __init__(self, folder, given: dict):
        self.given = json.dumps(given)
        (folder / "tokenizer.json").write_text(self.given)
        self.pieces = tokenizer_file.read(folder)
        super().__init__(folder, self.pieces.text("t"))

    def encode(self, data: bytes, special: bool = True, room: int = -1, work: int = -1) -> list[int]:
        most = 20 * len(data) + 8
        return self.run(data, (special,), room if room >= 0 else most, work if work >= 0 else 5 * most + 8)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A vocabulary in Python and in C."""
    from tokenizers import Tokenizer

    given = vocabulary(request.param)
    return Tokenizer.from_str(json.dumps(given)), InC(tmp_path_factory.mktemp("unigram"), given)


class TestSameTokens(SameTokens):
    at_once = 100

    def words(self, seed: int) -> str:
        return words(seed)

    def place(self, character: str) -> str:
        """Behind and before others, with marks behind it."""
        return (f" a{character}b{character}\u0301 \u1100{character}\u0915\u094d{character}\u0301"
                f"a\u0327{character}")


def test_long_texts(kind):
    python, c = kind
    draw = random.Random(5)
    for letters in ("ab", "abcdefghij ", "\u00e9\u4e2d", "a\u0301\u0327\u0316\u0345", "\u0915\u094d\u200d"):
        given = "".join(draw.choice(letters) for _ in range(5000))
        assert c.encode(given.encode()) == python.encode(given, add_special_tokens=False).ids, letters


def test_ends_and_room(kind):
    python, c = kind
    given = "hello hello  <mask> hello, \u4e2d"
    wanted = python.encode(given, add_special_tokens=False).ids
    assert python.encode(given).ids == [*wanted, c.pieces.last] and c.pieces.first == -1
    for room in range(len(wanted) + 2):
        assert c.encode(given.encode(), room=room) == wanted[:room]
    size, found = 3 * len(given), 0
    for work in range(4 * size):  # too little memory is said, and the rest is enough
        try:
            assert c.encode(given.encode(), work=work) == wanted
            found += 1
        except AssertionError as error:
            assert "the work memory is too small" in str(error) and not found
    assert found and c.encode(given.encode(), work=4 * (size + 1) + (size + 1) // 2 + 2) == wanted
    assert c.encode(b"", work=0) == []
    assert python.token_to_id("<mask>") not in c.encode(b"a <mask> b", special=False)


def test_room_of_normalized_texts(kind):
    """Texts that a normalizer changed lie beside tokens in work memory: the least that is enough gives all tokens."""
    python, c = kind
    for seed in range(6):
        given = "e\u0301" + words(seed)
        wanted, enough = python.encode(given, add_special_tokens=False).ids, 100 * len(given)
        too_small = 0
        while enough - too_small > 1:
            work = (too_small + enough) // 2
            try:
                assert c.encode(given.encode(), work=work) == wanted, work
                enough = work
            except AssertionError as error:
                assert "the work memory is too small" in str(error), work
                too_small = work


def test_bytes_that_are_no_text(kind):
    _, c = kind
    for given in NO_TEXT:
        assert c.encode(given) == c.encode("".join(
            chr(byte) if byte < 0x80 else "\ufffd" for byte in given).encode()), given


def test_the_command_writes_a_program(kind, tmp_path):
    _, c = kind
    (tmp_path / "tokenizer.json").write_text(c.given)
    compare_program(c, tmp_path, tmp_path / "made", "<mask>", "--name", "given")


@pytest.mark.parametrize("change, message", [
    ({"vocab": None}, "no vocabulary"), ({"vocab": [["a"]]}, "not a pair"), ({"vocab": [["a", "b"]]}, "not a pair"),
    ({"vocab": [["\ud800", 1]]}, "not a pair"), ({"vocab": [["a", 1e999]]}, "not a pair"),
    ({"vocab": [["a", -1], ["a", -2]]}, "two tokens"), ({"unk_id": None}, "unknown"), ({"unk_id": 1 << 40}, "unknown"),
    ({"byte_fallback": 3}, "bytes")])
def test_refused_models(change, message, tmp_path):
    given = vocabulary("none")
    given["model"] |= change
    (tmp_path / "tokenizer.json").write_text(json.dumps(given))
    with pytest.raises(MegccError, match=message):
        tokenizer_file.read(tmp_path)


@pytest.mark.parametrize("change, message", [
    ({"normalizer": {"type": "BertNormalizer"}}, "BertNormalizer"), ({"normalizer": 3}, "None"),
    ({"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}}, "replaces"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}}, "base64"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "damaged"),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 65}}, "more than"),
    ({"pre_tokenizer": None}, "Metaspace"), ({"pre_tokenizer": {**_LINE, "replacement": "_"}}, "values"),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {**_LINE, "prepend_scheme": "first"}]}}, "WhitespaceSplit"),
    ({"added_tokens": [{"id": 1, "content": "a", "normalized": True}]}, "normalized"),
    ({"added_tokens": [{"id": 1, "content": "a", "rstrip": True}]}, "rstrip"),
    ({"added_tokens": [{"id": 0, "content": "<new>"}]}, "number")])
def test_refusals(change, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary("xlm-r") | change))
    with pytest.raises(MegccError, match=message):
        tokenizer_file.read(tmp_path)


def test_mutants(tmp_path):
    mutants(json.dumps(vocabulary("albert"), indent=0).encode(), 1000, tmp_path)


FUZZ = fuzz("unigram", work="4u * MEGCC_UNIGRAM_WORK(6000)")


def sanitized(folder, kind: str, count: int) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary(kind)))
    found = tokenizer_file.read(folder)
    run_sanitized(folder, FUZZ, found.text("t"), ("unigram", "normalizer"), count, found.tokens)


@pytest.mark.parametrize("kind", ["xlm-r", "t5", "albert", "nfkc"])
def test_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["xlm-r", "t5", "albert", "nfkc"])
def test_many_random_bytes(kind, tmp_path):
    sanitized(tmp_path, kind, 1_000_000)
