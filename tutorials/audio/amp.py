# SPDX-License-Identifier: Apache-2.0
"""An amplifier as Neural Amp Modeler describes them: a WaveNet of dilated convolutions without pads, here of seeded
weights. `python amp.py amp.onnx [LENGTH]` writes it for a whole sequence of so many samples."""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DILATIONS = tuple(2**layer for layer in range(10))


def amp(length: int = 8192, channels: int = 16, dilations=DILATIONS, kernel: int = 3) -> onnx.ModelProto:
    random = np.random.default_rng(20)
    nodes, weights = [], []

    def weight(array) -> str:
        weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(weights)}"))
        return weights[-1].name

    def add(kind: str, *inputs: str, **attributes) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], name=f"{kind}_{len(nodes)}", **attributes))
        return nodes[-1].output[0]

    def conv(x: str, inputs: int, outputs: int, width: int = 1, dilation: int = 1) -> str:
        values = random.standard_normal((outputs, inputs, width)) / np.sqrt(inputs * width)
        bias = 0.1 * random.standard_normal(outputs)
        return add("Conv", x, weight(values.astype(np.float32)), weight(bias.astype(np.float32)), dilations=[dilation])

    def last(x: str, count: int) -> str:
        """The last `count` samples."""
        return add("Slice", x, *(weight(np.array([n], np.int64)) for n in (-count, 2**40, 2)))

    given, final = length, length - (kernel - 1) * sum(dilations)
    x, head = conv("audio", 1, channels), ""
    for dilation in dilations:
        length -= (kernel - 1) * dilation
        condition = last(conv("audio", 1, channels), length)
        z = add("Tanh", add("Add", conv(x, channels, channels, kernel, dilation), condition))
        head = add("Add", head, last(z, final)) if head else last(z, final)
        x = add("Add", last(x, length), conv(z, channels, channels))
    nodes.append(helper.make_node("Identity", [conv(head, channels, 1)], ["out"]))
    graph = helper.make_graph(nodes, "amp", [helper.make_tensor_value_info("audio", TensorProto.FLOAT, [1, 1, given])],
                              [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 1, final])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    onnx.save(amp(*map(int, sys.argv[2:])), sys.argv[1])
