# SPDX-License-Identifier: Apache-2.0
"""Imports TensorLists, to which a WHILE writes items. In our graph they are tensors with a first axis for the items.

TensorFlow's converter expresses a write as a concat of the items before it, the item and the items after it. In our
graph it is one operator, whose result has the list's shape. With `select_tf_ops` the file has TensorFlow's own
operators; a list that one of them reserves gets its type from the operator that stacks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.types import ORDINARY
from .file import Operator, Subgraph
from .node import Node, Results, Unsupported, imports

#: The operator that replaces such concats: list, item, index.
SET_ITEM = "TENSOR_LIST_SET_ITEM"
#: TensorFlow's operators that create an empty list, that stack a list into a tensor, and that give an updated list.
RESERVE, STACK, UPDATE = ("CUSTOM FlexTensorListReserve", "CUSTOM FlexTensorListStack",
                          "CUSTOM FlexTensorListSetItem")
#: The dtype of a file's tensors that are lists.
LIST = "variant"
_ADVICE = "convert the model without select_tf_ops, or its recurrent layers with unroll=True"

#: A subgraph, or the whole file as one.
AnySubgraph = TypeVar("AnySubgraph", bound=Subgraph)


def rewrite_item_writes(graph: Subgraph) -> Subgraph:
    """Replaces concats that write an item by `SET_ITEM`. The slices that they read become dead code."""
    makers = {index: operator for operator in graph.operators for index in operator.outputs}
    return replace(graph, operators=tuple(_as_set_item(graph, makers, operator) or operator
                                          for operator in graph.operators))


def infer_list_types(graph: AnySubgraph) -> AnySubgraph:
    """Gives list tensors the shape and type of the tensor that they are stacked into."""
    if not any(operator.kind == RESERVE for operator in graph.operators):
        return graph
    return replace(graph, operators=tuple(_with_list_type(graph, operator) or operator for operator in graph.operators))


def _with_list_type(graph: Subgraph, reserve: Operator) -> Operator | None:
    """Returns the reserving operator with the shape and type of the tensor that its list is stacked into; None if there
    is none."""
    if reserve.kind != RESERVE:
        return None
    lists = set(reserve.outputs)
    for operator in graph.operators:  # in the order in which they run
        if operator.kind == STACK and operator.inputs[0] in lists:
            tensor = graph.tensors[operator.outputs[0]]
            return replace(reserve, options={"Shape": tensor.shape, "Type": tensor.dtype})
        if operator.kind == UPDATE and operator.inputs[0] in lists:
            lists.update(operator.outputs)
        if operator.kind == "WHILE":
            lists.update(result for given, result in zip(operator.inputs, operator.outputs, strict=False)
                         if given in lists)
    return None


def _as_set_item(graph: Subgraph, makers: Mapping[int, Operator], concat: Operator) -> Operator | None:
    """Returns the `SET_ITEM` that a concat stands for; None for another operator.

    Such a concat is concat(list[:index], item, list[index + 1:]) along axis 0, with SLICE for both slices.

    Args:
        makers: tensor -> the operator that computes it.
        concat: the operator.
    """
    if concat.kind != "CONCATENATION" or len(concat.inputs) != 3 or concat.options.get("Axis") != 0 \
            or concat.options.get("FusedActivationFunction", 0):
        return None
    before, after = (makers.get(index) for index in (concat.inputs[0], concat.inputs[2]))
    if any(part is None or part.kind != "SLICE" or len(part.inputs) != 3 for part in (before, after)):
        return None
    assert before is not None and after is not None
    # SLICE has the operands tensor, begin, size. The first has begin 0 and size (index, -1, …), where -1 is "to the
    # end"; the second has begin (index + 1, 0, …) and size -1.
    (list_, begin, size), (other, start, rest) = before.inputs, after.inputs
    index, following = _leading_number(graph, makers, size, -1), _leading_number(graph, makers, start, 0)
    if list_ != other or index is None or following is None or not _is_filled_with(graph, begin, 0) \
            or not _is_filled_with(graph, rest, -1) or not _is_next(graph, makers, index, following):
        return None
    return Operator(SET_ITEM, (list_, concat.inputs[1], index), concat.outputs)


def _constant(graph: Subgraph, index: int) -> np.ndarray | None:
    """Returns a constant tensor of integers, flattened; None for another tensor."""
    tensor = graph.tensors[index]
    return tensor.array.reshape(-1) if tensor.data is not None and tensor.dtype in ("int32", "int64") else None


def _is_filled_with(graph: Subgraph, index: int, number: int) -> bool:
    """Whether a tensor is a constant whose elements are all this number."""
    array = _constant(graph, index)
    return array is not None and bool((array == number).all())


def _leading_number(graph: Subgraph, makers: Mapping[int, Operator], index: int, number: int) -> int | None:
    """Returns the tensor that is the first element of a vector, if its other elements are constants equal to `number`;
    None for any other vector."""
    vector = makers.get(index)
    if vector is None or vector.kind not in ("CONCATENATION", "PACK") or not vector.inputs \
            or any(input_ < 0 or not _is_filled_with(graph, input_, number) for input_ in vector.inputs[1:]):
        return None
    first = vector.inputs[0]
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


class ItemShapeDiffers(ShapeError):
    """Raised for an item with other extents than those of the list's items. The importer of a WHILE (control.py) then
    repeats the import with a list of such items.

    items: the name of the list's value.
    shape: the item's.
    """

    def __init__(self, node: Node, shape: Sequence[Dim]):
        list_, item = node.type(0), ", ".join(map(str, shape))
        super().__init__(f"puts an item of [{item}] into a list of {list_}, whose extents the file states: compile "
                         "it with the shapes of the file, or convert the model with unroll=True in its recurrent "
                         "layers, or with the batch that is wanted")
        self.items, self.shape = node.value(0).name, tuple(shape)


@imports(SET_ITEM)
def set_item(node: Node) -> Results:
    list_, item, index = node.type(0), node.type(1), node.type(2)
    if item.rank != list_.rank or not item.rank or item.shape[0] != 1 or index.size != 1:
        raise ShapeError(f"puts {item} into {list_} at {index}")
    if item.shape[1:] != list_.shape[1:]:
        raise ItemShapeDiffers(node, item.shape[1:])
    row = node.emit("reshape", node.plain(2), shape=(1, 1))
    row = row if node.type_of(row).dtype == "int64" else node.emit("cast", row, dtype="int64")
    return node.onnx("ScatterND", node.plain(0), row, node.plain(1))


@imports(RESERVE)
def reserve(node: Node) -> Results:
    """Operands: the shape of an item, in which -1 is unknown, and the number of items."""
    shape, dtype = node.option("Shape"), node.option("Type")
    if shape is None or dtype not in ORDINARY:
        raise Unsupported(f"makes a list of which nothing is stacked; {_ADVICE}")
    count = node.number(1, "number of items")
    if not shape or shape[0] != count:
        raise ShapeError(f"makes a list of {count} items, and {dtype}{list(shape)} is stacked of it")
    return [node.constant(np.zeros(shape, dtype), dtype)]


@imports("CUSTOM FlexTensorListFromTensor", STACK)
def list_as_tensor(node: Node) -> Results:
    return [node.plain(0)]


@imports("CUSTOM FlexTensorListSetItem")
def set_item_of_tensorflow(node: Node) -> Results:
    """Operands: list, index, item."""
    list_, item, index = node.type(0), node.type(2), node.type(1)
    if item.rank + 1 != list_.rank or index.size != 1:
        raise ShapeError(f"puts {item} into a list of {list_} at {index}")
    if item.shape != list_.shape[1:]:
        raise ItemShapeDiffers(node, item.shape)
    row = node.emit("cast", node.emit("reshape", node.plain(1), shape=(1, 1)), dtype="int64")
    return node.onnx("ScatterND", node.plain(0), row, node.emit("reshape", node.plain(2), shape=(1, *item.shape)))


@imports("CUSTOM FlexTensorListGetItem")
def get_item(node: Node) -> Results:
    """Operands: list, index, shape of an item."""
    return node.onnx("Gather", node.plain(0), node.emit("reshape", node.plain(1), shape=()), axis=0)


@imports("CUSTOM FlexTensorListLength")
def length(node: Node) -> Results:
    count = node.type(0).shape[0]
    if not isinstance(count, int):
        raise Unsupported(f"the length of a list {node.type(0)} is not known at compile time; {_ADVICE}")
    return [node.constant(np.array(count), "int32")]


@imports("CUSTOM FlexTensorListPushBack", "CUSTOM FlexTensorListPopBack", "CUSTOM FlexEmptyTensorList",
         "CUSTOM FlexTensorListConcatV2", "CUSTOM FlexTensorListResize", "CUSTOM FlexTensorListElementShape",
         "CUSTOM FlexTensorListGather", "CUSTOM FlexTensorListScatterV2", "CUSTOM FlexTensorListSplit")
def refuse_resized_lists(node: Node) -> Results:
    raise Unsupported(f"is of lists whose length changes, which are not supported; {_ADVICE}")
