# SPDX-License-Identifier: Apache-2.0
"""Makes one region of a function with an If, if we have kernels for all of its operators. A run then computes only the
branch that it takes, and operators whose results only one branch reads move into that branch. TVM's pass that merges
composites does not support an If, so the blocks of other such functions become functions (`prepare.outlined`)."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from ...ir.graph import Graph
from ...target import Target
from ..tvm_common.support import why_unsupported
from ..tvm_versions import Call, RelaxTuple, add_function, has_extents, result_type_of, type_of
from .extents import OUTSIDE
from .importer import REFUSALS, Importer, import_function
from .patterns import tir_functions
from .prepare import has_branches, is_partitioned
from .regions import named_region


def with_whole_regions(mod: tvm.IRModule, cpu: Target, attrs: Mapping[str, str], loops: bool) -> tvm.IRModule:
    """Replaces the bodies of functions with an If by calls of regions, where a region can compute the whole function.

    Args:
        mod: a prepared module. Functions with symbolic extents, and those that fail for shapes in no bucket, keep their
            If.
        cpu: the target whose kernels count.
        attrs: the attributes of regions.
        loops: whether operators without a kernel may be printed from TVM's loops.
    """
    functions = tir_functions(mod)

    def refuses(graph: Graph) -> str | None:
        return why_unsupported(graph, cpu)

    for var, function in mod.functions.items():
        if not isinstance(function, relax.Function) or is_partitioned(function) or not has_branches(function) \
                or OUTSIDE in (function.attrs or {}) or not _has_static_tensors(function):
            continue
        importer = Importer()
        importer.tir, importer.refuses, importer.allows_loops = functions, refuses, loops
        try:
            import_function(function, var.name_hint, importer)
        except REFUSALS:
            continue
        mod = _as_region_call(mod, var, function, attrs)
    return mod


def _has_static_tensors(function: relax.Function) -> bool:
    """Whether all parameters and results are tensors of static shapes; the result may be a tuple of them."""
    result = result_type_of(function)
    results = result.fields if isinstance(result, RelaxTuple) else [result]
    return all(has_extents(type_) and all(isinstance(extent, tvm.tirx.IntImm) for extent in type_.shape.values)
               for type_ in (*map(type_of, function.params), *results))


def _as_region_call(mod: tvm.IRModule, var: tvm.ir.GlobalVar, function: relax.Function,
                    attrs: Mapping[str, str]) -> tvm.IRModule:
    """Moves the body of a function into a region, which the function calls."""
    region, name = named_region(relax.utils.copy_with_new_vars(function), mod, attrs)
    builder = relax.BlockBuilder(mod)
    called = add_function(builder, region, name)
    body = relax.SeqExpr([relax.BindingBlock([])], Call(called, function.params))
    caller = relax.Function(function.params, body, result_type_of(function), function.is_pure, function.attrs)
    builder.update_func(var, caller)
    return relax.transform.Normalize()(builder.get())
