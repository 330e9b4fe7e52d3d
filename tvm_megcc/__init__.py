# SPDX-License-Identifier: Apache-2.0
"""Neural networks compiled ahead of time to small C programs: a TVM plugin and a stand-alone compiler."""

from .api import compile, load
from .codegen.artifact import Artifact
from .errors import MegccError
from .frontends import _tvm
from .passes.inputs import Input
from .target import Target
from .version import VERSION as __version__

__all__ = ["Artifact", "Input", "MegccError", "Target", "__version__", "build", "build_megcc_kernels", "compile",
           "load", "partition_for_megcc", "tune_megcc_kernels"]

_tvm.register_when_imported()


def __getattr__(name: str):
    """What needs TVM is imported on first use."""
    if name in _tvm.LAZY:
        return _tvm.attribute(name)
    raise AttributeError(f"module 'tvm_megcc' has no attribute '{name}'")
