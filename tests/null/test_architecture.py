# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, TVM stays in the front ends, and every file says under which licence it stands."""

import ast
from pathlib import Path

import pytest

import tvm_megcc

PACKAGE = Path(tvm_megcc.__file__).parent
ROOT = PACKAGE.parent

#: Lowest first. A module imports from its own row and from rows above it in this table, never from below.
LAYERS = (
    ("", "errors", "foreign", "target", "paths", "folders", "notebook", "version"),
    ("ir",),
    ("tuning_log",),
    ("context",),
    ("ops",),
    ("kernels",),
    ("passes",),
    ("codegen",),
    ("compiler",),
    ("frontends", "runtime", "patterns", "dispatch", "extern", "api"),
    ("cli", "tools", "onnx_backend", "reports", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def part_of(path: Path) -> str:
    """The subpackage or top-level module; "" for the package's own __init__."""
    relative = path.relative_to(PACKAGE).with_suffix("")
    return "" if relative.parts == ("__init__",) else relative.parts[0]


def imports(path: Path) -> set[str]:
    """Absolute names of what is imported at load time; an import inside a function may go the other way."""
    own = ("tvm_megcc", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = set()
    for node in _load_time_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = own[:-node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def _load_time_nodes(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _load_time_nodes(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path):
    part = part_of(path)
    if part == "":
        return
    assert part in LEVEL, f"{part} has no place among the layers"
    for name in imports(path):
        head, _, rest = name.partition(".")
        if head != "tvm_megcc":
            continue
        target = rest.split(".")[0]
        if (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").exists():
            assert LEVEL[target] <= LEVEL[part], f"{part} imports {name}, which stands above it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_tvm_stays_in_the_front_ends(path):
    heads = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            heads.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            heads.add(node.module.split(".")[0])
    if part_of(path) not in ("frontends", "runtime", "dispatch"):
        assert "tvm" not in heads


def test_every_source_names_its_licence():
    missing = []
    for folder in ("tvm_megcc", "c_runtime", "tests", "scripts", "fuzz"):
        for path in sorted((ROOT / folder).rglob("*")):
            text = path.read_text() if path.suffix in (".py", ".c", ".h") else ""
            if text and "SPDX-License-Identifier" not in text[:400]:
                missing.append(path.relative_to(ROOT).as_posix())
    assert not missing
