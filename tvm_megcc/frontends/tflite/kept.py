# SPDX-License-Identifier: Apache-2.0
"""The common parts of recurrent layers: bounds, and operands that are states.

A state is an operand that the layer also writes: TFLite's variable tensors. It is an input and an output of the network
where somebody asks for it; else it begins with zero in each run.
"""

from __future__ import annotations

from ...errors import ShapeError
from ...ir.dims import Dim
from .node import Node


def limit_of(node: Node, option: str) -> float:
    """Returns the bound of cells or projections; 0 for nothing.

    Raises:
        ShapeError: for a number that bounds nothing.
    """
    limit = float(node.option(option, 0.0))
    if not 0 <= limit < float("inf"):
        raise ShapeError(f"its option {option} is {limit}")
    return limit


def asked_for(node: Node, index: int) -> bool:
    """Whether operand `index` is a state that is kept from run to run."""
    return index < len(node.operator.inputs) and node.states.is_asked_for(node.operator.inputs[index])


def state_before(node: Node, index: int, shape: tuple[Dim, ...]) -> str:
    """Returns the state that is operand `index`, as it is before the run, reshaped; "" where it is not kept."""
    if not asked_for(node, index):
        return ""
    return node.emit("reshape", node.states.of(node.operator.inputs[index]), shape=shape)


def keep_state(node: Node, index: int, value: str) -> None:
    """Makes a value, reshaped, the state that operand `index` is in the next run; nothing where it is not kept."""
    if asked_for(node, index):
        name = node.states.of(node.operator.inputs[index])
        node.states.keep(name, node.made(node.emit("reshape", value, shape=node.type_of(name).shape)))
