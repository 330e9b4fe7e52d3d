# SPDX-License-Identifier: Apache-2.0
"""Prints `kernels.h`, which has the prototype of every kernel of a folder, and short names for linkers that cut long
ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..foreign import c_name, digest

#: Its place in the folder: beside the kernels, so that they find it whatever folders a compiler looks into.
HEADER = "kernels/kernels.h"

_TEXT = """\
/* SPDX-License-Identifier: 0BSD
 * The kernels of this folder. */
#ifndef MEGCC_KERNELS_H
#define MEGCC_KERNELS_H

#include "megcc_kernel.h"

/* Names of 31 characters, which ISO C99 promises that a linker tells apart. */
#ifdef MEGCC_SHORT_NAMES
{}#endif

{}#endif
"""
_PARAMETERS = "const megcc_call *call, int32_t begin, int32_t end, void *scratch"
#: The entry of the header for one kernel: its short name and its prototype.
_ROW = re.compile(rf"^(?:#define (\w+) \w+\n|int32_t (\w+)\(\n    {re.escape(_PARAMETERS)}\);\n)", re.MULTILINE)


def short_name(symbol: str) -> str:
    """Returns a kernel's external name where MEGCC_SHORT_NAMES is defined: 31 characters at most, distinct from all
    others."""
    return f"megcc_{digest(symbol, 12)}_{symbol[:12]}"


def kernels_header(symbols: Iterable[str]) -> str:
    """Returns the text of kernels.h for kernels of these names."""
    names = [c_name(symbol) for symbol in sorted(set(symbols))]
    prototypes = [f"int32_t {name}(\n    {_PARAMETERS});\n" for name in names]
    return _TEXT.format("".join(f"#define {name} {short_name(name)}\n" for name in names),
                        "".join([*prototypes, "\n"] if prototypes else []))


def seen_by(source: str, header: str) -> str:
    """Returns the part of kernels.h that matters to a C file: without the rows of functions that it does not name. So a
    kernel has not to be compiled again where another is new."""
    words = set(re.findall(r"\w+", source))
    return _ROW.sub(lambda found: found[0] if (found[1] or found[2]) in words else "", header)
