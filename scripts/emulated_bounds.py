# SPDX-License-Identifier: Apache-2.0
"""Runs a folder of the safety profile on adversarial inputs in the emulator, and compares each call with its bound.

    python scripts/emulated_bounds.py FOLDER [--runs 10000] [--target cortex-m33] [--seed 1]

The bounds are those of `megcc evidence`: of the firmware's stack (tvm_megcc/tools/evidence/evidence.py), and of the
instructions and modelled cycles of each call, from its directed inputs and `--random` random ones (timing.py beside
it). The exit status is 1 if a run exceeds one. The sessions write files for each run: TMPDIR in memory saves time.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tvm_megcc.runtime.emulator.cycles import CORES
from tvm_megcc.runtime.emulator.run import EmulatedSession
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.objects import JOBS
from tvm_megcc.tools.evidence.evidence import stack_bounds
from tvm_megcc.tools.evidence.properties import kernel_loops
from tvm_megcc.tools.evidence.sources import Sources
from tvm_megcc.tools.evidence.timing import Bounds, adversarial_inputs, directed_inputs, iterations, random_inputs


def counts(free: SimpleQueue[EmulatedSession], seed: int) -> tuple[int, list[int], list[int]]:
    """Returns the bytes of stack of a run on adversarial inputs, and instructions and cycles of each call.
    free: sessions that do not run."""
    session = free.get()
    session.reset()
    session.run(adversarial_inputs(session, seed))
    found = session.stack_bytes or 0, session.instructions, session.cycles or []
    free.put(session)
    return found


def emulated(folder: Path, target: str | None) -> EmulatedSession:
    """Returns a session that counts instructions."""
    session = load(folder, target)
    if not (isinstance(session, EmulatedSession) and session.target.bare_metal):
        raise SystemExit(f"{session.target} has no emulator that counts instructions")
    session.counted = True
    return session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--random", type=int, default=3)
    parser.add_argument("--target")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    session = emulated(arguments.folder, arguments.target)
    sources = Sources.of(arguments.folder, session.target)
    bounds = Bounds(session.code, iterations(session, kernel_loops(sources)))
    for feeds in (*(feeds for _, feeds in directed_inputs(session)),
                  *(random_inputs(session, seed) for seed in range(arguments.random))):
        session.reset()
        session.run(feeds)
        bounds.add(session.blocks)
    core, calls = CORES.get(session.target.name), range(len(session.calls))
    limits = [bounds.instructions(call) for call in calls]
    limit_cycles = [bounds.cycles(call, core) for call in calls] if core else []
    stack = next(row["bytes"] for row in stack_bounds(sources, session)["entries"]
                 if row["entry"] == "reset")
    most_stack, most, most_cycles, exceeded = 0, [0] * len(limits), [0] * len(limit_cycles), 0
    free: SimpleQueue[EmulatedSession] = SimpleQueue()
    for _ in range(JOBS):
        free.put(emulated(arguments.folder, arguments.target))
    with ThreadPoolExecutor(JOBS) as pool:
        for done, (used, instructions, cycles) in enumerate(
                pool.map(lambda seed: counts(free, arguments.seed * 1_000_000 + seed), range(arguments.runs)), 1):
            exceeded += any(a > b for a, b in zip((used, *instructions, *cycles), (stack, *limits, *limit_cycles),
                                                  strict=True))
            most_stack = max(most_stack, used)
            most = list(map(max, most, instructions))
            most_cycles = list(map(max, most_cycles, cycles))
            if done % 500 == 0:
                print(f"{done} runs, {exceeded} exceed a bound", flush=True)
    for call, row in enumerate(session.calls):
        found = f", {most_cycles[call]:,} of {limit_cycles[call]:,} cycles" if core else ""
        print(f"{call:3} {row['kernel'][:60]:60} {most[call]:,} of {limits[call]:,} instructions{found}")
    print(f"{arguments.runs} runs: {exceeded} exceed a bound; at most {most_stack:,} of {stack:,} bytes of stack, "
          f"{sum(most):,} of {sum(limits):,} instructions"
          + (f", {sum(most_cycles):,} of {sum(limit_cycles):,} cycles" if core else ""))
    return exceeded > 0


if __name__ == "__main__":
    raise SystemExit(main())
