# SPDX-License-Identifier: Apache-2.0
"""`megcc explain`: shows which kernel realises each operator, why, and why the others were refused."""

from __future__ import annotations

from pathlib import Path

from ...codegen.plan import KernelPlan
from ...compiler import context_of, lower
from ...errors import ModelError
from ...frontends.formats import require_model_file
from ...frontends.models import import_model
from ...ir.dims import likely
from ...ir.text import op_text
from ...ops.base import operator
from ...options import CompileOptions
from ...passes.canonicalize.check import checked
from ...passes.canonicalize.preprocess import convert_inputs
from ...target import parse_targets

#: The most characters of a value's name in an operator's text.
NAME = 60


def explain(model: str | Path, target: str = "native", options: CompileOptions | None = None) -> dict:
    """Returns the choice for every operator of a model, or every reason why it cannot be compiled.

    For dynamic shapes, costs and multiply-adds are those of the likely values of symbols. Costs are estimated cycles;
    with a tuning log they are nanoseconds.
    """
    options = options or CompileOptions()
    require_model_file(model)
    cpu = parse_targets(target)[0]
    report: dict = {"model": str(model), "target": str(cpu), "supported": True, "findings": [], "calls": []}
    try:
        graph, buckets = import_model(model, options)
        graph = convert_inputs(graph, options.inputs)
    except ModelError as error:
        return {**report, "supported": False, "findings": list(error.findings)}
    graph = checked(graph, buckets)
    plan = lower(graph, context_of(graph, cpu, options)).plan
    return {**report, "measured": plan.context.times is not None, "calls": calls_of(plan), "views": views_of(plan)}


def calls_of(plan: KernelPlan) -> list[dict]:
    """Returns {operator, kind, origin, outputs, kernel, algorithm, cost, macs, refused} for each call. refused: the
    other candidates by name, with the reason."""
    rows = []
    for step in plan.steps:
        op = step.op
        types = plan.graph.input_types(op)[:len(op.own_inputs)]
        rows.append({
            "operator": op_text(plan.graph, op, NAME), "kind": op.kind, "origin": op.origin,
            "outputs": list(op.outputs),
            "kernel": step.spec.symbol, "algorithm": step.bound.choice.kernel.label, "cost": step.bound.choice.cost,
            "macs": likely(operator(op.kind).macs(op.attrs, types, plan.graph.output_types(op))),
            "refused": dict(step.bound.choice.refused)})
    return rows


def views_of(plan: KernelPlan) -> list[str]:
    """Returns the operators that need no call."""
    called = {step.op for step in plan.steps}
    return [op_text(plan.graph, op, NAME) for op in plan.graph.ops if op not in called]


def text(report: dict) -> str:
    if not report["supported"]:
        lines = [f"{report['model']} cannot be compiled:"]
        return "\n".join([*lines, *(f"  - {finding}" for finding in report["findings"])]) + "\n"
    unit = "measured time" if report["measured"] else "estimated cycles"
    total = sum(call["cost"] for call in report["calls"]) or 1.0
    lines = [f"{report['model']} for {report['target']}: {len(report['calls'])} calls"]
    for index, call in enumerate(report["calls"]):
        lines.append(f"{index:4d} {call['operator']}")
        lines.append(f"       {call['kernel']}  ({call['algorithm']}; {call['cost'] / total:.1%} of {unit})")
        lines += [f"       not {name}: {reason}" for name, reason in call["refused"].items()]
    if report["views"]:
        lines.append("no call, only another view of memory:")
        lines += [f"       {operator_}" for operator_ in report["views"]]
    return "\n".join(lines) + "\n"
