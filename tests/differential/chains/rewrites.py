# SPDX-License-Identifier: Apache-2.0
"""What single passes look for, which graphs drawn at random seldom have: a line of operators for each."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .builder import Builder, Value
from .quantised import quantised, weights
from .recipes import activation, batch_norm, channel_factor, image


def along_an_axis(b: Builder) -> Value:
    """Softmax between transposes, or reshapes, that undo each other; seldom that do not quite."""
    x = b.pick(range(2, 5), fresh=0.5)
    kind = b.one(("Softmax", "Softmax", "LogSoftmax"))
    if b.chance(0.6):
        perm = [int(axis) for axis in b.rng.permutation(x.rank)]
        if b.chance(0.5):
            perm = list(range(x.rank))
            at, other = b.whole(0, x.rank - 1), x.rank - 1
            perm[at], perm[other] = perm[other], perm[at]
        back = [int(axis) for axis in np.argsort(perm)] if b.chance(0.85) else perm
        y = b.op(kind, b.op("Transpose", x, perm=perm), axis=x.rank - 1 if b.chance(0.8) else b.whole(0, x.rank - 1))
        return b.op("Transpose", y, perm=back)
    flat = [-1, x.shape[-1]] if b.chance(0.6) else [0, -1] if b.chance(0.5) else [1, -1, x.shape[-1]]
    y = b.op(kind, b.reshaped(x, flat), axis=len(flat) - 1 if b.chance(0.9) else 0)
    shape = [0 if y.rank == x.rank else extent for extent in x.shape]
    return b.reshaped(y, [-1, *shape[1:]] if 0 not in shape else list(x.shape))


def written_where_it_lies(b: Builder) -> Value:
    """Rows of a transposed value are written, and it is transposed back: x[:, rows] = updates."""
    b.since(11)
    x = b.pick(range(2, 5), fresh=0.5)
    perm = [int(axis) for axis in b.rng.permutation(x.rank)]
    turned = b.op("Transpose", x, perm=perm)
    extent = turned.shape[0]
    rows = b.rng.permutation(extent)[:b.whole(1, extent)].reshape(-1, 1).astype("int64")
    if b.chance(0.3):
        rows = rows - extent
    updates = b.op("GatherND", turned, b.const(rows)) if b.opset >= 12 and b.chance(0.3) else b.normal(
        (len(rows), *turned.shape[1:]), x.dtype)
    if b.chance(0.4):
        updates = b.op("Neg", updates)
    back = [int(axis) for axis in (np.argsort(perm) if b.chance(0.85) else perm)]
    return b.op("Transpose", b.op("ScatterND", turned, b.const(rows), updates), perm=back)


def filters(b: Builder, x: Value, outputs: int, side: int, group: int = 1, dead: float = 0.0) -> Value:
    """A convolution with a bias now and then. dead: the share of filters that are zeros."""
    shape = (outputs, x.shape[1] // group, side, side)
    w = b.rng.normal(size=shape) / math.sqrt(math.prod(shape[1:]))
    w[b.rng.random(outputs) < dead] = 0
    more = [b.normal((outputs,), x.dtype)] if b.chance(0.6) else []
    return b.op("Conv", x, b.const(w, x.dtype), *more, group=group, pads=[side // 2] * 4,
                strides=[b.one((1, 1, 1, 2))] * 2)


def after_a_pad(b: Builder) -> Value:
    """A pad of rows and columns in front of a convolution or a pool, of zeros or what is nearly so."""
    x = image(b)
    number = b.one((0, 0, 0, 0, -0.0, 1, -1e4))
    pads = [b.whole(0, 2) for _ in range(4)]
    pads = [0, int(b.chance(0.1)), *pads[:2], 0, 0, *pads[2:]]
    y = b.op("Pad", x, pads=pads, value=float(number)) if b.opset < 11 else b.op(
        "Pad", x, b.ints(*pads), b.const(np.array(number, x.dtype)))
    if b.chance(0.3):
        return b.op(b.one(("MaxPool", "AveragePool")), y, kernel_shape=[2, 2], strides=[b.whole(1, 2)] * 2,
                    pads=[b.whole(0, 1) for _ in range(4)])
    return filters(b, y, b.one((2, 3, 8)), b.one((1, 2, 3)))


def behind_a_concat(b: Builder) -> Value:
    """Convolutions, or parts of them, side by side, and elementwise operators on all of that."""
    x = image(b)
    stride = b.one((1, 2))
    parts = [b.op("Conv", x, b.normal((b.one((1, 4, 8)), x.shape[1], 1, 1), x.dtype), strides=[stride] * 2)
             for _ in range(b.whole(1, 3))]
    parts += [parts[0]] if b.chance(0.2) else [activation(b, parts[0])] if b.chance(0.4) else []
    y = b.op("Concat", *parts, axis=1) if b.chance(0.9) else b.op("Concat", *parts, axis=0)
    for _ in range(b.whole(1, 2)):
        y = b.one((activation, channel_factor, batch_norm))(b, y)
    return y


def many(b: Builder) -> Value:
    """More operands than a kernel has."""
    x = b.pick(range(1, 4), fresh=0.3)
    others = [each for each in b.values if each.shape == x.shape and each.dtype == x.dtype]
    operands = [b.one(others) if b.chance(0.5) else b.normal(x.shape, x.dtype) for _ in range(b.whole(6, 20))]
    kind = b.one(("Sum", "Max", "Min", "Mean", "Concat", "Concat"))
    return b.op(kind, *operands, **({"axis": b.whole(0, x.rank - 1)} if kind == "Concat" else {}))


def shuffled_unit(b: Builder) -> Value:
    """A grouped 1x1 convolution, a shuffle of channels, a depthwise and a 1x1 convolution."""
    x = image(b)
    groups = b.one((2, 2, 3, 4))
    channels = groups * b.one((1, 2, 3, 4))
    if x.shape[1] % groups:
        x = filters(b, x, groups * 2, 1)
    y = filters(b, x, channels, 1, groups)
    y = activation(b, y) if b.chance(0.5) else y
    _, c, h, w = y.shape
    y = b.reshaped(y, [0, groups, c // groups, h, w])
    y = b.reshaped(b.op("Transpose", y, perm=[0, 2, 1, 3, 4]), [0, c, h, w])
    if b.chance(0.7):
        y = filters(b, y, c, 3, c)
        for _ in range(b.whole(0, 2)):
            y = b.one((activation, batch_norm, channel_factor))(b, y)
    return filters(b, y, b.one((2, 5, 8)), b.one((1, 1, 3)))


def dead_channels(b: Builder) -> Value:
    """Filters of zeros, what leaves their channels one number, and a convolution or product that reads them."""
    x = image(b, 2)
    y = filters(b, x, b.one((3, 4, 8)), b.one((1, 3)), dead=0.4)
    for _ in range(b.whole(0, 3)):
        kind = b.one(("activation", "norm", "factor", "pool", "depthwise", "concat", "sum"))
        if kind in ("activation", "norm", "factor"):
            y = {"activation": activation, "norm": batch_norm, "factor": channel_factor}[kind](b, y)
        elif kind == "pool":
            more = {"count_include_pad": b.whole(0, 1)} if b.chance(0.5) else None
            y = b.op("MaxPool" if more is None else "AveragePool", y, kernel_shape=[2, 2], pads=[b.whole(0, 1)] * 4,
                     **more or {})
        elif kind == "depthwise":
            y = filters(b, y, y.shape[1], 3, y.shape[1], dead=0.2)
        else:
            other = b.op("Conv", y, b.normal((y.shape[1], y.shape[1], 1, 1), y.dtype, 0.3))
            y = b.op("Concat", y, other, axis=1) if kind == "concat" else b.op("Add", y, other)
    if b.chance(0.3):
        y = b.op("Flatten", b.op("GlobalAveragePool", y))
        return b.op("Gemm", y, b.normal((5, y.shape[1]), y.dtype, 0.4), b.normal((5,), y.dtype), transB=1)
    return filters(b, y, b.one((2, 5)), b.one((1, 3)))


def quantised_sums(b: Builder) -> Value:
    """Sums, products and functions of quantised values, whose scales are alike or far apart."""
    b.since(10)
    dtype = b.one(("int8", "uint8"))
    x, _ = quantised(b, b.pick(range(1, 5), dtype="float32", fresh=0.7), dtype)
    y, _ = quantised(b, b.op("Mul", x, b.const(np.float32(b.one((1, 1, 0.1, 3, 0.01))))), dtype)
    for _ in range(b.whole(1, 2)):
        z = b.op(b.one(("Add", "Add", "Sub", "Mul")), x, y)
        z = activation(b, z) if b.chance(0.3) else z
        x, y = quantised(b, z, dtype)[0], x
    return x


def quantised_with_known_channels(b: Builder) -> Value:
    """A quantised convolution of which some filters are their zero points, and one behind it."""
    b.since(10)
    x, _ = quantised(b, b.cast(image(b), "float32"), "int8")
    for _ in range(2):
        outputs = b.one((3, 4, 8))
        filters_, _ = weights(b, (outputs, x.shape[1], 1, 1), 0)
        if b.chance(0.7):
            mask = (b.rng.random((outputs, 1, 1, 1)) < 0.6).astype("float32")
            filters_ = b.op("Mul", filters_, b.const(mask))
            filters_ = quantised(b, filters_, "int8")[0]
        y = b.op("Conv", x, filters_, b.normal((outputs,), "float32"))
        y = b.op("Relu", y) if b.chance(0.5) else y
        x, _ = quantised(b, y, "int8")
    return x


RECIPES: tuple[Callable[[Builder], object], ...] = (
    along_an_axis, along_an_axis, written_where_it_lies, after_a_pad, after_a_pad, behind_a_concat, behind_a_concat,
    many, shuffled_unit, dead_channels, dead_channels)
QUANTISED = (quantised_sums, quantised_sums, quantised_with_known_channels)
