# SPDX-License-Identifier: Apache-2.0
"""A node of a TFLite file, and the table of importers.

An operand's value may have its axes in another order than the file (`value.py` says why), so importers ask for the
order that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import tflite

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim
from ...ir.expr import Expr
from ...ir.types import TensorType
from ...ops.rules import axes_of, axis_of
from ..onnx.builder import Builder
from ..onnx.synthetic_node import SyntheticNode, onnx_importer
from .file import Operator, Tensor
from .value import Order, Value, common_order, plain, transposed

if TYPE_CHECKING:
    from .states import States

#: The results of an importer, one for each output. A str is a value of the builder with its axes as in the file.
Results = Sequence[Union[str, Value]]


class Unsupported(MegccError):
    """Raised for a valid operator that this front end does not support."""


class Node:
    """An operator of the file whose operands have been imported.

    kind: its name in the schema.
    operands: the values of its inputs, None for absent ones.
    tensors: the file's tensors for its inputs, None for absent ones.
    results: the file's tensors for its outputs.
    intermediates: the file's tensors for intermediate values.
    states: the variables that are kept from run to run.
    """

    def __init__(self, builder: Builder, operator: Operator, name: str, operands: Sequence[Value | None],
                 tensors: Sequence[Tensor | None], results: Sequence[Tensor], intermediates: Sequence[Tensor],
                 states: States):
        self.builder, self.operator, self.name = builder, operator, name
        self.kind, self.operands, self.tensors, self.results = operator.kind, operands, tensors, results
        self.intermediates, self.states = intermediates, states

    def option(self, name: str, default: Any = None) -> Any:
        """Returns an option of the operator, or `default`. Raises ShapeError if there is neither."""
        value = self.operator.options.get(name, default)
        if value is None:
            raise ShapeError(f"has no option {name}: its options are those of another operator, or missing")
        return value

    # --- operands ----------------------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        """Whether operand `index` is there."""
        return index < len(self.operands) and self.operands[index] is not None

    def value(self, index: int) -> Value:
        """Returns operand `index`; raises ShapeError without it."""
        value = self.operands[index] if index < len(self.operands) else None
        if value is None:
            raise ShapeError(f"has no operand {index}")
        return value

    @property
    def values(self) -> list[Value]:
        """Returns all operands."""
        return [self.value(index) for index in range(len(self.operands))]

    def type(self, index: int) -> TensorType:
        """Returns the type of an operand, its axes as in the file."""
        return self.value(index).type

    def plain(self, index: int) -> str:
        """Returns an operand with its axes as in the file."""
        return self.in_order(self.value(index))

    def in_order(self, value: Value, order: Order | None = None) -> str:
        """Returns the builder's value in this order of axes, by default the file's."""
        return value.in_order(plain(len(value.order)) if order is None else order, self.name)

    def optional(self, index: int) -> str:
        """Returns an operand with its axes as in the file; "" without it."""
        return self.plain(index) if self.has(index) else ""

    def const(self, index: int, what: str) -> np.ndarray:
        """Returns a constant operand. Raises MegccError if the operand is computed at run time."""
        array = self.onnx_node("", (self.plain(index),)).const(0, what)
        assert array is not None
        return array

    def dims(self, index: int, what: str) -> tuple[Dim, ...]:
        """Returns integers that are constant or follow from the shapes of the inputs."""
        dims = self.onnx_node("", (self.plain(index),)).dims(0, what)
        assert dims is not None
        return dims

    def number(self, index: int, what: str) -> int:
        """Returns the only number of a constant operand. what: its name in messages."""
        numbers = self.dims(index, what)
        if len(numbers) != 1 or not isinstance(numbers[0], int):
            raise ShapeError(f"its operand {what} is to be one number, and is {numbers}")
        return numbers[0]

    def axes(self, index: int, rank: int) -> tuple[int, ...]:
        """Returns a constant operand with axes, made non-negative and sorted."""
        axes = [axis_of(int(axis), rank) for axis in self.const(index, "axis").reshape(-1)]
        return axes_of(list(dict.fromkeys(axes)), rank)  # TFLite allows an axis to be named twice

    # --- operators ---------------------------------------------------------------------------------------------------

    def onnx_node(self, op_type: str = "", inputs: Sequence[str] = (), attrs=None, outputs: int = 1) -> SyntheticNode:
        """Returns an ONNX node in place of this operator, for importers of ONNX operators and for `emit`. inputs:
        values of the builder."""
        return SyntheticNode(self.builder, op_type, self.name, inputs, attrs or {}, outputs)

    def onnx(self, op_type: str, *inputs: str, outputs: int = 1, **attrs) -> tuple[str, ...]:
        """Imports the node as an ONNX operator."""
        return onnx_importer(op_type)(self.onnx_node(op_type, inputs, attrs, outputs))

    def emit(self, kind: str, *inputs: str, **attrs) -> str:
        """Adds one of our operators and returns its first result."""
        return self.onnx_node().emit(kind, inputs, **attrs)[0]

    def compute(self, expr: Expr, *inputs: str) -> str:
        """Adds an elementwise operator."""
        return self.emit("elementwise", *inputs, expr=expr)

    def constant(self, value, dtype: str) -> str:
        """Adds a constant to the graph and returns its name. value: a number or array."""
        return self.onnx_node().constant(np.array(value, np.dtype(dtype)))

    def require_budget(self, *extents: Dim) -> None:
        """Raises MegccError if a tensor of these extents is more than the importer may compute or store."""
        self.onnx_node().require_budget(*extents)

    def type_of(self, name: str) -> TensorType:
        """Returns the type of a value of the builder."""
        return self.builder.types[name]

    def as_value(self, name: str, order: Order | None = None) -> Value:
        """Returns the value `name` of our graph with the order of its axes, by default TFLite's."""
        return Value(self.builder, name, order)

    def checked_in_order(self, value: Value, order: Order) -> str:
        """Returns an operand with its axes in this order; its rank must be that of the order."""
        if len(value.order) != len(order):
            raise ShapeError(f"requires a tensor of {len(order)} axes, not {value.type}")
        return self.in_order(value, order)

    def in_common_order(self, values: Sequence[Value], make: Callable[[list[str], Order], str]) -> Value:
        """Imports an operator that treats all axes equally, such as an elementwise one. make: gets the operands in one
        order of axes, those of lower rank with axes of extent 1 prepended, and returns a value in that order."""
        rank = max(len(value.order) for value in values)
        order = common_order(values, rank)
        return self.as_value(make([self._expanded_to_order(value, order) for value in values], order), order)

    def _expanded_to_order(self, value: Value, order: Order) -> str:
        """Returns a value in this order, with axes of extent 1 prepended. A scalar stays one, since it is broadcast."""
        rank = len(value.order)
        if rank == len(order):
            return self.in_order(value, order)
        name = self.in_order(value)
        if rank == 0 or order == plain(len(order)):
            return name
        expanded = self.emit("reshape", name, shape=(1,) * (len(order) - rank) + self.type_of(name).shape)
        return transposed(self.builder, expanded, order, self.name)

    def reshaped(self, value: Value, shape: Sequence[Dim]) -> Value:
        """Reshapes a value. If only axes of extent 1 are added or removed, it keeps its order of axes."""
        shape, before = tuple(shape), value.type.shape
        if shape == before:
            return value
        old_axes = [axis for axis, extent in enumerate(before) if extent != 1]
        new_axes = [axis for axis, extent in enumerate(shape) if extent != 1]
        same_extents = [before[axis] for axis in old_axes] == [shape[axis] for axis in new_axes]
        if value.order == plain(len(before)) or not same_extents:
            return self.as_value(self.emit("reshape", self.in_order(value), shape=shape))
        # Axes of extent 1 can be anywhere in the order: they are put where they are in the file.
        order = [new_axes[old_axes.index(axis)] for axis in value.order if axis in old_axes]
        for axis in range(len(shape)):
            if axis not in new_axes:
                order.insert(axis, axis)
        return self.as_value(self.emit("reshape", value.name, shape=tuple(shape[axis] for axis in order)), tuple(order))

    def without_axes(self, value: Value, axes: Sequence[int]) -> Value:
        """Returns the value without these axes, whose extent is 1."""
        return self.reshaped(value, [extent for axis, extent in enumerate(value.type.shape) if axis not in axes])

    def with_activation(self, result: str | Value) -> Value:
        """Returns the result after the operator's fused activation."""
        value = self.as_value(result) if isinstance(result, str) else result
        function = self.option("FusedActivationFunction", 0)
        if function == tflite.ActivationFunctionType.NONE:
            return value
        if function not in ACTIVATIONS:
            raise Unsupported(f"its fused activation {function} is not supported")
        kind, attrs = ACTIVATIONS[function]
        return self.as_value(self.emit(kind, value.name, **attrs), value.order)


#: Fused activations as our operators. TANH and SIGN_BIT are missing because LiteRT's kernels ignore them.
ACTIVATIONS: dict[int, tuple[str, dict[str, float]]] = {
    tflite.ActivationFunctionType.RELU: ("relu", {}),
    tflite.ActivationFunctionType.RELU_N1_TO_1: ("clip", {"lo": -1.0, "hi": 1.0}),
    tflite.ActivationFunctionType.RELU6: ("clip", {"lo": 0.0, "hi": 6.0}),
}

Importer = Callable[[Node], Results]

#: Importers by the operators' names in the format.
IMPORTERS: dict[str, Importer] = {}


def registers_in(*tables: dict[str, Importer]) -> Callable[..., Callable[[Importer], Importer]]:
    """Returns a decorator that registers importers in these tables, used as `@imports("ADD", fused=True)`. fused: the
    operators have the option of a fused activation, which is then applied to the first result."""
    def imports(*kinds: str, fused: bool = False) -> Callable[[Importer], Importer]:
        def add(function: Importer) -> Importer:
            def with_activation(node: Node) -> Results:
                first, *rest = function(node)
                return [node.with_activation(first), *rest]

            for table in tables:
                table.update(dict.fromkeys(kinds, with_activation if fused else function))
            return function
        return add
    return imports


imports = registers_in(IMPORTERS)
