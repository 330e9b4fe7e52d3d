#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the notebook of a script in the form of sphinx-gallery: its texts become Markdown, its code cells.

    python3 scripts/notebook_of.py SCRIPT NOTEBOOK
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

#: Character that underlines a heading -> the heading's prefix in Markdown.
LEVELS = {"=": "#", "-": "##", "~": "###"}


def markdown(text: str) -> str:
    """reStructuredText as such scripts have it (headings, literals, bold, blocks of code) as Markdown."""
    text = re.sub(r"^(.+)\n([=~-])\2{2,}$", lambda found: f"{LEVELS[found[2]]} {found[1]}", text, flags=re.MULTILINE)
    text = re.sub(r"``(.+?)``", r"`\1`", text)

    def block(found: re.Match) -> str:
        body = re.sub(r"^ {4}", "", found[2].strip("\n"), flags=re.MULTILINE)
        return f"```{found[1]}\n{body}\n```"

    return re.sub(r"^\.\. code-block:: (\w+)\n\n((?: {4}.*\n?|\n)+)", block, text, flags=re.MULTILINE).strip()


def cells(script: str) -> list[tuple[str, str]]:
    """("markdown" or "code", text) of a script, in order."""
    module = ast.parse(script)
    found = [("markdown", markdown(ast.get_docstring(module) or ""))]
    rest = "\n".join(script.split("\n")[module.body[0].end_lineno or 0:])
    first, *parts = re.split(r"^# %%\n", rest, flags=re.MULTILINE)
    found.append(("code", first.strip("\n")))
    for part in parts:
        lines = part.split("\n")
        count = next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
        found.append(("markdown", markdown("\n".join(line[2:] for line in lines[:count]))))
        found.append(("code", re.sub(r"  # noqa: E402$", "", "\n".join(lines[count:]).strip("\n"), flags=re.MULTILINE)))
    return [(kind, text) for kind, text in found if text]


def notebook(script: str) -> str:
    """The notebook as JSON; the same script gives the same bytes."""
    made = []
    for number, (kind, text) in enumerate(cells(script)):
        code = {"execution_count": None, "outputs": []} if kind == "code" else {}
        made.append({"cell_type": kind, "id": f"cell-{number}", "metadata": {}, **code,
                     "source": text.splitlines(keepends=True)})
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"}}
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1,
                      ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(notebook(Path(sys.argv[1]).read_text("utf-8")), "utf-8")
