# SPDX-License-Identifier: Apache-2.0
"""Unigram tokenizers of a tokenizer.json, as of T5, ALBERT and XLM-RoBERTa, and their tables as C for
c_runtime/lm/megcc_unigram.c."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ....errors import MegccError, quoted
from . import normalization
from .arrays import NO_TOKEN, array, heading
from .tokenizer import tokenizers_package
from .trie import Trie

#: Where U+2581 is inserted before a word that has none: nowhere, before the first word of the text, or also before the
#: first word after each special token.
PREFIXES = ("never", "first", "always")
#: The difference between the log-probabilities of the least likely token and an unknown character: K_UNK_PENALTY in
#: the package tokenizers.
_UNKNOWN_PENALTY = 10.0
#: Absolute values of log-probabilities have this limit, so that sums over a text stay finite.
_MAX_SCORE = 1e30


@dataclass(frozen=True)
class Unigram:
    """A vocabulary of the package tokenizers' Unigram.

    tokens: strings; "" for a number without a token.
    scores: float64 log-probabilities of the first tokens, which are found in a text; the others are special.
    special: tokens that are found in a text before anything else, and whether white space before one belongs to it
        (`lstrip` of the package).
    unknown: the number of the token for characters that the vocabulary lacks.
    bytes_known: whether characters that are no tokens become tokens of their bytes.
    first, last: tokens that the network expects around a text, -1 for none.
    steps: of normalization.
    white_space_splits: whether white space is removed and separates words (WhitespaceSplit); otherwise each space
        becomes U+2581.
    prefix: one of `PREFIXES`.
    split: whether a word begins at each U+2581.
    """

    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    special: tuple[tuple[str, bool], ...]
    unknown: int
    bytes_known: bool
    first: int
    last: int
    steps: tuple[normalization.Step, ...]
    white_space_splits: bool
    prefix: str
    split: bool

    def text(self, name: str) -> str:
        """Returns a C source that defines `const megcc_unigram NAME_tokenizer`.

        Raises:
            MissingTool: without the package tokenizers, whose rules of characters are used.
        """
        number = {token: index for index, token in enumerate(self.tokens)}
        words = Trie.of({token.encode(): index for index, token in enumerate(self.tokens[:len(self.scores)])})
        special = sorted((token.encode(), number[token], int(takes)) for token, takes in dict(self.special).items())
        strings = [text for text, _, _ in special]
        values = _as_read(self.scores)
        precise = any(struct.unpack("<f", struct.pack("<f", score))[0] != score for score in values)
        scores = [score.hex() for score in values] + ["0"] * (len(self.tokens) - len(values))
        arrays = {
            "bytes": ("uint8_t", b"".join(strings)),
            "text": ("uint32_t", [0, *accumulate(map(len, strings))]),
            "score": ("float", [] if precise else [f"{score}f" if score != "0" else "0" for score in scores]),
            "precise": ("double", scores if precise else []),
            "byte": ("uint32_t", [number[f"<0x{value:02X}>"] for value in range(256)] if self.bytes_known else []),
            "special": ("uint32_t", [index for _, index, _ in special]),
            "takes_space": ("uint8_t", [takes for _, _, takes in special]),
        }
        steps, normalizer = normalization.tables(name, self.steps)
        ends = [f"{NO_TOKEN if token < 0 else token}u" for token in (self.first, self.last)]
        # The fields of the struct in megcc_unigram.h before its arrays, in its order.
        numbers = [len(self.tokens), len(special), self.unknown, *ends, PREFIXES.index(self.prefix),
                   int(self.white_space_splits), int(self.split), (min(values) - _UNKNOWN_PENALTY).hex(), normalizer]
        return "\n".join([
            heading(name, "megcc_unigram.h"), '#include "megcc_strings.h"\n', *steps, words.text(f"{name}_words"),
            *(array(f"{name}_{key}", unit, values) for key, (unit, values) in arrays.items() if values),
            f"extern const megcc_unigram {name}_tokenizer;",
            f"const megcc_unigram {name}_tokenizer = {{", *(f"    {value}," for value in numbers),
            f"    &{name}_words,",
            *(f"    {f'{name}_{key}' if values else 'NULL'}," for key, (_, values) in arrays.items()), "};", ""])


def _as_read(scores: Sequence[float]) -> list[float]:
    """Returns numbers as the package tokenizers reads them from a file, where they may differ in the last bit."""
    given = json.dumps({"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                                  "vocab": [[str(index), score] for index, score in enumerate(scores)]}})
    return [score for _, score in json.loads(tokenizers_package().Tokenizer.from_str(given).to_str())["model"]["vocab"]]


def scores_of(model: Mapping[str, object]) -> dict[str, float]:
    """Returns the tokens of a tokenizer.json in their order, and their log-probabilities.

    Raises:
        MegccError: if it has none, or some that are no text or number, or two that are equal.
    """
    given = model.get("vocab")
    if not isinstance(given, list) or not given:
        raise MegccError("the tokenizer.json has no vocabulary")
    found: dict[str, float] = {}
    for entry in given:
        if not isinstance(entry, list) or len(entry) != 2 or not normalization.is_text(entry[0]) or not entry[0] \
                or type(entry[1]) not in (int, float) or not math.isfinite(entry[1]) or abs(entry[1]) > _MAX_SCORE:
            raise MegccError(f"the tokenizer.json has a token {quoted(entry)} that is not a pair of text and "
                             "log-probability")
        if entry[0] in found:
            raise MegccError(f"two tokens of the tokenizer.json are {quoted(entry[0])}")
        found[entry[0]] = float(entry[1])
    return found


def of_json(model: Mapping[str, object], normalizer: object, splitter: object, tokens: tuple[str, ...],
            scores: Mapping[str, float], special: tuple[tuple[str, bool], ...], ends: tuple[int, int]) -> Unigram:
    """Returns the vocabulary of a tokenizer.json.

    Args:
        model, normalizer, splitter: these parts of the file.
        scores: as `scores_of` returns them.
        tokens, special, ends: as in `Unigram`.

    Raises:
        MegccError: if it does what is not supported.
    """
    unknown, bytes_known = model.get("unk_id"), model.get("byte_fallback", False)
    if type(unknown) is not int or not 0 <= unknown < len(scores):
        raise MegccError("the tokenizer.json has no token for unknown characters")
    if tokens[:len(scores)] != tuple(scores):
        raise MegccError("the tokenizer.json has an added token with the number of another one")
    # The package takes bytes for a character only if there are tokens of all its bytes. With tokens of all 256 bytes it
    # always does, and with none it never does; with only some of them, it would depend on the text.
    names = {f"<0x{value:02X}>" for value in range(256)}
    has_all, has_some = names <= set(scores), bool(names & set(scores))
    if bytes_known not in (False, True) or (bytes_known and has_some and not has_all):
        raise MegccError("the tokenizer.json has tokens of some bytes only")
    white_space_splits, prefix, split = _splits(splitter)
    first, last = ends
    return Unigram(tokens=tokens, scores=tuple(scores.values()), special=special, unknown=unknown,
                   bytes_known=bool(bytes_known) and has_all, first=first, last=last,
                   steps=normalization.of_json(normalizer), white_space_splits=white_space_splits, prefix=prefix,
                   split=split)


def _splits(given: Any) -> tuple[bool, str, bool]:
    """Returns the fields `white_space_splits`, `prefix` and `split` of `Unigram` for a pre-tokenizer: Metaspace, alone
    or after WhitespaceSplit."""
    parts = [given]
    if isinstance(given, dict) and given.get("type") == "Sequence" and isinstance(given.get("pretokenizers"), list):
        parts = given["pretokenizers"]
    kinds = [part.get("type") if isinstance(part, dict) else None for part in parts]
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise MegccError("the pre-tokenizer of a tokenizer.json with Unigram has to be Metaspace, or WhitespaceSplit "
                         "and Metaspace")
    rules, white_space_splits = parts[-1], len(parts) == 2
    prefix = rules.get("prepend_scheme", "never" if rules.get("add_prefix_space") is False else "always")
    split = rules.get("split", True)
    if rules.get("replacement") != "\u2581" or prefix not in PREFIXES or type(split) is not bool:
        raise MegccError("the Metaspace of the tokenizer.json has values that are not supported")
    if white_space_splits and (prefix != "always" or not split):
        raise MegccError("WhitespaceSplit in the tokenizer.json is supported only if all words begin with U+2581")
    return white_space_splits, prefix, split
