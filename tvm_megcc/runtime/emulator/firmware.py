# SPDX-License-Identifier: Apache-2.0
"""Firmware for the example boards that qemu emulates: Arm's MPS2 and MPS3, and RISC-V's virt. The module has their
memories, linker options, sizes and commands; their start-up code, linker script and main program are in
c_runtime/ports/mps2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from ... import paths
from ...codegen.c_source.render import environment
from ...errors import MegccError, ToolError
from ...foreign import c_name
from ...ir.dims import round_up
from ...ir.types import DTYPES
from ...target import Target
from ...version import VERSION
from . import elf

#: Bytes of each memory of the board, and of the stack in its RAM.
LIMITS = {"flash": 4 << 20, "ram": 4 << 20, "stack": 4 << 10}
#: The alignment in bytes of each input in the caller's memory, as run.c places them.
GIVEN_ALIGNMENT = 64


@dataclass(frozen=True)
class Board:
    """A board that qemu emulates.

    name: qemu's name of the board.
    vectors, flash, ram, other: start addresses of memories; `other` has the second and further regions of a model.
    limits: the sizes that differ from `LIMITS`.
    options: additional command-line options of qemu.
    libraries: additional options of the linker.
    """

    name: str
    vectors: int = 0
    flash: int = 0
    ram: int = 0x20000000
    other: int = 0x21000000
    limits: Mapping[str, int] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


_VIRT = Board("virt", vectors=0x80000000, flash=0x80000000, ram=0x80400000, other=0x80800000,
              options=("-bios", "none"), libraries=("-nostdlib", "-lgcc"))
_AN505 = Board("mps2-an505", vectors=0x10000000, flash=0x10000000, ram=0x38000000, other=0x80000000)
_AN547 = Board("mps3-an547", flash=0x01000000, ram=0x21000000, other=0x60000000, limits={"flash": 2 << 20})
#: The board of each target. A Cortex-M3 runs the code of a Cortex-M0+, a Cortex-M33 that of a Cortex-M23, and a
#: Cortex-M55 those of a Cortex-M52 and of a Cortex-M85, none of which qemu 7.2 knows.
BOARDS = {
    "cortex-m0plus": Board("mps2-an385"),
    "cortex-m3": Board("mps2-an385"),
    "cortex-m23": _AN505,
    "cortex-m4": Board("mps2-an386"),
    "cortex-m4-soft": Board("mps2-an386"),
    "cortex-m7": Board("mps2-an500", other=0x60000000),
    "cortex-m33": _AN505,
    "cortex-m55": _AN547,
    "cortex-m52": _AN547,
    "cortex-m85": _AN547,
    "riscv32": _VIRT,
    "riscv32-f": _VIRT,
}


#: Compiler flags of every file of a firmware, after those of the target.
FLAGS = ("-ffreestanding",)


def image(model: str = "") -> str:
    """Returns the name of the firmware image with one of several models, or with all models."""
    return f"firmware-{model}.elf" if model else "firmware.elf"


def include_flags(target: Target) -> tuple[str, ...]:
    """Returns the compiler's options for the port's headers; where there is no C library, with a <string.h>."""
    without_library = "-nostdlib" in BOARDS[target.name].libraries
    return (f"-I{port()}", *([f"-I{port() / 'freestanding'}"] if without_library else []))


def port() -> Path:
    return paths.c_runtime() / "ports" / "mps2"


def given_bytes(row: Mapping) -> int:
    """Returns the bytes of a model's inputs that are in the caller's memory, not in its sessions. row: the model's
    facts in the manifest."""
    if not row["options"].get("caller_inputs"):
        return 0
    return sum(round_up(math.prod(port["shape"]) * DTYPES[port["dtype"]].bytes, GIVEN_ALIGNMENT)
               for port in row["inputs"])


@dataclass(frozen=True)
class FirmwareRegion:
    """A memory region of a model, after its first.

    name: "region1" and so on.
    bytes: size of the session's block in it; 0: the model does not use it.
    """

    name: str
    bytes: int


@dataclass(frozen=True)
class FirmwareModel:
    """A model of a firmware as the template sees it.

    name: a C identifier, the prefix of its functions and of its header.
    bytes: size of its container in flash.
    embedded: whether its header declares its container; else the file does.
    given: bytes of its inputs in the caller's memory; 0: they are in the session's.
    regions: its memory regions after the first one.
    prefix: what the names of its input and output files begin with, "<name>_"; "" for a single model.
    """

    name: str
    bytes: int
    embedded: bool
    given: int
    regions: Sequence[FirmwareRegion]
    prefix: str


class FirmwareVariables(TypedDict):
    """The context of the template `bundle/firmware.c.j2`.

    version: version of tvm_megcc, such as "1.4.0".
    models: the models of the firmware.
    """

    version: str
    models: Sequence[FirmwareModel]


def table(containers: Mapping[str, bytes], embedded: Collection[str], given: Mapping[str, int],
          regions: Mapping[str, Sequence[Mapping]]) -> str:
    """Returns the C file that lists the models for run.c, with their memory.

    Args:
        containers: model -> its container in flash.
        embedded: models whose headers declare their containers.
        given: model -> bytes of its inputs in the caller's memory.
        regions: model -> its memory regions, if it has several.
    """
    context: FirmwareVariables = {"version": VERSION, "models": [
        FirmwareModel(c_name(name), len(data), name in embedded, given[name],
                      [FirmwareRegion(f"region{index}", _bytes_of(row))
                       for index, row in enumerate(regions[name])][1:],
                      f"{c_name(name)}_" if len(containers) > 1 else "")
        for name, data in containers.items()]}
    return environment().get_template("bundle/firmware.c.j2").render(context)


def _bytes_of(region: Mapping) -> int:
    """Returns the bytes of a region in a manifest, which is not trusted: the number is printed into C, for an address
    space of 32 bits."""
    size = region["bytes"]
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise MegccError("the folder's manifest gives a region of memory no number of bytes; compile the model again")
    return size


def link_flags(target: Target, limits: Mapping[str, int], given: int = 0) -> list[str]:
    """Returns the linker's options. given: bytes of inputs in the caller's memory, which `limits` do not include."""
    board = BOARDS[target.name]
    addresses = {"VECTORS_AT": board.vectors, "FLASH_AT": board.flash, "RAM_AT": board.ram, "OTHER_AT": board.other}
    limits = {**limits, "ram": limits["ram"] + given} if "ram" in limits else limits
    sizes = {f"{memory.upper()}_BYTES": size for memory, size in _limits(target, limits).items()}
    return ["-nostartfiles", *board.libraries, "-Wl,--gc-sections", "-T", f"{port() / 'link.ld'}",
            *(f"-Wl,--defsym={name}={value}" for name, value in {**addresses, **sizes}.items())]


def _limits(target: Target, limits: Mapping[str, int]) -> dict[str, int]:
    return {**LIMITS, **BOARDS[target.name].limits, **limits}


def refusal(target: Target, models: Sequence[str], error: ToolError, limits: Mapping[str, int]) -> MegccError:
    """Returns a MegccError with the needed sizes for a linker error about memories that are too small; other errors
    unchanged."""
    sizes = _limits(target, limits)
    needs = [f"{region.lower()} {sizes[region.lower()] + int(over):,} bytes, there are {sizes[region.lower()]:,}"
             for region, over in re.findall(r"region `(\w+)' overflowed by (\d+) bytes", str(error))]
    if not needs:
        return error
    verb, subject = ("do", "they need") if len(models) > 1 else ("does", "it needs")
    board = "" if limits else f" on the emulated board {BOARDS[target.name].name}"
    hint = "" if limits else "; --flash and --ram say what another board has"
    return MegccError(f"{' and '.join(models)} {verb} not fit{board}: {subject} {'; '.join(needs)}{hint}")


def sizes(firmware: Path) -> dict[str, int]:
    """Returns the bytes of memory of an image: "flash"; "ram"; "stack", the part of "ram" that is reserved for it; and,
    if inputs are in the caller's memory, "given": their bytes, which are not in "ram"."""
    sections = elf.sections(firmware)
    given = sections.pop(".given", elf.Sections()).bss
    stack = sections.pop(".stack").bss
    used = sum(sections.values(), start=elf.Sections())
    return {"flash": used.text + used.rodata + used.data, "ram": used.data + used.bss + stack, "stack": stack,
            **({"given": given} if given else {})}


def needs_text(needs: Mapping[str, int]) -> str:
    """Returns a text about the RAM. needs: the result of `sizes`."""
    given = f", inputs of the application's {needs['given']:,} bytes" if "given" in needs else ""
    return f"RAM {needs['ram']:,} bytes ({needs['stack']:,} of them stack){given}"


#: The number of instructions of the loop with which run.c calibrates its clock (CALIBRATION there).
CALIBRATION = 200_000


def instructions(ticks: Sequence[int]) -> list[int]:
    """Returns the number of instructions of each of the model's calls, accurate to about 40. ticks: the ticks of the
    board's clock during the calibration loop, and then during each call."""
    return [round(CALIBRATION * tick / ticks[0]) for tick in ticks[1:]]


#: qemu's options that advance the board's clock by a nanosecond for each instruction.
CLOCK = ("-icount", "shift=0,sleep=off")


def emulation(qemu: str, target: Target, firmware: Path, counting: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs a firmware, which reads and writes files in the working directory. counting:
    options with which qemu counts instructions."""
    board = BOARDS[target.name]
    return [qemu, "-M", board.name, *board.options, *counting, "-nographic",
            "-semihosting-config", "enable=on,target=native", "-kernel", str(firmware)]
