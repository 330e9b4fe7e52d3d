# SPDX-License-Identifier: Apache-2.0
"""Expands functions: those that a model defines, and ONNX operators whose schema has a body of simpler operators."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from ...ir.types import TensorType
from .load import DTYPES, subgraphs

_ELEMENT_TYPES = {dtype: element_type for element_type, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Function:
    """A body that replaces a node.

    inputs, outputs: the names of the body's parameters and results. opsets: operator set of each domain in the body.
    attributes: the attributes of the node, with defaults filled in. name: the node's name, for messages.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    opsets: Mapping[str, int]
    attributes: Mapping[str, onnx.AttributeProto]
    name: str

    def resolve(self, node: onnx.NodeProto, values: Mapping[str, str | None]) -> onnx.NodeProto:
        """Returns a node of the body with references to the function's attributes replaced by their values. An operand
        that the caller left out is left out in the body too.

        values: the values of names in the body; "" for an operand that the caller left out.
        """
        result = onnx.NodeProto()
        result.CopyFrom(node)
        result.name = self.name
        self._resolve_references(result, {name for name, value in values.items() if value == ""})
        return result

    def _resolve_references(self, node: onnx.NodeProto, absent: Container[str]) -> None:
        """Changes a node and those in its subgraphs. absent: names of operands that the caller left out."""
        for graph in subgraphs(node):
            for child in graph.node:
                self._resolve_references(child, absent)
        node.input[:] = ["" if name in absent else name for name in node.input]
        attributes = []
        for attribute in node.attribute:
            source = self.attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if source is not None:
                attributes.append(onnx.AttributeProto())
                attributes[-1].CopyFrom(source)
                attributes[-1].name = attribute.name
        del node.attribute[:]
        node.attribute.extend(attributes)


def function_of(model: onnx.ModelProto, node: onnx.NodeProto, domain: str, opset: int,
                types: Sequence[TensorType | None] | None) -> Function | None:
    """Returns the function body of a node's operator: of the model's own functions, else of ONNX's schema. Returns None
    if there is none.

    domain, opset: of the operator. types: of the operands, which some bodies depend on; None if they are unknown.
    """
    name = node.name or next(filter(None, node.output), node.op_type)
    for local in model.functions:
        if (local.domain, local.name) == (node.domain, node.op_type):
            return _from_proto(local, node, name)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        version = _function_version(schema.function_opset_versions, opset)
        body = _function_proto(schema.get_function_with_opset_version(version))
    elif schema.has_context_dependent_function and types is not None:
        version = _function_version(schema.context_dependent_function_opset_versions, opset)
        body = _function_proto(schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [_type_bytes(type_) for type_ in types]))
    else:
        return None
    function = _from_proto(body, node, name, schema)
    return _with_int64(function, _INT64_OPERANDS[node.op_type]) if node.op_type in _INT64_OPERANDS else function


#: Operators whose schema allows an int32 operand although their body computes with int64 -> the operand's index.
_INT64_OPERANDS = {"CenterCropPad": 1}


def _with_int64(function: Function, index: int) -> Function:
    """Returns the body with a Cast of an operand to int64 before it."""
    operand = function.inputs[index]
    cast = onnx.helper.make_node("Cast", [operand], [f"{operand}_int64"], to=onnx.TensorProto.INT64)
    nodes = []
    for node in function.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [cast.output[0] if name == operand else name for name in node.input]
        nodes.append(copy)
    return replace(function, nodes=(cast, *nodes))


def has_function_body(node: onnx.NodeProto, domain: str, opset: int) -> bool:
    """Whether ONNX's schema of the operator has a function body."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def _function_version(versions: Sequence[int], opset: int) -> int:
    """Returns the version of a function body for an operator set: the newest that is not newer, else the oldest."""
    return max((version for version in versions if version <= opset), default=min(versions))


def _function_proto(data: bytes | onnx.FunctionProto) -> onnx.FunctionProto:
    if isinstance(data, onnx.FunctionProto):
        return data
    proto = onnx.FunctionProto()
    proto.ParseFromString(data)
    return proto


def _type_bytes(type_: TensorType | None) -> bytes:
    """Returns a type as a serialised TypeProto, which is empty for an absent operand."""
    if type_ is None:
        return onnx.TypeProto().SerializeToString()
    shape = [dim if isinstance(dim, int) else None for dim in type_.shape]
    return onnx.helper.make_tensor_type_proto(_ELEMENT_TYPES[type_.dtype], shape).SerializeToString()


def _from_proto(body: onnx.FunctionProto, node: onnx.NodeProto, name: str,
                schema: onnx.defs.OpSchema | None = None) -> Function:
    """Returns a function with the attributes of a node; those that it lacks get the defaults of the body and schema."""
    attributes = {attribute.name: attribute for attribute in body.attribute_proto}
    if schema is not None:
        attributes.update((key, value.default_value) for key, value in schema.attributes.items()
                          if value.default_value.name)
    attributes.update((attribute.name, attribute) for attribute in node.attribute)
    return Function(tuple(body.input), tuple(body.output), tuple(body.node),
                    {entry.domain or "ai.onnx": entry.version for entry in body.opset_import}, attributes, name)
