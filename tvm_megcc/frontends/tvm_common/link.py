# SPDX-License-Identifier: Apache-2.0
"""Links libraries of TVM that contain our regions, with the cross compiler of our target if that is another machine."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable

import tvm

from ...runtime.toolchain import find_compiler, is_local
from ...target import TARGETS, Target
from . import target as tvm_target

#: An object that we give to TVM lists the names of its functions. One more name, this prefix and our target, says which
#: CPU the object is for.
TARGET_SYMBOL = "megcc.target."


def linker(target):
    """Returns `fcompile` for TVM's `export_library`, which links with the compiler found for a target."""
    cpu = tvm_target.our_target(target)
    command = find_compiler(cpu).command
    triple = tvm_target.config(cpu).get("mtriple") or tvm.target.Target("llvm").attrs["mtriple"]
    options = [*command[1:], *cpu.cflags, *tvm_target.LINK_FLAGS.get(cpu.machine, ()), "-pthread"]
    return _cc().cross_compiler(command[0], options=options, output_format="so", get_target_triple=lambda: triple)


def _cc():
    """Returns TVM's module for compilers, which moved between versions."""
    name = next(name for name in ("tvm.support.cc", "tvm.contrib.cc") if _exists(name))
    return importlib.import_module(name)


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def targets_of(parts: Iterable, implements: Callable[[object, str], bool]) -> list[Target]:
    """Returns the CPUs that the regions in a library were compiled for.

    Args:
        parts: the modules that TVM links into the library.
        implements: returns whether a part has a function of this name.
    """
    parts = list(parts)
    return [target for target in TARGETS.values()
            if any(implements(part, TARGET_SYMBOL + target.name) for part in parts)]


def linker_of(targets: Iterable[Target]):
    """Returns the linker for the regions' CPU; None if TVM's default works."""
    foreign = [target for target in targets if not is_local(target)]
    return linker(foreign[0]) if foreign else None
