# SPDX-License-Identifier: Apache-2.0
"""float16 is a way to store numbers: what has no kernel for it computes in float32, between conversions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..context import Context
from ..ir.graph import Attrs, Graph, Op
from ..ir.types import TensorType
from ..kernels.site import Site
from ..kernels.support import realisable
from .edit import Editor


def widen_float16(graph: Graph, context: Context) -> Graph:
    """Puts `cast` operators around every operator on float16 that no kernel realises.

    Each result is rounded to float16 as the model says, so that a chain gives what its operators one by one give.
    """
    edit = Editor(graph)
    wide: dict[str, str] = {}

    def is_float16(name: str) -> bool:
        return bool(name) and graph.types[name].dtype == "float16"

    def widened(name: str, reader: Op) -> str:
        """The float32 value of an operand."""
        if not is_float16(name):
            return name
        if name not in wide:
            type_ = _float32(graph.types[name])
            if name in graph.constants:
                wide[name] = edit.constant(f"{name}.float32", graph.constants[name].astype(np.float32), type_)
            else:
                wide[name] = edit.value(f"{name}.float32", type_)
                edit.add_before(reader, Op("cast", Attrs(dtype="float32"), (name,), (wide[name],),
                                           origin=reader.origin))
        return wide[name]

    def rounded(name: str, op: Op) -> str:
        """A float32 value, from which a result is made."""
        if not is_float16(name):
            return name
        result = edit.value(f"{name}.result", _float32(graph.types[name]))
        edit.add_behind(name, Op("cast", Attrs(dtype="float16"), (result,), (name,), origin=op.origin))
        return result

    for op in graph.ops:
        if any(map(is_float16, (*op.inputs, *op.outputs))) and not realisable(Site.of(graph, op, context)):
            edit.replace(op, op.with_(inputs=tuple(widened(name, op) for name in op.inputs),
                                      outputs=tuple(rounded(name, op) for name in op.outputs)))
    return edit.finish()


def _float32(type_: TensorType) -> TensorType:
    return replace(type_, dtype="float32")
