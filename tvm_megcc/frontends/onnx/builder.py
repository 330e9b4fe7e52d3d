# SPDX-License-Identifier: Apache-2.0
"""Constructs a graph: infers the types of each operator as it is emitted, and folds constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from ...errors import MegccError, ShapeError
from ...ir.conditions import Condition, distinct, recording
from ...ir.dims import Dim, symbols
from ...ir.extent_bounds import limits
from ...ir.graph import EXTENT, Attrs, Body, Graph, Op, is_open, prune
from ...ir.limits import MAX_BYTES
from ...ir.narrow import widened
from ...ir.types import TensorType
from ...ops.base import OnnxNode, operator
from ...ops.rules import compute_stored, require_accepted
from .folding import FoldingBudget
from .load import tensor_array
from .seeds import Seeds
from .shapes import shape_value
from .strings import StringTable
from .unbacked import UnbackedSymbols

#: The most elements of an integer constant that is treated as a shape, or that parts of a shape are read from.
MAX_SHAPE_ELEMENTS = 4096


@dataclass(frozen=True)
class Checkpoint:
    """A state of a builder that can be restored.

    ops, conditions: how many there are. constants: the names of the constants. taken: the names of the symbols.
    constant_bytes: the size of the model's own constants.
    """

    ops: int
    conditions: int
    constants: frozenset[str]
    taken: frozenset[str]
    constant_bytes: int


class Builder:
    """Collects operators over named values. All front ends construct their graphs with it.

    ops: the operators in order of execution.
    types: the type of every value.
    constants: the arrays of values that are known at compile time.
    shapes: the integer values that depend on shape symbols, as arrays of `Dim`; their element type is in `types`.
    producers: the operator that computes a value, by the value's name.
    conditions: constraints that operators put on the symbols.
    unbacked: the symbols of extents that a run computes.
    folding: the budget for operators that are computed at compile time.
    seeds: the seed of random operators.
    strings: the strings of the model, which values contain as integer codes.
    """

    def __init__(self, bounds: Mapping[str, int] | None = None):
        self.unbacked = UnbackedSymbols(self, bounds)
        self.ops: list[Op] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, np.ndarray] = {}
        self.producers: dict[str, Op] = {}
        self.conditions: list[Condition] = []
        self.folding = FoldingBudget()
        self.seeds = Seeds(self)
        self.strings = StringTable()
        self._counters: dict[str, int] = {}
        self._used_names: set[str] = set()

    @contextmanager
    def importing(self, origin: str) -> Iterator[None]:
        """Imports an operator of the model within the block. Constraints on symbols that arise there are kept, with
        the operator as their origin."""
        with recording(origin) as conditions:
            yield
        self.conditions += conditions

    def unique(self, hint: str) -> str:
        """Returns a name that no value has, and that no other call returns: the hint itself or `hint.1`, `hint.2`, …"""
        name = hint or "value"
        while name in self.types or name in self._used_names:
            self._counters[hint] = self._counters.get(hint, 0) + 1
            name = f"{hint}.{self._counters[hint]}"
        self._used_names.add(name)
        return name

    def add_input(self, name: str, type_: TensorType) -> None:
        self.types[name] = type_
        self.unbacked.taken.update(*map(symbols, type_.shape))

    def checkpoint(self) -> Checkpoint:
        """Returns the current state, for `restore`."""
        return Checkpoint(len(self.ops), len(self.conditions), frozenset(self.constants),
                          frozenset(self.unbacked.taken), self.folding.constant_bytes)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restores a state: drops the operators and constants added since, with their constraints and symbols. Inputs
        that were added since stay in `types`; no operator reads them."""
        produced = [name for op in self.ops[checkpoint.ops:] for name in op.outputs]
        for name in (*produced, *(self.constants.keys() - checkpoint.constants)):
            for table in (self.producers, self.shapes, self.constants, self.types, self.strings.tensors):
                table.pop(name, None)
            self._used_names.discard(name)
        self.unbacked.forget({op.attrs.symbol.name for op in self.ops[checkpoint.ops:] if op.kind == EXTENT})
        self.unbacked.taken &= checkpoint.taken
        self.folding.constant_bytes = checkpoint.constant_bytes
        del self.ops[checkpoint.ops:], self.conditions[checkpoint.conditions:]

    def weight(self, array: np.ndarray, hint: str = "constant", is_string: bool = False) -> str:
        """Adds a constant that the model itself contains, and returns its name."""
        name = self.constant(array, hint)
        if is_string:
            self.strings.mark(name)
        self.folding.constant_bytes += self.constants[name].nbytes
        return name

    def constant(self, array: np.ndarray, hint: str = "constant") -> str:
        """Adds a constant that the import computes, and returns its name."""
        name = self.unique(hint)
        array = np.asarray(array)
        self.types[name] = TensorType(array.dtype.name, tuple(array.shape))
        self.constants[name] = array
        return name

    def shape_constant(self, dims: Sequence[Dim], hint: str) -> str:
        """Returns the extents as an int64 value, which is a constant if all of them are known."""
        if all(isinstance(dim, int) for dim in dims):
            return self.constant(np.array(dims, np.int64), hint)
        name = self.unique(hint)
        self.types[name] = TensorType("int64", (len(dims),))
        self.shapes[name] = np.empty(len(dims), object)
        self.shapes[name][:] = dims
        return name

    def extent(self, dim: Dim, hint: str) -> str:
        """Returns a symbolic extent as a value that is computed at run time."""
        name = self.unique(hint)
        self.types[name], self.shapes[name] = TensorType("int64", ()), np.array(dim, object)
        self.ops.append(Op("dims", Attrs(extents=(dim,), shape=(), dtype="int64"), (), (name,)))
        self.producers[name] = self.ops[-1]
        return name

    def emit(self, kind: str, inputs: Sequence[str], attrs: Attrs, origin: str, hint: str) -> tuple[str, ...]:
        """Adds an operator and returns its results. If they are known already, they become constants or shapes and no
        operator is added.

        Raises:
            ShapeError: for contradictory operands, or a result of 2 GB or more.
        """
        declaration = operator(kind)
        inputs = tuple(inputs)
        declaration.require_operands(inputs)
        types = [self.types[name] if name else None for name in inputs]
        results = declaration.infer(attrs, *types)
        require_accepted(declaration, attrs, types, [self.constants.get(name) for name in inputs])
        for type_ in results:
            if any(isinstance(dim, int) and not 0 <= dim < 2**31 for dim in type_.shape):
                raise ShapeError(f"its result would be {type_}, and extents lie between 0 and 2^31 - 1")
            if (size := type_.static_bytes) is not None and size > MAX_BYTES:
                raise ShapeError(f"its result {type_} has {size:,} bytes, and no tensor may reach 2 GB; "
                                 "use a smaller input shape")
        is_static = all(type_.is_static for type_ in results)
        # `_empty_tensor` emits an `expand` for symbolic extents, which must not lead back to `_empty_tensor`.
        if all(type_.size == 0 for type_ in results) and (is_static or kind != "expand"):
            return tuple(self._empty_tensor(type_, origin, hint) for type_ in results)
        is_constant = is_static and not is_open(attrs) and all(not name or name in self.constants for name in inputs)
        # A single number is folded in any case, since importers ask for bounds, axes and trip counts as constants.
        can_fold = is_constant and declaration.evaluates(attrs) and (declaration.folds or results[0].size == 1)
        if can_fold and self._charge_folding(kind, attrs, inputs, results):
            arrays = compute_stored(declaration, attrs, [self.constants.get(name) for name in inputs],
                              [type_.dtype for type_ in results])
            return tuple(self.constant(array, hint) for array in arrays)
        names = []
        for type_ in results:
            names.append(self.unique(hint))
            self.types[names[-1]] = type_
        known = shape_value(kind, attrs, [self.integers(name) for name in inputs], types, results[0])
        if known is not None:
            self._add_shape(names[0], known)
        if names[0] not in self.constants:
            self.ops.append(Op(kind, attrs, inputs, tuple(names), origin=origin))
            self.producers.update(dict.fromkeys(names, self.ops[-1]))
        return tuple(names)

    def _empty_tensor(self, type_: TensorType, origin: str, hint: str) -> str:
        """Returns a tensor without elements. Some of its extents may be symbolic; only one kernel handles these."""
        if type_.is_static:
            return self.constant(np.zeros(type_.shape, np.dtype(type_.dtype)), hint)
        zero = self.constant(np.zeros([1] * type_.rank, np.dtype(type_.dtype)), hint)
        return self.emit("expand", (zero,), Attrs(shape=type_.shape), origin, hint)[0]

    def _charge_folding(self, kind: str, attrs: Attrs, inputs: Sequence[str], results: Sequence[TensorType]) -> bool:
        """Whether the budget allows to compute an operator on constants at compile time. If not, it is computed in
        every run.

        Raises:
            ShapeError: if the budget does not allow it and no kernel can compute the operator.
        """
        arrays = [self.constants.get(name) for name in inputs]
        if self.folding.charge(kind, attrs, arrays, [self.types[name] if name else None for name in inputs], results):
            return True
        if operator(kind).kernels:
            return False
        raise ShapeError(f"its result {', '.join(map(str, results))} is known before the model runs, but is too large "
                         "to be computed then; use smaller shapes")

    def integers(self, name: str) -> np.ndarray | None:
        """Returns the elements of an integer value that is known at compile time, None for another value."""
        if name in self.shapes:
            return self.shapes[name]
        array = self.constants.get(name)
        if array is None or array.dtype.kind not in "iub" or array.size > MAX_SHAPE_ELEMENTS:
            return None
        return array.astype(object)

    def _add_shape(self, name: str, value: np.ndarray) -> None:
        """Adds a value whose elements are extents: as a constant if all are numbers, else as a shape."""
        if all(isinstance(item, (int, np.integer)) for item in value.flat):
            self.constants[name] = value.astype(np.dtype(self.types[name].dtype))
        else:
            self.shapes[name] = value

    def copy(self, value: str, name: str) -> str:
        """Copies a value to another name, which must be unused, and returns that name. An output needs a copy if it is
        a constant, an input or another output."""
        self.types[name] = self.types[value]
        if value in self.strings.tensors:
            self.strings.mark(name)
        self.ops.append(Op("copy", Attrs(), (value,), (name,), origin=name))
        return name

    def rename(self, names: Mapping[str, str], first_op: int = 0) -> dict[str, str]:
        """Renames values that no operator before `first_op` uses. A value that has one of the new names, which no
        operator before `first_op` may use either, is renamed too.

        Returns:
            Old names -> new names, of all renamed values.
        """
        new_names = dict(names)
        for new in names.values():
            if new in self.types and new not in new_names:
                new_names[new] = self.unique(new)
        for table in (self.types, self.constants, self.shapes, self.producers, self.strings.tensors):
            table.update([(new, table.pop(old)) for old, new in new_names.items() if old in table])
        if new_names:
            def renamed(values: Sequence[str]) -> tuple[str, ...]:
                return tuple(new_names.get(name, name) for name in values)

            self.ops[first_op:] = [op.with_(inputs=renamed(op.inputs), outputs=renamed(op.outputs))
                                   for op in self.ops[first_op:]]
            self.producers.update((name, op) for op in self.ops[first_op:] for name in op.outputs)
        return new_names

    def subgraph(self, first_op: int) -> Graph:
        """Returns the operators from `first_op` on as a graph of their own, whose inputs are the values that they read
        and whose outputs are all their results."""
        ops = self.ops[first_op:]
        produced = [name for op in ops for name in op.outputs]
        read = dict.fromkeys(name for op in ops for name in op.inputs if name and name not in self.constants)
        inputs = [name for name in read if name not in produced]
        names = {*read, *produced, *(name for op in ops for name in op.inputs if name)}
        return Graph("part", tuple(inputs), tuple(produced), tuple(ops), {name: self.types[name] for name in names},
                     {name: self.constants[name] for name in names if name in self.constants})

    def body(self, first_op: int, inputs: Sequence[str], results: Sequence[str]) -> tuple[Body, tuple[str, ...]]:
        """Moves the operators from `first_op` on into a body, which is a graph of its own. Returns the body and the
        names of the outer values that it reads; these are its inputs after the given ones."""
        results = list(results)
        for index, value in enumerate(results):
            produced = {name for op in self.ops[first_op:] for name in op.outputs}
            if value not in produced or value in results[:index]:
                results[index] = self.copy(value, self.unique(f"{value}.result"))
        ops = self._replace_shape_arithmetic(self.ops[first_op:])
        del self.ops[first_op:]
        produced = {name for op in ops for name in op.outputs}
        self.unbacked.forget({op.attrs.symbol.name for op in ops if op.kind == EXTENT})
        for name in produced:
            self.producers.pop(name, None)
        read = dict.fromkeys(name for op in ops for name in op.inputs if name)
        captured = tuple(name for name in read if not (name in self.constants or name in produced or name in inputs))
        types = {name: self.types[name] for name in (*read, *produced, *inputs)}
        constants = {name: self.constants[name] for name in read if name in self.constants}
        graph = Graph("body", (*inputs, *captured), tuple(results), ops, types, constants)
        return Body(prune(graph)), captured

    def outputs(self, results: Sequence[str], inputs: Sequence[str], names: Sequence[str] = ()) -> list[str]:
        """Gives each result a name of its own, from `names`, then output0, output1, … Copies results that cannot be
        renamed: inputs, constants and results that occur twice. Returns the names.

        inputs: the names of the graph's inputs.
        """
        outputs: list[str] = []
        for index in range(len(results)):
            value = results[index]
            output = self.unique(names[index] if index < len(names) else f"output{index}")
            if value in inputs or value in outputs or value in self.constants:
                self.copy(value, output)
            else:
                self.rename({value: output})
                results = [output if other == value else other for other in results]
            outputs.append(output)
        return outputs

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """Returns the finished graph, without operators and constants that no output depends on."""
        self.ops = list(self._replace_shape_arithmetic(self.ops))
        graph = Graph(name, tuple(inputs), tuple(outputs), tuple(self.ops), self.types, self.constants,
                      conditions=distinct(self.conditions))
        return prune(graph)

    def _replace_shape_arithmetic(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Replaces the arithmetic that computes a shape value by one operator `dims`, if operators read the value as
        data. The arithmetic stays where the value may be negative, which `dims` does not accept."""
        with_shapes = []
        for op in ops:
            if len(op.outputs) == 1 and op.outputs[0] in self.shapes and not any(
                    map(_may_be_negative, self.shapes[op.outputs[0]].flat)):
                value, type_ = self.shapes[op.outputs[0]], self.types[op.outputs[0]]
                attrs = Attrs(extents=tuple(value.flat), shape=type_.shape, dtype=type_.dtype)
                op = Op("dims", attrs, (), op.outputs, origin=op.origin)
            with_shapes.append(op)
        return tuple(with_shapes)


def _may_be_negative(dim: Dim) -> bool:
    minimum = limits(dim)[0]
    return minimum is None or minimum < 0


class Node(OnnxNode):
    """A node of the ONNX file with its operands resolved to values of the builder. `Operator.from_onnx` reads it.

    The base class documents the methods.
    """

    def __init__(self, builder: Builder, proto: onnx.NodeProto, inputs: Sequence[str], opset: int, folder: Path | None,
                 declared: Sequence[tuple[int, ...] | None] = ()):
        """opset: operator set of the node's domain. folder: where external data lies. declared: the shapes that the
        file declares for the outputs."""
        self.op_type = proto.op_type
        self.name = proto.name or (proto.output[0] if proto.output else proto.op_type)
        self.opset = opset
        self.inputs = tuple(inputs)
        self.num_outputs = len(proto.output)
        self.outputs = tuple(proto.output)
        self._builder, self._folder, self._declared = builder, folder, declared
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    def attr(self, name: str, default=None):
        attribute = self._attributes.get(name)
        if attribute is None:  # an attribute in the file is a float32, so the default is rounded to one too
            return float(np.float32(default)) if isinstance(default, float) else default
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            return tensor_array(value, self._folder, self._builder.strings)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if attribute.type == onnx.AttributeProto.STRINGS:
            return [text.decode("utf-8", "replace") for text in value]
        return list(value) if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value

    def strings(self, *names: str) -> np.ndarray | None:
        for name in names:
            attribute = self._attributes.get(name, onnx.AttributeProto())
            if attribute.type == onnx.AttributeProto.STRINGS and attribute.strings:
                return self._builder.strings.codes(attribute.strings, (len(attribute.strings),))
            if attribute.type == onnx.AttributeProto.STRING:
                return self._builder.strings.codes([attribute.s], ())
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == onnx.TensorProto.STRING:
                return self.attr(name)
        return None

    def is_string(self, index: int) -> bool:
        return self.has(index) and self.inputs[index] in self._builder.strings.tensors

    def as_strings(self, value: str) -> str:
        self._builder.strings.mark(value)
        return value

    def string_index(self, text: str) -> int:
        return int(self._builder.strings.codes([text], ()))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes that the node has."""
        return tuple(self._attributes)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and bool(self.inputs[index])

    def type(self, index: int) -> TensorType | None:
        return self._builder.types.get(self.inputs[index]) if self.has(index) else None

    def type_of(self, value: str) -> TensorType:
        return self._builder.types[value]

    def is_const(self, index: int) -> bool:
        return self.has(index) and self.inputs[index] in self._builder.constants

    def is_constant(self, value: str) -> bool:
        return value in self._builder.constants

    def is_known(self, index: int) -> bool:
        return self.is_const(index) or (self.has(index) and self.inputs[index] in self._builder.shapes)

    def is_shape_derived(self, index: int) -> bool:
        return not self.has(index) or self._builder.unbacked.known(self.inputs[index])

    def declared_shape(self, output: int = 0) -> tuple[int, ...] | None:
        return self._declared[output] if output < len(self._declared) else None

    def const(self, index: int, what: str = "") -> np.ndarray | None:
        if not self.has(index):
            return None
        array = self._builder.constants.get(self.inputs[index])
        if array is None:
            raise MegccError(f"needs its operand {what or index} to be a constant, but it is computed at run time; "
                             "fold it in the model, or simplify the model")
        return array if array.dtype == np.float16 else widened(array)

    def dims(self, index: int, what: str = "", limit: Dim | None = None) -> tuple[Dim, ...] | None:
        if not self.has(index):
            return None
        value = self._builder.shapes.get(self.inputs[index])
        if value is None and not self.is_const(index):
            try:
                value = self._builder.unbacked.extents(self.inputs[index], limit, self.name)
            except MegccError as error:
                raise MegccError(f"its operand {what or index} is computed at run time: {error}") from None
        elif value is None:
            value = self.const(index, what)
            if value.dtype.kind not in "iu":
                raise ShapeError(f"its operand {what or index} is {value.dtype}, and integers are wanted")
            if value.size > MAX_SHAPE_ELEMENTS:
                raise ShapeError(f"its operand {what or index} has {value.size:,} numbers, too many for extents")
            value = value.astype(object)
        return tuple(item if not isinstance(item, np.integer) else int(item) for item in value.reshape(-1))

    def extent_bound(self, limit: Dim | None) -> Dim | None:
        return self._builder.unbacked.bound(self._hint(), limit)

    def extent(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return self.constant(np.array(dim, np.int64))
        return self._builder.extent(dim, f"{self._hint()}.extent")

    def constant_of(self, value: str) -> np.ndarray:
        """Returns the array of a constant, given by its name."""
        return self._builder.constants[value]

    def extents(self, value: str) -> tuple[Dim, ...]:
        """Returns the elements of an integer value as extents; those computed at run time become symbols."""
        return tuple(int(dim) if isinstance(dim, np.integer) else dim
                     for dim in self._builder.unbacked.extents(value, None, self.name).reshape(-1))

    def resolve_dims(self, value: str, limit: Dim | None, resolve: Callable[[Collection[int]], str]) -> tuple[Dim, ...]:
        extents = self._builder.unbacked.resolved(value, limit, self.name, resolve)
        return tuple(int(dim) if isinstance(dim, np.integer) else dim for dim in extents)

    def unbacked_extent(self, value: str, limit: Dim | None, element: int = 0, name: str = "") -> Dim:
        return self._builder.unbacked.extent(value, element, limit, self.name, name or self._hint())

    def random_key(self) -> tuple[str, int]:
        return self._builder.seeds.key(self.name), self._builder.seeds.number()

    def producer(self, value: str) -> Op | None:
        return self._builder.producers.get(value)

    def constant(self, array: np.ndarray) -> str:
        return self._builder.constant(array, f"{self._hint()}.constant")

    def require_budget(self, *extents: Dim) -> None:
        self._builder.folding.require_budget(extents)

    def emit(self, kind: str, inputs: Sequence[str], **attrs) -> tuple[str, ...]:
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        return self._builder.emit(kind, inputs, Attrs(attrs), self.name, f"{self._hint()}.{kind}")

    def _hint(self) -> str:
        return next(filter(None, self.outputs), self.name)
