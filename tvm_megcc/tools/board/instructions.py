# SPDX-License-Identifier: Apache-2.0
"""`megcc bench` for a microcontroller: counts the instructions of a run in the emulator, which has no meaningful
time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...errors import MegccError, ToolError, shortened
from ...runtime import calls
from ...runtime.emulator import firmware, flash
from ...runtime.emulator.cycles import CORES
from ...runtime.emulator.frames import completed
from ...runtime.emulator.run import EmulatedSession
from ..layers import KERNEL_WIDTH, NAME_WIDTH
from ..run import asking_for_inputs, inputs_of

#: The most files that the text lists.
FILES = 8


def bench(session: EmulatedSession, inputs: str | None = None, seed: int = 0, chip: str | None = None,
          fast_code: int | None = None) -> dict:
    """Runs a session once and reports its instructions, by call, and its memory.

    Args:
        inputs: .npz file with arrays by tensor name; else seeded random numbers.
        chip: the name of a chip, whose flash is modelled (flash.py).
        fast_code: bytes of memory without wait states for the functions that wait longest; a second run is with them.

    Raises:
        MegccError: for an unknown chip, and for fast_code without a chip.
    """
    if fast_code is not None and chip is None:
        raise MegccError("--fast-code says what waiting for a chip's flash it saves: give --chip, too")
    session.chip = flash.chip_of(chip, session.target.name) if chip else None
    feeds = inputs_of(session.inputs, inputs, seed)
    with asking_for_inputs(session.inputs, inputs):
        session.run(feeds)
    waits = _waits(session, feeds, fast_code)
    total = sum(session.instructions)
    rows = rows_of(session)
    static = stack_of(session)
    return {"model": session.name, "target": str(session.target), "board": firmware.BOARDS[session.target.name].name,
            "instructions": total,
            **({"cycles": sum(session.cycles), "cycle_model": CORES[session.target.name].source}
               if session.cycles else {}),
            **waits,
            **({"uncounted": session.uncounted} if session.uncounted else {}), "stack_bytes": session.stack_bytes,
            **({"stack_at_most": static.bytes, "stack_path": list(static.path), "stack_unknown": list(static.unknown),
                "stack_unbounded": list(static.unbounded)} if static else {}),
            "files": calls.memory_by_file(session.firmware.with_suffix(".map").read_text()),
            "firmware": {**firmware.sizes(session.firmware), "container": session.container_bytes}, "calls": rows}


def _waits(session: EmulatedSession, feeds: Any, fast_code: int | None) -> dict:
    """Returns the cycles that the last run waited for the flash of the session's chip, and those that a second run
    waits with the functions that wait longest in memory without wait states."""
    if session.chip is None or session.cycles is None:
        return {}
    blocks = [block for call in session.blocks for block in call]
    found: dict[str, Any] = {"chip": session.chip.name, "mhz": session.chip.mhz, "flash_model": str(session.chip),
                             "assumed": session.chip.assumed, "source": session.chip.source,
                             "waits_for_code": sum(block.code_waits for block in blocks),
                             "waits_for_constants": sum(block.data_waits for block in blocks)}
    if fast_code is None:
        return found
    placed = flash.worth_placing(session.code, session.blocks, fast_code)
    session.fast = frozenset(function.name for function in placed)
    session.run(feeds)
    return {**found, "fast_code": {
        "bytes": sum(function.bytes for function in placed), "waits": sum(session.waits),
        "functions": [{"name": function.name, "bytes": function.bytes, "waits": function.waits}
                      for function in placed]}}


def rows_of(session: EmulatedSession) -> list[dict]:
    """Returns the figures of each instruction of the program in the last counted run. Some are no kernel calls: they
    read an extent, copy or jump."""
    total, calls_at = sum(session.instructions), {call["instruction"]: call for call in session.calls}
    runtime, rows = {"origin": "the runtime", "kind": "", "kernel": "", "macs": 0}, []
    for index, count in enumerate(session.instructions):
        call = calls_at.get(index, runtime)
        rows.append({"name": call["origin"] or call["kind"], "kind": call["kind"], "kernel": call["kernel"],
                     "instructions": count, "share": count / max(total, 1),
                     "macs_per_instruction": call["macs"] / count if call["macs"] and count else None,
                     **({"cycles": session.cycles[index]} if session.cycles else {}),
                     **({"waits": session.waits[index]} if session.chip and session.cycles else {})})
    return rows


def stack_of(session: EmulatedSession) -> calls.Deepest | None:
    """Returns the largest stack by the compiler's figures and, where it has none, by instructions; None if the compiler
    writes no call graphs."""
    file = session.firmware.with_suffix(calls.ENDING)
    text = file.read_text() if file.exists() else ""
    if not text:
        return None
    graph = calls.CallGraph.read(text)
    with suppress(ToolError):  # without objdump the figures are the compiler's only
        graph = completed(graph, session.code)
    return graph.deepest("reset")  # the reset handler of start.c, from which everything is called


def _cycles_text(report: dict) -> str:
    if "uncounted" in report:   # the reason why instructions were derived from the emulator's clock
        return f" (each call within about 40), no cycles: {report['uncounted']}"
    if "cycles" not in report:
        return ""
    return f", about {report['cycles']:,} cycles by a model without wait states ({report['cycle_model']})"


def _waits_text(report: dict) -> list[str]:
    if "chip" not in report:
        return []
    code, constants, cycles = report["waits_for_code"], report["waits_for_constants"], report["cycles"]

    def with_waits(waits: int) -> str:
        total = cycles + waits
        return f"about {total:,} cycles, {total / report['mhz'] / 1e3:.2f} ms"

    assumed = f", assumed: {report['assumed']}" if report["assumed"] else ""
    lines = [f"  with the flash of {report['flash_model']}{assumed}: {with_waits(code + constants)}; "
             f"waiting for code {100 * code / cycles:.1f} %, for constants "
             f"{100 * constants / cycles:.1f} % of the cycles without waiting"]
    if "fast_code" in report:
        fast = report["fast_code"]
        lines.append(f"  the same with {fast['bytes']:,} bytes of code in memory without wait states: "
                     f"{with_waits(fast['waits'])}")
        if fast["functions"]:
            lines.append("    in a linker script: " + " ".join(f"*(.text.{row['name']})" for row in fast["functions"]))
    return lines


def _stack_text(report: dict) -> list[str]:
    if "stack_at_most" not in report:
        return []
    lines = [f"  by the compiler's figures {report['stack_at_most']:,} bytes of stack at most: "
             + " > ".join(shortened(name.rpartition(":")[2], 40) for name in report["stack_path"])]
    if report["stack_unknown"]:
        lines.append(f"    not counted: {', '.join(report['stack_unknown'])}")
    if report["stack_unbounded"]:
        lines.append(f"    without a limit: {', '.join(report['stack_unbounded'])}")
    return lines


def _files_text(report: dict) -> list[str]:
    lines = []
    for memory, files in report["files"].items():
        most = [f"{shortened(name, 40)} {count:,}" for name, count in list(files.items())[:FILES]]
        rest = sum(list(files.values())[FILES:])
        others = f", {len(files) - FILES} more {rest:,}" if rest else ""
        lines.append(f"  {memory} by file: {', '.join(most)}{others}")
    return lines


def text(report: dict) -> str:
    needs = report["firmware"]
    lines = [f"{report['model']} on {report['target']}, emulated on {report['board']}",
             f"  {report['instructions']:,} instructions" + _cycles_text(report),
             f"  flash {needs['flash']:,} bytes ({needs['container']:,} of them the model), "
             f"{firmware.needs_text(needs)}, deepest stack {report['stack_bytes']:,} bytes",
             *_waits_text(report), *_stack_text(report), *_files_text(report)]
    names = [shortened(call["name"], NAME_WIDTH) for call in report["calls"]]
    width = max([8, *map(len, names)])
    modelled, waiting = "cycles" in report, "chip" in report
    lines.append(f"     #  instructions      %  MAC/instr  {'    ~cycles  ' * modelled}{'   ~waits  ' * waiting}"
                 f"{'operator':{width}}  kernel")
    for index in sorted(range(len(names)), key=lambda index: -report["calls"][index]["instructions"]):
        call = report["calls"][index]
        rate = f"{call['macs_per_instruction']:.2f}" if call["macs_per_instruction"] else ""
        lines.append(f"  {index:4d}  {call['instructions']:12,} {100 * call['share']:6.1f} {rate:>10}  "
                     f"{format(call['cycles'], '11,') + '  ' if modelled else ''}"
                     f"{format(call['waits'], '9,') + '  ' if waiting else ''}"
                     f"{names[index]:{width}}  {shortened(call['kernel'], KERNEL_WIDTH)}")
    return "\n".join(lines) + "\n"
