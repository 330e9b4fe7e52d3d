# SPDX-License-Identifier: Apache-2.0
"""Reports on a partitioned module: which operators have our kernels, which stayed with TVM, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import tvm
from tvm import ir, relax, tirx

from ...errors import MegccError
from ...ir.dims import evaluate, symbols
from ...target import Target
from ..tvm_common.reports import EXTENT_OF_SYMBOLS, Report, box_diagram
from ..tvm_common.support import macs
from ..tvm_common.target import our_target
from ..tvm_versions import Call, Var
from .dispatch import DISPATCHED
from .extents import OUTSIDE
from .importer import CALL_TIR, TIR_FUNCTIONS, import_match, is_loops, is_operator
from .patterns import refusal, tir_functions
from .regions import TARGET, is_ours, require_module, was_partitioned

#: Prefixes of operators with multiply-accumulates. If one of them cannot be imported, our share of them is unknown.
_PRODUCTS = ("relax.nn.conv", "relax.matmul", "relax.nn.attention", "relax.einsum")


def report(mod: tvm.IRModule, target=None) -> Report:
    """Returns the report on a module that `partition_for_megcc` returned.

    Args:
        target: as in `partition_for_megcc`; by default the one that the module was partitioned for.

    Raises:
        MegccError: if `mod` is no module of Relax functions.
    """
    require_module(mod, "report")
    result = Report(dispatched=[str(text) for text in (mod.attrs or {}).get(DISPATCHED, ())])
    functions = {var.name_hint: function for var, function in mod.functions.items()
                 if isinstance(function, relax.Function)}
    regions = {name: function for name, function in functions.items() if is_ours(function)}
    if target is None and regions:
        target = str(next(iter(regions.values())).attrs[TARGET])
    cpu, functions_of_tir = our_target(target), tir_functions(mod)
    for name, function in regions.items():
        calls = _calls_with_loops(function)
        result.regions[name] = len(calls)
        for call, as_loops in calls:
            count = _macs(call, as_loops, function.attrs.get(TIR_FUNCTIONS, {})) or 0
            result.ours[_label(call)] += 1
            result.our_macs += count
            if as_loops:
                result.tir[_label(call)] += 1
                result.tir_macs += count
    for name, function in functions.items():
        if name in regions or OUTSIDE in (function.attrs or {}):
            continue
        other = (function.attrs or {}).get("Codegen")
        for call, _ in _calls_with_loops(function):
            label = _label(call)
            result.theirs[label] += 1
            reason = f"it is in {name}, which is for {other}" if other else \
                _reason(call, cpu, functions_of_tir, was_partitioned(mod))
            result.reasons.setdefault(label, Counter())[reason] += 1
            count = _macs(call, as_loops=False, functions=functions_of_tir)
            is_uncounted = count is None and label.startswith(_PRODUCTS)
            result.their_macs = None if is_uncounted or result.their_macs is None else result.their_macs + (count or 0)
    return result


def _reason(call, cpu: Target, functions: Mapping[str, tirx.PrimFunc], partitioned: bool) -> str:
    """Returns the reason why a call stayed with TVM.

    functions: the module's TIR functions by name. partitioned: whether the module was partitioned.
    """
    reason = refusal(call, target=cpu, functions=functions)
    reason_of_loops = refusal(call, target=cpu, loops=True, functions=functions)
    # A call of a TIR function has no kernel of its own; its loops are all that we could compile.
    if reason is None or (reason_of_loops is None and call.op.name == CALL_TIR):
        return ("is not in a dataflow block, its results are used elsewhere, or tir is False" if partitioned else
                "the module has not been partitioned: partition_for_megcc(mod)")
    if call.op.name == CALL_TIR or reason == reason_of_loops:
        return reason
    return f"{reason}; its loops: {reason_of_loops}" if reason_of_loops else f"{reason} (tir=True would take it)"


def _label(call) -> str:
    """Returns the operator's name, for a TIR function also the function's."""
    name = call.op.name
    return f"{name} {call.args[0].name_hint}" if name == CALL_TIR else name


def _calls_with_loops(function: relax.Function) -> list[tuple[Call, bool]]:
    """Returns the calls of operators in order, each with whether it is imported as loops. The calls in a local function
    are repeated for each call of it."""
    calls: list[tuple[Call, bool]] = []
    local: dict[Var, relax.Function] = {}

    def visit(expr, as_loops: bool = False) -> None:
        if isinstance(expr, relax.SeqExpr):
            for binding in (binding for block in expr.blocks for binding in block.bindings):
                if isinstance(binding.value, relax.Function):
                    local[binding.var] = binding.value
                else:
                    visit(binding.value, as_loops)
            visit(expr.body, as_loops)
        elif isinstance(expr, relax.If):
            visit(expr.true_branch)
            visit(expr.false_branch)
        elif is_operator(expr):
            calls.append((expr, as_loops))
        elif isinstance(expr, Call) and expr.op in local:
            visit(local[expr.op].body, is_loops(local[expr.op]))

    visit(function.body)
    return calls


def _macs(call, as_loops: bool, functions: Mapping[str, tirx.PrimFunc]) -> int | None:
    """Returns the multiply-accumulates of a call, None if it cannot be imported."""
    try:
        count = macs(import_match(call, None, as_loops, functions))
        return int(evaluate(count, dict.fromkeys(symbols(count), EXTENT_OF_SYMBOLS)))
    except MegccError:
        return None


def picture(mod: tvm.IRModule, name: str = "main") -> str:
    """Returns an SVG of a partitioned function, top to bottom: our regions as boxes with their operators, and TVM's
    operators in grey.

    Raises:
        MegccError: if `mod` is no module of Relax functions, or has no function of this name.
    """
    require_module(mod, "picture")
    names = [var.name_hint for var, function in mod.functions.items() if isinstance(function, relax.Function)]
    if name not in names:
        raise MegccError(f"there is no function {name!r:.60}; the module has {', '.join(sorted(names))}")
    boxes = []
    for binding in (binding for block in mod[name].body.blocks for binding in block.bindings):
        value = binding.value
        if is_operator(value):
            boxes.append(("", [_label(value)]))
        elif isinstance(value, Call) and isinstance(value.op, ir.GlobalVar):
            boxes.append((value.op.name_hint, [_label(call) for call, _ in _calls_with_loops(mod[value.op])]))
    return box_diagram(boxes)
