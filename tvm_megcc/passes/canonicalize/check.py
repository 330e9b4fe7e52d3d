# SPDX-License-Identifier: Apache-2.0
"""Checks an imported graph before it is compiled: shapes must be known, and sizes within the runtime's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import ModelError, ShapeError
from ...ir.dim_text import sizes_wanted
from ...ir.dims import Symbol, product, symbols
from ...ir.graph import Attrs, Graph, Op, unused
from ...ir.limits import MAX_NAMES
from ...ir.shapes import EVERYTHING, Bucket, graph_symbols, with_likely
from ...kernels.support import limit_exceeded
from ..streaming.states import keep_states

#: The largest number of inputs that a message shows.
_MAX_INPUTS = 5


def checked(graph: Graph, buckets: Sequence[Bucket] = (EVERYTHING,), states: Mapping[str, str] | None = None) -> Graph:
    """Checks an imported graph. Returns it with its states, with copies for outputs that are inputs, and with the
    shapes of the largest bucket as likely values.

    Raises:
        ShapeError: for shapes that are not known.
        ModelError: for a graph that the runtime would refuse, and for states that do not fit the model.
    """
    graph = keep_states(graph, states or {})
    _require_bounds(graph, buckets)
    _require_given(graph)
    if not graph.outputs:
        raise ModelError(graph.name, ["it has no outputs, so nothing is computed"],
                         "Select tensors with --output-names.")
    graph = _with_copies(graph)
    _require_limits(graph)
    return _with_likely_shapes(graph, buckets)


def _with_likely_shapes(graph: Graph, buckets: Sequence[Bucket]) -> Graph:
    """Returns the graph with the largest bucket's shapes as likely values, for which speed is optimised."""
    representatives = (bucket.representative for bucket in buckets)
    return with_likely(graph, max(representatives, key=lambda values: product(values.values())))


def _require_bounds(graph: Graph, buckets: Sequence[Bucket]) -> None:
    """Raises ShapeError, with a command line to copy, if an input has an extent without bounds in the buckets."""
    unbounded = [symbol for symbol in graph_symbols(graph) if not all(symbol in bucket.limits for bucket in buckets)]
    if not unbounded:
        return
    where = [f"{name} [{', '.join(map(str, graph.types[name].shape))}]" for name in graph.inputs
             if any(symbols(dim) & set(unbounded) for dim in graph.types[name].shape)]
    others = f"; and {len(where) - _MAX_INPUTS} more inputs" if len(where) > _MAX_INPUTS else ""
    subject = f"dimension {unbounded[0]} is" if len(unbounded) == 1 else f"dimensions {', '.join(unbounded)} are"
    raise ShapeError(f"{graph.name}: the {subject} not known: "
                     f"{'; '.join(where[:_MAX_INPUTS])}{others}\n"
                     f"  Give the size of each: {sizes_wanted(unbounded)}\n"
                     f"  or a range of sizes, for example: {sizes_wanted(unbounded, '1..64')}")


def _require_given(graph: Graph) -> None:
    """Raises ShapeError for a symbol that occurs in expressions only, such as the extent 2*n: the runtime takes symbols
    from axes of inputs and solves no equations."""
    dims = [(name, dim) for name in graph.inputs for dim in graph.types[name].shape]
    unknown = [name for name in graph_symbols(graph) if Symbol(name) not in (dim for _, dim in dims)]
    if unknown:
        where = ", ".join(f"{dim} of {name}" for name, dim in dims if symbols(dim) & set(unknown))
        raise ShapeError(f"{graph.name}: no input has a dimension that is {' or '.join(unknown)}, only {where}\n"
                         "  Give these inputs fixed shapes, or dimensions of their own.")


def _with_copies(graph: Graph) -> Graph:
    """Adds a copy for each output that is an input or another output, since each port needs a tensor of its own. The
    names of ports stay those of the model."""
    inputs, ports = set(graph.inputs), set(graph.inputs)
    outputs: list[str] = []
    copies: dict[str, str] = {}
    for name in graph.outputs:
        is_repeated = name in ports
        ports.add(name)
        outputs.append(unused(name, graph.types, copies) if is_repeated else name)
        if is_repeated:
            copies[outputs[-1]] = name
    if not copies:
        return graph
    renamed = {name: copied for copied, name in copies.items() if name in inputs}
    return graph.with_(
        ops=(*graph.ops, *(Op("copy", Attrs(), (name,), (copied,), origin=name) for copied, name in copies.items())),
        outputs=tuple(outputs), types={**graph.types, **{copied: graph.types[name] for copied, name in copies.items()}},
        labels={**graph.labels, **{copied: graph.label(name) for copied, name in copies.items()}},
        states=tuple((renamed.get(source, source), target) for source, target in graph.states),
        string_ports=graph.string_ports.union(copied for copied, name in copies.items() if name in graph.string_ports))


def _require_limits(graph: Graph) -> None:
    """Raises ModelError if the runtime could not open the model, or a kernel could not represent an operator."""
    ports = len(graph.inputs) + len(graph.outputs)
    problems = [f"it has {ports:,} inputs and outputs, the runtime takes {MAX_NAMES:,}"] if ports > MAX_NAMES else []
    problems += [f"{op.kind} '{op.origin or op.outputs[0]}' {reason}" for op in graph.ops
              if (reason := limit_exceeded(op, graph.input_types(op), graph.output_types(op))) is not None]
    if problems:
        raise ModelError(graph.name, problems,
                         "Split the operator or reshape to fewer axes before the model is exported.")
