# SPDX-License-Identifier: Apache-2.0
"""Lowers recurrent layers between dequantize_linear and quantize_linear: recurrent weights stay 8-bit and are converted
to floats in registers; results are stored quantised."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.expr import Expr, X
from ...ir.graph import Attrs, Graph, Op
from ...ops.base import operator
from ...ops.quantized.conv_matmul import INT8_TYPES, requantize_expr
from ...ops.recurrent.rnn import Recurrent
from ..edit import Editor
from .requantize import DEQUANTIZE, QUANTIZE, Parameters, Readers


def lower_recurrent(graph: Graph, context: Context) -> Graph:
    """Lowers lstm, gru and rnn operators. Their recurrent weights must have one zero point, and one scale or one for
    each direction or row."""
    edit = Editor(graph)
    readers = graph.consumers()
    for op in graph.ops:
        if not issubclass(operator(op.kind), Recurrent):
            continue
        layer = _with_quantised_results(edit, _with_quantised_weights(edit, op), readers)
        if layer is not op:
            edit.replace(op, layer)
    return edit.finish()


def _with_quantised_weights(edit: Editor, op: Op) -> Op:
    """Returns the layer with quantised recurrent weights [directions, rows, columns]; if they fit, as int8 with the
    zero point 0. Returns the layer unchanged if its weights are not quantised so."""
    source = edit.producer(op.inputs[1])
    of_r = Parameters.of(edit, source, DEQUANTIZE)
    if source is None or of_r is None or of_r.dtype not in INT8_TYPES or source.inputs[0] not in edit.constants \
            or len(set(of_r.zero.tolist())) > 1:
        return op
    numbers, zero = edit.constants[source.inputs[0]], int(of_r.zero[0])
    directions, rows, _ = numbers.shape
    if of_r.scale.size == 1:
        scale = of_r.scale.reshape(1, 1)
    elif of_r.axis % 3 == 0:  # one for each direction
        scale = np.broadcast_to(of_r.scale.reshape(-1, 1), (directions, rows))
    elif of_r.axis % 3 == 1:  # one for each row
        scale = np.broadcast_to(of_r.scale.reshape(1, -1), (directions, rows))
    else:
        return op
    centred = numbers.astype(np.int16) - zero
    if centred.min(initial=0) >= -128 and centred.max(initial=0) <= 127:
        numbers, zero = centred.astype(np.int8), 0
    # The scale is the last operand; absent ones before it are "".
    absent = len(operator(op.kind).operands) - 1 - len(op.inputs)
    inputs = [*op.inputs, *("",) * absent,
              edit.constant(f"{op.outputs[0]}.scale", np.ascontiguousarray(scale))]
    inputs[1] = edit.constant(f"{op.outputs[0]}.r", numbers)
    return op.with_(inputs=tuple(inputs), attrs=Attrs(op.attrs, r_zero=zero))


def _with_quantised_results(edit: Editor, op: Op, readers: Readers) -> Op:
    """Returns the layer with quantised results, for results whose only reader is a quantize_linear."""
    outputs, stored = list(op.outputs), []
    for index, (name, value) in enumerate(zip(op.attrs.results, op.outputs, strict=True)):
        reader = readers[value][0] if edit.is_read_once(value) else None
        to = Parameters.of(edit, reader, QUANTIZE)
        if reader is not None and to is not None and to.is_single and to.dtype in (*INT8_TYPES, "int16"):
            stored.append((name, to.dtype, _expression(to)))
            outputs[index] = reader.outputs[0]
            edit.replace(reader)
    return op.with_(outputs=tuple(outputs), attrs=Attrs(op.attrs, quantised=tuple(stored))) if stored else op


def _expression(to: Parameters) -> Expr:
    """Returns the quantisation of a float as an expression."""
    return requantize_expr(X / float(to.scale[0]), int(to.zero[0]), *to.limits)
