# SPDX-License-Identifier: Apache-2.0
"""Imports products of floats with weights of 8 bits or less, bit for bit as LiteRT computes them: it quantises the
floats to int8 by their range in the run, sums integer products, and dequantises the sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ir.dims import round_up
from ....ir.expr import X, arg, call, clip, maximum, minimum
from ....ops.elementwise import emit_broadcast
from ....ops.quantized.blocks import Blocks as BlockQuantized
from ....ops.quantized.blocks import block_constants, emit_block_gather
from ....ops.quantized.int4 import pack_two_per_byte
from ....ops.quantized.nbits import BLOCK, activation_multiple, default_zero_point, is_supported_block
from ...fixed_point import BELOW_HALF64, round_half_away
from ..file import Blocks, Tensor
from ..node import Importer, Node, Results, Unsupported, registers_in
from ..products import fully_connected_shapes
from ..value import CHANNELS_FIRST
from ..windows import channels, convolution

#: Importers of operators on floats with 8-bit weights.
HYBRID_IMPORTERS: dict[str, Importer] = {}
imports_hybrid = registers_in(HYBRID_IMPORTERS)

#: Sums of fewer products of int8 and 4 bits are exact in float32.
_MAX_EXACT_DEPTH = 1 << 14


def is_hybrid(kind: str, operands: Sequence[Tensor | None], results: Sequence[Tensor]) -> bool:
    """Whether an operator has float operands and results, and quantised weights."""
    first = operands[0] if operands else None
    return kind in HYBRID_IMPORTERS and first is not None and first.quantization is None \
        and first.dtype == ("int32" if kind == "EMBEDDING_LOOKUP" else "float32") \
        and any(tensor is not None and (tensor.quantization or tensor.blocks) for tensor in operands) \
        and all(tensor.dtype == "float32" for tensor in results)


def scales(node: Node, index: int, axis: int) -> np.ndarray:
    """Returns the scales of weights: one, or one for each index of an axis."""
    tensor = node.tensors[index] if index < len(node.tensors) else None
    given = None if tensor is None else tensor.quantization
    if tensor is None or tensor.dtype != "int8" or given is None:
        raise Unsupported("weights other than int8 are not supported with float32 operands")
    if given.zero_point.any() or (len(given.scale) > 1 and given.axis != axis):
        raise Unsupported("its weights have zero points, or scales along another axis than that of the results, which "
                          "is not supported")
    return given.scale


def dynamically_quantised(node: Node, x: str, axes: Sequence[int], asymmetric: bool) -> tuple[str, str, str]:
    """Quantises x dynamically, to int8 by its range along `axes`. Returns the int8 value, its scale and, if asymmetric,
    its zero point in float32 ("" for 0)."""
    reduction = {"axes": tuple(axes), "keepdims": True}
    if not asymmetric:
        largest = node.emit("reduce_max", node.emit("abs", x), **reduction)
        scale = node.compute(call("if_lt", 0, X, X / 127, 1), largest)
        # The maximum keeps a division by 0 out of the quotient, which is not taken then.
        real = X * call("if_lt", 0, arg(1), 127 / maximum(arg(1), float(np.float32(1e-38))), 0)
        expr = call("nearest", clip(round_half_away(real), -127, 127))
        return emit_broadcast(node.onnx_node(), "elementwise", (x, largest), expr=expr, dtype="int8")[0], scale, ""
    smallest, largest = (
        node.emit("cast", node.compute(bound(X, 0), node.emit(kind, x, **reduction)), dtype="float64")
        for kind, bound in (("reduce_min", minimum), ("reduce_max", maximum)))
    step = node.compute(call("if_lt", X, arg(1), (arg(1) - X) / 255, 1), smallest, largest)
    # The zero point is computed from the end of the range that has fewer steps to 0.
    below, above = X / arg(2), arg(1) / arg(2)
    point = call("if_lt", 128 + call("abs", below), 127 + call("abs", above), -128 - below, 127 - above)
    point = call("if_lt", X, arg(1), clip(round_half_away(point, BELOW_HALF64), -128, 127), 0)
    zero = node.emit("cast", node.compute(point, smallest, largest, step), dtype="float32")
    scale = node.emit("cast", step, dtype="float32")
    expr = call("nearest", clip(round_half_away(arg(2) + X * (1 / arg(1))), -128, 127))
    return emit_broadcast(node.onnx_node(), "elementwise", (x, scale, zero), expr=expr, dtype="int8")[0], scale, zero


def _dequantized(node: Node, sums: str, scale: str, weight_scales: np.ndarray, bias: str, trailing_axes: int
                 ) -> str:
    """Dequantises sums of products: multiplies by both scales, of x and of the weights, and adds the bias.

    trailing_axes: the number of axes after that of the channels.
    """
    ones = (1,) * trailing_axes
    factors = node.onnx_node().constant(weight_scales.astype(np.float32).reshape(-1, *ones))
    operands, expr = [sums, scale, factors], call("real", X) * (arg(1) * arg(2))
    if bias:
        operands.append(node.emit("reshape", bias, shape=(node.type_of(bias).size, *ones)))
        expr = expr + arg(3)
    return emit_broadcast(node.onnx_node(), "elementwise", operands, expr=expr, dtype="float32")[0]


@imports_hybrid("CONV_2D", "DEPTHWISE_CONV_2D", fused=True)
def conv(node: Node) -> Results:
    """Imports a convolution. Each image has a scale of its own, and a zero point too if it is grouped or the weights
    have scales per channel."""
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    weight_scales, image = scales(node, 1, 3 if depthwise else 0), channels(node)
    image, w, attrs = convolution(node, image, depthwise)
    asymmetric = depthwise or len(set(weight_scales.tolist())) > 1 or attrs["groups"] > 1
    x, scale, zero = dynamically_quantised(node, image, (1, 2, 3), asymmetric)
    if zero:
        expr = X - call("nearest", arg(1))
        x = emit_broadcast(node.onnx_node(), "elementwise", (x, zero), expr=expr, dtype="int16")[0]
    sums = node.emit("conv2d_integer", x, w, **attrs, x_zero=0, w_zero=0)
    if len(set(weight_scales.tolist())) == 1:
        weight_scales = weight_scales[:1]
    y = _dequantized(node, sums, scale, weight_scales, node.optional(2), trailing_axes=2)
    return [node.as_value(y, CHANNELS_FIRST[4])]


@imports_hybrid("FULLY_CONNECTED", fused=True)
def fully_connected(node: Node) -> Results:
    """Imports FULLY_CONNECTED. Each row of x has a scale of its own."""
    matrix_shape, result_shape = fully_connected_shapes(node)
    matrix, tensor = node.in_order(node.reshaped(node.value(0), matrix_shape)), node.tensors[1]
    if tensor is not None and tensor.blocks is not None:
        y = _product_in_blocks(node, matrix, tensor.blocks)
    else:
        asymmetric = bool(node.option("AsymmetricQuantizeInputs", default=False))
        y = multiply_by_operand(node, matrix, 1, scales(node, 1, 0), asymmetric, node.optional(2))
    return [node.reshaped(node.as_value(y), result_shape)]


def _weights_in_blocks(node: Node, blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights, int8 [rows, numbers], and their scales, float32 [rows, blocks of a row]."""
    tensor = node.tensors[1]
    if tensor is None or tensor.bits == 8 or blocks.scale is None:
        raise Unsupported("weights in blocks are supported as constants of 4 or 2 bits with constant scales of float16")
    return node.const(1, "weights"), blocks.scale


def _sums_in_blocks(node: Node, x: str, numbers: np.ndarray, scale: np.ndarray, size: int) -> str:
    """Multiplies x, int8 [M, K], by the transpose of weights of 4 bits, which stay packed. Returns float32 [M, N]:
    integer sums of blocks of `size` times their scales, float32 [N, blocks], summed in order."""
    inputs = numbers.shape[1]
    padding = -inputs % activation_multiple(size)
    if padding:
        (x,) = node.onnx("Pad", x, node.constant([0, 0, 0, padding], "int64"))
    stored = pack_two_per_byte(numbers.astype(np.int16) + default_zero_point(4))
    sum_length = min(size, BLOCK)  # as the operator requires: it divides x into parts of 32, or of a smaller block
    return node.emit("matmul_nbits_int8", x, "", _activation_sums(node, x, sum_length), node.constant(stored, "uint8"),
                     node.constant(scale, "float32"), bits=4, block=size, depth=inputs)


def _activation_sums(node: Node, x: str, sum_length: int) -> str:
    """Sums each `sum_length` neighbours of a row of x, int8 [M, K]. Returns int32 [M, K / sum_length]."""
    rows, depth = node.type_of(x).shape
    count = depth // sum_length
    parts = node.emit("reshape", node.emit("cast", x, dtype="int32"), shape=(rows, count, sum_length))
    return node.emit("reshape", node.emit("reduce_sum", parts, axes=(2,), keepdims=True), shape=(rows, count))


def _product_in_blocks(node: Node, matrix: str, blocks: Blocks) -> str:
    """Multiplies a float matrix [M, K] by the transpose of the node's weights [N, K], which have a scale for each block
    of a row. Follows LiteRT's kernel EvalBlockwise4Bit, which has no fused activation.

    1. Products are summed in integers for each block. These sums times the block's scale are summed in order, in
       float32.
    2. The zero points of x times the scaled sums of the weights are subtracted.
    3. The result is multiplied by the scales of x, and the bias is added.
    """
    numbers, scale = _weights_in_blocks(node, blocks)
    size = blocks.size
    if not is_supported_block(size, bits=4):
        raise Unsupported(f"blocks of {size} numbers are not supported; those of 16, and multiples of 32, are")
    x, factor, zero = dynamically_quantised(node, matrix, (1,), asymmetric=True)
    y = _sums_in_blocks(node, x, numbers, scale, size)
    expr = (X - arg(1) * arg(2)) * arg(3)
    operands = [y, zero, node.constant(_scaled_weight_sums(numbers, scale, size), "float32"), factor]
    if node.has(2):
        expr, operands = expr + arg(4), [*operands, node.plain(2)]
    return emit_broadcast(node.onnx_node(), "elementwise", operands, expr=expr, dtype="float32")[0]


def _scaled_weight_sums(numbers: np.ndarray, scale: np.ndarray, size: int) -> np.ndarray:
    """Returns the sum of each row of weights, float32 [N]: the integer sum of each block of `size` numbers times the
    block's scale, added in order. numbers: int8 [N, K]. scale: float32 [N, blocks]."""
    scaled_weight_sums = np.zeros(len(numbers), np.float32)
    for index in range(scale.shape[1]):
        block_sums = numbers[:, index * size:(index + 1) * size].sum(1, dtype=np.int32)
        scaled_weight_sums = scaled_weight_sums + scale[:, index] * block_sums.astype(np.float32)
    return scaled_weight_sums


def multiply_by_operand(node: Node, matrix: str, index: int, weight_scales: np.ndarray, asymmetric: bool,
                        bias: str = "", transposed: bool = True) -> str:
    """Multiplies a float matrix by operand `index` of the node, as `multiply_by` does. An operand of fewer than 8 bits
    stays packed if its sums are exact.

    Weights that an importer computes, such as the concatenated ones of an LSTM, are no operand and have 8 bits:
    importers call `multiply_by` for them.
    """
    tensor = node.tensors[index]
    stays_packed = tensor is not None and tensor.bits < 8 and transposed and len(tensor.shape) == 2 \
        and tensor.shape[1] < _MAX_EXACT_DEPTH
    weights = node.const(index, "weights") if asymmetric or stays_packed else None
    return multiply_by(node, matrix, node.plain(index), weights, weight_scales, asymmetric, bias, transposed,
                       int4_weights=weights if stays_packed else None)


def multiply_by(node: Node, matrix: str, name: str, weights: np.ndarray | None, weight_scales: np.ndarray,
                asymmetric: bool, bias: str = "", transposed: bool = True, int4_weights: np.ndarray | None = None
                ) -> str:
    """Multiplies a float matrix, each row of which is quantised by its range, by an int8 value or its transpose.
    Returns the product in float32.

    Args:
        matrix: float32 [..., M, K].
        name: the int8 value [..., K, N], or [..., N, K] if it is transposed.
        weights: the same as a constant, needed if the product is asymmetric.
        weight_scales: the scales of the value: one, or one for each column of the result.
        asymmetric: whether rows of the matrix are quantised with zero points.
        bias: a value [N], or "".
        int4_weights: the same as `weights`, int8 [N, K], if they are to be stored in 4 bits.
    """
    rank = node.type_of(matrix).rank
    x, scale, zero = dynamically_quantised(node, matrix, (rank - 1,), asymmetric)
    if int4_weights is None:
        sums = node.emit("matmul_integer", x, name, trans_a=0, trans_b=int(transposed), a_zero=0, b_zero=0)
    else:
        # One block for the whole row with scale 1: the floats are exact integer sums.
        outputs, inputs = int4_weights.shape
        float_sums = _sums_in_blocks(node, x, int4_weights, np.ones((outputs, 1)), round_up(inputs, BLOCK))
        sums = node.emit("cast", float_sums, dtype="int32")
    if zero:
        assert weights is not None
        weight_sums = weights.astype(np.int64).sum(-1 if transposed else -2, keepdims=True)
        weight_sums = (weight_sums.swapaxes(-1, -2) if transposed else weight_sums).astype(np.int32)
        expr = X - call("nearest", arg(1)) * arg(2)
        sums = emit_broadcast(node.onnx_node(), "elementwise", (sums, zero, node.onnx_node().constant(weight_sums)),
                              expr=expr, dtype="int32")[0]
    return _dequantized(node, sums, scale, weight_scales, bias, trailing_axes=0)


@imports_hybrid("BATCH_MATMUL")
def batch_matmul(node: Node) -> Results:
    """Imports BATCH_MATMUL. Each row of the first operand has a scale; each column of the second one may have one."""
    weight_scales = scales(node, 1, node.type(1).rank - (2 if node.option("AdjY") else 1))
    matrix = node.plain(0)
    if node.option("AdjX"):
        rank = node.type(0).rank
        matrix = node.emit("transpose", matrix, perm=(*range(rank - 2), rank - 1, rank - 2))
    asymmetric = bool(node.option("AsymmetricQuantizeInputs", default=False))
    return [multiply_by_operand(node, matrix, 1, weight_scales, asymmetric, transposed=bool(node.option("AdjY")))]


@imports_hybrid("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Results:
    """Operands: indices of rows, table."""
    tensor = node.tensors[1]
    if tensor is not None and tensor.blocks is not None:
        numbers, scale = _weights_in_blocks(node, tensor.blocks)
        return [_gathered_rows(node, numbers, scale, tensor.blocks.size)]
    weight_scales = scales(node, 1, 0)
    if tensor is not None and tensor.bits < 8 and len(tensor.shape) == 2 and tensor.shape[1] % 2 == 0:
        numbers = node.const(1, "table")
        return [_gathered_rows(node, numbers, np.resize(weight_scales, (len(numbers), 1)), tensor.shape[1])]
    (rows,) = node.onnx("Gather", node.plain(1), node.plain(0), axis=0)
    if len(weight_scales) == 1:
        factor = node.constant(weight_scales, "float32")
    else:
        weight_scales = weight_scales.reshape(-1, *(1,) * (node.type(1).rank - 1))
        (factor,) = node.onnx("Gather", node.constant(weight_scales, "float32"), node.plain(0), axis=0)
    return [emit_broadcast(node.onnx_node(), "elementwise", (rows, factor), expr=call("real", X) * arg(1),
                           dtype="float32")[0]]


def _gathered_rows(node: Node, numbers: np.ndarray, scale: np.ndarray, size: int) -> str:
    """Looks up rows of a table of 4 bits, which stays packed. numbers: int8 [rows, K]. scale: float32 [rows, blocks of
    `size`]."""
    if size % 2:
        raise Unsupported(f"blocks of {size} numbers are not supported; those of an even size are")
    zero_point = default_zero_point(4)
    unsigned = (numbers.astype(np.int16) + zero_point).astype(np.uint8)
    weights = BlockQuantized(4, size, unsigned, scale, -zero_point * scale)
    onnx_node = node.onnx_node()
    return emit_block_gather(onnx_node, node.plain(0), block_constants(onnx_node, weights))
