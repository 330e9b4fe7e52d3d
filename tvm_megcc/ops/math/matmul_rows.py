# SPDX-License-Identifier: Apache-2.0
"""Rows of the constant matrix of a product: the embedding of a language model's tokens, if the product that gives the
logits has the same weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import MegccError, ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register


@register
class MatMulRows(Operator):
    """Gathers weights of a matmul: the weights [K] of each of some columns of its result. A negative index counts from
    the end; `compute`, and a run, refuse one out of range.

    Operands: indices int32 or int64 [...]; b as in the matmul, float32 [K, N], or [N, K] with attribute `trans_b`.
    Result: float32 [..., K].

    Attributes: `trans_b`; `rows`: the rows of the matmul's result, 0 if unknown. With both, a kernel finds how the
    matmul's kernel packs b, so that b is stored once.
    """

    kind = "matmul_rows"
    operands = ("indices", "b")

    @staticmethod
    def infer(attrs: Attrs, indices: TensorType, b: TensorType) -> tuple[TensorType, ...]:
        if indices.dtype not in ("int32", "int64") or b.dtype != "float32" or b.rank != 2:
            raise ShapeError(f"weights {b} at {indices}")
        return (TensorType("float32", (*indices.shape, b.shape[1 if attrs.trans_b else 0])),)

    @staticmethod
    def compute(attrs: Attrs, indices: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        table = b if attrs.trans_b else b.T
        if indices.size and not -len(table) <= indices.min() <= indices.max() < len(table):
            raise MegccError(f"an index is out of the range of {len(table)} rows")
        return (table[indices],)


def _case(indices: npt.ArrayLike, columns: int, depth: int, trans_b: int, rows: int, dtype: str = "float32",
          index_dtype: str = "int32") -> Case:
    """dtype: a dtype that represents all weights."""
    weights = np.random.default_rng(5).standard_normal((columns, depth) if trans_b else (depth, columns))
    weights = weights.astype(np.dtype(dtype)).astype(np.float32)
    given = (np.array(indices, index_dtype), weights)
    return Case(tuple((array.shape, array.dtype.name) for array in given), {"trans_b": trans_b, "rows": rows}, (1,),
                dict(enumerate(given)))


MatMulRows.cases = (
    _case([[3, 39, -40]], 40, 5, 1, 0), _case([0, 16, -1], 17, 9, 0, 1, index_dtype="int64"),
    _case(2, 3, 4, 1, 7), _case([], 3, 4, 1, 0),
    *(_case([0, 63, 64, 127, 128, 129, -1], columns, 33, trans_b, rows, dtype) for dtype in ("float16", "bfloat16")
      for columns, trans_b, rows in ((150, 1, 1), (255, 1, 1), (150, 0, 0), (150, 1, 8))))
