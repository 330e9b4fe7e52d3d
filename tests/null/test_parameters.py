# SPDX-License-Identifier: Apache-2.0
"""What templates are told is typed: a dataclass for a template, whose fields are just the names that it uses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import jinja2.meta
import pytest

from tvm_megcc.codegen.render import environment
from tvm_megcc.kernels.conv2d.depthwise import DepthwiseParameters
from tvm_megcc.kernels.conv2d.direct import DirectParameters
from tvm_megcc.kernels.conv2d.geometry import WindowParameters
from tvm_megcc.kernels.conv2d.pixels import PixelParameters
from tvm_megcc.kernels.conv2d.winograd import WinogradParameters
from tvm_megcc.kernels.matmul.packed import PanelParameters, ScalarParameters
from tvm_megcc.kernels.parameters import Parameters
from tvm_megcc.paths import PACKAGE

TEMPLATES = {"conv2d/direct": DirectParameters, "conv2d/depthwise": DepthwiseParameters,
             "conv2d/pixels": PixelParameters, "conv2d/plain": WindowParameters, "conv2d/winograd": WinogradParameters,
             "matmul/panel": PanelParameters, "matmul/scalar": ScalarParameters}
#: What `codegen/render.py` tells every template.
GIVEN = {"entry", "isa", "ep", "known", "symbol"}
PLAIN = WindowParameters(3, 3, 1, 1, 1, 1, True)


def names_in(template: str) -> set[str]:
    """Names that a template, its overrides for an ISA and the templates that they import use."""
    found: set[str] = set()
    folder, name = template.split("/")
    pending = [f"{folder}/{path.name}" for path in (PACKAGE / "kernels" / folder).glob(f"{name}*.c.j2")]
    seen = set()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        text = environment().loader.get_source(environment(), path)[0]
        tree = environment().parse(text)
        found |= jinja2.meta.find_undeclared_variables(tree)
        pending += [other for other in jinja2.meta.find_referenced_templates(tree) if other]
    return found


@pytest.mark.parametrize("template", TEMPLATES)
def test_fields_are_what_the_template_uses(template):
    fields = set(TEMPLATES[template].__dataclass_fields__)
    used = names_in(template)
    assert fields <= used, f"no template uses {fields - used}"
    if not Path(PACKAGE / "kernels" / template.split("/")[0] / "tile.c.j2").exists():  # which is imported with context
        assert used <= fields | GIVEN


def test_values_have_their_types():
    with pytest.raises(TypeError, match=r"WindowParameters\.kh is '3', not of"):
        replace(PLAIN, kh="3")
    with pytest.raises(TypeError, match=r"WindowParameters\.kh is True"):
        replace(PLAIN, kh=True)
    with pytest.raises(FrozenInstanceError):
        PLAIN.kh = 5


def test_they_are_a_mapping_and_an_identity():
    assert dict(PLAIN) == {"kh": 3, "kw": 3, "sh": 1, "sw": 1, "dh": 1, "dw": 1, "bias": True}
    assert PLAIN == replace(PLAIN) and hash(PLAIN) == hash(replace(PLAIN)) and PLAIN != replace(PLAIN, bias=False)
    assert PLAIN.get("files", ()) == () and isinstance(PLAIN, Parameters)
