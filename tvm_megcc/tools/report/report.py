# SPDX-License-Identifier: Apache-2.0
"""`megcc report`: collects facts about a compiled model for one CPU; `page.py` makes a page of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ...codegen.c_source.symbols import kernel_file
from ...codegen.memory.offsets import live_bytes
from ...codegen.memory.planner import PlannedMemory, plan_memories
from ...codegen.plan import KernelPlan
from ...codegen.weight_report import stored_bytes
from ...compiler import context_of, lower
from ...errors import MissingTool
from ...frontends.formats import require_model_file
from ...frontends.models import import_model
from ...ir.dims import likely
from ...ir.graph import Graph, Op
from ...passes.canonicalize.check import checked
from ...passes.canonicalize.preprocess import convert_inputs
from ...runtime.device import local_session
from ...runtime.load import load
from ...runtime.toolchain import runs_here
from ...target import Target, parse_targets
from ...version import VERSION
from .. import source
from ..bench import bench
from ..board import instructions
from .explain import calls_of
from .size import size


def report(path: str | Path, args) -> dict:
    """Returns the facts of one model on one CPU, the first of `args.target`. args: the options of `megcc report`.

    Returns:
        {model, target, megcc, options, inputs, outputs, sizes, time, rows, memory}, of JSON's types;
        sizes: bytes, None where no compiler could tell; time: {unit, total, measured, how}, where the unit is "ms",
        "cycles" or "instructions";
        rows: the operators in the order of execution {name, kind, kernel, operator, types, reads, makes, time, share,
        macs, algorithm, cost, refused}, where those without a call have neither kernel nor time;
        memory: {arena, lower_bound, buffers: [{name, kind, offset, bytes, first, last}], live: bytes by call,
        unbounded: how many values have no limit and do not lie in it}.

    Raises:
        MegccError: for a folder, since it does not hold what the choices were made from; for what does not compile.
    """
    require_model_file(path)
    cpu = parse_targets(args.target or "native")[0]
    graph, buckets = import_model(path, args.options)
    graph = convert_inputs(graph, args.options.inputs)
    graph = checked(graph, buckets, args.options.states)
    memories = partial(plan_memories, keep_inputs=args.options.keep_inputs, buckets=buckets)
    context = context_of(graph, cpu, args.options)
    plan = lower(graph, context, args.options.threads, memories).plan
    unbounded = plan.unbounded(plan.buckets(buckets))
    planned = max(memories(plan), key=lambda memory: memory.plan.arena_bytes)
    folder = source.folder_of(path, args)
    rows = rows_of(plan)
    return {
        "model": Path(path).name, "target": str(cpu), "megcc": VERSION,
        "options": {"optimize": args.options.optimize, "threads": args.options.threads, "log": bool(args.options.log)},
        "inputs": _ports(graph, graph.inputs), "outputs": _ports(graph, graph.outputs),
        "sizes": _sizes(plan, planned, folder, cpu, args.cc),
        "time": _timed(rows, plan, graph, folder, args), "rows": rows,
        "memory": {**_memory(planned), "unbounded": len(unbounded)}}


def rows_of(plan: KernelPlan) -> list[dict]:
    """Returns the operators in the order of execution, with their call if they have one."""
    calls = dict(zip((step.op for step in plan.steps), calls_of(plan), strict=True))
    nothing = {"kernel": "", "algorithm": "", "cost": 0.0, "macs": 0, "refused": {}}
    return [{"name": op.origin or op.outputs[0], "kind": op.kind, "time": None, "share": 0.0,
             "types": [str(plan.graph.types[name]) for name in op.outputs],
             "reads": _computed(plan.graph, op), "makes": list(op.outputs), **nothing, **calls.get(op, {})}
            for op in plan.graph.ops]


def _computed(graph: Graph, op: Op) -> list[str]:
    return [name for name in dict.fromkeys(op.inputs) if name and name not in graph.constants]


def _ports(graph: Graph, names) -> list[dict]:
    return [{"name": name, "type": str(graph.types[name])} for name in names]


def _timed(rows: list[dict], plan: KernelPlan, graph: Graph, folder: Path, args) -> dict:
    """Fills times into the rows: measured if this machine runs the code, counted if an emulator does, else estimated by
    the cost model."""
    calls = [row for row in rows if row["kernel"]]
    try:
        if plan.target.bare_metal:
            found, times = _counted(plan, folder, args)
        else:
            found, times = _measured(plan, graph, folder, args)
    except MissingTool as error:
        in_log = plan.context.times is not None
        times = [row["cost"] * (1e-6 if in_log else 1.0) for row in calls]  # costs of a log are nanoseconds
        what = "times of the tuning log" if in_log else "cycles of the cost model"
        found = {"unit": "ms" if in_log else "cycles", "total": sum(times), "measured": False,
                 "how": f"Not measured: {error} Shown are the {what} that kernels were chosen by."}
    total = sum(times) or 1.0
    for row, time in zip(calls, times, strict=True):
        row["time"], row["share"] = time, time / total
    return found


def _measured(plan: KernelPlan, graph: Graph, folder: Path, args) -> tuple[dict, list[float]]:
    """Returns `time` of the report by measurement, and the milliseconds of each call.

    Raises:
        MissingTool: if this machine does not run the code.
    """
    if not runs_here(plan.target):
        raise MissingTool(f"this machine does not run code for {plan.target}.")
    session = local_session(folder, plan.target.name, args.cc)
    shapes = {port.name: [likely(dim) for dim in graph.types[port.name].shape] for port in session.inputs}
    timings = bench.bench(session, args.inputs, seed=args.seed, shapes=shapes)
    seconds = timings["seconds"]
    sentence = (f"Measured on {timings['where']}, {timings['threads']} thread{'s' * (timings['threads'] != 1)}: the "
           f"median of {seconds['runs']} runs, spread {seconds['spread']:.1%}; layers by runs with a look at the clock "
           "around each call.")
    return ({"unit": "ms", "total": 1e3 * seconds["median"], "measured": True, "how": sentence},
            [1e3 * call["seconds"] for call in timings["calls"]])


def _counted(plan: KernelPlan, folder: Path, args) -> tuple[dict, list[float]]:
    """Returns the same as `_measured` for a microcontroller: cycles or instructions in an emulator, as `megcc bench`
    counts them.

    Raises:
        MissingTool: if there is no compiler or no emulator for it.
    """
    session = load(folder, plan.target.name, args.cc)
    session.counted = True
    counted = instructions.bench(session, args.inputs, args.seed)
    unit = "cycles" if "cycles" in counted else "instructions"
    sentence = f"Counted on {counted['board']} in an emulator: {counted['instructions']:,} instructions" + (
        f"; cycles by a model without wait states ({counted['cycle_model']})." if unit == "cycles" else ".")
    return ({"unit": unit, "total": counted[unit], "measured": True, "how": sentence},
            [float(call[unit]) for call in counted["calls"]])


def _sizes(plan: KernelPlan, planned: PlannedMemory, folder: Path, cpu: Target, cc: str | None) -> dict:
    """Returns the bytes. code: by kind of operator, with the runtime; None without a compiler for the
    target."""
    kinds = {Path(kernel_file(step.spec.symbol)).stem: step.op.kind for step in plan.steps}
    weights, unpacked = stored_bytes(plan)
    found = {"container": next(path.stat().st_size for path in folder.glob("*.megcc")),
             "weights": weights, "weights_in_model": unpacked,
             "arena": planned.plan.arena_bytes, "kernels": len(kinds), "calls": len(plan.steps),
             "macs": sum(row["macs"] for row in calls_of(plan)), "code": None, "compiler": None}
    try:
        built = size(folder, str(cpu), cc)
    except MissingTool:
        return found
    code: dict[str, dict] = {}
    for row in built["files"]:
        if row["part"] == "container":
            continue
        kind = kinds.get(Path(row["file"]).stem, row["part"])
        total = code.setdefault(kind, {"kind": kind, "files": 0, "bytes": 0})
        total["files"] += 1
        total["bytes"] += row["text"] + row["rodata"] + row["data"]
    return {**found, "code": sorted(code.values(), key=lambda row: -row["bytes"]), "compiler": built["compiler"]}


def _memory(planned: PlannedMemory) -> dict:
    buffers = [{"name": b.name, "kind": b.kind, "offset": planned.plan.offsets[b.name], "bytes": b.bytes,
                "first": b.first, "last": b.last} for b in planned.buffers if b.bytes]
    return {"arena": planned.plan.arena_bytes, "lower_bound": planned.plan.lower_bound, "buffers": buffers,
            "live": live_bytes(planned.buffers, planned.plan.alignment)}
