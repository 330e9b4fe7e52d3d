# SPDX-License-Identifier: Apache-2.0
"""Lookup tables: any function of one 8-bit number, as its 256 results computed at compile time."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register

BYTES = ("int8", "uint8")
SIZE = 256


def numbers(dtype: str) -> np.ndarray:
    """Returns all values of int8 or uint8 in the order of a table: ascending."""
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1).astype(dtype)


@register
class Lookup(Operator):
    """table[x - least value of x's dtype], elementwise.

    Operands: x, int8 or uint8; table [256] of any dtype, which is the result's.
    """

    kind = "lookup"
    operands = ("x", "table")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, table: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in BYTES or table.shape != (SIZE,):
            raise ShapeError(f"{x} looked up in {table}; tables have {SIZE} elements, one for each int8 or uint8")
        return (TensorType(table.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, ...]:
        return (table[x.astype(np.intp) - np.iinfo(x.dtype).min],)


def _case(shape: tuple[int, ...], dtype: str, result: str) -> Case:
    drawn = np.random.default_rng(len(shape))
    values = numbers(dtype)[drawn.integers(0, SIZE, shape)]
    if values.size >= SIZE:
        values.reshape(-1)[:SIZE] = numbers(dtype)
    table = drawn.normal(size=SIZE) if result.startswith("float") else drawn.integers(
        np.iinfo(result).min, np.iinfo(result).max, SIZE, endpoint=True)
    return Case(((shape, dtype), ((SIZE,), result)), {}, (1,), {0: values, 1: table})


Lookup.cases = (
    _case((3, 1371), "int8", "int8"), _case((2, 18, 11, 13), "uint8", "int8"), _case((4500,), "int8", "uint8"),
    _case((1, 5, 3, 40), "uint8", "uint8"), _case((7,), "int8", "int8"), _case((3, 300), "uint8", "int16"),
    _case((2, 5, 4, 31), "int8", "float32"), _case((3, 77), "int8", "int32"))
