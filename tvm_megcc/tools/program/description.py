# SPDX-License-Identifier: Apache-2.0
"""Descriptions of programs: typed values, and the steps that make them in order.

A description is checked where it is made, from Python or from a file (`reading`). The types of a network's inputs and
outputs are known when it is compiled, and checked then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import MegccError, quoted
from .names import Named, flattened, named, require_name
from .steps import MOST_RATE, Loop, State, Step, ValueType

#: The largest trip count of a loop.
_MOST_ITERATIONS = 1 << 20


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
        MegccError: for a name that is invalid or taken, a value that no earlier step makes, and an impossible type or
            sample rate.
    """

    name: str
    inputs: Mapping[str, str]
    steps: Sequence[Step]
    outputs: Sequence[str]
    states: Mapping[str, State] = field(default_factory=dict)
    sample_rates: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_name(self.name, "name")
        if not self.inputs or not self.steps or not self.outputs:
            missing = next(what for what in ("inputs", "steps", "outputs") if not getattr(self, what))
            raise MegccError(f"{self.name}: a program without {missing} computes nothing")
        known = {name: f"inputs.{name}" for name in self.inputs}
        for name, state in self.states.items():
            if name in known:
                raise MegccError(f"states.{name}: there is an input of this name")
            known[name] = f"states.{name}"
            _constant_at(state.type, f"states.{name}")
        for name, text in self.inputs.items():
            if len(_type_at(text, f"inputs.{name}").varying) > 1:
                raise MegccError(f"inputs.{name}: {quoted(text)} has several extents that the caller decides; an input "
                                 "has one at most")
        for name, where in known.items():
            require_name(name, where)
        for name, rate in self.sample_rates.items():
            if name not in self.inputs or type(rate) is not int or not 1 <= rate <= MOST_RATE:
                raise MegccError(f"sample-rates.{name}: an input has a number from 1 to {MOST_RATE}")
        produced = _Scope(self.named, known).check(self.named, set(known))
        for table, names in (("outputs", list(self.outputs)), *(
                (f"states.{name}: next", [state.next]) for name, state in self.states.items())):
            for name in names:
                if name not in produced:
                    raise MegccError(f"{table}: no step makes {quoted(name)}")
        if len(set(self.outputs)) != len(self.outputs):
            raise MegccError("outputs: a value is there twice")

    @property
    def named(self) -> tuple[Named, ...]:
        """The steps with their names."""
        return named(self.steps)

    @property
    def step_names(self) -> list[str]:
        """The name of each step, also of those in loops; different ones."""
        return [row.name for row in flattened(self.named)]


class _Scope:
    """Checks that values exist where steps take them, and that each has a name of its own.

    steps: all steps of the program, for messages on values of later ones.
    defined: value -> what makes it, also for those in loops.
    """

    def __init__(self, steps: Sequence[Named], defined: Mapping[str, str]):
        self.steps, self.defined = steps, dict(defined)

    def check(self, steps: Sequence[Named], visible: set[str]) -> set[str]:
        """Checks steps that take visible values and those of steps before them. Adds the values that they make to
        `visible`, and returns them."""
        before = set(visible)
        for row in steps:
            if isinstance(row.step, Loop):
                self._check_loop(row, row.step, visible)
            for name in row.step.taken:
                self._require(row, name, visible)
            if not row.step.produced:
                raise MegccError(f"{row.label} makes no value")
            for name in row.step.produced:
                self._define(name, row)
                visible.add(name)
        return visible - before

    def _check_loop(self, row: Named, loop: Loop, visible: set[str]) -> None:
        if type(loop.max_trip_count) is not int or not 1 <= loop.max_trip_count <= _MOST_ITERATIONS:
            raise MegccError(f"{row.label}: 'max_trip_count' is a number from 1 to {_MOST_ITERATIONS}")
        if not loop.steps:
            raise MegccError(f"{row.label} has no steps")
        for name in loop.given:  # what its steps take is checked with them
            self._require(row, name, visible)
        for name in loop.local:
            self._define(name, row)
        for name, carried in loop.carried.items():
            if bool(carried.initial) == bool(carried.type):
                raise MegccError(f"{row.label}: carried.{name} has 'next', and 'initial' or 'type'")
            if carried.type:
                _constant_at(carried.type, f"{row.label}: carried.{name}")
        of_body = self.check(row.body, visible | set(loop.local))
        for name in loop.handed_on:
            if name not in of_body:
                raise MegccError(f"{row.label}: no step of it makes {quoted(name)}")
        for name in loop.final.values():
            if name not in loop.carried:
                raise MegccError(f"{row.label}: final: it carries no value {quoted(name)}")

    def _require(self, row: Named, name: str, visible: set[str]) -> None:
        if name in visible:
            return
        inside = name in self.defined
        later = any(name in other.step.produced for other in flattened(self.steps))
        raise MegccError(f"{row.label} uses {quoted(name)}, which " + (
            "exists in a loop only: 'outputs' or 'final' of the loop give it to later steps" if inside else
            "is the output of a later step" if later else "is neither an input nor the output of a step"))

    def _define(self, name: str, row: Named) -> None:
        require_name(name, row.label)
        if name in self.defined:
            raise MegccError(f"{row.label} makes {quoted(name)}, which {self.defined[name]} is already")
        self.defined[name] = row.label


def _constant_at(text: object, where: str) -> None:
    if _type_at(text, where).varying:
        raise MegccError(f"{where}: {quoted(text)} has an extent that a run decides; here the shape is constant")


def _type_at(text: object, where: str) -> ValueType:
    try:
        return ValueType.of(text)
    except MegccError as error:
        raise MegccError(f"{where}: {error}") from None
