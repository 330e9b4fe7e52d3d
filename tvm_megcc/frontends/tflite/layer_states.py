# SPDX-License-Identifier: Apache-2.0
"""Common parts of layers with states (LSTM, RNN, SVDF, circular buffers): clipping bounds, orders of axes, states.

A state is an operand that the layer also writes, a variable tensor of TFLite. If the user asks to keep it, it is an
input and an output of the network; otherwise it is zero at the beginning of each run.
"""

from __future__ import annotations

from ...errors import ShapeError
from ...ir.dims import Dim, number
from ...ops.tensor.move import emit_slice
from .node import Node
from .value import Order


def clipping_bound(node: Node, option: str) -> float:
    """Returns the clipping bound of the cell state or projection, from an option of the node; 0 for none.

    Raises:
        ShapeError: for a negative number, infinity or NaN.
    """
    limit = float(node.option(option, 0.0))
    if not 0 <= limit < float("inf"):
        raise ShapeError(f"its option {option} is {limit}")
    return limit


def time_first(node: Node) -> Order:
    """Returns the order of a sequence's axes that puts time first: [time, batch, elements]."""
    return (0, 1, 2) if node.option("TimeMajor", default=False) else (1, 0, 2)


def append_step(node: Node, steps: str, newest: str, axis: int) -> str:
    """Returns the steps along an axis without the first, the oldest, and with `newest` at the end."""
    count = number(node.type_of(steps).shape[axis])
    if count == 1:
        return newest
    return node.emit("concat", emit_slice(node.onnx_node(), steps, axis, 1, count), newest, axis=axis)


def is_kept(node: Node, index: int) -> bool:
    """Whether operand `index` is a state that is kept from run to run."""
    return index < len(node.operator.inputs) and node.states.is_kept(node.operator.inputs[index])


def initial_state(node: Node, index: int, shape: tuple[Dim, ...]) -> str:
    """Returns the state in operand `index` before the run, reshaped to `shape`; "" if it is not kept."""
    if not is_kept(node, index):
        return ""
    return node.emit("reshape", node.states.input_for(node.operator.inputs[index]), shape=shape)


def keep_state(node: Node, index: int, value: str) -> None:
    """Stores a value, reshaped, as the next state of operand `index`; does nothing if the state is not kept."""
    if is_kept(node, index):
        name = node.states.input_for(node.operator.inputs[index])
        node.states.keep(name, node.as_value(node.emit("reshape", value, shape=node.type_of(name).shape)))
