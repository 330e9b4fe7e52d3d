# SPDX-License-Identifier: Apache-2.0
"""Extents and choices that values decide: counts, run-time slices and shapes, branches and loops."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from ..draw import Undrawn, element_type
from .builder import Builder, Value
from .recipes import activation, channel_factor, residual, some_reduction
from .single import operator


def number(b: Builder, most: int = 4) -> Value:
    """A small count, [1] of int64: an input, or something that a run computes."""
    kind = b.one(("input", "input", "extent", "found", "least"))
    if kind == "input" or not b.values:
        lists = [[b.whole(0, most)] for _ in range(3)]
        return b.numbers(*lists)
    if kind == "extent":
        x = b.pick(range(1, 5), "fib")
        return b.op("Min", extent(b, x, b.whole(0, x.rank - 1)), b.ints(most))
    if kind == "found":
        x = b.pick(range(1, 5))
        total = b.reduced("ReduceSum", b.cast(b.op("Greater", x, b.real(0.5, x)), "int64"), range(x.rank))
        return b.op("Mod", b.reshaped(total, [1]), b.ints(most + 1))
    return b.op("Min", b.numbers([b.whole(0, 9)], [b.whole(0, 3)]), b.ints(most))


def extent(b: Builder, x: Value, axis: int) -> Value:
    """[1] of int64."""
    shape = b.op("Shape", x)
    if b.chance(0.5):
        return b.op("Gather", shape, b.ints(axis), axis=0)
    return b.sliced(shape, 0, axis, axis + 1)


def scalar(b: Builder, one: Value) -> Value:
    return b.reshaped(one, []) if b.chance(0.5) else b.axes_op("Squeeze", one, [0])


def found(b: Builder) -> Value:
    """NonZero, and what lies there."""
    x = b.pick(range(1, 4), "fib", fresh=0.2)
    where = b.op("Greater", x, b.real(b.one((0, 0.5, -1)) if x.kind == "f" else 0, x)) if x.kind != "b" and \
        b.chance(0.6) else x
    places = b.op("NonZero", where)
    kind = b.one(("places", "gather", "compress", "reals"))
    if kind == "gather":
        return b.op("GatherND", x, b.op("Transpose", places, perm=[1, 0]))
    if kind == "reals":
        return activation(b, b.cast(places, "float32"))
    if kind == "compress":
        flags = b.cast(where, "bool") if where.kind != "b" else where
        return b.op("Compress", x, b.reshaped(flags, [-1]))
    return b.op("Transpose", places, perm=[1, 0])


def compressed(b: Builder) -> Value:
    x = b.pick(range(1, 4), "fi", fresh=0.2)
    axis = b.whole(0, x.rank - 1)
    rest = [other for other in range(x.rank) if other != axis]
    total = b.reduced("ReduceSum", b.cast(x, "float32"), rest, 0) if rest else x
    return b.op("Compress", x, b.op("Greater", total, b.real(0, total)), axis=axis)


def counted_up(b: Builder) -> Value:
    start, step = b.whole(-2, 3), b.one((1, 1, 2, -1))
    dtype = b.one(("int64", "int64", "int32", "float32"))
    end = b.cast(scalar(b, number(b)), dtype)
    y = b.op("Range", b.const(np.array(start, dtype)), end, b.const(np.array(step, dtype)))
    return b.op("Mul", b.cast(y, "float32"), b.normal((1,), "float32")) if b.chance(0.6) else y


def best(b: Builder) -> Value:
    x = b.pick(range(1, 4), "f", fresh=0.2)
    axis = b.whole(0, x.rank - 1)
    count = b.op("Min", number(b), extent(b, x, axis))
    numbers, places = b.ops("TopK", x, count, outputs=2, axis=axis, largest=b.whole(0, 1))
    return numbers if b.chance(0.6) else b.op("GatherElements", x, places, axis=axis)


def sliced(b: Builder) -> Value:
    x = b.pick(range(1, 5), "fiub")
    axis = b.whole(0, x.rank - 1)
    start, end = (b.numbers([b.whole(-7, 7)], [b.whole(-7, 7)], [b.one((0, -1, 2**40, -2**40))]) if b.chance(0.5)
                  else number(b) for _ in range(2))
    step = b.ints(b.one((1, 1, 2, -1, -2)))
    return b.op("Slice", x, b.ints(b.one((0, 1))) if b.chance(0.3) else start, end, b.ints(axis), step)


def expanded(b: Builder) -> Value:
    x = b.pick(range(4), "fib")
    count = number(b)
    if b.chance(0.5):
        wide = b.axes_op("Unsqueeze", x, [0])
        return b.op("Expand", wide, b.op("Concat", count, b.ints(*[1] * x.rank), axis=0) if x.rank else count)
    repeats = [count if axis == 0 or b.chance(0.2) else b.ints(b.one((1, 1, 2))) for axis in range(x.rank)]
    if not repeats:
        raise Undrawn("rank")
    return b.op("Tile", x, b.op("Concat", *repeats, axis=0) if len(repeats) > 1 else repeats[0])


def reshaped(b: Builder) -> Value:
    """By a shape that is made of extents."""
    x = b.pick(range(1, 5), "fib", fresh=0.2)
    own = [extent(b, x, axis) for axis in range(x.rank)]
    if x.rank > 1 and b.chance(0.6):
        at = b.whole(0, x.rank - 2)
        own[at:at + 2] = [b.op("Mul", own[at], own[at + 1])]
    else:
        own.insert(b.whole(0, len(own)), b.ints(1))
    if b.chance(0.4):
        own[b.whole(0, len(own) - 1)] = b.ints(-1)
    return b.op("Reshape", x, b.op("Concat", *own, axis=0))


def padded(b: Builder) -> Value:
    b.since(11)
    x = b.pick(range(1, 4))
    ends = [number(b, 2) if b.chance(0.5) else b.ints(b.whole(0, 1)) for _ in range(2 * x.rank)]
    return b.op("Pad", x, b.op("Concat", *ends, axis=0), mode=b.one(("constant", "constant", "edge")))


def filled(b: Builder) -> Value:
    b.since(9)
    x = b.pick(range(1, 4), "fib")
    shape = b.op("Shape", x) if b.chance(0.5) else b.op("Concat", number(b), b.ints(b.whole(1, 3)), axis=0)
    dtype = b.one(("float32", "int64"))
    return b.op("ConstantOfShape", shape, value=helper.make_tensor("value", element_type(np.zeros(1, dtype)), [1],
                                                                   [b.whole(0, 2)]))


def like_extent(b: Builder) -> Value:
    """Where and Range over the extents of a value: positions, masks of a triangle."""
    b.since(11)
    x = b.pick(range(1, 4), fresh=0.3)
    count = scalar(b, extent(b, x, x.rank - 1))
    places = b.op("Range", b.const(np.array(0)), count, b.const(np.array(1)))
    if b.chance(0.5):
        rows = b.axes_op("Unsqueeze", places, [1])
        mask = b.op("Less", places, b.op("Add", rows, b.ints(1)))
        return b.op("Where", mask, b.real(0, x), b.real(-50, x))
    return b.op("Where", b.op("Less", places, b.op("Div", count, b.const(np.array(2)))), x, b.op("Neg", x))


def condition(b: Builder) -> Value:
    if b.chance(0.4):
        return b.input(np.array(b.chance(0.5)), draw=lambda shape: np.array(b.chance(0.5)))
    x = b.pick(range(1, 4), fresh=0.2)
    return b.op("Greater", b.reduced("ReduceSum", x, range(x.rank), 0), b.real(0, x))


def some_steps(b: Builder) -> None:
    for _ in range(b.whole(1, 2)):
        if b.chance(0.3):
            operator(b)
        else:
            b.one((activation, residual, channel_factor, some_reduction))(b, b.pick(range(1, 4), fresh=0))


def body(nodes: list[onnx.NodeProto], inputs: list[Value], outputs: list[Value], name: str) -> onnx.GraphProto:
    def told(value: Value) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(value.name, element_type(value.arrays[0]), None)
    return helper.make_graph(nodes, name, list(map(told, inputs)), list(map(told, outputs)))


def last_of(b: Builder, nodes: list[onnx.NodeProto]) -> Value:
    """What the last node gives; a graph has nodes of its own."""
    if not nodes:
        raise Undrawn("no nodes")
    return b.named[nodes[-1].output[0]]


def branch(b: Builder) -> Value:
    """If, of two graphs whose results have one rank and dtype."""
    b.since(11)
    flag = condition(b) if b.chance(0.85) else b.const(np.array(b.chance(0.5)))
    bodies, results = [], []
    for _ in range(2):
        with b.inside() as nodes:
            some_steps(b)
            result = last_of(b, nodes)
            if results and (result.dtype != results[0].dtype or result.shape != results[0].shape):
                result = b.op("Add", b.fitted(result, results[0].shape, results[0].dtype),
                              b.const(np.zeros((), results[0].dtype)))
            results.append(result)
            bodies.append(body(nodes, [], [result], b.name("g")))
    return b.op("If", flag, then_branch=bodies[0], else_branch=bodies[1])


def loop(b: Builder) -> Value:
    """A carried value that keeps its shape, and rows that are stacked."""
    b.since(11)
    start = b.pick(range(4), fresh=0.2)
    turn = Value(b.name("i"), (np.array(0),) * b.runs)
    going = Value(b.name("g"), (np.array(True),) * b.runs)
    carried = Value(b.name("s"), start.arrays)
    with b.inside(turn, going, carried) as nodes:
        some_steps(b)
        last = last_of(b, nodes)
        last = b.cast(last, start.dtype) if last.dtype != start.dtype else last
        total = b.op("Tanh", b.reduced("ReduceMean", last, range(last.rank), 0) if last.rank else last)
        result = b.op("Add", carried, total)
        rows = b.op("Mul", result, b.real(0.5, result))
        again = b.op("Less", turn, b.const(np.array(b.whole(0, 3)))) if b.chance(0.4) else b.op("Identity", going)
        graph = body(nodes, [turn, going, carried], [again, result, rows], b.name("g"))
    most = scalar(b, number(b)) if b.chance(0.6) else b.const(np.array(b.whole(0, 4)))
    going = b.const(np.array(True)) if b.chance(0.7) else None
    return b.one(b.ops("Loop", most, going, start, outputs=2, body=graph))


def scan(b: Builder) -> Value:
    b.since(11)
    over = b.pick(range(1, 4), fresh=0.3)
    row = Value(b.name("r"), tuple(array[0] for array in over.arrays))
    state = b.const(np.zeros(row.shape, row.dtype))
    held = Value(b.name("s"), state.arrays)
    if {array.shape for array in row.arrays} != {row.shape}:
        raise Undrawn("rows of many sizes")
    with b.inside(held, row) as nodes:
        some_steps(b)
        last = last_of(b, nodes)
        last = b.cast(last, row.dtype) if last.dtype != row.dtype else last
        total = b.op("Tanh", b.reduced("ReduceMean", last, range(last.rank), 0) if last.rank else last)
        result = b.op("Add", b.op("Mul", held, b.real(0.5, held)), b.op("Mul", row, total))
        graph = body(nodes, [held, row], [result, b.op("Neg", result)], b.name("g"))
    return b.one(b.ops("Scan", state, over, outputs=2, body=graph, num_scan_inputs=1,
                       scan_input_directions=[b.whole(0, 1)], scan_output_directions=[b.whole(0, 1)]))


CONTROL = (branch, loop, scan)
RECIPES = (found, compressed, counted_up, best, sliced, expanded, reshaped, padded, filled, like_extent, *CONTROL)
