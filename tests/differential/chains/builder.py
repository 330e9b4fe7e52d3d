# SPDX-License-Identifier: Apache-2.0
"""A graph of ONNX under construction, each node of which is computed as soon as it is there.

What a value is, is known for every run of the graph: the runs differ in what the inputs hold and, where a dimension
has a name, in its size. An operator whose operands do not fit in all of them is not added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import helper, numpy_helper

from ..draw import Undrawn, element_type

#: Largest magnitude that an operator may give to the next. Errors of sums of larger ones say nothing about operators.
LARGEST = {"float16": 2e3, "float32": 1e5, "float64": 1e8}
MOST_ELEMENTS = 6000
#: Name of the one dimension that is open.
OPEN = "n"


@dataclass(frozen=True, eq=False)
class Value:
    """arrays: what it is in each run. constant: an initializer, which is the same in all."""

    name: str
    arrays: tuple[np.ndarray, ...]
    constant: bool = False

    @property
    def dtype(self) -> str:
        return self.arrays[0].dtype.name

    @property
    def kind(self) -> str:
        return self.arrays[0].dtype.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """In the first run."""
        return self.arrays[0].shape

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def size(self) -> int:
        return self.arrays[0].size


def model_of(nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
             outputs: Sequence[onnx.ValueInfoProto], constants: Sequence[onnx.TensorProto],
             opset: int) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "chain", list(inputs), list(outputs), list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def reads(node: onnx.NodeProto) -> list[str]:
    """What a node reads, graphs in it too."""
    found = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            own = {value.name for value in attribute.g.input}
            for inner in attribute.g.node:
                found |= dict.fromkeys(name for name in reads(inner) if name not in own)
                own |= set(inner.output)
            found |= dict.fromkeys(value.name for value in attribute.g.output if value.name not in own)
    return list(found)


def computed(node: onnx.NodeProto, runs: Sequence[Mapping[str, np.ndarray]], opset: int) -> list[list[np.ndarray]]:
    """The outputs of a node in each run, by ONNX Runtime or, where it has no kernel, the reference evaluator.

    runs: what it reads, and maybe more.

    Raises:
        Undrawn: neither computes it.
    """
    names = reads(node)
    if node.op_type == "Concat" and not all(_concatenate([run[name] for name in names], node) for run in runs):
        raise Undrawn("ONNX Runtime passes over operands without elements, whatever their other extents are")
    inputs = [helper.make_tensor_value_info(name, element_type(runs[0][name]), None) for name in names]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    model = model_of([node], inputs, outputs, [], opset)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) or node.op_type in ("If", "Loop", "Scan"):
            raise Undrawn(str(error)[:80]) from error
        session = None
    try:
        evaluator = session or onnx.reference.ReferenceEvaluator(model)
        return [[np.asarray(array) for array in evaluator.run(None, {name: run[name] for name in names})]
                for run in runs]
    except Exception as error:  # either refuses in many ways
        raise Undrawn(str(error)[:80]) from error


def _concatenate(arrays: Sequence[np.ndarray], node: onnx.NodeProto) -> bool:
    """Whether the operands of a Concat have the same extents but on its axis."""
    axis = helper.get_node_attr_value(node, "axis")
    return len({tuple(np.delete(array.shape, axis)) for array in arrays}) == 1


class Builder:
    """sizes: of the open dimension in each run; () where none is open. runs: how many there are."""

    def __init__(self, rng: np.random.Generator, opset: int, runs: int, sizes: Sequence[int] = (),
                 reals: str = "float32"):
        self.rng, self.opset, self.runs, self.sizes, self.reals = rng, opset, runs, tuple(sizes), reals
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self.constants: dict[str, np.ndarray] = {}
        self.named: dict[str, Value] = {}
        self.count = 0

    # Draws.

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one(self, choices):
        choices = list(choices)
        if not choices:
            raise Undrawn("nothing to choose from")
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        """From low to high, both among them."""
        if high < low:
            raise Undrawn("nothing to choose from")
        return int(self.rng.integers(low, high + 1))

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """What is added within goes away again if something there does not fit."""
        counts = len(self.nodes), len(self.values), len(self.inputs), set(self.constants)
        try:
            yield
        except Exception:
            del self.nodes[counts[0]:], self.values[counts[1]:], self.inputs[counts[2]:]
            self.constants = {name: self.constants[name] for name in self.constants if name in counts[3]}
            raise

    @contextmanager
    def inside(self, *own: Value) -> Iterator[list[onnx.NodeProto]]:
        """Nodes of a graph within: it reads what is there, and values of its own."""
        outer, values = self.nodes, self.values
        self.nodes, self.values = [], [*values, *map(self._known, own)]
        try:
            yield self.nodes
        finally:
            self.nodes, self.values = outer, values + [each for each in self.values if each in self.inputs
                                                       and each not in values]

    # Values.

    def const(self, array, dtype: str | None = None) -> Value:
        """An initializer; one that is there already, where it has these bytes."""
        array = np.asarray(array, dtype)
        same = [name for name, other in self.constants.items()
                if other.dtype == array.dtype and other.shape == array.shape and other.tobytes() == array.tobytes()]
        name = same[0] if same and self.chance(0.5) else self.name("c")
        self.constants[name] = array
        return self._known(Value(name, (array,) * self.runs, True))

    def _known(self, value: Value) -> Value:
        self.named[value.name] = value
        return value

    def ints(self, *numbers: int) -> Value:
        return self.const(np.array(numbers, "int64"))

    def real(self, number: float, like: Value | None = None) -> Value:
        """A scalar, now and then of one element."""
        array = np.array(number, like.dtype if like else self.reals)
        return self.const(array.reshape(1) if self.chance(0.2) else array)

    def normal(self, shape: Sequence[int], dtype: str | None = None, spread: float = 1.0) -> Value:
        """Weights."""
        return self.const(self.rng.normal(size=tuple(shape)) * spread, dtype or self.reals)

    def input(self, array: np.ndarray, opened: float = 0.8, draw=None) -> Value:
        """An input that holds this in the first run. Where a dimension is open, an axis that has its size there is
        it, by the chance `opened`.

        draw: makes the array of a shape for another run; numbers of the first are mixed otherwise.
        """
        axes = [axis for axis, extent in enumerate(array.shape)
                if self.sizes and extent == self.sizes[0] and self.chance(opened)]
        arrays = [array]
        for run in range(1, self.runs):
            shape = [self.sizes[run] if axis in axes else extent for axis, extent in enumerate(array.shape)]
            if draw is not None:
                arrays.append(np.asarray(draw(tuple(shape)), array.dtype).reshape(shape))
            elif array.size:
                arrays.append(self.rng.choice(array.reshape(-1), size=shape).astype(array.dtype).reshape(shape))
            else:
                arrays.append(np.zeros(shape, array.dtype))
        value = self._known(Value(self.name("x"), tuple(arrays)))
        self.inputs.append(value)
        self.values.append(value)
        return value

    def fresh(self, *shape: int, dtype: str | None = None) -> Value:
        """An input of reals. An extent of -1 is the open dimension, or a small number."""
        extent = self.sizes[0] if self.sizes else self.whole(1, 7)
        shape = tuple(extent if each == -1 else each for each in shape)
        spread = self.one((0.5, 1, 3))
        return self.input(np.asarray(self.rng.normal(size=shape) * spread, dtype or self.reals), 1.0,
                          lambda shape: self.rng.normal(size=shape) * spread)

    def numbers(self, *lists: Sequence[int], dtype: str = "int64") -> Value:
        """An input of integers with a meaning: these in the first run, then the next list."""
        arrays = tuple(np.array(lists[run % len(lists)], dtype) for run in range(self.runs))
        value = self._known(Value(self.name("k"), arrays))
        self.inputs.append(value)
        return value

    def pick(self, rank: int | range | None = None, kinds: str = "f", dtype: str | None = None,
             fresh: float = 0.1) -> Value:
        """A value that is there, a late one more often, or a new input."""
        ranks = range(6) if rank is None else range(rank, rank + 1) if isinstance(rank, int) else rank
        fits = [each for each in self.values if each.rank in ranks and each.kind in kinds
                and dtype in (None, each.dtype) and each.size]
        if not fits or self.chance(fresh):
            rank = self.one(ranks)
            shape = [self.whole(1, 7 if rank < 4 else 5) for _ in range(rank)]
            if self.sizes and shape and self.chance(0.8):
                shape[self.whole(0, rank - 1)] = -1
            if "f" in kinds and (dtype is None or np.dtype(dtype).kind == "f"):
                return self.fresh(*shape, dtype=dtype)
            dtype = dtype or self.one([each for each in ("int64", "int32", "bool", "uint8", "int8")
                                       if np.dtype(each).kind in kinds])
            low = 0 if np.dtype(dtype).kind in "ub" else -5
            shape = [self.whole(1, 7) if each == -1 and not self.sizes else self.sizes[0] if each == -1 else each
                     for each in shape]
            return self.input(self.rng.integers(low, 2 if dtype == "bool" else 6, shape).astype(dtype))
        return fits[-1] if self.chance(0.35) else self.one(fits[-3:] if self.chance(0.6) else fits)

    # Nodes.

    def op(self, kind: str, *operands: Value | None, **attributes) -> Value:
        return self.ops(kind, *operands, **attributes)[0]

    def ops(self, kind: str, *operands: Value | None, outputs: int = 1, **attributes) -> list[Value]:
        """The results of a new node.

        Raises:
            Undrawn: the operands do not fit, or results are not numbers that say anything.
        """
        names = [each.name if each is not None else "" for each in operands]
        while names and not names[-1]:
            names.pop()
        results = [self.name("v") for _ in range(outputs)]
        node = helper.make_node(kind, names, results, **attributes)
        runs = [{name: self.named[name].arrays[run] for name in reads(node)} for run in range(self.runs)]
        with np.errstate(all="ignore"):
            found = computed(node, runs, self.opset)
        for array in (array for run in found for array in run):
            self.require_useful(array)
        self.nodes.append(node)
        made = [self._known(Value(name, tuple(run[place] for run in found))) for place, name in enumerate(results)]
        if any(len({array.ndim for array in value.arrays}) > 1 for value in made):
            raise Undrawn("ranks that differ")
        self.values += made
        return made

    def require_useful(self, array: np.ndarray) -> None:
        if array.size > MOST_ELEMENTS or array.ndim > 7:
            raise Undrawn("large")
        if array.dtype.kind == "f" and array.size and not (
                np.isfinite(array).all() and np.abs(array).max() <= LARGEST[array.dtype.name]) and self.chance(0.97):
            raise Undrawn("not finite, or large")

    def since(self, opset: int) -> None:
        if self.opset < opset:
            raise Undrawn(f"since opset {opset}")

    # The same in all opsets.

    def axes_op(self, kind: str, x: Value, axes: Sequence[int], since: int = 13, **attributes) -> Value:
        """Axes are an operand since that opset, an attribute before."""
        if self.opset >= since:
            return self.op(kind, x, self.ints(*axes), **attributes)
        if self.opset < 11:
            axes = [axis % (x.rank + (len(axes) if kind == "Unsqueeze" else 0)) for axis in axes]
        return self.op(kind, x, axes=list(axes), **attributes)

    def reduced(self, kind: str, x: Value, axes: Sequence[int], keepdims: int = 1) -> Value:
        return self.axes_op(kind, x, axes, 13 if kind == "ReduceSum" else 18, keepdims=keepdims)

    def sliced(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        if self.opset >= 10:
            return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step))
        if step != 1:
            raise Undrawn("steps are since opset 10")
        return self.op("Slice", x, starts=[start], ends=[end], axes=[axis % x.rank])

    def padded(self, x: Value, pads: Sequence[int], mode: str = "constant") -> Value:
        if self.opset < 11:
            return self.op("Pad", x, pads=list(pads), mode=mode)
        return self.op("Pad", x, self.ints(*pads), mode=mode)

    def split(self, x: Value, axis: int, parts: Sequence[int]) -> list[Value]:
        if self.opset < 13:
            return self.ops("Split", x, outputs=len(parts), axis=axis % x.rank, split=list(parts))
        return self.ops("Split", x, self.ints(*parts), outputs=len(parts), axis=axis)

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        return self.op("Reshape", x, self.ints(*shape))

    def cast(self, x: Value, dtype: str) -> Value:
        return self.op("Cast", x, to=element_type(np.zeros(1, dtype)))

    def fitted(self, value: Value, shape: tuple[int, ...], dtype: str) -> Value:
        """The value as one of another shape and dtype: cut, padded, reshaped."""
        if value.dtype != dtype:
            if np.dtype(dtype).kind in "iu" and value.kind == "f":
                value = self.op("Clip", value, min=-100.0, max=100.0) if self.opset < 11 else self.op(
                    "Clip", value, self.const(0, value.dtype), self.const(100, value.dtype))
            value = self.cast(value, dtype)
        if value.shape == shape:
            return value
        if value.rank == len(shape) and value.size:
            for axis, extent in enumerate(shape):
                if value.shape[axis] > extent:
                    value = self.sliced(value, axis, 0, extent)
            more = [extent - own for extent, own in zip(shape, value.shape, strict=True)]
            if any(more):
                first = [self.whole(0, extent) for extent in more]
                value = self.padded(value, first + [extent - own for extent, own in zip(more, first, strict=True)])
        elif value.size == int(np.prod(shape)):
            value = self.reshaped(value, shape)
        else:
            flat = self.reshaped(value, [-1])
            value = self.reshaped(self.fitted(flat, (int(np.prod(shape)),), dtype), shape)
        return value

    # The end.

    def outputs(self) -> list[Value]:
        """What nothing reads and some besides; seldom inputs and initializers."""
        read = {name for node in self.nodes for name in node.input}
        own = {name for node in self.nodes for name in node.output}
        chosen = [each for each in self.values if each.name in own and (
            (each.name not in read and self.chance(0.9)) or self.chance(0.08))]
        chosen = chosen or [each for each in self.values if each.name in own][-1:]
        if self.chance(0.03) and self.inputs:
            chosen.append(self.one(self.inputs))
        if self.chance(0.03) and self.constants:
            name = self.one(self.constants)
            chosen.append(Value(name, (self.constants[name],) * self.runs, True))
        return chosen

    def model(self, outputs: Sequence[Value]) -> onnx.ModelProto:
        def told(value: Value, shaped: bool = True) -> onnx.ValueInfoProto:
            shapes = {array.shape for array in value.arrays}
            shape = [extent if len({each[axis] for each in shapes}) == 1 else OPEN
                     for axis, extent in enumerate(value.shape)]
            return helper.make_tensor_value_info(value.name, element_type(value.arrays[0]), shape if shaped else None)

        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        return model_of(self.nodes, [told(each) for each in self.inputs],
                        [told(each, not self.sizes and len({array.shape for array in each.arrays}) == 1)
                         for each in outputs], constants, self.opset)
