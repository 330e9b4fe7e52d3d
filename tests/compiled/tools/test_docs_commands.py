# SPDX-License-Identifier: Apache-2.0
"""The commands and programs of README and docs do what the pages say, on small models of the names in them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests import docs_commands
from tests.docs_commands import BEFORE, LONG, PAGES, ROOT, commands, prepare, python_blocks, reason_not_to_run, words
from tvm_megcc.cli import main, parsed
from tvm_megcc.errors import MissingTool

#: Pages whose models are those of $MEGCC_MODELS (tests/models), or that are tested as a whole elsewhere.
ELSEWHERE = {"models.md", "performance.md", "adding-an-operator.md"}
RUN = [page for page in PAGES if page.name not in ELSEWHERE and any(
    not reason_not_to_run(command) for command in commands(page))]


def ids(page):
    return page.name


def test_pages_have_commands():
    assert len(RUN) > 15 and sum(len(commands(page)) for page in PAGES) > 90


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_are_understood(page, capsys):
    """By the command's own options; names in capitals are to be completed."""
    for command in commands(page):
        try:
            parsed(words(command))
        except SystemExit:
            pytest.fail(f"{page.name}: megcc {command}\n{capsys.readouterr().err}")


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "all"])
@pytest.mark.parametrize("page", RUN, ids=ids)
def test_commands_run(page, long, tmp_path, monkeypatch, capsys):
    """In their order, in one folder. What needs a tool that is not here, or is tested elsewhere, is left out."""
    monkeypatch.chdir(tmp_path)
    done, missing = 0, []
    for command in (*BEFORE.get(page.name, ()), *commands(page)):
        if reason_not_to_run(command) or (LONG.search(command) and not long):
            continue
        prepare(command, tmp_path)
        options = parsed(words(command))
        try:
            code = options.run(options)
        except MissingTool as tool:
            missing.append(str(tool))
            continue
        assert not code, f"{page.name}: megcc {command}\n{capsys.readouterr().out}"
        done += 1
    if missing and not done:
        pytest.skip(missing[0])


#: Page, how a program of it begins, and the commands whose models it runs on.
PROGRAMS = [("README.md", "import tvm_megcc\n", ["compile model.onnx"]),
            ("docs/command.md", "import tvm_megcc\n", ["compare model.onnx"]),
            ("docs/dynamic-shapes.md", "tvm_megcc.compile(", ["compile detector.onnx"]),
            ("docs/streaming.md", "artifact = ", ["compile dtln_stage1.onnx"]),
            pytest.param("docs/streaming.md", "session = tvm_megcc.load(\"decoder", [], marks=pytest.mark.long)]


@pytest.mark.slow
def test_the_program_inside_tvm_runs(tmp_path, monkeypatch):
    """That of README, on what TVM's importer makes of the first model."""
    pytest.importorskip("tvm.relax")
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.onnx import from_onnx

    monkeypatch.chdir(tmp_path)
    (program,) = (block for block in python_blocks(ROOT / "README.md") if block.startswith("import tvm, tvm_megcc"))
    mod, params = detach_params(from_onnx(docs_commands.image(), keep_params_in_input=True))
    names: dict = {"mod": mod, "params": params}
    exec(compile(program, "README.md", "exec"), names)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    result = names["vm"]["main"](names["tvm"].runtime.tensor(x)).numpy()
    wanted = tvm_megcc.load(tvm_megcc.compile(docs_commands.image()))(x)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_program_that_looks_into_values_runs(monkeypatch):
    """That of the page on wrong outputs, on the network it is about."""
    folder = os.environ.get("MEGCC_MODELS")
    path = Path(folder or "", "resnet8_cifar10_f32", "model.onnx")
    if not folder or not path.exists():
        pytest.skip("$MEGCC_MODELS has no resnet8_cifar10_f32")
    (program,) = (block for block in python_blocks(ROOT / "docs/debugging.md") if "keep=[" in block)
    names: dict = {}
    exec(compile(program.replace("resnet8.onnx", str(path)), "docs/debugging.md", "exec"), names)
    np.testing.assert_allclose(names["values"]["model/average_pooling2d/AvgPool"], names["own"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("page, begin, needs", PROGRAMS, ids=lambda value: str(value)[:12])
def test_programs_run(page, begin, needs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = (block for block in python_blocks(ROOT / page) if block.startswith(begin))
    for command in needs:
        prepare(command, tmp_path)
    if "decoder" in begin:
        (command,) = (each for each in commands(ROOT / page) if "--name decoder" in each)
        prepare(command, tmp_path)
        assert main(words(f"{command} --target native")) == 0
    x = np.zeros((1, 3, 8, 8), np.float32)
    names = {"tvm_megcc": tvm_megcc, "np": np, "x": x, "prompt": np.int64([[1, 2, 3]]),
             "spectra": np.zeros((3, 1, 1, 257), np.float32), "begin": np.ones((1, 1, 257), np.float32)}
    exec(compile(program.replace("native,arm64", "native"), page, "exec"), names)


def test_models_are_made(tmp_path):
    """Each that a row has is asked for by some command."""
    for page in PAGES:
        for command in commands(page):
            prepare(command, tmp_path)
    for name, _, _ in docs_commands.MODELS:
        assert (tmp_path / name).exists(), name
