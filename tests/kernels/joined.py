# SPDX-License-Identifier: Apache-2.0
"""Several kernels in one C file: reading the headers takes longer than compiling a kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tvm_megcc.codegen.c_source.bind import KernelSpec
from tvm_megcc.codegen.c_source.render import render_kernel

#: The most kernels in a file.
MOST = 32
#: What a kernel's text has at file scope besides its entry: functions, which are renamed where they are called, and
#: tables and types, which are renamed everywhere.
_FUNCTION = re.compile(r"^static [^(=;\[]*?(\w+)\(", re.MULTILINE)
_OTHER = re.compile(r"^(?:static const [^(=;\[]*?(\w+)\[|typedef [^{;]*?(\w+)(?: __attribute__.*)?;$|\} (\w+);$|"
                    r"enum \{ (\w+) = [^,]*\};$|typedef struct \{[^{}\n]*\} (\w+);$)",
                    re.MULTILINE)
#: A function of the caller's (`--extern`), which a file declares once.
_FOREIGN = re.compile(r"^(?!static|typedef|\s|#)[^;{}]*\);$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^#(?:include|define MGC_ISA_).*$", re.MULTILINE)


def joined(specs: Sequence[KernelSpec]) -> list[str]:
    """Returns the C files of these kernels, whose own functions, tables and types get names of their own.

    Only kernels that include the same headers share a file, so that a missing include stays an error.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for number, spec in enumerate(specs):
        text = _renamed(render_kernel(spec), number)
        alone = (str(number),) if _FOREIGN.search(text) else ()
        groups.setdefault((*_DIRECTIVE.findall(text), *alone), []).append(text)
    files = []
    for texts in groups.values():
        for first in range(0, len(texts), MOST):
            *before, last = texts[first:first + MOST]
            # What MGC_END ends, a header begins, which is read once.
            files.append("".join([*(re.sub("^MGC_END$", "", text, flags=re.MULTILINE) for text in before), last]))
    return files


def _renamed(text: str, number: int) -> str:
    functions = set(_FUNCTION.findall(text))
    others = {name for found in _OTHER.findall(text) for name in found if name}
    return re.sub(r"(?<![\w.>])[A-Za-z_]\w*", lambda word: f"{word[0]}_of_{number}" if word[0] in others or (
        word[0] in functions and text.startswith("(", word.end())) else word[0], text)
