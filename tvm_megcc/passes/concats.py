# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators go before a concat where that saves a pass over its result.

What is computed of a concat is the concat of what is computed of its parts. A part that a convolution gives takes the
operator as its epilogue; a part that others read too, and so cannot be computed into its place in the concat, is
not copied there first.
"""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..ir.dims import product
from ..ir.graph import Attrs, Graph, Op, prune, unused
from ..ir.types import TensorType
from ..kernels.support import fuses_epilogue
from .elementwise import is_float_map

#: More parts are more kernel calls than a pass over the result is worth.
MAX_PARTS = 4


def split_maps(graph: Graph, context: Context) -> Graph:
    """f(concat(a, b)) → concat(f(a), f(b)) for elementwise f, by the operands' slices where those are views."""
    splitter = _Splitter(graph)
    for op in graph.ops:
        splitter.add(op)
    return splitter.finish()


class _Splitter:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.uses = {name: len(ops) for name, ops in graph.consumers().items()}
        self.ops: list[Op] = []
        self.producer: dict[str, Op] = {}
        self.made: set[str] = set()
        #: Value -> slices of it. They follow the value at once, so that no reader has to move back behind them.
        self.slices: dict[str, list[Op]] = {}

    def finish(self) -> Graph:
        ops = [slice_ for name in self.graph.inputs for slice_ in self.slices.get(name, ())]
        for op in self.ops:
            ops += [op, *(slice_ for name in op.outputs for slice_ in self.slices.get(name, ()))]
        return prune(self.graph.with_(ops=tuple(ops), types=self.types, constants=self.constants))

    def add(self, op: Op) -> None:
        concat = self._concat_before(op)
        for new in [op] if concat is None else self._split(op, concat):
            self.ops.append(new)
            self.producer.update(dict.fromkeys(new.outputs, new))

    def _concat_before(self, op: Op) -> Op | None:
        """The concat that the operator can be moved in front of, and should."""
        if not is_float_map(self.graph, op):
            return None
        for name in op.inputs:
            concat = self.producer.get(name)
            if concat is None or concat.kind != "concat" or len(concat.inputs) > MAX_PARTS \
                    or self.uses[name] != 1 or name in self.graph.outputs or not self._gains(concat):
                continue
            output, axis = self.types[op.outputs[0]], concat.attrs.axis
            if output.is_static and output.shape == self.types[name].shape \
                    and all(other == name or self._can_cut(other, output, axis) for other in op.inputs):
                return concat
        return None

    def _gains(self, concat: Op) -> bool:
        def gains(name: str) -> bool:
            if name in self.made or self.uses[name] > 1 or name in self.graph.outputs:
                return True
            source = self.producer.get(name)
            return source is not None and (fuses_epilogue(source.kind) or is_float_map(self.graph, source))

        return len(set(concat.inputs)) == len(concat.inputs) and any(map(gains, concat.inputs))

    def _can_cut(self, name: str, output: TensorType, axis: int) -> bool:
        """Whether a range of the operand's indices on the axis is a constant, all of the operand, or a view."""
        own = axis - (output.rank - self.types[name].rank)
        if name in self.constants or own < 0 or self.types[name].shape[own] == 1:
            return True
        return self.types[name].shape == output.shape and product(output.shape[:axis]) == 1

    def _cut(self, name: str, output: TensorType, axis: int, first: int, count: int, origin: str) -> str:
        """The operand for indices first ... first + count of the output's axis."""
        type_ = self.types[name]
        own = axis - (output.rank - type_.rank)
        if own < 0 or type_.shape[own] == 1:
            return name
        part = self._name(f"{name}:{first}", type_.with_shape((*type_.shape[:own], count, *type_.shape[own + 1:])))
        if name in self.constants:
            self.constants[part] = np.ascontiguousarray(self.constants[name].take(range(first, first + count), own))
        else:
            attrs = Attrs(axes=(own,), starts=(first,), ends=(first + count,), steps=(1,))
            self.slices.setdefault(name, []).append(Op("slice", attrs, (name,), (part,), origin=origin))
        return part

    def _split(self, op: Op, concat: Op) -> list[Op]:
        output, axis, first = self.types[op.outputs[0]], concat.attrs.axis, 0
        ops, parts = [], []
        for piece in concat.inputs:
            count = self.types[piece].shape[axis]
            inputs = tuple(piece if name == concat.outputs[0]
                           else self._cut(name, output, axis, first, count, op.origin) for name in op.inputs)
            part = self._name(f"{op.outputs[0]}:{first}", self.types[piece])
            self.uses[part] = 1
            self.made.add(part)
            parts.append(part)
            ops.append(op.with_(inputs=inputs, outputs=(part,)))
            first += count
        return [*ops, concat.with_(inputs=tuple(parts), outputs=op.outputs)]

    def _name(self, base: str, type_: TensorType) -> str:
        name = unused(base, self.types)
        self.types[name] = type_
        return name
