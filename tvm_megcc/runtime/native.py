# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled model in this process: the shared library of a build, through the functions of megcc_py.c.

A run of a small network takes a microsecond, so little Python code runs for each: what is the same in all runs is
prepared, C code compares dtypes and shapes, and arrays are passed by numpy's array interface (`__array_struct__`),
which takes a tenth of the time of `array.ctypes`. Arrays that do not match take a slow path, which converts them or
raises an error.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .. import folders
from ..codegen import container
from ..errors import MegccError, ShapeError, ToolError
from ..ir.limits import MAX_RANK
from ..ir.types import DTYPES, ORDINARY
from ..target import TARGETS
from .build import Build
from .mapped_file import map_file, open_library
from .session import Array, Arrays, Given, Port, Session

#: The longest error text in bytes; longer ones are cut.
_TEXT_BYTES = 512
#: The status of run_method if an array does not match the input.
_MISFIT = -1


class _Port(ctypes.Structure):
    """An input or output; `port` of megcc_py.c.

    name: its name in UTF-8; "" if the container has no names.
    dtype: a value of `container.DType`.
    rank, dims: the shape is dims[:rank]; a dynamic extent is -1 until shapes are set.
    """

    _fields_ = (("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", ctypes.c_int32 * MAX_RANK))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dims[:self.rank])

    def is_of(self, port: Port) -> bool:
        """Returns whether the runtime's port equals the manifest's. Until shapes are set, dynamic extents are -1."""
        return (self.name.decode(errors="replace") in ("", port.name) and self.rank == len(port.shape)
                and container.DType(self.dtype).name == port.dtype
                and all(dim == (-1 if isinstance(expected, str) else expected)
                        for dim, expected in zip(self.shape, port.shape, strict=True)))

    def __str__(self) -> str:
        return f"{container.DType(self.dtype).name}[{','.join(map(str, self.shape))}]"


class _Input(ctypes.Structure):
    """An input of a session; `input` of megcc_py.c.

    array: address of the PyArrayInterface of the array to read, set before a run; NULL for a state.
    bound: address of the caller's memory that the session reads; NULL: it reads its own. C code sets it.
    """

    _fields_ = (("array", ctypes.c_void_p), ("bound", ctypes.c_void_p), ("port", _Port))


class _Output(ctypes.Structure):
    """An output of a session; `output` of megcc_py.c.

    wanted: address of the memory to write to, set before a run; NULL: the session's own.
    found: address of the output after a run.
    bound: address of the memory that the session writes to at present; NULL: its own. C code sets it.
    changes: how often a run found another address or shape than the run before it. C code counts it.
    """

    _fields_ = (("wanted", ctypes.c_void_p), ("found", ctypes.c_void_p), ("bound", ctypes.c_void_p),
                ("changes", ctypes.c_int64), ("port", _Port))


class _Shape(ctypes.Structure):
    """A shape, dims[:rank]; `megcc_shape` of megcc.h."""

    _fields_ = (("rank", ctypes.c_int32), ("dims", ctypes.c_int32 * MAX_RANK))

    @staticmethod
    def of(shape: Sequence[int]) -> _Shape:
        return _Shape(len(shape), (ctypes.c_int32 * MAX_RANK)(*shape))


#: A function that is called after each kernel call: its index, and the address and bytes of its first result.
_OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)

_HANDLE, _TEXT = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_uint64)
#: Functions of megcc_py.c without the prefix megcc_py_ -> (type of the result, types of the arguments).
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "open": (_HANDLE, (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int32, *_TEXT)),
    "close": (None, (_HANDLE,)),
    "error": (None, (_HANDLE, *_TEXT)),
    "isa": (ctypes.c_uint32, (_HANDLE,)),
    "embedded": (ctypes.c_void_p, (ctypes.POINTER(ctypes.c_uint64),)),
    "counts": (None, (_HANDLE, ctypes.POINTER(ctypes.c_uint32))),
    "inputs": (ctypes.POINTER(_Input), (_HANDLE,)),
    "outputs": (ctypes.POINTER(_Output), (_HANDLE,)),
    "set_shapes": (ctypes.c_int32, (_HANDLE, ctypes.POINTER(_Shape), ctypes.c_int32)),
    "watch": (None, (_HANDLE, ctypes.POINTER(ctypes.c_double), _OBSERVER, ctypes.POINTER(ctypes.c_uint32))),
    "methods": (ctypes.c_void_p, (ctypes.c_void_p,) * 5),
    "reset": (None, (_HANDLE,)),
    "input": (ctypes.c_void_p, (_HANDLE, ctypes.c_uint32)),
}


class _Method(ctypes.Structure):
    """A method in C: Python's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("documentation", ctypes.c_char_p))


#: Returns a method of an object: the address of its `_Method`, the object, and NULL.
_method_of = ctypes.pythonapi.PyCFunction_NewEx
_method_of.restype, _method_of.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
#: The addresses of the functions of Python that megcc_py_methods gets.
_OF_PYTHON = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in (
    "PyLong_AsVoidPtr", "PyLong_FromLong", "PyCapsule_GetPointer", "PyEval_SaveThread", "PyEval_RestoreThread")]


def _with_numpy_dtype(array: Array) -> Array:
    """Returns an array unchanged or, if its dtype is one of ml_dtypes, as a view with a dtype of numpy, which C code
    can read (see ELEMENTS in megcc_py.c). The dtype has been checked before."""
    return array.view(f"S{array.dtype.itemsize}") if array.dtype.name in DTYPES and array.dtype.name not in ORDINARY \
        else array


class NativeSession(Session):
    """A session that runs the shared library of a build in this process. The GIL is released during a run.

    A session runs once at a time: threads that share it wait for each other. In a child of `os.fork` the session is an
    independent copy with its states; it is unusable if another thread was running it during the fork. The .megcc file
    is mapped into memory: replace it by another file, as `megcc compile` does, and do not shorten it while a session
    is open.
    """

    def __init__(self, built: Build, threads: int | None = None):
        """threads: the number of workers; None: as many as the model was compiled for."""
        super().__init__(built)
        self._handle: int | None = None
        self._gone = "is not open"
        self._lock = threading.Lock()
        self._bound: Bound | None = None
        self._shapes: tuple[tuple[int | str, ...], ...] = ()
        self._waiting: dict[str, Array] = {}    # states that have no memory yet
        try:
            with folders.locked(built.folder):  # so that no other process replaces the folder meanwhile
                library = open_library(built.library.resolve())  # type: ignore[union-attr]
                for name, (result, arguments) in _FUNCTIONS.items():
                    function = getattr(library, f"megcc_py_{name}")
                    function.restype, function.argtypes = result, arguments
                    setattr(self, f"_c_{name}", function)
                self._container = self._map_container(built.folder / f"{self.name}.megcc")
        except OSError as error:
            raise ToolError(f"{built.library} cannot be loaded: {error}") from None
        self._text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._handle = self._c_open(self._container.ctypes.data, self._container.size, built.target.isa.forced_level,
                                    threads or 0, self._text, _TEXT_BYTES)
        if not self._handle:
            raise MegccError(f"{self.name}: {self._text.value.decode(errors='replace')}")
        methods = self._c_methods(*_OF_PYTHON)
        #: Runs the session and returns a status. It is called under the lock, while `_handle` is valid.
        self._c_run: Callable[[], int] = _method_of(methods, self._handle, None)
        self._read_method = methods + ctypes.sizeof(_Method)
        isa = self._c_isa(self._handle)
        targets = [TARGETS[p["target"]] for p in self.programs if TARGETS[p["target"]].isa.code == isa]
        if not targets:
            raise self._other_container(f"it has a program for a CPU of code {isa}")
        self.target = targets[0]
        self._require_the_container_of_the_manifest()
        _sessions.add(self)

    def _map_container(self, path: Path) -> Array:
        """Returns the container as an array of uint8: the mapped file or, if it is embedded, the array in the
        library."""
        if path.exists():
            return map_file(path)
        size = ctypes.c_uint64()
        address = self._c_embedded(ctypes.byref(size))
        if not address:
            raise MegccError(f"{path} is missing")
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size.value,))

    def _require_the_container_of_the_manifest(self) -> None:
        """Checks that the manifest agrees with the container, as the runtime describes it."""
        counts = (ctypes.c_uint32 * 4)()    # in the order of `expected`
        self._c_counts(self._handle, counts)
        expected = {"inputs": len(self._all_inputs), "outputs": len(self._all_outputs), "states": len(self.state_of),
                    "instructions": self.program["instructions"]}
        for (what, expected_count), count in zip(expected.items(), counts, strict=True):
            if count != expected_count:
                raise self._other_container(f"it has {count} {what}, not {expected_count}")
        self._instructions: int = expected["instructions"]
        self._input_rows = self._c_inputs(self._handle)[:expected["inputs"]]
        self._output_rows = self._c_outputs(self._handle)[:expected["outputs"]]
        for row, port in zip((*self._input_rows, *self._output_rows), (*self._all_inputs, *self._all_outputs),
                             strict=True):
            if not row.port.is_of(port):
                raise self._other_container(f"it has {row.port} where {port} should be")
        # The ports of a run: inputs that are given, with a method that takes an array's `__array_struct__`, which must
        # outlive the run, and outputs that are returned.
        states = frozenset(self.state_of.values())
        self._given: list[tuple[str, Callable[[object], int]]] = [
            (port.name, _method_of(self._read_method, ctypes.addressof(row), None))
            for row, port in zip(self._input_rows, self._all_inputs, strict=True) if port.name not in states]
        self._returned = [(port.name, index, row) for index, (row, port)
                          in enumerate(zip(self._output_rows, self._all_outputs, strict=True))
                          if port.name not in self.state_of]
        #: For each output a view of it in the session's memory, and the `changes` of its row then; -1: no valid view.
        self._views: list[tuple[int, Array]] = [(-1, np.empty(0))] * expected["outputs"]

    def run(self, inputs: Any, feeds: Arrays | None = None, run_options: object = None) -> Any:
        if feeds is not None:
            return self._in_order(inputs, feeds)
        lock = self._lock
        lock.acquire()      # `with` takes 150 ns more, which is much for a small network
        try:
            self._run(inputs)
            results = {}
            for name, index, row in self._returned:
                changes, view = self._views[index]
                if row.changes != changes:
                    view = self._view(index)
                results[name] = view.copy()
        finally:
            lock.release()
        return self._with_strings(results) if self._strings else results

    def _run(self, inputs: Given) -> None:
        """Runs the model; the results stay in the session's memory. The caller holds the lock."""
        if self._handle is None:
            self._refuse_to_run()
        if self._bound is not None:
            self._unbind()
        if type(inputs) is dict and len(inputs) == len(self._given) and self._start(inputs):
            return
        arrays = self._checked(inputs)
        self._set_shapes(arrays)
        if not self._start({port.name: _with_numpy_dtype(array)
                            for port, array in zip(self.inputs, arrays, strict=True)}):
            raise self._other_container("its inputs have other types")

    def _start(self, inputs: dict[str, Any]) -> bool:
        """Runs the model if C code accepts the arrays. Returns whether it does."""
        interfaces = []
        try:
            for name, read in self._given:
                interface = inputs[name].__array_struct__
                read(interface)
                interfaces.append(interface)
        except (KeyError, AttributeError, ValueError):      # the slow path explains what is wrong
            return False
        status = self._c_run()
        if status and status != _MISFIT:
            self._fail()
        return not status

    def _fail(self) -> NoReturn:
        raise MegccError(f"{self.name}: {self._explained(self._error_text())}")

    def _error_text(self) -> str:
        """Returns the error text of the last call."""
        self._c_error(self._handle, self._text, _TEXT_BYTES)
        return self._text.value.decode(errors="replace")

    def _view(self, index: int) -> Array:
        """Returns a view of an output in the session's memory. It is valid while the caller holds the lock."""
        row, port = self._output_rows[index], self._all_outputs[index]
        dtype = np.dtype(port.dtype)
        size = math.prod(row.port.shape) * dtype.itemsize
        memory = (ctypes.c_char * size).from_address(row.found) if size else b""
        view: Array = np.ndarray(row.port.shape, dtype, memory)
        self._views[index] = row.changes, view
        return view

    def bind(self, inputs: Given | None = None) -> Bound:
        return Bound(self, {} if inputs is None else self._named_inputs(inputs))

    def profile(self, inputs: Given) -> list[dict[str, Any]]:
        seconds = (ctypes.c_double * max(self._instructions, 1))()
        with self._watched(seconds, _OBSERVER(), None):
            self._run(inputs)
        return [{**call, "seconds": seconds[call["instruction"]]} for call in self.calls]

    def trace(self, inputs: Given) -> list[bytes | None]:
        results: dict[int, bytes] = {}
        observer = _OBSERVER(lambda index, address, size: results.update({index: ctypes.string_at(address, size)}))
        program = next(p for p in container.read(self._container.data).programs
                       if p.isa == self.target.isa.code)
        # The operands of an instruction are its inputs, then its outputs: the first output has this index.
        first_outputs = [instruction.inputs for instruction in program.instructions]
        with self._watched(None, observer, (ctypes.c_uint32 * max(len(first_outputs), 1))(*first_outputs)):
            self._run(inputs)
        return [results.get(call["instruction"]) for call in self.calls]

    @contextmanager
    def _watched(self, seconds, observer, operand):
        """Holds the lock; runs inside the block are watched by megcc_py_watch, which has these arguments."""
        with self._live() as handle:
            self._c_watch(handle, seconds, observer, operand)
            try:
                yield
            finally:
                self._c_watch(handle, None, _OBSERVER(), None)

    def reset(self, states: Arrays | None = None) -> None:
        values = self._checked_states(states)
        with self._live() as handle:
            self._c_reset(handle)
            self._begin(values)

    def _begin(self, states: dict[str, Array]) -> None:
        """Sets the states to these values. A state without memory is set when the first shapes are known. The caller
        holds the lock."""
        self._waiting = {}
        for name, value in states.items():
            if address := self._address(name):
                ctypes.memmove(address, value.ctypes.data, value.nbytes)
            else:
                self._waiting[name] = value

    @property
    def states(self) -> dict[str, Array]:
        values = self._checked_states(None)
        with self._live():
            for name, value in values.items():
                if address := self._address(name):
                    ctypes.memmove(value.ctypes.data, address, value.nbytes)
                elif name in self._waiting:
                    value[...] = self._waiting[name]
        return values

    def _rows(self, counter: str) -> int:
        if address := self._address(counter):
            return ctypes.c_int64.from_address(address).value
        return int(self._waiting[counter][0]) if counter in self._waiting else 0

    def _address(self, state: str) -> int | None:
        index = next(index for index, port in enumerate(self._all_inputs) if port.name == state)
        address: int | None = self._c_input(self._handle, index)
        return address

    def _set_shapes(self, arrays: Sequence[Array]) -> None:
        """Sets the shapes of the inputs if they changed. That resets the states, unless they are KV caches. The caller
        holds the lock."""
        given = iter(arrays)
        shapes = tuple(port.shape if port in self.state_ports else next(given).shape for port in self._all_inputs)
        if not self.is_dynamic or shapes == self._shapes:
            return
        rows = (_Shape * len(shapes))(*map(_Shape.of, shapes))  # type: ignore[arg-type]
        keep_states = bool(self.counters)
        if self._c_set_shapes(self._handle, rows, keep_states):
            raise self._shape_error(arrays, self._error_text())
        self._shapes = shapes
        if self._waiting:
            self._begin(self._waiting)
        self._views = [(-1, view) for _, view in self._views]   # outputs have new shapes: no view is valid

    def _unbind(self) -> None:
        """Binds the outputs to the session's own memory again."""
        for row in self._output_rows:
            row.wanted = None
        self._bound = None

    def __repr__(self) -> str:
        return super().__repr__().replace("<", "<closed " if self._handle is None else "<", 1)

    def close(self) -> None:
        with self._lock:
            self._end("is closed", free=True)

    def _end(self, why: str, free: bool) -> None:
        handle, self._handle, self._gone, self._bound = self._handle, None, why, None
        if handle and free:
            self._c_close(handle)

    @contextmanager
    def _live(self):
        """Holds the lock and yields the handle; raises if the session is closed."""
        with self._lock:
            if self._handle is None:
                self._refuse_to_run()
            yield self._handle

    def _refuse_to_run(self) -> NoReturn:
        raise MegccError(f"{self.name}: the session {self._gone}; tvm_megcc.load({str(self.folder)!r}) makes another")

    def _after_fork(self) -> None:
        """Called in a forked child. If another thread held the lock, it will never be released and the session's state
        is incomplete, so the session becomes unusable."""
        was_running, self._lock = self._lock.locked(), threading.Lock()
        if was_running:
            self._end("was running in another thread when this process was forked", free=False)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


class Bound:
    """A session with fixed arrays; see `NativeSession.bind`. A call runs the model and returns `outputs`.

    inputs, outputs: arrays by name, the same at every call. The next call overwrites the arrays of the outputs; they
        remain valid when the session is closed.
    """

    def __init__(self, session: NativeSession, inputs: Arrays):
        # Inputs that are not given get arrays of zeros, unless their shapes may change.
        arrays = {port.name: np.zeros(port.shape, np.dtype(port.dtype))
                for port in session.inputs if port.name not in inputs
                and all(isinstance(dim, int) for dim in port.shape)}
        self._session = session
        self._arrays = session._checked({**arrays, **inputs})
        self.inputs: dict[str, Array] = {port.name: array
                                         for port, array in zip(session.inputs, self._arrays, strict=True)}
        copied = [port for port in session.inputs
                  if port.name in inputs and self.inputs[port.name] is not inputs[port.name]]
        if copied:
            raise ShapeError(f"input {copied[0]} cannot be bound: it is read in place, so it has to be a numpy array "
                             "that is contiguous and aligned: np.ascontiguousarray(x)")
        self._interfaces = [_with_numpy_dtype(array).__array_struct__ for array in self._arrays]
        self._run = session._c_run
        with session._live():
            session._set_shapes(self._arrays)
            self.outputs: dict[str, Array] = {
                name: np.empty(row.port.shape, np.dtype(session._all_outputs[index].dtype))
                for name, index, row in session._returned if not session._all_outputs[index].counted}
        self._counted = [row for row in session._returned if row[0] not in self.outputs]

    def __repr__(self) -> str:
        return f"<bound {repr(self._session).removeprefix('<')}"

    def __call__(self) -> dict[str, Array]:
        """Runs the model once and returns `outputs`.

        Raises:
            MegccError: as `Session.run`.
        """
        session = self._session
        lock = session._lock
        lock.acquire()      # as in NativeSession.run
        try:
            if session._bound is not self:
                self._bind()
            if self._run():
                session._fail()
            if self._counted:   # outputs whose size is known only after the run
                for name, index, row in self._counted:
                    changes, view = session._views[index]
                    self.outputs[name] = (view if row.changes == changes else session._view(index)).copy()
        finally:
            lock.release()
        return self.outputs

    def _bind(self) -> None:
        session = self._session
        if session._handle is None:
            session._refuse_to_run()
        session._set_shapes(self._arrays)
        for (_, read), interface in zip(session._given, self._interfaces, strict=True):
            read(interface)
        for name, index, row in session._returned:
            row.wanted = None if session._all_outputs[index].counted else self.outputs[name].ctypes.data
        session._bound = self


#: All live sessions, for `_after_fork`.
_sessions: weakref.WeakSet[NativeSession] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
