# SPDX-License-Identifier: Apache-2.0
"""Scripts and benchmarks use names of the project that exist. No test runs most of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = [*sorted((ROOT / "scripts").glob("*.py")), ROOT / "scripts" / "replay",
         *sorted((ROOT / "benchmarks").glob("*.py"))]
OWN = ("tvm_megcc", "tests", "scripts", "benchmarks")


def names(text: str, folder: Path) -> Iterator[str]:
    """Yields the names of the project that a file uses, with their modules: what it imports, functions included, and
    attributes of what it imports."""
    tree, known = ast.parse(text), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if full := _full(alias.name, folder):
                    yield full
                    known[alias.asname or alias.name.partition(".")[0]] = (
                        full if alias.asname or "." not in alias.name else full.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.module and (module := _full(node.module, folder)):
            for alias in node.names:
                yield f"{module}.{alias.name}"
                known[alias.asname or alias.name] = f"{module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield f"{known[node.value.id]}.{node.attr}"


def _full(module: str, folder: Path) -> str:
    """Returns the full name of a module of the project; "" for other modules."""
    if module == "peers":  # the name that tvm_megcc/tools/bench/peers.py has in files that it loads
        return "tvm_megcc.tools.bench.peers"
    if (folder / f"{module}.py").exists():
        return f"{folder.name}.{module}"
    return module if module.partition(".")[0] in OWN else ""


def gone(text: str, folder: Path) -> list[str]:
    """Returns the names that a file uses and that do not exist."""
    return [name for name in dict.fromkeys(names(text, folder)) if not _exists(name)]


def _exists(name: str) -> bool:
    first, *rest = name.split(".")
    path, value = first, import_module(first)
    for part in rest:
        if not isinstance(value, ModuleType):
            return True  # an attribute of a class or a value
        path = f"{path}.{part}"
        if not hasattr(value, part):
            try:
                import_module(path)
            except ModuleNotFoundError as missing:
                return missing.name != path  # it exists, and needs a package that is not installed
            except ImportError:
                return True
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_name_exists(path: Path):
    assert not gone(path.read_text(), path.parent)


@pytest.mark.parametrize(("text", "wanted"), [
    ("from tvm_megcc.ir.types import numpy_dtype", ["tvm_megcc.ir.types.numpy_dtype"]),
    ("def late():\n    from tvm_megcc.tools import verify\n    verify.drawn()", ["tvm_megcc.tools.verify.drawn"]),
    ("import tvm_megcc.never", ["tvm_megcc.never"]),
    ("import peers\npeers.never", ["tvm_megcc.tools.bench.peers.never"]),
    ("import tvm_megcc\ntvm_megcc.load, tvm_megcc.never", ["tvm_megcc.never"]),
    ("import not_installed\nfrom tvm_megcc.target import TARGETS\nTARGETS.items", [])])
def test_names_that_are_gone_are_found(text: str, wanted: list[str]):
    assert gone(text, ROOT / "scripts") == wanted
