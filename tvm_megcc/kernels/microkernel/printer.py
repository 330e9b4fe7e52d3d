# SPDX-License-Identifier: Apache-2.0
"""The printer of C for microkernels. It does not indent: `codegen/c_source/format.py` does that from the braces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Printer:
    """Collects lines of C. `c("x += 1;")` adds a line. `with c.block("if (x > 0)"):` puts braces around the lines that
    are added inside. `text` is the result."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, *lines: str) -> None:
        self.lines += lines

    @contextmanager
    def block(self, head: str, when: bool = True) -> Iterator[None]:
        """Puts the lines of the `with` statement in braces after `head`. when: False adds no head and no braces."""
        self(*[f"{head} {{" if head else "{"] * when)
        yield
        self(*["}"] * when)

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Makes the lines of the `with` statement the other branch of the `if` whose block was printed last."""
        self.lines[-1] += " else {"
        yield
        self("}")

    @contextmanager
    def loop(self, index: str, count: int) -> Iterator[None]:
        """Puts the lines of the `with` statement in a loop of `count` iterations; for one iteration, in no loop."""
        if count == 1:
            yield
        else:
            with self.block(f"for (int32_t {index} = 0; {index} < {count}; {index}++)"):
                yield

    @contextmanager
    def function(self, head: str) -> Iterator[None]:
        """Makes the lines of the `with` statement the body of a function. head: its declaration."""
        self(head, "{")
        yield
        self("}", "")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def offset(pointer: str, elements: int | str) -> str:
    """Returns `pointer + elements`, or `pointer` if elements is 0."""
    return f"{pointer} + {elements}" if elements else pointer


def joined(parts: Iterable[str]) -> str:
    """Returns the arguments or parameters joined by commas, without empty ones."""
    return ", ".join(filter(None, parts))
