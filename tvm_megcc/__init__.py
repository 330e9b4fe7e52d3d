# SPDX-License-Identifier: Apache-2.0
"""Neural networks compiled ahead of time to small C programs: a TVM plugin and a stand-alone compiler."""

from .api import compile, load
from .codegen.artifact import Artifact
from .errors import MegccError
from .target import Target
from .version import VERSION as __version__

__all__ = ["Artifact", "MegccError", "Target", "__version__", "compile", "load"]
