# SPDX-License-Identifier: Apache-2.0
"""Devices behind TVM's RPC: a tracker and servers on this machine, some of which go away in the middle."""

from __future__ import annotations

import json
import re
import socket
import time
import warnings

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")
for module_ in ("tornado", "cloudpickle", "psutil"):
    pytest.importorskip(module_, reason=f"TVM's tracker and servers need {module_}")

from tvm import rpc  # noqa: E402
from tvm.relax import op  # noqa: E402
from tvm.rpc.tracker import Tracker as TvmTracker  # noqa: E402

import tvm_megcc  # noqa: E402
from tvm_megcc import build_megcc_kernels, partition_for_megcc, paths, tune_megcc_kernels  # noqa: E402
from tvm_megcc.cli import REFUSED, main  # noqa: E402
from tvm_megcc.errors import MegccError  # noqa: E402
from tvm_megcc.runtime import remote  # noqa: E402
from tvm_megcc.tools.run import seeded  # noqa: E402
from tvm_megcc.tuning_log import TuningLog  # noqa: E402

from .modules import assert_same, f32, module, random_inputs, run, weights  # noqa: E402

DIGITS = paths.examples() / "digits.onnx"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def tracker():
    """Address of a tracker."""
    port = free_port()
    server = TvmTracker("127.0.0.1", port, port + 50, silent=True)
    yield f"127.0.0.1:{server.port}"
    server.terminate()


@pytest.fixture
def devices(tracker):
    """Starts servers: `devices(key, count)` gives them once they are registered."""
    running = []

    def start(key: str, count: int) -> list[rpc.Server]:
        host, port = tracker.split(":")
        for _ in range(count):
            own = free_port()
            running.append(rpc.Server("127.0.0.1", own, own + 50, tracker_addr=(host, int(port)), key=key, silent=True))
        for _ in range(300):
            try:
                if remote.Tracker(tracker, key).registered() == count:
                    return running
            except MegccError:
                pass
            time.sleep(0.1)
        raise AssertionError("the servers do not register")

    yield start
    for server in running:
        server.terminate()


def convolutions() -> tvm.IRModule:
    """A region with two convolutions, and an operator that stays with TVM."""
    def build(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(16, 3, 3, 3), padding=1))))
        y = emit(op.nn.relu(emit(op.nn.conv2d(y, weights(8, 16, 1, 1)))))
        return emit(op.sort(y))
    return module(build, f32(1, 3, 8, 8))


def lose(monkeypatch, servers, after: int):
    """Terminates one of these servers each time that a device of theirs is asked for the `after`th time."""
    asked: dict[int, int] = {}
    measure = remote.RpcSession.measure

    def fatal(self, *arguments):
        for server in servers:
            if f":{server.port})" in self.device:
                asked[server.port] = asked.get(server.port, 0) + 1
                if asked[server.port] == after:
                    server.terminate()
        return measure(self, *arguments)

    monkeypatch.setattr(remote.RpcSession, "measure", fatal)


@pytest.mark.slow
def test_a_lost_device(tracker, devices, monkeypatch, tmp_path):
    """Two devices measure; one goes away between its jobs, and the other one does what is left."""
    first, second = devices("shaky", 2)
    mod = partition_for_megcc(convolutions())
    log = tmp_path / "tune.jsonl"
    lose(monkeypatch, [first], after=2)
    with pytest.warns(UserWarning, match=rf"device shaky \(127\.0\.0\.1:{first.port}\) was lost"):
        tuned = tune_megcc_kernels(mod, trials=2, log=log, runner=remote.RpcRunner(tracker, "shaky"))
    rows = list(TuningLog.read(log).rows.values())
    assert all(row.ns for row in rows) and len(rows) >= 4
    assert {row.device for row in rows} == {f"shaky (127.0.0.1:{server.port})" for server in (first, second)}
    before = log.read_bytes()
    tune_megcc_kernels(mod, trials=2, log=log)  # all known: nothing is measured here either
    assert log.read_bytes() == before

    inputs = random_inputs(mod)
    expected = run(tvm.compile(convolutions(), "llvm"), inputs)
    built = build_megcc_kernels(tuned)
    assert_same(run(tvm.compile(built, "llvm"), inputs), expected)
    assert_same(run(tvm.compile(mod, target="megcc-native", relax_pipeline="megcc"), inputs), expected)


@pytest.mark.slow
def test_all_devices_lost(tracker, devices, monkeypatch, tmp_path):
    """A clear error; what was measured is kept, and another run goes on from there."""
    mod = partition_for_megcc(convolutions())
    log = tmp_path / "tune.jsonl"
    lose(monkeypatch, devices("doomed", 1), after=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(MegccError, match=r"no device is left: .*'doomed'"):
            tune_megcc_kernels(mod, trials=2, log=log, runner=remote.RpcRunner(tracker, "doomed"))
    kept = len(TuningLog.read(log))
    assert kept >= 2
    monkeypatch.undo()
    text = log.read_text()
    tune_megcc_kernels(mod, trials=2, log=log)
    assert log.read_text().startswith(text) and len(TuningLog.read(log)) > kept


@pytest.mark.slow
def test_run_and_bench(tracker, devices, tmp_path, capsys):
    """The device gives what this machine gives, and its own times."""
    devices("board", 1)
    folder = tvm_megcc.compile(DIGITS).save(tmp_path / "digits_megcc")
    session = remote.remote_session(folder, tracker, "board")
    inputs = seeded(session.inputs)
    here = tvm_megcc.load(folder).run(inputs)
    for _ in range(2):
        for name, array in session.run(inputs).items():
            np.testing.assert_array_equal(array, here[name])
    with pytest.raises(MegccError, match="expects 'image'"):
        session.run({name: array[..., :1] for name, array in inputs.items()})
    times = session.times(inputs, 5, 3)
    assert len(times.seconds) == 5 and len(times.calls) == len(session.calls) and min(times.seconds) > 0
    assert [row["kernel"] for row in session.profile(inputs)] == [call["kernel"] for call in session.calls]
    session.close()

    where = ["--rpc", tracker, "--key", "board"]
    assert main(["run", str(folder), *where, "--outputs", str(tmp_path / "out.npz"), "--profile", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["profile"] and report["seconds"]["runs"] == 10
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["logits"], here["logits"])
    assert main(["bench", str(folder), *where, "--repeat", "5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["where"].startswith("board (127.0.0.1:") and report["seconds"]["runs"] == 5 and report["calls"]


@pytest.mark.slow
def test_what_is_wrong_is_said(tracker, devices, tmp_path, capsys):
    devices("x86", 1)
    folder = str(tvm_megcc.compile(DIGITS).save(tmp_path / "digits_megcc"))
    for options, reason in (
            (["--rpc", tracker, "--key", "nobody"], "no device 'nobody' is registered.*it has x86"),
            (["--rpc", tracker], "say which device with --key"),
            (["--rpc", f"127.0.0.1:{free_port()}", "--key", "x86"], "no RPC tracker answers at 127.0.0.1"),
            (["--rpc", "localhost", "--key", "x86"], "HOST:PORT, not 'localhost'")):
        assert main(["run", folder, *options]) == REFUSED
        text = capsys.readouterr().err
        assert re.search(reason, text), text
