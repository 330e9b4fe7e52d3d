# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one token of the compiler or the runtime at a time, and runs the tests that should fail.

    python scripts/mutants.py [--count 200] [--seed 1] [--only planner,kernels] [--output build/mutants.json]

Mutants are drawn from files of `AREAS`: comparisons, arithmetic, logical operators and small integers become others.
Each is written into a copy of the sources, where the tests of its area run until the first one fails. A mutant that no
test sees survives: either a test is missing, or it is equivalent to the original. The exit
status is 1 if a mutant survives that `EQUIVALENT` does not name.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The files and folders that a copy of the sources has.
COPIED = ("tvm_megcc", "c_runtime", "tests", "benchmarks", "scripts", "pyproject.toml", "setup.py", "README.md")
#: The tokens that take the place of another.
OTHERS = {"<": ("<=", ">"), "<=": ("<", ">"), ">": (">=", "<"), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
          "+": ("-",), "-": ("+",), "*": ("+",), "//": ("*",), "&&": ("||",), "||": ("&&",), "and": ("or",),
          "or": ("and",), "+=": ("-=",), "-=": ("+=",), "min": ("max",), "max": ("min",), "True": ("False",),
          "False": ("True",), "any": ("all",), "all": ("any",), "0": ("1",), "1": ("0", "2"), "2": ("1", "3")}
_C_TOKEN = re.compile(r'(?P<skip>/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'[^\']*\'|^\s*#[^\n]*'
                      r"|\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}"
                      r"|->|<<=?|>>=?|\+\+|--|\w*[A-Za-z_.]\w*|\d\d+\w*)"
                      r"|(?P<token>&&|\|\||[<>=!]=|\+=|-=|[<>+*-]|\b[012]\b)", re.DOTALL | re.MULTILINE)
#: A mutant is stopped after so many seconds: it does not end, which is seen too.
SECONDS = 300


@dataclass(frozen=True)
class Area:
    """A part of the project. files: patterns below the root. tests: arguments of pytest."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def _kernel(template: str, kind: str) -> Area:
    return Area(f"kernel {template}", (f"tvm_megcc/kernels/{template}.c.j2",),
                ("tests/kernels/test_kernels.py", "-k", f"({kind}-c- or {kind}_1-c- or {kind}_2-c-)"))


AREAS = (
    Area("planner", ("tvm_megcc/codegen/memory/*.py",),
         ("tests/unit/codegen/test_memory.py", "tests/unit/codegen/test_regions.py")),
    Area("verifier", ("c_runtime/src/verify.c",),
         ("tests/compiled/runtime/test_hostile_data.py", "tests/compiled/runtime/test_runtime.py")),
    Area("ranges", ("tvm_megcc/tools/evidence/loops.py", "tvm_megcc/tools/evidence/induction.py",
                    "tvm_megcc/tools/evidence/conditions.py", "tvm_megcc/tools/evidence/ranges.py"),
         ("tests/compiled/safety/test_evidence.py", "-k", "bounds or loop or counter or first or numbers or distance")),
    Area("passes", ("tvm_megcc/passes/canonicalize/*.py", "tvm_megcc/passes/fusion/*.py",
                    "tvm_megcc/passes/memory/*.py"),
         ("tests/unit/passes/test_passes.py", "tests/unit/passes/test_random_passes.py",
          "tests/unit/passes/test_strips.py")),
    *(_kernel(template, kind) for template, kind in (
        ("pool/window", "avg_pool"), ("softmax/fixed", "softmax_fixed"), ("sort/top_k", "top_k"),
        ("norm/layer", "layer_norm"), ("gather/gather", "gather"), ("reduce/arg_extreme", "arg_max"),
        ("move/pad", "pad"), ("integer/plain_matmul", "matmul_integer"), ("quant/per_axis", "quantize_linear"),
        ("search/ctc_greedy", "ctc_greedy"), ("reduce/cumulative", "cumsum"), ("tree/walk", "trees"))))


@dataclass(frozen=True)
class Mutant:
    """A change of one token. offset: in the text of the file, in characters."""

    area: str
    file: str
    line: int
    offset: int
    before: str
    after: str

    @property
    def title(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


#: Mutants that do the same as the original, or whose difference no result shows: text of the changed line -> reason.
EQUIVALENT = {
    "while (bits <= 31 && sum < 0x80000000u) {":
        "sum is at least 1, so its highest bit is set after 31 shifts, and the second condition ends the loop"}


def tokens(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yields the tokens of a file that have another: offset and text. Strings and comments have none."""
    if path.suffix == ".py":
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.OP, tokenize.NUMBER, tokenize.NAME) and token.string in OTHERS:
                yield starts[token.start[0] - 1] + token.start[1], token.string
        return
    begin = text.index("#}") if path.name.endswith(".j2") else 0
    for found in _C_TOKEN.finditer(text, begin):
        if found["token"]:
            yield found.start("token"), found["token"]


def mutants(area: Area, root: Path = ROOT) -> list[Mutant]:
    """Returns all mutants of an area, in the order of files and text."""
    paths = sorted(path for pattern in area.files for path in root.glob(pattern))
    return [Mutant(area.name, path.relative_to(root).as_posix(), text.count("\n", 0, offset) + 1, offset, before, after)
            for path in paths for text in [path.read_text()] for offset, before in tokens(path, text)
            for after in OTHERS[before]]


def drawn(areas: Sequence[Area], count: int, seed: int) -> list[Mutant]:
    """Returns mutants of areas in turn, the same for the same seed."""
    generator = random.Random(seed)
    queues = [generator.sample(rows, len(rows)) for rows in map(mutants, areas)]
    found: list[Mutant] = []
    while len(found) < count and any(queues):
        found += [queue.pop() for queue in queues if queue]
    return found[:count]


def copied(folder: Path) -> None:
    """Copies the sources."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        elif source.exists():
            shutil.copy(source, folder / name)


def is_killed(area: Area, folder: Path) -> bool:
    """Whether a test of an area fails in a copy, or does not end."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not long",
               *area.tests]
    try:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False,
                              timeout=SECONDS).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def survives(mutant: Mutant, area: Area, folder: Path) -> bool:
    path = folder / mutant.file
    text = path.read_text()
    path.write_text(text[:mutant.offset] + mutant.after + text[mutant.offset + len(mutant.before):])
    try:
        return not is_killed(area, folder)
    finally:
        path.write_text(text)


def reason(mutant: Mutant) -> str:
    """Returns why a survivor is equivalent; "" if nobody has said."""
    text = (ROOT / mutant.file).read_text()
    changed = text[:mutant.offset] + mutant.after + text[mutant.offset + len(mutant.before):]
    return EQUIVALENT.get(changed.splitlines()[mutant.line - 1].strip(), "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="the first words of areas, separated by commas")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "mutants.json")
    arguments = parser.parse_args()
    areas = [area for area in AREAS if area.name.startswith(tuple(arguments.only.split(",")))]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copied(folder)
        for area in areas:
            if is_killed(area, folder):
                raise SystemExit(f"the tests of {area.name} fail without a mutant: {' '.join(area.tests)}")
        by_name = {area.name: area for area in areas}
        for mutant in drawn(areas, arguments.count, arguments.seed):
            alive = survives(mutant, by_name[mutant.area], folder)
            rows.append({**asdict(mutant), "survives": alive, "reason": reason(mutant) if alive else ""})
            print(f"{'survives' if alive else 'killed  '} {mutant.title}", flush=True)
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
    alive_rows = [row for row in rows if row["survives"]]
    print(f"{len(rows) - len(alive_rows)} of {len(rows)} mutants killed, {len(alive_rows)} survive")
    return any(not row["reason"] for row in alive_rows)


if __name__ == "__main__":
    raise SystemExit(main())
