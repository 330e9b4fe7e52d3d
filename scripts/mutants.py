# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one token of the compiler or the runtime at a time, and runs a test that should fail.

    python scripts/mutants.py                  each mutant of scripts/mutants.tsv with the test that catches it
    python scripts/mutants.py --only "VM,7"    those of some areas, or some numbers
    python scripts/mutants.py --draw SEED      prints mutants that are drawn anew from the sources, without verdicts
    python scripts/mutants.py --write          writes docs/mutants.md from the table

A mutant differs from the sources in one token: a comparison, an arithmetic or logical operator, a constant or a small
integer becomes another. The table has a row for each: where it is, what changes, and the test of `make test` that fails
with it, or why no test can (the mutant computes the same as the original). Each is written into a copy of the sources,
where its test runs. The exit status is 1 if a test passes with its mutant, or the table names a line that is gone.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE, PAGE = ROOT / "scripts" / "mutants.tsv", ROOT / "docs" / "mutants.md"
#: The files and folders that a copy of the sources has.
COPIED = ("tvm_megcc", "c_runtime", "tests", "benchmarks", "scripts", "docs", "pyproject.toml", "setup.py", "README.md")
#: The tokens that take the place of another.
OTHERS = {"<": ("<=", ">"), "<=": ("<", ">"), ">": (">=", "<"), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
          "+": ("-",), "-": ("+",), "*": ("+",), "//": ("*",), "&&": ("||",), "||": ("&&",), "and": ("or",),
          "or": ("and",), "+=": ("-=",), "-=": ("+=",), "min": ("max",), "max": ("min",), "True": ("False",),
          "False": ("True",), "any": ("all",), "all": ("any",), "0": ("1",), "1": ("0", "2"), "2": ("1", "3")}
_C_TOKEN = re.compile(r'(?P<skip>/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'[^\']*\'|^\s*#[^\n]*'
                      r"|\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}"
                      r"|->|<<=?|>>=?|\+\+|--|\w*[A-Za-z_.]\w*|\d\d+\w*)"
                      r"|(?P<token>&&|\|\||[<>=!]=|\+=|-=|(?<= )[<>+*-](?= )|\b[012]\b)", re.DOTALL | re.MULTILINE)
#: The begin of the page.
HEAD = """# Mutants

<!-- written by scripts/mutants.py --write -->

Tests are only as good as the faults that they find. A mutant is a copy of the sources with one fault put in on purpose:
a comparison, an arithmetic or logical operator, a constant or a small integer becomes another. A test of `make test`
has to fail with it; where none can, the mutant is equivalent, and the reason is stated.

Mutants are drawn at random from each area; of Python, from the bodies of functions. `python scripts/mutants.py
--draw 1` drew these from the sources of commit c51acfc0. `python scripts/mutants.py` writes each into a copy of the
sources and runs the test that the table names (`scripts/mutants.tsv`). A mutant that no test caught at first got a new
test, derived from what the function, its documentation or the standard says."""
#: A mutant is stopped after so many seconds: it does not end, which is seen too.
SECONDS = 600


@dataclass(frozen=True)
class Area:
    """A part of the project. files: patterns below the root; without: patterns of files that are left out. count: how
    many mutants the table has."""

    name: str
    files: tuple[str, ...]
    count: int
    without: tuple[str, ...] = ()


AREAS = (
    Area("passes", ("tvm_megcc/passes/**/*.py",), 32, ("*/__init__.py",)),
    Area("operators", ("tvm_megcc/ops/**/*.py",), 25, ("*/__init__.py", "*/emit_onnx.py")),
    Area("kernel templates", ("tvm_megcc/kernels/*/*.c.j2",), 32,
         ("*/helium/*", "*/dsp/*", "*/extern/*", "*/tir/*", "*/lanes.c.j2", "*/vector.c.j2", "*_arm.c.j2",
          "*.avx2.c.j2", "*.neon.c.j2")),
    Area("lowering to kernels", ("tvm_megcc/kernels/**/*.py",), 15,
         ("*/__init__.py", "*/choice.py", "*/blocking.py", "*/tiling.py", "*/helium/*", "*/microkernel/*")),
    Area("memory planner", ("tvm_megcc/codegen/memory/*.py",), 15),
    Area("container verifier", ("c_runtime/src/verify.c",), 15),
    Area("VM", tuple(f"c_runtime/src/{name}.c" for name in (
        "vm", "control", "shape", "session", "signature", "memory", "model", "place")), 20),
    Area("ONNX front end", ("tvm_megcc/frontends/onnx/*.py",), 12),
    Area("TFLite front end", ("tvm_megcc/frontends/tflite/**/*.py",), 10),
    Area("GGUF front end", ("tvm_megcc/frontends/gguf/*.py",), 5),
    Area("language models in C", ("c_runtime/lm/*.c", "c_runtime/lm/text/*.c"), 14),
    Area("programs", ("tvm_megcc/tools/program/*.py",), 8, ("*/__init__.py",)))


@dataclass(frozen=True)
class Mutant:
    """A change of one token. column: in the text of the line without its indent,
    from 1. test: the test that fails with it, as
    pytest names it; "" if none can, for a reason, or if none is known yet: then the reason begins with "Open: "."""

    number: int
    area: str
    file: str
    line: int
    column: int
    before: str
    after: str
    text: str
    test: str = ""
    reason: str = ""

    @property
    def status(self) -> str:
        return "caught" if self.test else "open" if self.reason.startswith("Open: ") else "equivalent"

    @property
    def title(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


def _bodies(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Returns where the bodies of functions and lambdas of Python begin and end, without assertions."""
    nodes = list(ast.walk(ast.parse(text)))
    lines = text.splitlines()

    def place(line: int, column: int) -> tuple[int, int]:
        return line, len(lines[line - 1].encode()[:column].decode())

    def span(first: ast.AST, last: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
        return place(first.lineno, first.col_offset), place(last.end_lineno, last.end_col_offset)

    functions = [span(node.body[0], node.body[-1]) for node in nodes if isinstance(node, ast.FunctionDef)]
    return functions + [span(node.body, node.body) for node in nodes if isinstance(node, ast.Lambda)]


def _python_tokens(text: str) -> Iterator[tuple[int, int, str]]:
    bodies = _bodies(text)
    asserts = [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, column = token.start
        spaced = token.string not in "+-*" or token.line[column - 1:column] == " " == token.line[column + 1:column + 2]
        if (token.type in (tokenize.OP, tokenize.NUMBER, tokenize.NAME) and token.string in OTHERS and spaced
                and any(begin <= token.start < end for begin, end in bodies)
                and not any(first <= line <= last for first, last in asserts)):
            yield line, column + 1, token.string


def _c_tokens(text: str, begin: int) -> Iterator[tuple[int, int, str]]:
    for found in _C_TOKEN.finditer(text, begin):
        if found["token"]:
            start = found.start("token")
            yield text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start), found["token"]


def tokens(path: Path, text: str) -> Iterator[tuple[int, int, str]]:
    """Yields line, column and text of the tokens of a file that have another: in Python those of functions, in C all
    outside of strings and comments."""
    if path.suffix == ".py":
        yield from _python_tokens(text)
    else:
        yield from _c_tokens(text, text.index("#}") if path.name.endswith(".j2") else 0)


def drawn(area: Area, seed: int) -> list[Mutant]:
    """Returns mutants of an area, the same for the same seed and sources."""
    generator = random.Random(f"{seed} {area.name}")
    paths = sorted({path for pattern in area.files for path in ROOT.glob(pattern)
                    if not any(path.match(other) for other in area.without)})
    lines = {path: path.read_text().splitlines() for path in paths}
    places = [(path, *token) for path in paths for token in tokens(path, path.read_text())]
    found = []
    for path, line, column, before in generator.sample(places, min(area.count, len(places))):
        after, text = generator.choice(OTHERS[before]), lines[path][line - 1]
        column -= len(text) - len(text.lstrip())
        found.append(Mutant(0, area.name, path.relative_to(ROOT).as_posix(), line, column, before, after, text.strip()))
    return found


def table() -> list[Mutant]:
    """Returns the mutants of the table."""
    _, *rows = TABLE.read_text().splitlines()
    return [Mutant(int(number), area, file, int(line), int(column), *rest)
            for number, area, file, line, column, *rest in (row.split("\t") for row in rows)]


def written(rows: Sequence[Mutant]) -> str:
    """Returns a table of mutants."""
    lines = [[field.name for field in fields(Mutant)], *(map(str, asdict(row).values()) for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines)


def mutated(mutant: Mutant, text: str) -> str | None:
    """Returns the text of a file with a mutant. The line is the one that the table has, or the nearest line of the same
    text; None if there is none."""
    lines = text.splitlines(keepends=True)
    same = [index for index, line in enumerate(lines) if line.strip() == mutant.text]
    if not same:
        return None
    index = min(same, key=lambda index: abs(index + 1 - mutant.line))
    line, indent = lines[index], len(lines[index]) - len(lines[index].lstrip())
    column = indent + mutant.column - 1
    assert line.startswith(mutant.before, column), mutant.title
    lines[index] = line[:column] + mutant.after + line[column + len(mutant.before):]
    return "".join(lines)


def copied(folder: Path) -> None:
    """Copies the sources."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        elif source.exists():
            shutil.copy(source, folder / name)


def passes(test: str, folder: Path) -> bool:
    """Whether a test ends and passes in a copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", test]
    try:
        return not subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False,
                                  timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return False


def verdict(mutant: Mutant, folder: Path) -> str:
    """Returns "caught", "equivalent", "survives", or "gone" if the sources have its line no more."""
    path = folder / mutant.file
    text = path.read_text() if path.exists() else ""
    other = mutated(mutant, text)
    if other is None:
        return "gone"
    if not mutant.test:
        return mutant.status
    path.write_text(other)
    try:
        return "survives" if passes(mutant.test, folder) else "caught"
    finally:
        path.write_text(text)


def checked(rows: Sequence[Mutant]) -> bool:
    """Prints the verdict of each mutant; whether all are caught, or equivalent."""
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copied(folder)
        for test in sorted({row.test for row in rows if row.test}):
            if not passes(test, folder):
                raise SystemExit(f"{test} fails without a mutant")
        for row in rows:
            verdicts[found := verdict(row, folder)] += 1
            print(f"{found:10} {row.number:3} {row.title}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in verdicts.items()))
    return not verdicts["gone"] and not verdicts["survives"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _reasons(rows: Sequence[Mutant], status: str) -> list[str]:
    return ["", "| mutant | line | change | reason |", "|--:|---|---|---|", *(
        f"| {row.number} | `{row.file}:{row.line}` | `{_cell(row.before)}` to `{_cell(row.after)}` in "
        f"`` {_cell(row.text)} `` | {_cell(row.reason.removeprefix('Open: '))} |"
        for row in rows if row.status == status)]


def page(rows: Sequence[Mutant]) -> str:
    """Returns the page about the mutants of the table."""
    lines = [*HEAD.splitlines(), "", "| area | mutants | caught | equivalent | open |", "|---|--:|--:|--:|--:|"]
    for name in (*dict.fromkeys(row.area for row in rows), "all"):
        group = [row.status for row in rows if name in (row.area, "all")]
        counts = " | ".join(str(group.count(status)) for status in ("caught", "equivalent", "open"))
        lines.append(f"| {name} | {len(group)} | {counts} |")
    lines += ["", "## Equivalent mutants", "", "No test can catch these: they change no result that is defined.",
              *_reasons(rows, "equivalent")]
    if any(row.status == "open" for row in rows):
        lines += ["", "## Open mutants", "", "No test catches these yet, though one could.", *_reasons(rows, "open")]
    lines += ["", "## All mutants", "", "| mutant | line | change | caught by |", "|--:|---|---|---|"]
    lines += [f"| {row.number} | `{row.file}:{row.line}` | `{_cell(row.before)}` to `{_cell(row.after)}` | "
              f"{f'`{_cell(row.test)}`' if row.test else row.status} |" for row in rows]
    return "\n".join(lines) + "\n"


def _is_wanted(mutant: Mutant, only: str) -> bool:
    return not only or any(word == str(mutant.number) or (not word.isdigit() and mutant.area.startswith(word))
                           for word in only.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the first words of areas, and numbers, separated by commas")
    parser.add_argument("--draw", type=int, metavar="SEED")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.draw is not None:
        rows = [row for area in AREAS for row in drawn(area, arguments.draw)]
        print(written([replace(row, number=number) for number, row in enumerate(rows, 1)]), end="")
        return 0
    if arguments.write:
        PAGE.write_text(page(table()))
        return 0
    return not checked([row for row in table() if _is_wanted(row, arguments.only)])


if __name__ == "__main__":
    raise SystemExit(main())
