# SPDX-License-Identifier: Apache-2.0
"""Finds the scores of attention, scale * product + masks, before a softmax, and the operators after it that give zeros
to queries whose keys are all masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....ir.graph import Op
from ...edit import Editor
from ...match import is_const, is_op, wildcard
from .masks import FORBIDDEN, Mask
from .operands import scalar_factor

#: The largest number of operators that are followed between a product and the softmax.
_MAX_DEPTH = 8

Readers = Mapping[str, Sequence[Op]]

_SOFTMAX, _MASK, _ZERO, _LOWEST = wildcard(), wildcard(), is_const(), is_const()
_HIGHEST = is_op("reduce_max", _MASK)
#: where(reduce_max(mask) == -inf, 0, softmax), which ONNX's function Attention has from opset 23 on.
_ZERO_IF_ALL_MASKED = is_op("where", is_op("equal", _HIGHEST, _LOWEST), _ZERO, _SOFTMAX)
_IS_NAN = is_op("is_nan", _SOFTMAX, once=True)
#: where(is_nan(softmax), 0, softmax), which PyTorch's exporter writes.
_ZERO_IF_NAN = is_op("where", _IS_NAN, _ZERO, _SOFTMAX)


@dataclass(frozen=True)
class Scores:
    """Scores: scale * product + masks. ops: the operators that compute them."""

    product: Op
    scale: float = 1.0
    masks: tuple[Mask, ...] = ()
    ops: tuple[Op, ...] = ()


def scores_of(edit: Editor, name: str, depth: int = _MAX_DEPTH) -> Scores | None:
    """Returns the scores that a value holds: a product, a scalar factor, and then masks; reshapes may precede the
    masks. Returns None if the value is computed in another way. depth: the number of operators that may be followed."""
    op = edit.producer(name)
    if op is None or not depth or not edit.is_read_once(name):
        return None
    if op.kind == "matmul":
        return Scores(op, ops=(op,)) if is_untransposed_product(op) else None
    if op.kind in ("mul", "div", "reshape"):
        scaled = (op.inputs[0], 1.0) if op.kind == "reshape" else scalar_factor(edit, op)
        if scaled is None:
            return None
        source, factor = scaled
        inner = scores_of(edit, source, depth - 1)
        return None if inner is None or inner.masks else replace(
            inner, scale=inner.scale * factor, ops=(*inner.ops, op))
    for source, mask in _additions(edit, op):
        inner = scores_of(edit, source, depth - 1) if edit.types[source] == edit.types[name] else None
        if inner is not None:
            return replace(inner, masks=(*inner.masks, mask), ops=(*inner.ops, op))
    return None


def is_untransposed_product(product: Op) -> bool:
    """Returns whether the left operand of a product is not transposed, and there is no third operand."""
    return not product.attrs.trans_a and len(product.inputs) == 2


def _additions(edit: Editor, op: Op) -> list[tuple[str, Mask]]:
    """Returns the ways to read an operator as scores plus a mask."""
    if op.kind == "add":
        return [(a, Mask(b)) for a, b in (op.inputs, op.inputs[::-1])]
    if op.kind != "where":
        return []
    condition, *both = op.inputs
    return [(source, Mask(condition, float(edit.constants[number].reshape(-1)[0]), inverted=is_swapped))
            for is_swapped, (source, number) in ((False, both), (True, both[::-1]))
            if number in edit.constants and edit.constants[number].size == 1
            and float(edit.constants[number].reshape(-1)[0]) <= FORBIDDEN]


def softmax_with_zeros(edit: Editor, readers: Readers, softmax: Op, masks: Sequence[Mask]) -> tuple[list[Op], bool]:
    """Returns the softmax and the operators after it that choose between its result and zeros, and whether queries
    whose keys are all masked give zeros (the attribute `blind` of attention)."""
    if chosen_by_nan := _zeros_for_nan(edit, readers, softmax):
        return [softmax, *chosen_by_nan], True
    for choice in only_reader(edit, readers, softmax, "where"):
        blind = _is_zero_if_all_masked(edit, softmax, choice, masks)
        if blind or _has_no_effect(edit, softmax, choice):
            return [softmax, choice], blind
    return [softmax], False


def only_reader(edit: Editor, readers: Readers, op: Op, kind: str) -> list[Op]:
    """Returns a list of the only reader of an operator's result, if it is of this kind; else []."""
    (name,) = op.outputs
    return [reader for reader in readers.get(name, ()) if reader.kind == kind and edit.is_read_once(name)]


def _has_no_effect(edit: Editor, softmax: Op, choice: Op) -> bool:
    """Returns whether a where with a constant condition always gives the softmax. (A constant mask that hides all keys
    of no query leaves such a where.)"""
    (name,), array = softmax.outputs, edit.constants.get(choice.inputs[0])
    if array is None or edit.types[choice.outputs[0]] != edit.types[name]:
        return False
    return bool(array.all()) if choice.inputs[1] == name else not array.any()


def _is_zero_if_all_masked(edit: Editor, softmax: Op, choice: Op, masks: Sequence[Mask]) -> bool:
    """Returns whether a where is `_ZERO_IF_ALL_MASKED` for the only mask of the scores."""
    match = _ZERO_IF_ALL_MASKED.match(edit, choice.outputs[0])
    if match is None or match[_SOFTMAX] != softmax.outputs[0]:
        return False
    zero, lowest = edit.constants[match[_ZERO]], edit.constants[match[_LOWEST]]
    reduce_attrs, rank = match.op(_HIGHEST).attrs, edit.types[match[_MASK]].rank
    return (edit.types[choice.outputs[0]] == edit.types[match[_SOFTMAX]] and not zero.any()
            and bool((lowest == -np.inf).all())
            and bool(reduce_attrs.keepdims) and [axis % rank for axis in reduce_attrs.axes] == [rank - 1]
            and [(mask.value, mask.forbidden) for mask in masks] == [(match[_MASK], None)])


def _zeros_for_nan(edit: Editor, readers: Readers, softmax: Op) -> tuple[Op, ...]:
    """Returns both operators of `_ZERO_IF_NAN`; () if there are none. Softmax gives NaN for queries whose keys are all
    masked. The pattern gives zeros for NaN scores too; attention leaves their results unspecified."""
    (name,) = softmax.outputs
    found = [match for op in readers.get(name, ()) if (match := _ZERO_IF_NAN.match(edit, op.outputs[0])) is not None
             and match[_SOFTMAX] == name]
    if not found or len(readers[name]) != 2 or name in edit.graph.outputs \
            or edit.constants[found[0][_ZERO]].any() or edit.types[found[0][_ZERO_IF_NAN]] != edit.types[name]:
        return ()
    return found[0].op(_IS_NAN), found[0].op(_ZERO_IF_NAN)
