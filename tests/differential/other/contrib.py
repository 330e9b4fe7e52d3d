# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft that ONNX Runtime has for CPUs, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np

from .node import Node, Rule

DOMAIN = "com.microsoft"
BYTES = ("uint8", "int8")


def elementwise(node: Node) -> None:
    node.add(node.reals(*node.shape()) * 3)
    if node.kind == "QuickGelu":
        node.maybe("alpha", node.one(1.702, 1.0, 0.5))


def biased(node: Node) -> None:
    x = node.add(node.reals(*node.shape(2)))
    if node.kind == "BiasGelu" or node.chance(0.6):
        node.add(node.reals(x.shape[-1]), 0.7)


def fused_matmul(node: Node) -> None:
    batch, rows, depth, columns = node.shape(0, 2), node.whole(1, 9), node.whole(1, 9), node.whole(1, 9)
    turned = [node.whole(0, 1) for _ in "ab"]
    node.add(node.reals(*batch, *((depth, rows) if turned[0] else (rows, depth))))
    own = batch[node.whole(0, len(batch)):]
    node.add(node.reals(*own, *((columns, depth) if turned[1] else (depth, columns))), 0.5)
    node.attributes = {"transA": turned[0], "transB": turned[1]}
    node.maybe("alpha", node.one(0.125, -2.0))


def fused_gemm(node: Node) -> None:
    rows, depth, columns = node.whole(1, 9), node.whole(1, 9), node.whole(1, 9)
    turned = node.whole(0, 1)
    node.add(node.reals(rows, depth))
    node.add(node.reals(*((columns, depth) if turned else (depth, columns))), 0.7)
    if node.chance(0.7):
        node.add(node.reals(*node.one((columns,), (rows, columns), (1,), (rows, 1))), 0.7)
    node.attributes = {"transB": turned, "activation": node.one("Relu", "Tanh", "Sigmoid", "LeakyRelu")}
    if node.attributes["activation"] == "LeakyRelu":
        node.attributes["activation_alpha"] = 0.3
    node.maybe("alpha", 0.5)
    node.maybe("beta", 2.0)


def fused_conv(node: Node) -> None:
    group, inner, outer = node.whole(1, 2), node.whole(1, 4), node.whole(1, 5)
    kernel = [node.whole(1, 3) for _ in "hw"]
    node.add(node.reals(node.whole(1, 2), group * inner, node.whole(3, 9), node.whole(3, 9)))
    node.add(node.reals(group * outer, inner, *kernel), 0.8)
    if node.chance(0.6):
        node.add(node.reals(group * outer), 0.8)
    node.attributes = {"group": group, "kernel_shape": kernel,
                       "activation": node.one("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")}
    parameters = {"LeakyRelu": [0.1], "Clip": [-0.5, 0.5], "HardSigmoid": [0.2, 0.5]}
    if node.attributes["activation"] in parameters:
        node.attributes["activation_params"] = parameters[node.attributes["activation"]]
    node.maybe("strides", [node.whole(1, 3), node.whole(1, 3)])
    node.maybe("pads", [node.whole(0, 3) for _ in range(4)])


def skip_normalization(node: Node) -> None:
    batch, rows, columns = node.whole(1, 3), node.whole(1, 5), node.whole(2, 17)
    node.add(node.reals(batch, rows, columns))
    node.add(node.reals(*node.one((batch, rows, columns), (1, rows, columns), (rows, columns))))
    node.add(node.reals(columns), 0.8)
    if node.kind == "SkipLayerNormalization":
        node.add(node.reals(columns) if node.chance(0.7) else None, 0.8)
    node.add(node.reals(columns) if node.chance(0.5) else None, 0.8)
    node.maybe("epsilon", node.one(1e-5, 1e-3))
    node.results = node.one(("y",), ("y", "", "", "s"))


def quantize(node: Node) -> None:
    x, dtype = node.add(node.reals(*node.shape())), node.one(*BYTES, "uint16", "int16")
    axis = node.whole(-x.ndim, x.ndim - 1)
    count = (x.shape[axis],) if node.chance(0.5) else ()
    node.add(node.scale(*count), 0.8)
    node.add(node.integers(dtype, *count), 0.8)
    node.maybe("axis", axis, 1.0 if count else 0.3)


def dequantize(node: Node) -> None:
    dtype = node.one(*BYTES, "uint16", "int16", "int32")
    x = node.add(node.integers(dtype, *node.shape()))
    axis = node.whole(-x.ndim, x.ndim - 1)
    count = (x.shape[axis],) if node.chance(0.5) else ()
    node.add(node.scale(*count), 0.8)
    if dtype != "int32" and node.chance(0.7):
        node.add(node.integers(dtype, *count), 0.8)
    node.maybe("axis", axis, 1.0 if count else 0.3)


def _quantised(node: Node, dtype: str, shape) -> None:
    """Numbers, their scale and their zero point."""
    node.add(node.integers(dtype, *shape))
    node.add(node.scale(), 1)
    node.add(node.integers(dtype), 1)


def qlinear_binary(node: Node) -> None:
    dtype, shape = node.one(*BYTES), node.shape()
    other = tuple(1 if node.chance(0.3) else extent for extent in shape)[node.whole(0, len(shape) - 1):]
    _quantised(node, dtype, shape)
    _quantised(node, dtype, other)
    node.add(node.scale(), 1)
    node.add(node.integers(dtype), 1)


def qlinear_unary(node: Node) -> None:
    dtype = node.one(*BYTES)
    _quantised(node, dtype, node.shape())
    node.add(node.scale(), 1)
    node.add(node.integers(dtype), 1)
    if node.kind == "QLinearLeakyRelu":
        node.maybe("alpha", node.one(0.1, 0.5))


def qlinear_softmax(node: Node) -> None:
    dtype, shape = node.one(*BYTES), node.shape(2)
    _quantised(node, dtype, shape)
    node.add(np.float32(1 / 256), 1)
    node.add(np.array(0 if dtype == "uint8" else -128, dtype), 1)
    node.attributes = {"opset": 13, "axis": node.whole(-len(shape), len(shape) - 1)}


def qlinear_pool(node: Node) -> None:
    dtype = node.one(*BYTES)
    _quantised(node, dtype, (node.whole(1, 2), node.whole(1, 9), node.whole(3, 8), node.whole(3, 8)))
    node.add(node.scale(), 1)
    node.add(node.integers(dtype), 1)
    node.maybe("channels_last", node.whole(0, 1))
    if node.kind == "QLinearAveragePool":
        kernel = [node.whole(1, 3), node.whole(1, 3)]
        node.attributes["kernel_shape"] = kernel
        node.maybe("strides", [node.whole(1, 2), node.whole(1, 3)])
        node.maybe("pads", [node.whole(0, each - 1) for each in (*kernel, *kernel)])
        node.maybe("count_include_pad", node.whole(0, 1))


def qlinear_concat(node: Node) -> None:
    dtype, shape = node.one(*BYTES), list(node.shape())
    axis = node.whole(0, len(shape) - 1)
    node.add(node.scale(), 1)
    node.add(node.integers(dtype), 1)
    for _ in range(node.whole(1, 4)):
        shape[axis] = node.whole(1, 5)
        _quantised(node, dtype, shape)
    node.attributes["axis"] = axis


def integer_to_float(node: Node) -> None:
    dtype, weights = node.one("uint8", "uint8", "int8"), "int8"
    if dtype == "uint8":
        weights = node.one(*BYTES)
    depth, columns = node.whole(1, 20), node.whole(1, 9)
    count = node.one((1,), (columns,))
    node.add(node.integers(dtype, *node.shape(1, 2), depth))
    node.add(node.integers(weights, depth, columns), 0.8)
    node.add(node.scale(), 0.5)
    node.add(node.scale(*count), 0.8)
    node.add(node.integers(dtype) if node.chance(0.6) else None, 0.8)
    node.add(node.integers(weights, *count) if node.chance(0.6) else None, 0.8)
    if node.chance(0.5):
        node.add(node.reals(columns), 0.8)


def dynamic_quantize_matmul(node: Node) -> None:
    dtype, depth, columns = node.one(*BYTES), node.whole(1, 20), node.whole(1, 9)
    count = node.one((1,), (columns,))
    node.add(node.reals(*node.shape(1, 2), depth))
    node.add(node.integers(dtype, depth, columns), 1)
    node.add(node.scale(*count), 1)
    node.add(node.integers(dtype, *count) if node.chance(0.6) else None, 1)
    if node.chance(0.5):
        node.add(node.reals(columns), 1)


def matmul_nbits(node: Node) -> None:
    bits, block, depth, columns = node.one(2, 4, 8), node.one(16, 32, 64), node.whole(1, 90), node.whole(1, 9)
    blocks = -(-depth // block)
    node.add(node.reals(*node.shape(1, 2), depth))
    node.add(node.integers("uint8", columns, blocks, block * bits // 8), 1)
    node.add(node.scale(columns * blocks), 1)
    if node.chance(0.5):
        node.add(node.integers("uint8", columns * -(-blocks * bits // 8)), 1)
    node.attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}


def matmul_bnb4(node: Node) -> None:
    block, depth, columns = node.one(16, 32, 64), node.whole(1, 90), node.whole(1, 9)
    node.add(node.reals(*node.shape(1, 2), depth))
    node.add(node.integers("uint8", -(-depth * columns // 2)), 1)
    node.add(node.scale(-(-depth * columns // block)), 1)
    node.attributes = {"K": depth, "N": columns, "block_size": block, "quant_type": node.whole(0, 1)}


def rotary(node: Node) -> None:
    batch, rows, heads, half = node.whole(1, 2), node.whole(1, 5), node.whole(1, 4), node.whole(1, 4)
    node.add(node.reals(*node.one((batch, heads, rows, 2 * half), (batch, rows, heads * 2 * half))))
    node.add(node.integers("int64", *node.one((batch, rows), (1,)), low=0, high=3))
    for _ in "cs":
        node.add(node.reals(9, half), 0.7)
    node.maybe("interleaved", node.whole(0, 1))
    if node.operands[0].ndim == 3:
        node.attributes["num_heads"] = 0


def attention(node: Node) -> None:
    batch, rows, heads, size = node.whole(1, 2), node.whole(1, 6), node.whole(1, 4), node.whole(1, 5)
    width, inner = node.whole(1, 12), heads * size
    node.add(node.reals(batch, rows, width))
    node.add(node.reals(width, 3 * inner), 0.9)
    node.add(node.reals(3 * inner), 0.9)
    if node.chance(0.4):
        mask = node.integers("int32", batch, rows, low=0, high=1)
        mask[:, 0] = 1
        node.add(mask)
    node.attributes = {"num_heads": heads}
    node.maybe("unidirectional", node.whole(0, 1))
    node.maybe("scale", 0.3)


def multi_head_attention(node: Node) -> None:
    batch, rows, keys, heads = node.whole(1, 2), node.whole(1, 6), node.whole(1, 7), node.whole(1, 4)
    size, values = node.whole(1, 5), node.whole(1, 5)
    node.add(node.reals(batch, rows, heads * size))
    node.add(node.reals(batch, keys, heads * size))
    node.add(node.reals(batch, keys, heads * values))
    if node.chance(0.4):
        node.add(node.reals(heads * (2 * size + values)), 0.8)
    elif node.chance(0.4):
        mask = node.integers("int32", batch, keys, low=0, high=1)
        mask[:, 0] = 1
        node.add(None)
        node.add(mask)
    node.attributes = {"num_heads": heads}
    node.maybe("scale", 0.3)


def trilu(node: Node) -> None:
    x = node.add(node.reals(*node.shape(2), dtype=node.one("float32", "float64", "int64")))
    if node.chance(0.6):
        node.add(np.array(node.whole(-x.shape[-2], x.shape[-1])), 0.7)
    node.maybe("upper", node.whole(0, 1))


def inverse(node: Node) -> None:
    """Rows whose diagonal is larger than the rest together: the inverse has no norm beyond 1, and rounding stays
    small."""
    extent = node.whole(1, 6)
    rows = node.reals(*node.shape(0, 2), extent, extent)
    node.add(rows + np.eye(extent, dtype=np.float32) * (1 + 2 * np.abs(rows).sum(-1, keepdims=True)))


def grid_sample(node: Node) -> None:
    batch = node.whole(1, 2)
    node.add(node.reals(batch, node.whole(1, 4), node.whole(2, 7), node.whole(2, 7)))
    node.add(node.rng.uniform(-1.2, 1.2, (batch, node.whole(1, 5), node.whole(1, 5), 2)).astype(np.float32))
    node.maybe("mode", node.one("bilinear", "nearest"))
    node.maybe("padding_mode", node.one("zeros", "border", "reflection"))
    node.maybe("align_corners", node.whole(0, 1))


RULES: dict[str, Rule] = {
    "Gelu": elementwise, "QuickGelu": elementwise, "BiasGelu": biased, "FastGelu": biased,
    "FusedMatMul": fused_matmul, "TransposeMatMul": fused_matmul, "FusedGemm": fused_gemm, "FusedConv": fused_conv,
    "SkipLayerNormalization": skip_normalization, "SkipSimplifiedLayerNormalization": skip_normalization,
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize, "QLinearAdd": qlinear_binary,
    "QLinearMul": qlinear_binary, "QLinearSigmoid": qlinear_unary, "QLinearLeakyRelu": qlinear_unary,
    "QLinearSoftmax": qlinear_softmax, "QLinearAveragePool": qlinear_pool, "QLinearGlobalAveragePool": qlinear_pool,
    "QLinearConcat": qlinear_concat, "MatMulIntegerToFloat": integer_to_float,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul, "MatMulNBits": matmul_nbits, "MatMulBnb4": matmul_bnb4,
    "RotaryEmbedding": rotary,
    "Attention": attention, "MultiHeadAttention": multi_head_attention, "Trilu": trilu, "Inverse": inverse,
    "GridSample": grid_sample}
