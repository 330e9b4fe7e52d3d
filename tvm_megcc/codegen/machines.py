# SPDX-License-Identifier: Apache-2.0
"""The machines that a folder can be built for, which the compiler's predefined macros distinguish.

ISA levels of one machine, such as x86-64-v3 and x86-64-v4, are in the same build, and are chosen at run time. A
Cortex-M and an x86 are never in the same build, so neither needs the other's data or memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..target import TARGETS, Target
from .safety import ONE_REGION, is_safe

#: The guard, a preprocessor condition, of portable C: any CPU.
_ANY = "1"
#: The flag for models without loops, branches and extents that are known only when the model runs.
NO_DYNAMIC = "-DMEGCC_NO_DYNAMIC"
#: The flag for builds without error messages and names of kernels.
NO_STRINGS = "-DMEGCC_NO_STRINGS"
#: The flag for models whose kernels get no extents at run time.
NO_EXTENTS = "-DMEGCC_NO_EXTENTS"
#: Flags that leave out parts of the runtime that a microcontroller does not need, if shapes are known before the model
#: runs.
STATIC_PROFILE = ("-DMEGCC_NO_STDIO", NO_STRINGS, NO_DYNAMIC, "-DMEGCC_NO_THREADS")
#: The flag for containers that are part of the program: they are as trusted as its code.
EMBEDDED = "-DMEGCC_TRUSTED_DATA"


def is_dynamic(model: Mapping[str, Any]) -> bool:
    """Whether a model, by its manifest, needs what `NO_DYNAMIC` leaves out."""
    return bool(model.get("control") or any(model["buckets"]))


def static_profile(models: Iterable[Mapping[str, Any]], trusted_data: bool, shared: bool = False,
                   program: bool = False) -> tuple[str, ...]:
    """Returns the flags of the static profile for these models: they leave out the parts of the runtime that the
    models, by their manifests, do not need on a microcontroller.

    Args:
        trusted_data: whether the container is as trusted as the code, as one is that is part of the program.
        shared: whether models that are compiled separately share the runtime: then no part that they may need is left
            out.
        program: whether the models are the networks of a program, whose sessions share a memory region.
    """
    models = list(models)
    if any(map(is_safe, models)):  # the other switches are in its headers
        return (NO_STRINGS,)
    dynamic = shared or any(map(is_dynamic, models))
    flags = tuple(flag for flag in STATIC_PROFILE if not (dynamic and flag == NO_DYNAMIC))
    one = not shared and not program and all("regions" not in model["options"] for model in models)
    fixed = bool(models) and not shared and all(program.get("fixed_extents") for model in models
                                                for program in model["programs"])
    return (*flags, *([NO_EXTENTS] if fixed else []), *([f"-D{ONE_REGION}"] if one else []),
            *([EMBEDDED] if trusted_data else []))


@dataclass(frozen=True)
class Machine:
    """A machine that a folder can be built for. guard: its preprocessor condition. targets: those whose programs it can
    run."""

    guard: str
    targets: tuple[Target, ...]

    @property
    def codes(self) -> frozenset[int]:
        """The MEGCC_ISA_* of its programs."""
        return frozenset(target.isa.code for target in self.targets)


def machines(targets: Sequence[Target]) -> tuple[Machine, ...]:
    """Returns the machines that a folder for these targets can be built for; portable C runs on all of them, and by
    itself comes last."""
    anywhere = tuple(target for target in targets if target.isa.guard == _ANY)
    guards = dict.fromkeys(target.isa.guard for target in targets if target.isa.guard != _ANY)
    found = [Machine(guard, (*(target for target in targets if target.isa.guard == guard), *anywhere))
             for guard in guards]
    return (*found, *([Machine(_ANY, anywhere)] if anywhere else []))


def machine_of(targets: Sequence[Target], target: Target) -> int:
    """Returns the index of the first machine that can run the target's program."""
    return next(index for index, machine in enumerate(machines(targets)) if target in machine.targets)


def by_machine(targets: Sequence[Target], strings: Sequence[str]) -> str:
    """Returns C that selects the string of the machine that it is compiled for; without condition if all are equal."""
    if len(set(strings)) == 1:
        return strings[0]
    lines = []
    for index, (machine, text) in enumerate(zip(machines(targets), strings, strict=True)):
        names = ", ".join(target.name for target in machine.targets)
        start = "#else" if machine.guard == _ANY else f"{'#elif' if index else '#if'} {machine.guard}"
        lines += [f"{start} /* {names} */", text]
    return "\n".join([*lines, "#endif"])


def make_commands(targets: Sequence[Target], left_out: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the `make` commands for these targets, each with its purpose; the host's first.

    Args:
        left_out: flags that leave out parts of the runtime that a microcontroller does not need.
    """
    found: dict[str, tuple[str, str]] = {}
    for target in targets:
        # The host is taken to be x86-64 wherever this runs, so that the folder has the same bytes everywhere.
        if target.bare_metal:
            lines = (f"make library CC={target.triples[0]}gcc AR={target.triples[0]}ar BUILD=build/{target.name}",
                     f'CFLAGS="{" ".join(("-O2", *target.cflags, *left_out))}"')
            row = (" \\\n    ".join(lines),
                   f"the library for {target.name}; `megcc build` makes a firmware of it for an example board")
        elif target.clang:
            row = (f'make CC="clang --target={target.clang}" AR=llvm-ar BUILD=build/{target.name} \\\n    '
                   f'CFLAGS="{" ".join(("-O2", *target.cflags))}"', f"for {target.name}")
        elif target.machine in ("any", "x86_64"):
            row = "make", "the library and the example, for this machine"
        else:
            flags = f' CFLAGS="-O2 {" ".join(target.cflags)}"' if target.cflags else ""
            row = f"make CC={target.triples[0]}gcc{flags} BUILD=build/{target.name}", f"for {target.name}"
        # The ISA levels of one machine are in one build, so they share a command. Portable C shares the host's.
        key = target.name if target.bare_metal or target.clang else target.machine
        found.setdefault("x86_64" if key == "any" else key, row)
    # Portable C alone: an example shows how to cross-compile it.
    if len(found) == 1 and any(target.isa.guard == _ANY for target in targets):
        found["other"] = "make CC=aarch64-linux-gnu-gcc BUILD=build/arm64", "for another machine"
    return sorted(found.values(), key=lambda row: row[0] != "make")


def refusal(name: str, targets: Sequence[Target]) -> list[str]:
    """Returns the lines of C that stop the compilation (#error) for a CPU that the model was not compiled for, and for
    a compiler that supports none of the model's ISA levels of the CPU."""
    found, lines = machines(targets), []
    if found[-1].guard != _ANY:
        flags = "; ".join(f"{target.name} requires {' '.join(target.cflags)}" for target in targets if target.cflags)
        lines += [f"#if {' && '.join(f'!({machine.guard})' for machine in found)}",
                  f'#error "{name} was compiled for {", ".join(target.name for target in targets)}, and this compiler '
                  f'makes code for another CPU{f" ({flags})" if flags else ""}; compile the model with that --target, '
                  'or with --target c for any"',
                  "#endif", ""]
    for machine in found:
        if all(target.isa.compiler for target in machine.targets):
            wanted = "; ".join(dict.fromkeys(f"{target.name} requires {target.isa.compiler_name}"
                                             for target in machine.targets))
            compilers = dict.fromkeys(f"!({target.isa.compiler})" for target in machine.targets)
            lines += [f"#if {machine.guard} && {' && '.join(compilers)}",
                      f'#error "{name}: {wanted}; for other compilers compile the model with a level besides that they '
                      f'know, such as --target {_with_lowest_level(machine)}"',
                      "#endif", ""]
    return lines


def _with_lowest_level(machine: Machine) -> str:
    """Returns the value of --target with the machine's targets and its lowest ISA level, which every compiler
    supports."""
    level = next((target for target in TARGETS.values() if target.isa.guard == machine.guard
                  and not target.isa.compiler), None)
    return ",".join([*(target.name for target in machine.targets), level.name if level else "c"])
