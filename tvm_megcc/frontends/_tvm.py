# SPDX-License-Identifier: Apache-2.0
"""Registers with TVM, as soon as there is one: `import tvm_megcc` never imports TVM, but after both imports, in either
order, the target tags, patterns, code generator and pipeline are there.

Which front end that is follows from the TVM: the versions that have Relay get the one for Relay, the others that for
Relax.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MegccError

if TYPE_CHECKING:
    from tvm import IRModule as Module  # noqa: F401  (what `tvm_megcc.compile` takes beside files)

#: What `tvm_megcc` offers inside TVM; importing the front end that has it registers with TVM.
LAZY = ("partition_for_megcc", "tune_megcc_kernels", "build_megcc_kernels", "build")
#: Files that TVM's importers read, by suffix: what they are, and what to install.
FILES = {".tflite": ("TFLite files", "'tvm_megcc[tflite]'"),
         ".pt2": ("programs of torch.export", "'tvm_megcc[tvm]' torch")}
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
    """Whether a model is one that TVM's importers read: a TFLite file, a program of torch.export."""
    if isinstance(model, (str, Path)):
        return Path(model).suffix in FILES
    return any(part.__module__.startswith("torch.export") for part in type(model).__mro__)


def loaded(model):
    """Such a model as a module.

    Raises:
        MegccError: saying what has to be installed for it, and for what the importer does not take.
    """
    try:
        load = attribute("load", "files")
    except ImportError as error:
        what = FILES.get(Path(model).suffix, FILES[".pt2"]) if isinstance(model, (str, Path)) else FILES[".pt2"]
        raise MegccError(f"{model if isinstance(model, (str, Path)) else 'the program'}: {what[0]} come in through "
                         f"TVM's importers: pip install {what[1]}") from error
    return load(model)


def attribute(name: str, module: str = ""):
    """One of `LAZY`, or an attribute of another module of the front end.

    Args:
        module: its name behind that of the front end: "dispatch" is `relax.dispatch` or `relay.dispatch`.

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
    """Registers now with what is there of TVM, else right after somebody imports it."""
    for name, register in (("tvm", _register), (TVMC, _register_with_tvmc)):
        if name in sys.modules:
            register()
        elif not any(isinstance(finder, _After) and finder.name == name for finder in sys.meta_path):
            sys.meta_path.insert(0, _After(name, register))


def _register() -> None:
    tvm = sys.modules["tvm"]
    name = "relay" if hasattr(tvm, "relay") else "relax" if hasattr(tvm, "relax") else ""
    try:
        if name:
            importlib.import_module(f"{__package__}.{name}.backend")
    except Exception as error:  # TVM itself must stay usable
        version = getattr(tvm, "__version__", "?")
        warnings.warn(f"tvm_megcc does not work with TVM {version} (it wants 0.27, or 0.9 to 0.19): {error}",
                      stacklevel=2)


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
