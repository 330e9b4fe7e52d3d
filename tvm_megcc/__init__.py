# SPDX-License-Identifier: Apache-2.0
"""Neural networks compiled ahead of time to small C programs: a TVM plugin and a stand-alone compiler."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .errors import MegccError
from .frontends import _tvm
from .version import VERSION as __version__

if TYPE_CHECKING:
    from .api import compile, load
    from .codegen.artifact import Artifact
    from .options import CompileOptions
    from .passes.canonicalize.preprocess import Input
    from .reports import Report, bench, compare, explain, inspect, quantize
    from .runtime.session import Session
    from .target import Target
    from .tools.program.program import Program

__all__ = ["Artifact", "CompileOptions", "Input", "MegccError", "Program", "Report", "Session", "Target", "__version__",
           "bench", "build", "build_megcc_kernels", "compare", "compile", "explain", "inspect", "load",
           "partition_for_megcc", "quantize", "tune_megcc_kernels"]

#: Public name -> its module. A module is imported on first use of a name: so `import tvm`, which imports this package,
#: and the start of the command stay fast. Names that need TVM are in `_tvm.NEED_TVM`.
_LAZY = {**dict.fromkeys(("compile", "load"), ".api"), "Artifact": ".codegen.artifact", "CompileOptions": ".options",
         "Input": ".passes.canonicalize.preprocess",
         **dict.fromkeys(("Report", "bench", "compare", "explain", "inspect", "quantize"), ".reports"),
         "Program": ".tools.program.program", "Session": ".runtime.session", "Target": ".target"}

_tvm.register_when_imported()


def __dir__() -> list[str]:
    """Returns the names that completion shows, also those that are not imported yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name], __name__), name)
    if name in _tvm.NEED_TVM:
        return _tvm.attribute(name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'tvm_megcc' has no attribute '{name}'")
