# SPDX-License-Identifier: Apache-2.0
"""Quantisation parameters of operators, and the requantization of integer sums, for the passes that lower quantised
operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.expr import Call, Const, Expr, X, arg, call
from ...ir.graph import Attrs, Op
from ...ir.lanes import KINDS
from ...ops.base import operator
from ...ops.quantized.conv_matmul import INT8_TYPES, requantize_expr, requantize_factor
from ..edit import Editor

DEQUANTIZE, QUANTIZE = "dequantize_linear", "quantize_linear"
Readers = Mapping[str, Sequence[Op]]


@dataclass(frozen=True)
class Parameters:
    """Quantisation parameters: float = scale * (integer - zero).

    dtype: that of the integers.
    scale, zero: arrays [1], or [extent of the axis].
    axis: the axis for which there are several scales or zero points.
    """

    dtype: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @staticmethod
    def of(edit: Editor, op: Op | None, kind: str) -> Parameters | None:
        """Returns the parameters of an operator; None if its kind is not `kind` (`DEQUANTIZE` or `QUANTIZE`), or they
        are not constant, not float32, or by blocks."""
        if op is None or op.kind != kind or op.attrs.block:
            return None
        scale = edit.constants.get(op.inputs[1])
        zero = edit.constants.get(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else np.zeros((), np.int32)
        dtype = edit.types[op.inputs[0] if kind == DEQUANTIZE else op.outputs[0]].dtype
        if scale is None or zero is None or scale.dtype != np.float32 or dtype not in KINDS or dtype == "float32":
            return None
        limits = np.iinfo(dtype)
        if not (np.isfinite(scale).all() and (scale > 0).all() and (zero >= limits.min).all()
                and (zero <= limits.max).all()):
            return None
        return Parameters(dtype, scale.reshape(-1), zero.astype(np.int64).reshape(-1), op.attrs.axis)

    @property
    def is_single(self) -> bool:
        """Whether all elements have the same scale and zero point (per-tensor quantisation)."""
        return self.scale.size == self.zero.size == 1

    def equals(self, other: Parameters | None) -> bool:
        """Returns whether both are per-tensor parameters with equal values."""
        return (other is not None and self.dtype == other.dtype and self.is_single and other.is_single
                and self.scale[0] == other.scale[0] and self.zero[0] == other.zero[0])

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer of the dtype."""
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)


def finish_sums(edit: Editor, op: Op, product: Op, sums: str, scale: np.ndarray, shape: tuple[int, ...],
                readers: Readers, addend: np.ndarray | None = None) -> None:
    """Replaces a float operator by an integer one and an elementwise operator that scales its results.

    If only clips and a quantize_linear read the float operator's result, these are replaced too: then the elementwise
    operator computes the quantised result.

    Args:
        op: the float operator.
        product: the integer operator, which computes `sums`.
        scale: the scale of the sums, [1] or several.
        shape: the shape in which several scales, and the addend, broadcast to the sums.
        addend: floats to add to the result; None: none.
    """
    def operand(array: np.ndarray, name: str) -> str:
        return edit.constant(f"{op.outputs[0]}.{name}", np.ascontiguousarray(array.reshape(shape)))

    chain = [] if addend is not None else clipped_chain(edit, op, readers)
    to = Parameters.of(edit, chain[-1], QUANTIZE) if chain else None
    # As in ONNX Runtime's integer kernels: one factor, and the activation as limits of the result.
    factor = scale if to is None else requantize_factor(scale, to.scale[0])
    operands = [operand(factor, "factor")] if factor.size > 1 else []
    expr: Expr = call("real", X) * (arg(1) if operands else Const(float(factor[0])))
    if to is not None:
        expr = requantize_expr(expr, int(to.zero[0]), *_limits_of(chain[:-1], to))
    if addend is not None:
        operands.append(operand(addend, "bias"))
        expr = expr + arg(len(operands))
    last = chain[-1] if chain else op
    for dropped in (op, *chain[:-1]):
        edit.replace(dropped)
    edit.replace(last, product, Op("elementwise", Attrs(expr=expr, dtype=edit.types[last.outputs[0]].dtype),
                                   (sums, *operands), last.outputs, origin=last.origin))


def clipped_chain(edit: Editor, op: Op, readers: Readers) -> list[Op]:
    """Returns the clips after an operator and the quantize_linear after them, each the only reader of the one before;
    [] if there is no such chain."""
    chain: list[Op] = []
    value = op.outputs[0]
    while edit.is_read_once(value):
        reader = readers[value][0]
        parameters = Parameters.of(edit, reader, QUANTIZE)
        if parameters is not None:
            return [*chain, reader] if parameters.is_single and parameters.dtype in INT8_TYPES else []
        if _clip_of(reader) is None:
            return []
        chain.append(reader)
        value = reader.outputs[0]
    return []


def _clip_of(op: Op) -> tuple[float, float] | None:
    """Returns the limits of an operator that clips to constants, such as relu; None for others."""
    expr = operator(op.kind).expression(op.attrs) if len(op.inputs) == 1 and "dtype" not in op.attrs else None
    lower, upper = -np.inf, np.inf
    while isinstance(expr, Call) and expr.fn in ("min", "max") and isinstance(expr.args[1], Const):
        limit = expr.args[1].value
        lower, upper = (lower, min(upper, limit)) if expr.fn == "min" else (max(lower, limit), upper)
        expr = expr.args[0]
    return (lower, upper) if expr == X and lower <= upper and (lower, upper) != (-np.inf, np.inf) else None


def _limits_of(clips: list[Op], to: Parameters) -> tuple[int, int]:
    """Returns the limits of the quantised result of clipped floats. Rounding is monotone, so clips commute with it."""
    lower, upper = to.limits
    for op in clips:
        limits = _clip_of(op)
        assert limits is not None
        clip_lower, clip_upper = (_round(limit / to.scale[0]) + int(to.zero[0]) for limit in limits)
        lower, upper = min(max(lower, clip_lower), upper), max(min(upper, clip_upper), lower)
    return lower, upper


def _round(value: float) -> int:
    return int(np.clip(np.rint(np.float32(value)), -2**31, 2**31 - 1))
