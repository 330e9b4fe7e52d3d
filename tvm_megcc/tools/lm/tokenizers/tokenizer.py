# SPDX-License-Identifier: Apache-2.0
"""Reads the vocabulary of a GGUF file, and builds its tokenizer with the package tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import MegccError, MissingTool, quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Parts of the expressions of Llama 3 and Qwen 2, as the tokenizer.json files of these models have them: English
#: contractions; words with one character before them; what follows a group of digits.
_APOSTROPHES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: Pre-tokenizer (tokenizer.ggml.pre) -> the regular expression that splits a text before merging, "" for GPT-2's.
SPLITS = {
    "default": "", "gpt-2": "", "phi-2": "",
    "llama-bpe": _APOSTROPHES + _WORDS + r"\p{N}{1,3}" + _REST,
    "qwen2": _APOSTROPHES + _WORDS + r"\p{N}" + _REST,
}
#: Pre-tokenizers that make each digit a word, and split the rest as GPT-2's.
SINGLE_DIGITS = ("smollm", "refact", "starcoder", "command-r")
#: Pre-tokenizers after which a word that is a token needs no merges.
WHOLE_WORDS = ("llama-bpe",)
#: Values of tokenizer.ggml.token_type, those of SentencePiece.
_CONTROL, _USER_DEFINED = 3, 4


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model, and how a text becomes tokens.

    pieces: whether tokens are SentencePiece's; otherwise they are bytes in the alphabet of GPT-2.
    split: the pre-tokenizer's name in the file; "" for pieces.
    tokens: strings; of equal ones the last is used.
    pairs: those that are merged, in this order.
    special: tokens that are found in a text before anything else, and whether each is a control token.
    unknown: the token for characters that are not in the vocabulary; -1 for bytes.
    prefix: whether a text begins with a space that is not shown.
    form: Unicode's normalization form that a text gets before it is split, as "NFC"; "" for none.
    """

    pieces: bool
    split: str
    tokens: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    special: tuple[tuple[str, bool], ...]
    unknown: int = -1
    prefix: bool = False
    form: str = ""

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> Vocabulary:
        """Reads a GGUF file's metadata.

        Raises:
            MegccError: if they describe no tokenizer, or a kind that is not supported.
        """
        tokens = metadata_list(metadata, "tokens", str)
        kind = metadata_value(metadata, "model", None)
        if kind not in ("gpt2", "llama"):
            raise MegccError(f"the tokenizer is {quoted(kind)}; gpt2 and llama are supported")
        vocabulary = cls._of_bytes(tokens, metadata) if kind == "gpt2" else cls._of_pieces(tokens, metadata)
        types = list(zip(tokens, metadata_list(metadata, "token_type", int), strict=False))
        return replace(vocabulary, special=tuple(
            (token, which == _CONTROL) for which in (_CONTROL, _USER_DEFINED)
            for token, type_ in types if type_ == which and token))

    @classmethod
    def _of_bytes(cls, tokens: Sequence[str], metadata: Mapping[str, object]) -> Vocabulary:
        split = metadata_value(metadata, "pre", "default")
        pairs, known = [tuple(pair.split(" ", 1)) for pair in metadata_list(metadata, "merges", str)], set(tokens)
        if any(len(pair) != 2 or pair[0] not in known or pair[1] not in known or "".join(pair) not in known
               for pair in pairs):
            raise MegccError("tokenizer.ggml.merges has pairs whose parts or whole are not tokens")
        if split not in SPLITS and split not in SINGLE_DIGITS:
            raise MegccError(f"the pre-tokenizer {quoted(split)} is not supported; "
                             f"{', '.join([*SPLITS, *SINGLE_DIGITS])} are supported")
        return cls(pieces=False, split=str(split), tokens=tuple(tokens), pairs=tuple(pairs), special=())

    @classmethod
    def _of_pieces(cls, tokens: Sequence[str], metadata: Mapping[str, object]) -> Vocabulary:
        """Among all pairs that form a token, the one with the best score is merged first."""
        number = {token: index for index, token in enumerate(tokens)}
        # Sorted: by descending score of the whole, then by the numbers of the parts.
        pairs = [(-score, number[token[:length]], number[token[length:]], token[:length], token[length:])
                 for token, score in zip(tokens, metadata_list(metadata, "scores", float), strict=False)
                 for length in range(1, len(token)) if token[:length] in number and token[length:] in number]
        unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
        return cls(pieces=True, split="", tokens=tuple(tokens), pairs=tuple(pair[3:] for pair in sorted(pairs)),
                   special=(), unknown=unknown if isinstance(unknown, int) and 0 <= unknown < len(tokens) else 0,
                   prefix=bool(metadata_value(metadata, "add_space_prefix", True)))


def tokenizer_of(vocabulary: Vocabulary) -> Tokenizer:
    """Returns the tokenizer of the package tokenizers."""
    tokenizers = tokenizers_package()
    tokenizer = _piece_tokenizer(vocabulary) if vocabulary.pieces else _byte_tokenizer(vocabulary)
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=special, normalized=False)
                                  for token, special in vocabulary.special])
    return tokenizer


def tokenizers_package() -> ModuleType:
    """Returns the package tokenizers.

    Raises:
        MissingTool: if it is not installed.
    """
    try:
        import tokenizers
    except ImportError:
        raise MissingTool("language models need the package tokenizers: pip install 'tvm_megcc[llm]'") from None
    return tokenizers


def metadata_value(metadata: Mapping[str, object], name: str, default: object) -> object:
    """Returns a string, number or bool of the tokenizer's metadata; `default` if it is missing.

    Raises:
        MegccError: if it is an array.
    """
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if isinstance(value, (list, np.ndarray)):
        raise MegccError(f"tokenizer.ggml.{name} is an array, not one value")
    return value


def metadata_list(metadata: Mapping[str, object], name: str, kind: type) -> list[Any]:
    """Returns an array of the tokenizer's metadata. kind: the type of its elements.

    Raises:
        MegccError: if it is missing or of another type.
    """
    value = metadata.get(f"tokenizer.ggml.{name}")
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, kind) for item in items):
        raise MegccError(f"the file has no tokenizer: tokenizer.ggml.{name} is missing, or of another kind")
    if kind is not str:
        return items
    # The GGUF reader keeps bytes that are no UTF-8 as surrogates; tokenizers takes strings of Unicode only.
    return [item.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for item in items]


def _byte_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Returns a tokenizer of byte-level BPE, as GPT-2's."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    split = vocabulary.split
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(vocabulary.tokens)},
                                     list(vocabulary.pairs), ignore_merges=split in WHOLE_WORDS))
    if split in SINGLE_DIGITS:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    elif SPLITS[split]:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(SPLITS[split]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if vocabulary.form:
        tokenizer.normalizer = getattr(normalizers, vocabulary.form)()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _piece_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Returns a tokenizer of SentencePiece's BPE. Characters without a token become bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    tokens, prefix = vocabulary.tokens, vocabulary.prefix
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, list(vocabulary.pairs),
                                     unk_token=tokens[vocabulary.unknown], fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * prefix + [normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                                          + [decoders.Strip(" ", 1, 0)] * prefix)
    return tokenizer
