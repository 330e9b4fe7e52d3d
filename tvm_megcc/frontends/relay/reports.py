# SPDX-License-Identifier: Apache-2.0
"""Reports on a partitioned Relay module: which operators have our kernels, which stayed with TVM, and why."""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relay

from ...errors import MegccError
from ...ir.dims import evaluate, symbols
from ..tvm_common.reports import EXTENT_OF_SYMBOLS, Report, box_diagram
from ..tvm_common.support import macs
from ..tvm_common.target import our_target
from .expressions import everything, is_operator, kind_of, operator_calls
from .functions import idle
from .importer import import_call
from .patterns import refusal
from .regions import DISPATCH, OUTSIDE, TARGET, attr, is_ours

#: Operators with multiply-accumulates. If one of them cannot be imported, our share of them is unknown.
_PRODUCTS = ("nn.conv", "nn.dense", "nn.matmul", "nn.batch_matmul", "nn.contrib", "qnn.conv", "qnn.dense",
             "qnn.batch_matmul")


def report(mod: tvm.IRModule, target=None) -> Report:
    """Returns the report on a module that `partition_for_megcc` returned.

    Args:
        target: as in `partition_for_megcc`; by default the one that the module was partitioned for.
    """
    result = Report()
    functions = {var.name_hint: function for var, function in mod.functions.items()
                 if isinstance(function, relay.Function)}
    regions = {name: function for name, function in functions.items() if is_ours(function)}
    if target is None and regions:
        target = str(next(iter(regions.values())).attrs[TARGET])
    cpu = our_target(target)
    for name, function in regions.items():
        calls = operator_calls(function.body)
        result.regions[name] = len(calls)
        for call in calls:
            result.ours[call.op.name] += 1
            result.our_macs += _macs(call) or 0
    unused = idle(mod)
    rest = [function for name, function in functions.items() if name not in regions and name not in unused
            and attr(function, DISPATCH) is None and attr(function, OUTSIDE) is None]
    for function in rest:
        for call in operator_calls(function.body):
            label = call.op.name
            result.theirs[label] += 1
            reason = refusal(call, cpu) or "TVM requires it outside a region"
            result.reasons.setdefault(label, Counter())[reason] += 1
            count = _macs(call)
            unknown = count is None and label.startswith(_PRODUCTS)
            result.their_macs = None if unknown or result.their_macs is None else result.their_macs + (count or 0)
    return result


def _macs(call) -> int | None:
    """Returns the multiply-accumulates of a call, None if it cannot be imported."""
    try:
        count = macs(import_call(call))
        return int(evaluate(count, dict.fromkeys(symbols(count), EXTENT_OF_SYMBOLS)))
    except MegccError:
        return None


def picture(mod: tvm.IRModule, name: str = "main") -> str:
    """Returns an SVG of a partitioned function, top to bottom: our regions as boxes with their operators, and TVM's
    operators in grey."""
    boxes = []
    for part in everything(mod[name].body):
        if is_operator(part):
            boxes.append(("", [part.op.name]))
        elif kind_of(part) == "Call" and kind_of(part.op) == "GlobalVar":
            calls = operator_calls(mod[part.op].body)
            boxes.append((part.op.name_hint, [call.op.name for call in calls]))
    return box_diagram(boxes)
