# SPDX-License-Identifier: Apache-2.0
"""Runs a program of several networks (`tools/program/`) in this process, as the shared library of its folder."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.manifest import BUILD, read_manifest
from ..errors import MegccError, ShapeError, ToolError
from ..target import Target
from .build import CFLAGS, building_in, c_sources, target_of
from .mapped_file import map_file, open_library
from .objects import Objects, link
from .session import Array, Arrays, Port, Session
from .toolchain import find_compiler, runs_here
from .up_to_date import Record

#: The longest error text in bytes; longer ones are cut.
_TEXT_BYTES = 512
#: The C functions that this class calls, the same for all programs: `_build` gives them the program's names as macros.
_SOURCE = Path(__file__).with_name("program_py.c")


def _build(folder: Path, manifest: dict[str, Any], target: Target | str | None, cc: str | None
           ) -> tuple[Target, Path]:
    """Compiles the folder of a program, which the caller has locked, as a shared library for this machine. Returns the
    target and the library.

    Raises:
        MegccError: if the folder was compiled for another CPU.
        ToolError: if there is no compiler, or it fails.
    """
    target = target_of(manifest, target, folder)
    if not runs_here(target):
        raise MegccError(f"{folder} was compiled for {target}, which this machine does not run; its main.c runs there "
                         "on raw bytes")
    name, output = manifest["program"]["name"], folder / BUILD / target.name
    flags, library = (*CFLAGS, *target.cflags, "-fPIC"), output / f"lib{name}.so"
    record = Record(folder, library, (_SOURCE,), target, cc, flags)
    if record.compiler():
        return target, library
    compiler = find_compiler(target, cc)
    objects = Objects(folder, output / "objects", compiler)
    macro = name.upper()
    names: tuple[str, ...] = (
        f'-DPROGRAM_HEADER="{name}.h"', f"-DPROGRAM={name}_program", f"-DPROGRAM_OPEN={name}_open",
        f"-DPROGRAM_RUN={name}_run", f"-DPROGRAM_RESET={name}_reset", f"-DPROGRAM_MEMORY={macro}_MEMORY_BYTES",
        f"-DPROGRAM_ALIGN={macro}_ALIGN")
    if manifest["program"].get("threads", 1) > 1:
        names = (*names, f"-DPROGRAM_OPEN_PARALLEL={name}_open_parallel")
    compiled = [*objects.compile_all(c_sources(folder), flags), objects.compile(_SOURCE, (*flags, *names))]
    link(compiler, ("-shared", "-pthread"), compiled, library)
    record.write(compiler)
    return target, library


class ProgramSession(Session):
    """A compiled program that is ready to run. It runs once at a time: threads that share it wait for each other.

    States are not accessible; `reset` sets all of them to their initial values.
    """

    def __init__(self, folder: Path, target: Target | str | None = None, cc: str | None = None,
                 threads: int | None = None):
        """Builds the folder first if necessary.

        Args:
            target: by default the folder's.
            cc: the C compiler; by default the one that the target names.
            threads: workers of a run; None: as many as the program was compiled for.

        Raises:
            MegccError: if the folder was compiled for another CPU, or its container is not the folder's.
            ToolError: if there is no compiler, or it fails.
        """
        self.folder, self._handle = folder, None
        # Under one lock, so that what is read, built and loaded is of one program: another process may replace it.
        with building_in(folder):
            manifest = read_manifest(folder)
            self.target, library = _build(folder, manifest, target, cc)
            facts = manifest["program"]
            self.name: str = facts["name"]
            try:
                loaded, self._container = open_library(library.resolve()), map_file(folder / f"{self.name}.megcc")
            except (OSError, ValueError) as error:
                raise ToolError(f"{library} cannot be loaded: {error}") from None
        self._facts: dict[str, Any] = facts
        self.inputs = self._all_inputs = tuple(map(_port, facts["inputs"]))
        self.outputs = self._all_outputs = tuple(map(_port, facts["outputs"]))
        # The fields of a session that a program has nothing for.
        self.state_of, self._initial, self._others, self._strings = {}, {}, {}, {}
        self.state_ports, self.counters, self.buckets = (), (), []
        self.programs = [{"target": self.target.name, "calls": []}]
        self._lock = threading.Lock()
        self._text = ctypes.create_string_buffer(_TEXT_BYTES)
        handle, text = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_uint64)

        def function(name: str, result: Any, *arguments: Any) -> Any:
            c_function = getattr(loaded, f"megcc_program_{name}")
            c_function.restype, c_function.argtypes = result, arguments
            return c_function

        self._c_open = function("open", handle, handle, ctypes.c_uint64, ctypes.c_int32, *text)
        self._c_close, self._c_reset = function("close", None, handle), function("reset", None, handle)
        self._c_error, self._c_error_place = function("error", None, handle, *text), \
            function("error_place", handle, handle)
        self._handle = self._c_open(self._container.ctypes.data, self._container.size,
                                    threads or facts.get("threads", 1), self._text, _TEXT_BYTES)
        if not self._handle:
            raise MegccError(f"{self.name}: {self._text.value.decode(errors='replace')}")
        # The library gives the address of the function that runs the program. Its arguments are pointers: the program,
        # each input, each output, and the struct (`error_place`) that it fills if it fails. After an input or output
        # whose length varies comes the length, of an output its address.
        self._varying = {row["name"]: next(axis for axis, (least, most) in enumerate(row["limits"]) if least != most)
                         for row in (*facts["inputs"], *facts["outputs"]) if "limits" in row}
        arguments: list[Any] = [ctypes.c_void_p]
        for ports, length in ((self.inputs, ctypes.c_int64), (self.outputs, ctypes.POINTER(ctypes.c_int64))):
            for port in ports:
                arguments += [ctypes.c_void_p, *([length] if port.name in self._varying else [])]
        address = function("function", handle)()
        self._run = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments, ctypes.c_void_p)(address)

    def run(self, inputs: Any, feeds: Arrays | None = None, run_options: object = None) -> Any:
        # With feeds, inputs are the names of outputs, as in ONNX Runtime.
        if feeds is not None:
            return self._in_order(inputs, feeds)
        with self._lock:
            if not self._handle:
                raise MegccError(f"{self.name} is closed")
            arrays = self._checked(self._with_bytes(inputs))
            for row, port, array in zip(self._facts["inputs"], self.inputs, arrays, strict=True):
                if not all(least <= extent <= most for extent, (least, most) in zip(
                        array.shape, row.get("limits", ()), strict=False)):
                    given = ",".join(map(str, array.shape))
                    raise ShapeError(f"{self.name} expects {port}, and was given {array.dtype}[{given}]")
            results: list[Array] = [np.empty(row["shape"], row["dtype"]) for row in self._facts["outputs"]]
            arguments: list[Any] = []
            for port, array in zip(self.inputs, arrays, strict=True):
                arguments += [array.ctypes.data, *self._length(port, array.shape)]
            lengths = {name: ctypes.c_int64() for name in self._varying}
            for port, array in zip(self.outputs, results, strict=True):
                arguments += [array.ctypes.data,
                              *([ctypes.byref(lengths[port.name])] if port.name in self._varying else [])]
            if self._run(self._handle, *arguments, self._c_error_place(self._handle)):
                self._c_error(self._handle, self._text, _TEXT_BYTES)
                raise MegccError(f"{self.name}: {self._text.value.decode(errors='replace')}")
            return {port.name: self._cut(port, array, lengths[port.name].value) if port.name in self._varying else array
                    for port, array in zip(self.outputs, results, strict=True)}

    def _length(self, port: Port, shape: tuple[int, ...]) -> list[int]:
        """Returns the extent of an input that varies, if one does."""
        return [shape[self._varying[port.name]]] if port.name in self._varying else []

    def _cut(self, port: Port, array: Array, length: int) -> Array:
        """Returns an output with the length of this run. array: the output with its largest shape."""
        shape = list(array.shape)
        shape[self._varying[port.name]] = length
        return array.reshape(-1)[:int(np.prod(shape))].reshape(shape).copy()

    def reset(self, states: Arrays | None = None) -> None:
        if states:
            raise ShapeError(f"{self.name}: the states of a program are set to their first values only")
        with self._lock:
            if self._handle:
                self._c_reset(self._handle)

    @property
    def states(self) -> dict[str, Array]:
        return {}

    @property
    def sample_rates(self) -> dict[str, int]:
        """The samples per second of inputs that are sounds, by the input's name, if the program has them."""
        return {row["name"]: row["sample_rate"] for row in self._facts["inputs"] if "sample_rate" in row}

    def with_strings(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the results; those that are text, UTF-8 [..., bytes] padded with zeros, become arrays of str
        [...]."""
        converted = dict(results)
        for name in self._facts.get("texts", ()):
            rows = converted[name].reshape(-1, converted[name].shape[-1])
            strings = [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]
            converted[name] = np.array(strings, object).reshape(converted[name].shape[:-1])
        return converted

    def _with_bytes(self, inputs: Any) -> Any:
        """Returns inputs in which strings, and lists of strings, are UTF-8 with zeros after it.

        Raises:
            ShapeError: for a string with more bytes than the input has, or with U+0000, and for too many strings.
        """
        ports = {port.name: port for port in self.inputs if port.name in self.strings}
        given = self._named_inputs(inputs) if ports else inputs
        if not ports or not any(isinstance(given.get(name), str | list | tuple) for name in ports):
            return inputs
        converted = dict(given)
        for name, port in ports.items():
            strings = [given[name]] if isinstance(given.get(name), str) else given.get(name)
            if isinstance(strings, list | tuple) and all(isinstance(each, str) for each in strings):
                converted[name] = _bytes_of(strings, port)
        return converted

    def bytes_of(self, name: str, strings: Sequence[str]) -> Array:
        """Returns strings as an input that is a text.

        Raises:
            ShapeError: as `run`.
        """
        return _bytes_of(strings, next(port for port in self.inputs if port.name == name))

    @property
    def strings(self) -> list[str]:
        """The names of inputs that are UTF-8, uint8 [..., bytes] with zeros after it. `run` takes str for them."""
        return list(self._facts.get("strings", ()))

    def close(self) -> None:
        with self._lock:
            handle, self._handle = self._handle, None
            if handle:
                self._c_close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def _port(row: Mapping[str, Any]) -> Port:
    """Returns an input or output of a program. Extents that vary are strings, such as "1..256"."""
    limits = row.get("limits") or [[extent, extent] for extent in row["shape"]]
    shape = [least if least == most else f"{least}..{most}" for least, most in limits]
    return Port.of({**row, "shape": shape, "least": [least for least, _ in limits]} if "limits" in row else row)


def _bytes_of(strings: Sequence[str], port: Port) -> Array:
    """Returns strings as the input of a program, rows of UTF-8 with zeros after it."""
    shape = tuple(map(int, port.shape))
    rows = np.zeros((int(np.prod(shape[:-1])), shape[-1]), np.uint8)
    if len(strings) > len(rows):
        raise ShapeError(f"{port} takes at most {len(rows)} strings, and was given {len(strings)}")
    for row, string in zip(rows, strings, strict=False):
        encoded = string.encode("utf-8", "replace")
        if len(encoded) > len(row):
            raise ShapeError(f"{port} takes at most {len(row)} bytes, and the string has {len(encoded)}")
        if b"\0" in encoded:
            raise ShapeError(f"{port}: a string ends at U+0000, and so cannot have it")
        row[:len(encoded)] = np.frombuffer(encoded, np.uint8)
    return rows.reshape(shape)
