# SPDX-License-Identifier: Apache-2.0
"""Strings of a model in generated files.

A model's author is not trusted: a name in a model must not become code. Every string of a model that is printed goes
through `printable`, `identifier` or a literal function such as `c_string`. As a second check, templates print nothing
that could end the comment or the literal around it (`checked`).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TypeVar

from .errors import InternalError, shortened

Printed = TypeVar("Printed")

#: A character that "_" replaces in printed strings. All others are ASCII, without quotes, brackets and signs that C,
#: Make, CMake, Markdown, XML or a terminal interpret, and without backslash and question mark, which form trigraphs
#: and line splices.
_FOREIGN = re.compile(r"[^A-Za-z0-9 _.,:;+\-=()/#@%!~^*]")
#: The position between the two characters that begin or end a comment.
_COMMENT_SIGNS = re.compile(r"(?<=[*/])(?=/)|(?<=/)(?=\*)")
#: The largest number of characters of a printed string, and of an identifier without prefix and suffix.
MAX_PRINTED, MAX_IDENTIFIER = 160, 64


def printable(text: object, longest: int = MAX_PRINTED) -> str:
    """Returns a text for comments, tables and pictures: one line of harmless characters, at most `longest` of them; a
    longer text is shortened in the middle."""
    line = " ".join(_FOREIGN.sub("_", str(text)).split())
    return shortened(_COMMENT_SIGNS.sub(" ", line), longest) or "_"


def identifier(text: str) -> str:
    """Returns a text as a C identifier: `MobileNet-v1 (0.25)` becomes `mobilenet_v1_0_25`. Different strings may give
    the same."""
    name = re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_") or "model"
    if len(name) > MAX_IDENTIFIER:
        name = f"{name[:MAX_IDENTIFIER - 9].rstrip('_')}_{digest(text, 8)}"
    return f"m_{name}" if name[0].isdigit() else name


def digest(text: str, length: int = 6) -> str:
    """Returns the first `length` hexadecimal digits of a string's SHA-256, which distinguish strings."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def c_string(text: str) -> str:
    """Returns a text as a string literal of C; bytes that C or a comment could interpret are octal escapes."""
    plain = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
             for byte in text.encode("utf-8", "replace")]
    return f'"{"".join(plain)}"'


def c_name(text: str) -> str:
    """Returns the text unchanged. Raises InternalError if it is no identifier of C."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise InternalError(f"'{printable(text)}' is printed where C has an identifier")
    return text


def json_string(text: str) -> str:
    """Returns a text as a string literal of JSON, JavaScript and TypeScript. Characters that could end a comment, a
    literal, a fence of Markdown or an element of HTML are escaped."""
    return re.sub(r"[/*<>&`'?]", lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text))


def rust_string(text: str) -> str:
    """Returns a text as a string literal of Rust; characters that Rust could interpret are escaped."""
    plain = [sign if sign.isascii() and (sign.isalnum() or sign in " _-.,:") else f"\\u{{{ord(sign):x}}}"
             for sign in text]
    return f'"{"".join(plain)}"'


#: A complete comment or literal, from its first to its last character, without spliced lines.
_CLOSED = re.compile(r"/\*(?:(?!\*/|\\\n|\?\?).)*\*/|//(?:(?!\\\n|\?\?)[^\n])*\n"
                     r"|\"(?:[^\"\\\n?]|\\[^\n]|\?(?!\?))*\"|'(?:[^'\\\n]|\\[^\n])+'", re.DOTALL)
#: Characters that begin or end a comment or a literal.
_OPEN = re.compile(r"\*/|/\*|//|\"|\?\?")


def checked(value: Printed) -> Printed:
    """Checks a string that a template is about to print.

    Raises:
        InternalError: for a string that begins a comment or a literal without ending it, or ends one without beginning
            it, such as a model's name that did not go through `printable`.
    """
    if isinstance(value, str) and _OPEN.search(value) and (found := _OPEN.search(_CLOSED.sub(" ", value))):
        raise InternalError(f"a template prints {found[0]!r} without its counterpart in '{printable(value)}'")
    return value
