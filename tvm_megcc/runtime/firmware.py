# SPDX-License-Identifier: Apache-2.0
"""The example board, an Arm MPS2 with a Cortex-M4F as qemu emulates it: how firmware for it is built, sized and run.

Its start-up, linker script and main program are in c_runtime/ports/mps2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from .. import paths
from ..codegen.render import environment
from ..errors import MegccError, ToolError
from ..foreign import c_name
from ..version import VERSION
from . import elf

#: Bytes of each memory of the board, and of stack reserved in its RAM.
LIMITS = {"flash": 4 << 20, "ram": 4 << 20, "stack": 4 << 10}


#: Of every file, after those of the target; `firmware.h` and `board.h` are found beside the port's own files.
FLAGS = ("-ffreestanding",)


def image(model: str = "") -> str:
    """The name of the image with one of several models, or with all there are."""
    return f"firmware-{model}.elf" if model else "firmware.elf"


def sources() -> list[Path]:
    """C files of the firmware besides the models'."""
    return [port() / "start.c", port() / "run.c"]


def port() -> Path:
    return paths.c_runtime() / "ports" / "mps2"


def table(containers: Mapping[str, bytes], embedded: Collection[str]) -> str:
    """The C file that lists the models for run.c, with their memory. containers: by name, as they lie in flash.
    embedded: models whose headers declare theirs."""
    return environment().get_template("bundle/firmware.c.j2").render(version=VERSION, models=[
        {"name": c_name(name), "bytes": len(data), "embedded": name in embedded,
         "prefix": f"{c_name(name)}_" if len(containers) > 1 else ""}
        for name, data in containers.items()])


def link_flags(limits: Mapping[str, int]) -> list[str]:
    return ["-nostartfiles", "-Wl,--gc-sections", f"-Wl,-T,{port() / 'link.ld'}",
            *(f"-Wl,--defsym={memory.upper()}_BYTES={size}" for memory, size in {**LIMITS, **limits}.items())]


def refusal(models: Sequence[str], error: ToolError, limits: Mapping[str, int]) -> MegccError:
    """The linker's words about memories that are too small, as ours; the error itself if it is about something else."""
    sizes = {**LIMITS, **limits}
    needs = [f"{region.lower()} {sizes[region.lower()] + int(over):,} bytes, there are {sizes[region.lower()]:,}"
             for region, over in re.findall(r"region `(\w+)' overflowed by (\d+) bytes", str(error))]
    if not needs:
        return error
    verb, subject = ("do", "they need") if len(models) > 1 else ("does", "it needs")
    return MegccError(f"{' and '.join(models)} {verb} not fit: {subject} {'; '.join(needs)}")


def sizes(firmware: Path) -> dict[str, int]:
    """Bytes of flash and RAM that the image takes; `stack` is the part of `ram` that is reserved for it."""
    sections = elf.sections(firmware)
    stack = sections.pop(".stack").bss
    used = sum(sections.values(), start=elf.Sections())
    return {"flash": used.text + used.rodata + used.data, "ram": used.data + used.bss + stack, "stack": stack}


def emulation(qemu: str, firmware: Path) -> list[str]:
    """The command that runs it; the files it reads and writes are in the working directory."""
    return [qemu, "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native",
            "-kernel", str(firmware)]
