# SPDX-License-Identifier: Apache-2.0
"""Restores operators of ONNX in an imported graph where TVM's ONNX importer writes several of its own for one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.dims import Dim
from ...ir.graph import Attrs, Graph, Op
from ...passes.edit import Editor
from ...passes.match import Match, Operation, Pattern, is_const, is_op, wildcard

#: Operators with indices -> the operand that has them.
_INDEXED = {"gather": 1, "gather_elements": 1, "gather_nd": 1, "scatter_nd": 1, "scatter_elements": 1}


def restored(graph: Graph) -> Graph:
    """Returns the graph with operators of ONNX for what TVM's importer writes of them: reductions of norms and
    logarithms, DynamicQuantizeLinear, indices that count from the end, and biases of convolutions of one axis."""
    for restore in (_indices, _reductions, _dynamic_quantisation, _biases):
        edit = Editor(graph)
        for op in reversed(graph.ops):
            restore(edit, op)
        graph = edit.finish()
    return graph


# --- indices -------------------------------------------------------------------------------------------------------

_INDEX, _ZERO, _COUNT = wildcard(), is_const(1), is_const()
_FROM_END = is_op("where", is_op("less", _INDEX, _ZERO), is_op("add", _INDEX, _COUNT), _INDEX)


def _indices(edit: Editor, op: Op) -> None:
    """Removes the sum that makes indices from the end others, since our operators with indices take both kinds."""
    if op.kind not in _INDEXED:
        return
    found = _FROM_END.match(edit, op.inputs[_INDEXED[op.kind]])
    if found is None or edit.constants[found[_ZERO]].any():
        return
    indices, shape = edit.types[found[_INDEX]].shape, edit.types[op.inputs[0]].shape
    if indices != edit.types[found[_FROM_END]].shape:
        return
    if op.kind.endswith("_nd"):
        first, length = op.attrs.get("batch", 0), indices[-1]
        expected: Sequence[Dim] = shape[first:first + length] if isinstance(length, int) else ()
    else:
        expected = (shape[op.attrs.axis],)
    counts = edit.constants[found[_COUNT]]
    if expected and (counts.size == 1 or counts.size == len(expected) == counts.shape[-1]) \
            and all(count == extent for count, extent in zip(np.resize(counts, len(expected)), expected, strict=True)):
        inputs = list(op.inputs)
        inputs[_INDEXED[op.kind]] = found[_INDEX]
        edit.replace(op, op.with_(inputs=tuple(inputs)))


# --- reductions ----------------------------------------------------------------------------------------------------

_X = wildcard()


def _sum(of: Pattern, once: bool = False) -> Operation:
    return is_op("reduce_sum", of, once=once)


def _after(function: str, sum_: Operation) -> tuple[tuple[Operation, Operation], ...]:
    """Returns the patterns of a function of a sum, between which is a reshape if axes are not kept."""
    return (is_op(function, sum_), sum_), (is_op(function, is_op("reshape", sum_, once=True)), sum_)


_SQUARES, _MAGNITUDES = is_op("mul", _X, _X), is_op("abs", _X)
#: (kind of the reduction, pattern, the sum in it)
_REDUCTIONS = (*(("reduce_l2", *way) for way in _after("sqrt", _sum(_SQUARES, once=True))),
               *(("reduce_log_sum", *way) for way in _after("log", _sum(_X, once=True))),
               *((kind, sum_, sum_) for kind, sum_ in (("reduce_sum_square", _sum(_SQUARES)),
                                                       ("reduce_l1", _sum(_MAGNITUDES)))))


def _reductions(edit: Editor, op: Op) -> None:
    """Makes one reduction of a sum and what is elementwise before or after it."""
    for kind, pattern, sum_ in _REDUCTIONS:
        found = pattern.match(edit, op.outputs[0])
        if found is None or not edit.types[found[_X]].dtype.startswith("float"):
            continue
        sums, result = found.op(sum_), edit.types[op.outputs[0]]
        new = sums.with_(kind=kind, inputs=(found[_X],), outputs=op.outputs)
        if result.shape == edit.types[sums.outputs[0]].shape:
            edit.replace(op, new)
        else:
            value = edit.value(f"{op.outputs[0]}.{kind}", edit.types[sums.outputs[0]])
            edit.replace(op, new.with_(outputs=(value,)),
                         op.with_(kind="reshape", attrs=Attrs(shape=result.shape), inputs=(value,)))
        return


# --- DynamicQuantizeLinear -----------------------------------------------------------------------------------------

_GREATEST, _LEAST = is_op("reduce_max", _X), is_op("reduce_min", _X)
#: The numbers in the formula: 0 three times, and 255.
_NUMBERS = tuple(is_const(1) for _ in range(4))
_HIGH = is_op("max", is_op("reshape", _GREATEST), _NUMBERS[0])
_LOW = is_op("min", is_op("reshape", _LEAST), _NUMBERS[1])
_SCALE = is_op("div", is_op("sub", _HIGH, _LOW), _NUMBERS[3])
_CLIPPED = is_op("clip", is_op("sub", _NUMBERS[2], is_op("div", _LOW, _SCALE)))
_ZERO_POINT = is_op("cast", is_op("round", _CLIPPED))
_QUANTISED = is_op("quantize_linear", _X, _SCALE, _ZERO_POINT)


def _dynamic_quantisation(edit: Editor, op: Op) -> None:
    found = _QUANTISED.match(edit, op.outputs[0]) if op.kind == "quantize_linear" else None
    if found is None or not _is_dynamic(edit, found):
        return
    scale, zero = found.op(_SCALE), found.op(_ZERO_POINT)
    edit.replace(scale)
    edit.replace(zero)
    edit.replace(op, op.with_(kind="dynamic_quantize", attrs=Attrs(), inputs=(found[_X],),
                              outputs=(*op.outputs, *scale.outputs, *zero.outputs)))


def _is_dynamic(edit: Editor, found: Match) -> bool:
    """Whether numbers and axes are those of DynamicQuantizeLinear."""
    x, scale = edit.types[found[_X]], edit.types[found[_SCALE]]
    whole = all(len(found.op(reduction).attrs.axes) == x.rank for reduction in (_GREATEST, _LEAST))
    clip = found.op(_CLIPPED).attrs
    numbers = [float(edit.constants[found[pattern]].reshape(())) for pattern in _NUMBERS]
    return (x.dtype == "float32" and whole and scale.rank == 0 and numbers == [0, 0, 0, 255]
            and (clip.lo, clip.hi) == (0, 255) and edit.types[found[_QUANTISED]].dtype == "uint8")


# --- convolutions of one axis --------------------------------------------------------------------------------------

_WEIGHT, _BIAS = wildcard(), is_const()
_CONVOLUTION = is_op("conv2d", _X, _WEIGHT, once=True)
_LINE = is_op("reshape", _CONVOLUTION, once=True)
_BIASED = is_op("add", _LINE, _BIAS)


def _biases(edit: Editor, op: Op) -> None:
    """Makes an addition behind a convolution of one axis its bias. A reshape from and to its two axes is between."""
    found = _BIASED.match(edit, op.outputs[0])
    if found is None:
        return
    image, line, bias = edit.types[found[_CONVOLUTION]], edit.types[found[_LINE]], edit.constants[found[_BIAS]]
    batch, channels, rows, columns = image.shape
    if rows != 1 or line.shape != (batch, channels, columns) or edit.types[op.outputs[0]].shape != line.shape \
            or bias.shape[-2:] != (channels, 1) or bias.size != channels:
        return
    convolution = found.op(_CONVOLUTION)
    value = edit.value(f"{op.outputs[0]}.conv2d", image)
    inputs = (*convolution.inputs, edit.constant(f"{op.outputs[0]}.bias", bias.reshape(channels)))
    edit.replace(op, convolution.with_(inputs=inputs, outputs=(value,)),
                 found.op(_LINE).with_(inputs=(value,), outputs=op.outputs))
