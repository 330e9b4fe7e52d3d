# SPDX-License-Identifier: Apache-2.0
"""float16, bfloat16, floats of 8 bits and integers of 4 are ways to store numbers: what has no kernel for them computes
in float32 or int8, between conversions."""

from __future__ import annotations

from dataclasses import replace

from ..context import Context
from ..ir.graph import Attrs, Graph, Op
from ..ir.narrow import carrier, widened
from ..ir.types import DTYPES, TensorType
from ..kernels.site import Site
from ..kernels.support import realisable
from .edit import Editor


def widen_stored(graph: Graph, context: Context) -> Graph:
    """Puts `cast` operators around every operator on stored types that no kernel realises.

    Each result is rounded as the model says, so that a chain gives what its operators one by one give.
    """
    edit = Editor(graph)
    wide: dict[str, str] = {}

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

    def rounded(name: str, op: Op) -> str:
        """A wide value, from which a result is made."""
        if not is_stored(name):
            return name
        result = edit.value(f"{name}.result", _carried(graph.types[name]))
        edit.add_behind(name, Op("cast", Attrs(dtype=graph.types[name].dtype), (result,), (name,), origin=op.origin))
        return result

    for op in graph.ops:
        if any(map(is_stored, (*op.inputs, *op.outputs))) and not realisable(Site.of(graph, op, context)):
            edit.replace(op, op.with_(inputs=tuple(operand(name, op) for name in op.inputs),
                                      outputs=tuple(rounded(name, op) for name in op.outputs)))
    return edit.finish()


def _carried(type_: TensorType) -> TensorType:
    return replace(type_, dtype=carrier(type_.dtype))
