# SPDX-License-Identifier: Apache-2.0
"""The process that checks, or compiles and runs, some cases of a family; `schedule` starts it.

    python -m tests.differential.worker FAMILY --seed 1 NUMBER...                             in numpy
    python -m tests.differential.worker FAMILY --seed 1 --target arm64 --objects DIR NUMBER...
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tvm_megcc.errors import InternalError, MegccError, ToolError
from tvm_megcc.runtime import objects

from .draw import Undrawn
from .families import FAMILIES
from .family import Family
from .result import Result, brief, report
from .targets import emulator_fault


def check_each(family: Family, seed: int, operator: str, numbers: Sequence[int]) -> Iterator[Result]:
    for number in numbers:
        try:
            case = family.draw(seed, number, operator)
        except Undrawn as reason:
            yield Result(number, "", "not drawn", str(reason)[:60])
        else:
            yield family.check(case)._replace(features=family.features(case))


def compile_each(family: Family, seed: int, operator: str, numbers: Sequence[int], target: str) -> Iterator[Result]:
    """Cases that are right in numpy, each batch of them in one folder."""
    for _, batch in itertools.groupby(numbers, lambda number: number // family.batch):
        cases = [family.draw(seed, number, operator) for number in batch]
        refusals = [family.refusal(case) for case in cases]
        found = iter(compiled(family, [case for case, reason in zip(cases, refusals, strict=True) if not reason],
                              target))
        for case, reason in zip(cases, refusals, strict=True):
            result = Result(case.number, case.label, "refused", reason) if reason else next(found)
            yield result._replace(target=target, features=family.features(case))


def compiled(family: Family, cases: Sequence, target: str) -> list[Result]:
    """Cases in one folder, but for those that are refused; in two, each with a half, if one cannot be made or run."""
    refused = refusals(family, cases, target)
    ran = iter(ran_together(family, [case for case in cases if case.number not in refused], target))
    return [refused.get(case.number) or next(ran) for case in cases]


def refusals(family: Family, cases: Sequence, target: str) -> dict[int, Result]:
    """Results on the cases that are refused. They are found before anything is built: builds cost the most."""
    if not cases:
        return {}
    try:
        family.make(cases, target)
    except Exception as error:
        if not is_refusal(error):
            return {}
        if len(cases) == 1:
            return {cases[0].number: Result(cases[0].number, cases[0].label, "refused", brief(error))}
        middle = len(cases) // 2
        return refusals(family, cases[:middle], target) | refusals(family, cases[middle:], target)
    return {}


def is_refusal(error: Exception) -> bool:
    return isinstance(error, MegccError) and not isinstance(error, (ToolError, InternalError))


def ran_together(family: Family, cases: Sequence, target: str) -> list[Result]:
    if not cases:
        return []
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = family.run(cases, target, Path(folder))
    except Exception as error:
        if len(cases) > 1:
            middle = len(cases) // 2
            return ran_together(family, cases[:middle], target) + ran_together(family, cases[middle:], target)
        if is_refusal(error):
            return [Result(cases[0].number, cases[0].label, "refused", brief(error))]
        if reason := emulator_fault(error):
            return [Result(cases[0].number, cases[0].label, "emulator", reason)]
        return [Result(cases[0].number, cases[0].label, "crash", f"{type(error).__name__}: {brief(error)}")]
    reasons = [family.compare(case, outputs) for case, outputs in zip(cases, found, strict=True)]
    return [Result(case.number, case.label, "wrong" if reason else "right", reason)
            for case, reason in zip(cases, reasons, strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--operator", default="")
    parser.add_argument("--target", default="")
    parser.add_argument("--objects", type=Path, help="cache that processes share")
    parser.add_argument("numbers", type=int, nargs="+")
    args = parser.parse_args(arguments)
    given = FAMILIES[args.family], args.seed, args.operator, args.numbers
    objects.JOBS = 1  # other processes work beside this one
    if args.objects:
        os.environ["MEGCC_CACHE"] = str(args.objects)
    with np.errstate(all="ignore"), contextlib.redirect_stdout(sys.stderr):
        for result in compile_each(*given, args.target) if args.target else check_each(*given):
            with contextlib.redirect_stdout(sys.__stdout__):
                report(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
