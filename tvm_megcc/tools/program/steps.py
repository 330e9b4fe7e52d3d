# SPDX-License-Identifier: Apache-2.0
"""The values and steps of a program's description."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Union

from ...errors import MegccError, quoted
from ...ir.types import DTYPES, ORDINARY

#: The highest sample rate in Hz.
MOST_RATE = 1 << 20
_EXTENT = r"\d{1,9}(?:\.\.\d{1,9})?"
_TYPE = re.compile(rf"([a-z0-9]+)\[(|{_EXTENT}(?:,{_EXTENT})*)\]")
#: The most bytes of a value.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class ValueType:
    """Element type and shape of a value; images are [height, width, channels].

    dtype: the element type, as numpy names it.
    shape: the largest extents. Memory is planned for them.
    least: the smallest extents, where a run decides some of them; () if it decides none.
    """

    dtype: str
    shape: tuple[int, ...]
    least: tuple[int, ...] = ()

    @staticmethod
    def of(text: object) -> ValueType:
        """Reads a type such as "uint8[480,640,3]", or "float32[1,0..80000]" where a run decides an extent.

        Raises:
            MegccError: for any other text, and for an element type or a size that no value can have.
        """
        found = _TYPE.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
        if not found or found[1] not in ORDINARY:
            raise MegccError(f"{quoted(text)} is no type: it is an element type ({', '.join(ORDINARY)}) with a shape, "
                             "such as uint8[480,640,3]")
        ends = [extent.split("..") for extent in found[2].split(",") if extent]
        type_ = ValueType.between(found[1], [int(end[0]) for end in ends], [int(end[-1]) for end in ends])
        if any(least > most for least, most in type_.extents):
            raise MegccError(f"in the type {type_} an extent is at least more than at most")
        if not 0 < type_.bytes <= _MOST_BYTES or len(type_.shape) > 8:
            raise MegccError(f"a value of type {type_} is empty or too large")
        return type_

    @staticmethod
    def between(dtype: str, least: Sequence[int], most: Sequence[int]) -> ValueType:
        """Returns the type whose extents are at least and at most these."""
        return ValueType(dtype, tuple(most), tuple(least) if tuple(least) != tuple(most) else ())

    @property
    def extents(self) -> tuple[tuple[int, int], ...]:
        """The smallest and the largest extent of each axis."""
        return tuple(zip(self.least or self.shape, self.shape, strict=True))

    @property
    def varying(self) -> tuple[int, ...]:
        """The axes whose extent a run decides."""
        return tuple(axis for axis, (least, most) in enumerate(self.extents) if least != most)

    def fits(self, other: ValueType) -> bool:
        """Whether a value of this type can be one of the other, too: equal up to extents of 1 in front, and at most as
        large where the other one's extents vary. The run compares the lower ends."""
        mine, its = (next((type_.extents[axis:] for axis, extent in enumerate(type_.extents) if extent != (1, 1)), ())
                     for type_ in (self, other))
        return self.dtype == other.dtype and len(mine) == len(its) and all(
            given == taken or (taken[0] != taken[1] and given[1] <= taken[1] and taken[0] <= given[1])
            for given, taken in zip(mine, its, strict=True))

    def repeated(self, count: int) -> ValueType:
        """Returns the type of so many values of this type; extents of 1 in front are left out.

        Raises:
            MegccError: if they are too large together.
        """
        axis = next((axis for axis, extent in enumerate(self.shape) if extent != 1), len(self.shape))
        return ValueType.of(str(ValueType(self.dtype, (count, *self.shape[axis:]))))

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return DTYPES[self.dtype].bytes * prod(self.shape)

    def __str__(self) -> str:
        extents = (str(most) if least == most else f"{least}..{most}" for least, most in self.extents)
        return f"{self.dtype}[{','.join(extents)}]"


@dataclass(frozen=True)
class State:
    """A value that is kept from run to run: zeros at first, later what the value `next` was in the last run."""

    type: str
    next: str


#: An input of a step: the name of a value, or numbers of its own.
Taken = Union[str, int, float, Sequence[Any]]


@dataclass(frozen=True)
class Step:
    """A part of a program.

    Attributes:
        name: its name in C; "" for that of its network, operator or function.
        line: its line in the file of the description, from 1; 0 without a file.
    """

    name: str = field(default="", kw_only=True)
    line: int = field(default=0, kw_only=True, compare=False)

    kind: ClassVar[str] = ""

    @property
    def taken(self) -> list[str]:
        """The values that it reads."""
        raise NotImplementedError

    @property
    def produced(self) -> list[str]:
        """The values that it computes."""
        raise NotImplementedError


class NamedEnds(Step):
    """A step whose inputs and outputs have names.

    Attributes:
        inputs: input of the step -> value of the program.
        outputs: output of the step -> value of the program.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def taken(self) -> list[str]:
        return list(self.inputs.values())

    @property
    def produced(self) -> list[str]:
        return list(self.outputs.values())


@dataclass(frozen=True)
class Network(NamedEnds):
    """A network.

    Attributes:
        path: the file of its model.
        inputs: input of the network -> value of the program.
        outputs: output of the network -> value of the program.
        options: arguments of `tvm_megcc.compile`.
        reorder: the value, int64[rows], that says for each row of its states along axis 0 which row it becomes before
            the run, as beams do that continue others; "" if rows stay.
    """

    path: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    reorder: str = ""

    kind: ClassVar[str] = "network"

    @property
    def taken(self) -> list[str]:
        return [*self.inputs.values(), *([self.reorder] if self.reorder else [])]


@dataclass(frozen=True)
class Operator(Step):
    """An operator of ONNX, such as "Softmax", or one of yours, "com.example::SoftClip".

    inputs: values and numbers in the operator's order; numbers become int64 or float32.
    outputs: the values that it makes, in its order.
    extern: the file that declares an operator of yours (docs/extern.md).
    """

    operator: str
    inputs: Sequence[Taken]
    outputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    extern: str = ""

    kind: ClassVar[str] = "operator"

    @property
    def taken(self) -> list[str]:
        return [source for source in self.inputs if isinstance(source, str)]

    @property
    def produced(self) -> list[str]:
        return list(self.outputs)


@dataclass(frozen=True)
class Function(Step):
    """A function that computes one value from another. settings: its own keys of the description."""

    function: str
    input: str
    output: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def taken(self) -> list[str]:
        return [self.input]

    @property
    def produced(self) -> list[str]:
        return [self.output]


@dataclass(frozen=True)
class Image(Function):
    """A function on an image (docs/cv.md). settings: `images.SETTINGS`."""

    kind: ClassVar[str] = "image"

    @property
    def taken(self) -> list[str]:
        matrix = self.settings.get("matrix")
        return [self.input, *([matrix] if isinstance(matrix, str) else [])]


@dataclass(frozen=True)
class Feature(Function):
    """Features of sound. settings: `features.SETTINGS`."""

    kind: ClassVar[str] = "feature"


@dataclass(frozen=True)
class NamedFunction(NamedEnds):
    """A function whose inputs and outputs have names.

    Attributes:
        inputs: input of the function -> value of the program.
        outputs: output of the function -> value of the program; outputs that nobody reads are left out.
        settings: its own keys of the description.
    """

    function: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Detection(NamedFunction):
    """A function of the outputs of an object detector: `detections.FUNCTIONS`."""

    kind: ClassVar[str] = "detection"


@dataclass(frozen=True)
class Search(NamedFunction):
    """A function from scores of frames to tokens: `searches.FUNCTIONS`."""

    kind: ClassVar[str] = "search"


@dataclass(frozen=True)
class Text(NamedFunction):
    """A function from tokens to text: `labels.FUNCTIONS`."""

    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Tokenizer(NamedFunction):
    """A tokenizer, from text to tokens: `tokenizers.call`. function: the path of its file."""

    kind: ClassVar[str] = "tokenizer"


@dataclass(frozen=True)
class Carried:
    """A value that a loop carries from one iteration to the next.

    next: the value of a step of the body that it is in the next iteration.
    initial: the value before the loop that it is in the first iteration; "" for zeros of `type`.
    """

    next: str
    initial: str = ""
    type: str = ""


@dataclass(frozen=True)
class Loop(Step):
    """Steps that run several times. Values that they make exist in one iteration only.

    Attributes:
        loop: its name.
        steps: the body. Its steps take values of earlier steps of the body and of those before the loop.
        max_trip_count: the largest number of iterations.
        count: the value that says how many iterations there are, int64 with one element; "" for `max_trip_count`.
        until: the value of the body, bool with one element, that ends the loop after an iteration in which it is true.
        for_each: value of the body -> value before the loop, whose row of the iteration it is.
        index: the value of the body that has the number of the iteration, int64[1], from 0.
        carried: values of the body that each iteration hands on.
        outputs: value after the loop -> value of the body, of which it has a row for each iteration, and then zeros.
        final: value after the loop -> carried value, as it is after the last iteration.
        trip_count: the value after the loop that has the number of iterations, int64[1].
    """

    loop: str
    steps: Sequence[Step]
    max_trip_count: int
    count: str = ""
    until: str = ""
    for_each: Mapping[str, str] = field(default_factory=dict)
    index: str = ""
    carried: Mapping[str, Carried] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    final: Mapping[str, str] = field(default_factory=dict)
    trip_count: str = ""

    kind: ClassVar[str] = "loop"

    @property
    def given(self) -> list[str]:
        """The values that the loop itself takes before its first iteration."""
        initial = [carried.initial for carried in self.carried.values() if carried.initial]
        return [*([self.count] if self.count else []), *self.for_each.values(), *initial]

    @property
    def local(self) -> list[str]:
        """The values of the body that no step makes."""
        return [*self.for_each, *self.carried, *([self.index] if self.index else [])]

    @property
    def handed_on(self) -> list[str]:
        """The values of the body's steps that are read after an iteration."""
        following = [carried.next for carried in self.carried.values()]
        return [*following, *([self.until] if self.until else []), *self.outputs.values()]

    @property
    def taken(self) -> list[str]:
        inside = {*self.local, *(name for step in self.steps for name in step.produced)}
        return [*self.given, *(name for step in self.steps for name in step.taken if name not in inside)]

    @property
    def produced(self) -> list[str]:
        return [*self.outputs, *self.final, *([self.trip_count] if self.trip_count else [])]
