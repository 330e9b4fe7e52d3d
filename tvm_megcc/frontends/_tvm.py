# SPDX-License-Identifier: Apache-2.0
"""Registers with TVM, as soon as there is one: `import tvm_megcc` never imports TVM, but after both imports, in either
order, the target tags, patterns, code generator and pipeline are there."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

#: What `tvm_megcc` offers and where it is; importing the module registers with TVM.
LAZY = dict.fromkeys(("partition_for_megcc", "tune_megcc_kernels", "build_megcc_kernels", "build"), "relax")


def attribute(name: str, module: str = ""):
    """One of `LAZY`, or an attribute of another front end.

    Raises:
        ImportError: without TVM, saying what to install.
    """
    try:
        return getattr(importlib.import_module(f"{__package__}.{module or LAZY[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("tvm", "tvm_ffi"):
            raise
        raise ImportError(f"{name} needs TVM, which is not installed: pip install 'tvm_megcc[tvm]'") from error


def register_when_imported() -> None:
    """Registers now if TVM is there, else right after somebody imports it."""
    if "tvm" in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterTvm) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTvm())


def _register() -> None:
    if not hasattr(sys.modules["tvm"], "relax"):
        return
    try:
        importlib.import_module(f"{__package__}.relax")
    except Exception as error:  # TVM itself must stay usable
        version = getattr(sys.modules["tvm"], "__version__", "?")
        warnings.warn(f"tvm_megcc does not work with TVM {version} (it wants 0.27): {error}", stacklevel=2)


class _AfterTvm(MetaPathFinder):
    """Finds TVM as everybody else does, and lets us register when it has been loaded."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname != "tvm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        load = spec.loader.exec_module

        def load_and_register(module) -> None:
            load(module)
            _register()

        spec.loader.exec_module = load_and_register
        return spec
