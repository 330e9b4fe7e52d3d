# SPDX-License-Identifier: Apache-2.0
"""Emits ONNX operators from importers of other operators, as in `onnx_operator(node, "Softmax", x, axis=-1)`; and
checks that importers share."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from ..errors import MegccError
from .base import DECOMPOSITIONS, OPERATORS, OnnxNode

#: The version of ONNX's operator set whose operators are emitted by default.
OPSET = 22


def onnx_operators(node: OnnxNode, kind: str, *inputs: str, outputs: int = 1, opset: int = OPSET,
                   **attributes: Any) -> tuple[str, ...]:
    """Imports ONNX operator `kind` with these operands and attributes, as if the model had such a node. Returns its
    results.

    Args:
        node: the node that is being imported; the emitted operators get its name as their origin.
        inputs: values, "" for an absent operand.
        outputs: the number of results.
        opset: the version of ONNX's operator set.

    Raises:
        MegccError: if the operator is not supported.
    """
    onnx_node = copy(node)
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    # The model declares neither attributes nor shapes for this node.
    vars(onnx_node).update(op_type=kind, inputs=inputs, opset=opset, num_outputs=outputs,
                           attr=lambda name, default=None: attributes.get(name, default),
                           declared_shape=lambda output=0: None)
    if kind in DECOMPOSITIONS:
        return tuple(DECOMPOSITIONS[kind](onnx_node))
    for declaration in OPERATORS.values():
        if kind in declaration.onnx:
            return tuple(declaration.from_onnx(onnx_node))
    raise MegccError(f"there is no kernel for {kind} yet")


def onnx_operator(node: OnnxNode, kind: str, *inputs: str, opset: int = OPSET, **attributes: Any) -> str:
    """Emits an ONNX operator and returns its first result."""
    return onnx_operators(node, kind, *inputs, opset=opset, **attributes)[0]


def given(node: OnnxNode, index: int) -> str:
    """Returns the value of operand `index`, "" if it is absent."""
    return node.inputs[index] if node.has(index) else ""


def number(node: OnnxNode, value: float, dtype: str) -> str:
    """Adds a constant of shape [] and returns its value."""
    return node.constant(np.array(value, np.dtype(dtype)))


def no_attributes(node: OnnxNode, *names: str) -> None:
    """Raises MegccError if one of these attributes, which are not supported, is set."""
    for name in names:
        if node.attr(name, 0):
            raise MegccError(f"attribute {name} = {node.attr(name)} is not supported")


def no_operands(node: OnnxNode, *indices: int, what: str) -> None:
    """Raises MegccError if the node has one of these operands, which are not supported."""
    for index in indices:
        if node.has(index):
            raise MegccError(f"operand {index} ({what}) is not supported")
