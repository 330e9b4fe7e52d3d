# SPDX-License-Identifier: Apache-2.0
"""`megcc program run` with sounds and pictures of files, and results that are text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.tools.test_media import wav
from tvm_megcc.cli import main
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Feature, Operator, State, Text

pytestmark = pytest.mark.slow
SAMPLES = (1000 * np.sin(np.arange(25))).round().astype(int)[:, None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Sums of blocks of ten samples so far; which of three words the picture's brightest channel is; log-mel of another
    sound, for its sample rate."""
    steps = [Operator("ReduceSum", ["sound", [0]], ["sum"], {"keepdims": 1}),
             Operator("Add", ["sum", "total"], ["so_far"]),
             Operator("Cast", ["frame"], ["real"], {"to": 1}),
             Operator("ReduceMean", ["real", [0, 1]], ["means"], {"keepdims": 0}),
             Operator("ArgMax", ["means"], ["brightest"], {"axis": 0, "keepdims": 1}),
             Text("labels", {"tokens": "brightest"}, {"text": "word"}, {"labels": ["red", "grün", "blau"]}),
             Feature("log_mel", "noise", "mel", {"sample_rate": 8000, "fft": 16, "mels": 4})]
    program = Program("files", {"sound": "float32[10]", "frame": "uint8[4,6,3]", "noise": "float32[64]"}, steps,
                      ["so_far", "word", "mel"], {"total": State("float32[1]", "so_far")}, {"sound": 16000})
    return program.compile(tmp_path_factory.mktemp("files") / "files")


def report(capsys, *arguments: str) -> dict:
    assert main(["program", "run", *arguments, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_sound_in_blocks_and_a_picture(folder: Path, tmp_path, capsys):
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (12, 8), (10, 200, 30)).save(tmp_path / "a.png")
    found = report(capsys, str(folder), "--wav", f"sound={wav(tmp_path / 'a.wav', SAMPLES, 2)}",
                   "--picture", str(tmp_path / "a.png"), "--outputs", str(tmp_path / "out.npz"))
    rows = {row["name"]: row for row in found["inputs"]}
    assert rows["sound"]["shape"] == [3, 10] and rows["sound"]["source"].endswith("a.wav, 0.00 s")
    assert rows["frame"]["source"].endswith("a.png") and rows["noise"]["source"] == "seed 0"
    assert next(row for row in found["outputs"] if row["name"] == "word")["texts"] == ["grün"] * 3
    sums = np.pad(SAMPLES[:, 0] / 2 ** 15, (0, 5)).reshape(3, 10).sum(1).cumsum()
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["so_far"][:, 0], sums, atol=1e-6)


def test_one_block(folder: Path, tmp_path, capsys):
    path = wav(tmp_path / "a.wav", SAMPLES[:7], 2)
    found = report(capsys, str(folder), "--wav", f"sound={path}", "--outputs", str(tmp_path / "out.npz"))
    assert next(row for row in found["inputs"] if row["name"] == "sound")["shape"] == [10]
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["so_far"], [SAMPLES[:7].sum() / 2 ** 15], atol=1e-6)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--wav", "FILE"], "the program has 2 inputs for a sound: sound, noise; write INPUT="),
    (["--wav", "sound=SLOW"], "8000 samples a second, but the program requires 16000"),
    (["--wav", "noise=FILE"], "16000 samples a second, but the program requires 8000"),
    (["--wav", "sound=FILE", "--sequence"], "--wav, --picture and --text go without --inputs and --sequence"),
    (["--wav", "sound=FILE", "--wav", "sound=FILE"], "two files are given for the input 'sound'")])
def test_what_is_refused(folder: Path, arguments: list[str], message: str, tmp_path, capsys):
    path, slow = str(wav(tmp_path / "a.wav", SAMPLES, 2)), str(wav(tmp_path / "b.wav", SAMPLES, 2, 8000))
    given = [each.replace("FILE", path).replace("SLOW", slow) for each in arguments]
    assert main(["program", "run", str(folder), *given]) == 1
    assert message in capsys.readouterr().err
