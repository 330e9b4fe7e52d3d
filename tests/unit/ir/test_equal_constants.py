# SPDX-License-Identifier: Apache-2.0
"""`-O size`: what is equal in all calls of a kernel is a constant in its code, and nothing else is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tests.graphs import Builder
from tvm_megcc.compiler import context_of, lower
from tvm_megcc.ir.expr import X, call, clip
from tvm_megcc.target import TARGETS


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


def test_calls_whose_outputs_take_the_place_of_inputs_share_a_kernel_with_others():
    """They do for some extents only: all rows have to be read before the first is written."""
    b = Builder(1)

    def convolution(channels: int, extent: int) -> str:
        x, name = b.input(f"x{channels}", 1, channels, extent, extent, dtype="int8"), f"w{channels}"
        w = b.const(name, value=b.generator.integers(-127, 128, (channels, 1, 3, 3)).astype(np.int8))
        y = b.op("conv2d_integer", x, w, groups=channels, x_zero=-7, w_zero=0, strides=(2, 2), pads=(0, 0, 1, 1),
                 dilations=(1, 1))
        return b.op("elementwise", y, expr=clip(call("rescale_down", X, 1518500250, -6) - 9, -128, 127), dtype="int8")

    graph = b.graph(*(convolution(*extents) for extents in ((16, 48), (12, 40), (256, 24), (192, 20))))
    plan = lower(graph, context_of(graph, TARGETS["cortex-m4"], optimize="size")).plan
    steps = [step for step in plan.steps if step.op.kind == "conv2d_integer"]
    assert len({step.spec for step in steps}) == 1
    taken = {plan.graph.types[step.outputs[0]].shape[1]: step.takes_over for step in steps}
    assert taken == {16: (), 12: (), 256: ((0, 0),), 192: ((0, 0),)}
