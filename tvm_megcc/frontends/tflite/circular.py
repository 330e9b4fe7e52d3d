# SPDX-License-Identifier: Apache-2.0
"""Imports CIRCULAR_BUFFER, the custom operator of streaming models that keeps the last steps of its operand.
Operators after it may take effect in every K-th run only."""

from __future__ import annotations

from ...errors import ShapeError
from .file import flexible
from .layer_states import append_step
from .node import Node, Results, Unsupported
from .quantized.importers import imports_quantised, require_same_scales

#: The numbers of steps of buffers whose cycle is 1 without option cycles_max; it is 2 for others, as in TFLite Micro's
#: circular_buffer_common.cc.
_STEPS_WITH_CYCLE_1 = (5, 13, 25)
#: The largest cycle: a state counts its runs in int32.
_MAX_CYCLES = 2**30


@imports_quantised("CUSTOM CIRCULAR_BUFFER")
def circular_buffer(node: Node) -> Results:
    """Appends the operand, int8 [N,1,H,C], to the buffer and drops its oldest step: the result is [N,S,H,C]. Before the
    first run all steps are the zero point.

    With option cycles_max = K, TFLite Micro ends a run here, except every K-th one. Our runs always go on to the end;
    in the other runs, results after this operator are not stored in states or outputs.
    """
    (n, one, *rest), shape = node.type(0).shape, node.results[0].shape
    if one != 1 or len(rest) != 2 or len(shape) != 4 or (n, *rest) != (shape[0], *shape[2:]) or shape[1] < 1:
        raise ShapeError(f"keeps {list(shape)} of {node.type(0)}")
    if node.type(0).dtype != "int8" or node.results[0].dtype != "int8":
        raise Unsupported(f"a buffer of {node.type(0).dtype} is not supported")
    require_same_scales(node)
    cycles = flexible(node.operator.custom).get("cycles_max", 0) if node.operator.custom else 0
    if not isinstance(cycles, int):
        raise ShapeError(f"has cycles_max {cycles!r}")
    if cycles <= 0:
        cycles = 1 if shape[1] in _STEPS_WITH_CYCLE_1 else 2
    if cycles > _MAX_CYCLES:
        raise ShapeError(f"what follows it runs only once in {cycles} runs (cycles_max)")
    if len(node.results) != 1:
        raise Unsupported("a second result is not supported")
    name = node.states.input_for(node.operator.outputs[0])
    state = node.as_value(append_step(node, name, node.plain(0), axis=1))
    node.states.keep(name, state)
    if cycles > 1:
        node.states.run_every(cycles, node.name)
    return [state]
