# SPDX-License-Identifier: Apache-2.0
"""Registers our targets as TVM's: a tag `megcc-<name>` for every CPU, for which TVM can generate code as well."""

from __future__ import annotations

import tvm

from ...errors import MegccError
from ...runtime.toolchain import is_local
from ...target import TARGETS, Target, native, parse_targets

PREFIX = "megcc-"

#: The calling convention of a machine, where LLVM's default is wrong.
_ABI = {"arm": {"mfloat-abi": "hard"}, "riscv64": {"mabi": "lp64d"}}
#: The CPU for LLVM where its default is not one of the machine; some versions abort the process then.
_CPU = {"riscv64": "generic-rv64"}
#: Linker flags for the same machines. TVM's object with the module's data has no functions, and is marked with another
#: ABI; without the flag, linkers refuse it.
LINK_FLAGS = dict.fromkeys(_ABI, ("-Wl,--no-warn-mismatch",))


def config(target: Target) -> dict:
    """Returns the configuration of a TVM target. `model` is the target's name, `device` marks it as ours.

    TVM's part of a module is compiled for the same CPU. The host needs no triple, since TVM knows it.
    """
    found: dict = {"kind": "llvm", "keys": ["megcc", "cpu"], "device": "megcc", "model": target.name}
    if target.machine in ("aarch64", "arm"):
        found["keys"].insert(1, "arm_cpu")
    if not is_local(target):
        found["mtriple"] = target.triples[0].removesuffix("-")  # from the name of the cross compiler
    if target.machine in _CPU or target.machine == "x86_64":
        # LLVM has no name for our level with 8-bit dot products; only our kernels use them.
        found["mcpu"] = _CPU.get(target.machine, target.name.removesuffix("-vnni"))
    if target.features:
        found["mattr"] = list(target.features)
    return {**found, **_ABI.get(target.machine, {})}


def tvm_tags() -> dict[str, Target]:
    """Returns tag → target, for every CPU with an operating system, and "megcc-native" for this machine."""
    rows = {PREFIX + target.name: target for target in TARGETS.values() if not target.bare_metal}
    return {**rows, PREFIX + "native": native()}


def register() -> None:
    for tag, target in tvm_tags().items():
        tvm.target.tag.register_tag(tag, config(target), override=True)


def is_ours(target) -> bool:
    """Whether a target of TVM is one of ours."""
    return target is not None and dict(target.attrs).get("device") == "megcc"


def our_target(given=None) -> Target:
    """Returns our target for any form of target.

    Args:
        given: one of ours, its name, a TVM target or tag; None is the TVM target of the context, else this machine.
            A target that is not a CPU, such as "cuda", stands for its host.

    Raises:
        MegccError: for an unknown target, for one without a CPU, and for a CPU without an operating system.
    """
    if isinstance(given, Target):
        return given
    if isinstance(given, str) and not given.startswith("{"):
        name = given.removeprefix(PREFIX)
        if name == "native" or name in TARGETS:
            return _require_operating_system(parse_targets(name)[0])
        if given.startswith(PREFIX):
            raise MegccError(f"unknown target '{given}'{_similar(given)} Ours in TVM are {', '.join(tvm_tags())}")
        given = _parsed_by_tvm(given)
    elif isinstance(given, (str, dict)):
        given = _parsed_by_tvm(given)
    elif given is not None and not isinstance(given, tvm.target.Target):
        raise MegccError(f"a target is a name such as '{PREFIX}arm64', a tvm.target.Target or a tvm_megcc.Target, not "
                         f"{type(given).__name__}")
    given = given if given is not None else tvm.target.Target.current(allow_none=True)
    if given is None:
        return native()
    if given.kind.name not in ("llvm", "c"):
        if given.host is None:
            raise MegccError(f"the target '{given.kind.name}' is no CPU, which megcc compiles for; ours are "
                             f"{', '.join(tvm_tags())}")
        given = given.host
    attrs = dict(given.attrs)
    if is_ours(given) and attrs.get("model") in TARGETS:
        return TARGETS[attrs["model"]]
    return _closest_to_llvm(str(attrs.get("mtriple", "")), str(attrs.get("mcpu", "")))


def _parsed_by_tvm(given: str | dict):
    """Returns TVM's target for its text or dictionary; MegccError if TVM does not know it."""
    try:
        return tvm.target.Target(given)
    except Exception as error:
        raise MegccError(f"the target {given} is neither one of ours ({', '.join(tvm_tags())}) nor "
                         f"one of TVM's{_similar(str(given))} {str(error).strip().splitlines()[-1]}") from error


def _similar(given: str) -> str:
    """Returns a hint with our target of the most similar name; ";" if none is similar."""
    import difflib  # here, since this module is part of `import tvm`

    name = given.lower().removeprefix(PREFIX)
    similar = difflib.get_close_matches(name, [known.removeprefix(PREFIX) for known in tvm_tags()], 1)
    return f", did you mean '{PREFIX}{similar[0]}'?" if similar else ";"


def _require_operating_system(target: Target) -> Target:
    """Returns the target; MegccError for a microcontroller, which has no operating system to run TVM."""
    if target.bare_metal:
        raise MegccError(f"TVM does not run on {target}, which has no operating system; use 'megcc compile'")
    return target


def _closest_to_llvm(triple: str, cpu: str) -> Target:
    """Returns our target for one of LLVM's. If `cpu` is none of ours, it is this machine's for the same architecture,
    the oldest instruction set level for another, and portable C for an architecture that we do not know.

    Args:
        triple: LLVM's target triple, such as "aarch64-linux-gnu", or "".
        cpu: LLVM's name of a CPU, or "".
    """
    arch = triple.split("-")[0]
    machine = {"arm64": "aarch64", "amd64": "x86_64", "armv7": "arm", "armv7a": "arm", "armv7l": "arm"}.get(arch, arch)
    if cpu in TARGETS:
        return TARGETS[cpu]
    if not machine or machine == native().machine:
        return native()
    return next((target for target in TARGETS.values() if target.machine == machine), TARGETS["c"])
