# SPDX-License-Identifier: Apache-2.0
"""One more node of a graph, drawn by the rule of its operator, that reads values which are there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx

from ..cases import RANDOM, kinds
from ..draw import Draw, Undrawn, by_schema, types_of
from ..rules import RULES, sequences
from .builder import Builder, Value

#: Whose later integer operands have to be what the rule drew: no zero divides, no index lies outside.
_OWN_INTEGERS = {"Div", "Mod", "BitShift", "Pow"}
#: Text is no value of a chain, and results of these are not the same twice or of a type that no other operator reads.
_NOT_HERE = {"Unique", "Dropout", "Det", "Identity", *RANDOM, *sequences.RULES, "StringNormalizer", "TfIdfVectorizer"}


@dataclass
class ChainDraw(Draw):
    """A draw whose operands are values of a graph wherever the rule leaves open what they hold.

    taken: the values that are operands. free: ids of arrays of which the rule wants nothing but shape and dtype.
    """

    builder: Builder | None = None
    focus: Value | None = None
    taken: dict[int, Value] = field(default_factory=dict)
    free: dict[int, np.ndarray] = field(default_factory=dict)

    def shape(self, low: int = 0, high: int = 5, empty: float = 0.02) -> tuple[int, ...]:
        fits = [each.shape for each in self.builder.values if low <= each.rank <= high and each.size]
        if self.focus is not None and low <= self.focus.rank <= high and self.chance(0.7):
            return self.focus.shape
        if fits and self.chance(0.6):
            return self.one(fits[-5:])
        return super().shape(low, high, empty / 4)

    def dtype(self, variable: str) -> str:
        if variable not in self.dtypes:
            allowed = types_of(self.schema, variable)
            own = [each for each in self.builder.values[-4:] if each.dtype in allowed]
            if self.focus is not None and self.focus.dtype in allowed and self.chance(0.8):
                self.dtypes[variable] = self.focus.dtype
            elif own and self.chance(0.7):
                self.dtypes[variable] = self.one(own).dtype
            elif self.builder.reals in allowed and self.chance(0.6):
                self.dtypes[variable] = self.builder.reals
            else:
                self.dtypes[variable] = self.one(allowed)
        if self.dtypes[variable] == "object":
            raise Undrawn("text")
        return self.dtypes[variable]

    def one(self, choices):
        return self.builder.one(choices)

    def whole(self, low: int, high: int) -> int:
        return self.builder.whole(low, high)

    def values(self, shape, dtype, low=None, high=None) -> np.ndarray:
        array = super().values(shape, dtype, low, high)
        if array.dtype.kind in "fb" or (low is None and not (
                self.operands and self.schema.name in _OWN_INTEGERS)):
            self.free[id(array)] = array
        return array

    def add(self, array: np.ndarray | None, constant: float = 0.3) -> np.ndarray | None:
        place = len(self.operands)
        super().add(array, constant)
        if array is not None and id(array) in self.free and self.chance(1 - constant):
            value = self._value(array)
            if value is not None:
                self.taken[place] = value
        return array

    def _value(self, array: np.ndarray) -> Value | None:
        """One that has the shape and dtype, or is made to."""
        fits = [each for each in self.builder.values if (each.shape, each.dtype) == (array.shape, array.dtype.name)]
        focus, self.focus = self.focus, None
        if focus is not None and focus.size and array.size and (focus in fits or self.chance(0.8)):
            return self.builder.fitted(focus, array.shape, array.dtype.name)
        if fits and self.chance(0.8):
            return self.one(fits)
        if array.size and self.builder.values and self.chance(0.3):
            return self.builder.fitted(self.one(self.builder.values[-4:]), array.shape, array.dtype.name)
        return None


def operator(builder: Builder, name: str = "") -> list[Value]:
    """A node of this operator, or of any.

    Raises:
        Undrawn: the rule makes none that fits.
    """
    own = [kind for kind in kinds(builder.opset) if kind not in _NOT_HERE]
    name = name or builder.one(own)
    schema = onnx.defs.get_schema(name, builder.opset, "")
    focus = builder.pick(None, "fiub", fresh=0.05)
    draw = ChainDraw(builder.rng, schema, builder.opset, builder=builder, focus=focus)
    RULES.get(name, by_schema)(draw)
    operands: list[Value | None] = []
    for place, operand in enumerate(draw.operands):
        if operand.array is None:
            operands.append(None)
        elif operand.twin >= 0:
            operands.append(operands[operand.twin])
        elif place in draw.taken:
            operands.append(draw.taken[place])
        elif operand.constant:
            operands.append(builder.const(operand.array))
        else:
            operands.append(builder.input(np.asarray(operand.array)))
    return builder.ops(name, *operands, outputs=draw.outputs, **draw.attributes)


