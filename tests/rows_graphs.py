# SPDX-License-Identifier: Apache-2.0
"""Graphs of 8-bit layers that can be computed strip by strip of rows (passes/memory/strips.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.graphs import Builder
from tvm_megcc.ir.graph import Graph


class Bytes(Builder):
    """Builds graphs of int8, or of uint8 whose weights have zero points. zero, w_zero: zero points of values and
    weights."""

    def __init__(self, dtype: str = "int8"):
        super().__init__()
        self.dtype = np.dtype(dtype)
        self.zero, self.w_zero = (-3, 0) if dtype == "int8" else (125, 99)

    def layer(self, x: str, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1, pad: int | None = None,
              dilation: int = 1, scales: float | np.ndarray = 2e-4) -> str:
        """Adds a convolution whose int32 sums are requantized. scales: of the sums, one or one for each channel."""
        name = f"c{len(self.ops)}"
        shape = (channels, self.types[x].shape[1] // groups, kernel, kernel)
        lowest = np.iinfo(self.dtype).min
        w = self.const(f"{name}.w", value=self.generator.integers(lowest + 1, lowest + 256, shape).astype(self.dtype))
        b = self.const(f"{name}.b", value=self.generator.integers(-999, 999, channels).astype(np.int32))
        pads = ((kernel - 1) * dilation // 2 if pad is None else pad,) * 4
        sums = self.op("conv2d_integer", x, w, b, name=f"{name}.sums", strides=(stride, stride), pads=pads,
                       dilations=(dilation, dilation), groups=groups, x_zero=self.zero, w_zero=self.w_zero)
        scales = np.float32(scales)
        reals = self.op("dequantize_linear", sums, self.const(f"{name}.s", value=scales),
                        self.const(f"{name}.z", value=np.zeros(scales.shape, np.int32)), name=f"{name}.reals", axis=1,
                        block=0, dtype="float32")
        return self.quantised(reals, name)

    def scaled(self, x: str, channels: int, **window: int) -> str:
        """Adds a layer with a scale for each channel."""
        return self.layer(x, channels, scales=self.generator.uniform(1e-4, 3e-4, channels), **window)

    def quantised(self, reals: str, name: str) -> str:
        """Quantises a float32 value."""
        return self.op("quantize_linear", reals, self.const(f"{name}.qs", value=np.float32(0.02)),
                       self.const(f"{name}.qz", value=self.dtype.type(self.zero)), name=name, axis=1, block=0,
                       dtype=self.dtype.name)

    def added(self, a: str, b: str) -> str:
        """Adds the sum of two quantised values."""
        zero = self.dtype.type(self.zero)
        reals = [self.op("dequantize_linear", x, self.const(f"{x}.as{len(self.ops)}", value=np.float32(0.02)),
                         self.const(f"{x}.az{len(self.ops)}", value=zero), name=f"{x}.r{len(self.ops)}", axis=1,
                         block=0, dtype="float32")
                 for x in (a, b)]
        return self.quantised(self.op("add", *reals), f"sum{len(self.ops)}")


def separable(dtype: str = "int8") -> Graph:
    """The first layers of MobileNetV1: convolution, depthwise and pointwise convolutions."""
    b = Bytes(dtype)
    x = b.layer(b.input("x", 1, 3, 20, 10, dtype=dtype), 24, stride=2)
    x = b.layer(b.layer(x, 24, groups=24), 48, kernel=1)
    return b.graph(b.layer(x, 48, stride=2, groups=48))


def unsigned() -> Graph:
    return separable("uint8")


def residual() -> Graph:
    """A residual network: a value that two operators read, windows of several sizes."""
    b = Bytes()
    x = b.layer(b.input("x", 1, 4, 23, 9, dtype="int8"), 8, kernel=5)
    y = b.layer(b.layer(x, 8, dilation=2), 8, kernel=3)
    x = b.added(x, y)
    x = b.op("max_pool", x, kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 0), dilations=(1, 1), ceil=0)
    return b.graph(b.added(b.layer(x, 8, kernel=3), x))


def pads_and_strides() -> Graph:
    """Strides of more than the window, more pads than rows of a strip, a window without pads."""
    b = Bytes()
    x = b.layer(b.input("x", 1, 3, 30, 7, dtype="int8"), 5, kernel=1, stride=2, pad=0)
    x = b.layer(b.layer(x, 6, kernel=5, pad=4), 7, kernel=3, pad=0)
    return b.graph(b.layer(x, 8, kernel=3, stride=3))


def wide_pads() -> Graph:
    """Layers with windows that lie completely in the padding. They are so many that strips need no less memory."""
    b = Bytes()
    x = b.layer(b.input("x", 1, 3, 14, 6, dtype="int8"), 8, kernel=3, pad=4)
    x = b.layer(b.layer(x, 8, kernel=1, pad=2), 8, groups=8, pad=3, stride=2)
    return b.graph(b.layer(x, 4, kernel=2, pad=3, dilation=2))


def columns() -> Graph:
    """Values of width 1, so that a strip of one row has the same shape as the scales of its channels."""
    b = Bytes()
    x = b.scaled(b.input("x", 1, 4, 9, 1, dtype="int8"), 1024, kernel=1)
    return b.graph(b.scaled(b.scaled(x, 1024, groups=1024), 4, kernel=1))


def broadcast() -> Graph:
    """Values of width 1 with operands that are broadcast along each axis, of ranks 2 to 4."""
    b = Bytes()
    x = b.scaled(b.scaled(b.input("x", 1, 4, 23, 1, dtype="int8"), 32, stride=2), 32, groups=32)
    for shape in ((1, 32, 1, 1), (12, 1), (1, 1, 12, 1), (32, 12, 1)):
        other = b.const(f"other{shape}", value=b.generator.integers(-99, 99, shape).astype(np.int8))
        x = b.scaled(b.added(x, other), 32, kernel=1)
    for name, shape in (("channels", (1, 32, 1, 1)), ("rows", (1, 1, 12, 1)), ("places", (1, 32, 12, 1))):
        x = b.scaled(b.added(x, b.input(name, *shape, dtype="int8")), 32, kernel=1)
    return b.graph(b.scaled(x, 1))


def person_detection(channels: int = 1) -> Graph:
    """MobileNetV1 with a width multiplier of 0.25 on images of 96x96, as in Visual Wake Words."""
    b = Bytes()
    x = b.layer(b.input("x", 1, channels, 96, 96, dtype="int8"), 8, stride=2)
    for outputs, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2),
                            (256, 1)):
        width = b.types[x].shape[1]
        x = b.layer(b.layer(x, width, stride=stride, groups=width), outputs, kernel=1)
    return b.graph(b.layer(x, 2, kernel=3, pad=0))


def fed(graph: Graph) -> dict[str, np.ndarray]:
    """Returns random inputs of a graph: integers over the whole range of their types, floats around 0."""
    random = np.random.default_rng(5)

    def array(shape: Sequence[int], dtype: str) -> np.ndarray:
        if dtype == "float32":
            return random.standard_normal(shape).astype(dtype)
        limit = np.iinfo(dtype)
        return random.integers(limit.min, limit.max + 1, shape).astype(dtype)

    return {name: array(graph.types[name].shape, graph.types[name].dtype) for name in graph.inputs}


GRAPHS = (separable, unsigned, residual, pads_and_strides)
