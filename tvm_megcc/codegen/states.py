# SPDX-License-Identifier: Apache-2.0
"""Finds states that can be updated in place: outputs that overwrite some elements of the last run's values.

That is correct only if a run can be repeated after it failed halfway: what it wrote must be written again before it is
read, and nothing else may have changed. So only the operator that overwrites the state (`Operator.overwrites`) may read
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InternalError
from ..ops.base import operator

if TYPE_CHECKING:
    from .plan import KernelPlan, Step


def shortest(begin: np.ndarray) -> np.ndarray:
    """Returns the initial value of a state as one number [1] if all elements are equal, else flattened."""
    row = begin.reshape(-1)
    return row[:1] if row[:1].tobytes() * row.size == row.tobytes() else row


def updated_in_place(plan: KernelPlan, ranges: Mapping[str, Sequence[int]], buffer: Callable[[str], str]) \
        -> dict[str, str]:
    """Returns output -> state, for the states that are updated in place.

    Args:
        ranges: buffer -> its first and last step.
        buffer: returns the buffer of a value, which is an operand's if a kernel works in place.
    """
    return {source: state for source, state in plan.graph.states
            if source in plan.locations and _may_update(plan, ranges, buffer, source, state)}


def _may_update(plan: KernelPlan, ranges: Mapping[str, Sequence[int]], buffer: Callable[[str], str], source: str,
                state: str) -> bool:
    new, types = buffer(source), plan.graph.types
    if new not in ranges or state not in ranges or types[source].bytes != types[state].bytes or not types[state].bytes:
        return False

    def touching(names: Sequence[str], what: str) -> list[str]:
        return [name for name in names if name in plan.locations and buffer(name) == what]

    if any(touching(item.values, new) or touching(item.values, state)
           for items in plan.before.values() for item in items):
        return False
    writers = [(index, name, overwritten(step, step.outputs.index(name))) for index, step in enumerate(plan.steps)
               for name in touching(step.outputs, new)]
    readers = [name for step in plan.steps for name in touching(step.inputs, state)]
    if len(writers) != 1 or readers != [writers[0][2]]:
        return False
    ((index, result, _),) = writers
    return all(not plan.locations[name].offset and types[name].bytes == types[state].bytes
               for name in (result, readers[0])) and not any(begin <= index < end for begin, end in plan.loops)


def overwritten(step: Step, output: int) -> str | None:
    """Returns the operand that a step partly overwrites in place to compute this output; None if there is none."""
    op = step.op
    if op.epilogue is not None or not operator(op.kind).overwrites(op.attrs):
        return None
    return next((step.inputs[operand] for overwriting, operand in step.spec.in_place if overwriting == output), None)


def verify_updates(plan: KernelPlan, updated: Mapping[str, str], offsets: Mapping[str, int],
                   sizes: Mapping[str, int]) -> None:
    """Checks by addresses that each updated state holds the output at the end of a run, and that a run that fails early
    has overwritten only elements that a repetition overwrites again.

    Raises:
        InternalError: naming the state and the step that must not read or write there.
    """
    for source, state in updated.items():
        begin, end = offsets[state], offsets[state] + sizes[state]
        if offsets[source] != begin or sizes[source] != sizes[state]:
            raise InternalError(f"memory plan: '{source}' does not lie where its state '{state}' does")

        def within(names: Sequence[str], begin: int = begin, end: int = end) -> Iterator[tuple[int, str]]:
            return ((index, name) for index, name in enumerate(names)
                    if name in offsets and offsets[name] < end and begin < offsets[name] + sizes[name])

        if any(True for items in plan.before.values() for item in items for _ in within(item.values)):
            raise InternalError(f"memory plan: a copy or jump touches the state '{state}', which is updated in place")
        is_new = False
        for index, step in enumerate(plan.steps):
            pasts = {output: overwritten(step, output) for output, _ in within(step.outputs)}
            read = [name for _, name in within(step.inputs)]
            if pasts and (is_new or read != list(pasts.values()) or len(read) != 1 or any(
                    offsets[name] != begin or offsets[name] + sizes[name] != end
                    for name in (*read, *(step.outputs[output] for output in pasts)))):
                raise InternalError(f"memory plan: step {index} writes to the state '{state}' something else than its "
                                    "one update")
            if any((name in plan.locations and plan.locations[name].root == state) == is_new for name in read):
                raise InternalError(f"memory plan: step {index} reads of the state '{state}' what it may not")
            is_new |= bool(pasts)
            if read and not is_new:
                raise InternalError(f"memory plan: step {index} reads the state '{state}', which is updated in place")
        if not is_new:
            raise InternalError(f"memory plan: nothing updates the state '{state}'")
