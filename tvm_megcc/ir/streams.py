# SPDX-License-Identifier: Apache-2.0
"""Describes a network that takes a sequence in blocks. `passes/streaming/streams.py` creates the description, and the
manifest records it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import MegccError

_GRAMMAR = "expected axis=N, and if wanted block=N and input=NAME, with ',' between them; for example axis=2,block=64"


@dataclass(frozen=True)
class Stream:
    """The options of streaming.

    axis: the axis of the inputs that is divided into blocks (time).
    block: the number of elements of a block along the axis; 0: the extent of the inputs.
    inputs: the inputs that come in blocks; () for all.
    """

    axis: int
    block: int = 0
    inputs: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Stream:
        """Parses `"axis=2,block=64,input=audio"`; `input` may occur several times.

        Raises:
            MegccError: for a string that does not follow the grammar.
        """
        numbers: dict[str, int] = {}
        inputs: list[str] = []
        for word in (word.strip() for word in text.split(",")):
            key, _, value = (part.strip() for part in word.partition("="))
            if key == "input" and value:
                inputs.append(value)
            elif key in ("axis", "block") and key not in numbers and re.fullmatch(r"\d{1,9}", value, re.ASCII):
                numbers[key] = int(value)
            else:
                raise MegccError(f"stream '{text}': '{word}' is not understood; {_GRAMMAR}")
        if "axis" not in numbers or numbers.get("block") == 0:
            raise MegccError(f"stream '{text}': {_GRAMMAR}")
        return cls(numbers["axis"], numbers.get("block", 0), tuple(inputs))


@dataclass(frozen=True)
class StreamedOutput:
    """An output in blocks: element i of the k-th block (both from 0) is element k * block + i - latency of the result
    for the whole sequence.

    axis, block: the axis of the output that is divided into blocks, and the number of elements of a block.
    latency: the delay in elements of the output; as many elements at the beginning of a stream are meaningless.
    receptive_field: the number of input elements that an output element depends on; None for all earlier ones.
    """

    name: str
    axis: int
    block: int
    latency: int
    receptive_field: int | None


@dataclass(frozen=True)
class Streamed:
    """A network that takes blocks.

    axis, block: as in `Stream`; block is not 0.
    inputs: the inputs that come in blocks.
    states: the number of states.
    state_bytes: the size of all states.
    copied_bytes: the bytes of states that a run copies.
    """

    axis: int
    block: int
    inputs: tuple[str, ...]
    outputs: tuple[StreamedOutput, ...]
    states: int
    state_bytes: int
    copied_bytes: int

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Streamed:
        """Returns the description whose `facts()` these are."""
        outputs = tuple(StreamedOutput(**{field.name: row[field.name] for field in fields(StreamedOutput)})
                        for row in facts["outputs"])
        return cls(**{field.name: facts[field.name] for field in fields(cls)
                      if field.name not in ("inputs", "outputs")}, inputs=tuple(facts["inputs"]), outputs=outputs)

    def facts(self) -> dict[str, Any]:
        """Returns the facts for the manifest."""
        return asdict(self)

    def text(self) -> str:
        """Returns lines for the report, one for each output."""
        lines = [f"stream: blocks of {self.block} along axis {self.axis} of {', '.join(map(repr, self.inputs))}; "
                 f"{self.states} state{'s' * (self.states != 1)} of {self.state_bytes:,} bytes, "
                 f"{self.copied_bytes:,} copied for them in a run"]
        for output in self.outputs:
            field = "all that came before" if output.receptive_field is None else f"{output.receptive_field:,} elements"
            lines.append(f"  output {output.name!r}: blocks of {output.block} along axis {output.axis}, latency "
                         f"{output.latency:,}, receptive field {field}")
        return "\n".join(lines) + "\n"
