# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of each kernel call of a firmware exactly, with a plugin of qemu (counting.c)."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from ... import folders, paths
from ...errors import MissingTool, ToolError
from ...target import native
from ..toolchain import Compiler, find_compiler

#: The function of vm.c with which a call begins, and the port's function that runs after the last call.
BEGIN, END = "megcc_session_step", "board_stack_used"
_LINE = re.compile(r"^ *([0-9a-f]+):\t(\S+)(?:\t([^\n;@]*))?", re.MULTILINE)
_FUNCTION = re.compile(r"^([0-9a-f]+) <([^>]+)>:$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A basic block that was executed.

    begin: its address.
    instructions: the number of its instructions.
    times: the number of its executions.
    jumps: the number of executions that ended in a taken branch.
    code_waits, data_waits: the cycles that the core waited for the flash, for its instructions and for what they load;
        0 without a model of the flash (flash.py).
    """

    begin: int
    instructions: int
    times: int
    jumps: int
    code_waits: int = 0
    data_waits: int = 0


@dataclass(frozen=True)
class Disassembly:
    """The instructions of a firmware.

    addresses: their addresses, ascending.
    lines: the mnemonic and the operands of each instruction.
    functions: name -> address; of static functions with the same name, one.
    names: address -> name, of every function.
    """

    addresses: tuple[int, ...]
    lines: tuple[tuple[str, str], ...]
    functions: Mapping[str, int]
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def _starts(self) -> list[int]:
        return sorted({*self.names, *self.functions.values()})

    def function_at(self, address: int) -> int | None:
        """Returns the address of the function with an instruction; None if it is before all functions."""
        index = bisect_right(self._starts, address)
        return self._starts[index - 1] if index else None

    def end_of(self, begin: int) -> int:
        """Returns the address after a function. begin: its own."""
        index = bisect_right(self._starts, begin)
        return self._starts[index] if index < len(self._starts) else self.addresses[-1] + 1

    def name_of(self, begin: int) -> str:
        """Returns the name of a function. begin: its address."""
        return self.names.get(begin) or next(name for name, address in self.functions.items() if address == begin)


def disassembly(firmware: Path, compiler: Compiler, helium: bool = False) -> Disassembly:
    """Disassembles a file with the objdump that comes with the compiler.

    Raises:
        ToolError: if there is none, or it fails.
    """
    tool = compiler.command[0].removesuffix("gcc").removesuffix("clang") + "objdump"
    if shutil.which(tool) is None:
        raise MissingTool(f"there is no {tool}")
    command = [tool, "-d", "--no-show-raw-insn", *(["-marmv8.1-m.main"] if helium else []), str(firmware)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ToolError(f"{' '.join(command)} failed: {result.stderr.strip()[:200]}")
    rows = [(int(address, 16), (name, operands.strip())) for address, name, operands in _LINE.findall(result.stdout)]
    return Disassembly(tuple(address for address, _ in rows), tuple(line for _, line in rows),
                       {name: int(address, 16) for address, name in _FUNCTION.findall(result.stdout)},
                       {int(address, 16): name for address, name in _FUNCTION.findall(result.stdout)})


@cache
def plugin(qemu: str) -> Path:
    """Returns the plugin for this machine's qemu, which is built if necessary.

    Raises:
        ToolError: if the version of qemu is not found, or there is no compiler for this machine.
    """
    version_text = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)\.", version_text)
    if version is None:
        raise ToolError(f"{qemu} does not say its version")
    here = Path(__file__).parent
    sources = [here / name for name in ("counting.c", "wait_states.c", "wait_states.h")]
    api = 1 if int(version[1]) < 9 else 2  # the version of qemu's plugin interface that counting.c is compiled for
    flags = ("-O2", "-shared", "-fPIC", f"-DAPI={api}")
    compiler = find_compiler(native())
    inputs = [source.read_bytes() for source in sources], flags, str(compiler)
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]
    built = paths.cache("counting") / f"{key}.so"
    if not built.exists():
        with folders.scratch(built.parent) as staging:
            result = subprocess.run([*compiler.command, *flags, *map(str, sources[:2]), "-o",
                                     str(staging / built.name)], capture_output=True, text=True, check=False)
            if result.returncode:
                raise ToolError(f"the plugin that counts instructions cannot be built: {result.stderr.strip()[:300]}")
            (staging / built.name).replace(built)
    return built


def options(qemu: str, functions: Mapping[str, int], flash: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the options with which qemu loads the plugin, which writes counts.txt in the working directory.
    functions: name -> address. flash: options of a model of slow flash (flash.py)."""
    own = ("out=counts.txt", f"begin={functions[BEGIN]:x}", f"end={functions[END]:x}")
    return ("-plugin", ",".join((str(plugin(qemu)), *own, *flash)))


def read(text: str) -> list[list[Block]]:
    """Returns the basic blocks of each call. text: the contents of counts.txt."""
    calls: dict[int, list[Block]] = {}
    for line in text.splitlines():
        call, begin, *counts = line.split()
        calls.setdefault(int(call), []).append(Block(int(begin, 16), *map(int, counts)))
    return [calls[index] for index in sorted(calls)]


def instructions(calls: Sequence[Sequence[Block]]) -> list[int]:
    """Returns the number of instructions of each call."""
    return [sum(block.instructions * block.times for block in blocks) for blocks in calls]
