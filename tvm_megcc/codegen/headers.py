# SPDX-License-Identifier: Apache-2.0
"""`kernels.h`: the prototype of every kernel of a folder, which the kernels and their tables include."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..foreign import c_name

#: Its place in the folder: beside the kernels, so that they find it whatever folders a compiler looks into.
HEADER = "kernels/kernels.h"

_TEXT = """\
/* SPDX-License-Identifier: 0BSD
 * The kernels of this folder. */
#ifndef MEGCC_KERNELS_H
#define MEGCC_KERNELS_H

#include "megcc_kernel.h"

{}#endif
"""
_PARAMETERS = "const megcc_call *call, int32_t begin, int32_t end, void *scratch"
_PROTOTYPE = re.compile(rf"^int32_t (\w+)\(\n    {re.escape(_PARAMETERS)}\);\n", re.MULTILINE)


def kernels_header(symbols: Iterable[str]) -> str:
    """The text of kernels.h for kernels of these names."""
    prototypes = [f"int32_t {c_name(symbol)}(\n    {_PARAMETERS});\n" for symbol in sorted(set(symbols))]
    return _TEXT.format("".join([*prototypes, "\n"] if prototypes else []))


def seen_by(source: str, header: str) -> str:
    """What of a text of kernels.h matters to a C file: without the prototypes of functions that it does not name. So a
    kernel has not to be compiled again where another is new."""
    words = set(re.findall(r"\w+", source))
    return _PROTOTYPE.sub(lambda found: found[0] if found[1] in words else "", header)
