# SPDX-License-Identifier: Apache-2.0
"""The workflows of .github do what the Makefile and the scripts of the checkout can do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import check_workflows as check  # noqa: E402

GOOD = """
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with:
          persist-credentials: false
      - run: make check
"""


def test_ours_are_right():
    assert len(check.workflows()) == 5
    assert check.problems() == []


@pytest.mark.parametrize("title, command", check.tools(), ids=[title for title, _ in check.tools()])
def test_by_the_tools_of_others(title, command):
    if command is None:
        pytest.skip(f"no package for {title}")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("old, new, said", [
    ("", "", []),
    ("@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2", "@v6", ["not a commit", "checkout@v6"]),
    (" # v6.0.2", "", ["not a commit"]),
    ("    timeout-minutes: 5\n", "", ["no timeout-minutes"]),
    ("persist-credentials: false", "fetch-depth: 0", ["keeps its credentials"]),
    ("    runs-on", "    needs: two\n    runs-on", ["needs two"]),
    ("contents: read", "contents: write", ["top permissions"]),
])
def test_what_a_workflow_may_not_do(old, new, said):
    text = ("permissions:\n  contents: read\n" + GOOD).replace(old, new)
    assert all(part in "\n".join(check.structure("a", check.yaml.load(text, check.Loader), text)) for part in said)
    assert bool(check.structure("a", check.yaml.load(text, check.Loader), text)) == bool(said)


@pytest.mark.parametrize("script, wrong", [
    ("make check", False), ("make chekc", True),
    ("python scripts/release.py", False), ("python scripts/releases.py", True),
    ("megcc compile a.onnx", False), ("megcc compiel a.onnx", True),
    ("python -m pip install -e .[docs]", False), ("python -m pip install .[docks]", True),
    ("if true; then echo; fi", False), ("if true; then echo", True),
])
def test_what_a_command_names_is_there(script, wrong):
    assert bool(check.names("a/b", script)) == wrong


def test_every_variant_of_a_matrix_has_its_commands():
    job = {"strategy": {"matrix": {"a": ["1", "2"], "b": ["x", "y"]}},
           "steps": [{"run": "echo ${{ matrix.a }}${{ matrix.b }}"}]}
    assert [next(check.commands(job, variant)) for variant in check.variants(job)] == [
        "echo 1x", "echo 1y", "echo 2x", "echo 2y"]
    with pytest.raises(KeyError):
        next(check.commands({"steps": [{"run": "echo ${{ github.head_ref }}"}]}, {}))


def test_the_matrix_of_tvm_is_that_of_the_script():
    script = (ROOT / "scripts" / "test_tvm_releases.py").read_text()
    matrix = check.workflows()["tvm"]["jobs"]["relax"]["strategy"]["matrix"]
    assert matrix["release"] == re.findall(r'^    "([\d.]+)":', script, re.MULTILINE)


def test_the_citation_has_our_version():
    version = re.search(r'^VERSION = "(.+)"', (ROOT / "tvm_megcc" / "version.py").read_text(), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
