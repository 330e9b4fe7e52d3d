# SPDX-License-Identifier: Apache-2.0
"""Operators between DequantizeLinear and QuantizeLinear, and those that take integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .builder import Builder, Value
from .recipes import activation, image


@dataclass(frozen=True)
class Parameters:
    scale: Value
    zero: Value | None
    axis: int | None = None

    @property
    def operands(self) -> tuple[Value | None, ...]:
        return self.scale, self.zero

    @property
    def attributes(self) -> dict[str, int]:
        return {} if self.axis is None else {"axis": self.axis}


def parameters(b: Builder, x: Value, dtype: str) -> Parameters:
    """For the reals of a value: a scale that covers them, now and then a larger or smaller one; a zero point in the
    middle, at an end, or anywhere."""
    limits = np.iinfo(dtype)
    low = min(min(float(array.min(initial=0)) for array in x.arrays), -1e-3)
    high = max(max(float(array.max(initial=0)) for array in x.arrays), 1e-3)
    scale = (high - low) / 255 * b.one((1, 1, 1, 0.7, 2, 20, 0.05))
    zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
    if b.chance(0.5):
        scale = max(high, -low) / 127
        zero = 0 if limits.min else 128
    if b.chance(0.1):
        zero = b.one((limits.min, limits.max))
    if b.chance(0.1):
        scale = 2.0 ** np.rint(np.log2(scale))
    absent = b.opset >= 13 and zero == 0 and dtype == "uint8" and b.chance(0.5)
    return Parameters(b.const(np.float32(scale)), None if absent else b.const(np.array(zero, dtype)))


def quantised(b: Builder, x: Value, dtype: str, same: Parameters | None = None) -> tuple[Value, Parameters]:
    """The reals of the integers of a value, and how they are made."""
    chosen = same or parameters(b, x, dtype)
    return b.op("DequantizeLinear", b.op("QuantizeLinear", x, *chosen.operands), *chosen.operands), chosen


def weights(b: Builder, shape: tuple[int, ...], axis: int, dtype: str = "int8") -> tuple[Value, np.ndarray]:
    """Reals of constant integers, with a scale a channel or one of all; that scale."""
    fan_in = max(int(np.prod(shape)) // shape[axis], 1)
    scale = (np.full(shape[axis], 1 / 73 / np.sqrt(fan_in)) * b.rng.uniform(0.5, 1.5, shape[axis])).astype("float32")
    by_channel = b.opset >= 13 and b.chance(0.6)
    scale = scale if by_channel else scale[0]
    limits = np.iinfo(dtype)
    zero = np.zeros(scale.shape, dtype) if dtype == "int8" else np.full(scale.shape, 128, dtype)
    if b.chance(0.15):
        zero = zero + b.rng.integers(-3, 4, zero.shape).astype(dtype)
    integers = b.const(b.rng.integers(limits.min + (dtype == "int8"), limits.max + 1, shape).astype(dtype))
    more = {"axis": axis} if by_channel else {}
    return b.op("DequantizeLinear", integers, b.const(scale), b.const(zero.astype(dtype)), **more), scale


def bias(b: Builder, x: Parameters, scale: np.ndarray, count: int) -> Value:
    """Reals of int32 in units of the product of both scales, or reals."""
    if b.opset < 13 or b.chance(0.4):
        return b.normal((count,), "float32", 0.5)
    unit = (x.scale.arrays[0] * scale).astype("float32")
    return b.op("DequantizeLinear", b.const(b.rng.integers(-900, 900, count).astype("int32")), b.const(unit),
                **({"axis": 0} if unit.ndim else {}))


def convolution(b: Builder, x: Value, own: Parameters) -> Value:
    inputs, rank = x.shape[1], x.rank - 2
    group = b.one([each for each in (1, 1, 1, 2, inputs) if inputs % each == 0])
    outputs = inputs if group == inputs and b.chance(0.7) else group * b.one((1, 2, 3, 8))
    side = b.one((1, 1, 2, 3, 3))
    filters, scale = weights(b, (outputs, inputs // group, *[side] * rank), 0, b.one(("int8", "int8", "uint8")))
    more = [bias(b, own, scale, outputs)] if b.chance(0.6) else []
    pads = [side // 2] * 2 * rank if b.chance(0.6) else [b.whole(0, 2) for _ in range(2 * rank)]
    y = b.op("Conv", x, filters, *more, group=group, strides=[b.one((1, 1, 2))] * rank, pads=pads)
    return activation(b, y) if b.chance(0.4) else y


def product(b: Builder, x: Value, own: Parameters) -> Value:
    depth, columns = x.shape[-1], b.one((1, 3, 4, 8, 17))
    filters, scale = weights(b, (depth, columns), 1)
    if x.rank == 2 and b.chance(0.3):
        return b.op("Gemm", x, filters, bias(b, own, scale, columns))
    y = b.op("MatMul", x, filters)
    return b.op("Add", y, bias(b, own, scale, columns)) if b.chance(0.4) else y


def with_itself(b: Builder, x: Value, own: Parameters) -> Value:
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return b.op("MatMul", x, b.op("Transpose", x, perm=perm))


def pool(b: Builder, x: Value, own: Parameters) -> Value:
    kind = b.one(("MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean"))
    if kind == "GlobalAveragePool":
        return b.op(kind, x)
    if kind == "ReduceMean":
        return b.reduced(kind, x, [2, 3], b.whole(0, 1))
    side = b.whole(1, min(3, *x.shape[2:]))
    more = {"count_include_pad": b.whole(0, 1)} if kind == "AveragePool" else {}
    return b.op(kind, x, kernel_shape=[side, side], strides=[b.whole(1, 2)] * 2,
                pads=[b.whole(0, side - 1) for _ in range(4)], **more)


def pair(b: Builder, x: Value, own: Parameters) -> Value:
    """A sum, a product or a concat of two that have scales of their own, or one."""
    dtype = own.zero.dtype if own.zero else "uint8"
    other = b.one((lambda: x, lambda: quantised(b, activation(b, x), dtype)[0],
                   lambda: quantised(b, activation(b, x), dtype, own)[0],
                   lambda: quantised(b, b.normal(x.shape[-1:], x.dtype), dtype)[0]))()
    if other.rank == x.rank and b.chance(0.4):
        return b.op("Concat", x, other, axis=b.whole(0, x.rank - 1))
    return b.op(b.one(("Add", "Add", "Mul", "Sub")), *((x, other) if b.chance(0.7) else (other, x)))


def moved(b: Builder, x: Value, own: Parameters) -> Value:
    kind = b.one(("transpose", "reshape", "slice", "pad", "split", "resize"))
    axis = b.whole(0, x.rank - 1)
    if kind == "transpose":
        return b.op("Transpose", x, perm=[int(each) for each in b.rng.permutation(x.rank)])
    if kind == "reshape":
        return b.reshaped(x, b.one(([0, -1], [-1], [*x.shape[:-1], -1, 1])))
    if kind == "slice":
        return b.sliced(x, axis, b.one((0, 1, -2)), b.one((2**31 - 1, -1)))
    if kind == "pad":
        return b.padded(x, [b.whole(0, 2) for _ in range(2 * x.rank)], b.one(("constant", "edge")))
    if kind == "split":
        return b.one(b.split(x, axis, [1, x.shape[axis] - 1]))
    b.since(13)
    return b.op("Resize", x, None, b.const(np.array([*[1] * (x.rank - 1), 2], "float32")), mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def some_activation(b: Builder, x: Value, own: Parameters) -> Value:
    if b.chance(0.25):
        return b.op("Softmax", x, axis=x.rank - 1)
    return activation(b, x)


ON_IMAGES: tuple[Callable[[Builder, Value, Parameters], Value], ...] = (
    convolution, convolution, convolution, pool, pool, pair, pair, some_activation, moved)
ON_ANY = (product, product, with_itself, pair, pair, some_activation, moved, moved)


def quantised_chain(b: Builder) -> None:
    """Some operators, each between DequantizeLinear and QuantizeLinear, seldom without one of them."""
    b.since(10)
    dtype = b.one(("int8", "uint8"))
    x = image(b) if b.chance(0.6) else b.pick(range(1, 5), fresh=0.5)
    if x.dtype != "float32":
        x = b.cast(x, "float32")
    x, own = quantised(b, x, dtype)
    for _ in range(b.whole(1, 3)):
        step = b.one(ON_IMAGES if x.rank == 4 and min(x.shape) else ON_ANY)
        y = step(b, x, own)
        same = own if step in (moved, pool) and b.chance(0.7) else None
        if b.chance(0.08):
            x, own = y, own
            continue
        x, own = quantised(b, y, dtype if b.chance(0.95) else b.one(("int8", "uint8")), same)


def dynamically_quantised(b: Builder) -> Value:
    """DynamicQuantizeLinear, MatMulInteger, a factor: as quantisers of language models write it."""
    b.since(11)
    x = b.pick(range(2, 4), dtype="float32", fresh=0.4)
    integers, scale, zero = b.ops("DynamicQuantizeLinear", x, outputs=3)
    depth, columns = x.shape[-1], b.one((1, 3, 8))
    dtype = b.one(("int8", "uint8"))
    matrix = b.const(b.rng.integers(-128 if dtype == "int8" else 0, 128, (depth, columns)).astype(dtype))
    y = b.op("MatMulInteger", integers, matrix, zero, b.const(np.array(b.whole(0, 5), dtype)))
    y = b.op("Mul", b.cast(y, "float32"), b.op("Mul", scale, b.const(np.float32(0.01))))
    return b.op("Add", y, b.normal((columns,), "float32")) if b.chance(0.5) else y


RECIPES = (quantised_chain, quantised_chain, quantised_chain, dynamically_quantised)
