# SPDX-License-Identifier: Apache-2.0
"""The composite target "megcc" for TVM's command `tvmc`: --target "megcc -arch=arm64, llvm -mtriple=aarch64-linux-gnu".

`tvmc` does not load plugins. `python -m tvm_megcc.frontends.relay.tvmc compile …` is `tvmc compile …` with this target.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ...errors import MegccError


def partition(mod, params: Mapping | None = None, mod_name: str = "default", **options):
    """Calls `partition_for_megcc` with the options of the command line.

    Args:
        options: `arch`, one of our targets, and the options of `partition_for_megcc`.
    """
    from ..tvm_common.options import OPTIONS
    from .backend import partition_for_megcc

    unknown = sorted(set(options) - {"arch", *OPTIONS})
    if unknown:
        raise MegccError(f"target megcc has no option -{unknown[0]}; it has -arch, -{', -'.join(OPTIONS)}")
    return partition_for_megcc(mod, params, options.pop("arch", None), mod_name, **options)


def register() -> None:
    """Registers the target with `tvmc`, which must have been imported."""
    from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN

    REGISTERED_CODEGEN["megcc"] = {"config_key": None, "pass_default": False, "default_target": None,
                                   "pass_pipeline": partition}


def main() -> None:
    from tvm.driver.tvmc.main import main as tvmc

    tvmc()


if __name__ == "__main__":
    sys.exit(main())
