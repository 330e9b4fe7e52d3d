# SPDX-License-Identifier: Apache-2.0
"""What a drawn case came to, and the processes that find it out: a reference may end its process."""

from __future__ import annotations

import collections
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
#: Results that somebody has to look at.
BAD = ("wrong", "crash", "undecided")
#: Seconds that a process may take for the cases that it was given. An emulated run may have no end.
LIMIT = 900


class Feature(NamedTuple):
    """An operator in a case: its name, dtypes of its operands, "name=value" for each attribute."""

    operator: str
    dtypes: tuple[str, ...]
    attributes: tuple[str, ...]


class Result(NamedTuple):
    """outcome: "right", "refused", "wrong", "crash", "no reference", "references differ" (reason: the sentence of
    the specification that decides), "undecided" (there is none yet), "emulator" (it does not know an instruction) or
    "not drawn"; of several operators also "ill-conditioned" (the references differ as much where operands are moved by
    units in the last place) and "by one operator" (which differs from ONNX Runtime by itself, and is right or decided).

    target: what the case was compiled for, "" if it was computed in numpy.
    """

    number: int
    label: str
    outcome: str
    reason: str = ""
    target: str = ""
    features: tuple[Feature, ...] = ()

    @staticmethod
    def of(row: Sequence) -> Result:
        """From a line of JSON."""
        result = Result(*row)
        features = tuple(Feature(each[0], tuple(each[1]), tuple(each[2])) for each in result.features)
        return result._replace(features=features)


def brief(error: BaseException) -> str:
    """A reason without what is of one file only."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if "problem" not in line), lines[0] if lines else "")
    return re.sub(r"\s+", " ", re.sub(r"'[^']*'", "…", re.sub(r"-?\d[\d.,e+-]*", "#", text)))[:140]


def report(result: Result) -> None:
    """To the process that asked."""
    print(json.dumps(result), flush=True)


def from_processes(module: str, options: Sequence[str], numbers: Iterable[int], label_of: Callable[[int], str],
                   lost: str, many: int = 200) -> Iterator[Result]:
    """`python -m module OPTIONS NUMBER...` says a result for each number, in order. Where it ends before, the rest is
    asked for in halves, down to the one number that ends it.

    lost: the result on that number.
    """
    left = list(numbers)
    parts = [left[at:at + many] for at in range(0, len(left), many)][::-1]
    while parts:
        part = parts.pop()
        output, errors, ended = _run([sys.executable, "-W", "ignore", "-m", module, *options, *map(str, part)])
        found = [Result.of(json.loads(line)) for line in output.splitlines() if line.startswith("[")]
        yield from found
        rest = part[len(found):]
        if len(rest) == 1 == len(part):
            last = " ".join(errors.strip().splitlines()[-1:])
            yield Result(rest[0], label_of(rest[0]), lost, f"the process ends with {ended} {last[:200]}".strip())
        elif rest:
            middle = (len(rest) + 1) // 2
            parts += [each for each in (rest[middle:], rest[:middle]) if each]


def _run(command: Sequence[str]) -> tuple[str, str, int | str]:
    """Output, errors, and the exit code or that there is none."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as expired:
        return (expired.stdout or b"").decode(), (expired.stderr or b"").decode(), f"no answer in {LIMIT} s"
    return run.stdout, run.stderr, run.returncode


def summary(found: Iterable[Result]) -> tuple[str, list[Result]]:
    """Figures as a text, and what is wrong."""
    counts, reasons, bad = collections.Counter[str](), dict[tuple[str, str], list[Result]](), []
    for result in found:
        counts[result.outcome] += 1
        if result.outcome in BAD:
            bad.append(result)
        elif result.outcome != "right":
            reasons.setdefault((result.outcome, result.reason), []).append(result)
    lines = [", ".join(f"{name}: {count:,}" for name, count in counts.most_common())]
    for (name, reason), those in sorted(reasons.items(), key=lambda row: (row[0][0], -len(row[1]))):
        kinds = sorted({result.label.split()[1] for result in those if " " in result.label})
        lines.append(f"  {name} {len(those)}, {those[0].number} among them, {' '.join(kinds[:6])}: {reason}")
    return "\n".join(lines), bad
