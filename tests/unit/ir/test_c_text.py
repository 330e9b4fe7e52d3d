# SPDX-License-Identifier: Apache-2.0
"""Expressions in C mean what they are printed of, and have no parentheses that say nothing."""

from __future__ import annotations

import ast
import random
import re

import pytest

from tvm_megcc.ir import expr as expressions
from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import FUNCTIONS, Arg, Call, Const, Expr, X, arg, call, vector_call

NAMES = ("x", "e1", "e2")
SIGNS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
#: Functions whose parts C and Python read alike, and as many of the others.
INFIX = [name for name, function in FUNCTIONS.items() if function.infix]
NAMED = ("neg", "max", "sqrt", "neg", "pow")


def drawn(generator: random.Random, depth: int) -> Expr:
    if depth == 0 or generator.random() < 0.15:
        return generator.choice([*map(Arg, range(3)), Const(0.5), Const(-2.0), Const(-0.0)])
    fn = generator.choice(INFIX if generator.random() < 0.75 else NAMED)
    count = 1 if fn in ("neg", "sqrt") else 2
    return Call(fn, tuple(drawn(generator, depth - 1) for _ in range(count)))


def negated(tree: object) -> object:
    """A sign before a number is one in the number: the two are the same text."""
    return -tree if isinstance(tree, float) else ("neg", tree)


def read(node: ast.expr) -> object:
    """The tree that a text stands for: Python binds as tightly as C here, and from the left as C does."""
    if isinstance(node, ast.BinOp):
        return SIGNS[type(node.op)], read(node.left), read(node.right)
    if isinstance(node, ast.UnaryOp):
        assert isinstance(node.op, ast.USub)
        return negated(read(node.operand))
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        name, arguments = re.sub("^mg[cd]_", "", node.func.id), list(map(read, node.args))
        return arguments[0] if name == "set1" else negated(*arguments) if name == "neg" else (name, *arguments)
    return float(node.value) if isinstance(node, ast.Constant) else node.id


def tree(expr: Expr, vectors: bool) -> object:
    if isinstance(expr, Arg):
        return NAMES[expr.index]
    if isinstance(expr, Const):
        return expr.value
    expr = vector_call(expr) if vectors else expr
    operands = tuple(tree(a, vectors) for a in expr.args)
    return negated(*operands) if expr.fn == "neg" else (expr.fn, *operands)


PRINTERS = {"vectors": lambda expr: expressions.to_c(expr, NAMES),
            "doubles": lambda expr: expressions.to_c_double(expr, NAMES),
            "lanes": lambda expr: lanes.to_c(expr, NAMES, "fff")}


@pytest.mark.parametrize("printer", PRINTERS)
def test_the_order_of_operations_is_that_of_the_expression(printer: str):
    generator = random.Random(7)
    for _ in range(500):
        expr = drawn(generator, 5)
        text = PRINTERS[printer](expr)
        again = ast.parse(re.sub(r"(?<=\d)f\b", "", text), mode="eval").body
        assert repr(read(again)) == repr(tree(expr, printer != "doubles")), text


def nested(text: str) -> list[str]:
    """Parentheses directly around others."""
    opened, pairs = [], {}
    for place, sign in enumerate(text):
        if sign == "(":
            opened.append(place)
        elif sign == ")":
            pairs[opened.pop()] = place
    return [text[start:end + 1] for start, end in pairs.items() if pairs.get(start + 1) == end - 1]


@pytest.mark.parametrize("printer", PRINTERS)
def test_no_parentheses_around_parentheses_or_the_whole(printer: str):
    generator = random.Random(8)
    for _ in range(500):
        text = PRINTERS[printer](drawn(generator, 5))
        assert not nested(text), text
        assert not nested(f"({text})") or not text.startswith("("), text


@pytest.mark.parametrize(("expr", "vectors", "doubles"), [
    (X + arg(1) * arg(2), "x + e1 * e2", "x + e1 * e2"),
    (X + (arg(1) + arg(2)), "x + (e1 + e2)", "x + (e1 + e2)"),
    ((X - arg(1)) / arg(2), "(x - e1) / e2", "(x - e1) / e2"),
    (X / (arg(1) / arg(2)), "x / (e1 / e2)", "x / (e1 / e2)"),
    (call("neg", -X), "mgc_neg(mgc_neg(x))", "-(-x)"),
    (X - 1 * -arg(1), "x - mgc_set1(1.0f) * mgc_neg(e1)", "x - 1.0 * (-e1)"),
    (call("neg", Const(-2.0)), "mgc_neg(mgc_set1(-2.0f))", "-(-2.0)"),
    (X * -0.5, "x * mgc_set1(-0.5f)", "x * (-0.5)"),
    (call("if_lt", X + 1, -0.5, call("if_lt", X, 0, X, 1), X * X),
     "mgc_if_lt(x + mgc_set1(1.0f), mgc_set1(-0.5f), mgc_if_lt(x, mgc_set1(0.0f), x, mgc_set1(1.0f)), x * x)",
     "x + 1.0 < (-0.5) ? (x < 0.0 ? x : 1.0) : x * x"),
])
def test_strings(expr: Expr, vectors: str, doubles: str):
    assert expressions.to_c(expr, NAMES) == lanes.to_c(expr, NAMES, "fff") == vectors
    assert expressions.to_c_double(expr, NAMES) == doubles
