# SPDX-License-Identifier: Apache-2.0
"""The one definition of *supported*: does some kernel accept this operator with these types?

Passes ask before they fuse or choose a layout, the code generator when it picks a kernel, the pattern checks when
they decide what to take from TVM.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ..ir import limits
from ..ir.conditions import Condition, distinct, recording
from ..ir.graph import Graph, Op
from ..ir.types import PLAIN, TensorType
from ..target import Target
from .base import Kernel, Operator, View, operator

_VIEW = View()


def candidates(kind: str) -> tuple[Kernel, ...]:
    """The kernels of an operator, with the view in front where it can be one."""
    declaration = operator(kind)
    is_view = declaration.view_offset is not Operator.view_offset
    return ((_VIEW,) if is_view else ()) + declaration.kernels


def conditions(graph: Graph) -> tuple[Condition, ...]:
    """What the shapes of a graph have to satisfy: what its operators demand, and what those that it was imported from
    did."""
    found = list(graph.conditions)
    for op in graph.ops:
        with recording(op.origin) as stated:
            operator(op.kind).infer(op.attrs, *map(graph.type_of, op.own_inputs))
        found += stated
    return distinct(found)


def limit_exceeded(op: Op, inputs, outputs) -> str | None:
    """Which limit of the runtime no kernel of the operator could keep to; None where there is none."""
    count = sum(t is not None for t in inputs) + len(outputs)
    if count > limits.MAX_OPERANDS and not operator(op.kind).fan_in:
        return f"has {count} operands and results, a kernel has at most {limits.MAX_OPERANDS}"
    rank = max((t.rank for t in (*inputs, *outputs) if t is not None), default=0)
    return f"has a tensor of {rank} axes, tensors have at most {limits.MAX_RANK}" if rank > limits.MAX_RANK else None


def operand_class(operand: TensorType, output: TensorType, channel_axis: int | None) -> str | None:
    """How an elementwise operand relates to the output: "full", "channel", "scalar", or None (other broadcast)."""
    if operand.shape == output.shape:
        return "full"
    if operand.size == 1:
        return "scalar"
    if channel_axis is None or operand.rank > output.rank:
        return None
    axis = channel_axis % output.rank
    aligned = (1,) * (output.rank - operand.rank) + operand.shape
    rest = aligned[:axis] + aligned[axis + 1:]
    return "channel" if aligned[axis] == output.shape[axis] and all(dim == 1 for dim in rest) else None


def epilogue_refusal(op: Op, kernel: Kernel, inputs, outputs) -> str | None:
    """Why the kernel cannot apply the operator's epilogue on operands laid out like this; None if it can."""
    if op.epilogue is None:
        return None
    if not kernel.fuses_epilogue:
        return "does not fuse an epilogue"
    axis = operator(op.kind).channel_axis
    for type_ in inputs[op.epilogue_start:]:
        kind = operand_class(type_, outputs[0], axis)
        if kind is None:
            return f"epilogue operand {type_} is neither full, per channel nor scalar"
        if kind == "full" and type_.layout != outputs[0].layout:
            return f"epilogue operand has layout {type_.layout}, the output {outputs[0].layout}"
    return None


def refusal(op: Op, kernel: Kernel, inputs, outputs, target: Target, constants: Container[str] = ()) -> str | None:
    """Why the candidate does not realise the operator with these types; None if it does.

    Args:
        constants: names of the values that the compiler knows.
    """
    limit = limit_exceeded(op, inputs, outputs)
    if limit is not None:
        return limit
    own = inputs[:op.epilogue_start] if op.epilogue is not None else inputs
    wanted = [t.layout for t in own if t is not None]
    offered = [[layout for layout, t in zip(ins, own, strict=True) if t is not None] + list(outs)
               for ins, outs in kernel.layouts(op, own, outputs, target)]
    if wanted + [t.layout for t in outputs] not in offered:
        return "does not work on these layouts"
    variable = [i for i in kernel.constants if i < len(own) and op.inputs[i] and op.inputs[i] not in constants]
    if variable:
        return f"operand {variable[0]} is not constant"
    return kernel.refuse(op, own, outputs, target) or epilogue_refusal(op, kernel, inputs, outputs)


def placements(op: Op, kernel: Kernel, inputs, outputs, target: Target) -> Iterator[tuple[list, list]]:
    """The operands' and results' types in each combination of layouts that the candidate works on.

    inputs: types of all operands of the operator, those of its epilogue included; None for absent ones.
    """
    own = inputs[:op.epilogue_start] if op.epilogue is not None else inputs
    for ins, outs in kernel.layouts(op, own, outputs, target):
        placed_out = [t.with_layout(layout) for t, layout in zip(outputs, outs, strict=True)]
        placed_in = [t and t.with_layout(layout) for t, layout in zip(own, ins, strict=True)]
        placed_in += [t.with_layout(placed_out[0].layout if t.shape == placed_out[0].shape else PLAIN)
                      for t in inputs[len(own):]]
        yield placed_in, placed_out


def realisable(op: Op, inputs, outputs, target: Target, constants: Container[str] = ()) -> bool:
    """Whether some candidate realises the operator in some layout."""
    return any(refusal(op, kernel, placed_in, placed_out, target, constants) is None
               for kernel in candidates(op.kind)
               for placed_in, placed_out in placements(op, kernel, inputs, outputs, target))


def fuses_epilogue(kind: str) -> bool:
    """Whether some kernel of the operator applies an elementwise tail."""
    return any(kernel.fuses_epilogue for kernel in candidates(kind))
