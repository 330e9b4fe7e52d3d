# SPDX-License-Identifier: Apache-2.0
"""Imports the nodes of graphs, subgraphs and functions: resolves names, calls the importer of each operator, and
collects all problems."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ...errors import MegccError, ShapeError, quoted
from ...ir.graph import in_order
from . import control, sequences
from .builder import Builder, Node
from .builder import Checkpoint as BuilderCheckpoint
from .checks import check_schema, find_cycle, has_schema, label, propagate_shapes
from .dynamic_lstm import dynamic_lstm
from .experts import import_qmoe
from .functions import Function, function_of, has_function_body
from .load import LoadedModel, TensorError, reads, tensor_array
from .refused import REFUSED, REFUSED_DOMAINS
from .sequences import IMPORTERS as SEQUENCES
from .sequences import Sequences

#: The deepest nesting of function calls.
MAX_FUNCTION_DEPTH = 40
#: The most nodes that functions and unrolled loops may expand to, at least; a large file may expand to
#: `NODES_PER_FILE_NODE` times its own nodes. Without a limit, twenty functions that each call the next one twice give a
#: million nodes.
NODE_BUDGET, NODES_PER_FILE_NODE = 20_000, 4
#: The most imports of subgraph nodes, as a multiple of that budget: a nested body is imported again with each body
#: around it.
IMPORTS_PER_NODE = 4

#: Operators with subgraphs: name -> importer.
CONTROL = {"If": control.import_if, "Loop": control.import_loop, "Scan": control.import_scan,
           "SequenceMap": sequences.import_map, "com.microsoft::DynamicQuantizeLSTM": dynamic_lstm,
           "com.microsoft::QMoE": import_qmoe}

#: Exceptions that numpy and Python raise if operands and attributes of a node contradict each other.
_CONTRADICTIONS = (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError, MemoryError)

_SEQUENCE_GIVEN = "requires tensors; an operand is a sequence, or an optional without a value"

#: Emits the operators of a node and returns the names of its outputs' values.
NodeImporter = Callable[[Node], tuple[str, ...]]


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


@dataclass(frozen=True)
class Checkpoint:
    """A state of an import that can be restored. num_findings: how many there are."""

    builder: BuilderCheckpoint
    num_findings: int
    expanded_nodes: int


class Importer:
    """The import of a model's nodes into a builder.

    importers: operator -> importer; an operator outside of ONNX's domain has the name "domain::operator".
    findings: the problems, which become one error. warnings: shown only if the import succeeds.
    has_unknown_operator: whether no importer or function was found for an operator.
    has_unsupported_node: whether a node is not supported, as opposed to one that contradicts the input shapes.
    function_stack: (domain, name) of the functions that are being expanded, from the outermost.
    expanded_nodes: the number of nodes of functions and subgraphs in the graph.
    imported_nodes: the same with the nodes that were imported only to learn the types of a loop or branch.
    """

    def __init__(self, model: LoadedModel, importers: Mapping[str, NodeImporter], bounds: dict[str, int]):
        self.model = model
        self.graph = model.proto.graph
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

    def checkpoint(self) -> Checkpoint:
        """Returns the current state, for `restore`."""
        return Checkpoint(self.builder.checkpoint(), len(self.findings), self.expanded_nodes)

    def findings_since(self, checkpoint: Checkpoint) -> list[str]:
        return self.findings[checkpoint.num_findings:]

    def restore(self, checkpoint: Checkpoint) -> None:
        """Drops the operators, constants, findings and expanded nodes that were added since."""
        self.builder.restore(checkpoint.builder)
        del self.findings[checkpoint.num_findings:]
        self.expanded_nodes = checkpoint.expanded_nodes

    def _add_initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            if tensor.name in scope.values:
                self.findings.append(f"initializer {quoted(tensor.name)}: the name is used twice; rename one of them")
                continue
            try:
                array = tensor_array(tensor, self.model.folder, self.builder.strings)
                is_string = tensor.data_type == onnx.TensorProto.STRING
                scope.values[tensor.name] = self.builder.weight(array, tensor.name, is_string)
            except TensorError as error:
                self.findings.append(f"initializer {quoted(tensor.name)}: {error}")
                scope.values[tensor.name] = None
        for tensor in graph.sparse_initializer:
            name = tensor.values.name
            self.findings.append(f"initializer {quoted(name)}: is sparse, which is not supported; make it dense")
            scope.values[name] = None

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

    def _import_nodes(self, nodes: Sequence[onnx.NodeProto], scope: Scope, opsets: Mapping[str, int]) -> None:
        """Imports nodes and adds their outputs to the scope. opsets: operator set of each domain."""
        self._check_reads(nodes, scope)
        for node in self._topological_order(nodes, scope):
            self._import_node(node, scope, opsets)

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
        unknown = any(scope[name] is None for name in reads(proto))
        inputs = [scope[name] or "" if name else "" for name in proto.input]
        domain = proto.domain if proto.domain != "ai.onnx" else ""
        node = Node(self.builder, proto, inputs, opsets.get(domain or "ai.onnx", 1), self.model.folder,
                    [scope.declared.get(name) for name in proto.output])
        first_op, num_values = len(self.builder.ops), len(self.builder.types)
        values: list[str | None] = []
        try:
            values = self._import_values(proto, node, domain, scope, opsets, unknown)
        except (MegccError, TensorError) as error:
            # An If drops a branch that contradicts the shapes (ShapeError), but not one that is only unsupported.
            self.has_unsupported_node = self.has_unsupported_node or not isinstance(error, ShapeError)
            self.findings.append(f"{label(proto)}: {error}")
        except (*_CONTRADICTIONS, AttributeError) as error:
            # Importers read attributes that only the schema guarantees: without a schema they may be None, which raises
            # AttributeError. With one, an AttributeError is a bug of ours.
            if isinstance(error, AttributeError) and has_schema(proto, domain, node.opset):
                raise
            operands = ", ".join(str(node.type(index)) for index in range(len(inputs)))
            attributes = ", ".join(attribute.name for attribute in proto.attribute) or "none"
            self.findings.append(f"{label(proto)}: its operands ({operands}) and attributes ({attributes}) contradict "
                                 "each other, or what the operator is defined for; export the model again")
        # `types` keeps the order of insertion, so the values that this node added are the last ones.
        new_values = set(itertools.islice(reversed(self.builder.types), len(self.builder.types) - num_values))
        values += [None] * (len(proto.output) - len(values))
        results = [(name, value) for name, value in zip(proto.output, values, strict=False) if name]
        uses = Counter(values)
        # A value that this node added, and that is one of its results only, gets the result's name in the file.
        names = {value: self.builder.unique(name) for name, value in results
                 if value is not None and value != name and value in new_values and uses[value] == 1}
        self.builder.rename(names, first_op)
        scope.values.update((name, value and names.get(value, value)) for name, value in results)

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
            self.builder.strings.returns_strings(name, node.inputs)  # raises an error if an operand is a string tensor
        if name in CONTROL:
            return [] if unknown else CONTROL[name](self, node, proto, scope, opsets)
        if name in SEQUENCES:
            return [] if unknown else [*sequences.import_operator(self.sequences, name, node)]
        given_sequences = [input_ for input_ in node.inputs if input_ in self.sequences]
        if name == "Identity" and given_sequences:
            return [given_sequences[0]]
        if name in REFUSED or domain in REFUSED_DOMAINS:
            raise MegccError(REFUSED.get(name) or REFUSED_DOMAINS[domain])
        if name in self.importers:
            check_schema(proto, domain, node.opset)
            if given_sequences:
                raise MegccError(_SEQUENCE_GIVEN)
            return [] if unknown else self._import_operator(name, node, proto)
        types = None if unknown or given_sequences else [node.type(index) for index in range(len(node.inputs))]
        function = function_of(self.model.proto, proto, domain, node.opset, types)
        if function is not None:
            return [] if unknown else self._import_function((domain, proto.op_type), function, node)
        if has_function_body(proto, domain, node.opset):  # a body that depends on the types of its operands
            if unknown:
                return []
            raise MegccError(_SEQUENCE_GIVEN)
        self.has_unknown_operator = True
        raise MegccError("this operator is not supported")

    def _import_operator(self, name: str, node: Node, proto: onnx.NodeProto) -> list[str | None]:
        """Calls the importer of an operator and returns the values of the outputs, marked as strings where they are."""
        reduces = node.attr("reduction", "none") not in ("none", b"none")
        returns_strings = self.builder.strings.returns_strings(name, node.inputs, reduces)
        with self.builder.importing(label(proto)):
            values = self.importers[name](node)
        if not returns_strings:
            return list(values)
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
        return self.builder.weight(strings, node.outputs[0], is_string=True)

    def inline(self, graph: onnx.GraphProto, scope: Scope, opsets: Mapping[str, int],
               values: Mapping[str, str | None]) -> list[str | None]:
        """Imports a subgraph in place, with the given values as its inputs, and returns the values of its outputs."""
        self.expanded_nodes += len(graph.node)
        self.imported_nodes += len(graph.node)
        if self.expanded_nodes > self.node_budget:
            raise MegccError(f"loops and functions expand to more than {self.node_budget:,} nodes")
        if self.imported_nodes > IMPORTS_PER_NODE * self.node_budget:
            raise MegccError(f"loops and branches are nested too deeply: their bodies have more than "
                             f"{IMPORTS_PER_NODE * self.node_budget:,} nodes, counted again for each body around them")
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
            raise MegccError(f"functions call functions {MAX_FUNCTION_DEPTH} deep, or expand to more than "
                             f"{self.node_budget:,} nodes; write out what they compute, or leave out what is not "
                             "needed")
        self.function_stack.append(name)
        declared = zip(function.outputs, map(node.declared_shape, range(node.num_outputs)), strict=False)
        shapes = {output: shape for output, shape in declared if shape is not None}
        inner = Scope(declared=propagate_shapes(function.nodes, shapes))
        inner.values.update(zip(function.inputs, [*node.inputs, *[""] * len(function.inputs)], strict=False))
        self._check_duplicates(function.nodes, inner)
        nodes = [function.resolve(body_node, inner.values) for body_node in function.nodes]
        self._import_nodes(nodes, inner, {**self.model.opsets, **function.opsets})
        self.function_stack.pop()
        return [inner[name] if name in inner else None for name in function.outputs]
