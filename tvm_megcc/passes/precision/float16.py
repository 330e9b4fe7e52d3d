# SPDX-License-Identifier: Apache-2.0
"""Half precision: computes operators in float16 where the CPU is faster with it, and stores their tensors as
float16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...kernels.choice import options
from ...kernels.site import Site
from ..edit import Editor

#: Operators that begin a chain in float16: they compute more than the conversions cost.
BEGIN = ("conv2d", "matmul")
#: float16 halves the memory; for that, a kernel may be estimated to take this many times as long as the one of float32.
SLOWER = 1.6


def compute_in_float16(graph: Graph, context: Context) -> Graph:
    """Gives float16 to products whose float16 kernels are estimated to be faster, and to the operators that follow
    them.

    Between these and operators that work on float32 only are conversions. Constants are rounded; an operator with one
    that float16 does not reach stays as it is.
    """
    if not context.half or context.target.halved is None:
        return graph
    edit = Editor(graph)
    #: float32 values that are there as float16 (too).
    half: dict[str, str] = {}
    #: Those that are converted to it anyway, by which operator.
    converted = {op.inputs[0]: op for op in graph.ops
                 if op.kind == "cast" and op.attrs.dtype == "float16" and edit.types[op.inputs[0]].dtype == "float32"}

    def floats(names: tuple[str, ...]) -> list[str]:
        return [name for name in dict.fromkeys(names) if name and edit.types[name].dtype == "float32"]

    def halved(op: Op) -> Site | None:
        """Returns the operator on float16, where all its constants are in reach."""
        constants = [edit.constants[name] for name in floats(op.inputs) if name in edit.constants]
        if any(np.abs(array[np.isfinite(array)]).max(initial=0) > np.finfo(np.float16).max for array in constants):
            return None
        site = Site.of(graph, op, context)
        return Site(op, tuple(type_ and _as_half(type_) for type_ in site.types),
                    tuple(map(_as_half, site.outputs)), context, site.constants)

    def gains(op: Op, site: Site) -> bool:
        """Whether the operator is computed in float16."""
        data = [name for name in floats(op.inputs) if name not in edit.constants]
        begins = op.kind in BEGIN and len(floats(op.outputs)) == 1
        if not data or not (begins or all(name in half for name in data)):
            return False
        found = [option.cost for option in options(site)[0]]
        return bool(found) and (not begins or min(found) < SLOWER * min(option.cost for option in options(
            Site.of(graph, op, context))[0]))

    def operand(name: str, op: Op) -> str:
        if name not in floats((name,)):
            return name
        if name not in half:
            type_ = _as_half(edit.types[name])
            if name in edit.constants:
                half[name] = edit.constant(f"{name}.half", edit.constants[name].astype(np.float16), type_)
            else:
                half[name] = edit.value(f"{name}.half", type_)
                edit.add_before(op, Op("cast", Attrs(dtype="float16"), (name,), (half[name],), origin=op.origin))
        return half[name]

    def result(name: str, op: Op) -> str:
        if name not in floats((name,)):
            return name
        if name in converted:
            edit.replace(converted[name])
            half[name] = converted[name].outputs[0]
        else:
            half[name] = edit.value(f"{name}.half", _as_half(edit.types[name]))
        edit.add_after(name, Op("cast", Attrs(dtype="float32"), (half[name],), (name,), origin=op.origin))
        return half[name]

    for op in graph.ops:
        if op.kind == "cast":
            if (edit.types[op.inputs[0]].dtype, edit.types[op.outputs[0]].dtype) == ("float16", "float32"):
                half[op.outputs[0]] = op.inputs[0]
            continue
        site = halved(op)
        if site is not None and gains(op, site):
            edit.replace(op, op.with_(inputs=tuple(operand(name, op) for name in op.inputs),
                                      outputs=tuple(result(name, op) for name in op.outputs)))
    return edit.finish()


def _as_half(type_):
    return replace(type_, dtype="float16") if type_.dtype == "float32" else type_
