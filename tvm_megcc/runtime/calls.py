# SPDX-License-Identifier: Apache-2.0
"""The largest stack of a firmware, and the memory of each of its files, from the output of the tools that built it.

gcc writes the stack and the callees of each function (-fcallgraph-info=su). A call through a pointer may call any
kernel or function of a kernel table; the runtime has no other function pointers, except callbacks of the application.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: The compiler's option, and the suffix of the file that it writes next to an object file.
FLAG, ENDING = "-fcallgraph-info=su", ".ci"
_NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "([^"]*)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', re.MULTILINE)
_STACK = re.compile(r"\\n(\d+) bytes \(([\w,]+)\)")
_INDIRECT = "__indirect_call"


@dataclass(frozen=True)
class Deepest:
    """The largest stack.

    bytes: its size.
    path: the functions of the call chain that needs it.
    unknown: library functions that are called, whose stack is not included.
    unbounded: recursive functions, and functions whose stack the compiler cannot bound.
    """

    bytes: int
    path: tuple[str, ...]
    unknown: tuple[str, ...]
    unbounded: tuple[str, ...]


@dataclass
class _Calls:
    """The call graph of a firmware.

    stack: function -> its bytes.
    calls: function -> its callees.
    pointed: functions that a call through a pointer may reach.
    unbounded: functions whose stack the compiler cannot bound.
    """

    stack: dict[str, int] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)
    pointed: set[str] = field(default_factory=set)
    unbounded: set[str] = field(default_factory=set)


def deepest(text: str, root: str = "reset") -> Deepest:
    """Returns the largest stack of a firmware. text: the concatenated call graphs of all its files. root: the function
    at which execution begins."""
    graph = _Calls()
    for title, label in _NODE.findall(text):
        stack = _STACK.search(label)
        if stack:
            graph.stack[title] = int(stack[1])
            if stack[2] == "dynamic":
                graph.unbounded.add(title)
            source = Path(label.split("\\n")[1].rpartition(":")[0].rpartition(":")[0])
            if (source.parent.name == "kernels" and ":" not in title) or source.name == "kernels.c":
                graph.pointed.add(title)
    for source, target in _EDGE.findall(text):
        graph.calls.setdefault(source, set()).add(target)
    memo: dict[str, tuple[int, tuple[str, ...]]] = {}
    unknown: set[str] = set()
    total, path = _below(root, graph, memo, unknown, ())
    return Deepest(total, path, tuple(sorted(unknown)), tuple(sorted(graph.unbounded & set(memo))))


def _below(name: str, graph: _Calls, memo: dict[str, tuple[int, tuple[str, ...]]], unknown: set[str],
           above: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Returns the stack bytes of a function with its callees, and the call chain that needs them.

    Args:
        memo: the results for functions that were visited before.
        unknown: functions without stack information; new ones are added.
        above: the call chain to the function, by which recursion is found.
    """
    if name in above:
        graph.unbounded.add(name)
        return 0, ()
    if name not in memo:
        targets = graph.calls.get(name, set())
        if _INDIRECT in targets:
            targets = (targets - {_INDIRECT}) | graph.pointed
        if name not in graph.stack:
            unknown.add(name)
        rest = max((_below(target, graph, memo, unknown, (*above, name)) for target in sorted(targets)),
                   default=(0, ()), key=lambda below: below[0])
        memo[name] = graph.stack.get(name, 0) + rest[0], (name, *rest[1])
    return memo[name]


# --- memory by file, from the linker's map --------------------------------------------------------------------------

_PLACED = re.compile(r"^ (\.[\w.$+-]+|COMMON)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s(\S+)$", re.MULTILINE)


def memory_by_file(text: str) -> Mapping[str, dict[str, int]]:
    """Returns the bytes of flash and RAM by source file: "flash" or "ram" -> file -> bytes. text: the linker's map."""
    result: dict[str, dict[str, int]] = {"flash": {}, "ram": {}}
    start = text.find("Linker script and memory map")
    for section, size, path in _PLACED.findall(text[start:]):
        kinds = _KINDS.get(section.split(".")[1] if section != "COMMON" else "bss", ())
        name = _source_of(path)
        for kind in kinds if section != ".bss.given" else ():
            result[kind][name] = result[kind].get(name, 0) + int(size, 16)
    return {kind: {name: count for name, count in sorted(files.items(), key=lambda row: (-row[1], row[0])) if count}
            for kind, files in result.items()}


#: The first word of a section's name -> the memories that it takes; initialised data takes both.
_KINDS = {"text": ("flash",), "rodata": ("flash",), "vectors": ("flash",), "data": ("flash", "ram"), "bss": ("ram",)}


def _source_of(path: str) -> str:
    """Returns the C file of an object of ours, or "library"."""
    name = Path(path).name
    match = re.fullmatch(r"(.+)-[0-9a-f]{24}\.o", name)
    return f"{match[1]}.c" if match else "library"
