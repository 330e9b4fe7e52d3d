# SPDX-License-Identifier: Apache-2.0
"""Test cases of operators with symbolic extents, and random values of the symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tvm_megcc import ops  # noqa: F401  (registers the operators)
from tvm_megcc.errors import MegccError
from tvm_megcc.ir.conditions import Condition, recording
from tvm_megcc.ir.dims import Symbol, substitute
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.base import Case, operator

#: Sets of axes that become symbolic, by name. Some sets have few axes, so that operators that have to know some of
#: their extents accept them.
OPEN_AXES = {"first": lambda axis, rank: axis == 0, "last": lambda axis, rank: axis == rank - 1,
             "inner": lambda axis, rank: axis >= 2, "all": lambda axis, rank: True}
#: Values that symbols get.
EXTENTS = (1, 2, 3, 4, 5, 7)


@dataclass(frozen=True)
class Opened:
    """A case with symbolic extents. types, results: types of operands and results. conditions: those that the shape
    rule puts on the symbols."""

    attrs: Attrs
    types: tuple[TensorType | None, ...]
    results: tuple[TensorType, ...]
    conditions: tuple[Condition, ...]

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols, with their values in the original case."""
        dims = [dim for type_ in self.types if type_ is not None for dim in type_.shape if isinstance(dim, Symbol)]
        return {dim.name: dim.likely for dim in dims}

    def types_at(self, values: Mapping[str, int]) -> list[TensorType | None]:
        """Returns the operand types for these values of the symbols."""
        return [t and t.with_shape(substitute(dim, values) for dim in t.shape) for t in self.types]

    def likely(self, values: Mapping[str, int]) -> tuple[list[TensorType | None], list[TensorType]]:
        """Returns operand and result types over symbols with these likely values."""
        symbols = {name: Symbol(name, value) for name, value in values.items()}
        return ([t and t.with_shape(substitute(dim, symbols) for dim in t.shape) for t in self.types],
                [t.with_shape(substitute(dim, symbols) for dim in t.shape) for t in self.results])

    def accepts(self, values: Mapping[str, int]) -> bool:
        """Whether the shape function accepts these values: all conditions hold, and no extent is negative."""
        bounds = {name: (value, value) for name, value in values.items()}
        return (all(condition.holds(bounds) for condition in self.conditions)
                and all(substitute(dim, values) >= 0 for t in self.results for dim in t.shape))

    def drawn(self, count: int, seed: int) -> Iterator[dict[str, int]]:
        """Yields random values of the symbols: some or all of the case's values are replaced."""
        generator = np.random.default_rng(seed)
        names = list(self.symbols)
        for _ in range(count):
            chosen = generator.choice(EXTENTS, len(names))
            kept = generator.random(len(names)) < generator.choice([0.0, 0.5, 0.8])
            yield {name: self.symbols[name] if keep else int(value)
                   for name, keep, value in zip(names, kept, chosen, strict=True)}


def opened(kind: str, case: Case) -> Iterator[Opened]:
    """Yields the case with some of its axes symbolic, for each set of axes in `OPEN_AXES` that the operator accepts.
    Constants keep their extents. So do axes of extent 1, which may be broadcast."""
    attrs, seen = Attrs(case.attrs), set()
    for is_open in OPEN_AXES.values():
        types = tuple(None if spec is None else TensorType(spec[1], tuple(
            Symbol(f"d{position}_{axis}", extent)
            if extent > 1 and is_open(axis, len(spec[0])) and position not in case.constant else extent
            for axis, extent in enumerate(spec[0]))) for position, spec in enumerate(case.inputs))
        if types in seen or all(t is None or t.is_static for t in types):
            continue
        seen.add(types)
        try:
            with recording() as conditions:
                results = operator(kind).infer(attrs, *types)
        except MegccError:
            continue  # an extent that the operator has to know
        yield Opened(attrs, types, results, tuple(conditions))
