# SPDX-License-Identifier: Apache-2.0
"""Rules of operators on each element, and of reductions."""

from __future__ import annotations

import numpy as np

from .draw import ANY, FLOATS, INTEGERS, Draw, Rule, function_of

#: Ends of what numbers are drawn from.
RANGES = {"sqrt": (0.01, 9), "rsqrt": (0.05, 9), "log": (0.05, 9), "exp": (-5, 5), "erf": (-3, 3), "tan": (-1.4, 1.4),
          "asin": (-0.95, 0.95), "acos": (-0.95, 0.95), "atanh": (-0.95, 0.95), "acosh": (1.05, 9), "sin": (-9, 9),
          "cos": (-9, 9), "atan": (-9, 9), "asinh": (-9, 9), "sinh": (-4, 4), "cosh": (-4, 4)}
SMOOTH = (*RANGES, "sigmoid", "tanh", "nn.silu", "nn.selu", "nn.gelu", "nn.gelu_tanh")
SIGNED = (*FLOATS, "int8", "int16", "int32", "int64")
STEPS = ("floor", "ceil", "round", "trunc")
PREDICATES = ("isnan", "isinf", "isfinite")
NUMBERS = ("add", "subtract", "multiply", "minimum", "maximum")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)


def smooth(node: Draw) -> None:
    node.add(node.values(node.shape(), node.one(*FLOATS), *RANGES.get(node.kind, (-4, 4))))


def _with_special(node: Draw, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f" and node.chance(0.4):
        x = np.where(node.rng.random(x.shape) < 0.3, node.rng.choice(SPECIAL, x.shape), x).astype(x.dtype)
    return x


def stepwise(node: Draw) -> None:
    """With numbers half way between two."""
    x = node.values(node.shape(), node.one(*FLOATS))
    node.add(_with_special(node, (np.rint(2 * x) / 2).astype(x.dtype) if node.chance(0.4) else x))


def signed(node: Draw) -> None:
    """The sign of NaN is 0 in TVM and NaN in numpy, as its Relu may be."""
    x = node.values(node.shape(), node.one(*SIGNED))
    node.add(x if node.kind in ("sign", "nn.relu") else _with_special(node, x))


def predicate(node: Draw) -> None:
    node.add(_with_special(node, node.values(node.shape(), node.one(*FLOATS))))


def binary(*dtypes: str, low: float = -4, divisor: bool = False) -> Rule:
    def rule(node: Draw) -> None:
        dtype, shape = node.one(*dtypes), node.shape()
        operands = [node.values(shape, dtype, low), node.values(node.broadcast(shape), dtype, low)]
        if divisor:
            operands[1] = np.where(np.abs(operands[1]) < 0.5, 3, operands[1]).astype(dtype)
        if node.kind in COMPARISONS:
            operands = [_with_special(node, np.rint(x) if x.dtype.kind == "f" else x) for x in operands]
        for x in operands[::-1] if node.chance(0.5) and not divisor else operands:
            node.add(x, 0.15)
    return rule


def shift(node: Draw) -> None:
    dtype, shape = node.one(*INTEGERS), node.shape()
    node.add(node.values(shape, dtype, 0, 3 if node.kind == "left_shift" else 100))
    node.add(node.values(node.broadcast(shape), dtype, 0, 5 if node.kind == "left_shift" else 7), 0.5)


def one_of(*dtypes: str) -> Rule:
    return lambda node: node.add(node.values(node.shape(), node.one(*dtypes)))


def where(node: Draw) -> None:
    dtype, shape = node.one(*ANY), node.shape()
    node.add(node.values(node.broadcast(shape), "bool"), 0.2)
    for _ in "ab":
        node.add(_with_special(node, node.values(node.broadcast(shape), dtype)), 0.2)


def fused_multiply_add(node: Draw) -> None:
    dtype, shape = node.one(*FLOATS, "int32"), node.shape()
    for _ in "abc":
        node.add(node.values(shape, dtype), 0.2)


def clip(node: Draw) -> None:
    dtype = node.one(*FLOATS, *INTEGERS)
    node.add(node.values(node.shape(), dtype, -9, 9))
    low, high = (node.whole(0, 3), node.whole(3, 6)) if dtype == "uint8" else (node.whole(-5, 0), node.whole(0, 5))
    if np.dtype(dtype).kind == "f" and node.chance(0.7):
        low, high = low - 0.25, high + 0.3
    node.attributes = {"min": low, "max": high}


def astype(node: Draw) -> None:
    x, dtype = node.values(node.shape(), node.one(*ANY), -9, 9), node.one(*ANY)
    if dtype == "uint8" and x.dtype.kind in "fi":
        x = np.abs(x)
    node.add(x)
    node.attributes = {"dtype": dtype}


def leaky(node: Draw) -> None:
    node.add(node.values(node.shape(), node.one(*FLOATS)))
    node.maybe("alpha", node.one(0.0, 0.2, 1.5, -0.5))


def prelu(node: Draw) -> None:
    x = node.add(node.values(node.shape(1), node.one(*FLOATS)))
    axis = node.axis(x.ndim)
    node.weights(x.shape[axis], dtype=x.dtype.name)
    node.attributes = {"axis": axis}


def softplus(node: Draw) -> None:
    """In float16 TVM's exponentials are infinite from 12 on."""
    dtype = node.one(*FLOATS)
    most = 5 if dtype == "float16" else 30
    node.add(node.values(node.shape(), dtype, -most, most))
    node.maybe("beta", node.one(0.5, 1.0, 2.0))
    node.maybe("threshold", node.one(1.0, 20.0, 30.0))


def reduction(node: Draw) -> None:
    """The least of nothing is the largest number in TVM, and infinite in numpy."""
    empty = 0 if node.kind in ("max", "min") else 0.02
    exact = node.kind in ("sum", "max", "min", "prod")
    dtype = node.one(*FLOATS, *(("int32", "int64", "int8") if exact else ()))
    x = node.values(node.shape(0 if node.chance(0.1) else 1, empty=empty), dtype, -2, 2)
    node.add(x)
    if x.ndim and node.chance(0.75):
        node.attributes["axis"] = node.one(node.axis(x.ndim), node.axes(x.ndim))
    node.maybe("keepdims", bool(node.whole(0, 1)))


def scan(node: Draw) -> None:
    x = node.add(node.values(node.shape(1), node.one(*FLOATS, "int32", "int64", "int8"), -2, 2))
    node.maybe("axis", node.axis(x.ndim), 0.8)
    node.maybe("exclusive", bool(node.whole(0, 1)))
    node.maybe("dtype", node.one("float32", "int32", "float64"), 0.2)


def extreme(node: Draw) -> None:
    """The first of equal ones is wanted. Of no elements TVM returns memory that nothing wrote."""
    x = node.add(np.rint(node.values(node.shape(1, empty=0), node.one(*FLOATS, *INTEGERS))))
    node.maybe("axis", node.axis(x.ndim), 0.8)
    node.maybe("keepdims", bool(node.whole(0, 1)))


def softmax(node: Draw) -> None:
    x = node.add(node.values(node.shape(1), node.one(*FLOATS)))
    node.maybe("axis", node.axis(x.ndim), 0.8)


def _affine(node: Draw, shape, dtype: str, count: int) -> None:
    for _ in range(count):
        node.weights(*shape, dtype=dtype)


def layer_norm(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, empty=0), node.one(*FLOATS)))
    count = node.whole(1, x.ndim)
    axes = list(range(x.ndim - count, x.ndim)) if node.chance(0.8) else sorted(int(a) for a in
                                                                               node.rng.permutation(x.ndim)[:count])
    _affine(node, [x.shape[axis] for axis in axes], x.dtype.name, 1 if node.kind == "nn.rms_norm" else 2)
    node.attributes = {"axes": [axis - x.ndim * node.whole(0, 1) for axis in axes], "epsilon": node.one(0.5, 0.1)}
    if node.kind == "nn.layer_norm":
        _switches(node)


def _switches(node: Draw) -> None:
    node.maybe("center", bool(node.whole(0, 1)), 0.2)
    node.maybe("scale", bool(node.whole(0, 1)), 0.2)


def channel_norm(node: Draw) -> None:
    """TVM subtracts squares, which leaves few digits of small variances: epsilon is larger than those."""
    groups, each = node.whole(1, 3), node.whole(1, 3)
    shape = (node.whole(1, 2), groups * each, *node.shape(1, 2, 0))
    dtype = node.one(*FLOATS)
    node.add(node.values(shape, dtype))
    _affine(node, shape[1:2], dtype, 2)
    node.attributes = {"channel_axis": 1, "axes": list(range(2, len(shape)))}
    if node.kind == "nn.group_norm":
        node.attributes["num_groups"] = groups
    node.attributes["epsilon"] = node.one(0.5, 0.1)
    _switches(node)


def batch_norm(node: Draw) -> None:
    x = node.add(node.values(node.shape(2, empty=0), node.one(*FLOATS)))
    axis = node.axis(x.ndim)
    _affine(node, x.shape[axis:][:1], x.dtype.name, 3)
    node.add(node.values(x.shape[axis:][:1], x.dtype.name, 0.3, 2), 0.7)
    node.attributes = {"axis": axis, "training": False}
    _switches(node)
    node.maybe("epsilon", node.one(1e-5, 1e-2))
    node.make = lambda *operands: function_of(node.kind)(*operands, **node.attributes)[0]


RULES: dict[str, Rule] = {
    **dict.fromkeys(SMOOTH, smooth), **dict.fromkeys(STEPS, stepwise),
    **dict.fromkeys(("abs", "negative", "sign", "square", "nn.relu"), signed), **dict.fromkeys(PREDICATES, predicate),
    **dict.fromkeys(NUMBERS, binary(*FLOATS, *INTEGERS)), **dict.fromkeys(COMPARISONS, binary(*FLOATS, *INTEGERS)),
    "divide": binary(*FLOATS, "int32", divisor=True), "floor_divide": binary(*FLOATS, *INTEGERS, divisor=True),
    "mod": binary(*FLOATS, *INTEGERS, divisor=True), "floor_mod": binary(*FLOATS, *INTEGERS, divisor=True),
    "power": binary(*FLOATS, low=0.1), "log_add_exp": binary(*FLOATS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), binary("bool")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), binary(*INTEGERS, "bool")),
    "bitwise_not": one_of(*INTEGERS, "bool"), "logical_not": one_of("bool"),
    "left_shift": shift, "right_shift": shift, "where": where, "ewise_fma": fused_multiply_add, "clip": clip,
    "astype": astype, "nn.leakyrelu": leaky, "nn.prelu": prelu, "nn.softplus": softplus,
    **dict.fromkeys(("sum", "mean", "max", "min", "prod", "variance", "std"), reduction),
    "cumsum": scan, "cumprod": scan, "argmax": extreme, "argmin": extreme, "nn.softmax": softmax,
    "nn.log_softmax": softmax, "nn.layer_norm": layer_norm, "nn.rms_norm": layer_norm, "nn.group_norm": channel_norm,
    "nn.instance_norm": channel_norm, "nn.batch_norm": batch_norm}
