# SPDX-License-Identifier: Apache-2.0
"""Computes operators in float16, and stores their results in float16, if that is not estimated to be much slower
(`--half`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...kernels.choice import options
from ...kernels.site import Site
from ..edit import Editor

#: Operators that may begin a chain in float16: their arithmetic takes longer than the conversions.
BEGIN = ("conv2d", "matmul")
#: The largest ratio of the cost of a float16 kernel to that of float32. It is above 1 because float16 halves the
#: memory.
SLOWER = 1.6


def compute_in_float16(graph: Graph, context: Context) -> Graph:
    """Computes convolutions and products in float16 if their float16 kernels are not estimated to be much slower
    (`SLOWER`), and the operators after them.

    Casts are inserted before and after operators that stay in float32. Constants are rounded; an operator with a
    constant beyond the range of float16 stays in float32.
    """
    if not context.half or context.target.float16_target is None:
        return graph
    return _Float16(graph, context).finish()


class _Float16:
    """The state of the pass. half: float32 value -> the same value as float16."""

    def __init__(self, graph: Graph, context: Context):
        self._graph, self._context, self._edit = graph, context, Editor(graph)
        self.half: dict[str, str] = {}
        types = self._edit.types
        #: float32 values that the model converts to float16 anyway -> the cast.
        self._converted = {op.inputs[0]: op for op in graph.ops if op.kind == "cast" and op.attrs.dtype == "float16"
                           and types[op.inputs[0]].dtype == "float32"}

    def finish(self) -> Graph:
        """Returns the graph with operators in float16."""
        types = self._edit.types
        for op in self._graph.ops:
            if op.kind == "cast":
                if (types[op.inputs[0]].dtype, types[op.outputs[0]].dtype) == ("float16", "float32"):
                    self.half[op.outputs[0]] = op.inputs[0]
                continue
            site = self._on_float16(op)
            if site is not None and self._gains(op, site):
                self._edit.replace(op, op.with_(inputs=tuple(self._operand(name, op) for name in op.inputs),
                                                outputs=tuple(self._result(name, op) for name in op.outputs)))
        return self._edit.finish()

    def _is_float32(self, name: str) -> bool:
        """Returns whether an operand or result is float32; "" is an absent one."""
        return bool(name) and self._edit.types[name].dtype == "float32"

    def _floats(self, names: tuple[str, ...]) -> list[str]:
        """Returns the float32 values among `names`, without duplicates."""
        return list(filter(self._is_float32, dict.fromkeys(names)))

    def _on_float16(self, op: Op) -> Site | None:
        """Returns the operator on float16, for the choice of a kernel; None if a constant is beyond the range of
        float16."""
        constants = self._edit.constants
        arrays = [constants[name] for name in self._floats(op.inputs) if name in constants]
        if any(np.abs(array[np.isfinite(array)]).max(initial=0) > np.finfo(np.float16).max for array in arrays):
            return None
        site = Site.of(self._graph, op, self._context)
        return Site(op, tuple(type_ and _as_half(type_) for type_ in site.types),
                    tuple(map(_as_half, site.outputs)), self._context, site.constants)

    def _gains(self, op: Op, site: Site) -> bool:
        """Returns whether the operator is computed in float16: one of `BEGIN` if its float16 kernel is not much slower
        (`SLOWER`), others if all their operands are in float16 already."""
        data = [name for name in self._floats(op.inputs) if name not in self._edit.constants]
        begins = op.kind in BEGIN and len(self._floats(op.outputs)) == 1
        if not data or not (begins or all(name in self.half for name in data)):
            return False
        float16_cost = _lowest_cost(site)
        if float16_cost is None:
            return False
        if not begins:
            return True
        float32_cost = _lowest_cost(Site.of(self._graph, op, self._context))
        return float32_cost is not None and float16_cost < SLOWER * float32_cost

    def _operand(self, name: str, op: Op) -> str:
        """Returns a float32 operand as float16: a rounded constant, or the result of a cast before the operator."""
        if not self._is_float32(name):
            return name
        if name not in self.half:
            edit, type_ = self._edit, _as_half(self._edit.types[name])
            if name in edit.constants:
                self.half[name] = edit.constant(f"{name}.half", edit.constants[name].astype(np.float16), type_)
            else:
                self.half[name] = edit.value(f"{name}.half", type_)
                edit.add_before(op, Op("cast", Attrs(dtype="float16"), (name,), (self.half[name],), origin=op.origin))
        return self.half[name]

    def _result(self, name: str, op: Op) -> str:
        """Returns a new float16 value for a float32 result, and adds a cast to float32 after the operator."""
        if not self._is_float32(name):
            return name
        edit = self._edit
        if name in self._converted:
            # The result replaces that of the model's own cast to float16, which is removed.
            edit.replace(self._converted[name])
            self.half[name] = self._converted[name].outputs[0]
        else:
            self.half[name] = edit.value(f"{name}.half", _as_half(edit.types[name]))
        edit.add_after(name, Op("cast", Attrs(dtype="float32"), (self.half[name],), (name,), origin=op.origin))
        return self.half[name]


def _lowest_cost(site: Site) -> float | None:
    """Returns the cost of the cheapest kernel for an operator; None if no kernel realises it."""
    return min((option.cost for option in options(site)[0]), default=None)


def _as_half(type_: TensorType) -> TensorType:
    return replace(type_, dtype="float16") if type_.dtype == "float32" else type_
