# SPDX-License-Identifier: Apache-2.0
"""What recurrent layers have in common: bounds, and operands that are states. Of numbers with a zero point states are
kept less that, because they begin with zeros."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from . import fixed
from .node import Node


def limit_of(node: Node, option: str) -> float:
    """What cells or projections are bounded by; 0 for nothing.

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


def begun(node: Node, index: int, shape: tuple[Dim, ...], zero: int = 0) -> str:
    """Operand `index` before the run, of another shape; "" where nobody asks for that state."""
    if not asked_for(node, index):
        return ""
    name = node.states.of(node.operator.inputs[index], zero)
    value = node.emit("reshape", name, shape=shape)
    return moved(node, value, zero)


def end(node: Node, index: int, value: str, zero: int = 0) -> None:
    """The value becomes that operand, if somebody asks for it."""
    if asked_for(node, index):
        name = node.states.of(node.operator.inputs[index], zero)
        shaped = node.emit("reshape", moved(node, value, -zero), shape=node.type_of(name).shape)
        node.states.keep(name, node.made(shaped))


def moved(node: Node, value: str, by: int) -> str:
    """int8 and a number, modulo 2^8."""
    if not by:
        return value
    codes = ((fixed.codes("int8") + by + 128) % 256 - 128).astype(np.int8)
    return node.emit("lookup", value, node.spelled().constant(codes))
