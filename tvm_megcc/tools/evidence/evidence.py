# SPDX-License-Identifier: Apache-2.0
"""Collects the evidence about a folder of the safety profile: properties, bounds, measurements and the trace."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ... import folders
from ...codegen import container
from ...codegen.embedding import read_container
from ...codegen.manifest import read_manifest
from ...codegen.safety import is_safe
from ...errors import MegccError
from ...runtime.build import model_of, target_of
from ...runtime.calls import ENDING, CallGraph
from ...runtime.emulator import firmware, frames
from ...runtime.emulator.cycles import CORES, Core
from ...runtime.emulator.run import EmulatedSession
from ...runtime.load import load
from ...runtime.session import Session
from ...target import Target
from ...version import VERSION
from . import timing, trace, value_analysis
from .loops import Loop
from .properties import kernel_loops, kernels_of, properties
from .runtime_loops import runtime_loops
from .sources import Sources

_API = re.compile(r"\b(megcc_\w+)\(")


def evidence(folder: Path, target: str | None = None, cc: str | None = None, model: str | None = None,
             runs: int = 3, analysis_seconds: float = 0,
             progress: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Returns the evidence about a folder of the safety profile as values of JSON.

    Args:
        target: one of the folder's targets; None: the first.
        cc: the C compiler, a gcc.
        model: the name of the model, if the folder has several.
        runs: the number of measured runs with random inputs, besides those that drive branches.
        analysis_seconds: the longest analysis of a kernel by Frama-C; 0: there is none.
        progress: called with a line about each kernel that was analysed.

    Raises:
        MegccError: for a folder without the profile, whose files were edited, or of another target than `c` if it is to
            be analysed.
        ToolError: if there is no compiler, or it writes no call graphs.
    """
    folders.require_folder(folder)
    manifest = read_manifest(folder)
    facts = model_of(manifest, model, folder)
    if not is_safe(facts):
        raise MegccError(f"{folder} has no safety profile: compile the model with --profile safety")
    _require_unedited(folder, manifest)
    chosen = target_of(manifest, target, folder)
    program = next(row for row in facts["programs"] if row["target"] == chosen.name)
    if analysis_seconds:
        _require_portable(chosen)
    sources = Sources.of(folder, chosen, cc)
    loops, kernels = kernel_loops(sources), kernels_of(sources)
    session = load(folder, chosen, cc, model=model)
    image = read_container(folder, facts["name"], chosen)
    operators = trace.operator_rows(program, kernels, trace.memory_of(image, chosen.isa.code))
    functions = trace.function_rows(sources, program, kernels)
    measured = _measured(session, runs, loops)
    analysed = value_analysis.analyse(
        sources, value_analysis.kernels_of(program, image, chosen.isa.code, kernels,
                                           (folder / value_analysis.table_file(folder, facts["name"])).read_text()),
        analysis_seconds, (facts["name"], image), progress) if analysis_seconds else None
    return {
        "generator": f"tvm_megcc {VERSION}", "model": facts["name"], "source": facts["model"], "target": chosen.name,
        "folder": folder.name, "compiler": _version(sources), "flags": list(sources.flags),
        "files": manifest["files"],
        "properties": [{"name": row.name, "holds": row.holds, "against": list(row.against), "how": row.how}
                       for row in properties(sources, list(chain(*loops.values())))],
        "stack": stack_bounds(sources, session),
        "loops": [{"kernel": kernel, "function": loop.function, "place": _relative(loop.place, folder),
                   "head": loop.head, "at_most": loop.at_most} for kernel, rows in loops.items() for loop in rows],
        "runtime_loops": _runtime_loops(sources, image, len(facts["programs"])),
        "analysis": analysed, "calls": measured, "memory": _memory(program, session, chosen, len(image)),
        "operators": operators, "functions": functions,
        "gaps": trace.gaps(operators, functions, program, sources)}


def complete(facts: Mapping[str, Any]) -> bool:
    """Whether all properties hold, the trace has no gap, every loop and stack has a bound, and the analysis of values,
    if there is one, has no alarm."""
    return (all(row["holds"] for row in facts["properties"]) and not facts["gaps"]
            and all(row["at_most"] is not None for row in (*facts["loops"], *facts["runtime_loops"]))
            and all(not row["unbounded"] for row in facts["stack"]["entries"])
            and all(not row["alarms"] and not row["reason"] for row in (facts["analysis"] or {"rows": ()})["rows"]))


def _require_portable(target: Target) -> None:
    value_analysis.frama_c_version()
    if target.name != "c":
        raise MegccError(f"--value-analysis reads portable C, and {target} has instructions in assembler: compile the "
                         "model for --target c")


def _require_unedited(folder: Path, manifest: Mapping[str, Any]) -> None:
    edited = [name for name, digest in manifest["files"].items()
              if not (folder / name).is_file() or folders.sha256(folder / name) != digest]
    if edited:
        raise MegccError(f"{folder}: '{edited[0]}' is not as the compiler wrote it; compile the model again")


def _runtime_loops(sources: Sources, image: bytes, codes: int) -> list[dict[str, Any]]:
    """Returns a row for each loop of the runtime. codes: the number of programs that the folder has code for."""
    model = container.read(image)
    program = next(row for row in model.programs if row.isa == sources.target.isa.code)
    return [{"function": row.loop.function, "place": _relative(row.loop.place, sources.folder), "head": row.loop.head,
             "at_most": row.loop.at_most, "reason": row.reason}
            for row in runtime_loops(sources, _api(sources), model, program, codes)]


def _api(sources: Sources) -> list[str]:
    """Returns the functions of the C API that the folder has."""
    header = (sources.folder / "runtime" / "include" / "megcc.h").read_text()
    defined = {name for source, name, letter in sources.symbols if letter == "T" and source.startswith("runtime/")}
    return sorted(defined & set(_API.findall(header)))


def _relative(place: str, folder: Path) -> str:
    path, _, line = place.rpartition(":")
    return f"{Path(path).relative_to(folder).as_posix() if Path(path).is_relative_to(folder) else path}:{line}"


def _version(sources: Sources) -> str:
    result = subprocess.run([*sources.compiler.command, "--version"], capture_output=True, text=True, check=False)
    return result.stdout.partition("\n")[0]


# --- stack ----------------------------------------------------------------------------------------------------------

def stack_bounds(sources: Sources, session: Session) -> dict[str, Any]:
    """Returns the bound of every function of the C API. On a microcontroller they are those of the firmware, which has
    the compiler's library in it; otherwise those of the object files."""
    names = _api(sources)
    text, how = sources.graph_text, "object files"
    library: dict[str, int] = {}
    if isinstance(session, EmulatedSession) and sources.target.bare_metal:
        graph = session.firmware.with_suffix(ENDING)
        text, how = graph.read_text(), f"build/{sources.target.name}/{graph.name}"
        calls = CallGraph.read(text)
        unknown = set().union(*calls.calls.values()) - set(calls.stack)
        # gcc's graph also has calls that gcc or the linker removed later. Their functions are not in the firmware.
        unlinked = unknown - sources.defined(session.firmware)
        calls = frames.completed(calls, session.code, unlinked)
        library = {name: calls.stack[name] for name in sorted(unknown & set(calls.stack)) if calls.stack[name]}
        names = [*(name for name in names if name in calls.stack), "reset"]
    else:
        calls = CallGraph.read(text)
    rows = [{"entry": name, "bytes": found.bytes, "path": [part.rpartition("/")[2] for part in found.path],
             "unknown": list(found.unknown), "unbounded": list(found.unbounded)}
            for name, found in ((name, calls.deepest(name)) for name in names)]
    return {"entries": rows, "library": library, "call_graph": how,
            "painted": session.stack_bytes if isinstance(session, EmulatedSession) else None}


# --- measurements ---------------------------------------------------------------------------------------------------

def _measured(session: Session, runs: int, loops: Mapping[str, Sequence[Loop]]) -> dict[str, Any]:
    """Returns the instructions and modelled cycles of each call: the least and the most of some emulated runs, and
    bounds. loops: those of each kernel."""
    names = [{"function": call["kernel"], "operator": call["origin"] or call["kind"]} for call in session.calls]
    if not (isinstance(session, EmulatedSession) and session.target.bare_metal):
        return {"runs": [], "rows": names, "reason": f"{session.target} has no emulator that counts instructions"}
    session.counted = True  # the next runs count the instructions of each call
    inputs, instructions, cycles = [], [], []
    bounds = timing.Bounds(session.code, timing.iterations(session, loops))
    for name, feeds in chain(timing.directed_inputs(session), ((f"random numbers of seed {seed}", timing.random_inputs(
            session, seed)) for seed in range(runs))):
        session.reset()
        session.run(feeds)
        inputs.append(name)
        instructions.append(session.instructions)
        cycles.append(session.cycles or [])
        if session.blocks:
            bounds.add(session.blocks)
    core = CORES.get(session.target.name)
    rows = [{**row, "least": min(counts), "most": max(counts), **({"cycles": max(modelled)} if modelled else {}),
             **_bounds(core, bounds, call)}
            for call, (row, counts, modelled) in enumerate(zip(
                names, zip(*instructions, strict=True), zip(*cycles, strict=True) if cycles[0] else [()] * len(names),
                strict=True))]
    return {"runs": inputs, "rows": rows, "least": min(map(sum, instructions)), "most": max(map(sum, instructions)),
            **({"at_most": sum(row["at_most"] for row in rows)} if bounds.runs else {}),
            **({"cycles": max(map(sum, cycles)), "cycles_at_most": sum(row["cycles_at_most"] for row in rows),
                "cycle_model": core.source} if core and cycles[0] else {}),
            **({"reason": session.uncounted} if session.uncounted else {})}


def _bounds(core: Core | None, bounds: timing.Bounds, call: int) -> dict[str, Any]:
    """Returns the bounds of a call, and the functions whose instructions depend on data."""
    if not bounds.runs:
        return {}
    return {"at_most": bounds.instructions(call), "depends_on_data": bounds.functions(call),
            **({"cycles_at_most": bounds.cycles(call, core)} if core else {})}


def _memory(program: Mapping[str, Any], session: Session, target: Target, container_bytes: int) -> dict[str, Any]:
    sizes = firmware.sizes(session.firmware) if isinstance(session, EmulatedSession) and target.bare_metal else {}
    return {"arena": program["arena_bytes"], "weights": program["weight_bytes"], "container": container_bytes,
            **{f"firmware_{name}": value for name, value in sizes.items()}}


