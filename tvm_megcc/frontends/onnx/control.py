# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan without branches: of a condition that the run decides both branches are computed and one is chosen;
loops whose number of turns is known are written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ...errors import MegccError, ShapeError
from ...ops.rules import axis_of
from .builder import Node

if TYPE_CHECKING:
    from .importer import Importer, Scope

#: A loop that is written out has at most so many turns.
MOST_TURNS = 1024

Opsets = Mapping[str, int]


def branch_of(node: Node, proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """The subgraph in an attribute."""
    found = next((each.g for each in proto.attribute if each.name == name and each.HasField("g")), None)
    if found is None:
        raise MegccError(f"has no {name}; export the model again")
    return found


def chosen(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """The outputs of an If."""
    if node.is_const(0):
        wanted = "then_branch" if node.const(0).reshape(-1)[0] else "else_branch"
        return importer.inlined(branch_of(node, proto, wanted), scope, opsets, {})
    both = [importer.inlined(branch_of(node, proto, name), scope, opsets, {})
            for name in ("then_branch", "else_branch")]
    if any(None in values for values in both):
        raise MegccError("its condition is computed at run time, and one of its branches cannot be computed; fix the "
                         "input it depends on (--constant sr=16000), or export the model with a fixed branch")
    (condition,) = node.emit("reshape", node.inputs[:1], shape=())
    results: list[str | None] = []
    for yes, no in zip(*both, strict=True):
        types = [node.type_of(str(value)) for value in (yes, no)]
        if types[0] != types[1]:
            raise MegccError(f"its condition is computed at run time, and its branches give {types[0]} and {types[1]}, "
                             "which is not supported; fix the input it depends on (--constant sr=16000), or export the "
                             "model with a fixed branch")
        results += node.emit("where", (condition, str(yes), str(no)))
    return results


def loop(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """The outputs of a Loop whose turns are known: values that go round, then what each turn gives."""
    body = branch_of(node, proto, "body")
    turns = int(node.const(0, "the number of turns").reshape(-1)[0]) if node.has(0) else MOST_TURNS + 1
    going = not node.has(1) or bool(node.const(1, "the condition").reshape(-1)[0])
    carried: list[str | None] = list(node.inputs[2:])
    given = [value.name for value in body.input]
    if len(given) != len(carried) + 2 or len(body.output) < len(carried) + 1:
        raise ShapeError(f"has a body of {len(given)} inputs and {len(body.output)} outputs for {len(carried)} values")
    collected: list[list[str]] = [[] for _ in body.output[len(carried) + 1:]]
    turn = 0
    while going and turn < turns:
        _limit(turn)
        start = [node.constant(np.array(turn, np.int64)), node.constant(np.array(True)), *carried]
        condition, *values = importer.inlined(body, scope, opsets, dict(zip(given, start, strict=True)))
        if condition is None or None in values:
            return []
        if not node.is_constant(condition):
            raise MegccError("ends when the run decides, which is not supported; export the model with a fixed number "
                             "of turns")
        going = bool(importer.builder.constants[condition].reshape(-1)[0])
        carried = values[:len(carried)]
        for rows, value in zip(collected, values[len(carried):], strict=True):
            rows.append(str(value))
        turn += 1
    return [*carried, *(_stacked(node, rows, 0) for rows in collected)]


def _limit(turn: int) -> None:
    if turn >= MOST_TURNS:
        raise MegccError(f"has more than {MOST_TURNS} turns, or no known end, which is not supported; export the model "
                         "with fewer")


def _stacked(node: Node, rows: Sequence[str], axis: int) -> str:
    """What the turns gave, along a new axis."""
    if not rows:
        raise MegccError("has no turns, whose results have no shape")
    shape = node.type_of(rows[0]).shape
    axis = axis_of(axis, len(shape) + 1)
    wide = [node.emit("reshape", (row,), shape=(*shape[:axis], 1, *shape[axis:]))[0] for row in rows]
    return node.emit("concat", wide, axis=axis)[0] if len(wide) > 1 else wide[0]


def scan(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> list[str | None]:
    """The outputs of a Scan over axes of known extent. Before operator set 9 all is by batch, behind lengths."""
    body, count = branch_of(node, proto, "body"), node.attr("num_scan_inputs")
    if node.opset < 9:
        return _by_batch(importer, node, body, count, scope, opsets)
    states = len(node.inputs) - count
    return _scanned(importer, node, body, list(node.inputs[:states]), list(node.inputs[states:]), scope, opsets,
                    (node.attr("scan_input_axes") or [0] * count, node.attr("scan_input_directions") or [0] * count,
                     node.attr("scan_output_axes"), node.attr("scan_output_directions")))


def _scanned(importer: Importer, node: Node, body: onnx.GraphProto, states: list, sources: list[str], scope: Scope,
             opsets: Opsets, how: tuple) -> list[str | None]:
    axes, backward, output_axes, output_backward = how
    given = [value.name for value in body.input]
    if len(given) != len(states) + len(sources) or not sources or {len(axes), len(backward)} != {len(sources)}:
        raise ShapeError(f"has a body of {len(given)} inputs for {len(states)} states and {len(sources)} sequences")
    types = [node.type_of(source) for source in sources]
    axes = [axis_of(axis, type_.rank) for axis, type_ in zip(axes, types, strict=True)]
    turns = {type_.shape[axis] for axis, type_ in zip(axes, types, strict=True)}
    if len(turns) != 1 or not isinstance(next(iter(turns)), int):
        raise MegccError(f"goes along axes of extents {', '.join(map(str, turns))}; wants one that is known")
    (length,) = turns
    outputs = len(body.output) - len(states)
    collected: list[list[str]] = [[] for _ in range(outputs)]
    for turn in range(length):
        _limit(turn)
        parts = []
        for source, type_, axis, back in zip(sources, types, axes, backward, strict=True):
            at = length - 1 - turn if back else turn
            (part,) = node.emit("slice", (source,), axes=(axis,), starts=(at,), ends=(at + 1,), steps=(1,))
            parts += node.emit("reshape", (part,), shape=type_.shape[:axis] + type_.shape[axis + 1:])
        values = importer.inlined(body, scope, opsets, dict(zip(given, [*states, *parts], strict=True)))
        if None in values:
            return []
        states = values[:len(states)]
        for rows, value in zip(collected, values[len(states):], strict=True):
            rows.append(str(value))
    output_axes, output_backward = output_axes or [0] * outputs, output_backward or [0] * outputs
    return [*states, *(_stacked(node, rows[::-1] if back else rows, axis) for rows, axis, back in
                       zip(collected, output_axes, output_backward, strict=True))]


def _by_batch(importer: Importer, node: Node, body: onnx.GraphProto, count: int, scope: Scope,
              opsets: Opsets) -> list[str | None]:
    if node.has(0):
        raise MegccError("has lengths of sequences, which are not supported")
    operands = list(node.inputs[1:])
    batch = node.type_of(operands[0]).shape[0]
    if not isinstance(batch, int) or batch > MOST_TURNS:
        raise MegccError(f"has a batch of {batch}; wants a known one")
    rows = []
    for index in range(batch):
        parts = []
        for operand in operands:
            (part,) = node.emit("slice", (operand,), axes=(0,), starts=(index,), ends=(index + 1,), steps=(1,))
            parts += node.emit("reshape", (part,), shape=node.type_of(operand).shape[1:])
        states = len(parts) - count
        rows.append(_scanned(importer, node, body, parts[:states], parts[states:], scope, opsets,
                             ([0] * count, node.attr("directions") or [0] * count, None, None)))
    if any(None in row for row in rows) or not rows or not rows[0]:
        return []
    return [_stacked(node, [str(value) for value in values], 0) for values in zip(*rows, strict=True)]
