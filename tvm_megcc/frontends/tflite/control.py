# SPDX-License-Identifier: Apache-2.0
"""Imports IF, WHILE and STABLEHLO_COMPOSITE, which run other subgraphs of the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ShapeError, quoted
from ..onnx.loops import ENDLESS, LOOP_TYPES, add_branch_operator, add_loop_input, add_loop_operator
from ..onnx.synthetic_node import SyntheticNode
from .file import Operator
from .node import Unsupported
from .value import Value, plain

if TYPE_CHECKING:
    from .importer import _Importer


def import_if(importer: _Importer, operator: Operator, name: str) -> Sequence[Value | None]:
    """Returns the results of an IF. A constant condition imports one branch; otherwise the run chooses."""
    builder = importer.builder
    (condition, *operands), graphs = importer.real_operands(operator), importer.graphs(operator, "Then", "Else")
    unknown: list[Value | None] = [None] * len(operator.outputs)
    if condition is None or None in operands:
        return unknown
    _require_condition(condition)
    label = f"IF {quoted(name)}"
    if condition.is_constant:
        is_true = bool(builder.constants[condition.name].reshape(-1)[0])
        return importer.inline(graphs[0 if is_true else 1], operands, label) or unknown
    onnx_node = SyntheticNode(builder, op_type="", name=name, inputs=(), attrs={}, num_outputs=len(operator.outputs))
    scalar_condition = _scalar(onnx_node, condition)
    branches, types = [], []
    for graph in graphs:
        first = len(builder.ops)
        values = importer.inline(graph, operands, label)
        if values is None:
            return unknown
        results = [_in_file_order(value, name) for value in values]
        types.append(tuple(builder.types[result] for result in results))
        branches.append(builder.body(first, (), results))
    if types[0] != types[1] or not all(type_.is_static for type_ in types[0]):
        raise Unsupported("its graphs give " + " and ".join(", ".join(map(str, results)) for results in types))
    return [Value(builder, value) for value in add_branch_operator(onnx_node, scalar_condition, branches, types[0])]


def import_while(importer: _Importer, operator: Operator, name: str) -> Sequence[Value | None]:
    """Returns the results of a WHILE.

    A tensor list often begins as a constant, with items for the batch that the file was converted with. If the body
    writes items of another shape, `outermost.item_shapes` has it after the import. Where all elements of the constant
    are one number, its shape does not matter: the import is undone, the constant gets the shape of the items, and the
    loop is imported again.
    """
    builder, outermost, operands = importer.builder, importer.outermost, importer.real_operands(operator)
    if None in operands:
        return [None] * len(operator.outputs)
    while True:
        mark, inlined_operators = builder.checkpoint(), outermost.inlined_operators
        finding_count, unsupported_count = len(importer.findings), len(importer.unsupported)
        outermost.item_shapes.clear()
        # New `Value` objects, since transposed forms that are dropped must not be found again.
        starts = [Value(builder, operand.name, operand.order) for operand in operands]
        operand_of: dict[str, int] = {}
        results = _import_loop(importer, operator, name, starts, operand_of)
        new_shapes = {operand_of[body_list]: shape for body_list, shape in outermost.item_shapes.items()
                      if body_list in operand_of and _is_one_number(operands[operand_of[body_list]])}
        if not new_shapes:
            return results
        builder.restore(mark)
        outermost.inlined_operators = inlined_operators
        del importer.findings[finding_count:], importer.unsupported[unsupported_count:]
        for index, shape in new_shapes.items():
            array = builder.constants[operands[index].name]
            onnx_node = SyntheticNode(builder, op_type="", name=name, inputs=(), attrs={})
            one = onnx_node.constant(array.reshape(-1)[:1].reshape((1,) * array.ndim))
            operands[index] = Value(builder, onnx_node.emit("expand", (one,), shape=(array.shape[0], *shape))[0])


def _is_one_number(value: Value) -> bool:
    """Whether a value is a constant whose elements are all the same."""
    array = value.builder.constants.get(value.name)
    return array is not None and array.ndim > 0 and array.size > 0 and bool((array == array.flat[0]).all())


def _import_loop(importer: _Importer, operator: Operator, name: str, operands: list[Value],
                 operand_of: dict[str, int]) -> Sequence[Value | None]:
    """Returns the results of a WHILE: the values that its body carries while its condition is true. Values that the
    body returns unchanged are captured, not carried.

    Args:
        operands: the values before the first iteration; they become the results.
        operand_of: receives carried value inside the body -> index of its operand.
    """
    builder = importer.builder
    condition_graph, body_graph = importer.graphs(operator, "Cond", "Body")
    for graph, count in ((condition_graph, 1), (body_graph, len(operator.inputs))):
        if len(graph.outputs) != count or len(operator.outputs) != len(operator.inputs):
            raise ShapeError(f"requires {count} outputs of a subgraph that has {len(graph.outputs)}")
    onnx_node = SyntheticNode(builder, op_type="", name=name, inputs=(), attrs={}, num_outputs=len(operator.outputs))
    label = f"WHILE {quoted(name)}"

    def condition_of(values: Sequence[Value]) -> str | None:
        results = importer.inline(condition_graph, values, label)
        if results is None:
            return None
        _require_condition(results[0])
        return _scalar(onnx_node, results[0])

    carried = [index for index, given in enumerate(body_graph.inputs) if body_graph.outputs[index] != given]
    starts = [_in_file_order(operands[index], name) for index in carried]
    types = [builder.types[start] for start in starts]
    first_condition, first_op = condition_of(operands), len(builder.ops)
    iteration, condition, *body_inputs = (add_loop_input(builder, f"{name}.iteration", type_)
                                          for type_ in (*LOOP_TYPES, *types))
    values = list(operands)
    for index, body_input in zip(carried, body_inputs, strict=True):
        values[index] = Value(builder, body_input)
        operand_of[body_input] = index
    with builder.seeds.in_loop(iteration):
        outputs = importer.inline(body_graph, values, label)
        next_condition = None if outputs is None else condition_of(outputs)
    if first_condition is None or outputs is None or next_condition is None:
        return [None] * len(operator.outputs)
    results = [_in_file_order(outputs[index], name) for index in carried]
    for start, result in zip(types, (builder.types[result] for result in results), strict=True):
        if start != result:
            raise Unsupported(f"a value of it is {start} at first and then {result}")
    body, captured = builder.body(first_op, (iteration, condition, *body_inputs), [next_condition, *results])
    limit = onnx_node.constant(np.array(ENDLESS))
    _, _, *finals = add_loop_operator(onnx_node, limit, first_condition, starts, body, captured, types)
    for index, result in zip(carried, finals, strict=True):
        operands[index] = Value(builder, result)
    return operands


def import_composite(importer: _Importer, operator: Operator, name: str) -> Sequence[Value | None]:
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


def _in_file_order(value: Value, name: str) -> str:
    """Returns the builder's value with its axes as in the file. name: the operator that needs it."""
    return value.in_order(plain(len(value.order)), name)


def _scalar(onnx_node: SyntheticNode, condition: Value) -> str:
    """Returns a condition of one element as a bool scalar."""
    return onnx_node.emit("reshape", (_in_file_order(condition, onnx_node.name),), shape=())[0]


def _require_condition(value: Value) -> None:
    if value.type.dtype != "bool" or value.type.size != 1:
        raise ShapeError(f"its condition is {value.type}")


#: Operators with subgraphs -> their importers.
CONTROL = {"IF": import_if, "WHILE": import_while, "STABLEHLO_COMPOSITE": import_composite}
