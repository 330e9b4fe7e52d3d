# SPDX-License-Identifier: Apache-2.0
"""Removes transposes and reshapes around an operator that moved an axis for the source framework only."""

from __future__ import annotations

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ..edit import Editor
from ..match import Match, Operation, is_op, wildcard

_X, _ROW_INDICES, _UPDATES = wildcard(), wildcard(), wildcard()
_TRANSPOSED = is_op("transpose", _X)
_WRITE = is_op("scatter_nd", _TRANSPOSED, _ROW_INDICES, _UPDATES, once=True)
#: transpose(scatter_nd(transpose(x, p), rows, updates), q).
_WRITTEN = is_op("transpose", _WRITE)


#: Operators along one axis (attribute `axis`), which may be any axis, and whose result has the operand's shape.
ALONG_AXIS = ("softmax", "log_softmax")


def _around(kind: str) -> tuple[Operation, Operation, Operation]:
    """Returns the patterns of `last(along(before(x)))`, where `before` and `last` are operators of this kind and
    `along` works along an axis. The patterns are in the order last, along, before."""
    before = is_op(kind, _X)
    along = is_op(ALONG_AXIS, before, once=True)
    return is_op(kind, along), along, before


_AROUND = {kind: _around(kind) for kind in ("transpose", "reshape")}


def absorb_transposes(graph: Graph, context: Context) -> Graph:
    """Removes pairs of inverse reshapes or transposes around an operator along an axis:

    reshape(f(reshape(x), last), shape of x) → f(x, last) if the last extent stays;
    transpose(f(transpose(x, p), axis), q) → f(x, p[axis]) if q is the inverse of p; also around scatter_nd.
    """
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind not in _AROUND:
            continue
        last, along, before = _AROUND[op.kind]
        if (match := last.match(edit, op.outputs[0])) is not None:
            axis = _AXIS_WITHOUT[op.kind](graph, match.op(before), match.op(along), op)
            if axis is not None:
                edit.replace(op, match.op(along).with_(attrs=Attrs(match.op(along).attrs, axis=axis),
                                                       inputs=(match[_X],), outputs=op.outputs))
        elif (match := _WRITTEN.match(edit, op.outputs[0])) is not None:
            _scatter_in_place(edit, match, op)
    return edit.finish()


def _transposed_axis(graph: Graph, before: Op, along: Op, op: Op) -> int | None:
    """Returns the axis of `along` without the transposes `before` and `op`; None if these are not inverse."""
    return before.attrs.perm[along.attrs.axis] if _are_inverse(before, op) else None


def _are_inverse(before: Op, op: Op) -> bool:
    """Returns whether the transpose `op` undoes the transpose `before`."""
    perm = before.attrs.perm
    return [perm[axis] for axis in op.attrs.perm] == list(range(len(perm)))


def _scatter_in_place(edit: Editor, match: Match, op: Op) -> None:
    """Rewrites transpose(scatter_nd(transpose(x, p), rows [n, 1], updates), q) → scatter_elements(x, …, axis=p[0]).
    Exporters write `x[:, :, rows] = updates` so. Then x is not transposed, and not copied if it is a state."""
    x, row_indices, updates = match[_X], match[_ROW_INDICES], match[_UPDATES]
    before, write = match.op(_TRANSPOSED), match.op(_WRITE)
    indices_type = edit.types[row_indices]
    are_rows = indices_type.rank == 2 and indices_type.shape[1] == 1
    # Constants were folded at import, so a transpose or reshape of a constant would be computed in each run.
    if not are_rows or not _are_inverse(before, op) or {row_indices, updates} & edit.constants.keys():
        return
    axis, count, name = before.attrs.perm[0], indices_type.shape[0], write.outputs[0]
    shape = tuple(count if i == axis else extent for i, extent in enumerate(edit.types[x].shape))
    rewritten = []

    def emit(kind: str, attrs: Attrs, *inputs: str) -> str:
        result = edit.result(f"{name}.{kind}", kind, attrs, inputs)
        rewritten.append(Op(kind, attrs, inputs, (result,), origin=write.origin))
        return result

    source = _TRANSPOSED.match(edit, updates)
    rows = source[_X] if source is not None and source.op(_TRANSPOSED).attrs.perm == before.attrs.perm \
        else emit("transpose", Attrs(perm=op.attrs.perm), updates)
    along_axis = emit("reshape", Attrs(shape=tuple(count if i == axis else 1 for i in range(len(shape)))), row_indices)
    index = emit("expand", Attrs(shape=shape), along_axis)
    edit.replace(op, *rewritten, Op("scatter_elements", Attrs(axis=axis, reduction=write.attrs.reduction),
                                    (x, index, rows), op.outputs, origin=write.origin))


def _last_axis(graph: Graph, before: Op, along: Op, op: Op) -> int | None:
    """Returns the last axis if `along` works along it and the reshapes `before` and `op` leave it alone; else None."""
    shape, flat = graph.types[before.inputs[0]].shape, graph.types[along.outputs[0]].shape
    stays = shape and flat and shape[-1] == flat[-1] and along.attrs.axis % len(flat) == len(flat) - 1
    return len(shape) - 1 if stays and graph.types[op.outputs[0]].shape == shape else None


#: Kind of the operators before and after -> function that returns the axis without them; None if they must stay.
_AXIS_WITHOUT = {"transpose": _transposed_axis, "reshape": _last_axis}
