# SPDX-License-Identifier: Apache-2.0
"""Folds per-channel scales, offsets and pads into the adjacent convolution or product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...context import Context
from ...ir.dims import number
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...kernels.support import operand_class
from ...ops.base import operator
from ..edit import Editor
from ..match import is_op, wildcard

#: Kind of an operator with operands (x, weights, optional bias) -> function that returns the weights' axis of output
#: channels, counted from the end.
_OUTPUT_CHANNEL: dict[str, Callable[[Op], int]] = {
    "conv2d": lambda op: -4, "conv2d_transpose": lambda op: -3, "matmul": lambda op: -2 if op.attrs.trans_b else -1}

_X = wildcard()
_PAD = is_op("pad", _X, once=True)


def absorb_scales(graph: Graph, context: Context) -> Graph:
    """Rewrites conv(x, w, b) * s + t → conv(x, w * s, b * s + t) for constant per-channel s and t (a batch norm), also
    for products with a constant matrix."""
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind in ("mul", "add", "sub", "div") and len(op.inputs) == 2:
            _absorb_into_producer(edit, op)
    return edit.finish()


def _absorb_into_producer(edit: Editor, op: Op) -> None:
    """Folds a multiplication or addition into the convolution or product before it, if possible."""
    value, factor = op.inputs
    if op.kind in ("mul", "add") and value in edit.constants:
        value, factor = factor, value
    source = edit.producer(value)
    if factor not in edit.constants or not edit.is_read_once(value) \
            or source is None or source.kind not in _OUTPUT_CHANNEL or source.epilogue is not None:
        return
    channel_axis = operator(source.kind).channel_axis
    output = edit.types[value]
    if channel_axis is None or not _is_per_channel(edit.types[factor], output, channel_axis):
        return
    if edit.types[op.outputs[0]].shape != output.shape or source.inputs[1] not in edit.constants:
        return
    weights = edit.constants[source.inputs[1]]
    # Scaled weights that another operator reads too would be stored a second time.
    needs_copy = op.kind in ("mul", "div") and not edit.is_read_once(source.inputs[1])
    has_bias = len(source.inputs) > 2 and source.inputs[2]
    if needs_copy or weights.dtype.kind != "f" or (has_bias and source.inputs[2] not in edit.constants):
        return
    weights_axis, channels = _OUTPUT_CHANNEL[source.kind](source), number(output.shape[channel_axis])
    if op.kind in ("mul", "div") and weights.shape[weights_axis] != channels:  # a transposed convolution in groups
        return
    term = np.broadcast_to(edit.constants[factor].reshape(-1), (channels,)).astype(weights.dtype)
    bias = edit.constants[source.inputs[2]] if has_bias else np.zeros(channels, weights.dtype)
    name, weight = op.outputs[0], source.inputs[1]
    if op.kind in ("mul", "div"):
        trailing_axes = -1 - weights_axis
        with np.errstate(all="ignore"):
            scale = term if op.kind == "mul" else 1 / term
            scaled, bias = weights * scale.reshape(channels, *(1,) * trailing_axes), bias * scale
        if not (np.isfinite(scaled).all() and np.isfinite(bias).all()):
            return  # with an infinite weight, a sum may be NaN where the scaled result is not
        weight = edit.constant(f"{name}.weight", np.ascontiguousarray(scaled))
    else:
        bias = bias + term if op.kind == "add" else bias - term
    inputs = (source.inputs[0], weight, edit.constant(f"{name}.bias", bias))
    edit.fuse(source, op, source.with_(inputs=inputs, outputs=op.outputs))


def _is_per_channel(factor: TensorType, output: TensorType, axis: int) -> bool:
    """Returns whether a constant has one number for all channels or one for each channel. If the result has one element
    per channel, a constant of its shape counts too."""
    kind = operand_class(factor, output, axis)
    return kind in ("channel", "scalar") or (kind == "full" and output.size == output.shape[axis % output.rank])


def absorb_pads(graph: Graph, context: Context) -> Graph:
    """Rewrites conv(pad(x)) to a conv with larger pads, if the pad is on the spatial axes only and its value is the
    convolution's padding (0 or the zero point)."""
    edit = Editor(graph)
    for op in graph.ops:
        match = _PAD.match(edit, op.inputs[0]) if op.kind in ("conv2d", "conv2d_integer") else None
        pads = _spatial_pads(match.op(_PAD), op.attrs.get("x_zero", 0)) if match is not None else None
        if match is not None and pads is not None:
            total = tuple(a + b for a, b in zip(op.attrs.pads, pads, strict=True))
            edit.replace(op, op.with_(inputs=(match[_X], *op.inputs[1:]), attrs=Attrs(op.attrs, pads=total)))
    return edit.finish()


def _spatial_pads(pad: Op, value: float) -> tuple[int, int, int, int] | None:
    """Returns (top, left, bottom, right) of a pad [N, C, H, W] with this value; None if they are not constants, or N or
    C is padded."""
    before, after = pad.attrs.before, pad.attrs.after
    if pad.attrs.mode != "constant" or pad.attrs.value != value or len(before) != 4 \
            or not all(isinstance(amount, int) and amount >= 0 for amount in (*before, *after)):
        return None
    if before[:2] != (0, 0) or after[:2] != (0, 0):
        return None
    return before[2], before[3], after[2], after[3]
