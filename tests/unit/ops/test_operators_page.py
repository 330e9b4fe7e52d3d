# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md is what its command prints."""

from pathlib import Path

import onnx
import pytest

from tvm_megcc.frontends.onnx.importer import _importers
from tvm_megcc.frontends.onnx.refused import REFUSED
from tvm_megcc.tools.report.operators import markdown

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def test_the_page_is_current():
    text = PAGE.read_text()
    if f"with onnx {onnx.__version__}." not in text:
        pytest.skip("the page lists the operator sets of another version of onnx")
    assert text == markdown(), "write it again: python -m tvm_megcc.tools.report.operators > docs/operators.md"


def test_what_is_refused_for_a_reason_has_no_importer():
    assert not set(REFUSED) & set(_importers())
    assert all(onnx.defs.has(*reversed(name.split("::"))) for name in REFUSED)
