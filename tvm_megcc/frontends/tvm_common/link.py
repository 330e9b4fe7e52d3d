# SPDX-License-Identifier: Apache-2.0
"""Linking libraries of TVM that have regions of ours: with the compiler of our target where that is another machine."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable

import tvm

from ...runtime.toolchain import find_compiler, is_local
from ...target import TARGETS, Target
from . import target as tvm_target

#: A name among the functions of our object, with no function after it: says for which CPU it was compiled.
MARK = "megcc.target."


def linker(target):
    """`fcompile` for `export_library`: links for a target with the compiler that is found for it."""
    cpu = tvm_target.our_target(target)
    command = find_compiler(cpu).command
    triple = tvm_target.config(cpu).get("mtriple") or tvm.target.Target("llvm").attrs["mtriple"]
    options = [*command[1:], *cpu.cflags, *tvm_target.LINK_FLAGS.get(cpu.machine, ()), "-pthread"]
    return _cc().cross_compiler(command[0], options=options, output_format="so", get_target_triple=lambda: triple)


def _cc():
    """TVM's module for compilers; older versions have it at another place."""
    name = next(name for name in ("tvm.support.cc", "tvm.contrib.cc") if _exists(name))
    return importlib.import_module(name)


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def targets_of(parts: Iterable, implements: Callable[[object, str], bool]) -> list[Target]:
    """Returns the CPUs that the regions among the parts of a library were compiled for.

    implements: whether a part has a function of a name.
    """
    parts = list(parts)
    return [target for target in TARGETS.values() if any(implements(part, MARK + target.name) for part in parts)]


def linker_of(targets: Iterable[Target]):
    """Returns the linker for the regions' CPU; None where TVM's own will do."""
    foreign = [target for target in targets if not is_local(target)]
    return linker(foreign[0]) if foreign else None
