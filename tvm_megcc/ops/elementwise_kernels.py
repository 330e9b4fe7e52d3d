# SPDX-License-Identifier: Apache-2.0
"""The kernels of elementwise operators."""

from __future__ import annotations

from .base import Kernel


class VectorKernel(Kernel):
    name = "vector"

    def refuse(self, op, inputs, outputs, target):
        return "not written"


class ScalarKernel(Kernel):
    name = "scalar"

    def refuse(self, op, inputs, outputs, target):
        return "not written"


VECTOR = VectorKernel()
SCALAR = ScalarKernel()
