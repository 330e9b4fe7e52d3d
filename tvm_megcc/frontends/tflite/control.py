# SPDX-License-Identifier: Apache-2.0
"""Imports IF, WHILE and STABLEHLO_COMPOSITE, which run other subgraphs of the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ShapeError, quoted
from ...ir.types import TensorType
from ..onnx.loops import ENDLESS, add_loop_input
from ..onnx.synthetic_node import SyntheticNode
from .file import Operator
from .node import Unsupported
from .value import Value, plain

if TYPE_CHECKING:
    from .importer import _Importer


def chosen(importer: _Importer, operator: Operator, name: str) -> Sequence[Value | None]:
    """Returns the results of an IF. A constant condition imports one branch; otherwise the run chooses."""
    builder = importer.builder
    (condition, *operands), graphs = importer.real_operands(operator), importer.graphs(operator, "Then", "Else")
    if condition is None or None in operands:
        return [None] * len(operator.outputs)
    _require_condition(condition)
    label = f"IF {quoted(name)}"
    if condition.is_constant:
        yes = bool(builder.constants[condition.name].reshape(-1)[0])
        return importer.inline(graphs[0 if yes else 1], operands, label) or [None] * len(operator.outputs)
    onnx_node = SyntheticNode(builder, "", name, (), {}, len(operator.outputs))
    (decides,) = onnx_node.emit("reshape", (condition.in_order(plain(len(condition.order)), name),), shape=())
    bodies, reads, types = [], [], []
    for graph in graphs:
        first = len(builder.ops)
        values = importer.inline(graph, operands, label)
        if values is None:
            return [None] * len(operator.outputs)
        results = [value.in_order(plain(len(value.order)), name) for value in values]
        types.append(tuple(builder.types[result] for result in results))
        body, captured = builder.body(first, (), results)
        bodies.append(body)
        reads.append(captured)
    if types[0] != types[1] or not all(type_.is_static for type_ in types[0]):
        raise Unsupported("its graphs give " + " and ".join(", ".join(map(str, results)) for results in types))
    outputs = onnx_node.emit("branch", (decides, *reads[0], *reads[1]), yes=bodies[0], no=bodies[1],
                             reads=len(reads[0]), types=types[0])
    return [Value(builder, value) for value in outputs]


def looped(importer: _Importer, operator: Operator, name: str) -> Sequence[Value | None]:
    """Returns the results of a WHILE. A list whose elements are all one number, such as an empty one, gets the shape of
    the items that the body writes to it: files state it for the batch that they were converted with."""
    builder, first, operands = importer.builder, importer.first, importer.real_operands(operator)
    if None in operands:
        return [None] * len(operator.outputs)
    while True:
        mark, inlined = builder.checkpoint(), first.inlined
        found = len(importer.findings), len(importer.unsupported)
        first.items.clear()
        # New `Value` objects, since transposed forms that are dropped must not be found again.
        given = [Value(builder, operand.name, operand.order) for operand in operands]
        lists: dict[str, int] = {}
        results = _carried(importer, operator, name, given, lists)
        wider = {lists[body_list]: shape for body_list, shape in first.items.items()
                 if body_list in lists and _is_one_number(operands[lists[body_list]])}
        if not wider:
            return results
        builder.restore(mark)
        first.inlined = inlined
        del importer.findings[found[0]:], importer.unsupported[found[1]:]
        for index, shape in wider.items():
            array = builder.constants[operands[index].name]
            onnx_node = SyntheticNode(builder, "", name, (), {}, 1)
            one = onnx_node.constant(array.reshape(-1)[:1].reshape((1,) * array.ndim))
            operands[index] = Value(builder, onnx_node.emit("expand", (one,), shape=(array.shape[0], *shape))[0])


def _is_one_number(value: Value) -> bool:
    """Whether a value is a constant whose elements are all the same."""
    array = value.builder.constants.get(value.name)
    return array is not None and array.ndim > 0 and array.size > 0 and bool((array == array.flat[0]).all())


def _carried(importer: _Importer, operator: Operator, name: str, operands: list[Value], lists: dict[str, int]) \
        -> Sequence[Value | None]:
    """Returns the results of a WHILE: the values that its body carries while its condition is true. Values that the
    body returns unchanged are captured, not carried. lists: receives the carried values inside -> their operands."""
    builder = importer.builder
    condition, body = importer.graphs(operator, "Cond", "Body")
    unknown: list[Value | None] = [None] * len(operator.outputs)
    for graph, wanted in ((condition, 1), (body, len(operator.inputs))):
        if len(graph.outputs) != wanted or len(operator.outputs) != len(operator.inputs):
            raise ShapeError(f"takes {wanted} values from a graph of {len(graph.outputs)} outputs")
    onnx_node = SyntheticNode(builder, "", name, (), {}, len(operator.outputs))

    def holds(values: Sequence[Value]) -> str | None:
        found = importer.inline(condition, values, f"WHILE {quoted(name)}")
        if found is None:
            return None
        _require_condition(found[0])
        return onnx_node.emit("reshape", (found[0].in_order(plain(len(found[0].order)), name),), shape=())[0]

    moving = [index for index, given in enumerate(body.inputs) if body.outputs[index] != given]
    starts = [operands[index].in_order(plain(len(operands[index].order)), name) for index in moving]
    types = [builder.types[start] for start in starts]
    going, first = holds(operands), len(builder.ops)
    turn, again, *carried_values = (add_loop_input(builder, f"{name}.turn", type_) for type_ in
                            (TensorType("int64", ()), TensorType("bool", ()), *types))
    values = list(operands)
    for index, given in zip(moving, carried_values, strict=True):
        values[index] = Value(builder, given)
        lists[given] = index
    with builder.seeds.in_loop(turn):
        outputs = importer.inline(body, values, f"WHILE {quoted(name)}")
        goes = None if outputs is None else holds(outputs)
    if going is None or outputs is None or goes is None:
        return unknown
    results = [outputs[index].in_order(plain(len(outputs[index].order)), name) for index in moving]
    for start, result in zip(types, (builder.types[result] for result in results), strict=True):
        if start != result:
            raise Unsupported(f"a value of it is {start} at first and then {result}")
    turns, captured = builder.body(first, (turn, again, *carried_values), [goes, *results])
    most = onnx_node.constant(np.array(ENDLESS))
    _, _, *last = onnx_node.emit("loop", (most, going, *starts, *captured), carried=len(starts), body=turns,
                                 counted=False, types=(TensorType("int64", ()), TensorType("bool", ()), *types))
    for index, result in zip(moving, last, strict=True):
        operands[index] = Value(builder, result)
    return operands


def composed(importer: _Importer, operator: Operator, name: str) -> Sequence[Value | None]:
    """Returns the results of a STABLEHLO_COMPOSITE, by importing its decomposition subgraph in place."""
    operands = importer.real_operands(operator)
    if None in operands:
        return [None] * len(operator.outputs)
    if "DecompositionSubgraphIndex" not in operator.options:
        raise ShapeError("names no graph that it consists of")
    values = importer.inline(*importer.graphs(operator, "Decomposition"), operands, f"{operator.kind} {quoted(name)}")
    if values is not None and len(values) != len(operator.outputs):
        raise ShapeError(f"has {len(operator.outputs)} results, and its graph gives {len(values)}")
    return values or [None] * len(operator.outputs)


def _require_condition(value: Value) -> None:
    if value.type.dtype != "bool" or value.type.size != 1:
        raise ShapeError(f"its condition is {value.type}")


#: Operators with subgraphs -> their importers.
CONTROL = {"IF": chosen, "WHILE": looped, "STABLEHLO_COMPOSITE": composed}
