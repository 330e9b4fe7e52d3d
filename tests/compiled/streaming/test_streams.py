# SPDX-License-Identifier: Apache-2.0
"""Networks in blocks as C: the same bits as the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.streams_models import NETWORKS, blocks_of, tflite, wavenet
from tvm_megcc.codegen.bundle import read_manifest
from tvm_megcc.tools.report import describe

BLOCK = 12


def _session(model, folder, **options):
    return tvm_megcc.load(tvm_megcc.compile(model, name="sequence", **options).save(folder))


QUICK = ("causal", "same")


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
                                  for name in NETWORKS])
def test_blocks_have_the_bits_of_the_whole(name, tmp_path):
    network = NETWORKS[name]
    model = network.make()
    whole = _session(model, tmp_path / "whole")
    blocks = _session(model, tmp_path / "blocks", stream=f"axis={network.axis},block={BLOCK}")
    x = np.random.default_rng(2).standard_normal(whole.inputs[0].shape).astype(np.float32)
    expected = whole.run({"x": x})
    rows = read_manifest(tmp_path / "blocks")["models"][0]["stream"]["outputs"]
    for _ in range(2):  # the second stream begins anew
        parts = [blocks.run({"x": block}) for block in blocks_of(x, network.axis, BLOCK)]
        for row in rows:
            found = np.concatenate([part[row["name"]] for part in parts], row["axis"])
            found = np.moveaxis(found, row["axis"], 0)[row["latency"]:]
            wanted = np.moveaxis(expected[row["name"]], row["axis"], 0)[:len(found)]
            assert len(wanted)
            np.testing.assert_array_equal(found[:len(wanted)], wanted)
        blocks.reset()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "cortex-m4"])
def test_bytes_stay_bytes(target, tmp_path):
    """Quantised networks on a microcontroller: states and convolutions of bytes, padded with zero points."""
    for name, model, axis, dtype in (("tflite", tflite(), 1, "int8"), ("unsigned.tflite", tflite("uint8"), 1, "uint8"),
                                     ("onnx", NETWORKS["quantised"].make().SerializeToString(), 2, "int8")):
        path = tmp_path / f"sequence.{name}"
        path.write_bytes(model)
        whole = _session(path, tmp_path / f"{name}_whole", target=target)
        blocks = _session(path, tmp_path / f"{name}_blocks", target=target, stream=f"axis={axis},block={BLOCK}")
        manifest = read_manifest(tmp_path / f"{name}_blocks")["models"][0]
        kinds = [call["type"].split("[")[0] for call in manifest["programs"][0]["calls"]]
        assert set(kinds[:-1]) <= {dtype, "bool"}, kinds  # bool: of elements, whether they are there
        random = np.random.default_rng(4)
        x = random.standard_normal(whole.inputs[0].shape).astype(np.float32) if name == "onnx" else \
            random.integers(0, 256, whole.inputs[0].shape).astype(np.uint8).view(dtype)
        (expected,) = whole.run({"x": x}).values()
        (row,) = manifest["stream"]["outputs"]
        for _ in range(2):
            found = np.concatenate([blocks.run({"x": block})[row["name"]] for block in blocks_of(x, axis, BLOCK)], axis)
            found = np.moveaxis(found, axis, 0)[row["latency"]:]
            np.testing.assert_array_equal(found, np.moveaxis(expected, axis, 0)[:len(found)])
            assert len(np.unique(found)) > 20
            blocks.reset()


def test_what_is_reported(tmp_path):
    folder = tvm_megcc.compile(wavenet(), name="amp", stream="axis=2,block=16").save(tmp_path / "amp")
    said = describe.folder_text(describe.folder(folder))
    assert "stream: blocks of 16 along axis 2 of 'x'; 4 states of" in said
    assert "output 'y0': blocks of 16 along axis 2, latency 30, receptive field 31 elements" in said
    assert said.split("stream:")[1].splitlines()[0] in (folder / "report.txt").read_text()
