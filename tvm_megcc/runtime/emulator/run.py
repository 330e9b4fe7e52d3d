# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled model in an emulator, for a CPU that this machine does not have."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen.embedding import read_container
from ...errors import MegccError, ToolError
from ...ir.limits import MAX_RANK
from ..build import Build
from ..session import Array, Arrays, Port, Session
from . import counting, firmware, flash
from .cycles import CORES, cycles


class EmulatedSession(Session):
    """A session that runs the program of a build in an emulator. Every run is a process, which begins with the states
    that the last run left.

    stack_bytes: the largest stack of the last run on a microcontroller.
    counted: instructions are counted in the following runs.
    instructions: the number of instructions of each call in the last counted run.
    blocks: the basic blocks of each call in that run; none if they were not counted exactly.
    cycles: the modelled cycles of each call (`cycles.py`), without waiting for flash; None if there is no model of the
        core.
    chip: the chip whose flash is modelled in counted runs (`flash.py`); None: flash without wait states.
    fast: the functions that the model takes to be in memory without wait states.
    waits: the cycles of each call that the core waited for the chip's flash.
    uncounted: the reason why instructions were derived from the emulator's clock, accurate to about 40, and there are
        no cycles; "" if they were counted exactly.
    """

    emulated = True

    def __init__(self, built: Build, emulator: Sequence[str]):
        super().__init__(built)
        self._program, self._emulator = built.program.resolve(), tuple(emulator)
        self._compiler = built.compiler
        self._container = read_container(built.folder, self.name, built.target)
        self.stack_bytes: int | None = None
        self.counted, self.instructions = False, [0]
        self.blocks: list[list[counting.Block]] = []
        self.cycles: list[int] | None = None
        self.chip: flash.Chip | None = None
        self.fast: frozenset[str] = frozenset()
        self.waits: list[int] = []
        self.uncounted = ""
        self._states = self._checked_states(None)
        self._takes_plugins = False             # known after the first counted run
        self._options: tuple[str, ...] = ()     # additional options of the program

    @property
    def firmware(self) -> Path:
        """The program or firmware image of the build."""
        return self._program

    @cached_property
    def code(self) -> counting.Disassembly:
        """The instructions of the program. Raises ToolError without the compiler's objdump."""
        return counting.disassembly(self._program, self._compiler, self.target.isa.helium)

    @property
    def container_bytes(self) -> int:
        return len(self._container)

    def reset(self, states: Arrays | None = None) -> None:
        self._states = self._checked_states(states)

    @property
    def states(self) -> dict[str, Array]:
        return {name: value.copy() for name, value in self._states.items()}

    def _rows(self, counter: str) -> int:
        return int(self._states[counter][0])

    def run(self, inputs: Any, feeds: Arrays | None = None, run_options: object = None) -> Any:
        if feeds is not None:
            return self._in_order(inputs, feeds)
        given, outputs = iter(self._checked(inputs)), {}
        arrays = [self._states[port.name] if port in self.state_ports else next(given) for port in self._all_inputs]
        with tempfile.TemporaryDirectory() as folder:
            for index, array in enumerate(arrays):
                array.tofile(Path(folder) / f"in{index}.bin")
                if self.is_dynamic:
                    row = np.zeros(1 + MAX_RANK, np.int32)
                    row[:1 + array.ndim] = array.ndim, *array.shape
                    row.tofile(Path(folder) / f"shape{index}.bin")
            printed = self._execute(Path(folder), arrays)
            for index, port in enumerate(self._all_outputs):
                shape = port.shape
                if (port.counted or self.is_dynamic) and self.target.bare_metal:
                    shape = tuple(np.fromfile(Path(folder) / f"dims{index}.bin", np.int32).tolist())
                elif port.counted or self.is_dynamic:
                    shape = _printed_shape(printed, index)
                outputs[port.name] = self._output(Path(folder) / f"out{index}.bin", port, shape)
            if self.target.bare_metal:
                self.stack_bytes = int(np.fromfile(Path(folder) / "stack.bin", np.uint32)[0])
                if self.counted:
                    self._count(Path(folder))
        self._states = {state: outputs.pop(name) for name, state in self.state_of.items()}
        return self._with_strings(outputs)

    def _counting(self, folder: Path) -> tuple[str, ...]:
        """Returns the emulator's options for counting: those of the plugin or, if that is not possible, of the
        clock. folder: the working directory of the run."""
        try:
            plugin_options = counting.options(self._emulator[0], self.code.functions, self._flash(folder))
            if not self._takes_plugins:
                probe = subprocess.run([self._emulator[0], *plugin_options, "-version"], capture_output=True,
                                       check=False, cwd=folder)
                if probe.returncode:
                    raise ToolError(f"{self._emulator[0]} takes no plugins")
                self._takes_plugins = True
        except (ToolError, OSError) as error:
            self.uncounted = str(error)
            return firmware.CLOCK
        return plugin_options

    def _flash(self, folder: Path) -> list[str]:
        """Returns the plugin's options for the model of the chip's flash, whose costs it writes into the folder."""
        if self.chip is None:
            return []
        board, core = firmware.BOARDS[self.target.name], CORES[self.target.name]
        flash.write_costs(folder / flash.COSTS, core, self.code, board.flash, self.fast)
        return flash.options(self.chip, board.flash, {**firmware.LIMITS, **board.limits}["flash"], core)

    def _count(self, folder: Path) -> None:
        """Reads the files with the counts of a run, and sets `instructions` and `cycles`."""
        counts = folder / "counts.txt"
        if not counts.exists():
            ticks = np.fromfile(folder / "ticks.bin", np.uint32)
            self.instructions = firmware.instructions([int(tick) for tick in ticks])
            return
        self.blocks = counting.read(counts.read_text())
        self.instructions = counting.instructions(self.blocks)
        core = CORES.get(self.target.name)
        self.cycles = [cycles(core, self.code, blocks) for blocks in self.blocks] if core else None
        self.waits = [sum(block.code_waits + block.data_waits for block in blocks) for blocks in self.blocks]

    def _output(self, path: Path, port: Port, shape: tuple) -> Array:
        data = np.fromfile(path, np.dtype(port.dtype))
        if data.size != math.prod(shape):
            raise self._other_container(f"output {port} has {data.size} elements")
        return data.reshape(shape)

    def _execute(self, folder: Path, arrays: Sequence[Array]) -> str:
        """Runs the program, which reads in<i>.bin in the folder and writes out<i>.bin. Returns what it printed."""
        if self.target.bare_metal:
            command = firmware.emulation(*self._emulator, self.target, self._program,
                                         self._counting(folder) if self.counted else ())
        else:
            (folder / f"{self.name}.megcc").write_bytes(self._container)
            command = [*self._emulator, str(self._program), "--model", f"{self.name}.megcc"]
            for index, port in enumerate(self._all_inputs):
                command += ["--input", f"{port.name}=in{index}.bin"]
            for index, port in enumerate(self._all_outputs):
                command += ["--output", f"{port.name}=out{index}.bin"]
            command += self._options
            if self.is_dynamic:
                for port, array in zip(self._all_inputs, arrays, strict=True):
                    command += ["--shape", f"{port.name}={','.join(map(str, array.shape))}"]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                                stdin=subprocess.DEVNULL)
        if result.returncode and self.is_dynamic and "shape" in result.stderr:
            given = [array for port, array in zip(self._all_inputs, arrays, strict=True)
                     if port not in self.state_ports]
            raise self._shape_error(given, result.stderr.strip())
        if result.returncode:
            raise MegccError(f"{self.name} on {self.target}: {' '.join(command)} ended with {result.returncode}: "
                             f"{self._explained((result.stderr or result.stdout).strip()[-500:])}")
        return result.stdout


def _printed_shape(text: str, index: int) -> tuple[int, ...]:
    """Returns the shape of an output as megcc_run prints it: `output 0 float32 [1,10] plain …`."""
    line = next(line for line in text.splitlines() if line.startswith(f"output {index} "))
    dims = line.split("[", 1)[1].split("]", 1)[0]
    return tuple(int(dim) for dim in dims.split(",") if dim)
