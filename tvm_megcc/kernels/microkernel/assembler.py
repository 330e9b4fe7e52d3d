# SPDX-License-Identifier: Apache-2.0
"""Statements of inline assembler (GCC's extended asm). A tile that uses all registers is written in it, because
compilers would spill some registers and copy others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Assembler:
    """Collects instructions; `statement` makes one C statement of them. `asm("movi v0.4s, #0")` adds an instruction.

    is_volatile: the compiler must not remove or move the statement, for instance because it stores to memory.
    """

    is_volatile: bool = False
    instructions: list[str] = field(default_factory=list)

    def __call__(self, *instructions: str) -> None:
        self.instructions += instructions

    @contextmanager
    def loop(self, label: int, counter: str, count: str, skip_to: int = 0) -> Iterator[None]:
        """Puts the instructions of the `with` statement in a loop of 64-bit Arm.

        label: number of the loop's label. counter: a register. count: the trip count, a number or a register.
        skip_to: number of the label to jump to if the trip count is 0; without one, it must not be 0.
        """
        self(f"mov {counter}, {count}", *[f"cbz {count}, {skip_to}f"] * bool(skip_to), f"{label}:")
        yield
        self(f"subs {counter}, {counter}, #1", f"b.ne {label}b")

    @contextmanager
    def loop_of(self, label: int, counter: str, count: int) -> Iterator[None]:
        """Puts the instructions in a loop of `count` iterations, as `loop` does; for one iteration, in no loop."""
        if count > 1:
            with self.loop(label, counter, f"#{count}"):
                yield
        else:
            yield

    def statement(self, outputs: Iterable[str], inputs: Iterable[str], clobbers: Iterable[str]) -> list[str]:
        """Returns the C lines of the statement.

        outputs: operands from `asm_output` and `asm_inout`. inputs: operands from `asm_input`.
        clobbers: further registers that the instructions change.

        Raises:
            ValueError: for an output that could share a register with an input.
        """
        outputs = list(outputs)
        if shared := [output for output in outputs if "&" not in output]:
            raise ValueError(f"{shared[0]} is written early, so its constraint needs &")
        return [f"__asm__{' volatile' * self.is_volatile}(", *(f'"{line}\\n"' for line in self.instructions),
                ": " + ", ".join(outputs), ": " + ", ".join(inputs),
                ": " + ", ".join(f'"{register}"' for register in clobbers) + ");"]


def asm_output(name: str, kind: str = "w") -> str:
    """Returns the operand of a C variable that instructions set. kind: GCC's constraint, "w" for vectors of Arm."""
    return f'[{name}] "=&{kind}"({name})'


def asm_inout(name: str, variable: str = "", kind: str = "r") -> str:
    """Returns the operand of a C variable that instructions read and change, such as an address."""
    return f'[{name}] "+&{kind}"({variable or name})'


def asm_input(name: str, expression: str = "") -> str:
    """Returns the operand of a C expression that instructions read, in a general register."""
    return f'[{name}] "r"({expression or name})'


def registers(prefix: str, *numbers: int) -> list[str]:
    """Returns register names: `registers("v", 4)` v0 to v3, `registers("x", 2, 9)` x2 to x8."""
    return [f"{prefix}{number}" for number in range(*numbers)]
