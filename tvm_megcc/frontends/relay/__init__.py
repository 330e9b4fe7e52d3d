# SPDX-License-Identifier: Apache-2.0
"""The front end for a TVM that has Relay (0.9 to 0.19). `importer`, `ops` and `terms` work without TVM, so the modules
that need TVM are imported on first use of a name."""

import importlib

#: Public name -> the module that defines it.
_HOMES = {"MegccError": "...errors", "Report": "..tvm_common.reports", "build": ".backend",
          "build_megcc_kernels": ".backend", "is_ours": ".regions",
          "linker": "..tvm_common.link", "our_target": "..tvm_common.target", "partition_for_megcc": ".backend",
          "picture": ".reports", "report": ".reports", "tune_megcc_kernels": ".backend"}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
