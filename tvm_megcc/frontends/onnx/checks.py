# SPDX-License-Identifier: Apache-2.0
"""Checks nodes of an ONNX file against the operator schemas, and names nodes for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ...errors import MegccError, ShapeError, quoted
from .load import OLDEST_OPSET, reads, subgraphs


def stated_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Returns the shape that the file declares for a value; None unless every extent is a number."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


#: Operators whose result has the shape of their first operand.
_ALIKE = frozenset(("Abs", "Cast", "CastLike", "Exp", "Identity", "Log", "Neg", "Relu", "Sqrt"))


def followed(nodes: Sequence[onnx.NodeProto], stated: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Returns the declared shapes, and the shapes that follow from them through operators that keep the shape."""
    found = dict(stated)
    for node in reversed(nodes):
        alike = node.op_type in _ALIKE and node.domain in ("", "ai.onnx") and node.input and node.output
        if alike and node.output[0] in found:
            found.setdefault(node.input[0], found[node.output[0]])
    return found


def label(node: onnx.NodeProto) -> str:
    name = node.name or next(filter(None, node.output), "")
    domain = f"{node.domain}::" if node.domain not in ("", "ai.onnx") else ""
    return f"{quoted(domain + node.op_type)[1:-1]} {quoted(name)}"


def cycle(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Returns the nodes of one cycle in its order. Each of the given nodes depends on another one of them."""
    producer = {name: node for node in nodes for name in node.output}
    path: list[onnx.NodeProto] = []
    node = nodes[0]
    while not any(node is seen for seen in path):
        path.append(node)
        node = next(producer[name] for name in reads(node) if name in producer)
    start = next(index for index, seen in enumerate(path) if seen is node)
    return [*path[start:][::-1], path[-1]] if len(path[start:]) > 1 else [node, node]


#: Operators that ONNX Runtime has in ONNX's domain, also in models of operator sets without them -> the first
#: operator set that defines them, None if there is none (ops/contrib/early.py).
_RUNTIME = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None,
            **dict.fromkeys(("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"))}


def is_defined(proto: onnx.NodeProto, domain: str, opset: int) -> bool:
    """Whether ONNX defines the operator, so that `check_schema` can check it. For other operators, such as ONNX
    Runtime's own, missing or mistyped attributes are reported where they are used."""
    return onnx.defs.has(proto.op_type, opset, domain)


def check_schema(proto: onnx.NodeProto, domain: str, opset: int) -> None:
    """Checks the number of operands, and the names and types of attributes, against ONNX's schema of the operator."""
    if any(True for _ in subgraphs(proto)):
        raise ShapeError("is ill-formed: a graph is among its attributes")
    if not domain and proto.op_type in _RUNTIME:
        first = _RUNTIME[proto.op_type]
        if first is None:
            return
        opset = max(opset, first)
    if not domain and opset < OLDEST_OPSET:
        try:
            since, then = (onnx.defs.get_schema(proto.op_type, version).since_version
                           for version in (opset, OLDEST_OPSET))
        except onnx.defs.SchemaError:
            raise MegccError(f"is no operator of operator set {opset}, which the model states; export it again") \
                from None
        if since != then:
            raise MegccError(f"is that of operator set {since}, which is not supported; convert the model with "
                             "onnx.version_converter.convert_version")
    _require_variadic(proto, domain, opset)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {domain: opset}
    try:
        onnx.checker.check_node(proto, context)
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().splitlines()[0]
        raise ShapeError(f"is ill-formed: {reason}") from None


def _require_variadic(proto: onnx.NodeProto, domain: str, opset: int) -> None:
    """Refuses an absent value (an empty name) among variadic operands or results. ONNX's own checker accepts it."""
    if "" not in proto.input or not is_defined(proto, domain, opset):
        return
    formal = onnx.defs.get_schema(proto.op_type, opset, domain).inputs
    if formal and formal[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic \
            and "" in list(proto.input)[len(formal) - 1:]:
        raise ShapeError(f"is ill-formed: one of its operands {formal[-1].name} is absent")
