# SPDX-License-Identifier: Apache-2.0
"""A compiled model, run from Python: in this process, or as a program in an emulator."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..codegen import container
from ..codegen.bundle import read_container, read_manifest
from ..errors import MegccError, ShapeError, ToolError
from ..ir.types import numpy_dtype
from ..target import TARGETS, Target
from . import firmware
from .build import Build, build, model_and_target
from .toolchain import find_emulator

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Port:
    """An input or output of a model. shape: extents; a text where the extent changes from call to call."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def takes(self, array: np.ndarray) -> bool:
        """Whether the array may be this input's value, as far as one input by itself tells."""
        return (array.dtype == numpy_dtype(self.dtype) and array.ndim == len(self.shape)
                and all(isinstance(dim, str) or dim == extent
                        for dim, extent in zip(self.shape, array.shape, strict=True)))

    def __str__(self) -> str:
        return f"'{self.name}': {self.dtype}[{','.join(map(str, self.shape))}]"


def load(folder: str | Path, target: Target | str | None = None, cc: str | None = None) -> Session:
    """A session on a generated folder, built first where that has not been done.

    Args:
        target: one of those the folder was made for; by default one that this machine runs.

    Raises:
        MegccError: if the folder is none of ours or was made for other targets.
        ToolError: if a compiler or emulator is missing.
    """
    _, target = model_and_target(read_manifest(Path(folder)), target, Path(folder))
    emulator = find_emulator(target)
    built = build(folder, target, cc)
    return EmulatedSession(built, emulator) if emulator else NativeSession(built)


class Session:
    """A model that runs. inputs, outputs: what `run` takes and gives; calls: the kernel calls of one run, in order.

    Each of them is {kernel, kind, origin, output, macs}, from the manifest.
    state_ports: inputs that the session keeps from run to run; zero at first. kept: the outputs that become them.
    """

    emulated = False

    def __init__(self, built: Build):
        self.folder, self.target = built.folder, built.target
        model = read_manifest(built.folder)["models"][0]
        self.name: str = model["name"]
        self._all_inputs = tuple(Port(p["name"], p["dtype"], tuple(p["shape"])) for p in model["inputs"])
        self._all_outputs = tuple(Port(p["name"], p["dtype"], tuple(p["shape"])) for p in model["outputs"])
        self.kept = {row["output"]: row["input"] for row in model["states"]}
        self.state_ports = tuple(port for port in self._all_inputs if port.name in self.kept.values())
        self.inputs = tuple(port for port in self._all_inputs if port not in self.state_ports)
        self.outputs = tuple(port for port in self._all_outputs if port.name not in self.kept)
        self.buckets: list[dict[str, list[int | None]]] = model["buckets"]
        self.container_bytes: int = model["container_bytes"]
        self.programs: list[dict] = model["programs"]

    @property
    def calls(self) -> list[dict]:
        return next(p["calls"] for p in self.programs if p["target"] == self.target.name)

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """One run: arrays by input name in, arrays by output name out (copies).

        Raises:
            ShapeError: for a wrong name, shape or dtype, saying what is expected.
            MegccError: if the model itself fails, with the runtime's words.
        """
        raise NotImplementedError

    def reset(self, states: Arrays | None = None) -> None:
        """Sets all states to zero, but for those given, by the names of their inputs.

        Raises:
            ShapeError: for a name that is no state, or a value of another type.
        """
        raise NotImplementedError

    @property
    def states(self) -> dict[str, np.ndarray]:
        """What the states are now, by the names of their inputs (copies)."""
        raise NotImplementedError

    def profile(self, inputs: Arrays) -> list[dict]:
        """One run, with the seconds that each kernel call took: rows of `calls`, plus `seconds`."""
        raise MegccError(f"there is no profile of {self.target} in an emulator: it would not be that of the CPU")

    def trace(self, inputs: Arrays) -> list[bytes]:
        """One run, with the first result of each kernel call as it lies in memory."""
        raise MegccError(f"calls can only be watched where the code runs in this process, not for {self.target}")

    def _explained(self, message: str) -> str:
        """An error of a run; "instruction N" is followed by the operator of the model that it came from."""
        found = re.search(r"instruction (\d+)", message)
        call = next((c for c in self.calls if found and c["instruction"] == int(found[1])), None)
        return message if call is None else f"{message}: {call['kind']} from {call['origin'] or call['output']}"

    def _checked(self, inputs: Arrays) -> list[np.ndarray]:
        """The inputs in the model's order, contiguous."""
        expected = ", ".join(map(str, self.inputs))
        for port in self.state_ports:
            if port.name in inputs:
                raise ShapeError(f"'{port.name}' is a state of {self.name}, which the session keeps; its inputs are "
                                 f"{expected}, and reset() sets states")
        unknown = [name for name in inputs if name not in {port.name for port in self.inputs}]
        if unknown:
            raise ShapeError(f"{self.name} has no input '{unknown[0]}'; its inputs are {expected}")
        arrays = []
        for port in self.inputs:
            if port.name not in inputs:
                raise ShapeError(f"{self.name} misses its input {port}")
            array = np.asarray(inputs[port.name])
            if not port.takes(array):
                given = f"{array.dtype}[{','.join(map(str, array.shape))}]"
                raise ShapeError(f"{self.name} expects {port}, and was given {given}")
            arrays.append(np.ascontiguousarray(array))
        return arrays

    def _checked_states(self, states: Arrays | None) -> dict[str, np.ndarray]:
        """All states, zeros where none are given."""
        ports = {port.name: port for port in self.state_ports}
        values = {name: np.zeros(port.shape, numpy_dtype(port.dtype)) for name, port in ports.items()}
        for name, value in (states or {}).items():
            if name not in ports:
                have = ", ".join(map(str, ports.values())) or "none"
                raise ShapeError(f"{self.name} has no state '{name}'; it has {have}")
            if not ports[name].takes(np.asarray(value)):
                raise ShapeError(f"{self.name} expects the state {ports[name]}, and was given "
                                 f"{np.asarray(value).dtype}{list(np.shape(value))}")
            values[name] = np.ascontiguousarray(value)
        return values

    def _named(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return {port.name: array for port, array in zip(self.outputs, arrays, strict=True)}

    @property
    def is_dynamic(self) -> bool:
        """Whether shapes change from call to call."""
        return any(isinstance(dim, str) for port in self.inputs for dim in port.shape)

    def _shape_error(self, arrays: Sequence[np.ndarray], reason: str) -> ShapeError:
        given = ", ".join(f"'{port.name}' {list(array.shape)}"
                          for port, array in zip(self.inputs, arrays, strict=True))
        ranges = "; ".join(", ".join(_range_text(name, *bounds) for name, bounds in bucket.items())
                           for bucket in self.buckets[:8])
        more = f"; and {len(self.buckets) - 8} more" if len(self.buckets) > 8 else ""
        return ShapeError(f"{self.name} was not compiled for inputs {given}. It takes "
                          f"{', '.join(map(str, self.inputs))} with {ranges}{more} ({reason})")

    def __repr__(self) -> str:
        return (f"<{self.name} on {self.target}: {', '.join(map(str, self.inputs))} -> "
                f"{', '.join(map(str, self.outputs))}>")


def _range_text(name: str, low: int, high: int | None) -> str:
    return f"{name} {low}" if low == high else f"{name} from {low}" + ("" if high is None else f" to {high}")


class _Shape(ctypes.Structure):
    """megcc_shape of megcc.h."""

    _fields_ = (("rank", ctypes.c_int32), ("dims", ctypes.c_int32 * 8))

    @staticmethod
    def of(shape: tuple[int, ...]) -> _Shape:
        return _Shape(len(shape), (ctypes.c_int32 * 8)(*shape))


#: Called after each instruction: its index, and address and bytes of its first result.
_OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
_TEXT_BYTES = 512


class NativeSession(Session):
    """The shared library of a build, in this process. Other threads of Python go on while it runs."""

    def __init__(self, built: Build):
        super().__init__(built)
        self._handle = None
        self._shapes: tuple[tuple[int, ...], ...] = ()
        self._output_shapes = tuple(port.shape for port in self._all_outputs)
        self._lock = threading.Lock()
        try:
            self._library = _open_library(built.library.resolve())
        except OSError as error:
            raise ToolError(f"{built.library} cannot be loaded: {error}") from None
        handle, text = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_uint64)
        pointers = ctypes.POINTER(ctypes.c_void_p)
        for name, result, arguments in (
                ("open", handle, (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, *text)),
                ("isa", ctypes.c_uint32, (handle,)),
                ("embedded", ctypes.c_void_p, ()),
                ("set_shapes", ctypes.c_int32, (handle, ctypes.POINTER(_Shape), ctypes.POINTER(_Shape), *text)),
                ("run", ctypes.c_int32, (handle, pointers, ctypes.POINTER(ctypes.c_uint64), pointers,
                                         ctypes.POINTER(ctypes.c_double), _OBSERVER,
                                         ctypes.POINTER(ctypes.c_uint32), *text)),
                ("bind", ctypes.c_int32, (handle, pointers, ctypes.POINTER(ctypes.c_uint64))),
                ("again", ctypes.c_int32, (handle,)),
                ("reset", None, (handle,)),
                ("input", ctypes.c_void_p, (handle, ctypes.c_uint32)),
                ("close", None, (handle,))):
            function = getattr(self._library, f"megcc_py_{name}")
            function.restype, function.argtypes = result, arguments

        self._container = self._map_container(built.folder / f"{self.name}.megcc")
        text_buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._handle = self._library.megcc_py_open(self._container.ctypes.data, self._container.size,
                                                   built.target.isa.code, text_buffer, _TEXT_BYTES)
        if not self._handle:
            raise MegccError(f"{self.name}: {text_buffer.value.decode(errors='replace')}")
        isa = self._library.megcc_py_isa(self._handle)
        self.target = next(TARGETS[p["target"]] for p in self.programs if TARGETS[p["target"]].isa.code == isa)

    def _map_container(self, path: Path) -> np.ndarray:
        """The bytes of the container: the file mapped read-only, or the array in the library if it was embedded."""
        if path.exists():
            return np.memmap(path, np.uint8, "r")
        address = self._library.megcc_py_embedded()
        if not address:
            raise MegccError(f"{path} is missing")
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (self.container_bytes,))

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        return self._run(inputs)

    def profile(self, inputs: Arrays) -> list[dict]:
        seconds = (ctypes.c_double * (self.calls[-1]["instruction"] + 1 if self.calls else 0))()
        self._run(inputs, seconds=seconds)
        return [{**call, "seconds": seconds[call["instruction"]]} for call in self.calls]

    def trace(self, inputs: Arrays) -> list[bytes]:
        results: list[bytes] = []
        observer = _OBSERVER(lambda index, address, size: results.append(ctypes.string_at(address, size)))
        program = next(p for p in container.read(self._container.tobytes()).programs
                       if p.isa == self.target.isa.code)
        first_outputs = [instruction.inputs for instruction in program.instructions]
        self._run(inputs, observer=observer, operand=(ctypes.c_uint32 * len(first_outputs))(*first_outputs))
        return results

    def reset(self, states: Arrays | None = None) -> None:
        values = self._checked_states(states)
        with self._lock:
            self._library.megcc_py_reset(self._handle)
            for name, value in values.items():
                ctypes.memmove(self._state_address(name), value.ctypes.data, value.nbytes)

    @property
    def states(self) -> dict[str, np.ndarray]:
        values = self._checked_states(None)
        with self._lock:
            for name, value in values.items():
                ctypes.memmove(value.ctypes.data, self._state_address(name), value.nbytes)
        return values

    def _state_address(self, name: str) -> int:
        index = next(index for index, port in enumerate(self._all_inputs) if port.name == name)
        return self._library.megcc_py_input(self._handle, index)

    def bound(self, inputs: Arrays) -> Callable[[], int]:
        """A function that runs on these inputs as often as it is called, without checks, locks and copies: for those
        who take times. It returns a status, 0 for success; results stay in the session. Valid as long as the session
        lives and nothing else is run.

        Raises:
            ShapeError: as `run`.
        """
        self._bound = arrays = self._arrays(inputs)
        if self.is_dynamic:
            self._set_shapes(arrays, ctypes.create_string_buffer(_TEXT_BYTES))
        self._library.megcc_py_bind(self._handle, _pointers(arrays), _sizes(arrays))
        return partial(self._library.megcc_py_again, self._handle)

    def _arrays(self, inputs: Arrays) -> list[np.ndarray | None]:
        """One for each input of the model, None for a state."""
        given = iter(self._checked(inputs))
        return [None if port in self.state_ports else next(given) for port in self._all_inputs]

    def _run(self, inputs: Arrays, seconds=None, observer=None, operand=None) -> dict[str, np.ndarray]:
        arrays = self._arrays(inputs)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        with self._lock:
            if self.is_dynamic:
                self._set_shapes(arrays, text)
            outputs = [None if port.name in self.kept else np.empty(shape, numpy_dtype(port.dtype))
                       for port, shape in zip(self._all_outputs, self._output_shapes, strict=True)]
            status = self._library.megcc_py_run(self._handle, _pointers(arrays), _sizes(arrays), _pointers(outputs),
                                                seconds, observer or _OBSERVER(), operand, text, _TEXT_BYTES)
        if status:
            raise MegccError(f"{self.name}: {self._explained(text.value.decode(errors='replace'))}")
        return self._named([array for array in outputs if array is not None])

    def _set_shapes(self, arrays: Sequence[np.ndarray | None], text) -> None:
        """Only where they are others than before: states begin anew."""
        shapes = tuple(port.shape if array is None else array.shape
                       for port, array in zip(self._all_inputs, arrays, strict=True))
        if shapes == self._shapes:
            return
        results = (_Shape * len(self._all_outputs))()
        if self._library.megcc_py_set_shapes(self._handle, (_Shape * len(shapes))(*map(_Shape.of, shapes)), results,
                                             text, _TEXT_BYTES):
            raise self._shape_error([a for a in arrays if a is not None], text.value.decode(errors="replace"))
        self._shapes = shapes
        self._output_shapes = tuple(tuple(result.dims[:result.rank]) for result in results)

    def __del__(self):
        if self._handle:
            self._library.megcc_py_close(self._handle)


#: Path -> inode of the libraries in this process.
_loaded: dict[Path, int] = {}


def _open_library(path: Path) -> ctypes.CDLL:
    """The library at this path as it is now: dlopen would give again the one that lay there when it was first asked."""
    inode = path.stat().st_ino
    if _loaded.setdefault(path, inode) == inode:
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(shutil.copy2(path, folder))


def _pointers(arrays: Sequence[np.ndarray | None]):
    return (ctypes.c_void_p * max(len(arrays), 1))(*(None if a is None else a.ctypes.data for a in arrays))


def _sizes(arrays: Sequence[np.ndarray | None]):
    return (ctypes.c_uint64 * max(len(arrays), 1))(*(0 if a is None else a.nbytes for a in arrays))


class EmulatedSession(Session):
    """The program of a build under an emulator; every run is a process, which begins with the states of the last.

    stack_bytes: deepest stack of the last run, where the target is a microcontroller.
    """

    emulated = True

    def __init__(self, built: Build, emulator: Sequence[str]):
        super().__init__(built)
        self._program, self._emulator = built.program.resolve(), tuple(emulator)
        self._container = read_container(built.folder, self.name)
        self.stack_bytes: int | None = None
        self._states = self._checked_states(None)

    def reset(self, states: Arrays | None = None) -> None:
        self._states = self._checked_states(states)

    @property
    def states(self) -> dict[str, np.ndarray]:
        return {name: value.copy() for name, value in self._states.items()}

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        given, outputs = iter(self._checked(inputs)), {}
        arrays = [self._states[port.name] if port in self.state_ports else next(given) for port in self._all_inputs]
        with tempfile.TemporaryDirectory() as folder:
            for index, array in enumerate(arrays):
                array.tofile(Path(folder) / f"in{index}.bin")
            said = self._execute(Path(folder), arrays)
            for index, port in enumerate(self._all_outputs):
                data = np.fromfile(Path(folder) / f"out{index}.bin", numpy_dtype(port.dtype))
                outputs[port.name] = data.reshape(_printed_shape(said, index) if self.is_dynamic else port.shape)
            if self.target.bare_metal:
                self.stack_bytes = int(np.fromfile(Path(folder) / "stack.bin", np.uint32)[0])
        self._states = {state: outputs.pop(name) for name, state in self.kept.items()}
        return outputs

    def _execute(self, folder: Path, arrays: Sequence[np.ndarray]) -> str:
        """Runs the program on in<i>.bin of the folder; it leaves out<i>.bin there. Returns what it prints."""
        if self.target.bare_metal:
            command = firmware.emulation(*self._emulator, self._program)
        else:
            (folder / f"{self.name}.megcc").write_bytes(self._container)
            command = [*self._emulator, str(self._program), "--model", f"{self.name}.megcc"]
            for index, port in enumerate(self._all_inputs):
                command += ["--input", f"{port.name}=in{index}.bin"]
            for index, port in enumerate(self._all_outputs):
                command += ["--output", f"{port.name}=out{index}.bin"]
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
    """The shape of an output as megcc_run prints it: `output 0 float32 [1,10] plain …`."""
    line = next(line for line in text.splitlines() if line.startswith(f"output {index} "))
    dims = line.split("[", 1)[1].split("]", 1)[0]
    return tuple(int(dim) for dim in dims.split(",") if dim)
