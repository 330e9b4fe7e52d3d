# SPDX-License-Identifier: Apache-2.0
"""Products, reductions, normalisations, quantised and recurrent operators."""

from __future__ import annotations

import numpy as np

from ..draw import Draw, broadcast
from .move import axes_operand


def matmul(draw: Draw) -> None:
    lead = draw.shape(0, 2, 0)
    rows, depth, columns = (draw.one((1, 2, 3, 4, 5, 8, 17)) for _ in range(3))
    left = (depth,) if draw.chance(0.1) else (*broadcast(draw, lead), rows, depth)
    right = (depth,) if draw.chance(0.1) else (*lead, depth, columns)
    if draw.schema.name == "MatMulInteger":
        if len(left) == 1 or len(right) == 1:
            left, right = (rows, depth), (depth, columns)
        draw.add_values(left, 0.1, low=-128, high=255)
        draw.add_values(right, 0.6, low=-128, high=255)
        if draw.chance(0.6):
            draw.add_values((), 0.9, low=-128, high=255)
            if draw.chance(0.6):
                draw.add_values((columns,) if len(right) == 2 and draw.chance(0.3) else (), 0.9, low=-128, high=255)
        return
    draw.add_values(left, 0.1)
    draw.add_values(right, 0.5)


def gemm(draw: Draw) -> None:
    rows, depth, columns = (draw.one((1, 2, 3, 4, 5, 8, 17)) for _ in range(3))
    left, right = draw.maybe("transA", draw.whole(0, 1)), draw.maybe("transB", draw.whole(0, 1))
    for name in ("alpha", "beta"):
        draw.maybe(name, draw.one((0.0, 0.5, 1.0, -1.0)) if np.dtype(draw.input_dtype(0)).kind == "f" else 1.0)
    draw.add_values((depth, rows) if left else (rows, depth), 0.1)
    draw.add_values((columns, depth) if right else (depth, columns), 0.6)
    if draw.opset < 11 or draw.chance(0.7):
        draw.add_values(broadcast(draw, (rows, columns)), 0.7)


def qlinear_matmul(draw: Draw) -> None:
    rows, depth, columns = (draw.one((1, 2, 3, 4, 5, 8, 17)) for _ in range(3))
    dtypes = [draw.dtype(draw.schema.inputs[at].type_str) for at in (0, 3, 7)]
    for dtype, shape in zip(dtypes, ((rows, depth), (depth, columns)), strict=False):
        draw.add(draw.values(shape, dtype, low=-128, high=255), 0.0 if dtype is dtypes[0] else 0.8)
        draw.add(np.float32(draw.rng.uniform(0.01, 0.1)).reshape(()), 1)
        draw.add(draw.values((), dtype, low=-128, high=255), 1)
    draw.add(np.float32(draw.rng.uniform(0.5, 2)).reshape(()), 1)
    draw.add(draw.values((), dtypes[2], low=-128, high=255), 1)


def reduce_(draw: Draw) -> None:
    shape = draw.shape(0, 5, 0 if "Log" in draw.schema.name else 0.01)  # the logarithm of nothing is no integer
    draw.maybe("keepdims", draw.whole(0, 1))
    noop = draw.maybe("noop_with_empty_axes", draw.whole(0, 1))
    axes = draw.axes(len(shape))
    if draw.opset < 11:
        axes = [axis % len(shape) for axis in axes]
    positive = draw.schema.name == "ReduceLogSum"
    low, high = (1, 5) if positive else (-4, 4)
    draw.add(draw.values(shape, draw.input_dtype(0), low=low, high=high), 0.1)
    if axes and draw.chance(0.7):
        axes_operand(draw, axes)
    elif "axes" not in draw.schema.attributes and (noop or draw.chance(0.3)) and draw.chance(0.7):
        draw.add(np.zeros(0, "int64"), 1)


def arg_extreme(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    draw.maybe("axis", draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1))
    draw.maybe("keepdims", draw.whole(0, 1))
    draw.maybe("select_last_index", draw.whole(0, 1))
    draw.add_values(shape, 0.1)


def along_axis(draw: Draw) -> None:
    shape = draw.shape(1, 4)
    draw.maybe("axis", draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1),
               0.6 if len(shape) > 1 else 1)  # the default of many is 1, which one axis has not
    draw.add_values(shape, 0.1)


def batch_norm(draw: Draw) -> None:
    shape = (draw.whole(1, 3), draw.whole(1, 9), *draw.shape(0, 3, 0))
    draw.maybe("epsilon", draw.one((1e-5, 1e-3, 0.1)))
    draw.add_values(shape, 0.05)
    for place in range(4):
        draw.add(draw.values((shape[1],), draw.input_dtype(place + 1), low=0.1 if place == 3 else -2, high=2), 0.9)


def instance_norm(draw: Draw) -> None:
    shape = (draw.whole(1, 3), draw.whole(1, 6), *draw.shape(1, 3, 0))
    draw.maybe("epsilon", draw.one((1e-5, 1e-3, 0.1)))
    draw.add_values(shape, 0.05)
    for _ in range(2):
        draw.add_values((shape[1],), 0.9)


def group_norm(draw: Draw) -> None:
    count = draw.whole(1, 4)
    channels = count * draw.whole(1, 3)
    draw.attributes["num_groups"] = count
    draw.maybe("epsilon", draw.one((1e-5, 1e-3, 0.1)))
    draw.add_values((draw.whole(1, 3), channels, *draw.shape(1, 3, 0)), 0.05)
    for _ in range(2):
        draw.add_values((count if draw.opset < 21 else channels,), 0.9)


def layer_norm(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    axis = draw.maybe("axis", draw.axis(len(shape)))
    axis = -1 if axis is None else axis
    draw.maybe("epsilon", draw.one((1e-5, 1e-3, 0.1)))
    draw.add_values(shape, 0.05)
    draw.dtypes["V"] = draw.dtypes["T"]  # of others ONNX's inference contradicts its own schema
    for name in ("Scale", "B"):
        if any(formal.name in (name, name.lower()) for formal in draw.schema.inputs) and (
                name == "Scale" or draw.chance(0.6)):
            draw.add_values(shape[axis:], 0.9)


def clip(draw: Draw) -> None:
    limits = sorted((draw.whole(-4, 4), draw.whole(-4, 4)))
    dtype = draw.input_dtype(0)
    if np.dtype(dtype).kind == "u":
        limits = [abs(limit) for limit in limits]
    draw.add_values(draw.shape(), 0.1)
    if "min" in draw.schema.attributes:
        for name, limit in zip(("min", "max"), limits, strict=True):
            draw.maybe(name, float(limit))
        return
    for limit in limits:
        draw.add(np.array(limit, dtype) if draw.chance(0.7) else None, 0.8)


def divide(draw: Draw) -> None:
    shape = draw.shape()
    draw.add_values(shape, 0.1)
    right = draw.values(broadcast(draw, shape), draw.input_dtype(1))
    if right.dtype.kind in "ui":
        right = np.where(right == 0, right.dtype.type(3), right)
    if draw.schema.name == "Mod" and (right.dtype.kind == "f" or draw.chance(0.4)):
        draw.attributes["fmod"] = 1
        right = np.where(right == 0, right.dtype.type(1.5), right)
    draw.add(right.astype(draw.input_dtype(1)), 0.3)


def power(draw: Draw) -> None:
    shape = draw.shape()
    draw.add(draw.values(shape, draw.input_dtype(0), low=0, high=4), 0.1)
    draw.add(draw.values(broadcast(draw, shape), draw.input_dtype(1), low=0, high=3), 0.4)


def bit_shift(draw: Draw) -> None:
    shape = draw.shape()
    draw.attributes["direction"] = draw.one(("LEFT", "RIGHT"))
    draw.add_values(shape, 0.1)
    draw.add(draw.values(broadcast(draw, shape), draw.input_dtype(1), low=0, high=7), 0.3)


def quantize(draw: Draw) -> None:
    shape = draw.shape(1, 4)
    back = draw.schema.name == "DequantizeLinear"
    by_axis = draw.opset >= 13 and draw.chance(0.4)
    axis = draw.axis(len(shape))
    if by_axis:
        draw.attributes["axis"] = axis
    own = (shape[axis],) if by_axis else ()
    small = back or draw.chance(0.8)
    dtype = draw.dtype(draw.schema.inputs[0].type_str)
    kind = draw.dtype(draw.schema.inputs[2].type_str) if not back else dtype
    if draw.opset >= 21 and not back and not small:
        kind = "uint8"
    draw.add(draw.values(shape, dtype, **({"low": -128, "high": 255} if back else {})), 0.1)
    scale = "float32" if draw.opset < 19 or (back and draw.schema.inputs[1].type_str == "tensor(float)") else \
        draw.dtype(draw.schema.inputs[1].type_str) if draw.schema.inputs[1].type_str != draw.schema.inputs[0].type_str \
        else dtype
    low, high = (1, 9) if scale == "int32" else (0.01, 0.5)
    draw.add(draw.values(own, scale, low=low, high=high), 0.9)
    if small:
        zero = draw.values(own, kind, low=-20, high=20)
        draw.add(zero if kind != "int32" else np.zeros_like(zero), 0.9)


def dynamic_quantize(draw: Draw) -> None:
    draw.outputs = 3
    draw.add_values(draw.shape(0, 5, 0), 0.1)


def prelu(draw: Draw) -> None:
    shape = draw.shape(1, 4)
    draw.add_values(shape, 0.05)
    draw.add_values(broadcast(draw, shape), 0.8)


def einsum(draw: Draw) -> None:
    letters = {letter: draw.whole(1, 4) for letter in "abcd"}
    terms = ["".join(draw.one("abcd") for _ in range(draw.whole(0, 3))) for _ in range(draw.whole(1, 3))]
    if draw.chance(0.8):
        terms = ["".join(dict.fromkeys(term)) for term in terms]
    free = sorted(set("".join(terms)))
    result = "".join(draw.rng.permutation(free)[:draw.whole(0, len(free))])
    draw.attributes["equation"] = ",".join(terms) + (f"->{result}" if draw.chance(0.8) else "")
    for term in terms:
        draw.add_values(tuple(letters[letter] for letter in term), 0.2)


def recurrent(draw: Draw) -> None:
    kind = draw.schema.name
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    length, batch, depth, hidden = draw.whole(1, 4), draw.whole(1, 3), draw.whole(1, 5), draw.whole(1, 5)
    direction = draw.maybe("direction", draw.one(("forward", "reverse", "bidirectional"))) or "forward"
    both = 1 + (direction == "bidirectional")
    draw.attributes["hidden_size"] = hidden
    draw.maybe("linear_before_reset", draw.whole(0, 1))
    draw.maybe("clip", draw.one((0.5, 2.0)), 0.2)
    draw.maybe("input_forget", 1, 0.1)
    dtype = draw.input_dtype(0)

    def reals(*shape: int) -> np.ndarray:
        return draw.values(shape, dtype, low=-1, high=1)

    draw.add(reals(length, batch, depth), 0)
    draw.add(reals(both, gates * hidden, depth), 0.9)
    draw.add(reals(both, gates * hidden, hidden), 0.9)
    draw.add(reals(both, 2 * gates * hidden) if draw.chance(0.6) else None, 0.9)
    draw.add(draw.values((batch,), "int32", low=1, high=length) if draw.chance(0.3) else None, 0.5)
    for _ in range(1 + (kind == "LSTM")):
        draw.add(reals(both, batch, hidden) if draw.chance(0.4) else None, 0.3)
    if kind == "LSTM":
        draw.add(reals(both, 3 * hidden) if draw.chance(0.3) else None, 0.9)
    draw.outputs = draw.whole(1, 2 + (kind == "LSTM"))


def dropout(draw: Draw) -> None:
    draw.add_values(draw.shape(), 0.05)
    draw.maybe("ratio", 0.3, 0.5)


def det(draw: Draw) -> None:
    size = draw.whole(1, 4)
    draw.add_values((*draw.shape(0, 2, 0), size, size), 0.1)


def mean_variance(draw: Draw) -> None:
    shape = draw.shape(4, 4, 0)
    draw.maybe("axes", draw.axes(4, 3), 0.5)
    draw.add_values(shape, 0.05)


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
RULES = {"MatMul": matmul, "MatMulInteger": matmul, "Gemm": gemm, "QLinearMatMul": qlinear_matmul,
         **{f"Reduce{name}": reduce_ for name in REDUCTIONS}, "ArgMax": arg_extreme, "ArgMin": arg_extreme,
         "Softmax": along_axis, "LogSoftmax": along_axis, "Hardmax": along_axis, "LpNormalization": along_axis,
         "BatchNormalization": batch_norm, "InstanceNormalization": instance_norm, "GroupNormalization": group_norm,
         "LayerNormalization": layer_norm, "RMSNormalization": layer_norm, "Clip": clip, "Div": divide,
         "Mod": divide, "Pow": power, "BitShift": bit_shift, "QuantizeLinear": quantize,
         "DequantizeLinear": quantize, "DynamicQuantizeLinear": dynamic_quantize,
         "PRelu": prelu, "Einsum": einsum, "LSTM": recurrent, "GRU": recurrent,
         "RNN": recurrent, "Dropout": dropout, "Det": det, "MeanVarianceNormalization": mean_variance}
