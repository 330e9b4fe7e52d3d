# SPDX-License-Identifier: Apache-2.0
"""Merges composites into regions in every function. TVM's pass MergeCompositeFunctions handles only "main"."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import tvm
from tvm import ir, relax, tirx

from ...errors import MegccError
from ..tvm_versions import (
    MERGES_SELECTIONS,
    Call,
    RelaxTuple,
    Tuple,
    TupleGetItem,
    Var,
    add_function,
    as_argument,
    cast_type_of,
    element_type,
    is_number,
    key_of,
    number_of,
    result_type_of,
    set_type,
    type_of,
    with_arguments,
    without_match_attributes,
)
from .extents import LOWER, UPPER
from .importer import CALL_TIR, TIR_FUNCTIONS, import_region, is_operator
from .independent import join
from .prepare import has_branches, is_partitioned

#: The names of regions, which are their C symbols: number in the module, and a digest of the computation, so that
#: regions of several modules can be linked into one library.
NAME = "megcc_region{}_{}"
#: Attribute of regions: the name of our target.
TARGET = "megcc_target"
#: Attribute of partitioned modules.
PARTITIONED = "megcc_partitioned"
#: The prefix of global functions that stand for replaced expressions while composites are merged.
_STAND_IN_PREFIX = "megcc.stand_in."
#: The operator that calls a function without side effects.
_CALL_PURE = "relax.call_pure_packed"


def require_module(mod, function: str) -> None:
    """Raises MegccError unless `mod` is a module of TVM with a Relax function. function: the caller, for messages."""
    if not isinstance(mod, tvm.IRModule):
        raise MegccError(f"{function} takes a module of TVM (tvm.IRModule), not {type(mod).__name__}. TVM's importers "
                         "make one of a model: tvm.relax.frontend.onnx.from_onnx(model), "
                         "tvm.relax.frontend.torch.from_exported_program(program); of one function "
                         'tvm.IRModule({"main": function}) does')
    if not any(isinstance(body, relax.Function) for body in mod.functions.values()):
        names = ", ".join(var.name_hint for var in mod.functions) or "none"
        raise MegccError(f"{function} takes a module with Relax functions; the functions of this one are: {names}")


def is_region_name(name: str) -> bool:
    """Whether a name has the form of `NAME`."""
    return re.fullmatch(r"megcc_region\d+_[0-9a-f]{12}", name) is not None


def is_ours(function) -> bool:
    """Whether a function is a region of ours."""
    return function.attrs is not None and function.attrs.get("Codegen") == "megcc"


def is_foreign(function) -> bool:
    """Whether a function is a region of another code generator."""
    return function.attrs is not None and function.attrs.get("Codegen", "megcc") != "megcc"


def was_partitioned(mod: tvm.IRModule) -> bool:
    """Whether `partition_for_megcc` was applied to a module. The module may still have no regions."""
    return PARTITIONED in (mod.attrs or {}) or any(is_ours(function) for function in mod.functions.values())


def is_composite(function) -> bool:
    return function.attrs is not None and "Composite" in function.attrs


def merge(mod: tvm.IRModule, attrs: Mapping[str, str]) -> tvm.IRModule:
    """Applies TVM's MergeCompositeFunctions to every function of a module. Regions get the attributes `attrs`."""
    composites = {var: without_match_attributes(function) for var, function in mod.functions.items()
                  if is_composite(function)}
    result = {var: function for var, function in mod.functions.items() if var not in composites}
    count = sum(map(is_ours, result.values()))
    for var, function in list(result.items()):
        if not isinstance(function, relax.Function) or is_partitioned(function) or has_branches(function):
            continue
        # The shield hides expressions from TVM's pass, and `_Restore` below puts them back.
        shield, result_type = _Shield(), result_type_of(function)
        function, own_composites = _with_selections(function, composites)
        function, regions = _merge_composites(own_composites, result, var, shield.apply(function))
        if not shield.casts:  # `join` moves calls, and none may move before a cast that defines a symbol of its shapes
            function, regions = join(function, regions)
        bounds = {key: function.attrs[key] for key in (LOWER, UPPER) if key in (function.attrs or {})}
        regions = {region: _with_tir(body, mod) for region, body in regions.items()}
        names = {region: NAME.format(number, digest_of(body, {**attrs, **bounds}))
                 for number, (region, body) in enumerate(regions.items(), start=count)}
        count += len(regions)
        restore = _Restore(tvm.IRModule(regions), names, shield)
        merged = restore.visit_expr(function)
        if shield.results:  # the result is a tuple now, of the original result and the variables of casts
            merged = _with_result(merged, merged.body.body.fields[0], result_type)
        result[var] = merged
        for old, new in restore.names.items():
            result[new] = regions[old].with_attrs({**attrs, **bounds, "global_symbol": new.name_hint})
    return tvm.IRModule(result, attrs=mod.attrs, global_infos=mod.global_infos)


def named_region(function: relax.Function, mod: tvm.IRModule, attrs: Mapping[str, str]) -> tuple[relax.Function, str]:
    """Returns a function as a region of a module, and its name there. attrs: the attributes of regions."""
    region = _with_tir(relax.Function(function.params, function.body, result_type_of(function), function.is_pure), mod)
    count = sum(map(is_ours, mod.functions.values()))
    name = NAME.format(count, digest_of(region, attrs))
    return region.with_attrs({"Codegen": "megcc", **attrs, "global_symbol": name}), name


def _with_tir(region: relax.Function, mod: tvm.IRModule) -> relax.Function:
    """Stores the TIR functions that a region calls as its attribute, since code generators do not get the module."""
    called: dict[str, tirx.PrimFunc] = {}

    def visit(expr) -> None:
        if is_operator(expr) and expr.op.name == CALL_TIR:
            called[expr.args[0].name_hint] = mod[expr.args[0].name_hint]

    relax.analysis.post_order_visit(region, visit)
    return region.with_attr(TIR_FUNCTIONS, dict(sorted(called.items()))) if called else region


def digest_of(function: relax.Function, attrs: Mapping[str, object]) -> str:
    """Returns a digest of 12 digits of a region's operators, constants and these attributes."""
    graph = import_region(function, "region")
    facts = (sorted((name, str(value)) for name, value in attrs.items()), graph.inputs, graph.outputs, graph.ops,
             sorted(graph.types.items()))
    digest = hashlib.sha256(repr(facts).encode())
    for name, array in sorted(graph.constants.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()[:12]


def _merge_composites(composites: Mapping, others: Mapping, var: ir.GlobalVar, function: relax.Function) \
        -> tuple[relax.Function, dict[ir.GlobalVar, relax.Function]]:
    """Returns a function with its composites merged, and the regions that it calls. TVM's pass handles "main" only, so
    the function takes the place of "main" in a module of its own."""
    main = var if var.name_hint == "main" else ir.GlobalVar("main")
    functions = {**composites, main: function.without_attr("global_symbol")}
    for other, body in others.items():
        if other.name_hint not in (var.name_hint, "main"):
            functions[other] = _opaque(body) if isinstance(body, relax.Function) else body
    merged = relax.transform.MergeCompositeFunctions()(tvm.IRModule(functions))
    regions = {name: body for name, body in merged.functions.items() if is_ours(body) and name not in others}
    body = merged["main"]
    if function.attrs is not None and "global_symbol" in function.attrs:
        body = body.with_attr("global_symbol", var.name_hint)
    return body, regions


def _opaque(function: relax.Function) -> relax.Function:
    """Marks a function as primitive, so that the pass neither changes it nor, if it is a region, merges it with others.
    """
    return function.without_attr("Codegen").with_attr("Primitive", 1)


def _with_result(function: relax.Function, result, type_) -> relax.Function:
    """Returns the function with another result of its bindings, which has this type."""
    body = relax.SeqExpr(function.body.blocks, result)
    set_type(body, type_)
    return relax.Function(function.params, body, type_, function.is_pure, function.attrs)


def _with_selections(function: relax.Function, composites: Mapping) -> tuple[relax.Function, dict]:
    """Returns a function and its composites. Where TVM's pass needs that (`MERGES_SELECTIONS`), composites give tensors
    instead of tuples."""
    if MERGES_SELECTIONS:
        return function, dict(composites)
    mutator = _SelectInComposites(composites)
    changed = mutator.visit_expr(function)
    return relax.analysis.remove_all_unused(changed) if mutator.selected else function, mutator.composites


@relax.expr_functor.mutator
class _SelectInComposites(relax.PyExprMutator):
    """Replaces a selection of a composite's result by a composite that gives only that result.

    composites: all of them. selected: (composite, index of a result) -> the composite of that result.
    """

    def __init__(self, composites: Mapping):
        super().__init__()
        self.composites = dict(composites)
        self.selected: dict[tuple[ir.GlobalVar, int], ir.GlobalVar] = {}

    def visit_tuple_getitem_(self, selection):
        selection = self.visit_expr_post_order(selection)
        call = selection.tuple_value
        call = self.lookup_binding(call) if isinstance(call, Var) else call
        if not isinstance(call, Call) or call.op not in self.composites:
            return selection
        key = (call.op, int(selection.index))
        if key not in self.selected:
            self._add(*key)
        return self.builder_.normalize(Call(self.selected[key], call.args))

    def _add(self, composite: ir.GlobalVar, index: int) -> None:
        function = relax.utils.copy_with_new_vars(self.composites[composite])
        (block,) = function.body.blocks
        type_ = type_of(function.body.body).fields[index]
        result = relax.Var("selected", type_)
        selection = relax.VarBinding(result, TupleGetItem(function.body.body, index))
        body = relax.SeqExpr([relax.DataflowBlock([*block.bindings, selection])], result)
        set_type(body, type_)
        var = ir.GlobalVar(f"{composite.name_hint}_{index}")
        selecting = relax.Function(function.params, body, type_, function.is_pure, function.attrs)
        set_type(var, type_of(selecting))
        self.selected[composite, index], self.composites[var] = var, selecting


@relax.expr_functor.mutator
class _Shield(relax.PyExprMutator):
    """Replaces expressions that MergeCompositeFunctions does not support by others, which `_Restore` replaces back.

    * Symbolic extents among arguments become products, since the pass aborts the process on a bare variable that no
      operator computes.
    * External functions, strings and dtypes become global functions, which the pass ignores.
    * A match_cast becomes a call of a global function with the value. Its variable becomes a further result of the
      function, since the pass removes calls without used results, and a cast may be needed only for its symbols.

    replaced: name of a global function -> the expression it stands for. casts: the same for bindings of casts.
    results: the variables of the casts.
    """

    def __init__(self):
        super().__init__()
        self.replaced: dict[str, ir.BaseExpr] = {}
        self.casts: dict[str, relax.MatchCast] = {}
        self.results: list[relax.Var] = []

    def _stand_in(self, like):
        """Returns a new global function of the type of an expression."""
        stand_in = ir.GlobalVar(f"{_STAND_IN_PREFIX}{len(self.replaced) + len(self.casts)}")
        set_type(stand_in, type_of(like))
        return stand_in

    def _replace(self, leaf):
        stand_in = self._stand_in(leaf)
        self.replaced[stand_in.name_hint] = leaf
        return stand_in

    def visit_match_cast_(self, binding):
        stand_in = self._stand_in(relax.ExternFunc("match_cast"))
        self.casts[stand_in.name_hint] = binding
        value = Call(ir.Op.get(_CALL_PURE), [stand_in, self.visit_expr(binding.value)], None, [type_of(binding.var)])
        set_type(value, type_of(binding.var))
        result = relax.Var("cast", type_of(binding.var))
        self.set_var_remap(key_of(binding.var), result)
        self.results.append(result)
        self.builder_.emit_normalized(relax.VarBinding(result, value))

    def apply(self, function: relax.Function) -> relax.Function:
        function = self.visit_expr(function)
        if not self.results:
            return function
        type_ = RelaxTuple([result_type_of(function), *map(type_of, self.results)])
        return _with_result(function, Tuple([function.body.body, *self.results]), type_)

    visit_extern_func_ = visit_string_imm_ = visit_data_type_imm_ = _replace

    def visit_call_(self, call):
        if is_number(call):
            return call
        call = self.visit_expr_post_order(call)
        if not is_operator(call) or not any(map(self._has_extent, call.args)):
            return call
        arguments = [self._without_extents(argument) for argument in call.args]
        return self.builder_.normalize(with_arguments(call, arguments))

    def _has_extent(self, expr) -> bool:
        if isinstance(expr, Tuple):
            return any(map(self._has_extent, expr.fields))
        return isinstance(number_of(expr), Var)

    def _without_extents(self, expr):
        if isinstance(expr, Tuple):
            return Tuple([self._without_extents(field) for field in expr.fields])
        if not self._has_extent(expr):
            return expr
        number = number_of(expr)
        return as_argument(tirx.Mul(number, tirx.IntImm(element_type(number), 1)))


@relax.expr_functor.mutator
class _Restore(relax.PyExprMutator):
    """Renames functions in calls, and restores what `_Shield` replaced. names: old function -> the one of its new name.
    """

    def __init__(self, mod: tvm.IRModule, names: Mapping[ir.GlobalVar, str], shield: _Shield):
        super().__init__(mod)
        self.replaced, self.casts = shield.replaced, shield.casts
        self.names = {old: add_function(self.builder_, mod[old].without_attr("global_symbol"), name)
                      for old, name in names.items()}

    def visit_global_var_(self, var):
        return self.replaced[var.name_hint] if var.name_hint in self.replaced else self.names.get(var, var)

    def visit_var_binding_(self, binding):
        value = binding.value
        cast = self.casts.get(value.args[0].name_hint) if is_operator(value) and value.op.name == _CALL_PURE \
            and isinstance(value.args[0], ir.GlobalVar) else None
        if cast is None:
            return super().visit_var_binding_(binding)
        return self.builder_.emit_normalized(
            relax.MatchCast(binding.var, self.visit_expr(value.args[1]), cast_type_of(cast)))
