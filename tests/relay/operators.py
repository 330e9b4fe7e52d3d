# SPDX-License-Identifier: Apache-2.0
"""Calls of Relay operators with every spelling that our importer knows, and some that it refuses.

`recorded.py` keeps what TVM made of them, so that they are tested where there is no Relay, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Operand:
    """values: of a constant, or of an operand whose values matter; else drawn at random."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    constant: bool = False
    values: object = None
    positive: bool = False


def x(*shape: int, **more) -> Operand:
    return Operand(shape, **more)


def w(*shape: int, **more) -> Operand:
    return Operand(shape, constant=True, **more)


def given(values, dtype: str, constant: bool = False) -> Operand:
    return Operand(np.shape(values), dtype, constant, values)


def i64(values, constant: bool = False) -> Operand:
    return given(values, "int64", constant)


def integers(dtype: str, *shape: int, constant: bool = False) -> Operand:
    """Over the whole range of a type; of int32, sums that 8-bit products have."""
    low, high = (-40000, 40000) if dtype == "int32" else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    return given(np.random.RandomState(sum(shape)).randint(low, high, shape), dtype, constant)


def qnn(relay, *numbers: float) -> list:
    """Scales, which are written as float, and zero points."""
    return [relay.const(value, "float32" if isinstance(value, float) else "int32") for value in numbers]


@dataclass(frozen=True)
class Case:
    """build: from TVM's module `relay` and the operands to the expression, a call or a tuple's field of one."""

    name: str
    build: Callable
    operands: tuple[Operand, ...]
    tolerance: float = 1e-5

    def arrays(self) -> list[np.ndarray]:
        """The operands' values, the same everywhere."""
        generator = np.random.RandomState(sum(map(ord, self.name)))
        found = []
        for operand in self.operands:
            if operand.values is not None:
                found.append(np.array(operand.values, operand.dtype))
            elif operand.dtype == "bool":
                found.append(generator.randint(0, 2, operand.shape).astype(bool))
            elif "int" in operand.dtype:
                found.append(generator.randint(0 if operand.dtype[0] == "u" else -9, 10, operand.shape)
                             .astype(operand.dtype))
            else:
                values = generator.standard_normal(operand.shape)
                found.append((np.abs(values) + 0.1 if operand.positive else values).astype(operand.dtype))
        return found


IMAGE = x(1, 4, 7, 6)
NHWC = x(1, 7, 6, 4)


MATRIX = x(3, 5)


def _unary(name: str, operand: Operand = MATRIX, **more) -> Case:
    def build(relay, a):
        module = relay
        for part in name.split("."):
            module = getattr(module, part)
        return module(a)
    return Case(name, build, (operand,), **more)


def _binary(name: str, dtype: str = "float32", positive: bool = False) -> Case:
    return Case(f"{name} {dtype}" if dtype != "float32" else name, lambda relay, a, b: getattr(relay, name)(a, b),
                (x(3, 1, 5, dtype=dtype, positive=positive), x(4, 5, dtype=dtype, positive=positive)))


CASES = (
    *(_unary(name) for name in (
        "nn.relu", "sigmoid", "tanh", "exp", "negative", "abs", "floor", "ceil", "sin", "cos", "tan", "atan", "sinh",
        "cosh", "asinh", "erf", "sign", "isnan", "isinf", "isfinite", "copy", "zeros_like", "ones_like",
        "nn.batch_flatten")),
    *(_unary(name, x(3, 5, positive=True)) for name in ("sqrt", "rsqrt", "log", "log2", "log10")),
    *(_unary(name, given([[0.5, -0.25, 0.0, 0.75]], "float32")) for name in ("asin", "acos", "atanh")),
    _unary("acosh", given([[1.5, 2.0, 8.0]], "float32")),
    _unary("logical_not", x(3, 5, dtype="bool")), _unary("bitwise_not", x(3, 5, dtype="int32")),
    *(_binary(name) for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum", "less", "less_equal",
                                 "greater", "greater_equal", "mod", "floor_mod", "floor_divide")),
    _binary("power", positive=True),
    *(_binary(name, "int32") for name in ("add", "multiply", "maximum", "equal", "not_equal", "bitwise_and",
                                          "bitwise_or", "bitwise_xor")),
    *(_binary(name, "bool") for name in ("logical_and", "logical_or", "logical_xor")),
    *(Case(name, lambda relay, a, b, name=name: getattr(relay, name)(a, b),
           (x(3, 4, dtype="int32"), given([1, 2, 3, 0], "int32"))) for name in ("left_shift", "right_shift")),
    Case("where", lambda relay, c, a, b: relay.where(c, a, b), (x(3, 5, dtype="bool"), x(3, 5), x(1, 5))),
    Case("clip", lambda relay, a: relay.clip(a, -0.5, 0.75), (x(3, 5),)),
    Case("clip int8", lambda relay, a: relay.clip(a, -3, 5), (x(3, 5, dtype="int8"),)),
    Case("cast", lambda relay, a: relay.cast(a, "int32"), (x(3, 5),)),
    Case("cast_like", lambda relay, a, b: relay.cast_like(a, b), (x(3, 5, dtype="int32"), x(2))),
    Case("leaky_relu", lambda relay, a: relay.nn.leaky_relu(a, 0.2), (x(3, 5),)),
    Case("prelu", lambda relay, a, s: relay.nn.prelu(a, s), (IMAGE, w(4))),
    Case("prelu on the last axis", lambda relay, a, s: relay.nn.prelu(a, s, axis=3), (NHWC, w(4))),
    Case("dropout", lambda relay, a: relay.TupleGetItem(relay.nn.dropout_raw(a), 0), (x(3, 5),)),

    Case("conv2d", lambda relay, a, b: relay.nn.conv2d(a, b, (2, 1), (1, 2, 0, 1), dilation=2, channels=5,
                                                       kernel_size=(2, 3)), (x(1, 4, 9, 9), w(5, 4, 2, 3))),
    Case("conv2d one pad", lambda relay, a, b: relay.nn.conv2d(a, b, padding=1), (IMAGE, w(5, 4, 3, 3))),
    Case("conv2d groups", lambda relay, a, b: relay.nn.conv2d(a, b, groups=4, channels=8, kernel_size=3),
         (IMAGE, w(8, 1, 3, 3))),
    Case("conv2d NHWC HWIO", lambda relay, a, b: relay.nn.conv2d(
        a, b, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO"), (NHWC, w(3, 3, 4, 5))),
    Case("conv2d NHWC depthwise", lambda relay, a, b: relay.nn.conv2d(
        a, b, groups=4, channels=4, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWOI"),
        (NHWC, w(3, 3, 4, 1))),
    Case("conv2d unbound", lambda relay, a, b: relay.nn.conv2d(a, b, padding=1), (IMAGE, x(5, 4, 3, 3))),
    Case("conv1d", lambda relay, a, b: relay.nn.conv1d(a, b, 2, 1), (x(2, 3, 9), w(4, 3, 3))),
    Case("conv3d", lambda relay, a, b: relay.nn.conv3d(a, b, padding=(1, 1, 1)), (x(1, 2, 4, 5, 4), w(3, 2, 3, 3, 3))),
    Case("conv2d_transpose", lambda relay, a, b: relay.nn.conv2d_transpose(
        a, b, (2, 2), (1, 1), output_padding=(1, 1), channels=5, kernel_size=(3, 3)), (IMAGE, w(4, 5, 3, 3))),
    Case("conv1d_transpose", lambda relay, a, b: relay.nn.conv1d_transpose(
        a, b, (2,), (1,), channels=4, kernel_size=(3,), kernel_layout="IOW"), (x(1, 3, 6), w(3, 4, 3))),
    Case("conv1d_transpose OIW", lambda relay, a, b: relay.nn.conv1d_transpose(
        a, b, (2,), (1,), channels=4, kernel_size=(3,)), (x(1, 3, 6), w(3, 4, 3))),
    Case("conv3d_transpose", lambda relay, a, b: relay.nn.conv3d_transpose(
        a, b, (2, 1, 2), (1, 0, 1), channels=3, kernel_size=(3, 2, 2)), (x(1, 2, 3, 4, 3), w(2, 3, 3, 2, 2))),
    Case("bias_add", lambda relay, a, b: relay.nn.bias_add(a, b), (IMAGE, w(4))),
    Case("bias_add last", lambda relay, a, b: relay.nn.bias_add(a, b, axis=-1), (NHWC, w(4))),
    Case("dense", lambda relay, a, b: relay.nn.dense(a, b, units=5), (x(3, 7), w(5, 7))),
    Case("matmul", lambda relay, a, b: relay.nn.matmul(a, b, transpose_a=True), (x(7, 3), w(7, 5))),
    Case("batch_matmul", lambda relay, a, b: relay.nn.batch_matmul(a, b), (x(2, 3, 7), x(2, 5, 7))),
    Case("batch_matmul plain", lambda relay, a, b: relay.nn.batch_matmul(a, b, transpose_b=False),
         (x(2, 3, 7), x(1, 7, 5))),

    Case("max_pool2d", lambda relay, a: relay.nn.max_pool2d(a, (3, 2), (2, 2), padding=(1, 0, 1, 1)), (IMAGE,)),
    Case("max_pool2d ceil", lambda relay, a: relay.nn.max_pool2d(a, (2, 2), (2, 2), ceil_mode=True), (IMAGE,)),
    Case("avg_pool2d", lambda relay, a: relay.nn.avg_pool2d(a, (3, 3), (1, 2), padding=(1, 1)), (IMAGE,)),
    Case("avg_pool2d NHWC with pads", lambda relay, a: relay.nn.avg_pool2d(
        a, (3, 3), padding=(1, 1), layout="NHWC", count_include_pad=True), (NHWC,)),
    Case("max_pool1d", lambda relay, a: relay.nn.max_pool1d(a, 3, 2), (x(1, 3, 9),)),
    Case("avg_pool3d", lambda relay, a: relay.nn.avg_pool3d(a, (2, 2, 2), (2, 2, 2)), (x(1, 2, 4, 6, 4),)),
    _unary("nn.global_avg_pool2d", IMAGE), _unary("nn.global_max_pool2d", IMAGE),
    Case("global_avg_pool2d NHWC", lambda relay, a: relay.nn.global_avg_pool2d(a, layout="NHWC"), (NHWC,)),
    Case("adaptive_avg_pool2d", lambda relay, a: relay.nn.adaptive_avg_pool2d(a, (3, 4)), (IMAGE,)),
    Case("adaptive_avg_pool2d whole", lambda relay, a: relay.nn.adaptive_avg_pool2d(a, (1, 1)), (IMAGE,)),
    Case("adaptive_max_pool2d", lambda relay, a: relay.nn.adaptive_max_pool2d(a, (7, 3)), (IMAGE,)),

    Case("batch_norm", lambda relay, a, *s: relay.nn.batch_norm(a, *s, epsilon=1e-3)[0],
         (IMAGE, w(4), w(4), w(4), w(4, positive=True))),
    Case("batch_norm NHWC without scale", lambda relay, a, *s: relay.nn.batch_norm(a, *s, axis=3, scale=False)[0],
         (NHWC, w(4), w(4), w(4), w(4, positive=True))),
    Case("layer_norm", lambda relay, a, g, b: relay.nn.layer_norm(a, g, b), (x(3, 5), w(5), w(5))),
    Case("group_norm", lambda relay, a, g, b: relay.nn.group_norm(a, g, b, num_groups=2), (IMAGE, w(4), w(4))),
    Case("instance_norm", lambda relay, a, g, b: relay.nn.instance_norm(a, g, b), (IMAGE, w(4), w(4))),
    Case("l2_normalize", lambda relay, a: relay.nn.l2_normalize(a, 1e-6, axis=[1]), (IMAGE,)),
    Case("lrn", lambda relay, a: relay.nn.lrn(a, 3, 1, 2.0, 0.1, 0.6), (IMAGE,)),
    *(Case(f"{name} axes", lambda relay, a, name=name: getattr(relay, name)(a, axis=[1, -1], keepdims=True), (IMAGE,))
      for name in ("sum", "mean", "max", "min", "prod")),
    Case("sum of all", lambda relay, a: relay.sum(a), (x(3, 5),)),
    Case("mean but", lambda relay, a: relay.mean(a, axis=[1], exclude=True), (IMAGE,)),
    Case("variance", lambda relay, a, m: relay.op.reduce._make._variance(a, m, [1], True, False, False),
         (x(3, 5), x(3, 1))),
    Case("argmax", lambda relay, a: relay.argmax(a, axis=1), (x(3, 5),)),
    Case("argmin last", lambda relay, a: relay.argmin(a, axis=[1], keepdims=True, select_last_index=True),
         (given([[1, 0, 0, 2], [3, 3, 3, 3]], "float32"),)),
    Case("argmax of all", lambda relay, a: relay.argmax(a), (x(3, 5),)),
    Case("cumsum", lambda relay, a: relay.cumsum(a, axis=1, exclusive=True), (x(3, 5),)),
    Case("cumprod", lambda relay, a: relay.cumprod(a, axis=0, exclusive=False), (x(3, 5),)),
    Case("softmax", lambda relay, a: relay.nn.softmax(a, axis=1), (IMAGE,)),
    Case("log_softmax", lambda relay, a: relay.nn.log_softmax(a), (x(3, 5),)),

    Case("reshape", lambda relay, a: relay.reshape(a, (0, -3, -2)), (IMAGE,)),
    Case("reshape -1", lambda relay, a: relay.reshape(a, (0, -1)), (IMAGE,)),
    Case("squeeze", lambda relay, a: relay.squeeze(a, [0, 2]), (x(1, 4, 1, 3),)),
    Case("squeeze all", lambda relay, a: relay.squeeze(a), (x(1, 4, 1, 3),)),
    Case("expand_dims", lambda relay, a: relay.expand_dims(a, 1, 2), (x(3, 5),)),
    Case("expand_dims last", lambda relay, a: relay.expand_dims(a, -1), (x(3, 5),)),
    Case("transpose", lambda relay, a: relay.transpose(a, (0, 2, -1, 1)), (IMAGE,)),
    Case("transpose reversed", lambda relay, a: relay.transpose(a), (x(2, 3, 4),)),
    Case("concatenate", lambda relay, a, b: relay.concatenate((a, b), axis=1), (x(3, 2), x(3, 5))),
    Case("stack", lambda relay, a, b: relay.stack((a, b), axis=-1), (x(3, 5), x(3, 5))),
    Case("split", lambda relay, a: relay.split(a, 3, axis=1)[1], (x(2, 6),)),
    Case("split at", lambda relay, a: relay.split(a, [2, 3], axis=-1)[2], (x(2, 6),)),
    Case("strided_slice", lambda relay, a: relay.strided_slice(a, [0, 1], [2, -1], [1, 2]), (x(3, 6, 2),)),
    Case("strided_slice axes", lambda relay, a: relay.strided_slice(a, [4], [-7], [-2], axes=[1]), (x(3, 6),)),
    Case("strided_slice size", lambda relay, a: relay.strided_slice(a, [1, 2], [1, -1], slice_mode="size"),
         (x(3, 6),)),
    Case("slice_like", lambda relay, a, b: relay.slice_like(a, b, axes=(1,)), (x(3, 6), x(2, 4))),
    Case("reverse", lambda relay, a: relay.reverse(a, 1), (x(3, 5),)),
    Case("reverse_sequence", lambda relay, a, n: relay.reverse_sequence(a, n, seq_axis=0, batch_axis=1),
         (x(4, 3), i64([2, 4, 1]))),
    Case("take", lambda relay, a, i: relay.take(a, i, axis=1), (x(3, 5), i64([[0, 7], [-3, 2]]))),
    Case("take flat fast", lambda relay, a, i: relay.take(a, i, mode="fast"), (x(3, 5), i64([0, 14, 3]))),
    Case("gather", lambda relay, a, i: relay.gather(a, 1, i), (x(2, 4), i64([[3, 0], [1, 1]]))),
    Case("gather_nd", lambda relay, a, i: relay.gather_nd(a, i), (x(3, 4, 2), i64([[0, 2, 1], [3, 1, 0]]))),
    Case("scatter_nd", lambda relay, a, i, u: relay.scatter_nd(a, i, u, "add"),
         (x(4, 3), i64([[0, 2, 1], [2, 1, 0]]), x(3))),
    Case("scatter_elements", lambda relay, a, i, u: relay.scatter_elements(a, i, u, axis=1),
         (x(2, 4), i64([[3, 0], [1, 2]]), x(2, 2))),
    Case("one_hot", lambda relay, i, on, off: relay.one_hot(i, on, off, 4, -1, "float32"),
         (i64([2, 0, 3]), given(2.0, "float32", True), given(-1.0, "float32", True))),
    Case("pad", lambda relay, a: relay.nn.pad(a, ((0, 0), (1, 2)), 1.5), (x(3, 5),)),
    Case("pad edge", lambda relay, a: relay.nn.pad(a, ((1, 0), (1, 2)), pad_mode="edge"), (x(3, 5),)),
    Case("pad reflect", lambda relay, a: relay.nn.pad(a, ((1, 0), (1, 2)), pad_mode="reflect"), (x(3, 5),)),
    Case("mirror_pad", lambda relay, a: relay.nn.mirror_pad(a, ((1, 0), (1, 2)), "REFLECT"), (x(3, 5),)),
    Case("tile", lambda relay, a: relay.tile(a, (2, 1, 3)), (x(3, 5),)),
    Case("repeat", lambda relay, a: relay.repeat(a, 2, axis=1), (x(3, 5),)),
    Case("broadcast_to", lambda relay, a: relay.broadcast_to(a, (2, 3, 5)), (x(3, 1),)),
    Case("broadcast_to_like", lambda relay, a, b: relay.broadcast_to_like(a, b), (x(3, 1), x(2, 3, 5))),
    Case("reshape_like", lambda relay, a, b: relay.reshape_like(a, b), (x(3, 4), x(2, 6))),

    *(Case(f"resize2d {method} {mode}", lambda relay, a, method=method, mode=mode: relay.image.resize2d(
        a, (9, 13), method=method, coordinate_transformation_mode=mode), (IMAGE,), 1e-4)
      for method, mode in (("linear", "half_pixel"), ("linear", "align_corners"), ("nearest_neighbor", "asymmetric"),
                           ("cubic", "half_pixel"))),
    Case("resize2d NHWC", lambda relay, a: relay.image.resize2d(a, (14, 12), layout="NHWC"), (NHWC,), 1e-4),
    Case("upsampling", lambda relay, a: relay.nn.upsampling(a, 2, 3), (IMAGE,)),
    Case("upsampling bilinear", lambda relay, a: relay.nn.upsampling(a, 2, 2, method="bilinear", align_corners=True),
         (IMAGE,)),
    Case("depth_to_space", lambda relay, a: relay.nn.depth_to_space(a, 2, mode="CRD"), (x(1, 8, 3, 2),)),
    Case("depth_to_space DCR", lambda relay, a: relay.nn.depth_to_space(a, 2), (x(1, 8, 3, 2),)),
    Case("space_to_depth", lambda relay, a: relay.nn.space_to_depth(a, 2), (x(1, 2, 4, 6),)),
    Case("grid_sample", lambda relay, a, g: relay.image.grid_sample(a, g), (IMAGE, x(1, 2, 5, 4)), 1e-4),
    Case("roi_align", lambda relay, a, r: relay.vision.roi_align(a, r, (2, 2), 0.5, 2),
         (IMAGE, given([[0, 1, 1, 9, 10]], "float32")), 1e-4),
    Case("roi_pool", lambda relay, a, r: relay.vision.roi_pool(a, r, (2, 2), 1.0),
         (IMAGE, given([[0, 0, 1, 4, 5]], "float32"))),
    Case("qnn.dequantize", lambda relay, a, s, z: relay.qnn.op.dequantize(a, s, z),
         (x(3, 5, dtype="int8"), given(0.5, "float32", True), given(3, "int32", True))),
    Case("qnn.quantize", lambda relay, a: relay.qnn.op.quantize(a, *qnn(relay, 0.5, 3)),
         (given([-0.75, -0.25, 0.25, 0.75, 1.25, 62.0, 500.0, -500.0, 1e30, -1e30, 0.2499999, 0.0], "float32"),)),
    Case("qnn.quantize uint8", lambda relay, a: relay.qnn.op.quantize(a, *qnn(relay, 0.1, 128), out_dtype="uint8"),
         (x(9, 31),)),
    *(Case(f"qnn.conv2d {name}", lambda relay, a, b, more=more: relay.qnn.op.conv2d(
        a, b, *qnn(relay, -3, 0, 0.5, 0.25), **more), operands) for name, more, operands in (
            ("plain", {"kernel_size": (3, 3), "channels": 5, "padding": (1, 0)},
             (integers("int8", 1, 4, 6, 6), integers("int8", 5, 4, 3, 3, constant=True))),
            ("channels last", {"kernel_size": (3, 3), "channels": 5, "strides": (2, 1), "data_layout": "NHWC",
                               "kernel_layout": "HWIO"},
             (integers("int8", 1, 6, 6, 4), integers("int8", 3, 3, 4, 5, constant=True))),
            ("depthwise", {"kernel_size": (3, 3), "channels": 4, "groups": 4, "data_layout": "NHWC",
                           "kernel_layout": "HWOI", "padding": (1, 1)},
             (integers("int8", 1, 6, 6, 4), integers("int8", 3, 3, 4, 1, constant=True))))),
    Case("qnn.conv2d uint8", lambda relay, a, b: relay.qnn.op.conv2d(
        a, b, *qnn(relay, 255, 7, 0.5, 0.25), kernel_size=(2, 2), channels=3, padding=(1, 1)),
        (integers("uint8", 2, 4, 5, 6), integers("uint8", 3, 4, 2, 2, constant=True))),
    Case("qnn.dense", lambda relay, a, b: relay.qnn.op.dense(a, b, *qnn(relay, 1, 0, 0.5, 0.25), units=5),
         (integers("int8", 3, 7), integers("int8", 5, 7, constant=True))),
    *(Case(f"qnn.{name}", lambda relay, a, b, name=name: getattr(relay.qnn.op, name)(
        a, b, *qnn(relay, 0.5, 7, 0.125, -9, 0.55, 3)), (integers("int8", 3, 1, 9), integers("int8", 4, 9)))
      for name in ("add", "subtract", "mul")),
    Case("qnn.add of one scale", lambda relay, a, b: relay.qnn.op.add(a, b, *qnn(relay, *[0.5, 100] * 3)),
         (integers("uint8", 3, 5), integers("uint8", 3, 5))),
    Case("qnn.requantize", lambda relay, a: relay.qnn.op.requantize(a, *qnn(relay, 0.5, 7, 2.0, 3), out_dtype="int8"),
         (integers("int32", 9, 31),)),
    Case("qnn.requantize up", lambda relay, a: relay.qnn.op.requantize(
        a, *qnn(relay, 5.1, 7, 0.3, 90), out_dtype="uint8"), (integers("uint8", 9, 31),)),
    Case("qnn.requantize same", lambda relay, a: relay.qnn.op.requantize(
        a, *qnn(relay, 0.3, 7, 0.3, 90), out_dtype="uint8"), (integers("int8", 9, 31),)),
    Case("qnn.requantize each channel", lambda relay, a: relay.qnn.op.requantize(
        a, relay.const(np.array([0.001, 0.0005, 0.3], "float32")), relay.const(0, "int32"), *qnn(relay, 0.25, -3),
        axis=1, out_dtype="int8"), (integers("int32", 2, 3, 31),)),
    *(Case(f"qnn.avg_pool2d {dtype}", lambda relay, a, zero=zero, pads=pads: relay.qnn.op.avg_pool2d(
        a, *qnn(relay, 0.5, zero, 0.5, zero), (3, 2), (2, 1), pads, (1, 1), count_include_pad=True),
        (integers(dtype, 2, 5, 7, 6),)) for dtype, zero, pads in (("int8", -5, (0, 0)), ("uint8", 100, (1, 1)))),
    Case("qnn.batch_matmul", lambda relay, a, b: relay.qnn.op.batch_matmul(a, b, *qnn(relay, 1, -128, 0.5, 0.25)),
         (integers("int8", 2, 3, 7), integers("int8", 2, 5, 7))),
    *(Case(f"qnn.{name} {dtype}", lambda relay, a, name=name, scales=scales: getattr(relay.qnn.op, name)(
        a, *qnn(relay, *scales)), (given(np.arange(256).astype(dtype).reshape(4, 64), dtype),))
      for name, dtype, scales in (
          ("tanh", "int8", (0.05, 3, 1 / 128, 0)), ("sigmoid", "uint8", (0.06, 128, 1 / 256, 0)),
          ("exp", "int8", (0.03, 127, 1 / 255, -128)), ("erf", "int8", (0.02, -5, 0.0079, 1)),
          ("sqrt", "uint8", (0.1, 0, 0.02, 0)), ("rsqrt", "uint8", (0.1, 0, 0.0125, 0)),
          ("hardswish", "int8", (0.06, -20, 0.03, -100)), ("log", "uint8", (0.1, 0, 0.02, 100)),
          ("abs", "int8", (0.1, 127, 0.2, -128)))),
    *(Case(f"qnn.leaky_relu {alpha} {dtype}", lambda relay, a, alpha=alpha, scales=scales: relay.qnn.op.leaky_relu(
        a, alpha, *qnn(relay, *scales)), (given(np.arange(256).astype(dtype), dtype),))
      for alpha, dtype, scales in ((0.1, "int8", (0.05, 7, 0.04, -19)), (0.3, "uint8", (0.05, 255, 0.09, 128)),
                                   (1.5, "int8", (0.1, -128, 0.3, 5)), (0.25, "int8", (0.1, 30, 0.1, 30)))),
    *(Case(f"qnn.softmax {scale}", lambda relay, a, scale=scale, zero=zero, axis=axis: relay.qnn.op.softmax(
        a, *qnn(relay, scale, 7, 0.00390625, zero), axis=axis), (integers("int8", *shape),))
      for scale, zero, axis, shape in ((0.1, -128, -1, (5, 12)), (0.0625, 3, 1, (2, 9, 4)), (1.0, -128, 0, (7,)))),
    Case("qnn.concatenate", lambda relay, a, b: relay.qnn.op.concatenate(
        relay.Tuple([a, b]), relay.Tuple([*qnn(relay, 0.5), *qnn(relay, 0.25)]),
        relay.Tuple([*qnn(relay, 3), *qnn(relay, -9)]), *qnn(relay, 0.5, 3), axis=1),
        (integers("int8", 2, 3), integers("int8", 2, 5))),
)

#: What stays with TVM, and what is said of it.
REFUSED = (
    (Case("deformable_conv2d", lambda relay, a, o, b: relay.nn.deformable_conv2d(
        a, o, b, padding=(1, 1), channels=3, kernel_size=(3, 3)), (IMAGE, x(1, 18, 7, 6), w(3, 4, 3, 3))),
     "elements outside the image"),
    (Case("sort", lambda relay, a: relay.sort(a), (x(3, 5),)), "there is no kernel"),
    (Case("trunc", lambda relay, a: relay.trunc(a), (x(3, 5),)), "there is no kernel"),
    (Case("take wrap", lambda relay, a, i: relay.take(a, i, axis=0, mode="wrap"), (x(3, 5), i64([1, 4]))),
     "indices of mode 'wrap'"),
    (Case("conv2d in halves of channels", lambda relay, a, b: relay.nn.conv2d(
        a, b, data_layout="NCHW4c", kernel_layout="OIHW4i4o", channels=4, kernel_size=(1, 1)),
        (x(1, 1, 5, 5, 4), w(1, 1, 1, 1, 4, 4))), "layout NCHW4c"),
    (Case("variance less one", lambda relay, a, m: relay.op.reduce._make._variance(a, m, [1], True, False, True),
          (x(3, 5), x(3, 1))), "one less"),
    (Case("layer_norm over channels", lambda relay, a, g, b: relay.nn.layer_norm(a, g, b, axis=1),
          (IMAGE, w(4), w(4))), "over axis 1"),
    (Case("qnn.conv2d_transpose", lambda relay, a, b: relay.qnn.op.conv2d_transpose(
        a, b, *qnn(relay, 1, 0, 0.5, 0.25), strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, channels=3,
        kernel_size=(2, 2), data_layout="NCHW", kernel_layout="IOHW", out_layout="", output_padding=(0, 0),
        out_dtype="int32"), (x(1, 2, 3, 4, dtype="int8"), x(2, 3, 2, 2, dtype="int8"))), "is TVM's"),
    (Case("qnn.softmax of many", lambda relay, a: relay.qnn.op.softmax(a, *qnn(relay, 0.1, 0, 0.0078125, 0), axis=-1),
          (integers("int8", 1, 1000),)), "may not fit in int32"),
    (Case("qnn.leaky_relu beyond int32", lambda relay, a: relay.qnn.op.leaky_relu(
        a, 16.0, *qnn(relay, 1048576.0, 0, 0.25, 0)), (integers("int8", 3, 5),)), "differ too much"),
    (Case("qnn.requantize to nearest", lambda relay, a: relay.qnn.op.requantize(
        a, *qnn(relay, 0.5, 0, 2.0, 3), rounding="TONEAREST", compute_dtype="float32", out_dtype="int8"),
        (x(3, 5, dtype="int32"),)), "rounding 'TONEAREST' in float32"),
)
