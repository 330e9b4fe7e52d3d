# SPDX-License-Identifier: Apache-2.0
"""The editor with which passes change a graph. Operators keep their positions; new ones are inserted before or after
one of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir.graph import Attrs, Graph, Op, prune, toposort, unused
from ..ir.types import TensorType
from ..ops.base import operator


class Editor:
    """A graph that a pass changes.

    graph: the graph before the pass.
    types, constants: the types and constants of all current values, by name; a pass may change both.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self._readers = graph.consumers()
        # Operators by position, and those added before and after it. Position 0 stands for the inputs.
        self._ops_by_position: list[list[Op]] = [[], *([op] for op in graph.ops)]
        self._before: list[list[Op]] = [[] for _ in self._ops_by_position]
        self._after: list[list[Op]] = [[] for _ in self._ops_by_position]
        self._position = {name: position for position, op in enumerate(graph.ops, start=1) for name in op.outputs}

    def producer(self, name: str) -> Op | None:
        """Returns the current operator that computes the value; None for inputs, constants, and values that were
        added."""
        return next((op for op in self._ops_by_position[self._position.get(name, 0)] if name in op.outputs), None)

    def sources(self, op: Op) -> list[Op]:
        """Returns the current operators that compute the operands of an operator; the latest first."""
        positions = {self._position[name] for name in op.inputs if name in self._position}
        return [source for position in sorted(positions, reverse=True) for source in self._ops_by_position[position]
                if not set(source.outputs).isdisjoint(op.inputs)]

    def is_read_once(self, name: str) -> bool:
        """Returns whether the value is no output and exactly one operator of the original graph reads it. A value that
        the pass added counts as read once, since its readers are not counted."""
        return name not in self.graph.types or (len(self._readers.get(name, ())) == 1
                                                and name not in self.graph.outputs)

    def value(self, name: str, type_: TensorType) -> str:
        """Adds a value and returns its name: the given one or, if that is in use, a similar one."""
        name = unused(name, self.types)
        self.types[name] = type_
        return name

    def constant(self, name: str, array: np.ndarray, type_: TensorType | None = None) -> str:
        """Adds a constant and returns its name. type_: default is the array's."""
        name = self.value(name, type_ or TensorType(str(array.dtype), array.shape))
        self.constants[name] = array
        return name

    def settle(self, op: Op, array: np.ndarray) -> None:
        """Replaces the operator's only result by a constant; for an output, by a copy of the constant."""
        (name,) = op.outputs
        if name in self.graph.outputs:
            settled = self.constant(f"{name}.settled", array, self.types[name])
            self.replace(op, op.with_(kind="copy", attrs=Attrs(), inputs=(settled,)))
        else:
            self.constants[name] = array
            self.replace(op)

    def result(self, name: str, kind: str, attrs: Attrs, inputs: tuple[str, ...]) -> str:
        """Adds a value with the type that shape inference gives the only result of an operator; returns its name."""
        (type_,) = operator(kind).infer(attrs, *(self.types[operand] for operand in inputs))
        return self.value(name, type_)

    def replace(self, op: Op, *ops: Op) -> None:
        """Replaces an operator by others, or removes it if there are none."""
        position = self._position[op.outputs[0]]
        self._ops_by_position[position] = list(ops)
        self._position.update((name, position) for new in ops for name in new.outputs)

    def fuse(self, source: Op, op: Op, fused: Op) -> None:
        """Replaces two operators by one, at the position of the first."""
        self.replace(op)
        self.replace(source, fused)

    def add_before(self, op: Op, new: Op) -> None:
        """Adds an operator right before another one."""
        self._before[self._position[op.outputs[0]]].append(new)

    def add_after(self, name: str, new: Op) -> None:
        """Adds an operator right after the one that computes a value; before all operators if the value is an input or
        ""."""
        self._after[self._position.get(name, 0)].append(new)

    def append(self, new: Op) -> None:
        """Adds an operator after all others."""
        self._after[-1].append(new)

    def redirect(self, names: Mapping[str, str]) -> None:
        """Renames operands of the graph's operators (old name -> new name); operators that the pass added before or
        after them keep their operands."""
        for ops in self._ops_by_position:
            ops[:] = [op.with_(inputs=tuple(names.get(name, name) for name in op.inputs)) for op in ops]

    def finish(self) -> Graph:
        """Returns the edited graph in topological order, without unneeded operators."""
        positions = zip(self._before, self._ops_by_position, self._after, strict=True)
        ops = [op for before, position, after in positions for op in (*before, *position, *after)]
        return prune(self.graph.with_(ops=toposort(ops, self.types), types=self.types, constants=self.constants))
