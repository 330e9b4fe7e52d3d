# SPDX-License-Identifier: Apache-2.0
"""Simplifies expressions over integers by the ranges of their operands: removes clips and int32 overflow
checks that have no effect, and simplifies sums of multiples of two integers of small range. On CPUs that may lack
an FPU, rounded products become integer functions."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir import lanes
from ...ir.expr import Call, Expr, call
from ...ir.graph import Attrs, Graph, Op
from ...ir.intervals import INT32, Interval, simplify
from ..edit import Editor
from .fixed_point_sums import simpler_sums


def use_ranges(graph: Graph, context: Context) -> Graph:
    """Simplifies epilogues and elementwise operators over integers by the ranges of their values."""
    edit = Editor(graph)
    for op in graph.ops:
        changed = _simplified(graph, op, context)
        if changed is not None:
            edit.replace(op, changed)
    return edit.finish()


def _simplified(graph: Graph, op: Op, context: Context) -> Op | None:
    """Returns the operator with a simpler expression; None if there is none."""
    result = graph.types[op.outputs[0]].dtype
    if op.epilogue is not None and op.kind.endswith("_integer"):
        operands, expr = ["", *op.epilogue_inputs], op.epilogue
        dtypes = ["int32", *(graph.types[name].dtype for name in op.epilogue_inputs)]
    elif op.kind == "elementwise" and "dtype" in op.attrs:  # over integers (ops/elementwise.py)
        operands, expr = list(op.inputs), op.attrs.expr
        dtypes = [graph.types[name].dtype for name in op.inputs]
    else:
        return None
    kinds = [lanes.KINDS[dtype] for dtype in dtypes]
    # The dtype to whose limits a store saturates, so that clips to them have no effect; "": none. With
    # `isa.dot_product` clips stay, since 8-bit stores of several vectors use their limits (codegen/c_source/render.py).
    saturated = "" if context.isa.dot_product or lanes.kind_of(expr, kinds) != "i" else result
    bounds = [_bounds(graph, name, dtype) for name, dtype in zip(operands, dtypes, strict=True)]
    simpler = simpler_sums(simplify(expr, bounds, kinds, saturated), bounds, kinds, context.isa.requantizing_stores)
    # The code for Cortex-M with DSP instructions, and for 32-bit CPUs that multiply pairs of pixels, runs on cores with
    # and without FPU.
    may_lack_fpu = context.isa.dsp or (context.isa.pairs and context.isa.pairs.bits == 32)
    if may_lack_fpu:
        simpler = _without_float_products(simpler)
    return None if simpler == expr else _with(op, simpler)


def _without_float_products(expr: Expr) -> Expr:
    """Replaces rounded products of an integer and a float constant by one integer function, which needs no FPU."""
    if not isinstance(expr, Call):
        return expr
    arguments = tuple(map(_without_float_products, expr.args))
    inner = arguments[0]
    if expr.fn == "nearest_within" and isinstance(inner, Call) and inner.fn == "mul":
        first, second = inner.args
        if isinstance(first, Call) and first.fn == "real":
            return call("nearest_product", first.args[0], second)
    return Call(expr.fn, arguments)


def _with(op: Op, expr: Expr) -> Op:
    """Returns the operator with another epilogue or, without an epilogue, another expression."""
    return op.with_(epilogue=expr) if op.epilogue is not None else op.with_(attrs=Attrs(op.attrs, expr=expr))


def _bounds(graph: Graph, name: str, dtype: str) -> Interval:
    """Returns the range of a value of this dtype; name: "" for an integer sum."""
    if name in graph.constants:
        array = graph.constants[name]
        return (float(array.min()), float(array.max())) if array.size and np.isfinite(array).all() else None
    if dtype == "float32":
        return None
    limits = np.iinfo(dtype) if name else None
    return (float(limits.min), float(limits.max)) if limits else INT32
