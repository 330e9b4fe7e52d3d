# SPDX-License-Identifier: Apache-2.0
"""Chooses the order of execution: the topological order with the smallest peak of live bytes.

A state of the search is the set of operators that have run. In real networks few operators are ready at a time, so
there are few states. Dijkstra's search over states, with the peak so far as the distance, finds the best order. If
there are too many states, a greedy order is used. The model's order is kept unless another one is better.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from ..ir.dims import likely
from ..ir.graph import Graph, waits_for
from ..ops.base import OPERATORS

#: The search gives up after this many (state, operator) pairs.
MAX_VISITS = 1_000_000


def reorder(graph: Graph) -> Graph:
    """Returns the graph with its operators in the best order found, or itself if none is better."""
    problem = _Problem(graph)
    model_order = range(len(graph.ops))
    best_peak = problem.peak(model_order)
    best: Sequence[int] = model_order
    greedy = problem.greedy()
    if problem.peak(greedy) < best_peak:
        best, best_peak = greedy, problem.peak(greedy)
    searched = problem.search(best_peak)
    if searched is not None:
        best = searched
    return graph if best is model_order else graph.with_(ops=tuple(graph.ops[i] for i in best))


def peak_bytes(graph: Graph) -> int:
    """Returns the peak of live bytes in the graph's order. A view counts as the value that it is a view of."""
    return _Problem(graph).peak(range(len(graph.ops)))


def live_bytes(graph: Graph) -> list[int]:
    """Returns the live bytes while each operator runs, in the graph's order. A view counts as the value that it is a
    view of."""
    return _Problem(graph).during(range(len(graph.ops)))


def view_roots(graph: Graph) -> dict[str, str]:
    """Returns value -> the value whose memory it is: itself, except for views."""
    root: dict[str, str] = {}
    for op in graph.ops:
        declaration = OPERATORS.get(op.kind)
        is_view = (declaration is not None and op.inputs and op.inputs[0] not in graph.constants
                   and declaration.view_offset(op.attrs, graph.input_types(op), graph.output_types(op)) is not None)
        if is_view:
            root[op.outputs[0]] = root.get(op.inputs[0], op.inputs[0])
    return root


class _Problem:
    """A graph as bit sets. Bit i of a set stands for operator i.

    predecessors: for each operator, the set of operators that have to run before it.
    allocates: for each operator, the bytes of its results; outputs in memory of the caller have none.
    start: the bytes of the inputs.
    frees: for each operator, (set of all operators that access a value, its bytes) of each value that may die after it.
    """

    def __init__(self, graph: Graph):
        root = view_roots(graph)
        producer = {name: i for i, op in enumerate(graph.ops) for name in op.outputs}
        kept = {root.get(name, name) for name in graph.outputs}
        self.predecessors = [sum(1 << i for i in {producer[n] for n in names if n in producer})
                             for names in waits_for(graph.ops, graph.types)]
        elsewhere = {*root, *graph.caller_outputs}
        self.allocates = [sum(likely(graph.types[n].bytes) for n in op.outputs if n not in elsewhere)
                          for op in graph.ops]
        accesses: dict[str, int] = {}  # value -> the set of operators that read or compute it
        for i, op in enumerate(graph.ops):
            for name in (*op.inputs, *op.outputs):
                if name and name not in graph.constants:
                    accesses[root.get(name, name)] = accesses.get(root.get(name, name), 0) | 1 << i
        self.start = sum(likely(graph.types[name].bytes) for name in graph.inputs)
        self.frees: list[list[tuple[int, int]]] = [[] for _ in graph.ops]
        for name, accessing in accesses.items():
            if name not in kept:
                for i in _bits(accessing):
                    self.frees[i].append((accessing, likely(graph.types[name].bytes)))

    def run(self, done: int, live: int, i: int) -> tuple[int, int, int]:
        """Runs operator i in the state `done` with `live` bytes. Returns the next state, the live bytes after the
        operator and the live bytes during it."""
        during = live + self.allocates[i]
        done |= 1 << i
        freed = sum(size for accessing, size in self.frees[i] if accessing & ~done == 0)
        return done, during - freed, during

    def ready(self, done: int) -> Iterable[int]:
        """Yields the operators that can run in a state."""
        return (i for i, before in enumerate(self.predecessors) if not done >> i & 1 and before & ~done == 0)

    def during(self, order: Iterable[int]) -> list[int]:
        """Returns the live bytes during each operator of an order."""
        done, live, result = 0, self.start, []
        for i in order:
            done, live, during = self.run(done, live, i)
            result.append(during)
        return result

    def peak(self, order: Iterable[int]) -> int:
        """Returns the largest number of live bytes of an order."""
        return max([self.start, *self.during(order)])

    def greedy(self) -> list[int]:
        """Returns a greedy order. Next is the ready operator after which the fewest bytes are live; of equal ones, that
        with the fewest bytes during it, then the first in the model's order."""
        order: list[int] = []
        done, live = 0, self.start
        while len(order) < len(self.predecessors):
            _, _, i = min((*self.run(done, live, i)[1:], i) for i in self.ready(done))
            done, live, _ = self.run(done, live, i)
            order.append(i)
        return order

    def search(self, bound: int) -> list[int] | None:
        """Returns the order with the smallest peak; None if no peak is below `bound`, or the search gave up."""
        full = (1 << len(self.predecessors)) - 1
        previous: dict[int, tuple[int, int]] = {}
        distance = {0: self.start}
        heap = [(self.start, 0, 0, self.start)]  # peak, minus operators done, done, live
        closed: set[int] = set()
        while heap and len(closed) * len(self.predecessors) < MAX_VISITS:
            peak, count, done, live = heapq.heappop(heap)
            if done in closed:
                continue
            if done == full:
                return self._path(previous, full)
            closed.add(done)
            for i in self.ready(done):
                then, after, during = self.run(done, live, i)
                reached = max(peak, during)
                if reached < bound and reached < distance.get(then, bound):
                    distance[then] = reached
                    previous[then] = done, i
                    heapq.heappush(heap, (reached, count - 1, then, after))
        return None

    @staticmethod
    def _path(previous: dict[int, tuple[int, int]], state: int) -> list[int]:
        """Returns the operators from the empty state to a state. previous: state -> (state before, operator)."""
        order = []
        while state:
            state, i = previous[state]
            order.append(i)
        return order[::-1]


def _bits(mask: int) -> Iterable[int]:
    """Yields the elements of a bit set."""
    while mask:
        lowest_bit = mask & -mask
        yield lowest_bit.bit_length() - 1
        mask ^= lowest_bit
