# SPDX-License-Identifier: Apache-2.0
"""Byte pairs of a tokenizer.json: the same tables as of GGUF metadata, or a refusal."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.tokenizers import file as tokenizer_file
from tvm_megcc.tools.lm.tokenizers.tables import tables
from tvm_megcc.tools.lm.tokenizers.tokenizer import Vocabulary, tokenizer_of

from .tokenizer_texts import SPLITS, byte_level, pieces

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.slow

KINDS = {**{split: (byte_level, {"split": split}) for split in SPLITS}, "pieces": (pieces, {}),
         "no prefix": (pieces, {"prefix": False}), "qwen2 NFC": (byte_level, {"split": "qwen2"})}


def made(kind: str) -> Vocabulary:
    """A vocabulary in which no two tokens or pairs are equal, since a tokenizer.json has only the last of them."""
    make, options = KINDS[kind]
    found = Vocabulary.of(make(**options))
    last = {token: index for index, token in enumerate(found.tokens)}
    tokens = tuple(token if last[token] == index else "" for index, token in enumerate(found.tokens))
    form = "NFC" if kind.endswith("NFC") else ""
    return replace(found, tokens=tokens, pairs=tuple([*dict.fromkeys(reversed(found.pairs))][::-1]), form=form)


def file_of(kind: str) -> dict:
    return json.loads(tokenizer_of(made(kind)).to_str())


def read(given: dict, folder) -> Vocabulary:
    (folder / "tokenizer.json").write_text(json.dumps(given))
    return tokenizer_file.read(folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strings", [False, True])
def test_same_tables(kind, strings, tmp_path):
    given = file_of(kind)
    if strings:  # as older files have them
        given["model"]["merges"] = [" ".join(pair) for pair in given["model"]["merges"]]
    assert tables("t", read(given, tmp_path)) == tables("t", made(kind))


def test_defaults_and_rules_of_one(tmp_path):
    """GPT-2's file does not say that its expression is used; Gemma's has one rule, and a split that finds nothing."""
    given = file_of("gpt-2")
    given["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False}
    assert tables("t", read(given, tmp_path)) == tables("t", made("gpt-2"))
    given = file_of("no prefix")
    given["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    given["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False}
    assert tables("t", read(given, tmp_path)) == tables("t", made("no prefix"))


@pytest.mark.parametrize("change, message", [
    ({"merges": None}, "no merges"), ({"merges": [["a", 3]]}, "no merges"), ({"merges": ["a"]}, "no merges"),
    ({"merges": [["a", "nothing"]]}, "no merges"), ({"dropout": 0.1}, "dropout"), ({"vocab": {}}, "no vocabulary"),
    ({"end_of_word_suffix": "</w>"}, "end_of_word"), ({"ignore_merges": True}, "not supported"),
    ({"byte_fallback": True}, "unknown characters"), ({"vocab": {"a": True}}, "number"),
    ({"byte_fallback": True, "unk_token": ["a"]}, "unknown characters"),
    ({"vocab": {"a": 1, "b": 1}}, "the number 1"), ({"type": "WordLevel"}, "WordLevel")])
def test_refused_models(change, message, tmp_path):
    given = file_of("gpt-2")
    given["model"] |= change
    with pytest.raises(MegccError, match=message):
        read(given, tmp_path)


@pytest.mark.parametrize("change", [
    {"normalizer": {"type": "BertNormalizer"}}, {"normalizer": {"type": ["NFC"]}},
    {"pre_tokenizer": None}, {"pre_tokenizer": {"type": "ByteLevel"}},
    {"pre_tokenizer": {"type": "Sequence", "pretokenizers": 3}}, {"pre_tokenizer": [1]},
    {"pre_tokenizer": "ByteLevel"}])
def test_refused_rules(change, tmp_path):
    with pytest.raises(MegccError, match="normalizer or pre-tokenizer"):
        read(file_of("gpt-2") | change, tmp_path)


def test_mutants(tmp_path):
    """Changed files are read or refused."""
    data, draw, read_ = json.dumps(file_of("llama-bpe"), ensure_ascii=False).encode(), random.Random(3), 0
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(changed))
            changed[at:at + draw.randrange(3)] = draw.choice([b"", b"{", b"]", b'"', b"9" * 20, b"null", b"\xff", b"x"])
        (tmp_path / "tokenizer.json").write_bytes(changed)
        try:
            tables("t", tokenizer_file.read(tmp_path))
            read_ += 1
        except MegccError:
            pass
    assert 0 < read_ < 300


@pytest.mark.parametrize("data", [
    b"", b"[" * 100_000, b"{}", b"null", b"\xff\xfe", b'{"model": {"type": "BPE"}}', b"GGUF", b"9" * 10_000])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_hostile_files(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(MegccError):
        tokenizer_file.read(tmp_path)


def gguf_file(path, kind: str) -> None:
    """A GGUF file with a vocabulary of this kind, and no tensors."""
    gguf = pytest.importorskip("gguf")
    words = ["hello", "wor", "ld", "a", "b", "!"]
    made = gguf.GGUFWriter(str(path), "bert")
    made.add_tokenizer_model(kind)
    if kind == "bert":
        made.add_token_list(["[UNK]", "[CLS]", "[SEP]", *(f"\u2581{word}" for word in words), "s", "ld"])
        made.add_token_types([3, 3, 3] + [1] * 8)
        made.add_unk_token_id(0)
    else:
        made.add_token_list(["<unk>", "</s>", *words, "\u2581", "\u2581a"])
        made.add_token_types([2, 3] + [1] * 8)
        made.add_token_scores([0.0, 0.0] + [-1.5 * at for at in range(8)])
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.close()


@pytest.mark.parametrize("kind", ["bert", "t5", "llama"])
def test_mutants_of_gguf(kind, tmp_path):
    """Changed files are read or refused, and what is read can be printed."""
    path, draw, read_ = tmp_path / "v.gguf", random.Random(4), 0
    gguf_file(path, kind)
    assert len(tokenizer_file.read(path).tokens) == (11 if kind == "bert" else 10)
    data = path.read_bytes()
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(len(changed))] = draw.choice([0, 1, 2, 3, 0x7f, 0xff, draw.randrange(256)])
        path.write_bytes(changed)
        try:
            found = tokenizer_file.read(path)
            assert tables("t", found) if isinstance(found, Vocabulary) else found.text("t")
            read_ += 1
        except MegccError:
            pass
    assert 0 < read_ < 300
