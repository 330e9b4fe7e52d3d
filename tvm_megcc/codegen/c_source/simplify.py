# SPDX-License-Identifier: Apache-2.0
"""Simplifies integer arithmetic in generated C: `(C + 0) / 1 * 1` becomes `C`.

Templates are written for any number of lanes, stride and dilation, and print each as a number. Where the number is 1 or
0, some terms are neutral; this module drops them, so that templates have no cases for these numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: Comments, strings and preprocessor lines are one token each, as are names, numbers and operators.
_TOKEN = re.compile(r"""
    (?P<space>\s+) | (?P<opaque>/\*.*?\*/ | //[^\n]* | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
  | (?P<word>[A-Za-z_]\w*) | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)
  | (?P<sign>->|\+\+|--|<<=|>>=|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||.)""", re.VERBOSE | re.DOTALL)
#: A line without a match has nothing to drop, which is true for most lines. Lookbehinds test what precedes a 0 or 1
#: last, since it is more frequent than these numbers: so most positions fail at the first character or two.
_HINT = re.compile(r"""
    \ [01]\b (?<=[*/+-]\ .) (?!\.)  # x * 1, x / 1, x + 0, x - 0, but not x * 1.5
  | [01]\ [*+]\  (?<=\b....)       # 1 * x, 0 * x, 0 + x
  | \(\d+\)\ [*+]                 # (2) * x
    """, re.VERBOSE)
_TYPE = re.compile(r"(?:const|unsigned|signed|char|short|int|long|float|double|void|mgc_v|\w+_t|\*)$")
#: Tokens that bind an operand as tightly as `*` or more tightly, so that the operand does not begin a product.
_TIGHTER = ("*", "/", "%", "&", "!", "~")
#: Tokens after which an operand begins a sum.
_SUM_STARTS = ("(", "[", ",", "=", "return", "?", ":", "+=", "-=")
_KEYWORDS = {"return", "case", "sizeof", "if", "while", "for", "switch", "else", "do"}


def simplified(text: str) -> str:
    """Returns the text with neutral terms dropped, line by line; preprocessor lines are left alone."""
    return "\n".join(_simplified_line(line) if _HINT.search(line) and not line.lstrip().startswith("#") else line
                     for line in text.split("\n"))


class _Tokens:
    """The tokens of a line, each with the space before it."""

    def __init__(self, line: str):
        self.strings: list[str] = []
        self.spaces: list[str] = []
        space = ""
        for match in _TOKEN.finditer(line):
            if match.lastgroup == "space":
                space = match[0]
            else:
                self.strings.append(match[0])
                self.spaces.append(space)
                space = ""
        self.end = space

    def __str__(self) -> str:
        return "".join(a + b for a, b in zip(self.spaces, self.strings, strict=True)) + self.end

    def token(self, index: int) -> str:
        """Returns a token; "" before the first and after the last one."""
        return self.strings[index] if 0 <= index < len(self.strings) else ""

    def drop(self, start: int, end: int, leading: bool = False) -> None:
        """Removes tokens. leading: the next token gets the space before the first removed one."""
        space = self.spaces[start]
        del self.strings[start:end], self.spaces[start:end]
        if leading and start < len(self.spaces):
            self.spaces[start] = space

    def opening(self, close: int) -> int:
        """Returns the index of the matching opening parenthesis; -1 if it is on another line."""
        depth = 0
        for index in range(close, -1, -1):
            depth += (self.strings[index] == ")") - (self.strings[index] == "(")
            if depth == 0:
                return index
        return -1

    def closing(self, opening: int) -> int:
        """Returns the index of the matching closing parenthesis; -1 if it is on another line."""
        depth = 0
        for index in range(opening, len(self.strings)):
            depth += (self.strings[index] == "(") - (self.strings[index] == ")")
            if depth == 0:
                return index
        return -1

    def is_cast(self, close: int) -> bool:
        """Whether the parenthesis that closes here encloses a type."""
        opening = self.opening(close)
        type_tokens = self.strings[opening + 1:close]
        return opening >= 0 and bool(type_tokens) and all(map(_TYPE.match, type_tokens))

    def ends_operand(self, index: int) -> bool:
        """Whether the token is the last one of an operand: a name, a literal, `]`, `++`, `--`, or a `)` of no cast."""
        text = self.token(index)
        if text == ")":
            return not self.is_cast(index)
        is_word = text[:1].isalnum() or text[:1] in ("_", '"', "'")
        return text in ("]", "++", "--") or (is_word and text not in _KEYWORDS)

    def starts_operand(self, index: int) -> bool:
        """Whether the token is the first one of an operand without a sign."""
        return self.token(index)[:1].isalnum() or self.token(index)[:1] in ("_", "(", '"')

    def factor_end(self, index: int) -> int:
        """Returns the index after a factor: a name, number or parenthesis, with casts before it and without calls or
        subscripts; -1 if there is none."""
        while self.token(index) == "(" and self.is_cast(close := self.closing(index)):
            index = close + 1
        first = self.token(index)
        is_word = first[:1].isalnum() or first[:1] == "_"
        last = self.closing(index) if first == "(" else index if is_word else -1
        if last < 0:
            return -1
        has_call = any(self.token(i) == "(" and self.token(i - 1)[:1].isalnum() for i in range(index + 1, last + 1))
        return -1 if has_call or self.token(last + 1) in ("(", "[", ".", "->", "++", "--") else last + 1


@lru_cache(maxsize=1 << 14)  # kernels of one template have many lines in common
def _simplified_line(line: str) -> str:
    tokens = _Tokens(line)
    while any(_dropped(tokens, index) for index in range(len(tokens.strings))):
        pass
    return str(tokens)


def _dropped(tokens: _Tokens, i: int) -> bool:
    """Drops a neutral term at a token; returns whether there was one.

    The branches, in order: `x * 1` and `x / 1`; `x + 0` and `x - 0`; `1 * x`; `0 + x`; `0 * x`, which becomes 0; a
    redundant parenthesis. `1 * x` and `0 * x` stay at the beginning of a line (`i` is 0), since the line before may end
    with an operator that binds more tightly.
    """
    before, here, after = tokens.token(i - 1), tokens.token(i), tokens.token(i + 1)
    if here in ("*", "/") and after == "1" and tokens.ends_operand(i - 1):
        tokens.drop(i, i + 2)
    elif here in ("+", "-") and after == "0" and tokens.token(i + 2) not in ("*", "/", "%") \
            and tokens.ends_operand(i - 1):
        tokens.drop(i, i + 2)
    elif here == "1" and after == "*" and i and not tokens.ends_operand(i - 1) and before not in _TIGHTER:
        tokens.drop(i, i + 2, leading=True)
    elif here == "0" and after == "+" and before in _SUM_STARTS:
        tokens.drop(i, i + 2, leading=True)
    elif here == "0" and after == "*" and i and not tokens.ends_operand(i - 1) and before not in (*_TIGHTER, ")") \
            and (end := tokens.factor_end(i + 2)) > 0:
        tokens.drop(i + 1, end)
    elif here == "(" and not tokens.ends_operand(i - 1) and _is_bare(tokens, i):
        tokens.drop(tokens.closing(i), tokens.closing(i) + 1)
        tokens.drop(i, i + 1, leading=True)
    else:
        return False
    return True


def _is_bare(tokens: _Tokens, opening: int) -> bool:
    """Whether a parenthesis is redundant: it is not that of a call, and it encloses a name or number, or all of an
    expression after `=`, `?` or `return`."""
    close, before, first = tokens.closing(opening), tokens.token(opening - 1), tokens.token(opening + 1)
    if close < 0 or tokens.is_cast(close):
        return False
    if before in ("=", "?", "return") and tokens.token(close + 1) in (";", ":"):
        return "," not in tokens.strings[opening:close]
    is_name = first.isidentifier() and not tokens.starts_operand(close + 1)
    return close == opening + 2 and before not in _KEYWORDS and (first.isdigit() or is_name)
