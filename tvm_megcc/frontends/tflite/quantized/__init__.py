# SPDX-License-Identifier: Apache-2.0
"""Quantised operators of TFLite: importing this package registers their importers."""

from . import (
    data_movement,
    elementwise,
    fixed_point,
    fixed_tables,
    hybrid,
    importers,
    int16,
    int16_functions,
    matmul,
    products,
    recurrent,
    reductions,
    resize,
    windows,
)

__all__ = ["data_movement", "elementwise", "fixed_point", "fixed_tables", "hybrid", "importers", "int16",
           "int16_functions", "matmul", "products", "recurrent", "reductions", "resize", "windows"]
