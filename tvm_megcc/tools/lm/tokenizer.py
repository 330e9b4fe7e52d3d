# SPDX-License-Identifier: Apache-2.0
"""Builds the tokenizer of a GGUF file with the package tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import MegccError, MissingTool, quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_APOSTROPHES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: Pre-tokenizer (tokenizer.ggml.pre) -> the regular expression that splits a text before merging, "" for GPT-2's.
SPLITS = {
    "default": "", "gpt-2": "", "phi-2": "",
    "llama-bpe": _APOSTROPHES + _WORDS + r"\p{N}{1,3}" + _REST,
    "qwen2": _APOSTROPHES + _WORDS + r"\p{N}" + _REST,
}
#: Pre-tokenizers that are GPT-2's with single digits.
_SINGLE_DIGITS = ("smollm", "refact", "starcoder", "command-r")
_CONTROL, _USER_DEFINED = 3, 4


def tokenizer_of(metadata: Mapping[str, object]) -> Tokenizer:
    """Returns the tokenizer that a file's metadata describe.

    Raises:
        MegccError: if they describe none, or a kind that is not supported.
    """
    try:
        import tokenizers
    except ImportError:
        raise MissingTool("language models need the package tokenizers: pip install 'tvm_megcc[llm]'") from None
    tokens = _list(metadata, "tokens", str)
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        made = _byte_level(tokens, metadata)
    elif kind == "llama":
        made = _sentence_piece(tokens, metadata)
    else:
        raise MegccError(f"the tokenizer is {quoted(kind)}; gpt2 and llama are supported")
    types = _list(metadata, "token_type", int)
    for which, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        made.add_special_tokens([tokenizers.AddedToken(token, special=special, normalized=False)
                                 for token, type_ in zip(tokens, types, strict=False) if type_ == which and token])
    return made


def _list(metadata: Mapping[str, object], name: str, kind: type) -> list[Any]:
    """Returns an array of the tokenizer's metadata. kind: the type of its elements.

    Raises:
        MegccError: if it is missing or of another type.
    """
    value = metadata.get(f"tokenizer.ggml.{name}")
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, kind) for item in items):
        raise MegccError(f"the file has no tokenizer: tokenizer.ggml.{name} is missing, or of another kind")
    return [item.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for item in items] if kind is str \
        else items


def _byte_level(tokens: Sequence[str], metadata: Mapping[str, object]) -> Tokenizer:
    """Returns a byte-level BPE tokenizer, as GPT-2's."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    split = metadata.get("tokenizer.ggml.pre", "default")
    pairs = [tuple(pair.split(" ", 1)) for pair in _list(metadata, "merges", str)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if any(len(pair) != 2 or pair[0] not in vocabulary or pair[1] not in vocabulary or "".join(pair) not in vocabulary
           for pair in pairs):
        raise MegccError("tokenizer.ggml.merges has pairs that are no tokens")
    made = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=split == "llama-bpe"))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if split in _SINGLE_DIGITS:
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole])
    elif SPLITS.get(str(split)):
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(SPLITS[str(split)]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    elif split in SPLITS:
        made.pre_tokenizer = whole
    else:
        raise MegccError(f"the tokenizer splits texts as {quoted(split)}; "
                         f"{', '.join([*SPLITS, *_SINGLE_DIGITS])} are supported")
    made.decoder = decoders.ByteLevel()
    return made


def _sentence_piece(tokens: Sequence[str], metadata: Mapping[str, object]) -> Tokenizer:
    """Returns SentencePiece's BPE: among all pairs that form a token, the one with the best score is merged first.
    Characters without a token become bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = _list(metadata, "scores", float)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [(-score, vocabulary[token[:at]], vocabulary[token[at:]], token[:at], token[at:])
             for token, score in zip(tokens, scores, strict=False) for at in range(1, len(token))
             if token[:at] in vocabulary and token[at:] in vocabulary]
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    unknown = tokens[unknown] if isinstance(unknown, int) and 0 <= unknown < len(tokens) else tokens[0]
    made = Tokenizer(models.BPE(vocabulary, [pair[3:] for pair in sorted(pairs)], unk_token=unknown, fuse_unk=True,
                                byte_fallback=True))
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * prefix + [normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                                     + [decoders.Strip(" ", 1, 0)] * prefix)
    return made
