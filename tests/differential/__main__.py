# SPDX-License-Identifier: Apache-2.0
"""Draws models and judges them, some hundreds in a process: a reference may end it."""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .cases import Case, drawn
from .draw import Undrawn
from .judge import Verdict, compiled, judged

#: Cases of a process: a multiple of those that share an opset.
MANY = 400


def case_of(seed: int, number: int, only: str) -> Case | None:
    try:
        return drawn(seed, number, only)
    except Undrawn:
        return None


def judge_each(args) -> None:
    """In a process of its own: a line of JSON for each case."""
    for number in range(args.first, args.first + args.count):
        if case := case_of(args.seed, number, args.operator):
            print(json.dumps(["asks", number, case.label]), flush=True)
            print(json.dumps(judged(case)), flush=True)
    sys.stdout.flush()


def compile_each(args) -> None:
    for first in range(args.first, args.first + args.count, 100):
        cases = [case for number in range(first, first + 100) if (case := case_of(args.seed, number, args.operator))]
        right = [case for case in cases if judged(case).verdict == "right"]
        for verdict in _halved(right, args.compiled):
            print(json.dumps(verdict), flush=True)


def _halved(cases: list[Case], target: str) -> Iterator[Verdict]:
    """Cases in one folder, in halves where it cannot be made or run."""
    if not cases:
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield from compiled(cases, target, Path(folder))
    except Exception as error:
        if len(cases) == 1:
            yield Verdict(cases[0].number, cases[0].label, "refused", f"{target}: {str(error)[:300]}")
        else:
            middle = len(cases) // 2
            yield from _halved(cases[:middle], target)
            yield from _halved(cases[middle:], target)


def verdicts(args) -> Iterator[Verdict]:
    """Of all cases, from processes of `MANY`."""
    ends, first = time.monotonic() + args.seconds, args.first
    while first < args.first + args.count and time.monotonic() < ends:
        count = min(MANY, args.first + args.count - first)
        while count > 0:
            command = [sys.executable, "-W", "ignore", "-m", "tests.differential", "--each", "--seed", str(args.seed),
                       "--first", str(first), "--count", str(count), "--operator", args.operator]
            run = subprocess.run([*command, *(["--compiled", args.compiled] if args.compiled else [])],
                                 capture_output=True, text=True, cwd=Path(__file__).parents[2])
            lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
            yield from (Verdict(*line) for line in lines if line[0] != "asks")
            if run.returncode == 0:
                first, count = first + count, 0
            else:
                number, label = lines[-1][1:3] if lines and lines[-1][0] == "asks" else (first, "?")
                yield Verdict(number, label, "no reference", f"the process ends with {run.returncode}: "
                              + " ".join(run.stderr.strip().splitlines()[-1:])[:200])
                first, count = number + 1, first + count - number - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.differential")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=10**9, help="of cases")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--operator", default="", help="draw this one only")
    parser.add_argument("--compiled", default="", metavar="TARGET", help="compile and run what is right in numpy")
    parser.add_argument("--log", type=Path, help="a line of JSON for each case")
    parser.add_argument("--each", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if args.each:
        (compile_each if args.compiled else judge_each)(args)
        return 0
    counts, groups = collections.Counter[str](), collections.Counter[tuple[str, str, str]]()
    samples: dict[tuple[str, str, str], str] = {}
    for verdict in verdicts(args):
        counts[verdict.verdict] += 1
        if args.log:
            with args.log.open("a") as log:
                log.write(json.dumps(verdict) + "\n")
        if verdict.verdict in ("wrong", "crash"):
            print(f"{verdict.verdict}: {verdict.label}: {verdict.reason}", flush=True)
        if verdict.verdict != "right":
            kind = (verdict.label.split() + ["?", "?"])[1].partition("-")[0]
            group = (verdict.verdict, kind, verdict.reason if verdict.verdict == "refused" else "")
            groups[group] += 1
            samples.setdefault(group, verdict.label.split()[0])
    for (verdict, kind, reason), count in sorted(groups.items()):
        print(f"{verdict} {count} {kind}, {samples[verdict, kind, reason]} among them. {reason}")
    print(f"{sum(counts.values()):,} cases: " + ", ".join(f"{name}: {many:,}" for name, many in counts.most_common()))
    return int(bool(counts["wrong"] + counts["crash"]))


if __name__ == "__main__":
    sys.exit(main())
