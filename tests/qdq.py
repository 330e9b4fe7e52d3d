# SPDX-License-Identifier: Apache-2.0
"""Random quantised networks in QDQ form: float operators between dequantize_linear and quantize_linear, as exporters
write them."""

from __future__ import annotations

import numpy as np

from tests.graphs import Builder
from tvm_megcc.ir.graph import Graph, Op


class Quantised(Builder):
    """Builds quantised graphs. Values are float32 results of dequantize_linear."""

    def __init__(self, seed: int, dtype: str):
        super().__init__(seed)
        self.dtype = dtype
        self.random = np.random.default_rng(seed)

    def scalar(self, name: str, value, dtype: str) -> str:
        return self.const(f"{name}{len(self.constants)}", value=np.array(value, dtype))

    def parameters(self) -> tuple[str, str]:
        """Returns a random scale, and a zero point at an end of its range, at 0 or between."""
        limits = np.iinfo(self.dtype)
        zero = self.random.choice([limits.min, limits.max, 0, int(self.random.integers(limits.min, limits.max + 1))])
        return self.scalar("s", self.random.uniform(0.01, 0.1), "float32"), self.scalar("z", zero, self.dtype)

    def real(self, integers: str, scale: str, zero: str) -> str:
        """Dequantises a value."""
        return self.op("dequantize_linear", integers, scale, zero, axis=0, block=0, dtype="float32")

    def quantised(self, value: str) -> str:
        """Quantises a value with random parameters and dequantises it."""
        scale, zero = self.parameters()
        return self.real(self.op("quantize_linear", value, scale, zero, axis=0, block=0, dtype=self.dtype), scale, zero)

    def source(self, name: str) -> Op:
        """Returns the dequantize_linear from which a value comes, through operators such as a relu."""
        op = next(op for op in self.ops if op.outputs == (name,))
        return op if op.kind == "dequantize_linear" else self.source(op.inputs[0])

    def weights(self, shape: tuple[int, ...], axis: int) -> str:
        """Returns dequantised int8 weights, with a scale for each index of an axis or one for all."""
        count = shape[axis] if self.random.random() < 0.7 else 1
        scale = self.random.uniform(0.002, 0.02, count if count > 1 else ()).astype(np.float32)
        name = self.const(f"w{len(self.constants)}", value=self.random.integers(-127, 128, shape).astype(np.int8))
        return self.op("dequantize_linear", name, self.const(f"{name}.s", value=scale),
                       self.const(f"{name}.z", value=np.zeros(scale.shape, np.int8)), axis=axis, block=0,
                       dtype="float32")

    def bias(self, x: str, w: str, count: int) -> str:
        """Returns a dequantised int32 bias, whose scale is the product of the scales of x and w. count: its length."""
        scales = [self.constants[self.source(name).inputs[1]] for name in (x, w)]
        name = self.const(f"b{len(self.constants)}", value=self.random.integers(-999, 999, count).astype(np.int32))
        scale = self.const(f"{name}.s", value=np.asarray(scales[0] * scales[1], np.float32))
        return self.op("dequantize_linear", name, scale, axis=0, block=0, dtype="float32")

    def convolution(self, x: str, channels: int, kernel: int, stride: int, depthwise: bool) -> str:
        """Adds a convolution, usually with a bias, whose result is not quantised yet. channels: of the result, unless
        the convolution is depthwise."""
        inputs = self.types[x].shape[1]
        groups, channels = (inputs, inputs) if depthwise else (1, channels)
        w = self.weights((channels, inputs // groups, kernel, kernel), 0)
        pad = kernel // 2
        return self.op("conv2d", x, w, *((self.bias(x, w, channels),) if self.random.random() < 0.8 else ()),
                       strides=(stride, stride), pads=(pad,) * 4, dilations=(1, 1), groups=groups)


def random_network(seed: int) -> Graph:
    """A few quantised layers, a residual sum, data movement, and a fully connected layer at the end."""
    random = np.random.default_rng(seed)
    b = Quantised(seed, ["int8", "uint8"][seed % 2])
    scale, zero = b.parameters()
    x = b.real(b.input("x", 1, int(random.integers(1, 9)), 9, 11, dtype=b.dtype), scale, zero)
    for _ in range(int(random.integers(2, 5))):
        y = b.convolution(x, int(random.integers(3, 20)), int(random.choice([1, 3])), int(random.choice([1, 1, 2])),
                          bool(random.random() < 0.3))
        match random.integers(6):
            case 0: y = b.op("relu", y)
            case 1: y = b.op("clip", y, lo=0.0, hi=6.0)
            case 2: y = b.op("sigmoid", y)
        y = b.quantised(y)
        match random.integers(5):
            case 0: y = b.quantised(b.op("add", y, b.quantised(b.convolution(y, b.types[y].shape[1], 1, 1, False))))
            case 1: y = b.quantised(b.op("concat", y, b.quantised(b.op("relu", y)), axis=1))
            case 2: y = b.op("transpose", b.op("transpose", y, perm=(0, 2, 3, 1)), perm=(0, 3, 1, 2))
        x = y
    flat = b.op("reshape", x, shape=(1, int(np.prod(b.types[x].shape))))
    w = b.weights((b.types[flat].shape[1], 7), 1)
    b.quantised(b.op("matmul", flat, w, trans_a=0, trans_b=0))
    return b.graph(b.ops[-1].inputs[0])
