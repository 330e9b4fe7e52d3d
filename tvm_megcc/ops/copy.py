# SPDX-License-Identifier: Apache-2.0
"""The copy that memory forwarding asks for where a view cannot be one."""

from __future__ import annotations

import numpy as np

from ..ir.dims import Dim
from ..ir.graph import Attrs, Op
from ..ir.types import TensorType
from .base import Case, Operator, Site, f32, possible_layouts, register
from .memory import memory_axes
from .move_kernels import Strided, Walk, strides


class StridedCopy(Strided):
    """One run of elements, in whichever layout."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            yield (layout,), (layout,)

    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        steps = strides(memory_axes(x))
        return [Walk(extent, steps[axis, part]) for axis, part, extent in memory_axes(y)], 0


@register
class Copy(Operator):
    """The same tensor in memory of its own."""

    kind = "copy"
    kernels = (StridedCopy(),)
    cases = (Case((f32(2, 5, 3, 4),)), Case((f32(),)), Case((((7,), "int64"),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.copy(),)
