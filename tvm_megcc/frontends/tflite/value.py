# SPDX-License-Identifier: Apache-2.0
"""Tensors of a file as values of the builder, in any order of axes.

TFLite has channels last; our image operators have them in axis 1. So a tensor keeps the order of axes in which its
operator computed it, and is transposed only where another operator needs it, once. Elementwise operators work in any
order, so there is no transpose between convolutions, and TRANSPOSE itself copies nothing until an operator needs its
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..onnx.builder import Builder

#: Axis i of a builder's value in an order is axis order[i] of the tensor.
Order = tuple[int, ...]
#: Rank of a tensor with channels last (NWC, NHWC, NDHWC) -> the order of axes with channels first.
CHANNELS_FIRST: dict[int, Order] = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


def plain(rank: int) -> Order:
    """Returns the order of axes in the file: the identity."""
    return tuple(range(rank))


class Value:
    """A tensor.

    forms: order of axes -> the builder's value that holds the tensor in this order. The first was computed, or is the
        file's; the others are transposes of it.
    """

    def __init__(self, builder: Builder, name: str, order: Order | None = None):
        self.builder = builder
        self.forms: dict[Order, str] = {plain(builder.types[name].rank) if order is None else order: name}

    @property
    def order(self) -> Order:
        """The order of axes of the value that was computed."""
        return next(iter(self.forms))

    @property
    def name(self) -> str:
        """The name of the value that was computed."""
        return self.forms[self.order]

    @property
    def type(self) -> TensorType:
        """The type, with the axes as in the file."""
        stored = self.builder.types[self.name]
        return stored.with_shape(stored.shape[self.order.index(axis)] for axis in range(stored.rank))

    @property
    def is_constant(self) -> bool:
        return self.name in self.builder.constants

    def renamed(self, names: dict[str, str]) -> None:
        """Follows a renaming of the builder's values."""
        self.forms = {order: names.get(name, name) for order, name in self.forms.items()}

    def in_order(self, order: Order, origin: str) -> str:
        """Returns the builder's value in this order of axes, transposing if necessary. origin: the operator that needs
        it."""
        if order not in self.forms:
            perm = tuple(self.order.index(axis) for axis in order)
            self.forms[order] = transposed(self.builder, self.name, perm, origin)
        return self.forms[order]


def transposed(builder: Builder, name: str, perm: Sequence[int], origin: str) -> str:
    """Transposes a value; by a reshape if only axes of extent 1 move."""
    shape = builder.types[name].shape
    wanted: tuple[Dim, ...] = tuple(shape[axis] for axis in perm)
    if tuple(perm) == plain(len(shape)):
        return name
    long_axes = [axis for axis in perm if shape[axis] != 1]
    if long_axes == sorted(long_axes):
        return builder.emit("reshape", (name,), Attrs(shape=wanted), origin, f"{name}.axes")[0]
    return builder.emit("transpose", (name,), Attrs(perm=tuple(perm)), origin, f"{name}.axes")[0]


def common_order(values: Sequence[Value], rank: int) -> Order:
    """Returns the order of axes in which the fewest operands need a transpose, for an operator that works in any order.

    Constants and operands of lower rank do not count: to transpose them costs little or nothing.
    """
    counted = [value for value in values if not value.is_constant and len(value.order) == rank]
    candidates = dict.fromkeys([*(value.order for value in counted if value.order != plain(rank)), plain(rank)])
    return min(candidates, key=lambda order: sum(order not in value.forms for value in counted))


@dataclass
class Complex:
    """A complex tensor: its real and imaginary parts, two tensors of the same shape."""

    real: Value
    imaginary: Value
