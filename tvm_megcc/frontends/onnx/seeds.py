# SPDX-License-Identifier: Apache-2.0
"""The seed of random operators: one additional input of the model, shared by all that have no `seed` attribute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from ...ir.graph import Attrs
from ...ir.types import TensorType

if TYPE_CHECKING:
    from .builder import Builder


class Seeds:
    """Derives the keys of random operators from the seed.

    name: the input's name, "" if the front end adds none. value: the constant that the user gave for it; None if each
    run is given a seed. used: whether an operator needs it.
    """

    def __init__(self, builder: Builder):
        self.builder = builder
        self.name, self.value, self.used = "", None, False
        self._num_operators = 0
        self._iterations: list[str] = []

    def set_input(self, name: str, value: np.ndarray | None) -> None:
        """Sets and reserves the name of the seed. With a value it is a constant, otherwise an input."""
        self.name, self.value = self.builder.unique(name), value

    @contextmanager
    def in_loop(self, iteration: str) -> Iterator[None]:
        """Imports a loop's body within the block. Keys then depend on the iteration number, so that each iteration gets
        other random numbers. iteration: the value of the iteration number, int64 []."""
        self._iterations.append(iteration)
        try:
            yield
        finally:
            self._iterations.pop()

    def key(self, origin: str) -> str:
        """Returns the seed mixed with the iteration numbers of the enclosing loops, int64 []. origin: the random
        operator, for messages.

        Raises:
            MegccError: if the front end adds no seed input.
        """
        if not self.name:
            raise MegccError("draws other numbers in every run; give it a seed, or make what it draws an input of the "
                             "model")
        builder, type_ = self.builder, TensorType("int64", ())
        self.used = True
        if self.name not in builder.types:
            if self.value is None:
                builder.add_input(self.name, type_)
            else:
                builder.types[self.name], builder.constants[self.name] = type_, self.value
        key = self.name
        for iteration in self._iterations:
            # The sum alone would give seed s in iteration 1 the numbers of seed s + 1 in iteration 0, so it begins with
            # random bits.
            attrs = Attrs(shape=(), number=self.number(), law="bits", dtype="int64", precision=64)
            (random_bits,) = builder.emit("draw", (key,), attrs, origin, f"{self.name}.bits")
            (key,) = builder.emit("add", (random_bits, iteration), Attrs(), origin, f"{self.name}.iteration")
        return key

    def number(self) -> int:
        """Returns the index of the next random operator, which makes its stream differ from the others'."""
        self._num_operators += 1
        return self._num_operators - 1
