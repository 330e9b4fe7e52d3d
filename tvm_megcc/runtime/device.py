# SPDX-License-Identifier: Apache-2.0
"""Runs and times a model in this process, or on a board that TVM's RPC reaches.

The functions of device.c have blocks of bytes as arguments. A link calls them: `LocalLink` in this process,
`remote.RpcLink` on a board.
"""

from __future__ import annotations

import ctypes
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ..codegen.bundle import BUILD, read_manifest
from ..codegen.embedding import read_container
from ..errors import MegccError, ShapeError
from ..ir.limits import MAX_RANK
from ..target import TARGETS, Target
from .build import CFLAGS, Build, building_in, c_sources, model_of, target_of
from .objects import Objects, link
from .session import Session
from .timing import library_compiler
from .toolchain import runs_here

#: ALIGNMENT of device.c, and the bytes of an error text.
_ALIGNMENT, _TEXT_BYTES = 64, 512


class Link(Protocol):
    """A connection to a library with the functions of device.c. where: the device's name, for messages."""

    where: str

    def keep(self, array: np.ndarray) -> object:
        """Copies an array to the device, for use in several calls."""

    def close(self) -> None:
        """Frees the device."""

    def call(self, name: str, inputs: Sequence, outputs: Sequence[np.ndarray]) -> int:
        """Calls `megcc_device_<name>` with inputs (arrays or results of `keep`) and outputs, which it fills. Returns
        its status; 0: success."""


@dataclass(frozen=True)
class Times:
    """Measured times. seconds: the seconds of each run. calls: the seconds of each kernel call, the median of the
    watched runs."""

    seconds: tuple[float, ...]
    calls: tuple[float, ...]


def build_library(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
                  model: str | None = None) -> Build:
    """Compiles a generated folder for one of its targets into a shared library with the functions of device.c.

    Raises:
        MegccError: if the folder was not compiled for the target, or the target has no operating system.
    """
    folder = Path(folder)
    with building_in(folder):
        manifest = read_manifest(folder)
        target, name = target_of(manifest, target, folder), model_of(manifest, model, folder)["name"]
        if target.bare_metal:
            raise MegccError(f"{target} has no operating system to load a library; 'megcc build' makes its firmware")
        compiler = library_compiler(target, cc)
        output = folder / BUILD / target.name
        objects = Objects(folder, output / "objects", compiler)
        flags = (*CFLAGS, *target.cflags, "-fPIC")
        compiled = [*objects.compile_all(c_sources(folder), flags),
                    objects.compile(Path(__file__).with_name("device.c"), (*flags, f"-DMEGCC_MODULE={name}_module"))]
        library = link(compiler, ("-shared", "-pthread", *target.cflags), compiled, output / f"lib{name}_device.so")
    return Build(folder, target, compiler, library, None, name)


class DeviceSession(Session):
    """A session on a model that runs on a device, to which it talks through a link."""

    def __init__(self, built: Build, link: Link):
        super().__init__(built)
        self._link = link
        self.where = link.where
        container = np.frombuffer(read_container(built.folder, self.name, built.target), np.uint8)
        self._container = link.keep(container)
        self._shapes: tuple = ()
        self._output_shapes = tuple(port.shape for port in self._all_outputs)
        isa = np.zeros(1, np.uint32)
        self._call("open", [self._container, np.array([built.target.isa.forced_level], np.uint32)], [isa])
        self.target = next(TARGETS[p["target"]] for p in self.programs if TARGETS[p["target"]].isa.code == isa[0])

    def close(self) -> None:
        """Frees the device; the session cannot run any more."""
        self._link.close()

    def _call(self, name: str, inputs: Sequence, outputs: Sequence[np.ndarray], error=MegccError) -> None:
        text = np.zeros(_TEXT_BYTES, np.uint8)
        status = self._link.call(name, inputs, [*outputs, text])
        if status:
            message = text.tobytes().partition(b"\0")[0].decode(errors="replace")
            raise error(f"{self.name} on {self.where}: {message or f'{name} failed with status {status}'}")

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._with_strings(self._run(inputs)[0])

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[dict]:
        return [{**call, "seconds": seconds}
                for call, seconds in zip(self.calls, self.times(inputs, runs=0, watched=1).calls, strict=True)]

    def times(self, inputs: Mapping[str, np.ndarray], runs: int, watched: int) -> Times:
        """Times `runs` runs, and then each kernel call of `watched` more runs."""
        _, seconds, calls = self._run(inputs, runs, watched)
        per_call = [statistics.median(column) for column in calls.T.tolist()] if watched else []
        return Times(tuple(seconds.tolist()),
                     tuple(per_call[call.get("instruction", index)] for index, call in enumerate(self.calls))
                     if watched else ())

    def idle(self, seconds: float, iterations: int) -> tuple[float, ...]:
        """Returns the durations of loop iterations that only wait for `seconds`. Longer ones show disturbances of the
        machine."""
        durations = np.zeros(iterations)
        self._call("idle", [np.array([seconds])], [durations])
        return tuple(durations.tolist())

    def reset(self, states: Mapping[str, np.ndarray] | None = None) -> None:
        self._states(write=True, values=self._checked_states(states))

    @property
    def states(self) -> dict[str, np.ndarray]:
        return self._states(write=False, values=self._checked_states(None))

    def _states(self, write: bool, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [port.name for port in self._all_inputs]
        # As device.c takes it: whether to write, the inputs that are states, and an end.
        head = np.array([write, *map(names.index, values), -1], np.int32)
        result = np.zeros(_size(values.values()), np.uint8)
        self._call("states", [head, _concatenated(values.values())], [result])
        return dict(zip(values, _split(result, values.values()), strict=True))

    def _run(self, inputs: Mapping[str, np.ndarray], runs: int = 0, watched: int = 0):
        """Returns the outputs, the seconds of the timed runs, and the seconds of the watched runs' instructions as an
        array [watched, instructions]."""
        given = iter(self._checked(inputs))
        arrays = [np.zeros(port.shape, np.dtype(port.dtype)) if port in self.state_ports else next(given)
                  for port in self._all_inputs]
        self._set_shapes(arrays)
        for port, shape in zip(self._all_outputs, self._output_shapes, strict=True):
            if min(shape, default=0) < 0:
                raise MegccError(f"{self.name}: the size of {port.name} is known only at run time, and nothing "
                                 f"limits it; compile the model with --bound {port.name}=1000")
        outputs = [np.empty(shape, np.dtype(port.dtype))
                   for port, shape in zip(self._all_outputs, self._output_shapes, strict=True)]
        result = np.zeros(_size(outputs), np.uint8)
        seconds = np.zeros(max(runs, 1))
        calls = np.zeros((max(watched, 1), max(self._instructions, 1)))
        names = [port.name for port in self._all_inputs]
        numbers = np.array([runs, watched, *map(names.index, self.counters)], np.int32)
        self._call("run", [_concatenated(arrays), numbers], [result, seconds, calls])
        named = {port.name: array for port, array in zip(self._all_outputs, _split(result, outputs), strict=True)}
        return {port.name: named[port.name] for port in self.outputs}, seconds[:runs], calls[:watched]

    @property
    def _instructions(self) -> int:
        return next(p["instructions"] for p in self.programs if p["target"] == self.target.name)

    def _set_shapes(self, arrays: Sequence[np.ndarray]) -> None:
        """Sets the shapes of the inputs if they changed, and reads those of the outputs."""
        shapes = tuple(array.shape for array in arrays)
        if shapes == self._shapes:
            return
        rows = np.zeros((len(shapes), 1 + MAX_RANK), np.int32)
        for row, shape in zip(rows, shapes, strict=True):
            row[0], row[1:1 + len(shape)] = len(shape), shape
        results = np.zeros((len(self._all_outputs), 1 + MAX_RANK), np.int32)
        try:
            self._call("shapes", [rows], [results], ShapeError)
        except ShapeError as error:
            raise self._shape_error([array for port, array in zip(self._all_inputs, arrays, strict=True)
                                     if port not in self.state_ports], str(error)) from None
        self._shapes = shapes
        self._output_shapes = tuple(tuple(row[1:1 + row[0]]) for row in results.tolist())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _size(arrays: Iterable[np.ndarray]) -> int:
    return max(sum(_aligned(array.nbytes) for array in arrays), 1)


def _split(block: np.ndarray, like: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields the arrays in a block of bytes that `_concatenated` or device.c made. like: arrays with their shapes and
    dtypes."""
    position = 0
    for array in like:
        yield block[position:position + array.nbytes].view(array.dtype).reshape(array.shape)
        position += _aligned(array.nbytes)


def _concatenated(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the bytes of arrays in one block, each array at a multiple of the alignment."""
    arrays = list(arrays)
    block = np.zeros(_size(arrays), np.uint8)
    position = 0
    for array in arrays:
        block[position:position + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        position += _aligned(array.nbytes)
    return block


class _Span(ctypes.Structure):
    """ffi_span of ffi_entry.h."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64))


class LocalLink:
    """The link to a library in this process."""

    where = "this machine"

    def __init__(self, library: Path):
        # A library holds one session, and the loader gives the same library for the same file.
        with tempfile.TemporaryDirectory(prefix="megcc-device-") as folder:
            self._library = ctypes.CDLL(str(shutil.copy(library, folder)))

    def keep(self, array: np.ndarray) -> np.ndarray:
        block = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
        start = -block.ctypes.data % _ALIGNMENT
        block[start:start + array.nbytes] = array.reshape(-1).view(np.uint8)
        return block[start:start + array.nbytes]

    def close(self) -> None:
        pass

    def call(self, name: str, inputs: Sequence, outputs: Sequence[np.ndarray]) -> int:
        # device.c binds the inputs of a run where they are, so their block has to be aligned.
        arrays = [*map(self.keep, inputs[:1]), *inputs[1:], *outputs] if name == "run" else [*inputs, *outputs]
        spans = (_Span * len(arrays))(*(_Span(array.ctypes.data, array.nbytes) for array in arrays))
        return getattr(self._library, f"megcc_device_{name}")(spans)


def local_session(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
                  model: str | None = None) -> DeviceSession:
    """Returns a session in this process that takes its own times.

    Raises:
        MegccError: if this machine does not run the target.
    """
    cpu = target_of(read_manifest(Path(folder)), target, Path(folder))
    if not runs_here(cpu):
        raise MegccError(f"this machine does not run code for {cpu}, and times from an emulator would mean "
                         "nothing; bench on a device with --rpc HOST:PORT --key KEY (docs/tuning.md)")
    built = build_library(folder, cpu, cc, model)
    return DeviceSession(built, LocalLink(built.library))
