# SPDX-License-Identifier: Apache-2.0
"""The runtime keeps to MISRA C:2012, but for deviations that the table explains."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import misra  # noqa: E402

needs_cppcheck = pytest.mark.skipif(not shutil.which("cppcheck"), reason="no cppcheck")
BROKEN = """
#include <stdint.h>
int32_t f(uint32_t x);
int32_t f(uint32_t x)
{
    if (x > 3) {
        return 1;
    }
    return (int32_t)x;
}
"""


def test_table():
    rows = misra.deviations()
    assert sum(row.kind == "deviation" for row in rows) <= 10
    assert all(row.reason.endswith(".") and row.files for row in rows)
    assert misra.PAGE.read_text().count("\n| ") >= len(rows)
    assert all(row.reason in misra.PAGE.read_text() for row in rows)


@needs_cppcheck
def test_findings_in_broken_code(tmp_path: Path):
    (tmp_path / "f.c").write_text(BROKEN)
    found = misra.check(tmp_path, [tmp_path / "f.c"], [], "c")
    assert {("10.4", 6, "required"), ("15.5", 7, "advisory")} <= {
        (finding.rule, finding.line, finding.category) for finding in found}
    assert not any(row.explains(finding) for row in misra.deviations() for finding in found)


@needs_cppcheck
@pytest.mark.slow
def test_runtime():
    runtime, rows = ROOT / "c_runtime", misra.deviations()
    found = misra.check(runtime, sorted((runtime / "src").glob("*.c")), [runtime / "include"], "c")
    assert len(found) > 100
    assert [finding for finding in sorted(found) if finding.category != "advisory"
            and not any(row.explains(finding) for row in rows)] == []
