# SPDX-License-Identifier: Apache-2.0
"""Attention sinks (ops/cache_rows.py) for decoders of ONNX files, whose graphs compute rotary angles and masks from the
numbers of past and new tokens, as onnx_decoders.py leaves them.

Values that depend on these numbers alone are computed by the compiler for some positions, which tells what they are:
cosines and sines of positions times frequencies, or masks with a column for each key. So the form in which a file
computes them does not matter. They are replaced by angles of unlimited positions, and by masks whose columns are in the
order in which the cache stores the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..errors import ModelError, quoted
from ..ir.dims import Dim, Symbol, symbols
from ..ir.graph import Graph, Op, toposort
from ..ir.shapes import with_symbols
from ..ir.types import TensorType
from ..ops.base import operator
from ..ops.elementwise import cast_to, emit_broadcast
from ..ops.emit_onnx import number
from ..ops.nn.attention import apply_rotary, first_rows, keep_first_rows, rotary_angles, stored_positions
from ..ops.rules import emit_arange
from ..passes.streaming.kv_cache import Sinks
from .decoder_names import PAST
from .onnx.builder import Builder
from .onnx.folding import MAX_TABLE_ELEMENTS
from .onnx.synthetic_node import SyntheticNode

#: Operators that rotate a key, or move its elements.
_ROTATING = frozenset(("rotary", "add", "sub", "mul", "neg", "concat", "slice", "transpose", "reshape", "cast", "copy",
                       "expand"))
#: The largest error of an angle in radians, and of an amplitude, that a file computes in float32 or float16.
_ANGLE_ERROR, _AMPLITUDE_ERROR = 0.01, 0.003


@dataclass(frozen=True)
class _Angles:
    """A value of cosines or sines, a row for each new token.

    function: "cos" or "sin".
    frequencies: of each column, the angle of position 1.
    amplitude: the cosine of position 0.
    """

    function: str
    frequencies: np.ndarray
    amplitude: float


def with_sinks(graph: Graph, states: Mapping[str, str], capacity: int, sinks: int) -> tuple[Graph, Sinks]:
    """Prepares a decoder for attention sinks: `grow_states` takes the result, and outputs that it replaces rows of
    caches by are removed afterwards (`Sinks.first`).

    Args:
        states: output -> input of keys and values.
        capacity: of the cache, in tokens.
        sinks: how many tokens stay.

    Raises:
        ModelError: saying what depends on positions in another way than as rotary angles or masks.
    """
    return _Sinks(graph, states, capacity, sinks).run()


class _Sinks:
    """The rewriting of one graph. New operators are emitted by a builder that knows the graph's values.

    past, new: the symbol of the past tokens, and the number of new ones.
    counted: the values that depend on the numbers of tokens alone.
    angles: the values of `counted` that are angles.
    """

    def __init__(self, graph: Graph, states: Mapping[str, str], capacity: int, sinks: int):
        self.graph, self.states, self.capacity, self.sinks = graph, states, capacity, sinks
        first = graph.types[next(iter(states.values()))]
        past = next(dim for dim in first.shape if isinstance(dim, Symbol))
        self.past = past
        self.new: Dim = next(graph.types[name].shape[1] for name in graph.inputs if name not in states.values())
        self.counted: set[str] = set()
        for op in graph.ops:
            if all(not name or name in self.counted or name in graph.constants for name in op.inputs):
                self.counted.update(op.outputs)
        self.builder = Builder()
        self.builder.types.update(graph.types)
        self.builder.constants.update(graph.constants)
        self.node = SyntheticNode(self.builder, "sinks", "sinks", (), {})
        self.angles: dict[str, _Angles] = {}
        self.replaced: dict[str, str] = {}

    def run(self) -> tuple[Graph, Sinks]:
        graph, node = self.graph, self.node
        others = [name for name in graph.inputs if name not in self.states.values()]
        if len(others) != 1:
            self._refuse(f"has inputs {', '.join(others)}; positions and masks have to be computed from tokens")
        self.builder.add_input(PAST, TensorType("int64", (1,)))
        (total,) = emit_broadcast(node, "add", (PAST, node.extent(self.new)))
        (self.positions,) = emit_broadcast(node, "add", (emit_arange(node, self.new, "int64"), PAST))
        self.row_positions = stored_positions(node, self.past + self.new, total, self.capacity, self.sinks)
        self._replace_counted()
        (gone,) = emit_broadcast(node, "sub", (total, number(node, self.capacity, "int64")))
        (self.gone,) = emit_broadcast(node, "max", (gone, number(node, 0, "int64")))
        rows = first_rows(node, self.sinks, self.new, PAST)
        first: dict[str, str] = {}
        added: dict[str, str] = {}
        producers = graph.producers()
        for output, state in self.states.items():
            new = producers[output].inputs[1]
            rotation = self._rotation(new)
            if rotation is None:
                continue
            type_ = graph.types[state]
            kept = f"{state}.sinks"
            self.builder.add_input(kept, type_.with_shape(
                self.sinks if dim == self.past else dim for dim in type_.shape))
            after = keep_first_rows(node, kept, new, *rows)
            added[after] = kept
            frequencies, interleaved = rotation
            cos, sin = (cast_to(node, value, type_.dtype)[0] for value in rotary_angles(node, self.gone, frequencies))
            first[state] = apply_rotary(node, after, cos, sin, interleaved)
        if not first:
            self._refuse("rotates no keys, so attention sinks have no positions")
        return self._finished(added, first), Sinks(PAST, self.sinks, first)

    def _finished(self, added: Mapping[str, str], first: Mapping[str, str]) -> Graph:
        """Returns the graph with the new operators and states."""
        graph = self.graph
        ops = [op.with_(inputs=tuple(self.replaced.get(name, name) for name in op.inputs)) for op in graph.ops
               if not set(op.outputs) <= self.counted] + [op for op in graph.ops if set(op.outputs) <= self.counted]
        types = {**graph.types, **self.builder.types}
        ops += self.builder.graph("", (), (*added, *first.values(), *self.replaced.values())).ops
        return graph.with_(ops=toposort(ops, types), types=types,
                           constants={**graph.constants, **self.builder.constants},
                           inputs=(*graph.inputs, PAST, *added.values()),
                           outputs=(*graph.outputs, *added, *first.values()),
                           states=(*graph.states, *added.items()))

    def _refuse(self, reason: str) -> NoReturn:
        raise ModelError(self.graph.name, [reason], f"--sinks {self.sinks} is for decoders with rotary embeddings")

    # Values that depend on positions.

    def _replace_counted(self) -> None:
        """Replaces the values of positions that other operators read."""
        read = dict.fromkeys(name for op in self.graph.ops if not set(op.outputs) <= self.counted
                             for name in op.inputs if name in self.counted)
        positions = list(range(min(3, self.capacity)))
        while positions[-1] < self.capacity - 1:
            positions.append(min(positions[-1] * 3 // 2, self.capacity - 1))
        found, series = self._evaluated(list(read), positions), {}
        for name in read:
            type_ = self.graph.types[name]
            columns = [axis for axis, dim in enumerate(type_.shape) if self.past.name in symbols(dim)]
            if columns:
                if len(columns) > 1 or type_.shape[columns[0]] != self.past + self.new:
                    self._refuse(f"{quoted(name)} {type_} is no mask of keys")
                (self.replaced[name],) = self.node.emit("gather", (name, self.row_positions), axis=columns[0])
            elif any(not np.array_equal(found[name][0], each) for each in found[name][1:]):
                series[name] = np.array([each.reshape(-1) for each in found[name]], np.float64)
        emitted: dict[tuple[object, ...], str] = {}
        for name in series:
            angles, type_ = _fitted(name, series, np.array(positions)), self.graph.types[name]
            if angles is None or not np.issubdtype(np.dtype(type_.dtype), np.floating):
                self._refuse(f"{quoted(name)} {type_} depends on positions, and is no rotary angle or mask")
            self.angles[name] = angles
            key = angles.function, angles.frequencies.tobytes(), angles.amplitude, type_
            if key not in emitted:
                emitted[key] = self._emit_angles(angles, type_)
            self.replaced[name] = emitted[key]

    def _emit_angles(self, angles: _Angles, type_: TensorType) -> str:
        """Emits angles of the positions of new tokens in this type."""
        both = rotary_angles(self.node, self.positions, angles.frequencies)
        value = both[angles.function == "sin"]
        if angles.amplitude != 1:
            (value,) = emit_broadcast(self.node, "mul", (value, number(self.node, angles.amplitude, "float32")))
        (value,) = cast_to(self.node, value, type_.dtype)
        return self.node.emit("reshape", (value,), shape=type_.shape)[0]

    def _evaluated(self, names: list[str], positions: list[int]) -> dict[str, list[np.ndarray]]:
        """Returns values that depend on positions for one new token after so many past ones."""
        needed = set(names)
        ops: list[Op] = []
        for op in reversed(self.graph.ops):
            if needed.intersection(op.outputs):
                ops.append(op)
                needed.update(op.inputs)
        part = self.graph.with_(ops=tuple(reversed(ops)))
        found: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for position in positions:
            values: dict[str, Dim] = {self.past.name: position}
            if isinstance(self.new, Symbol):
                values[self.new.name] = 1
            known = with_symbols(part, values)
            for name in (name for op in known.ops for name in op.outputs):
                size = known.types[name].size
                if not isinstance(size, int) or size > MAX_TABLE_ELEMENTS:
                    self._refuse(f"{quoted(name)} has {size} numbers for a position")
            computed = _computed(known, {})
            for name in names:
                found[name].append(computed[name])
        return found

    # Rotations of keys.

    def _rotation(self, key: str) -> tuple[np.ndarray, bool] | None:
        """Returns the frequencies by which new keys are rotated, and whether neighbouring elements are a pair; None for
        values that are not rotated.

        Raises:
            ModelError: for keys that are rotated in another way.
        """
        ops, producers = self._rotating(key), self.graph.producers()
        read = {name for op in ops for name in op.inputs}
        angles = sorted(name for name in read if name in self.angles)
        if not angles:
            return None
        frequencies = self.angles[angles[0]].frequencies
        draw, outside = np.random.default_rng(0), {}
        part = self.graph.with_(ops=tuple(ops))
        if isinstance(self.new, Symbol):
            part = with_symbols(part, {self.new.name: 1})

        def shape(name: str) -> tuple[int, ...]:
            return tuple(dim for dim in part.types[name].shape if isinstance(dim, int))

        inside = {name for op in ops for name in op.outputs}
        for name in sorted(read - inside - set(self.graph.constants) - set(angles)):
            if name in producers or name in self.graph.inputs:
                outside[name] = draw.normal(size=shape(name)).astype(part.types[name].dtype)
        still, moved = ({name: np.resize(function(1.7 * at * self.angles[name].frequencies),
                                         shape(name)).astype(part.types[name].dtype)
                         for name in angles for function in (
                             np.cos if self.angles[name].function == "cos" else np.sin,)} for at in (0, 1))
        before, after = (_computed(part, {**outside, **values})[key] for values in (still, moved))
        for choice, interleaved in _pairings(frequencies):
            wanted = _rotated(before, 1.7 * choice, interleaved)
            if wanted is not None and np.allclose(wanted, after, rtol=1e-3, atol=1e-3):
                return choice, interleaved
        self._refuse(f"{quoted(key)}: keys are rotated in another way than in halves or neighbouring pairs")

    def _rotating(self, key: str) -> list[Op]:
        """Returns the operators that compute a key of other values than angles, in their order."""
        producers, found, waiting = self.graph.producers(), set(), [key]
        while waiting:
            name = waiting.pop()
            op = producers.get(name)
            if op is None or name in self.counted or op.kind not in _ROTATING or op.outputs[0] in found:
                continue
            found.add(op.outputs[0])
            waiting += op.inputs
        return [op for op in self.graph.ops if op.outputs[0] in found]


def _computed(graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes the operators of a graph without symbols. values: those that no operator computes."""
    found: dict[str, np.ndarray] = {**graph.constants, **values}
    for op in graph.ops:
        arrays = operator(op.kind).compute(op.attrs, *(found[name] if name else None for name in op.inputs))
        found.update(zip(op.outputs, arrays, strict=False))
    return found


def _fitted(name: str, series: Mapping[str, np.ndarray], positions: np.ndarray) -> _Angles | None:
    """Returns the angles of a value; None if it has none. series: values of some positions, [positions, columns]."""
    values = series[name]
    is_sine = not values[0].any()
    for other in series.values():
        if other.shape == values.shape and bool(other[0].any()) == is_sine:
            fit = _fit(other, values, positions) if is_sine else _fit(values, other, positions)
            if fit is not None:
                return _Angles("sin" if is_sine else "cos", *fit)
    return None


def _fit(cosines: np.ndarray, sines: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Returns frequencies and amplitude of cosines and sines [positions, columns] of some positions, which grow by half
    at most; None if they are none."""
    amplitude = float(cosines[0, 0])
    if not amplitude:
        return None
    angles = np.arctan2(sines / amplitude, cosines / amplitude)
    if np.abs(np.hypot(cosines, sines) / abs(amplitude) - 1).max() > _AMPLITUDE_ERROR:
        return None
    frequencies = angles[1]
    for position, angle in zip(positions[2:], angles[2:], strict=True):
        difference = angle - frequencies * position
        frequencies = frequencies + (difference - 2 * np.pi * np.round(difference / (2 * np.pi))) / position
    error = angles - positions[:, None] * frequencies
    error -= 2 * np.pi * np.round(error / (2 * np.pi))
    return (frequencies, amplitude) if np.abs(error).max() < _ANGLE_ERROR else None


def _pairings(frequencies: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
    """Yields the frequencies of pairs that columns may stand for, and whether pairs are neighbours."""
    yield frequencies, False
    yield frequencies, True
    yield frequencies[:len(frequencies) // 2], False
    yield frequencies[::2], True


def _rotated(x: np.ndarray, angles: np.ndarray, interleaved: bool) -> np.ndarray | None:
    """Returns x with pairs of its last axis rotated by angles; None if there are more angles than pairs."""
    pairs, y = len(angles), x.astype(np.float64)
    if not 0 < 2 * pairs <= x.shape[-1]:
        return None
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else \
        (slice(0, pairs), slice(pairs, 2 * pairs))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first] = a * np.cos(angles) - b * np.sin(angles)
    y[..., second] = a * np.sin(angles) + b * np.cos(angles)
    return y
