# SPDX-License-Identifier: Apache-2.0
"""Loop fusion: joins neighbouring loop nests if each iteration of an outermost loop reads only what the same iteration
of the others wrote. Temporaries then lose that axis, and iterations can run on several threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Union

from tvm import ir, tirx

from ..tvm_versions import TENSOR_READ, Analyzer, Expr, Var, buffer_of
from .values import any_subexpression, int_value


@dataclass
class FusedLoops:
    """Fused loops of equal extent.

    loops: the outermost loop of each nest with more than one iteration.
    unit_loops: the loops around them, which have one iteration.
    bodies: the bodies of `loops`, in order, or their fusion.
    """

    loops: list
    unit_loops: list
    bodies: list[Statement]


Statement = Union[ir.Node, FusedLoops]


class Fusion:
    """Fuses the outermost statements of a function.

    dropped_axes: buffer -> axes that it does not need as a temporary, since each iteration uses only one index of them.
    """

    def __init__(self):
        self.dropped_axes: dict[Var, set[int]] = {}

    def fuse(self, statements: Sequence) -> list[Statement]:
        """Fuses the statements, either all or none of them, so that the result is one loop over a list of bodies."""
        statements = [part for statement in statements for part in _flattened_statements(statement)]
        nests = [_outermost_loop(statement) for statement in statements]
        if len(statements) < 2 or any(loop is None for _, loop in nests):
            return list(statements)
        loops = [loop for _, loop in nests]
        if not all(_same_extent(loops[0], loop) for loop in loops[1:]):
            return list(statements)
        axes = self.fusable_axes(statements, loops)
        if axes is None:
            return list(statements)
        for buffer, axis in axes.items():
            self.dropped_axes.setdefault(buffer, set()).add(axis)
        body = self.fuse([loop.body for loop in loops])
        return [FusedLoops(loops, [unit for units, _ in nests for unit in units], body)]

    def fusable_axes(self, statements: Sequence, loops: Sequence) -> dict | None:
        """Returns for each buffer that is written the axis that all accesses index by the variable of their loop; None
        if a buffer has no such axis."""
        possible: dict[Var, set[int]] = {}
        written: dict[Var, None] = {}
        for statement, loop in zip(statements, loops, strict=True):
            analyzer = Analyzer()
            for buffer, indices, is_store in _accesses(statement, analyzer):
                if buffer is None:
                    return None
                axes = {axis for axis, index in enumerate(indices) if analyzer.simplify(index).same_as(loop.loop_var)}
                axes -= self.dropped_axes.get(buffer, set())  # those that the fused loops around these took
                possible[buffer] = possible[buffer] & axes if buffer in possible else axes
                if is_store:
                    written[buffer] = None
        if not all(possible[buffer] for buffer in written):
            return None
        return {buffer: min(possible[buffer]) for buffer in written}


def _flattened_statements(statement) -> Iterator:
    """Yields the statements of a sequence and of the sequences in it."""
    if type(statement).__name__ == "SeqStmt":
        for part in statement.seq:
            yield from _flattened_statements(part)
    else:
        yield statement


def _outermost_loop(statement) -> tuple[list, object]:
    """Returns (the loops with one iteration around it, the outermost loop of a nest with more iterations). There is no
    such loop (None) if it does not count from 0 by 1.
    """
    units = []
    while type(statement).__name__ == "For" and int_value(statement.extent) == 1:
        units.append(statement)
        statement = statement.body
    is_simple = type(statement).__name__ == "For" and int_value(statement.min) == 0 and statement.step is None \
        and statement.thread_binding is None
    return units, statement if is_simple else None


def _same_extent(one, other) -> bool:
    return Analyzer().can_prove_equal(one.extent, other.extent)


def _accesses(statement, analyzer: Analyzer) -> Iterator[tuple]:
    """Yields (buffer, indices, whether it is written) for every access. The buffer is None for an expression whose
    accesses are unknown, such as a call."""
    kind = type(statement).__name__
    if kind == "SBlockRealize":
        for axis, value in zip(statement.block.iter_vars, statement.iter_values, strict=True):
            analyzer.bind(axis.var, analyzer.simplify(value), allow_override=True)
        yield from _loads(statement.predicate)
        for part in (statement.block.init, statement.block.body):
            if part is not None:
                yield from _accesses(part, analyzer)
        if len(statement.block.alloc_buffers) or len(statement.block.match_buffers):
            yield None, (), False
    elif kind == "For":
        if int_value(statement.extent) == 1:
            analyzer.bind(statement.loop_var, statement.min, allow_override=True)
        yield from _accesses(statement.body, analyzer)
    elif kind == "SeqStmt":
        for part in statement.seq:
            yield from _accesses(part, analyzer)
    elif kind == "BufferStore":
        yield statement.buffer, statement.indices, True
        for expr in (statement.value, *statement.indices):
            yield from _loads(expr)
    elif kind == "IfThenElse":
        yield from _loads(statement.condition)
        for part in (statement.then_case, statement.else_case):
            if part is not None:
                yield from _accesses(part, analyzer)
    elif kind == "Bind":
        yield from _loads(statement.value)
    else:
        yield None, (), False


def _loads(expr) -> list[tuple]:
    """Returns what `_accesses` yields for an expression."""
    found: list[tuple] = []

    def visit(part) -> bool:
        if type(part).__name__ == TENSOR_READ:
            found.append((buffer_of(part), part.indices, False))
        return False

    if isinstance(expr, Expr) and not isinstance(expr, tirx.IntImm):
        any_subexpression(expr, visit)
    return found
