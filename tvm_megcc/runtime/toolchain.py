# SPDX-License-Identifier: Apache-2.0
"""Finds the tools for a target: a C compiler, and an emulator if this machine does not run the target."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import MissingTool, ToolError
from ..target import Target, machine, native, runs

#: Machine -> Debian's packages of (a compiler, an emulator), for messages; other systems have similar names.
PACKAGES = {
    "any": ("gcc libc6-dev", ""),
    "x86_64": ("gcc-x86-64-linux-gnu libc6-dev-amd64-cross", "qemu-user"),
    "aarch64": ("gcc-aarch64-linux-gnu libc6-dev-arm64-cross", "qemu-user"),
    "arm": ("gcc-arm-linux-gnueabihf libc6-dev-armhf-cross", "qemu-user"),
    "riscv64": ("gcc-riscv64-linux-gnu libc6-dev-riscv64-cross", "qemu-user"),
    "riscv32": ("gcc-riscv64-unknown-elf", "qemu-system-misc"),
    "wasm32": ("clang lld wasi-libc libclang-rt-dev-wasm32", "nodejs"),
    "thumb": ("gcc-arm-none-eabi libnewlib-arm-none-eabi", "qemu-system-arm"),
}


@dataclass(frozen=True)
class Compiler:
    """A C compiler with the arguments that select the target.

    command: program and arguments. version: the first line of its version text.
    static: whether to link programs statically, so that an emulator needs no libraries of the target.
    """

    command: tuple[str, ...]
    version: str
    static: bool

    def __str__(self) -> str:
        return f"{' '.join(self.command)} ({self.version})"


def is_local(target: Target) -> bool:
    """Returns whether this machine's own compiler generates code for the target."""
    return not target.bare_metal and target.machine in (machine(), "any")


def runs_here(target: Target) -> bool:
    """Returns whether this CPU executes the target's code; every CPU executes portable C."""
    is_portable = target.isa.code == 0
    return is_local(target) and (is_portable or runs(target))


def find_compiler(target: Target, cc: str | None = None) -> Compiler:
    """Returns the compiler for a target: `cc`, $MEGCC_CC, $CC (only for this machine), the usual names, then `zig cc`.

    Raises:
        ToolError: if the requested compiler does not work.
        MissingTool: if none is found; the message says what to install.
    """
    local = is_local(target)
    requested = cc or os.environ.get("MEGCC_CC") or (os.environ.get("CC") if local else None)
    if requested:
        command = tuple(shlex.split(requested))
        version = _version(command)
        if version is None:
            source = "" if cc else " of $MEGCC_CC" if os.environ.get("MEGCC_CC") else " of $CC"
            raise ToolError(f"the C compiler '{requested}'{source} cannot be run; give another with --cc or $MEGCC_CC")
        return Compiler(command, version, not local)
    tried = ["cc", "gcc", "clang"] if local else []
    tried += [triple + "gcc" for triple in target.triples]
    commands: list[tuple[str, ...]] = [(name,) for name in tried]
    if target.clang:
        commands += [(prefix + "clang",) for prefix in target.triples]
        commands += [(name, f"--target={target.clang}") for name in _CLANGS]
        tried = [" ".join(command) for command in commands]
    for command in commands:
        version = _version(command)
        if version is not None and (not target.clang or _links((*command, *target.cflags))):
            return Compiler(command, version, not local)
    zig = zig_command()
    if zig and not target.bare_metal:
        # zig's defaults are to trap on undefined behaviour and to use all features of the host.
        command = (*zig, "cc", *(() if local else ("-target", target.zig)), f"-mcpu={target.zig_cpu}",
                   "-fno-sanitize=all")
        return Compiler(command, _version((*zig, "cc")) or "zig cc", not local)
    package = PACKAGES["any" if local else target.machine][0]
    zig_advice = "" if target.bare_metal else " or 'pip install ziglang'"
    raise MissingTool(f"no C compiler for {target} (tried {', '.join(tried)}{', zig cc' if zig_advice else ''}). "
                      f"Install one with 'apt-get install {package}'{zig_advice}, or give one with --cc")


def find_emulator(target: Target) -> tuple[str, ...]:
    """Returns the command that runs a program of the target; () if this CPU runs it directly.

    Raises:
        MissingTool: if it is not installed, saying what to install, or if there is none.
    """
    if runs_here(target):
        return ()
    if not target.qemu:
        raise MissingTool(f"programs for {target} do not run on this machine ({native()}), and qemu does not know "
                          "their instructions; run them on a machine that has them")
    if target.machine == "wasm32":
        if found := _find_wasi():
            return found
        raise MissingTool("no node and no wasmtime to run WebAssembly: 'apt-get install nodejs' or "
                          "'pip install wasmtime'")
    path = shutil.which(target.qemu)
    if path is None:
        package = PACKAGES.get(target.machine, ("", "qemu-user"))[1]
        raise MissingTool(f"programs for {target} do not run on this machine ({native()}) and {target.qemu} is not "
                          f"installed: 'apt-get install {package}'")
    return (path, "-cpu", target.cpu) if target.cpu else (path,)


def zig_command() -> tuple[str, ...]:
    """Returns the command for zig: from the path, else from the PyPI package `ziglang`; empty if there is none."""
    if shutil.which("zig"):
        return ("zig",)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang")
    return ()


def _find_wasi() -> tuple[str, ...]:
    """Finds a runner of WebAssembly programs: node, else PyPI's wasmtime; empty if there is neither."""
    node = _version(("node",))
    if node is not None:
        # Versions before 21 support relaxed SIMD only with a flag.
        old = int(node.lstrip("v").split(".")[0]) < 21
        return ("node", "--no-warnings", *(["--experimental-wasm-relaxed-simd"] * old),
                str(Path(__file__).parent / "wasm" / "wasi.mjs"))
    if importlib.util.find_spec("wasmtime"):
        return (sys.executable, str(Path(__file__).parent / "wasm" / "wasi.py"))
    return ()


#: Names of clang, the newest first; clang 18 is the oldest that supports the RISC-V vector intrinsics.
_CLANGS = ("clang", *(f"clang-{version}" for version in range(25, 17, -1)))

#: A program that a compiler must accept. clang 14 has the option for relaxed SIMD but lacks the instructions.
_PROGRAM = """
#if defined(__riscv) && (!defined(__clang__) || __clang_major__ < 18)
#error
#endif
#ifdef __wasm_relaxed_simd__
#include <wasm_simd128.h>
v128_t madd(v128_t a, v128_t b) { return wasm_f32x4_add(a, (wasm_f32x4_relaxed_madd)(a, b, b)); }
#endif
int main(void) { return 0; }
"""


@cache
def _links(command: tuple[str, ...]) -> bool:
    """Returns whether the compiler has a linker and a C library for its target."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([*command, "-x", "c", "-", "-o", str(Path(folder) / "a")], input=_PROGRAM,
                                capture_output=True, text=True, check=False)
    return result.returncode == 0


@cache
def _version(command: tuple[str, ...]) -> str | None:
    """Returns the first line that a program prints for --version; None if there is no such program, or it fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        result = subprocess.run((*command, "--version"), capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = result.stdout.splitlines()
    return lines[0] if result.returncode == 0 and lines else None
