# SPDX-License-Identifier: Apache-2.0
"""`megcc bench` for a microcontroller: counts the instructions of a run in the emulator, which has no meaningful
time."""

from __future__ import annotations

from contextlib import suppress

from ...errors import ToolError, shortened
from ...runtime import calls
from ...runtime.emulator import firmware
from ...runtime.emulator.cycles import CORES
from ...runtime.emulator.frames import completed
from ...runtime.emulator.run import EmulatedSession
from ..layers import KERNEL_WIDTH, NAME_WIDTH
from ..run import asking_for_inputs, inputs_of

#: The most files that the text lists.
FILES = 8


def bench(session: EmulatedSession, inputs: str | None = None, seed: int = 0) -> dict:
    """Runs a session once and reports its instructions, by call, and its memory.

    Args:
        inputs: .npz file with arrays by tensor name; else seeded random numbers.
    """
    feeds = inputs_of(session.inputs, inputs, seed)
    with asking_for_inputs(session.inputs, inputs):
        session.run(feeds)
    total = sum(session.instructions)
    rows = rows_of(session)
    static = stack_of(session)
    return {"model": session.name, "target": str(session.target), "board": firmware.BOARDS[session.target.name].name,
            "instructions": total,
            **({"cycles": sum(session.cycles), "cycle_model": CORES[session.target.name].source}
               if session.cycles else {}),
            **({"uncounted": session.uncounted} if session.uncounted else {}), "stack_bytes": session.stack_bytes,
            **({"stack_at_most": static.bytes, "stack_path": list(static.path), "stack_unknown": list(static.unknown),
                "stack_unbounded": list(static.unbounded)} if static else {}),
            "files": calls.memory_by_file(session.firmware.with_suffix(".map").read_text()),
            "firmware": {**firmware.sizes(session.firmware), "container": session.container_bytes}, "calls": rows}


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
                     **({"cycles": session.cycles[index]} if session.cycles else {})})
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
             *_stack_text(report), *_files_text(report)]
    names = [shortened(call["name"], NAME_WIDTH) for call in report["calls"]]
    width = max([8, *map(len, names)])
    modelled = "cycles" in report
    lines.append(f"     #  instructions      %  MAC/instr  {'    ~cycles  ' * modelled}{'operator':{width}}  kernel")
    for index in sorted(range(len(names)), key=lambda index: -report["calls"][index]["instructions"]):
        call = report["calls"][index]
        rate = f"{call['macs_per_instruction']:.2f}" if call["macs_per_instruction"] else ""
        lines.append(f"  {index:4d}  {call['instructions']:12,} {100 * call['share']:6.1f} {rate:>10}  "
                     f"{format(call['cycles'], '11,') + '  ' if modelled else ''}"
                     f"{names[index]:{width}}  {shortened(call['kernel'], KERNEL_WIDTH)}")
    return "\n".join(lines) + "\n"
