# SPDX-License-Identifier: Apache-2.0
"""Matches the patterns of `patterns.py` on Relay expressions, to find the calls of a match. Does not import TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import patterns
from ...ops.base import OPERATORS
from ..tvm_common.pattern_converter import operand_orders
from .expressions import is_operator, kind_of
from .ops import BIASES, MORE_NAMES


def relay_names(kind: str, operands: Sequence[patterns.Term]) -> tuple[str, ...]:
    """Returns the Relay operators that one of our operators in a pattern, applied to these terms, can be."""
    declared = OPERATORS[kind].relay if kind in OPERATORS else ()
    further = MORE_NAMES.get(kind, ())
    return (*declared, *(name for name in further if name not in BIASES or isinstance(operands[-1], patterns.Const)))


def matched_calls(term: patterns.Term, expr) -> list | None:
    """Returns the calls that a pattern covers with `expr` as its root; None if it does not match."""
    found = _matched(term, expr, {})
    return None if found is None else list(dict.fromkeys(
        matched for part, matched in found.items() if isinstance(part, (patterns.Call, patterns.Opt))
        and is_operator(matched) and matched.op.name in _names(part)))


def _operands(term: patterns.Call | patterns.Opt) -> tuple[patterns.Term, ...]:
    """Returns the terms of an operator's operands."""
    return term.args if isinstance(term, patterns.Call) else (term.arg, *term.more)


def _names(term: patterns.Call | patterns.Opt) -> set[str]:
    """Returns the Relay operators that a term can match."""
    return {name for kind in term.kinds for name in relay_names(kind, _operands(term))}


def _matched(term: patterns.Term, expr, found: Mapping) -> dict | None:
    """Returns the matches of a term and of its operands, term -> expression, added to those in `found`; None if the
    expression does not match."""
    if term in found:
        return dict(found) if found[term] == expr else None
    if isinstance(term, patterns.Const) and kind_of(expr) != "Constant":
        return None
    if isinstance(term, (patterns.Any, patterns.Const)):
        return {**found, term: expr}
    if is_operator(expr):
        operands = _operands(term)
        for kind in term.kinds:
            for order in operand_orders(kind, operands) if expr.op.name in relay_names(kind, operands) else ():
                bound = _all_matched(order, list(expr.args), found)
                if bound is not None:
                    return {**bound, term: expr}
    if isinstance(term, patterns.Opt):
        bound = _matched(term.arg, expr, found)
        return None if bound is None else {**bound, term: expr}
    return None


def _all_matched(terms: Sequence, operands: Sequence, found: Mapping) -> dict | None:
    """Matches all operands. Operands beyond the pattern's, such as the slope of a prelu, may be anything."""
    if len(terms) > len(operands):
        return None
    bound: dict | None = dict(found)
    for term, operand in zip(terms, operands, strict=False):
        bound = _matched(term, operand, bound)
        if bound is None:
            return None
    return bound
