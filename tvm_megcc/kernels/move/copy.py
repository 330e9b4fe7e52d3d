# SPDX-License-Identifier: Apache-2.0
"""The kernel of copies, for values that cannot be views."""

from __future__ import annotations

from ...ir.dims import Dim
from ...ir.graph import Op
from ...ir.types import TensorType
from ...ops.memory import memory_axes
from ..base import possible_layouts
from ..site import Site
from .strided import Strided, StridedAxis, strides


class StridedCopy(Strided):
    """Copies all elements as one run, in any layout."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            yield (layout,), (layout,)

    def strided_axes(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[StridedAxis], Dim]:
        x_strides = strides(memory_axes(x))
        return [StridedAxis(extent, x_strides[axis, part]) for axis, part, extent in memory_axes(y)], 0
