# SPDX-License-Identifier: Apache-2.0
"""OpenVINO on a CPU that says it has no AVX-512, on x86-64 Linux:

    megcc bench MODEL --target x86-64-v3 --against openvino_avx2=benchmarks/openvino_avx2.py

ONEDNN_MAX_CPU_ISA=AVX2 limits its convolutions, but not its matrix products: transformers then run faster than AVX2 can
multiply. Here each `cpuid` in a copy of the package, two bytes, is replaced by `ud2`, an illegal instruction of two
bytes, and a signal handler gives the CPU's answer without AVX-512 and AMX. Libraries ask once, when they start, so
times are those of the library's own code for AVX2. It needs binutils and a C compiler.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import peers  # tvm_megcc/tools/bench/peers.py, which loads this file

HANDLER = r"""
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

static void answer(int signal, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX];
    unsigned a, b, c, d;
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        b &= ~0xDC230000u;      /* AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL */
        c &= ~0x00005842u;      /* AVX-512 VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
        d &= ~0x03C0010Cu;      /* AVX-512 4VNNIW, 4FMAPS, VP2INTERSECT, FP16; AMX */
    } else if (leaf == 7 && part == 1) {
        a &= ~0x00200030u;      /* AVX-VNNI, AVX-512 BF16, AMX FP16 */
    }
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
    (void)signal, (void)info;
}

void hide(void)
{
    const struct sigaction action = { .sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(SIGILL, &action, 0);
}
"""
CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"
#: Its plugins for other devices are not needed.
ELSEWHERE = shutil.ignore_patterns("libopenvino_intel_[gn]pu*", "cache.json")


class Engine(peers.OpenVino):
    limits = {"x86-64-v3": {}}

    def __init__(self, job):
        super().__init__(job)
        # One copy for all models.
        self.folder = Path(job.cache).parent / f"openvino-avx2-{self.version}"

    def convert(self, folder):
        package = Path(importlib.util.find_spec("openvino").origin).parent
        shutil.copytree(package, folder / "openvino", ignore=ELSEWHERE)
        for library in sorted((folder / "openvino" / "libs").glob("*.so*")):
            ask_handler(library)
        (folder / "handler.c").write_text(HANDLER)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "handler.c", "-o", "handler.so"], cwd=folder, check=True)

    @property
    def module(self):
        """The name of the package, after making the copy the one that it imports."""
        if str(self.folder) not in sys.path:
            ctypes.CDLL(str(self.folder / "handler.so")).hide()
            sys.path.insert(0, str(self.folder))
        return "openvino"


def ask_handler(library: Path) -> None:
    """Replaces each cpuid of the code, as the disassembler sees it, by ud2."""
    sections = []
    for line in run("objdump", "-h", library):
        if found := re.match(r"\s*\d+ (\S+)\s+(\w+)\s+(\w+)\s+\w+\s+(\w+)", line):
            sections.append([int(number, 16) for number in found.groups()[1:]])
    data = bytearray(library.read_bytes())
    for line in run("objdump", "-d", "--no-show-raw-insn", library):
        if not line.rstrip().endswith("cpuid"):
            continue
        address = int(line.split(":")[0], 16)
        place = next(address - start + offset for size, start, offset in sections if start <= address < start + size)
        if data[place:place + 2] != CPUID:
            raise peers.Absent(f"{library.name} has no cpuid at {address:#x}, where objdump shows one")
        data[place:place + 2] = UD2
    library.write_bytes(data)


def run(*command) -> list[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
