# SPDX-License-Identifier: Apache-2.0
"""Which cases are checked and compiled when: several processes work at a time, targets take turns."""

from __future__ import annotations

import collections
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .families import FAMILIES
from .family import Family
from .result import Result, from_processes

WORKER = "tests.differential.worker"


@dataclass(frozen=True)
class Plan:
    """Cases of one family.

    operator: draw this one only; "" for any. count, seconds: no more than so many cases, and none is begun later.
    targets: compile for these, in turn; a unit is so many batches of cases, the first of which is compiled.
    objects: folder of the object files that builds share. jobs: processes at a time.
    """

    family: str
    seed: int
    objects: Path
    first: int = 0
    count: int = 10**9
    seconds: float = 3600
    operator: str = ""
    targets: Sequence[str] = ()
    unit: int = 4
    jobs: int = os.cpu_count() or 2


def results(plan: Plan) -> Iterator[Result]:
    """Results in numpy, and after those of a unit the results on what was compiled of it."""
    family, ends = FAMILIES[plan.family], time.monotonic() + plan.seconds
    targets = itertools.cycle([name for name in plan.targets if not family.targets or name in family.targets] or [""])
    step = family.batch * plan.unit
    numbers = range(plan.first, plan.first + plan.count)
    with ThreadPoolExecutor(plan.jobs) as pool:
        begun = collections.deque()
        for at in range(0, plan.count, step):
            if time.monotonic() > ends:
                break
            begun.append(pool.submit(_unit, plan, family, numbers[at:at + step], next(targets)))
            if len(begun) > plan.jobs:
                yield from begun.popleft().result()
        for each in begun:
            yield from each.result()


def _unit(plan: Plan, family: Family, numbers: Sequence[int], target: str) -> list[Result]:
    options = [plan.family, "--seed", str(plan.seed), "--operator", plan.operator]

    def label(number: int) -> str:
        return f"{plan.seed}:{number} {plan.operator or '?'}"

    found = list(from_processes(WORKER, options, numbers, label, "no reference", len(numbers)))
    first = [each.number for each in found[:family.batch] if each.outcome == "right"]
    if target and first:
        options += ["--target", target, "--objects", str(plan.objects)]
        compiled = from_processes(WORKER, options, first, label, "crash", len(first))
        found += [each._replace(target=target) for each in compiled]
    return found
