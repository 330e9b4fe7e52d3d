# SPDX-License-Identifier: Apache-2.0
"""Inserts conversions around operators without a kernel for their storage dtype: float16, bfloat16 and 8-bit floats are
computed in float32, int4 in int8."""

from __future__ import annotations

from dataclasses import replace

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ir.narrow import SIXTEEN_BITS, carrier, widened
from ...ir.types import DTYPES, TensorType
from ...kernels.site import Site
from ...kernels.support import realisable
from ..edit import Editor

#: Operators that move elements without computing on them, or that have their own rules for dtypes. They read
#: rounded values even if these were computed in float32.
WITHOUT_ARITHMETIC = ("cast", "bitcast", "branch", "loop", "extern", "tir", "copy")


def widen_stored(graph: Graph, context: Context) -> Graph:
    """Inserts `cast` operators around operators on storage dtypes for which there is no kernel.

    A chain of operators on 16-bit floats is computed in float32 without rounding in between: a result is rounded for an
    output of the graph, a cast of the model, or a kernel that works on 16-bit floats. Results of other storage dtypes
    are always rounded, as in the model.
    """
    # half=False: `compute_in_float16` decides later, when chains are fused, which operators `--half` changes.
    return _Widening(graph, replace(context, half=False)).finish()


class _Widening:
    """The state of the pass.

    wide: value of a storage dtype -> the same value as float32 or int8.
    computed: 16-bit values that were computed in float32.
    same: float32 value -> an equal value, because a conversion and its inverse cancel.
    """

    def __init__(self, graph: Graph, context: Context):
        self._graph, self._context, self._edit = graph, context, Editor(graph)
        self.wide: dict[str, str] = {}
        self.computed: set[str] = set()
        self.same: dict[str, str] = {}

    def finish(self) -> Graph:
        """Returns the graph with the casts."""
        for op in self._graph.ops:
            # `rounds`: the model itself rounds there, so the cast stays.
            if op.kind == "cast" and op.outputs[0] not in self._graph.outputs and not op.attrs.get("rounds"):
                self._cancel(op)
            if any(map(self._is_stored, (*op.inputs, *op.outputs))) and not self._stays(op):
                self._edit.replace(op, op.with_(inputs=tuple(self._operand(name, op) for name in op.inputs),
                                                outputs=tuple(self._result(name, op) for name in op.outputs)))
        for name in self.same:
            while self.same[name] in self.same:
                self.same[name] = self.same[self.same[name]]
        self._edit.redirect(self.same)
        return self._edit.finish()

    def _cancel(self, cast: Op) -> None:
        """Cancels a cast with an inverse one before or after it; the decomposition of operators creates such pairs."""
        (source,), (to,) = cast.inputs, cast.outputs
        if self._graph.types[source].dtype == "float32":
            self._keep(to, source)
        elif self._graph.types[to].dtype == "float32" and source in self.computed:
            self.same[to] = self.wide[source]

    def _is_stored(self, name: str) -> bool:
        """Returns whether the dtype of a value is for storage only."""
        return bool(name) and bool(DTYPES[self._graph.types[name].dtype].carrier)

    def _stays(self, op: Op) -> bool:
        """Returns whether a kernel accepts the operator unchanged and none of its operands was computed in float32. A
        bitcast always stays: it reads the stored bits, which a conversion would change."""
        return op.kind == "bitcast" or ((op.kind in WITHOUT_ARITHMETIC or self.computed.isdisjoint(op.inputs))
                                        and realisable(Site.of(self._graph, op, self._context)))

    def _operand(self, name: str, reader: Op) -> str:
        """Returns an operand in the wider dtype: a converted constant, or the result of a cast before the operator."""
        if not self._is_stored(name):
            return name
        if name not in self.wide:
            edit, type_ = self._edit, _carried(self._graph.types[name])
            if name in self._graph.constants:
                self.wide[name] = edit.constant(f"{name}.{type_.dtype}", widened(self._graph.constants[name]), type_)
            else:
                self.wide[name] = edit.value(f"{name}.{type_.dtype}", type_)
                edit.add_before(reader, Op("cast", Attrs(dtype=type_.dtype), (name,), (self.wide[name],),
                                           origin=reader.origin))
        return self.wide[name]

    def _result(self, name: str, op: Op) -> str:
        """Returns a new value of the wider dtype for a result, and adds a cast that rounds it after the operator."""
        if not self._is_stored(name):
            return name
        type_ = self._graph.types[name]
        value = self._edit.value(f"{name}.result", _carried(type_))
        self._edit.add_after(name, Op("cast", Attrs(dtype=type_.dtype), (value,), (name,), origin=op.origin))
        self._keep(name, value)
        return value

    def _keep(self, name: str, value: str) -> None:
        """Records that the 16-bit value `name` was computed as the float32 value `value`."""
        if self._graph.types[name].dtype in SIXTEEN_BITS:
            self.wide[name] = value
            self.computed.add(name)


def _carried(type_: TensorType) -> TensorType:
    """Returns the type with the dtype in which its numbers are computed."""
    return replace(type_, dtype=carrier(type_.dtype))
