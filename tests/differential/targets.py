# SPDX-License-Identifier: Apache-2.0
"""Targets that cases are compiled for in turn."""

from __future__ import annotations

from tvm_megcc.errors import MegccError
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import parse_targets

#: One of each instruction set and of each kind of machine.
TARGETS = ("native", "c", "x86-64-v3", "arm64", "armv7", "riscv64-v", "wasm32-simd128", "cortex-m4", "cortex-m55")

#: Valid instructions that an emulator cannot run: what it prints, and a reason.
EMULATOR_FAULTS = {"decode_save_opc: Assertion": "qemu-riscv64 7.2 ends at every vector conversion that rounds towards "
                                                 "zero, such as vfcvt.rtz.x.f.v"}


def emulator_fault(error: Exception) -> str:
    """Why an emulator ended that did not run what it should; "" where the fault is another."""
    return next((reason for printed, reason in EMULATOR_FAULTS.items() if printed in str(error)), "")


def missing(target: str) -> str:
    """What this machine lacks to compile and run for a target; "" for nothing."""
    try:
        (found,) = parse_targets(target)
        find_compiler(found)
        find_emulator(found)
    except MegccError as error:
        return str(error).splitlines()[0]
    return ""


def chosen(text: str) -> tuple[list[str], list[str]]:
    """Targets of a list separated by commas that this machine can run, and a line for each that it cannot.

    Args:
        text: "all" stands for `TARGETS`, "" for none.
    """
    names = TARGETS if text == "all" else [name for name in text.split(",") if name]
    lacks = {name: missing(name) for name in names}
    return ([name for name in names if not lacks[name]],
            [f"skipped {name}: {reason}" for name, reason in lacks.items() if reason])
