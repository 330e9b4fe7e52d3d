# SPDX-License-Identifier: Apache-2.0
"""The head of a kernel template lists the variables that it reads, with the sentences of its parameter class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import template_heads
from tvm_megcc.kernels.parameters import Parameters
from tvm_megcc.kernels.reduce.along_axis import CumulativeParameters


def test_heads_are_those_that_the_script_writes():
    paths = sorted(template_heads.KERNELS.rglob("*.j2"))
    assert len(paths) > 100
    stale = [path.relative_to(template_heads.KERNELS).as_posix() for path in paths
             if template_heads.with_head(path) != path.read_text(encoding="utf-8")]
    assert not stale, f"run `{template_heads.COMMAND}`: {', '.join(stale)}"


def test_a_head_says_what_its_template_reads():
    text = (template_heads.KERNELS / "reduce" / "cumulative.c.j2").read_text(encoding="utf-8").partition("#}")[0]
    sentence = template_heads.field_docs(CumulativeParameters)["exclusive"][1]
    assert f"     exclusive: {sentence}\n" in text
    assert "isa" not in text


def test_names_that_share_a_sentence():
    @dataclass(frozen=True)
    class Two(Parameters):
        """Parameters of `two.c.j2`. rows, columns: extents of the tile. bias: whether there
        is one.

        P: pixels.
        """

        rows: int
        columns: int
        bias: bool

    assert template_heads.field_docs(Two) == {
        "rows": ("rows, columns", "extents of the tile."), "columns": ("rows, columns", "extents of the tile."),
        "bias": ("bias", "whether there is one.")}


def test_a_field_without_a_sentence_is_refused():
    @dataclass(frozen=True)
    class Silent(Parameters):
        """Parameters of `silent.c.j2`."""

        rows: int

    with pytest.raises(template_heads.Unexplained, match="Silent does not explain rows"):
        template_heads.field_docs(Silent)


@pytest.mark.parametrize("text, message", [
    ("{{ entry }}", "has no comment at its head"),
    ("{# Copies.\n   Parameters, of UnitParameters (parameters.py): #}\n{{ entry }}{{ size }}", "reads size"),
])
def test_a_template_that_nobody_understands_is_refused(tmp_path: Path, monkeypatch, text: str, message: str):
    monkeypatch.setattr(template_heads, "KERNELS", tmp_path / "tvm_megcc" / "kernels")
    path = tmp_path / "tvm_megcc" / "kernels" / "one.c.j2"
    path.parent.mkdir(parents=True)
    (path.parent / "parameters.py").touch()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(template_heads.Unexplained, match=message):
        template_heads.with_head(path)
