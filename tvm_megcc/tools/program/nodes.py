# SPDX-License-Identifier: Apache-2.0
"""Models of ONNX that steps are made of: nodes one after the other, numbers where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

#: The operator set of ONNX that the nodes are of.
OPSET = 18
#: Element types (onnx.TensorProto.DataType), for the attribute `to` of Cast.
FLOAT, INT64 = 1, 7


class Nodes:
    """A graph under construction."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> None:
        self._inputs.append(_value(name, shape, dtype))

    def output(self, name: str, shape: Sequence[int], dtype: str = "float32") -> None:
        self._outputs.append(_value(name, shape, dtype))

    def add(self, operator: str, inputs: Sequence[Any], output: str = "", **attributes: Any) -> str:
        """Adds a node of one output, and returns the output's name.

        inputs: names of values, or numbers and lists of numbers, which become constants: int64 for integers, else
        float32. Arrays keep their dtype.
        """
        return self.several(operator, inputs, [output or f"{operator.lower()}_{len(self._nodes)}"], **attributes)[0]

    def several(self, operator: str, inputs: Sequence[Any], outputs: list[str], **attributes: Any) -> list[str]:
        """Adds a node of several outputs."""
        from onnx import helper

        names = [operand if isinstance(operand, str) else self._constant(operand) for operand in inputs]
        self._nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def _constant(self, value: Any) -> str:
        from onnx import numpy_helper

        array = value if isinstance(value, np.ndarray) else np.array(value)
        if array is not value:
            array = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        self._constants.append(numpy_helper.from_array(array, f"constant_{len(self._constants)}"))
        return self._constants[-1].name

    def model(self, name: str) -> onnx.ModelProto:
        from onnx import helper

        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)
        domains = sorted({node.domain for node in self._nodes if node.domain})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _value(name: str, shape: Sequence[int], dtype: str) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
