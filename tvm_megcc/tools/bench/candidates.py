# SPDX-License-Identifier: Apache-2.0
"""`megcc list kernels --op`: the candidate kernels of one operator on given shapes, with their costs and times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from ...codegen.c_source.bind import KernelSpec
from ...context import Context
from ...errors import MegccError, MissingTool
from ...ir.dims import substitute
from ...ir.graph import Attrs, Graph, Op, network_bytes
from ...ir.types import DTYPES, TensorType
from ...kernels.site import Site
from ...kernels.support import candidates as kernels_of
from ...kernels.support import placements, refusal
from ...ops.base import OPERATORS, Operator
from ...runtime.candidates import Call, Candidate, candidates_of
from ...runtime.emulator import elf
from ...runtime.timing import MAX_WEIGHT_COPY_BYTES, TIMEOUT_SECONDS, LocalRunner, compiled_kernels, library
from ...target import parse_targets
from ..columns import aligned

#: A shape with its dtype, such as "1x64x56x56", "int64:1,8" or "float32:scalar".
_SHAPE = re.compile(r"(?:(?P<dtype>[a-z]+[0-9]*):)?(?P<extents>[0-9]+(?:[x,][0-9]+)*|scalar)")


def candidates(kind: str, shapes: Sequence[str], weights: Sequence[str] = (), attrs: str = "", target: str = "native",
               optimize: str = "speed", tiles: bool = False, time: bool = False, cc: str | None = None,
               network: int | None = None) -> dict:
    """Returns the candidates of an operator, those of least cost first.

    Args:
        kind: the name of the operator.
        shapes: the shapes of its first operands, such as "1x64x56x56" or "int64:4".
        weights: the shapes of the operands after them, which are constants.
        attrs: the attributes, such as "pads=1,1,1,1 strides=2,2"; others are those of the operator's first test case.
        tiles: whether to list the other register tiles too, which only tuning chooses.
        time: whether to measure on this machine, which has to run the target's code.
        network: bytes of weights of the network that the operator is timed in; None: as `network_around` says.

    Raises:
        MegccError: for an unknown operator or attribute, shapes that do not fit it, or if nothing realises it.
        ToolError: with `time`, if there is no C compiler.
    """
    declaration = _declaration(kind)
    targets = parse_targets(target)
    if len(targets) > 1:
        raise MegccError(f"candidates are listed for one target, not for {target}")
    (compiled_for,) = targets
    graph = _graph(declaration, shapes, weights, _attributes(declaration, attrs))
    (op,) = graph.ops
    network = network_around(graph, compiled_for) if network is None else network
    site = Site.of(graph, op, Context(compiled_for, optimize, network))
    found = [c for c in candidates_of(site) if tiles or not c.kernel.tile]
    refused = _refused(site, {c.kernel.name for c in found})
    if not found:
        raise MegccError(f"nothing realises {kind} here: "
                         + "; ".join(f"{name}: {why}" for name, why in refused.items()))
    found.sort(key=lambda c: (bool(c.kernel.tile), c.cost))
    specs = list(dict.fromkeys(c.bound.spec for c in found if c.bound is not None))
    code = _code_bytes(specs, compiled_for, cc, needed=time)
    times = _times(graph, op, found, compiled_for, cc, network) if time else {}
    rows = [_row(c, code, times, chosen=c is found[0]) for c in found]
    if fastest := min((row["us"] for row in rows if row.get("us")), default=0.0):
        for row in rows:
            row["of_fastest"] = round(row["us"] / fastest, 3) if row.get("us") else None
    return {"operator": kind, "target": str(compiled_for), "optimize": optimize,
            "operands": {name: ("const " if name in graph.constants else "") + str(graph.types[name])
                         for name in op.inputs if name},
            "results": [str(graph.types[name]) for name in op.outputs], "attributes": dict(op.attrs),
            **({"network_bytes": network} if time else {}),
            "macs": int(declaration.macs(op.attrs, graph.input_types(op), graph.output_types(op))),
            "candidates": rows, "refused": refused}


def _declaration(kind: str) -> type[Operator]:
    if kind not in OPERATORS:
        similar = " or ".join(f"'{name}'" for name in get_close_matches(kind, OPERATORS))
        raise MegccError(f"there is no operator '{kind}'" + (f"; {similar}?" if similar else "")
                         + " 'megcc list ops' shows them all")
    return OPERATORS[kind]


def _attributes(declaration: type[Operator], text: str) -> Attrs:
    """Returns the attributes of the operator's first test case, changed by the text; values have the types of test
    cases."""
    known: dict[str, list] = {}
    for case in declaration.cases:
        for name, value in case.attrs.items():
            known.setdefault(name, []).append(value)
    attrs = dict(declaration.cases[0].attrs)
    for part in re.split(r"[;\s]+", text.strip()):
        name, _, value = part.partition("=")
        if part and name not in known:
            raise MegccError(f"{declaration.kind} has no attribute '{name}'; it has "
                             f"{', '.join(sorted(known)) or 'none'}")
        if part:
            attrs[name] = _value(name, value, known[name])
    return Attrs(attrs)


def _value(name: str, text: str, used: Sequence) -> object:
    """Parses a value to the type of those used in the operator's test cases, and to their length if all have the same.
    """
    like = next((value for value in used if value is not None), None)
    try:
        if isinstance(like, (tuple, list)):
            values = tuple(float(word) if "." in word else int(word) for word in text.split(",") if word)
            lengths = {len(value) for value in used if value is not None}
            if len(lengths) == 1 and len(values) not in lengths:
                raise ValueError
            return values
        if isinstance(like, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return type(like)(text) if isinstance(like, (int, float, str)) else int(text)
    except (KeyError, ValueError):
        raise MegccError(f"attribute {name}={text}: expected a value such as {name}={_written(like)}") from None


def _written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _graph(declaration: type[Operator], shapes: Sequence[str], weights: Sequence[str], attrs: Attrs) -> Graph:
    """Returns a graph of one operator; operands that are weights are seeded random constants."""
    # The name of an optional operand ends in "?", that of a variadic one, which is the last, in "*".
    names = [operand.rstrip("?*") for operand in declaration.operands]
    fewest = sum(not operand.endswith(("?", "*")) for operand in declaration.operands)
    given = [*shapes, *weights]
    if declaration.operands and declaration.operands[-1].endswith("*"):
        names += [f"{names[-1]}{n}" for n in range(1, len(given) - len(names) + 1)]
    if not fewest <= len(given) <= len(names):
        raise MegccError(f"{declaration.kind} has the operands {', '.join(declaration.operands)}; {len(given)} of them "
                         f"have a shape. Give --shape for each that is computed, then --weight for each that is known")
    # A shape without a dtype has that of the same operand (shape, dtype) in the first test case.
    dtypes = [operand[1] if operand else "float32" for operand in declaration.cases[0].inputs]
    types = {name: _type(text, dtypes[n] if n < len(dtypes) else dtypes[-1])
             for n, (name, text) in enumerate(zip(names, given, strict=False))}
    try:
        results = declaration.infer(attrs, *types.values())
    except (MegccError, AttributeError, IndexError, TypeError, ValueError) as error:
        given = ", ".join(f"{name} {type_}" for name, type_ in types.items())
        raise MegccError(f"{declaration.kind} with {given} {{{attrs!r}}}: {error}") from None
    outputs = tuple(f"y{n}" for n in range(len(results)))
    op = Op(declaration.kind, attrs, tuple(types), outputs, origin=declaration.kind)
    values = _random({name: types[name] for name in list(types)[len(shapes):]})
    return Graph("operator", tuple(types)[:len(shapes)], outputs, (op,),
                 {**types, **dict(zip(outputs, results, strict=True))}, values)


def _type(text: str, dtype: str) -> TensorType:
    found = _SHAPE.fullmatch(text.strip())
    if found is None or (found["dtype"] or dtype) not in DTYPES:
        raise MegccError(f"'{text}' is no shape; write it as 1x64x56x56, or with a type: int64:1x8, float32:scalar")
    extents = () if found["extents"] == "scalar" else tuple(map(int, re.split("[x,]", found["extents"])))
    return TensorType(found["dtype"] or dtype, extents)


def _random(types: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """Returns normally distributed floats, and integers 0 and 1, which are valid indices nearly everywhere."""
    generator, arrays = np.random.default_rng(len(types)), {}
    for name, type_ in types.items():
        dtype = np.dtype(type_.dtype)
        arrays[name] = (generator.standard_normal(type_.shape) if dtype.kind == "f"
                        else generator.integers(0, 2, type_.shape)).astype(dtype)
    return arrays


def _refused(site: Site, accepted: set[str]) -> dict[str, str]:
    """Returns why the operator's other kernels are not candidates, in the first of their layouts."""
    found = {}
    for kernel in kernels_of(site.kind):
        if kernel.name not in accepted:
            for placed in placements(site, kernel):
                found.setdefault(kernel.name, refusal(placed, kernel))
    return found


def _code_bytes(specs: Sequence[KernelSpec], target, cc: str | None, needed: bool) -> dict[KernelSpec, int]:
    """Returns the bytes of machine code by kernel; {} without a compiler for the target, unless it is needed."""
    try:
        with compiled_kernels(specs, target, cc) as (_, _, results):
            return {spec: elf.total(path).text for spec, path in results.items() if isinstance(path, Path)}
    except MissingTool:
        if needed:
            raise
        return {}


def network_around(graph: Graph, target) -> int:
    """Returns the bytes of weights to assume for a network with this operator. If its weights exceed the L2 cache, a
    large network is assumed, so that they come from memory; smaller weights stay in the caches."""
    bytes_of_graph = network_bytes(graph)
    return MAX_WEIGHT_COPY_BYTES if bytes_of_graph > target.l2 else bytes_of_graph


def _times(graph: Graph, op: Op, found: Sequence[Candidate], target, cc: str | None,
           network: int) -> dict[KernelSpec, float | str]:
    """Returns kernel -> microseconds of a call, or the reason why there is no time. Results are compared with
    numpy's."""
    runner = LocalRunner()
    runner.require(target)
    values = _random({name: graph.types[name] for name in graph.inputs})
    results = OPERATORS[op.kind].compute(op.attrs, *(values.get(name, graph.constants.get(name)) for name in op.inputs))
    values.update(zip(op.outputs, results, strict=True))
    call = Call("", op, graph)  # without the text that identifies it in a tuning log, since there is none
    first = {c.bound.spec: c for c in reversed(found) if c.bound is not None}
    times: dict[KernelSpec, float | str] = {}
    with library(list(first), target, runner.program, cc) as built, \
            runner.session(built, TIMEOUT_SECONDS) as session:
        times.update({spec: "it does not compile: " + message for spec, message in built.failed.items()})
        for spec, number in built.index.items():
            sample = session.measure(call.measurement(first[spec], values, network), number)
            times[spec] = sample.error or min(sample.ns) / 1e3
    return times


def _row(candidate: Candidate, code: Mapping, times: Mapping, chosen: bool) -> dict:
    row = {"kernel": candidate.kernel.label, "layouts": candidate.layouts, "cost": round(candidate.cost),
           "chosen": chosen, "code_bytes": 0, "weights": "", "weight_bytes": 0, "workspace_bytes": 0}
    if candidate.bound is None:     # a view, which no code computes
        return {**row, "us": 0.0} if times else row
    spec = candidate.bound.spec
    # The packed weights, without biases: those have the packer "channel".
    packed = [(operand.pack, parameter) for operand, parameter in
              zip(candidate.bound.inputs, spec.inputs, strict=True) if operand.pack and operand.pack[0] != "channel"]
    extents = dict(zip(spec.runtime_extents, candidate.bound.extents, strict=True))

    def known(size) -> int:
        return int(substitute(size, extents))

    row.update(symbol=spec.symbol, code_bytes=code.get(spec),
               weights=" ".join(_pack_name(pack) for pack, _ in packed),
               weight_bytes=sum(known(p.size) * DTYPES[p.dtype].bytes for _, p in packed),
               workspace_bytes=known(spec.shared) + known(spec.scratch))
    if spec in times:
        timed = times[spec]
        row.update({"error": timed} if isinstance(timed, str) else {"us": round(timed, 3)})
    return row


def _pack_name(pack: tuple) -> str:
    """Returns the packer (kernels/packing.py) and its arguments as text, such as `conv_oihw(16,1)`."""
    return f"{pack[0]}({','.join(map(str, pack[1:]))})" if len(pack) > 1 else pack[0]


def text(report: dict) -> str:
    operands = ", ".join(f"{name} {type_}" for name, type_ in report["operands"].items())
    attributes = "; ".join(f"{name}={_written(value)}" for name, value in report["attributes"].items())
    lines = [f"{report['operator']} ({operands}) -> {', '.join(report['results'])}",
             f"  {attributes or 'no attributes'}; {report['macs']:,} multiply-adds; {report['target']}, "
             f"-O {report['optimize']}", ""]
    timed = any("us" in row or "error" in row for row in report["candidates"])
    header = ["", "kernel", "layouts", "cost", "code", "weights", "bytes", "workspace"]
    table = [header + (["us", "of fastest"] if timed else [])]
    for row in report["candidates"]:
        cells = ["*" if row["chosen"] else "", row["kernel"], row["layouts"], f"{row['cost']:,}",
                 _number(row["code_bytes"]), row["weights"] or "-", _number(row["weight_bytes"]),
                 _number(row["workspace_bytes"])]
        if timed:
            cells += [f"{row['us']:,.1f}" if "us" in row else "-", f"{row['of_fastest']:.2f}"
                      if row.get("of_fastest") else "-"]
        table.append(cells)
    lines += aligned(table, left={0, 1, 2, 5})
    lines += [f"{row['kernel']}: {row['error']}" for row in report["candidates"] if "error" in row]
    lines += [f"{name}: no, {why}" for name, why in report["refused"].items()]
    if timed:
        lines.append(f"timed in a network of {report['network_bytes'] / (1 << 20):,.1f} MiB of weights (--network)")
    lines.append("* the least cost, in estimated cycles; in a network, layouts between operators count too"
                 + (" (megcc explain)" if timed else "; --time measures"))
    return "\n".join(lines) + "\n"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}" if value else "-"
