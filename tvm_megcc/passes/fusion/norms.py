# SPDX-License-Identifier: Apache-2.0
"""Fuses layer and RMS normalisation, which exporters decompose into means, squares and roots, into one operator."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.dims import Dim
from ...ir.graph import Attrs, Graph, Op
from ...kernels.site import Site
from ...kernels.support import realisable
from ...ops.base import operator
from ..edit import Editor
from ..match import is_const, is_op, wildcard

Readers = dict[str, list[Op]]


def fuse_norms(graph: Graph, context: Context) -> Graph:
    """Fuses (x - mean) / sqrt(variance + epsilon) * weight + bias and x / sqrt(mean(x²) + epsilon) * weight along the
    last axis; weight and bias may be absent."""
    edit = Editor(graph)
    readers: Readers = graph.consumers()
    for op in graph.ops:
        # x - mean may be the x of an RMS normalisation, so the other form comes first.
        kind, match = "layer_norm", _normalised(edit, op, readers)
        if match is None:
            kind, match = "rms_norm", _divided_by_rms(edit, op)
        if match is not None:
            _fuse(edit, context, readers, op, kind, *match)
    return edit.finish()


def _fuse(edit: Editor, context: Context, readers: Readers, op: Op, kind: str, x: str, epsilon: float) -> None:
    """Replaces a normalisation, whose last operator is `op`, and its factor and summand, if there is a kernel."""
    extent = edit.types[x].shape[-1]
    weight, last = _per_element(edit, readers, op, "mul", extent)
    bias, last = _per_element(edit, readers, last, "add", extent) if kind == "layer_norm" else (None, last)
    factors = tuple(edit.constant(f"{last.outputs[0]}.{what}", array) if array is not None else ""
                    for what, array in (("weight", weight), ("bias", bias)))
    # An absent weight before a bias is ""; absent operands at the end are left out.
    operands = (x, *factors) if factors[1] else (x, *filter(None, factors))
    fused = Op(kind, Attrs(epsilon=epsilon), operands, last.outputs, origin=last.origin)
    types = tuple(edit.types[name] if name else None for name in operands)
    if realisable(Site(fused, types, (edit.types[last.outputs[0]],), context)):
        edit.replace(last, fused)


_X, _EPSILON = wildcard(), is_const(1)
_MEAN = is_op("reduce_mean", _X, once=True)
_CENTRED = is_op("sub", _X, _MEAN)
_SQUARE = is_op("mul", _CENTRED, _CENTRED)
_VARIANCE = is_op("reduce_mean", _SQUARE, once=True)
_UNDER = is_op("add", _VARIANCE, _EPSILON)
#: (x - mean) / root, as quotient and as product.
_NORMALISED = {"div": is_op("div", _CENTRED, is_op("sqrt", _UNDER)),
               "mul": is_op("mul", _CENTRED, is_op("rsqrt", _UNDER))}

_MEAN_SQUARE = is_op("reduce_mean", is_op("mul", _X, _X, once=True), once=True)
_UNDER_RMS = is_op("add", _MEAN_SQUARE, _EPSILON, once=True)
#: x / root, as quotient and as product.
_DIVIDED_BY_RMS = {"div": is_op("div", _X, is_op("sqrt", _UNDER_RMS, once=True)),
                   "mul": is_op("mul", _X, is_op("rsqrt", _UNDER_RMS, once=True))}


def _normalised(edit: Editor, op: Op, readers: Readers) -> tuple[str, float] | None:
    """Returns x and epsilon of an operator that computes (x - mean) / sqrt(variance + epsilon); None for another."""
    pattern = _NORMALISED.get(op.kind)
    found = pattern.match(edit, op.outputs[0]) if pattern and edit.types[op.outputs[0]].dtype == "float32" else None
    # Only the square and this operator may read x - mean: with other readers it would be computed in any case.
    if found is None or len(readers[found[_CENTRED]]) != 2 \
            or not all(_is_of_rows(edit, found.op(mean)) for mean in (_MEAN, _VARIANCE)):
        return None
    epsilon = float(edit.constants[found[_EPSILON]].reshape(-1)[0])
    return (found[_X], epsilon) if 0 < epsilon < 1 else None


def _divided_by_rms(edit: Editor, op: Op) -> tuple[str, float] | None:
    """Returns x and epsilon of an operator that computes x / sqrt(mean(x²) + epsilon); None for another."""
    pattern = _DIVIDED_BY_RMS.get(op.kind)
    found = pattern.match(edit, op.outputs[0]) if pattern and edit.types[op.outputs[0]].dtype == "float32" else None
    if found is None or not _is_of_rows(edit, found.op(_MEAN_SQUARE)):
        return None
    epsilon = float(edit.constants[found[_EPSILON]].reshape(-1)[0])
    return (found[_X], epsilon) if 0 < epsilon < 1 else None


def _is_of_rows(edit: Editor, mean: Op) -> bool:
    """Returns whether a mean is along the last axis and keeps it."""
    return bool(mean.attrs.keepdims) and tuple(mean.attrs.axes) == (edit.types[mean.inputs[0]].rank - 1,)


def _constant_value(edit: Editor, name: str) -> np.ndarray | None:
    """Returns the array of a constant or a dequantised constant; None for other values."""
    source = edit.producer(name)
    if source is not None and source.kind == "dequantize_linear" \
            and all(operand in edit.constants for operand in source.inputs if operand):
        operands = (edit.constants[operand] if operand else None for operand in source.inputs)
        return operator(source.kind).compute(source.attrs, *operands)[0]
    return edit.constants.get(name)


def _per_element(edit: Editor, readers: Readers, op: Op, kind: str, extent: Dim) -> tuple[np.ndarray | None, Op]:
    """Returns the constant vector [extent] with which the only reader of the operator's result multiplies it ("mul") or
    which it adds ("add"), and that reader; if there is none, None and the operator itself."""
    (value,), following = op.outputs, readers.get(op.outputs[0], [])
    if len(following) != 1 or following[0].kind != kind or not edit.is_read_once(value):
        return None, op
    (reader,) = following
    for name, operand in (reader.inputs, reader.inputs[::-1]):
        array = _constant_value(edit, operand)
        if name == value and array is not None and array.shape[-1:] == (extent,) and array.size == extent \
                and edit.types[reader.outputs[0]] == edit.types[value]:
            return np.ascontiguousarray(array.reshape(-1)), reader
    return None, op
