# SPDX-License-Identifier: Apache-2.0
"""Random graphs of all operators, for tests of passes: any operator may precede or follow the operators of a rewrite.

A network is a short sequence of operators that read each other's results, chosen at random from the cases that
operators declare. A graph contains several independent networks, so that one run of a pass sees them all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from tvm_megcc import ops, passes  # noqa: F401  (registers the operators)
from tvm_megcc.errors import MegccError
from tvm_megcc.ir.conditions import recording
from tvm_megcc.ir.dims import Dim, Symbol
from tvm_megcc.ir.graph import EXTENT, Attrs, Graph, Op
from tvm_megcc.ir.types import DTYPES, TensorType
from tvm_megcc.ops.base import OPERATORS, Case, operator
from tvm_megcc.ops.rules import require_accepted

#: Operators that are left out: they contain graphs or C code.
_LEFT_OUT = ("loop", "branch", EXTENT, "tir", "extern")
KINDS = tuple(kind for kind in sorted(OPERATORS) if OPERATORS[kind].cases and kind not in _LEFT_OUT)
#: For each module of passes, the operators that it names. Networks prefer the operators of one module.
NAMED = tuple(found for path in sorted(Path(passes.__file__).parent.rglob("*.py")) if (found := tuple(
    kind for kind in KINDS if re.search(rf'"{kind}"', path.read_text()))))
#: Operators with constant tables for one shape, so that their operands keep the shapes of a case.
_OF_ONE_SHAPE = ("resize", "resize_bilinear", "resample", "trees")
#: The most attempts to add an operator that reads an existing value.
TRIES = 40


class Network:
    """A random sequence of operators.

    prefix: of the names of its values and symbols. opened: whether extents may become symbols. named: the operators
    that are preferred. symbols: extent -> the symbol that replaces it."""

    def __init__(self, prefix: str, generator: np.random.Generator, opened: bool):
        self.prefix, self.generator, self.opened = prefix, generator, opened
        self.named: tuple[str, ...] = self.chosen(NAMED)
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[str] = []
        self.ops: list[Op] = []
        self.values: list[str] = []
        self.symbols: dict[int, Symbol] = {}

    def chosen(self, items: Sequence):
        return items[int(self.generator.integers(len(items)))]

    def chance(self, share: float) -> bool:
        return bool(self.generator.random() < share)

    def name(self) -> str:
        return f"{self.prefix}{len(self.types)}"

    def constant(self, array: np.ndarray, dtype: str = "") -> str:
        name = self.name()
        self.constants[name], self.types[name] = array, TensorType(dtype or str(array.dtype), array.shape)
        return name

    def input(self, type_: TensorType) -> str:
        name = self.name()
        self.types[name] = type_
        self.inputs.append(name)
        self.values.append(name)
        return name

    def open(self, shape: Sequence[int]) -> tuple[Dim, ...]:
        """Returns a shape with some extents replaced by symbols, if the network is opened. Equal extents become one
        symbol, so that operands still match; half of the extents stay numbers."""
        for extent in shape:
            if self.opened and extent > 1 and extent not in self.symbols:
                self.symbols[extent] = Symbol(f"{self.prefix}d{extent}", extent) if self.chance(0.5) else extent
        return tuple(self.symbols.get(extent, extent) for extent in shape)

    def add(self, kind: str, attrs: Attrs, inputs: Sequence[str]) -> bool:
        """Adds an operator if its shape rule accepts the operands; returns whether it was added."""
        try:
            operands = [self.types[name] if name else None for name in inputs]
            with recording():
                types = operator(kind).infer(attrs, *operands)
            require_accepted(operator(kind), attrs, operands, [self.constants.get(name) for name in inputs])
        except (MegccError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
            return False  # types are not what shape rules have to expect: importers compare operands first
        if any(isinstance(dim, int) and dim > 4096 for type_ in types for dim in type_.shape):
            return False
        outputs = []
        for type_ in types:
            outputs.append(self.name())
            self.types[outputs[-1]] = type_
        self.ops.append(Op(kind, attrs, tuple(inputs), tuple(outputs), origin=f"{kind}:{outputs[0]}"))
        self.values += outputs
        return True

    def drawn(self, case: Case, index: int, made: bool = True) -> str:
        """Returns an operand of a case: a constant, a dequantised constant, an input or, if `made`, a result of a
        further operator."""
        spec = case.inputs[index]
        if spec is None:
            return ""
        shape, dtype = spec
        if index in case.constant or index in case.values or self.chance(0.3):
            array = np.asarray(case.values.get(index, self.generator.integers(0, 3, shape))).reshape(shape)
            if dtype == "float32" and self.chance(0.3):
                whole = self.constant(np.nan_to_num(array).clip(-100, 100).astype(np.int8))
                return self.quantised("dequantize_linear", whole, "int8")
            return "" if DTYPES[dtype].carrier else self.constant(np.ascontiguousarray(array.astype(dtype)), dtype)
        type_ = TensorType(dtype, self.open(shape))
        return self.made(type_) if made and self.chance(0.5) else self.input(type_)

    def made(self, type_: TensorType) -> str:
        """Returns a value of this type that a further operator computes; an input if no such operator was found."""
        for _ in range(TRIES // 4):
            kind = self.chosen(self.named if self.chance(0.3) else KINDS)
            case, count = self.chosen(OPERATORS[kind].cases), self.count
            if kind in _OF_ONE_SHAPE or not case.inputs or case.inputs[0] is None:
                continue
            inputs = [self.input(TensorType(spec[1], type_.shape)) if spec == case.inputs[0] else
                      self.drawn(case, index, made=False) for index, spec in enumerate(case.inputs)]
            if self.add(kind, self.fitting(kind, Attrs(case.attrs), inputs[0]), inputs):
                found = [name for name in self.ops[-1].outputs if self.types[name] == type_]
                if found:
                    return found[0]
            self.forget(count)
        return self.input(type_)

    def quantised(self, kind: str, name: str, dtype: str) -> str:
        parameters = [self.constant(np.float32(self.chosen([0.5, 0.02]))), self.constant(np.zeros((), dtype))]
        attrs = Attrs(axis=1, block=0, **({"dtype": dtype} if kind == "quantize_linear" else {"dtype": "float32"}))
        return self.ops[-1].outputs[0] if self.add(kind, attrs, (name, *parameters)) else name

    def extend(self, kind: str) -> bool:
        """Adds an operator of this kind that reads an existing value; returns whether it was added."""
        if not self.values:
            case = self.chosen(OPERATORS[kind].cases)
            return self.add(kind, Attrs(case.attrs), [self.drawn(case, index) for index in range(len(case.inputs))])
        for _ in range(TRIES):
            case = self.chosen(OPERATORS[kind].cases)
            value = self.values[-1] if self.chance(0.7) else self.chosen(self.values)
            places = [index for index, spec in enumerate(case.inputs) if spec and spec[1] == self.types[value].dtype]
            if kind in _OF_ONE_SHAPE:
                places = [index for index in places if case.inputs[index][0] == self.types[value].shape and index == 0]
            if not places:
                continue
            place, alike = self.chosen(places), self.chance(0.5)
            attrs = self.fitting(kind, Attrs(case.attrs), value)
            count = self.count
            inputs = [value if index == place or (alike and index in places) else self.drawn(case, index)
                      for index in range(len(case.inputs))]
            if self.add(kind, attrs, inputs):
                return True
            self.forget(count)
        return False

    def fitting(self, kind: str, attrs: Attrs, value: str) -> Attrs:
        """Returns attributes that fit the shape of a value: random ones for transpose and reshape."""
        shape = self.types[value].shape
        if kind == "transpose":
            return Attrs(perm=tuple(int(axis) for axis in self.generator.permutation(len(shape))))
        if kind == "reshape" and shape:
            axis = int(self.generator.integers(len(shape)))
            last = (shape[-2] * shape[-1],) if len(shape) > 1 else shape
            return Attrs(shape=self.chosen([shape, (-1,), (*shape[:-2], *last), (*shape, 1),
                                            (*shape[:axis], 1, *shape[axis:])]))
        return attrs

    @property
    def count(self) -> tuple[int, int, int, int]:
        """The numbers of types, inputs, values and operators, for `forget`."""
        return len(self.types), len(self.inputs), len(self.values), len(self.ops)

    def forget(self, count: tuple[int, int, int, int]) -> None:
        """Removes everything that was added since `count` was read."""
        types, inputs, values, operators = count
        for name in list(self.types)[types:]:
            del self.types[name]
            self.constants.pop(name, None)
        del self.inputs[inputs:], self.values[values:], self.ops[operators:]


@cache
def drawn_network(prefix: str, seed: int, opened: bool = False, length: int = 4) -> Network:
    generator = np.random.default_rng([seed, opened])
    network = Network(prefix, generator, opened)
    while len(network.ops) < length:
        network.extend(network.chosen(network.named if network.chance(0.7) else KINDS))
        last = network.values[-1] if network.values else ""
        if last and network.types[last].dtype == "float32" and network.chance(0.4):
            integers = network.quantised("quantize_linear", last, network.chosen(["int8", "uint8"]))
            network.quantised("dequantize_linear", integers, network.types[integers].dtype)
    return network


def graph_of(networks: Sequence[Network], name: str = "drawn") -> Graph:
    """Returns a graph of several networks. Its outputs are the values that nothing reads, and some others."""
    operators = tuple(op for network in networks for op in network.ops)
    read, generator = {name for op in operators for name in op.inputs}, np.random.default_rng(len(operators))
    outputs = tuple(result for op in operators for result in op.outputs
                    if result not in read or generator.random() < 0.1)
    types = {name: type_ for network in networks for name, type_ in network.types.items()}
    constants = {name: array for network in networks for name, array in network.constants.items()}
    inputs = tuple(name for network in networks for name in network.inputs)
    return Graph(name, inputs, outputs, operators, types, constants)
