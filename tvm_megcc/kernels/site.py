# SPDX-License-Identifier: Apache-2.0
"""A site: an operator in its graph, with all that a kernel candidate needs to accept it, price it and lower it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TypeVar

import numpy as np

from ..context import Context
from ..ir.graph import Attrs, Graph, Op
from ..ir.shapes import likely_types
from ..ir.types import TensorType
from ..target import Isa, Target

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Site:
    """An operator with the types, including layouts, of its operands and results.

    types: types of all operands, including those of its epilogue; None for absent ones.
    outputs: types of the results.
    context: the CPU, the options and the measured times that kernels are chosen for.
    constants: positions of the operands that are constants.
    values: values of constant operands, by position; a site that was not made of a graph may lack them.
    """

    op: Op
    types: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    context: Context
    constants: frozenset[int] = frozenset()
    values: Mapping[int, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph, op: Op, context: Context) -> Site:
        """Returns the site of an operator in a graph."""
        return Site(op, tuple(graph.input_types(op)), tuple(graph.output_types(op)), context,
                    frozenset(i for i, name in enumerate(op.inputs) if name in graph.constants),
                    {i: graph.constants[name] for i, name in enumerate(op.inputs) if name in graph.constants})

    @cached_property
    def inputs(self) -> tuple[TensorType | None, ...]:
        """The types of the operator's own operands, without those of its epilogue."""
        return self.types[:len(self.op.own_inputs)]

    def has(self, index: int) -> bool:
        """Returns whether an optional operand of the operator itself is present."""
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def x(self) -> TensorType:
        """The type of the first operand."""
        return self.types[0]

    @property
    def y(self) -> TensorType:
        """The type of the first result."""
        return self.outputs[0]

    @property
    def kind(self) -> str:
        return self.op.kind

    @property
    def layouts(self) -> tuple:
        """The layouts of all operands, then of all results; None for absent ones."""
        return tuple(t and t.layout for t in (*self.types, *self.outputs))

    @property
    def attrs(self) -> Attrs:
        return self.op.attrs

    @cached_property
    def is_half(self) -> bool:
        """Whether the operator computes in float16: all its floats are float16, and the option `half` is set."""
        floats = {t.dtype for t in (*self.types, *self.outputs) if t is not None and t.dtype.startswith("float")}
        return self.context.half and self.context.target.float16_target is not None and floats == {"float16"}

    @cached_property
    def target(self) -> Target:
        """The target, with vectors of float16 if the operator computes in it."""
        return (self.is_half and self.context.target.float16_target) or self.context.target

    @property
    def isa(self) -> Isa:
        return self.target.isa

    @property
    def compact(self) -> bool:
        return self.context.compact

    @cached_property
    def likely(self) -> Site:
        """The site with likely values for unknown extents, for estimates of cost. The values are at least 1, because
        costs divide by them."""
        if all(t is None or t.is_static for t in (*self.types, *self.outputs)):
            return self
        return self.with_types(likely_types(self.types, 1), likely_types(self.outputs, 1))

    def with_types(self, types: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Site:
        return Site(self.op, tuple(types), tuple(outputs), self.context, self.constants, self.values)


def once(derive: Callable[[Site], T]) -> Callable[[Site], T]:
    """Caches the result of a function of a site in the site."""
    @wraps(derive)
    def derived(site: Site) -> T:
        values = site.__dict__.setdefault("_derived", {})
        if derive not in values:
            values[derive] = derive(site)
        return values[derive]
    return derived
