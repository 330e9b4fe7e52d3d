# SPDX-License-Identifier: Apache-2.0
"""Runs a library without exporting it. TVM links object files only when it exports a library, and cannot run them
before. So each of our object files also imports a shared object of the same code, which is removed on export."""

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
from ..tvm_common.link import TARGET_SYMBOL, targets_of
from .regions import names_ours

Module = tvm.runtime.Module


def loaded(path: Path, symbols: Iterable[str], cpu: Target) -> Module:
    """Returns our object file as the module that a code generator returns to TVM. `export_library` links it, and it can
    run in memory before.

    Args:
        path: of the object file.
        symbols: the functions that it exports.
        cpu: the target that it was compiled for. On another machine, calls in memory raise an error.
    """
    # The additional name, which is not a function of the file, tells `targets_of` that the file is ours, and its CPU.
    part = tvm.runtime.load_static_library(str(path), [*symbols, TARGET_SYMBOL + cpu.name])
    if not hasattr(Module, "clear_imports"):  # then the import could not be removed for export
        return part
    if runs_here(cpu):
        part.import_module(_shared([path], cpu))
        return part
    try:
        for symbol in symbols:
            with tvm_module.compile_failing(symbol, f"RuntimeError: {symbol}: {elsewhere([cpu])}", native()) as failing:
                part.import_module(_shared([failing], native()))
    except MissingTool:  # export may still work with a cross compiler
        part.clear_imports()
    return part


def _shared(objects: Iterable[Path], cpu: Target) -> Module:
    """Links and loads a shared library. Its file is not needed after that."""
    with tvm_module.shared_object(objects, cpu) as path:
        return tvm.runtime.load_module(str(path))


def elsewhere(targets: Iterable[Target]) -> str:
    """Returns the error text for a call on this machine of regions that were compiled for other targets."""
    return (f"compiled for {', '.join(map(str, targets))}, which this machine ({native()}) does not run: "
            "export_library, and load the file there")


def ours(library: Module) -> list[Module]:
    """Returns our object files in a library of TVM."""
    parts = library._collect_from_import_tree(lambda module: module.type_key == "static_library")
    return [part for part in parts if targets_of([part], Module.implements_function)]


@contextmanager
def exporting(library: Module) -> Iterator[None]:
    """Removes the modules that only run in memory from a library, within the block."""
    imports = [(part, part.imported_modules) for part in ours(library)]
    try:
        for part, modules in imports:
            if modules:
                part.clear_imports()
        yield
    finally:
        for part, modules in imports:
            for module in modules:
                part.import_module(module)


def _item(self, name: str):
    """Replaces `library[name]`. The AOT executor's code finds regions by linked symbol, not among its imports, so the
    library is exported and loaded."""
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
    """Replaces the method of TVM's interpreter, which lowers functions itself without calling code generators."""
    regions = names_ours(self.mod)
    if regions:
        raise MegccError(f"TVM's interpreter cannot run {regions[0]}, which megcc compiles; "
                         "relay.create_executor has 'graph', 'vm' and 'aot' for partitioned modules")
    return _tvm_make_executor(self, expr)


def _initialise(self, *arguments, **keywords) -> None:
    """Replaces the constructor of the AOT executor's factory. In another interface than the packed one, TVM would call
    regions with bare pointers."""
    _tvm_initialise(self, *arguments, **keywords)
    options = self.executor._attrs
    chosen = {name: options[name] for name in options.keys()}  # without those that are not given
    if ours(self.module) and (chosen.get("interface-api", "packed") != "packed" or chosen.get("unpacked-api")):
        raise MegccError("regions of megcc have the packed interface of TVM's functions: leave out interface-api and "
                         "unpacked-api of the AOT executor. For a microcontroller, tvm_megcc.compile(mod, 'cortex-m7') "
                         "makes a folder of C of the whole module")


_tvm_initialise = executor_factory.AOTExecutorFactoryModule.__init__
_tvm_item = executor_factory.AOTExecutorFactoryModule.__getitem__
_tvm_make_executor = interpreter.Interpreter._make_executor


def register() -> None:
    executor_factory.AOTExecutorFactoryModule.__init__ = _initialise
    executor_factory.AOTExecutorFactoryModule.__getitem__ = _item
    interpreter.Interpreter._make_executor = _make_executor
