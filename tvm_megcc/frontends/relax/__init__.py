# SPDX-License-Identifier: Apache-2.0
"""The front end for TVM's Relax. Importing it registers with TVM (`backend`)."""

import tvm  # noqa: F401  (first, since it calls our entry point, which must not find this package half imported)

from ...errors import MegccError
from ..tvm_common.link import linker
from ..tvm_common.reports import Report
from ..tvm_common.target import our_target
from .backend import build, build_megcc_kernels, partition_for_megcc, tune_megcc_kernels
from .profile import profile
from .regions import is_ours
from .reports import picture, report

__all__ = ["MegccError", "Report", "build", "build_megcc_kernels", "is_ours", "linker", "our_target",
           "partition_for_megcc", "picture", "profile", "report", "tune_megcc_kernels"]
