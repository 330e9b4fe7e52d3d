# SPDX-License-Identifier: Apache-2.0
"""What the documentation quotes is there: blocks headed by a file's name are its text, links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```\w+ (\S+/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))
#: File and heading of a link that is no address.
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


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


def anchors(page: Path) -> set[str]:
    """The headings of a page as a code host writes them in addresses."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", prose(page)), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(next(name for name in (slug, *(f"{slug}-{n}" for n in range(1, 100))) if name not in found))
    return found


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=ids)
def test_links_lead_to_files_and_headings(page):
    wrong = []
    for file, anchor in LINK.findall(FENCED.sub("", prose(page))):
        aim = page.parent / file if file else page
        if not aim.exists() or (anchor and anchor not in anchors(aim)):
            wrong.append(f"{file}#{anchor}" if anchor else file)
    assert not wrong, f"{page.name} links to {', '.join(wrong)}"


def test_the_c_api_page_has_every_switch():
    header = (ROOT / "c_runtime" / "include" / "megcc.h").read_text()
    switches = set(re.findall(r"\bMEGCC_NO_[A-Z_]+|MEGCC_TRUSTED_DATA", header))
    page = (ROOT / "docs" / "c-api.md").read_text()
    assert len(switches) > 5 and not [switch for switch in switches if f"| `{switch}` |" not in page]


def test_the_c_api_page_has_every_prototype():
    def flat(text: str) -> str:
        return " ".join(text.split())

    header = (ROOT / "c_runtime" / "include" / "megcc.h").read_text()
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)
    page = (ROOT / "docs" / "c-api.md").read_text()
    declared = re.findall(r"^(?!static|typedef|#)[\w ]+[ *]megcc_\w+\([^;{]*\);", header, re.MULTILINE)
    assert len(declared) > 20
    for prototype in declared:
        if "megcc_model_open_version" not in prototype:
            assert flat(prototype) in flat(page), f"docs/c-api.md lacks {flat(prototype)}"
    for status in re.findall(r"\bMEGCC_E_\w+", header):
        assert f"`{status}`" in page, status


def test_anchors_are_those_of_code_hosts(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `code` heading, with_marks!\n## Twice\n```sh\n# no heading\n```\n## Twice\n")
    assert anchors(page) == {"a-code-heading-with_marks", "twice", "twice-1"}


def test_every_page_is_on_the_site():
    """And once."""
    text = (ROOT / "docs" / "conf.py").read_text()
    for page in [*PAGES, *NOTEBOOKS]:
        if page.name != "README.md":
            assert text.count(f'"{page.stem}"') + text.count(f'"docs/{page.stem}"') == 1, f"docs/conf.py: {page.name}"


def test_the_site_is_built_without_a_warning(tmp_path):
    for needed in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(needed)
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs", "-d",
                    tmp_path / "doctrees", ROOT, tmp_path / "site"], check=True)
    index = (tmp_path / "site" / "index.html").read_text()
    assert 'href="docs/command.html"' in index, "the links of README.md lead to pages of the site"
    for page in PAGES:
        assert (tmp_path / "site" / page.relative_to(ROOT).with_suffix(".html")).exists(), page.name
