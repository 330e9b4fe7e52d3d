# SPDX-License-Identifier: Apache-2.0
"""Applies TVM's passes to every function of a module. Functions of data flow and branches are transformed as a whole,
others block by block (`blocks.py`)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping

import tvm
from tvm import relay

from .blocks import by_block, in_normal_form, is_plain, reached
from .expressions import REFERENCES, everything, kind_of, operator_calls
from .regions import DISPATCH, attr, typed

logger = logging.getLogger(__name__)

#: TVM's attribute of functions that passes skip.
_SKIP = "SkipOptimization"


def by_function(mod: tvm.IRModule, transform: Callable[[str], tvm.transform.Pass]) -> tvm.IRModule:
    """Applies passes to each function in a module of its own, as "main", since TVM's passes expect one function.

    Functions that stay unchanged: regions, functions that only select a clone, functions without operators and, with a
    warning, functions that a pass of TVM fails on.

    transform: returns the pass for a function or a block, given its name. New functions that the result calls are kept.
    """
    unchanged = idle(mod)
    normal = _in_normal_form(mod, unchanged)
    functions = dict(mod.functions.items())
    for var, function in mod.functions.items():
        if not _has_work(function) or var.name_hint in unchanged:
            continue
        try:
            if var in normal:
                changed, added = _run_by_block(normal[var], var.name_hint, functions, transform)
            else:
                called = {other: mod[other] for other in reached(function, mod)}
                changed, added = _run_passes(function, called, transform(var.name_hint))
        except tvm.TVMError as error:
            _warn_unchanged(var, error)
            continue
        functions[var] = changed
        for other, region in added.items():
            functions.setdefault(other, region)
    return typed(functions, mod)


def _has_work(function) -> bool:
    """Whether passes have to be applied to a function."""
    return isinstance(function, relay.Function) and operator_calls(function.body) != [] \
        and all(attr(function, name) is None for name in ("Compiler", DISPATCH))


def idle(mod: tvm.IRModule) -> set[str]:
    """Returns the functions that nothing calls and that are not plain data flow. TVM's prelude has hundreds of
    these."""
    main = mod["main"] if "main" in [var.name_hint for var in mod.get_global_vars()] else None
    used = [var.name_hint for var in reached(main, mod)] if isinstance(main, relay.Function) else None
    return {var.name_hint for var, function in mod.functions.items() if used is not None and _has_work(function)
            and var.name_hint not in ("main", *used) and not is_plain(function)}


def with_references(mod: tvm.IRModule) -> list[str]:
    """Returns the functions that create, read or write references, except those that nothing calls."""
    unchanged = idle(mod)
    return sorted(var.name_hint for var, function in mod.functions.items()
                  if isinstance(function, relay.Function) and var.name_hint not in unchanged
                  and any(kind_of(part) in REFERENCES for part in everything(function.body)))


def _in_normal_form(mod: tvm.IRModule, unchanged: set[str]) -> dict:
    """Returns the functions that have to be split into blocks, or that call such functions, in A-normal form.

    unchanged: the functions that stay as they are; those that TVM fails on are added.
    """
    plain = {var for var, function in mod.functions.items() if isinstance(function, relay.Function)
             and (attr(function, "Compiler") is not None or is_plain(function))}
    found = {}
    for var, function in mod.functions.items():
        if not _has_work(function) or var.name_hint in unchanged or plain.issuperset([var, *reached(function, mod)]):
            continue
        try:
            found[var] = in_normal_form(function)
        except tvm.TVMError as error:
            _warn_unchanged(var, error)
            unchanged.add(var.name_hint)
    result = typed({**dict(mod.functions.items()), **found}, mod) if found else mod
    return {var: result[var] for var in found}


def _run_passes(function: relay.Function, called: Mapping, passes: tvm.transform.Pass) -> tuple[relay.Function, dict]:
    """Runs passes on a function and the functions that it calls. Returns the result, and the functions that it now
    calls."""
    main = relay.GlobalVar("main")
    others = {var: other.with_attr(_SKIP, tvm.tir.IntImm("int32", 1)) for var, other in called.items()}
    plain = relay.Function(function.params, function.body, function.ret_type, function.type_params)
    result = passes(relay.transform.InferType()(tvm.IRModule({main: plain, **others})))
    changed = result["main"]
    return relay.Function(changed.params, changed.body, changed.ret_type, changed.type_params, function.attrs), \
        {var: result[var] for var in reached(changed, result)}


def _run_by_block(function: relay.Function, name: str, functions: Mapping, transform) -> tuple[relay.Function, dict]:
    """Runs passes on the blocks of a function. Returns the result, and the functions that it now calls."""
    # The first block gets the function's name, the others numbered ones. They become parts of the regions' names.
    taken = {var.name_hint for var in functions}
    numbered = (f"{name}_{index}" for index in itertools.count(1))
    names = itertools.chain([name], (other for other in numbered if other not in taken))
    added: dict[relay.GlobalVar, relay.Function] = {}

    def changed(block: relay.Function) -> relay.Function:
        result, regions = _run_passes(block, {}, transform(next(names)))
        added.update(regions)
        return result

    return by_block(function, changed), added


def _warn_unchanged(var: relay.GlobalVar, error: Exception) -> None:
    """Warns that a function stays unchanged. The reason is the last line of TVM's error, after the stack trace."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    logger.warning("%s is left to TVM, whose passes fail on it: %s", var.name_hint, reason)
