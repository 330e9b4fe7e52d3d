# SPDX-License-Identifier: Apache-2.0
"""Reads tokenizers from files, which are not trusted: tokenizer.json of the package tokenizers, tokenizer.model of
SentencePiece, and GGUF."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .... import folders
from ....errors import MegccError, quoted, refused_by_system
from ....frontends.contents import is_gguf
from ....frontends.gguf.file import read as read_gguf
from . import sentencepiece, unigram, wordpiece
from .normalization import FORMS
from .sentencepiece import SentencePiece
from .tables import byte_letters
from .tokenizer import SINGLE_DIGITS, SPLITS, WHOLE_WORDS, Vocabulary, metadata_list, metadata_value, tokenizer_of
from .unigram import Unigram
from .wordpiece import WordPieces

#: Names of a tokenizer's file in a folder.
NAMES = ("tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
#: The most token numbers that may be unused.
_MOST_GAPS = 1 << 16


def read(path: str | Path, has_padding: bool = True) -> Vocabulary | WordPieces | SentencePiece | Unigram:
    """Reads a tokenizer from a file, or from the one in a folder.

    Args:
        has_padding: whether the string of the padding token in a text is that token. Otherwise it is ordinary text, and
            any flags of the token do not matter. For tokenizer.json.

    Raises:
        MegccError: if there is none, it is damaged, or does what is not supported.
    """
    path = Path(path)
    folders.require_exists(path)
    if path.is_dir():
        found = next((path / name for name in NAMES if (path / name).is_file()), None)
        if found is None:
            raise MegccError(f"{path} has no tokenizer: {' or '.join(NAMES)}")
        path = found
    try:
        if is_gguf(path):
            return _of_gguf(path)
        data = folders.read(path)
        # A tokenizer.model begins with its field 1 of bytes, whose key in Protocol Buffers is 0x0A.
        return sentencepiece.of(data) if data[:1] == b"\n" and path.suffix != ".json" else _of_json(data, has_padding)
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be read") from None
    except MegccError as error:
        raise MegccError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _of_gguf(path: Path) -> Vocabulary | WordPieces | SentencePiece:
    metadata = read_gguf(path).metadata
    kind = metadata_value(metadata, "model", None)
    if kind not in ("bert", "t5"):
        return Vocabulary.of(metadata)
    tokens, types = metadata_list(metadata, "tokens", str), metadata_list(metadata, "token_type", int)
    if kind == "bert":
        return WordPieces.of(metadata, tokens, types)
    return sentencepiece.of_gguf(metadata, tokens, types, metadata_list(metadata, "scores", float))


def _of_json(data: bytes, has_padding: bool) -> Vocabulary | WordPieces | Unigram:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MegccError(f"no tokenizer.json: {error}") from None
    model = given.get("model") if isinstance(given, dict) else None
    if not isinstance(model, dict):
        raise MegccError("no tokenizer.json: it has no model")
    kind, normalizer, splitter = model.get("type"), given.get("normalizer"), given.get("pre_tokenizer")
    if kind not in ("BPE", "WordPiece", "Unigram"):
        raise MegccError(f"the tokenizer is {quoted(kind)}; BPE, WordPiece and Unigram are supported in a "
                         "tokenizer.json")
    vocabulary, added = model.get("vocab"), given.get("added_tokens") or []
    padding = given.get("padding")
    if not has_padding and isinstance(padding, dict) and isinstance(added, list):
        added = [entry for entry in added
                 if not isinstance(entry, dict) or entry.get("content") != padding.get("pad_token")]
    if kind == "Unigram":
        scores = unigram.scores_of(model)
        vocabulary = {token: index for index, token in enumerate(scores)}
    tokens, special = _tokens(vocabulary, added, normalizer, spaces=kind == "Unigram")
    if kind == "BPE":
        return _pairs(model, normalizer, splitter, tokens, special)
    ends = _ends(given.get("post_processor"), tokens)
    if kind == "Unigram":
        taking_space = {each["content"] for each in added if each.get("lstrip") is True}
        return unigram.of_json(model, normalizer, splitter, tokens, scores,
                               tuple((token, token in taking_space) for token, _ in special), ends)
    return wordpiece.of_json(model, normalizer, splitter, tokens, tuple(token for token, _ in special), ends)


def _pairs(model: Mapping[str, Any], normalizer: object, splitter: object, tokens: tuple[str, ...],
           special: tuple[tuple[str, bool], ...]) -> Vocabulary:
    """Returns the vocabulary of byte pair encoding, if the package tokenizers splits its text as one of those that are
    read from GGUF."""
    given, known = model.get("merges"), set(tokens) - {""}
    merges = [pair.split(" ", 1) if isinstance(pair, str) else pair
              for pair in (given if isinstance(given, list) else [])]
    if not merges or any(not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair)
                         or not known.issuperset((*pair, "".join(pair))) for pair in merges):
        raise MegccError("the tokenizer.json has no merges, or some that are no tokens")
    unknown, pieces = model.get("unk_token"), model.get("byte_fallback") is True
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise MegccError(f"the tokenizer.json has {name}, which is not supported")
    pairs = tuple((left, right) for left, right in merges)
    if pieces:
        if not isinstance(unknown, str) or unknown not in known or model.get("fuse_unk") is not True \
                or model.get("ignore_merges"):
            raise MegccError("the tokenizer.json has no token for unknown characters, or one for each of them")
        possible = [Vocabulary(pieces=True, split="", tokens=tokens, pairs=pairs, special=special,
                               unknown=tokens.index(unknown), prefix=prefix)
                    for prefix in (True, False)]
    else:
        if unknown is not None and not known.issuperset(byte_letters()):
            raise MegccError("the tokenizer.json has bytes without a token")
        kind = normalizer.get("type") if isinstance(normalizer, dict) else None
        form = str(kind) if kind in FORMS else ""
        possible = [Vocabulary(pieces=False, split=split, tokens=tokens, pairs=pairs, special=special, form=form)
                    for split in (*SPLITS, SINGLE_DIGITS[0])
                    if (split in WHOLE_WORDS) == bool(model.get("ignore_merges"))]
    for vocabulary in possible:
        if (_plain(normalizer), _plain(splitter)) == _rules_of(vocabulary):
            return vocabulary
    raise MegccError("the normalizer or pre-tokenizer of the tokenizer.json is not supported; those of GPT-2, Gemma, "
                     "Llama 2 and 3, Qwen 2 and SmolLM are")


def _rules_of(vocabulary: Vocabulary) -> tuple[object, object]:
    """Returns how text is normalized and split, as a tokenizer.json has it."""
    given = json.loads(tokenizer_of(replace(vocabulary, tokens=("<unk>",), pairs=(), special=(), unknown=0)).to_str())
    return _plain(given["normalizer"]), _plain(given["pre_tokenizer"])


def _plain(rules: object) -> object:
    """Returns rules of normalization or of a split without what does not change tokens, and with all defaults."""
    if not isinstance(rules, dict):
        return rules
    for name in ("normalizers", "pretokenizers"):
        if rules.get("type") == "Sequence" and isinstance(rules.get(name), list):
            parts = [_plain(rule) for rule in rules[name]]
            return (parts[0] if len(parts) == 1 else parts) if parts else None
    if rules.get("type") == "Split" and rules.get("pattern") == {"String": " "}:
        return None  # Gemma, whose normalizer has replaced all spaces
    defaults = {"use_regex": True} if rules.get("type") == "ByteLevel" else {}
    return defaults | {name: value for name, value in rules.items() if name != "trim_offsets"}


def _tokens(vocabulary: object, added: object, normalizer: object, spaces: bool = False
            ) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Returns the tokens by number, "" where there is none, and those that are found before anything else, with whether
    they are control tokens. spaces: whether these may take white space before them (lstrip)."""
    if not isinstance(vocabulary, dict) or not vocabulary or not isinstance(added, list):
        raise MegccError("the tokenizer.json has no vocabulary")
    numbers, special = dict(vocabulary), []
    for entry in added:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str) or not entry["content"]:
            raise MegccError("the tokenizer.json has an added token without 'content'")
        for flag in ("single_word", "lstrip", "rstrip", "normalized"):
            # without a normalizer there is no difference, except that those that are normalized are found later
            plain = flag == "normalized" and normalizer is None and entry.get(flag) is added[0].get(flag)
            taken = flag == "lstrip" and spaces and entry.get(flag) is True
            if entry.get(flag, False) is not False and not plain and not taken:
                raise MegccError(f"the added token {quoted(entry['content'])} has {flag}, which is not supported")
        numbers.setdefault(entry["content"], entry.get("id"))
        special.append((entry["content"], entry.get("special") is True))
    most = len(numbers) + _MOST_GAPS
    if any(type(number) is not int or not 0 <= number < most for number in numbers.values()):
        raise MegccError("the tokenizer.json has a token whose number is missing, negative or too large")
    found = [""] * (max(numbers.values()) + 1)
    for token, number in numbers.items():
        if found[number]:
            raise MegccError(f"two tokens of the tokenizer.json have the number {number}")
        found[number] = token
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        raise MegccError("the tokenizer.json has a token that cannot be UTF-8") from None
    return tuple(found), tuple(special)


def _ends(given: Any, tokens: tuple[str, ...]) -> tuple[int, int]:
    """Returns the tokens before and after a text, -1 for none. given: the post-processor."""
    if given is None:
        return -1, -1
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "BertProcessing":
        names = [pair[0] if isinstance(pair, list) and pair else None for pair in (given.get("cls"), given.get("sep"))]
    elif kind == "TemplateProcessing":
        names = _template(given.get("single"))
    else:
        raise MegccError("the post-processor of the tokenizer.json is not supported; BertProcessing and "
                         "TemplateProcessing are")
    if any(name is not None and name not in tokens for name in names):
        raise MegccError("the post-processor of the tokenizer.json adds a token that is not in the vocabulary")
    first, last = (-1 if name is None else tokens.index(name) for name in names)
    return first, last


def _template(single: Any) -> list[str | None]:
    """Returns the strings of the tokens before and after a text, None for none. single: the template for one text: a
    list of {"SpecialToken": {"id": token}} and, for the text, {"Sequence": {"id": "A"}}."""
    try:
        parts = [next(iter(part.items())) for part in single]
        (text,) = (index for index, (kind, _) in enumerate(parts) if kind == "Sequence")
        names = [part["id"] for _, part in parts]
        before, after = names[:text], names[text + 1:]
        assert len(before) <= 1 and len(after) <= 1 and all(isinstance(name, str) for name in names)
    except (AssertionError, AttributeError, KeyError, StopIteration, TypeError, ValueError):
        raise MegccError("the post-processor of the tokenizer.json adds more than one token before and one after "
                         "the text") from None
    return [before[0] if before else None, after[0] if after else None]
