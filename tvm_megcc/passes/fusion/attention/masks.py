# SPDX-License-Identifier: Apache-2.0
"""The masks of attention: which of them have an effect, whether they are causal, and their sum as an operand of the
fused operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.dims import Dim
from ....ir.graph import Attrs, Op
from ....ir.types import TensorType
from ...edit import Editor

#: A mask that adds at most this number to a score hides it: in float32, the sum does not depend on the score.
FORBIDDEN = -1e30


@dataclass(frozen=True)
class Mask:
    """A mask of scores.

    value: numbers that are added to scores or, if `forbidden` is not None, a condition that is true for visible scores.
    forbidden: the number that hides a score.
    inverted: the condition is true for hidden scores.
    """

    value: str
    forbidden: float | None = None
    inverted: bool = False


def simplify_masks(edit: Editor, masks: tuple[Mask, ...], shape: Sequence[Dim], may_be_causal: bool) \
        -> tuple[tuple[Mask, ...], bool]:
    """Returns the masks that hide something, and whether there is one and it is causal (then no mask is returned).

    Args:
        shape: the shape of the scores.
        may_be_causal: the fused operator can compute these scores with its attribute `causal`.
    """
    remaining = []
    for mask in masks:
        array = _mask_values(edit, mask)
        if array is None or array.any():
            remaining.append(mask)
    array = _mask_values(edit, remaining[0]) if len(remaining) == 1 and may_be_causal else None
    if array is None or array.shape[-2:] != tuple(shape[-2:]) or array.size != array.shape[-2] * array.shape[-1]:
        return tuple(remaining), False
    queries, keys = array.shape[-2:]
    visible = np.tri(queries, keys, keys - queries, dtype=bool)
    array = array.reshape(queries, keys)
    causal = queries <= keys and not array[visible].any() and bool((array[~visible] <= FORBIDDEN).all())
    return ((), True) if causal else (tuple(remaining), False)


def _mask_values(edit: Editor, mask: Mask) -> np.ndarray | None:
    """Returns the values that a constant mask adds to scores; None if it is not constant."""
    array = edit.constants.get(mask.value)
    if array is None or mask.forbidden is None:
        return array
    visible = np.logical_not(array) if mask.inverted else array
    return np.where(visible, np.float32(0), np.float32(mask.forbidden))


def mask_shape(shapes: Sequence[Sequence[Dim]], scores: Sequence[Dim], product: Sequence[Dim], groups: int) \
        -> tuple[Dim, ...] | None:
    """Returns the shape of the sum of masks as the fused operator takes it; () for no masks. Returns None if the sum is
    as large as the scores of several heads, or broadcasts in an unsupported way.

    Args:
        shapes: the shapes of the masks.
        scores: the shape of the softmax's result.
        product: the shape of the product's result.
        groups: the number of heads of queries that share a head of keys.
    """
    if not shapes:
        return ()
    scores = (1,) * (4 - len(scores)) + tuple(scores)
    padded = [(1,) * (4 - len(shape)) + tuple(shape) for shape in shapes]
    summed = tuple(next((dim for dim in dims if dim != 1), 1) for dims in zip(*padded, strict=True))
    if any(dim not in (1, extent) for shape in padded for dim, extent in zip(shape, scores, strict=True)) \
            or summed[3] != scores[3] or (len(shapes) > 1 and summed == scores and scores[1] != 1):
        return None
    if groups == 1 or summed[1] == 1:
        return summed
    # A mask for each head is read as one for each row of the product, in which heads of a group follow each other.
    return (summed[0], *product[1:]) if summed[2] == scores[2] else None


def add_sum(edit: Editor, last: Op, masks: Sequence[Mask], type_: TensorType) -> str:
    """Adds operators before `last` that sum the masks to a value of this type, and returns it."""
    total = ""
    for mask in masks:
        value = _addend(edit, last, mask)
        total = _added(edit, last, "add", (total, value)) if total else value
    if edit.types[total] == type_:
        return total
    if total in edit.constants:
        return edit.constant(total, edit.constants[total].reshape(type_.static_shape))
    return _added(edit, last, "reshape", (total,), shape=type_.shape)


def _addend(edit: Editor, last: Op, mask: Mask) -> str:
    """Returns the numbers that a mask adds to scores, and adds operators for them if necessary."""
    array = _mask_values(edit, mask)
    if mask.forbidden is None:
        return mask.value
    if array is not None:
        return edit.constant(f"{mask.value}.mask", array)
    both = [edit.constant(f"{mask.value}.{what}", np.array(number, np.float32))
            for what, number in (("allowed", 0), ("forbidden", mask.forbidden))]
    return _added(edit, last, "where", (mask.value, *(both[::-1] if mask.inverted else both)))


def _added(edit: Editor, last: Op, kind: str, operands: tuple[str, ...], **attrs: Any) -> str:
    """Adds an operator before `last` and returns its result."""
    value = edit.result(f"{last.outputs[0]}.mask", kind, Attrs(attrs), operands)
    edit.add_before(last, Op(kind, Attrs(attrs), operands, (value,), origin=last.origin))
    return value
