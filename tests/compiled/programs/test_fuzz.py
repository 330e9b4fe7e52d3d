# SPDX-License-Identifier: Apache-2.0
"""The C around networks on any data, under AddressSanitizer and UBSan: a slice of `make fuzz`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import run
from fuzz.programs import PROGRAMS
from tests.compiled.runtime.test_runtime import CC, has_flags

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(CC is None or not has_flags(*run.SANITIZE), reason="no compiler with sanitizers")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_data(name: str, tmp_path: Path):
    pytest.importorskip("tokenizers")
    (subject,) = run.programs(tmp_path, [name])
    assert run.blind(subject, 500, 3, CC, tmp_path)


@pytest.mark.parametrize(("check", "hole", "message"), [
    ("both <= most)", "both <= most + 1u)", "AddressSanitizer: use-after-poison"),
    ("; at < layout->most;", "; at + 1u < layout->most;", "fuzz: ")])
def test_holes_are_found(check: str, hole: str, message: str, tmp_path: Path, capsys):
    """A token too many, which is written after the block, and one too few, where memory keeps what it had."""
    pytest.importorskip("tokenizers")
    (subject,) = run.programs(tmp_path, ["tokens"])
    holed = Path(shutil.copytree(subject.runtime, tmp_path / "runtime"))
    text = (holed / "src/megcc_tokens.c").read_text()
    assert text.count(check) == 1
    (holed / "src/megcc_tokens.c").write_text(text.replace(check, hole))
    assert not run.blind(replace(subject, runtime=holed), 20000, 2, CC, tmp_path)
    assert message in capsys.readouterr().err
