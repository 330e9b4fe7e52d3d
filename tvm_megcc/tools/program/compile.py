# SPDX-License-Identifier: Apache-2.0
"""Compiles a program: its networks, one container, one memory plan over all steps, and their order in C."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import api
from ...codegen import bundle, joined
from ...codegen.c_source.render import environment
from ...codegen.compiled import Compiled
from ...codegen.container import Image as Container
from ...codegen.memory.offsets import Buffer, MemoryPlan, plan
from ...codegen.packages import image_library
from ...errors import InternalError, MegccError, quoted
from ...foreign import c_string
from ...ir.types import DTYPES
from ...options import CompileOptions
from ...target import Target, parse_targets
from ...version import VERSION
from . import features, functions, images, operators
from .description import Description, Feature, Image, NamedFunction, Network, Operator, Step, ValueType
from .kinds import KINDS

#: Options of a network that a program cannot have.
_NO_OPTIONS = {"ram": "memory is planned for all steps", "flash": "the container is that of all networks",
               "regions": "memory is planned for all steps", "threads": "networks run on one thread"}


@dataclass(frozen=True)
class _Compiled:
    """A step after its network was compiled. artifact, image: one of them. ports: (direction, index, value) of each
    value that it takes or makes."""

    name: str
    where: str
    step: Step
    artifact: Compiled | None = None
    image: images.Call | None = None
    ports: tuple[tuple[str, int, str], ...] = ()


def write(program: Description, folder: str | Path, target: str = "native", force: bool = False) -> Path:
    """Compiles a program and writes its folder, which `tvm_megcc.load` loads. Returns the folder.

    Args:
        target: one CPU, as `megcc list targets` shows them.
        force: replace an existing folder whatever it contains.

    Raises:
        MegccError: for a type that does not fit where it goes, saying both ends; a network that cannot be compiled; and
            as `bundle.write`.
    """
    targets = parse_targets(target)
    if len(targets) != 1 or targets[0].bare_metal:
        raise MegccError(f"'{target}': a program is compiled for one CPU that has files; 'megcc list targets' shows "
                         "them")
    types = {name: ValueType.of(text) for name, text in program.inputs.items()}
    types |= {name: ValueType.of(state.type) for name, state in program.states.items()}
    origins = {name: f"inputs.{name}" for name in program.inputs} | {name: f"states.{name}" for name in program.states}
    steps = []
    for name, where, step in zip(program.step_names, program.labels, program.steps, strict=True):
        with _at(where):
            steps.append(_compiled(program.name, name, where, step, types, origins, targets[0]))
        origins |= dict.fromkeys(step.produced, where)
    for name, state in program.states.items():
        if types[state.next] != types[name]:
            raise MegccError(f"states.{name} is {types[name]}, and its next value {quoted(state.next)} of "
                             f"{origins[state.next]} is {types[state.next]}")
    if not any(step.artifact for step in steps):
        raise MegccError(f"{program.name} has no network, operator or feature: for images alone there is 'megcc cv'")
    steps = [replace(step, artifact=_sharing(step.artifact)) if step.artifact else step for step in steps]
    output = _Folder(program, steps, types, targets[0])
    return bundle.write(output.artifacts, folder, force=force, program=output.program())


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Adds the step to errors that do not name it."""
    try:
        yield
    except InternalError:
        raise
    except MegccError as error:
        raise MegccError(str(error) if str(error).startswith("step ") else f"{where}: {error}") from error


def _compiled(prefix: str, name: str, where: str, step: Step, types: dict[str, ValueType], origins: Mapping[str, str],
              target: Target) -> _Compiled:
    """Compiles the network of a step, checks what it takes, and adds the types of what it makes."""
    if isinstance(step, Image):
        matrix = step.settings.get("matrix")
        call = images.call(step, types[step.input], types[matrix] if isinstance(matrix, str) else None)
        types[step.output] = call.result
        return _Compiled(name, where, step, image=call)
    if isinstance(step, Network):
        for key, why in _NO_OPTIONS.items():
            if key in step.options:
                raise MegccError(f"it cannot have the option '{key}': {why}")
        model: Any = step.path
        options = CompileOptions(**step.options)
        taken, outputs = dict(step.inputs), dict(step.outputs)
    else:
        options = CompileOptions(extern=step.extern) if isinstance(step, Operator) and step.extern else CompileOptions()
        if isinstance(step, Feature):
            model, taken, outputs = features.model(step, types[step.input]), {"sound": step.input}, \
                {"features": step.output}
            if states := features.states(model):
                options = CompileOptions(states=states)
        elif isinstance(step, NamedFunction):
            model = functions.model(step, KINDS[step.kind][1], {name: types[value]
                                                                for name, value in step.inputs.items()})
            taken, outputs = dict(step.inputs), {f"out_{name}": value for name, value in step.outputs.items()}
        elif isinstance(step, Operator):
            model = operators.model(step, types)
            taken = {f"in_{index}": source for index, source in enumerate(step.inputs) if isinstance(source, str)}
            outputs = {f"out_{index}": source for index, source in enumerate(step.outputs)}
        else:
            raise InternalError(f"a step of an unknown kind: {step.kind}")
    artifact = api.compile(model, target, replace(options, caller_inputs=True), name=f"{prefix}_{name}")
    ports = (*_matched(artifact, where, "input", taken, types, origins),
             *_matched(artifact, where, "output", outputs, types, origins))
    return _Compiled(name, where, step, artifact, ports=ports)


def _matched(artifact: Compiled, where: str, direction: str, values: Mapping[str, str], types: dict[str, ValueType],
             origins: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """Checks values against the inputs or outputs of a network, and adds types of outputs."""
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
        if not all(isinstance(extent, int) for extent in row["shape"]):
            shape = ",".join(map(str, row["shape"]))
            raise MegccError(f"the shape of its {direction} {quoted(row['name'])}, [{shape}], changes: "
                             "give sizes by 'dim' or 'input-shapes'")
        if "text" in row:
            raise MegccError(f"its {direction} {quoted(row['name'])} has strings, which a program cannot have")
        found = ValueType(row["dtype"], tuple(row["shape"]))
        if direction == "input" and not types[value].fits(found):
            raise MegccError(f"{where} takes {found} as {quoted(row['name'])}, and {quoted(value)} of {origins[value]} "
                             f"is {types[value]}")
        if direction == "output":
            types[value] = ValueType.of(str(found))
        yield direction, index, value


def _sharing(artifact: Compiled) -> Compiled:
    """Returns the network with its states apart from the memory that it needs during a run only."""
    return replace(artifact, image=Container(joined.with_shared_memory(artifact.image.model)))


class _Folder:
    """The files of a program beside those of its networks."""

    def __init__(self, program: Description, steps: Sequence[_Compiled], types: Mapping[str, ValueType],
                 target: Target):
        self.description, self.steps, self.types, self.target = program, steps, types, target
        self.artifacts = [step.artifact for step in steps if step.artifact]
        self.joined = joined.join([artifact.image.model for artifact in self.artifacts])
        self.alignment = max([16, *(artifact.manifest["alignment"] for artifact in self.artifacts)])
        self.plan = self._plan()
        if self.plan.arena_bytes >= 1 << 31:
            raise MegccError(f"{program.name}: its steps need {self.plan.arena_bytes:,} bytes of memory, too many")

    def _plan(self) -> MemoryPlan:
        """Plans the memory of all steps: values from the step that makes them to the last one that takes them, what
        networks and functions need while they run, and states."""
        last: dict[str, int] = {}
        end = len(self.steps)
        for index, step in enumerate(self.steps):
            last |= dict.fromkeys((*step.step.taken, *step.step.produced), index)
        last |= {state.next: end for state in self.description.states.values()}
        buffers = [Buffer(name, self.types[name].bytes, 0, end, kind="state") for name in self.description.states]
        for index, step in enumerate(self.steps):
            buffers += [Buffer(name, self.types[name].bytes, index, last[name])
                        for name in step.step.produced if name not in self.description.outputs]
            work = self._shared(step)
            if work:
                buffers.append(Buffer(f"{step.name} work", work, index, index, kind="workspace"))
        return plan(buffers, self.alignment)

    @staticmethod
    def _shared(step: _Compiled) -> int:
        """Returns the bytes that a step needs while it runs."""
        if step.image:
            return step.image.work
        assert step.artifact is not None
        return max(joined.shared_bytes(row) for row in step.artifact.image.model.programs)

    def program(self) -> bundle.Program:
        """Returns the files, the joined container, and the facts for the manifest."""
        name, context = self.description.name, self._context()
        written = {file: environment().get_template(f"program/{template}.j2").render(context).encode()
                   for file, template in ((f"{name}.h", "program.h"), (f"{name}.c", "program.c"),
                                          ("main.c", "main.c"), ("README.md", "README.md"))}
        if context["images"]:
            written |= {path: content for path, content in image_library.files(self.target).items()
                        if not path.startswith("include/")}
            written |= {path.replace("include/", "runtime/include/", 1): content
                        for path, content in image_library.files(self.target).items() if path.startswith("include/")}
        facts = {"name": name, "inputs": context["facts"]["inputs"], "outputs": context["facts"]["outputs"],
                 "texts": [text for step in self.steps if isinstance(step.step, NamedFunction)
                           and step.step.kind == "text"
                           and (text := step.step.outputs.get("text")) in self.description.outputs],
                 "block_bytes": self.plan.arena_bytes, "lower_bound": self.plan.lower_bound,
                 "weight_bytes": self.joined.weight_bytes, "container_bytes": len(self.joined.data),
                 # as they would be if nothing were shared
                 "unshared": {"weight_bytes": sum(len(a.image.model.weights) for a in self.artifacts),
                              "block_bytes": sum(self._shared(step) for step in self.steps) + sum(
                                  type_.bytes for value, type_ in self.types.items()
                                  if value not in self.description.inputs and value not in self.description.outputs)},
                 "steps": [{"name": step.name, "kind": step.step.kind, "bytes": self._shared(step)}
                           for step in self.steps]}
        return bundle.Program(name, written, container=self.joined.data, facts=facts)

    def _context(self) -> dict[str, Any]:
        """Returns what the templates see."""
        description = self.description
        rates = dict(description.sample_rates) | {
            step.step.input: features.sample_rate(step.step) for step in self.steps
            if isinstance(step.step, Feature) and step.step.input in description.inputs}
        begins = iter(self.joined.begins)
        networks = [{
            "name": step.name, "model": step.artifact.name, "macro": step.artifact.name.upper(), "begin": next(begins),
            "shared": self._offset_macro(f"{step.name} work") if self._shared(step) else "",
            "shared_bytes": self._shared(step), "bound": self._bound(step, of_caller=False)}
            for step in self.steps if step.artifact]
        ports = {direction: [self._port(name, short) for name in names]
                 for direction, short, names in (("inputs", "IN", description.inputs),
                                                 ("outputs", "OUT", description.outputs))}
        return {
            "version": VERSION, "target": self.target.name, "name": description.name,
            "macro": description.name.upper(), "alignment": self.alignment, "container_bytes": len(self.joined.data),
            "block_bytes": self.plan.arena_bytes, "networks": networks, **ports,
            "images": any(step.image for step in self.steps),
            "offsets": [(self._offset_macro(key), offset) for key, offset in self.plan.offsets.items()],
            "states": [{"data": self._data(name), "next": self._data(state.next), "bytes": self.types[name].bytes}
                       for name, state in description.states.items()],
            "steps": [self._step(step) for step in self.steps],
            "facts": {direction: [{"name": name, "dtype": self.types[name].dtype, "shape": list(self.types[name].shape),
                                   **({"sample_rate": rates[name]} if name in rates else {})} for name in names]
                      for direction, names in (("inputs", description.inputs), ("outputs", description.outputs))}}

    def _port(self, name: str, short: str) -> dict[str, Any]:
        type_ = self.types[name]
        return {"name": name, "macro": f"{short}_{name.upper()}", "type": str(type_), "bytes": type_.bytes,
                "c_type": DTYPES[type_.dtype].c_type, "elements": math.prod(type_.shape)}

    @staticmethod
    def _offset_macro(key: str) -> str:
        """Returns the constant in C with the offset of a value or a workspace."""
        name, _, work = key.partition(" ")
        return f"{'WORK_OF' if work else 'AT'}_{name.upper()}"

    def _data(self, name: str) -> str:
        """Returns a pointer to a value in C."""
        if name in self.description.inputs or name in self.description.outputs:
            return name
        return f"program->block + {self._offset_macro(name)}"

    def _bound(self, step: _Compiled, of_caller: bool) -> list[dict[str, Any]]:
        """Returns what a network reads and writes: what lies in the block, or what the caller of a run gives."""
        assert step.artifact is not None
        macros = dict(zip(("input", "output"), bundle.port_macros(step.artifact), strict=True))
        return [{"direction": direction, "index": macros[direction][index], "data": self._data(value),
                 "bytes": self.types[value].bytes, "where": c_string(value)} for direction, index, value in step.ports
                if (self._data(value) == value) == of_caller]

    def _step(self, step: _Compiled) -> dict[str, Any]:
        taken = ", ".join(f"{name} {self.types[name]}" for name in step.step.taken) or "nothing"
        values = ", ".join(f"{name} {self.types[name]}" for name in step.step.produced)
        found = {"name": step.name, "where": c_string(step.name), "comment": f"{step.name}: {values} of {taken}"}
        if not step.image:
            return {**found, "bound": self._bound(step, of_caller=True), "image": None}
        return {**found, "image": self._image(step, step.image)}

    def _image(self, step: _Compiled, call: images.Call) -> dict[str, Any]:
        assert isinstance(step.step, Image)
        given, result = self.types[step.step.input], call.result
        source = self._data(step.step.input)
        if step.step.input in self.description.inputs:
            source = f"(void *)(uintptr_t){source}"
        size = DTYPES[result.dtype].bytes
        height, width, channels = given.shape
        x, y, across, down = call.rectangle
        row = result.shape[1] * result.shape[2] * size
        begin = y * row + x * result.shape[2] * size
        output = self._data(step.step.output)
        if begin:
            target = f"(unsigned char *){output} + {begin}" if output == step.step.output else f"{output} + {begin}"
        else:
            target = output
        matrix = f"(const float *)(const void *)({self._data(call.matrix)})" if isinstance(call.matrix, str) \
            else "matrix"
        arguments = [{"matrix": matrix, "value": "value" if call.value else "NULL", "work": "(void *)("
                      f"program->block + {self._offset_macro(f'{step.name} work')})"}.get(argument, argument)
                     for argument in call.arguments]
        c_type = DTYPES[result.dtype].c_type
        return {
            "function": f"{call.function}_{'u8' if result.dtype == 'uint8' else 'f32'}",
            "from": f"{source}, {width}, {height}, {channels}, {width * channels * size}",
            "to": f"{target}, {across}, {down}, {result.shape[2]}, {row}",
            "arguments": ", ".join(arguments), "c_type": c_type, "whole": f"({output})",
            "fill": [_element(number, result.dtype) for number in call.fill],
            "elements": math.prod(result.shape), "value": list(map(images.literal, call.value)),
            "matrix": [] if isinstance(call.matrix, str) else list(map(images.literal, call.matrix))}


def _element(number: float, dtype: str) -> str:
    """Returns an element of a picture in C, rounded and cut as the functions of megcc_cv do."""
    return str(min(max(round(number), 0), 255)) if dtype == "uint8" else images.literal(number)
