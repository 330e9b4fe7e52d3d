# SPDX-License-Identifier: Apache-2.0
"""Prints the shape function: C that computes every extent and size of a program from the symbols of its input shapes.

Container and kernel table have *references* to extents. A reference that is not negative is the extent itself.
Otherwise it is -1 - index, where the index counts the symbols first, then the values that the shape function computes.
The function is trusted code, and a container only refers to its results. The function also checks the conditions on
shapes that kernels rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import InternalError, shortened
from ..foreign import c_string, printable
from ..ir.conditions import Condition
from ..ir.dims import Dim, Symbol, symbols, to_c
from ..ir.shapes import unbacked_symbols
from .plan import KernelPlan


@dataclass(frozen=True)
class ShapeTable:
    """The symbols and values of a shape function.

    symbols: names, in order: first `given`, those of input shapes, then unbacked symbols, which are -1 until the run
        has computed them.
    values: the distinct expressions that are neither numbers nor symbols.
    conditions: on the symbols.
    """

    symbols: tuple[str, ...]
    given: int
    values: tuple[Dim, ...]
    conditions: tuple[Condition, ...] = ()

    @staticmethod
    def of(plan: KernelPlan, names: Sequence[str], sizes: Iterable[Dim],
           conditions: Sequence[Condition] = ()) -> ShapeTable:
        """Returns the table of a plan. sizes: those in its calls, besides their extents and the shapes of values."""
        dims = [dim for name in plan.locations for dim in plan.graph.types[name].shape]
        dims += [extent for step in plan.steps for extent in step.bound.extents]
        values = dict.fromkeys(dim for dim in (*dims, *sizes) if not isinstance(dim, (int, Symbol)))
        given = len(names) - len(unbacked_symbols(plan.graph))
        return ShapeTable(tuple(names), given, tuple(values), tuple(conditions))

    @cached_property
    def _entries(self) -> dict[Dim, int]:
        return {dim: index for index, dim in enumerate((*map(Symbol, self.symbols), *self.values))}

    def reference(self, dim: Dim) -> int:
        """Returns the reference to an extent, as the module's docstring defines it."""
        if not isinstance(dim, int):
            return -1 - self._entries[dim]
        if dim < 0:
            raise InternalError(f"an extent is {dim}")
        return dim

    def index(self, name: str) -> int:
        """Returns the index of a symbol."""
        return self.symbols.index(name)

    def references(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        """Returns the references to some extents."""
        return tuple(map(self.reference, dims))

    def function(self, name: str) -> list[str]:
        """Returns the lines of the C function, of type megcc_shapes_fn.

        The function returns 0, the number of a violated condition (from 1 on, with its text in `*why`), or -1 if a
        value is negative or exceeds an int32_t.
        """
        numbers = {symbol: index for index, symbol in enumerate(self.symbols)}
        symbol_names = {symbol: f"symbol[{index}]" for symbol, index in numbers.items()}

        def last_unbacked(names: Iterable[str]) -> str:
            """Returns C for the last unbacked symbol among these; when it is known, all of them are. "" if all symbols
            are those of input shapes."""
            last = max((numbers[name] for name in names), default=-1)
            return f"symbol[{last}]" if last >= self.given else ""

        comments = [f"/* symbol[{i}] is {printable(symbol)} */" for i, symbol in enumerate(self.symbols)]
        lines = [*comments,
                 f"static int32_t {name}(const int32_t *symbol, int32_t *value, const char **why)", "{",
                 "    int32_t out_of_range = 0;"]
        for number, condition in enumerate(self.conditions, 1):
            last = last_unbacked(condition.symbols)
            lines += [f"    if ({f'{last} >= 0 && ' if last else ''}!({condition.to_c(symbol_names)})) {{",
                      f"        *why = MEGCC_TEXT({c_string(shortened(condition.printable, 200))});",
                      f"        return {number};", "    }"]
        for index, dim in enumerate(self.values):
            last = last_unbacked(symbols(dim))
            lines += [f"    /* {printable(dim)} */",
                      f"    out_of_range |= {f'{last} < 0 ? set_unknown(value + {index}) : ' if last else ''}"
                      f"set_value({to_c(dim, symbol_names)}, value + {index});"]
        if not self.values:
            lines += ["    (void)symbol;", "    (void)value;"]
        if not self.conditions:
            lines += ["    (void)why;"]
        return [*lines, "    return -out_of_range;", "}", ""]


SET_UNKNOWN = """\
/* Marks a value as unknown: it depends on an extent that the run has not computed yet. */
static int32_t set_unknown(int32_t *value)
{
    *value = -1;
    return 0;
}
"""

SET_VALUE = """\
/* Stores an extent or size; returns 1 if it is negative or exceeds an int32_t. */
static int32_t set_value(int64_t size, int32_t *value)
{
    *value = (int32_t)size;
    return size < 0 || size > INT32_MAX;
}
"""
