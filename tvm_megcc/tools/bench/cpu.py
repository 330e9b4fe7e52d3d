# SPDX-License-Identifier: Apache-2.0
"""The CPU of this machine, by the name of its microarchitecture.

A virtual machine may hide the model name ("AMD EPYC"), but it shows family and model of CPUID (x86) or the part of
MIDR_EL1 (Arm). Times of two machines compare only if the microarchitecture is the same.
"""

from __future__ import annotations

import platform
from pathlib import Path

#: Microarchitectures of x86 by vendor, family and models (Linux: arch/x86/kernel/cpu/amd.c, asm/intel-family.h).
_X86 = {
    ("AuthenticAMD", 23): (("Zen", range(0x30)), ("Zen 2", range(0x30, 0x100))),
    ("AuthenticAMD", 25): (("Zen 3", (*range(0x10), *range(0x20, 0x60))),
                           ("Zen 4", (*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0)))),
    ("AuthenticAMD", 26): (("Zen 5", range(0x80)),),
    ("GenuineIntel", 6): (
        ("Haswell", (0x3C, 0x3F, 0x45, 0x46)), ("Broadwell", (0x3D, 0x47, 0x4F, 0x56)),
        ("Skylake", (0x4E, 0x5E, 0x8E, 0x9E)), ("Skylake-X", (0x55,)), ("Ice Lake", (0x6A, 0x6C, 0x7D, 0x7E)),
        ("Tiger Lake", (0x8C, 0x8D)), ("Alder Lake", (0x97, 0x9A)), ("Raptor Lake", (0xB7, 0xBA, 0xBF)),
        ("Sapphire Rapids", (0x8F,)), ("Emerald Rapids", (0xCF,)), ("Granite Rapids", (0xAD, 0xAE))),
}
#: Cores of Arm by the part number of MIDR_EL1 (Linux: arch/arm64/include/asm/cputype.h).
_ARM = {0xD03: "Cortex-A53", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72", 0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78",
        0xD44: "Cortex-X1", 0xD49: "Neoverse-N2", 0xD4F: "Neoverse-V2"}


def cpu_name(info: str | None = None) -> str:
    """Returns the CPU's name and microarchitecture: "AMD EPYC (Zen 4)".

    info: the text of /proc/cpuinfo (default: this machine's). Without one, and for what the tables lack, the name is
    that which the system gives.
    """
    if info is None:
        path = Path("/proc/cpuinfo")
        info = path.read_text() if path.exists() else ""
    # The first processor's lines are the last that `dict` sees, and therefore the ones it keeps.
    fields = dict((key.strip(), value.strip()) for key, _, value in
                  (line.partition(":") for line in reversed(info.splitlines())))
    name = fields.get("model name") or platform.processor() or platform.machine()
    found = _microarchitecture(fields)
    return f"{name} ({found})" if found and found not in name else name


def _microarchitecture(fields: dict[str, str]) -> str | None:
    try:
        if "CPU part" in fields:
            return _ARM.get(int(fields["CPU part"], 16))
        family, model = int(fields["cpu family"]), int(fields["model"])
    except (KeyError, ValueError):
        return None
    rows = _X86.get((fields.get("vendor_id", ""), family), ())
    return next((name for name, models in rows if model in models), None)
