# SPDX-License-Identifier: Apache-2.0
"""The choice of the tests that `make check` leaves out, and of the tests that run in one process."""

import runpy
import sys
from pathlib import Path

from tests.conftest import UNIT_BY_PARAMETER, UNITS, unit

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "slow_tests.py"))


def test_words_types_and_pages_stay_in_make_check(tmp_path, monkeypatch, capsys):
    log = tmp_path / "log"
    log.write_text("0.90 unit/project/test_docs.py::test_a\n0.20 unit/ir/test_dims.py::test_b\n"
                   "0.40 unit/ir/test_dims.py::test_c\n0.60 unit/ir/test_dims.py::test_c\n")
    monkeypatch.setattr(sys, "argv", ["slow_tests.py", str(log)])
    assert SCRIPT["main"]() == 0
    assert capsys.readouterr().out == "0.6 unit/ir/test_dims.py::test_c\n"
    listed = [line.split(maxsplit=1)[1] for line in (ROOT / "tests" / "slow.txt").read_text().splitlines()]
    assert len(listed) > 1000
    assert not [name for name in listed if name.startswith(SCRIPT["KEPT"]) and name not in SCRIPT["LEFT_OUT"]]


def test_units():
    """Tests that share work of a fixture run in one process."""
    assert all((ROOT / "tests" / file).exists() for file in (*UNIT_BY_PARAMETER, *UNITS))
    lm = "tests/compiled/tools/test_language_model.py"
    assert unit(f"{lm}::test_a_program_in_c[native]") == unit(f"{lm}::test_drawn_text_in_c[native]")
    assert unit(f"{lm}::test_a_program_in_c[native]") != unit(f"{lm}::test_drawn_text_in_c[arm64]")
    dynamic, project = "tests/models/test_dynamic.py", "tests/unit/project"
    assert unit(f"{dynamic}::test_a[yunet_n-200]") == unit(f"{dynamic}::test_b[yunet_n]") != unit(f"{dynamic}::test_c")
    assert unit(f"{project}/test_docstrings.py::test_a") == unit(f"{project}/test_vocabulary.py::test_b[c]")
    assert unit("tests/unit/ir/test_dims.py::test_a[-]") == "tests/unit/ir/test_dims.py::test_a[-]"

