#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the size and shape of the package: lines, files, imports, long functions, repeated lines, Jinja statements.

    python scripts/metrics.py [CHECKOUT]

Lines include comments and blank lines. A repeated run is six or more equal lines, blank ones, imports and indentation
aside, in two places of Python, C or templates; runs that overlap count once. Comments of templates are left out,
since a script writes most of them, and so are vendored files.
"""

import ast
import collections
import re
import statistics
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

RUN = 6
SOURCES = (".py", ".c", ".h", ".j2")
VENDORED = ("monocypher",)
_STATEMENT = re.compile(r"\{%")
_JINJA_COMMENT = re.compile(r"\{#.*?#\}\n?", re.DOTALL)


def sources(root: Path) -> list[Path]:
    """The files of the package, the runtime and the tests, in order of their paths."""
    return sorted(path for folder in ("tvm_megcc", "c_runtime", "tests") for path in (root / folder).rglob("*")
                  if path.suffix in SOURCES and not {"_data", *VENDORED} & {*path.parts})


def lines_of(path: Path) -> list[str]:
    """The lines of a file, without the comments of a template: scripts/template_heads.py writes them."""
    text = path.read_text(errors="replace")
    return (_JINJA_COMMENT.sub("", text) if path.suffix == ".j2" else text).splitlines()


def lines_to_compare(path: Path) -> list[str]:
    """The lines of a file that should not stand twice: without imports, includes and very short lines."""
    lines = lines_of(path)
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                lines[node.lineno - 1:node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    stripped = [line.strip() for line in lines]
    return [line for line in stripped if len(line) > 3 and "SPDX" not in line and not line.startswith("#include")]


def area(root: Path, path: Path) -> str:
    """The part of the project that a file belongs to, such as `ops`."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "tvm_megcc" and len(parts) > 2 else parts[0]


def imports_of(root: Path, path: Path) -> set[Path]:
    """Files of the package that a module imports when it is loaded."""
    own, found = path.relative_to(root).with_suffix("").parts, set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and node.level:
            base = root.joinpath(*own[:-node.level], *(node.module or "").split("."))
            found |= {base / f"{alias.name}.py" for alias in node.names} | {base.with_suffix(".py")}
    return {file for file in found if file.is_file()} - {path}


def circles(root: Path, modules: list[Path]) -> int:
    """The number of circles of imports: each is cut once and the search goes on."""
    needs, found = {path: imports_of(root, path) for path in modules}, 0
    while True:
        try:
            list(TopologicalSorter(needs).static_order())
            return found
        except CycleError as error:
            circle = error.args[1]
            needs[circle[1]].discard(circle[0])
            found += 1


def functions(modules: list[Path]) -> list[tuple[int, int, str]]:
    """Lines, parameters and place of each function."""
    found = []
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
                parameters = len([name for name in names if name not in ("self", "cls")])
                found.append((node.end_lineno - node.lineno + 1, parameters, f"{path.name}:{node.name}"))
    return found


def repeated(paths: list[Path]) -> int:
    """Pairs of places that share a run of `RUN` or more lines, the first place of each run with every later one."""
    first: dict[tuple[str, ...], tuple[int, int]] = {}
    pairs, last = 0, (-1, -1, -1, -1)
    for number, path in enumerate(paths):
        lines = lines_to_compare(path)
        for start in range(len(lines) - RUN + 1):
            window = tuple(lines[start:start + RUN])
            other, where = first.setdefault(window, (number, start))
            if (other, where) == (number, start):
                continue
            pairs += last != (number, start - 1, other, where - 1)
            last = (number, start, other, where)
    return pairs


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]).resolve()
    paths = sources(root)
    modules = [path for path in paths if path.suffix == ".py" and "tvm_megcc" in path.relative_to(root).parts]
    lines, files = collections.Counter(), collections.Counter()
    for path in paths:
        lines[area(root, path)] += len(lines_of(path))
        files[path.parent.relative_to(root).as_posix()] += 1
    print("lines:", ", ".join(f"{name} {count:,}" for name, count in lines.most_common()))
    print("files in a folder:", ", ".join(f"{name} {count}" for name, count in files.most_common(8)))
    print("circles of imports between files:", circles(root, modules))
    long, wide = max(functions(modules)), max(functions(modules), key=lambda row: row[1])
    over = sum(row[0] > 55 for row in functions(modules))
    print(f"longest function: {long[0]} lines ({long[2]}), {over} over 55; most parameters: {wide[1]} ({wide[2]})")
    print(f"pairs of places with {RUN} or more like lines:", repeated(paths))
    print("  of the package and the runtime:", repeated([p for p in paths if area(root, p) != "tests"]))
    statements = {path: len(_STATEMENT.findall(path.read_text())) for path in paths if path.suffix == ".j2"}
    most = max(statements, key=statements.get)
    print(f"Jinja statements in a template: median {statistics.median(statements.values()):g}, "
          f"most {statements[most]} ({most.name}), {sum(statements.values()):,} in {len(statements)} templates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
