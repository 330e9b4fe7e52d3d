# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX models into our graph: resolves names, infers shapes, folds constants, and reports all problems in one
error."""

from __future__ import annotations

import difflib
import itertools
import logging
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from ... import ops  # noqa: F401  (registers the operators)
from ...errors import MegccError, ModelError, ShapeError, quoted, readable
from ...extern import Externs
from ...extern import load as load_externs
from ...ir.dim_text import SIZE, sizes_wanted
from ...ir.dims import static, symbols
from ...ir.graph import Graph
from ...ir.types import TensorType
from ...ops.base import DECOMPOSITIONS, OPERATORS
from .checks import declared_shape, propagate_shapes
from .externs import importers
from .input_types import InputTypes
from .load import LoadedModel, load, reads
from .nodes import Importer, NodeImporter, Scope
from .sequences import input_tensors_of, output_tensors

logger = logging.getLogger(__name__)

_UNSUPPORTED_ADVICE = ("'megcc list ops' shows the supported operators; replace the others in the model, or map "
                       "them to C functions of yours with --extern (docs/extern.md)")

#: The most inputs with open extents that a message lists.
MAX_LISTED_INPUTS = 5

_STRING = onnx.TensorProto.STRING


def import_onnx(model: str | Path | bytes | onnx.ModelProto | LoadedModel,
                input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
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
    return ModelImporter(load(model), dict(input_shapes or {}), output_names, dict(constants or {}),
                     _importers(extern), dict(bounds or {}), empty).run()


def _importers(externs: Externs | None = None) -> dict[str, NodeImporter]:
    """Returns operator -> importer, those of the user's own operators included. An operator outside of ONNX's domain
    has the name "domain::operator"."""
    declared = {name: declaration.from_onnx for declaration in OPERATORS.values() for name in declaration.onnx}
    return {**DECOMPOSITIONS, **declared, **importers(load_externs(externs))}


class ModelImporter(Importer):
    """The import of one model: its inputs, the nodes that its outputs need, and one error for all problems. Parameters
    are those of `import_onnx`; `importers` has an importer for each operator."""

    def __init__(self, model: LoadedModel, input_shapes: dict[str, Sequence[int | str | None]],
                 output_names: Sequence[str] | None, constants: dict[str, object],
                 importers: Mapping[str, NodeImporter], bounds: dict[str, int],
                 empty: Collection[str] = ()):
        super().__init__(model, importers, bounds)
        self.input_types = InputTypes(self.graph, input_shapes, frozenset(empty))
        self.input_shapes = input_shapes
        self.constant_inputs = constants
        self.has_chosen_outputs = bool(output_names)
        self.output_names = list(output_names or (value.name for value in self.graph.output))
        self.declared_strings = {value.name for value in (*self.graph.input, *self.graph.output)
                                 if value.type.tensor_type.elem_type == _STRING}

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
        # An output may be listed twice. From `_resolve_outputs` on `output_names` has tensors in place of sequences.
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
            self.findings.append(f"--constant names {quoted(seeds.name)}, but no operator draws random numbers")
        self._report(inputs)
        self.builder.unbacked.require_used(self.input_types.names)
        seed = [seeds.name] if seeds.used and seeds.value is None else []
        self._name_outputs(scope, [*inputs, *seed])
        graph = self.builder.graph(self.model.name, [*inputs, *seed],
                                   [tensor for name in declared_outputs for tensor in tensors[name]])
        if not any(name in op.inputs for op in graph.ops for name in seed):  # no output depends on random numbers
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

    def _add_inputs(self, scope: Scope, needed: Container[str]) -> list[str]:
        """Adds the inputs and returns their names. If the user chose other outputs, only needed inputs are added.

        needed: the names that the imported nodes read, and the outputs.
        """
        tensors = input_tensors_of(self, scope)  # sequences and optionals are added to the scope
        seed = self._add_seed({*self.builder.types, *self.output_names, *(value.name for value in tensors)})
        for option, wanted in (("--input-shapes", self.input_shapes), ("--constant", self.constant_inputs)):
            unknown = set(wanted) - {value.name for value in (*tensors, *self.graph.input)} - {seed}
            if unknown:
                inputs = ", ".join(value.name for value in tensors)
                self.findings.append(f"{option} names {', '.join(sorted(unknown))}, but the inputs are: {inputs}")
        self.findings += self.input_types.bind(tensors)
        names: list[str] = []
        for value in tensors:
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
                self.builder.strings.mark(str(scope.values[value.name]))
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
        constant, dtype = np.asarray(self.constant_inputs[name]), np.dtype(type_.dtype)
        if constant.dtype.kind in "UO" and name in self.declared_strings:
            constant = self.builder.strings.codes(map(str, constant.reshape(-1)), constant.shape)
        array = constant.astype(dtype) if constant.dtype.kind in "biuf" else None
        is_rounded = array is not None and dtype.kind in "biu" and not np.array_equal(array, constant)
        if array is None or is_rounded:
            raise ShapeError(f"is {type_}, which cannot hold the constant {self.constant_inputs[name]}")
        if constant.shape == type_.shape:
            return array
        if constant.size != 1 or not type_.is_static:
            raise ShapeError(f"is {type_}, the constant given for it has shape {list(constant.shape)}")
        return np.full(static(type_.shape) or (), array.reshape(()))

    def _name_outputs(self, scope: Scope, inputs: Sequence[str]) -> None:
        """Gives each output a value of the output's name: renames its value, or copies it if it is a constant, an input
        or another output. inputs: the names of the graph's inputs."""
        named_already = {name for name in self.output_names
                         if scope[name] == name and name not in self.builder.constants}
        fixed = {*inputs, *named_already}
        new_names: dict[str, str] = {}  # value -> its new name
        copied: dict[str, str] = {}  # output -> the value that is copied
        for name in self.output_names:
            value = scope[name]
            if name in named_already:
                continue
            assert value is not None, "an output that is not known ends the import"
            if value in self.builder.constants or value in fixed or value in new_names:
                copied[name] = value
            else:
                new_names[value] = name
        for name in copied:  # another value that has the name gives it up to the copy
            if name in self.builder.types and name not in new_names:
                new_names[name] = self.builder.unique(f"{name}.value")
        renamed = self.builder.rename(new_names)
        for name, value in copied.items():
            self.builder.copy(renamed.get(value, value), name)

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
