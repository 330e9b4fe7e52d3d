# SPDX-License-Identifier: Apache-2.0
"""Recognises Relax operators in TIR functions, since TVM's importers write some clips, pads and tiles as loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax, tirx

from ..tir.values import is_deep
from ..tvm_versions import TENSOR_READ, Call, buffer_of, is_buffer, parameters_of

#: Binary TIR expressions -> the Relax operator of each.
_BINARY = {"Add": relax.op.add, "Sub": relax.op.subtract, "Mul": relax.op.multiply, "Div": relax.op.divide,
           "Max": relax.op.maximum, "Min": relax.op.minimum}


@dataclass(frozen=True)
class _Store:
    """The only statement of a TIR function: a store buffer[axes] = value inside loops over the whole buffer.

    value: the stored expression. axes: the loop variables. shape: the buffer's extents. operands: the buffers that the
    function reads -> the arguments of the call.
    """

    value: object
    axes: tuple
    shape: tuple[int, ...]
    operands: Mapping


def as_operator(function, arguments: Sequence) -> Call | None:
    """Returns the call of a TIR function as a Relax operator; None if it is not recognised."""
    store = _single_store(function, arguments)
    if store is None or is_deep(store.value):
        return None
    for recognize in (_as_pad, _as_elementwise, _as_gather):
        call = recognize(store)
        if call is not None:
            return call
    return None


def _single_store(function, arguments: Sequence) -> _Store | None:
    """Returns the store that is the only statement of a TIR function, whose last parameter is the result; None for
    other functions."""
    if not isinstance(function, tirx.PrimFunc) or len(function.params) != len(arguments) + 1:
        return None
    buffers = parameters_of(function)
    if not all(map(is_buffer, buffers)):
        return None
    statement, block = function.body, None
    while type(statement).__name__ in ("SBlockRealize", "SBlock", "For"):
        if type(statement).__name__ == "SBlockRealize":
            statement = statement.block
            if statement.init is not None or len(statement.alloc_buffers):
                return None
            block = statement
        statement = statement.body
    if type(statement).__name__ != "BufferStore" or block is None or not statement.buffer.same_as(buffers[-1]):
        return None
    axes = tuple(statement.indices)
    ranges = [(variable.var, variable.dom.min, variable.dom.extent) for variable in block.iter_vars]
    shape = tuple(buffers[-1].shape)
    if len(ranges) != len(shape) or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return None
    for axis, (variable, first, extent), size in zip(axes, ranges, shape, strict=True):
        if not axis.same_as(variable) or int(first) != 0 or int(extent) != int(size):
            return None
    return _Store(statement.value, axes, tuple(map(int, shape)), dict(zip(buffers[:-1], arguments, strict=True)))


def _argument(store: _Store, load):
    """Returns the argument whose buffer a load reads."""
    return next((value for buffer, value in store.operands.items() if buffer.same_as(buffer_of(load))), None)


def _as_elementwise(store: _Store):
    """Recognises arithmetic whose operands are read at the indices of the store, or are scalars."""
    value = store.value
    kind = type(value).__name__
    if kind == TENSOR_READ:
        extents = tuple(buffer_of(value).shape)
        reads_same_index = len(value.indices) == len(store.axes) and all(
            index.same_as(axis) and int(extent) == size
            for index, axis, extent, size in zip(value.indices, store.axes, extents, store.shape, strict=True))
        return _argument(store, value) if reads_same_index or len(extents) == 0 else None
    if kind in _BINARY:
        operands = [_as_elementwise(_Store(part, store.axes, store.shape, store.operands))
                    for part in (value.a, value.b)]
        return None if None in operands else _BINARY[kind](*operands)
    return None


def _as_pad(store: _Store):
    """Recognises a pad: if_then_else(all axes within x, x[axes - before], constant)."""
    value = store.value
    if not getattr(getattr(value, "op", None), "name", "").endswith(".if_then_else"):
        return None
    condition, load, fill = value.args
    if type(load).__name__ != TENSOR_READ or len(load.indices) != len(store.axes) \
            or not isinstance(fill, (tirx.FloatImm, tirx.IntImm)):
        return None
    before, after = [], []
    for index, axis, size, extent in zip(load.indices, store.axes, store.shape, buffer_of(load).shape, strict=True):
        offset = _offset(index, axis)
        if offset is None or not isinstance(extent, tirx.IntImm):
            return None
        before.append(offset)
        after.append(size - int(extent) - offset)
    # The condition must test each padded side. It may also test what is true for all indices of the result.
    expected = set()
    for axis, begin, end, size in zip(store.axes, before, after, store.shape, strict=True):
        expected |= {(str(axis), ">=", begin)} if begin else set()
        expected |= {(str(axis), "<", size - end)} if end else set()
    always_true = {(str(axis), ">=", 0) for axis in store.axes}
    always_true |= {(str(axis), "<", size) for axis, size in zip(store.axes, store.shape, strict=True)}
    bounds = _bounds(condition)
    if bounds is None or bounds - always_true != expected or min(before + after) < 0:
        return None
    widths = [width for pair in zip(before, after, strict=True) for width in pair]
    return relax.op.nn.pad(_argument(store, load), widths, pad_mode="constant", pad_value=float(fill.value))


#: pad_mode of `nn.pad` -> that of numpy. An axis that is not padded fits each of them.
_NUMPY_PAD_MODES = {"replicate": "edge", "reflect": "reflect"}


def _as_gather(store: _Store):
    """Recognises a tile, and a pad that repeats the edge or mirrors the operand, by the indices that each axis is read
    at."""
    load = store.value
    if type(load).__name__ != TENSOR_READ or len(load.indices) != len(store.axes):
        return None
    extents = [int(extent) if isinstance(extent, tirx.IntImm) else 0 for extent in buffer_of(load).shape]
    indices = [_indices(*row) for row in zip(load.indices, store.axes, store.shape, strict=True)]
    if 0 in extents or any(recognized is None for recognized in indices):
        return None
    if all(np.array_equal(recognized, np.arange(len(recognized)) % extent) and len(recognized) % extent == 0
           for recognized, extent in zip(indices, extents, strict=True)):
        repeats = [len(recognized) // extent for recognized, extent in zip(indices, extents, strict=True)]
        return relax.op.tile(_argument(store, load), repeats)
    for mode, name in _NUMPY_PAD_MODES.items():
        widths = [_pad_widths(recognized, extent, name) for recognized, extent in zip(indices, extents, strict=True)]
        if None not in widths:
            return relax.op.nn.pad(_argument(store, load), sum(widths, start=()), pad_mode=mode)
    return None


def _pad_widths(indices: np.ndarray, extent: int, mode: str) -> tuple[int, int] | None:
    """Returns the pads before and after an axis of this extent for which numpy's pad in this mode gives these indices;
    None if there are none."""
    for before in map(int, np.flatnonzero(indices[:max(len(indices) - extent + 1, 0)] == 0)):
        widths = (before, len(indices) - extent - before)
        if np.array_equal(indices[before:before + extent], np.arange(extent)) \
                and (mode != "reflect" or max(widths) < extent) \
                and np.array_equal(indices, np.pad(np.arange(extent), widths, mode)):
            return widths
    return None


#: TIR expressions of two operands -> numpy's functions of integers.
_NUMPY_FUNCTIONS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum,
            "FloorDiv": np.floor_divide, "FloorMod": np.mod, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
            "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal, "And": np.logical_and, "Or": np.logical_or}


def _indices(index, axis, size: int) -> np.ndarray | None:
    """Returns the values of an index for each index of its axis, [size]; None if it depends on anything else."""
    value = _evaluate(index, axis, np.arange(size))
    return None if value is None else np.broadcast_to(value, size)


def _evaluate(expr, axis, indices: np.ndarray) -> np.ndarray | None:
    """Returns the values of an expression for these values of the loop variable `axis`; None if it depends on anything
    else."""
    if expr.same_as(axis):
        return indices
    if isinstance(expr, tirx.IntImm):
        return np.asarray(int(expr))
    if getattr(getattr(expr, "op", None), "name", "").endswith(".if_then_else"):
        operands, function = expr.args, np.where
    elif type(expr).__name__ in _NUMPY_FUNCTIONS:
        operands, function = (expr.a, expr.b), _NUMPY_FUNCTIONS[type(expr).__name__]
    else:
        return None
    values = [_evaluate(operand, axis, indices) for operand in operands]
    return None if any(value is None for value in values) else function(*values)


def _offset(index, axis) -> int | None:
    """Returns k for an index of the form `axis - k`, None for another."""
    if index.same_as(axis):
        return 0
    if type(index).__name__ == "Sub" and index.a.same_as(axis) and isinstance(index.b, tirx.IntImm):
        return int(index.b)
    return None


def _bounds(condition) -> set | None:
    """Returns a conjunction of bounds as {(axis, ">=" or "<", number)}, None for another condition."""
    kind = type(condition).__name__
    if kind == "And":
        parts = _bounds(condition.a), _bounds(condition.b)
        return None if None in parts else parts[0] | parts[1]
    if kind == "LE" and isinstance(condition.a, tirx.IntImm):
        return {(str(condition.b), ">=", int(condition.a))}
    if kind == "GE" and isinstance(condition.b, tirx.IntImm):
        return {(str(condition.a), ">=", int(condition.b))}
    if kind == "LT" and isinstance(condition.b, tirx.IntImm):
        return {(str(condition.a), "<", int(condition.b))}
    return None
