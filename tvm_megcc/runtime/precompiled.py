# SPDX-License-Identifier: Apache-2.0
"""Precompiles the compiler's header of intrinsics, which takes four fifths of the time that gcc needs for a kernel.

Object files are the same with and without it. A user's own build of a generated folder does not use it.
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

#: The headers that megcc_simd.h includes before it raises the ISA. 32-bit Arm is not here: its header depends on the
#: raised ISA. After any precompiled header gcc 12 fails at that of Helium.
HEADER = """\
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
"""
#: Matches in the text of a kernel that includes that header.
_VECTORS = re.compile("^#define MGC_ISA_({})$".format("|".join(
    isa.name.upper() for isa in ISAS.values() if isa.lanes > 1 and isa.name not in ("neon_armv7", "cortex_m55"))),
    re.MULTILINE)

_lock = Lock()
_precompiled: dict[tuple[Compiler, tuple[str, ...], Path], tuple[str, ...]] = {}


def intrinsics(compiler: Compiler, flags: Sequence[str], source: str) -> tuple[str, ...]:
    """Returns flags that include the precompiled header before anything else; () if it does not help.

    It is not used with clang, which reads the header three times as fast, and fails on an outdated precompiled header,
    where gcc falls back to the header itself.

    Args:
        flags: the flags that `source`, the text of a C file, is compiled with, except include folders.
    """
    if not _VECTORS.search(source) or "clang" in compiler.version or "zig" in str(compiler):
        return ()
    relevant = tuple(flag for flag in flags if not flag.startswith("-D"))
    key = compiler, relevant, paths.cache("precompiled")
    with _lock:
        if key not in _precompiled or (_precompiled[key] and not Path(_precompiled[key][1]).exists()):
            _precompiled[key] = _make(*key)
        return _precompiled[key]


def _make(compiler: Compiler, flags: tuple[str, ...], cache: Path) -> tuple[str, ...]:
    """Precompiles the header unless that was done before. If the cache is not writable, returns no flags."""
    digest = hashlib.sha256(repr((str(compiler), flags, HEADER)).encode()).hexdigest()[:24]
    header = cache / digest / "intrinsics.h"
    precompiled = Path(f"{header}.gch")
    try:
        if not precompiled.exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            with folders.scratch(header.parent) as aside:
                new = aside / header.name
                new.write_text(HEADER)
                command = [*compiler.command, *flags, "-x", "c-header", str(new), "-o", f"{new}.gch"]
                if subprocess.run(command, capture_output=True, check=False).returncode:
                    return ()
                new.replace(header)
                Path(f"{new}.gch").replace(precompiled)
    except OSError:
        return ()
    return "-include", str(header)
