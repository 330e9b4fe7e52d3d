# SPDX-License-Identifier: Apache-2.0
"""Schedules TIR functions to have fewer temporaries: cheap blocks are inlined where they are read."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from .values import any_subexpression, int_value

#: Functions of a few instructions; all others are expensive.
_CHEAP = ("if_then_else", "likely", "fabs", "abs", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
          "shift_left", "shift_right", "isnan", "isinf")


def inline_cheap_blocks(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Inlines injective blocks into the blocks that read them. Returns the function unchanged if TVM's scheduler does
    not support it (loops without blocks, ill-formed blocks)."""
    try:
        schedule = s_tir.Schedule(tvm.IRModule({"main": function}), error_render_level="fast")
        root = schedule.get_sblock("root")
        results = schedule.get_output_blocks(root)
    except (s_tir.ScheduleError, tvm.error.InternalError):
        return function
    results = [schedule.get(block) for block in results]
    for block in schedule.get_child_blocks(root):
        found = schedule.get(block)
        if found.init is not None or any(found.same_as(other) for other in results):
            continue
        try:
            if _worth_inlining(schedule, block):
                schedule.compute_inline(block)
        except s_tir.ScheduleError:
            continue  # not injective, or read by a block that takes its buffer as a whole
    return schedule.mod["main"]


def _worth_inlining(schedule, block) -> bool:
    """Whether a block only stores a cheap value, or an expensive one that one other block reads once for each element.
    """
    body = schedule.get(block).body
    if type(body).__name__ != "BufferStore":
        return False
    if not any_subexpression(body.value, _is_expensive):
        return True
    readers = schedule.get_consumers(block)
    return len(readers) == 1 and _loop_extents(schedule, readers[0]) == _loop_extents(schedule, block)


def _loop_extents(schedule, block) -> list[str]:
    """Returns the extents of the loops around a block with more than one iteration, sorted."""
    return sorted(str(schedule.get(loop).extent) for loop in schedule.get_loops(block)
                  if int_value(schedule.get(loop).extent) != 1)


def _is_expensive(expr) -> bool:
    """Whether an expression is a call of a function that is not among the cheap ones."""
    name = getattr(getattr(expr, "op", None), "name", None)
    return name is not None and name.rpartition(".")[2] not in _CHEAP
