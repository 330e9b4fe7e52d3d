# SPDX-License-Identifier: Apache-2.0
"""Roots of sums of powers in float16, whose powers are no float16, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tvm_megcc.frontends.onnx.importer import import_onnx
from tvm_megcc.runtime import reference


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("operator", "attributes"), [
    ("GlobalLpPool", {}), ("LpPool", {"kernel_shape": [2]}), ("LpPool", {"kernel_shape": [2], "pads": [1, 1]})])
def test_powers_beyond_float16(operator, attributes, p):
    x = np.array([[[-300, -12, 40, 3]]], np.float16)
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], p=p, **attributes)], "pool",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = reference.run(import_onnx(model), {"x": x})["y"]
    assert np.isfinite(wanted).all() and found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
