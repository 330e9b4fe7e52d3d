# SPDX-License-Identifier: Apache-2.0
"""Operators that move, select and reshape elements, and operators whose extents depend on data."""

from . import (
    append,
    copy,
    data_dependent,
    gather,
    move,
    preprocess,
    reverse,
    runtime_axes,
    runtime_operands,
    scatter,
    shape,
    sort,
    unique,
)
