# SPDX-License-Identifier: Apache-2.0
"""The example board, an Arm MPS2 with a Cortex-M4F as qemu emulates it: how firmware for it is built, sized and run.

Its start-up, linker script and main program are in c_runtime/ports/mps2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .. import paths
from ..errors import MegccError, ToolError
from . import elf

#: Bytes of each memory of the board, and of stack reserved in its RAM.
LIMITS = {"flash": 4 << 20, "ram": 4 << 20, "stack": 4 << 10}


def sources() -> list[Path]:
    """C files of the firmware besides the model's."""
    port = paths.c_runtime() / "ports" / "mps2"
    return [port / "start.c", port / "run.c"]


def defines(model: str) -> list[str]:
    """What run.c wants to know of the model."""
    macro = model.upper()
    names = {"HEADER": f'"{model}.h"', "MODULE": f"{model}_module", "DATA": f"{model}_data",
             "DATA_BYTES": f"{macro}_CONTAINER_BYTES", "MEMORY": f"{macro}_MEMORY_BYTES", "ALIGN": f"{macro}_ALIGN"}
    return ["-ffreestanding", *(f"-DMEGCC_{name}={value}" for name, value in names.items())]


def link_flags(limits: Mapping[str, int]) -> list[str]:
    script = paths.c_runtime() / "ports" / "mps2" / "link.ld"
    return ["-nostartfiles", "-Wl,--gc-sections", f"-Wl,-T,{script}",
            *(f"-Wl,--defsym={memory.upper()}_BYTES={size}" for memory, size in {**LIMITS, **limits}.items())]


def refusal(model: str, error: ToolError, limits: Mapping[str, int]) -> MegccError:
    """The linker's words about memories that are too small, as ours; the error itself if it is about something else."""
    sizes = {**LIMITS, **limits}
    needs = [f"{region.lower()} {sizes[region.lower()] + int(over):,} bytes, there are {sizes[region.lower()]:,}"
             for region, over in re.findall(r"region `(\w+)' overflowed by (\d+) bytes", str(error))]
    return MegccError(f"{model} does not fit: it needs {'; '.join(needs)}") if needs else error


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
