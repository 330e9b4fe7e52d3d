# SPDX-License-Identifier: Apache-2.0
"""Stores an embedding once that equals the weights of a product, as in many language models."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.dims import product
from ...ir.graph import Attrs, Graph, Op
from ...ir.narrow import SIXTEEN_BITS, widened
from ..edit import Editor


def tie_embeddings(graph: Graph, context: Context) -> Graph:
    """Replaces a gather of rows of a constant by `matmul_rows`, if a product has the same weights, so that both read
    what the product's kernel packs. A cast of the rows from 16 bits to float32 becomes part of it.

    With `--half`, products read float16, and nothing changes.
    """
    if context.half and context.target.float16_target is not None:
        return graph
    edit = Editor(graph)
    products = [op for op in graph.ops if op.kind == "matmul" and _is_packed(graph, op)]
    for op in graph.ops:
        if op.kind == "gather" and op.attrs.axis == 0 and op.inputs[0] in graph.constants:
            result = _float32_result(graph, op)
            same = next((matmul for matmul in products if _has_weights(graph, matmul, op.inputs[0])), None)
            if result is not None and same is not None:
                rows = product(graph.types[same.outputs[0]].shape[:-1])
                attrs = Attrs(trans_b=int(same.attrs.trans_b), rows=rows if isinstance(rows, int) else 0)
                edit.replace(result, Op("matmul_rows", attrs, (op.inputs[1], same.inputs[1]), result.outputs,
                                        origin=op.origin))
    return edit.finish()


def _is_packed(graph: Graph, matmul: Op) -> bool:
    """Returns whether a product has one constant float32 matrix on the right, for the kernel `PackedMatMul`."""
    b = graph.types[matmul.inputs[1]]
    return matmul.inputs[1] in graph.constants and b.dtype == "float32" and b.rank == 2 and not matmul.attrs.trans_a


def _float32_result(graph: Graph, gather: Op) -> Op | None:
    """Returns the operator whose result is the gathered rows in float32: the gather, or the only operator after it, if
    that is a cast; else None."""
    (rows,) = gather.outputs
    if graph.types[rows].dtype == "float32":
        return gather
    readers = [op for op in graph.ops if rows in op.inputs]
    if graph.types[rows].dtype in SIXTEEN_BITS and rows not in graph.outputs and len(readers) == 1 \
            and readers[0].kind == "cast" and graph.types[readers[0].outputs[0]].dtype == "float32":
        return readers[0]
    return None


def _has_weights(graph: Graph, matmul: Op, table: str) -> bool:
    """Returns whether the rows of a constant are the weights of the columns of a product."""
    rows, b = graph.constants[table], graph.constants[matmul.inputs[1]]
    columns = b if matmul.attrs.trans_b else b.T
    # A first row that differs saves the comparison of all.
    return rows.shape == columns.shape and all(np.array_equal(widened(rows[part]), columns[part])
                                               for part in (slice(1), slice(None)))
