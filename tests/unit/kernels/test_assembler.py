# SPDX-License-Identifier: Apache-2.0
"""Inline assembler says of its outputs when it writes them. A compiler takes outputs for written by the last
instruction: what is written before that shares a register with an input of the same value, unless it is early-clobbered
("&")."""

from __future__ import annotations

import re
from pathlib import Path

from tvm_megcc import paths

ROOT = Path(__file__).parents[3]
#: C, and templates of C.
SOURCES = sorted(path for folder in (paths.c_runtime(), ROOT / "tvm_megcc") for path in folder.rglob("*")
                 if path.name.endswith((".c", ".h", ".c.j2", ".h.j2")))
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
OUTPUT = re.compile(r'(?:\[(\w+)\]\s*)?"([^"]*)"\s*\(')


def statements(text: str) -> list[list[str]]:
    """What stands between the colons of each statement of assembler: instructions, outputs, inputs, …"""
    found = []
    for start in re.finditer(r"__asm__(?: volatile)?\s*\(", text):
        parts, depth, inside, at = [""], 1, False, start.end()
        while depth:
            character = text[at]
            inside ^= character == '"' and text[at - 1] != "\\"
            depth += 0 if inside else (character == "(") - (character == ")")
            if character == ":" and depth == 1 and not inside:
                parts.append("")
            elif depth:
                parts[-1] += character
            at += 1
        found.append(parts)
    return found


def written_early(parts: list[str]) -> list[str]:
    """The outputs that an instruction before the last names, and that may share a register with an input."""
    if len(parts) < 3 or not STRING.search(parts[2]):
        return []
    instructions = [line for line in re.split(r"\\n|\n", "".join(STRING.findall(parts[0]))) if line.strip("\\t \n")]
    if "{{ line(" in parts[0]:
        instructions = ["%[" + "] %[".join(name for name, _ in OUTPUT.findall(parts[1])) + "]", ""]
    early = " ".join(instructions[:-1])
    return [constraint for index, (name, constraint) in enumerate(OUTPUT.findall(parts[1]))
            if "&" not in constraint and re.search(rf"%\w?{index}\b|%\w?\[{name}\]", early)]


def test_what_is_found():
    found = statements('__asm__("a %0, %1\\n\\tb %0" : "+r"(x) : "r"(y)); __asm__("a %0, %1" : "=r"(x) : "r"(f(y)));')
    assert [written_early(parts) for parts in found] == [["+r"], []]
    assert not written_early(statements('__asm__("a %1\\n\\tb %0" : "=r"(x) : "r"(y))')[0])
    assert not written_early(statements('__asm__("a %0\\n\\tb %0" : "+&r"(x) : "r"(y))')[0])


def test_outputs_that_are_written_early():
    found = [(path.name, parts) for path in SOURCES for parts in statements(path.read_text())]
    assert len(found) > 60
    assert not [f"{name}: {parts[0]}" for name, parts in found if written_early(parts)]
