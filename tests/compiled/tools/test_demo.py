# SPDX-License-Identifier: Apache-2.0
"""`megcc demo`: what it prints, and how it ends."""

import json

import pytest

from tvm_megcc.cli import REFUSED, main
from tvm_megcc.runtime import toolchain
from tvm_megcc.tools import demo


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_digit_is_recognised(capsys, tmp_path):
    assert main(["demo", "--json", "-o", "folder"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["label"], report["answer"]) == (7, 7) and 0 <= report["error"] <= 1e-5
    assert (tmp_path / "folder" / "digits.megcc").stat().st_size == report["container_bytes"]
    said = demo.text(report)
    assert "here: a 7, the right answer" in said and "in folder, and try" in said


@pytest.mark.parametrize("wrong", [{"answer": 1}, {"error": 2e-4}, {"error": float("nan")}])
def test_a_wrong_answer_is_a_failure(wrong, monkeypatch, capsys):
    report = demo.demo("native", "folder") | wrong
    monkeypatch.setattr(demo, "demo", lambda *_: report)
    assert main(["demo"]) == REFUSED
    assert ("but it is a 7" in capsys.readouterr().out) == ("answer" in wrong)


def test_without_a_compiler_one_sentence_says_what_it_needs(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("MEGCC_CC", raising=False)
    monkeypatch.setattr(toolchain, "zig_command", lambda: ())
    monkeypatch.setattr(toolchain, "_version", toolchain._version.__wrapped__)  # which knows compilers found before
    assert main(["demo"]) == REFUSED
    assert capsys.readouterr().err == ("megcc: the demo needs a C compiler: install zig with 'pip install ziglang', or "
                                       "one of the system, such as gcc or clang\n")
    assert main(["demo", "--target", "cortex-m4"]) == REFUSED
    assert "arm-none-eabi-gcc" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_one_target(capsys):
    assert main(["demo", "--target", "native,arm64"]) == REFUSED
    assert "for one target" in capsys.readouterr().err
