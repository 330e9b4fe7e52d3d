# SPDX-License-Identifier: Apache-2.0
"""Imports the variables that a file keeps from run to run: tensors that operators update, and resource variables that
it reads and assigns. In our graph each becomes a state: an input, and the output that replaces it after the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...errors import ShapeError, quoted
from ...ir.dims import number
from ...ir.expr import X, maximum
from ...ir.limits import MAX_BYTES
from ...ir.types import ORDINARY, TensorType
from ..onnx.builder import Builder
from ..onnx.synthetic_node import SyntheticNode
from .file import File, Operator, Tensor
from .node import Unsupported
from .quantized.importers import BYTE_DTYPES, quantization_of, zero
from .value import Value, plain

#: Operators that only declare, read, assign or initialise variables.
VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


@dataclass
class States:
    """The variables of a file.

    A name is that of an input of our graph; a tensor is an index in the file; a variable is a resource variable's name.

    kept_by_user: name -> output, for states of recurrent layers that the user asks to keep from run to run; others
        begin with 0 in each run.
    next_values: name -> the value that replaces it after the run.
    initial_states: name -> its initial value, if not 0.
    tensors: tensor that operators update -> name.
    handles: tensor -> the variable that it refers to.
    current: variable -> its value after the operators so far.
    inputs: variable -> name.
    initial_tensors: variable -> the tensor with its initial value, if the file has one.
    active: a bool value of our graph, whether this run executes the following operators; "" if all runs do.
    """

    builder: Builder
    file: File
    kept_by_user: Mapping[str, str] = field(default_factory=dict)
    next_values: dict[str, Value] = field(default_factory=dict)
    initial_states: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: dict[int, str] = field(default_factory=dict)
    handles: dict[int, str] = field(default_factory=dict)
    current: dict[str, Value] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    initial_tensors: dict[str, Tensor] = field(default_factory=dict)
    active: str = ""

    def input_for(self, index: int) -> str:
        """Returns our graph's input for a tensor that operators update. Its initial value, if quantised, is the zero
        point."""
        if index not in self.tensors:
            tensor = self.file.tensors[index]
            self.tensors[index] = name = self._input(tensor, tensor.name or f"state{index}")
            if tensor.quantization is not None and tensor.dtype in BYTE_DTYPES:
                self._set_initial_value(name, np.full(tensor.shape, zero(quantization_of(tensor)), tensor.dtype))
        return self.tensors[index]

    def is_kept(self, index: int) -> bool:
        """Whether the user keeps a tensor from run to run."""
        return 0 <= index < len(self.file.tensors) and self.file.tensors[index].name in self.kept_by_user

    def keep(self, name: str, value: Value) -> None:
        """Stores a value as the next value of the input `name`; runs that are not active keep the old one."""
        self.next_values[name] = self._where(value, name) if self.active else value

    def run_every(self, cycles: int, hint: str) -> None:
        """Makes the following operators active in the last of each `cycles` runs in which they would be active without
        this call. A state counts these runs."""
        name = self._input(Tensor(f"{hint}.runs", shape=(1,), signature=(), dtype="int32"), f"{hint}.runs")
        onnx_node = SyntheticNode(self.builder, op_type="", name=hint, inputs=(), attrs={})
        (run,) = onnx_node.emit("elementwise", (name,), expr=X + 1)
        (is_last,) = onnx_node.emit("equal", (run, onnx_node.constant(np.array([cycles], np.int32))))
        after_last = maximum(X - (cycles - 1), 0)  # 1 for X = cycles, 0 below
        (runs,) = onnx_node.emit("elementwise", (run,), expr=X - cycles * after_last)
        self.keep(name, Value(self.builder, runs))
        self.active = onnx_node.emit("logical_and", (self.active, is_last))[0] if self.active else is_last

    def hold_while_inactive(self, value: Value, tensor: Tensor, active: str) -> Value:
        """Returns an output of the network that keeps its last value in runs that are not active. active: a bool value
        of our graph, whether this run is."""
        name = self._input(tensor, f"{tensor.name}.last")
        self.next_values[name] = self._where(value, name, active)
        return self.next_values[name]

    def _where(self, value: Value, name: str, active: str = "") -> Value:
        """Returns the value in active runs, and the input `name` in others. active: as of the class by default."""
        new = value.in_order(plain(len(value.order)), name)
        onnx_node = SyntheticNode(self.builder, op_type="", name=name, inputs=(), attrs={})
        return Value(self.builder, onnx_node.emit("where", (active or self.active, new, name))[0])

    def _input(self, tensor: Tensor, hint: str) -> str:
        """Adds a state of a tensor's type, which keeps its value until a next value is stored, and returns its name."""
        if tensor.dtype not in ORDINARY or any(number(extent) < 1 for extent in tensor.shape):
            raise Unsupported(f"a state of {tensor.dtype}{list(tensor.shape)} is not supported")
        type_ = TensorType(tensor.dtype, tensor.shape)
        if number(type_.bytes) > MAX_BYTES:
            raise ShapeError(f"keeps {type_}, and no tensor may reach 2 GB")
        name = self.builder.unique(hint)
        self.builder.add_input(name, type_)
        self.next_values[name] = Value(self.builder, name)
        return name

    def _set_initial_value(self, name: str, value: np.ndarray) -> None:
        if value.any():
            self.initial_states[name] = value

    # --- variables ---------------------------------------------------------------------------------------------------

    def import_variable(self, operator: Operator, value: Value | None) -> list[Value | None]:
        """Imports one of `VARIABLES` and returns its results. value: the operand of ASSIGN_VARIABLE."""
        if operator.kind == "VAR_HANDLE":
            self.handles[operator.outputs[0]] = _name(operator)
            return [None]
        if operator.kind == "CALL_ONCE":
            self._record_initial_values(int(operator.options.get("InitSubgraphIndex", 0)))
            return []
        variable = self.handles.get(operator.inputs[0]) if operator.inputs else None
        if variable is None:
            raise Unsupported("its variable comes from no VAR_HANDLE of the same graph, which is not supported")
        if operator.kind == "ASSIGN_VARIABLE":
            if value is not None:
                self.current[variable] = value
                if variable in self.inputs:
                    self.keep(self.inputs[variable], value)
            return []
        if variable not in self.current:
            tensor = self.file.tensors[operator.outputs[0]]
            self.inputs[variable] = self._input(tensor, variable)
            if (first := self.initial_tensors.get(variable)) is not None:
                self._set_initial_value(self.inputs[variable], _constant(first, tensor, variable))
            self.current[variable] = self.next_values[self.inputs[variable]]
        return [self.current[variable]]

    def _record_initial_values(self, index: int) -> None:
        """Records the initial values that the subgraph `index`, called once before the first run, assigns."""
        graph, handles = self.file.graph(index), {}
        for operator in graph.operators:
            if operator.kind == "VAR_HANDLE":
                handles[operator.outputs[0]] = _name(operator)
            elif operator.kind == "ASSIGN_VARIABLE" and len(operator.inputs) == 2 and operator.inputs[0] in handles:
                self.initial_tensors[handles[operator.inputs[0]]] = graph.tensors[operator.inputs[1]]
            else:
                raise Unsupported(f"computes first values of variables by {operator.kind}, which is not supported")


def _constant(first: Tensor, variable: Tensor, name: str) -> np.ndarray:
    """Returns the constant that a subgraph assigns to a variable.

    Raises:
        ShapeError: if its type differs from the type that is read.
        Unsupported: for a value that is computed.
    """
    if first.data is None:
        raise Unsupported(f"variable {quoted(name)} has a first value that another graph computes, "
                          "which is not supported")
    if (first.dtype, first.shape) != (variable.dtype, variable.shape):
        raise ShapeError(f"variable {quoted(name)} is {variable.dtype}{list(variable.shape)}, and begins as "
                         f"{first.dtype}{list(first.shape)}")
    return first.array


def _name(operator: Operator) -> str:
    """Returns the variable that a VAR_HANDLE refers to."""
    name = operator.options.get("SharedName") or b""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
