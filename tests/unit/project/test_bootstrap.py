# SPDX-License-Identifier: Apache-2.0
"""What `make demo` and `make setup-all` install, and that they say so before they do. Nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import bootstrap  # noqa: E402

APT = ("Reading package lists...\n0 upgraded, 2 newly installed, 0 to remove and 1 not upgraded.\n"
       "Need to get 30.9 kB of archives.\nAfter this operation, 198 kB of additional disk space will be used.\n"
       "'http://a' a\n")


def events(monkeypatch, tmp_path, *arguments: str, there: tuple[str, ...] = (), root: bool = True) -> list[str]:
    """What it says ("say: …") and runs, in order, on a machine with these commands."""
    found: list[str] = []

    def run(*command: str, check: bool = True, quiet: bool = False) -> bool:
        found.append(" ".join(command))
        return True

    def output(command, **_):
        found.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, APT, "")

    monkeypatch.setattr(bootstrap, "run", run)
    monkeypatch.setattr(bootstrap, "say", lambda text: found.append(f"say: {text}"))
    monkeypatch.setattr(bootstrap.subprocess, "run", output)
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/bin/{name}" if name in there else None)
    monkeypatch.setattr(bootstrap.os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("DEBIAN_FRONTEND", "noninteractive")
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", str(tmp_path / "venv"), *arguments])
    monkeypatch.chdir(tmp_path)
    bootstrap.main()
    return found


def test_the_demo_takes_this_package_and_nothing_of_the_system(monkeypatch, tmp_path):
    found = events(monkeypatch, tmp_path, there=("cc", "apt-get"))
    assert found[0].startswith("say: will install this package (") and "MB" in found[0]
    (install,) = [line for line in found if "pip install" in line]
    assert install.endswith(f"-e {ROOT}")
    assert not any("apt-get" in line for line in found)


def test_the_demo_takes_zig_where_there_is_no_compiler(monkeypatch, tmp_path):
    *_, said, installed = events(monkeypatch, tmp_path, there=("apt-get",))
    assert said.startswith("say: no C compiler: will install ziglang") and "MB" in said
    assert installed.endswith("pip install -q ziglang")


def test_everything_of_the_system_is_named_with_its_size_before_it_comes(monkeypatch, tmp_path):
    found = events(monkeypatch, tmp_path, "--all", there=("cc", "apt-get"))
    assert "test requirements" in found[0] and "browser" in found[0] and "GB" in found[0]
    said = next(place for place, line in enumerate(found) if "packages of the system" in line)
    assert "chromium" in found[said] and "gcc-arm-none-eabi" in found[said]
    assert found[said].endswith("; 0 upgraded, 2 newly installed, 0 to remove and 1 not upgraded.; Need to get 30.9 kB "
                                "of archives.; After this operation, 198 kB of additional disk space will be used.")
    assert not any("apt-get install" in line and "--print-uris" not in line for line in found[:said])
    assert "apt-get install" in found[said + 1] and "chromium" in found[said + 1]


def test_without_rights_nothing_of_the_system_is_touched(monkeypatch, tmp_path):
    found = events(monkeypatch, tmp_path, "--all", there=("cc", "apt-get"), root=False)
    assert not any(line.startswith("apt-get") for line in found)
    assert any("no chromium" in line for line in found)


@pytest.mark.parametrize("arguments", [(), ("--all",), ("venv", "--everything")])
def test_wrong_usage(arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", *arguments])
    with pytest.raises(SystemExit, match="usage: bootstrap"):
        bootstrap.main()


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize("goal, everything", [("demo", False), ("test", True), ("check", True), ("setup-all", True)])
def test_what_each_goal_sets_up(goal, everything, tmp_path):
    for name in ("Makefile", "pyproject.toml", "setup.py", "scripts/bootstrap.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    planned = subprocess.run(["make", "-n", goal], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert f"bootstrap.py .venv{' --all' if everything else ''}\n" in planned
    for name in ("small", "ready"):
        (tmp_path / ".venv").mkdir(exist_ok=True)
        (tmp_path / ".venv" / name).touch()
    planned = subprocess.run(["make", "-n", goal], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "bootstrap" not in planned
