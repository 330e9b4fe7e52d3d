# SPDX-License-Identifier: Apache-2.0
"""The head of a template lists the variables that it reads, with the sentences of its parameter or context class."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pytest

from scripts import template_heads
from tvm_megcc.codegen.c_source.render import environment
from tvm_megcc.kernels.parameters import Parameters
from tvm_megcc.kernels.reduce.along_axis import CumulativeParameters
from tvm_megcc.runtime.emulator.firmware import FirmwareRegion, FirmwareVariables


def test_heads_are_those_that_the_script_writes():
    paths = template_heads.paths()
    assert len(paths) > 200
    stale = [path.relative_to(template_heads.KERNELS.parent).as_posix() for path in paths
             if template_heads.with_head(path) != path.read_text(encoding="utf-8")]
    assert not stale, f"run `{template_heads.COMMAND}`: {', '.join(stale)}"


def test_comments_hold_no_placeholders():
    """Comments are not rendered: they call a variable `size`, not {size} or {{ size }}."""
    found = [f"{path.name}: {placeholder}" for path in template_heads.paths()
             for comment in re.findall(r"\{#(.*?)#\}", path.read_text(encoding="utf-8"), re.S)
             for placeholder in re.findall(r"(?<![\w{`])\{[a-z_]+\}|\{\{.*?\}\}", comment, re.S)]
    assert not found


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


@dataclass(frozen=True)
class Network:
    """A network. name: a C identifier.

    ports: its inputs.
    """

    name: str
    ports: tuple[Network, ...]

    @property
    def macro(self) -> str:
        """The name in capitals."""
        return self.name.upper()


class Context(TypedDict):
    """A context. network: the one. others: the rest, or none."""

    network: Network
    others: list[Network] | None


def _found(text: str) -> dict[str, list[str]]:
    """Returns the attributes that a template with the variables of `Context` reads, and what of."""
    read = template_heads.Reads(environment().parse(text), Context).found
    assert {owner for owner, _ in read} <= {Network}
    return {attribute: objects for (_, attribute), objects in read.items()}


@pytest.mark.parametrize("text, found", [
    ("{{ network.macro }}", {"macro": ["network"]}),
    ("{% for each in others %}{{ each.name if loop.first }}{% endfor %}", {"name": ["each"]}),
    ("{{ others[0].ports[1:] | map(attribute='name') | join }}",
     {"ports": ["others[0]"], "name": ["others[0].ports[1:][…]"]}),
    ("{% set a = (others + others) | rejectattr('macro') | list %}{{ a[0].name }}",
     {"macro": ["(others + others)[…]"], "name": ["a[0]"]}),
    ("{% for all, what in ((others, 'x'), (network.ports, 'y')) %}{% for each in all %}{{ each.name }}{% endfor %}"
     "{% endfor %}", {"ports": ["network"], "name": ["each"]}),
    ("{% macro f(each) %}{{ each.macro.upper() }}{% endmacro %}{{ f(network.ports[0]) }}",
     {"macro": ["each"], "ports": ["network"]}),
])
def test_attributes_that_a_template_reads(text: str, found: dict[str, list[str]]):
    assert _found(text) == found


def test_an_object_of_unknown_class_is_refused():
    with pytest.raises(template_heads.Unexplained, match="nothing tells the class of other"):
        _found("{% macro f(other) %}{{ other.name }}{% endmacro %}")


def test_sentences_of_attributes():
    assert template_heads.attribute_sentence(Network, "name") == "a C identifier."
    assert template_heads.attribute_sentence(Network, "macro") == "the name in capitals."
    with pytest.raises(template_heads.Unexplained, match=r"Network .* does not explain parent"):
        template_heads.attribute_sentence(Network, "parent")


def test_a_head_of_a_context():
    text = (template_heads.CODEGEN / "bundle" / "firmware.c.j2").read_text(encoding="utf-8").partition("#}")[0]
    assert "   Variables, of FirmwareVariables (runtime/emulator/firmware.py):\n" in text
    assert f"     models: {template_heads.attribute_sentence(FirmwareVariables, 'models')}\n" in text
    assert f"     region.bytes: {template_heads.attribute_sentence(FirmwareRegion, 'bytes')}" in text
