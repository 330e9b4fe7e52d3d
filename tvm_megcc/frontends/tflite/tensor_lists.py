# SPDX-License-Identifier: Apache-2.0
"""An item of a TensorList that a WHILE writes, as TensorFlow's converter spells it: what is in front of the item, the
item and what is behind it, joined. In our graph it is one operator, whose result has the list's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...errors import ShapeError
from .file import Operator, Subgraph
from .node import Node, Results, imports

#: The operator that stands for them: list, item, index.
SET_ITEM = "TENSOR_LIST_SET_ITEM"


def with_items(graph: Subgraph) -> Subgraph:
    """Returns the graph with such operators in place of the joins; nothing needs their slices any more."""
    makers = {index: operator for operator in graph.operators for index in operator.outputs}
    return replace(graph, operators=tuple(_item(graph, makers, operator) or operator for operator in graph.operators))


def _item(graph: Subgraph, makers: Mapping[int, Operator], join: Operator) -> Operator | None:
    """Returns the join as an operator that sets an item, if it is one."""
    if join.kind != "CONCATENATION" or len(join.inputs) != 3 or join.options.get("Axis") != 0 \
            or join.options.get("FusedActivationFunction", 0):
        return None
    before, after = (makers.get(index) for index in (join.inputs[0], join.inputs[2]))
    if any(part is None or part.kind != "SLICE" or len(part.inputs) != 3 for part in (before, after)):
        return None
    assert before is not None and after is not None
    (whole, begin, size), (other, start, rest) = before.inputs, after.inputs
    index, following = _along_first(graph, makers, size, -1), _along_first(graph, makers, start, 0)
    if whole != other or index is None or following is None or not _all(graph, begin, 0) or not _all(graph, rest, -1) \
            or not _is_next(graph, makers, index, following):
        return None
    return Operator(SET_ITEM, (whole, join.inputs[1], index), join.outputs)


def _constant(graph: Subgraph, index: int) -> np.ndarray | None:
    tensor = graph.tensors[index]
    return tensor.array.reshape(-1) if tensor.data is not None and tensor.dtype in ("int32", "int64") else None


def _all(graph: Subgraph, index: int, number: int) -> bool:
    array = _constant(graph, index)
    return array is not None and bool((array == number).all())


def _along_first(graph: Subgraph, makers: Mapping[int, Operator], index: int, number: int) -> int | None:
    """Returns the one number in front of others that are all `number`; None if it is no such vector."""
    join = makers.get(index)
    if join is None or join.kind not in ("CONCATENATION", "PACK") or not join.inputs \
            or any(each < 0 or not _all(graph, each, number) for each in join.inputs[1:]):
        return None
    first = join.inputs[0]
    while (maker := makers.get(first)) is not None and maker.kind in ("RESHAPE", "EXPAND_DIMS", "SQUEEZE") \
            and maker.inputs:
        first = maker.inputs[0]
    return first if first >= 0 else None


def _is_next(graph: Subgraph, makers: Mapping[int, Operator], index: int, following: int) -> bool:
    """Whether one number is always the other plus one."""
    one, other = _constant(graph, index), _constant(graph, following)
    if one is not None and other is not None:
        return one.size == other.size == 1 and one[0] + 1 == other[0]
    add = makers.get(following)
    if add is None or add.kind != "ADD" or len(add.inputs) != 2 or index not in add.inputs \
            or min(add.inputs) < 0 or add.options.get("FusedActivationFunction", 0):
        return False
    step = _constant(graph, add.inputs[1 - add.inputs.index(index)])
    return step is not None and step.size == 1 and step[0] == 1


@imports(SET_ITEM)
def set_item(node: Node) -> Results:
    whole, item, index = node.type(0), node.type(1), node.type(2)
    if item.rank != whole.rank or not item.rank or item.shape[0] != 1 or index.size != 1:
        raise ShapeError(f"puts {item} into {whole} at {index}")
    place = node.emit("reshape", node.plain(2), shape=(1, 1))
    place = place if node.type_of(place).dtype == "int64" else node.emit("cast", place, dtype="int64")
    return node.onnx("ScatterND", node.plain(0), place, node.plain(1))
