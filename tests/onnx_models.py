# SPDX-License-Identifier: Apache-2.0
"""Constructs ONNX models for tests: `model([node("Add", "x w", "y")], {"x": ["n", 4]}, ["y"], {"w": ones})`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx

#: A shape: extents, which are numbers, names of symbols, or None for an unknown extent. None for an unknown shape.
Shape = Sequence[int | str | None] | None
#: Inputs or outputs: name -> a shape of float32, or (element type, such as "int64" or TensorProto.INT64, shape). Or a
#: sequence of names, which have no shape then, and of ValueInfoProto.
Values = Mapping[str, Shape | tuple[str | int, Shape]] | Iterable[str | onnx.ValueInfoProto]


def node(kind: str, inputs: str, outputs: str, name: str = "", **attributes) -> onnx.NodeProto:
    """Returns a node. inputs, outputs: names of values, separated by a space. Two spaces enclose an absent operand."""
    return helper.make_node(kind, inputs.split(" ") if inputs else [], outputs.split(), name or outputs.split()[0],
                            **attributes)


def value(name: str, shape: Shape = None, dtype: str | int = "float32") -> onnx.ValueInfoProto:
    """Returns a tensor as an input or output of a graph."""
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if isinstance(dtype, str) else dtype
    return helper.make_tensor_value_info(name, element_type, shape)


def values(described: Values) -> list[onnx.ValueInfoProto]:
    """Returns inputs or outputs of a graph."""
    if not isinstance(described, Mapping):
        return [item if isinstance(item, onnx.ValueInfoProto) else value(item) for item in described]
    result = []
    for name, type_ in described.items():
        has_dtype = isinstance(type_, tuple) and len(type_) == 2 and not isinstance(type_[1], (int, str))
        dtype, shape = type_ if has_dtype else ("float32", type_)
        result.append(value(name, shape, dtype))
    return result


def fed(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, list[int]]]:
    """Returns the types of inputs that take these arrays, as (dtype, shape) by name."""
    return {name: (array.dtype.name, list(array.shape)) for name, array in arrays.items()}


def graph_proto(nodes: Iterable[onnx.NodeProto], inputs: Values, outputs: Values,
                constants: Mapping[str, Any] | None = None, name: str = "net") -> onnx.GraphProto:
    """Returns a graph. constants: initializers by name, as arrays or as numbers and lists."""
    tensors = [numpy_helper.from_array(np.asarray(array), key) for key, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, values(inputs), values(outputs), tensors)


def model(nodes: Iterable[onnx.NodeProto], inputs: Values, outputs: Values,
          constants: Mapping[str, Any] | None = None, opset: int = 17, name: str = "net",
          functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
    """Returns a model. Domains of its nodes and functions other than ONNX's have version 1."""
    graph = graph_proto(nodes, inputs, outputs, constants, name)
    domains = sorted({item.domain for item in (*graph.node, *functions)} - {""})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)


def saved(proto: onnx.ModelProto, path: str | Path) -> str:
    """Writes a model, and returns its path."""
    onnx.save(proto, path)
    return str(path)


def refusal(source: str | Path | bytes | onnx.ModelProto) -> ModelError:
    """Returns the error that the import of a model raises."""
    with pytest.raises(ModelError) as caught:
        import_onnx(source)
    return caught.value
