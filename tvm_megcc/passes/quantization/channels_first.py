# SPDX-License-Identifier: Apache-2.0
"""Brings quantised networks whose convolutions stand between transposes, and whose activations follow quantize_linear,
into the form that the other passes match. TVM's TFLite importer and layout conversion write such networks.

    before                                                    after
    f(transpose(conv2d(…)), transpose(y), vector)             transpose(f(conv2d(…), y, vector by channel))
    transpose(transpose(x, p), inverse of p)                  x
    clip(quantize(x), lowest, highest)                        quantize(clip(x, lowest as float, highest as float))

f is an elementwise operator, quantize_linear or dequantize_linear. Afterwards a bias, an activation and quantize_linear
follow their convolution directly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...context import Context
from ...ir.dims import Dim
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...ops.base import operator
from ...ops.elementwise import Elementwise
from ..edit import Editor
from .requantize import DEQUANTIZE, QUANTIZE, Parameters


def move_transposes(graph: Graph, context: Context) -> Graph:
    """Moves transposes of the results of quantised convolutions after elementwise operators, and removes those that
    the next transpose undoes."""
    edit = Editor(graph)
    sources: dict[str, tuple[str, tuple[int, ...]]] = {}  # value -> what it is a transpose of, and the order of axes
    undone: dict[str, str] = {}  # value -> the equal value before two transposes
    for op in graph.ops:
        if op.kind == "transpose":
            (name,), (result,), order = op.inputs, op.outputs, tuple(op.attrs.perm)
            if name in sources:
                source, first = sources[name]
                if [first[axis] for axis in order] == sorted(order) and result not in graph.outputs:
                    undone[result] = source
            elif _is_quantised_convolution(edit, edit.producer(name)):
                sources[result] = name, order
        elif len(op.outputs) == 1 and any(name in sources for name in op.inputs):
            _move_after(edit, op, sources)
    edit.redirect(undone)
    return edit.finish()


def _is_quantised_convolution(edit: Editor, op: Op | None) -> bool:
    """Returns whether an operator is a convolution of dequantised values."""
    return op is not None and op.kind == "conv2d" \
        and all(Parameters.of(edit, edit.producer(name), DEQUANTIZE) is not None for name in op.inputs[:2])


def _move_after(edit: Editor, op: Op, sources: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """Moves the transposes of an operator's operands after it, if all operands can do without."""
    order = next(sources[name][1] for name in op.inputs if name in sources)
    parameters = Parameters.of(edit, op, op.kind) if op.kind in (DEQUANTIZE, QUANTIZE) else None
    if parameters is not None and parameters.is_single:
        # Scale and zero point are scalars: only the operand loses its transpose.
        inputs = [sources[op.inputs[0]][0], *op.inputs[1:]] if op.inputs[0] in sources else None
    elif issubclass(operator(op.kind), Elementwise):
        inputs = _untransposed(edit, op, op.inputs, order, sources)
    else:
        inputs = None
    if inputs is None:
        return
    type_ = edit.types[op.outputs[0]]
    moved = edit.value(f"{op.outputs[0]}.moved", TensorType(type_.dtype, _permuted(type_.shape, _inverse(order))))
    edit.replace(op, op.with_(inputs=tuple(inputs), outputs=(moved,)),
                 Op("transpose", Attrs(perm=order), (moved,), op.outputs, origin=op.origin))
    sources[op.outputs[0]] = moved, order


def _untransposed(edit: Editor, op: Op, names: Sequence[str], order: tuple[int, ...],
                  sources: dict[str, tuple[str, tuple[int, ...]]]) -> list[str] | None:
    """Returns the operands of an elementwise operator before the transposes, constants with their axes in that order;
    None if there is an operand of another kind."""
    inputs = []
    for name in names:
        if name in sources and sources[name][1] == order:
            inputs.append(sources[name][0])
            continue
        source = edit.producer(name) if name not in edit.constants else None
        if name not in edit.constants and not _is_dequantised_constant(edit, source):
            return None
        array = edit.constants[name if source is None else source.inputs[0]]
        if array.ndim > len(order):
            return None
        array = np.ascontiguousarray(array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(
            _inverse(order)))
        constant = edit.constant(f"{name}.by_channel", array)
        if source is None:
            inputs.append(constant)
            continue
        inputs.append(edit.value(f"{name}.by_channel.real", TensorType(edit.types[name].dtype, array.shape)))
        longest_axis = int(np.argmax(array.shape))  # the others have extent 1, so scales can only be along this one
        edit.add_before(op, source.with_(inputs=(constant, *source.inputs[1:]), outputs=(inputs[-1],),
                                         attrs=Attrs(source.attrs, axis=longest_axis)))
    return inputs


def _is_dequantised_constant(edit: Editor, op: Op | None) -> bool:
    """Returns whether an operator dequantises a constant with at most one axis that is longer than 1."""
    return op is not None and Parameters.of(edit, op, DEQUANTIZE) is not None and op.inputs[0] in edit.constants \
        and sum(extent != 1 for extent in edit.types[op.inputs[0]].shape) <= 1


def _permuted(shape: Sequence[Dim], order: Sequence[int]) -> tuple[Dim, ...]:
    return tuple(shape[axis] for axis in order)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def clip_first(graph: Graph, context: Context) -> Graph:
    """Clips floats before quantize_linear instead of integers after it. Limits that every integer keeps are dropped.

    The results are equal: rounding is monotone, and a limit as a float is rounded to the limit itself.
    """
    edit = Editor(graph)
    for op in graph.ops:
        quantize = edit.producer(op.inputs[0]) if op.kind == "clip" else None
        parameters = Parameters.of(edit, quantize, QUANTIZE)
        if quantize is None or parameters is None or not parameters.is_single or not edit.is_read_once(op.inputs[0]):
            continue
        least, greatest = parameters.limits
        lowest, highest = (np.clip(limit, least, greatest) for limit in (op.attrs.lo, op.attrs.hi))
        if not lowest <= highest or int(lowest) != lowest or int(highest) != highest:
            continue
        scale, zero = parameters.scale[0], parameters.zero[0]
        limits = (float(scale * np.float32(lowest - zero)) if lowest > least else -np.inf,
                  float(scale * np.float32(highest - zero)) if highest < greatest else np.inf)
        x, ops = quantize.inputs[0], []
        if limits != (-np.inf, np.inf):
            x = edit.value(f"{op.outputs[0]}.clipped", edit.types[x])
            ops.append(op.with_(attrs=Attrs(lo=limits[0], hi=limits[1]), inputs=quantize.inputs[:1], outputs=(x,)))
        edit.replace(quantize)
        edit.replace(op, *ops, quantize.with_(inputs=(x, *quantize.inputs[1:]), outputs=op.outputs))
    return edit.finish()
