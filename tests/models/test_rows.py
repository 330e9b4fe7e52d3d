# SPDX-License-Identifier: Apache-2.0
"""Networks in less memory than their whole tensors take, on an emulated microcontroller: the reference's numbers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.rows_graphs import fed, person_detection
from tvm_megcc import api
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.load import load
from tvm_megcc.target import parse_targets


def _macs(artifact) -> int:
    return sum(call["macs"] for call in artifact.manifest["programs"][0]["calls"])


def _loaded(folder):
    try:
        return load(folder)
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.mark.long
def test_mobilenet_in_120_kb(tmp_path):
    """Stack and all; the image of 147 KB lies in memory of the application's."""
    folder = Path(os.environ.get("MEGCC_MODELS", "")) / "mobilenet_v1_025_224_uint8"
    if not folder.exists():
        pytest.skip(f"no {folder.name} in $MEGCC_MODELS")
    whole, rows = (api.compile(folder / "model.tflite", "cortex-m4", ram=ram, caller_inputs=True)
                   for ram in (None, 116 << 10))
    assert _macs(whole) < _macs(rows) <= 1.05 * _macs(whole)
    session = _loaded(rows.save(tmp_path / "rows"))
    assert firmware.sizes(session.firmware)["ram"] <= 120 << 10
    reference = np.load(folder / "reference_tflite.npz")
    (x,), (y,) = ([reference[name] for name in reference.files if name.startswith(kind)] for kind in ("in", "out"))
    (result,) = session.run([x]).values()
    np.testing.assert_array_equal(result, y)


@pytest.mark.long
def test_person_detection_in_32_kb(tmp_path):
    """Stack and image and all."""
    graph, targets = person_detection(), parse_targets("cortex-m4")
    rows = compile_graph(graph, targets, ram=28 << 10)
    session = _loaded(rows.save(tmp_path / "rows"))
    assert firmware.sizes(session.firmware)["ram"] <= 32 << 10
    whole = compile_graph(graph, parse_targets("native"))
    assert _macs(whole) < _macs(rows) <= 1.05 * _macs(whole)
    feeds = fed(graph)
    ((expected,), (result,)) = (s.run(feeds).values() for s in (_loaded(whole.save(tmp_path / "whole")), session))
    np.testing.assert_array_equal(result, expected)
