# SPDX-License-Identifier: Apache-2.0
"""Represents operators of other frameworks as ONNX nodes, so that one importer serves all front ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ... import ops  # noqa: F401  (registers the operators)
from ...errors import MegccError
from ...ops.base import DECOMPOSITIONS, OPERATORS, OnnxNode
from .builder import Builder, Node

#: The ONNX operator set that these nodes belong to.
OPSET = 22


class SyntheticNode(Node):
    """An operator of another framework as an ONNX node, which `Operator.from_onnx` reads.

    name: the operator in the source model, for messages.
    inputs: values of the builder.
    attrs: attributes by their ONNX names.
    """

    def __init__(self, builder: Builder, op_type: str, name: str, inputs: Sequence[str], attrs: Mapping,
                 num_outputs: int = 1):
        self.op_type, self.name, self.opset = op_type, name, OPSET
        self.inputs, self.num_outputs, self.outputs = tuple(inputs), num_outputs, (name,)
        self._builder, self._attrs, self._declared = builder, dict(attrs), ()

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(self._attrs)

    def attr(self, name: str, default=None):
        return self._attrs.get(name, default)


def onnx_importer(op_type: str) -> Callable[[OnnxNode], tuple[str, ...]]:
    """Returns the importer of an ONNX operator.

    Raises:
        MegccError: if there is none.
    """
    if op_type in DECOMPOSITIONS:
        return DECOMPOSITIONS[op_type]
    for declaration in OPERATORS.values():
        if op_type in declaration.onnx:
            return declaration.from_onnx
    raise MegccError(f"there is no kernel for {op_type} yet")
