# SPDX-License-Identifier: Apache-2.0
"""Loops of TVM as a kernel. The operator holds their C code."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.control.tir import Program
from ..base import Kernel, Lowered, Operand
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class TirParameters(Parameters):
    """Parameters of `function.c.j2`. program: the loops as C, definitions before the kernel and the kernel's body."""

    program: Program


class TirLoops(Kernel):
    """Runs the loops as they were printed."""

    name = "tir"

    def lower(self, site: Site) -> Lowered:
        program: Program = site.attrs.program
        inputs, outputs = (tuple(Operand(name, index, type_.size) for index, (name, type_) in enumerate(values))
                           for values in (program.inputs, program.outputs))
        return Lowered("tir/function", TirParameters(program), extents=program.values(site.attrs, site.inputs),
                       inputs=inputs, outputs=outputs, tasks=program.tasks, operation=program.name,
                       algorithm=f"{self.name}_{program.digest}", shared=program.shared, scratch=program.scratch)

    def cost(self, site: Site) -> float:
        # 8 cycles for an element of a result, an assumption: the operator has no other candidate to compare with.
        return 8.0 * sum(t.size for t in site.outputs)
