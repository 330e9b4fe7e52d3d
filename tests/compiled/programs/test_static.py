# SPDX-License-Identifier: Apache-2.0
"""One program of each domain as a static executable for arm64: no C library, the weights and at most 300 KB of
everything else, and no call of Linux but those that read and write."""

from __future__ import annotations

import os
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_languages import needs, ran
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.tools.program.program import Program

from . import test_descriptions

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")]
MOST = 300_000

#: Calls of Linux, and the functions that the C of a package needs; then a program that runs until its inputs end.
MAIN = """#include "NAME.h"
extern const unsigned char NAME_data[];
static _Alignas(MACRO_ALIGN) unsigned char memory[MACRO_MEMORY_BYTES];
static NAME_program program;
PORTS
void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    return to;
}
void *memmove(void *to, const void *from, size_t size)
{
    if ((uintptr_t)to <= (uintptr_t)from)
        return memcpy(to, from, size);
    while (size-- > 0)
        ((unsigned char *)to)[size] = ((const unsigned char *)from)[size];
    return to;
}
void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = (unsigned char)value;
    return to;
}
int memcmp(const void *a, const void *b, size_t size)
{
    const unsigned char *p = a, *q = b;
    for (size_t i = 0; i < size; i++)
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    return 0;
}
unsigned long getauxval(unsigned long type)
{
    return type & 0; /* no further features of the CPU */
}
static long of_linux(long number, long a, const void *b, long c)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register const void *x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
static int filled(unsigned char *data, long size)
{
    for (long got = 0; size > 0; data += got, size -= got)
        if ((got = of_linux(63, 0, data, size)) <= 0)
            return 0;
    return 1;
}
static void write_all(const unsigned char *data, long size)
{
    for (long written = 0; size > 0 && written >= 0; data += written, size -= written)
        written = of_linux(64, 1, data, size);
}
void _start(void)
{
    megcc_error error;
    int32_t status = NAME_open(&program, NAME_data, MACRO_CONTAINER_BYTES, memory, sizeof memory, &error);
    while (status == MEGCC_OK && FILL) {
        status = NAME_run(&program, ARGUMENTS, &error);
        WRITE
    }
    of_linux(94, status, 0, 0);
}
"""


def static_main(name: str, facts: dict) -> str:
    inputs, outputs = ([(f"{kind}{at}", prod(port["shape"]) * np.dtype(port["dtype"]).itemsize)
                        for at, port in enumerate(facts[kind])] for kind in ("inputs", "outputs"))
    both = inputs + outputs
    text = MAIN.replace("PORTS", "\n".join(f"static _Alignas(64) unsigned char {port}[{size}];" for port, size in both))
    text = text.replace("FILL", " && ".join(f"filled({port}, {size})" for port, size in inputs))
    text = text.replace("WRITE", "\n        ".join(f"write_all({port}, {size});" for port, size in outputs))
    text = text.replace("ARGUMENTS", ", ".join(f"(void *){port}" for port, _ in both))
    return text.replace("MACRO", name.upper()).replace("NAME", name)


def static(program: Program, folder: Path) -> tuple[Path, dict]:
    """The executable, and what the manifest says of the program."""
    made = program.compile(folder / "arm64", "arm64")
    facts = read_manifest(made)["program"]
    assert main(["export", str(made), "--for", "cpp", "-q", "-o", str(folder / "made")]) == 0
    (folder / "made/main.c").write_text(static_main(facts["name"], facts))
    sources = [path for pattern in ("*.c", "src/*.c", "src/kernels/*.c", "src/runtime/*.c")
               for path in sorted((folder / "made").glob(pattern))]
    ran("aarch64-linux-gnu-gcc", "-static", "-nostdlib", "-O1", "-s", "-ffreestanding", "-ffunction-sections",
        "-fdata-sections", "-Wl,--gc-sections", "-Isrc", *sources, "-o", "static", cwd=folder / "made")
    return folder / "made/static", facts


def real(name: str, network: str) -> Program:
    models = Path(os.environ.get("MEGCC_MODELS", ""))
    if not (models / network).exists():
        pytest.skip("set MEGCC_MODELS")
    return Program.read(name, models)


def speech(_: Path) -> Program:
    return real("voice-activity", "silero_vad_16k_static")


def pictures(_: Path) -> Program:
    return real("classify", "mobilenet_v1_025_224_f32")


def text(folder: Path) -> Program:
    return test_descriptions.program("classify-text", folder)


def table(folder: Path) -> Program:
    return test_descriptions.table(folder)[0]


@pytest.mark.parametrize("domain", [speech, pictures, text, table])
def test_size_and_calls_of_linux(domain, tmp_path):
    """It takes no memory of the system, and its results are those of a session on this machine."""
    needs("qemu-aarch64", "aarch64-linux-gnu-gcc")
    program = domain(tmp_path)
    executable, facts = static(program, tmp_path)
    assert executable.stat().st_size < facts["weight_bytes"] + MOST
    runs = [test_descriptions.inputs_of(program, seed) for seed in range(3 if program.states else 1)]
    (tmp_path / "inputs.bin").write_bytes(b"".join(array.tobytes() for given in runs for array in given.values()))
    with open(tmp_path / "inputs.bin", "rb") as given:
        done = subprocess.run(["qemu-aarch64", "-strace", executable], stdin=given, capture_output=True, check=True)
    assert {line.partition("(")[0].split()[-1] for line in done.stderr.decode().splitlines() if "(" in line} == {
        "read", "write", "exit_group"}
    at = 0
    with tvm_megcc.load(program.compile(tmp_path / "native", "native")) as session:
        for arrays in runs:
            for name, wanted in session.run(arrays).items():
                found = np.frombuffer(done.stdout, wanted.dtype, wanted.size, at).reshape(wanted.shape)
                at += wanted.nbytes
                np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), atol=1e-4, err_msg=name)
    assert at == len(done.stdout)
