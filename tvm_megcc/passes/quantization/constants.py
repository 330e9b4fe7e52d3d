# SPDX-License-Identifier: Apache-2.0
"""Folds small values that depend on dequantised constants only, such as the sum of two biases.

Importers do not fold them, because they do not know which constants stay integers.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from ...context import Context
from ...errors import MegccError
from ...ir.extent_bounds import is_at_most
from ...ir.graph import EXTENT, Graph, is_open
from ...ops.base import operator
from ...ops.rules import compute_stored, require_accepted
from ..edit import Editor
from .requantize import DEQUANTIZE, QUANTIZE

#: The largest number of elements of a folded result, and of multiply-accumulates to compute it.
SMALL = 1 << 16


def fold(graph: Graph, context: Context) -> Graph:
    """Folds small results of operators on constants and dequantised constants."""
    edit = Editor(graph)
    # The result of EXTENT is a view of its operand, and a constant has no views.
    read_by_extents = {name for op in graph.ops if op.kind == EXTENT for name in op.inputs}
    for op in graph.ops:
        declaration = operator(op.kind)
        # Dequantised constants stay integers for the products that read them; a copy makes an output of a constant.
        if op.kind in (DEQUANTIZE, QUANTIZE, EXTENT, "copy") or not op.inputs or not declaration.folds \
                or len(op.outputs) != 1 or op.outputs[0] in read_by_extents or not declaration.evaluates(op.attrs):
            continue
        if not all(name in edit.constants or _is_dequantised(edit, name) for name in op.inputs if name):
            continue
        types = tuple(edit.types[name] if name else None for name in op.inputs)
        result = edit.types[op.outputs[0]]
        work = result.size, declaration.macs(op.attrs, types, (result,))
        if all(is_at_most(extent, SMALL) for extent in work) and not is_open(op.attrs):
            arrays = [_numbers(edit, name) if name else None for name in op.inputs]
            with suppress(MegccError, IndexError):  # out-of-bounds indices: the run reports them
                require_accepted(declaration, op.attrs, types, arrays)
                edit.settle(op, *compute_stored(declaration, op.attrs, arrays, [result.dtype]))
    return edit.finish()


def _is_dequantised(edit: Editor, name: str) -> bool:
    """Returns whether a value is small and a dequantised constant."""
    source = edit.producer(name)
    return source is not None and source.kind == DEQUANTIZE and is_at_most(edit.types[name].size, SMALL) \
        and all(operand in edit.constants for operand in source.inputs if operand)


def _numbers(edit: Editor, name: str) -> np.ndarray:
    """Returns the array of a constant or dequantised constant."""
    if name in edit.constants:
        return edit.constants[name]
    source = edit.producer(name)
    assert source is not None
    operands = [edit.constants[n] if n else None for n in source.inputs]
    return compute_stored(operator(DEQUANTIZE), source.attrs, operands, [edit.types[name].dtype])[0]
