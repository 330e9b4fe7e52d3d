# SPDX-License-Identifier: Apache-2.0
"""Operators that are given as C code: frontends/tir prints TVM's loops (TIR) of operators that this package does not
declare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim, Symbol, differ, substitute
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, f32, register


@dataclass(frozen=True)
class Program:
    """The C code of an operator, as loops over its operands.

    name: a C identifier that tells what it computes.
    digest: distinguishes programs of the same name.
    inputs, outputs: name in the C code, and type, of each operand and result; shapes are expressions over the extents.
    extents: (name, operand, axis) of each extent that is an axis of an input.
    given: names of the extents that the operator's attributes give.
    helpers: C definitions before the kernel.
    body: the body of the kernel, which computes tasks [begin, end).
    tasks, shared, scratch, macs: as in `Lowered` and `Operator.macs`, over the extents.
    evaluate: computes the results on arrays; None if that is not known. It is ignored when programs are compared.
    """

    name: str
    digest: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    body: str
    helpers: tuple[str, ...] = ()
    extents: tuple[tuple[str, int, int], ...] = ()
    given: tuple[str, ...] = ()
    tasks: Dim = 1
    shared: Dim = 0
    scratch: Dim = 0
    macs: Dim = 0
    evaluate: Callable[..., tuple[np.ndarray, ...]] | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"{self.name}_{self.digest}"

    def values(self, attrs: Attrs, inputs: Types) -> dict[str, Dim]:
        """Returns the values of the extents, by name, for a call with these attributes and types of operands."""
        values = {name: inputs[operand].shape[axis] for name, operand, axis in self.extents}
        return {**values, **dict(zip(self.given, attrs.get("given", ()), strict=True))}


#: The test case: y[i] = x[N - 1] + … + x[N - 1 - i].
_REVERSED_SUM = Program(
    name="reversed_sum", digest="example", inputs=(("x", TensorType("float32", (Symbol("N"),))),),
    outputs=(("y", TensorType("float32", (Symbol("N"),))),),
    body="float total = 0.0f;\nfor (int32_t i = begin == 0 ? 0 : N; i < N; i++) {\n"
    "total = add(total, x[N - 1 - i]);\ny[i] = total;\n}\nreturn 0;",
    helpers=("static MGC_INLINE float add(float a, float b)\n{\nreturn a + b;\n}",), extents=(("N", 0, 0),),
    evaluate=lambda x: (np.cumsum(x[::-1], dtype=x.dtype),))


@register
class Tir(Operator):
    """A call of a TIR function that TVM made of an operator, with the operands and results that the program declares.

    Attributes: `program`: a `Program`; `given`: the values of the extents that no operand has.
    """

    kind = "tir"
    operands = ("x*",)
    on_bits = True
    cases = (Case((f32(17),), {"program": _REVERSED_SUM}),)

    @staticmethod
    def infer(attrs: Attrs, *inputs: TensorType) -> tuple[TensorType, ...]:
        program: Program = attrs.program
        values = program.values(attrs, inputs)
        for (name, type_), operand in zip(program.inputs, inputs, strict=True):
            shape = tuple(substitute(dim, values) for dim in type_.shape)
            why = f"{program.name}: {name} is {operand}; expected {type_.with_shape(shape)}"
            if type_.dtype != operand.dtype or len(shape) != operand.rank or any(map(differ, shape, operand.shape)):
                raise ShapeError(why)
            require_shape(operand.shape, shape, why)
        return tuple(type_.with_shape(substitute(dim, values) for dim in type_.shape)
                     for _, type_ in program.outputs)

    @staticmethod
    def evaluates(attrs: Attrs) -> bool:
        return attrs.program.evaluate is not None

    @staticmethod
    def compute(attrs: Attrs, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        if attrs.program.evaluate is None:
            raise MegccError(f"{attrs.program.name} is known as C code only")
        return attrs.program.evaluate(*inputs)

    @staticmethod
    def macs(attrs: Attrs, inputs, outputs) -> Dim:
        return substitute(attrs.program.macs, attrs.program.values(attrs, inputs))
