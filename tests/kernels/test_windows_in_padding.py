# SPDX-License-Identifier: Apache-2.0
"""Convolutions some of whose windows lie wholly in the padding: their results are the bias."""

import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_megcc

pytestmark = pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="no C compiler")

#: Shape of x, of the weights, pads, strides, groups.
CASES = {
    "1x1": ((1, 3, 4, 4), (5, 3, 1, 1), (1, 1, 1, 1), (2, 2), 1),
    "1x1 in blocks": ((2, 32, 5, 6), (32, 32, 1, 1), (2, 1, 1, 2), (1, 1), 1),
    "1x1 in groups": ((1, 8, 4, 4), (8, 4, 1, 1), (1, 0, 2, 0), (1, 1), 2),
    "1x3": ((1, 16, 4, 7), (16, 16, 1, 3), (2, 1, 1, 1), (1, 1), 1),
    "3x3 of two rows": ((1, 16, 2, 7), (16, 16, 3, 3), (4, 4, 4, 4), (1, 2), 1),
    "depthwise 1x3": ((1, 16, 3, 6), (16, 1, 1, 3), (2, 3, 2, 3), (1, 1), 16),
    "depthwise 3x3": ((1, 8, 3, 3), (8, 1, 3, 3), (4, 4, 4, 4), (2, 1), 8),
}


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("case", CASES)
def test_windows_without_a_tap_inside_give_the_bias(case, target, tmp_path):
    shape, kernel, pads, strides, group = CASES[case]
    generator = np.random.default_rng(1)
    weights = [numpy_helper.from_array(generator.standard_normal(size).astype(np.float32), name)
               for name, size in (("w", kernel), ("b", kernel[:1]))]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, strides=strides, group=group)
    graph = helper.make_graph([node], "padding", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = generator.standard_normal(shape).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    path = tmp_path / "padding.onnx"
    onnx.save(model, path)
    tvm_megcc.compile(str(path), target).save(tmp_path / "made")
    session = tvm_megcc.load(tmp_path / "made")
    session.run({"x": np.full(shape, np.nan, np.float32)})  # what scratch memory holds from now on
    np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
