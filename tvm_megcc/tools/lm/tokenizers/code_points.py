# SPDX-License-Identifier: Apache-2.0
"""Properties of characters as the package tokenizers has them, found by calling it on every character, so that our
tables have its version of Unicode."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from .tokenizer import tokenizers_package

#: The code points that are examined: all up to the last characters of plane 3, tags and selectors in plane 14, and in
#: the rest those at which properties may change: the first of a plane, the first after the tags, and the two at the end
#: of a plane that are no characters. The others are unassigned or private, with the properties of the one before them.
CODES = [code for code in range(0x110000) if not 0xd800 <= code < 0xe000
         and (code < 0x33500 or 0xe0000 <= code < 0xe1000 or code & 0xffff in (0, 0x1000, 0xfffe))]
HANGUL = range(0xac00, 0xd7a4)
#: The separator of characters that are normalized in one call: a letter of Yi, which no rule changes or joins to
#: another, and which no other character becomes.
_BORDER = "\ua015"

#: Classes of characters in clusters, as in megcc_normalizer.c. It computes those of the syllables of Hangul (_PAIR and
#: _TRIPLE), so no table has them.
(OTHER, CONTROL, PREPEND, CONSONANT, PICTURE, LEAD, VOWEL, TAIL, _PAIR, _TRIPLE, SPACING, MARK, EXTEND, LINKER,
 JOINER) = range(15)


def normalized(normalize: Callable[[str], str]) -> Iterator[tuple[int, str]]:
    """Yields each code point of `CODES` with its normalized text."""
    for begin in range(0, len(CODES), 1 << 14):
        codes = [code for code in CODES[begin:begin + (1 << 14)] if code != ord(_BORDER)]
        yield from zip(codes, normalize(_BORDER.join(map(chr, codes))).split(_BORDER), strict=True)
    yield ord(_BORDER), _BORDER


def rows(classes: Iterable[tuple[int, int]], shift: int) -> list[int]:
    """Returns for each run of characters of one class its first code point << shift | class."""
    return [next(run)[0] << shift | kind for kind, run in groupby(classes, key=lambda item: item[1])]


@cache
def order_of_marks() -> dict[int, int]:
    """Returns a number for each mark that canonical decomposition reorders: marks are sorted by it, and equal ones keep
    their order. It is found by decomposing pairs: every mark with a mark of each combining class that Python knows.
    """
    sort = tokenizers_package().normalizers.NFD().normalize_str
    single = [chr(code) for code, text in normalized(sort) if text == chr(code) and code != ord(_BORDER)]

    def before(pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Returns for each pair of characters whether decomposition swaps them."""
        found = sort(_BORDER.join(f"{left}{right}" for left, right in pairs)).split(_BORDER)
        return [text == right + left and left != right for (left, right), text in zip(pairs, found, strict=True)]

    # Marks of the combining classes 1 and 240, the lowest and the highest of Unicode.
    lowest, highest = "\u0334", "\u0345"
    moves = zip(single, before([(code_point, lowest) for code_point in single]),
                before([(highest, code_point) for code_point in single]), strict=True)
    sorted_ = [code_point for code_point, *moved in moves if any(moved)]
    known = {unicodedata.combining(code_point): code_point for code_point in sorted_}  # a mark of each class
    marks = [known[key] for key in sorted(known) if key]
    found = {}
    for code_point in sorted_:
        lower, higher = (sum(before(pairs)) for pairs in ([(code_point, mark) for mark in marks],
                                                          [(mark, code_point) for mark in marks]))
        # Marks of the same class do not swap, so one of `marks` is missing in both counts if the class is known. Then
        # the number is even; it is odd for a class between two known ones.
        is_between = lower + higher == len(marks)
        found[ord(code_point)] = 2 * lower + 2 - is_between
    return found


@cache
def compositions() -> list[tuple[int, int, int]]:
    """Returns (first, second, composed) for each pair of characters that composes, sorted, without Hangul syllables."""
    normalizers = tokenizers_package().normalizers
    compose, decompose = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    split = [(code, text) for code, text in normalized(decompose) if len(text) > 1 and code not in HANGUL]
    found = []
    for code, text in split:
        first = compose(text[:-1])
        if compose(text) == chr(code) and len(first) == 1:
            found.append((ord(first), ord(text[-1]), code))
            assert len((first + text[-1]).encode()) >= len(chr(code).encode())  # they are composed in place
    return sorted(found)


@cache
def clusters() -> list[int]:
    """Returns the classes of characters in extended grapheme clusters, as `rows` with 8 bits.

    The package does not tell clusters, but its normalizer Precompiled replaces a whole cluster of fewer than 6 bytes by
    the replacement of its beginning. So a mark after a character disappears if the cluster begins with that character,
    and stays if it begins earlier.
    """
    precompiled = tokenizers_package().normalizers.Precompiled
    mark, joiner, picture = "\u0301", "\u200d", "\u00a9"
    consonant, linker = "\u0915", "\u094d"    # Devanagari
    lead, vowel, tail = "\u1100", "\u1161", "\u11a8"  # Hangul
    replace = precompiled(charsmap(dict.fromkeys(["a", picture, consonant, lead, vowel, tail], "X")))
    replace_mark = precompiled(charsmap({mark: "X"}))
    codes = [code for code in CODES if code not in (10, 13) and code not in HANGUL]

    def between(normalizer: Any, before: str, after: str) -> Iterator[tuple[int, str]]:
        """Yields what each character becomes between two strings."""
        for begin in range(0, len(codes), 1 << 14):
            part = codes[begin:begin + (1 << 14)]
            given = "\n".join(f"{before}{chr(code)}{after}" for code in part)
            yield from zip(part, normalizer.normalize_str(given).split("\n"), strict=True)

    def joined(before: str, after: str) -> set[int]:
        """Returns the characters after which `after` begins no cluster, if `before` precedes them."""
        return {code for code, text in between(replace, before, after + mark) if text.endswith(mark)}

    # Rules GB3 to GB11 of Unicode Standard Annex 29.
    follows = {code for code, text in between(replace, "a", "") if text == "X"}     # joins any character before it
    no_control = {code for code, text in between(replace_mark, "", mark + "\u0300") if not text.endswith("X")}
    prepend = joined("", "a")
    # Characters that begin a cluster differ in what joins them. A vowel joins leads too, but those are found first.
    starts = [(LEAD, joined("", lead)), (VOWEL, joined("", vowel)), (TAIL, joined("", tail)),
              (CONSONANT, joined("", linker + consonant)), (PICTURE, joined("", joiner + picture))]
    # Characters that join the one before differ in what they may stand between.
    ends = [(LINKER, joined(consonant, consonant)), (EXTEND, joined(consonant + linker, consonant)),
            (MARK, joined(picture, joiner + picture))]
    classes = {10: CONTROL, 13: CONTROL}
    for code in codes:
        if code == ord("\u200d"):
            kind = JOINER
        elif code in follows:
            kind = next((kind for kind, found in ends if code in found), SPACING)
        elif code not in no_control:
            kind = CONTROL
        elif code in prepend:
            kind = PREPEND
        else:
            kind = next((kind for kind, found in starts if code in found), OTHER)
        classes[code] = kind
    return rows(sorted(classes.items()), 8)


def charsmap(strings: dict[str, str]) -> bytes:
    """Returns replacements of strings as SentencePiece's models have them (precompiled_charsmap): the bytes of a
    double-array trie in the format of Darts-clone, and the replacements, each with a zero byte after it.

    Args:
        strings: string -> its replacement. Few of them, since each prefix of a string takes 1 KB.
    """
    texts, where = b"", {}
    for text in dict.fromkeys(strings.values()):
        where[text] = len(texts)
        texts += text.encode() + b"\0"
    blocks = {b"": 1}  # prefix -> its block of 256 units
    for key in strings:
        data = key.encode()
        for size in range(1, len(data) + 1):
            blocks.setdefault(data[:size], len(blocks) + 1)
    # A unit of Darts-clone (DoubleArrayUnit): bits 0 to 7 are the byte that leads to it, bit 8 says that a string ends
    # here, bits 10 to 30 are its own index xor that of its block. The first unit of a block is the leaf of such a
    # string: bit 31 is set, and the other bits are the offset of the replacement.
    units = [0] * (256 * (len(blocks) + 1))
    units[0] = 256 << 10
    ends = {key.encode(): where[text] for key, text in strings.items()}
    for prefix, block in blocks.items():
        if not prefix:
            continue
        row = 256 * blocks[prefix[:-1]] + prefix[-1]
        units[row] = (row ^ 256 * block) << 10 | (prefix in ends) << 8 | prefix[-1]
        if prefix in ends:
            units[256 * block] = 1 << 31 | ends[prefix]
    trie = b"".join(unit.to_bytes(4, "little") for unit in units)
    return len(trie).to_bytes(4, "little") + trie + texts
