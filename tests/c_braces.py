# SPDX-License-Identifier: Apache-2.0
"""Where C lacks braces around the bodies of `if`, `else`, `for` and `while`: the text with them, to compare with."""

from __future__ import annotations

import re

#: A simple statement that is a line by itself, or the end of one, is one token: most lines are that.
_TOKEN = re.compile(r"""
    ^(?![ \t]*(?:if|else|for|while|switch|do|case|default)\b)[^\n{}"'/;\#:]*;[ \t]*$
  | /\*.*?\*/ | //[^\n]* | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*
  | [A-Za-z_]\w* | (?:[ \t]*\n)+ | [ \t]+ | [(){}\[\];:] | [^\sA-Za-z_"'/(){}\[\];:]+ | .""",
                    re.VERBOSE | re.DOTALL | re.MULTILINE)
_HEADS = {"if", "for", "while", "switch"}
_UNBRACED = re.compile(r"\b(?:if|for|while|switch) ?\(|\belse\b")


def braced(text: str) -> str:
    """The same program with braces, on the line of what they belong to; a function's stand on lines of their own."""
    if not _UNBRACED.search(text):
        return text
    return _Printer(_TOKEN.findall(text)).text()


class _Printer:
    """Copies tokens statement by statement."""

    def __init__(self, tokens: list[str]):
        self.tokens, self.place, self.out = tokens, 0, []

    def text(self) -> str:
        while self.place < len(self.tokens):
            before = self.last()
            self.copy()
            if self.out[-1] == "{" and before == ")":
                self.block()
        return "".join(self.out)

    def last(self) -> str:
        """The last token copied that is no space."""
        return next((token for token in reversed(self.out) if not token.isspace()), "")

    def copy(self) -> str:
        self.out.append(self.tokens[self.place])
        self.place += 1
        return self.out[-1]

    def peek(self) -> tuple[str, int]:
        """The next token that the compiler sees, and where it is."""
        place = self.place
        while place < len(self.tokens) and self._is_trivia(self.tokens[place]):
            place += 1
        return (self.tokens[place] if place < len(self.tokens) else ""), place

    @staticmethod
    def _is_trivia(token: str) -> bool:
        return token.isspace() or token.startswith(("/*", "//")) or token.lstrip().startswith("#")

    def trivia(self) -> None:
        while self.place < len(self.tokens) and self._is_trivia(self.tokens[self.place]):
            self.copy()

    def block(self) -> None:
        """Statements up to the brace that closes; the one that opens is copied."""
        while self.peek()[0] not in ("}", ""):
            self.statement()
        self.trivia()
        if self.place < len(self.tokens):
            self.copy()

    def statement(self) -> None:
        self.trivia()
        token = self.peek()[0]
        if token == "{":
            self.copy()
            self.block()
        elif token in _HEADS:
            self.copy()
            self.trivia()
            self.nested()
            self.body()
            if token == "if":
                self.otherwise()
        elif token == "do":
            self.copy()
            self.body()
            self.simple()
        elif token in ("case", "default"):
            while self.copy() != ":":
                pass
        else:
            self.simple()

    def otherwise(self) -> None:
        token, place = self.peek()
        if token != "else":
            return
        if any(t.startswith(("/", "#")) for t in self.tokens[self.place:place]):
            self.trivia()
        else:
            self.out.append(" ")
            self.place = place
        self.copy()
        if self.peek()[0] == "if":
            self.statement()
        else:
            self.body()

    def body(self) -> None:
        """What a head is for, in braces."""
        token, place = self.peek()
        comments = any(t.startswith(("/", "#")) for t in self.tokens[self.place:place])
        if token == "{":
            if not comments:
                self.out.append(" ")
                self.place = place
            self.statement()
        elif token == ";":
            self.simple()
        else:
            self.out.append(" {\n")
            while self.tokens[self.place].isspace():
                self.place += 1
            self.statement()
            self.out.append("\n}")

    def nested(self) -> None:
        """A parenthesis and all in it."""
        depth = 0
        while self.place < len(self.tokens):
            depth += _depth(self.copy())
            if depth == 0:
                return

    def simple(self) -> None:
        """A statement up to its semicolon."""
        depth, start = 0, self.place
        while self.place < len(self.tokens):
            token = self.tokens[self.place]
            self.place += 1
            depth += _depth(token)
            if depth == 0 and token.endswith(";"):
                break
        self.out += self.tokens[start:self.place]


def _depth(token: str) -> int:
    """Parentheses and braces that a token opens and does not close."""
    if token.endswith(";"):
        return token.count("(") + token.count("[") - token.count(")") - token.count("]")
    return (token in ("(", "[", "{")) - (token in (")", "]", "}"))
