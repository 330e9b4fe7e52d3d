# SPDX-License-Identifier: Apache-2.0
"""Inserts conversions around operators without a kernel for float16, bfloat16, floats of 8 bits or integers of 4: they
compute in float32 or int8."""

from __future__ import annotations

from dataclasses import replace

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ir.narrow import SIXTEEN_BITS, carrier, widened
from ...ir.types import DTYPES, TensorType
from ...kernels.site import Site
from ...kernels.support import realisable
from ..edit import Editor

#: Operators that are about the bits, or that others see through.
OF_BITS = ("cast", "bitcast", "branch", "loop", "extern", "tir", "copy")


def widen_stored(graph: Graph, context: Context) -> Graph:
    """Puts `cast` operators around operators on stored types that no kernel realises.

    Chains of operators on 16-bit floats stay in float32 from end to end, without rounding between them: a result is
    rounded where its bits are asked for, by an output of the graph, a conversion that the model has, or a kernel that
    works on them as they are. Results of other stored types are rounded one by one, as the model says.
    """
    edit = Editor(graph)
    context = replace(context, half=False)  # float16 is decided when chains are complete
    #: The float32 or int8 of stored values; of 16-bit floats in `computed` it came first.
    wide: dict[str, str] = {}
    computed: set[str] = set()
    same: dict[str, str] = {}

    def is_stored(name: str) -> bool:
        return bool(name) and bool(DTYPES[graph.types[name].dtype].carrier)

    def operand(name: str, reader: Op) -> str:
        """The value of an operand in what it is computed in."""
        if not is_stored(name):
            return name
        if name not in wide:
            type_ = _carried(graph.types[name])
            if name in graph.constants:
                wide[name] = edit.constant(f"{name}.{type_.dtype}", widened(graph.constants[name]), type_)
            else:
                wide[name] = edit.value(f"{name}.{type_.dtype}", type_)
                edit.add_before(reader, Op("cast", Attrs(dtype=type_.dtype), (name,), (wide[name],),
                                           origin=reader.origin))
        return wide[name]

    def result(name: str, op: Op) -> str:
        """Returns a wide value, from which a result is made."""
        if not is_stored(name):
            return name
        value = edit.value(f"{name}.result", _carried(graph.types[name]))
        edit.add_after(name, Op("cast", Attrs(dtype=graph.types[name].dtype), (value,), (name,), origin=op.origin))
        keep(name, value)
        return value

    def keep(name: str, value: str) -> None:
        if graph.types[name].dtype in SIXTEEN_BITS:
            wide[name] = value
            computed.add(name)

    def stays(op: Op) -> bool:
        """Whether a kernel takes the operator as it is, and what it moves is not there in float32 anyway."""
        return op.kind == "bitcast" or ((op.kind in OF_BITS or computed.isdisjoint(op.inputs))
                                        and realisable(Site.of(graph, op, context)))

    for op in graph.ops:
        if op.kind == "cast" and op.outputs[0] not in graph.outputs and not op.attrs.get("rounds"):
            # After a decomposed operator, a conversion and its inverse cancel.
            (source,), (to,) = op.inputs, op.outputs
            if graph.types[source].dtype == "float32":
                keep(to, source)
            elif graph.types[to].dtype == "float32" and source in computed:
                same[to] = wide[source]
        if any(map(is_stored, (*op.inputs, *op.outputs))) and not stays(op):
            edit.replace(op, op.with_(inputs=tuple(operand(name, op) for name in op.inputs),
                                      outputs=tuple(result(name, op) for name in op.outputs)))
    for name in same:
        while same[name] in same:
            same[name] = same[same[name]]
    edit.redirect(same)
    return edit.finish()


def _carried(type_: TensorType) -> TensorType:
    return replace(type_, dtype=carrier(type_.dtype))
