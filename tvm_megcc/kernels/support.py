# SPDX-License-Identifier: Apache-2.0
"""Says which operators are supported: those that some kernel accepts, with given types.

Three ask: passes, before they fuse operators or choose layouts; the code generator, when it chooses a kernel; and the
checks of patterns, which decide which operators to take from TVM.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import limits
from ..ir.graph import Op
from ..ir.types import PLAIN, TensorType
from ..ops.base import Operator, operator
from .base import ANY, Kernel, View
from .site import Site

_VIEW = View()
#: The maximum of operands of an epilogue, without the sum. Each takes a pointer and, in a tile, a register.
MAX_EPILOGUE_OPERANDS = 4
#: Reasons of refusals: the kernel does not work on the layouts; the option `reproducible` excludes the kernel.
OTHER_LAYOUTS = "does not work on these layouts"
OTHER_ORDER = "adds up in an order of its own, and other CPUs' kernels in another"


def candidates(kind: str) -> tuple[Kernel, ...]:
    """Returns the kernels of an operator; the view is first, if the operator can be one."""
    declaration = operator(kind)
    is_view = declaration.view_offset is not Operator.view_offset
    return ((_VIEW,) if is_view else ()) + declaration.kernels


def limit_exceeded(op: Op, inputs, outputs) -> str | None:
    """Returns the limit of the runtime that any kernel of the operator would exceed; None if there is none."""
    count = sum(t is not None for t in inputs) + len(outputs)
    if count > limits.MAX_OPERANDS and not operator(op.kind).fan_in:
        return f"has {count} operands and results, a kernel has at most {limits.MAX_OPERANDS}"
    rank = max((t.rank for t in (*inputs, *outputs) if t is not None), default=0)
    return f"has a tensor of {rank} axes, tensors have at most {limits.MAX_RANK}" if rank > limits.MAX_RANK else None


def operand_class(operand: TensorType, output: TensorType, channel_axis: int | None) -> str | None:
    """Returns how an elementwise operand is broadcast to the output: "full" (same shape and layout), "channel" (one
    value for each index of `channel_axis`), "scalar", or None for anything else."""
    if operand.shape == output.shape and operand.layout == output.layout:
        return "full"
    if operand.size == 1:
        return "scalar"
    if channel_axis is None or operand.rank > output.rank:
        return None
    axis = channel_axis % output.rank
    aligned = (1,) * (output.rank - operand.rank) + operand.shape
    rest = aligned[:axis] + aligned[axis + 1:]
    return "channel" if aligned[axis] == output.shape[axis] and all(dim == 1 for dim in rest) else None


def epilogue_refusal(site: Site, kernel: Kernel) -> str | None:
    """Returns why the kernel cannot apply the operator's epilogue in these layouts; None if it can."""
    if site.op.epilogue is None:
        return None
    if not kernel.fuses_epilogue:
        return "does not fuse an epilogue"
    axis, y = operator(site.kind).channel_axis, site.y
    for type_ in site.types[site.op.epilogue_start:]:
        if operand_class(type_, y, axis) is None:
            return f"epilogue operand {type_} is neither full as {y}, per channel nor scalar"
    return None


def refusal(site: Site, kernel: Kernel) -> str | None:
    """Returns why the candidate cannot realise the operator with these types; None if it can."""
    limit = limit_exceeded(site.op, site.types, site.outputs)
    if limit is not None:
        return limit
    layouts = [t.layout for t in (*site.inputs, *site.outputs) if t is not None]
    supported = [[layout for layout, t in zip(ins, site.inputs, strict=True) if t is not None] + list(outs)
                 for ins, outs in kernel.layouts(site)]
    if layouts not in supported:
        return OTHER_LAYOUTS
    variable = [i for i in kernel.constants if i < len(site.inputs) and site.op.inputs[i] and i not in site.constants]
    if variable:
        return f"operand {variable[0]} is not constant"
    reason = types_refusal(site, kernel) or kernel.refuse(site) or epilogue_refusal(site, kernel)
    if reason is None and site.context.reproducible and kernel.reorders_sums(site):
        return OTHER_ORDER
    return reason


def types_refusal(site: Site, kernel: Kernel) -> str | None:
    """Returns why the kernel does not accept these element types or unknown extents; None if it accepts them."""
    given = [t for t in site.inputs if t is not None] or list(site.outputs)
    for index, type_ in enumerate(site.inputs or site.outputs):
        dtypes = kernel.dtypes[min(index, len(kernel.dtypes) - 1)] if kernel.dtypes else ANY
        if kernel.float16 and site.is_half and "float32" in dtypes:
            dtypes = ("float16",)
        if type_ is not None and dtypes and type_.dtype not in dtypes:
            return f"{_name_of(site, index)} is {type_.dtype}, it works on {' '.join(dtypes)}"
    if kernel.uniform and any(t.dtype != given[0].dtype for t in (*given, *site.outputs)):
        return "operands and results have different element types"
    for index in kernel.static:
        if not site.inputs[index].is_static:
            return f"{_name_of(site, index)} {site.inputs[index]} has extents that are not known"
    return None


def _name_of(site: Site, index: int) -> str:
    """Returns the name that the operator's declaration gives an operand; "y" if the operator has no operands."""
    names = operator(site.kind).operands if site.inputs else ("y",)
    return names[min(index, len(names) - 1)].rstrip("?*")


def placements(site: Site, kernel: Kernel) -> Iterator[Site]:
    """Yields the site in each combination of layouts that the candidate supports, whatever its layouts are now.
    Operands of the epilogue get the output's layout if they have its shape, else the plain one."""
    for ins, outs in kernel.layouts(site):
        outputs = [t.with_layout(layout) for t, layout in zip(site.outputs, outs, strict=True)]
        types = [t and t.with_layout(layout) for t, layout in zip(site.inputs, ins, strict=True)]
        types += [t.with_layout(outputs[0].layout if t.shape == outputs[0].shape else PLAIN)
                  for t in site.types[len(types):]]
        yield site.with_types(types, outputs)


def realisable(site: Site) -> bool:
    """Returns whether some candidate realises the operator in some layout."""
    return any(refusal(placed, kernel) is None
               for kernel in candidates(site.kind) for placed in placements(site, kernel))


def fuses_epilogue(kind: str) -> bool:
    """Returns whether some kernel of the operator can apply an epilogue."""
    return any(kernel.fuses_epilogue for kernel in candidates(kind))
