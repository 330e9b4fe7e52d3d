# SPDX-License-Identifier: Apache-2.0
"""A call of a TVM operator, and the tables of importers that the Relax and the Relay front end share.

Neither this module nor `ops.py` nor `relay/ops.py` imports TVM: attributes are read by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, symbols
from ...ir.narrow import SIXTEEN_BITS
from ...ir.types import ORDINARY, TensorType
from ...ops.base import OPERATORS, Operator
from ...ops.elementwise import cast_to
from ..onnx.builder import Builder
from ..onnx.synthetic_node import SyntheticNode, onnx_importer

Values = tuple[str, ...]

#: The prefix of the names of symbols that are not known to follow from the shapes of the graph's inputs.
UNKNOWN = "?"


class TvmNode:
    """A call of an operator of Relax or Relay, whose operands have been imported.

    builder: the graph that is made.
    op: the operator's name, without Relax's prefix.
    name: the name of the call in the graph, from which the names of its values are made.
    inputs: the graph's values of the tensor operands, with tuples flattened.
    args, attrs: TVM's arguments and attributes of the call.
    types: the types of its results.
    """

    def __init__(self, builder: Builder, call, name: str, inputs: Sequence[str], types: Sequence[TensorType]):
        self.builder, self.op, self.name = builder, call.op.name.removeprefix("relax."), name
        self.inputs, self.types = tuple(inputs), tuple(types)
        self.args, self.attrs = call.args, call.attrs

    def onnx(self, op_type: str, *inputs: str, outputs: int = 1, **attrs) -> Values:
        """Imports the call as an ONNX operator and returns its results.

        Args:
            op_type: the ONNX operator, of its newest version.
            inputs: values of the graph; by default those of the call.
            outputs: the number of results.
            attrs: ONNX's attributes.
        """
        return onnx_importer(op_type)(self.onnx_node(op_type, inputs or self.inputs, attrs, outputs))

    def onnx_node(self, op_type: str = "", inputs: Sequence[str] = (), attrs=None, outputs: int = 1) -> SyntheticNode:
        """Returns an ONNX node in place of this operator, for importers of ONNX operators and for `emit`. inputs:
        values of the builder."""
        return SyntheticNode(self.builder, op_type, self.name, inputs, attrs or {}, outputs)

    def emit(self, kind: str, *inputs: str, **attrs) -> str:
        """Adds one of our operators and returns its only result."""
        return self.onnx_node().emit(kind, inputs, **attrs)[0]

    def constant(self, value, dtype: str) -> str:
        """Adds a constant to the graph and returns its name. value: a number or array."""
        return self.onnx_node().constant(np.array(value, np.dtype(dtype)))

    def extents(self, dims: Sequence[Dim]) -> str:
        """Returns a shape as a value of int64[rank]."""
        return self.builder.shape_constant(dims, f"{self.name}.shape")

    def type_of(self, value: str) -> TensorType:
        return self.builder.types[value]

    def is_constant(self, value: str) -> bool:
        return value in self.builder.constants

    def widened_inputs(self) -> Values:
        """Returns the operands; 16-bit floats are cast to float32 if the operator's result is float32 (`out_dtype`)."""
        if self.types[0].dtype != "float32":
            return self.inputs
        return tuple(value if self.type_of(value).dtype not in SIXTEEN_BITS
                     else cast_to(self.onnx_node(), value, "float32")[0] for value in self.inputs)

    def reshaped(self, value: str, shape: Sequence[Dim]) -> str:
        """Returns the value with another shape, in which one extent may be -1."""
        return value if self.type_of(value).shape == tuple(shape) else self.emit("reshape", value, shape=tuple(shape))

    def transposed(self, value: str, layout: str, wanted: str) -> str:
        """Transposes a value from a layout to another; both are given as letters, such as NHWC.

        Raises:
            MegccError: for packed layouts such as NCHW4c.
        """
        if sorted(layout) != sorted(wanted):
            raise MegccError(f"layout {layout} is not supported")
        if layout == wanted:
            return value
        return self.onnx("Transpose", value, perm=[layout.index(axis) for axis in wanted])[0]


Importer = Callable[[TvmNode], Values]


def registers_in(table: dict[str, Importer], prefix: str = "") -> Callable[..., Callable[[Importer], Importer]]:
    """Returns a decorator `imports(*names)` that puts a function into a table as the importer of these operators.

    Args:
        table: operator -> importer.
        prefix: what stands before each of the names in the table's keys.
    """
    def imports(*names: str) -> Callable[[Importer], Importer]:
        def add(function: Importer) -> Importer:
            table.update((prefix + name, function) for name in names)
            return function
        return add
    return imports


def importer_of(name: str, table: Mapping[str, Importer], declared: str) -> Importer | None:
    """Returns the importer of an operator; None if there is none.

    table: importers of operators with attributes. declared: the field of declarations with the names of operators
    without attributes.
    """
    if name in table:
        return table[name]
    for declaration in OPERATORS.values():
        if name in getattr(declaration, declared):
            return lambda node: _without_attributes(node, declaration)
    return None


def _without_attributes(node: TvmNode, declaration: type[Operator]) -> Values:
    if node.attrs is not None:
        raise MegccError(f"nothing reads its attributes ({node.attrs})")
    return declaration.from_onnx(node.onnx_node(declaration.kind, node.inputs))


def ints(values) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def dtype_name(dtype, known: Sequence[str] = ORDINARY) -> str:
    """Returns the name of a dtype. Raises MegccError for one that is not supported."""
    name = str(dtype)
    if name not in known:
        raise MegccError(f"element type {name} is not supported")
    return name


def is_known(dims: Iterable[Dim]) -> bool:
    """Whether extents are numbers or follow from the shapes of the graph's inputs."""
    return not any(name.startswith(UNKNOWN) for dim in dims for name in symbols(dim))


def require_known(dims: Iterable[Dim]) -> None:
    """Raises MegccError for an extent that does not follow from the shapes of the graph's inputs."""
    for dim in dims:
        unknown = sorted(name.removeprefix(UNKNOWN) for name in symbols(dim) if name.startswith(UNKNOWN))
        if unknown:
            extent = repr(dim).replace(UNKNOWN, "")
            raise MegccError(f"extent {extent} is symbolic, and {', '.join(unknown)} is not the extent of an operand")


def check_types(node: TvmNode, values: Values, same: Callable[[Dim, Dim], bool]) -> None:
    """Raises ShapeError if our inferred types differ from TVM's.

    same: returns whether two extents are equal, in whatever form TVM writes them.
    """
    for value, expected in zip(values, node.types, strict=True):
        actual = node.type_of(value)
        if (actual.dtype, actual.rank) != (expected.dtype, expected.rank) \
                or not all(map(same, actual.shape, expected.shape)):
            raise ShapeError(f"gives {actual} by our rules, {expected} by TVM's")
