# SPDX-License-Identifier: Apache-2.0
"""Strings of a model in generated files.

A model's author is not trusted with code: every string of a model that is printed, names above all, goes through
`printable`, `identifier` or `c_string`, and templates print nothing that could end the comment or the literal around it
(`checked`).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TypeVar

from .errors import InternalError, shortened

Printed = TypeVar("Printed")

#: The characters of a printed string: ASCII without quotes, brackets and signs that C, Make, CMake, Markdown, XML or a
#: terminal interpret, and without backslash and question mark, which form trigraphs and line splices.
_FOREIGN = re.compile(r"[^A-Za-z0-9 _.,:;+\-=()/#@%!~^*]")
_COMMENT_SIGNS = re.compile(r"(?<=[*/])(?=/)|(?<=/)(?=\*)")
#: The longest printed string, and the longest identifier without prefix and suffix.
LONGEST, LONGEST_IDENTIFIER = 160, 64


def printable(text: object, longest: int = LONGEST) -> str:
    """Returns a text for comments, tables and pictures: a line of harmless characters, shortened in the middle."""
    line = " ".join(_FOREIGN.sub("_", str(text)).split())
    return shortened(_COMMENT_SIGNS.sub(" ", line), longest) or "_"


def identifier(text: str) -> str:
    """Returns a text as a C identifier: `MobileNet-v1 (0.25)` becomes `mobilenet_v1_0_25`. Different strings may give
    the same."""
    name = re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_") or "model"
    if len(name) > LONGEST_IDENTIFIER:
        name = f"{name[:LONGEST_IDENTIFIER - 9].rstrip('_')}_{digest(text, 8)}"
    return f"m_{name}" if name[0].isdigit() else name


def digest(text: str, length: int = 6) -> str:
    """Returns some hexadecimal digits that tell strings apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def c_string(text: str) -> str:
    """Returns a text as a literal of C, which keeps every character."""
    plain = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
             for byte in text.encode("utf-8", "replace")]
    return f'"{"".join(plain)}"'


def c_name(text: str) -> str:
    """Returns the text, which has to be an identifier of C already."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise InternalError(f"'{printable(text)}' is printed where C has an identifier")
    return text


def json_string(text: str) -> str:
    """Returns a text as a literal of JSON, JavaScript and TypeScript, which keeps every character; no sign in it ends a
    comment, a literal, a fence of Markdown or an element of HTML."""
    return re.sub(r"[/*<>&`'?]", lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text))


def rust_string(text: str) -> str:
    """Returns a text as a literal of Rust, which keeps every character."""
    plain = [sign if sign.isascii() and (sign.isalnum() or sign in " _-.,:") else f"\\u{{{ord(sign):x}}}"
             for sign in text]
    return f'"{"".join(plain)}"'


#: Comments and literals from their first to their last character, which a spliced line does not hide.
_CLOSED = re.compile(r"/\*(?:(?!\*/|\\\n|\?\?).)*\*/|//(?:(?!\\\n|\?\?)[^\n])*\n"
                     r"|\"(?:[^\"\\\n?]|\\[^\n]|\?(?!\?))*\"|'(?:[^'\\\n]|\\[^\n])+'", re.DOTALL)
_OPEN = re.compile(r"\*/|/\*|//|\"|\?\?")


def checked(value: Printed) -> Printed:
    """Checks a string that a template is about to print.

    Raises:
        InternalError: for a string that begins or ends a comment or a literal without doing both, such as a model's
            name that was not made harmless.
    """
    if isinstance(value, str) and _OPEN.search(value) and (found := _OPEN.search(_CLOSED.sub(" ", value))):
        raise InternalError(f"a template prints {found[0]!r} without its counterpart in '{printable(value)}'")
    return value
