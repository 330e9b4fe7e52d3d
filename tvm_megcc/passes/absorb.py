# SPDX-License-Identifier: Apache-2.0
"""Per-channel scales, offsets and zero pads become part of the convolution or product beside them."""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..ir.graph import Graph, Op, prune, unused
from ..ir.types import TensorType
from ..kernels.support import operand_class
from ..ops.base import operator

#: Axis of the weights that is the output channel, from their last, for operators with operands (x, w, b?).
_OUTPUT_CHANNEL = {"conv2d": lambda op: -4, "matmul": lambda op: -2 if op.attrs.trans_b else -1}


class Editor:
    """A graph under change: operators by position, types and constants by name."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.ops: list[Op | None] = list(graph.ops)
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)

    def add_constant(self, base: str, array: np.ndarray) -> str:
        name = unused(base, self.types)
        self.constants[name] = array
        self.types[name] = TensorType(str(array.dtype), array.shape)
        return name

    def finish(self) -> Graph:
        return prune(self.graph.with_(ops=tuple(op for op in self.ops if op is not None), types=self.types,
                                      constants=self.constants))


def absorb_scales(graph: Graph, context: Context) -> Graph:
    """conv(x, w, b) * s + t  →  conv(x, w * s, b * s + t) for constant per-channel s and t (a folded batch norm), and
    likewise for products by a constant matrix."""
    edit = Editor(graph)
    uses = {name: len(ops) for name, ops in graph.consumers().items()}
    producer: dict[str, int] = {}
    for position, op in enumerate(graph.ops):
        folded = _absorb_into_producer(edit, producer, uses, op)
        if folded is None:
            producer.update((name, position) for name in op.outputs)
        else:
            edit.ops[position] = None
            producer[op.outputs[0]] = folded
    return edit.finish()


def _absorb_into_producer(edit: Editor, producer: dict[str, int], uses: dict[str, int], op: Op) -> int | None:
    """Position of the convolution that took over the operator, None if none did."""
    if op.kind not in ("mul", "add", "sub", "div") or len(op.inputs) != 2:
        return None
    value, factor = op.inputs
    if op.kind in ("mul", "add") and value in edit.constants:
        value, factor = factor, value
    if factor not in edit.constants or uses.get(value) != 1 or value in edit.graph.outputs:
        return None
    source = edit.ops[producer[value]] if value in producer else None
    if source is None or source.kind not in _OUTPUT_CHANNEL or source.epilogue is not None:
        return None
    axis = operator(source.kind).channel_axis
    output = edit.types[value]
    if operand_class(edit.types[factor], output, axis) not in ("channel", "scalar"):
        return None
    if edit.types[op.outputs[0]].shape != output.shape or source.inputs[1] not in edit.constants:
        return None
    weights = edit.constants[source.inputs[1]]
    shared = uses.get(source.inputs[1], 1) > 1 and op.kind in ("mul", "div")
    has_bias = len(source.inputs) > 2 and source.inputs[2]
    if shared or weights.dtype.kind != "f" or (has_bias and source.inputs[2] not in edit.constants):
        return None
    axis = _OUTPUT_CHANNEL[source.kind](source)
    channels = weights.shape[axis]
    term = np.broadcast_to(edit.constants[factor].reshape(-1), (channels,)).astype(weights.dtype)
    bias = edit.constants[source.inputs[2]] if has_bias else np.zeros(channels, weights.dtype)
    name, weight = op.outputs[0], source.inputs[1]
    if op.kind in ("mul", "div"):
        scale = term if op.kind == "mul" else 1 / term
        scaled = weights * scale.reshape(channels, *(1,) * (-1 - axis))
        weight, bias = edit.add_constant(f"{name}.weight", np.ascontiguousarray(scaled)), bias * scale
    else:
        bias = bias + term if op.kind == "add" else bias - term
    inputs = (source.inputs[0], weight, edit.add_constant(f"{name}.bias", bias))
    position = producer[value]
    edit.ops[position] = source.with_(inputs=inputs, outputs=op.outputs)
    return position


def absorb_pads(graph: Graph, context: Context) -> Graph:
    """conv(pad(x, zeros)) → conv with larger pads, where only the two spatial axes are padded."""
    edit = Editor(graph)
    uses = {name: len(ops) for name, ops in graph.consumers().items()}
    producers = graph.producers()
    for position, op in enumerate(graph.ops):
        pad = producers.get(op.inputs[0]) if op.kind == "conv2d" else None
        if pad is None or pad.kind != "pad" or uses[pad.outputs[0]] != 1 or pad.outputs[0] in graph.outputs:
            continue
        pads = _spatial_zero_pads(pad, edit.constants)
        if pads is None:
            continue
        total = tuple(a + b for a, b in zip(op.attrs.pads, pads, strict=True))
        edit.ops[position] = op.with_(inputs=(pad.inputs[0], *op.inputs[1:]),
                                      attrs=type(op.attrs)({**op.attrs, "pads": total}))
    return edit.finish()


def _spatial_zero_pads(pad: Op, constants) -> tuple[int, int, int, int] | None:
    """(top, left, bottom, right) of a constant zero pad of rank 4; None if it is anything else."""
    before, after = pad.attrs.before, pad.attrs.after
    if pad.attrs.mode != "constant" or pad.attrs.value != 0 or len(before) != 4 or min(before + after) < 0:
        return None
    if before[:2] != (0, 0) or after[:2] != (0, 0):
        return None
    return before[2], before[3], after[2], after[3]
