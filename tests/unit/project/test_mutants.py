# SPDX-License-Identifier: Apache-2.0
"""The table of mutants: each is caught by a test that exists, or argued to be equivalent."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import mutants  # noqa: E402


def test_every_mutant_has_a_test_or_a_reason():
    rows = mutants.table()
    assert len(rows) >= 200 and [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert {row.area for row in rows} == {area.name for area in mutants.AREAS}
    for row in rows:
        assert bool(row.test) != bool(row.reason), row.title
        if row.test:
            file, name, *_ = row.test.split("::")
            assert f" {name.partition('[')[0]}(" in (ROOT / file).read_text(), row.test
        else:
            assert row.reason.endswith("."), row.title


def test_the_page_is_that_of_the_table():
    assert mutants.PAGE.read_text() == mutants.page(mutants.table())
    assert mutants.TABLE.read_text() == mutants.written(mutants.table())


def test_a_mutant_differs_in_its_token_even_if_its_line_moved():
    mutant = mutants.Mutant(1, "VM", "f.c", 9, 10, "<", "<=", "return a < b;")
    assert mutants.mutated(mutant, "{\n    return a < b;\n}\n") == "{\n    return a <= b;\n}\n"
    assert mutants.mutated(mutant, "{\n    return b;\n}\n") is None


def test_tokens_of_functions_only():
    text = "LIMIT = 1\n\n\ndef f(a=0):\n    assert a < 2\n    return [-a, a - 1]  # 2\n\n\ng = lambda x: x > 'and'\n"
    assert list(mutants.tokens(Path("f.py"), text)) == [(6, 19, "-"), (6, 21, "1"), (9, 17, ">")]
    text = "#define N 1\nint f(int *p) { /* 2 */ return p[0] * -x + 12; } // 1 < 2\n"
    assert [token for *_, token in mutants.tokens(Path("f.c"), text)] == ["0", "*", "+"]
