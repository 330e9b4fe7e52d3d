# SPDX-License-Identifier: Apache-2.0
"""Lowers loops and branches to jumps: the steps of their bodies are inlined into the plan.

Until then, `KernelPlan.before` has the operator (`loop` or `branch`) before the step that follows it; `bodies` has the
plans of its subgraphs. Control flow (flow.py) consists of copies of values (Move), labels (Mark), conditional jumps
(Jump) and the head and the end of a loop (Iteration).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..ir.graph import Graph, Op, bodies_of
from ..ir.types import TensorType
from ..passes.memory.views import Location
from .flow import Control, Iteration, Jump, Mark, Move, renamed
from .plan import KernelPlan, Step, Weight

#: Name of a value in a plan -> its name in the plan that the steps are inlined into.
Name = Callable[[str], str]


def inlined(plan: KernelPlan, bodies: Mapping[str, Sequence[KernelPlan]]) -> KernelPlan:
    """Returns the plan with the steps of its bodies inlined.

    Args:
        bodies: first result of an operator -> the plans of its bodies, in which nested bodies are inlined already.
    """
    if not any(isinstance(item, Op) for items in plan.before.values() for item in items):
        return plan
    return _Inliner(plan, bodies).run()


class _Inliner:
    """The plan under construction: the given plan's steps and those of inlined bodies, and what precedes each step."""

    def __init__(self, plan: KernelPlan, bodies: Mapping[str, Sequence[KernelPlan]]):
        self.plan, self.bodies = plan, bodies
        self.steps: list[Step] = []
        self.before: dict[int, tuple[Control | Op, ...]] = {}
        self.loops: list[tuple[int, int]] = []
        self.locations: dict[str, Location] = dict(plan.locations)
        self.weights: dict[str, Weight] = dict(plan.weights)
        self.types: dict[str, TensorType] = dict(plan.graph.types)
        self.constants: dict[str, np.ndarray] = dict(plan.graph.constants)

    def run(self) -> KernelPlan:
        self.add(self.plan, lambda name: name)
        graph: Graph = self.plan.graph.with_(types=self.types, constants=self.constants)
        return replace(self.plan, graph=graph, steps=tuple(self.steps), locations=self.locations, weights=self.weights,
                       before=self.before, loops=tuple(self.loops))

    def add(self, plan: KernelPlan, name: Name) -> None:
        """Adds the steps of a plan with its values renamed by `name`."""
        new_index: dict[int, int] = {}
        for index in range(len(plan.steps) + 1):
            new_index[index] = len(self.steps)
            for item in plan.before.get(index, ()):
                if isinstance(item, Op):
                    self.nested(item)
                else:
                    self.control(renamed(item, name))
            if index < len(plan.steps):
                self.steps.append(_renamed_step(plan.steps[index], name))
        self.loops += [(new_index[begin], new_index[end]) for begin, end in plan.loops]

    def control(self, *items: Control) -> None:
        """Adds control flow before the next step."""
        step = len(self.steps)
        self.before[step] = (*self.before.get(step, ()), *items)

    def nested(self, op: Op) -> None:
        """Adds a loop or a branch."""
        (_loop if op.kind == "loop" else _branch)(self, op, self.bodies[op.outputs[0]])

    def body(self, op: Op, plan: KernelPlan, inputs: Sequence[str], number: int) -> list[str]:
        """Adds the steps of a body; returns the names of its outputs.

        Args:
            op: the loop or branch.
            plan: the body's.
            inputs: the outer values that the body gets as inputs.
            number: is a part of the names of the body's values, so that the two bodies of a branch differ.
        """
        outer_names = dict(zip(plan.graph.inputs, map(self.operand, inputs), strict=True))
        prefix = f"{op.outputs[0]}/{number}/"

        def name(inner: str) -> str:
            return outer_names.get(inner, prefix + inner)

        self.types |= {name(value): type_ for value, type_ in plan.graph.types.items() if value not in outer_names}
        self.constants |= {name(value): array for value, array in plan.graph.constants.items()}
        self.weights |= {name(value): replace(weight, source=name(weight.source))
                         for value, weight in plan.weights.items()}
        for value, location in plan.locations.items():
            if value not in outer_names:  # a view of an input of the body is a view of the outer value's root
                root = self.locations[outer_names[location.root]] if location.root in outer_names \
                    else Location(name(location.root), 0)
                self.locations[name(value)] = Location(root.root, root.offset + location.offset)
        self.add(plan, name)
        return [name(value) for value in plan.graph.outputs]

    def operand(self, name: str) -> str:
        """Returns the name of a value that an instruction can read; a constant becomes a weight of the same name."""
        if name in self.constants and name not in self.weights:
            self.weights[name] = Weight(name, np.ascontiguousarray(self.constants[name]).reshape(-1))
        return name


def _loop(inliner: _Inliner, op: Op, plans: Sequence[KernelPlan]) -> None:
    """Adds a loop: copies of the initial values, the head of the loop, its body, copies of the results, the jump back.

    As in ONNX's Loop:
        operands: trip count, condition, loop-carried values, values from outside of the loop;
        inputs of the body: iteration number, condition, carried values, values from outside;
        outputs of the body: condition (unless the loop is counted), carried values, scan outputs.
    Each iteration copies its row of a scan output into the stacked result. No output of the body is a view of one of
    its inputs (`views.with_copies`), so a copy of an output does not overwrite what a later copy reads.
    """
    (plan,), carried = plans, op.attrs.carried
    (trip_count, condition, *values), (iteration, next_condition, *results) = op.inputs, op.outputs
    begin, first, after = len(inliner.steps), Mark(f"{iteration} first"), Mark(f"{iteration} after")
    trip_count = inliner.operand(trip_count)
    initial_values = zip((condition, *values[:carried]), (next_condition, *results[:carried]), strict=True)
    inliner.control(*(Move(inliner.operand(source), target) for source, target in initial_values),
                 Iteration(iteration, trip_count, next_condition, first=True, mark=after.name,
                           stacks=tuple(results[carried:])), first)
    body_outputs = inliner.body(op, plan, (iteration, next_condition, *results[:carried], *values[carried:]), number=0)
    carried_results = results[:carried] if op.attrs.counted else (next_condition, *results[:carried])
    rows = (Move(row, target, iteration)
            for row, target in zip(body_outputs[len(carried_results):], results[carried:], strict=True))
    copies = (Move(row, target) for row, target in zip(body_outputs, carried_results, strict=False))
    inliner.control(*rows, *copies, Iteration(iteration, trip_count, next_condition, first=False, mark=first.name),
                    after)
    inliner.loops.append((begin, len(inliner.steps)))


def _branch(inliner: _Inliner, op: Op, plans: Sequence[KernelPlan]) -> None:
    """Adds a branch: if the condition is false, a jump to the steps of `no`; the steps of `yes`; a jump over the steps
    of `no`; the steps of `no`.

    The first `op.attrs.reads` operands after the condition are the inputs of `yes`, the others are those of `no`.
    """
    (condition, *values), reads = op.inputs, op.attrs.reads
    other, after = Mark(f"{op.outputs[0]} other"), Mark(f"{op.outputs[0]} after")
    yes, no = (plans[list(bodies_of(op)).index(op.attrs[name])] for name in ("yes", "no"))
    inliner.control(Jump(inliner.operand(condition), when=False, mark=other.name))
    # After `yes` the condition is true, so that the second jump is always taken.
    body_outputs = inliner.body(op, yes, values[:reads], number=1)
    inliner.control(*map(Move, body_outputs, op.outputs), Jump(condition, when=True, mark=after.name), other)
    body_outputs = inliner.body(op, no, values[reads:], number=2)
    inliner.control(*map(Move, body_outputs, op.outputs), after)


def _renamed_step(step: Step, name: Name) -> Step:
    op = step.bound.op
    changed = op.with_(inputs=tuple(value and name(value) for value in op.inputs), outputs=tuple(map(name, op.outputs)))
    return Step(replace(step.bound, op=changed), tuple(map(name, step.inputs)), tuple(map(name, step.outputs)))
