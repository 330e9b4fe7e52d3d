# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --against`: figures, gaps and their reasons, and the processes that engines run in. Without a compiler
and with engines made up here; tests/compiled/tools/test_against.py has real ones."""

import json
import runpy
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.bench import against, against_report, peers
from tvm_megcc.tools.bench.against import Gone, Process

DIGITS = str(paths.examples() / "digits.onnx")


def found(*rounds: float, **others) -> dict:
    """What an engine measured."""
    return {"version": "1", "load": 0.01, "first": 0.0125, "bare": 10_000_000, "peak": 12_500_000, "held": True,
            "error": 1e-7, "rounds": list(rounds), "seconds": sorted(rounds)[len(rounds) // 2], "alone": True, **others}


def row(model: str, engines: dict, **absent: str) -> dict:
    return {"model": model, "macs": 2_500_000, "engines": engines, "absent": absent,
            **against_report.standing(engines)}


def report(*rows: dict) -> dict:
    return {"machine": "Some CPU", "target": "x86-64-v3", "optimize": "speed", "threads": 1, "rounds": 3,
            "engines": ["megcc", "openvino", "ncnn"], "rows": list(rows)}


FAST = row("fast", {"megcc": found(1e-3, 2e-3, 1e-3), "openvino": found(3e-3, 4e-3, 4e-3),
                    "ncnn": found(2e-3, 2e-3, 1.5e-3)})
GAP = row("gap", {"megcc": found(1e-3, 1e-3, 1e-3), "openvino": found(5e-4, 5e-4, 1e-3)}, ncnn="it does not load")


def test_speed_is_that_of_rounds_against_the_best_peer():
    assert FAST["best"] == "ncnn"
    assert FAST["speed"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert GAP["speed"]["median"] == 0.5
    assert against_report.mean_speed([FAST, GAP]) == pytest.approx(np.sqrt(0.75))
    assert against_report.mean_speed([]) is None


def test_no_speed_without_us_or_peers():
    assert against_report.standing({"ncnn": found(1.0)}) == {"best": "ncnn", "speed": None}
    assert against_report.standing({"megcc": found(1.0)}) == {"best": None, "speed": None}


def test_text():
    text = against_report.text(report(FAST, GAP))
    last = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith("  ")}
    lines = text.splitlines()
    assert lines[0] == "Some CPU, x86-64-v3, -O speed, 1 thread, 3 rounds"
    assert lines[5].split() == ["fast", "2.5", "1.00", "4.00", "2.00", "ncnn", "1.50", "(1.00", "to", "2.00)"]
    assert lines[6].split()[:5] == ["gap", "2.5", "1.00", "0.500", "openvino"], "a blank for who is absent"
    assert last["fast"][1:] == ["10.0", "/", "12.5"] * 3, "the last table: loading and the first result"
    assert "gap: no ncnn: it does not load" in lines
    assert "geometric mean of the speeds: 0.87" in lines


def test_remarks():
    free = row("free", {"megcc": found(1.0), "ncnn": found(1.0, held=False)})
    noisy = row("noisy", {"megcc": found(1.0, alone=False)})
    assert against_report.remarks(report(FAST)) == []
    assert "ncnn cannot be held to x86-64-v3" in against_report.remarks(report(free))[0]
    assert "no real-time class" in against_report.remarks(report(noisy))[0]


def test_json_has_everything():
    whole = report(FAST, GAP)
    assert against_report.text(json.loads(json.dumps(whole))) == against_report.text(whole)


def test_the_page_is_that_of_the_results():
    """`python benchmarks/performance.py` writes it again."""
    root = Path(__file__).resolve().parents[3]
    page = runpy.run_path(str(root / "benchmarks" / "performance.py"))["page"]
    assert (root / "docs" / "performance.md").read_text() == page()


def test_engines_by_name(tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text("")
    assert against.parse_engines("ncnn, tvm") == {"ncnn": "", "tvm": ""}
    assert against.parse_engines(f"own={own}") == {"own": str(own)}
    for wrong, said in (("onnx", ", ".join(peers.PEERS)), ("", "names no engine"), ("own=gone.py", "no file gone.py"),
                        (f"megcc={own}", "there is an engine of the name megcc already"), ("megcc", "no such engine")):
        with pytest.raises(MegccError, match=said):
            against.parse_engines(wrong)
    assert main(["bench", DIGITS, "--against", "onnx"]) == REFUSED
    assert "there are onnxruntime, openvino" in capsys.readouterr().err


def test_pythons(monkeypatch):
    engines = {"ncnn": "", "tvm": ""}
    assert set(against.parse_pythons([], engines).values()) == {sys.executable}
    monkeypatch.setenv("MEGCC_BENCH_PYTHON", "/bin/sh")
    assert against.parse_pythons([f"tvm={sys.executable}"], engines) == {
        "ncnn": "/bin/sh", "reference": "/bin/sh", "tvm": sys.executable}
    for wrong in ("mnn=/bin/sh", "/no/such/program", "/tmp"):
        with pytest.raises(MegccError, match="--python"):
            against.parse_pythons([wrong], engines)


@pytest.mark.parametrize("words, said", [
    ([DIGITS, "--processor", "9999"], "9999 to 9999; available are"), ([DIGITS, "--threads", "256"], "needs the"),
    ([DIGITS, "--constant", "x=1"], "leave out --constant"), ([DIGITS, "--rpc", "a:1"], "leave out --rpc"),
    ([DIGITS, DIGITS, "--inputs", "a.npz"], "those of one model"), (["model.pt2"], "does not exist")])
def test_what_cannot_be(words, said, capsys):
    assert main(["bench", *words, "--against", "ncnn"]) == REFUSED
    assert said in capsys.readouterr().err


def test_engines_and_modules_of_the_benchmarks(monkeypatch):
    folder = Path(__file__).parents[3] / "benchmarks"
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "peers", peers)
    assert "x86-64-v3" in peers.engine_class("openvino_avx2", str(folder / "openvino_avx2.py")).limits
    assert issubclass(peers.engine_class("one", str(folder / "one_thread.py")), peers.Megcc)
    monkeypatch.delitem(sys.modules, "peers")
    integers = runpy.run_path(str(folder / "integers.py"))
    assert callable(integers["peers"].undisturbed)


def test_one_model_without_peers(capsys):
    assert main(["bench", DIGITS, DIGITS]) == REFUSED
    assert "--against" in capsys.readouterr().err


def test_a_model_that_we_refuse_is_a_gap(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path))
    path = saved(model([node("Frobnicate", "x", "y")], {"x": [1, 4]}, {"y": [1, 4]}), tmp_path / "odd.onnx")
    assert main(["bench", path, "--against", "ncnn", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["rows"]
    assert list(only["absent"]) == ["megcc"] and only["engines"] == {} and only["speed"] is None
    assert "Frobnicate" in only["absent"]["megcc"], "the reason, not only how many there are"


def test_results_are_checked():
    right = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    assert against.checked(right, right)["relative"] == 0
    assert against.checked(np.moveaxis(right, 1, -1), right)["relative"] == 0, "channels last"
    assert against.checked(right + 0.23, right)["relative"] == pytest.approx(0.01)
    for wrong, said in ((right[..., :2], "12 elements, not 24"), (right + 5, r"max error 5 \(0.22 of 23\)"),
                        (right * np.nan, "24 NaN or infinite on one side only")):
        with pytest.raises(Gone, match=said):
            against.checked(wrong, right)


def test_errors_of_integers_are_shares():
    assert [against_report.error_text(found(1.0, **values)) for values in (
        {"error": None}, {"error": 1e-7}, {"error": None, "share": 0.012})] == ["", "1e-07", "1.2% differ"]


def test_models_of_one_name_are_told_apart():
    names = against.distinct_names([Path(text) for text in ("/m/a/net.onnx", "/m/b/net.onnx", "/m/b/other.onnx",
                                                            "/m/b/other.onnx", "/n/b/net.onnx")])
    assert names == ["a/net", "m/b/net", "other", "other (2)", "n/b/net"]
    assert against.distinct_names([Path("x.v1.onnx")]) == ["x.v1"]


def test_peers_get_known_extents_and_no_weights_as_inputs(tmp_path):
    path = tmp_path / "old.onnx"
    saved(model([node("Add", "x w", "y")], {"x": ["n", 4], "w": [4]}, {"y": ["n", 4]}, {"w": np.ones(4, np.float32)}),
          path)
    feeds = {"x": np.zeros((3, 4), np.float32)}
    made = against.with_static_inputs(path, onnx.load(path), feeds, tmp_path)
    (given,) = onnx.load(made).graph.input
    assert given.name == "x" and [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [3, 4]
    assert against.with_static_inputs(made, onnx.load(made), feeds, tmp_path) == made, "nothing to change"


#: Twice the input; what it converts lies in its folder; the input says how it fails.
OWN_ENGINE = """
import os, time
import peers

class Engine(peers.Engine):
    def convert(self, folder):
        print("noise of a converter")
        (folder / "made").write_text("once")

    def load(self):
        (value,) = self.inputs.values()
        if value[0] == 5:
            time.sleep(600)
        assert (self.folder / "made").read_text() == "once"
        if value[0] < 0:
            raise peers.Absent("negative numbers")
        if value[0] > 9:
            os.write(2, b"too large\\n")
            os._exit(7)

        def run():
            self.result = 2 * value
        return run

    def output(self):
        return self.result
"""


@pytest.fixture
def own(tmp_path):
    """A function that makes a job of the engine for a number."""
    (tmp_path / "own.py").write_text(OWN_ENGINE)

    def job(number: float) -> dict:
        np.savez(tmp_path / "inputs.npz", x=np.float32([number]))
        return {"engine": "own", "file": str(tmp_path / "own.py"), "inputs": str(tmp_path / "inputs.npz"), "level": "",
                "cache": str(tmp_path / "cache"), "processors": [], "threads": 1, "result": str(tmp_path / "out.npy")}
    return job


def test_an_engine_in_a_process(own, tmp_path):
    job = own(3)
    for first in (True, False):
        with closing(Process(sys.executable, "convert", job, tmp_path)) as process:
            assert (process.answer(60)["seconds"] > 0) == first, "a conversion is kept"
    with closing(Process(sys.executable, "measure", job, tmp_path)) as process:
        said = process.answer(60)
        assert 0 <= said["load"] <= said["first"] and said["held"]
        assert said["peak"] is None or said["peak"] >= said["bare"] > 0
        assert np.load(tmp_path / "out.npy") == 6
        assert 3 <= len(process.ask(0.001)["times"])


@pytest.mark.parametrize("number, reason", [(-1, "negative numbers"), (10, "status 7: too large")])
def test_why_an_engine_is_gone(own, tmp_path, number, reason):
    job = own(number)
    with closing(Process(sys.executable, "convert", job, tmp_path)) as process:
        process.answer(60)
    with closing(Process(sys.executable, "measure", job, tmp_path)) as process, pytest.raises(Gone, match=reason):
        process.answer(60)


def test_an_engine_that_does_not_answer(own, tmp_path):
    with closing(Process(sys.executable, "measure", own(5), tmp_path)) as process, \
            pytest.raises(Gone, match=r"no answer within 0\.2 s"):
        process.answer(0.2)


def test_an_engine_that_is_not_installed():
    class NotThere(peers.Engine):
        package = module = "no-such-engine"

    with pytest.raises(peers.Absent, match="pip install no-such-engine"):
        NotThere.installed(object.__new__(NotThere))
