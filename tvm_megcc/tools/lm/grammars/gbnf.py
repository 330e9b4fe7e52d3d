# SPDX-License-Identifier: Apache-2.0
"""Reads grammars in llama.cpp's notation (GBNF), and writes them in that of the package llguidance (Lark)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ....errors import MegccError, quoted

#: The first line of a grammar for llguidance. With forcing, if only one text can follow, it would allow only the tokens
#: that a tokenizer makes of it.
OPTIONS = '%llguidance {"no_forcing": true}'
#: The deepest nesting of parentheses, and the most signs of repetition after an item.
MAX_DEPTH = 100
#: The most rules.
MAX_RULES = 10_000
#: The highest code point.
LAST_CHARACTER = 0x10ffff
#: The highest number of repetitions in braces.
MAX_REPETITIONS = 10_000

_TOKEN = re.compile(r"""(?P<space>(?:\s|\#[^\n]*)+) | (?P<rule>[A-Za-z][A-Za-z0-9_-]*)(?=\s*::=) | (?P<defined>::=)
    | (?P<name>[A-Za-z][A-Za-z0-9_-]*) | (?P<text>"(?:[^"\\\n]|\\.)*") | (?P<class>\[(?:[^\]\\]|\\.)*\])
    | \{(?P<least>\d{1,9})(?P<comma>,?)(?P<most>\d{0,9})\} | (?P<sign>[()|*+?.])""", re.VERBOSE)
_ESCAPE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.)", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}
#: A minus in a class of characters that is not escaped. Between two characters it stands for those between them.
_RANGE = "--"

#: The forms of a part of a rule and of a whole rule in a notation.
Part = TypeVar("Part")
Rule = TypeVar("Rule")
_RuleOut = TypeVar("_RuleOut", covariant=True)


class Notation(Protocol[Part, _RuleOut]):
    """A form of grammars: makes parts of rules from their own parts."""

    def string(self, string: str) -> Part:
        """A string in quotes, which may be empty."""

    def characters(self, ranges: Sequence[tuple[int, int]], negated: bool) -> Part:
        """One character of ranges of code points, both ends included, or of all others."""

    def rule(self, name: str) -> Part:
        """All strings that a rule matches."""

    def sequence(self, parts: Sequence[Part]) -> Part:
        """All parts, one after another; there is at least one."""

    def choice(self, parts: Sequence[Part]) -> Part:
        """Any of the parts; there is at least one."""

    def repeated(self, part: Part, least: int, most: int | None) -> Part:
        """A part repeated. most: None for any number."""

    def finish(self, part: Part) -> _RuleOut:
        """A rule, whose parts have all been made."""


def read_rules(text: str, notation: Notation[Part, Rule]) -> dict[str, Rule]:
    """Returns the rules of a grammar, among them `root`.

    Raises:
        MegccError: for what is no GBNF, a rule that is missing or defined twice, and what is nested too deeply.
    """
    reader = _Reader(text, notation)
    rules = reader.rules()
    if "root" not in rules:
        raise MegccError("the grammar has no rule 'root'")
    for name, user in reader.used.items():
        if name not in rules:
            raise MegccError(f"the grammar has no rule {quoted(name)}, which {quoted(user)} needs")
    return rules


def lark_of(text: str) -> str:
    """Returns a grammar in GBNF in Lark's notation; its first rule is `start`. Errors are those of `read_rules`."""
    notation = _Lark()
    rules = read_rules(text, notation)
    return "\n".join([OPTIONS, f"start: {notation.rule('root')}",
                      *(f"{notation.rule(name)}: {part}" for name, part in rules.items())]) + "\n"


class _Lark:
    """Lark's notation. The lexer of llguidance takes the longest match of a string in quotes. GBNF has no lexer, so
    each character is a string of its own: then "x" | "xy" before "y" allows both."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def string(self, string: str) -> str:
        letters = [json.dumps(letter) if letter < "\x7f" else f"/{_hex(ord(letter))}/" for letter in string]
        return "(" + (" ".join(letters) or '""') + ")"

    def characters(self, ranges: Sequence[tuple[int, int]], negated: bool) -> str:
        inside = "".join(_hex(first) if first == last else f"{_hex(first)}-{_hex(last)}" for first, last in ranges)
        return f"/[{'^' * negated}{inside}]/"

    def rule(self, name: str) -> str:
        return f"r{self._numbers.setdefault(name, len(self._numbers))}"

    def sequence(self, parts: Sequence[str]) -> str:
        return " ".join(parts)

    def choice(self, parts: Sequence[str]) -> str:
        return f"({' | '.join(parts)})" if len(parts) > 1 else parts[0]

    def repeated(self, part: str, least: int, most: int | None) -> str:
        return f"({part}){{{least},{'' if most is None else most}}}"

    def finish(self, part: str) -> str:
        return part


class _Reader(Generic[Part, Rule]):
    """Reads the rules of a grammar from left to right.

    position: the end of the next token in the text. found: the next token; None at the end. used: names of rules in
    other rules, each with one of those rules.
    """

    def __init__(self, text: str, notation: Notation[Part, Rule]):
        self.text = text
        self.notation = notation
        self.position = 0
        self.found: re.Match[str] | None = None
        self.used: dict[str, str] = {}
        self.advance()

    @property
    def kind(self) -> str:
        """The kind of the next token, or a sign itself; "" at the end."""
        if self.found is None:
            return ""
        return self.found["sign"] or ("braces" if self.found["least"] else self.found.lastgroup or "")

    def advance(self) -> None:
        """Finds the next token. Raises MegccError if the text is none."""
        self.found = None
        while self.position < len(self.text) and self.found is None:
            found = _TOKEN.match(self.text, self.position)
            if found is None:
                raise self.error(f"{quoted(self.text[self.position:self.position + 20])} is no part of a grammar")
            self.position = found.end()
            self.found = None if found["space"] else found

    def error(self, message: str) -> MegccError:
        line = self.text.count("\n", 0, self.position) + 1
        return MegccError(f"line {line} of the grammar: {message}")

    def rules(self) -> dict[str, Rule]:
        """Returns the rules by their names."""
        rules: dict[str, Rule] = {}
        while self.found is not None:
            if self.kind != "rule":
                raise self.error("a rule begins with its name and '::='")
            name = self.found["rule"]
            if name in rules:
                raise self.error(f"the rule {quoted(name)} is defined twice")
            self.advance()
            self.advance()
            if len(rules) == MAX_RULES:
                raise self.error(f"there are more than {MAX_RULES:,} rules")
            rules[name] = self.notation.finish(self.alternatives(0, name))
            if self.kind == ")":
                raise self.error("')' closes nothing")
        return rules

    def alternatives(self, depth: int, name: str) -> Part:
        """Reads alternatives up to the next rule or parenthesis. name: the rule that they are in."""
        if depth > MAX_DEPTH:
            raise self.error(f"parentheses are nested deeper than {MAX_DEPTH}")
        parts = [self.sequence(depth, name)]
        while self.kind == "|":
            self.advance()
            parts.append(self.sequence(depth, name))
        return self.notation.choice(parts)

    def sequence(self, depth: int, name: str) -> Part:
        parts: list[Part] = []
        while self.kind in ("name", "text", "class", "(", "."):
            parts.append(self.repeated(self.item(depth, name)))
        return self.notation.sequence(parts or [self.notation.string("")])

    def item(self, depth: int, name: str) -> Part:
        """Reads a text, a class of characters, the name of a rule, or what is between parentheses."""
        kind, token = self.kind, (self.found or [""])[0]
        self.advance()
        if kind == "(":
            inside = self.alternatives(depth + 1, name)
            if self.kind != ")":
                raise self.error("')' is missing")
            self.advance()
            return inside
        if kind == "name":
            self.used.setdefault(token, name)
            return self.notation.rule(token)
        if kind == ".":
            return self.notation.characters([(0, LAST_CHARACTER)], False)
        if kind == "class":
            return self.class_of(token[1:-1])
        return self.notation.string("".join(self.letters(token[1:-1])))

    def repeated(self, item: Part) -> Part:
        """Reads the signs of repetition after an item."""
        signs = 0
        while self.kind in ("*", "+", "?", "braces"):
            sign, signs = self.kind, signs + 1
            if signs > MAX_DEPTH:
                raise self.error(f"more than {MAX_DEPTH} signs of repetition follow each other")
            least, limit = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (0, 0))
            if sign == "braces" and self.found is not None:
                least, most = int(self.found["least"]), self.found["most"]
                limit = int(most) if most else None if self.found["comma"] else least   # None: {least,}
                if max(least, limit or 0) > MAX_REPETITIONS or (limit is not None and limit < least):
                    raise self.error(f"{self.found[0]} is no number of repetitions up to {MAX_REPETITIONS}")
            item = self.notation.repeated(item, least, limit)
            self.advance()
        return item

    def class_of(self, inside: str) -> Part:
        """Reads the characters between brackets."""
        negated = inside.startswith("^")
        letters = self.letters(inside[negated:], ranges=True)
        found: list[tuple[int, int]] = []
        index = 0
        while index < len(letters):
            first = last = ord(letters[index][0])   # a minus that is first or last stands for itself
            index += 1
            if index + 1 < len(letters) and letters[index] == _RANGE:
                last = ord(letters[index + 1][0])
                index += 2
            if first > last:
                raise self.error("a range of characters ends before it begins")
            found.append((first, last))
        if not found:
            raise self.error("[] has no characters")
        return self.notation.characters(found, negated)

    def letters(self, text: str, ranges: bool = False) -> list[str]:
        """Returns the characters of a text with escapes. ranges: a minus that is not escaped becomes `_RANGE`."""
        found: list[str] = []
        position = 0
        while position < len(text):
            if text[position] != "\\":
                found.append(_RANGE if ranges and text[position] == "-" else text[position])
                position += 1
                continue
            escape = _ESCAPE.match(text, position + 1)
            assert escape is not None  # the token has a character after each backslash
            number = escape[1] or escape[2] or escape[3]
            if escape[4] in ("x", "u", "U") or (number and not _is_scalar(int(number, 16))):
                raise self.error(f"{quoted(text[position:escape.end()])} is no character")
            found.append(chr(int(number, 16)) if number else _NAMED.get(escape[4], escape[4]))
            position = escape.end()
        return found


def _is_scalar(number: int) -> bool:
    return number < 0xd800 or 0xdfff < number <= LAST_CHARACTER


def _hex(code: int) -> str:
    return f"\\x{{{code:X}}}"
