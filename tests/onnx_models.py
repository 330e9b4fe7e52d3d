# SPDX-License-Identifier: Apache-2.0
"""ONNX models for tests: `model([node("Add", "x w", "y")], {"x": ["n", 4]}, ["y"], {"w": ones})`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

#: Extents are numbers, names, or None for one that is not known; None in place of all: the shape is not known.
Shape = Sequence[int | str | None] | None
#: Names and what they are: float32 of a shape, or a pair of an element type ("int64", TensorProto.INT64) and a shape.
#: Names alone have no shape. Values that are made already stay as they are.
Values = Mapping[str, Shape | tuple[str | int, Shape]] | Iterable[str | onnx.ValueInfoProto]


def node(kind: str, inputs: str, outputs: str, name: str = "", **attributes) -> onnx.NodeProto:
    """Names of values are separated by a space; two are around an operand that is absent."""
    return helper.make_node(kind, inputs.split(" ") if inputs else [], outputs.split(), name or outputs.split()[0],
                            **attributes)


def value(name: str, shape: Shape = None, dtype: str | int = "float32") -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if isinstance(dtype, str) else dtype
    return helper.make_tensor_value_info(name, kind, shape)


def values(described: Values) -> list[onnx.ValueInfoProto]:
    if not isinstance(described, Mapping):
        return [each if isinstance(each, onnx.ValueInfoProto) else value(each) for each in described]
    pairs = {name: type_ if isinstance(type_, tuple) and len(type_) == 2 and not isinstance(type_[1], (int, str))
             else ("float32", type_) for name, type_ in described.items()}
    return [value(name, shape, dtype) for name, (dtype, shape) in pairs.items()]


def fed(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, list[int]]]:
    """Inputs that are given these arrays."""
    return {name: (array.dtype.name, list(array.shape)) for name, array in arrays.items()}


def graph_proto(nodes: Iterable[onnx.NodeProto], inputs: Values, outputs: Values,
                constants: Mapping[str, Any] | None = None, name: str = "net") -> onnx.GraphProto:
    """constants: arrays, or what numpy makes arrays of."""
    tensors = [numpy_helper.from_array(np.asarray(array), key) for key, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, values(inputs), values(outputs), tensors)


def model(nodes: Iterable[onnx.NodeProto], inputs: Values, outputs: Values,
          constants: Mapping[str, Any] | None = None, opset: int = 17, name: str = "net",
          functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
    """Domains besides ONNX's own, of nodes and functions, have version 1."""
    made = graph_proto(nodes, inputs, outputs, constants, name)
    domains = sorted({each.domain for each in (*made.node, *functions)} - {""})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(made, opset_imports=opsets, functions=list(functions), ir_version=8)


def saved(made: onnx.ModelProto, path: str | Path) -> str:
    """Writes the model; its path."""
    onnx.save(made, path)
    return str(path)
