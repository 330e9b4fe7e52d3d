# SPDX-License-Identifier: Apache-2.0
"""Narrows the ranges of variables where a condition of C is known to hold, or not to hold."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any, Protocol

from pycparser import c_ast, c_generator

from .changes import changes, nodes
from .ranges import Range

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class Walk(Protocol):
    """A walk over a function, as far as narrowing needs it: types and ranges of expressions."""

    types: dict[str, c_ast.Node]
    exposed: set[str]

    def value(self, node: c_ast.Node | None, ranges: dict[Any, Range]) -> Range: ...

    def is_unsigned(self, node: c_ast.Node) -> bool: ...


def type_names(type_: c_ast.Node | None) -> list[str]:
    """Returns the words of a type, such as `uint32_t`; none for pointers and arrays."""
    while isinstance(type_, (c_ast.TypeDecl, c_ast.Typename)):
        type_ = type_.type
    return list(getattr(type_, "names", []))


def integer_limits(type_: c_ast.Node | None) -> Range:
    """Returns the limits of an integer type with up to 64 bits, as far as signed numbers of 64 bits have them; None for
    other types, and for `size_t` and `uint64_t`."""
    names = [name for name in type_names(type_) if name not in ("const", "static")]
    if names in (["int"], ["signed"]):
        return -(2**31), 2**31 - 1
    if names == ["ptrdiff_t"]:
        return -(2**63), 2**63 - 1
    sized = re.fullmatch(r"(u?)int(8|16|32|64)_t", names[0]) if len(names) == 1 else None
    if sized is None or sized.groups() == ("u", "64"):
        return None
    bits = int(sized[2])
    return (0, 2**bits - 1) if sized[1] else (-(2**(bits - 1)), 2**(bits - 1) - 1)


def element_type(walk: Walk, node: c_ast.Node) -> c_ast.Node | None:
    """Returns the type of an element `p[i]` or `p[i][j]` of an array or pointer of the function."""
    levels = 0
    while isinstance(node, c_ast.ArrayRef):
        node, levels = node.name, levels + 1
    type_ = walk.types.get(node.name) if isinstance(node, c_ast.ID) else None
    for _ in range(levels):
        type_ = type_.type if isinstance(type_, (c_ast.PtrDecl, c_ast.ArrayDecl)) else None
    return type_


def memory_key(node: c_ast.Node) -> tuple[str, str]:
    """Returns the key, in ranges, of an element of memory that a condition has narrowed."""
    return "memory", c_generator.CGenerator().visit(node)


def narrow(walk: Walk, condition: c_ast.Node | None, truth: bool, ranges: dict[Any, Range],
           memory: bool = False) -> None:
    """Narrows ranges to the values with which a condition has a truth value.

    Args:
        condition: an expression; one that changes a variable narrows nothing.
        ranges: those before the condition; they are changed.
        memory: whether elements of arrays are narrowed too, which holds until memory is written.
    """
    if condition is None or changes(condition):
        return
    if isinstance(condition, c_ast.UnaryOp) and condition.op == "!":
        narrow(walk, condition.expr, not truth, ranges, memory)
    elif isinstance(condition, c_ast.BinaryOp) and condition.op == ("&&" if truth else "||"):
        narrow(walk, condition.left, truth, ranges, memory)
        narrow(walk, condition.right, truth, ranges, memory)
    elif isinstance(condition, c_ast.BinaryOp) and condition.op in _OPPOSITE:
        operator = condition.op if truth else _OPPOSITE[condition.op]
        _compare(walk, condition, condition.left, operator, condition.right, ranges, memory)
        _compare(walk, condition, condition.right, _MIRRORED[operator], condition.left, ranges, memory)


def _compare(walk: Walk, condition: c_ast.Node, side: c_ast.Node, operator: str, other: c_ast.Node,
             ranges: MutableMapping[Any, Range], memory: bool) -> None:
    """Narrows one side of a comparison that holds."""
    key: Any
    if isinstance(side, c_ast.ID) and side.name not in walk.exposed:
        key, type_ = side.name, walk.types.get(side.name)
    elif memory and isinstance(side, c_ast.ArrayRef) and not any(isinstance(part, c_ast.FuncCall)
                                                               for part in nodes(side)):
        key, type_ = memory_key(side), element_type(walk, side)
    else:
        return
    limits = integer_limits(type_)
    given = dict(ranges)
    own, limit = walk.value(side, given) or limits, walk.value(other, given)
    if limits is None or own is None or limit is None:
        return
    if walk.is_unsigned(condition) and min(own[0], limit[0]) < 0:
        return  # a negative number is converted
    low, high = own
    if operator in ("<", "<="):
        high = min(high, limit[1] - (operator == "<"))
    elif operator in (">", ">="):
        low = max(low, limit[0] + (operator == ">"))
    elif operator == "==":
        low, high = max(low, limit[0]), min(high, limit[1])
    elif limit[0] == limit[1]:
        low, high = low + (low == limit[0]), high - (high == limit[0])
    if low <= high:     # otherwise the condition never has this truth value
        ranges[key] = low, high
