# SPDX-License-Identifier: Apache-2.0
"""The common parts of recurrent layers: bounds, and operands that are states."""

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
    """Whether somebody wants the state that operand `index` is kept from run to run."""
    return index < len(node.operator.inputs) and node.states.is_asked_for(node.operator.inputs[index])


def begun(node: Node, index: int, shape: tuple[Dim, ...]) -> str:
    """Operand `index` before the run, of another shape; "" where nobody asks for that state."""
    if not asked_for(node, index):
        return ""
    return node.emit("reshape", node.states.of(node.operator.inputs[index]), shape=shape)


def end(node: Node, index: int, value: str) -> None:
    """The value becomes that operand, if somebody asks for it."""
    if asked_for(node, index):
        name = node.states.of(node.operator.inputs[index])
        node.states.keep(name, node.made(node.emit("reshape", value, shape=node.type_of(name).shape)))
