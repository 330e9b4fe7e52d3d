# SPDX-License-Identifier: Apache-2.0
"""Graphs of three to ten operators of ONNX, drawn with emphasis on what passes rewrite, beside the references."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..cases import SAME_OPSET
from ..draw import Undrawn
from ..verdict import Verdict, from_processes, say, summary
from .draw import Chain, drawn
from .judge import compiled, judged, refused


def judge_each(args) -> Iterator[Verdict]:
    for number in args.numbers:
        try:
            yield judged(drawn(args.seed, number, args.recipe))
        except Undrawn as reason:
            yield Verdict(number, "", "not drawn", str(reason)[:60])


def compile_each(args) -> Iterator[Verdict]:
    """Of numbers that are right in numpy. Those of one family go into one folder of C."""
    for _, numbers in itertools.groupby(args.numbers, lambda number: number // SAME_OPSET):
        yield from _together([drawn(args.seed, number, args.recipe) for number in numbers], args.compiled)


def _together(chains: Sequence[Chain], target: str) -> Iterator[Verdict]:
    """Graphs in one folder, in halves where it cannot be made or run."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = list(compiled(chains, target, Path(folder)))
    except Exception as error:
        if len(chains) == 1:
            yield refused(chains[0], error, f"{target}: ")
        else:
            middle = len(chains) // 2
            yield from _together(chains[:middle], target)
            yield from _together(chains[middle:], target)
    else:
        yield from sorted(found)


def verdicts(args) -> Iterator[Verdict]:
    """Of all numbers, until the time is up."""
    ends = time.monotonic() + args.seconds
    options = ["--seed", str(args.seed), "--recipe", args.recipe, "--numbers"]

    def label(number: int) -> str:
        return f"{args.seed}:{number} {args.recipe or '?'}"

    for first in range(args.first, args.first + args.count, 4 * SAME_OPSET):
        if time.monotonic() > ends:
            return
        numbers = range(first, min(first + 4 * SAME_OPSET, args.first + args.count))
        found = list(from_processes("tests.differential.chains", options, numbers, label, "crash", len(numbers)))
        yield from found if not args.compiled else from_processes(
            "tests.differential.chains", ["--compiled", args.compiled, *options],
            [each.number for each in found if each.verdict == "right"], label, "crash", SAME_OPSET)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.differential.chains")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--count", type=int, default=10**9, help="of graphs")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--recipe", default="", help="name of a function in recipes.py that each step follows")
    parser.add_argument("--compiled", default="", metavar="TARGET", help="compile and run what is right in numpy")
    parser.add_argument("--log", type=Path, help="a line of JSON for each graph")
    parser.add_argument("--numbers", type=int, nargs="*", default=[], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.numbers:  # a process that `from_processes` began
        with np.errstate(all="ignore"):
            for verdict in (compile_each if args.compiled else judge_each)(args):
                say(verdict)
        return 0
    found = []
    for verdict in verdicts(args):
        found.append(verdict)
        if args.log:
            with args.log.open("a") as log:
                log.write(json.dumps(verdict) + "\n")
        if verdict.verdict in ("wrong", "crash"):
            print(f"{verdict.verdict}: {verdict.label}: {verdict.reason}", flush=True)
    text, bad = summary(found)
    print(f"{len(found):,} graphs: {text}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
