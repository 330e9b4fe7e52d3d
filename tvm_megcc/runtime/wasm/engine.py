# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled model in a WebAssembly engine, node or wasmtime. The engine compiles for this machine's CPU, so
times are real."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...errors import MegccError
from ..build import Build
from ..device import Times
from ..emulator.run import EmulatedSession
from ..session import Given

#: The number of warm-up runs: engines compile a program a second time, with optimisation, while it runs.
WARM_UP_RUNS = 20


class WebSession(EmulatedSession):
    """A session that runs the program of a build in node or wasmtime. where: the engine's name."""

    emulated = False

    def __init__(self, built: Build, engine: Sequence[str]):
        super().__init__(built, engine)
        self.where = _name(engine)

    def times(self, inputs: Given, runs: int, watched: int) -> Times:
        """Times `runs` runs, then `watched` more with each kernel call timed."""
        seconds, calls = (), ()
        if runs:
            lines = self._printed_lines(inputs, ("--repeat", str(runs), "--warmup", str(WARM_UP_RUNS), "--times"))
            # A line for each run, "time_us MICROSECONDS".
            seconds = tuple(1e-6 * float(line.split()[1]) for line in lines if line.startswith("time_us "))
        if watched:
            lines = self._printed_lines(inputs, ("--repeat", str(watched), "--warmup", str(WARM_UP_RUNS), "--profile"))
            # A line for each instruction, "instruction INDEX median_us MICROSECONDS …".
            per_instruction = [1e-6 * float(line.split()[3]) for line in lines if line.startswith("instruction ")]
            calls = tuple(per_instruction[call.get("instruction", index)] for index, call in enumerate(self.calls))
        return Times(seconds, calls)

    def profile(self, inputs: Given) -> list[dict]:
        calls = zip(self.calls, self.times(inputs, runs=0, watched=1).calls, strict=True)
        return [{**call, "seconds": seconds} for call, seconds in calls]

    def _printed_lines(self, inputs: Given, options: tuple[str, ...]) -> list[str]:
        """Runs the program with additional options. Returns the lines that it prints; the states stay as they were."""
        states, self._options = self._states, options
        try:
            self.run(inputs)
            return self._printed.splitlines()
        finally:
            self._states, self._options = states, ()

    def _execute(self, folder: Path, arrays) -> str:
        self._printed = super()._execute(folder, arrays)
        return self._printed


def _name(engine: Sequence[str]) -> str:
    """Returns the name of the engine: such as "node v20.20.2", or "wasmtime"."""
    if "node" not in Path(engine[0]).name:
        return "wasmtime"
    result = subprocess.run([engine[0], "--version"], capture_output=True, text=True, check=False)
    if result.returncode:
        raise MegccError(f"{engine[0]} does not say which version it is: {result.stderr.strip()}")
    return f"node {result.stdout.strip()}"
