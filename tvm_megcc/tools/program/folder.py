# SPDX-License-Identifier: Apache-2.0
"""The folder of a program: one container, one memory plan over all steps, and the steps in C."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen import bundle, joined
from ...codegen.c_source.render import environment
from ...codegen.compiled import Compiled
from ...codegen.memory.offsets import Buffer, MemoryPlan, plan
from ...codegen.packages import image_library
from ...errors import MegccError
from ...foreign import c_string
from ...ir.types import DTYPES
from ...target import Target
from ...version import VERSION
from . import features, images, tokenizers
from .description import Description
from .names import Named
from .steps import Feature, Image, Loop, NamedFunction, Step, Tokenizer, ValueType
from .steps import Network as NetworkStep
from .variables import (
    Binding,
    Copy,
    ImageCall,
    Length,
    LoopCode,
    Network,
    Port,
    ProgramVariables,
    State,
    StepCode,
    TokenizerCall,
)


@dataclass(frozen=True)
class CompiledStep:
    """A step after its network was compiled. It has an artifact, an image, a tokenizer or, as a loop, a
    body.

    ports: (direction, index, value) of each input and output of a network; direction is "input" or "output".
    """

    named: Named
    artifact: Compiled | None = None
    image: images.Call | None = None
    tokenizer: tokenizers.Call | None = None
    ports: tuple[tuple[str, int, str], ...] = ()
    body: tuple[CompiledStep, ...] = ()

    @property
    def name(self) -> str:
        return self.named.name

    @property
    def step(self) -> Step:
        return self.named.step

    @property
    def work(self) -> int:
        """The bytes of working memory that it needs while it runs."""
        if self.image:
            return self.image.work
        if self.tokenizer:  # the tokens of two texts, and what the tokenizer needs
            return 2 * _TOKEN * self.tokenizer.most + self.tokenizer.work
        if self.artifact is None:
            return 0
        return max(joined.shared_bytes(program) for program in self.artifact.image.model.programs)


def flattened(steps: Sequence[CompiledStep]) -> Iterator[CompiledStep]:
    """Yields the steps in their order, those of a loop after it."""
    for step in steps:
        yield step
        yield from flattened(step.body)


@dataclass
class LiveRanges:
    """When values are needed. A loop counts as a step before its body and one after it: values from before the loop
    that its body takes are needed until its end, and those of the body within one iteration.

    now: the next step. first, last: of each value, both included. steps: when each step runs.
    """

    now: int = 0
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    steps: list[tuple[int, CompiledStep]] = field(default_factory=list)

    def add(self, steps: Sequence[CompiledStep]) -> None:
        """Adds steps, in their order."""
        for compiled in steps:
            if isinstance(compiled.step, Loop):
                self._add_loop(compiled, compiled.step)
                continue
            self._take(compiled.step.taken)
            self._make(compiled.step.produced)
            self.steps.append((self.now, compiled))
            self.now += 1

    def _add_loop(self, compiled: CompiledStep, loop: Loop) -> None:
        self._take(loop.taken)
        self._make([*loop.outputs, *loop.local])  # zeros and initial values come before the body
        self.now += 1
        self.add(compiled.body)
        self._take([*loop.taken, *loop.outputs, *loop.carried, *loop.handed_on])
        self._make([name for name in loop.produced if name not in loop.outputs])
        self.now += 1

    def _take(self, names: Sequence[str]) -> None:
        self.last |= dict.fromkeys(names, self.now)

    def _make(self, names: Sequence[str]) -> None:
        self.first |= dict.fromkeys(names, self.now)
        self._take(names)


#: Bytes of a token in the work memory of a tokenizer.
_TOKEN = 4


class Folder:
    """The files of a program beside those of its networks.

    The block is the memory of a program: states, values between steps, and the working memory of steps.
    """

    def __init__(self, program: Description, steps: Sequence[CompiledStep], types: Mapping[str, ValueType],
                 target: Target, threads: int):
        self.description, self.steps, self.types, self.target, self.threads = program, steps, types, target, threads
        self.flat = list(flattened(steps))
        self.artifacts = [step.artifact for step in self.flat if step.artifact]
        self.joined = joined.join([artifact.image.model for artifact in self.artifacts])
        self.alignment = max([16, *(artifact.manifest["alignment"] for artifact in self.artifacts)])
        self.plan = self._plan()
        if self.plan.arena_bytes >= 1 << 31:
            raise MegccError(f"{program.name}: its steps need {self.plan.arena_bytes:,} bytes of memory, and 2 GiB are "
                             "too many")

    def _plan(self) -> MemoryPlan:
        """Plans the memory of all steps: values from the step that makes them to the last one that takes them, what
        networks and functions need while they run, and states."""
        ranges = LiveRanges()
        ranges.add(self.steps)
        end = ranges.now
        last = ranges.last | {state.next: end for state in self.description.states.values()}
        buffers = [Buffer(name, self.types[name].bytes, 0, end, kind="state") for name in self.description.states]
        buffers += [Buffer(name, self.types[name].bytes, first, last[name]) for name, first in ranges.first.items()
                    if name not in self.description.outputs]
        buffers += [Buffer(f"{step.name} work", step.work, at, at, kind="workspace") for at, step in ranges.steps
                    if step.work]
        return plan(buffers, self.alignment)

    def program(self) -> bundle.Program:
        """Returns the files, the joined container, and the facts for the manifest."""
        name, context = self.description.name, self._context()
        written = {file: environment().get_template(f"program/{template}.j2").render(context).encode()
                   for file, template in ((f"{name}.h", "program.h"), (f"{name}.c", "program.c"),
                                          ("main.c", "main.c"), ("README.md", "README.md"))}
        if context["calls_images"]:
            written |= {path: content for path, content in image_library.files(self.target).items()
                        if not path.startswith("include/")}
            written |= {path.replace("include/", "runtime/include/", 1): content
                        for path, content in image_library.files(self.target).items() if path.startswith("include/")}
        written |= self._tokenizer_files()
        facts = {"name": name, **self._ports(), "strings": self._strings(),
                 "texts": [name for name in self.description.outputs if name in _strings_of(self.steps)],
                 "states": list(self.description.states), "threads": self.threads,
                 "lengths": sum(len(type_.varying) for type_ in self.types.values()),
                 "block_bytes": self.plan.arena_bytes, "lower_bound": self.plan.lower_bound,
                 "weight_bytes": self.joined.weight_bytes, "container_bytes": len(self.joined.data),
                 # as they would be if nothing were shared
                 "unshared": {"weight_bytes": sum(len(artifact.image.model.weights) for artifact in self.artifacts),
                              "block_bytes": sum(step.work for step in self.flat) + sum(
                                  type_.bytes for value, type_ in self.types.items()
                                  if value not in self.description.inputs and value not in self.description.outputs)},
                 "steps": [{"name": step.name, "kind": step.step.kind, "bytes": step.work}
                           for step in self.flat]}
        return bundle.Program(name, written, container=self.joined.data, facts=facts)

    def _context(self) -> ProgramVariables:
        """Returns the variables of the templates."""
        description, calls = self.description, self._calls()
        begins = iter(self.joined.begins)
        networks = [Network(step.name, step.artifact.name, step.artifact.name.upper(), next(begins),
                            self._offset_macro(f"{step.name} work") if step.work else "", step.work,
                            () if self._shapes(step) else self._bindings(step, of_caller=False),
                            self._shapes(step, largest=True) if step.artifact.manifest["states"] else ())
                    for step in self.flat if step.artifact]
        return {
            "version": VERSION, "target": self.target.name, "name": description.name,
            "macro": description.name.upper(), "alignment": self.alignment, "container_bytes": len(self.joined.data),
            "block_bytes": self.plan.arena_bytes, "threads": self.threads, "networks": networks,
            "inputs": [self._port(name, "IN") for name in description.inputs],
            "outputs": [self._port(name, "OUT") for name in description.outputs],
            "calls_images": any(step.image for step in self.flat),
            "tokenizers": [self._step(step) for step in self.flat if step.tokenizer],
            "tokenizer_kinds": sorted({call.kind for call in calls.values()}),
            "tokenizer_tables": [(call.kind, tables) for tables, call in calls.items()],
            "reads_trip_count": any(isinstance(step.step, Loop) and step.step.count for step in self.flat),
            "offsets": [(self._offset_macro(key), offset) for key, offset in self.plan.offsets.items()],
            "states": [State(self._data(name), self._data(state.next), self.types[name].bytes)
                       for name, state in description.states.items()],
            "lengths": [_length_field(name, axis) for name, type_ in self.types.items() for axis in type_.varying],
            "sets_shapes": any(self._shapes(step) for step in self.flat),
            "reorders": any(isinstance(step.step, NetworkStep) and step.step.reorder for step in self.flat),
            "decides_lengths": any(self._lengths(step) for step in self.flat),
            "steps": [self._step(step) for step in self.steps]}

    def _ports(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the program's inputs and outputs for the manifest."""
        description = self.description
        rates = dict(description.sample_rates) | {
            step.step.input: features.sample_rate(step.step) for step in self.flat
            if isinstance(step.step, Feature) and step.step.input in description.inputs}
        return {direction: [{"name": name, "dtype": self.types[name].dtype, "shape": list(self.types[name].shape),
                             **({"limits": list(map(list, self.types[name].extents))} if self.types[name].varying
                                else {}), **({"sample_rate": rates[name]} if name in rates else {})} for name in names]
                for direction, names in (("inputs", description.inputs), ("outputs", description.outputs))}

    def _port(self, name: str, short: str) -> Port:
        type_ = self.types[name]
        lengths = [Length(_length_field(name, axis), axis, *type_.extents[axis]) for axis in type_.varying]
        return Port(name, f"{short}_{name.upper()}", str(type_), type_.bytes, DTYPES[type_.dtype].c_type,
                    math.prod(type_.shape), lengths[0] if lengths else None)

    @staticmethod
    def _offset_macro(key: str) -> str:
        """Returns the constant in C with the offset of a value or a workspace."""
        name, _, work = key.partition(" ")
        return f"{'WORK_OF' if work else 'AT'}_{name.upper()}"

    def _is_parameter(self, name: str) -> bool:
        """Returns whether a value lies in memory of the caller, a parameter of the function that runs the program."""
        return name in self.description.inputs or name in self.description.outputs

    def _data(self, name: str) -> str:
        """Returns a pointer to a value in C."""
        return name if self._is_parameter(name) else f"program->block + {self._offset_macro(name)}"

    def _bindings(self, step: CompiledStep, of_caller: bool) -> list[Binding]:
        """Returns the inputs and outputs of a network that lie in the block or, with `of_caller`, in memory of the
        caller."""
        macros = self._macros(step)
        return [Binding(direction, macros[direction][index], self._data(value), self.types[value].bytes,
                        c_string(value))
                for direction, index, value in step.ports if self._is_parameter(value) == of_caller]

    @staticmethod
    def _macros(step: CompiledStep) -> dict[str, list[str]]:
        """Returns the macros with the indices of a network's inputs and outputs, by direction."""
        assert step.artifact is not None
        return dict(zip(("input", "output"), bundle.port_macros(step.artifact), strict=True))

    def _shapes(self, step: CompiledStep, largest: bool = False) -> list[str]:
        """Returns the shape of each input of a network as C, if a run decides some of their extents; else [].

        largest: the largest shapes, not those of the run.
        """
        taken = {index: self.types[value] for direction, index, value in step.ports if direction == "input"}
        rows = step.artifact.manifest["inputs"] if step.artifact else []
        if not any(isinstance(extent, str) for index in taken for extent in rows[index]["shape"]):
            return []
        values = {index: value for direction, index, value in step.ports if direction == "input"}
        shapes = []
        for index, row in enumerate(rows):
            rank = len(row["shape"])
            extents = [str(extent) for extent in row["shape"]]
            if index in taken:  # the last axes of the value; before them, extents are 1
                extents = (["1"] * rank + [str(extent) for extent in taken[index].shape])[-rank:] if rank else []
                for axis in () if largest else taken[index].varying:
                    extents[axis - len(taken[index].shape)] = f"program->lengths.{_length_field(values[index], axis)}"
            shapes.append(f"{{ {rank}, {{ {', '.join(extents) or '0'} }} }}")
        return shapes

    def _lengths(self, step: CompiledStep) -> list[Length]:
        """Returns the extents of its results that a network decides."""
        if step.artifact is None:
            return []
        macros = self._macros(step)["output"]
        return [Length(_length_field(value, axis), axis, *self.types[value].extents[axis], macros[index])
                for direction, index, value in step.ports if direction == "output"
                for axis in self.types[value].varying]

    def _step(self, step: CompiledStep) -> StepCode:
        """Returns a step for the templates."""
        taken = ", ".join(f"{name} {self.types[name]}" for name in dict.fromkeys(step.step.taken)) or "nothing"
        values = ", ".join(f"{name} {self.types[name]}" for name in step.step.produced)
        found = StepCode(name=step.name, error_name=c_string(step.name), comment=f"{step.name}: {values} of {taken}")
        if isinstance(step.step, Loop):
            return replace(found, loop_code=self._loop(step, step.step))
        if step.image:
            return replace(found, image=self._image(step, step.image))
        if step.tokenizer:
            return replace(found, tokenizer=self._tokenizer(step, step.tokenizer))
        shapes = self._shapes(step)
        if isinstance(step.step, NetworkStep) and step.step.reorder and step.artifact:
            names = [row["name"] for row in step.artifact.manifest["inputs"]]
            found = replace(found, reorder=self._data(step.step.reorder), rows=self.types[step.step.reorder].elements,
                            reordered=[self._macros(step)["input"][names.index(name)]
                                       for name in reordered_states(step.artifact)])
        return replace(found, bindings=[*self._bindings(step, of_caller=True),
                                        *(self._bindings(step, of_caller=False) if shapes else ())],
                       shapes=shapes, has_states=bool(step.artifact and step.artifact.manifest["states"]),
                       lengths=self._lengths(step))

    def _tables(self, path: str) -> str:
        """Returns the name of the tables of a tokenizer, which steps with the same file share."""
        return next(f"{self.description.name}_{step.name}" for step in self.flat
                    if isinstance(step.step, Tokenizer) and step.step.function == path)

    def _calls(self) -> dict[str, tokenizers.Call]:
        """Returns the name of the tables of each tokenizer -> a call of it."""
        return {self._tables(step.step.function): step.tokenizer for step in self.flat
                if step.tokenizer and isinstance(step.step, Tokenizer)}

    def _tokenizer_files(self) -> dict[str, bytes]:
        """Returns the tables of tokenizers, and the files of the runtime that read them."""
        calls = self._calls()
        if not calls:
            return {}
        return tokenizers.runtime(list(calls.values())) | {
            f"{tables}_tokenizer.c": tokenizers.source(tables, call.found).encode() for tables, call in calls.items()}

    def _strings(self) -> list[str]:
        """Returns the inputs of the program that are strings: those that tokenizers take, also row by row in a loop."""
        taken: set[str] = set()
        for step in reversed(self.flat):  # a loop comes before its body
            if isinstance(step.step, Tokenizer):
                taken |= set(step.step.taken)
            elif isinstance(step.step, Loop):
                taken |= {source for name, source in step.step.for_each.items() if name in taken}
        return [name for name in self.description.inputs if name in taken]

    def _tokenizer(self, step: CompiledStep, call: tokenizers.Call) -> TokenizerCall:
        assert isinstance(step.step, Tokenizer)
        given, results, around = step.step.inputs, step.step.outputs, call.around
        tokens, types = zip(*around.all, strict=True) if around.all else ((0,), (0,))
        return TokenizerCall(
            call.kind, self._tables(step.step.function), [(self._data(given[name]), self.types[given[name]].bytes)
                                for name in tokenizers.INPUTS if name in given],
            work=f"program->block + {self._offset_macro(f'{step.name} work')}",
            special="" if call.special is None else f" {int(call.special)},",
            unit="uint8_t" if call.kind == "wordpiece" else "uint32_t", work_bytes=call.work, most=call.most,
            layout=[call.most, len(around.before), len(around.between), len(around.after)], around=tokens,
            around_types=types, text_types=around.types, padding=call.padding,
            results=[self._data(results[name]) if name in results else "NULL" for name in tokenizers.OUTPUTS])

    def _loop(self, step: CompiledStep, loop: Loop) -> LoopCode:
        def copied(target: str, source: str, value: str) -> Copy:
            """A copy of a whole value, of its bytes."""
            return Copy(self._data(target), self._data(source), self.types[value].bytes)

        count, until, index, trip_count = (self._data(name) if name else "" for name in (
            loop.count, loop.until, loop.index, loop.trip_count))
        zeroed = (*loop.outputs, *(name for name, carried in loop.carried.items() if not carried.initial))
        return LoopCode(
            depth=step.named.depth + 1, max_trip_count=loop.max_trip_count, count=count, until=until, index=index,
            trip_count=trip_count,
            before=[Copy(self._data(name), "", self.types[name].bytes) for name in zeroed] + [
                copied(name, carried.initial, name) for name, carried in loop.carried.items() if carried.initial],
            resets=[inner.name for inner in flattened(step.body)
                    if inner.artifact and inner.artifact.manifest["states"]],
            slices=[Copy(self._data(name), self._bytes(source), self.types[name].bytes)
                    for name, source in loop.for_each.items()],
            steps=[self._step(inner) for inner in step.body],
            results=[Copy(self._bytes(name), self._data(source), self.types[source].bytes)
                     for name, source in loop.outputs.items()],
            carried=[copied(name, carried.next, name) for name, carried in loop.carried.items()],
            after=[copied(name, source, name) for name, source in loop.final.items()])

    def _bytes(self, name: str) -> str:
        """Returns a pointer to the bytes of a value in C, to which offsets are added. Inputs and outputs are parameters
        of other pointer types; values in the block are bytes already."""
        if name in self.description.inputs:
            return f"(const unsigned char *){name}"
        return f"(unsigned char *){name}" if name in self.description.outputs else self._data(name)

    def _image(self, step: CompiledStep, call: images.Call) -> ImageCall:
        assert isinstance(step.step, Image)
        given, result = self.types[step.step.input], call.result
        source = self._data(step.step.input)
        if step.step.input in self.description.inputs:
            source = f"(void *)(uintptr_t){source}"  # it is const, and the field of megcc_image is not
        size = DTYPES[result.dtype].bytes  # the image that is read has the same dtype
        height, width, channels = given.shape
        x, y, across, down = call.rectangle
        row = result.shape[1] * result.shape[2] * size
        # The part that is written begins at its upper left pixel.
        begin = y * row + x * result.shape[2] * size
        output = self._data(step.step.output)
        if begin:
            target = f"{self._bytes(step.step.output)} + {begin}"
        else:
            target = output
        matrix = f"(const float *)(const void *)({self._data(call.matrix)})" if isinstance(call.matrix, str) \
            else "matrix"
        arguments = [{"matrix": matrix, "value": "value" if call.value else "NULL", "work": "(void *)("
                      f"program->block + {self._offset_macro(f'{step.name} work')})"}.get(argument, argument)
                     for argument in call.arguments]
        return ImageCall(
            f"{call.function}_{'u8' if result.dtype == 'uint8' else 'f32'}",
            source=f"{source}, {width}, {height}, {channels}, {width * channels * size}",
            result=f"{target}, {across}, {down}, {result.shape[2]}, {row}",
            arguments=", ".join(arguments), c_type=DTYPES[result.dtype].c_type, result_data=f"({output})",
            fill=[_element(number, result.dtype) for number in call.fill],
            elements=math.prod(result.shape), border=list(map(images.literal, call.value)),
            matrix=[] if isinstance(call.matrix, str) else list(map(images.literal, call.matrix)))


def reordered_states(artifact: Compiled) -> list[str]:
    """Returns the states of a network that have rows: all but those that count the rows of KV caches."""
    counters = artifact.manifest.get("counters", ())
    return [row["input"] for row in artifact.manifest["states"] if row["input"] not in counters]


def _length_field(name: str, axis: int) -> str:
    """Returns the field in C with the extent of a value that a run decides."""
    return f"{name}_{axis}"


def _strings_of(steps: Sequence[CompiledStep]) -> set[str]:
    """Returns the values that are strings, and those that have a string in each row: results of loops."""
    found: set[str] = set()
    for compiled in steps:
        step = compiled.step
        if isinstance(step, NamedFunction) and step.kind == "text":
            found |= {value for output, value in step.outputs.items() if output == "text"}
        elif isinstance(step, Loop):
            inner = _strings_of(compiled.body)
            found |= {name for name, source in {**step.outputs, **step.final}.items() if source in inner}
    return found


def _element(number: float, dtype: str) -> str:
    """Returns an element of a picture in C, rounded and cut as the functions of megcc_cv do."""
    return str(min(max(round(number), 0), 255)) if dtype == "uint8" else images.literal(number)
