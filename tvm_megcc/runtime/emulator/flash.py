# SPDX-License-Identifier: Apache-2.0
"""Flash that is slower than the core: a table of chips, and a model of how long the core waits for instructions and
constants. The plugin of qemu simulates each fetch and each load of a run (wait_states.c).

It is a model, not a measurement. It has the words of the flash, its wait states, prefetch, and caches that replace the
least recently used line. The bus between core and flash, and memory that is not flash, have no wait states. There are
no other bus masters. A read of flash that has begun is not aborted, and the core waits for a load at the load.

The parameters are nominal ones of the manuals that each row names; `assumed` names those that no document gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import MegccError
from .counting import Block, Disassembly
from .cycles import Core, costs_of

#: The bit of a byte of the file of costs that says that an instruction is in memory without wait states.
_FAST = 0x80
#: The file of costs in the working directory of a run.
COSTS = "costs.bin"


@dataclass(frozen=True)
class Cache:
    """A cache of flash.

    bytes: its size.
    ways: lines of a set.
    line: bytes of a line.
    whole: whether a miss reads the whole line; else only the word of the flash that is needed.
    """

    bytes: int
    ways: int
    line: int
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.bytes >> 10} KB" if self.bytes >= 1024 else f"{self.bytes} bytes"


@dataclass(frozen=True)
class Chip:
    """A microcontroller and its flash.

    name: as a user writes it.
    target: the target whose code it runs.
    mhz: megahertz of the core, for which the wait states are.
    width: bytes of a word of the flash, which one read returns.
    wait_states: additional cycles of a read of a word.
    sequential: the same for a word after the last one that was read.
    prefetch: whether the next word is read while the core executes instructions of a word.
    code: the cache of instructions.
    data: the cache of constants; None: `code` has them too.
    source: the documents that the figures are of.
    assumed: what no document gives; "": nothing.
    """

    name: str
    target: str
    mhz: int
    width: int
    wait_states: int
    sequential: int
    prefetch: bool
    code: Cache
    data: Cache | None
    source: str
    assumed: str = ""

    def __str__(self) -> str:
        caches = f"cache {self.code}" if self.data is None else f"caches {self.code} and {self.data}"
        return (f"{self.name} at {self.mhz} MHz (words of {8 * self.width} bits, {self.wait_states} wait states, "
                f"{caches}{', prefetch' if self.prefetch else ''})")


#: 8 bytes of a serial flash by four wires: 8 clocks of address, 4 of waiting, 16 of data; a clock is two cycles.
_QUAD_SPI = 2 * (8 + 4 + 16) - 1
_QUAD_SPI_NEXT = 2 * 16 - 1
CHIPS: Mapping[str, Chip] = {chip.name: chip for chip in (
    Chip("stm32l4r5", "cortex-m4", 120, 8, 5, 5, True, Cache(1024, 32, 32, whole=False),
         Cache(256, 8, 32, whole=False), "STM32L4+ reference manual (RM0432): flash in two banks, ART"),
    Chip("stm32u575", "cortex-m33", 160, 16, 4, 4, True, Cache(8 << 10, 2, 16), None,
         "STM32U5 reference manual (RM0456): ICACHE, which caches constants too"),
    Chip("stm32h7a3", "cortex-m7", 280, 16, 6, 6, False, Cache(16 << 10, 2, 32), Cache(16 << 10, 4, 32),
         "STM32H7A3 reference manual (RM0455), Cortex-M7 manual (DDI 0489)", "a bus without delay"),
    Chip("nrf5340", "cortex-m33", 128, 16, 4, 4, False, Cache(8 << 10, 2, 16), None,
         "nRF5340 product specification, CACHE", "4 wait states"),
    Chip("rp2350", "cortex-m33", 150, 8, _QUAD_SPI, _QUAD_SPI_NEXT, False, Cache(16 << 10, 2, 8), None,
         "RP2350 datasheet: XIP cache, QMI", "a serial flash at 75 MHz by four wires"),
)}


def chip_of(name: str, target: str) -> Chip:
    """Returns the row of a chip.

    Raises:
        MegccError: if there is none of that name, or its core is not the target's.
    """
    chip = CHIPS.get(name.lower())
    if chip is None:
        raise MegccError(f"there is no flash model of '{name}'; there are {', '.join(CHIPS)}")
    if chip.target != target:
        raise MegccError(f"the code is for {target}, and {chip.name} has a {chip.target}: compile with "
                         f"--target {chip.target}")
    return chip


def options(chip: Chip, begin: int, size: int, core: Core) -> list[str]:
    """Returns the plugin's options. begin, size: address and bytes of the flash."""
    def cache(row: Cache) -> str:
        return f"{row.bytes}:{row.ways}:{row.line}:{int(row.whole)}"

    return [f"flash={begin:x}:{begin + size:x}:{chip.width}:{chip.wait_states}:{chip.sequential}:{int(chip.prefetch)}",
            f"code_cache={cache(chip.code)}", f"data_cache={cache(chip.data) if chip.data else 'code'}",
            f"jump={core.jump}", f"costs={COSTS}"]


def write_costs(path: Path, core: Core, code: Disassembly, begin: int, fast: Collection[str] = ()) -> None:
    """Writes the modelled cycles of the instruction at each second address of the flash, one byte each. begin: the
    flash's address. fast: functions in memory without wait states."""
    costs = bytearray((code.addresses[-1] - begin) // 2 + 2) if code.addresses else bytearray(1)
    ranges = [span for name, span in functions(code).items() if name in fast]
    for address, cost in zip(code.addresses, costs_of(core, code.lines), strict=True):
        if address >= begin:
            index = (address - begin) // 2
            costs[index] = min(cost, _FAST - 1)
    for span in ranges:
        for index in range((span.start - begin) // 2, (span.stop - begin) // 2):
            costs[index] |= _FAST
    path.write_bytes(costs)


def functions(code: Disassembly) -> dict[str, range]:
    """Returns the addresses of each function."""
    starts = sorted((address, name) for name, address in code.functions.items())
    ends = [address for address, _ in starts[1:]] + [code.addresses[-1] + 4 if code.addresses else 0]
    return {name: range(address, end) for (address, name), end in zip(starts, ends, strict=True)}


@dataclass(frozen=True)
class Placed:
    """A function that is worth a place in fast memory. waits: the cycles that the core waits for its instructions."""

    name: str
    bytes: int
    waits: int


def worth_placing(code: Disassembly, calls: Collection[Collection[Block]], size: int) -> list[Placed]:
    """Returns functions of `size` bytes at most, those that have the most cycles of waiting per byte."""
    waits: dict[str, int] = {}
    spans = functions(code)
    owner = sorted((span.start, span.stop, name) for name, span in spans.items())
    by_address: dict[int, int] = {}
    for block in (block for blocks in calls for block in blocks):
        by_address[block.begin] = by_address.get(block.begin, 0) + block.code_waits
    position = 0
    for address, cycles in sorted(by_address.items()):
        while position < len(owner) and owner[position][1] <= address:
            position += 1
        if position < len(owner) and owner[position][0] <= address:
            name = owner[position][2]
            waits[name] = waits.get(name, 0) + cycles
    rows = [Placed(name, len(spans[name]), cycles) for name, cycles in waits.items() if cycles]
    chosen: list[Placed] = []
    for row in sorted(rows, key=lambda row: -row.waits / row.bytes):
        if row.bytes <= size:
            chosen.append(row)
            size -= row.bytes
    return chosen
