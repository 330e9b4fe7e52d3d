# SPDX-License-Identifier: Apache-2.0
"""Every requirement of docs/qualification.md names tests that exist, and the numbers of its tables are complete."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "qualification.md").read_text()
ROW = re.compile(r"^\| ([RUK])(\d+) \| (.+?) \|(?: (.+?) \|)?$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def rows(letter: str) -> list[tuple[int, str, str]]:
    """Number, sentence and last cell of each row of a table."""
    return [(int(number), sentence, last) for kind, number, sentence, last in ROW.findall(PAGE) if kind == letter]


@pytest.mark.parametrize("letter, least", [("R", 30), ("U", 10), ("K", 10)])
def test_numbers_are_complete(letter: str, least: int) -> None:
    numbers = [number for number, _, _ in rows(letter)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= least


def test_requirements_are_sentences() -> None:
    for number, sentence, _ in rows("R"):
        assert " shall " in sentence and sentence.endswith("."), f"R{number}"


def missing(text: str) -> list[str]:
    """The tests of a text that do not exist."""
    found = []
    for file, name in TEST.findall(text):
        path = ROOT / file
        functions = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)} \
            if path.exists() else set()
        if not path.exists() or (name and name not in functions):
            found.append(f"{file}::{name}")
    return found


def test_requirements_name_tests_that_exist() -> None:
    for number, _, tests in rows("R"):
        assert TEST.findall(tests) and all(name for _, name in TEST.findall(tests)), f"R{number} names no test"
    assert not missing(PAGE)


def test_tests_that_do_not_exist_are_found() -> None:
    here = "tests/unit/project/test_qualification.py"
    assert missing(f"`{here}::test_nothing`, `tests/none.py::test_a`, `{here}::test_numbers_are_complete`") == \
        [f"{here}::test_nothing", "tests/none.py::test_a"]
