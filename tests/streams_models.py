# SPDX-License-Identifier: Apache-2.0
"""Small networks on sequences with random weights, which tests convert to streaming form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.tflite_files import Quantized, written
from tvm_megcc.frontends.models import import_model


class Writer:
    """Collects the nodes and weights of an ONNX model with the input "x". shape: of the input."""

    def __init__(self, shape, seed: int = 5):
        self.random = np.random.default_rng(seed)
        self.shape, self.nodes, self.weights = shape, [], []

    def weight(self, *shape) -> str:
        count = max(int(np.prod(shape[1:])), 1)
        return self.constant((self.random.standard_normal(shape) / np.sqrt(count)).astype(np.float32))

    def constant(self, array) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, **attributes) -> str | tuple[str, ...]:
        results = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, results, name=name or results[0], **attributes))
        return results[0] if outputs == 1 else tuple(results)

    def conv(self, x: str, channels: int, outputs: int, kernel: int, **attributes) -> str:
        groups = attributes.get("group", 1)
        return self.add("Conv", x, self.weight(outputs, channels // groups, kernel), self.weight(outputs), **attributes)

    def quantised(self, x: str, scale: float, zero: int) -> str:
        """Quantises a value to int8 and dequantises it."""
        parameters = self.constant(np.float32(scale)), self.constant(np.int8(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *parameters), *parameters)

    def bytes_conv(self, x: str, channels: int, outputs: int, kernel: int, **attributes) -> str:
        """Adds a convolution whose weights are dequantised int8."""
        weights = self.constant(self.random.integers(-127, 128, (outputs, channels, kernel)).astype(np.int8))
        scales = self.constant((0.003 + 0.002 * self.random.random(outputs)).astype(np.float32))
        weights = self.add("DequantizeLinear", weights, scales, self.constant(np.zeros(outputs, np.int8)), axis=0)
        return self.add("Conv", x, weights, self.weight(outputs), **attributes)

    def slice(self, x: str, axis: int, start: int, end: int = 1 << 40, **more) -> str:
        return self.add("Slice", x, *(self.constant(np.array([n], np.int64)) for n in (start, end, axis)), **more)

    def model(self, *outputs: str, opset: int = 17) -> onnx.ModelProto:
        names = [f"y{index}" for index in range(len(outputs))]
        nodes = [*self.nodes, *(helper.make_node("Identity", [value], [name])
                                for value, name in zip(outputs, names, strict=True))]
        graph = helper.make_graph(
            nodes, "sequence", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@dataclass(frozen=True)
class Network:
    """A network for streaming.

    make: returns the ONNX model. axis: the time axis of the input. states: the number of states that the compiler adds.
    expected: output -> (latency, receptive field) in steps.
    """

    make: object
    axis: int = 2
    states: int = 0
    expected: Mapping = field(default_factory=dict)


def imported(network: Network):
    graph, _ = import_model(network.make().SerializeToString())
    return graph


def blocks_of(x: np.ndarray, axis: int, block: int) -> list[np.ndarray]:
    return np.split(x, range(block, x.shape[axis], block), axis)


def _causal():
    w = Writer((1, 3, 96))
    x = w.add("Tanh", w.conv("x", 3, 8, 3, pads=[2, 0]))
    x = w.conv(x, 8, 8, 3, pads=[8, 0], dilations=[4])
    return w.model(w.conv(x, 8, 2, 1))


def _chomp():
    """Causal convolutions as PyTorch models have them: padded on both sides, then sliced."""
    w = Writer((1, 3, 96))
    x = w.slice(w.conv("x", 3, 8, 3, pads=[4, 4], dilations=[2]), 2, 0, -4)
    y = w.add("Relu", x)
    y = w.slice(w.conv(y, 8, 8, 2, pads=[7, 7], dilations=[7]), 2, 0, -7)
    return w.model(w.add("Add", x, y))


def _padded():
    w = Writer((1, 3, 96))
    pads = w.constant(np.array([0, 0, 6, 0, 0, 0], np.int64))
    x = w.conv(w.add("Pad", "x", pads), 3, 8, 3, dilations=[3])
    return w.model(w.conv(w.add("Pad", w.add("Sigmoid", x), pads), 8, 4, 7))


def _same():
    """Convolutions with pads on both sides, whose results have a latency."""
    w = Writer((1, 3, 96))
    x = w.add("Sigmoid", w.conv("x", 3, 8, 3, pads=[1, 1]))
    y = w.add("Add", x, w.conv(x, 8, 8, 5, pads=[4, 4], dilations=[2]))
    return w.model(w.conv(y, 8, 4, 3, pads=[1, 1]), x)


def _strided():
    w = Writer((1, 2, 96))
    x = w.add("Relu", w.conv("x", 2, 6, 4, pads=[3, 0], strides=[2]))
    x = w.add("AveragePool", w.conv(x, 6, 6, 3, pads=[2, 0], group=6), kernel_shape=[2], strides=[2])
    return w.model(w.conv(x, 6, 5, 2, pads=[1, 0]))


def _valid_pools():
    w = Writer((1, 2, 96))
    x = w.add("MaxPool", w.conv("x", 2, 6, 3), kernel_shape=[3], strides=[1])
    return w.model(w.add("AveragePool", x, kernel_shape=[3], strides=[1], pads=[2, 0], count_include_pad=1))


def wavenet(length: int = 96, channels: int = 8, dilations=(1, 2, 4, 8), kernel: int = 3):
    """WaveNet as Neural Amp Modeler has it: convolutions without pads, residuals sliced to their length, a sum of
    heads."""
    w = Writer((1, 1, length))
    last = length - (kernel - 1) * sum(dilations)
    x, total = w.conv("x", 1, channels, 1), ""
    for dilation in dilations:
        length -= (kernel - 1) * dilation
        mixed = w.slice(w.conv("x", 1, channels, 1), 2, -length)
        z = w.add("Tanh", w.add("Add", w.conv(x, channels, channels, kernel, dilations=[dilation]), mixed))
        part = w.slice(z, 2, -last)
        total = w.add("Add", total, part) if total else part
        x = w.add("Add", w.slice(x, 2, -length), w.conv(z, channels, channels, 1))
    return w.model(w.conv(total, channels, 1, 1))


def _quantised():
    """A quantised network with zero points: pads of a convolution, a Pad between quantisations, a window that reads
    later steps, and pads after that latency."""
    w = Writer((1, 3, 96))
    x = w.quantised("x", 0.03, -3)
    x = w.quantised(w.add("Relu", w.bytes_conv(x, 3, 8, 3, pads=[2, 0])), 0.02, -128)
    padded = w.quantised(w.add("Pad", x, w.constant(np.array([0, 0, 8, 0, 0, 0], np.int64))), 0.02, -128)
    y = w.quantised(w.bytes_conv(padded, 8, 8, 3, dilations=[4]), 0.04, 5)
    y = w.quantised(w.add("Add", x, y), 0.05, 7)
    y = w.quantised(w.bytes_conv(y, 8, 4, 3, pads=[1, 1]), 0.06, -9)
    return w.model(w.quantised(w.bytes_conv(y, 4, 4, 3, pads=[2, 0]), 0.06, 0))


def tflite(dtype: str = "int8", length: int = 96, channels: int = 8) -> bytes:
    """Causal convolutions as TensorFlow exports them: a PAD with the zero point, then CONV_2D without pads. uint8
    weights have a zero point and one scale, int8 weights a scale for each channel."""
    random = np.random.default_rng(3)
    more = 128 if dtype == "uint8" else 0
    tensors = {"x": Quantized((1, length, 1, 4), 0.05, more - 3, dtype)}
    operators, x, inputs = [], "x", 4
    for n, (dilation, scale, zero) in enumerate(((1, 0.04, -128), (2, 0.05, -128), (4, 0.06, 4))):
        before, weights = tensors[x], random.integers(-127, 128, (channels, 3, 1, inputs)) + more
        scales = [0.002 + 0.002 * float(s) for s in random.random(channels)]
        weights, scales = weights.astype(dtype), scales[:1] if more else scales
        tensors |= {
            f"pads{n}": np.array([[0, 0], [2 * dilation, 0], [0, 0], [0, 0]], np.int32),
            f"padded{n}": Quantized((1, length + 2 * dilation, 1, inputs), before.scale, before.zero_point, dtype),
            f"w{n}": Quantized(weights.shape, scales, 99 if more else 0, dtype, 0, weights),
            f"b{n}": Quantized((channels,), [s * before.scale for s in scales], 0, "int32", 0,
                               random.integers(-500, 500, channels).astype(np.int32)),
            f"y{n}": Quantized((1, length, 1, channels), scale, more + zero, dtype)}
        fields = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": dilation, "DilationWFactor": 1,
                  "FusedActivationFunction": zero == -128}
        operators += [("PAD", "PadOptions", {}, [x, f"pads{n}"], [f"padded{n}"], {}),
                      ("CONV_2D", "Conv2DOptions", fields, [f"padded{n}", f"w{n}", f"b{n}"], [f"y{n}"], {})]
        x, inputs = f"y{n}", channels
    return written(tensors, operators, ["x"], [x])


def window() -> bytes:
    """A network of one window, 12 frames of 4 channels, as wake words have it: convolutions without pads until one step
    is left, a dense layer, TFLite's softmax of bytes."""
    random = np.random.default_rng(4)

    def weights(*shape):
        return Quantized(shape, [0.01] * shape[0], array=random.integers(-127, 128, shape).astype(np.int8))

    def bias(count, scale):
        values = random.integers(-99, 99, count).astype(np.int32)
        return Quantized((count,), [scale * 0.01] * count, 0, "int32", array=values)

    tensors = {"x": Quantized((1, 12, 1, 4), 0.05, -3), "w0": weights(8, 3, 1, 4), "b0": bias(8, 0.05),
               "y0": Quantized((1, 10, 1, 8), 0.04, -128), "w1": weights(8, 10, 1, 8), "b1": bias(8, 0.04),
               "y1": Quantized((1, 1, 1, 8), 0.05, -9), "shape": np.array([1, 8], np.int32),
               "flat": Quantized((1, 8), 0.05, -9), "w2": weights(3, 8), "b2": bias(3, 0.05),
               "dense": Quantized((1, 3), 0.06, 5), "scores": Quantized((1, 3), 1 / 256, -128)}
    fields = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    return written(tensors, [
        ("CONV_2D", "Conv2DOptions", {**fields, "FusedActivationFunction": 1}, ["x", "w0", "b0"], ["y0"]),
        ("CONV_2D", "Conv2DOptions", fields, ["y0", "w1", "b1"], ["y1"]),
        ("RESHAPE", "ReshapeOptions", {"NewShape": np.array([1, 8], np.int32)}, ["y1", "shape"], ["flat"]),
        ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["flat", "w2", "b2"], ["dense"]),
        ("SOFTMAX", "SoftmaxOptions", {"Beta": 1.0}, ["dense"], ["scores"])], ["x"], ["scores"])


def _wide():
    """A network on an image that arrives column by column."""
    w = Writer((1, 2, 10, 96))
    x = w.add("Conv", "x", w.weight(6, 2, 3, 3), w.weight(6), pads=[1, 2, 1, 0])
    x = w.add("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1])
    y = w.add("ReduceMean", x, axes=[2], keepdims=0)
    return w.model(w.add("Softmax", w.conv(y, 6, 4, 1), axis=1), w.add("Transpose", y, perm=[2, 0, 1]))


def _recurrent(kind: str, gates: int, ahead: int = 0, begins: bool = False):
    w = Writer((96, 1, 5))
    x = "x"
    if ahead:
        x = w.conv(w.add("Transpose", x, perm=[1, 2, 0]), 5, 5, 3, pads=[2 - ahead, ahead])
        x = w.add("Transpose", x, perm=[2, 0, 1])
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    first = ("", *(w.weight(1, 1, 7) for _ in range(2 if kind == "LSTM" else 1))) if begins else ()
    y, *_ = w.add(kind, x, w.weight(1, gates * 7, 5), w.weight(1, gates * 7, 7), w.weight(1, 2 * gates * 7), *first,
                  hidden_size=7, outputs=3 if kind == "LSTM" else 2, **more)
    y = w.add("Squeeze", y, w.constant(np.array([1], np.int64)))
    y = w.add("Add", w.add("MatMul", y, w.weight(7, 2)), w.weight(2))
    return w.model(y)


NETWORKS = {
    "causal": Network(_causal, states=2, expected={"y0": (0, 11)}),
    "chomp": Network(_chomp, states=2, expected={"y0": (0, 12)}),
    "padded": Network(_padded, states=2, expected={"y0": (0, 13)}),
    "same": Network(_same, states=6, expected={"y0": (6, 13), "y1": (1, 3)}),
    "strided": Network(_strided, states=3, expected={"y0": (0, 14)}),
    "valid pools": Network(_valid_pools, states=4, expected={"y0": (4, 7)}),
    "wavenet": Network(wavenet, states=4, expected={"y0": (30, 31)}),
    "quantised": Network(_quantised, states=5, expected={"y0": (1, 15)}),
    "wide": Network(_wide, axis=3, states=1, expected={"y0": (0, 3), "y1": (0, 3)}),
    "lstm": Network(lambda: _recurrent("LSTM", 4), axis=0, states=2, expected={"y0": (0, None)}),
    "gru": Network(lambda: _recurrent("GRU", 3), axis=0, states=1),
    "rnn": Network(lambda: _recurrent("RNN", 1), axis=0, states=1),
    "late lstm": Network(lambda: _recurrent("LSTM", 4, 1), axis=0, states=5),
    "begun lstm": Network(lambda: _recurrent("LSTM", 4, 1, begins=True), axis=0, states=5),
}


def _with(shape, make, axis: int = 2) -> Network:
    def model():
        w = Writer(shape)
        return w.model(make(w))
    return Network(model, axis)


#: Networks that cannot be streamed because of the operator "culprit": name -> (network, error text).
REFUSED = {
    "batch": (_with((1, 3, 96), lambda w: w.add("ReduceMean", "x", axes=[0], name="culprit"), 0), "reads the whole"),
    "mean": (_with((1, 3, 96), lambda w: w.add("ReduceMean", "x", axes=[2], name="culprit")), "reads the whole"),
    "softmax": (_with((1, 3, 96), lambda w: w.add("Softmax", "x", axis=2, name="culprit")), "reads the whole"),
    "flatten": (_with((1, 3, 96), lambda w: w.add("Flatten", "x", name="culprit")), "no axis any more"),
    "attention": (_with((1, 96, 3), lambda w: w.add("MatMul", "x", w.add("Transpose", "x", perm=[0, 2, 1]),
                                                    name="culprit"), 1), "only operand 0"),
    "stride": (_with((1, 3, 96), lambda w: w.add("Conv", "x", w.weight(2, 3, 4), strides=[4], name="culprit")),
               "does not divide the block"),
    "position": (_with((1, 3, 96), lambda w: w.add("Add", "x", w.weight(96), name="culprit")), "as long as the seq"),
    "end": (_with((1, 3, 96), lambda w: w.slice("x", 2, -1, name="culprit")), "selects 1 of 96"),
    "reflect": (_with((1, 3, 96), lambda w: w.add("Pad", "x", w.constant(np.array([0, 0, 2, 0, 0, 0], np.int64)),
                                                  mode="reflect", name="culprit")), "in mode reflect"),
    "reverse": (_with((96, 1, 3), lambda w: w.add(
        "GRU", "x", w.weight(1, 12, 3), w.weight(1, 12, 4), direction="reverse", outputs=2, name="culprit")[0], 0),
        "needs the end"),
    "scan": (_with((1, 3, 96), lambda w: w.add("CumSum", "x", w.constant(np.array(2, np.int64)), name="culprit")),
             "no rule"),
}
