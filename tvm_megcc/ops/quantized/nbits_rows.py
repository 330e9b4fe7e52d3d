# SPDX-License-Identifier: Apache-2.0
"""The rows of block-quantised weights at indices: the embedding of a language model's tokens. The same weights are
often in the product that gives the logits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import MegccError, ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register
from .nbits import check_weights, dequantize_weights, random_weights

#: The values of attribute `tied`: the products whose weights can be tied.
TIED = ("", "matmul_nbits", "matmul_nbits_int8")


@register
class NBitsRows(Operator):
    """Gathers rows of the weights of a matmul_nbits as float32. A negative index counts from the end; `compute`, and a
    run, refuse one out of range.

    Operands: indices int32 or int64 [...]; w, scale and offset as those of matmul_nbits. Result: float32 [..., depth].

    Attributes: `bits`: 4, 5, 6 or 8; `block`: the numbers of a row that share a scale; `depth`: the numbers of a row;
    `tied`: the kind of the product that has the same weights, "" for none. Tied weights are stored once, in the packing
    of the product's kernel.
    """

    kind = "nbits_rows"
    operands = ("indices", "w", "scale", "offset?")

    @staticmethod
    def infer(attrs: Attrs, indices: TensorType, w: TensorType, scale: TensorType,
              offset: TensorType | None = None) -> tuple[TensorType, ...]:
        if indices.dtype not in ("int32", "int64") or attrs.tied not in TIED:
            raise ShapeError(f"rows at {indices}, tied to '{attrs.tied}'")
        check_weights(attrs, w, scale, offset, None, attrs.depth)
        return (TensorType("float32", (*indices.shape, attrs.depth)),)

    @staticmethod
    def compute(attrs: Attrs, indices: np.ndarray, w: np.ndarray, scale: np.ndarray,
                offset: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        if indices.size and not -len(w) <= indices.min() <= indices.max() < len(w):
            raise MegccError(f"an index is out of the range of {len(w)} rows")
        rows = indices.reshape(-1)
        values = dequantize_weights(w[rows], scale[rows], None if offset is None else offset[rows], attrs.bits,
                                    attrs.block, attrs.depth)
        return (values.reshape(*indices.shape, attrs.depth),)


def _case(indices: npt.ArrayLike, rows: int, depth: int, bits: int, block: int, tied: str = "", offset: bool = False,
          float16_scales: bool = False, dtype: str = "int32") -> Case:
    """float16_scales: scales and offsets are representable in float16."""
    given = [np.array(indices, dtype), *random_weights(rows, depth, bits, block, depth)][:4 if offset else 3]
    if depth == 512:  # integers times float16 that 256 numbers share
        shared = np.array([[0.5], [1 / 3]], np.float16).astype(np.float32)
        given[2:] = [np.rint(reals.reshape(rows, 2, -1) * 99) * shared for reals in given[2:]]
        given[2:] = [reals.reshape(rows, -1).astype(np.float32) for reals in given[2:]]
    if float16_scales:
        given[2:] = [reals.astype(np.float16).astype(np.float32) for reals in given[2:]]
    return Case(tuple((array.shape, array.dtype.name) for array in given),
                {"bits": bits, "block": block, "depth": depth, "tied": tied}, (1, 2, 3), dict(enumerate(given)))


NBitsRows.cases = (
    _case([[3, 39, -40]], 40, 64, 4, 32), _case([0, 16], 17, 75, 4, 16, "", offset=True, dtype="int64"),
    _case([[5], [2]], 70, 96, 8, 32, float16_scales=True), _case([69, 0, -1], 70, 96, 8, 32, "matmul_nbits"),
    _case([4, 32], 33, 75, 4, 16, "matmul_nbits", offset=True),
    _case([2, 1], 3, 33, 8, 128, "matmul_nbits", offset=True), _case([4, 32], 33, 75, 6, 16, "matmul_nbits"),
    *(_case([[0, 39, 17, -3]], 40, depth, bits, block, "matmul_nbits_int8", offset, float16_scales)
      for bits in (4, 5, 6, 8) for depth, block in ((64, 32), (75, 32 if bits == 5 else 16), (130, 64))
      for offset in (False, True) for float16_scales in (False, True)),
    _case([1], 41, 64, 4, 32, "matmul_nbits_int8", offset=True),
    *(_case([[0, 39, 17, -3]], 40, 512, bits, block, "matmul_nbits_int8", offset)
      for bits, block in ((4, 32), (5, 32), (6, 16)) for offset in (False, True)))
