# SPDX-License-Identifier: Apache-2.0
"""`-O size`: what is equal in all calls of a kernel is a constant in its code, and nothing else is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc


def kernels(*channels: int) -> list[str]:
    """The kernels of 1x1 convolutions, one behind the other, with so many channels."""
    nodes, weights = [], []
    for n, (inputs, outputs) in enumerate(pairwise(channels)):
        weights.append(numpy_helper.from_array(np.ones((outputs, inputs, 1, 1), np.float32), f"w{n}"))
        nodes.append(helper.make_node("Conv", [f"x{n}", f"w{n}"], [f"x{n + 1}"]))
    shapes = [(1, channels[0], 5, 7), (1, channels[-1], 5, 7)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(("x0", f"x{len(nodes)}"), shapes, strict=True))
    model = helper.make_model(helper.make_graph(nodes, "chain", [x], [y], weights), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17)])
    sources = tvm_megcc.compile(model, "c", optimize="size").sources
    return [text for name, text in sources.items() if name.startswith("kernels/conv2d")]


def test_a_kernel_of_one_call_has_no_arguments():
    text, = kernels(16, 32)
    assert "const int32_t OC = 32;" in text and "call->extent" not in text


def test_only_what_differs_between_calls_is_an_argument():
    text, = kernels(16, 32, 48)
    assert "const int32_t OW = 35;" in text
    assert "const int32_t OC = call->extent[" in text and "const int32_t OW = call->extent[" not in text
