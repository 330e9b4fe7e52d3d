# SPDX-License-Identifier: Apache-2.0
"""A drawn graph beside what its operators give one by one, in numpy and as compiled C.

Errors of operators add up, and some operators make much of a small error: a difference of two equal sums, a comparison,
a rounding. So a difference that is larger than one operator may have is held against what the references themselves
make of operands that are apart by some units in the last place, each before its operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx.reference
from onnx import helper, numpy_helper

from tvm_megcc.codegen.fit import memory_bytes
from tvm_megcc.codegen.memory.planner import plan_memories
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.errors import InternalError, MegccError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.graph import Graph
from tvm_megcc.ir.shapes import Bucket
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.canonicalize.check import checked
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS

from .. import comparison as operators
from ..cases import Case
from ..draw import Undrawn, element_type
from ..family import described
from ..references import TOLERANCE, differs
from ..result import Result, brief
from .builder import computed, model_of, reads
from .draw import Chain

#: By how much operands are moved, relative to themselves: 8 units in the last place.
MOVED = {"float16": 2.0 ** -8, "float32": 2.0 ** -21, "float64": 2.0 ** -50}
#: Operators without operands of reals whose results near 0 are differences of larger numbers.
DIFFERENCES = ("HannWindow", "HammingWindow", "BlackmanWindow")
#: What graphs are brought to kernels for, in turn.
CONTEXTS = (("x86-64-v3", {}), ("cortex-m4", {"optimize": "size"}), ("arm64", {}), ("c", {}), ("cortex-m55", {}),
            ("x86-64-v3", {"reproducible": True}), ("riscv64-v", {"optimize": "size"}))
#: How often they are; and where that does not explain a difference, which may take several roundings at once.
TIMES = (12, 240)
Arrays = Mapping[str, np.ndarray]


def check(chain: Chain) -> Result:
    """What import and passes make of it, by numpy; then what the choice of layouts, the order of execution and strips
    make of that, where there are kernels for all of it."""
    target, options = CONTEXTS[chain.number % len(CONTEXTS)]
    context = Context(TARGETS[target], **options)
    try:
        graph, buckets = import_model(chain.model, dims=dict(chain.dims))
        result = compared(chain, computed_by(before_layouts(graph, context), chain))
        if result.outcome == "right":
            for stage in lowered(graph, buckets, context):
                result = compared(chain, computed_by(stage, chain))
                if result.outcome != "right":
                    break
    except Exception as error:
        if isinstance(error, MegccError) and not isinstance(error, InternalError):
            return Result(chain.number, chain.label, "refused", brief(error))
        return Result(chain.number, chain.label, "crash", f"{target}: {type(error).__name__}: {brief(error)}")
    return result._replace(reason=result.reason and f"{target}: {result.reason}")


def computed_by(graph: Graph, chain: Chain) -> list[dict[str, np.ndarray]]:
    return [reference.run(graph, feeds) for feeds in chain.runs]


def lowered(graph: Graph, buckets: Sequence[Bucket], context: Context) -> Iterator[Graph]:
    """The graph as kernels compute it; and as they do where there is less memory than that takes.

    Raises:
        InternalError: a fault. What is refused gives no graph.
    """
    memories = partial(plan_memories, buckets=buckets)
    try:
        ready = checked(graph, buckets)
        stages: dict[str, Graph] = {}
        plan = lower(ready, context, on_pass=lambda name, after: stages.update({name: after})).plan
        yield list(stages.values())[-1]
        planned = memories(plan)
        arena = max(each.plan.arena_bytes for each in planned)
        less = replace(context, ram=memory_bytes(plan, planned) - arena // 4)
        lower(ready, less, memories=memories, on_pass=lambda name, after: stages.update({name: after}))
    except InternalError:
        raise
    except MegccError:
        return
    if "compute_by_rows" in stages:
        yield stages["compute_by_rows"]


def compared(chain: Chain, found: Sequence[Arrays]) -> Result:
    """The outputs of all runs beside those that are wanted."""
    differing = [(run, reason) for run, own in enumerate(found) if (reason := differs(own, chain.wanted[run]))]
    reasons = [f"run {run}: {reason}" for run, reason in differing
               if not any(explained(chain, run, found[run], times) for times in TIMES)]
    if not differing:
        return Result(chain.number, chain.label, "right")
    if not reasons:
        return Result(chain.number, chain.label, "ill-conditioned", f"run {differing[0][0]}: {differing[0][1]}")
    try:
        evaluator = onnx.reference.ReferenceEvaluator(chain.model)
        others = [dict(zip(chain.wanted[run], evaluator.run(None, dict(chain.runs[run])), strict=True))
                  for run, _ in differing]
        if not any(differs(found[run], other) for (run, _), other in zip(differing, others, strict=True)):
            return Result(chain.number, chain.label, "references differ", reasons[0])
    except Exception:  # it has cases that it does not know, and says so in many ways
        pass
    return by_one_operator(chain) or Result(chain.number, chain.label, "wrong", reasons[0])


def by_one_operator(chain: Chain) -> Result | None:
    """The judgement of the first operator that has other results by itself; None if none has.

    Where a reference agrees with it, or the specification leaves it open, the graph differs "by one operator".
    """
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in chain.model.graph.initializer}
    runs = [{**constants, **feeds} for feeds in chain.runs]
    for node in chain.model.graph.node:
        results = computed(node, runs, chain.opset)
        inputs = [name for name in reads(node) if name not in constants]
        for own, arrays in zip(runs, results, strict=True):
            own.update(zip(node.output, arrays, strict=True))
            model = model_of(
                [node], [helper.make_tensor_value_info(name, element_type(own[name]), own[name].shape)
                         for name in inputs],
                [helper.make_tensor_value_info(name, element_type(own[name]), None) for name in node.output if name],
                [tensor for tensor in chain.model.graph.initializer if tensor.name in reads(node)], chain.opset)
            feeds = {name: own[name] for name in inputs}
            try:
                found = reference.run(import_onnx(model), feeds)
            except MegccError:
                continue
            reason = differs(found, {name: own[name] for name in node.output})
            if reason:
                single = Case(chain.seed, chain.number, node.op_type, chain.opset, chain.label, model, feeds)
                judged = operators.check(replace(single, **described(single)))
                is_fault = judged.outcome in ("wrong", "crash", "undecided")
                text = f"{node.op_type}: {own[node.output[0]].dtype} {reason}; {judged.outcome}: {judged.reason}"
                return Result(chain.number, chain.label, "wrong" if is_fault else "by one operator", text)
    return None


def explained(chain: Chain, run: int, found: Arrays, times: int) -> bool:
    """Whether small moves of operands explain every difference of a run."""
    moved = moved_by_little(chain, run, times)
    return all(within(array, chain.wanted[run][name], [each[name] for each in moved])
               for name, array in found.items())


def moved_by_little(chain: Chain, run: int, times: int) -> list[dict[str, np.ndarray]]:
    """Outputs where each operator's operands are moved at random, so many times; [] where an operator refuses them."""
    rng = np.random.default_rng([chain.number, run])
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in chain.model.graph.initializer}
    values = [{**constants, **chain.runs[run]} for _ in range(times)]
    with np.errstate(all="ignore"):
        for node in chain.model.graph.node:
            operands = [{name: own[name] if name in constants else _moved(own[name], rng) for name in reads(node)}
                        for own in values]
            try:
                results = computed(node, operands, chain.opset)
            except Undrawn:
                return []
            for own, arrays in zip(values, results, strict=True):
                if node.op_type in DIFFERENCES:
                    arrays = [_moved(array + 1, rng) - 1 for array in arrays]
                own.update(zip(node.output, arrays, strict=True))
    return [{name: own[name] for name in chain.wanted[run]} for own in values]


def _moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    return np.asarray(array * (1 + MOVED[array.dtype.name] * rng.uniform(-1, 1, array.shape)), array.dtype)


def within(found: np.ndarray, wanted: np.ndarray, moved: Sequence[np.ndarray]) -> bool:
    """The difference is one that a single operator may have, or a few times what small moves make of the reference.

    That is asked of each element, so that one that is rounded the other way excuses no other. Moves at random may miss
    what an element of reals can do: a quarter of what they make of any of the output is added.
    """
    if found.dtype != wanted.dtype:
        return False
    if found.shape != wanted.shape:
        return any(each.shape == found.shape for each in moved)
    moved = [each for each in moved if each.shape == wanted.shape]
    with np.errstate(all="ignore"):
        real, own = wanted.astype(np.float64), found.astype(np.float64)
        apart = np.where((real == own) | (np.isnan(real) & np.isnan(own)), 0, np.abs(real - own))
        spread = np.max([np.abs(each.astype(np.float64) - real) for each in moved] or [np.zeros(real.shape)], axis=0)
        if wanted.dtype.kind != "f":
            return bool((apart <= 2 * spread).all())
        magnitude = np.abs(real[np.isfinite(real)]).max(initial=1)
        limit = TOLERANCE[wanted.dtype.name] * magnitude + 4 * spread + spread[np.isfinite(spread)].max(initial=0) / 4
        return bool(((apart <= limit) | np.isnan(spread) | np.isinf(spread)).all())
