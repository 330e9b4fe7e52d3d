# SPDX-License-Identifier: Apache-2.0
"""The safety profile (docs/safety.md): its conditions, the switches that its folders have in the runtime's headers, and
the files of the runtime that they do not have.

The compiler asks `require_safe` before it begins. Kernels get constant extents only (`plan.py`) and check their
arguments (`c_source/render.py`); `bundle.py` writes the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..context import SAFETY
from ..errors import MegccError, ShapeError
from ..foreign import printable
from ..ir.graph import EXTENT, Graph, bodies_of
from ..ir.shapes import graph_symbols
from ..options import CompileOptions
from ..target import TARGETS, Target
from .headers import FIRST, with_settings

#: The switches of the runtime that every folder of the profile has.
SWITCHES = ("MEGCC_NO_STDIO", "MEGCC_NO_DYNAMIC", "MEGCC_NO_THREADS", "MEGCC_NO_CALLBACKS", "MEGCC_NO_EXTENTS",
            "MEGCC_NO_CPU_DETECT")
#: The switch of folders whose models have one region of memory; other folders give it as a flag (machines.py).
ONE_REGION = "MEGCC_NO_REGIONS"
#: Files and folders of the runtime that the switches make empty, or that a folder of the profile does not use.
LEFT_OUT = ("runtime/src/host.c", "runtime/src/pool.c", "runtime/src/memory.c", "runtime/src/control.c",
            "runtime/signed/", "runtime/include/megcc_realtime.h")


def is_safe(model: Mapping[str, Any]) -> bool:
    """Whether a model, by its manifest, was compiled with the safety profile."""
    return bool(model["options"].get("profile") == SAFETY)


def is_offered(target: Target) -> bool:
    """Whether the profile is offered for a target: portable C and microcontrollers."""
    return target.bare_metal or target.name == "c"


def require_safe(graph: Graph, targets: Sequence[Target], options: CompileOptions) -> None:
    """Checks that a model can be compiled with the safety profile.

    Raises:
        MegccError: for another target, several threads, shared kernels (`-O size`) and operators of the user's own.
        ShapeError: for shapes that change, and for control flow.
    """
    if other := next((target for target in targets if not is_offered(target)), None):
        raise MegccError(f"--profile {SAFETY} is not for {other}: choose a --target of "
                         f"{', '.join(target.name for target in TARGETS.values() if is_offered(target))}")
    if options.threads > 1:
        raise MegccError(f"--profile {SAFETY} has one thread: leave out --threads {options.threads}")
    if options.optimize == "size":
        raise MegccError(f"--profile {SAFETY} has loops with constant bounds, and kernels that layers share have none: "
                         "leave out -O size")
    if options.extern is not None:
        raise MegccError(f"--profile {SAFETY} cannot check the C of your own operators: leave out --extern")
    if symbols := graph_symbols(graph):
        raise ShapeError(f"{graph.name}: --profile {SAFETY} requires that all shapes are known at compile time, and "
                         f"{printable(symbols[0])} is not; give --input-shapes or --dim")
    if op := next((op for op in graph.ops if op.kind == EXTENT or bodies_of(op)), None):
        reason = "a shape that depends on data" if op.kind == EXTENT else "control flow"
        raise ShapeError(f"{graph.name}: --profile {SAFETY} requires loops with constant bounds, and "
                         f"{printable(op.origin or op.kind)} has {reason}")


def with_switches(files: Mapping[str, bytes], models: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """Returns the files of a folder of the profile: the first header has the switches, so that no flag of a build can
    leave them out, and files that are empty with them are missing.

    Args:
        files: contents by path in the folder.
        models: the manifests of its models.
    """
    regions = any("regions" in model["options"] for model in models)
    switches = "".join(f"#ifndef {name}\n#define {name}\n#endif\n"
                       for name in (*SWITCHES, *([] if regions else [ONE_REGION])))
    header = with_settings(files[FIRST], f"\n/* The safety profile of this folder. */\n{switches}")
    return {name: header if name == FIRST else data for name, data in files.items()
            if not name.startswith(LEFT_OUT)}
