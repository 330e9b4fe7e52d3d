# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX models into our graph: resolves names, infers shapes, folds constants, and reports all problems in one
error."""

from __future__ import annotations

import difflib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from ... import ops  # noqa: F401  (registers the operators)
from ...errors import MegccError, ModelError, ShapeError, quoted, readable
from ...extern import Externs
from ...extern import load as load_externs
from ...ir.dim_text import SIZE, sizes_wanted
from ...ir.dims import symbols
from ...ir.graph import Graph, in_order
from ...ir.types import TensorType
from ...ops.base import DECOMPOSITIONS, OPERATORS
from . import control, sequences
from .builder import Builder, Node
from .checks import check_schema, declared_shape, find_cycle, has_schema, label, propagate_shapes
from .dynamic_lstm import dynamic_lstm
from .externs import importers
from .functions import Function, function_of, has_function_body
from .input_types import InputTypes
from .load import LoadedModel, TensorError, load, reads, tensor_array
from .refused import REFUSED, REFUSED_DOMAINS
from .sequences import IMPORTERS as SEQUENCES
from .sequences import Sequences, given_tensors, output_tensors

logger = logging.getLogger(__name__)

_UNSUPPORTED_ADVICE = ("'megcc list ops' shows the supported operators; replace the others in the model, or map "
                       "them to C functions of yours with --extern (docs/extern.md)")

#: The deepest nesting of function calls.
MAX_FUNCTION_DEPTH = 40
#: The most nodes that functions and unrolled loops may expand to, at least; a large file may expand to
#: `NODES_PER_FILE_NODE` times its own nodes. Without a limit, twenty functions that each call the next one twice give a
#: million nodes.
NODE_BUDGET, NODES_PER_FILE_NODE = 20_000, 4
#: The most inputs with open extents that a message lists.
MAX_LISTED_INPUTS = 5

_STRING = onnx.TensorProto.STRING

#: Operators with subgraphs: name -> importer.
CONTROL = {"If": control.import_if, "Loop": control.import_loop, "Scan": control.import_scan,
           "SequenceMap": sequences.import_map, "com.microsoft::DynamicQuantizeLSTM": dynamic_lstm}

#: Exceptions that numpy and Python raise if operands and attributes of a node contradict each other.
_CONTRADICTIONS = (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError, MemoryError)


def import_onnx(model: str | Path | bytes | onnx.ModelProto, input_shapes: Mapping[str, Sequence] | None = None,
                output_names: Sequence[str] | None = None, constants: Mapping[str, object] | None = None,
                extern: Externs | None = None, bounds: Mapping[str, int] | None = None,
                empty: Collection[str] = ()) -> Graph:
    """Returns the model as a graph.

    Args:
        model: path, serialised bytes or parsed model; external data is found beside a path only.
        input_shapes: shape of some inputs; an entry is an extent, None (as in the model) or the name of a symbol.
            A symbol of the model that gets an extent here has it everywhere.
        output_names: values to compute instead of the model's outputs.
        constants: values of inputs that become constants: an array of the input's shape, or a number for all elements.
        extern: operators of the user's own, or files that declare them.
        bounds: largest values of data-dependent extents, by their names.
        empty: symbols that may be 0; the others are at least 1.

    Raises:
        ShapeError: for a bound whose name is not a data-dependent extent.
        ModelError: listing everything in the model that cannot be imported.
    """
    return Importer(load(model), dict(input_shapes or {}), output_names, dict(constants or {}),
                     _importers(extern), dict(bounds or {}), empty).run()


#: Emits the operators of a node and returns the names of its outputs' values.
NodeImporter = Callable[[Node], tuple[str, ...]]


def _importers(externs: Externs | None = None) -> dict[str, NodeImporter]:
    """Returns operator -> importer, those of the user's own operators included. An operator outside of ONNX's domain
    has the name "domain::operator"."""
    declared = {name: declaration.from_onnx for declaration in OPERATORS.values() for name in declaration.onnx}
    return {**DECOMPOSITIONS, **declared, **importers(load_externs(externs))}


class Scope:
    """A mapping from names of the file to values of the builder; None stands for a value that could not be imported.
    The scope of a subgraph also sees the names of the outer one.

    declared: the shapes that the file declares for computed values.
    """

    def __init__(self, outer: Scope | None = None, declared: Mapping[str, tuple[int, ...]] | None = None):
        self.values: dict[str, str | None] = {}
        self.outer = outer
        self.declared = declared or {}

    def __contains__(self, name: str) -> bool:
        return name in self.values or (self.outer is not None and name in self.outer)

    def __getitem__(self, name: str) -> str | None:
        return self.values[name] if name in self.values or self.outer is None else self.outer[name]


class Importer:
    """The import of one model. Parameters are those of `import_onnx`.

    findings: the problems, which become one error. warnings: shown only if the import succeeds.
    has_unknown_operator: whether no importer or function was found for an operator.
    has_unsupported_node: whether a node is not supported, as opposed to one that contradicts the input shapes.
    function_stack: (domain, name) of the functions that are being expanded, from the outermost.
    expanded_nodes: the number of nodes of functions and subgraphs in the graph.
    imported_nodes: the same with the nodes that were imported only to learn the types of a loop or branch.
    """

    def __init__(self, model: LoadedModel, input_shapes: dict[str, Sequence], output_names: Sequence[str] | None,
                 constants: dict[str, object], importers: Mapping[str, NodeImporter], bounds: dict[str, int],
                 empty: Collection[str] = ()):
        self.model = model
        self.graph = model.proto.graph
        self.input_types = InputTypes(self.graph, input_shapes, frozenset(empty))
        self.input_shapes = input_shapes
        self.constant_inputs = constants
        self.has_chosen_outputs = bool(output_names)
        self.output_names = list(output_names or (value.name for value in self.graph.output))
        self.declared_strings = {value.name for value in (*self.graph.input, *self.graph.output)
                               if value.type.tensor_type.elem_type == _STRING}
        self.builder = Builder(bounds)
        self.sequences = Sequences(self.builder.unique)
        self.importers = importers
        self.findings: list[str] = []
        self.warnings: list[str] = []
        self.has_unknown_operator = False
        self.has_unsupported_node = False
        self.function_stack: list[tuple[str, str]] = []
        self.expanded_nodes = 0
        self.imported_nodes = 0
        file_nodes = len(self.graph.node) + sum(len(function.node) for function in model.proto.functions)
        self.node_budget = max(NODE_BUDGET, NODES_PER_FILE_NODE * file_nodes)

    def run(self) -> Graph:
        """Imports the whole model.

        Raises:
            ModelError: listing all findings.
            ShapeError: for a bound whose name is not a data-dependent extent.
        """
        self.findings += [f"input {quoted(name)}: the name is used twice; rename one of them"
                          for name, uses in Counter(value.name for value in self.graph.input).items() if uses > 1]
        if not self.output_names:
            self.findings.append("the graph lists no outputs; choose some of its values, such as --output-names "
                                 f'"{",".join(self._unread_values())}"')
        declared_outputs, self.output_names = self.output_names, list(dict.fromkeys(self.output_names))
        scope = Scope(declared=self._declared_shapes())
        self._add_initializers(self.graph, scope)
        nodes = self._needed(self.output_names)
        inputs = self._add_inputs(scope, {*self.output_names, *(name for node in nodes for name in reads(node))})
        self._check_duplicates(self.graph.node, scope)
        self._import_nodes(nodes, scope, self.model.opsets)
        tensors = self._resolve_outputs(scope)
        if declared_outputs and not self.output_names:
            self.findings.append("its outputs are empty: no tensor is left")
        self._check_strings(scope)
        seeds = self.builder.seeds
        if seeds.value is not None and not (seeds.used or self.findings):
            self.findings.append(f"--constant names {quoted(seeds.name)}, but nothing is drawn by it")
        self._report(inputs)
        self.builder.unbacked.require_used(self.input_types.names - {""})
        seed = [seeds.name] if seeds.used and seeds.value is None else []
        self._name_outputs(scope, [*inputs, *seed])
        graph = self.builder.graph(self.model.name, [*inputs, *seed],
                                   [tensor for name in declared_outputs for tensor in tensors[name]])
        if not any(name in op.inputs for op in graph.ops for name in seed):
            graph = graph.with_(inputs=tuple(inputs))
        return self.builder.strings.attach_to(graph)

    def _resolve_outputs(self, scope: Scope) -> dict[str, list[str]]:
        """Returns the tensors of each output, of which a sequence has several, and makes them the output names."""
        for name in self.output_names:
            if name not in scope:
                self.findings.append(f"output {quoted(name)}: nothing in the model produces it"
                                     f"{self._similar_names(name)}")
        tensors = {name: output_tensors(self, name, scope) for name in self.output_names}
        self.output_names = [tensor for name in self.output_names for tensor in tensors[name]]
        return tensors

    def _check_strings(self, scope: Scope) -> None:
        """Reports outputs that are declared as strings but are no string tensors of the builder."""
        for name in self.output_names:
            if name not in self.declared_strings or name not in scope:
                continue
            if scope[name] is not None and scope[name] not in self.builder.strings.tensors:
                self.findings.append(f"output {quoted(name)}: has strings that come neither from inputs nor from "
                                     "tables, which is not supported")

    def _report(self, inputs: Sequence[str]) -> None:
        """Raises ModelError if there are findings; otherwise logs the warnings."""
        if self.findings:
            advice = _UNSUPPORTED_ADVICE if self.has_unknown_operator else self._shapes_advice(inputs)
            raise ModelError(self.model.name, list(dict.fromkeys(self.findings)), advice)
        for warning in self.warnings:
            logger.warning("%s", readable(warning))

    def _declared_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the declared shapes of computed values; empty if the user changed an input's shape."""
        for value in self.graph.input:
            shape = declared_shape(value)
            if shape is not None and tuple(self.input_shapes.get(value.name) or shape) != shape:
                return {}
        shapes = {value.name: declared_shape(value) for value in (*self.graph.value_info, *self.graph.output)}
        return propagate_shapes(self.graph.node, {name: shape for name, shape in shapes.items() if shape is not None})

    def _add_initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            if tensor.name in scope.values:
                self.findings.append(f"initializer {quoted(tensor.name)}: the name is used twice; rename one of them")
                continue
            try:
                array = tensor_array(tensor, self.model.folder, self.builder.strings)
                scope.values[tensor.name] = self.builder.weight(array, tensor.name, tensor.data_type == _STRING)
            except TensorError as error:
                self.findings.append(f"initializer {quoted(tensor.name)}: {error}")
                scope.values[tensor.name] = None
        for tensor in graph.sparse_initializer:
            name = tensor.values.name
            self.findings.append(f"initializer {quoted(name)}: is sparse, which is not supported; make it dense")
            scope.values[name] = None

    def _add_inputs(self, scope: Scope, needed: Container[str]) -> list[str]:
        """Adds the inputs and returns their names. If the user chose other outputs, only needed inputs are added.

        needed: the names that the imported nodes read, and the outputs.
        """
        given = given_tensors(self, scope)
        seed = self._add_seed({*self.builder.types, *self.output_names, *(value.name for value in given)})
        for option, wanted in (("--input-shapes", self.input_shapes), ("--constant", self.constant_inputs)):
            unknown = set(wanted) - {value.name for value in (*given, *self.graph.input)} - {seed}
            if unknown:
                names = ", ".join(value.name for value in given)
                self.findings.append(f"{option} names {', '.join(sorted(unknown))}, but the inputs are: {names}")
        self.findings += self.input_types.bind(given)
        names = []
        for value in given:
            try:
                type_ = self.input_types.of(value)
                array = self._constant_input(value.name, type_) if value.name in self.constant_inputs else None
            except MegccError as error:
                self.findings.append(f"input {quoted(value.name)}: {error}")
                scope.values[value.name] = None
                continue
            if array is None and self.has_chosen_outputs and value.name not in needed:
                continue
            if array is None:
                self.builder.add_input(value.name, type_)
                names.append(value.name)
            scope.values[value.name] = value.name if array is None else self.builder.constant(array, value.name)
            if value.type.tensor_type.elem_type == _STRING:
                self.builder.strings.tensors[str(scope.values[value.name])] = True
        return names

    def _add_seed(self, taken: Container[str]) -> str:
        """Declares the additional input that seeds random numbers, and returns its name. taken: names of the model."""
        numbered = (f"seed_{number}" for number in itertools.count(2))
        name = next(candidate for candidate in itertools.chain(("seed",), numbered) if candidate not in taken)
        value = None
        try:
            if tuple(self.input_shapes.get(name) or ()):
                raise ShapeError("has no axes, and --input-shapes gives it some")
            value = self._constant_input(name, TensorType("int64", ())) if name in self.constant_inputs else None
        except ShapeError as error:
            self.findings.append(f"input {quoted(name)}: {error}")
        self.builder.seeds.set_input(name, value)
        return name

    def _constant_input(self, name: str, type_: TensorType) -> np.ndarray:
        """Returns the constant that the user gave in place of an input, in the input's type.

        Raises:
            ShapeError: if the constant does not fit that type.
        """
        given, dtype = np.asarray(self.constant_inputs[name]), np.dtype(type_.dtype)
        if given.dtype.kind in "UO" and name in self.declared_strings:
            given = self.builder.strings.codes(map(str, given.reshape(-1)), given.shape)
        array = given.astype(dtype) if given.dtype.kind in "biuf" else None
        is_rounded = array is not None and dtype.kind in "biu" and not np.array_equal(array, given)
        if array is None or is_rounded:
            raise ShapeError(f"is {type_}, which cannot hold the constant {self.constant_inputs[name]}")
        if given.shape == type_.shape:
            return array
        if given.size != 1 or not type_.is_static:
            raise ShapeError(f"is {type_}, the constant given for it has shape {list(given.shape)}")
        return np.full(type_.shape, array.reshape(()))

    def _name_outputs(self, scope: Scope, inputs: Sequence[str]) -> None:
        """Gives each output a value of the output's name; copies a value that cannot be renamed."""
        by_name = {name for name in self.output_names if scope[name] == name and name not in self.builder.constants}
        fixed = {*inputs, *by_name}
        new_names: dict[str, str] = {}
        copied: list[str] = []
        for name in self.output_names:
            value = scope[name]
            if name in by_name:
                continue
            if value in self.builder.constants or value in fixed or value in new_names:
                copied.append(name)
            else:
                new_names[value] = name
        for name in copied:
            if name in self.builder.types and name not in new_names:
                new_names[name] = self.builder.unique(f"{name}.value")
        renamed = self.builder.rename(new_names)
        for name in copied:
            self.builder.copy(renamed.get(scope[name], scope[name]), name)

    def _shapes_advice(self, inputs: Sequence[str]) -> str:
        """Returns advice that lists the symbolic extents, since a contradiction may only hold for some of their
        values."""
        types = {name: self.builder.types[name] for name in inputs if name in self.builder.types}
        dynamic = {name: type_ for name, type_ in types.items() if not type_.is_static}
        dims = dict.fromkeys(dim for type_ in dynamic.values() for extent in type_.shape
                             for dim in sorted(symbols(extent)))
        if not dims:
            return ""
        examples = ", ".join(f"{quoted(name)} {type_}" for name, type_ in list(dynamic.items())[:MAX_LISTED_INPUTS])
        others = f" and {len(dynamic) - MAX_LISTED_INPUTS} more" if len(dynamic) > MAX_LISTED_INPUTS else ""
        dims_with_range = {dim for shape in self.input_shapes.values() for dim in shape if isinstance(dim, str)}
        open_dims = [dim for dim in dims if dim not in dims_with_range]
        if open_dims:
            return (f"The model leaves extents of its inputs open: {examples}{others}. If it cannot have every such "
                    f"shape, say which it has: {sizes_wanted(open_dims)}")
        return (f"Extents of its inputs have a range: {examples}{others}. If it cannot have every such shape, compile "
                f"it for one size, {sizes_wanted(dims, SIZE)}, or for several, with --input-shapes")

    def _similar_names(self, name: str) -> str:
        """Returns the end of an error message, which suggests similar names of the model, or other outputs."""
        known = dict.fromkeys(output for node in self.graph.node for output in node.output if output)
        similar = difflib.get_close_matches(name, known, 3)
        if similar:
            return f"; did you mean {' or '.join(similar)}?"
        if self.has_chosen_outputs:
            return "; 'megcc explain' shows the names of all values"
        return f"; --output-names takes others, such as {', '.join(last)}" if (last := self._unread_values()) else ""

    def _unread_values(self) -> list[str]:
        """Returns the names of up to three values that no node reads, as candidates for outputs."""
        read = {name for node in self.graph.node for name in reads(node)}
        return [name for node in self.graph.node for name in node.output if name and name not in read][:3]

    def _needed(self, outputs: Sequence[str]) -> list[onnx.NodeProto]:
        """Returns the nodes that the outputs depend on."""
        producer = {name: index for index, node in enumerate(self.graph.node) for name in node.output if name}
        needed: set[int] = set()
        waiting = [producer[name] for name in outputs if name in producer]
        while waiting:
            index = waiting.pop()
            if index not in needed:
                needed.add(index)
                waiting += [producer[name] for name in reads(self.graph.node[index]) if name in producer]
        return [node for index, node in enumerate(self.graph.node) if index in needed]

    def _import_nodes(self, nodes: Sequence[onnx.NodeProto], scope: Scope, opsets: Mapping[str, int]) -> None:
        """Imports nodes and adds their outputs to the scope. opsets: operator set of each domain."""
        self._check_reads(nodes, scope)
        for node in self._topological_order(nodes, scope):
            self._import_node(node, scope, opsets)

    def _check_duplicates(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Reports values that have the name of another value."""
        produced: dict[str, onnx.NodeProto] = {}
        for node in nodes:
            for name in filter(None, node.output):
                if name in produced or name in scope.values:
                    other = label(produced[name]) if name in produced else "an input or initializer"
                    self.findings.append(f"{label(node)}: its output {quoted(name)} is also that of {other}; "
                                         "rename one")
                produced[name] = node

    def _check_reads(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Reports values that nodes read and nothing produces, and adds them to the scope as unknown."""
        produced = {name for node in nodes for name in node.output}
        for node in nodes:
            for name in dict.fromkeys(reads(node)):
                if name not in produced and name not in scope:
                    self.findings.append(f"{label(node)}: reads {quoted(name)}, which no node, input or initializer "
                                         "gives; its weights are missing from the file, export the model with them")
                    scope.values[name] = None

    def _topological_order(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> list[onnx.NodeProto]:
        """Returns the nodes in topological order, in the order of the file where both orders are possible. Nodes of
        cycles are reported and left out."""
        ordered, left = in_order([list(reads(node)) for node in nodes], [list(node.output) for node in nodes])
        rest = [nodes[index] for index in left]
        if rest:
            path = " → ".join(map(label, find_cycle(rest)))
            self.findings.append(f"the graph is cyclic through {path}; break the cycle")
            for node in rest:
                scope.values.update(dict.fromkeys(node.output))
        return [nodes[index] for index in ordered]

    def _import_node(self, proto: onnx.NodeProto, scope: Scope, opsets: Mapping[str, int]) -> None:
        """Imports a node. An error is recorded as a finding; the node's outputs are then unknown."""
        inputs = [scope[name] if name else "" for name in proto.input]
        unknown = None in inputs or any(scope[name] is None for name in reads(proto))
        domain = proto.domain if proto.domain != "ai.onnx" else ""
        node = Node(self.builder, proto, inputs, opsets.get(domain or "ai.onnx", 1), self.model.folder,
                    [scope.declared.get(name) for name in proto.output])
        first_op, known = len(self.builder.ops), len(self.builder.types)
        values: list[str | None] = []
        try:
            values = self._import_values(proto, node, domain, scope, opsets, unknown)
        except (MegccError, TensorError) as error:
            # An If drops a branch that contradicts the shapes (ShapeError), but not one that is only unsupported.
            self.has_unsupported_node = self.has_unsupported_node or not isinstance(error, ShapeError)
            self.findings.append(f"{label(proto)}: {error}")
        except (*_CONTRADICTIONS, AttributeError) as error:
            if isinstance(error, AttributeError) and has_schema(proto, domain, node.opset):
                raise
            operands = ", ".join(str(node.type(index)) for index in range(len(inputs)))
            attributes = ", ".join(attribute.name for attribute in proto.attribute) or "none"
            self.findings.append(f"{label(proto)}: its operands ({operands}) and attributes ({attributes}) contradict "
                                 "each other, or what the operator is defined for; export the model again")
        new_values = set(itertools.islice(reversed(self.builder.types), len(self.builder.types) - known))
        values += [None] * (len(proto.output) - len(values))
        results = [(name, value) for name, value in zip(proto.output, values, strict=False) if name]
        uses = Counter(values)
        # The results of the node get the names that they have in the file.
        names = {value: self.builder.unique(name) for name, value in results
                 if value != name and value in new_values and uses[value] == 1}
        self.builder.rename(names, first_op)
        scope.values.update((name, names.get(value, value)) for name, value in results)

    def _import_values(self, proto: onnx.NodeProto, node: Node, domain: str, scope: Scope, opsets: Mapping[str, int],
                unknown: bool) -> list[str | None]:
        """Returns the values of a node's outputs; an empty list if an operand is unknown.

        node: the node with its operands resolved. domain: its domain, "" for ONNX's. unknown: whether an operand is
        unknown.

        Raises:
            MegccError: if the node is not supported. TensorError: if an attribute holds no usable tensor.
        """
        name = f"{domain}::{proto.op_type}" if domain else proto.op_type
        if name == "Constant":
            return [self._import_constant(node)]
        if name in CONTROL or name in SEQUENCES:
            self.builder.strings.returns_strings(name, node.inputs)
        if name in CONTROL:
            return [] if unknown else CONTROL[name](self, node, proto, scope, opsets)
        if name in SEQUENCES:
            return [] if unknown else sequences.import_operator(self.sequences, name, node)
        given_sequences = [input_ for input_ in node.inputs if input_ in self.sequences]
        if name == "Identity" and given_sequences:
            return [given_sequences[0]]
        if name in REFUSED or domain in REFUSED_DOMAINS:
            raise MegccError(REFUSED.get(name) or REFUSED_DOMAINS[domain])
        if name in self.importers:
            check_schema(proto, domain, node.opset)
            if given_sequences:
                raise MegccError("takes tensors, and was given a sequence or an optional without a value")
            return [] if unknown else self._import_operator(name, node, proto)
        types = None if unknown or given_sequences else [node.type(index) for index in range(len(node.inputs))]
        function = function_of(self.model.proto, proto, domain, node.opset, types)
        if function is not None:
            return [] if unknown else self._import_function((domain, proto.op_type), function, node)
        if has_function_body(proto, domain, node.opset):
            return []
        self.has_unknown_operator = True
        raise MegccError("this operator is not supported")

    def _import_operator(self, name: str, node: Node, proto: onnx.NodeProto) -> list[str]:
        """Calls the importer of an operator and returns the values of the outputs, marked as strings where they are."""
        reduces = node.attr("reduction", "none") not in ("none", b"none")
        returns_strings = self.builder.strings.returns_strings(name, node.inputs, reduces)
        with self.builder.importing(label(proto)):
            values = list(self.importers[name](node))
        if not returns_strings:
            return values
        num_strings = 1 if name == "Unique" else len(values)   # its other results are indices and counts
        return [*map(node.as_strings, values[:num_strings]), *values[num_strings:]]

    def _import_constant(self, node: Node) -> str:
        """Returns the value of a Constant node, which has it in one of seven attributes."""
        for name, dtype in (("value", None), ("value_float", np.float32), ("value_floats", np.float32),
                            ("value_int", np.int64), ("value_ints", np.int64)):
            value = node.attr(name)
            if value is not None:
                is_string = name == "value" and node.strings(name) is not None
                return self.builder.weight(np.asarray(value, dtype), node.outputs[0], is_string)
        strings = node.strings("value_string", "value_strings")
        if strings is None:
            raise MegccError("holds no tensor; sparse tensors are not supported")
        return self.builder.weight(strings, node.outputs[0], True)

    def inline(self, graph: onnx.GraphProto, scope: Scope, opsets: Mapping[str, int],
                values: Mapping[str, str | None]) -> list[str | None]:
        """Imports a subgraph in place, with the given values as its inputs, and returns the values of its outputs."""
        self.expanded_nodes += len(graph.node)
        self.imported_nodes += len(graph.node)
        if self.expanded_nodes > self.node_budget:
            raise MegccError(f"loops and functions become more than {self.node_budget:,} nodes")
        if self.imported_nodes > 4 * self.node_budget:   # a nested body is imported again with each outer body
            raise MegccError(f"loops and branches stand so deep within each other that more than "
                             f"{4 * self.node_budget:,} nodes are looked at")
        inner = Scope(scope)
        inner.values.update(values)
        self._add_initializers(graph, inner)
        self._check_duplicates(graph.node, inner)
        self._import_nodes(graph.node, inner, opsets)
        return [inner[value.name] if value.name in inner else None for value in graph.output]

    def _import_function(self, name: tuple[str, str], function: Function, node: Node) -> list[str | None]:
        """Imports the body of a function in place of a node, and returns the values of its outputs.

        name: the function's domain and name.
        """
        if name in self.function_stack:
            raise MegccError("is a function that calls itself, which is not supported")
        self.expanded_nodes += len(function.nodes)
        if len(self.function_stack) > MAX_FUNCTION_DEPTH or self.expanded_nodes > self.node_budget:
            raise MegccError(f"functions call functions {MAX_FUNCTION_DEPTH} deep, or become more than "
                             f"{self.node_budget:,} nodes; write out what they compute, or leave out what is not "
                             "needed")
        self.function_stack.append(name)
        declared = zip(function.outputs, map(node.declared_shape, range(node.num_outputs)), strict=False)
        shapes = {output: shape for output, shape in declared if shape is not None}
        inner = Scope(declared=propagate_shapes(function.nodes, shapes))
        inner.values.update(zip(function.inputs, [*node.inputs, *[""] * len(function.inputs)], strict=False))
        self._check_duplicates(function.nodes, inner)
        nodes = [function.resolve(node, inner.values) for node in function.nodes]
        self._import_nodes(nodes, inner, {**self.model.opsets, **function.opsets})
        self.function_stack.pop()
        return [inner[name] if name in inner else None for name in function.outputs]
