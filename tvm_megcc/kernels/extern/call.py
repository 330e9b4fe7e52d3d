# SPDX-License-Identifier: Apache-2.0
"""Calls of a function of the user."""

from __future__ import annotations

from dataclasses import dataclass

from ...foreign import digest
from ...ir.dims import Symbol, product
from ...ir.expr import c_float
from ...ops.control.extern import Function
from ..base import Kernel, Lowered, Operand
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class ExternParameters(Parameters):
    """Parameters of `call.c.j2`.

    function: the declaration of the C function.
    dims: (name, names of its extents) of each operand and result.
    attributes: C literals of the attributes, in the order of the declaration.
    """

    function: Function
    dims: tuple[tuple[str, tuple[str, ...]], ...]
    attributes: tuple[str, ...]

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        return self.function.files


class ExternCall(Kernel):
    """Calls the user's function."""

    name = "extern"

    def lower(self, site: Site) -> Lowered:
        function: Function = site.attrs.function
        names = [[name for name, _ in operands] for operands in (function.inputs, function.outputs)]
        shapes = [[tuple(Symbol(f"{name}_{axis}") for axis in range(type_.rank))
                   for name, type_ in zip(operand_names, types, strict=True)]
                  for operand_names, types in zip(names, (site.inputs, site.outputs), strict=True)]
        extents = {f"{name}_{axis}": dim
                   for operand_names, types in zip(names, (site.inputs, site.outputs), strict=True)
                   for name, type_ in zip(operand_names, types, strict=True) for axis, dim in enumerate(type_.shape)}
        operands = [tuple(Operand(name, index, product(shape))
                          for index, (name, shape) in enumerate(zip(operand_names, operand_shape, strict=True)))
                    for operand_names, operand_shape in zip(names, shapes, strict=True)]
        attributes = tuple(c_number(site.attrs.arguments[name]) for name, _ in function.attributes)
        dims = tuple((name, tuple(map(str, shape))) for operand_names, operand_shape in zip(names, shapes, strict=True)
                     for name, shape in zip(operand_names, operand_shape, strict=True))
        tasks, scratch = (function.call(rule, site.attrs.arguments, *shapes[0]) if getattr(function, rule) else none
                          for rule, none in (("tasks", 1), ("workspace", 0)))
        how = f"{self.name}_{digest(repr(attributes))}" if attributes else self.name
        return Lowered("extern/call", ExternParameters(function, dims, attributes), extents, *operands, tasks,
                       function.symbol, how, scratch=scratch)


def c_number(value: float | int) -> str:
    """Returns a C literal."""
    return c_float(value) if isinstance(value, float) else str(value)
