# SPDX-License-Identifier: Apache-2.0
"""Registers our target tags, patterns, code generator and pipeline with TVM, after `import tvm` and `import tvm_megcc`
in either order. `import tvm_megcc` never imports TVM. `import tvm` alone is enough if TVM calls entry points.

TVM versions with Relay get the front end for Relay, newer ones that for Relax.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import MegccError
from .contents import kind_of

if TYPE_CHECKING:
    from tvm import IRModule as Module  # noqa: F401  (a model that `tvm_megcc.compile` accepts)

#: The functions of `tvm_megcc` that need TVM. Importing the front end that defines one registers with TVM.
NEED_TVM = ("partition_for_megcc", "tune_megcc_kernels", "build_megcc_kernels", "build")
#: The oldest and the newest release of TVM with Relax that are tested.
_OLDEST_RELAX, _NEWEST_RELAX = (0, 25), (0, 27)
#: The tested releases in messages: those with Relax, and those with Relay.
SUPPORTED = "0.25 to 0.27, or 0.9 to 0.19"
#: The reason that messages give for a TVM before `_OLDEST_RELAX`.
TOO_OLD = "it is older"
#: The TVM module that registration was tried with, successfully or not; empty before.
_REGISTERED: list[ModuleType] = []
#: Where the command `tvmc` of the older TVM looks for code generators.
_TVMC_MODULE = "tvm.driver.tvmc.composite_target"


def front_end() -> str:
    """Returns "relay" or "relax", depending on the installed TVM.

    Raises:
        ImportError: without TVM.
    """
    return "relay" if hasattr(importlib.import_module("tvm"), "relay") else "relax"


def is_module(model) -> bool:
    """Whether a model is a module of TVM."""
    return "tvm" in sys.modules and isinstance(model, getattr(sys.modules["tvm"], "IRModule", ()))


def needs_tvm_importer(model) -> bool:
    """Whether a model is imported only through TVM's importers: a program of torch.export."""
    if isinstance(model, (str, Path)):
        return kind_of(model) == "program"
    return any(part.__module__.startswith("torch.export") for part in type(model).__mro__)


def to_module(model):
    """Converts a model of `needs_tvm_importer` to a module of TVM.

    Raises:
        MegccError: if a package is missing, or TVM's importer does not support the model.
    """
    try:
        load = attribute("load", "files")
    except ImportError as error:
        subject = model if isinstance(model, (str, Path)) else "the program"
        raise MegccError(f"{subject}: programs of torch.export come in through TVM's importers: "
                         "pip install 'tvm_megcc[tvm]' torch") from error
    return load(model)


def attribute(name: str, module: str = ""):
    """Returns one of `NEED_TVM`, or an attribute of another module of the front end.

    Args:
        name: name of the attribute.
        module: the module in the front end's package: "dispatch" is `relax.dispatch` or `relay.dispatch`.

    Raises:
        ImportError: without TVM, saying what to install, or if only the other front end has the attribute.
    """
    try:
        active = front_end()
    except ModuleNotFoundError as error:
        if error.name not in ("tvm", "tvm_ffi"):
            raise
        raise ImportError(f"{name} needs TVM, which is not installed: pip install 'tvm_megcc[tvm]'") from error
    path = ".".join(filter(None, (f"{__package__}.{active}", module)))
    found = importlib.import_module(path) if importlib.util.find_spec(path) else None
    if not hasattr(found, name):
        other = {"relax": "Relay", "relay": "Relax"}[active]
        raise ImportError(f"{name} is for the TVM with {other}; this is TVM {sys.modules['tvm'].__version__} "
                          "(docs/tvm.md, docs/relay.md)")
    return getattr(found, name)


def register_when_imported() -> None:
    """Registers now if TVM is imported already, else when it is imported: TVM calls the entry point `register` or, if
    it does not support entry points, an import hook does.

    The command `tvmc` finds its code generators in a module of its own, which an import hook waits for. Only TVM with
    Relay has this module, and such a TVM calls no entry points.
    """
    if "tvm" in sys.modules:
        register()
    elif not _calls_entry_points():
        _call_after_import("tvm", register)
    else:
        return
    if _TVMC_MODULE in sys.modules:
        _register_with_tvmc()
    elif "tvm" not in sys.modules or hasattr(sys.modules["tvm"], "relay"):
        _call_after_import(_TVMC_MODULE, _register_with_tvmc)


def _calls_entry_points() -> bool:
    """Whether the TVM that would be imported calls the entry points of the group tvm.backends."""
    try:
        spec = importlib.util.find_spec("tvm")
    except (ImportError, ValueError):
        return False
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return any((Path(folder) / "backend" / "_autoload_backends.py").is_file() for folder in folders)


def _call_after_import(name: str, then: Callable[[], None]) -> None:
    """Installs an import hook that calls `then` after the module of this name has been loaded."""
    if not any(isinstance(finder, _ImportHook) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportHook(name, then))


def register() -> None:
    """Registers with the TVM that has just been imported; the entry point that TVM calls. Warns instead of raising if
    that fails."""
    tvm = sys.modules["tvm"]
    if tvm in _REGISTERED:
        return
    _REGISTERED.append(tvm)
    version = str(getattr(tvm, "__version__", "?"))
    try:
        if hasattr(tvm, "relay"):
            importlib.import_module(f"{__package__}.relay.backend")
        elif hasattr(tvm, "relax"):
            age = compare_release(version)
            if age < 0:
                raise MegccError(TOO_OLD)
            importlib.import_module(f"{__package__}.tvm_backends").register()
            if age > 0:
                warnings.warn(f"tvm_megcc was tested with TVM {SUPPORTED}, not with {version}, which is newer",
                              stacklevel=2)
    except Exception as error:  # `import tvm` must succeed in any case
        reason = " ".join(str(error).split())
        warnings.warn(f"tvm_megcc does not work with TVM {version} (supported: {SUPPORTED}): {reason}", stacklevel=2)


def compare_release(version: str) -> int:
    """Returns -1 for a TVM with Relax that is too old, 1 for one newer than the tested ones, else 0."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return -1 if numbers < _OLDEST_RELAX else int(numbers > _NEWEST_RELAX)


def _register_with_tvmc() -> None:
    importlib.import_module(f"{__package__}.relay.tvmc").register()


class _ImportHook(MetaPathFinder):
    """An import hook that calls a function after a module has been loaded. Other finders find the module."""

    def __init__(self, name: str, then: Callable[[], None]):
        self.name, self.then = name, then

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in tuple(sys.meta_path) if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_register(module) -> None:
            load(module)
            # on loading, not on finding: `find_spec` is also called only to ask whether the module exists
            if self in sys.meta_path and module.__name__ == self.name:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = load_and_register
        return spec
