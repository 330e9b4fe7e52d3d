# SPDX-License-Identifier: Apache-2.0
"""Precompiles the compiler's header of intrinsics, which takes four fifths of the time in which gcc compiles a kernel.

Object files are the same with and without a precompiled header. A user's build of a generated folder has none.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from .. import folders, paths
from ..target import ISAS
from .toolchain import Compiler

#: The headers that megcc_simd.h includes before it enables the ISA. 32-bit Arm is left out, because its header depends
#: on the enabled ISA, and Helium, because gcc 12 fails at its header after any precompiled header.
HEADER = """\
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
"""
#: Matches a kernel that includes one of these headers.
_VECTORS = re.compile("^#define MGC_ISA_({})$".format("|".join(
    isa.name.upper() for isa in ISAS.values() if isa.lanes > 1 and isa.name not in ("neon_armv7", "cortex_m55"))),
    re.MULTILINE)

_lock = Lock()
_precompiled: dict[tuple[Compiler, tuple[str, ...], Path], tuple[str, ...]] = {}


def intrinsics(compiler: Compiler, flags: Sequence[str], source: str) -> tuple[str, ...]:
    """Returns flags that include the precompiled header before the source; () if it does not help.

    Clang gets none: it reads the header three times as fast, and fails if the precompiled header is outdated, whereas
    gcc reads the header itself then.

    Args:
        flags: the flags of the compilation, without include folders.
        source: the text of the C file.
    """
    if not _VECTORS.search(source) or "clang" in compiler.version or "zig" in str(compiler):
        return ()
    relevant = tuple(flag for flag in flags if not flag.startswith("-D"))   # the header reads no macro of ours
    key = compiler, relevant, paths.cache("precompiled")
    with _lock:
        if key not in _precompiled or (_precompiled[key] and not Path(_precompiled[key][1]).exists()):
            _precompiled[key] = _make(*key)
        return _precompiled[key]


def _make(compiler: Compiler, flags: tuple[str, ...], cache: Path) -> tuple[str, ...]:
    """Precompiles the header unless that was done before. Returns the flags that include it; () if the cache is not
    writable or the compiler fails."""
    digest = hashlib.sha256(repr((str(compiler), flags, HEADER)).encode()).hexdigest()[:24]
    header = cache / digest / "intrinsics.h"
    precompiled = Path(f"{header}.gch")
    try:
        if not precompiled.exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            with folders.scratch(header.parent) as staging:
                new = staging / header.name
                new.write_text(HEADER)
                command = [*compiler.command, *flags, "-x", "c-header", str(new), "-o", f"{new}.gch"]
                if subprocess.run(command, capture_output=True, check=False).returncode:
                    return ()
                new.replace(header)
                Path(f"{new}.gch").replace(precompiled)
    except OSError:
        return ()
    return "-include", str(header)
