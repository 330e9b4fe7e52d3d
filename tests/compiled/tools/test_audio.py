# SPDX-License-Identifier: Apache-2.0
"""The example of docs/audio.md: an amplifier in blocks, and as a plug-in that a host loads."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import WARNINGS, native_compiler
from tvm_megcc.frontends.models import import_model
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.build import CFLAGS, c_sources
from tvm_megcc.target import native

EXAMPLES = Path(__file__).resolve().parents[3] / "tutorials" / "audio"
BLOCK = 64


class Descriptor(ctypes.Structure):
    """LV2_Descriptor."""

    _fields_ = (("uri", ctypes.c_char_p),
                ("instantiate", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_char_p,
                                                 ctypes.c_void_p)),
                ("connect_port", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)),
                ("activate", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("run", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)),
                ("deactivate", ctypes.c_void_p),
                ("cleanup", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("extension_data", ctypes.c_void_p))


def _amp():
    spec = importlib.util.spec_from_file_location("amp", EXAMPLES / "amp.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.amp(600, 8, (1, 2, 4, 8, 16))


@pytest.fixture(scope="module")
def artifact():
    return tvm_megcc.compile(_amp(), name="amp", stream=f"axis=2,block={BLOCK}")


@pytest.fixture(scope="module")
def expected(artifact, tmp_path_factory):
    """Some samples, and what the amplifier makes of them from the first one on."""
    session = tvm_megcc.load(artifact.save(tmp_path_factory.mktemp("amp") / "amp"))
    x = np.random.default_rng(1).uniform(-1, 1, 12 * BLOCK).astype(np.float32)
    return x, np.concatenate([session.run({"audio": block.reshape(1, 1, -1)})["out"].reshape(-1)
                              for block in np.split(x, 12)])


@pytest.mark.slow
def test_the_amplifier_is_that_of_the_whole(expected):
    x, y = expected
    graph, _ = import_model(_amp().SerializeToString())
    (whole,) = reference.run(graph, {"audio": x[:600].reshape(1, 1, -1)}).values()
    reach = 2 * (1 + 2 + 4 + 8 + 16)
    np.testing.assert_allclose(y[reach:600], whole.reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_host_loads_the_plugin(artifact, expected, tmp_path):
    compiler = native_compiler()
    if subprocess.run([*compiler.command, "-E", "-x", "c", "-"], input="#include <lv2/core/lv2.h>\n", text=True,
                      capture_output=True).returncode:
        pytest.skip("LV2's headers are not installed (Debian: lv2-dev)")
    folder = artifact.save(tmp_path / "amp", embed=True)
    flags = ["-std=c99", *native().cflags, "-fPIC", "-fvisibility=hidden", "-O2", "-I.", "-Iruntime/include"]
    subprocess.run([*compiler.command, *flags, *WARNINGS, "-c", str(EXAMPLES / "amp_lv2.c"), "-o", "amp_lv2.o"],
                   cwd=folder, check=True)
    sources = [str(path.relative_to(folder)) for path in c_sources(folder)]
    subprocess.run([*compiler.command, *CFLAGS, *native().cflags, "-fPIC", "-shared", "-I.", "-Iruntime/include",
                    *sources, "amp_lv2.o", "-o", "amp.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "amp.so"))
    library.lv2_descriptor.restype = ctypes.POINTER(Descriptor)
    assert not library.lv2_descriptor(1)
    plugin = library.lv2_descriptor(0).contents
    assert f"<{plugin.uri.decode()}>" in (EXAMPLES / "amp.lv2" / "amp.ttl").read_text()
    x, y = expected
    handles = [plugin.instantiate(ctypes.addressof(plugin), 48000.0, b"", None) for _ in range(2)]
    latency = ctypes.c_float()
    for handle in handles:
        assert handle
        plugin.connect_port(handle, 2, ctypes.addressof(latency))
    for _ in range(2):  # activated again, it begins anew
        for handle in handles:
            plugin.activate(handle)
        given, position = x.copy(), 0
        found = np.zeros_like(x)
        for count in (1, 63, 64, 100, 7, 0, 256, 90):
            for handle in handles:  # the other instance works on numbers of its own
                part = given[position:position + count] if handle == handles[0] else np.ones(count, np.float32)
                for port in (0, 1):
                    plugin.connect_port(handle, port, part.ctypes.data)
                plugin.run(handle, count)
            found[position:position + count] = given[position:position + count]
            position += count
        assert latency.value == BLOCK
        assert not found[:BLOCK].any()
        np.testing.assert_array_equal(found[BLOCK:position], y[:position - BLOCK])
    for handle in handles:
        plugin.cleanup(handle)
