# SPDX-License-Identifier: Apache-2.0
"""What the documentation quotes is there: blocks headed by a file's name are its text, links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```\w+ (\S+/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def ids(path: Path) -> str:
    return path.name


def prose(page: Path) -> str:
    """A page, or the text cells of a notebook."""
    if page.suffix == ".md":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_quotes_are_found():
    """In the page on adding an operator at least: five blocks."""
    assert len(BLOCK.findall((ROOT / "docs" / "adding-an-operator.md").read_text())) >= 5


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_quoted_code_is_that_of_the_file(page):
    for name, block in BLOCK.findall(page.read_text()):
        assert block in (ROOT / name).read_text(), f"{page.name} quotes {name}, which has changed:\n{block}"


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "tutorials").glob("*.ipynb"))], ids=ids)
def test_links_lead_to_files(page):
    missing = [link for link in LINK.findall(prose(page)) if not (page.parent / link).exists()]
    assert not missing, f"{page.name} links to {', '.join(missing)}"
