# SPDX-License-Identifier: Apache-2.0
"""The copy that memory forwarding asks for where a view cannot be one."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Attrs
from ..ir.types import TensorType
from .base import Case, Operator, f32, register


@register
class Copy(Operator):
    """The same tensor in memory of its own."""

    kind = "copy"
    cases = (Case((f32(2, 5, 3, 4),)), Case((f32(),)), Case((((7,), "int64"),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.copy(),)
