# SPDX-License-Identifier: Apache-2.0
"""Runs a folder of the safety profile on adversarial inputs in the emulator, and compares each call with its bound.

    python scripts/emulated_bounds.py FOLDER [--runs 10000] [--target cortex-m33] [--seed 1]

The bounds of instructions and modelled cycles are those of `megcc evidence`: of its directed inputs, and of `--random`
random ones (tvm_megcc/tools/evidence/timing.py). The exit status is 1 if a call exceeds one.
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
from tvm_megcc.tools.evidence.timing import Bounds, adversarial_inputs, directed_inputs, random_inputs


def counts(free: SimpleQueue[EmulatedSession], seed: int) -> tuple[list[int], list[int]]:
    """Returns instructions and cycles of each call, of a run on adversarial inputs. free: sessions that do not run."""
    session = free.get()
    session.reset()
    session.run(adversarial_inputs(session, seed))
    found = session.instructions, session.cycles or []
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
    session, bounds = emulated(arguments.folder, arguments.target), Bounds()
    for feeds in (*(feeds for _, feeds in directed_inputs(session)),
                  *(random_inputs(session, seed) for seed in range(arguments.random))):
        session.reset()
        session.run(feeds)
        bounds.add(session.blocks)
    core, calls = CORES.get(session.target.name), range(len(session.calls))
    limits = [bounds.instructions(call) for call in calls]
    limit_cycles = [bounds.cycles(call, core, session.code) for call in calls] if core else []
    most, most_cycles, exceeded = [0] * len(limits), [0] * len(limit_cycles), 0
    free: SimpleQueue[EmulatedSession] = SimpleQueue()
    for _ in range(JOBS):
        free.put(emulated(arguments.folder, arguments.target))
    with ThreadPoolExecutor(JOBS) as pool:
        for done, (instructions, cycles) in enumerate(
                pool.map(lambda seed: counts(free, arguments.seed * 1_000_000 + seed), range(arguments.runs)), 1):
            exceeded += any(a > b for a, b in zip((*instructions, *cycles), (*limits, *limit_cycles), strict=True))
            most = list(map(max, most, instructions))
            most_cycles = list(map(max, most_cycles, cycles))
            if done % 500 == 0:
                print(f"{done} runs, {exceeded} exceed a bound", flush=True)
    for call, row in enumerate(session.calls):
        found = f", {most_cycles[call]:,} of {limit_cycles[call]:,} cycles" if core else ""
        print(f"{call:3} {row['kernel'][:60]:60} {most[call]:,} of {limits[call]:,} instructions{found}")
    print(f"{arguments.runs} runs: {exceeded} exceed a bound; at most {sum(most):,} of {sum(limits):,} instructions")
    return exceeded > 0


if __name__ == "__main__":
    raise SystemExit(main())
