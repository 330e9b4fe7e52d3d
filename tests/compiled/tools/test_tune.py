# SPDX-License-Identifier: Apache-2.0
"""Tuning on this machine: what is measured, what the log is, what it makes of a compile. No test looks at a time."""

from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.kernels.base import Operand
from tvm_megcc.kernels.conv2d.plain import PlainConv
from tvm_megcc.ops.nn.conv import Conv2d
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference, timing, tuner
from tvm_megcc.runtime.candidates import calls_of
from tvm_megcc.runtime.toolchain import runs_here
from tvm_megcc.runtime.tuner import tune
from tvm_megcc.target import TARGETS, native
from tvm_megcc.tuning_log import Measured, Row, TuningLog

SHAPE = (1, 8, 9, 10)
#: Candidates of a call that these tests measure: enough for a choice, few to compile.
TRIALS = 3
MODELS = Path(os.environ.get("MEGCC_MODELS", "-"))


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """Compiled candidates are kept for the tests of this file."""
    before = os.environ.get("MEGCC_CACHE")
    os.environ["MEGCC_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("MEGCC_CACHE")
    if before is not None:
        os.environ["MEGCC_CACHE"] = before


def write_model(path: Path) -> Path:
    """One convolution with a ReLU."""
    generator = np.random.default_rng(0)
    weights = {name: generator.standard_normal(shape).astype(np.float32)
               for name, shape in (("w", (16, 8, 3, 3)), ("b", (16,)))}
    nodes = [node("Conv", "x w b", "h", "conv", pads=[1, 1, 1, 1]), node("Relu", "h", "y", "relu")]
    saved(model(nodes, {"x": SHAPE}, {"y": (1, 16, 9, 10)}, weights, opset=13), path)
    return path


@pytest.fixture
def slow_default(monkeypatch):
    """The cost model takes the slowest kernel for the best."""
    monkeypatch.setattr(PlainConv, "cost", lambda self, site: 1.0)


def plant(monkeypatch, *kernels) -> None:
    """Gives convolutions further kernels."""
    monkeypatch.setattr(Conv2d, "kernels", (*Conv2d.kernels, *kernels))


def kernels_of(artifact) -> list[str]:
    return [call["kernel"] for call in artifact.manifest["programs"][0]["calls"]]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(model, log, summary) of a tuning whose cost model is upside down."""
    folder = tmp_path_factory.mktemp("tuned")
    model = write_model(folder / "net.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainConv, "cost", lambda self, site: 1.0)
        summary = tune([import_onnx(model)], native(), folder / "tune.jsonl", trials=TRIALS)
    return model, folder / "tune.jsonl", summary


def test_every_candidate_is_in_the_log(tuned):
    _, log, summary = tuned
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(rows) == summary.measured == summary.candidates and not summary.failed
    convolutions = [row for row in rows if row["call"].startswith("conv2d(")]
    assert len(convolutions) == TRIALS and len({row["kernel"] for row in convolutions}) > 1
    assert any(row["call"].startswith("relayout(") for row in rows)
    assert all(row["network_bytes"] == 4 * (16 * 8 * 9 + 16) for row in rows)
    assert all(row["ns"] > 0 and row["target"] == native().name and row["device"] == "local" for row in rows)


@pytest.mark.slow
def test_a_slow_default_is_replaced(tuned, slow_default, tmp_path):
    model, log, _ = tuned
    default, chosen = tvm_megcc.compile(model), tvm_megcc.compile(model, log=log)
    assert any("__plain_" in kernel for kernel in kernels_of(default))
    assert not any("__plain_" in kernel for kernel in kernels_of(chosen))
    session = tvm_megcc.load(chosen.save(tmp_path / "out"))
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    expected = reference.run(import_onnx(model), {"x": x})["y"]
    assert np.abs(session.run({"x": x})["y"] - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_same_log_gives_the_same_bytes(tuned, slow_default, tmp_path):
    model, log, _ = tuned
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_text("".join(sorted(log.read_text().splitlines(keepends=True), reverse=True)))
    first, second = (tvm_megcc.compile(model, log=path) for path in (log, shuffled))
    assert first == second
    assert first.manifest["options"]["log"] and "log" not in tvm_megcc.compile(model).manifest["options"]


def test_what_the_log_has_is_not_measured_again(tuned, slow_default, tmp_path):
    model, log, summary = tuned
    copy = Path(shutil.copy(log, tmp_path))
    again = tune([import_onnx(model)], native(), copy, trials=TRIALS)
    assert again.measured == 0 and again.known == summary.candidates
    assert copy.read_bytes() == log.read_bytes()
    lines = copy.read_text().splitlines(keepends=True)
    copy.write_text("".join(lines[:-1]))
    rest = tune([import_onnx(model)], native(), copy, trials=TRIALS)
    assert (rest.measured, rest.known) == (1, summary.candidates - 1)
    assert TuningLog.read(copy).rows.keys() == TuningLog.read(log).rows.keys()


@pytest.mark.slow
def test_changed_code_is_measured_again(tuned, slow_default, tmp_path):
    model, log, _ = tuned
    lines = log.read_text().splitlines(keepends=True)
    row = json.loads(lines[0])
    stale = tmp_path / "stale.jsonl"
    stale.write_text("".join([json.dumps({**row, "code": "0" * 12}) + "\n", *lines[1:]]))
    assert tune([import_onnx(model)], native(), stale, trials=TRIALS).measured == 1
    last = json.loads(stale.read_text().splitlines()[-1])
    assert last["code"] == row["code"] and last["layouts"] == row["layouts"]


def test_times_of_weights_in_the_caches_are_measured_again(tuned, slow_default, tmp_path):
    """Logs from before weights were as far away as in a network do not say so; a compile takes them as they are."""
    model, log, _ = tuned
    lines = log.read_text().splitlines(keepends=True)
    row = json.loads(lines[0])
    del row["network_bytes"]
    older = tmp_path / "older.jsonl"
    older.write_text("".join([json.dumps(row) + "\n", *lines[1:]]))
    assert kernels_of(tvm_megcc.compile(model, log=older)) == kernels_of(tvm_megcc.compile(model, log=log))
    assert tune([import_onnx(model)], native(), older, trials=TRIALS).measured == 1
    assert tune([import_onnx(model)], native(), older, trials=TRIALS).measured == 0


@pytest.mark.parametrize("line, reason", [
    ("{broken", "no JSON"), ("[]", "not a JSON object"), ('{"format": 9}', "format is not"),
    ('{"format": 1, "target": "c"}', "'optimize' is missing"), ("NS", "'ns' is no time"), ("MORE", "unknown field"),
    ("BYTES", "'network_bytes' is no number of bytes")])
def test_a_corrupt_line_is_named(tuned, tmp_path, line, reason):
    model, log, _ = tuned
    lines = log.read_text().splitlines()
    row = json.loads(lines[0])
    changed = {"NS": {"ns": -1}, "MORE": {"colour": "red"}, "BYTES": {"network_bytes": -1}}
    line = json.dumps({**row, **changed[line]}) if line in changed else line
    corrupt = tmp_path / "corrupt.jsonl"
    corrupt.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n")
    before = corrupt.read_bytes()
    for use in (lambda: tvm_megcc.compile(model, log=corrupt), lambda: tune([import_onnx(model)], native(), corrupt)):
        with pytest.raises(MegccError, match=rf"corrupt\.jsonl:2: .*{reason}"):
            use()
    assert corrupt.read_bytes() == before


def test_a_line_cut_short_at_the_end_is_ignored(tuned, slow_default, tmp_path):
    """As a killed process leaves it; the next tuning goes on behind the last whole line."""
    model, log, summary = tuned
    cut = tmp_path / "cut.jsonl"
    cut.write_text(log.read_text()[:-30])
    with pytest.warns(UserWarning, match=rf"cut\.jsonl:{summary.measured}: .*cut short"):
        assert len(TuningLog.read(cut)) == summary.measured - 1
    with pytest.warns(UserWarning, match="cut short"):
        assert tune([import_onnx(model)], native(), cut, trials=TRIALS).measured == 1
    assert len(TuningLog.read(cut)) == summary.measured


def test_a_log_that_is_not_there(tuned, tmp_path):
    with pytest.raises(MegccError, match=r"cannot read the tuning log .*none\.jsonl"):
        tvm_megcc.compile(tuned[0], log=tmp_path / "none.jsonl")


class WrongConv(PlainConv):
    """Forgets the bias."""

    name = "wrong"

    def lower(self, site):
        lowered = super().lower(site)
        return replace(lowered, params=replace(lowered.params, bias=False),
                       inputs=lowered.inputs[:2], operation="wrong")

    def cost(self, site):
        return 0.5


class OverrunningConv(PlainConv):
    """Writes more than it says."""

    name = "overrun"

    def lower(self, site):
        return replace(super().lower(site), outputs=(Operand("y", 0, 4),), operation="overrun")

    def cost(self, site):
        return 0.5


@pytest.mark.parametrize("kernel, error", [(WrongConv(), "wrong result"), (OverrunningConv(), "")])
def test_a_wrong_kernel_is_never_chosen(monkeypatch, tmp_path, kernel, error):
    model, log = write_model(tmp_path / "net.onnx"), tmp_path / "tune.jsonl"
    plant(monkeypatch, kernel)
    assert any(call["kernel"].startswith(kernel.name) for call in _calls(tvm_megcc.compile(model)))
    with pytest.warns(UserWarning, match=f"candidate {kernel.name} .*left out: .*{error}"):
        summary = tune([import_onnx(model)], native(), log, trials=2)
    assert [name for name, _ in summary.failed if name.startswith(kernel.name)]
    assert not any(call["kernel"].startswith(kernel.name) for call in _calls(tvm_megcc.compile(model, log=log)))
    assert tune([import_onnx(model)], native(), log, trials=2).measured == 0


def _calls(artifact) -> list[dict]:
    return artifact.manifest["programs"][0]["calls"]


def test_tiles_are_candidates(tmp_path):
    """Kernels with register tiles are offered with others; at -O size extents are arguments, and there are none."""
    target = TARGETS["arm64"]
    graph = before_layouts(import_onnx(write_model(tmp_path / "net.onnx")), Context(target))
    tiles = {mode: {c.kernel.tile for call in calls_of(graph, Context(target, mode)) for c in call.candidates}
             for mode in ("speed", "size")}
    assert len(tiles["speed"]) > 1 and tiles["size"] == {""}


class FakeDevices:
    """Devices that give every candidate a microsecond, but for what `trouble(job number, session)` does."""

    program, devices = False, 2

    def __init__(self, trouble=lambda number, session: None):
        self.trouble, self.sessions, self.asked = trouble, 0, 0

    def require(self, target):
        pass

    @contextmanager
    def session(self, made, seconds):
        self.sessions += 1
        session = FakeSession(self, f"device {self.sessions}")
        yield session


class FakeSession:
    def __init__(self, devices: FakeDevices, device: str):
        self.devices, self.device = devices, device

    def measure(self, measurement, kernel):
        self.devices.asked += 1
        self.devices.trouble(measurement, self)
        return timing.Sample((1000.0,))


@pytest.fixture
def uncompiled(monkeypatch):
    """Libraries without a compiler."""
    @contextmanager
    def library(specs, target, program, cc):
        yield timing.Library(Path("none"), {spec: number for number, spec in enumerate(specs)}, {})

    monkeypatch.setattr(tuner, "library", library)


def test_a_device_that_does_not_answer(uncompiled, monkeypatch, tmp_path):
    """It is given up after a while, and its job done by another one."""
    monkeypatch.setattr(tuner, "JOB_SECONDS", 1)
    hang, hung = threading.Event(), []

    def trouble(measurement, session):
        if not hung:
            hung.append(session.device)
            hang.wait(30)

    devices = FakeDevices(trouble)
    with pytest.warns(UserWarning, match="was lost: no answer for 1 s"):
        summary = tune([import_onnx(write_model(tmp_path / "net.onnx"))], native(), tmp_path / "log", runner=devices)
    hang.set()
    assert summary.measured == summary.candidates and not summary.failed
    assert len(TuningLog.read(tmp_path / "log")) == summary.candidates


def test_parts_of_a_network_know_its_weights(uncompiled, tmp_path):
    asked = []
    devices = FakeDevices(lambda measurement, session: asked.append(measurement.network_bytes))
    tune([import_onnx(write_model(tmp_path / "net.onnx"))], native(), tmp_path / "log", runner=devices, weights=10**7)
    assert set(asked) == {row.network_bytes for row in TuningLog.read(tmp_path / "log").rows.values()} == {10**7}


def test_a_candidate_that_takes_devices_with_it(uncompiled, tmp_path):
    """It is tried on two devices, then left out; everything else is measured."""
    def trouble(measurement, session):
        if "__plain_" in measurement.spec.symbol:
            raise timing.Lost("connection reset")

    with pytest.warns(UserWarning, match="left out: 2 devices were lost with it"):
        summary = tune([import_onnx(write_model(tmp_path / "net.onnx"))], native(), tmp_path / "log",
                       runner=FakeDevices(trouble))
    rows = TuningLog.read(tmp_path / "log").rows.values()
    assert [row.kernel for row in rows if row.error] == ["plain"] and len(rows) == summary.candidates


def test_what_does_not_compile_is_left_out(monkeypatch, tmp_path):
    plant(monkeypatch, BrokenConv())
    model, log = write_model(tmp_path / "net.onnx"), tmp_path / "log"
    with pytest.warns(UserWarning, match="left out: it does not compile"):
        tune([import_onnx(model)], native(), log, trials=2)
    assert not any(call["kernel"].startswith("broken") for call in _calls(tvm_megcc.compile(model, log=log)))


class BrokenConv(PlainConv):
    """Mentions an identifier that is none."""

    name = "broken"

    def lower(self, site):
        lowered = super().lower(site)
        return replace(lowered, operation="broken",
                       inputs=(replace(lowered.inputs[0], name="unknown"), *lowered.inputs[1:]))

    def cost(self, site):
        return 0.5


def test_guesses_beside_measurements():
    """What was not measured is guessed in nanoseconds, by the measurements of the same call, kind, or all."""
    row = Row("c", "speed", "conv2d(a) -> b {}", "direct", "", "plain -> plain", 300.0, 100.0, "0")
    measured = Measured([row, replace(row, call="pool(a) -> b {}", ns=500.0)])
    assert measured.scaled("conv2d(a) -> b {}", 10.0) == 30.0
    assert measured.scaled("pool(other) -> b {}", 10.0) == 50.0
    assert measured.scaled("matmul(a) -> b {}", 10.0) == 40.0
    assert measured.time("conv2d(a) -> b {}", "direct", "", "plain -> plain") == 300.0
    assert Measured([replace(row, ns=None, error="wrong")]).best(row.call, row.layouts) == float("inf")


def test_differences():
    good = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    assert not timing.difference(good, good.copy())
    assert timing.difference(np.array([1.0, -2.1, np.nan, np.inf], np.float32), good)
    assert timing.difference(np.array([1.0, -2.0, 0.0, np.inf], np.float32), good)
    eight, wide = np.array([3, 4], np.uint8), np.array([3, 4], np.int32)
    assert not timing.difference(eight, eight + np.uint8(1)) and timing.difference(eight, eight + np.uint8(2))
    assert timing.difference(wide, wide + np.int32(1))


def test_the_command(tuned, slow_default, tmp_path, capsys, monkeypatch):
    model, log, summary = tuned
    monkeypatch.chdir(tmp_path)
    shutil.copy(log, "tune.jsonl")
    assert main(["tune", str(model), "--trials", str(TRIALS), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["targets"]
    assert row["known"] == summary.candidates and row["measured"] == 0
    assert row["models"][0]["changed"] and row["models"][0]["after_ns"] < row["models"][0]["before_ns"]
    assert main(["tune", str(model), "--trials", str(TRIALS)]) == 0
    assert "--log tune.jsonl" in capsys.readouterr().out
    assert main(["compile", str(model), "--log", "tune.jsonl", "-o", "out"]) == 0
    assert not list(Path("out/kernels").glob("*__plain_*"))
    assert main(["explain", str(model), "--log", "tune.jsonl"]) == 0
    assert "of measured time" in capsys.readouterr().out


def test_bench(tuned, tmp_path, capsys):
    model = tuned[0]
    assert main(["bench", str(model), "--repeat", "7", "--threads", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["threads"] == 2 and report["seconds"]["runs"] == 7
    assert report["seconds"]["min"] <= report["seconds"]["median"] <= report["seconds"]["max"]
    assert sum(call["share"] for call in report["calls"]) == pytest.approx(1)
    convolution = next(call for call in report["calls"] if call["kind"] == "conv2d")
    assert convolution["gflops"] == pytest.approx(2e-9 * 16 * 8 * 9 * 9 * 10 / convolution["seconds"])
    assert main(["bench", str(model), "--repeat", "3", "--threads", "2"]) == 0
    out = capsys.readouterr().out
    assert "GFLOP/s" in out and "conv+relu" in out and "median" in out


def test_only_what_runs_here_is_timed(tuned, capsys):
    foreign = next(name for name, target in TARGETS.items() if not runs_here(target) and not target.bare_metal)
    for verb in ("tune", "bench"):
        assert main([verb, str(tuned[0]), "--target", foreign]) == REFUSED
        assert "--rpc HOST:PORT" in capsys.readouterr().err
    assert main(["tune", str(tuned[0]), "--key", "board"]) == REFUSED
    assert "give both" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name, tolerance", [("mnist8", 1e-3), ("resnet8_cifar10_f32", 1e-4)])
def test_real_networks(name, tolerance, tmp_path):
    """Tuned, a network still gives its stored reference outputs."""
    model = MODELS / name / "model.onnx"
    if not model.exists():
        pytest.skip(f"{model} is not there ($MEGCC_MODELS)")
    stored = dict(np.load(model.parent / "reference.npz"))
    feeds = {key[3:]: value for key, value in stored.items() if key.startswith("in:")}
    shapes = {key: value.shape for key, value in feeds.items()}
    tune([import_onnx(model, input_shapes=shapes)], native(), tmp_path / "tune.jsonl", trials=2)
    artifact = tvm_megcc.compile(model, input_shapes=shapes, log=tmp_path / "tune.jsonl")
    results = tvm_megcc.load(artifact.save(tmp_path / "out")).run(feeds)
    for key, value in results.items():
        assert np.abs(value - stored[f"out:{key}"]).max() <= tolerance
