# SPDX-License-Identifier: Apache-2.0
"""Reads tokenizers from files, which are not trusted: tokenizer.json of the package tokenizers, tokenizer.model of
SentencePiece, and GGUF."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import folders
from ...errors import MegccError, quoted, refused_by_system
from ...frontends.contents import is_gguf
from ...frontends.gguf.file import read as read_gguf
from . import sentencepiece, wordpiece
from .sentencepiece import SentencePiece
from .tokenizer import Vocabulary, metadata_list
from .wordpiece import WordPieces

#: Names of a tokenizer's file in a folder.
NAMES = ("tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
#: The most numbers of tokens that have no token.
_MOST_GAPS = 1 << 16


def read(path: str | Path) -> Vocabulary | WordPieces | SentencePiece:
    """Reads a tokenizer from a file, or from the one in a folder.

    Raises:
        MegccError: if there is none, it is damaged, or does what is not supported.
    """
    path = Path(path)
    if path.is_dir():
        found = next((path / name for name in NAMES if (path / name).is_file()), None)
        if found is None:
            raise MegccError(f"{path} has no tokenizer: {' or '.join(NAMES)}")
        path = found
    try:
        if is_gguf(path):
            return _of_gguf(path)
        data = folders.read(path)
        return sentencepiece.of(data) if data[:1] == b"\n" and path.suffix != ".json" else _of_json(data)
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be read") from None
    except MegccError as error:
        raise MegccError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _of_gguf(path: Path) -> Vocabulary | WordPieces:
    metadata = read_gguf(path).metadata
    if metadata.get("tokenizer.ggml.model") != "bert":
        return Vocabulary.of(metadata)
    return WordPieces.of(metadata, metadata_list(metadata, "tokens", str), metadata_list(metadata, "token_type", int))


def _of_json(data: bytes) -> Vocabulary | WordPieces:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MegccError(f"no tokenizer.json: {error}") from None
    model = given.get("model") if isinstance(given, dict) else None
    if not isinstance(model, dict):
        raise MegccError("no tokenizer.json: it has no model")
    kind = model.get("type")
    if kind != "WordPiece":
        raise MegccError(f"the tokenizer is {quoted(kind)}; WordPiece is supported in a tokenizer.json")
    tokens, special = _tokens(model.get("vocab"), given.get("added_tokens") or [])
    ends = _ends(given.get("post_processor"), tokens)
    return wordpiece.of_json(model, given.get("normalizer"), given.get("pre_tokenizer"), tokens, special, ends)


def _tokens(vocabulary: object, added: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the tokens by number, "" where there is none, and those that are found before anything else."""
    if not isinstance(vocabulary, dict) or not vocabulary or not isinstance(added, list):
        raise MegccError("the tokenizer.json has no vocabulary")
    numbers, special = dict(vocabulary), []
    for each in added:
        if not isinstance(each, dict) or not isinstance(each.get("content"), str) or not each["content"]:
            raise MegccError("the tokenizer.json has an added token without text")
        for flag in ("single_word", "lstrip", "rstrip", "normalized"):
            if each.get(flag, False) is not False:
                raise MegccError(f"the added token {quoted(each['content'])} has {flag}, which is not supported")
        numbers.setdefault(each["content"], each.get("id"))
        special.append(each["content"])
    most = len(numbers) + _MOST_GAPS
    if any(type(number) is not int or not 0 <= number < most for number in numbers.values()):
        raise MegccError("the tokenizer.json has tokens whose number is none")
    found = [""] * (max(numbers.values()) + 1)
    for token, number in numbers.items():
        if found[number]:
            raise MegccError(f"two tokens of the tokenizer.json have the number {number}")
        found[number] = token
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        raise MegccError("the tokenizer.json has a token that is no text") from None
    return tuple(found), tuple(special)


def _ends(given: Any, tokens: tuple[str, ...]) -> tuple[int, int]:
    """Returns the tokens before and after a text, -1 for none."""
    if given is None:
        return -1, -1
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "BertProcessing":
        names = [pair[0] if isinstance(pair, list) and pair else None for pair in (given.get("cls"), given.get("sep"))]
    elif kind == "TemplateProcessing":
        names = _template(given.get("single"))
    else:
        raise MegccError("the tokenizer.json completes texts otherwise than BertProcessing and TemplateProcessing")
    if any(name is not None and name not in tokens for name in names):
        raise MegccError("the tokenizer.json completes texts by tokens that are none")
    first, last = (-1 if name is None else tokens.index(name) for name in names)
    return first, last


def _template(single: Any) -> list[str | None]:
    """Returns the tokens before and after the text A."""
    try:
        parts = [next(iter(part.items())) for part in single]
        texts = [at for at, (kind, _) in enumerate(parts) if kind == "Sequence"]
        names = [part["id"] for _, part in parts]
        assert len(texts) == 1 and texts[0] <= 1 and len(parts) - texts[0] <= 2
        assert all(isinstance(name, str) for name in names)
    except (AssertionError, AttributeError, KeyError, StopIteration, TypeError):
        raise MegccError("the tokenizer.json completes texts by more than a token before and one behind") from None
    return [names[0] if texts[0] else None, names[-1] if len(parts) - texts[0] == 2 else None]
