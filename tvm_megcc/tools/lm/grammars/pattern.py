# SPDX-License-Identifier: Apache-2.0
"""Translates `pattern` of JSON schemas to GBNF: regular expressions as JavaScript and the package llguidance read them.
Strings are those of JSON: quotation marks, backslashes and control characters are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from string import punctuation

from ....errors import MegccError, quoted
from .gbnf import LAST_CHARACTER, MAX_REPETITIONS

#: Sorted ranges of code points that do not touch: (first, last).
Ranges = tuple[tuple[int, int], ...]

_DEEPEST = 100
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a))
#: Unicode's property White_Space.
_SPACES: Ranges = ((9, 13), (0x20, 0x20), (0x85, 0x85), (0xa0, 0xa0), (0x1680, 0x1680), (0x2000, 0x200a),
                   (0x2028, 0x2029), (0x202f, 0x202f), (0x205f, 0x205f), (0x3000, 0x3000))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11}
#: Characters that JSON escapes by a letter -> the letter.
_LETTERS = {0x22: '"', 0x5c: "\\", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t"}
#: Characters that stand for themselves after a backslash.
_SIGNS = frozenset(punctuation) - frozenset("<>")
_QUANTIFIERS = {"*": "{0,}", "+": "{1,}", "?": "{0,1}"}


def pattern_rule(pattern: object) -> str:
    """Returns the strings of JSON that a regular expression matches, without quotation marks. It may match anywhere in
    a string, unless `^` and `$` say otherwise.

    Raises:
        MegccError: if it is no regular expression, or has what is not supported.
    """
    if not isinstance(pattern, str):
        raise MegccError("the value of 'pattern' is no string")
    return _Reader(pattern).read()


class _Reader:
    """Reads a regular expression. at: the index of the next character."""

    def __init__(self, pattern: str):
        self.pattern, self.at = pattern, 0

    def read(self) -> str:
        found = []
        while True:
            begin = "" if self._take("^") else "letter*"
            parts = self._sequence(0)
            end = "" if self._take("$") else "letter*"
            found.append(" ".join((begin, *parts, end)).strip() or '""')
            if not self._take("|"):
                break
        if self.at < len(self.pattern):
            raise self._refusal(self.pattern[self.at])
        return " | ".join(found)

    def _alternatives(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise MegccError(f"the pattern has parentheses nested deeper than {_DEEPEST}")
        found = [" ".join(self._sequence(depth)) or '""']
        while self._take("|"):
            found.append(" ".join(self._sequence(depth)) or '""')
        return " | ".join(found)

    def _sequence(self, depth: int) -> list[str]:
        """Reads items up to `|`, `)`, `$` or the end."""
        found = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)$":
            item = self._item(depth)
            found.append(f"({item}){self._quantifier()}")
        return found

    def _item(self, depth: int) -> str:
        sign = self._next()
        if sign == "(":
            if self._take("?") and not self._take(":"):
                raise self._refusal(f"(?{self.pattern[self.at:self.at + 1]}")
            inner = self._alternatives(depth + 1)
            if not self._take(")"):
                raise MegccError("the pattern has a parenthesis that is not closed")
            return inner
        if sign in "*+?{^":
            raise self._refusal(sign)
        return letters(self._class() if sign == "[" else _all_but(((10, 10),)) if sign == "." else
                       self._escape() if sign == "\\" else _one(sign))

    def _quantifier(self) -> str:
        sign, found = self.pattern[self.at:self.at + 1], ""
        if sign and sign in _QUANTIFIERS:
            self.at += 1
            found = _QUANTIFIERS[sign]
        elif sign == "{":
            end = self.pattern.find("}", self.at)
            inner = self.pattern[self.at + 1:end] if end > 0 else ""
            least, comma, most = inner.partition(",")
            if not all(part.isdecimal() and part.isascii() and len(part) < 9 for part in (least, most or "0")):
                raise self._refusal("{")
            if max(int(least), int(most or 0)) > MAX_REPETITIONS or (most and int(most) < int(least)):
                raise MegccError(f"the pattern repeats {quoted(inner)} times")
            self.at = end + 1
            found = f"{{{least}{comma}{most}}}"
        if found:
            self._take("?")     # lazy: the same strings
        return found

    def _class(self) -> Ranges:
        excludes, found = self._take("^"), list[tuple[int, int]]()
        while not self._take("]"):
            first = self._class_part()
            if self.pattern[self.at:self.at + 1] == "-" and self.pattern[self.at + 1:self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._class_part()
                if len(first) > 1 or len(last) > 1 or first[0][0] != first[0][1] or last[0][0] != last[0][1] \
                        or first[0][0] > last[0][0]:
                    raise self._refusal("-")
                first = ((first[0][0], last[0][0]),)
            found += first
        if not found:
            raise self._refusal("[]")
        return _all_but(found) if excludes else _merged(found)

    def _class_part(self) -> Ranges:
        sign = self._next()
        if sign == "[" or (sign in "&-~" and self.pattern[self.at:self.at + 1] == sign):
            raise self._refusal(sign)   # sets of sets in llguidance
        return self._escape() if sign == "\\" else _one(sign)

    def _escape(self) -> Ranges:
        sign = self._next()
        if sign.lower() in _CLASSES:
            found = _CLASSES[sign.lower()]
            return found if sign.islower() else _all_but(found)
        if sign in _SIGNS:
            return _one(sign)
        if sign in _CONTROLS:
            return ((_CONTROLS[sign], _CONTROLS[sign]),)
        size = {"x": 2, "u": 4}.get(sign, 0)
        digits = self.pattern[self.at:self.at + size]
        if not size or len(digits) < size or not all(digit in "0123456789abcdefABCDEF" for digit in digits) \
                or 0xd800 <= int(digits, 16) < 0xe000:
            raise self._refusal(f"\\{sign}")
        self.at += size
        return _one(chr(int(digits, 16)))

    def _next(self) -> str:
        if self.at == len(self.pattern):
            raise MegccError("the pattern ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def _take(self, sign: str) -> bool:
        taken = self.pattern.startswith(sign, self.at)
        self.at += len(sign) if taken else 0
        return taken

    def _refusal(self, what: str) -> MegccError:
        return MegccError(f"the pattern {quoted(self.pattern)} has {quoted(what)}, which is not supported there")


def letters(ranges: Ranges) -> str:
    """Returns characters as they are in strings of JSON. Control characters may be escaped by their numbers too."""
    found = []
    plain = _all_but((*_all_but(ranges), (0, 0x1f), (0x22, 0x22), (0x5c, 0x5c), (0x7f, 0x7f)))
    if plain:
        found.append("[" + "".join(_range(first, last) for first, last in plain) + "]")
    codes = {code for first, last in ranges for code in range(first, min(last, 0x7f) + 1)}
    found += [f'"\\\\" "\\x{ord(letter):02x}"' for code, letter in _LETTERS.items() if code in codes]
    found += [f'"\\\\u00{code >> 4:x}" [{code & 15:x}{code & 15:X}]' for code in sorted(codes)
              if code < 0x20 or code == 0x7f]
    if not found:
        raise MegccError("the pattern has a class without characters")
    return " | ".join(found)


def _range(first: int, last: int) -> str:
    return f"\\U{first:08x}-\\U{last:08x}"


def _one(sign: str) -> Ranges:
    if 0xd800 <= ord(sign) < 0xe000:
        raise MegccError("the pattern has a surrogate")
    return ((ord(sign), ord(sign)),)


def _merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _all_but(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Returns all characters that are not in some ranges; surrogates are none."""
    found, begin = [], 0
    for first, last in _merged([*ranges, (0xd800, 0xdfff)]):
        if first > begin:
            found.append((begin, first - 1))
        begin = last + 1
    return (*found, (begin, LAST_CHARACTER)) if begin <= LAST_CHARACTER else tuple(found)
