# SPDX-License-Identifier: Apache-2.0
"""Models drawn by the schemas of their formats, beside the reference of each format; in numpy, and compiled.

    python -m tests.differential                          every family, an hour, targets in turn
    python -m tests.differential --family onnx --operator Conv --targets c,arm64 --count 1000
    python -m tests.differential --targets "" --count 200000     in numpy only
    python -m tests.differential --replay FILE            a model that failed: findings are written to --findings
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .families import FAMILIES
from .replay import case_of, result_of
from .result import BAD, Result, summary
from .schedule import Plan, results
from .targets import chosen


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default=",".join(FAMILIES), help="names, separated by commas: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=10**9, help="cases of each family, at most")
    parser.add_argument("--seconds", type=float, default=3600, help="for all families together")
    parser.add_argument("--operator", default="", help="draw this one only")
    parser.add_argument("--targets", default="all", help='compile for these, in turn: names separated by commas; '
                        '"" for none')
    parser.add_argument("--unit", type=int, metavar="N", help="compile one batch of N; a process checks so many: "
                        "4, or 25 where nothing is compiled")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="processes at a time")
    parser.add_argument("--log", type=Path, help="a line of JSON for each result")
    parser.add_argument("--findings", type=Path, default=Path("build/graphs"), help="folder of the models that fail, "
                        "as small as they get: %(default)s")
    parser.add_argument("--replay", type=Path, help="a file of that folder")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    args = arguments(given)
    if args.replay:
        return replayed(args.replay)
    targets, skipped = chosen(args.targets)
    print("\n".join(skipped), end="\n" if skipped else "")
    families, bad = present(args.family.split(",")), 0
    with tempfile.TemporaryDirectory() as objects:
        for name in families:
            plan = Plan(name, args.seed, Path(objects), args.first, args.count, args.seconds / len(families),
                        args.operator, targets, args.unit or (4 if targets else 25), args.jobs)
            found = []
            for result in results(plan):
                found.append(result)
                record(name, result, args.log)
                if result.outcome in BAD:
                    keep(name, args.seed, args.operator, result, args.findings)
            bad += print_summary(name, found)
    return int(bool(bad))


def present(families: Sequence[str]) -> list[str]:
    """Those that this machine has references for; says of the others why it cannot."""
    lacks = {name: FAMILIES[name].missing() for name in families}
    for name, reason in lacks.items():
        if reason:
            print(f"skipped family {name}: {reason}")
    return [name for name in families if not lacks[name]]


def record(family: str, result: Result, log: Path | None) -> None:
    if log:
        with log.open("a") as file:
            file.write(json.dumps([family, *result]) + "\n")
    if result.outcome in BAD:
        print(f"{result.outcome}{result.target and ' on ' + result.target}: {family} {result.label}: "
              f"{result.reason}", flush=True)


def replayed(path: Path) -> int:
    """Compares a kept model again."""
    family, case, target = case_of(path.read_text("utf-8"))
    result = result_of(FAMILIES[family], case, target)
    print(f"{result.outcome}{target and ' on ' + target}: {family} {case.label}: {result.reason}")
    return int(result.outcome in BAD)


def keep(family: str, seed: int, operator: str, result: Result, folder: Path) -> None:
    """Writes the smallest model that fails; a process of its own makes it, which it may end."""
    options = ["--seed", str(seed), "--operator", operator, "--target", result.target, str(result.number)]
    name = f"{family}_{seed}_{result.number}{result.target and '_' + result.target}.json"
    folder.mkdir(parents=True, exist_ok=True)
    run = subprocess.run([sys.executable, "-W", "ignore", "-m", "tests.differential.findings", family, *options,
                          "--output", str(folder / name)], check=False, capture_output=True, text=True)
    if run.returncode == 0:
        print(f"  python -m tests.differential --replay {folder / name}\n  {run.stdout.strip()}", flush=True)


def print_summary(family: str, found: Sequence[Result]) -> int:
    """Prints figures for numpy and for each target; the number of results that somebody has to look at."""
    bad = 0
    for target in dict.fromkeys(each.target for each in found):
        text, those = summary(each for each in found if each.target == target)
        count = sum(each.target == target for each in found)
        print(f"{family}, {target or 'numpy'}: {count:,} cases: {text}", flush=True)
        bad += len(those)
    return bad


if __name__ == "__main__":
    sys.exit(main())
