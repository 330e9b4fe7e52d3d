# SPDX-License-Identifier: Apache-2.0
"""Nearest neighbours of Resize-10, which has no attribute for how positions are rounded, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tvm_megcc.frontends.onnx.importer import import_onnx
from tvm_megcc.runtime import reference


def resize(extents, scales=None):
    """Resize-10; without scales, they are an input."""
    known = [] if scales is None else [numpy_helper.from_array(np.array(scales, np.float32), "s")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)]
    inputs += [helper.make_tensor_value_info("s", TensorProto.FLOAT, [4])] * (scales is None)
    graph = helper.make_graph([helper.make_node("Resize", ["x", "s"], ["y"])], "resize", inputs,
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)


def test_the_example_of_its_time():
    """resize_downsample_nearest of ONNX 1.5."""
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    found = reference.run(import_onnx(resize([1, 1, 2, 4], [1, 1, 0.6, 0.6])), {"x": x})
    assert found["y"].tolist() == [[[[1, 3]]]]


@pytest.mark.parametrize("scale", [0.25, 0.3, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.9, 0.98, 1.1, 1.3, 1.5, 5 / 3, 2, 2.7])
def test_every_length(scale):
    for length in range(4, 14):
        x = np.arange(length, dtype=np.float32).reshape(1, 1, length, 1)
        source = resize(list(x.shape), [1, 1, scale, 1])
        (wanted,) = onnxruntime.InferenceSession(source.SerializeToString()).run(None, {"x": x})
        found = reference.run(import_onnx(source), {"x": x})["y"]
        # ONNX Runtime rounds length * scale to float32 before it takes the floor: its last element may be one more.
        assert found.size == int(length * float(np.float32(scale))) and wanted.size - found.size in (0, 1)
        if wanted.size != length:  # it copies what keeps its extents, whatever the scales
            np.testing.assert_array_equal(found.reshape(-1), wanted.reshape(-1)[:found.size], f"{length} elements")


@pytest.mark.slow
def test_scales_that_the_run_knows():
    source, x = resize([1, 1, 9, 7]), np.arange(63, dtype=np.float32).reshape(1, 1, 9, 7)
    known = onnxruntime.InferenceSession(source.SerializeToString())
    with tvm_megcc.load(tvm_megcc.compile(source, "native", name="resize")) as session:
        for scales in ((0.6, 1.3), (1.3, 0.6), (0.75, 0.25), (1, 2)):
            feeds = {"x": x, "s": np.array([1, 1, *scales], np.float32)}
            np.testing.assert_array_equal(session.run(feeds)["y"], known.run(None, feeds)[0])
