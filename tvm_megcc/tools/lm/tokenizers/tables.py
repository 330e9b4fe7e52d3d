# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of a tokenizer as C, for c_runtime/lm/megcc_tokenizer.c."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate

from . import normalization
from .arrays import NO_TOKEN, array, heading
from .tokenizer import SINGLE_DIGITS, SPLITS, WHOLE_WORDS, Vocabulary, tokenizers_package

#: Bits of the classes of characters, as in megcc_tokenizer.c: Unicode's categories L and N, spaces, and what the
#: package's pre-tokenizer Digits makes a word of its own.
_LETTER, _NUMBER, _SPACE, _NUMERIC = 1, 2, 4, 8
#: Code points from here on are neither letters nor numbers nor spaces in Unicode.
_LAST = 0x33500
_SURROGATES = range(0xd800, 0xe000)


def tables(name: str, vocabulary: Vocabulary) -> str:
    """Returns a C source that defines `const megcc_tokenizer NAME_tokenizer`.

    Raises:
        MissingTool: without the package tokenizers, whose classes of characters are used.
    """
    number = {token: index for index, token in enumerate(vocabulary.tokens)}
    encoded = token_bytes(vocabulary)
    merges = {(number[left], number[right]): (rank, number[left + right])
              for rank, (left, right) in enumerate(vocabulary.pairs)}
    rows = sorted(merges.items())
    merges_of_left = [0] * len(encoded)
    for (left, _), _ in rows:
        merges_of_left[left] += 1
    special = sorted({token.encode(): number[token] for token, _ in vocabulary.special}.items())
    # Tokens and ranks of merges are uint16_t where they fit, which halves the largest tables.
    wide = len(encoded) > 1 << 16 or len(vocabulary.pairs) > 1 << 16
    unit = "uint32_t" if wide else "uint16_t"
    # The arrays of the struct in megcc_tokenizer.h, in its order.
    arrays = {
        "bytes": ("uint8_t", b"".join([*encoded, *(text for text, _ in special)])),
        "text": ("uint32_t", [0, *accumulate(map(len, [*encoded, *(text for text, _ in special)]))]),
        "first": ("uint32_t", [0, *accumulate(merges_of_left)]),
        "right": (unit, [right for (_, right), _ in rows]),
        "rank": (unit, [rank for _, (rank, _) in rows]),
        "merged": (unit, [merged for _, (_, merged) in rows]),
        "byte": ("uint32_t", _bytes(vocabulary, number)),
        "word": ("uint32_t", _words(vocabulary, number, encoded)),
        "special": ("uint32_t", [token for _, token in special]),
        "class_": ("uint32_t", [0] if vocabulary.pieces else classes()),
    }
    form, normalizer = normalization.tables(
        name, [normalization.Characters(vocabulary.form)] if vocabulary.form else [])
    unknown = number[vocabulary.tokens[vocabulary.unknown]] if vocabulary.pieces else NO_TOKEN
    # The fields of the struct in megcc_tokenizer.h before its arrays, in its order.
    numbers = [len(encoded), max(map(len, encoded)), len(arrays["word"][1]), len(special), len(arrays["class_"][1]),
               f"{unknown}u", _split(vocabulary), int(wide), int(vocabulary.prefix)]
    return "\n".join([
        heading(name, "megcc_tokenizer.h"),
        *(['#include "megcc_normalizer.h"\n', *form,
           f"static const megcc_normalizer {name}_normalizer = {normalizer};\n"] if form else []),
        *(array(f"{name}_{key}", unit, values) for key, (unit, values) in arrays.items()),
        f"extern const megcc_tokenizer {name}_tokenizer;",
        f"const megcc_tokenizer {name}_tokenizer = {{",
        *(f"    {value}," for value in numbers), *(f"    {name}_{key}," for key in arrays),
        *([f"    &{name}_normalizer, megcc_normalize,"] if form else ["    NULL, NULL,"]), "};", ""])


def token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """Returns the bytes of each token in a text."""
    return _piece_bytes(vocabulary.tokens) if vocabulary.pieces else _alphabet_bytes(vocabulary.tokens)


def _split(vocabulary: Vocabulary) -> str:
    """Returns the enumerator of megcc_tokenizer.h for how the vocabulary splits a text into words."""
    if vocabulary.pieces:
        return "MEGCC_SPLIT_NONE"
    if vocabulary.split in SINGLE_DIGITS:
        return "MEGCC_SPLIT_DIGITS"
    return {"": "MEGCC_SPLIT_GPT2", SPLITS["llama-bpe"]: "MEGCC_SPLIT_LLAMA3",
            SPLITS["qwen2"]: "MEGCC_SPLIT_QWEN2"}[SPLITS[vocabulary.split]]


@cache
def byte_letters() -> dict[str, int]:
    """Returns the byte of each character of GPT-2's alphabet: printable ones of Latin-1 are themselves, the others
    follow from U+0100 on."""
    shown = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    return {chr(byte): byte for byte in shown} | {chr(256 + index): byte for index, byte in enumerate(hidden)}


def _alphabet_bytes(tokens: Iterable[str]) -> list[bytes]:
    """Returns the bytes of tokens; those of a token with a character outside the alphabet are its UTF-8."""
    known = byte_letters()
    return [bytes(map(known.__getitem__, token)) if all(letter in known for letter in token) else token.encode()
            for token in tokens]


def _byte_of_piece(token: str) -> int | None:
    """Returns the byte of a token such as "<0x0A>" of SentencePiece; None for any other token."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            pass
    return None


def _piece_bytes(tokens: Iterable[str]) -> list[bytes]:
    """Returns the bytes of SentencePiece's tokens, in which U+2581 is a space."""
    return [token.replace("▁", " ").encode() if (byte := _byte_of_piece(token)) is None else bytes([byte])
            for token in tokens]


def _bytes(vocabulary: Vocabulary, number: dict[str, int]) -> list[int]:
    """Returns the token of each byte."""
    names = [f"<0x{byte:02X}>" for byte in range(256)] if vocabulary.pieces else [
        character for character, _ in sorted(byte_letters().items(), key=lambda item: item[1])]
    return [number.get(character, NO_TOKEN) for character in names]


def _words(vocabulary: Vocabulary, number: dict[str, int], encoded: Sequence[bytes]) -> list[int]:
    """Returns tokens that are found by their text: characters of SentencePiece, or all words that need no merges."""
    if vocabulary.pieces:
        found = {token for token in number if len(token) == 1 and token != " "}
    elif vocabulary.split in WHOLE_WORDS:
        found = {token for token in number if token and all(character in byte_letters() for character in token)}
    else:
        return []
    return sorted((number[token] for token in found), key=lambda index: encoded[index])


@cache
def classes() -> list[int]:
    """Returns the classes of characters as the package tokenizers has them: for each run of characters of one class its
    first code point << 4 | bits."""
    tokenizers = tokenizers_package()
    text = "".join(chr(code) for code in range(_LAST) if code not in _SURROGATES)
    # The bits that change at each code point. U+0000 is in no class; so the splitters begin outside of their class, and
    # each further piece begins where the class begins or ends.
    borders: dict[int, int] = {0: 0}
    for bit, splitter in ((_LETTER, _split_by(r"\p{L}+")), (_NUMBER, _split_by(r"\p{N}+")), (_SPACE, _split_by(r"\s+")),
                          (_NUMERIC, tokenizers.pre_tokenizers.Digits(individual_digits=False))):
        for _, (begin, _) in splitter.pre_tokenize_str(text)[1:]:
            borders[begin] = borders.get(begin, 0) ^ bit
    bits, rows = 0, []
    for begin in sorted(borders):
        bits ^= borders[begin]
        code = begin if begin < _SURROGATES.start else begin + len(_SURROGATES)
        rows.append(code << 4 | bits)
    return rows


def _split_by(pattern: str):
    import tokenizers

    return tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
