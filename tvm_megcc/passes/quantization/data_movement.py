# SPDX-License-Identifier: Apache-2.0
"""Moves dequantize_linear after data movement, and quantize_linear before it, so that integers are moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op, is_open
from ...ir.types import TensorType
from ...kernels.site import Site
from ...kernels.support import realisable
from ...ops.base import operator
from ..edit import Editor
from .requantize import DEQUANTIZE, QUANTIZE, Parameters

#: Kind of an operator whose result consists of elements of some operands -> the positions of these operands.
MOVES: dict[str, slice] = {
    **dict.fromkeys(("reshape", "transpose", "slice", "max_pool", "gather", "expand", "tile", "reverse", "pad",
                     "resize", "global_max_pool"), slice(1)),
    "concat": slice(None), "where": slice(1, 3)}
#: Operators whose result has no more elements than the operand: they are folded if their operands are constants.
PARTS = ("reshape", "transpose", "slice")


def sink(graph: Graph, context: Context) -> Graph:
    """Moves dequantize_linear after data movement, and cancels it with an equal quantize_linear."""
    edit = Editor(graph)
    for op in graph.ops:
        data = _data(op)
        sources = [edit.producer(name) for name in data]
        parameters = [Parameters.of(edit, source, DEQUANTIZE) for source in sources]
        first = parameters[0] if parameters else None
        if first is None or any(source is None for source in sources):
            continue
        source = sources[0]
        assert source is not None
        if op.kind == QUANTIZE:
            _cancel(edit, op, source, first)
        elif all(first.equals(of_source) for of_source in parameters):
            _move_before(edit, op, source, source.attrs.axis, first, context)
        elif op.kind == "transpose":  # it moves the axis that has several scales
            _move_before(edit, op, source, op.attrs.perm.index(first.axis % len(op.attrs.perm)), first, context)
        elif op.kind == "reshape":
            _reshape_channels(edit, op, source, first)
    return edit.finish()


def _cancel(edit: Editor, quantize: Op, source: Op, parameters: Parameters) -> None:
    """Removes a quantize_linear of dequantised values, if they are constants or both have equal parameters.

    Args:
        source, parameters: the dequantize_linear before it, and its parameters.
    """
    if all(name in edit.constants for name in (*source.inputs, *quantize.inputs[1:]) if name):
        others = (edit.constants[name] if name else None for name in quantize.inputs[1:])
        edit.settle(quantize, operator(QUANTIZE).compute(quantize.attrs, _computed(edit, source), *others)[0])
    elif parameters.equals(Parameters.of(edit, quantize, QUANTIZE)) and quantize.outputs[0] not in edit.graph.outputs:
        edit.redirect({quantize.outputs[0]: source.inputs[0]})


def _move_before(edit: Editor, op: Op, source: Op, axis: int, parameters: Parameters, context: Context) -> None:
    """Replaces data movement of dequantised values by data movement of the integers and a dequantize_linear after it.

    Args:
        source, parameters: the first dequantize_linear before it, and the parameters of all.
        axis: the attribute `axis` of the one after it.
    """
    data = _data(op)
    integers = tuple(dequantize.inputs[0] for dequantize in map(edit.producer, data) if dequantize is not None)
    moved = _moved(edit, op, dict(zip(data, integers, strict=True)), parameters, context)
    if moved is None:
        return
    floats = source.with_(inputs=(moved.outputs[0], *source.inputs[1:]), outputs=op.outputs,
                          attrs=Attrs(source.attrs, axis=axis))
    if _is_computed_now(edit, op, integers):
        edit.constants[moved.outputs[0]] = _computed(edit, moved)
        edit.replace(op, floats)
    else:
        edit.replace(op, moved, floats)


def _reshape_channels(edit: Editor, op: Op, source: Op, parameters: Parameters) -> None:
    """Folds a reshape of a quantised constant with a scale for each index of an axis, if each index of an axis of the
    result has one scale too."""
    if source.inputs[0] not in edit.constants:
        return
    numbers, shape = edit.constants[source.inputs[0]], edit.types[op.outputs[0]].shape
    if not (edit.types[op.outputs[0]].is_static and numbers.size):
        return
    # For each element, the index of its scale. It is reshaped like the numbers.
    along = [-1 if axis == parameters.axis % numbers.ndim else 1 for axis in range(numbers.ndim)]
    indices = np.broadcast_to(np.arange(numbers.shape[parameters.axis], dtype=np.int32).reshape(along), numbers.shape)
    for axis in range(len(shape)):
        by_channel = np.moveaxis(indices.reshape(shape), axis, 0).reshape(shape[axis], -1)
        if by_channel.size and (by_channel == by_channel[:, :1]).all():
            inputs = (edit.constant(f"{op.outputs[0]}.{numbers.dtype}", numbers.reshape(shape)),
                      *(edit.constant(f"{name}.{axis}", _gathered_parameters(edit.constants[name], by_channel[:, 0]))
                        for name in source.inputs[1:] if name))
            edit.replace(op, source.with_(inputs=inputs, outputs=op.outputs, attrs=Attrs(source.attrs, axis=axis)))
            return


def _gathered_parameters(parameter: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Gathers the scales or zero points for each index of the result's axis."""
    return parameter if parameter.size == 1 else parameter.reshape(-1)[indices]


def _computed(edit: Editor, op: Op):
    """Returns the result of an operator on constants."""
    return operator(op.kind).compute(op.attrs, *(edit.constants[name] if name else None for name in op.inputs))[0]


def rise(graph: Graph, context: Context) -> Graph:
    """Moves quantize_linear from after data movement to before it."""
    edit = Editor(graph)
    for op in reversed(graph.ops):
        parameters = Parameters.of(edit, op, QUANTIZE)
        move = edit.producer(op.inputs[0]) if parameters and parameters.is_single else None
        data = _data(move) if move is not None and move.kind in MOVES else ()
        if not parameters or move is None or not data or not edit.is_read_once(move.outputs[0]) \
                or any(edit.types[n].dtype != "float32" for n in data):
            continue
        integers = {name: edit.value(f"{name}.{parameters.dtype}", TensorType(parameters.dtype, edit.types[name].shape))
                    for name in data}
        moved = _moved(edit, move, integers, parameters, context)
        if moved is not None:
            edit.replace(move, *(op.with_(inputs=(name, *op.inputs[1:]), outputs=(integer,))
                                 for name, integer in integers.items()))
            edit.replace(op, moved.with_(outputs=op.outputs))
    return edit.finish()


def _data(op: Op) -> tuple[str, ...]:
    """Returns the operands whose elements the result consists of."""
    if op.kind == QUANTIZE:
        return op.inputs[:1]
    return op.inputs[MOVES[op.kind]] if op.kind in MOVES and len(op.outputs) == 1 else ()


def _is_computed_now(edit: Editor, op: Op, integers: Sequence[str]) -> bool:
    """Returns whether the operator is folded because its operands are constants."""
    return op.kind in PARTS and edit.types[op.outputs[0]].is_static and not is_open(op.attrs) \
        and all(name in edit.constants for name in integers)


def _moved(edit: Editor, op: Op, integers: Mapping[str, str], parameters: Parameters, context: Context) -> Op | None:
    """Returns the data movement on integers; None if no kernel supports it. integers: float operand -> integer
    operand."""
    attrs = op.attrs
    if op.kind == "resize" and attrs.mode != "nearest":
        return None
    if op.kind == "pad" and attrs.mode == "constant":
        if not parameters.is_single or attrs.value != 0:
            return None
        attrs = Attrs(attrs, value=int(parameters.zero[0]))
    data = MOVES[op.kind]
    inputs = list(op.inputs)
    inputs[data] = [integers[name] for name in inputs[data]]
    result = TensorType(parameters.dtype, edit.types[op.outputs[0]].shape)
    types = tuple(edit.types[name] if name else None for name in inputs)
    constants = frozenset(i for i, name in enumerate(inputs) if name in edit.constants)
    moved = op.with_(inputs=tuple(inputs), attrs=attrs,
                     outputs=(edit.value(f"{op.outputs[0]}.{result.dtype}", result),))
    if _is_computed_now(edit, op, inputs):
        return moved
    return moved if realisable(Site(moved, types, (result,), context, constants)) else None
