# SPDX-License-Identifier: Apache-2.0
"""Normalisations in float16 of values whose squares are no float16, beside their formulas in float64."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_megcc.frontends.onnx.importer import import_onnx
from tvm_megcc.runtime import reference

X = np.random.default_rng(0).uniform(200, 900, (1, 4, 6, 16)).astype(np.float16)


def normalised(axes, centred=True):
    x = X.astype(np.float64)
    x = x - x.mean(axes, keepdims=True) if centred else x
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize(("operator", "opset", "factors", "attributes", "wanted"), [
    ("LayerNormalization", 17, {"scale": 16}, {}, normalised(3)),
    ("RMSNormalization", 23, {"scale": 16}, {}, normalised(3, False)),
    ("SimplifiedLayerNormalization", 13, {"scale": 16}, {}, normalised(3, False)),
    ("InstanceNormalization", 13, {"scale": 4, "bias": 4}, {}, normalised((2, 3))),
    ("GroupNormalization", 21, {"scale": 4, "bias": 4}, {"num_groups": 1}, normalised((1, 2, 3))),
    ("MeanVarianceNormalization", 13, {}, {}, normalised((0, 2, 3)))])
def test_squares_beyond_float16(operator, opset, factors, attributes, wanted):
    constants = [numpy_helper.from_array((np.ones if name == "scale" else np.zeros)(count, np.float16), name)
                 for name, count in factors.items()]
    graph = helper.make_graph([helper.make_node(operator, ["x", *factors], ["y"], **attributes)], "norm",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT16, X.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT16, X.shape)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    found = reference.run(import_onnx(model), {"x": X})["y"]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)
