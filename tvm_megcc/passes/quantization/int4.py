# SPDX-License-Identifier: Apache-2.0
"""Keeps int4 weights packed: products and gathers read the packed weights instead of dequantised ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ops.base import operator
from ...ops.quantized.int4 import pack_two_per_byte
from ...ops.quantized.nbits import default_zero_point
from ..edit import Editor
from .requantize import DEQUANTIZE, Parameters


def pack_int4(graph: Graph, context: Context) -> Graph:
    """Replaces matmul of dequantised int4 constants by matmul_nbits, and gather by a gather of packed rows and
    dequantize_int4. Other constants with scales for blocks are dequantised."""
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind == "matmul" and not _is_product_of_bytes(edit, op):
            weights = _Weights.of(edit, op.inputs[1])
            # A product sums along axis 0 of its right operand, or along axis 1 with `trans_b`.
            trans_b = bool(op.attrs.trans_b)
            if weights is not None and not op.attrs.trans_a and weights.is_transposed != trans_b:
                edit.replace(op, weights.product(edit, op))
        elif op.kind == "gather" and op.attrs.axis == 0:
            weights = _Weights.of(edit, op.inputs[0])
            if weights is not None and not weights.is_transposed:
                _gather(edit, op, weights)
    for op in graph.ops:
        if op.kind == DEQUANTIZE and op.attrs.block and all(name in edit.constants for name in op.inputs if name):
            arrays = (edit.constants[name] if name else None for name in op.inputs)
            edit.settle(op, operator(op.kind).compute(op.attrs, *arrays)[0])
    return edit.finish()


def _is_product_of_bytes(edit: Editor, op: Op) -> bool:
    """Returns whether the product is lowered to 8-bit integers instead (lower_quantized.py)."""
    a, b = (edit.producer(name) for name in op.inputs[:2])
    return Parameters.of(edit, a, DEQUANTIZE) is not None and b is not None and not b.attrs.get("block")


@dataclass(frozen=True)
class _Weights:
    """A matrix of 4-bit weights, quantised in blocks along axis 1.

    numbers: integers from 0 to 15, [rows, columns]. A product sums along columns, its depth; a gather takes rows.
    scale, zero: of each block, [rows, ceil(columns / block)].
    is_transposed: `numbers` is the transpose of the value in the graph.
    """

    numbers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    block: int
    is_transposed: bool

    @staticmethod
    def of(edit: Editor, name: str) -> _Weights | None:
        """Returns the weights that a dequantize_linear of int4 constants, or a transpose of it, computes; None for
        other values. The matrix is transposed if necessary, so that blocks are along axis 1."""
        source, transposed = edit.producer(name), False
        if source is not None and source.kind == "transpose" and source.attrs.perm == (1, 0):
            source, transposed = edit.producer(source.inputs[0]), True
        if source is None or source.kind != DEQUANTIZE or any(n and n not in edit.constants for n in source.inputs):
            return None
        numbers, scale, *zeros = (edit.constants[n] for n in source.inputs if n)
        if numbers.ndim != 2 or numbers.dtype not in (np.int8, np.uint8) or scale.dtype != np.float32:
            return None
        block, axis = source.attrs.block, source.attrs.axis
        if block == 0:  # a scale for each row or column, or one for all
            if scale.ndim > 1:
                return None
            # `axis` becomes the axis of blocks: a scale for each index of an axis has a block along the other one.
            axis = 1 - axis if scale.size > 1 else 1
            block = _rounded_up_to_even(numbers.shape[axis])
            scale = np.broadcast_to(scale.reshape(-1, 1), (numbers.shape[1 - axis], 1))
            zero = np.broadcast_to((zeros[0] if zeros else np.zeros(1, np.int8)).reshape(-1, 1), scale.shape)
        else:
            zero = zeros[0] if zeros else np.zeros(scale.shape, np.int8)
            scale, zero = (array if axis == 1 else array.T for array in (scale, zero))
        rows = numbers if axis == 1 else numbers.T
        offset = 8 if numbers.dtype == np.int8 else 0  # packed numbers are not negative
        rows, zero = rows.astype(np.int16) + offset, zero.astype(np.int16) + offset
        block = min(block, _rounded_up_to_even(rows.shape[1]))  # a block is at most a row
        if block % 2 or rows.size == 0 or min(rows.min(), zero.min()) < 0 or max(rows.max(), zero.max()) > 15:
            return None
        return _Weights(rows, scale, zero, block, transposed != (axis == 0))

    def product(self, edit: Editor, op: Op) -> Op:
        """Returns the product with these weights as its right operand, as matmul_nbits."""
        w, scale, _ = self.constants(edit, op)
        offset = "" if (self.zero == default_zero_point(4)).all() else edit.constant(
            f"{op.outputs[0]}.offset", -self.zero.astype(np.float32) * self.scale)
        return op.with_(kind="matmul_nbits", attrs=Attrs(bits=4, block=self.block, activations="float32"),
                        inputs=(op.inputs[0], w, scale, offset, *op.inputs[2:]))

    def constants(self, edit: Editor, op: Op) -> tuple[str, ...]:
        """Adds packed numbers, scales and zero points as constants; returns their names."""
        arrays = {"int4": pack_two_per_byte(self.numbers), "scale": np.ascontiguousarray(self.scale),
                  "zero": self.zero.astype(np.uint8)}
        return tuple(edit.constant(f"{op.outputs[0]}.{name}", array) for name, array in arrays.items())


def _rounded_up_to_even(count: int) -> int:
    """Returns the count of int4 numbers in whole bytes."""
    return -(-count // 2) * 2


def _gather(edit: Editor, op: Op, weights: _Weights) -> None:
    """Replaces a gather of rows by gathers of packed numbers, scales and zero points, and a dequantize_int4."""
    rows, gathers = [], []
    for name in weights.constants(edit, op):
        value = edit.result(f"{name}.rows", "gather", op.attrs, (name, op.inputs[1]))
        gathers.append(op.with_(inputs=(name, op.inputs[1]), outputs=(value,)))
        rows.append(value)
    depth = weights.numbers.shape[1]
    dequantized = Op("dequantize_int4", Attrs(block=weights.block, depth=depth), tuple(rows), op.outputs,
                     origin=op.origin)
    edit.replace(op, *gathers, dequantized)
