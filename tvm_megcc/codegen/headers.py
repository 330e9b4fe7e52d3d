# SPDX-License-Identifier: Apache-2.0
"""The headers of a generated folder. Prints `kernels.h`, with the prototype of every kernel and short names for linkers
that truncate long ones; adds settings to the runtime's first header; leaves out headers that no file includes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from ..errors import InternalError
from ..foreign import c_name, digest
from ..target import Isa

#: The path of `kernels.h` in the folder: next to the kernels, so that they find it whatever the include path is.
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
#: The folder of the runtime's headers in the generated folder.
INCLUDE = "runtime/include/"
#: The header that all sources include first, and the line in it that settings of a folder follow.
FIRST, _INCLUDE_GUARD = f"{INCLUDE}megcc_kernel.h", "#define MEGCC_KERNEL_H\n"
#: The headers that applications include.
_PUBLIC = ("megcc.h", "megcc_kernel.h", "megcc_realtime.h")
#: The name of an ISA in megcc_simd.h -> headers in simd/: the one that megcc_simd.h includes for the ISA, then those
#: that megcc_integer.h includes.
_NEON, _X86, _VNNI, _SCALAR = "neon_integer.h", "x86_integer.h", "vnni_integer.h", ("scalar.h", "lane.h")
_SIMD = {
    "sse2": ("sse2.h", _X86), "avx2": ("avx2.h", _X86), "avx2_vnni": ("avx2.h", _X86, _VNNI),
    "avx512": ("avx512.h", _X86), "avx512_vnni": ("avx512.h", _X86, _VNNI),
    **dict.fromkeys(("neon", "neon_v82", "neon_v86", "neon_armv7"), ("neon.h", _NEON)),
    **dict.fromkeys(("simd128", "relaxed_simd"), ("simd128.h", "simd128_integer.h")),
    **dict.fromkeys(("rvv", "rvv256", "rvv512"), ("rvv.h",)), "cortex_m55": ("helium.h", "lane.h", "helium_integer.h"),
    **dict.fromkeys(("cortex_m4", "cortex_m33"), (*_SCALAR, "scalar_integer.h", "dsp_integer.h", "dsp_blocks.h")),
    **dict.fromkeys(("cortex_m0", "cortex_m3", "rv32", "rv64"), (*_SCALAR, "scalar_integer.h", "pairs_integer.h"))}
_INCLUDED = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
_PARAMETERS = "const megcc_call *call, int32_t begin, int32_t end, void *scratch"
#: An entry of `kernels.h` that names a kernel: the macro of its short name (group 1) or its prototype (group 2).
_ENTRY = re.compile(rf"^(?:#define (\w+) \w+\n|int32_t (\w+)\(\n    {re.escape(_PARAMETERS)}\);\n)", re.MULTILINE)


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


def header_for(source: str, header: str) -> str:
    """Returns kernels.h as one C file needs it: without the functions that the file does not use. So its text, which is
    a part of the key of a cached object file, does not change when the folder gets another kernel.

    Args:
        source: the text of the C file.
        header: the text of kernels.h.
    """
    words = set(re.findall(r"\w+", source))
    return _ENTRY.sub(lambda found: found[0] if (found[1] or found[2]) in words else "", header)


def with_settings(header: bytes, text: str) -> bytes:
    """Returns the contents of the header `FIRST` with lines that all sources then see before any others."""
    before, found, after = header.decode().partition(_INCLUDE_GUARD)
    if not found:
        raise InternalError(f"{FIRST} has no line {_INCLUDE_GUARD}")
    return f"{before}{found}{text}{after}".encode()


def without_unneeded(files: Mapping[str, bytes], isas: Iterable[Isa]) -> dict[str, bytes]:
    """Removes headers of the runtime that neither the folder's files nor an application includes.

    Args:
        isas: the ISAs that the folder has code for.
    """
    simd = {f"{INCLUDE}simd/{name}" for isa in isas for name in _SIMD.get(isa.header or isa.name, _SCALAR)}

    def optional(name: str) -> bool:
        return name.startswith(INCLUDE) and name.removeprefix(INCLUDE) not in _PUBLIC

    needed: set[str] = set()
    waiting = [name for name in files if name.endswith((".c", ".h")) and not optional(name)]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        for included in _INCLUDED.findall(files[name].decode("utf-8", "replace")):
            sibling = str(PurePosixPath(name).parent / included)
            found = sibling if sibling in files else f"{INCLUDE}{included}"
            if found in files and found not in needed and (found in simd or "/simd/" not in found):
                waiting.append(found)
    return {name: data for name, data in files.items() if not optional(name) or name in needed}
