# SPDX-License-Identifier: Apache-2.0
"""Restores operators of ONNX in an imported graph where TVM's ONNX importer creates several of its own for one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.dims import Dim
from ...ir.graph import Attrs, Graph, Op
from ...passes.edit import Editor
from ...passes.match import Match, Operation, Pattern, is_const, is_op, wildcard

#: Operators with indices -> the operand that has them.
_INDICES_OPERAND = {"gather": 1, "gather_elements": 1, "gather_nd": 1, "scatter_nd": 1, "scatter_elements": 1}


def restore_onnx_operators(graph: Graph) -> Graph:
    """Returns the graph with one operator for each of these sequences of operators: reductions of norms and logarithms,
    HardSwish, DynamicQuantizeLinear, indices that count from the end, and convolutions of one axis with a bias."""
    for restore in (_restore_indices, _restore_reductions, _restore_hard_swish, _restore_dynamic_quantisation,
                    _restore_biases):
        edit = Editor(graph)
        # From the last one, so that the longest sequence is found: the sum in sqrt(sum(x * x)) is one by itself too.
        for op in reversed(graph.ops):
            restore(edit, op)
        graph = edit.finish()
    return graph


# --- indices -------------------------------------------------------------------------------------------------------

# where(index < 0, index + count, index)
_INDEX, _ZERO, _COUNT = wildcard(), is_const(1), is_const()
_FROM_END = is_op("where", is_op("less", _INDEX, _ZERO), is_op("add", _INDEX, _COUNT), _INDEX)


def _restore_indices(edit: Editor, op: Op) -> None:
    """Removes where(i < 0, i + extent, i) from indices, since our operators also take indices that count from the
    end."""
    if op.kind not in _INDICES_OPERAND:
        return
    match = _FROM_END.match(edit, op.inputs[_INDICES_OPERAND[op.kind]])
    if match is None or edit.constants[match[_ZERO]].any():
        return
    indices, shape = edit.types[match[_INDEX]].shape, edit.types[op.inputs[0]].shape
    if indices != edit.types[match[_FROM_END]].shape:
        return
    if op.kind.endswith("_nd"):
        first, length = op.attrs.get("batch", 0), indices[-1]
        expected: Sequence[Dim] = shape[first:first + length] if isinstance(length, int) else ()
    else:
        expected = (shape[op.attrs.axis],)
    counts = edit.constants[match[_COUNT]]
    # One extent for all indices or, for the _nd operators, one for each coordinate, which lie along the last axis.
    if expected and (counts.size == 1 or counts.size == len(expected) == counts.shape[-1]) \
            and all(count == extent for count, extent in zip(np.resize(counts, len(expected)), expected, strict=True)):
        inputs = list(op.inputs)
        inputs[_INDICES_OPERAND[op.kind]] = match[_INDEX]
        edit.replace(op, op.with_(inputs=tuple(inputs)))


# --- reductions ----------------------------------------------------------------------------------------------------

_X = wildcard()


def _sum_of(operand: Pattern, once: bool = False) -> Operation:
    """Returns the pattern of a sum. once: whether only one operator may read it."""
    return is_op("reduce_sum", operand, once=once)


def _function_of_sum(function: str, sum_: Operation) -> tuple[tuple[Operation, Operation], ...]:
    """Returns (pattern, the sum in it) of a function of a sum: directly, and with a reshape between, which TVM's
    importer adds if axes are not kept."""
    return (is_op(function, sum_), sum_), (is_op(function, is_op("reshape", sum_, once=True)), sum_)


_SQUARES, _MAGNITUDES = is_op("mul", _X, _X), is_op("abs", _X)
#: (kind of the reduction, pattern, the sum in it):
#: reduce_l2 = sqrt(sum(x * x)), reduce_log_sum = log(sum(x)), reduce_sum_square = sum(x * x), reduce_l1 = sum(|x|)
_REDUCTIONS = (*(("reduce_l2", *patterns) for patterns in _function_of_sum("sqrt", _sum_of(_SQUARES, once=True))),
               *(("reduce_log_sum", *patterns) for patterns in _function_of_sum("log", _sum_of(_X, once=True))),
               *((kind, sum_, sum_) for kind, sum_ in (("reduce_sum_square", _sum_of(_SQUARES)),
                                                       ("reduce_l1", _sum_of(_MAGNITUDES)))))


def _restore_reductions(edit: Editor, op: Op) -> None:
    """Replaces a sum with elementwise operators before or after it by one reduction."""
    for kind, pattern, sum_ in _REDUCTIONS:
        match = pattern.match(edit, op.outputs[0])
        if match is None or not edit.types[match[_X]].dtype.startswith("float"):
            continue
        sums, result = match.op(sum_), edit.types[op.outputs[0]]
        new = sums.with_(kind=kind, inputs=(match[_X],), outputs=op.outputs)
        if result.shape == edit.types[sums.outputs[0]].shape:
            edit.replace(op, new)
        else:
            value = edit.value(f"{op.outputs[0]}.{kind}", edit.types[sums.outputs[0]])
            edit.replace(op, new.with_(outputs=(value,)),
                         op.with_(kind="reshape", attrs=Attrs(shape=result.shape), inputs=(value,)))
        return


# --- HardSwish -----------------------------------------------------------------------------------------------------

# clip(x + 3, 0, 6) / 6
_THREE, _SIX = is_const(1), is_const(1)
_HARD_CLIP = is_op("clip", is_op("add", _X, _THREE, once=True), once=True)
_HARD_SIGMOID = is_op("div", _HARD_CLIP, _SIX)


def _restore_hard_swish(edit: Editor, op: Op) -> None:
    """Replaces clip(x + 3, 0, 6) / 6, the factor in TVM's HardSwish, by ONNX's: clip(x / 6 + 0.5, 0, 1), without a
    division of elements."""
    match = _HARD_SIGMOID.match(edit, op.outputs[0]) if op.kind == "div" else None
    if match is None or edit.types[match[_X]] != edit.types[op.outputs[0]]:
        return
    clip = match.op(_HARD_CLIP).attrs
    if (clip.lo, clip.hi) == (0, 6) and edit.constants[match[_THREE]].item() == 3 \
            and edit.constants[match[_SIX]].item() == 6 and edit.types[match[_X]].dtype.startswith("float"):
        edit.replace(op, op.with_(kind="hard_sigmoid", attrs=Attrs(alpha=1 / 6, beta=0.5), inputs=(match[_X],)))


# --- DynamicQuantizeLinear -----------------------------------------------------------------------------------------

# high, low = max(reduce_max(x), 0), min(reduce_min(x), 0)
# scale = (high - low) / 255
# zero point = round(clip(0 - low / scale, 0, 255))
# y = quantize_linear(x, scale, zero point)
_MAX, _MIN = is_op("reduce_max", _X), is_op("reduce_min", _X)
#: The constants in the formula: 0 three times, and 255.
_CONSTANTS = tuple(is_const(1) for _ in range(4))
_MAX_OR_ZERO = is_op("max", is_op("reshape", _MAX), _CONSTANTS[0])
_MIN_OR_ZERO = is_op("min", is_op("reshape", _MIN), _CONSTANTS[1])
_SCALE = is_op("div", is_op("sub", _MAX_OR_ZERO, _MIN_OR_ZERO), _CONSTANTS[3])
_CLIPPED = is_op("clip", is_op("sub", _CONSTANTS[2], is_op("div", _MIN_OR_ZERO, _SCALE)))
_ZERO_POINT = is_op("cast", is_op("round", _CLIPPED))
_QUANTISED = is_op("quantize_linear", _X, _SCALE, _ZERO_POINT)


def _restore_dynamic_quantisation(edit: Editor, op: Op) -> None:
    """Replaces a quantisation whose scale and zero point are computed from the extremes of its operand."""
    match = _QUANTISED.match(edit, op.outputs[0]) if op.kind == "quantize_linear" else None
    if match is None or not _is_dynamic(edit, match):
        return
    scale, zero = match.op(_SCALE), match.op(_ZERO_POINT)
    edit.replace(scale)  # removed: the new operator gives the scale and the zero point too
    edit.replace(zero)
    edit.replace(op, op.with_(kind="dynamic_quantize", attrs=Attrs(), inputs=(match[_X],),
                              outputs=(*op.outputs, *scale.outputs, *zero.outputs)))


def _is_dynamic(edit: Editor, match: Match) -> bool:
    """Whether the constants and axes of a match are those of DynamicQuantizeLinear."""
    x, scale = edit.types[match[_X]], edit.types[match[_SCALE]]
    reduces_all_axes = all(len(match.op(reduction).attrs.axes) == x.rank for reduction in (_MAX, _MIN))
    clip = match.op(_CLIPPED).attrs
    constants = [float(edit.constants[match[pattern]].reshape(())) for pattern in _CONSTANTS]
    return (x.dtype == "float32" and reduces_all_axes and scale.rank == 0 and constants == [0, 0, 0, 255]
            and (clip.lo, clip.hi) == (0, 255) and edit.types[match[_QUANTISED]].dtype == "uint8")


# --- convolutions of one axis --------------------------------------------------------------------------------------

# reshape(conv2d(x, weight)) + bias
_WEIGHT, _BIAS = wildcard(), is_const()
_CONVOLUTION = is_op("conv2d", _X, _WEIGHT, once=True)
_ONE_AXIS = is_op("reshape", _CONVOLUTION, once=True)
_BIASED = is_op("add", _ONE_AXIS, _BIAS)


def _restore_biases(edit: Editor, op: Op) -> None:
    """Makes an addition after a convolution of one axis its bias. TVM's importer computes it as a conv2d with one row,
    and a reshape that removes the row lies between."""
    match = _BIASED.match(edit, op.outputs[0])
    if match is None:
        return
    image, one_axis, bias = edit.types[match[_CONVOLUTION]], edit.types[match[_ONE_AXIS]], edit.constants[match[_BIAS]]
    batch, channels, rows, columns = image.shape
    if rows != 1 or one_axis.shape != (batch, channels, columns) or edit.types[op.outputs[0]].shape != one_axis.shape \
            or bias.shape[-2:] != (channels, 1) or bias.size != channels:
        return
    convolution = match.op(_CONVOLUTION)
    value = edit.value(f"{op.outputs[0]}.conv2d", image)
    inputs = (*convolution.inputs, edit.constant(f"{op.outputs[0]}.bias", bias.reshape(channels)))
    edit.replace(op, convolution.with_(inputs=inputs, outputs=(value,)),
                 match.op(_ONE_AXIS).with_(inputs=(value,), outputs=op.outputs))
