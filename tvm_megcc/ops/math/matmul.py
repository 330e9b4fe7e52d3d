# SPDX-License-Identifier: Apache-2.0
"""Matrix products: ONNX's MatMul and Gemm, relax.matmul, Relay's nn.dense and nn.batch_matmul."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_equal, require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.narrow import is_float
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, register
from ..rules import broadcast


@register
class MatMul(Operator):
    """y = a @ b + bias, as numpy's matmul, for operands of one dtype. Leading axes broadcast.

    Operands: a [..., M, K], or [..., K, M] with attribute `trans_a`; b [..., K, N], or [..., N, K] with attribute
    `trans_b`; bias [N]. Result: [..., M, N].
    """

    kind = "matmul"
    operands = ("a", "b", "bias?")
    onnx = ("MatMul",)
    relax = ("relax.matmul",)
    relay = ("nn.dense", "nn.batch_matmul")
    channel_axis = -1

    @staticmethod
    def infer(attrs: Attrs, a: TensorType, b: TensorType, bias: TensorType | None = None) -> tuple[TensorType, ...]:
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(f"requires matrices, not {a} and {b}")
        m, k = a.shape[-2:][::-1] if attrs.trans_a else a.shape[-2:]
        kb, n = b.shape[-2:][::-1] if attrs.trans_b else b.shape[-2:]
        require_equal(k, kb, f"products of {a} and {b} do not match: sums over {k} and over {kb}")
        if bias is not None:
            require_shape(bias.shape, (n,), f"bias {bias} for {n} columns")
        return (TensorType(a.dtype, (*broadcast(a.shape[:-2], b.shape[:-2]), m, n)),)

    @staticmethod
    def compute(attrs: Attrs, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        a = np.swapaxes(a, -1, -2) if attrs.trans_a else a
        b = np.swapaxes(b, -1, -2) if attrs.trans_b else b
        y = np.matmul(a, b)
        return (y if bias is None else y + bias,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        (a, b), (ta, tb) = node.inputs[:2], (node.type(0), node.type(1))
        if ta.rank == 0 or tb.rank == 0:
            raise ShapeError("an operand is a scalar")
        # A vector becomes a matrix of one row or column; that axis is removed from the result.
        if ta.rank == 1:
            (a,) = node.emit("reshape", (a,), shape=(1, ta.shape[0]))
        if tb.rank == 1:
            (b,) = node.emit("reshape", (b,), shape=(tb.shape[0], 1))
        (y,) = node.emit("matmul", (a, b), trans_a=0, trans_b=0)
        if min(ta.rank, tb.rank) > 1:
            return (y,)
        shape = list(node.type_of(y).shape)
        if tb.rank == 1:
            del shape[-1]
        if ta.rank == 1:
            del shape[-1 if tb.rank == 1 else -2]
        return node.emit("reshape", (y,), shape=tuple(shape))

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * inputs[0].shape[-2 if attrs.trans_a else -1]


@decomposes("Gemm")
def gemm(node: OnnxNode) -> tuple[str, ...]:
    """Imports Gemm, alpha * A' @ B' + beta * C. Factors other than 1 are folded into constant operands. C becomes the
    bias if it is constant, has one number or one for each column, and alpha is not applied to the product; else it is
    added afterwards."""
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    attrs = {"trans_a": node.attr("transA", 0), "trans_b": node.attr("transB", 0)}
    b = node.inputs[1]
    if alpha != 1.0 and node.is_const(1) and is_float(node.type(1).dtype):
        b, alpha = node.constant(_multiply_constant(node.const(1), alpha)), 1.0
    columns = node.type(1).shape[0 if attrs["trans_b"] else 1]
    addend = node.inputs[2] if node.has(2) and beta != 0.0 else ""
    bias = ""
    if addend and node.is_const(2) and alpha == 1.0:
        value = node.const(2)
        if value.size == 1 or value.shape in ((columns,), (1, columns)):
            node.require_budget(columns)
            bias = node.constant(np.broadcast_to(_multiply_constant(value.reshape(-1), beta), (columns,)).copy())
            addend = ""
    (y,) = node.emit("matmul", (node.inputs[0], b, *filter(None, (bias,))), **attrs)
    if alpha != 1.0:
        (y,) = _emit_scaled(node, y, alpha)
    if addend:
        if beta != 1.0:
            (addend,) = _emit_scaled(node, addend, beta)
        (y,) = node.emit("add", (y, addend))
    return (y,)


def _multiply_constant(array: np.ndarray, factor: float) -> np.ndarray:
    """Returns array * factor in the array's dtype. A product of integers and a fraction is truncated."""
    if not is_float(array.dtype.name) and factor == int(factor):
        return array * np.array(int(factor)).astype(array.dtype)
    return (array * np.float64(factor)).astype(array.dtype)


def _emit_scaled(node: OnnxNode, value: str, factor: float) -> tuple[str, ...]:
    """Emits value * factor in the value's dtype.

    Raises:
        MegccError: for integers times a fraction.
    """
    dtype = node.type_of(value).dtype
    if is_float(dtype):
        return node.emit("mul", (value, node.constant(np.array(factor, np.dtype(dtype)))))
    if factor == int(factor):
        return node.emit("mul", (value, node.constant(np.array(int(factor)).astype(np.dtype(dtype)))))
    raise MegccError(f"multiplies {dtype} by {factor:g}; factors of integers are whole numbers")


def _case(a, b, bias=None, trans_a=0, trans_b=0, constant=(), dtype="float32") -> Case:
    operands = ((tuple(a), dtype), (tuple(b), dtype), ((bias,), dtype) if bias else None)
    return Case(operands, {"trans_a": trans_a, "trans_b": trans_b}, constant)


def _narrow_case(a: tuple[int, ...], columns: int, dtype: str, trans_b: int = 0, bias: bool = False) -> Case:
    """A product whose weights this dtype of 16 bits represents, subnormal ones too."""
    case = _case(a, (columns, a[-1]) if trans_b else (a[-1], columns), columns if bias else None, trans_b=trans_b,
                 constant=(1, 2) if bias else (1,))
    weights = np.random.default_rng(7).standard_normal(case.inputs[1][0])
    info = ml_dtypes.finfo(np.dtype(dtype))
    tiny = float(info.smallest_subnormal)
    weights[:3] *= tiny * 999
    weights.flat[-7:] = (0.0, -0.0, tiny, -tiny, float(info.tiny), 96.0, -1.5)
    return replace(case, values={1: weights.astype(np.dtype(dtype)).astype(np.float32)})


MatMul.cases = (
    _case((1, 64), (64, 10), 10, constant=(1, 2)),
    _case((1, 37), (1000, 37), 1000, trans_b=1, constant=(1, 2)),
    _case((1, 1), (1, 1), constant=(1,)),
    _case((3, 5, 40), (40, 33), 33, constant=(1, 2)),
    _case((31, 17), (17, 48), constant=(1,)),
    _case((7, 13), (13, 21), 21),
    _case((2, 3, 9, 20), (2, 3, 20, 35)),
    _case((2, 1, 9, 20), (3, 20, 8)),
    _case((2, 4, 6, 8), (2, 1, 10, 8), trans_b=1),
    _case((5, 30, 9), (5, 30, 18), trans_a=1),
    _case((2, 700), (700, 19), 19),
    _case((9, 1100), (40, 1100), trans_b=1),
    _case((600, 3), (3, 1)),
    _case((1, 1), (1, 7)),
    _case((3, 7, 24), (24, 1), 1, constant=(1, 2)),
    _case((33, 19), (1, 19), trans_b=1),
    _case((5, 7, 1, 33), (5, 7, 33, 1)),
    _case((3, 6, 40), (3, 1, 40), trans_b=1),
    _case((2, 3, 4, 9), (3, 9, 1)),
    _case((2, 5, 3), (3, 7), 7, dtype="float64"),
    _case((2, 1, 4, 3), (3, 5, 3), trans_b=1, dtype="int32"),
    _case((3, 4), (3, 6), trans_a=1, dtype="uint64"),
    _case((2, 5), (5, 70), 70, dtype="int32"), _case((4, 3), (4, 35), trans_a=1, dtype="int64"),
    *(_narrow_case(a, columns, dtype, trans_b, bias) for dtype in ("float16", "bfloat16")
      for a, columns, trans_b, bias in (
          ((1, 40), 150, 1, False), ((3, 11, 37), 117, 0, True), ((2, 65), 64, 0, False))),
)
