# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of two to eight operators, each between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from tests.onnx_models import model, node


class _Models:
    """Builds a model. Values are names of float32 results of DequantizeLinear.

    shapes: of all values. parameters: value -> the names of its scale and zero point.
    """

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.dtype = ["int8", "uint8"][seed % 2]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.parameters: dict[str, str] = {}

    def const(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, kind: str, *inputs: str, shape: tuple[int, ...] = (), **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(kind, " ".join(inputs), name, **attributes))
        self.shapes[name] = tuple(shape) or self.shapes.get(inputs[0], ())
        return name

    def scales(self, low: float, high: float) -> str:
        """Returns the names of a scale for float values from `low` to `high`, and of its zero point."""
        limits = np.iinfo(self.dtype)
        scale = np.float32((high - low) / 255 * self.random.uniform(0.7, 1.2))
        zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
        return f"{self.const(scale)} {self.const(np.array(zero, self.dtype))}"

    def quantised(self, value: str, low: float, high: float, parameters: str = "") -> str:
        """Quantises a value and dequantises it. parameters: names of scale and zero point; by default, for the range
        from `low` to `high`."""
        shape, parameters = self.shapes[value], parameters or self.scales(low, high)
        integers = self.op("QuantizeLinear", value, *parameters.split(), shape=shape)
        return self.real(integers, parameters, shape)

    def real(self, integers: str, parameters: str, shape: tuple[int, ...]) -> str:
        value = self.op("DequantizeLinear", integers, *parameters.split(), shape=shape)
        self.parameters[value] = parameters
        return value

    def weights(self, shape: tuple[int, ...], axis: int) -> str:
        """Returns dequantised int8 weights, with a scale for each index of an axis or one for all. Scales are such that
        sums of products are about as large as operands."""
        fan_in = np.prod(shape) / shape[axis]
        scale = np.full(shape[axis], 1 / 73 / np.sqrt(fan_in)) * self.random.uniform(0.5, 1.5, shape[axis])
        scale = scale.astype(np.float32) if self.random.random() < 0.6 else scale[0].astype(np.float32)
        name = self.const(self.random.integers(-127, 128, shape).astype(np.int8))
        return self.op("DequantizeLinear", name, self.const(scale), self.const(np.zeros(scale.shape, np.int8)),
                       shape=shape, axis=axis)

    def conv(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        k, stride, depthwise = int(self.random.choice([1, 3])), int(self.random.choice([1, 1, 2])), \
            self.random.random() < 0.3
        channels = c if depthwise else int(self.random.integers(2, 20))
        weights = self.weights((channels, 1 if depthwise else c, k, k), 0)
        bias = [self.const(self.random.normal(size=channels).astype(np.float32))] if self.random.random() < 0.6 else []
        shape = (n, channels, (h - 1) // stride + 1, (w - 1) // stride + 1)
        return self.quantised(self.op("Conv", x, weights, *bias, shape=shape, pads=[k // 2] * 4,
                                      strides=[stride] * 2, group=c if depthwise else 1), -4, 4)

    def matmul(self, x: str) -> str:
        *rest, k = self.shapes[x]
        n = int(self.random.integers(2, 20))
        return self.quantised(self.op("MatMul", x, self.weights((k, n), 1), shape=(*rest, n)), -4, 4)

    def attention(self, x: str) -> str:
        """The product of a value and its transpose."""
        *rest, m, k = self.shapes[x]
        perm = [*range(len(rest)), len(rest) + 1, len(rest)]
        return self.quantised(self.op("MatMul", x, self.op("Transpose", x, perm=perm, shape=(*rest, k, m)),
                                      shape=(*rest, m, m)), -6, 4.0 * k)

    def pool(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        k, stride, pad = 3, int(self.random.choice([1, 2])), int(self.random.choice([0, 1]))
        if min(h, w) + 2 * pad < k:
            return self.gap(x)
        shape = (n, c, (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
        attributes = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [pad] * 4}
        if self.random.random() < 0.5:
            return self.quantised(self.op("MaxPool", x, shape=shape, **attributes), 0, 0, self.parameters[x])
        attributes["count_include_pad"] = int(self.random.integers(2))
        return self.quantised(self.op("AveragePool", x, shape=shape, **attributes), -3, 3)

    def gap(self, x: str) -> str:
        n, c, *_ = self.shapes[x]
        if self.random.random() < 0.5:
            return self.quantised(self.op("GlobalAveragePool", x, shape=(n, c, 1, 1)), -1, 1)
        axes = self.const(np.array([2, 3]))
        return self.quantised(self.op("ReduceMean", x, axes, shape=(n, c, 1, 1), keepdims=1), -1, 1)

    def two(self, x: str) -> str:
        y = self.quantised(self.op("Relu", x), 0, 3)
        return self.quantised(self.op(str(self.random.choice(["Add", "Mul"])), x, y), -4, 6)

    def activation(self, x: str) -> str:
        match self.random.integers(4):
            case 0: return self.quantised(self.op("Relu", x), 0, 4)
            case 1: return self.quantised(self.op("Clip", x, *map(self.const, np.float32([0, 2.5]))), 0, 2.5)
            case 2: return self.quantised(self.op("Sigmoid", x), 0, 1)
            case _: return self.quantised(self.op("HardSwish", x), -0.4, 3)

    def concat(self, x: str) -> str:
        shape = list(self.shapes[x])
        shape[1] *= 2
        return self.quantised(self.op("Concat", x, self.activation(x), shape=tuple(shape), axis=1), -3, 4)

    def resize(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        sizes = (n, c, 2 * h, 2 * w)
        return self.quantised(self.op("Resize", x, "", "", self.const(np.array(sizes)), shape=sizes, mode="nearest",
                                      coordinate_transformation_mode="asymmetric", nearest_mode="floor"), 0, 0,
                              self.parameters[x])

    def reshape(self, x: str) -> str:
        shape = self.shapes[x]
        shape = (shape[0], int(np.prod(shape[1:-1])), shape[-1]) if len(shape) == 4 else (*shape[:-1], shape[-1], 1)
        return self.quantised(self.op("Reshape", x, self.const(np.array(shape)), shape=shape), 0, 0, self.parameters[x])

    def transpose(self, x: str) -> str:
        perm = [int(axis) for axis in (0, *self.random.permutation(np.arange(1, len(self.shapes[x]))))]
        shape = tuple(self.shapes[x][axis] for axis in perm)
        return self.quantised(self.op("Transpose", x, perm=perm, shape=shape), 0, 0, self.parameters[x])

    def softmax(self, x: str) -> str:
        """Adds a Softmax with a result scale of 1 / 256, as ONNX Runtime's quantiser writes it, or with a random
        scale."""
        drawn = self.scales(0, 1)
        least = self.const(np.array(np.iinfo(self.dtype).min, self.dtype))
        parameters = f"{self.const(np.float32(1 / 256))} {least}" if len(self.nodes) % 2 else drawn
        return self.quantised(self.op("Softmax", x, axis=-1), 0, 1, parameters)


#: Methods of `_Models` that may follow a value of rank 4; those that occur twice are chosen more often.
ON_IMAGES = ("conv", "conv", "conv", "two", "activation", "pool", "concat", "resize", "gap", "reshape", "transpose")
#: Methods of `_Models` that may follow a value of any rank.
ON_ANY = ("matmul", "two", "activation", "softmax", "transpose", "concat", "attention")


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Returns a model with one 8-bit input and output, and an input for it."""
    made = _Models(seed)
    random = made.random
    shape = (int(random.integers(1, 3)), int(random.integers(1, 9)), int(random.integers(3, 10)),
             int(random.integers(3, 10)))
    limits = np.iinfo(made.dtype)
    x = made.real("x", made.scales(-3, 3), shape)
    for _ in range(int(random.integers(2, 9))):
        if np.prod(made.shapes[x]) > 20_000:
            break
        x = getattr(made, str(random.choice(ON_IMAGES if len(made.shapes[x]) == 4 else ON_ANY)))(x)
    last = made.nodes.pop()  # the integers are the output
    proto = model(made.nodes, {"x": (made.dtype, list(shape))}, {last.input[0]: (made.dtype, None)}, made.constants,
                  opset=19)
    return proto, {"x": random.integers(limits.min, limits.max + 1, shape).astype(made.dtype)}


#: Operator -> its quantised form (QOperator), which takes each operand with its scale and zero point, then the scale
#: and zero point of the result.
_QUANTISED = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul", "Add": "com.microsoft::QLinearAdd",
              "Mul": "com.microsoft::QLinearMul", "Sigmoid": "com.microsoft::QLinearSigmoid",
              "AveragePool": "com.microsoft::QLinearAveragePool",
              "GlobalAveragePool": "com.microsoft::QLinearGlobalAveragePool",
              "Concat": "com.microsoft::QLinearConcat", "Softmax": "com.microsoft::QLinearSoftmax"}


def of_quantised_operators(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a QDQ model in QOperator form: operators between DequantizeLinear and QuantizeLinear become quantised
    ones where these exist, and their biases become int32."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    made.opset_import.add(domain="com.microsoft", version=1)
    source = {name: each for each in proto.graph.node for name in each.output}
    constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    replaced = {}
    for quantize in (each for each in proto.graph.node if each.op_type == "QuantizeLinear"):
        real = source[quantize.input[0]]
        if real.op_type not in _QUANTISED:
            continue
        own = real.input[:2] if real.op_type == "Conv" else real.input
        operands = [source[name].input[:3] for name in own if name in source]
        if len(operands) < len(own) or any(source[name].op_type != "DequantizeLinear" for name in own):
            continue
        if real.op_type == "Softmax" and constants[quantize.input[1]] != 1 / 256:
            continue  # ONNX Runtime multiplies by the integer part of 1 / scale
        domain, _, kind = _QUANTISED[real.op_type].rpartition("::")
        inputs = [name for operand in operands for name in operand]
        result = list(quantize.input[1:])
        inputs = result + inputs if kind == "QLinearConcat" else inputs + result
        if len(real.input) > len(own):
            scale = constants[operands[0][1]] * constants[operands[1][1]]
            name = f"{real.input[2]}_of_{quantize.output[0]}"
            bias = np.rint(constants[real.input[2]] / scale).astype(np.int32)
            made.graph.initializer.append(numpy_helper.from_array(bias, name))
            inputs.append(name)
        new = onnx.helper.make_node(kind, inputs, [quantize.output[0]], domain=domain)
        new.attribute.extend(real.attribute)
        if kind == "QLinearSoftmax":
            new.attribute.append(onnx.helper.make_attribute("opset", 13))
        replaced[quantize.output[0]] = new
    needed, nodes = {each.name for each in proto.graph.output}, []
    for each in reversed(proto.graph.node):
        each = replaced.get(each.output[0], each)
        if each.output[0] in needed:
            needed.update(each.input)
            nodes.insert(0, each)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made
