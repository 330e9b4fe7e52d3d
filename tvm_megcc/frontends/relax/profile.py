# SPDX-License-Identifier: Apache-2.0
"""Profiles a function of TVM's virtual machine: time by called function, and inside our regions by kernel."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from tvm import relax

from ...errors import MegccError
from ...runtime.tvm_module import PROFILE
from .regions import is_region_name


@dataclass(frozen=True)
class Row:
    """A call. kernels: (name, seconds) of each kernel that it ran, in order, if it is a region of ours."""

    function: str
    seconds: float
    kernels: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Profile:
    """The calls of one run, in order; `str` gives a table."""

    rows: tuple[Row, ...] = field(default=())

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            lines.append(f"{1e6 * row.seconds:10.1f} µs  {row.function}")
            lines += [f"{1e6 * seconds:10.1f} µs      {name}" for name, seconds in row.kernels]
        return "\n".join(lines)


def profile(machine: relax.VirtualMachine, name: str, *arguments) -> Profile:
    """Runs a function once and returns the calls in it with their times. Each region runs a second time to measure its
    kernels, so these times do not add up to the region's.

    Args:
        machine: the virtual machine of an executable, with or without regions of ours.
        name: the function's name.
        arguments: the function's arguments, tensors of any kind that TVM accepts.

    Raises:
        MegccError: for what is no virtual machine, or has no function of this name.
    """
    if not isinstance(machine, relax.VirtualMachine):
        raise MegccError(f"profile takes a virtual machine, not {type(machine).__name__}: "
                         "relax.VirtualMachine(executable, tvm.cpu())")
    try:
        function = machine[name]
    except AttributeError as error:
        raise MegccError(f"there is no function {name!r:.60} in the virtual machine") from error
    begun: list[float] = []
    rows: list[Row] = []

    def instrument(_function, symbol, before, _result, *given):
        if before:
            begun.append(time.perf_counter())
            return
        seconds = time.perf_counter() - begun.pop()
        kernels: tuple[tuple[str, float], ...] = ()
        if is_region_name(str(symbol)):
            found = json.loads(str(machine.module.get_function(f"{symbol}{PROFILE}", query_imports=True)(*given)))
            kernels = tuple((call["kernel"], call["nanoseconds"] * 1e-9) for call in found)
        rows.append(Row(str(symbol), seconds, kernels))

    machine.set_instrument(instrument)
    try:
        function(*arguments)
    finally:
        machine.set_instrument(lambda *_: None)
    return Profile(tuple(rows))
