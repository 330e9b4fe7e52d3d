# SPDX-License-Identifier: Apache-2.0
"""$MEGCC_TEMPLATES: folders of templates that go before ours; and the compiled templates in the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tvm_megcc
from tvm_megcc import MegccError, paths
from tvm_megcc.codegen.c_source import render

OURS = paths.PACKAGE / "kernels" / "pool" / "window.c.j2"


def kernels(target: str = "c") -> dict[str, str]:
    sources = tvm_megcc.compile(paths.examples() / "digits.onnx", target).sources
    return {name: text for name, text in sources.items() if name.startswith("kernels/max_pool")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "pool").mkdir()
    monkeypatch.setenv("MEGCC_TEMPLATES", str(tmp_path))
    return tmp_path


def test_a_template_goes_before_ours_and_the_kernel_says_so(folder):
    before = kernels()
    (folder / "pool" / "window.c.j2").write_text("/* mine */\n" + OURS.read_text())
    after = kernels()
    assert before.keys() == after.keys() and before
    for name, text in after.items():
        assert " * template pool/window.c.j2 from MEGCC_TEMPLATES\n" in text and "/* mine */" in text
        assert before[name] == text.replace(" * template pool/window.c.j2 from MEGCC_TEMPLATES\n", "").replace(
            "/* mine */\n", "")


def test_an_edited_template_is_read_again(folder):
    mine = folder / "pool" / "window.c.j2"
    for number in range(2):
        mine.write_text(f"/* edition {number} */\n" + OURS.read_text())
        os.utime(mine, (number, number))
        assert all(f"/* edition {number} */" in text for text in kernels().values())


def test_one_for_an_isa_serves_the_levels_above_it(folder):
    (folder / "pool" / "window.sse2.c.j2").write_text("/* mine */\n" + OURS.read_text())
    assert not any("/* mine */" in text for target in ("c", "arm64") for text in kernels(target).values())
    assert all("/* mine */" in text for target in ("x86-64", "x86-64-v3") for text in kernels(target).values())


def test_the_first_of_several_folders_wins(folder, tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name / "pool").mkdir(parents=True)
        (tmp_path / name / "pool" / "window.c.j2").write_text(f"/* {name} */\n" + OURS.read_text())
    monkeypatch.setenv("MEGCC_TEMPLATES", os.pathsep.join(str(tmp_path / name) for name in ("first", "second")))
    assert all("/* first */" in text for text in kernels().values())


def test_a_folder_that_is_not_there(monkeypatch):
    monkeypatch.setenv("MEGCC_TEMPLATES", "/nowhere/templates")
    with pytest.raises(MegccError, match="MEGCC_TEMPLATES names /nowhere/templates, which is no folder"):
        kernels()


def no_home():
    raise RuntimeError("Could not determine home directory.")


def test_a_cache_of_compiled_templates_that_fails_costs_nothing(tmp_path, monkeypatch):
    """Missing, kept, damaged, a file where the folder should be, and no home at all."""
    def rendered() -> dict[str, str]:
        render._environment.cache_clear()
        return kernels()

    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    before = rendered()
    kept = sorted((tmp_path / "cache" / "templates").iterdir())
    assert before and kept
    for damage in (lambda data: data, lambda data: b"", lambda data: data[:20], lambda data: data[:60] + b"\0junk",
                   lambda data: data[:-9]):
        for path in kept:
            path.write_bytes(damage(path.read_bytes()))
        assert rendered() == before
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "file"))
    assert rendered() == before
    for name in ("MEGCC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert rendered() == before
    with pytest.raises(MegccError, match="set MEGCC_CACHE"):
        paths.cache()
