# SPDX-License-Identifier: Apache-2.0
"""The stack of functions by their instructions in a firmware, where gcc has no figures. These are functions of the
compiler's library, and naked functions, whose assembler saves registers by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..calls import CallGraph
from .counting import Disassembly

#: The largest depth to which calls within the compiler's library are followed.
_MAX_DEPTH = 8
_PUSH = re.compile(r"push(?:\.w)?$|stmdb(?:\.w)?$")
_REGISTERS = re.compile(r"\{([^}]*)\}")
_TARGET = re.compile(r"<([\w.$]+)>")
_CALLS = re.compile(r"(bl|b|b\.n|b\.w|jal|j|tail|call|c\.j|c\.jal)$")


def library_stacks(code: Disassembly, names: Iterable[str]) -> dict[str, int]:
    """Returns library function -> bytes of its stack with all that it calls, for those whose instructions are known
    forms of changing the stack pointer."""
    found = {name: _below(code, name, ()) for name in names}
    return {name: size for name, size in found.items() if size is not None}


def completed(graph: CallGraph, code: Disassembly, unlinked: Iterable[str] = ()) -> CallGraph:
    """Returns the call graph with the stacks of library functions and of naked functions.

    Args:
        unlinked: functions that the linker left out, since nothing calls them; they need no stack.
    """
    called = set().union(*graph.calls.values()) - set(graph.stack)
    library = library_stacks(code, called) | dict.fromkeys(unlinked, 0)
    naked, unbounded = {}, set(graph.unbounded)
    for title, size in graph.stack.items():
        name = title.rpartition(":")[2]
        if size == 0 and name in code.functions:
            pushed = [_pushed(*line) for line in _body(code, name)]
            if None in pushed:
                unbounded.add(title)
            naked[title] = sum(filter(None, pushed))
    return CallGraph({**graph.stack, **library, **naked}, graph.calls, graph.called_indirectly, unbounded)


def _below(code: Disassembly, name: str, above: tuple[str, ...]) -> int | None:
    """Returns the bytes of a function's stack with all that it calls; None if they are not known. above: its
    callers."""
    if name not in code.functions or name in above or len(above) > _MAX_DEPTH:
        return None
    own, deepest = 0, 0
    for mnemonic, operands in _body(code, name):
        size = _pushed(mnemonic, operands)
        if size is None:
            return None
        own += size
        target = _TARGET.search(operands) if _CALLS.match(mnemonic) else None
        if target and target[1] in code.functions and target[1] != name:
            inner = _below(code, target[1], (*above, name))
            if inner is None:
                return None
            deepest = max(deepest, inner)
    return own + deepest


def _body(code: Disassembly, name: str) -> list[tuple[str, str]]:
    """Returns the instructions of a function: those up to the next function."""
    begin = code.functions[name]
    end = min((address for address in code.functions.values() if address > begin), default=1 << 64)
    return [line for address, line in zip(code.addresses, code.lines, strict=True) if begin <= address < end]


def _pushed(mnemonic: str, operands: str) -> int | None:
    """Returns the bytes by which an instruction of Arm or RISC-V lowers the stack pointer; None for a form that is not
    known."""
    if _PUSH.match(mnemonic) and (mnemonic.startswith("push") or operands.startswith("sp!")):
        registers = _REGISTERS.search(operands)
        return 4 * _count(registers[1]) if registers else None
    if mnemonic.startswith("vpush"):
        registers = _REGISTERS.search(operands)
        return (8 if "d" in operands else 4) * _count(registers[1]) if registers else None
    if mnemonic.startswith("str") and (match := re.search(r"\[sp, #-(\d+)\]!", operands)):
        return int(match[1])
    if mnemonic in ("sub", "sub.w", "subw") and operands.startswith("sp"):
        match = re.search(r"#(\d+)$", operands)
        return int(match[1]) if match else None
    if mnemonic in ("addi", "c.addi", "add", "c.addi16sp") and (match := re.match(r"sp,sp,-(\d+)$", operands)):
        return int(match[1])
    return 0


def _count(registers: str) -> int:
    """Returns the number of registers in a list such as `r4, r6-r8, lr`."""
    total = 0
    for part in registers.split(","):
        first, _, last = part.strip().partition("-")
        total += int(last.strip()[1:]) - int(first[1:]) + 1 if last else 1
    return total
