# SPDX-License-Identifier: Apache-2.0
"""What passes rewrite, as exporters write it and as they nearly do: normalisation, attention, activations, moves.

Each function adds some nodes to a graph. A draw of a pattern is now and then one that must not be rewritten: another
axis, a factor that is not quite the same, a value in the middle that is read elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..draw import Undrawn
from .builder import Builder, Value
from .single import operator


def activation(b: Builder, x: Value | None = None) -> Value:
    """One operator, or one written out."""
    x = x or b.pick(range(1, 5))
    kind = b.one(("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "silu", "gelu", "tanh gelu", "hard swish", "relu6",
                  "mish", "Elu", "HardSigmoid", "Softplus", "PRelu", "quick gelu"))
    if kind in ("Relu", "Sigmoid", "Tanh", "Softplus", "HardSigmoid", "Elu"):
        return b.op(kind, x)
    if kind == "LeakyRelu":
        return b.op(kind, x, alpha=b.one((0.01, 0.1, 0.25)))
    if kind == "PRelu":
        shape = [1] * x.rank
        if x.rank > 1:
            shape[1] = x.shape[1]
        return b.op(kind, x, b.normal(shape[b.whole(0, 1):], x.dtype, 0.3))
    if kind in ("Clip", "relu6"):
        limits = (0, 6) if kind == "relu6" else sorted((b.whole(-2, 3), b.whole(-2, 3)))
        if b.opset < 11:
            return b.op("Clip", x, min=float(limits[0]), max=float(limits[1]))
        return b.op("Clip", x, *(b.const(np.array(limit, x.dtype)) for limit in limits))
    if kind in ("silu", "quick gelu"):
        inner = x if kind == "silu" else b.op("Mul", x, b.real(1.702, x))
        return either_way(b, "Mul", x, b.op("Sigmoid", inner))
    if kind == "gelu":
        b.since(9)
        inner = b.op("Erf", b.op("Div", x, b.real(b.one((math.sqrt(2), math.sqrt(2), 1.5)), x)))
        once = b.op("Add", inner, b.real(1, x))
        if b.chance(0.5):
            return b.op("Mul", either_way(b, "Mul", x, once), b.real(0.5, x))
        return either_way(b, "Mul", b.op("Mul", x, b.real(0.5, x)), once)
    if kind == "tanh gelu":
        cube = b.op("Pow", x, b.real(3, x)) if b.chance(0.5) else b.op("Mul", b.op("Mul", x, x), x)
        inner = b.op("Mul", b.op("Add", x, b.op("Mul", cube, b.real(0.044715, x))), b.real(math.sqrt(2 / math.pi), x))
        return b.op("Mul", b.op("Mul", x, b.real(0.5, x)), b.op("Add", b.op("Tanh", inner), b.real(1, x)))
    if kind == "hard swish":
        shifted = b.op("Add", x, b.real(3, x))
        limited = b.op("Clip", shifted, min=0.0, max=6.0) if b.opset < 11 else b.op(
            "Clip", shifted, b.const(0, x.dtype), b.const(6, x.dtype))
        if b.chance(0.5):
            return b.op("Div", b.op("Mul", x, limited), b.real(6, x))
        return b.op("Mul", x, b.op("Mul", limited, b.real(1 / 6, x)))
    return b.op("Mul", x, b.op("Tanh", b.op("Softplus", x)))


def either_way(b: Builder, kind: str, x: Value, y: Value) -> Value:
    return b.op(kind, x, y) if b.chance(0.5) else b.op(kind, y, x)


def image(b: Builder, least: int = 1) -> Value:
    """Of rank 4, or of rank 3."""
    fits = [each for each in b.values if each.rank == 4 and each.kind == "f" and min(each.shape) >= least]
    if fits and b.chance(0.8):
        return b.one(fits[-3:])
    channels = b.one((1, 2, 3, 4, 8, 16, 17))
    extents = [b.whole(max(least, 3), 9), b.whole(max(least, 3), 9)]
    if b.sizes and b.chance(0.7):
        where = b.whole(0, 2)
        return b.fresh(-1 if where == 0 else 1, channels, *(-1 if where == at + 1 else extent
                                                          for at, extent in enumerate(extents)))
    return b.fresh(b.whole(1, 2), channels, *extents)


def conv(b: Builder) -> Value:
    """Convolution, batch normalisation or factors a channel, activation or a sum."""
    x = image(b)
    if b.chance(0.2):
        pads = [b.one((0, 0, 1, 2)) for _ in range(4)]
        x = b.padded(x, [0, 0, *pads[:2], 0, 0, *pads[2:]], b.one(("constant", "constant", "edge")))
    for _ in range(b.one((1, 1, 2))):
        x = _one_conv(b, x)
        for _ in range(b.whole(0, 2)):
            x = b.one((batch_norm, channel_factor, channel_factor, activation, activation, residual))(b, x)
    return x


def _one_conv(b: Builder, x: Value) -> Value:
    inputs, rank = x.shape[1], x.rank - 2
    group = b.one([each for each in (1, 1, 1, 2, 4, inputs, inputs) if inputs % each == 0])
    outputs = group * b.one((1, 1, 2, 3, 5, 8))
    if outputs > 40:
        outputs = group
    kernel = [b.one((1, 1, 2, 3, 3))] * rank
    dilation = b.one((1, 1, 1, 2))
    same = [(taps - 1) * dilation // 2 for taps in kernel] * 2
    attributes = {"group": group, "strides": [b.one((1, 1, 1, 2, 3))] * rank, "dilations": [dilation] * rank,
                  "pads": same if b.chance(0.6) else [b.one((0, 0, 1, 2)) for _ in same]}
    back = b.chance(0.15)
    shape = (inputs, outputs // group, *kernel) if back else (outputs, inputs // group, *kernel)
    weights = b.normal(shape, x.dtype, 1 / math.sqrt(math.prod(shape[1:])))
    operands = [x, weights] + ([b.normal((outputs,), x.dtype)] if b.chance(0.5) else [])
    return b.op("ConvTranspose" if back else "Conv", *operands, **attributes)


def batch_norm(b: Builder, x: Value) -> Value:
    if x.rank < 2:
        raise Undrawn("rank")
    count = x.shape[1]
    scale, bias, mean = (b.normal((count,), x.dtype) for _ in range(3))
    variance = b.const(b.rng.uniform(0.2, 2, count), x.dtype)
    return b.op("BatchNormalization", x, scale, bias, mean, variance, epsilon=b.one((1e-5, 1e-3)))


def channel_factor(b: Builder, x: Value) -> Value:
    """Mul, Add, Sub or Div by numbers a channel, on one side or the other."""
    axis = 1 if x.rank > 1 and b.chance(0.8) else b.whole(0, x.rank - 1)
    shape = [1] * x.rank
    shape[axis] = x.shape[axis]
    numbers = b.const(b.rng.uniform(0.3, 2, shape[axis:] if b.chance(0.4) else shape)
                      * b.one((1, -1)), x.dtype) if b.chance(0.8) else b.real(b.one((0, 1, -1, 0.5, 3)), x)
    kind = b.one(("Mul", "Add", "Sub", "Div"))
    return b.op(kind, numbers, x) if b.chance(0.2) else b.op(kind, x, numbers)


def residual(b: Builder, x: Value) -> Value:
    same = [each for each in b.values if each.shape == x.shape and each.dtype == x.dtype and each is not x]
    other = b.one(same) if same else b.op(b.one(("Tanh", "Neg", "Abs")), x)
    return either_way(b, b.one(("Add", "Add", "Mul", "Sub", "Max")), x, other)


def pooled(b: Builder) -> Value:
    x, kind = image(b, 2), b.one(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean"))
    if kind.startswith("Global"):
        return b.op(kind, x)
    if kind == "ReduceMean":
        return b.reduced(kind, x, b.one(([2, 3], [-1, -2], [1], [2])), b.whole(0, 1))
    side = b.whole(1, min(3, *x.shape[2:]))
    pads = [b.whole(0, side - 1) for _ in range(4)]
    more = {"count_include_pad": b.whole(0, 1)} if kind == "AveragePool" else {}
    return b.op(kind, x, kernel_shape=[side, side], pads=pads, strides=[b.whole(1, 3), b.whole(1, 3)], **more)


def between_transposes(b: Builder) -> Value:
    """A transpose, something that minds the order of axes or does not, and a transpose back or another."""
    x = b.pick(range(2, 6), fresh=0.2)
    perm = [int(axis) for axis in b.rng.permutation(x.rank)]
    if x.rank == 4 and b.chance(0.6):
        perm = b.one(([0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]))
    x = b.op("Transpose", x, perm=perm)
    for _ in range(b.whole(0, 2)):
        x = b.one((activation, channel_factor, residual, softmax, some_reduction, cut, paired, padded))(b, x)
    if x.rank != len(perm):
        return x
    back = [int(axis) for axis in (np.argsort(perm) if b.chance(0.6) else b.rng.permutation(x.rank))]
    return b.op("Transpose", x, perm=back)


def softmax(b: Builder, x: Value | None = None) -> Value:
    x = x or b.pick(range(1, 5))
    return b.op(b.one(("Softmax", "Softmax", "LogSoftmax")), x, axis=x.rank - 1 if b.chance(0.5) else
                b.whole(0 if b.opset < 11 else -x.rank, x.rank - 1))


def some_reduction(b: Builder, x: Value | None = None) -> Value:
    x = x or b.pick(range(1, 5))
    kind = b.one(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1"))
    axes = [int(axis) for axis in b.rng.permutation(x.rank)[:b.whole(1, x.rank)]]
    result = b.reduced(kind, x, axes, b.one((1, 1, 0)))
    return b.op(b.one(("Sub", "Mul", "Add")), x, result) if result.rank == x.rank and b.chance(0.4) else result


def padded(b: Builder, x: Value | None = None) -> Value:
    x = x or b.pick(range(1, 5))
    mode = b.one(("constant", "constant", "edge", "reflect"))
    pads = [b.one((0, 0, 1, 2)) if mode != "reflect" else b.whole(0, min(2, x.shape[at % x.rank] - 1))
            for at in range(2 * x.rank)]
    return b.padded(x, pads, mode)


def cut(b: Builder, x: Value | None = None) -> Value:
    x = x or b.pick(range(1, 5), "fiub")
    axis = b.whole(0, x.rank - 1)
    start, end = b.one((0, 0, 1, -2, -1, x.shape[axis])), b.one((2**31 - 1, -1, x.shape[axis], 3, -50))
    if b.opset >= 10 and b.chance(0.4):
        step = b.one((1, 2, 3, -1, -2))
        return b.sliced(x, axis, *((end, start, step) if step < 0 else (start, end, step)))
    return b.sliced(x, axis, start, end)


def paired(b: Builder, x: Value | None = None) -> Value:
    """Concat with something made of it, with itself, or with zeros."""
    x = x or b.pick(range(1, 5), "fiub")
    other = b.one((lambda: x, lambda: cut(b, x), lambda: b.const(np.zeros(x.shape, x.dtype)),
                   lambda: b.op("Neg", x) if x.kind == "f" else x,
                   lambda: b.fitted(b.pick(None, x.kind), x.shape, x.dtype)))()
    axis = b.whole(0 if b.opset < 11 else -x.rank, x.rank - 1)
    return b.op("Concat", *b.one(((x, other), (other, x), (x, other, x), (other, x, other))), axis=axis)


def parted(b: Builder) -> Value:
    """Split, something with each part, and parts together again, maybe in another order."""
    x = b.pick(range(1, 5), fresh=0.3)
    axis = b.whole(0, x.rank - 1)
    extent = x.shape[axis]
    first = b.whole(0 if b.opset >= 13 else 1, extent)
    parts = b.split(x, axis, [first, extent - first] if 0 < first < extent or b.opset >= 13 else [extent])
    changed = [activation(b, part) if b.chance(0.5) else part for part in parts if part.size]
    if b.chance(0.3):
        changed.reverse()
    return b.op("Concat", *changed, axis=axis)


def shuffled(b: Builder) -> Value:
    """Reshape, transpose, reshape: shuffled channels, blocks to depth, windows, heads."""
    x = image(b)
    _, c, h, w = x.shape
    groups = b.one([each for each in (1, 2, 3, 4) if c % each == 0])
    if b.chance(0.5):
        y = b.reshaped(x, [0, groups, c // groups, h, w])
        y = b.op("Transpose", y, perm=b.one(([0, 2, 1, 3, 4], [0, 2, 1, 3, 4], [0, 1, 3, 2, 4])))
        return b.reshaped(y, b.one(([0, c, h, w], [-1, c, h, w], [0, c, -1])))
    side = b.one([each for each in (1, 2, 3) if h % each == 0 == w % each])
    y = b.reshaped(x, [0, c, h // side, side, w // side, side])
    y = b.op("Transpose", y, perm=b.one(([0, 1, 3, 5, 2, 4], [0, 3, 5, 1, 2, 4], [0, 2, 4, 3, 5, 1],
                                         [int(axis) for axis in b.rng.permutation(6)])))
    return b.reshaped(y, b.one(([0, c * side * side, h // side, w // side], [0, -1, w], [-1, c])))


def layer_norm(b: Builder) -> Value:
    """Written out, with or without mean, factors and bias."""
    x = b.pick(range(2, 5), fresh=0.3)
    axes = b.one(([-1], [-1], [-1], [x.rank - 1], [1], [-2, -1], [0]))
    keep = b.one((1, 1, 1, 1, 0))
    plain = b.chance(0.25)
    centred = x if plain else b.op("Sub", x, b.reduced("ReduceMean", x, axes, keep))
    squared = b.op("Pow", centred, b.real(2, x)) if b.chance(0.6) else b.op("Mul", centred, centred)
    variance = b.reduced("ReduceMean", squared, axes, keep)
    root = b.op("Sqrt", either_way(b, "Add", variance, b.real(b.one((1e-5, 1e-3, 1e-1)), x)))
    again = b.op("Sub", x, b.reduced("ReduceMean", x, axes, keep)) if not plain and b.chance(0.2) else centred
    y = b.op("Div", again, root) if b.chance(0.7) else either_way(b, "Mul", again, b.op("Reciprocal", root))
    shape = x.shape[-1:] if b.chance(0.8) else (*[1] * (x.rank - 2), *x.shape[-1:])
    if b.chance(0.7):
        y = either_way(b, "Mul", y, b.normal(shape, x.dtype))
    if b.chance(0.6):
        y = either_way(b, "Add", y, b.normal(shape, x.dtype))
    return y


def attention(b: Builder) -> Value:
    """Two products with a softmax between them, with heads or without, with factors and masks."""
    heads, depth = b.whole(1, 3), b.one((2, 4, 8))
    rows = b.one((1, 3, 5, 8))
    x = b.fresh(b.whole(1, 2), -1 if b.sizes else rows, heads * depth) if b.chance(0.7) else b.fitted(
        b.pick(3), (1, rows, heads * depth), b.reals)
    split = b.chance(0.7)

    def part() -> Value:
        y = b.op("MatMul", x, b.normal((heads * depth, heads * depth), x.dtype, 0.3)) if b.chance(0.7) else x
        if b.chance(0.3):
            y = b.op("Add", y, b.normal((heads * depth,), x.dtype))
        return b.op("Transpose", b.reshaped(y, [0, 0, heads, depth]), perm=[0, 2, 1, 3]) if split else y

    q, k, v = part(), part(), part()
    perm = [0, 1, 3, 2] if split else [0, 2, 1]
    factor = b.one((1 / math.sqrt(depth), 0.5, 2))
    if b.chance(0.3):
        q = b.op("Mul", q, b.real(factor, x))
    scores = b.op("MatMul", q, b.op("Transpose", k, perm=perm))
    if b.chance(0.6):
        scores = b.op("Mul", scores, b.real(factor, x)) if b.chance(0.5) else b.op("Div", scores, b.real(1 / factor, x))
    if b.chance(0.4):
        count = scores.shape[-1]
        if b.sizes and count == b.sizes[0]:
            mask = b.fresh(1, -1, dtype=x.dtype)
        else:
            mask = b.const(np.where(b.rng.random(b.one(((count, count), (1, count), (1, 1, count)))[:scores.rank])
                                    < 0.3, b.one((-1e4, -100.0)), 0), x.dtype)
        if b.opset >= 9 and b.chance(0.3):
            scores = b.op("Where", b.op("Less", mask, b.real(-0.5, mask)), b.real(-1e4, x), scores)
        else:
            scores = either_way(b, "Add", scores, mask)
    y = b.op("MatMul", b.op("Softmax", scores, axis=scores.rank - 1 if b.chance(0.9) else scores.rank - 2), v)
    if split and b.chance(0.8):
        y = b.reshaped(b.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, heads * depth])
    return b.op("MatMul", y, b.normal((y.shape[-1], 5), x.dtype, 0.3)) if b.chance(0.4) else y


def product(b: Builder) -> Value:
    x = b.pick(range(2, 5), fresh=0.2)
    depth, columns = x.shape[-1], b.one((1, 3, 4, 8, 17))
    if x.rank == 2 and b.chance(0.3):
        y = b.op("Gemm", x, b.normal((columns, depth), x.dtype, 0.4), b.normal((columns,), x.dtype), transB=1,
                 alpha=b.one((1.0, 0.5)), beta=b.one((1.0, 2.0)))
    elif b.chance(0.2):
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        y = b.op("MatMul", x, b.op("Transpose", x, perm=perm))
    else:
        y = b.op("MatMul", x, b.normal((depth, columns), x.dtype, 0.4))
        if b.chance(0.6):
            y = either_way(b, "Add", y, b.normal((columns,), x.dtype))
    return activation(b, y) if b.chance(0.4) else channel_factor(b, y) if b.chance(0.3) else y


def resized(b: Builder) -> Value:
    b.since(11)
    x = image(b)
    mode = b.one(("nearest", "linear", "linear", "cubic"))
    factors = [b.one((1, 2, 2, 3, 0.5, 1.5)) for _ in range(2)]
    nothing = b.const(np.zeros(0, "float32")) if b.opset < 13 else None
    how = b.one(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    y = b.op("Resize", x, nothing, b.const(np.array([1, 1, *factors], "float32")), mode=mode,
             coordinate_transformation_mode=how, nearest_mode=b.one(("floor", "round_prefer_floor", "ceil")))
    return _one_conv(b, y) if b.chance(0.5) else activation(b, y)


def compared(b: Builder) -> Value:
    """Comparisons, connectives and Where."""
    b.since(9)
    x = b.pick(range(1, 5), "fi", fresh=0.2)
    kind = b.one(("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"))
    number = b.one((0, 1, -1, 2))
    y = b.op(kind, x, b.real(number, x)) if b.chance(0.7) else b.op(kind, x, b.fitted(
        b.pick(None, x.kind), x.shape, x.dtype))
    if b.chance(0.4):
        other = b.op("Less", x, b.real(number + 2, x))
        y = b.op(b.one(("And", "Or", "Xor", "Equal")), y, other)
    if b.chance(0.3):
        y = b.op("Not", y)
    if b.chance(0.25):
        return b.op("Mul", x, b.cast(y, x.dtype))
    other = b.one((lambda: b.real(number, x), lambda: b.op("Neg", x),
                   lambda: b.const(np.ones(x.shape[-1:], x.dtype))))()
    return b.op("Where", y, *((x, other) if b.chance(0.5) else (other, x)))


def recast(b: Builder) -> Value:
    """Casts there and back, with something between them."""
    x = b.pick(range(5), "fiub", fresh=0.2)
    dtype = b.one(("float32", "float16", "float64", "int32", "int64", "uint8", "int8", "bool"))
    if x.kind == "f" and np.dtype(dtype).kind in "iu":
        low = 0 if dtype[0] == "u" else -100
        x = b.op("Clip", x, min=float(low), max=100.0) if b.opset < 11 else b.op(
            "Clip", x, b.const(low, x.dtype), b.const(100, x.dtype))
    y = b.cast(x, dtype)
    if b.chance(0.5) and y.kind in "fi":
        y = b.op(b.one(("Add", "Mul", "Sub")), y, y) if b.chance(0.4) else b.op("Add", y, b.real(1, y))
    return b.cast(y, b.one((x.dtype, "float32", "float16", "int64"))) if b.chance(0.7) else y


def gathered(b: Builder) -> Value:
    """Indices that an operator found, and what they are for."""
    b.since(13)
    x = b.pick(range(1, 4), fresh=0.3)
    axis = b.whole(0, x.rank - 1)
    extent = x.shape[axis]
    kind = b.one(("ArgMax", "TopK", "ScatterND", "ScatterElements", "Gather"))
    if kind == "ArgMax":
        found = b.op(b.one(("ArgMax", "ArgMin")), x, axis=axis, keepdims=1)
        return b.op("GatherElements", x, found, axis=axis) if b.chance(0.6) else b.op("Gather", x, found, axis=axis)
    if kind == "TopK":
        numbers, found = b.ops("TopK", x, b.ints(b.whole(1, extent)), outputs=2, axis=axis, largest=b.whole(0, 1))
        return b.op("Add", numbers, b.op("GatherElements", x, found, axis=axis)) if b.chance(0.6) else b.op(
            "OneHot", found, b.ints(extent), b.const(np.array([0, 1]), x.dtype))
    if kind == "ScatterND":
        rows = b.const(b.rng.permutation(x.shape[0])[:b.whole(1, x.shape[0])].reshape(-1, 1).astype("int64"))
        updates = b.op("Neg", b.op("GatherND", x, rows))
        more = {"reduction": b.one(("none", "add", "mul"))} if b.opset >= 16 and b.chance(0.5) else {}
        return b.op("ScatterND", x, rows, updates, **more)
    if kind == "ScatterElements":
        found = b.op("ArgMax", x, axis=axis, keepdims=1)
        return b.op("ScatterElements", x, found, b.reduced("ReduceMin", x, [axis]), axis=axis)
    rows = b.const(b.rng.integers(-extent, extent, b.one(((), (1,), (4,), (2, 3)))).astype(b.one(("int64", "int32"))))
    return b.op("Gather", b.op("Gather", x, rows, axis=axis), b.ints(0), axis=0) if b.chance(0.3) and rows.rank else \
        b.op("Gather", x, rows, axis=axis)


def instance_norm(b: Builder) -> Value:
    x = image(b, 2)
    scale, bias = b.normal((x.shape[1],), x.dtype), b.normal((x.shape[1],), x.dtype)
    if b.chance(0.5):
        return activation(b, b.op("InstanceNormalization", x, scale, bias))
    groups = b.one([each for each in (1, 2, 4) if x.shape[1] % each == 0])
    _, c, h, w = x.shape
    flat = b.reshaped(x, [0, groups, -1])
    y = b.op("InstanceNormalization", flat, b.const(np.ones(groups), x.dtype), b.const(np.zeros(groups), x.dtype))
    y = b.reshaped(y, [0, c, h, w])
    return b.op("Add", b.op("Mul", y, b.normal((c, 1, 1), x.dtype)), b.normal((c, 1, 1), x.dtype))


RECIPES: tuple[Callable[[Builder], object], ...] = (
    activation, conv, conv, conv, pooled, between_transposes, between_transposes, softmax, some_reduction, padded, cut,
    paired, parted, shuffled, layer_norm, layer_norm, attention, attention, product, product, resized, compared, recast,
    gathered, instance_norm, *[operator] * 12)
