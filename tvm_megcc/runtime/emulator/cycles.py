# SPDX-License-Identifier: Apache-2.0
"""A cycle model of Cortex-M: a table of the costs of instruction classes on each core, applied to exact counts.

It is a model, not a measurement: memories have no wait states (flash.py adds those of a chip's flash), there is no
other bus traffic, and branches are predicted as each core's row states. The figures of the cores come from:

* Cortex-M4: the table of instructions in its Technical Reference Manual (Arm DDI 0439, "Processor instruction timings",
  and "FPU instruction set" for floating point), with 2 cycles for what it calls P, the refill of the pipeline (1 to 3).
* Cortex-M7: no table is published. Its manual (DDI 0489) says: two instructions a cycle in order, of which one may load
  or store, one multiply, one be floating point; branches are predicted. In the model, two neighbours are issued
  together if they are of different units, or both of the ALU, and the second does not read the first one's result; a
  loaded value can be used a cycle later.
* Cortex-M55: its manual (DDI 0592) and Arm's Helium reference: a vector instruction takes four beats, two a
  cycle, and overlaps by half with the next one of another unit (loads and stores, multiplies, others): it costs
  one cycle then, and two after one of the same unit. Loops with low overhead end without a branch.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from .counting import Block, Disassembly

#: The classes of instructions: (name, pattern, whether an operand must be a Helium vector). An instruction has the
#: first class whose pattern matches its whole mnemonic without the width.
CLASSES: tuple[tuple[str, str, bool], ...] = (
    ("loop", r"(le|letp|wls|wlstp|dls|dlstp|lctp)", False),
    ("branch", r"(b|bl|bx|blx|bxns|blxns|cbz|cbnz|tbb|tbh|b(eq|ne|lt|gt|le|ge|hi|ls|cs|cc|mi|pl|hs|lo|vs|vc))", False),
    ("vector load", r"(vldr[bhwd]?|vld[24].|vldm.*|vpop)", True),
    ("vector store", r"(vstr[bhwd]?|vst[24].|vstm.*|vpush)", True),
    ("vector multiply", r"v(q?r?d?ml|mul|fm|qr?dmul|rmul|cmul|cmla|mla|mls|rmla)\w*", True),
    ("vector", r"v\w*", True),
    ("float load", r"vldr\w*", False),
    ("float store", r"vstr\w*", False),
    ("float several", r"(vldm|vstm|vpush|vpop)\w*", False),
    ("float divide", r"(vdiv|vsqrt)\w*", False),
    ("float multiply-add", r"(vfma|vfms|vmla|vmls|vfnma|vfnms|vnmla|vnmls)\w*", False),
    ("float", r"v\w*", False),
    ("several", r"(ldm|stm|push|pop)\w*", False),
    ("pair", r"(ldrd|strd)\w*", False),
    ("load", r"ldr\w*", False),
    ("store", r"str\w*", False),
    ("divide", r"[su]div\w*", False),
    ("multiply", r"(mul|mla|mls|[su]mul|[su]mlal|sml|smm|smu|umaal)\w*", False),
    ("other", r".*", False),
)
_MEMORY = {"load", "store", "float load", "float store"}
#: The unit of each class of Helium instructions: two neighbours of the same unit do not overlap.
_HELIUM_UNITS = {"vector load": "memory", "vector store": "memory", "vector multiply": "multiply", "vector": "other"}
#: The unit of a Cortex-M7 that executes a class. Classes that are not here are issued alone.
_M7_UNITS = {"load": "memory", "store": "memory", "float load": "memory", "float store": "memory",
             "multiply": "multiply", "float": "float", "float multiply-add": "float", "branch": "branch",
             "other": "alu"}


@dataclass(frozen=True, eq=False)   # a core is a key of a cache
class Core:
    """The cycle model of a core.

    costs: class of an instruction -> cycles; 1 for others. "several" and "float several" (multiple loads and stores)
        also cost the cycles of their transfers.
    jump: additional cycles of a taken branch.
    pipelined: a load after a load or store costs one cycle less.
    dual_issue: the core issues two instructions in a cycle.
    load_latency: additional cycles if the next instruction uses a loaded value.
    transfers: the number of registers that a multiple load or store transfers in a cycle.
    source: the source of the figures, for reports.
    """

    costs: Mapping[str, int]
    jump: int = 2
    pipelined: bool = False
    dual_issue: bool = False
    load_latency: int = 0
    transfers: int = 1
    source: str = ""


_M4 = Core(MappingProxyType({"load": 2, "float load": 2, "several": 1, "float several": 1, "pair": 3, "divide": 7,
                             "float divide": 14, "float multiply-add": 3}),
           pipelined=True, source="the Cortex-M4 manual's table")
CORES: Mapping[str, Core] = MappingProxyType({
    "cortex-m4": _M4,
    "cortex-m4-soft": _M4,
    "cortex-m33": Core(_M4.costs, pipelined=True, source="as on a Cortex-M4; there is no table of its own"),
    "cortex-m7": Core(MappingProxyType({"several": 0, "float several": 0, "divide": 7, "float divide": 14}),
                      jump=0, dual_issue=True, load_latency=1, transfers=2,
                      source="two instructions a cycle, approximated"),
    "cortex-m55": Core(MappingProxyType({"loop": 0, "several": 1, "float several": 1, "divide": 7, "float divide": 14}),
                       jump=2, load_latency=1, transfers=2, source="beats of Helium, approximated"),
})


def cycles(core: Core, code: Disassembly, blocks: Sequence[Block]) -> int:
    """Returns the modelled cycles of executed basic blocks."""
    total = 0
    for block in blocks:
        position = bisect_left(code.addresses, block.begin)
        lines = code.lines[position:position + block.instructions]
        last = class_of(*lines[-1]) if lines else ""
        reads_table = bool(lines) and lines[-1][0].startswith("tb")  # TBB, TBH: a cycle to load the offset
        jump = 0 if last == "loop" or not (lines and may_jump(*lines[-1])) else core.jump + reads_table
        total += block.times * straight(core, lines) + block.jumps * jump
    return total


def may_jump(mnemonic: str, operands: str) -> bool:
    """Returns whether an instruction may be followed by another one than the next in memory. At the end of a page of 1
    KB, qemu ends a block without one, and gives its last instruction two bytes too many."""
    return class_of(mnemonic, operands) in ("branch", "loop") or bool(_LOADS_PC.search(f"{mnemonic} {operands}"))


def class_of(mnemonic: str, operands: str) -> str:
    """Returns the class of an instruction."""
    name, vector = mnemonic.partition(".")[0], bool(re.search(r"\bq[0-7]\b", operands))
    return next(kind for kind, pattern, helium in CLASSES
                if (vector or not helium) and re.fullmatch(pattern, name))


@lru_cache(maxsize=1 << 16)     # thousands of runs execute the same blocks
def straight(core: Core, lines: tuple[tuple[str, str], ...]) -> int:
    """Returns the cycles of a sequence of instructions, without a taken branch at its end."""
    return sum(costs_of(core, lines))


def costs_of(core: Core, lines: Sequence[tuple[str, str]]) -> list[int]:
    """Returns the cycles of each instruction of a sequence, without taken branches: 0 for one that is issued together
    with the one before it."""
    # paired: the previous instruction was issued with the one before it, so it cannot be issued with the next one.
    costs, before, written, paired = [], "", frozenset[str](), True
    for mnemonic, operands in lines:
        kind = class_of(mnemonic, operands)
        read = frozenset(_registers(operands))
        needs = bool(written & read)
        cost = core.costs.get(kind, 1)
        if kind in ("several", "float several"):
            cost += -(-_count(operands) // core.transfers)
        elif core.pipelined and kind in ("load", "float load") and before in _MEMORY:
            cost -= 1
        elif kind in _HELIUM_UNITS:
            cost = 2 if _HELIUM_UNITS.get(before) == _HELIUM_UNITS[kind] else 1
        if needs and before in ("load", "float load"):
            cost += core.load_latency
        together = core.dual_issue and not paired and not needs and _together(before, kind)
        costs.append(0 if together else cost)
        paired, before, written = together, kind, _written(kind, mnemonic, operands)
    return costs


def _together(first: str, second: str) -> bool:
    """Returns whether a Cortex-M7 issues two neighbours of these classes together."""
    units = _M7_UNITS.get(first), _M7_UNITS.get(second)
    return None not in units and (units[0] != units[1] or units == ("alu", "alu"))


def _count(operands: str) -> int:
    """Returns the number of registers in a list in braces."""
    found = re.search(r"\{([^}]*)\}", operands)
    return len(_registers(found[1])) if found else 1


#: Names that objdump prints -> numbers of core registers.
_NAMED = {"sb": 9, "sl": 10, "fp": 11, "ip": 12, "sp": 13, "lr": 14, "pc": 15}


def _registers(operands: str) -> list[str]:
    """Returns the registers among operands, including those of ranges: "4" for r4, "s4", "d4" or "q4" for others."""
    registers = []
    for first, last in re.findall(r"\b([rsdq]\d+|sb|sl|fp|ip|sp|lr|pc)\b(?:\s*-\s*([rsdq]\d+|sb|sl|fp|ip|sp|lr))?",
                                  operands):
        begin = _NAMED.get(first, first)
        if not last:
            registers.append(str(begin) if isinstance(begin, int) else first.removeprefix("r"))
            continue
        letter = first[0] if first[0] in "sdq" and first[1:].isdigit() else ""
        first_number = int(_NAMED.get(first, 0) or first[1:])
        last_number = int(_NAMED.get(last, 0) or last[1:])
        registers += [f"{letter}{number}" for number in range(first_number, last_number + 1)]
    return registers


#: Loads of the program counter: the end of a function, or a jump by a table of addresses.
_LOADS_PC = re.compile(r"^(?:pop|ldm)\S* .*\bpc\}|^ldr\S* pc,")
#: Instructions whose first two operands are results.
_TWO_RESULTS = re.compile(r"[su]mull|[su]ml[as]l|umaal|ldrd")
_NO_RESULT = re.compile(r"(cmp|cmn|tst|teq|b|bl|bx|blx|cb.*|it.*|nop|str.*|vstr.*|push|vpush|stm.*|vcmp.*)$")


def _written(kind: str, mnemonic: str, operands: str) -> frozenset[str]:
    """Returns the registers that an instruction writes. kind: its class."""
    name = mnemonic.partition(".")[0]
    if _NO_RESULT.match(name) or kind == "branch":
        return frozenset()
    found = _registers(operands)
    return frozenset(found[:2] if _TWO_RESULTS.match(name) else found[:1])
