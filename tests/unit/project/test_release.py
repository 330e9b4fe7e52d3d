# SPDX-License-Identifier: Apache-2.0
"""What scripts/release.py refuses, and that archives do not depend on who builds them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import release  # noqa: E402


def archive(mode: int, text: bytes = b"1") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as members:
        row = tarfile.TarInfo("a/b.py")
        row.mode, row.size = mode, len(text)
        members.addfile(row, io.BytesIO(text))
    return file.getvalue()


def test_equal_archives_pass(tmp_path, capsys):
    same = archive(0o644)
    release.compare({"a.tar.gz": same}, {"a.tar.gz": same}, tmp_path)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("other", [archive(0o600), archive(0o644, b"2")], ids=["mode", "content"])
def test_archives_that_differ_are_named_with_their_members(other, tmp_path, capsys):
    with pytest.raises(SystemExit, match="not equal"):
        release.compare({"a.tar.gz": archive(0o644)}, {"a.tar.gz": other}, tmp_path)
    assert "a.tar.gz differs: a/b.py" in capsys.readouterr().out


def test_a_version_needs_a_section_in_the_changelog():
    assert release.changes(None)
    with pytest.raises(SystemExit, match=r"no section '## 99\.0\.0'"):
        release.changes("99.0.0")


def test_a_version_that_the_sources_do_not_have_is_refused():
    with pytest.raises(SystemExit, match=f"says {release.stated()}, not 99.0.0"):
        release.main("99.0.0")


@pytest.mark.long
def test_two_builds_are_equal(tmp_path):
    if not (ROOT / ".git").exists() or not find_spec("build"):
        pytest.skip("no repository of git, or no package `build`")
    one, other = (release.build(tmp_path / where, umask, environment, "1700000000")
                  for where, umask, environment in release.BUILDS)
    release.compare(one, other, tmp_path)
    assert {name.partition("-")[0] for name in one} == {"tvm_megcc"} and len(one) == 2


def test_files_for_a_release_are_licensed():
    if not find_spec("reuse"):
        pytest.skip("no package `reuse`")
    done = subprocess.run([sys.executable, "-m", "reuse", "lint", "--lines"], cwd=ROOT, capture_output=True, text=True,
                          check=False, env=os.environ)
    assert not done.returncode, done.stdout


def test_the_wheel_and_the_sources_have_what_is_no_python():
    """Each file of the package beside its modules is named by a pattern of setup.py, and by a line of MANIFEST.in."""
    listed = re.search(r'package_data=\{"tvm_megcc": \[([^{}]*)\]\}', (ROOT / "setup.py").read_text())[1]
    patterns = re.findall(r'"([^"]+)"', listed)
    package = ROOT / "tvm_megcc"
    named = {path for pattern in patterns for path in package.glob(pattern)}
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    sources = {path for kind, folder, *globs in (line for line in lines if len(line) > 1) if kind in (
        "graft", "recursive-include") for glob in globs or ["*"] for path in (ROOT / folder).rglob(glob)}
    sources |= {ROOT / name for kind, *names in (line for line in lines if line) if kind == "include" for name in names}
    found = [path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".so")
             and not {"__pycache__", "_data"} & set(path.parts)]
    assert len(found) > 200
    assert not sorted(set(found) - named), "setup.py"
    assert not sorted(set(found) - sources), "MANIFEST.in"
