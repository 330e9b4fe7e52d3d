# SPDX-License-Identifier: Apache-2.0
"""Sequences of operators that become one kernel, as a table; most specific first.

Patterns do not depend on a front end: the front ends for TVM translate them to the pattern languages of Relax and
Relay, and `match` finds them in our graph. The tests compile an instance of every row and check that it becomes a
single kernel call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from .ir.graph import Graph, Op


@dataclass(frozen=True)
class Any:
    """A pattern that matches any value. A term that occurs twice in a pattern matches the same value twice."""

    name: str


@dataclass(frozen=True)
class Const:
    """A pattern that matches a constant."""

    name: str


@dataclass(frozen=True)
class Call:
    """A pattern that matches an operator of one of these kinds, with operands that match `args`. The operands of
    commutative operators may be in either order."""

    kinds: tuple[str, ...]
    args: tuple[Term, ...]


@dataclass(frozen=True)
class Opt:
    """A pattern that matches `arg`, or an operator of one of these kinds with the operands `arg` and `more`."""

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


def match(term: Term, graph: Graph, value: str, bindings: Mapping[Term, str] | None = None) -> dict[Term, str] | None:
    """Matches a pattern to the operator that computes `value`.

    Args:
        bindings: terms that already have a value.

    Returns:
        The value of each term, or None if the pattern does not match.
    """
    return _match(term, graph, graph.producers(), value, dict(bindings or {}))


def _match(term: Term, graph: Graph, producers: Mapping[str, Op], value: str, bindings: dict[Term, str]
           ) -> dict[Term, str] | None:
    """Returns the result of `match`. producers: value -> the operator that computes it."""
    if term in bindings:
        return bindings if bindings[term] == value else None
    if isinstance(term, Const) and value not in graph.constants:
        return None
    if isinstance(term, (Any, Const)):
        return {**bindings, term: value}
    op = producers.get(value)
    if op is not None and op.kind in term.kinds:
        args = term.args if isinstance(term, Call) else (term.arg, *term.more)
        for order in _orders(op):
            bound = _match_all(args, graph, producers, order, bindings)
            if bound is not None:
                return {**bound, term: value}
    if isinstance(term, Opt):
        bound = _match(term.arg, graph, producers, value, bindings)
        return None if bound is None else {**bound, term: value}
    return None


def _orders(op: Op) -> Iterator[tuple[str, ...]]:
    """Yields the orders of operands in which the operator may match."""
    yield op.inputs
    if op.kind in COMMUTATIVE:
        yield op.inputs[::-1]


def _match_all(args: Sequence[Term], graph: Graph, producers: Mapping[str, Op], operands: Sequence[str],
               bindings: dict[Term, str]) -> dict[Term, str] | None:
    """Matches the first operands to `args`; further operands (a bias) are not compared."""
    if len(operands) < len(args):
        return None
    for term, operand in zip(args, operands, strict=False):
        bound = _match(term, graph, producers, operand, bindings)
        if bound is None:
            return None
        bindings = bound
    return bindings
