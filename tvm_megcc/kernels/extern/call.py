# SPDX-License-Identifier: Apache-2.0
"""The kernel `extern`: calls a C function of the user, which a declaration describes (ops/control/extern.py)."""

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
    dims: (name, names of its extents) of each operand, then of each result.
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
        # name -> type of each operand and result, in order
        types = {name: type_ for (name, _), type_ in zip((*function.inputs, *function.outputs),
                                                         (*site.inputs, *site.outputs), strict=True)}
        shapes = {name: tuple(Symbol(f"{name}_{axis}") for axis in range(type_.rank)) for name, type_ in types.items()}
        extents = {str(symbol): dim for name, type_ in types.items()
                   for symbol, dim in zip(shapes[name], type_.shape, strict=True)}
        inputs, outputs = (
            tuple(Operand(name, index, product(shapes[name])) for index, (name, _) in enumerate(declared))
            for declared in (function.inputs, function.outputs))
        dims = tuple((name, tuple(map(str, shape))) for name, shape in shapes.items())
        attributes = tuple(c_number(site.attrs.arguments[name]) for name, _ in function.attributes)
        # The declaration's rules for the number of tasks, and for the bytes of scratch; defaults 1 and 0.
        tasks, scratch = (
            function.call(rule, site.attrs.arguments, *(shapes[name] for name, _ in function.inputs))
            if getattr(function, rule) else default for rule, default in (("tasks", 1), ("workspace", 0)))
        algorithm = f"{self.name}_{digest(repr(attributes))}" if attributes else self.name
        return Lowered("extern/call", ExternParameters(function, dims, attributes), extents, inputs, outputs, tasks,
                       function.symbol, algorithm, scratch=scratch)


def c_number(value: float | int) -> str:
    """Returns the C literal of a number."""
    return c_float(value) if isinstance(value, float) else str(value)
