# SPDX-License-Identifier: Apache-2.0
"""Lookup tables: any function of one 8-bit number, as 256 results that are computed at compile time.
passes/quantization/lookup_tables.py emits them for chains of elementwise operators."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register

INT8_TYPES = ("int8", "uint8")
TABLE_LENGTH = 256


def all_values(dtype: str) -> np.ndarray:
    """Returns all values of int8 or uint8 in the order of a table: ascending."""
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1).astype(dtype)


@register
class Lookup(Operator):
    """y[i] = table[x[i] - lowest value of x's dtype].

    Operands: x int8 or uint8 of any shape; table [256] of any dtype. Result: x's shape and the table's dtype.
    """

    kind = "lookup"
    operands = ("x", "table")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, table: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in INT8_TYPES or table.shape != (TABLE_LENGTH,):
            raise ShapeError(f"{x} looked up in {table}; tables have {TABLE_LENGTH} elements, one for each int8 or "
                             "uint8")
        return (TensorType(table.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, ...]:
        return (table[x.astype(np.intp) - np.iinfo(x.dtype).min],)


def _case(shape: tuple[int, ...], dtype: str, result: str) -> Case:
    random = np.random.default_rng(len(shape))
    values = all_values(dtype)[random.integers(0, TABLE_LENGTH, shape)]
    if values.size >= TABLE_LENGTH:
        values.reshape(-1)[:TABLE_LENGTH] = all_values(dtype)
    table = random.normal(size=TABLE_LENGTH) if result.startswith("float") else random.integers(
        np.iinfo(result).min, np.iinfo(result).max, TABLE_LENGTH, endpoint=True)
    return Case(((shape, dtype), ((TABLE_LENGTH,), result)), {}, (1,), {0: values, 1: table})


Lookup.cases = (
    _case((3, 1371), "int8", "int8"), _case((2, 18, 11, 13), "uint8", "int8"), _case((4500,), "int8", "uint8"),
    _case((1, 5, 3, 40), "uint8", "uint8"), _case((7,), "int8", "int8"), _case((3, 300), "uint8", "int16"),
    _case((2, 5, 4, 31), "int8", "float32"), _case((3, 77), "int8", "int32"))
