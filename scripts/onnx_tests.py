#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ONNX's own backend tests through tvm_megcc.onnx_backend and writes the page about them.

    scripts/onnx_tests.py > docs/onnx-tests.md      # about ten minutes on two cores
    scripts/onnx_tests.py --match softmax --list    # each test and what came of it

Each test runs in a child of its own, so that one that crashes or hangs costs one test. Networks that would
be downloaded are left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import multiprocessing
import os
import re
import signal
import sys
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx.backend.test
from onnx.backend.test.loader import load_model_tests

from tvm_megcc import onnx_backend

KINDS = {"node": "nodes", "real": "networks without weights", "simple": "small graphs",
         "pytorch-operator": "of PyTorch's operators",
         "pytorch-converted": "of PyTorch's layers"}
VERDICTS = ("passed", "refused", "wrong", "failed")
SECONDS = 120
#: Networks that the package has.
LIGHT = "onnx/backend/test/data/light/"
#: The parts of a message that concern one test only: quoted names, shapes and numbers.
_OWN = re.compile(r"'[^']*'|\b[a-z_]*\d*\[[^\]]*\]|\d+")


class Test(NamedTuple):
    name: str
    kind: str
    operators: tuple[str, ...]


class Result(NamedTuple):
    """verdict: passed, refused, wrong (other numbers, shapes or types), failed (an error at run time, a crash)."""

    test: Test
    verdict: str
    reason: str


def tests() -> list[Test]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for case in load_model_tests(kind=kind):
                if kind == "real" and not (case.url or "").startswith(LIGHT):
                    continue
                path = (Path(onnx.__file__).parents[1] / case.url if kind == "real" else
                        Path(case.model_dir or "") / "model.onnx")
                model = case.model or onnx.load(path)
                operators = dict.fromkeys(node.op_type for node in model.graph.node if node.op_type != "Constant")
                found.append(Test(case.name, kind, tuple(operators)))
    return found


class _Watched(onnx_backend.MegccBackend):
    """Notes how far a test has come."""

    phase = "prepare"

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        rep = super().prepare(model, device, **kwargs)
        run = rep.run

        def watched(inputs, **kwargs):
            results = run(inputs, **kwargs)
            _Watched.phase = "compare"
            return results
        rep.run = watched
        return rep


def _child(function: Callable[[], str | None], end: Connection) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        result = ("passed", function() or "")
    except onnx_backend.UnsupportedModel as error:
        lines = str(error).splitlines()
        result = ("refused", (lines[1] if len(lines) > 1 else lines[0]).strip(" -"))
    except BaseException as error:
        result = ("wrong" if _Watched.phase == "compare" else "failed", f"{type(error).__name__}: {error}"[:400])
    end.send(result)
    os._exit(0)


def run(test: Test, function: Callable[[], str | None]) -> Result:
    """function: runs the test; it may return a remark."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(function, theirs))
    child.start()
    theirs.close()
    try:
        verdict, reason = ours.recv() if ours.poll(SECONDS) else ("failed", f"more than {SECONDS} seconds")
    except EOFError:
        verdict, reason = "failed", "the process died"
    if child.is_alive():
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return Result(test, verdict, reason)


def page(results: list[Result]) -> str:
    total = Counter(result.verdict for result in results)
    lines = ["# ONNX's own tests", "",
             f"Written by `scripts/onnx_tests.py` with onnx {importlib.metadata.version('onnx')}: its backend tests, "
             "run unchanged through `tvm_megcc.onnx_backend`. In these tests, operands that are constants in real "
             "models are inputs. Each test is compiled to C for this CPU, built and run. Refused means that the "
             "compiler does not support the test.", "",
             f"**{total['passed']:,} of {len(results):,} pass** ({total['passed'] / max(len(results), 1):.1%}).", "",
             *table(results, KINDS), "", "## Tests that do not pass", "", *failures(results)]
    return "\n".join(lines) + "\n"


def table(results: Iterable[Result], kinds: Mapping[str, str], verdicts: Sequence[str] = VERDICTS) -> list[str]:
    """Returns rows of a table: how many tests of each kind came to which verdict."""
    lines = [f"| tests | all | {' | '.join(verdicts)} |", "|---|---" + "|---" * len(verdicts) + "|"]
    for kind, title in kinds.items():
        count = Counter(result.verdict for result in results if result.test.kind == kind)
        lines.append(f"| {title} | {sum(count.values())} | {' | '.join(str(count[verdict]) for verdict in verdicts)} |")
    return lines


def failures(results: Iterable[Result], verdicts: Sequence[str] = VERDICTS) -> list[str]:
    """Returns a line for each reason why tests do not pass, the most frequent first."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.verdict != "passed":
            groups[result.verdict, _OWN.sub("…", result.reason)].append(result)
    lines = []
    for (verdict, _), group in sorted(groups.items(), key=lambda item: (-verdicts.index(item[0][0]), -len(item[1]))):
        names = Counter(result.test.operators[0] if result.test.operators else "?" for result in group)
        of = ", ".join(f"{name} {count}" for name, count in names.most_common())
        lines.append(f"* {len(group)} {verdict} ({of}): {_safe(group[0].reason)}")
    return lines


def _safe(text: str) -> str:
    """One line without what Markdown would read."""
    return re.sub(r"([<>|*_\[\]`])", r"\\\1", " ".join(text.split()))[:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="tests whose name this regular expression is found in")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="a line for each test instead of the page")
    args = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = onnx.backend.test.BackendTest(_Watched, __name__)
    functions = {name: item.func for items in suite._test_items.values() for name, item in items.items()}
    wanted = [test for test in tests() if re.search(args.match, test.name)]
    onnx_backend._runtime_objects(onnx_backend.find_compiler(onnx_backend.native()), onnx_backend.native())
    with ThreadPoolExecutor(args.jobs) as pool:
        calls = [partial(functions[f"{test.name}_cpu"], unittest.TestCase()) for test in wanted]
        results = list(pool.map(run, wanted, calls))
    if args.list:
        sys.stdout.writelines(f"{result.verdict:8} {result.test.name:60} {result.reason[:200]}\n" for result in results)
    else:
        sys.stdout.write(page(results))
    return 0 if all(result.verdict in ("passed", "refused") for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
