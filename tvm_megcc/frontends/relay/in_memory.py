# SPDX-License-Identifier: Apache-2.0
"""Runs a library that was not exported. TVM links object files into the file that it exports, and cannot run them
before. Until then a shared object of the same code runs: it is imported with each of our object files, and left out of
the export."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tvm
from tvm.relay.backend import executor_factory, interpreter

from ...errors import MegccError, MissingTool
from ...runtime import tvm_module
from ...runtime.toolchain import runs_here
from ...target import Target, native
from ..tvm_common.link import MARK, targets_of
from .regions import names_ours

Module = tvm.runtime.Module


def loaded(path: Path, symbols: Iterable[str], cpu: Target) -> Module:
    """Returns an object file of ours as TVM's code generator returns it: to be linked by `export_library`, and to run
    before.

    Args:
        symbols: what it exports.
        cpu: what it was compiled for. Where this machine is another, calls in memory are errors that say so.
    """
    part = tvm.runtime.load_static_library(str(path), [*symbols, MARK + cpu.name])
    if not hasattr(Module, "clear_imports"):  # it could not be exported any more
        return part
    if runs_here(cpu):
        part.import_module(_shared([path], cpu))
        return part
    try:
        for symbol in symbols:
            with tvm_module.compile_failing(symbol, f"RuntimeError: {symbol}: {elsewhere([cpu])}", native()) as failing:
                part.import_module(_shared([failing], native()))
    except MissingTool:  # a cross compiler is enough to export
        part.clear_imports()
    return part


def _shared(objects: Iterable[Path], cpu: Target) -> Module:
    """Loads a shared library. Its file can be removed afterwards."""
    with tvm_module.shared_object(objects, cpu) as path:
        return tvm.runtime.load_module(str(path))


def elsewhere(targets: Iterable[Target]) -> str:
    return (f"compiled for {', '.join(map(str, targets))}, which this machine ({native()}) does not run: "
            "export_library, and load the file there")


def ours(library: Module) -> list[Module]:
    """Returns the object files of ours that a library of TVM has."""
    parts = library._collect_from_import_tree(lambda module: module.type_key == "static_library")
    return [part for part in parts if targets_of([part], Module.implements_function)]


@contextmanager
def exporting(library: Module) -> Iterator[None]:
    """Removes the modules that only run in memory from a library, within the block."""
    kept = [(part, part.imported_modules) for part in ours(library)]
    try:
        for part, modules in kept:
            if modules:
                part.clear_imports()
        yield
    finally:
        for part, modules in kept:
            for module in modules:
                part.import_module(module)


def _item(self, name: str):
    """Replaces `library[name]` for the AOT executor, whose code finds regions by symbol and not among its imports:
    exports and loads the library."""
    parts = ours(self.module)
    if not parts:
        return _tvm_item(self, name)
    foreign = [target for target in targets_of(parts, Module.implements_function) if not runs_here(target)]
    if foreign:
        raise MegccError(elsewhere(foreign))
    if not hasattr(self, "megcc_loaded"):
        with tempfile.TemporaryDirectory(prefix="megcc-relay-") as folder:
            path = Path(folder) / "library.so"
            self.export_library(str(path))
            self.megcc_loaded = tvm.runtime.load_module(str(path))
    return self.megcc_loaded[name]


def _make_executor(self, expr=None):
    """Makes the executor of TVM's interpreter, which lowers functions by itself and asks no code generator."""
    regions = names_ours(self.mod)
    if regions:
        raise MegccError(f"TVM's interpreter cannot run {regions[0]}, which megcc compiles; "
                         "relay.create_executor has 'graph', 'vm' and 'aot' for partitioned modules")
    return _tvm_make_executor(self, expr)


_tvm_item = executor_factory.AOTExecutorFactoryModule.__getitem__
_tvm_make_executor = interpreter.Interpreter._make_executor


def register() -> None:
    executor_factory.AOTExecutorFactoryModule.__getitem__ = _item
    interpreter.Interpreter._make_executor = _make_executor
