# SPDX-License-Identifier: Apache-2.0
"""Fuses attention, two matrix products with a softmax between them, into one operator that keeps no scores in memory.

`scores.py` and `masks.py` match what is between the products, `operands.py` what is before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....context import Context
from ....ir.dims import Dim
from ....ir.graph import Attrs, Graph, Op
from ....ir.types import TensorType
from ....kernels.choice import options
from ....kernels.site import Site
from ....kernels.support import realisable
from ....ops.nn import fused_attention
from ....ops.rules import axis_of
from ...edit import Editor
from .masks import Mask, add_sum, mask_shape, simplify_masks
from .operands import trace_operands
from .scores import Readers, Scores, is_untransposed_product, only_reader, scores_of, softmax_with_zeros


def fuse_attention(graph: Graph, context: Context) -> Graph:
    """Fuses softmax(number * q kᵀ + masks) v and the transposes around it, if the fused kernel costs less. With
    `--reproducible` it is always fused, because all CPUs must compute the same."""
    edit = Editor(graph)
    readers = graph.consumers()
    for op in graph.ops:
        found = _attention(edit, readers, op) if op.kind == "softmax" else None
        if found is None:
            continue
        types = (*(edit.types[name] for name in found.operands), *([found.mask_type] if found.mask_type else []))
        fused = Op("attention", found.attrs, found.operands, found.last.outputs, origin=op.origin)
        site = Site(fused, types, (edit.types[found.last.outputs[0]],), context)
        if realisable(site) and (context.reproducible or _cost(site) <= sum(
                _cost(Site.of(graph, replaced, context)) for replaced in found.replaced)):
            mask = (add_sum(edit, found.last, found.masks, found.mask_type),) if found.mask_type else ()
            edit.replace(found.last, fused.with_(inputs=(*found.operands, *mask)))
    return edit.finish()


def _cost(site: Site) -> float:
    """Returns the cost of the cheapest kernel of an operator; 0 if it has none."""
    return min((option.cost for option in options(site)[0]), default=0.0)


@dataclass(frozen=True)
class _Found:
    """A subgraph that attention can replace.

    attrs: the attributes of the operator `attention`.
    operands: queries, keys and values.
    last: the last operator of the subgraph.
    replaced: all operators of the subgraph.
    masks: the masks; each broadcasts to the scores.
    mask_type: the type of their sum; None if there are none.
    """

    attrs: Attrs
    operands: tuple[str, ...]
    last: Op
    replaced: tuple[Op, ...]
    masks: tuple[Mask, ...]
    mask_type: TensorType | None


def _attention(edit: Editor, readers: Readers, softmax: Op) -> _Found | None:
    """Returns the attention around a softmax; None if there is none that the fused operator can compute."""
    shape = edit.types[softmax.outputs[0]].shape
    scores = scores_of(edit, softmax.inputs[0])
    if scores is None or edit.types[softmax.inputs[0]].dtype != "float32" \
            or axis_of(softmax.attrs.axis, len(shape)) != len(shape) - 1:
        return None
    product_shape = edit.types[scores.product.outputs[0]].shape
    rank, groups = len(product_shape), _query_groups(product_shape, shape)
    following, blind = _up_to_the_second_product(edit, readers, softmax, scores)
    if not following or not 2 <= rank <= 4 or groups is None:
        return None
    last = following[-1]
    # The letters of the axes of the products' operands; operands without a batch or heads have the last ones.
    q_axes, k_axes, v_axes, y_axes = (axes[-rank:] for axes in (
        fused_attention.Q, fused_attention.K, fused_attention.V, fused_attention.Y))
    k_axes = k_axes if scores.product.attrs.trans_b else _with_last_two_swapped(k_axes)
    v_axes = _with_last_two_swapped(v_axes) if last.attrs.trans_b else v_axes
    (q_name, k_name), v_name = scores.product.inputs, last.inputs[1]
    operands = trace_operands(edit, (q_name, q_axes), (k_name, k_axes), (v_name, v_axes))
    if operands is None:
        return None
    q, k, v = operands
    # With groups, an axis of the result has queries of several heads, for which there is no letter.
    transposed = only_reader(edit, readers, last, "transpose") if groups == 1 else []
    if transposed and transposed[0].attrs.perm[-1] == rank - 1:
        y_axes, last = "".join(y_axes[axis] for axis in transposed[0].attrs.perm), transposed[0]
        following.append(last)
    masks, causal = simplify_masks(edit, scores.masks, shape, may_be_causal=groups == 1)
    mask = mask_shape([edit.types[mask_operand.value].shape for mask_operand in masks], shape, product_shape, groups)
    scale = scores.scale * q.factor * k.factor
    if mask is None or not np.isfinite(scale):
        return None
    attrs = Attrs(scale=scale, causal=causal, groups=groups, y_axes=y_axes, q_axes=q.axes, k_axes=k.axes,
                  v_axes=v.axes, q_at=q.index, k_at=k.index, v_at=v.index, shared=k.shared, seen=k.keys, wraps=k.wraps,
                  blind=blind)
    return _Found(attrs, (q.value, k.value, v.value), last, (*scores.ops, *following, *q.ops, *k.ops, *v.ops), masks,
                  TensorType("float32", mask) if masks else None)


def _up_to_the_second_product(edit: Editor, readers: Readers, softmax: Op, scores: Scores) -> tuple[list[Op], bool]:
    """Returns the operators from the softmax to the product with the values: the softmax, perhaps a choice of zeros,
    perhaps a reshape, and the product; [] if others follow the softmax. Also returns the attribute `blind` of
    attention."""
    product_shape = edit.types[scores.product.outputs[0]].shape
    following, blind = softmax_with_zeros(edit, readers, softmax, scores.masks)
    if product_shape != edit.types[softmax.outputs[0]].shape:
        following += only_reader(edit, readers, following[-1], "reshape")
    probabilities = following[-1].outputs[0]
    products = only_reader(edit, readers, following[-1], "matmul")
    if not products or products[0].inputs[0] != probabilities or not is_untransposed_product(products[0]) \
            or edit.types[probabilities].shape != product_shape:
        return [], blind
    return [*following, *products], blind


def _with_last_two_swapped(axes: str) -> str:
    """Returns letters of axes in the order of a matrix that is transposed."""
    return axes[:-2] + axes[-1] + axes[-2]


def _query_groups(product: Sequence[Dim], shape: Sequence[Dim]) -> int | None:
    """Returns the number of heads of queries that share a head of keys (grouped-query attention), if scores
    [b, heads, s, t] were computed as [b, heads of keys, groups * s, t]; else None.

    Args:
        product: the shape of the product's result.
        shape: the shape of the softmax's result.
    """
    if product == shape:
        return 1
    if len(product) != 4 or len(shape) != 4:
        return None
    key_heads, heads = product[1], shape[1]
    if not isinstance(key_heads, int) or not isinstance(heads, int) or not key_heads or heads % key_heads:
        return None
    groups = heads // key_heads
    return groups if product == (shape[0], key_heads, shape[2] * groups, shape[3]) else None
