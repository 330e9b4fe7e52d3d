# SPDX-License-Identifier: Apache-2.0
"""Traces the queries, keys and values of attention to the tensors of which they are parts.

An operand of a matrix product is often computed from another tensor: by transposes, by a multiplication with a number,
as one index of packed queries, keys and values, as the first keys of a KV cache, as the keys of a ring buffer, or as
heads that are repeated. The fused operator reads that tensor directly.

Letters of axes: b batch, n heads, s queries, t keys, h elements of a query or key, v elements of a value, c operands
that are packed into one tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.dims import Dim
from ....ir.graph import Op
from ....ops.cache_rows import CACHE_DTYPES, RING_BLOCK, numbers_shape
from ....ops.rules import slice_axes
from ...edit import Editor
from ...match import is_const, is_op, wildcard

#: The largest number of operators that are followed before a product.
_MAX_DEPTH = 8

_X = wildcard()
_SLICE = is_op("slice", _X)
_RESHAPED_SLICE = is_op("reshape", _SLICE)
_RESHAPE = is_op("reshape", _X)
#: If the second result has the type of the first operand, the two reshapes cancel.
_RESHAPED_TWICE = is_op("reshape", _RESHAPE)
_EXPANDED = is_op("expand", _RESHAPE)
_ONE, _ROWS = is_const(1), is_const(1)
_COUNTED = is_op("expand", _ONE)
_TOKENS = is_op("cumsum", _COUNTED)
#: The rows of a ring buffer in the order of their tokens: of 0, 1, …, modulo the number of rows.
_RING = is_op("gather", _X, is_op("mod", _TOKENS, _ROWS))
#: Repeated heads: a reshape adds an axis of extent 1 after the heads, expand lengthens it, a reshape merges both axes.
_REPEATED = is_op("reshape", _EXPANDED)


@dataclass(frozen=True)
class Operand:
    """An operand of attention as a part of a source tensor.

    value, axes: the source tensor, and its axes as letters.
    index: the index on the axis c.
    factor: the number by which the source is multiplied.
    ops: the operators between the source and the product, which attention replaces.
    keys: the number of keys that are used along the axis t; None for all.
    shared: the number of heads of queries that share a head of this operand.
    wraps: the source is a ring buffer for these keys.
    """

    value: str
    axes: str
    index: int = 0
    factor: float = 1.0
    ops: tuple[Op, ...] = ()
    keys: Dim | None = None
    shared: int = 1
    wraps: bool = False


def trace_operands(edit: Editor, q: tuple[str, str], k: tuple[str, str], v: tuple[str, str]) \
        -> tuple[Operand, Operand, Operand] | None:
    """Traces queries, keys and values, each given by its name and axes, to their source tensors.

    Attention reads the first keys of a KV cache, and repeated heads, from the whole tensor. If the whole tensors do not
    fit each other, the slice and the repetition stay outside attention; None if the operands do not fit even then.
    """
    for reads_whole in (True, False):
        traced_q, traced_k = _trace(edit, *q), _trace(edit, *k, reads_whole=reads_whole)
        traced_v = _trace(edit, *v, reads_whole=reads_whole)
        if traced_q and traced_k and traced_v and _have_equal_extents(edit, traced_q, traced_k, traced_v):
            return traced_q, traced_k, traced_v
    return None


def scalar_factor(edit: Editor, op: Op) -> tuple[str, float] | None:
    """Returns the operand and the factor of a multiplication or division by a scalar constant; None for others."""
    for index in range(2 if op.kind == "mul" else 1):
        array = edit.constants.get(op.inputs[1 - index])
        if array is not None and array.size == 1 and edit.types[op.inputs[index]] == edit.types[op.outputs[0]]:
            value = float(array.reshape(-1)[0])
            if op.kind == "mul":
                return op.inputs[index], value
            return (op.inputs[index], 1 / value) if value else None
    return None


def _trace(edit: Editor, name: str, axes: str, reads_whole: bool = False) -> Operand | None:
    """Traces an operand to its source tensor; None if there is none that attention can read.

    Args:
        name, axes: the operand and the letters of its axes.
        reads_whole: also trace past a slice of the first keys, and past the repetition of heads, to the whole tensor.
    """
    operand, found = Operand(name, axes), None
    for _ in range(_MAX_DEPTH):
        # Kernels read the elements of a value (v) as vectors, so these have to be contiguous.
        if "v" not in axes or operand.axes.endswith("v"):
            found = operand
        op = edit.producer(operand.value)
        further = _source(edit, op, operand) if op is not None else None
        if further is None and op is not None and reads_whole:
            further = _whole_source(edit, op, operand)
        if further is None:
            break
        replaced = (op,) if op is not None and edit.is_read_once(operand.value) else ()
        operand = replace(further, ops=(*operand.ops, *replaced))
    return found


def _source(edit: Editor, op: Op, operand: Operand) -> Operand | None:
    """Returns an operand as a part of the tensor that its producer `op` reads; None if that is impossible."""
    if op.kind == "transpose":
        order = sorted(range(len(operand.axes)), key=lambda axis: op.attrs.perm[axis])
        return replace(operand, value=op.inputs[0], axes="".join(operand.axes[axis] for axis in order))
    if op.kind == "widen_cache":
        return replace(operand, value=op.inputs[0])
    # A factor of queries or keys becomes one of the scores; one of values would need a multiplication of its own.
    if op.kind in ("mul", "div") and "v" not in operand.axes and (factor := scalar_factor(edit, op)):
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
    found = _RESHAPED_SLICE.match(edit, operand.value)
    if found is not None and (cut := _only_cut(edit, found.op(_SLICE))) is not None:
        shape, (axis, first, count, _) = edit.types[found[_X]].shape, cut
        if count == 1 and (*shape[:axis], *shape[axis + 1:]) == edit.types[operand.value].shape:
            return _indexed(operand, found[_X], axis, first)
    return None


def _only_cut(edit: Editor, op: Op) -> tuple[int, Dim, Dim, int] | None:
    """Returns the axis, first index, number of elements and step of a slice along one axis; None along several."""
    cuts = [(axis, *cut) for axis, cut in slice_axes(op.attrs, edit.types[op.inputs[0]].shape).items()]
    return cuts[0] if len(cuts) == 1 else None


def _indexed(operand: Operand, value: str, axis: int, index: Dim) -> Operand | None:
    """Returns an operand as one index of an additional axis c of `value`; None if the index is unknown or negative."""
    if not isinstance(index, int) or index < 0:
        return None
    return replace(operand, value=value, axes=operand.axes[:axis] + "c" + operand.axes[axis:], index=index)


def _whole_source(edit: Editor, op: Op, operand: Operand) -> Operand | None:
    """Returns an operand as a part of the tensor whose first keys its producer `op` takes, whose keys it gathers from a
    ring buffer, or whose heads are repeated; None for others."""
    if op.kind == "slice" and operand.keys is None:
        cut = _only_cut(edit, op)
        if cut is None:
            return None
        axis, first, count, step = cut
        is_begin = first == 0 and step == 1 and operand.axes[axis] == "t"
        return replace(operand, value=op.inputs[0], keys=count) if is_begin else None
    if op.kind == "gather":
        return _ring_source(edit, op, operand)
    found = _REPEATED.match(edit, operand.value) if "n" in operand.axes and operand.shared == 1 else None
    if found is None:
        return None
    source, with_axis, expanded, repeated = (
        edit.types[name].shape for name in (found[_X], found[_RESHAPE], found[_EXPANDED], operand.value))
    head_axis = operand.axes.index("n")
    front, heads, following = source[:head_axis], source[head_axis:head_axis + 1], source[head_axis + 1:]
    shared = expanded[head_axis + 1] if len(expanded) == len(source) + 1 else 0
    if not isinstance(shared, int) or with_axis != (*front, *heads, 1, *following) \
            or expanded != (*front, *heads, shared, *following) or repeated != (*front, heads[0] * shared, *following):
        return None
    return replace(operand, value=found[_X], shared=shared)


def _ring_source(edit: Editor, op: Op, operand: Operand) -> Operand | None:
    """Returns an operand as the keys of a ring buffer, from which its producer `op` takes them; None for others."""
    found = _RING.match(edit, operand.value) if operand.keys is None else None
    if found is None or operand.axes[op.attrs.axis] != "t" or edit.constants[found[_ONE]].item() != 1 \
            or not found.op(_TOKENS).attrs.exclusive or found.op(_TOKENS).attrs.reverse:
        return None
    rows, keys = edit.types[found[_X]].shape[op.attrs.axis], edit.types[op.inputs[1]].shape
    if rows != edit.constants[found[_ROWS]].item() or rows % RING_BLOCK or len(keys) != 1:
        return None
    return replace(operand, value=found[_X], keys=keys[0], wraps=True)


def _have_equal_extents(edit: Editor, q: Operand, k: Operand, v: Operand) -> bool:
    """Returns whether each axis has the same extent in all operands, so that no operand is broadcast, and the dtypes
    fit the fused operator."""
    types = [edit.types[operand.value] for operand in (q, k, v)]
    dtypes = [type_.dtype for type_ in types]
    if (k.keys, k.shared, k.wraps) != (v.keys, v.shared, v.wraps) \
            or dtypes[0] != "float32" or dtypes[1] != dtypes[2] or dtypes[1] not in CACHE_DTYPES:
        return False
    extents: dict[str, Dim] = {}
    for operand, type_ in zip((q, k, v), types, strict=True):
        for axis, dim in zip(operand.axes, numbers_shape(type_.shape, type_.dtype), strict=True):
            extent = dim * operand.shared if axis == "n" else dim  # heads count as often as queries share them
            if extents.setdefault(axis, extent) != extent:
                return False
    return True
