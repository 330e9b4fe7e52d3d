# SPDX-License-Identifier: Apache-2.0
"""Custom operators of the user: a C function with a shape rule in Python, which tvm_megcc/extern.py declares.

All are of one kind and have the function as an attribute, so that a user's declaration adds nothing to the global
registry of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import DTYPES, TensorType
from ..base import Case, Operator, f32, register

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Function:
    """A declaration of `tvm_megcc.extern.Operator`, with its files read.

    label: domain and name, for messages.
    symbol: the name of the C function.
    inputs, outputs: (name, dtype) of each.
    attributes: (name, default) of each; a type instead of the default if the model must give the attribute.
    files: (name, text) of the C files to compile.
    shapes, tasks, workspace, compute: the user's Python functions, as in `tvm_megcc.extern.Operator`; None if absent.
    """

    label: str
    symbol: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    attributes: tuple[tuple[str, object], ...]
    files: tuple[tuple[str, str], ...] = field(repr=False)
    shapes: Callable = field(compare=False, repr=False)
    tasks: Callable | None = field(default=None, compare=False, repr=False)
    workspace: Callable | None = field(default=None, compare=False, repr=False)
    compute: Callable | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return self.label

    def call(self, what: str, attrs: Attrs, *operands):
        """Calls one of the user's Python functions.

        Raises:
            ShapeError: for any exception that it raises.
        """
        try:
            return getattr(self, what)(attrs, *operands)
        except MegccError:
            raise
        except Exception as error:
            raise ShapeError(f"the rule '{what}' of the extern {self.label} raised {type(error).__name__}: "
                             f"{error}") from error

    def result_shapes(self, attrs: Attrs, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Returns the shapes of the results for operands of these shapes.

        Raises:
            ShapeError: if the user's rule raises an exception, or does not return a shape for each result.
        """
        results = self.call("shapes", attrs, *shapes)
        is_valid = isinstance(results, (tuple, list)) and len(results) == len(self.outputs) \
            and all(isinstance(shape, (tuple, list)) for shape in results)
        if not is_valid:
            raise ShapeError(f"the rule 'shapes' of the extern {self.label} gives {len(self.outputs)} shapes, each a "
                             f"tuple, not {results!r}")
        if any(isinstance(dim, int) and dim < 0 for shape in results for dim in shape):
            raise ShapeError(f"the extern {self.label} has results of shapes {results}")
        return tuple(map(tuple, results))

    @property
    def prototype(self) -> str:
        """Returns the prototype of the C function."""
        parameters = [f"{const}{DTYPES[dtype].c_type} *{name}, const int32_t *{name}_dims"
                      for operands, const in ((self.inputs, "const "), (self.outputs, ""))
                      for name, dtype in operands]
        parameters += [f"{'float' if is_float(default) else 'int32_t'} {name}" for name, default in self.attributes]
        parameters += ["int32_t begin, int32_t end"] * (self.tasks is not None)
        parameters += ["void *workspace"] * (self.workspace is not None)
        return f"int {self.symbol}({', '.join(parameters)})"


def is_float(default: object) -> bool:
    """Returns whether an attribute with this default, or of this type, is a float."""
    return default is float or isinstance(default, float)


#: The test case: y[i] = the sum over j of scale * x[i][j].
_ROW_SUMS = Function(
    "example::RowSums", "example_row_sums", (("x", "float32"),), (("y", "float32"),), (("scale", 1.0),),
    (("example_row_sums.c", """\
#include <stdint.h>
int example_row_sums(const float *x, const int32_t *x_dims, float *y, const int32_t *y_dims, float scale,
                     int32_t begin, int32_t end);
int example_row_sums(const float *x, const int32_t *x_dims, float *y, const int32_t *y_dims, float scale,
                     int32_t begin, int32_t end)
{
    (void)y_dims;
    for (int32_t i = begin; i < end; i++) {
        y[i] = 0.0f;
        for (int32_t j = 0; j < x_dims[1]; j++)
            y[i] += scale * x[i * x_dims[1] + j];
    }
    return 0;
}
"""),), shapes=lambda attrs, x: [(x[0],)], tasks=lambda attrs, x: x[0],
    compute=lambda attrs, x: [(np.float32(attrs.scale) * x).sum(1, dtype=np.float32)])


@register
class Extern(Operator):
    """A call of a custom operator, with the operands and results that the function declares.

    Attributes: `function`: a `Function`; `arguments`: `Attrs` with the values of the function's attributes.
    """

    kind = "extern"
    operands = ("x*",)
    cases = (Case((f32(3, 5),), {"function": _ROW_SUMS, "arguments": Attrs(scale=0.5)}),)

    @staticmethod
    def infer(attrs: Attrs, *inputs: TensorType) -> tuple[TensorType, ...]:
        function: Function = attrs.function
        shapes = function.result_shapes(attrs.arguments, [type_.shape for type_ in inputs])
        return tuple(TensorType(dtype, shape) for (_, dtype), shape in zip(function.outputs, shapes, strict=True))

    @staticmethod
    def evaluates(attrs: Attrs) -> bool:
        return attrs.function.compute is not None

    @staticmethod
    def compute(attrs: Attrs, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        function: Function = attrs.function
        if function.compute is None:
            raise MegccError(f"the extern {function.label} is known as C only; declare 'compute', its meaning in numpy")
        results = function.call("compute", attrs.arguments, *inputs)
        return tuple(np.asarray(result, dtype)
                     for result, (_, dtype) in zip(results, function.outputs, strict=True))
