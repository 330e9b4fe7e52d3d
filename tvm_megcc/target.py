# SPDX-License-Identifier: Apache-2.0
"""The CPUs we generate code for: one row an ISA level.

To support an ISA, add a row here and `c_runtime/include/simd/<isa>.h`. A kernel template without an override
`<algorithm>.<isa>.c.j2` is rendered for the ISA from the portable template; `fallback` says which override of a
lower level still applies.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MegccError

if TYPE_CHECKING:
    from .codegen.tuning_log import Measured


@dataclass(frozen=True)
class Isa:
    """An instruction set level.

    name: also the suffix of kernel symbols and of template overrides.
    code: MEGCC_ISA_* in megcc_kernel.h.
    lanes: float32 lanes of a vector; 1 is scalar code.
    registers: vector registers a kernel may keep live.
    alignment: bytes that weights and arena are aligned to.
    guard: preprocessor condition under which a kernel file is compiled at all.
    pragma: target string for `#pragma GCC target` where the file raises its ISA itself.
    fallback: the ISA whose template overrides apply where this one has none.
    lane_fma: multiply-add takes one lane of a vector as an operand (NEON), so activations are loaded as vectors.
    """

    name: str
    code: int
    lanes: int
    registers: int
    alignment: int
    guard: str
    pragma: str = ""
    fallback: str = ""
    lane_fma: bool = False


ISAS = {isa.name: isa for isa in (
    Isa("c", 0x00000000, 1, 16, 16, "1"),
    Isa("sse2", 0x00010001, 4, 16, 64, "defined(__x86_64__)", fallback="c"),
    Isa("avx2", 0x00010003, 8, 16, 64, "defined(__x86_64__)", "avx2,fma", fallback="sse2"),
    Isa("avx512", 0x00010004, 16, 32, 64, "defined(__x86_64__)",
        "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512", fallback="avx2"),
    Isa("neon", 0x00020001, 4, 32, 16, "defined(__aarch64__)", fallback="c", lane_fma=True),
    Isa("cortex_m4", 0x00050001, 1, 32, 16, "defined(__ARM_ARCH_7EM__)", fallback="c"),
)}


@dataclass(frozen=True)
class Target:
    """A CPU as the user names it.

    triples: prefixes of cross compilers, first found is used; empty: the host's own compiler.
    zig: target for `zig cc`; march: flags every file of the build gets.
    qemu: the user-mode emulator; l1, l2: data cache bytes that blocking is chosen for.
    measured: times of kernels on this CPU, from a tuning log; None: costs are guesses.
    """

    name: str
    isa: Isa
    machine: str
    description: str
    triples: tuple[str, ...] = ()
    zig: str = ""
    cflags: tuple[str, ...] = ()
    qemu: str = ""
    bare_metal: bool = False
    l1: int = 32 << 10
    l2: int = 256 << 10
    measured: Measured | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


TARGETS = {target.name: target for target in (
    Target("c", ISAS["c"], "any", "portable C99, no SIMD; any CPU"),
    Target("x86-64", ISAS["sse2"], "x86_64", "any 64-bit x86 (SSE2)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", qemu="qemu-x86_64"),
    Target("x86-64-v3", ISAS["avx2"], "x86_64", "x86 with AVX2 and FMA (Haswell, Zen, 2013 on)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", qemu="qemu-x86_64", l1=32 << 10, l2=512 << 10),
    Target("x86-64-v4", ISAS["avx512"], "x86_64", "x86 with AVX-512 (Skylake-X, Ice Lake, Zen 4 on)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", qemu="qemu-x86_64", l1=32 << 10, l2=1 << 20),
    Target("arm64", ISAS["neon"], "aarch64", "64-bit Arm with NEON (armv8.0 and later)",
           ("aarch64-linux-gnu-", "aarch64-linux-musl-"), "aarch64-linux-musl", qemu="qemu-aarch64"),
    Target("cortex-m4", ISAS["cortex_m4"], "arm", "Cortex-M4F microcontrollers, bare metal",
           ("arm-none-eabi-",), "thumb-freestanding-eabihf",
           ("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
           qemu="qemu-system-arm", bare_metal=True, l1=0, l2=0),
)}


def parse_targets(text: str) -> tuple[Target, ...]:
    """`"native,arm64"` as targets, best ISA level of a machine first.

    Raises:
        MegccError: for a name that is not in the table.
    """
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        name = name.removeprefix("megcc-")
        target = native() if name == "native" else TARGETS.get(name)
        if target is None:
            raise MegccError(f"unknown target '{name}'; one of: native, {', '.join(TARGETS)}")
        if target not in found:
            found.append(target)
    if not found:
        raise MegccError("no target given; 'megcc list targets' shows them")
    return tuple(sorted(found, key=lambda target: -target.isa.code))


def native() -> Target:
    """The best target for the machine we run on."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return TARGETS["arm64"]
    if machine in ("x86_64", "amd64"):
        flags = _cpu_flags()
        if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
            return TARGETS["x86-64-v4"]
        if {"avx2", "fma"} <= flags:
            return TARGETS["x86-64-v3"]
        return TARGETS["x86-64"]
    return TARGETS["c"]


def _cpu_flags() -> set[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return set()
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()
