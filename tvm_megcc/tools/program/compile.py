# SPDX-License-Identifier: Apache-2.0
"""Compiles a program: its networks, one container, one memory plan over all steps, and their order in C."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ... import api
from ...codegen import bundle, joined
from ...codegen.compiled import Compiled
from ...codegen.container import Image as Container
from ...errors import InternalError, MegccError, quoted
from ...ir.graph import Graph
from ...options import CompileOptions
from ...passes.streaming.states import expanded
from ...target import Target, parse_targets
from . import features, functions, images, operators, tokenizers
from .description import Description
from .folder import CompiledStep, Folder, flattened, reordered_states
from .kinds import KINDS
from .names import Named
from .steps import Feature, Image, Loop, NamedFunction, Network, Operator, Tokenizer, ValueType

#: The most rows of states that are reordered.
_MOST_ROWS = 64
#: Options of a network that a program cannot have.
_NO_OPTIONS = {"ram": "memory is planned for all steps", "flash": "the container is that of all networks",
               "regions": "memory is planned for all steps", "threads": "all networks have those of the program"}


def write(program: Description, folder: str | Path, target: str = "native", force: bool = False, threads: int = 1
          ) -> Path:
    """Compiles a program and writes its folder, which `tvm_megcc.load` loads. Returns the folder.

    Args:
        target: one CPU, as `megcc list targets` shows them.
        force: replace an existing folder whatever it contains.
        threads: the largest number of workers that share the work of a network.

    Raises:
        MegccError: for a type that does not fit where it goes, saying both ends; a network that cannot be compiled; and
            as `bundle.write`.
    """
    targets = parse_targets(target)
    if len(targets) != 1 or targets[0].bare_metal:
        raise MegccError(f"'{target}': a program is compiled for one CPU that has files; 'megcc list targets' shows "
                         "them")
    compiler = _Compiler(program, targets[0], CompileOptions(threads=threads).threads)  # checks the number
    steps = compiler.compiled(program.named)
    types = compiler.types
    for name, state in program.states.items():
        if types[state.next] != types[name]:
            raise MegccError(f"states.{name} is {types[name]}, and its next value {quoted(state.next)} of "
                             f"{compiler.origins[state.next]} is {types[state.next]}")
    if not any(step.artifact for step in flattened(steps)):
        raise MegccError(f"{program.name} has no network, operator or feature: for images alone there is 'megcc cv'")
    _require_names_of_lengths(program, types)
    output = Folder(program, steps, types, targets[0], compiler.threads)
    return bundle.write(output.artifacts, folder, force=force, program=output.program())


def _require_names_of_lengths(program: Description, types: Mapping[str, ValueType]) -> None:
    """Refuses outputs with several lengths, and names that a length has as a parameter in C."""
    ends = [*program.inputs, *program.outputs]
    for name in ends:
        if len(types[name].varying) > 1:
            raise MegccError(f"outputs: {quoted(name)} is {types[name]}, and a run decides one extent of an output at "
                             "most")
        if types[name].varying and f"{name}_length" in ends:
            raise MegccError(f"'{name}_length' is the name of the length of {quoted(name)}, so no input or output can "
                             "have it")


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Adds the step to errors that do not name it."""
    try:
        yield
    except InternalError:
        raise
    except MegccError as error:
        raise MegccError(str(error) if str(error).startswith("step ") else f"{where}: {error}") from error


class _Compiler:
    """Compiles steps in their order.

    threads: the largest number of workers of a network.
    types, origins: the type of each value so far, and what makes it, for messages.
    """

    def __init__(self, program: Description, target: Target, threads: int):
        self.name, self.target, self.threads = program.name, target, threads
        self.types = {name: ValueType.of(text) for name, text in program.inputs.items()}
        self.types |= {name: ValueType.of(state.type) for name, state in program.states.items()}
        self.origins = {name: f"inputs.{name}" for name in program.inputs}
        self.origins |= {name: f"states.{name}" for name in program.states}

    def compiled(self, rows: Iterable[Named]) -> tuple[CompiledStep, ...]:
        """Compiles the networks of steps, checks what they take, and adds the types of what they make."""
        steps = []
        for row in rows:
            with _at(row.label):
                if not isinstance(row.step, (Loop, Network, Operator)):
                    self._require_constant(row.step.taken)
                if isinstance(row.step, Loop):
                    steps.append(self._loop(row, row.step))
                elif isinstance(row.step, Image):
                    steps.append(self._image(row, row.step))
                elif isinstance(row.step, Tokenizer):
                    steps.append(self._tokenizer(row, row.step))
                else:
                    steps.append(self._network(row))
            self.origins |= dict.fromkeys(row.step.produced, row.label)
        return tuple(steps)

    def _require_constant(self, names: Iterable[str], what: str = "it") -> None:
        """Refuses values whose shape a run decides, where `what` takes values of one shape only."""
        for name in names:
            if self.types[name].varying:
                raise MegccError(f"{what} takes values of one shape, and {quoted(name)} of {self.origins[name]} is "
                                 f"{self.types[name]}")

    def _image(self, row: Named, step: Image) -> CompiledStep:
        matrix = step.settings.get("matrix")
        call = images.call(step, self.types[step.input], self.types[matrix] if isinstance(matrix, str) else None)
        self.types[step.output] = call.result
        return CompiledStep(row, image=call)

    def _tokenizer(self, row: Named, step: Tokenizer) -> CompiledStep:
        call = tokenizers.call(step, {name: self.types[value] for name, value in step.inputs.items()})
        self.types |= {value: call.results[name] for name, value in step.outputs.items()}
        return CompiledStep(row, tokenizer=call)

    def _network(self, row: Named) -> CompiledStep:
        model, options, taken, outputs = self._model(row)
        # The shapes of inputs in memory of the caller's are constant.
        options = replace(options, caller_inputs=not any(self.types[value].varying for value in taken.values()),
                          threads=self.threads)
        artifact = api.compile_changed(model, self.target, options, partial(_with_outputs, outputs, options.states),
                                       name=f"{self.name}_{row.name}")
        _require_limits(artifact, isinstance(row.step, Network))
        if isinstance(row.step, Network) and row.step.reorder:
            self._require_rows(artifact, row.step.reorder)
        ports = (*self._matched(artifact, row.label, "input", taken),
                 *self._matched(artifact, row.label, "output", outputs))
        return CompiledStep(row, _sharing(artifact), ports=ports)

    def _require_rows(self, artifact: Compiled, name: str) -> None:
        """Refuses a value `reorder` that does not number the rows of the network's states."""
        given = self.types[name]
        self._require_constant([name])
        if given.dtype != "int64" or given.elements > _MOST_ROWS:
            raise MegccError(f"'reorder' is int64[rows] of at most {_MOST_ROWS} rows, not {given} of "
                             f"{self.origins[name]}")
        rows = {row["name"]: row for row in artifact.manifest["inputs"]}
        states = [rows[name] for name in reordered_states(artifact)]
        if not states:
            raise MegccError("'reorder' is for a network with states")
        for row in states:
            if not row["shape"] or row["shape"][0] != given.elements:
                raise MegccError(f"'reorder' has {given.elements} rows, and the state {quoted(row['name'])} is "
                                 f"{row['dtype']}[{','.join(map(str, row['shape']))}]")

    def _model(self, row: Named) -> tuple[Any, CompileOptions, dict[str, str], dict[str, str]]:
        """Returns the model of a step, how it is compiled, and the values of its inputs and of its outputs."""
        step, types = row.step, self.types
        if isinstance(step, Network):
            for key, why in _NO_OPTIONS.items():
                if key in step.options:
                    raise MegccError(f"it cannot have the option '{key}': {why}")
            return step.path, CompileOptions(**step.options), dict(step.inputs), dict(step.outputs)
        if isinstance(step, Feature):
            model = features.model(step, types[step.input])
            states = features.states(model)
            return model, CompileOptions(states=states) if states else CompileOptions(), {"sound": step.input}, \
                {"features": step.output}
        if isinstance(step, NamedFunction):
            model = functions.model(step, KINDS[step.kind].functions, {name: types[value]
                                                                for name, value in step.inputs.items()})
            outputs = {f"out_{name}": value for name, value in step.outputs.items()}
            return model, CompileOptions(), dict(step.inputs), outputs
        if isinstance(step, Operator):
            options = CompileOptions(dims=operators.dims(step, types), extern=step.extern or None)
            taken = {f"in_{index}": source for index, source in enumerate(step.inputs) if isinstance(source, str)}
            return operators.model(step, types), options, taken, {
                f"out_{index}": source for index, source in enumerate(step.outputs)}
        raise InternalError(f"a step of an unknown kind: {step.kind}")

    def _loop(self, row: Named, loop: Loop) -> CompiledStep:
        types, trips = self.types, loop.max_trip_count
        self._require_constant(loop.given)
        if loop.count and (types[loop.count].dtype != "int64" or types[loop.count].elements != 1):
            raise MegccError(f"'count' is int64 with one element, not {types[loop.count]} of "
                             f"{self.origins[loop.count]}")
        for name, source in loop.for_each.items():
            given = types[source]
            if not given.shape or given.shape[0] < trips:
                raise MegccError(f"for_each.{name}: {quoted(source)} of {self.origins[source]} is {given}, and has no "
                                 f"{trips} rows for 'max_trip_count'")
            types[name] = ValueType(given.dtype, given.shape[1:] or (1,))
        for name, carried in loop.carried.items():
            types[name] = ValueType.of(carried.type) if carried.type else types[carried.initial]
        if loop.index:
            types[loop.index] = ValueType("int64", (1,))
        self.origins |= dict.fromkeys(loop.local, row.label)
        body = self.compiled(row.body)
        self._require_constant(loop.handed_on, "the end of an iteration")
        for name, carried in loop.carried.items():
            if not types[carried.next].fits(types[name]):
                raise MegccError(f"carried.{name} is {types[name]}, and its next value {quoted(carried.next)} of "
                                 f"{self.origins[carried.next]} is {types[carried.next]}")
        if loop.until and (types[loop.until].dtype != "bool" or types[loop.until].elements != 1):
            raise MegccError(f"'until' is bool with one element, not {types[loop.until]} of {self.origins[loop.until]}")
        for name, source in loop.outputs.items():
            types[name] = types[source].repeated(trips)
        types |= {name: types[source] for name, source in loop.final.items()}
        if loop.trip_count:
            types[loop.trip_count] = ValueType("int64", (1,))
        return CompiledStep(row, body=body)

    def _matched(self, artifact: Compiled, where: str, direction: str, values: Mapping[str, str]
                 ) -> Iterator[tuple[str, int, str]]:
        """Checks values against the inputs or outputs of a network, and adds types of outputs. Yields `ports` of
        `CompiledStep`.

        where: the step, for messages. direction: "input" or "output". values: port of the network -> value.
        """
        rows = artifact.manifest[f"{direction}s"]
        states = {row[direction] for row in artifact.manifest["states"]}
        offered = [row["name"] for row in rows if row["name"] not in states]
        for name in values:
            if name not in offered:
                raise MegccError(f"the network has no {direction} {quoted(name)}"
                                 + (", which is a state" if name in states else "") + "; it has " + ", ".join(offered))
        missing = [name for name in offered if name not in values]
        if direction == "input" and missing:
            raise MegccError(f"its input {quoted(missing[0])} gets no value")
        for index, row in enumerate(rows):
            if row["name"] not in values:
                continue
            value = values[row["name"]]
            if "text" in row:
                raise MegccError(f"its {direction} {quoted(row['name'])} has strings, which a program cannot have")
            found = _type_of(row, direction)
            if direction == "input" and not self.types[value].fits(found):
                raise MegccError(f"{where} requires {found} as {quoted(row['name'])}, but {quoted(value)} of "
                                 f"{self.origins[value]} is {self.types[value]}")
            if direction == "output":
                self.types[value] = ValueType.of(str(found))  # refuses types that no value can have
            yield direction, index, value


def _with_outputs(names: Collection[str], states: Mapping[str, str], graph: Graph) -> Graph:
    """Returns the graph of a network with these outputs and those that are states, so that nothing is computed for
    others. A run binds these outputs, so a network whose shapes are known has no memory for them. If it has no output
    of some name, nothing changes: a later check names all that there are.

    states: output -> input.
    """
    kept = {*names, *expanded(states, graph.inputs), *(output for output, _ in graph.states)}
    if not kept.issubset(graph.outputs):
        return graph
    dropped = set(graph.outputs) - kept
    stream = graph.stream and replace(graph.stream, outputs=tuple(
        output for output in graph.stream.outputs if output.name in kept))
    return graph.with_(outputs=tuple(name for name in graph.outputs if name in kept), stream=stream,
                       string_ports=graph.string_ports - dropped,
                       caller_outputs=frozenset() if _has_symbols(graph) else frozenset(names))


def _has_symbols(graph: Graph) -> bool:
    return any(not type_.is_static for type_ in graph.types.values())


def _type_of(row: Mapping[str, Any], direction: str) -> ValueType:
    """Returns the type of an input or output of a network.

    row: its row in the manifest.

    Raises:
        MegccError: for an extent that has no largest value.
    """
    limits = row.get("limits") or [[extent, extent] for extent in row["shape"]]
    if any(most is None for _, most in limits):
        shape = ",".join(map(str, row["shape"]))
        raise MegccError(f"the shape of its {direction} {quoted(row['name'])}, [{shape}], has no limit: " + (
            "give sizes or ranges by 'dim' or 'input-shapes'" if direction == "input" else
            "give the largest extent by 'bound'"))
    return ValueType.between(row["dtype"], *zip(*limits, strict=True)) if limits else ValueType(row["dtype"], ())


def _require_limits(artifact: Compiled, is_network: bool) -> None:
    """Refuses extents that have no largest value, for which no memory can be planned. is_network: whether the step has
    a key `bound`."""
    unlimited = sorted({name for bucket in artifact.manifest["buckets"] for name, (_, most) in bucket.items()
                        if most is None})
    if unlimited:
        bounds = ", ".join(f'"{name}=N"' for name in unlimited)
        raise MegccError("the run decides extents without a limit, and memory is planned: " + (
            f"write bound = [{bounds}], each with its largest value N (a dimension of an input: dim)" if is_network
            else "compute them in a network, which has the key 'bound'"))


def _sharing(artifact: Compiled) -> Compiled:
    """Returns the network with its states apart from the memory that it needs during a run only, so that other networks
    can use that memory between its runs."""
    return replace(artifact, image=Container(joined.with_shared_memory(artifact.image.model)))
