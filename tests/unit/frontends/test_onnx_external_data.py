# SPDX-License-Identifier: Apache-2.0
"""Weights of ONNX models in external files."""

from __future__ import annotations

import numpy as np
import onnx

from tests.onnx_models import model, node, refusal
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference


def external(tmp_path):
    proto = model([node("Add", "x w", "y")], {"x": [256]}, ["y"], {"w": np.arange(256, dtype=np.float32)})
    path = tmp_path / "m.onnx"
    onnx.save(proto, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_external_data(tmp_path):
    path = external(tmp_path)
    x = np.ones(256, np.float32)
    result = reference.run(import_onnx(path), {"x": x})
    np.testing.assert_array_equal(result["y"], x + np.arange(256, dtype=np.float32))


def test_external_data_missing_short_or_without_folder(tmp_path):
    path = external(tmp_path)
    assert "give the path" in str(refusal(path.read_bytes()))
    data = path.with_name("m.data")
    data.write_bytes(data.read_bytes()[:100])
    assert "initializer 'w'" in str(refusal(path))
    data.unlink()
    assert "m.data" in str(refusal(path))
