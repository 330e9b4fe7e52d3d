# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's Einsum: takes diagonals and sums of single operands first, then multiplies two terms at a time, from
left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, product
from ..base import OnnxNode, decomposes
from ..elementwise import emit_broadcast
from .reduce import reduce

#: Labels of the axes that an ellipsis stands for; the last axis has the first label.
_ELLIPSIS = "0123456789"


@dataclass(frozen=True)
class Term:
    """A value and the labels of its axes, a letter each; all labels are different."""

    value: str
    labels: str


@decomposes("Einsum")
def einsum(node: OnnxNode) -> tuple[str, ...]:
    """Imports Einsum: sums over products of the operands, whose axes attribute `equation` labels."""
    inputs, result = _labels(node)
    sizes: dict[str, Dim] = {}
    for index, labels in enumerate(inputs):
        for label, extent in zip(labels, node.type(index).shape, strict=True):
            if sizes.get(label, 1) == 1:  # extent 1 broadcasts
                sizes[label] = extent
            elif extent not in (1, sizes[label]):
                raise ShapeError(f"axes '{label}' have {sizes[label]} and {extent} elements")
    remaining = [_take_diagonals(node, Term(value, labels)) for value, labels in zip(node.inputs, inputs, strict=True)]
    total = _sum_out(node, remaining.pop(0), _needed_labels(result, remaining))
    while remaining:
        other = remaining.pop(0)
        wanted = _needed_labels(result, remaining)
        other = _sum_out(node, other, wanted | set(total.labels))
        total = _sum_out(node, _contract(node, total, other, wanted, sizes), wanted)
    return (_transpose_to(node, total, result),)


def _labels(node: OnnxNode) -> tuple[list[str], str]:
    """Returns the labels of each operand, one for each axis, and those of the result."""
    equation = node.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs):
        raise ShapeError(f"equation '{equation}' has {len(terms)} terms for {len(node.inputs)} operands")
    inputs, widest = [], 0
    for index, term in enumerate(terms):
        rank = node.type(index).rank
        ellipsis_rank = rank - len(term.replace("...", ""))
        if ellipsis_rank < 0 or (ellipsis_rank and "..." not in term) or ellipsis_rank > len(_ELLIPSIS):
            raise ShapeError(f"term '{term}' of equation '{equation}' for an operand of {rank} axes")
        inputs.append(term.replace("...", _ELLIPSIS[:ellipsis_rank][::-1]))
        widest = max(widest, ellipsis_rank)
    if not arrow:  # the result then has the labels that occur once, in alphabetical order, as in numpy
        once = sorted(label for label in set("".join(terms)) - {"."} if "".join(terms).count(label) == 1)
        right = "..." * ("..." in left) + "".join(once)
    result = right.replace("...", _ELLIPSIS[:widest][::-1])
    if len(set(result)) != len(result) or not set(result) <= set("".join(inputs)):
        raise MegccError(f"equation '{equation}' does not label the axes of its result")
    return inputs, result


def _needed_labels(result: str, remaining: Sequence[Term]) -> set[str]:
    """Returns the labels that the result or remaining terms have; the other axes may be summed over."""
    return set(result).union(*(term.labels for term in remaining))


def _take_diagonals(node: OnnxNode, term: Term) -> Term:
    """Emits the diagonal of axes with the same label: every (N + 1)-th element of two axes of extent N, flattened."""
    for label in dict.fromkeys(term.labels):
        while term.labels.count(label) > 1:
            first = term.labels.index(label)
            second = term.labels.index(label, first + 1)
            type_ = node.type_of(term.value)
            extent = type_.shape[first]
            if extent != type_.shape[second] or not isinstance(extent, int):
                raise ShapeError(f"no diagonal of axes {first} and {second} of {type_}")
            outer = [axis for axis in range(type_.rank) if axis not in (first, second)]
            (value,) = node.emit("transpose", (term.value,), perm=(*outer, first, second))
            (value,) = node.emit("reshape", (value,), shape=(*(type_.shape[axis] for axis in outer), extent * extent))
            (value,) = node.emit("slice", (value,), axes=(len(outer),), starts=(0,), ends=(extent * extent,),
                                 steps=(extent + 1,))
            term = Term(value, "".join(term.labels[axis] for axis in outer) + label)
    return term


def _sum_out(node: OnnxNode, term: Term, wanted: set[str]) -> Term:
    """Emits the sum over the axes whose labels are not wanted."""
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in wanted)
    if not axes:
        return term
    (value,) = reduce(node, "reduce_sum", term.value, axes, keepdims=False)
    return Term(value, "".join(label for label in term.labels if label in wanted))


def _contract(node: OnnxNode, a: Term, b: Term, wanted: set[str], sizes: dict[str, Dim]) -> Term:
    """Emits the product of two terms, summed over their common labels that are not wanted: a batched matrix product,
    or an elementwise product if there are no such labels. sizes: the extent of each label."""
    both = [label for label in a.labels if label in b.labels]
    summed = [label for label in both if label not in wanted]
    if not summed:
        labels = a.labels + "".join(label for label in b.labels if label not in a.labels)
        values = [_with_unit_axes(node, term, labels) for term in (a, b)]
        return Term(*emit_broadcast(node, "mul", values), labels)
    batch = [label for label in both if label in wanted]
    rows = [label for label in a.labels if label not in both]
    columns = [label for label in b.labels if label not in both]

    def matrix(term: Term, first: list[str], second: list[str]) -> str:
        value = _transpose_to(node, term, "".join(batch + first + second))
        for axis, label in enumerate(batch + first + second):
            if node.type_of(value).shape[axis] != sizes[label]:  # an axis of extent 1, which is broadcast
                shape = [*node.type_of(value).shape]
                shape[axis] = sizes[label]
                (value,) = node.emit("expand", (value,), shape=tuple(shape))
        groups = (batch, first, second)
        return node.emit("reshape", (value,), shape=tuple(product(sizes[x] for x in group) for group in groups))[0]

    (value,) = node.emit("matmul", (matrix(a, rows, summed), matrix(b, summed, columns)), trans_a=0, trans_b=0)
    labels = "".join(batch + rows + columns)
    return Term(node.emit("reshape", (value,), shape=tuple(sizes[label] for label in labels))[0], labels)


def _with_unit_axes(node: OnnxNode, term: Term, labels: str) -> str:
    """Emits a term with an axis for each of these labels, of extent 1 for a label that the term lacks."""
    value = _transpose_to(node, term, "".join(label for label in labels if label in term.labels))
    extents = iter(node.type_of(value).shape)
    return node.emit("reshape", (value,), shape=tuple(next(extents) if x in term.labels else 1 for x in labels))[0]


def _transpose_to(node: OnnxNode, term: Term, labels: str) -> str:
    """Emits a term with its axes in this order of labels."""
    perm = tuple(term.labels.index(label) for label in labels)
    return term.value if perm == tuple(range(len(perm))) else node.emit("transpose", (term.value,), perm=perm)[0]
