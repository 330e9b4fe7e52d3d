# SPDX-License-Identifier: Apache-2.0
"""Checks nodes of an ONNX file against the operator schemas, and names nodes for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ...errors import MegccError, ShapeError, quoted
from .load import OLDEST_OPSET, reads, subgraphs


def declared_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Returns the shape that the file declares for a value; None unless every extent is a number."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


#: Operators whose result has the shape of their first operand. Operators with broadcasting are not among them.
_SHAPE_PRESERVING = frozenset(("Abs", "Cast", "CastLike", "Exp", "Identity", "Log", "Neg", "Relu", "Sqrt"))


def propagate_shapes(nodes: Sequence[onnx.NodeProto],
                     declared: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Returns the declared shapes, and the shapes of operands that follow from them through operators that preserve the
    shape. nodes: in topological order."""
    shapes = dict(declared)
    for node in reversed(nodes):
        preserves_shape = node.op_type in _SHAPE_PRESERVING and node.domain in ("", "ai.onnx")
        if preserves_shape and node.input and node.output and node.output[0] in shapes:
            shapes.setdefault(node.input[0], shapes[node.output[0]])
    return shapes


def label(node: onnx.NodeProto) -> str:
    """Returns the operator and the name of a node for messages, such as "Conv 'stem'"."""
    name = node.name or next(filter(None, node.output), "")
    domain = f"{node.domain}::" if node.domain not in ("", "ai.onnx") else ""
    operator = quoted(domain + node.op_type)[1:-1]  # made harmless as names in messages are, without the quotes
    return f"{operator} {quoted(name)}"


def find_cycle(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Returns the nodes of one cycle in its order; the last is the first again. Each of the given nodes depends on
    another one of them."""
    producer = {name: node for node in nodes for name in node.output}
    path: list[onnx.NodeProto] = []
    node = nodes[0]
    while not any(node is seen for seen in path):
        path.append(node)
        node = next(producer[name] for name in reads(node) if name in producer)
    # The path leads from each node to one that it depends on, so the cycle is its end in reverse.
    start = next(index for index, seen in enumerate(path) if seen is node)
    cycle = path[start:][::-1]
    return [*cycle, cycle[0]]


#: Operators that ONNX Runtime accepts in ONNX's domain, also in models of operator sets that do not define them -> the
#: first operator set that defines them, None if there is none (ops/contrib/early.py).
_ONNXRUNTIME_OPERATORS = {
    "LayerNormalization": 17, "SimplifiedLayerNormalization": None,
    **dict.fromkeys(("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"))}


def has_schema(proto: onnx.NodeProto, domain: str, opset: int) -> bool:
    """Whether ONNX has a schema of the operator. There is none for ONNX Runtime's own operators: their missing or
    mistyped attributes are reported where importers read them."""
    return onnx.defs.has(proto.op_type, opset, domain)


def check_schema(proto: onnx.NodeProto, domain: str, opset: int) -> None:
    """Checks the number of operands, and the names and types of attributes, against ONNX's schema of the operator. The
    operator must have no subgraphs; `control` reads those that have some.

    Raises:
        ShapeError: if the node contradicts the schema.
        MegccError: if the operator set does not have the operator, or has an old version that differs from that of
            `OLDEST_OPSET`.
    """
    if next(subgraphs(proto), None) is not None:
        raise ShapeError("is ill-formed: a graph is among its attributes")
    if not domain and proto.op_type in _ONNXRUNTIME_OPERATORS:
        first = _ONNXRUNTIME_OPERATORS[proto.op_type]
        if first is None:
            return
        opset = max(opset, first)
    if not domain and opset < OLDEST_OPSET:
        try:
            version, supported_version = (onnx.defs.get_schema(proto.op_type, number).since_version
                                          for number in (opset, OLDEST_OPSET))
        except onnx.defs.SchemaError:
            raise MegccError(f"is no operator of operator set {opset}, which the model states; export it again") \
                from None
        if version != supported_version:
            raise MegccError(f"is that of operator set {version}, which is not supported; convert the model with "
                             "onnx.version_converter.convert_version")
    _refuse_absent_variadic(proto, domain, opset)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {domain: opset}
    try:
        onnx.checker.check_node(proto, context)
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().splitlines()[0]
        raise ShapeError(f"is ill-formed: {reason}") from None


def _refuse_absent_variadic(proto: onnx.NodeProto, domain: str, opset: int) -> None:
    """Refuses an absent value (an empty name) among variadic operands. ONNX's own checker accepts it."""
    if "" not in proto.input or not has_schema(proto, domain, opset):
        return
    formal = onnx.defs.get_schema(proto.op_type, opset, domain).inputs
    if formal and formal[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic \
            and "" in list(proto.input)[len(formal) - 1:]:
        raise ShapeError(f"is ill-formed: one of its operands {formal[-1].name} is absent")
