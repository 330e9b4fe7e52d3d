# SPDX-License-Identifier: Apache-2.0
"""Constant tables of integers in C, and the range of the elements that an expression may read of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from pycparser import c_ast

from .changes import literal, nodes
from .conditions import integer_limits
from .ranges import Range

#: Numbers, in lists for each axis.
Table = list[Union[int, "Table"]]


def tables(tree: c_ast.Node) -> dict[str, Table]:
    """Returns the constant arrays of integers whose elements are all written in a text: name -> elements. Two of one
    name in different functions are left out."""
    found: dict[str, Table] = {}
    names: list[str] = []
    for node in nodes(tree):
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.ArrayDecl):
            names.append(node.name)
            element = node.type
            while isinstance(element, c_ast.ArrayDecl):
                element = element.type
            elements = _elements(node.init, node.type)
            if "const" in node.quals and integer_limits(element) and elements is not None:
                found[node.name] = elements
    return {name: elements for name, elements in found.items() if names.count(name) == 1}


def _elements(init: c_ast.Node | None, type_: c_ast.Node) -> Table | None:
    """Returns the elements of an initialiser; elements that it does not name are 0. None if one is no literal."""
    if not isinstance(init, c_ast.InitList) or not isinstance(type_, c_ast.ArrayDecl):
        return None
    found: Table = []
    for part in init.exprs:
        sign, bare = (-1, part.expr) if isinstance(part, c_ast.UnaryOp) and part.op == "-" else (1, part)
        value = literal(bare)
        row = _elements(part, type_.type) if value is None else sign * value
        if row is None:
            return None
        found.append(row)
    # An array of several axes that lacks rows, or whose length is not a number, may have elements that are 0.
    return found if type_.dim is None or literal(type_.dim) == len(found) else [*found, 0]


def element(table: Table, subscripts: Sequence[int | None]) -> Range:
    """Returns the range of the elements that subscripts may select. None among them: any."""
    rows: Table = [table]
    for subscript in subscripts:
        chosen: Table = []
        for row in rows:
            parts = row if isinstance(row, list) else [row]
            known = subscript is not None and 0 <= subscript < len(parts)
            chosen += [parts[subscript]] if known and subscript is not None else parts
        rows = chosen
    if not rows or any(isinstance(row, list) for row in rows):
        return None
    numbers = [row for row in rows if isinstance(row, int)]
    return min(numbers), max(numbers)
