# SPDX-License-Identifier: Apache-2.0
"""Pages of the site that are made from code: every verb and name has a place."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import tvm_megcc
from tvm_megcc.cli.options import command_line

ROOT = Path(__file__).resolve().parents[3]
SITE = runpy.run_path(str(ROOT / "docs" / "conf.py"))


def test_every_verb_has_its_options():
    page = SITE["options"]()
    found = {verb.prog: verb for verb in SITE["verbs"](command_line())}
    assert {"megcc compile", "megcc lm generate", "megcc list"} <= found.keys()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(found)
    for name, verb in found.items():
        part = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        missing = [flag for action in verb._actions for flag in action.option_strings
                   if flag not in part and "-h" not in action.option_strings and action.help != "==SUPPRESS=="]
        assert not missing, f"{name} lacks {missing}"


def test_the_page_of_the_command_has_every_verb():
    page = (ROOT / "docs" / "command.md").read_text()
    verbs = {name.split()[1] for name in (verb.prog for verb in SITE["verbs"](command_line()))}
    assert not [verb for verb in verbs if not re.search(rf"^\|.*`{verb}[ `]", page, re.MULTILINE)]


def test_help_is_no_markup():
    assert SITE["plain"]("a_b  [x] 5%%\n <n>") == r"a\_b \[x] 5% \<n>"


def test_the_page_of_the_python_api_has_every_name():
    page = (ROOT / "docs" / "python-api.md").read_text()
    assert not [name for name in tvm_megcc.__all__ if not name.startswith("__") and name not in page]


def test_the_options_page_has_the_place_for_them():
    assert (ROOT / "docs" / "options.md").read_text().count("<!-- verbs -->") == 1
