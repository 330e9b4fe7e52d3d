# SPDX-License-Identifier: Apache-2.0
"""Translates grammars from llama.cpp's notation (GBNF) to the one of the package llguidance (Lark).

The lexer of llguidance takes the longest match of a text in quotes. GBNF has no lexer, so here each character is a text
of its own: then "x" | "xy" before "y" allows both.
"""

from __future__ import annotations

import json
import re

from ...errors import MegccError, quoted

#: The deepest nesting of parentheses, and the most signs of repetition after an item.
MAX_DEPTH = 100
#: The highest number of repetitions in braces.
MAX_REPETITIONS = 10_000

_TOKEN = re.compile(r"""(?P<space>(?:\s|\#[^\n]*)+) | (?P<rule>[A-Za-z][A-Za-z0-9_-]*)(?=\s*::=) | (?P<defined>::=)
    | (?P<name>[A-Za-z][A-Za-z0-9_-]*) | (?P<text>"(?:[^"\\\n]|\\.)*") | (?P<class>\[(?:[^\]\\]|\\.)*\])
    | \{(?P<least>\d{1,9})(?P<comma>,?)(?P<most>\d{0,9})\} | (?P<sign>[()|*+?.])""", re.VERBOSE)
_ESCAPE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.)", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}
#: A minus in a class of characters that is not escaped. Between two characters it stands for those between them.
_RANGE = "--"


def lark_of(text: str) -> str:
    """Returns the grammar in Lark's notation; its first rule is `start`.

    Raises:
        MegccError: for what is no GBNF, a rule that is missing or defined twice, and what is nested too deeply.
    """
    rules = _Reader(text).rules()
    if "root" not in rules:
        raise MegccError("the grammar has no rule 'root'")
    names = {name: f"r{number}" for number, name in enumerate(rules)}
    lines = ["%llguidance {}", f"start: {names['root']}"]
    for name, parts in rules.items():
        for part in parts:
            if part.startswith("@") and part[1:] not in rules:
                raise MegccError(f"the grammar has no rule {quoted(part[1:])}, which {quoted(name)} needs")
        lines.append(f"{names[name]}: " + " ".join(names[part[1:]] if part.startswith("@") else part for part in parts))
    return "\n".join(lines) + "\n"


class _Reader:
    """Reads the rules of a grammar from left to right.

    position: the end of the next token in the text. found: the next token; None at the end.
    """

    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.found: re.Match[str] | None = None
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

    def rules(self) -> dict[str, list[str]]:
        """Returns the parts of each rule: Lark, and names of rules after "@"."""
        rules: dict[str, list[str]] = {}
        while self.found is not None:
            if self.kind != "rule":
                raise self.error("a rule begins with its name and '::='")
            name = self.found["rule"]
            if name in rules:
                raise self.error(f"the rule {quoted(name)} is defined twice")
            self.advance()
            self.advance()
            rules[name] = self.alternatives(0)
            if self.kind == ")":
                raise self.error("')' closes nothing")
        return rules

    def alternatives(self, depth: int) -> list[str]:
        """Reads alternatives up to the next rule or parenthesis."""
        if depth > MAX_DEPTH:
            raise self.error(f"parentheses are nested deeper than {MAX_DEPTH}")
        parts = self.sequence(depth)
        while self.kind == "|":
            self.advance()
            parts += ["|", *self.sequence(depth)]
        return parts

    def sequence(self, depth: int) -> list[str]:
        parts: list[str] = []
        while self.kind in ("name", "text", "class", "(", "."):
            parts += self.repeated(self.item(depth))
        return parts or ['""']

    def item(self, depth: int) -> list[str]:
        """Reads a text, a class of characters, the name of a rule, or what is between parentheses."""
        kind, token = self.kind, (self.found or [""])[0]
        self.advance()
        if kind == "(":
            inside = self.alternatives(depth + 1)
            if self.kind != ")":
                raise self.error("')' is missing")
            self.advance()
            return ["(", *inside, ")"]
        if kind == "name":
            return [f"@{token}"]
        if kind == ".":
            return [r"/[\x{0}-\x{10FFFF}]/"]
        if kind == "class":
            return [self.class_of(token[1:-1])]
        return ["(", *([json.dumps(letter) if letter < "\x7f" else f"/{_hex(letter)}/"
                        for letter in self.letters(token[1:-1])] or ['""']), ")"]

    def repeated(self, item: list[str]) -> list[str]:
        """Reads the signs of repetition after an item."""
        signs = 0
        while self.kind in ("*", "+", "?", "braces"):
            sign, signs = self.kind, signs + 1
            if signs > MAX_DEPTH:
                raise self.error(f"more than {MAX_DEPTH} signs of repetition follow each other")
            if sign == "braces" and self.found is not None:
                least, most = int(self.found["least"]), self.found["most"]
                limit = int(most) if most else None if self.found["comma"] else least   # None: {least,}
                if max(least, limit or 0) > MAX_REPETITIONS or (limit is not None and limit < least):
                    raise self.error(f"{self.found[0]} is no number of repetitions up to {MAX_REPETITIONS}")
                sign = f"{{{least},{'' if limit is None else limit}}}"
            item = ["(", *item, ")" + sign]
            self.advance()
        return item

    def class_of(self, inside: str) -> str:
        """Returns a regular expression for the characters between brackets."""
        negated = inside.startswith("^")
        letters = self.letters(inside[negated:], ranges=True)
        parts: list[str] = []
        index = 0
        while index < len(letters):
            first = letters[index][0]   # a minus that is first or last stands for itself
            if index + 2 < len(letters) and letters[index + 1] == _RANGE:
                last = letters[index + 2][0]
                if first > last:
                    raise self.error("a range of characters ends before it begins")
                parts.append(f"{_hex(first)}-{_hex(last)}")
                index += 3
            else:
                parts.append(_hex(first))
                index += 1
        if not parts:
            raise self.error("[] has no characters")
        return f"/[{'^' * negated}{''.join(parts)}]/"

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
    return number < 0xd800 or 0xdfff < number <= 0x10ffff


def _hex(letter: str) -> str:
    return f"\\x{{{ord(letter):X}}}"
