# SPDX-License-Identifier: Apache-2.0
"""Libraries for arm64, run by the TVM for arm64 in qemu: loaded there, and by RPC.

`scripts/arm64_tvm.py build/arm64` makes the Python that this needs; MEGCC_ARM64_PYTHON names another one, such as one
that reaches a board.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")
for module_ in ("tornado", "cloudpickle", "psutil"):
    pytest.importorskip(module_, reason=f"TVM's servers need {module_}")

from tvm import relax, rpc  # noqa: E402
from tvm.relax import op  # noqa: E402

from tvm_megcc.errors import MissingTool  # noqa: E402
from tvm_megcc.runtime.toolchain import find_compiler  # noqa: E402
from tvm_megcc.target import TARGETS  # noqa: E402

from .modules import assert_same, f32, module, random_inputs, reference, run, weights  # noqa: E402

PYTHON = Path(os.environ.get("MEGCC_ARM64_PYTHON", Path(__file__).resolve().parents[2] / "build" / "arm64" / "python"))
pytestmark = [pytest.mark.slow, pytest.mark.long]
LOAD = """
import sys, numpy, tvm
from tvm import relax
machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
numpy.save(sys.argv[3], machine["main"](tvm.runtime.tensor(numpy.load(sys.argv[2]))).numpy())
"""
#: The server starts a process of its own, by the name of this interpreter.
SERVE = """
import runpy, sys
sys.executable, *sys.argv = sys.argv[1:]
runpy.run_module("tvm.exec.rpc_server", run_name="__main__")
"""


@pytest.fixture(scope="module")
def python() -> str:
    """The command of a Python for arm64 that has the TVM that is here."""
    if not PYTHON.exists():
        pytest.skip("there is no Python for arm64 with TVM (scripts/arm64_tvm.py build/arm64, or MEGCC_ARM64_PYTHON)")
    try:
        find_compiler(TARGETS["arm64"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    found = subprocess.run([PYTHON, "-c", "import tvm; print(tvm.__version__)"], capture_output=True, text=True,
                           check=False)
    if found.stdout.strip() != tvm.__version__:
        pytest.skip(f"{PYTHON} has TVM {found.stdout.strip() or found.stderr.strip()[-200:]}, not {tvm.__version__}")
    return str(PYTHON)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(library for arm64, inputs, what TVM's own build gives here): a region, and operators that stay with TVM."""
    def build(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(16, 3, 3, 3), padding=1))))
        y = emit(op.nn.relu(emit(op.nn.conv2d(y, weights(8, 16, 1, 1)))))
        return emit(op.sort(emit(op.atan2(y, y))))
    mod = module(build, f32(1, 3, 8, 8))
    library = tmp_path_factory.mktemp("arm64") / "model.so"
    tvm.compile(mod, target="megcc-arm64").export_library(str(library))
    inputs = random_inputs(mod)
    return library, inputs, run(reference(mod), inputs)


def test_library_is_loaded_and_run(python, built, tmp_path):
    library, (x,), expected = built
    np.save(tmp_path / "in.npy", x)
    subprocess.run([python, "-c", LOAD, str(library), str(tmp_path / "in.npy"), str(tmp_path / "out.npy")], check=True)
    assert_same([np.load(tmp_path / "out.npy")], expected)


def test_rpc(python, built, tmp_path):
    """Uploaded to a server on arm64, and called from here."""
    library, (x,), expected = built
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen([python, "-c", SERVE, python, "rpc_server", "--host", "127.0.0.1", "--port",
                                   str(port), "--port-end", str(port + 1)], stdout=log, stderr=log,
                                  start_new_session=True)
    try:
        session = connected(server, port)
        session.upload(str(library))
        machine = relax.VirtualMachine(session.load_module(library.name), session.cpu())
        machine.set_input("main", tvm.runtime.tensor(x, session.cpu()))
        machine.invoke_stateful("main")
        assert_same([machine.get_outputs("main").numpy()], expected)
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def connected(server: subprocess.Popen, port: int) -> rpc.RPCSession:
    """A session with the server, as soon as it listens."""
    for _ in range(300):
        assert server.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return rpc.connect("127.0.0.1", port)
        except OSError:
            time.sleep(1)
    raise AssertionError("the server does not listen")
