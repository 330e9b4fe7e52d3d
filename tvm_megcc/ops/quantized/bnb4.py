# SPDX-License-Identifier: Apache-2.0
"""Imports MatMulBnb4 of com.microsoft: products with 4-bit weights, which are indices in a table of bitsandbytes, FP4
or NF4. They become float weights when the model is compiled.

Source: T. Dettmers, A. Pagnoni, A. Holtzman, L. Zettlemoyer, "QLoRA: Efficient Finetuning of Quantized LLMs", 2023;
ONNX Runtime's ContribOperators.md, com.microsoft.MatMulBnb4.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import ceildiv
from ..base import OnnxNode, decomposes
from .int4 import unpack_two_per_byte

#: The values of FP4 without sign, in twelfths: bitsandbytes' get_4bit_type divides them by the largest, 12.
_FP4 = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3]) / 12
#: The table of 16 values of each `quant_type`: 0, FP4; 1, NF4, quantiles of a normal distribution.
TABLES = (
    np.concatenate([_FP4, -_FP4]).astype(np.float32),
    np.array([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
              -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725,
              0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
              1], np.float32))


def dequantize_bnb4(packed: np.ndarray, absmax: np.ndarray, block: int, table: np.ndarray, rows: int,
                    depth: int) -> np.ndarray:
    """Returns the weights table[index] * absmax, [rows, depth], in the dtype of `absmax`.

    Args:
        packed: indices, uint8 [ceil(rows * depth / 2)] or longer, the first of two in the high four bits.
        absmax: the largest absolute value of each block of `block` flattened weights, a float each.
    """
    low_first = (packed >> 4) | (packed << 4)
    indices = unpack_two_per_byte(low_first, rows * depth)
    scale = np.repeat(absmax.astype(np.float32), block)[:rows * depth]
    return (table[indices] * scale).astype(absmax.dtype).reshape(rows, depth)


@decomposes("com.microsoft::MatMulBnb4")
def matmul_bnb4(node: OnnxNode) -> tuple[str, ...]:
    """Imports MatMulBnb4. Operands: A [..., K]; B, the weights, uint8 [ceil(N * K / 2)]; absmax
    [ceil(N * K / block_size)]. The result is [..., N]. With transB 0, A is [..., N] and the result [..., K]."""
    depth, rows, block = node.attr("K"), node.attr("N"), node.attr("block_size")
    transposed, quant_type = node.attr("transB", 1), node.attr("quant_type")
    if quant_type not in (0, 1):
        raise MegccError(f"has weights of quant_type {quant_type}; 0 (FP4) and 1 (NF4) are supported")
    if block < 16 or block & (block - 1) or min(depth, rows) < 1:
        raise ShapeError(f"has {rows} rows of {depth} numbers in blocks of {block}")
    packed, absmax = node.const(1, "B").reshape(-1), node.const(2, "absmax").reshape(-1)
    if packed.size < ceildiv(rows * depth, 2) or absmax.size < ceildiv(rows * depth, block):
        raise ShapeError(f"B is {node.type(1)} and absmax {node.type(2)}, less than {rows} rows of {depth} numbers in "
                         f"blocks of {block}")
    weights = node.constant(dequantize_bnb4(packed, absmax, block, TABLES[quant_type], rows, depth))
    a, is_vector = node.inputs[0], node.type(0).rank == 1
    if is_vector:
        (a,) = node.emit("reshape", (a,), shape=(1, node.type(0).shape[0]))
    (y,) = node.emit("matmul", (a, weights), trans_a=0, trans_b=int(bool(transposed)))
    return node.emit("reshape", (y,), shape=(rows if transposed else depth,)) if is_vector else (y,)
