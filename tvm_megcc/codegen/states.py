# SPDX-License-Identifier: Apache-2.0
"""Finds states that can be updated in place: the output that becomes the state is computed in the state's own memory,
and overwrites only some elements of the last run's value. The memory planner (memory/planner.py) uses the
result.

A caller may repeat a run that failed halfway. An update in place is correct only if the repeated run writes the same
elements again before anything reads them, and if no other element has changed. So only the operator that overwrites the
state (`Operator.overwrites`) may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InternalError
from ..ops.base import operator

if TYPE_CHECKING:
    from .plan import KernelPlan, Step


def compact_initial_value(initial_value: np.ndarray) -> np.ndarray:
    """Returns the initial value of a state, of any shape, as an array of shape [1] if all elements have the same bytes,
    else flattened to [size]."""
    flat = initial_value.reshape(-1)
    return flat[:1] if flat[:1].tobytes() * flat.size == flat.tobytes() else flat


def updated_in_place(plan: KernelPlan, ranges: Mapping[str, Sequence[int]], buffer: Callable[[str], str]) \
        -> dict[str, str]:
    """Returns {name of an output: name of its state} for the states that are updated in place.

    Args:
        ranges: the live range of each buffer: its first and last step.
        buffer: returns the name of the buffer that holds a value; a kernel that works in place computes its output in
            the buffer of an operand.
    """
    return {source: state for source, state in plan.graph.states
            if source in plan.locations and _may_update(plan, ranges, buffer, source, state)}


def _may_update(plan: KernelPlan, ranges: Mapping[str, Sequence[int]], buffer: Callable[[str], str], source: str,
                state: str) -> bool:
    """Whether the output `source` can be computed in the memory of `state`: exactly one step, outside of loops, writes
    the output; it overwrites elements of the state, and nothing else reads the state."""
    new, types = buffer(source), plan.graph.types
    if new not in ranges or state not in ranges or types[source].bytes != types[state].bytes or not types[state].bytes:
        return False

    def in_buffer(names: Sequence[str], name_of_buffer: str) -> list[str]:
        return [name for name in names if name in plan.locations and buffer(name) == name_of_buffer]

    if any(in_buffer(item.values, new) or in_buffer(item.values, state)
           for items in plan.before.values() for item in items):
        return False
    writers = [(index, name, overwritten_operand(step, step.outputs.index(name)))
               for index, step in enumerate(plan.steps) for name in in_buffer(step.outputs, new)]
    readers = [name for step in plan.steps for name in in_buffer(step.inputs, state)]
    if len(writers) != 1:
        return False
    ((writer, result, operand),) = writers
    if readers != [operand]:
        return False
    is_whole_buffer = all(not plan.locations[name].offset and types[name].bytes == types[state].bytes
                          for name in (result, operand))
    return is_whole_buffer and not any(begin <= writer < end for begin, end in plan.loops)


def overwritten_operand(step: Step, output: int) -> str | None:
    """Returns the operand that a step partly overwrites in place to compute its output of this index; None if there is
    none."""
    op = step.op
    if op.epilogue is not None or not operator(op.kind).overwrites(op.attrs):
        return None
    return next((step.inputs[operand] for overwriting, operand in step.spec.in_place if overwriting == output), None)


def verify_updates(plan: KernelPlan, updated: Mapping[str, str], offsets: Mapping[str, int],
                   sizes: Mapping[str, int]) -> None:
    """Checks by addresses that each updated state holds the output at the end of a run, and that a run that fails early
    has overwritten only elements that a repetition overwrites again.

    Args:
        updated: {output: state}, the result of `updated_in_place`.
        offsets, sizes: the bytes [offset, offset + size) of each value in the arena.

    Raises:
        InternalError: naming the state and the step that must not read or write there.
    """
    for source, state in updated.items():
        if offsets[source] != offsets[state] or sizes[source] != sizes[state]:
            raise InternalError(f"memory plan: '{source}' does not lie where its state '{state}' does")
        _verify_update(plan, state, offsets, sizes)


def _verify_update(plan: KernelPlan, state: str, offsets: Mapping[str, int], sizes: Mapping[str, int]) -> None:
    """Checks the accesses of all steps to the bytes of one state that is updated in place."""
    begin, end = offsets[state], offsets[state] + sizes[state]

    def overlapping(names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yields the index and name of each value that shares bytes with the state."""
        return ((index, name) for index, name in enumerate(names)
                if name in offsets and offsets[name] < end and begin < offsets[name] + sizes[name])

    if any(True for items in plan.before.values() for item in items for _ in overlapping(item.values)):
        raise InternalError(f"memory plan: a copy or jump touches the state '{state}', which is updated in place")
    is_updated = False
    for index, step in enumerate(plan.steps):
        written = {output: overwritten_operand(step, output) for output, _ in overlapping(step.outputs)}
        read = [name for _, name in overlapping(step.inputs)]
        is_one_update = len(read) == 1 and read == list(written.values()) and all(
            offsets[name] == begin and offsets[name] + sizes[name] == end
            for name in (*read, *(step.outputs[output] for output in written)))
        if written and (is_updated or not is_one_update):
            raise InternalError(f"memory plan: step {index} writes to the state '{state}' something else than its "
                                "one update")
        # Before the update, the bytes are those of the state itself; after it, those of the output.
        if any((name in plan.locations and plan.locations[name].root == state) == is_updated for name in read):
            raise InternalError(f"memory plan: step {index} reads of the state '{state}' what it may not")
        is_updated |= bool(written)
        if read and not is_updated:
            raise InternalError(f"memory plan: step {index} reads the state '{state}', which is updated in place")
    if not is_updated:
        raise InternalError(f"memory plan: nothing updates the state '{state}'")
