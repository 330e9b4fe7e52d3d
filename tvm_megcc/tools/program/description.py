# SPDX-License-Identifier: Apache-2.0
"""Descriptions of programs: typed values, and the steps that make them in order.

A description is checked where it is made, from Python or from a file (`reading`). The
types of a network's inputs and outputs are known when it is compiled, and checked then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Union

from ...errors import MegccError, quoted
from ...ir.types import DTYPES, ORDINARY

#: Names of C, and those that the generated function has itself.
_RESERVED = frozenset(
    "auto break case catch char class const continue default delete do double else enum explicit extern float for "
    "friend goto if inline int long mutable namespace new operator private protected public register restrict return "
    "short signed sizeof static struct switch template this throw try typedef typename union unsigned using virtual "
    "void volatile while bool true false and or not xor asm main error from to program status matrix value fill "
    "pixels i failed open_network memcpy memset data size memory bytes at container block models".split())
#: The highest sample rate in Hz.
MOST_RATE = 1 << 20
#: How macros of inputs and outputs begin.
_MACROS = ("in_", "out_")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TYPE = re.compile(r"([a-z0-9]+)\[(|\d{1,9}(?:,\d{1,9})*)\]")
#: The most bytes of a value.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class ValueType:
    """Element type and shape of a value; images are [height, width, channels]."""

    dtype: str
    shape: tuple[int, ...]

    @staticmethod
    def of(text: object) -> ValueType:
        """Reads a type such as "uint8[480,640,3]".

        Raises:
            MegccError: for any other text, and for an element type or a size that no value can have.
        """
        found = _TYPE.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
        if not found or found[1] not in ORDINARY:
            raise MegccError(f"{quoted(text)} is no type: it is an element type ({', '.join(ORDINARY)}) with a shape, "
                             "such as uint8[480,640,3]")
        type_ = ValueType(found[1], tuple(int(extent) for extent in found[2].split(",") if extent))
        if not 0 < type_.bytes <= _MOST_BYTES or len(type_.shape) > 8:
            raise MegccError(f"a value of type {type_} is empty or too large")
        return type_

    def fits(self, other: ValueType) -> bool:
        """Whether a value of this type is one of the other, too: equal up to extents of 1 in front."""
        mine, its = (next((shape[axis:] for axis, extent in enumerate(shape) if extent != 1), ())
                     for shape in (self.shape, other.shape))
        return self.dtype == other.dtype and mine == its

    @property
    def bytes(self) -> int:
        return DTYPES[self.dtype].bytes * prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class State:
    """A value that is kept from run to run: zeros at first, later what the value `next` was in the last run."""

    type: str
    next: str


#: An input of a step: the name of a value, or numbers of its own.
Taken = Union[str, int, float, Sequence[Any]]


@dataclass(frozen=True)
class Step:
    """A part of a program. name: that of what it runs, unless another is given. line: of its file, 0 without one."""

    name: str = field(default="", kw_only=True)
    line: int = field(default=0, kw_only=True, compare=False)

    kind: ClassVar[str] = ""

    @property
    def taken(self) -> list[str]:
        """The values that it takes."""
        raise NotImplementedError

    @property
    def produced(self) -> list[str]:
        """The values that it makes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Network(Step):
    """A network. path: its file. inputs, outputs: its names -> values. options: as `tvm_megcc.compile` takes them."""

    path: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)

    kind: ClassVar[str] = "network"

    @property
    def taken(self) -> list[str]:
        return list(self.inputs.values())

    @property
    def produced(self) -> list[str]:
        return list(self.outputs.values())


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
    """A function with settings, its own keys, that makes one value of one."""

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
class NamedFunction(Step):
    """A function with settings, its own keys, whose inputs and outputs have names.

    inputs, outputs: its names -> values; outputs that nobody wants are left out.
    """

    function: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def taken(self) -> list[str]:
        return list(self.inputs.values())

    @property
    def produced(self) -> list[str]:
        return list(self.outputs.values())


@dataclass(frozen=True)
class Detection(NamedFunction):
    """A function between a detector and what is done with its boxes: `detections.FUNCTIONS`."""

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
class Description:
    """A program as values and steps.

    Attributes:
        name: prefix of everything that is generated.
        inputs: what a run takes: name -> type, such as {"frame": "uint8[480,640,3]"}.
        steps: in the order of a run; a step takes inputs, states and values of earlier steps.
        outputs: the values of steps that a run gives.
        states: values that are kept from run to run, by name.
        sample_rates: samples a second of those inputs that are sounds, so that a file with other ones is refused. That
            of an input which a `feature` takes is known.

    Raises:
        MegccError: for a name that is none or taken, a value that no earlier step makes, and an impossible type or
            sample rate.
    """

    name: str
    inputs: Mapping[str, str]
    steps: Sequence[Step]
    outputs: Sequence[str]
    states: Mapping[str, State] = field(default_factory=dict)
    sample_rates: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_name(self.name, "name")
        if not self.inputs or not self.steps or not self.outputs:
            missing = next(what for what in ("inputs", "steps", "outputs") if not getattr(self, what))
            raise MegccError(f"{self.name}: a program without {missing} computes nothing")
        known = {name: f"inputs.{name}" for name in self.inputs}
        for name, state in self.states.items():
            if name in known:
                raise MegccError(f"states.{name}: there is an input of this name")
            known[name] = f"states.{name}"
            _type_at(state.type, f"states.{name}")
        for name, text in self.inputs.items():
            _type_at(text, f"inputs.{name}")
        for name, where in known.items():
            _require_name(name, where)
        for name, rate in self.sample_rates.items():
            if name not in self.inputs or type(rate) is not int or not 1 <= rate <= MOST_RATE:
                raise MegccError(f"sample-rates.{name}: an input has a number from 1 to {MOST_RATE}")
        produced: dict[str, str] = {}
        for where, step in zip(self.labels, self.steps, strict=True):
            for name in step.taken:
                if name not in known and name not in produced:
                    later = any(name in other.produced for other in self.steps)
                    raise MegccError(f"{where} takes {quoted(name)}, which "
                                     + ("a later step makes" if later else "is no input and no step makes"))
            if not step.produced:
                raise MegccError(f"{where} makes no value")
            for name in step.produced:
                _require_name(name, where)
                if name in known or name in produced:
                    raise MegccError(f"{where} makes {quoted(name)}, which {(known | produced)[name]} is already")
                produced[name] = where
        for table, names in (("outputs", list(self.outputs)), *(
                (f"states.{name}: next", [state.next]) for name, state in self.states.items())):
            for name in names:
                if name not in produced:
                    raise MegccError(f"{table}: no step makes {quoted(name)}")
        if len(set(self.outputs)) != len(self.outputs):
            raise MegccError("outputs: a value is there twice")

    @property
    def step_names(self) -> list[str]:
        """The name of each step, a C identifier; different ones."""
        found: list[str] = []
        for step in self.steps:
            name, count = step.name or _default_name(step), 1
            while name in found:
                count += 1
                name = f"{step.name or _default_name(step)}_{count}"
            found.append(name)
        return found

    @property
    def labels(self) -> list[str]:
        """The name of each step in messages."""
        for index, step in enumerate(self.steps):
            if step.name:
                _require_name(step.name, f"step {index + 1}: name")
                if step.name.startswith(_MACROS):
                    raise MegccError(f"step {index + 1}: name: '{step.name}' begins as macros of inputs and outputs do")
        return [f"step {index + 1} '{name}'" for index, name in enumerate(self.step_names)]


def located(error: MegccError, steps: Sequence[Step]) -> str:
    """Returns the message of an error, with the line of the file before it if it begins with a step."""
    found = re.match(r"step (\d+)\b", str(error))
    line = steps[int(found[1]) - 1].line if found else 0
    return f"line {line}: {error}" if line else str(error)


def _default_name(step: Step) -> str:
    text = {"network": lambda: step.path.replace("\\", "/").split("/")[-1].rsplit(".", 1)[0],  # type: ignore[attr-defined]
            "operator": lambda: step.operator.split("::")[-1]}.get(step.kind, lambda: step.function)()  # type: ignore[attr-defined]
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:30]
    return name if _is_name(name) and not name.startswith(_MACROS) else f"{step.kind}_{name}".rstrip("_")


def _is_name(text: str) -> bool:
    """Whether C takes it; names that end in _t are types of its headers."""
    return bool(_NAME.fullmatch(text)) and text not in _RESERVED and not text.startswith("megcc") \
        and not text.endswith("_t")


def _require_name(name: object, where: str) -> None:
    if not isinstance(name, str) or not _is_name(name):
        raise MegccError(f"{where}: {quoted(name)} cannot be a name: small letters, digits and _, beginning with a "
                         "letter, at most 40, and no word of C")


def _type_at(text: object, where: str) -> ValueType:
    try:
        return ValueType.of(text)
    except MegccError as error:
        raise MegccError(f"{where}: {error}") from None
