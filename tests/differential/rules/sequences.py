# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals: one is made, changed, and something of it is the result."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto
from onnx.helper import make_node

from ..draw import DTYPES, Draw, element_type


def _position(draw: Draw, number: int) -> str:
    """An operand, its name."""
    draw.add(np.array(number, draw.one(("int32", "int64"))), 1.0)
    return f"x{len(draw.operands) - 1}"


def _elements(draw: Draw, shape: tuple[int, ...], dtype: str, count: int) -> list[str]:
    first = len(draw.operands)
    for _ in range(count):
        draw.add(draw.values(shape, dtype), 0.2)
    return [f"x{at}" for at in range(first, first + count)]


def sequence(draw: Draw) -> None:
    """Made of tensors or by a split; with one more, or one less; then asked for."""
    kind, shape = draw.schema.name, draw.shape(1, 3, 0)
    split = kind == "SplitToSequence" or draw.chance(0.2)  # ONNX Runtime splits these types, ONNX's evaluator amiss
    dtype = draw.one(("float32", "float64", "int32", "int64") if split else sorted(set(DTYPES.values()) - {"object"}))
    count = draw.whole(1, 4)
    nodes: list[NodeProto] = []
    if split:
        axis = draw.axis(len(shape))
        parts = [draw.whole(1, 3)] * count
        whole = list(shape)
        whole[axis] = sum(parts)
        draw.add(draw.values(tuple(whole), dtype), 0.2)
        given, attributes = ["x0"], {"axis": axis}
        if draw.chance(0.6):
            draw.add(np.array(parts if draw.chance(0.5) else parts[0], draw.one(("int32", "int64"))), 1.0)
            given.append("x1")
        else:
            count = whole[axis]
            if draw.chance(0.5):
                attributes["keepdims"] = draw.whole(0, 1)
        nodes.append(make_node("SplitToSequence", given, ["s0"], **attributes))
        shape = tuple(parts[0] if place == axis % len(shape) and len(given) == 2 else extent
                      for place, extent in enumerate(whole)) if len(given) == 2 else \
            tuple(1 if place == axis % len(shape) else extent for place, extent in enumerate(whole))
        if attributes.get("keepdims") == 0:
            shape = shape[:axis % len(shape)] + shape[axis % len(shape) + 1:]
    elif kind == "SequenceEmpty":
        nodes += [make_node("SequenceEmpty", [], ["e"], dtype=element_type(np.zeros(1, dtype))),
                  make_node("SequenceInsert", ["e", *_elements(draw, shape, dtype, 1)], ["s0"])]
        count = 1
    else:
        nodes.append(make_node("SequenceConstruct", _elements(draw, shape, dtype, count), ["s0"]))
    if kind == "SequenceInsert" or draw.chance(0.2):
        more = _elements(draw, shape, dtype, 1)
        where = [_position(draw, draw.whole(-count, count))] if draw.chance(0.7) else []
        nodes.append(make_node("SequenceInsert", ["s0", *more, *where], ["s1"]))
        count += 1
    if count > 1 and (kind == "SequenceErase" or draw.chance(0.2)):
        where = [_position(draw, draw.whole(-count, count - 1))] if draw.chance(0.7) else []
        nodes.append(make_node("SequenceErase", [nodes[-1].output[0], *where], ["s2"]))
        count -= 1
    last = nodes[-1].output[0]
    if kind == "SequenceAt" or (kind != "ConcatFromSequence" and draw.chance(0.3)):
        nodes.append(make_node("SequenceAt", [last, _position(draw, draw.whole(-count, count - 1))], ["y0"]))
    elif kind == "SequenceLength":
        nodes.append(make_node("SequenceLength", [last], ["y0"]))
    else:
        new = draw.whole(0, 1) if shape else 1
        axis = draw.axis(len(shape) + new)
        nodes.append(make_node("ConcatFromSequence", [last], ["y0"], axis=axis, new_axis=new))
    draw.nodes = nodes


def optional(draw: Draw) -> None:
    dtype = draw.one(sorted(set(DTYPES.values()) - {"object"}))
    given = _elements(draw, draw.shape(0, 3, 0), dtype, 1)
    asked = "OptionalGetElement" if draw.schema.name == "Optional" else draw.schema.name
    draw.nodes = [make_node("Optional", given, ["o"]), make_node(asked, ["o"], ["y0"])]


RULES = {**dict.fromkeys(("SequenceConstruct", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength",
                          "SequenceEmpty", "SplitToSequence", "ConcatFromSequence"), sequence),
         **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), optional)}
