# SPDX-License-Identifier: Apache-2.0
"""The properties that the safety profile promises of the C of a folder, each with the check that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...codegen.manifest import read_manifest
from ...runtime.calls import CallGraph
from .loops import Loop, loops
from .sources import FLAGS, Sources

#: Functions of the C library that the code may call, and a symbol of position-independent code. The compiler's own
#: library has names that begin with two _.
LIBRARY = frozenset(("memcpy", "memmove", "memset", "memcmp", "sqrt", "sqrtf", "_GLOBAL_OFFSET_TABLE_"))
#: C's integer types whose width depends on the compiler. `char` is for text only.
_NATIVE = re.compile(r"\b(int|long|short|unsigned|signed)\b")
#: Declarations of the C library's functions, which have its types.
_DECLARED = re.compile(r"\b(memset|memcmp)\(")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
#: The functions of c_runtime/src/vm.c that call kernels through the kernel table; gcc may inline each into the next.
_CALL_KERNELS = ("run_piece", "run_tasks", "run_call", "run_instruction", "megcc_session_step")
#: In the first statement of a kernel, which refuses bad arguments (codegen/c_source/render.py): its number of tasks.
_TASKS = re.compile(r"\(end > (\d+)\)")


@dataclass(frozen=True)
class Property:
    """A property of the code.

    name: what holds.
    against: what was found that contradicts it; none: it holds.
    how: the command or check that shows it.
    """

    name: str
    against: tuple[str, ...]
    how: str

    @property
    def holds(self) -> bool:
        return not self.against


def properties(sources: Sources, found_loops: list[Loop]) -> list[Property]:
    """Returns the properties of the safety profile for a compiled folder. found_loops: those of `kernel_loops`."""
    graph = CallGraph.read(sources.graph_text)
    compiler = f"{sources.compiler.command[0]} {' '.join((*sources.flags, *FLAGS))}"
    nm = f"{sources.nm} on the object files"
    recursive = sorted({name for root in graph.stack for name in graph.deepest(root).unbounded
                        if name not in graph.unbounded})
    defined = {name for _, name, kind in sources.symbols if kind != "U"}
    called = {name for _, name, kind in sources.symbols if kind == "U"} - defined - LIBRARY
    # A static function is called file:name; gcc's specialised copy of a function is called name.constprop.0 or so.
    pointers = sorted(name for name in graph.callers_of_pointers
                      if name.rpartition(":")[2].partition(".")[0] not in _CALL_KERNELS)
    return [
        Property("no dynamic memory, files and threads: no function of the C library is called but "
                 + ", ".join(sorted(LIBRARY - {"_GLOBAL_OFFSET_TABLE_"})),
                 tuple(sorted(name for name in called if not name.startswith("__"))), nm),
        Property("no arrays of variable length and no other stack of unknown size", tuple(sorted(graph.unbounded)),
                 compiler),
        Property("no recursion", tuple(recursive), f"cycles of the call graph ({FLAGS[-1]})"),
        Property("no calls through pointers but that of a kernel of the kernel table", tuple(pointers),
                 f"__indirect_call in the call graph ({FLAGS[-1]})"),
        Property("no variables that live between calls, besides those in the session's memory",
                 tuple(sorted(f"{source}: {name}" for source, name, kind in sources.symbols if kind in "dDbBC")), nm),
        Property("integers of fixed width", tuple(sorted(set(_native_integers(sources)))),
                 f"{sources.compiler.command[0]} -E, words of the folder's own lines"),
        Property("loops with constant bounds", tuple(f"{loop.place}: {loop.head}" for loop in found_loops
                                                     if loop.at_most is None),
                 "ranges of the preprocessed kernels (tvm_megcc/tools/evidence/loops.py)"),
        Property("kernels check their arguments", tuple(sorted(_unchecked(sources))),
                 "the first statement of every kernel"),
    ]


def kernels_of(sources: Sources) -> dict[str, str]:
    """Returns kernel -> its source, for the kernels of the folder's manifest that the target runs."""
    names = {call["kernel"] for model in read_manifest(sources.folder)["models"] for program in model["programs"]
             if program["target"] == sources.target.name for call in program["calls"]}
    files = {source: (sources.folder / source).read_text() for source in sources.objects
             if source.startswith("kernels/")}
    return {name: source for name in sorted(names) for source, text in files.items()
            if re.search(rf"^int32_t {re.escape(name)}\(", text, re.MULTILINE)}


def kernel_loops(sources: Sources) -> dict[str, list[Loop]]:
    """Returns kernel -> the loops that a call of it reaches, with the most iterations of each."""
    found = {}
    for kernel, source in kernels_of(sources).items():
        text = (sources.folder / source).read_text()
        found[kernel] = loops(sources.preprocessed[source], kernel, argument_ranges(text))
    return found


def argument_ranges(text: str) -> dict[str, tuple[int, int]]:
    """Returns the ranges of a kernel's arguments that its first statement checks. text: its C source."""
    tasks = _TASKS.search(text)
    return {name: (0, int(tasks[1])) for name in ("begin", "end")} if tasks else {}


def _native_integers(sources: Sources) -> Iterator[str]:
    for source in sources.preprocessed:
        for place, line in sources.own_lines(source):
            if not _DECLARED.search(line) and (word := _NATIVE.search(_STRING.sub("", line))):
                yield f"{place}: {word[0]}"


def _unchecked(sources: Sources) -> Iterator[str]:
    """Yields the kernels that do not begin with the statement that refuses bad arguments."""
    for kernel, source in kernels_of(sources).items():
        text = (sources.folder / source).read_text()
        if not re.search(rf"^int32_t {re.escape(kernel)}\([^{{]*{{\s*if \(\(call == NULL\)", text, re.MULTILINE):
            yield kernel
