# SPDX-License-Identifier: Apache-2.0
"""Delays and states of values in a network that takes its sequence in blocks (`streams.py`).

Every value that depends on the sequence is a stream: run k computes its elements [k * block - delay,
(k + 1) * block - delay).

* An operator that reads earlier elements gets them from a state before the block, so nothing is computed twice.
* A window that reads later elements delays its result. If the operands of an operator have different delays, the less
  delayed ones are delayed by states.
* Elements before the first one have the value of the padding: a state begins with zeros, or with the zero point; a
  delayed result is masked if an operator pads it.
* States of dequantised values hold the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...errors import ModelError, ShapeError
from ...ir.graph import Attrs, Graph, Op, prune, unused
from ...ir.streams import Stream, Streamed, StreamedOutput
from ...ir.types import TensorType
from ...ops.base import operator

#: Types that may be padded with their zero point.
BYTES = ("int8", "uint8")
_MOVES = ("reshape", "transpose", "slice")
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class Refused(Exception):
    """An operator cannot be streamed; the message has the reason."""


@dataclass(frozen=True)
class Flow:
    """A value in blocks.

    name: the name of the block in the new graph.
    axis, block: the streamed axis, and the number of elements of a block along it.
    delay: the delay in elements; if it is negative, -delay elements of padding precede the first block.
    padding_value: the value of these elements.
    step: the number of elements of the network's input for each element of this value.
    first, last: the first and the last element of the network's input on which element 0 depends; first None: it
        depends on all earlier ones.
    """

    name: str
    axis: int
    block: int
    delay: int = 0
    padding_value: int = 0
    step: Fraction = Fraction(1)
    first: Fraction | None = Fraction(0)
    last: Fraction = Fraction(0)

    def widened(self, before: int, after: int) -> Flow:
        """Returns the flow of a value that depends on `before` and `after` more elements around each of its own."""
        first = None if self.first is None else self.first - before * self.step
        return replace(self, first=first, last=self.last + after * self.step)


@dataclass(frozen=True)
class Dequantised:
    """The integers from which a value was dequantised with one scale and zero point.

    name: the integers.
    zero: the zero point.
    attrs, others: the attributes and the other operands of the dequantize_linear.
    """

    name: str
    zero: int
    attrs: Attrs
    others: tuple[str, ...]


class Streamer:
    """Rewrites a graph for a whole sequence, operator by operator, into one for blocks.

    flows: value of the original graph -> its flow.
    not_streamed: values whose operator cannot be streamed, and final states of recurrent layers.
    with_height: value [N, C, T] of the original graph -> the flow of the same value as [N, C, 1, T], if a 1-D
        convolution computes it like that.
    integers: value of the new graph -> the integers from which it was dequantised with one scale.
    initial_states: input of a state -> its initial value, if that is not zero.
    copied: input of a state -> the bytes that a run copies for it.
    origin, current_result: the origin and the first result of the operator that is being rewritten.
    """

    def __init__(self, graph: Graph, stream: Stream, unstreamed: Container[str]):
        self.graph, self.stream = graph, stream
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.ops: list[Op] = []
        self.flows: dict[str, Flow] = {}
        self.with_height: dict[str, Flow] = {}
        self.integers: dict[str, Dequantised] = {}
        self.not_streamed: set[str] = set()
        self.states: list[tuple[str, str]] = []
        self.initial_states: dict[str, np.ndarray] = {}
        self.copied: dict[str, int] = {}
        self.origin = self.current_result = ""
        self._derived: dict[tuple, str] = {}
        self.inputs = self._streamed_inputs(unstreamed)

    def _streamed_inputs(self, unstreamed: Container[str]) -> tuple[str, ...]:
        """Gives the inputs that come in blocks their types and flows, and returns their names. Raises ModelError or
        ShapeError for options that do not fit the inputs."""
        graph, (axis, block) = self.graph, (self.stream.axis, self.stream.block)
        unknown = [name for name in self.stream.inputs if name not in graph.inputs]
        if unknown:
            raise ModelError(graph.name, [f"stream: the model has no input '{name}'" for name in unknown],
                             f"Its inputs are {', '.join(graph.inputs)}.")
        names = self.stream.inputs or tuple(name for name in graph.inputs if name not in unstreamed)
        for name in names:
            type_ = graph.types[name]
            if not type_.is_static:
                raise ShapeError(f"{graph.name}: input '{name}' is {type_}; a stream is made from a network of one "
                                 "length: give any that is longer than what an output depends on, with --input-shapes")
            if axis >= type_.rank:
                raise ShapeError(f"{graph.name}: input '{name}' is {type_}, which has no axis {axis} to stream along; "
                                 "say which inputs come in blocks with input=NAME")
            self.types[name] = _along(type_, axis, block or type_.shape[axis])
            self.flows[name] = Flow(name, axis, self.types[name].shape[axis])
        if not names or len({flow.block for flow in self.flows.values()}) > 1:
            raise ShapeError(f"{graph.name}: the inputs {', '.join(names)} do not have blocks of one size; say which "
                             "come in blocks with input=NAME, and their size with block=N" if names else
                             f"{graph.name}: no input is left to come in blocks")
        return names

    def run(self, rule_of: Callable[[Op], Rule]) -> Graph:
        """Returns the graph in which every operator that reads a block is rewritten by its rule."""
        findings = []
        for op in self.graph.ops:
            self.origin, self.current_result = op.origin, op.outputs[0]
            if not self.not_streamed.isdisjoint(op.inputs):
                self.not_streamed.update(op.outputs)
            elif self.flows.keys().isdisjoint(op.inputs):
                self.ops.append(op)
            else:
                try:
                    rule_of(op)(self, op)
                except Refused as error:
                    findings.append(f"{op.kind} '{op.origin or op.outputs[0]}': {error}")
                    self.not_streamed.update(op.outputs)
        independent = [name for name in self.graph.outputs if name not in self.flows and name not in self.not_streamed]
        findings += [f"output '{name}' does not depend on the stream, or only on its end" for name in independent]
        findings += [f"output '{name}' is the last state of a layer, not a stream; the states are kept by themselves"
                     for name in self.graph.outputs if name in self.not_streamed] if not findings else []
        if findings:
            raise ModelError(self.graph.name, findings, "It cannot be streamed along axis "
                             f"{self.stream.axis} as a whole: change these, or compile what comes before them with "
                             f"--output-names.{self._another_axis()}")
        return self._finished()

    def _another_axis(self) -> str:
        """Returns advice if the inputs suggest that the sequence is along another axis."""
        for name in self.inputs:
            shape = self.graph.types[name].shape
            longer = [str(axis) for axis, extent in enumerate(shape) if extent != 1]
            if shape[self.stream.axis] == 1 and longer:
                return (f" Or is the sequence along another axis? Input '{name}' is {self.graph.types[name]}, with one "
                        f"element along axis {self.stream.axis}: axis={' or axis='.join(longer)}")
        return ""

    def _finished(self) -> Graph:
        """Returns the graph with the names of the model's outputs, with its states and the description of the
        stream."""
        names: dict[str, str] = {}  # value of the new graph -> its final name
        outputs = []
        for name in self.graph.outputs:
            self.origin = self.current_result = name
            flow = self.settled(self.flows[name])
            if flow.name in self.graph.inputs or flow.name in names or flow.name in dict(self.states).values():
                flow = self.emit(flow, "copy", Attrs(), (flow.name,))
            names[flow.name] = name
            depth = None if flow.first is None else int(flow.last - flow.first) + 1
            outputs.append(StreamedOutput(name, flow.axis, flow.block, flow.delay, depth))
        live = self._live(names)
        # The next value of a state is an output too.
        names.update((source, unused(f"{target}_next", self.types)) for source, target in live)
        # A value of the new graph may have the final name of another one; then it gets a new name.
        renamed = {value: unused(f"{value}'", self.types, names.values()) for value in names.values()
                 if value not in names and any(value in op.outputs for op in self.ops)}
        names = {**renamed, **names}
        rename = lambda values: tuple(names.get(value, value) for value in values)  # noqa: E731
        ops = tuple(op.with_(inputs=rename(op.inputs), outputs=rename(op.outputs)) for op in self.ops)
        replaced = {*names.values()} - names.keys()  # values of the original graph whose names others have now
        types = {names.get(name, name): type_ for name, type_ in self.types.items() if name not in replaced}
        states = tuple((names.get(source, source), target) for source, target in live)
        facts = Streamed(self.stream.axis, self.flows[self.inputs[0]].block, self.inputs, tuple(outputs), len(live),
                         sum(types[target].bytes for _, target in live), sum(self.copied[target] for _, target in live))
        return prune(self.graph.with_(
            inputs=(*self.graph.inputs, *(target for _, target in states)),
            outputs=(*self.graph.outputs, *(source for source, _ in states)), ops=ops, types=types,
            constants=self.constants, states=(*self.graph.states, *states), stream=facts,
            initial_states={**self.graph.initial_states,
                            **{name: self.initial_states[name] for _, name in live if name in self.initial_states}}))

    def _live(self, outputs: Iterable[str]) -> list[tuple[str, str]]:
        """Returns the states on which an output depends."""
        needed, remaining, live = set(outputs), list(self.states), []
        while True:
            for op in reversed(self.ops):
                if not needed.isdisjoint(op.outputs):
                    needed.update(op.inputs)
            more = [pair for pair in remaining if pair[1] in needed]
            if not more:
                return [pair for pair in self.states if pair in live]
            live += more
            remaining = [pair for pair in remaining if pair not in more]
            needed.update(source for source, _ in more)

    # --- building blocks of rules ----------------------------------------------------------------------------------

    def flow(self, op: Op, index: int = 0) -> Flow:
        """Returns the flow of operand `index`.

        Raises:
            Refused: if another operand is in blocks as well, or this one is not.
        """
        for position, name in enumerate(op.inputs):
            if name in self.flows and position != index:
                raise Refused(f"its operand {position} is in blocks; only operand {index} may be. 'input=NAME' in "
                              "the option says which inputs are, if not all")
        return self.flows[op.inputs[index]]

    def value(self, name: str, type_: TensorType) -> str:
        """Adds a value and returns its name: the given one or, if that is in use, a similar one."""
        name = unused(name, self.types)
        self.types[name] = type_
        return name

    def constant(self, name: str, array: np.ndarray) -> str:
        """Adds a constant and returns its name."""
        name = self.value(name, TensorType(str(array.dtype), array.shape))
        self.constants[name] = array
        return name

    def result(self, kind: str, attrs: Attrs, inputs: tuple[str, ...]) -> str:
        """Adds an operator with one result and returns it. If the operator moves dequantised values, the integers are
        moved instead, and dequantised afterwards."""
        if kind in _MOVES and inputs[0] in self.integers:
            return self.moved(inputs[0], lambda source, zero: self.result(kind, attrs, (source, *inputs[1:])))
        (type_,) = operator(kind).infer(attrs, *(self.types[operand] if operand else None for operand in inputs))
        name = self.value(f"{self.current_result}:{kind}", type_)
        self.ops.append(Op(kind, attrs, inputs, (name,), origin=self.origin))
        return name

    def emit(self, flow: Flow, kind: str, attrs: Attrs, inputs: tuple[str, ...], axis: int | None = None) -> Flow:
        """Adds an operator with one result, and returns the flow of the result: as `flow`, along `axis` if that is
        given."""
        name = self.result(kind, attrs, inputs)
        axis = flow.axis if axis is None else axis
        return replace(flow, name=name, axis=axis, block=self.types[name].shape[axis])

    def define(self, op: Op, flow: Flow) -> None:
        """Records the flow of the operator's result."""
        self.flows[op.outputs[0]] = flow

    def dequantised(self, dequantised: Dequantised) -> str:
        """Adds a dequantize_linear and returns its result."""
        name = self.result("dequantize_linear", dequantised.attrs, (dequantised.name, *dequantised.others))
        self.integers[name] = dequantised
        return name

    def moved(self, name: str, move: Callable[[str, int], str]) -> str:
        """Applies `move` to a value or, if it was dequantised, to its integers, which are then dequantised again. move:
        takes a name and the number that represents zero."""
        if name not in self.integers:
            return move(name, 0)
        dequantised = self.integers[name]
        return self.dequantised(replace(dequantised, name=move(dequantised.name, dequantised.zero)))

    def cut(self, name: str, axis: int, first: int, end: int) -> str:
        """Returns the elements [first, end) of a value along an axis."""
        if (first, end) == (0, self.types[name].shape[axis]):
            return name
        return self.result("slice", Attrs(axes=(axis,), starts=(first,), ends=(end,), steps=(1,)), (name,))

    def state(self, type_: TensorType, make: Callable[[str], tuple[str, str]], copies: int, padding_value: int = 0
              ) -> str:
        """Adds a state and returns the value that is computed from it.

        Args:
            make: takes the state's name; returns the value that is computed from it, and the state's next value.
            copies: the number of times that a run copies the state.
            padding_value: the initial value of all elements.
        """
        target = self.value(f"stream_{len(self.states)}", type_)
        if padding_value:
            self.initial_states[target] = np.full(type_.shape, padding_value, type_.dtype)
        read, source = make(target)
        self.keep(source, target, copies)
        return read

    def keep(self, source: str, target: str, copies: int) -> None:
        """Makes `source` the next value of the state `target`. copies: the number of times that a run copies it."""
        self.states.append((source, target))
        self.copied[target] = copies * self.types[target].bytes

    def with_history(self, flow: Flow, count: int) -> str:
        """Returns the block with the `count` elements before it, which a state keeps. Values [1, C, H, W] are
        transposed to channels last if only the streamed axis is longer than 1: then it is the outer axis in memory, so
        that the block is computed in place and the state is contiguous."""
        if count == 0:
            return flow.name
        key = ("history", flow.name, count, flow.padding_value)
        if key not in self._derived and flow.name in self.integers:
            self._derived[key] = self.moved(flow.name, lambda source, zero: self.with_history(
                replace(flow, name=source, padding_value=zero), count))
        if key not in self._derived:
            type_, axis, block = self.types[flow.name], flow.axis, flow.name
            other_spatial_axis = 5 - axis  # 2 and 3 are spatial
            is_transposed = type_.rank == 4 and axis >= 2 and type_.shape[0] == 1 \
                and type_.shape[other_spatial_axis] == 1
            if is_transposed:
                block, axis = self.result("transpose", Attrs(perm=_TO_LAST), (block,)), axis - 1

            # A history that is longer than the block is kept with the block, and the next run reads its end: one copy
            # less.
            exceeds_block, extent = count > flow.block, flow.block + count

            def make(state: str) -> tuple[str, str]:
                begin = self.cut(state, axis, flow.block, extent) if exceeds_block else state
                both = self.result("concat", Attrs(axis=axis), (begin, block))
                return both, both if exceeds_block else self.cut(both, axis, flow.block, extent)

            history = _along(self.types[block], axis, extent if exceeds_block else count)
            # It is copied into the concat and, after the run, to the state; the cut from the concat is a third copy.
            both = self.state(history, make, copies=2 if exceeds_block else 3, padding_value=flow.padding_value)
            self._derived[key] = self.result("transpose", Attrs(perm=_TO_FIRST), (both,)) if is_transposed else both
        return self._derived[key]

    def delayed(self, flow: Flow, delay: int) -> Flow:
        """Returns the flow with a larger delay, which a state causes."""
        if delay == flow.delay:
            return flow
        name = self.cut(self.with_history(flow, delay - flow.delay), flow.axis, 0, flow.block)
        return replace(flow, name=name, delay=delay)

    def settled(self, flow: Flow) -> Flow:
        """Returns the flow with a delay of at least 0: the padding before its first block, which a negative delay
        stands for, becomes real elements."""
        return self.delayed(flow, max(flow.delay, 0))

    def mask(self, delay: int, block: int) -> str:
        """Returns a value bool [block]: whether an element of a block exists, for a flow with this delay. In the first
        runs, elements before the sequence do not exist."""
        key = ("mask", delay, block)
        if key not in self._derived:
            ones = self.constant("exists", np.ones(block, bool))

            def make(state: str) -> tuple[str, str]:
                both = self.result("concat", Attrs(axis=0), (state, ones))
                return self.cut(both, 0, 0, block), self.cut(both, 0, block, block + delay)

            self._derived[key] = self.state(TensorType("bool", (delay,)), make, copies=3)
        return self._derived[key]

    def where(self, exists: str, name: str, padding_value: int | np.ndarray = 0) -> str:
        """Returns the value where a mask, which broadcasts to it, is true, elsewhere a number or another value."""
        if name in self.integers:
            return self.moved(name, lambda source, zero: self.where(exists, source, zero))
        other = self.constant("padding", np.array(padding_value, self.types[name].dtype))
        return self.result("where", Attrs(), (exists, name, other))

    def padded(self, flow: Flow, padding_value: int = 0) -> Flow:
        """Returns the flow with this value for all elements before the sequence."""
        if flow.delay < 0 and flow.padding_value != padding_value:
            flow = self.settled(flow)
        flow = replace(flow, padding_value=padding_value)
        if flow.delay <= 0:
            return flow
        key = ("masked", flow.name, padding_value)
        if key not in self._derived:
            trailing = (1,) * (self.types[flow.name].rank - flow.axis - 1)
            exists = self.mask(flow.delay, flow.block)
            exists = self.result("reshape", Attrs(shape=(flow.block, *trailing)), (exists,)) if trailing else exists
            self._derived[key] = self.where(exists, flow.name, padding_value)
        return replace(flow, name=self._derived[key])

    def window(self, flow: Flow, reach: int, stride: int, before: int, padding_value: int = 0) -> Flow:
        """Returns the flow of the result of a window operator, with the elements that a block of results reads as its
        value, without pads. Result i reads the elements [i * stride - before, i * stride - before + reach].

        Args:
            flow: the operand.
            padding_value: the value of the padding.

        Raises:
            Refused: if the stride does not divide the block.
        """
        if flow.block % stride:
            raise Refused(f"its stride {stride} does not divide the block of {flow.block} elements that it reads; "
                          "choose a block that is a multiple")
        if before > 0:
            flow = self.padded(flow, padding_value)
        count = flow.block // stride
        # The last result of run k, (k + 1) * count - delay - 1, must not read beyond the last element that the run has,
        # (k + 1) * flow.block - flow.delay - 1. So delay * stride >= flow.delay + reach - before + 1 - stride.
        delay = max(-((flow.delay + reach - before + 1 - stride) // -stride), 0)
        # The first result, k * count - delay, reads so many elements before those of the block; if negative, it skips
        # elements of the block.
        history = delay * stride + before - flow.delay
        skip = max(-history, 0)
        end = skip + (count - 1) * stride + reach + 1
        read = self.cut(self.with_history(flow, max(history, 0)), flow.axis, skip, end)
        result = flow.widened(before, reach - before)
        return replace(result, name=read, block=count, delay=delay, padding_value=0, step=flow.step * stride)


def _along(type_: TensorType, axis: int, extent: int) -> TensorType:
    """Returns the type with another extent of an axis."""
    return type_.with_shape((*type_.shape[:axis], extent, *type_.shape[axis + 1:]))


#: A function that rewrites an operator of the original graph and calls `Streamer.define` for its result.
Rule = Callable[[Streamer, Op], None]
