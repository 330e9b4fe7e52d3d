# SPDX-License-Identifier: Apache-2.0
"""Fuses attention, two matrix products with a softmax between them, into one operator that keeps no scores in memory.

Axes have letters, as in `ops/nn/fused_attention.py`: b batch, n heads, s queries, t keys, h elements of queries and
keys, v elements of values, c an axis from which one index is taken (such as of packed queries, keys and values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...context import Context
from ...ir.dims import Dim
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...kernels.choice import options
from ...kernels.site import Site
from ...kernels.support import realisable
from ...ops.cache_rows import CACHE_DTYPES, numbers_shape
from ...ops.nn.fused_attention import K, Q, V, Y
from ...ops.rules import axis_of, slice_axes
from ..edit import Editor
from ..match import is_const, is_op, wildcard

#: A mask that adds at most this number to a score hides it: in float32, the sum does not depend on the score.
FORBIDDEN = -1e30
#: The largest number of operators that are followed between a product and the softmax, or before a product.
MAX_DEPTH = 8

_X, _SOFTMAX, _MASK, _ZERO, _LOWEST = wildcard(), wildcard(), wildcard(), is_const(), is_const()
_HIGHEST = is_op("reduce_max", _MASK)
#: where(equal(reduce_max(mask), -inf), 0, softmax): zeros for queries whose keys are all masked. ONNX's function
#: Attention has it from opset 23 on.
_BLIND = is_op("where", is_op("equal", _HIGHEST, _LOWEST), _ZERO, _SOFTMAX)
_IS_NAN = is_op("is_nan", _SOFTMAX, once=True)
_GUARDED = is_op("where", _IS_NAN, _ZERO, _SOFTMAX)
_CUT = is_op("slice", _X)
_CUT_AND_RESHAPED = is_op("reshape", _CUT)
_SINGLE = is_op("reshape", _X)
_RESHAPED_TWICE = is_op("reshape", _SINGLE)
_WIDE = is_op("expand", _SINGLE)
#: Heads repeated: reshape(expand(reshape(x))).
_REPEATED = is_op("reshape", _WIDE)


def fuse_attention(graph: Graph, context: Context) -> Graph:
    """Fuses softmax(number * q kᵀ + masks) v and the transposes around it, if the fused kernel costs less. With
    `--reproducible` it is always fused, because all CPUs must compute the same."""
    edit = Editor(graph)
    readers = graph.consumers()
    for op in graph.ops:
        found = _attention(edit, readers, op) if op.kind == "softmax" else None
        if found is None:
            continue
        types = tuple(edit.types[name] for name in found.operands) + found.mask_type
        fused = Op("attention", found.attrs, found.operands, found.last.outputs, origin=op.origin)
        site = Site(fused, types, (edit.types[found.last.outputs[0]],), context)
        if realisable(site) and (context.reproducible or _cost(site) <= sum(
                _cost(Site.of(graph, replaced, context)) for replaced in found.replaced)):
            edit.replace(found.last, fused.with_(inputs=(*found.operands, *_mask(edit, found))))
    return edit.finish()


def _cost(site: Site) -> float:
    """Returns the cost of the cheapest kernel of an operator; 0 if it has none."""
    return min((option.cost for option in options(site)[0]), default=0.0)


@dataclass(frozen=True)
class _Mask:
    """A mask of scores.

    value: numbers that are added to scores or, if `forbidden` is not None, a condition that is true for visible scores.
    forbidden: the number that hides a score.
    inverted: the condition is true for hidden scores.
    """

    value: str
    forbidden: float | None = None
    inverted: bool = False


@dataclass(frozen=True)
class _Scores:
    """Scores: scale * product + masks. ops: the operators that compute them."""

    product: Op
    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True)
class _Operand:
    """An operand of attention as a part of a source tensor.

    value, axes: the source tensor, and its axes as letters.
    index: the index on the axis c.
    factor: the number by which the source is multiplied.
    ops: the operators between the source and the product, which attention replaces.
    keys: the number of keys that are used along the axis t; None for all.
    shared: the number of heads of queries that share a head of this operand.
    """

    value: str
    axes: str
    index: int = 0
    factor: float = 1.0
    ops: tuple[Op, ...] = ()
    keys: Dim | None = None
    shared: int = 1


@dataclass(frozen=True)
class _Found:
    """A subgraph that attention can replace.

    operands: queries, keys and values.
    last: the last operator of the subgraph.
    replaced: all operators of the subgraph.
    masks: the masks; each broadcasts to the scores.
    mask_type: the type of their sum; () if there are none.
    """

    attrs: Attrs
    operands: tuple[str, ...]
    last: Op
    replaced: tuple[Op, ...]
    masks: tuple[_Mask, ...]
    mask_type: tuple[TensorType, ...]


def _attention(edit: Editor, readers: dict[str, list[Op]], softmax: Op) -> _Found | None:
    """Returns the attention around a softmax; None if there is none that the fused operator can compute."""
    shape = edit.types[softmax.outputs[0]].shape
    scores = _scores(edit, softmax.inputs[0])
    if scores is None or edit.types[softmax.inputs[0]].dtype != "float32" \
            or axis_of(softmax.attrs.axis, len(shape)) != len(shape) - 1:
        return None
    product_shape = edit.types[scores.product.outputs[0]].shape
    rank = len(product_shape)
    # The operators from the softmax on: perhaps a choice of zeros, perhaps a reshape, and the product with the values.
    following, blind = _softmax_with_zeros(edit, readers, softmax, scores.masks)
    if product_shape != shape:
        following += _reader(edit, readers, following[-1], "reshape")
    following += _reader(edit, readers, following[-1], "matmul")
    last = following[-1]
    if last.kind != "matmul" or last.inputs[0] != following[-2].outputs[0] \
            or edit.types[last.inputs[0]].shape != product_shape \
            or not _is_untransposed_product(last) or not 2 <= rank <= 4:
        return None
    groups = _query_groups(product_shape, shape)
    keys = K if scores.product.attrs.trans_b else _with_last_two_swapped(K)
    values = _with_last_two_swapped(V) if last.attrs.trans_b else V
    product = scores.product.inputs
    operands = _operands(edit, (product[0], Q[-rank:]), (product[1], keys[-rank:]), (last.inputs[1], values[-rank:]))
    if groups is None or operands is None:
        return None
    q, k, v = operands
    axes = Y[-rank:]
    transposed = _reader(edit, readers, last, "transpose") if groups == 1 else []
    if transposed and transposed[0].attrs.perm[-1] == rank - 1:
        axes, last = "".join(axes[axis] for axis in transposed[0].attrs.perm), transposed[0]
        following.append(last)
    masks, causal = _simplify_masks(edit, scores.masks, shape if groups == 1 else ())
    mask = _mask_shape([edit.types[mask_operand.value].shape for mask_operand in masks], shape, product_shape, groups)
    if mask is None:
        return None
    scale = scores.scale * q.factor * k.factor
    if not np.isfinite(scale):
        return None
    attrs = Attrs(scale=scale, causal=causal, groups=groups, y_axes=axes, q_axes=q.axes, k_axes=k.axes, v_axes=v.axes,
                  q_at=q.index, k_at=k.index, v_at=v.index, shared=k.shared, seen=k.keys, blind=blind)
    return _Found(attrs, (q.value, k.value, v.value), last, (*scores.ops, *following, *q.ops, *k.ops, *v.ops), masks,
                  (TensorType("float32", mask),) if masks else ())


def _softmax_with_zeros(edit: Editor, readers: dict[str, list[Op]], softmax: Op, masks: Sequence[_Mask]) \
        -> tuple[list[Op], bool]:
    """Returns the softmax and the operators after it that choose between its result and zeros, and whether queries
    whose keys are all masked give zeros (the attribute `blind` of attention)."""
    if guard := _guard(edit, readers, softmax):
        return [softmax, *guard], True
    for choice in _reader(edit, readers, softmax, "where"):  # one or none
        blind = _is_zero_for_hidden_keys(edit, softmax, choice, masks)
        if blind or _has_no_effect(edit, softmax, choice):
            return [softmax, choice], blind
    return [softmax], False


def _with_last_two_swapped(axes: str) -> str:
    """Returns letters of axes in the order of a matrix that is transposed."""
    return axes[:-2] + axes[-1] + axes[-2]


def _reader(edit: Editor, readers: dict[str, list[Op]], op: Op, kind: str) -> list[Op]:
    """Returns a list of the only reader of an operator's result, if it is of this kind; else []."""
    (name,) = op.outputs
    found = readers.get(name, [])
    return [reader for reader in found if reader.kind == kind and edit.is_read_once(name)]


def _has_no_effect(edit: Editor, softmax: Op, choice: Op) -> bool:
    """Returns whether a where with a constant condition always gives the softmax."""
    (name,), array = softmax.outputs, edit.constants.get(choice.inputs[0])
    if array is None or edit.types[choice.outputs[0]] != edit.types[name]:
        return False
    return bool(array.all()) if choice.inputs[1] == name else not array.any()


def _is_zero_for_hidden_keys(edit: Editor, softmax: Op, choice: Op, masks: Sequence[_Mask]) -> bool:
    """Returns whether a where matches `_BLIND`: it gives 0 for queries whose keys the only mask hides, else the
    softmax."""
    match = _BLIND.match(edit, choice.outputs[0])
    if match is None or match[_SOFTMAX] != softmax.outputs[0]:
        return False
    zero, lowest = edit.constants[match[_ZERO]], edit.constants[match[_LOWEST]]
    reduce_attrs, rank = match.op(_HIGHEST).attrs, edit.types[match[_MASK]].rank
    return (edit.types[choice.outputs[0]] == edit.types[match[_SOFTMAX]] and not zero.any()
            and bool((lowest == -np.inf).all())
            and bool(reduce_attrs.keepdims) and [axis % rank for axis in reduce_attrs.axes] == [rank - 1]
            and [(mask.value, mask.forbidden) for mask in masks] == [(match[_MASK], None)])


def _guard(edit: Editor, readers: dict[str, list[Op]], softmax: Op) -> tuple[Op, ...]:
    """Finds where(is_nan(softmax), 0, softmax), which PyTorch's exporter writes for queries whose keys are all masked.
    Returns both operators, or () if there are none. It gives zeros for NaN scores too; here their results are
    unspecified."""
    (name,) = softmax.outputs
    found = [match for op in readers.get(name, []) if (match := _GUARDED.match(edit, op.outputs[0])) is not None
             and match[_SOFTMAX] == name]
    if not found or len(readers[name]) != 2 or name in edit.graph.outputs \
            or edit.constants[found[0][_ZERO]].any() or edit.types[found[0][_GUARDED]] != edit.types[name]:
        return ()
    return found[0].op(_IS_NAN), found[0].op(_GUARDED)


def _is_untransposed_product(product: Op) -> bool:
    """Returns whether the left operand of a product is not transposed, and there is no third operand."""
    return not product.attrs.trans_a and len(product.inputs) == 2


def _scalar_factor(edit: Editor, op: Op) -> tuple[str, float] | None:
    """Returns the operand and the factor of a multiplication or division by a scalar constant; None for others."""
    for index in range(2 if op.kind == "mul" else 1):
        array = edit.constants.get(op.inputs[1 - index])
        if array is not None and array.size == 1 and edit.types[op.inputs[index]] == edit.types[op.outputs[0]]:
            value = float(array.reshape(-1)[0])
            if op.kind == "mul":
                return op.inputs[index], value
            return (op.inputs[index], 1 / value) if value else None
    return None


def _scores(edit: Editor, name: str, depth: int = MAX_DEPTH) -> _Scores | None:
    """Returns the scores that a value holds: a product, a scalar factor, and then masks; reshapes may precede the
    masks. Returns None if the value is computed in another way. depth: the number of operators that may be followed."""
    op = edit.producer(name)
    if op is None or not depth or not edit.is_read_once(name):
        return None
    if op.kind == "matmul":
        return _Scores(op, ops=(op,)) if _is_untransposed_product(op) else None
    if op.kind in ("mul", "div", "reshape"):
        source = (op.inputs[0], 1.0) if op.kind == "reshape" else _scalar_factor(edit, op)
        inner = _scores(edit, source[0], depth - 1) if source else None
        return None if inner is None or inner.masks else replace(
            inner, scale=inner.scale * source[1], ops=(*inner.ops, op))  # type: ignore[index]
    for source, mask in _additions(edit, op):
        inner = _scores(edit, source, depth - 1) if edit.types[source] == edit.types[name] else None
        if inner is not None:
            return replace(inner, masks=(*inner.masks, mask), ops=(*inner.ops, op))
    return None


def _additions(edit: Editor, op: Op) -> list[tuple[str, _Mask]]:
    """Returns the ways to read an operator as scores plus a mask."""
    if op.kind == "add":
        return [(a, _Mask(b)) for a, b in (op.inputs, op.inputs[::-1])]
    if op.kind != "where":
        return []
    condition, *both = op.inputs
    return [(source, _Mask(condition, float(edit.constants[number].reshape(-1)[0]), inverted))
            for inverted, (source, number) in enumerate((both, both[::-1]))
            if number in edit.constants and edit.constants[number].size == 1
            and float(edit.constants[number].reshape(-1)[0]) <= FORBIDDEN]


def _operands(edit: Editor, q: tuple[str, str], k: tuple[str, str], v: tuple[str, str]) \
        -> tuple[_Operand, _Operand, _Operand] | None:
    """Traces queries, keys and values, each given by its name and axes, to their source tensors. If the sources of keys
    and values differ in their extents, the operands of the products are used as they are; None if those differ too."""
    for keeps_views in (True, False):
        placed = (_trace_operand(edit, *q), _trace_operand(edit, *k, keeps_views=keeps_views),
                  _trace_operand(edit, *v, last="v", keeps_views=keeps_views))
        if None not in placed and _have_equal_extents(edit, *placed):  # type: ignore[arg-type]
            return placed  # type: ignore[return-value]
    return None


def _trace_operand(edit: Editor, name: str, axes: str, last: str = "", keeps_views: bool = False) -> _Operand | None:
    """Traces an operand through transposes, slices, and multiplications by a scalar to its source tensor.

    Args:
        name, axes: the operand and the letters of its axes.
        last: the axis whose elements have to be contiguous, for values, whose factor cannot be fused; "": any.
        keeps_views: the source may have more keys than are used, or fewer heads (for keys and values).
    """
    operand = found = _Operand(name, axes)
    for _ in range(MAX_DEPTH):
        if operand.axes.endswith(last):
            found = operand
        op = edit.producer(operand.value)
        further = _source(edit, op, operand, last) if op is not None else None
        if further is None and op is not None and keeps_views:
            further = _whole_source(edit, op, operand)
        if further is None:
            break
        once = (op,) if edit.is_read_once(operand.value) else ()
        operand = replace(further, ops=(*operand.ops, *once))
    return found if found.axes.endswith(last) else None


def _source(edit: Editor, op: Op, operand: _Operand, last: str) -> _Operand | None:
    """Returns an operand as a part of the tensor that its producer `op` reads; None if that is impossible."""
    if op.kind == "transpose":
        order = sorted(range(len(operand.axes)), key=lambda axis: op.attrs.perm[axis])
        return replace(operand, value=op.inputs[0], axes="".join(operand.axes[axis] for axis in order))
    if op.kind == "widen_cache":
        return replace(operand, value=op.inputs[0])
    if op.kind in ("mul", "div") and not last and (factor := _scalar_factor(edit, op)):
        return replace(operand, value=factor[0], factor=operand.factor * factor[1])
    found = _RESHAPED_TWICE.match(edit, operand.value)
    if found is not None and edit.types[found[_X]] == edit.types[operand.value]:
        return replace(operand, value=found[_X])
    if "c" in operand.axes:
        return None
    if op.kind == "gather" and op.inputs[1] in edit.constants and edit.types[op.inputs[1]].rank == 0:
        axis, index = op.attrs.axis, int(edit.constants[op.inputs[1]])
        extent = edit.types[op.inputs[0]].shape[axis]
        index = index + extent if index < 0 and isinstance(extent, int) else index
        return _indexed(operand, op.inputs[0], axis, index)
    found = _CUT_AND_RESHAPED.match(edit, operand.value)
    if found is not None and (cut := _only_cut(edit, found.op(_CUT))) is not None:
        shape, (axis, first, count, _) = edit.types[found[_X]].shape, cut
        if count == 1 and (*shape[:axis], *shape[axis + 1:]) == edit.types[operand.value].shape:
            return _indexed(operand, found[_X], axis, first)
    return None


def _only_cut(edit: Editor, op: Op) -> tuple[int, Dim, Dim, int] | None:
    """Returns the axis, first index, number of elements and step of a slice along one axis; None along several."""
    cuts = [(axis, *cut) for axis, cut in slice_axes(op.attrs, edit.types[op.inputs[0]].shape).items()]
    return cuts[0] if len(cuts) == 1 else None


def _whole_source(edit: Editor, op: Op, operand: _Operand) -> _Operand | None:
    """Returns an operand as a part of the tensor that its producer `op` slices, if it takes the first keys, or whose
    heads it repeats; else None."""
    if op.kind == "slice" and operand.keys is None:
        axis, first, count, step = _only_cut(edit, op) or (0, None, 0, 0)
        is_begin = first == 0 and step == 1 and operand.axes[axis] == "t"
        return replace(operand, value=op.inputs[0], keys=count) if is_begin else None
    found = _REPEATED.match(edit, operand.value) if "n" in operand.axes and operand.shared == 1 else None
    if found is None:
        return None
    head_axis, (narrow, single, wide, repeated) = operand.axes.index("n"), (
        edit.types[name].shape for name in (found[_X], found[_SINGLE], found[_WIDE], operand.value))
    front, heads, following = narrow[:head_axis], narrow[head_axis:head_axis + 1], narrow[head_axis + 1:]
    shared = wide[head_axis + 1] if len(wide) == len(narrow) + 1 else 0
    if not isinstance(shared, int) or single != (*front, *heads, 1, *following) \
            or wide != (*front, *heads, shared, *following) or repeated != (*front, heads[0] * shared, *following):
        return None
    return replace(operand, value=found[_X], shared=shared)


def _indexed(operand: _Operand, value: str, axis: int, index: Dim) -> _Operand | None:
    """Returns an operand as one index of an additional axis c of `value`; None if the index is unknown or negative."""
    if not isinstance(index, int) or index < 0:
        return None
    return replace(operand, value=value, axes=operand.axes[:axis] + "c" + operand.axes[axis:], index=index)


def _have_equal_extents(edit: Editor, q: _Operand, k: _Operand, v: _Operand) -> bool:
    """Returns whether each axis has the same extent in all operands, so that no operand is broadcast, and the dtypes
    fit the fused operator."""
    types = [edit.types[operand.value] for operand in (q, k, v)]
    dtypes = [type_.dtype for type_ in types]
    if (k.keys, k.shared) != (v.keys, v.shared) \
            or dtypes[0] != "float32" or dtypes[1] != dtypes[2] or dtypes[1] not in CACHE_DTYPES:
        return False
    extents: dict[str, Dim] = {}
    for operand, type_ in zip((q, k, v), types, strict=True):
        for axis, dim in zip(operand.axes, numbers_shape(type_.shape, type_.dtype), strict=True):
            extent = dim * operand.shared if axis == "n" else dim  # heads count as often as queries share them
            if extents.setdefault(axis, extent) != extent:
                return False
    return True


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


def _simplify_masks(edit: Editor, masks: tuple[_Mask, ...], shape: Sequence[Dim]) -> tuple[tuple[_Mask, ...], bool]:
    """Returns the masks that hide something, and whether there is one and it is causal (then no mask is returned).
    shape: the shape of scores that may be causal."""
    remaining = []
    for mask in masks:
        array = _mask_values(edit, mask)
        if array is None or array.any():
            remaining.append(mask)
    array = _mask_values(edit, remaining[0]) if len(remaining) == 1 and len(shape) >= 2 else None
    if array is None or array.shape[-2:] != tuple(shape[-2:]) or array.size != array.shape[-2] * array.shape[-1]:
        return tuple(remaining), False
    queries, keys = array.shape[-2:]
    visible = np.tri(queries, keys, keys - queries, dtype=bool)
    array = array.reshape(queries, keys)
    causal = queries <= keys and not array[visible].any() and bool((array[~visible] <= FORBIDDEN).all())
    return ((), True) if causal else (tuple(remaining), False)


def _mask_values(edit: Editor, mask: _Mask) -> np.ndarray | None:
    """Returns the values that a constant mask adds to scores; None if it is not constant."""
    array = edit.constants.get(mask.value)
    if array is None or mask.forbidden is None:
        return array
    allowed = np.logical_not(array) if mask.inverted else array
    return np.where(allowed, np.float32(0), np.float32(mask.forbidden))


def _mask_shape(shapes: Sequence[Sequence[Dim]], scores: Sequence[Dim], product: Sequence[Dim], groups: int) \
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


def _mask(edit: Editor, found: _Found) -> tuple[str, ...]:
    """Adds operators that sum the masks. Returns the sum as an operand; () if there are no masks."""
    total = ""
    for mask in found.masks:
        value = _mask_addend(edit, found.last, mask)
        total = _added(edit, found.last, "add", (total, value)) if total else value
    if not total:
        return ()
    (type_,) = found.mask_type
    if edit.types[total] == type_:
        return (total,)
    if total in edit.constants:
        return (edit.constant(total, edit.constants[total].reshape(type_.shape)),)  # type: ignore[arg-type]
    return (_added(edit, found.last, "reshape", (total,), shape=type_.shape),)


def _mask_addend(edit: Editor, last: Op, mask: _Mask) -> str:
    """Returns the numbers that a mask adds to scores, and adds operators for them if necessary."""
    array = _mask_values(edit, mask)
    if mask.forbidden is None:
        return mask.value
    if array is not None:
        return edit.constant(f"{mask.value}.mask", array)
    both = [edit.constant(f"{mask.value}.{what}", np.array(number, np.float32))
            for what, number in (("allowed", 0), ("forbidden", mask.forbidden))]
    return _added(edit, last, "where", (mask.value, *(both[::-1] if mask.inverted else both)))


def _added(edit: Editor, last: Op, kind: str, operands: tuple[str, ...], **attrs) -> str:
    """Adds an operator before `last` and returns its result."""
    value = edit.result(f"{last.outputs[0]}.mask", kind, Attrs(attrs), operands)
    edit.add_before(last, Op(kind, Attrs(attrs), operands, (value,), origin=last.origin))
    return value
