# SPDX-License-Identifier: Apache-2.0
"""The files of the package as syntax trees, each parsed once in a process."""

import ast
import functools
from pathlib import Path

import tvm_megcc

PACKAGE = Path(tvm_megcc.__file__).parent


@functools.cache
def modules() -> tuple[Path, ...]:
    """The Python files of the package, without those that a wheel carries as data."""
    return tuple(sorted(path for path in PACKAGE.rglob("*.py")
                        if "_data" not in path.relative_to(PACKAGE).parts))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def definitions(path: Path) -> tuple[ast.AST, ...]:
    """The file itself and its classes, functions, parameters and imports: what tests ask about."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.arg, ast.Import, ast.ImportFrom)
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, kinds))
