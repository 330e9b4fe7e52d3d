# SPDX-License-Identifier: Apache-2.0
"""Adds braces around the bodies of `if`, `else`, `for` and `while` to C, so that tests find where they are missing."""

from __future__ import annotations

import re

#: A token of C. A line that is a simple statement, or the end of one, is one token, which makes most lines fast.
_TOKEN = re.compile(r"""
    ^(?![ \t]*(?:if|else|for|while|switch|do|case|default)\b)[^\n{}"'/;\#:]*;[ \t]*$
  | /\*.*?\*/ | //[^\n]* | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*
  | [A-Za-z_]\w* | (?:[ \t]*\n)+ | [ \t]+ | [(){}\[\];:] | [^\sA-Za-z_"'/(){}\[\];:]+ | .""",
                    re.VERBOSE | re.DOTALL | re.MULTILINE)
_HEADS = {"if", "for", "while", "switch"}
_UNBRACED = re.compile(r"\b(?:if|for|while|switch) ?\(|\belse\b")


def braced(text: str) -> str:
    """Returns the program with braces around all bodies. An opening brace stands at the end of its statement's line;
    that of a function has a line of its own."""
    if not _UNBRACED.search(text):
        return text
    return _Printer(_TOKEN.findall(text)).text()


class _Printer:
    """Copies tokens statement by statement. position: index of the next token. out: the tokens copied so far."""

    def __init__(self, tokens: list[str]):
        self.tokens, self.position, self.out = tokens, 0, []

    def text(self) -> str:
        while self.position < len(self.tokens):
            before = self.last()
            self.copy()
            if self.out[-1] == "{" and before == ")":
                self.block()
        return "".join(self.out)

    def last(self) -> str:
        """Returns the last copied token that is no white space."""
        return next((token for token in reversed(self.out) if not token.isspace()), "")

    def copy(self) -> str:
        self.out.append(self.tokens[self.position])
        self.position += 1
        return self.out[-1]

    def peek(self) -> tuple[str, int]:
        """Returns the next token that is no white space, comment or directive, and its index."""
        position = self.position
        while position < len(self.tokens) and self._is_trivia(self.tokens[position]):
            position += 1
        return (self.tokens[position] if position < len(self.tokens) else ""), position

    @staticmethod
    def _is_trivia(token: str) -> bool:
        return token.isspace() or token.startswith(("/*", "//")) or token.lstrip().startswith("#")

    def trivia(self) -> None:
        while self.position < len(self.tokens) and self._is_trivia(self.tokens[self.position]):
            self.copy()

    def block(self) -> None:
        """Copies statements up to the closing brace; the opening one has been copied."""
        while self.peek()[0] not in ("}", ""):
            self.statement()
        self.trivia()
        if self.position < len(self.tokens):
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
        token, position = self.peek()
        if token != "else":
            return
        if any(t.startswith(("/", "#")) for t in self.tokens[self.position:position]):
            self.trivia()
        else:
            self.out.append(" ")
            self.position = position
        self.copy()
        if self.peek()[0] == "if":
            self.statement()
        else:
            self.body()

    def body(self) -> None:
        """Copies the body of a statement such as `if`, with braces around it."""
        token, position = self.peek()
        comments = any(t.startswith(("/", "#")) for t in self.tokens[self.position:position])
        if token == "{":
            if not comments:
                self.out.append(" ")
                self.position = position
            self.statement()
        elif token == ";":
            self.simple()
        else:
            self.out.append(" {\n")
            while self.tokens[self.position].isspace():
                self.position += 1
            self.statement()
            self.out.append("\n}")

    def nested(self) -> None:
        """Copies a parenthesis with its contents."""
        depth = 0
        while self.position < len(self.tokens):
            depth += _depth(self.copy())
            if depth == 0:
                return

    def simple(self) -> None:
        """Copies a statement up to its semicolon."""
        depth, start = 0, self.position
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            self.position += 1
            depth += _depth(token)
            if depth == 0 and token.endswith(";"):
                break
        self.out += self.tokens[start:self.position]


def _depth(token: str) -> int:
    """Returns the number of parentheses and braces that a token opens, less those that it closes."""
    if token.endswith(";"):
        return token.count("(") + token.count("[") - token.count(")") - token.count("]")
    return (token in ("(", "[", "{")) - (token in (")", "]", "}"))
