# SPDX-License-Identifier: Apache-2.0
"""The variables that statements of C change, by which numbers, and which of them in every iteration of a loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Union

from pycparser import c_ast

LOOPS = (c_ast.For, c_ast.While, c_ast.DoWhile)


def literal(node: c_ast.Node) -> int | None:
    """Returns the value of an integer or character constant; None for anything else."""
    if isinstance(node, c_ast.Constant) and "int" in node.type:
        text = node.value.rstrip("uUlL")
        return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
    if isinstance(node, c_ast.Constant) and node.type == "char" and len(node.value) == 3:
        return ord(node.value[1])
    return None


def nodes(node: c_ast.Node | None) -> Iterator[c_ast.Node]:
    """Yields a node and all nodes in it."""
    if node is not None:
        yield node
        for _, child in node.children():
            yield from nodes(child)


def changes(node: c_ast.Node | None) -> dict[str, list[int | None]]:
    """Returns the variables that a statement may change -> the number that each change adds. None: it assigns or
    multiplies, or takes the address, through which others may write."""
    return {name: [step_of(part) for part in parts] for name, parts in changing(node).items()}


def changing(node: c_ast.Node | None) -> dict[str, list[c_ast.Node]]:
    """Returns the variables that a statement may change -> the expressions that do so."""
    found: dict[str, list[c_ast.Node]] = {}
    for part in nodes(node):
        target = None
        if isinstance(part, c_ast.Assignment):
            target = part.lvalue
        elif isinstance(part, c_ast.UnaryOp) and part.op in ("++", "p++", "--", "p--", "&"):
            target = part.expr
        if isinstance(target, c_ast.ID):
            found.setdefault(target.name, []).append(part)
    return found


def step_of(part: c_ast.Node) -> int | None:
    """Returns the number that an expression of `changing` adds, if it is a constant."""
    if isinstance(part, c_ast.Assignment):
        value = literal(part.rvalue)
        return value if part.op == "+=" else -value if part.op == "-=" and value is not None else None
    return None if part.op == "&" else 1 if "+" in part.op else -1


def _steps(node: c_ast.Node | None) -> set[str]:
    """Returns the variables that an expression or a declaration changes whenever it is computed; none for a loop or
    switch, whose parts may be left out."""
    if node is None or isinstance(node, (*LOOPS, c_ast.Switch)):
        return set()
    parts, found = [part for _, part in node.children()], set()
    if isinstance(node, c_ast.UnaryOp) and node.op in ("++", "p++", "--", "p--") and isinstance(node.expr, c_ast.ID):
        found = {node.expr.name}
    elif isinstance(node, c_ast.UnaryOp) and node.op == "sizeof":
        parts = []
    elif isinstance(node, c_ast.Assignment) and isinstance(node.lvalue, c_ast.ID):
        found = {node.lvalue.name}
    elif isinstance(node, c_ast.TernaryOp) or (isinstance(node, c_ast.BinaryOp) and node.op in ("&&", "||")):
        parts = parts[:1]  # the others are computed in some cases only
    return found.union(*map(_steps, parts))


#: The variables that a statement changes on all of its ways to the next statement (None: there is none), and those on
#: each way to the next iteration by `continue`.
_Ways = tuple[Union[set[str], None], list[set[str]]]


def _ways(node: c_ast.Node | None) -> _Ways:
    """Returns what a statement of a loop's body certainly changes, for each way on from it."""
    if isinstance(node, (c_ast.Continue, c_ast.Goto)):  # a goto may lead to the end of the body
        return None, [set()]
    if isinstance(node, c_ast.Label):
        return _ways(node.stmt)
    if isinstance(node, (c_ast.Break, c_ast.Return)):
        return None, []
    if isinstance(node, c_ast.Compound):
        done: set[str] = set()
        continued: list[set[str]] = []
        for part in node.block_items or ():
            following, others = _ways(part)
            continued += [done | other for other in others]
            if following is None:
                return None, continued
            done |= following
        return done, continued
    if isinstance(node, c_ast.If):
        steps, branches = _steps(node.cond), [_ways(node.iftrue), _ways(node.iffalse)]
        followed = [following for following, _ in branches if following is not None]
        return (steps | set.intersection(*followed) if followed else None,
                [steps | other for _, others in branches for other in others])
    ends = c_ast.Goto if isinstance(node, LOOPS) else (c_ast.Continue, c_ast.Goto)  # a loop has its own `continue`
    return _steps(node), [set()] if any(isinstance(part, ends) for part in nodes(node)) else []


def steps_of_all_iterations(node: c_ast.Node) -> set[str]:
    """Returns the variables that a loop changes in every iteration: in its head, or on all ways through its body."""
    following, continued = _ways(node.stmt)
    ways = [*([] if following is None else [following]), *continued]
    return _steps(node.cond) | _steps(getattr(node, "next", None)) | (set.intersection(*ways) if ways else set())
