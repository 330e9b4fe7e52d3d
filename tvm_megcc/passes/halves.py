# SPDX-License-Identifier: Apache-2.0
"""float16 is a way to store numbers: what has no kernel for it computes in float32, between conversions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..context import Context
from ..ir.graph import Attrs, Graph, Op, prune, unused
from ..ir.types import TensorType
from ..kernels.site import Site
from ..kernels.support import realisable


def widen_halves(graph: Graph, context: Context) -> Graph:
    """Puts `cast` operators around every operator on float16 that no kernel realises.

    Each result is rounded to float16 as the model says, so that a chain gives what its operators one by one give.
    """
    ops: list[Op] = []
    types, constants = dict(graph.types), dict(graph.constants)
    wide: dict[str, str] = {}

    def is_half(name: str) -> bool:
        return bool(name) and types[name].dtype == "float16"

    def widened(name: str, origin: str) -> str:
        """The float32 value of an operand."""
        if not is_half(name):
            return name
        if name not in wide:
            wide[name] = unused(f"{name}.float32", types)
            types[wide[name]] = _float32(types[name])
            if name in constants:
                constants[wide[name]] = constants[name].astype(np.float32)
            else:
                ops.append(Op("cast", Attrs(dtype="float32"), (name,), (wide[name],), origin=origin))
        return wide[name]

    for op in graph.ops:
        if not any(map(is_half, (*op.inputs, *op.outputs))) \
                or realisable(Site.of(graph, op, context)):
            ops.append(op)
            continue
        inputs = tuple(widened(name, op.origin) for name in op.inputs)
        outputs = tuple(unused(f"{name}.result", types) if is_half(name) else name for name in op.outputs)
        types.update((new, _float32(types[name])) for new, name in zip(outputs, op.outputs, strict=True) if new != name)
        ops.append(op.with_(inputs=inputs, outputs=outputs))
        ops += [Op("cast", Attrs(dtype="float16"), (new,), (name,), origin=op.origin)
                for new, name in zip(outputs, op.outputs, strict=True) if new != name]
    return prune(graph.with_(ops=tuple(ops), types=types, constants=constants))


def _float32(type_: TensorType) -> TensorType:
    return replace(type_, dtype="float32")
