# SPDX-License-Identifier: Apache-2.0
"""Normalizers of the package tokenizers: read from a tokenizer.json, which is not trusted, and printed as tables for
c_runtime/lm/megcc_normalizer.c."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ....errors import MegccError, quoted
from . import code_points
from .arrays import array
from .sentencepiece import charsmap
from .tokenizer import tokenizers_package

#: Normalizers that change each character by itself. Nmt is SentencePiece's rule for control characters and spaces.
_PER_CHARACTER = ("Lowercase", "Nmt", "StripAccents")
#: Unicode's normalization forms.
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
#: The most normalizers of a tokenizer.json, in all sequences.
_MOST_STEPS = 64


# The steps of a normalization. `fields` returns the fields of megcc_normal_step (megcc_normalizer.h) that a step has;
# `tables` adds the lengths of their arrays.


@dataclass(frozen=True)
class Characters:
    """Characters become others. name: a normalizer of the package tokenizers, one of Unicode's forms or of
    `_PER_CHARACTER`."""

    name: str

    def fields(self) -> dict[str, Any]:
        # The C code decomposes all characters of a text before it composes them, so NFC and NFKC take the table of the
        # decomposition, NFD and NFKD, and a table of pairs that compose.
        name = self.name.replace("C", "D") if self.name in FORMS else self.name
        normalizer = getattr(tokenizers_package().normalizers, name)()
        mapped = {code: text for code, text in code_points.normalized(normalizer.normalize_str)
                  if text != chr(code) and code not in code_points.HANGUL}
        letters = [text.encode() for _, text in sorted(mapped.items())]
        found: dict[str, Any] = {"kind": "MAP", "mapped": sorted(mapped), "target": [0, *accumulate(map(len, letters))],
                 "letters": b"".join(letters)}
        if self.name in FORMS:
            order = code_points.order_of_marks()
            found |= {"hangul": 1, "class_": code_points.rows(
                ((code, order.get(code, 0)) for code in range(0x110000)), shift=8)}
        if self.name != name:
            found["pair"] = [value for row in code_points.compositions() for value in row]
        return found


@dataclass(frozen=True)
class Clusters:
    """Precompiled: clusters of characters become strings, as models of SentencePiece have them.

    trie, replaced: as in `SentencePiece`.
    """

    trie: tuple[int, ...]
    replaced: bytes

    def fields(self) -> dict[str, Any]:
        return {"kind": "CLUSTERS", "class_": code_points.clusters(), "trie": self.trie, "letters": self.replaced}


@dataclass(frozen=True)
class Replaced:
    """A string becomes another one."""

    pattern: str
    by: str

    def fields(self) -> dict[str, Any]:
        strings = [self.pattern.encode(), self.by.encode()]
        return {"kind": "REPLACE", "target": [0, *accumulate(map(len, strings))], "letters": b"".join(strings)}


@dataclass(frozen=True)
class Spaces:
    """Two spaces or more become a string."""

    by: str

    def fields(self) -> dict[str, Any]:
        return {"kind": "SPACES", "target": [0, len(self.by.encode())], "letters": self.by.encode()}


@dataclass(frozen=True)
class Strip:
    """White space at the ends is removed."""

    left: bool
    right: bool

    def fields(self) -> dict[str, Any]:
        return {"kind": "STRIP", "left": int(self.left), "right": int(self.right)}


Step = Characters | Clusters | Replaced | Spaces | Strip


def tables(name: str, steps: Sequence[Step]) -> tuple[list[str], str]:
    """Returns arrays in C, and a value of `megcc_normalizer`.

    Raises:
        MissingTool: without the package tokenizers, whose rules of characters are used.
    """
    # Array -> the field with its length, for those that have one.
    lengths = {"class_": "classes", "mapped": "mappings", "pair": "pairs"}
    arrays, rows = [], []
    for index, step in enumerate(steps):
        shown = []
        for field, value in step.fields().items():
            if field == "kind":
                shown.append(f".kind = MEGCC_NORMAL_{value}")
            elif isinstance(value, int):
                shown.append(f".{field} = {value}")
            else:
                arrays.append(array(f"{name}_{field}{index}", "uint8_t" if field == "letters" else "uint32_t",
                                    value))
                shown.append(f".{field} = {name}_{field}{index}")
                if field in lengths:  # a row of `pair` has three numbers
                    shown.append(f".{lengths[field]} = {len(value) // (3 if field == 'pair' else 1)}")
        rows.append("    { " + ", ".join(shown) + " },\n")
    if not rows:
        return [], "{ 0, NULL }"
    arrays.append(f"static const megcc_normal_step {name}_step[] = {{\n{''.join(rows)}}};\n")
    return arrays, f"{{ {len(rows)}, {name}_step }}"


def of_json(given: object) -> tuple[Step, ...]:
    """Reads the normalizer of a tokenizer.json.

    Raises:
        MegccError: if it is damaged, or does what is not supported.
    """
    steps: list[Step] = []
    waiting: list[Any] = [] if given is None else [given]
    while waiting:
        rule = waiting.pop()
        kind = rule.get("type") if isinstance(rule, dict) else None
        parts = rule.get("normalizers") if kind == "Sequence" else None
        if isinstance(parts, list):
            waiting += reversed(parts)
        else:
            steps.append(_step(kind, rule))
        if len(steps) + len(waiting) > _MOST_STEPS:
            raise MegccError(f"the tokenizer.json has more than {_MOST_STEPS} normalizers")
    return tuple(steps)


def _step(kind: object, given: Any) -> Step:
    if kind in (*FORMS, *_PER_CHARACTER):
        return Characters(str(kind))
    if kind == "Strip":
        ends = given.get("strip_left"), given.get("strip_right")
        if all(isinstance(end, bool) for end in ends):
            return Strip(*ends)
    if kind == "Precompiled":
        try:
            data = base64.b64decode(given.get("precompiled_charsmap"), validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise MegccError("the tokenizer.json has a Precompiled whose bytes are no base64") from None
        trie, replaced = charsmap(data)
        if not trie:
            raise MegccError("the tokenizer.json has a Precompiled without bytes")
        return Clusters(trie, replaced)
    if kind == "Replace":
        pattern, by = given.get("pattern"), given.get("content")
        if isinstance(pattern, dict) and is_text(by):
            if pattern == {"Regex": " {2,}"}:
                return Spaces(by)
            if set(pattern) == {"String"} and is_text(pattern["String"]) and pattern["String"]:
                return Replaced(pattern["String"], by)
        raise MegccError(f"the tokenizer.json replaces {quoted(json.dumps(pattern))}; strings and ' {{2,}}' are "
                         "supported")
    raise MegccError(f"the tokenizer.json has the normalizer {quoted(kind)}, which is not supported")


def is_text(value: object) -> bool:
    """Returns whether a value is a string that UTF-8 has."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
