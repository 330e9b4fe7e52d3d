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
# A function and a call in that file. The title of a static function is file:name.
#   node: { title: "megcc_session_run" label: "megcc_session_run\n/…/runtime/src/vm.c:243:9\n16 bytes (static)" }
#   edge: { sourcename: "megcc_session_run" targetname: "memcpy" label: "/…/runtime/src/vm.c:250:3" }
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
class CallGraph:
    """The call graph of a firmware, or of some of its files.

    stack: function -> its bytes; gcc reports 0 for a naked function. The key of a static function is "file:function".
    calls: function -> its callees.
    called_indirectly: functions that a call through a pointer may reach.
    unbounded: functions whose stack the compiler cannot bound.
    """

    stack: dict[str, int] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)
    called_indirectly: set[str] = field(default_factory=set)
    unbounded: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, text: str) -> CallGraph:
        """Returns the call graph of files. text: what the compiler wrote for each of them, one after the other."""
        graph = cls()
        for title, label in _NODE.findall(text):
            stack = _STACK.search(label)
            if stack:
                graph.stack[title] = int(stack[1])
                if stack[2] == "dynamic":
                    graph.unbounded.add(title)
                source = Path(label.split("\\n")[1].rpartition(":")[0].rpartition(":")[0])  # without line and column
                is_static = ":" in title
                if (source.parent.name == "kernels" and not is_static) or source.name == "kernels.c":
                    graph.called_indirectly.add(title)
        for source, target in _EDGE.findall(text):
            graph.calls.setdefault(source, set()).add(target)
        return graph

    @property
    def callers_of_pointers(self) -> set[str]:
        """The functions that call through a pointer."""
        return {name for name, targets in self.calls.items() if _INDIRECT in targets}

    def callees(self, name: str) -> set[str]:
        """Returns the functions that a function may call: through a pointer any of `called_indirectly`."""
        targets = self.calls.get(name, set())
        return (targets - {_INDIRECT}) | self.called_indirectly if _INDIRECT in targets else targets

    def deepest(self, root: str) -> Deepest:
        """Returns the largest stack of a function with all that it calls. `unbounded` names those of them that are
        recursive."""
        memo: dict[str, tuple[int, tuple[str, ...]]] = {}
        unknown: set[str] = set()
        recursive: set[str] = set()

        def below(name: str, above: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
            if name in above:
                recursive.add(name)
                return 0, ()
            if name not in memo:
                if name not in self.stack:
                    unknown.add(name)
                rest = max((below(target, (*above, name)) for target in sorted(self.callees(name))), default=(0, ()),
                           key=lambda found: found[0])
                memo[name] = self.stack.get(name, 0) + rest[0], (name, *rest[1])
            return memo[name]

        total, path = below(root, ())
        return Deepest(total, path, tuple(sorted(unknown)), tuple(sorted((self.unbounded & set(memo)) | recursive)))


def deepest(text: str, root: str = "reset") -> Deepest:
    """Returns the largest stack of a firmware. text: the concatenated call graphs of all its files. root: the function
    at which execution begins."""
    return CallGraph.read(text).deepest(root)


# --- memory by file, from the linker's map --------------------------------------------------------------------------

# A section of an object file: its name, address, bytes, and file, such as
#   " .text.megcc_session_run  0x00000400  0x1c /…/objects/vm-<24 hexadecimal digits of a hash>.o".
_PLACED = re.compile(r"^ (\.[\w.$+-]+|COMMON)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s(\S+)$", re.MULTILINE)


def memory_by_file(text: str) -> Mapping[str, dict[str, int]]:
    """Returns the bytes of flash and RAM by source file: "flash" or "ram" -> file -> bytes. text: the linker's map."""
    result: dict[str, dict[str, int]] = {"flash": {}, "ram": {}}
    start = text.find("Linker script and memory map")
    for section, size, path in _PLACED.findall(text[start:]):
        kinds = _KINDS.get(section.split(".")[1] if section != "COMMON" else "bss", ())
        name = _source_of(path)
        # .bss.given holds the model's inputs, which are the application's memory (templates/bundle/firmware.c.j2).
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
