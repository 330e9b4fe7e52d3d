# SPDX-License-Identifier: Apache-2.0
"""Traverses and classifies Relay expressions. Nothing here imports TVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

#: Expressions of mutable cells.
REFERENCES = ("RefCreate", "RefRead", "RefWrite")


def kind_of(expr) -> str:
    """Returns the kind of an expression: Call, Var, Constant, Tuple, TupleGetItem, Function, GlobalVar, Op, Let, If,
    …"""
    return type(expr).__name__


def is_operator(expr) -> bool:
    return kind_of(expr) == "Call" and kind_of(expr.op) == "Op"


def children(expr) -> Sequence:
    """Returns the operands of an expression, without the bodies of functions that it calls."""
    kind = kind_of(expr)
    if kind == "Call":
        return list(expr.args)
    if kind == "Tuple":
        return list(expr.fields)
    if kind == "TupleGetItem":
        return [expr.tuple_value]
    if kind == "Let":
        return [expr.value, expr.body]
    if kind == "If":
        return [expr.cond, expr.true_branch, expr.false_branch]
    return []


def _parts(expr) -> Sequence:
    """Returns the operands of an expression, including the bodies of function literals, matches and references."""
    kind = kind_of(expr)
    if kind == "Call":
        return list(expr.args) if kind_of(expr.op) == "Op" else [*expr.args, expr.op]
    if kind == "Function":
        return [expr.body]
    if kind == "Match":
        return [expr.data, *(clause.rhs for clause in expr.clauses)]
    if kind in REFERENCES:
        return [getattr(expr, name) for name in ("ref", "value") if hasattr(expr, name)]
    return children(expr)


def post_order(root, parts: Callable[[object], Sequence] = children) -> Iterator:
    """Yields every expression once, operands first. It is iterative, since networks are deeper than Python's stack."""
    done, stack = set(), [(root, False)]
    while stack:
        expr, ready = stack.pop()
        if expr in done:
            continue
        if ready:
            done.add(expr)
            yield expr
            continue
        stack.append((expr, True))
        stack.extend((part, False) for part in reversed(parts(expr)) if part not in done)


def everything(root) -> Iterator:
    """Yields every expression as `post_order` does, also inside function literals, references and matches."""
    return post_order(root, _parts)


def operator_calls(expr) -> list:
    """Returns the calls of operators in order, wherever they are."""
    return [part for part in everything(expr) if is_operator(part)]


def type_of(expr):
    """Returns the checked type if TVM has inferred it, else the annotated one."""
    try:
        return expr.checked_type
    except (ValueError, AttributeError):
        return getattr(expr, "type_annotation", None)
