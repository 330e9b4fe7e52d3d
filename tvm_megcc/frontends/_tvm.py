# SPDX-License-Identifier: Apache-2.0
"""Registers with TVM, as soon as there is one: `import tvm` alone is enough where TVM calls entry points. `import
tvm_megcc` never imports TVM, but after both imports, in either order, the target tags, patterns, code generator and
pipeline are there.

Which front end that is follows from the TVM: the versions that have Relay get the one for Relay, the others that for
Relax.
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
from typing import TYPE_CHECKING

from ..errors import MegccError
from .contents import kind_of

if TYPE_CHECKING:
    from tvm import IRModule as Module  # noqa: F401  (what `tvm_megcc.compile` takes beside files)

#: The functions that `tvm_megcc` offers inside TVM; importing the front end that has it registers with TVM.
LAZY = ("partition_for_megcc", "tune_megcc_kernels", "build_megcc_kernels", "build")
#: Files that TVM's importers read, by kind: what they are, and what to install.
FILES = {"tflite": ("TFLite files", "'tvm_megcc[tflite]'"),
         "program": ("programs of torch.export", "'tvm_megcc[tvm]' torch")}
#: The oldest and the newest release of TVM with Relax that the tests ran on, and what messages say.
RELAX = ((0, 26), (0, 27))
SUPPORTED = "0.26 to 0.27, or 0.9 to 0.19"
#: Why not an older one: in 0.25 fused functions that differ in constants only become one, with the constants of one of
#: them, so results are wrong.
OLDER = "it is older"
#: The TVM that we are registered with, or could not be.
_REGISTERED: list = []
#: Where the command `tvmc` of the older TVM looks for code generators.
TVMC = "tvm.driver.tvmc.composite_target"


def front_end() -> str:
    """ "relay" or "relax", by the TVM that is installed.

    Raises:
        ImportError: without TVM.
    """
    return "relay" if hasattr(importlib.import_module("tvm"), "relay") else "relax"


def is_module(model) -> bool:
    """Whether a model is a module of TVM."""
    return "tvm" in sys.modules and isinstance(model, getattr(sys.modules["tvm"], "IRModule", ()))


def is_for_importers(model) -> bool:
    """Whether a model is one that comes in through TVM's importers alone: a program of torch.export."""
    if isinstance(model, (str, Path)):
        return kind_of(model) == "program"
    return any(part.__module__.startswith("torch.export") for part in type(model).__mro__)


def loaded(model):
    """Such a model as a module.

    Raises:
        MegccError: saying what has to be installed for it, and for what the importer does not take.
    """
    try:
        load = attribute("load", "files")
    except ImportError as error:
        what = FILES[kind_of(model) or "program"]
        raise MegccError(f"{model if isinstance(model, (str, Path)) else 'the program'}: {what[0]} come in through "
                         f"TVM's importers: pip install {what[1]}") from error
    return load(model)


def attribute(name: str, module: str = ""):
    """One of `LAZY`, or an attribute of another module of the front end.

    Args:
        module: its name after that of the front end: "dispatch" is `relax.dispatch` or `relay.dispatch`.

    Raises:
        ImportError: without TVM, saying what to install, and for what there is in the other front end only.
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
    """Registers now with what is there of TVM, else when somebody imports it: TVM calls the entry point `register`, or,
    where it does not know entry points, a hook on its import does."""
    if "tvm" in sys.modules:
        register()
    elif not _calls_entry_points():
        _after("tvm", register)
    else:
        return
    if TVMC in sys.modules:
        _register_with_tvmc()
    elif "tvm" not in sys.modules or hasattr(sys.modules["tvm"], "relay"):
        _after(TVMC, _register_with_tvmc)


def _calls_entry_points() -> bool:
    """Whether the TVM that would be imported calls the entry points of the group tvm.backends."""
    try:
        spec = importlib.util.find_spec("tvm")
    except (ImportError, ValueError):
        return False
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return any((Path(folder) / "backend" / "_autoload_backends.py").is_file() for folder in folders)


def _after(name: str, then: Callable[[], None]) -> None:
    if not any(isinstance(finder, _After) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _After(name, then))


def register() -> None:
    """The entry point: makes us known to the TVM that has just been imported. Never raises; warns in one sentence where
    that cannot be."""
    tvm = sys.modules["tvm"]
    if tvm in _REGISTERED:
        return
    _REGISTERED.append(tvm)
    version = str(getattr(tvm, "__version__", "?"))
    try:
        if hasattr(tvm, "relay"):
            importlib.import_module(f"{__package__}.relay.backend")
        elif hasattr(tvm, "relax"):
            age = known(version)
            if age < 0:
                raise MegccError(OLDER)
            importlib.import_module(f"{__package__}.tvm_backends").register()
            if age > 0:
                warnings.warn(f"tvm_megcc was tested with TVM {SUPPORTED}, not with {version}, which is newer",
                              stacklevel=2)
    except Exception as error:  # TVM itself must stay usable
        reason = " ".join(str(error).split())
        warnings.warn(f"tvm_megcc does not work with TVM {version} (it wants {SUPPORTED}): {reason}", stacklevel=2)


def known(version: str) -> int:
    """-1 for a TVM with Relax that is too old, 1 for one that is newer than those that were tested, else 0."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return -1 if numbers < RELAX[0] else int(numbers > RELAX[1])


def _register_with_tvmc() -> None:
    importlib.import_module(f"{__package__}.relay.tvmc").register()


class _After(MetaPathFinder):
    """Finds a module as everybody else does, and calls a function when it has been loaded."""

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
            # here and not when it is found: many only ask whether the module is there
            if self in sys.meta_path and module.__name__ == self.name:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = load_and_register
        return spec
