# SPDX-License-Identifier: Apache-2.0
"""Imports TFLite files into our graph, without TVM, and reports every problem at once."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import MegccError, ModelError, ShapeError, quoted
from ...extern import Externs
from ...extern import load as load_externs
from ...ir.dims import Dim, Symbol
from ...ir.graph import Graph
from ...ir.limits import MAX_BYTES
from ...ir.types import ORDINARY, TensorType
from ...ops.control.extern import Function
from ..onnx.builder import Builder
from ..onnx.externs import import_call
from . import (  # noqa: F401  (they register importers)
    circular,
    detection,
    draws,
    elementwise,
    gathers,
    moves,
    products,
    recurrent,
    recurrent_steps,
    spectral,
    svdf,
    windows,
)
from .control import CONTROL
from .file import File, Operator, Subgraph, Tensor, flexible
from .node import IMPORTERS, Importer, Node, Results, Unsupported
from .ports import load, names_of
from .quantized.importers import importer_of
from .spectral import COMPLEX
from .states import VARIABLES, States
from .tensor_lists import LIST, ItemShapeDiffers, infer_list_types, rewrite_item_writes
from .value import Complex, Value, plain

_ONE_GRAPH = ("Convert the one that is wanted by itself: tf.lite.TFLiteConverter.from_saved_model(folder, "
              "signature_keys=[name]), or from_concrete_functions([function])")

#: Exceptions that numpy and Python raise if operands and options of an operator contradict each other.
_CONTRADICTIONS = (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError, MemoryError)
#: The deepest nesting of subgraphs, and the most operators of all subgraphs that are imported in place.
MAX_DEPTH, MAX_INLINED_OPERATORS = 4, 20_000


class UnsupportedModel(ModelError):
    """Raised for a valid file with unsupported operators. custom: some of them are custom operators. quantised: some
    of them have quantised operands."""

    def __init__(self, subject: str, findings: Sequence[str], advice: str = "", custom: bool = False,
                 quantised: bool = False):
        super().__init__(subject, findings, advice)
        self.custom, self.quantised = custom, quantised


def import_tflite(path: str | Path, input_shapes: Mapping[str, Sequence] | None = None,
                  output_names: Sequence[str] | None = None, states: Mapping[str, str] | None = None,
                  extern: Externs | None = None, signature: str = "", empty: Collection[str] = ()) -> Graph:
    """Returns the file as a graph.

    Args:
        input_shapes: shape of some inputs; an entry is an extent, None (as in the file) or the name of a symbol.
        output_names: tensors of the file to compute instead of its outputs.
        states: output -> input, for states of recurrent layers that are to be kept from run to run; others begin with 0
            in each run.
        extern: custom operators of the user's own, of the domain "tflite", or files that declare them.
        signature: the signature to import, if the file has several.
        empty: symbols that may be 0; the others are at least 1.

    Raises:
        ModelError: listing everything in the file that cannot be imported.
        UnsupportedModel: if the file is valid but has operators that are not supported.
    """
    file = load(path, signature)
    _require_one_graph(file, str(path))
    customs = {f"CUSTOM {name}": functions for (domain, name), functions in load_externs(extern).items()
               if domain == "tflite"}
    return _Importer(infer_list_types(file), Path(path).stem, input_shapes or {}, output_names or (), states or {},
                     externs=customs, empty=empty).run()


def _require_one_graph(file: File, subject: str) -> None:
    """Raises ModelError for several graphs without signatures, unless an operator may run another graph: those are not
    in `IMPORTERS`."""
    if len(file.graphs) > 1 and not file.signatures and all(operator.kind in IMPORTERS for operator in file.operators):
        raise ModelError(subject, [f"has {len(file.graphs)} graphs of which none runs another, and one is compiled"],
                         _ONE_GRAPH)


def _extern(node: Node, functions: Sequence[Function]) -> Results:
    """Imports a custom operator as a call of the user's C function. Options in FlexBuffers become attributes."""
    wants = any(function.attributes for function in functions)
    options = flexible(node.operator.custom) if node.operator.custom and wants else {}
    attrs = {name: int(value) if isinstance(value, bool) else value for name, value in options.items()}
    inputs = [node.plain(index) if node.has(index) else "" for index in range(len(node.operator.inputs))]
    return import_call(node.onnx_node(node.kind, inputs, attrs, len(node.results)), functions)


class _Importer:
    """Imports one subgraph of a file.

    enclosing: the importer of the subgraph around it, None for the model's.
    depth: the number of enclosing subgraphs.
    outermost: the importer of the model's subgraph, which keeps `inlined_operators`, `item_shapes`, `has_custom` and
        `has_quantised` for all.
    inlined_operators: the number of operators that were imported in place so far.
    item_shapes: the value of a list -> the shape of an item that does not fit into it.
    values: tensor -> its value; None if its operator could not be imported.
    counted_buffers: buffers of constants that are counted against the budget already.
    active_runs: tensor that only some runs compute (after a CIRCULAR_BUFFER) -> the bool value that says whether this
        run does.
    findings, unsupported: error messages: what is wrong with the file, and what this front end does not support.
    externs: kind of a custom operator -> the user's C functions for it.
    has_custom, has_quantised: whether unsupported operators are custom, or have quantised operands.
    as_declared: whether all inputs have the file's shapes, so that inferred shapes must equal the file's.
    """

    def __init__(self, file: File, name: str, input_shapes: Mapping[str, Sequence], output_names: Sequence[str],
                 states: Mapping[str, str], enclosing: _Importer | None = None,
                 externs: Mapping[str, Sequence[Function]] | None = None, empty: Collection[str] = ()):
        self.empty = frozenset(empty)
        self.depth: int = enclosing.depth + 1 if enclosing else 0
        self.outermost: _Importer = enclosing.outermost if enclosing else self
        self.inlined_operators = 0
        self.item_shapes: dict[str, tuple[Dim, ...]] = {}
        self.file, self.name, self.input_shapes, self.output_names = file, name, input_shapes, output_names
        self.builder = enclosing.builder if enclosing else Builder()
        self.values: dict[int, Value | Complex | None] = {}
        self.counted_buffers: set[int] = set()
        self.active_runs: dict[int, str] = {}
        self.findings: list[str] = []
        self.unsupported: list[str] = []
        self.externs: Mapping[str, Sequence[Function]] = externs or (enclosing.externs if enclosing else {})
        self.has_custom = self.has_quantised = False
        self.as_declared: bool = enclosing.as_declared if enclosing else True
        self.states = States(self.builder, file, {target: source for source, target in states.items()})

    def run(self) -> Graph:
        outputs = self._output_tensors()
        inputs = self._add_inputs()
        self._name_seed()
        needed = self._needed_operators(outputs)
        for index, operator in enumerate(self.file.operators):
            if index in needed:
                self._import_operator(operator)
        self._check_outputs(outputs)
        if self.findings or self.unsupported:
            found, advice = list(dict.fromkeys([*self.findings, *self.unsupported])), self._dynamic_extents_advice()
            raise ModelError(self.name, found, advice) if self.findings else \
                UnsupportedModel(self.name, found, advice, self.outermost.has_custom, self.outermost.has_quantised)
        results = [value.in_order(plain(len(value.order)), self.file.tensors[index].name)
                   for index in outputs if (value := self._output_value(index)) is not None]
        pairs = self._states_of_outputs()
        seeds = self.builder.seeds
        names = self._name_outputs(results, [*inputs, *pairs.values()], outputs)
        ports = [*zip(inputs, names_of(self.file, self.file.inputs), strict=True), *zip(names, outputs, strict=True)]
        graph = self.builder.graph(self.name, [*inputs, *([seeds.name] if seeds.used else []), *pairs.values()],
                                   [*names, *pairs])
        scales = {name: pair for name, index in ports if (pair := self._per_tensor_quantization(index)) is not None}
        kept = tuple(pair for pair in pairs.items() if pair[1] not in self.states.kept_by_user)
        return graph.with_(states=kept, initial_states=self.states.initial_states, quantised=scales)

    def _check_outputs(self, outputs: Sequence[int]) -> None:
        """Records errors of outputs: complex numbers, numbers of less than 8 bits, and those that nothing computes."""
        for index in outputs:
            tensor, value = self.file.tensors[index], self._value(index)
            if isinstance(value, Complex):
                self.unsupported.append(f"output {quoted(tensor.name)}: complex numbers are no output; take their real "
                                        "and imaginary parts in the model")
            if tensor.bits < 8:
                self.unsupported.append(f"output {quoted(tensor.name)}: numbers of {tensor.bits} bits are no output; "
                                        "dequantise them in the model")
            if value is None and not self.findings and not self.unsupported:
                self.findings.append(f"output {quoted(tensor.name)}: no operator gives it")

    def _name_seed(self) -> None:
        """Names the additional input that seeds random numbers, which is no tensor of the file."""
        taken = {tensor.name for tensor in self.file.tensors}
        numbered = (f"seed_{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain(("seed",), numbered) if name not in taken)
        self.builder.seeds.set_input(name, None)

    def _dynamic_extents_advice(self) -> str:
        """Returns the advice for dynamic extents that the user gives no value; "" if there are none."""
        dynamic = {name: tensor for index, name in names_of(self.file, self.file.inputs).items()
                   if -1 in (tensor := self.file.tensors[index]).signature and name not in self.input_shapes}
        if not dynamic:
            return ""
        defaults, options = [], []
        for name, tensor in dynamic.items():
            defaults.append(f"'{name}' as ({','.join(map(str, tensor.shape))})")
            option = ["N" if declared == -1 else str(extent)
                      for extent, declared in zip(tensor.shape, tensor.signature, strict=True)]
            options.append(f"{name}=({','.join(option)})")
        return (f"The file leaves extents of its inputs open and was read with {' and '.join(defaults)}: say which the "
                f'model has, --input-shapes "{";".join(options)}" with a number for each N')

    def _states_of_outputs(self) -> dict[str, str]:
        """Returns output -> input for the states; each of these outputs is a value of its own."""
        pairs = {}
        for name, value in self.states.next_values.items():
            output = self.builder.unique(self.states.kept_by_user.get(name, f"{name}.next"))
            self.builder.copy(value.in_order(plain(len(value.order)), output), output)
            pairs[output] = name
        return pairs

    def _per_tensor_quantization(self, index: int) -> tuple[float, int] | None:
        """Returns scale and zero point of an 8-bit or 16-bit tensor that is quantised per tensor, None for others."""
        tensor = self.file.tensors[index]
        given = tensor.quantization
        if given is None or len(given.scale) != 1 or tensor.dtype not in ("int8", "uint8", "int16"):
            return None
        return float(given.scale[0]), int(given.zero_point[0])

    def _name_outputs(self, results: Sequence[str], inputs: Sequence[str], outputs: Sequence[int]) -> list[str]:
        """Gives each result the name of its tensor in the file, copying where necessary."""
        named: list[str] = []
        taken = names_of(self.file, [*self.file.inputs, *outputs])
        renamed: dict[str, str] = {}
        for value, index in zip(results, outputs, strict=True):
            name = taken[index] if taken[index] not in inputs else self.builder.unique(taken[index])
            value = renamed.get(value, value)
            if value in inputs or value in named or value in self.builder.constants:
                if name in self.builder.types:
                    renamed.update(self.builder.rename({name: self.builder.unique(name)}))
                    value = renamed.get(value, value)
                self.builder.copy(value, name)
            elif value != name:
                renamed.update(self.builder.rename({value: name}))
            named.append(name)
        return named

    def _output_tensors(self) -> list[int]:
        """Returns the tensors that the graph computes: the file's outputs, or those that the user names."""
        if not self.output_names:
            return list(dict.fromkeys(self.file.outputs))
        known = {tensor.name: index for index, tensor in enumerate(self.file.tensors)}
        missing = [name for name in self.output_names if name not in known]
        if missing:
            raise ModelError(self.name, [f"output {quoted(name)}: nothing in the model is called so"
                                         for name in missing])
        return [known[name] for name in self.output_names]

    def _add_inputs(self) -> list[str]:
        """Adds the inputs to the graph and returns their names."""
        names = names_of(self.file, self.file.inputs)
        unknown = sorted(set(self.input_shapes) - set(names.values()))
        if unknown:
            self.findings.append(f"--input-shapes names {', '.join(unknown)}, but the inputs are: "
                                 f"{', '.join(names.values())}")
        found = []
        for index, name in names.items():
            tensor = self.file.tensors[index]
            try:
                type_ = self._input_type(tensor, name)
            except MegccError as error:
                self.findings.append(f"input {quoted(name)}: {error}")
                self.values[index] = None
                continue
            self.as_declared &= type_.shape == tensor.shape
            name = self.builder.unique(name)
            self.builder.add_input(name, type_)
            self.values[index] = Value(self.builder, name)
            found.append(name)
        return found

    def _input_type(self, tensor: Tensor, name: str) -> TensorType:
        if tensor.dtype not in ORDINARY or tensor.bits < 8:
            raise ShapeError(f"has element type {tensor.dtype if tensor.bits == 8 else f'int{tensor.bits}'}, which is "
                             "not supported")
        wanted = self.input_shapes.get(name) or [None] * len(tensor.shape)
        if len(wanted) != len(tensor.shape):
            raise ShapeError(f"has {len(tensor.shape)} axes, --input-shapes gives {len(wanted)}")
        shape: list[Dim] = []
        for axis, (given, declared) in enumerate(zip(wanted, tensor.shape, strict=True)):
            extent = declared if given is None else given
            if isinstance(extent, int) and extent < 0:
                raise ShapeError(f"axis {axis} has the extent {extent}; extents are 0 or more")
            shape.append(Symbol(extent, least=0 if extent in self.empty else 1) if isinstance(extent, str) else
                         int(extent))
        type_ = TensorType(tensor.dtype, tuple(shape))
        if (size := type_.static_bytes) is not None and size > MAX_BYTES:
            raise ShapeError(f"is {type_}, {size:,} bytes, and no tensor may reach 2 GB; use a smaller shape")
        return type_

    def _needed_operators(self, outputs: Sequence[int]) -> set[int]:
        """Returns the indices of the operators that the outputs depend on, and of those that assign variables."""
        live_tensors, needed = set(outputs), set()
        for index in range(len(self.file.operators) - 1, -1, -1):
            operator = self.file.operators[index]
            assigns = operator.kind in ("ASSIGN_VARIABLE", "CALL_ONCE") and not self.output_names
            if assigns or not live_tensors.isdisjoint(operator.outputs):
                needed.add(index)
                live_tensors.update(operator.inputs)
        return needed

    def _value(self, index: int) -> Value | Complex | None:
        """Returns the value of a tensor; None if its operator could not be imported."""
        if index not in self.values:
            self.values[index] = self._constant(index)
        return self.values[index]

    def _output_value(self, index: int) -> Value | None:
        """Returns the value of an output. Where not every run computes it, it keeps its last value in the others."""
        value = self._value(index)
        return value if not isinstance(value, Value) or index not in self.active_runs \
            else self.states.hold_while_inactive(value, self.file.tensors[index], self.active_runs[index])

    def _constant(self, index: int) -> Value | None:
        """Returns the value of a tensor that no operator gives. Records an error unless it is a constant."""
        tensor = self.file.tensors[index]
        if tensor.data is None and 0 in tensor.shape and tensor.dtype in ORDINARY:  # a constant without elements
            return Value(self.builder, self.builder.constant(np.zeros(tensor.shape, tensor.dtype), tensor.name))
        if tensor.data is None:
            if tensor.is_variable and tensor.dtype in ORDINARY:
                return None
            self.findings.append(f"tensor {quoted(tensor.name)}: is read before an operator gives it")
            return None
        if tensor.dtype not in ORDINARY:
            self.unsupported.append(f"constant {quoted(tensor.name)}: is of {tensor.dtype}, which is not supported")
            return None
        array = tensor.array
        name = self.builder.constant(array, tensor.name or f"tensor{index}")
        if tensor.buffer not in self.counted_buffers:
            self.counted_buffers.add(tensor.buffer)
            self.builder.folding.constant_bytes += array.nbytes
        return Value(self.builder, name)

    def _import_operator(self, operator: Operator) -> None:
        """Imports an operator. An error is recorded as a finding; the operator's results are then unknown."""
        results = [self.file.tensors[index] for index in operator.outputs]
        name = next((tensor.name for tensor in results if tensor.name), operator.kind)
        label = f"{operator.kind} {quoted(name)}"
        repeated = [tensor.name for index, tensor in zip(operator.outputs, results, strict=True)
                    if index in self.values]
        if repeated or len(set(operator.outputs)) != len(operator.outputs):
            self.findings.append(f"{label}: gives {quoted(', '.join(repeated))} once more")
            return
        if self.states.active:
            self.active_runs.update(dict.fromkeys(operator.outputs, self.states.active))
        values: Sequence[Value | Complex | None] = [None] * len(results)
        first_op, value_count = len(self.builder.ops), len(self.builder.types)
        try:
            if operator.kind in VARIABLES:
                value = self._value(operator.inputs[1]) if operator.kind == "ASSIGN_VARIABLE" else None
                self.values.update(zip(operator.outputs, self.states.import_variable(operator, value), strict=True))
                return
            values = CONTROL[operator.kind](self, operator, name) if operator.kind in CONTROL \
                else self._import_results(operator, name, label, results)
        except Unsupported as error:
            self.unsupported.append(f"{label}: {error}")
            self.outermost.has_custom |= operator.kind.startswith("CUSTOM ")
            self.outermost.has_quantised |= any(self.file.tensors[index].quantization is not None
                                            for index in (*operator.inputs, *operator.outputs) if index >= 0)
        except MegccError as error:
            self.findings.append(f"{label}: {error}")
            if isinstance(error, ItemShapeDiffers):
                self.outermost.item_shapes[error.items] = error.shape
        except _CONTRADICTIONS:
            self.findings.append(f"{label}: its operands and options contradict each other, or what the operator is "
                                 "defined for")
        self.values.update(zip(operator.outputs, values, strict=True))
        self._rename(results, values, first_op, value_count)

    def _import_results(self, operator: Operator, name: str, label: str, results: Sequence[Tensor]) \
            -> Sequence[Value | Complex | None]:
        """Imports an operator without subgraphs and returns the values of its results, None where an operand is not
        known.

        Args:
            name: the name of its first result.
            label: the operator in messages.
            results: the file's tensors for its results.
        """
        operands = [None if index < 0 else self._value(index) for index in operator.inputs]
        tensors = [None if index < 0 else self.file.tensors[index] for index in operator.inputs]
        is_complex = any(isinstance(value, Complex) for value in operands)
        if is_complex and operator.kind not in (*spectral.MOVES, *spectral.TO_FLOATS):
            raise Unsupported("is not supported for complex numbers")
        if operator.kind in self.externs:
            importer: Importer = partial(_extern, functions=self.externs[operator.kind])
        else:
            importer = spectral.TO_FLOATS[operator.kind] if is_complex and operator.kind in spectral.TO_FLOATS \
                else importer_of(operator.kind, tensors, results)
        if any(value is None and tensor is not None and not tensor.is_variable
               for value, tensor in zip(operands, tensors, strict=True)):
            return [None] * len(results)
        intermediates = [self.file.tensors[index] for index in operator.intermediates]

        def emitted(operands: Sequence[Value | Complex | None], tensors: Sequence[Tensor | None],
                     results: Sequence[Tensor]) -> list[Value | Complex]:
            node = Node(self.builder, operator, name, operands, tensors, results, intermediates, self.states)
            with self.builder.importing(label):
                found: Results = importer(node)
            return [Value(self.builder, value) if isinstance(value, str) else value for value in found]

        if is_complex and operator.kind in spectral.MOVES:
            values = [*spectral.by_parts(emitted, operands, tensors, results)]
        else:
            values = emitted(operands, tensors, results)
        for value, tensor in zip(values, results, strict=True):
            # Converters cannot infer the result shapes of custom operators, so those in the file may be wrong.
            self._check(value, tensor, as_declared=self.as_declared and not operator.kind.startswith("CUSTOM "))
        return values

    def real_operands(self, operator: Operator) -> list:
        """Returns the operands of an operator with subgraphs, None for those that are not known."""
        operands = [None if index < 0 else self._value(index) for index in operator.inputs]
        if any(isinstance(value, Complex) for value in operands):
            raise Unsupported("is not supported for complex numbers")
        return operands

    def graphs(self, operator: Operator, *roles: str) -> list[Subgraph]:
        """Returns the subgraphs of an operator. roles: their names in its options, such as "Cond" and "Body"."""
        return [self.file.graph(int(operator.options.get(f"{role}SubgraphIndex", 0))) for role in roles]

    def inline(self, graph: Subgraph, operands: Sequence[Value], label: str) -> list[Value] | None:
        """Imports another subgraph in place with these inputs. Returns its outputs, or None if an error was found."""
        self.outermost.inlined_operators += len(graph.operators)
        if self.depth == MAX_DEPTH or self.outermost.inlined_operators > MAX_INLINED_OPERATORS:
            raise ShapeError(f"graphs run graphs more than {MAX_DEPTH} deep, or more than {MAX_INLINED_OPERATORS:,} "
                             "operators")
        graph = infer_list_types(rewrite_item_writes(graph))
        if len(graph.inputs) != len(operands):
            raise ShapeError(f"gives {len(operands)} values to a graph of {len(graph.inputs)} inputs")
        inner = _Importer(replace(self.file, tensors=graph.tensors, operators=graph.operators, inputs=graph.inputs,
                                  outputs=graph.outputs), self.name, input_shapes={}, output_names=(), states={},
                          enclosing=self)
        # New `Value` objects, since transposed forms that the subgraph computes do not exist outside of it.
        inner.values = {index: Value(self.builder, value.name, value.order)
                        for index, value in zip(graph.inputs, operands, strict=True)}
        if any(operator.kind in VARIABLES for operator in graph.operators) or \
                any(tensor.is_variable for tensor in graph.tensors):
            raise Unsupported("its graph keeps something from run to run, which is supported in the first one only")
        for index in sorted(inner._needed_operators(graph.outputs)):
            inner._import_operator(graph.operators[index])
        values = [inner._value(index) for index in graph.outputs]
        self.findings += [f"in {label}: {finding}" for finding in inner.findings]
        self.unsupported += [f"in {label}: {finding}" for finding in inner.unsupported]
        if any(isinstance(value, Complex) for value in values):
            raise Unsupported("its graph gives complex numbers, which is not supported")
        return None if None in values else [value for value in values if isinstance(value, Value)]

    def _check(self, value: Value | Complex, tensor: Tensor, as_declared: bool) -> None:
        """Raises ShapeError if our inferred type differs from the file's. Shapes are compared only if `as_declared`."""
        if isinstance(value, Complex):
            if tensor.dtype != COMPLEX:
                raise ShapeError(f"gives complex numbers by our rules, {tensor.dtype} by the file")
            value, tensor = value.real, spectral.real_tensor(tensor)
        type_ = value.type
        if tensor.dtype == LIST:
            return
        is_static = as_declared and not any(extent < 0 for extent in (*tensor.signature, *tensor.shape))
        if type_.dtype != tensor.dtype or (is_static and tensor.shape and type_.is_static
                                           and type_.shape != tensor.shape):
            raise ShapeError(f"gives {type_} by our rules, {tensor.dtype}{list(tensor.shape)} by the file")

    def _rename(self, results: Sequence[Tensor], values: Sequence[Value | Complex | None], first_op: int,
                value_count: int) -> None:
        """Renames an operator's results to their names in the file, where their order of axes is the file's.

        Args:
            first_op: the index of the first operator of our graph that the importer may have added.
            value_count: the number of values of our graph before.
        """
        # Values that existed before keep their names. `types` is in the order in which values were added.
        new_values = set(itertools.islice(reversed(self.builder.types), len(self.builder.types) - value_count))
        names = {}
        for tensor, value in zip(results, values, strict=True):
            if isinstance(value, Value) and value.name in new_values and value.name not in names and tensor.name \
                    and value.order == plain(len(value.order)):
                names[value.name] = self.builder.unique(tensor.name)
        renamed = self.builder.rename(names, first_op)
        for value in values:
            for part in (value.real, value.imaginary) if isinstance(value, Complex) else (value,):
                if part is not None:
                    part.renamed(renamed)
