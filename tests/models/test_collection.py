# SPDX-License-Identifier: Apache-2.0
"""Small models that others published: what the list says of each, and that the list finds what it should."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import onnx
import pytest

from tests.onnx_models import model, node

from .collection import Row, read
from .collection.outcomes import CRASH, DIFFERENT, ENDLESS, NOTHING, REFUSED, RIGHT, outcome
from .collection.sources import Absent, Sources

ROWS = read()


@pytest.fixture(scope="module")
def sources():
    return Sources()


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=[row.label for row in ROWS])
def test_compiled_or_refused_as_the_list_says(row, sources):
    """Up to the C, which is not compiled: `make models` compiles it and compares the results."""
    try:
        file = sources.file(row)
    except Absent as reason:
        pytest.skip(f"{row.source}: {reason}")
    found = outcome(row, file, sources.objects, plan=True)
    assert found.as_expected(row), found


def test_the_list_is_long_and_of_many_kinds():
    assert len(ROWS) >= 200
    assert len({row.source for row in ROWS}) >= 20
    assert {"pypi", "npm", "github"} == {row.source.partition(":")[0] for row in ROWS}
    assert {".onnx", ".tflite"} == {Path(row.path).suffix for row in ROWS}


@pytest.mark.parametrize("change, message", [
    ({"sha256": "12"}, "no SHA-256"), ({"refused": "no kernel"}, "a message and a reason"),
    ({"compare": ["--tolerance", "1"]}, "needs a note"), ({"path": "b.onnx"}, "same file twice")])
def test_rows_are_checked(change, message, tmp_path):
    row = {"path": "a.onnx", "sha256": "0" * 64}
    (tmp_path / "list.json").write_text(json.dumps({"npm:a@1": [row, row | change]}))
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "list.json")


def test_a_source_without_a_version_is_refused(tmp_path):
    (tmp_path / "list.json").write_text('{"github:a/b@main": [{"path": "a.onnx", "sha256": "' + "0" * 64 + '"}]}')
    with pytest.raises(ValueError, match="fixed to a version"):
        read(tmp_path / "list.json")


@pytest.fixture
def repository(tmp_path):
    """(folder with a repository a/b, its commit) with the file m/x.onnx, which is no longer in the work tree."""
    at = tmp_path / "repositories" / "a" / "b"
    (at / "m").mkdir(parents=True)
    (at / "m" / "x.onnx").write_bytes(b"bytes")
    git = ["git", "-C", str(at), "-c", "user.name=a", "-c", "user.email=a"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "a"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (at / "m" / "x.onnx").unlink()
    return at.parents[1], commit


def row_of(commit: str, path: str = "m/x.onnx", data: bytes = b"bytes") -> Row:
    return Row(f"github:a/b@{commit}", path, hashlib.sha256(data).hexdigest())


def test_files_of_a_repository(repository, tmp_path):
    folder, commit = repository
    found = Sources(tmp_path / "cache", folder).file(row_of(commit))
    assert found.name == "x.onnx" and found.read_bytes() == b"bytes"
    assert Sources(tmp_path / "cache").file(row_of(commit)) == found  # it is kept


def test_another_file_than_the_listed_is_not_taken(repository, tmp_path):
    folder, commit = repository
    with pytest.raises(Absent, match="SHA-256 is not the list's"):
        Sources(tmp_path / "cache", folder).file(row_of(commit, data=b"others"))
    assert not list((tmp_path / "cache").rglob("*.onnx"))


def test_what_is_not_there_is_said(repository, tmp_path):
    folder, commit = repository
    with pytest.raises(Absent, match=r"does not exist|not in"):
        Sources(tmp_path / "cache", folder).file(row_of(commit, "m/y.onnx"))
    with pytest.raises(Absent, match="--github, or give --clone"):
        Sources(tmp_path / "cache").file(row_of(commit))


def test_one_absent_file_does_not_hide_the_others_of_its_source(repository, tmp_path):
    folder, commit = repository
    sources = Sources(tmp_path / "cache", folder)
    with pytest.raises(Absent):
        sources.file(row_of(commit, "m/y.onnx"))
    assert sources.file(row_of(commit)).read_bytes() == b"bytes"


def saved(graph: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(graph, folder / "m.onnx")
    return folder / "m.onnx"


def of(file: Path, plan: bool = False, seconds: float = 120, **row):
    row = Row("npm:a@1", file.name, "", **row)
    found = outcome(row, file, file.parent / "objects", plan, seconds)
    return found.verdict, found.as_expected(row)


@pytest.mark.slow
def test_verdicts_of_a_comparison(tmp_path):
    file = saved(model([node("Exp", "x", "y")], {"x": (3,)}, {"y": (3,)}), tmp_path)
    assert of(file) == (RIGHT, True)
    assert of(file, refused="no kernel", why="it is odd") == (RIGHT, False)
    assert of(file, compare=("--tolerance", "0")) in ((DIFFERENT, False), (RIGHT, True))
    assert of(file, compare=("--value", "x=0")) == (NOTHING, False)


def test_verdicts_of_a_plan(tmp_path):
    file = saved(model([node("Exp", "x", "y")], {"x": ("n",)}, {"y": ("n",)}), tmp_path)
    assert of(file, plan=True, options=("--dim", "n=3")) == (RIGHT, True)
    assert of(file, plan=True) == (REFUSED, False)
    assert of(file, plan=True, refused="the dimension n is not known", why="it is odd") == (REFUSED, True)
    assert of(file, plan=True, refused="something else", why="it is odd") == (REFUSED, False)
    assert of(file, plan=True, options=("--no-such-option",)) == (CRASH, False)
    assert of(file, plan=True, seconds=0.01) == (ENDLESS, False)
