# SPDX-License-Identifier: Apache-2.0
"""One operator of ONNX, drawn by its schema: dtypes, optional inputs, attributes, shapes, values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto
from onnx.defs import OpSchema

#: Types of the schemas that models are drawn with, and numpy's names.
DTYPES = {"float": "float32", "float16": "float16", "double": "float64", "bool": "bool", "string": "object",
          **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}}
#: Real numbers that few models have: infinite, not a number, with a square beyond float16 or float32, next to 0.
SPECIAL = (np.inf, -np.inf, np.nan, -0.0, 300.0, -3e4, 3e19, -3e38, 1e-7)
FORMAL = OpSchema.FormalParameterOption


@dataclass(frozen=True)
class Operand:
    """An input of the operator. constant: it is an initializer. twin: the earlier operand that it is, -1 for none."""

    array: np.ndarray | None
    constant: bool = False
    twin: int = -1


@dataclass
class Draw:
    """What rules draw with, and into.

    dtypes: numpy's dtype for each type variable of the schema. nodes: in place of the one operator, over operands x0,
    x1, … and with results y0, …; empty for the operator alone.
    """

    rng: np.random.Generator
    schema: OpSchema
    opset: int
    dtypes: dict[str, str] = field(default_factory=dict)
    operands: list[Operand] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: int = 1
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one(self, choices):
        choices = list(choices)
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        """From low to high, both among them."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 0, high: int = 5, empty: float = 0.02) -> tuple[int, ...]:
        """Mostly small extents; 1 often, 0 seldom. At most some thousand elements."""
        rank = self.whole(low, high)
        top = 7 if rank < 4 else 4
        return tuple(0 if self.chance(empty) else 1 if self.chance(0.2) else self.whole(1, top) for _ in range(rank))

    def dtype(self, variable: str) -> str:
        """numpy's dtype of a type variable, or of a type."""
        if variable not in self.dtypes:
            self.dtypes[variable] = self.one(types_of(self.schema, variable))
        return self.dtypes[variable]

    def input_dtype(self, place: int) -> str:
        return self.dtype(self.schema.inputs[min(place, len(self.schema.inputs) - 1)].type_str)

    def values(self, shape: tuple[int, ...], dtype: str, low: float | None = None,
               high: float | None = None) -> np.ndarray:
        """Numbers of both signs, ends of the type seldom; within [low, high] where that is given."""
        kind = np.dtype(dtype).kind
        if dtype == "object":
            words = np.array(["", "a", "B", "ab", "a b", "zwölf", "1"], dtype=object)
            return np.asarray(words[self.rng.integers(len(words), size=shape)], object).reshape(shape)
        if kind == "b":
            return self.rng.random(shape) < 0.5
        if kind == "f":
            if low is None:
                drawn = self.rng.normal(size=shape) * self.one((0.5, 2, 20))
                drawn = np.where(self.rng.random(shape) < 0.1, self.rng.integers(-3, 4, shape), drawn)
                drawn = self.with_ends(drawn, SPECIAL)
            else:
                drawn = self.rng.uniform(low, high, shape)
            return np.asarray(drawn).astype(dtype)
        ends, free = np.iinfo(dtype), low is None
        low, high = max(ends.min, -9 if low is None else int(low)), min(ends.max, 9 if high is None else int(high))
        drawn = self.rng.integers(low, high + 1, size=shape).astype(dtype)
        return self.with_ends(drawn, [ends.min, ends.max]) if free else drawn

    def with_ends(self, array: np.ndarray, ends: Sequence[float]) -> np.ndarray:
        """With some of ends among its values, seldom."""
        if not self.chance(0.04):
            return array
        drawn = np.asarray(ends, array.dtype)[self.rng.integers(len(ends), size=array.shape)]
        return np.where(self.rng.random(array.shape) < 0.2, drawn, array)

    def add(self, array: np.ndarray | None, constant: float = 0.3) -> np.ndarray | None:
        """An operand. constant: the chance that it is an initializer. One without elements mostly is: as an input it
        is refused."""
        if array is not None and not np.asarray(array).size:
            constant = 0.95
        self.operands.append(Operand(array, array is not None and self.chance(constant)))
        return array

    def add_values(self, shape: tuple[int, ...], constant: float = 0.3, **limits) -> np.ndarray:
        return self.add(self.values(shape, self.input_dtype(len(self.operands)), **limits), constant)

    def add_ints(self, numbers, constant: float = 0.8, dtype: str | None = None) -> None:
        """An operand whose values mean something: axes, shapes, pads."""
        self.add(np.array(numbers, dtype or self.input_dtype(len(self.operands))), constant)

    def maybe(self, name: str, value, share: float = 0.6) -> object:
        """An attribute that may stay away, if the schema has it: its value or the default's."""
        if name in self.schema.attributes and self.chance(share):
            self.attributes[name] = value
            return value
        return default_of(self.schema, name)

    def axis(self, rank: int) -> int:
        return self.whole(-rank, rank - 1) if rank else 0

    def axes(self, rank: int, most: int = 5) -> list[int]:
        """Some axes, in any order, some counted from the end."""
        count = self.whole(1, min(rank, most)) if rank else 0
        chosen = self.rng.permutation(rank)[:count]
        return [int(axis) - rank * int(self.chance(0.3)) for axis in chosen]

    def has_input(self, name: str) -> bool:
        return any(formal.name == name for formal in self.schema.inputs)


def types_of(schema: OpSchema, variable: str) -> list[str]:
    """numpy's dtypes that the schema allows, those of numbers in reals more often."""
    allowed = next((row.allowed_type_strs for row in schema.type_constraints if row.type_param_str == variable),
                   [variable])
    found = [DTYPES[inner] for text in allowed if (inner := re.sub(r"^tensor\((.*)\)$", r"\1", text)) in DTYPES]
    if not found:
        raise Undrawn(f"{schema.name}: no dtype of {variable}")
    return found + ["float32"] * (2 * len(found) if "float32" in found else 0)


def default_of(schema: OpSchema, name: str):
    """None if the schema has no such attribute, or no default."""
    row = schema.attributes.get(name)
    if row is None or row.default_value is None or row.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(row.default_value)
    return value.decode() if isinstance(value, bytes) else value


class Undrawn(Exception):
    """A schema that no rule draws."""


def element_type(array: np.ndarray) -> int:
    return TensorProto.STRING if array.dtype == object else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def broadcast(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that goes with another: extents of 1, leading axes left out."""
    kept = shape[draw.whole(0, len(shape)):] if draw.chance(0.3) else shape
    return tuple(1 if draw.chance(0.25) else extent for extent in kept)


def by_schema(draw: Draw) -> None:
    """The rule of operators whose schema says it all: elementwise ones, with broadcasting."""
    shape = draw.shape()
    for place, formal in enumerate(draw.schema.inputs):
        if formal.option == FORMAL.Optional and draw.chance(0.4):
            draw.add(None)
            continue
        for _ in range(draw.whole(1, 4) if formal.option == FORMAL.Variadic else 1):
            same = [at for at, other in enumerate(draw.operands)
                    if other.array is not None and other.array.dtype == np.dtype(draw.dtype(formal.type_str))]
            if same and draw.chance(0.1):
                twin = draw.one(same)
                draw.operands.append(Operand(draw.operands[twin].array, False, twin))
            else:
                own = shape if place == 0 and not draw.operands else broadcast(draw, shape)
                draw.add(draw.values(own, draw.dtype(formal.type_str)), 0.2)
    draw.outputs = max(1, sum(formal.option == FORMAL.Single for formal in draw.schema.outputs))
    for name, row in draw.schema.attributes.items():
        _attribute(draw, name, row)


def _attribute(draw: Draw, name: str, row: OpSchema.Attribute) -> None:
    default = default_of(draw.schema, name)
    if not row.required and draw.chance(0.4):
        return
    if row.type == OpSchema.AttrType.FLOAT:
        draw.attributes[name] = draw.one((0.0, 1.0, -1.0, 0.5, 2.0, 0.1) if default is None else
                                         (default, 0.0, 1.0, 0.5, -0.5, 2.0))
    elif row.type == OpSchema.AttrType.INT:
        draw.attributes[name] = draw.one((0, 1) if default is None else (default, 0, 1))
    elif default is None and row.required:
        raise Undrawn(f"{draw.schema.name}: {name} needs a rule")
