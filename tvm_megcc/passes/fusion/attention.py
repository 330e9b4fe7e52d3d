# SPDX-License-Identifier: Apache-2.0
"""Fuses attention, which importers write as two products with a softmax between them, into one operator that keeps no
scores in memory.
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

FORBIDDEN = -1e30
"""Masks add at most this number to scores that must not count: the sum keeps nothing of the score."""

FAR = 8
"""Operators that are looked at between a product and the softmax, or before a product."""

_X, _SOFTMAX, _MASK, _ZERO, _LOWEST = wildcard(), wildcard(), wildcard(), is_const(), is_const()
_HIGHEST = is_op("reduce_max", _MASK)
#: ONNX's function from opset 23 on: where(equal(reduce_max(mask), -inf), 0, softmax), with zeros where all keys are
#: masked.
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
    """Fuses softmax(number * q kᵀ + masks) v and the transposes around it, where that lowers the cost. With
    `--reproducible` it always fuses, because all CPUs must compute the same."""
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
    return min((option.cost for option in options(site)[0]), default=0.0)


@dataclass(frozen=True)
class _Added:
    """A mask: numbers that are added or, with `forbidden`, a condition. It is true where scores stay, or, with
    `inverted`, where they do not."""

    value: str
    forbidden: float | None = None
    inverted: bool = False


@dataclass(frozen=True)
class _Scores:
    """A product with its factor and masks, and the operators that compute them."""

    product: Op
    scale: float = 1.0
    added: tuple[_Added, ...] = ()
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True)
class _Placed:
    """An operand in its source tensor: its axes as letters, its offset on an axis "c", its factor, and the operators
    after it.

    keys: the number of keys that are used along the axis t, None for all. shared: heads of queries that share one of
        its heads.
    """

    value: str
    axes: str
    at: int = 0
    factor: float = 1.0
    ops: tuple[Op, ...] = ()
    keys: Dim | None = None
    shared: int = 1


@dataclass(frozen=True)
class _Found:
    """A subgraph that becomes attention: its operands but the mask, its last operator, and all operators that it
    replaces.

    masks: each broadcasts to `scores`. mask_type: the type of their sum, () if there are none.
    """

    attrs: Attrs
    operands: tuple[str, ...]
    last: Op
    replaced: tuple[Op, ...]
    masks: tuple[_Added, ...]
    mask_type: tuple[TensorType, ...]


def _attention(edit: Editor, readers: dict[str, list[Op]], softmax: Op) -> _Found | None:
    shape = edit.types[softmax.outputs[0]].shape
    scores = _scores(edit, softmax.inputs[0])
    if scores is None or edit.types[softmax.inputs[0]].dtype != "float32" \
            or axis_of(softmax.attrs.axis, len(shape)) != len(shape) - 1:
        return None
    flat, rank = edit.types[scores.product.outputs[0]].shape, len(edit.types[scores.product.outputs[0]].shape)
    following, blind = [softmax], False
    for choice in _reader(edit, readers, softmax, "where"):
        blind = _is_for_the_blind(edit, softmax, choice, scores.added)
        following += [choice] if blind or _is_unmoved(edit, softmax, choice) else []
    if guard := _guard(edit, readers, softmax):
        blind, following = True, [softmax, *guard]
    if flat != shape:
        following += _reader(edit, readers, following[-1], "reshape")
    following += _reader(edit, readers, following[-1], "matmul")
    last = following[-1]
    if last.kind != "matmul" or last.inputs[0] != following[-2].outputs[0] or edit.types[last.inputs[0]].shape != flat \
            or not _plain(last) or not 2 <= rank <= 4:
        return None
    groups = _groups(flat, shape)
    keys = K if scores.product.attrs.trans_b else K[:2] + K[:1:-1]
    values = V[:2] + V[:1:-1] if last.attrs.trans_b else V
    product = scores.product.inputs
    found = _operands(edit, (product[0], Q[-rank:]), (product[1], keys[-rank:]), (last.inputs[1], values[-rank:]))
    if groups is None or found is None:
        return None
    q, k, v = found
    axes = Y[-rank:]
    transposed = _reader(edit, readers, last, "transpose") if groups == 1 else []
    if transposed and transposed[0].attrs.perm[-1] == rank - 1:
        axes, last = "".join(axes[axis] for axis in transposed[0].attrs.perm), transposed[0]
        following.append(last)
    masks, causal = _simplified(edit, scores.added, shape if groups == 1 else ())
    mask = _mask_shape([edit.types[mask_operand.value].shape for mask_operand in masks], shape, flat, groups)
    if mask is None:
        return None
    scale = scores.scale * q.factor * k.factor
    if not np.isfinite(scale):
        return None
    attrs = Attrs(scale=scale, causal=causal, groups=groups, y_axes=axes, q_axes=q.axes, k_axes=k.axes, v_axes=v.axes,
                  q_at=q.at, k_at=k.at, v_at=v.at, shared=k.shared, seen=k.keys, blind=blind)
    return _Found(attrs, (q.value, k.value, v.value), last, (*scores.ops, *following, *q.ops, *k.ops, *v.ops), masks,
                  (TensorType("float32", mask),) if masks else ())


def _reader(edit: Editor, readers: dict[str, list[Op]], op: Op, kind: str) -> list[Op]:
    """Returns the only reader of an operator's result, if it is of this kind."""
    (name,) = op.outputs
    found = readers.get(name, [])
    return [each for each in found if each.kind == kind and edit.is_read_once(name)]


def _is_unmoved(edit: Editor, softmax: Op, choice: Op) -> bool:
    """Returns whether a where with a constant condition always gives the softmax."""
    (name,), array = softmax.outputs, edit.constants.get(choice.inputs[0])
    if array is None or edit.types[choice.outputs[0]] != edit.types[name]:
        return False
    return bool(array.all()) if choice.inputs[1] == name else not array.any()


def _is_for_the_blind(edit: Editor, softmax: Op, choice: Op, masks: Sequence[_Added]) -> bool:
    """Returns whether a where gives 0 if the only mask hides all keys, else the softmax: ONNX's function from opset 23
    on,
    where(equal(reduce_max(mask, last), -inf), 0, softmax)."""
    found = _BLIND.match(edit, choice.outputs[0])
    if found is None or found[_SOFTMAX] != softmax.outputs[0]:
        return False
    zero, lowest = edit.constants[found[_ZERO]], edit.constants[found[_LOWEST]]
    most, rank = found.op(_HIGHEST).attrs, edit.types[found[_MASK]].rank
    return (edit.types[choice.outputs[0]] == edit.types[found[_SOFTMAX]] and not zero.any()
            and bool((lowest == -np.inf).all())
            and bool(most.keepdims) and [axis % rank for axis in most.axes] == [rank - 1]
            and [(mask.value, mask.forbidden) for mask in masks] == [(found[_MASK], None)])


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


def _plain(product: Op) -> bool:
    return not product.attrs.trans_a and len(product.inputs) == 2


def _number(edit: Editor, op: Op) -> tuple[str, float] | None:
    """Returns the operand of a product or quotient by one number, and that number as a factor."""
    for index in range(2 if op.kind == "mul" else 1):
        array = edit.constants.get(op.inputs[1 - index])
        if array is not None and array.size == 1 and edit.types[op.inputs[index]] == edit.types[op.outputs[0]]:
            value = float(array.reshape(-1)[0])
            return None if op.kind == "div" and value == 0 else (op.inputs[index],
                                                                 value if op.kind == "mul" else 1 / value)
    return None


def _scores(edit: Editor, name: str, far: int = FAR) -> _Scores | None:
    """Returns the product from which a value is computed by a factor and then masks; reshapes may precede the masks."""
    op = edit.producer(name)
    if op is None or not far or not edit.is_read_once(name):
        return None
    if op.kind == "matmul":
        return _Scores(op, ops=(op,)) if _plain(op) else None
    if op.kind in ("mul", "div", "reshape"):
        source = (op.inputs[0], 1.0) if op.kind == "reshape" else _number(edit, op)
        inner = _scores(edit, source[0], far - 1) if source else None
        return None if inner is None or inner.added else replace(
            inner, scale=inner.scale * source[1], ops=(*inner.ops, op))  # type: ignore[index]
    for source, added in _additions(edit, op):
        inner = _scores(edit, source, far - 1) if edit.types[source] == edit.types[name] else None
        if inner is not None:
            return replace(inner, added=(*inner.added, added), ops=(*inner.ops, op))
    return None


def _additions(edit: Editor, op: Op) -> list[tuple[str, _Added]]:
    """Returns the ways to read an operator as scores plus a mask."""
    if op.kind == "add":
        return [(a, _Added(b)) for a, b in (op.inputs, op.inputs[::-1])]
    if op.kind != "where":
        return []
    condition, *both = op.inputs
    return [(source, _Added(condition, float(edit.constants[number].reshape(-1)[0]), inverted))
            for inverted, (source, number) in enumerate((both, both[::-1]))
            if number in edit.constants and edit.constants[number].size == 1
            and float(edit.constants[number].reshape(-1)[0]) <= FORBIDDEN]


def _operands(edit: Editor, q: tuple[str, str], k: tuple[str, str], v: tuple[str, str]) \
        -> tuple[_Placed, _Placed, _Placed] | None:
    """Traces queries, keys and values, each given by its name and axes, to their sources. Keys and values must have the
    same capacity and heads; else they are taken as the products have them."""
    for keeps_views in (True, False):
        placed = (_placed(edit, *q), _placed(edit, *k, keeps_views=keeps_views),
                  _placed(edit, *v, last="v", keeps_views=keeps_views))
        if None not in placed and _agree(edit, *placed):  # type: ignore[arg-type]
            return placed  # type: ignore[return-value]
    return None


def _placed(edit: Editor, name: str, axes: str, last: str = "", keeps_views: bool = False) -> _Placed | None:
    """Traces an operand that is transposed, sliced, or multiplied by a number to its source.

    last: for values, which are not multiplied, the axis whose elements have to be contiguous. keeps_views: for keys and
        values, whose tensor may have more rows than are used, or fewer heads.
    """
    at = found = _Placed(name, axes)
    for _ in range(FAR):
        if at.axes.endswith(last):
            found = at
        op = edit.producer(at.value)
        further = _source(edit, op, at, last) if op is not None else None
        if further is None and op is not None and keeps_views:
            further = _kept(edit, op, at)
        if further is None:
            break
        once = (op,) if edit.is_read_once(at.value) else ()
        at = replace(further, ops=(*at.ops, *once))
    return found if found.axes.endswith(last) else None


def _source(edit: Editor, op: Op, at: _Placed, last: str) -> _Placed | None:
    if op.kind == "transpose":
        order = sorted(range(len(at.axes)), key=lambda axis: op.attrs.perm[axis])
        return replace(at, value=op.inputs[0], axes="".join(at.axes[axis] for axis in order))
    if op.kind == "widen_cache":
        return replace(at, value=op.inputs[0])
    if op.kind in ("mul", "div") and not last and (factor := _number(edit, op)):
        return replace(at, value=factor[0], factor=at.factor * factor[1])
    found = _RESHAPED_TWICE.match(edit, at.value)
    if found is not None and edit.types[found[_X]] == edit.types[at.value]:
        return replace(at, value=found[_X])
    if "c" in at.axes:
        return None
    if op.kind == "gather" and op.inputs[1] in edit.constants and edit.types[op.inputs[1]].rank == 0:
        axis, index = op.attrs.axis, int(edit.constants[op.inputs[1]])
        extent = edit.types[op.inputs[0]].shape[axis]
        index = index + extent if index < 0 and isinstance(extent, int) else index
        return _part(at, op.inputs[0], axis, index)
    found = _CUT_AND_RESHAPED.match(edit, at.value)
    if found is not None and (cut := _only_cut(edit, found.op(_CUT))) is not None:
        shape, (axis, first, count, _) = edit.types[found[_X]].shape, cut
        if count == 1 and (*shape[:axis], *shape[axis + 1:]) == edit.types[at.value].shape:
            return _part(at, found[_X], axis, first)
    return None


def _only_cut(edit: Editor, op: Op) -> tuple[int, Dim, Dim, int] | None:
    """Returns the axis, first element, number of elements and step of a slice along one axis."""
    cuts = [(axis, *cut) for axis, cut in slice_axes(op.attrs, edit.types[op.inputs[0]].shape).items()]
    return cuts[0] if len(cuts) == 1 else None


def _kept(edit: Editor, op: Op, at: _Placed) -> _Placed | None:
    """Returns the whole tensor if only its first rows are used, or its heads are repeated."""
    if op.kind == "slice" and at.keys is None:
        axis, first, count, step = _only_cut(edit, op) or (0, None, 0, 0)
        is_begin = first == 0 and step == 1 and at.axes[axis] == "t"
        return replace(at, value=op.inputs[0], keys=count) if is_begin else None
    found = _REPEATED.match(edit, at.value) if "n" in at.axes and at.shared == 1 else None
    if found is None:
        return None
    head_axis, (narrow, single, wide, whole) = at.axes.index("n"), (
        edit.types[name].shape for name in (found[_X], found[_SINGLE], found[_WIDE], at.value))
    front, heads, following = narrow[:head_axis], narrow[head_axis:head_axis + 1], narrow[head_axis + 1:]
    shared = wide[head_axis + 1] if len(wide) == len(narrow) + 1 else 0
    if not isinstance(shared, int) or single != (*front, *heads, 1, *following) \
            or wide != (*front, *heads, shared, *following) or whole != (*front, heads[0] * shared, *following):
        return None
    return replace(at, value=found[_X], shared=shared)


def _part(at: _Placed, value: str, axis: int, index: Dim) -> _Placed | None:
    if not isinstance(index, int) or index < 0:
        return None
    return replace(at, value=value, axes=at.axes[:axis] + "c" + at.axes[axis:], at=index)


def _agree(edit: Editor, q: _Placed, k: _Placed, v: _Placed) -> bool:
    """Returns whether each axis has one extent for all values of symbols, so that none is broadcast."""
    extents: dict[str, Dim] = {}
    operands = (q, k, v)
    dtypes = [edit.types[operand.value].dtype for operand in operands]
    return (k.keys, k.shared) == (v.keys, v.shared) \
        and dtypes[0] == "float32" and dtypes[1] == dtypes[2] and dtypes[1] in CACHE_DTYPES \
        and all(extents.setdefault(axis, dim * operand.shared if axis == "n" else dim)
                == (dim * operand.shared if axis == "n" else dim)
                for operand, dtype in zip(operands, dtypes, strict=True)
                for axis, dim in zip(operand.axes, numbers_shape(edit.types[operand.value].shape, dtype), strict=True))


def _groups(flat: Sequence[Dim], shape: Sequence[Dim]) -> int | None:
    """Returns the heads of queries that share a head of keys, if scores [b, heads, s, t] were computed as [b, heads of
    keys, groups * s, t]; else None."""
    if flat == shape:
        return 1
    if len(flat) != 4 or len(shape) != 4 or not isinstance(flat[1], int) or not isinstance(shape[1], int) \
            or not flat[1] or shape[1] % flat[1]:
        return None
    groups = shape[1] // flat[1]
    return groups if (flat[0], flat[2], flat[3]) == (shape[0], shape[2] * groups, shape[3]) else None


def _simplified(edit: Editor, masks: tuple[_Added, ...], shape: Sequence[Dim]) -> tuple[tuple[_Added, ...], bool]:
    """Returns the masks that hide something, and whether the only one is causal. shape: of scores that may be
    causal."""
    remaining = []
    for mask in masks:
        array = _known(edit, mask)
        if array is None or array.any():
            remaining.append(mask)
    array = _known(edit, remaining[0]) if len(remaining) == 1 and len(shape) >= 2 else None
    if array is None or array.shape[-2:] != tuple(shape[-2:]) or array.size != array.shape[-2] * array.shape[-1]:
        return tuple(remaining), False
    queries, keys = array.shape[-2:]
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    array = array.reshape(queries, keys)
    causal = queries <= keys and not array[seen].any() and bool((array[~seen] <= FORBIDDEN).all())
    return ((), True) if causal else (tuple(remaining), False)


def _known(edit: Editor, mask: _Added) -> np.ndarray | None:
    """Returns the values that a constant mask adds."""
    array = edit.constants.get(mask.value)
    if array is None or mask.forbidden is None:
        return array
    allowed = np.logical_not(array) if mask.inverted else array
    return np.where(allowed, np.float32(0), np.float32(mask.forbidden))


def _mask_shape(shapes: Sequence[Sequence[Dim]], scores: Sequence[Dim], flat: Sequence[Dim], groups: int) \
        -> tuple[Dim, ...] | None:
    """Returns the shape of the sum of masks as the operator takes it; () for none. Returns None if it is as large as
    the scores of several heads, or if its rows are repeated in an unsupported way."""
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
    return (summed[0], *flat[1:]) if summed[2] == scores[2] else None


def _mask(edit: Editor, found: _Found) -> tuple[str, ...]:
    """Returns the sum of the masks as one operand, () for none, and adds operators for it."""
    total = ""
    for mask in found.masks:
        value = _addend(edit, found.last, mask)
        total = _added(edit, found.last, "add", (total, value)) if total else value
    if not total:
        return ()
    (type_,) = found.mask_type
    if edit.types[total] == type_:
        return (total,)
    if total in edit.constants:
        return (edit.constant(total, edit.constants[total].reshape(type_.shape)),)  # type: ignore[arg-type]
    return (_added(edit, found.last, "reshape", (total,), shape=type_.shape),)


def _addend(edit: Editor, last: Op, mask: _Added) -> str:
    array = _known(edit, mask)
    if mask.forbidden is None:
        return mask.value
    if array is not None:
        return edit.constant(f"{mask.value}.mask", array)
    both = [edit.constant(f"{mask.value}.{what}", np.array(number, np.float32))
            for what, number in (("allowed", 0), ("forbidden", mask.forbidden))]
    return _added(edit, last, "where", (mask.value, *(both[::-1] if mask.inverted else both)))


def _added(edit: Editor, last: Op, kind: str, operands: tuple[str, ...], **attrs) -> str:
    value = edit.result(f"{last.outputs[0]}.mask", kind, Attrs(attrs), operands)
    edit.add_before(last, Op(kind, Attrs(attrs), operands, (value,), origin=last.origin))
    return value
