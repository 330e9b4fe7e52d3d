# SPDX-License-Identifier: Apache-2.0
"""Some kernels a C file: reading the headers takes longer than compiling a kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from tvm_megcc.codegen.c_source.bind import KernelSpec
from tvm_megcc.codegen.c_source.render import render_kernel

#: Kernels in a file.
MOST = 32
#: What a kernel's text has at file scope besides its entry: functions, which are renamed where they are called, and
#: tables and types, which are renamed everywhere.
_FUNCTION = re.compile(r"^static [^(=;\[]*?(\w+)\(", re.MULTILINE)
_OTHER = re.compile(r"^(?:static const [^(=;\[]*?(\w+)\[|typedef [^{;]*?(\w+)(?: __attribute__.*)?;$|\} (\w+);$)",
                    re.MULTILINE)


def joined(specs: Sequence[KernelSpec]) -> list[str]:
    """The C files with these kernels, whose own functions, tables and types get names of their own."""
    files = []
    for _, group in groupby(sorted(specs, key=lambda spec: spec.isa.name), key=lambda spec: spec.isa.name):
        strings = [_renamed(render_kernel(spec), number) for number, spec in enumerate(group)]
        for first in range(0, len(strings), MOST):
            *before, last = strings[first:first + MOST]
            # What MGC_END ends, a header begins, which is read once.
            files.append("".join([*(re.sub("^MGC_END$", "", text, flags=re.MULTILINE) for text in before), last]))
    return files


def _renamed(text: str, number: int) -> str:
    for name in dict.fromkeys(_FUNCTION.findall(text)):
        text = re.sub(rf"(?<![\w.>]){name}(?=\()", f"{name}_of_{number}", text)
    for name in dict.fromkeys(filter(None, (name for names in _OTHER.findall(text) for name in names))):
        text = re.sub(rf"(?<![\w.>]){name}\b", f"{name}_of_{number}", text)
    return text


class Joined:
    """Of `Program` and what is one: compiles its kernels joined."""

    def strings(self, specs: list[KernelSpec]) -> list[str]:
        return joined(specs)
