# SPDX-License-Identifier: Apache-2.0
"""What a file keeps from run to run: tensors that operators change, and variables that it reads and assigns. In our
graph each is an input of zeros at first, with the output that becomes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...errors import ShapeError, quoted
from ...ir.expr import X, maximum
from ...ir.limits import MAX_BYTES
from ...ir.types import ORDINARY, TensorType
from ..onnx.builder import Builder
from ..onnx.spelled import SpelledNode
from .file import File, Operator, Tensor
from .node import Unsupported
from .value import Value, plain

#: Operators on variables; none of them computes anything.
VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


@dataclass
class States:
    """asked: input -> output, for states of recurrent layers that begin with 0 in each run if nobody asks for them.
    pairs: input -> what becomes it. handles: tensors of the file that name variables. current: what variables are.
    first: the value of each variable before the first run, as far as the file says. counts: of bool, whether what comes
    next in the file counts in this run; "" where all runs do."""

    builder: Builder
    file: File
    asked: Mapping[str, str] = field(default_factory=dict)
    pairs: dict[str, Value] = field(default_factory=dict)
    tensors: dict[int, str] = field(default_factory=dict)
    handles: dict[int, str] = field(default_factory=dict)
    current: dict[str, Value] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    first: dict[str, Tensor] = field(default_factory=dict)
    counts: str = ""

    def of(self, index: int, zero_point: int = 0) -> str:
        """The input of a tensor that operators change. zero_point: by how much what is kept is less than its numbers.
        """
        if index not in self.tensors:
            tensor = self.file.tensors[index]
            if tensor.quantization is not None and (tensor.quantization.zero_point != zero_point).any():
                raise Unsupported(f"its state {quoted(tensor.name)} begins with a zero point, which is not supported")
            self.tensors[index] = self._input(tensor, tensor.name or f"state{index}")
        return self.tensors[index]

    def is_asked_for(self, index: int) -> bool:
        return 0 <= index < len(self.file.tensors) and self.file.tensors[index].name in self.asked

    def keep(self, name: str, value: Value) -> None:
        """The value becomes the input `name`, in runs that count."""
        self.pairs[name] = self._where(value, name) if self.counts else value

    def every(self, cycles: int, hint: str) -> None:
        """What comes next counts in every so many-th of the runs that count now."""
        name = self._input(Tensor(f"{hint}.runs", (1,), (), "int32"), f"{hint}.runs")
        spelled = SpelledNode(self.builder, "", hint, (), {}, 1)
        (run,) = spelled.emit("elementwise", (name,), expr=X + 1)
        (full,) = spelled.emit("equal", (run, spelled.constant(np.array([cycles], np.int32))))
        (left,) = spelled.emit("elementwise", (run,), expr=X - cycles * maximum(X - (cycles - 1), 0))
        self.keep(name, Value(self.builder, left))
        self.counts = spelled.emit("logical_and", (self.counts, full))[0] if self.counts else full

    def held(self, value: Value, tensor: Tensor, counts: str) -> Value:
        """A result of the network that is the last run's where this one does not count."""
        name = self._input(tensor, f"{tensor.name}.last")
        self.pairs[name] = self._where(value, name, counts)
        return self.pairs[name]

    def _where(self, value: Value, name: str, counts: str = "") -> Value:
        now = value.in_order(plain(len(value.order)), name)
        spelled = SpelledNode(self.builder, "", name, (), {}, 1)
        return Value(self.builder, spelled.emit("where", (counts or self.counts, now, name))[0])

    def _input(self, tensor: Tensor, hint: str) -> str:
        if tensor.dtype not in ORDINARY or any(extent < 1 for extent in tensor.shape):
            raise Unsupported(f"a state of {tensor.dtype}{list(tensor.shape)} is not supported")
        type_ = TensorType(tensor.dtype, tensor.shape)
        if type_.bytes > MAX_BYTES:
            raise ShapeError(f"keeps {type_}, and no tensor may reach 2 GB")
        name = self.builder.unique(hint)
        self.builder.add_input(name, type_)
        self.pairs[name] = Value(self.builder, name)
        return name

    # --- variables ---------------------------------------------------------------------------------------------------

    def run(self, operator: Operator, value: Value | None) -> list[Value | None]:
        """One of `VARIABLES`; value: what ASSIGN_VARIABLE gets."""
        if operator.kind == "VAR_HANDLE":
            self.handles[operator.outputs[0]] = _name(operator)
            return [None]
        if operator.kind == "CALL_ONCE":
            self._begin(int(operator.options.get("InitSubgraphIndex", 0)))
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
            begins = self.first.get(variable)
            if begins is not None and (begins.data is None or begins.data.any()):
                raise Unsupported(f"variable {quoted(variable)} begins with other numbers than 0: make it an input and "
                                  "an output, and keep it with --state")
            self.inputs[variable] = self._input(tensor, variable)
            self.current[variable] = self.pairs[self.inputs[variable]]
        return [self.current[variable]]

    def _begin(self, index: int) -> None:
        """Notes what the graph `index`, which runs before the first run, gives variables."""
        if not 0 < index <= len(self.file.rest):
            raise ShapeError(f"runs graph {index} of {len(self.file.rest) + 1}")
        tensors, operators = self.file.rest[index - 1]
        handles = {}
        for operator in operators:
            if operator.kind == "VAR_HANDLE":
                handles[operator.outputs[0]] = _name(operator)
            elif operator.kind == "ASSIGN_VARIABLE" and len(operator.inputs) == 2 and operator.inputs[0] in handles:
                self.first[handles[operator.inputs[0]]] = tensors[operator.inputs[1]]
            else:
                raise Unsupported(f"computes what variables begin with by {operator.kind}, which is not supported")


def _name(operator: Operator) -> str:
    name = operator.options.get("SharedName") or b""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
