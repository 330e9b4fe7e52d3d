# SPDX-License-Identifier: Apache-2.0
"""Sequences of operators that become one kernel, as a table; most specific first.

Patterns are neutral: front ends translate them to their own pattern language, `match` finds them in our operator graph,
    and the tests compile one instance of every row and check that it becomes a single call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from .ir.graph import Graph, Op


@dataclass(frozen=True)
class Any:
    """Any value. The same term twice in a pattern means the same value."""

    name: str


@dataclass(frozen=True)
class Const:
    """A value known to the compiler."""

    name: str


@dataclass(frozen=True)
class Call:
    """One of some operators applied to terms; commutative operators match either way."""

    kinds: tuple[str, ...]
    args: tuple[Term, ...]


@dataclass(frozen=True)
class Opt:
    """`arg`, or one of some operators applied to it (and to `more`)."""

    kinds: tuple[str, ...]
    arg: Term
    more: tuple[Term, ...] = ()


Term = Union[Any, Const, Call, Opt]


@dataclass(frozen=True)
class Composite:
    """A row of the table: the name of the partitioned function, and its pattern."""

    name: str
    term: Term


ACTIVATIONS = ("relu", "clip", "leaky_relu", "sigmoid", "tanh", "hard_swish", "hard_sigmoid", "elu", "prelu")
COMMUTATIVE = {"add", "mul", "max", "min"}

_X, _W, _B, _RESIDUAL = Any("x"), Const("w"), Const("b"), Any("residual")


def _biased(kind: str) -> Term:
    """Returns the producer with its bias as an operand or as an operator after it."""
    return Opt(("add",), Call((kind,), (_X, _W)), (_B,))


def _silu(value: Term) -> Term:
    return Call(("mul",), (value, Call(("sigmoid",), (value,))))


COMPOSITES = tuple(
    row for kind in ("conv2d", "matmul") for row in (
        Composite(f"megcc.{kind}_bias_add_act", Opt(ACTIVATIONS, Call(("add",), (_biased(kind), _RESIDUAL)))),
        Composite(f"megcc.{kind}_bias_silu", _silu(_biased(kind))),
        Composite(f"megcc.{kind}_bias_act", Opt(ACTIVATIONS, _biased(kind))),
    ))


def match(term: Term, graph: Graph, value: str, found: Mapping[Term, str] | None = None) -> dict[Term, str] | None:
    """Matches a pattern at the operator that computes `value`.

    Returns:
        Each term with its value, or None if the pattern does not fit.
    """
    found = dict(found or {})
    if term in found:
        return found if found[term] == value else None
    producers = graph.producers()
    return _match(term, graph, producers, value, found)


def _match(term: Term, graph: Graph, producers: Mapping[str, Op], value: str, found: dict[Term, str]
           ) -> dict[Term, str] | None:
    if term in found:
        return found if found[term] == value else None
    if isinstance(term, Const) and value not in graph.constants:
        return None
    if isinstance(term, (Any, Const)):
        return {**found, term: value}
    op = producers.get(value)
    if op is not None and op.kind in term.kinds:
        args = term.args if isinstance(term, Call) else (term.arg, *term.more)
        for order in _orders(op):
            bound = _match_all(args, graph, producers, order, found)
            if bound is not None:
                return {**bound, term: value}
    if isinstance(term, Opt):
        bound = _match(term.arg, graph, producers, value, found)
        return None if bound is None else {**bound, term: value}
    return None


def _orders(op: Op) -> Iterator[tuple[str, ...]]:
    yield op.inputs
    if op.kind in COMMUTATIVE:
        yield op.inputs[::-1]


def _match_all(args: Sequence[Term], graph: Graph, producers: Mapping[str, Op], operands: Sequence[str],
               found: dict[Term, str]) -> dict[Term, str] | None:
    """Matches operands. Optional ones after the pattern's own (a bias) may be present or not."""
    if len(operands) < len(args):
        return None
    for term, operand in zip(args, operands, strict=False):
        bound = _match(term, graph, producers, operand, found)
        if bound is None:
            return None
        found = bound
    return found
