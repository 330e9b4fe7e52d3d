# SPDX-License-Identifier: Apache-2.0
"""Registers the importers of quantised operators. They compute in integers, bit for bit as LiteRT's reference
kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....errors import ShapeError
from ....ir.expr import Expr, call, clip
from ....ops.elementwise import emit_broadcast
from ...fixed_point import MAX_SHIFT
from ..file import Quantization, Tensor
from ..node import IMPORTERS, Importer, Node, Results, Unsupported, registers_in
from ..value import Order, Value
from . import fixed_point
from .fixed_point import Multiplier, Range
from .hybrid import HYBRID_IMPORTERS, is_hybrid

BYTE_DTYPES = ("int8", "uint8")
QUANTISED_DTYPES = (*BYTE_DTYPES, "int16")
#: Importers of operators with 8-bit operands or results, and of those that also have int16 ones.
QUANTISED_IMPORTERS: dict[str, Importer] = {}
INT16_IMPORTERS: dict[str, Importer] = {}
imports_int16 = registers_in(INT16_IMPORTERS)

#: Operators that move or select elements without regard to their scale.
MOVES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SPLIT", "SPLIT_V", "UNPACK", "PACK", "SLICE", "TILE",
         "STRIDED_SLICE", "GATHER", "GATHER_ND", "BROADCAST_TO", "REVERSE_V2", "MIRROR_PAD", "SPACE_TO_DEPTH",
         "DEPTH_TO_SPACE", "EMBEDDING_LOOKUP", "RESIZE_NEAREST_NEIGHBOR", "ARG_MAX", "ARG_MIN", "SHAPE", "RANK",
         "BATCH_TO_SPACE_ND", "SELECT", "SELECT_V2", "TOPK_V2", "FILL", "REVERSE_SEQUENCE", "SCATTER_ND", "ONE_HOT",
         "DYNAMIC_UPDATE_SLICE")

#: Operators on weights with a scale for each block of a row.
BLOCKWISE = ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")


def imports_quantised(*kinds: str, also_int16: bool = False) -> Callable[[Importer], Importer]:
    """Returns a decorator that registers an importer of 8-bit operators. also_int16: and of int16 ones."""
    tables = [QUANTISED_IMPORTERS, INT16_IMPORTERS] if also_int16 else [QUANTISED_IMPORTERS]
    return registers_in(*tables)(*kinds)


def quantization_of(tensor: Tensor | None, dtypes: Sequence[str] = QUANTISED_DTYPES, any_zero: bool = False
                    ) -> Quantization:
    """Returns the quantisation of an 8-bit or 16-bit tensor, which must be per tensor. any_zero: whether int16 may have
    a zero point other than 0."""
    if tensor is None or tensor.dtype not in dtypes or tensor.quantization is None:
        raise Unsupported(f"an operand or result of {'nothing' if tensor is None else tensor.dtype} beside quantised "
                          "ones is not supported")
    if len(tensor.quantization.scale) != 1 or not tensor.quantization.scale[0] > 0:
        raise Unsupported(f"{tensor.dtype} with {len(tensor.quantization.scale)} scales is not supported here")
    smallest, largest = fixed_point.integer_range(tensor.dtype)
    if not smallest <= tensor.quantization.zero_point[0] <= largest:
        raise ShapeError(f"its zero point {tensor.quantization.zero_point[0]} is no {tensor.dtype}")
    if tensor.dtype == "int16" and tensor.quantization.zero_point[0] and not any_zero:
        raise Unsupported("numbers of 16 bits with a zero point are not supported")
    return tensor.quantization


def operand(node: Node, index: int) -> Quantization:
    """Returns the quantisation of an operand."""
    return quantization_of(node.tensors[index] if index < len(node.tensors) else None)


def result(node: Node) -> Quantization:
    """Returns the quantisation of the first result."""
    return quantization_of(node.results[0])


def zero(quantization: Quantization) -> int:
    """Returns the zero point of a per-tensor quantisation."""
    return int(quantization.zero_point[0])


def activation(node: Node) -> Range:
    """Returns the range of the results after the fused activation."""
    found = fixed_point.activation_range(node.option("FusedActivationFunction", 0), node.results[0].dtype, result(node))
    if found is None:
        raise Unsupported(f"its fused activation {node.option('FusedActivationFunction')} is not supported")
    return found


def emit_as_result(node: Node, expr: Expr, *names: str) -> str:
    """Emits an expression over the values `names`, which are broadcast, converted to the result's dtype."""
    return emit_broadcast(node.onnx_node(), "elementwise", names, expr=expr, dtype=node.results[0].dtype)[0]


def requantize(expr: Expr, factor: Multiplier) -> Expr:
    """Multiplies an expression by a factor. Factors from 2^30 on saturate every number except 0; LiteRT's shifts are
    undefined there."""
    if factor.shift > MAX_SHIFT:
        return clip(expr, -1, 1) * 2**30
    return call("rescale_fixed", expr, factor.significand, factor.shift)


def with_15_bit_significand(factor: Multiplier) -> Multiplier:
    """Returns the factor with a significand rounded to 15 bits, in the form that `rescale_once` takes."""
    significand = min((factor.significand + (1 << 15)) >> 16, 2**15 - 1)
    return Multiplier(significand, factor.shift + 16)


def common_dtype(node: Node, supported: Sequence[str] = BYTE_DTYPES) -> str:
    """Returns the dtype of all operands and results; raises Unsupported if there are several, or another one."""
    dtypes = {tensor.dtype for tensor in (*node.tensors, *node.results) if tensor is not None}
    if len(dtypes) != 1 or not dtypes <= {*supported}:
        raise Unsupported(f"{node.kind} of {', '.join(sorted(dtypes))} is not supported")
    return dtypes.pop()


def require_same_scales(node: Node) -> None:
    """Raises Unsupported unless all quantised operands and results have the same scale and zero point."""
    found = [tensor for tensor in (*node.tensors, *node.results) if tensor is not None and tensor.quantization]
    pairs = {(tensor.dtype, quantization_of(tensor).scale[0].item(), zero(quantization_of(tensor))) for tensor in found}
    if len(pairs) > 1:
        raise Unsupported("its operands and results have different scales")


def elementwise(node: Node, expr: Expr) -> Value:
    """Emits an expression over the operands, which are broadcast, converted to the result's dtype."""
    def make(names: list[str], order: Order) -> str:
        return emit_as_result(node, expr, *names)

    return node.in_common_order(node.values, make)


def lookup(node: Node, table: np.ndarray, value: Value) -> Value:
    """Looks up each 8-bit number of a value in a table."""
    return node.as_value(node.emit("lookup", value.name, node.onnx_node().constant(table)), value.order)


def importer_of(kind: str, operands: Sequence[Tensor | None], results: Sequence[Tensor]) -> Importer:
    """Returns the importer of an operator for tensors of these types.

    Raises:
        Unsupported: if there is none.
    """
    if kind not in IMPORTERS and kind not in QUANTISED_IMPORTERS and kind not in HYBRID_IMPORTERS:
        raise Unsupported("this operator is not supported")
    if is_hybrid(kind, operands, results):
        return HYBRID_IMPORTERS[kind]
    if any(tensor is not None and tensor.blocks is not None for tensor in operands):
        raise Unsupported("has a scale for each block of its numbers, which is supported for weights of "
                          f"{' and '.join(BLOCKWISE)} on float32")
    narrow = [tensor for tensor in (*operands, *results)
              if tensor is not None and tensor.bits < 8 and tensor.data is None]
    if narrow and kind not in (*MOVES, "DEQUANTIZE"):
        raise Unsupported(f"numbers of {narrow[0].bits} bits are supported as constants and where they are moved")
    if all(tensor is None or tensor.quantization is None for tensor in (*operands, *results)):
        if kind not in IMPORTERS:
            raise Unsupported("is supported for quantised numbers only")
        return IMPORTERS[kind]
    if kind in MOVES:
        return _import_move
    if any(tensor is not None and tensor.dtype == "int16" for tensor in (*operands, *results)):
        if kind not in INT16_IMPORTERS:
            raise Unsupported("is not supported for quantised numbers of 16 bits; convert it with int8 or float32")
        return INT16_IMPORTERS[kind]
    if kind not in QUANTISED_IMPORTERS:
        raise Unsupported("is not supported for quantised numbers")
    return QUANTISED_IMPORTERS[kind]


def _import_move(node: Node) -> Results:
    """Imports one of `MOVES` as on numbers that are not quantised."""
    require_same_scales(node)
    return IMPORTERS[node.kind](node)
