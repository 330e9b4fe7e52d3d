# SPDX-License-Identifier: Apache-2.0
"""Names of kernels: `<operation>_<extents>_<types>[_<epilogue>]__<algorithm>_<isa>`.

The part before the double underscore tells what is computed, the part after it how and for which ISA. Kernels of the
same name are the same code. If a name would be too long, its first part ends in a digest of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...foreign import digest
from ...ir.expr import Arg, Call, Const, Expr, X, arg, call, clip, maximum

#: Epilogues with a name of their own; others are spelled out or digested.
NAMED_EXPRESSIONS = {
    maximum(X, 0): "relu",
    clip(X, 0, 6): "relu6",
    call("sigmoid", X): "sigmoid",
    call("tanh", X): "tanh",
    X * call("sigmoid", X): "silu",
    X + arg(1): "add",
    arg(1) + X: "add_to",
    X * arg(1): "mul",
    maximum(X + arg(1), 0): "add_relu",
    maximum(arg(1) + X, 0): "add_to_relu",
}


#: The most characters of a kernel's file name, so that its path fits in 260 characters, the limit of Windows.
LONGEST_FILE = 60


def kernel_file(symbol: str) -> str:
    """Returns the file name of a kernel: its symbol or, if that is long, its first words, a digest and its last
    part."""
    if len(symbol) + 2 > LONGEST_FILE:
        first = _first_words(symbol, LONGEST_FILE - 32)
        last = _first_words(symbol[::-1], 20)[::-1]
        symbol = f"{first}_{digest(symbol, 8)}_{last}"
    return f"kernels/{symbol}.c"


def _first_words(symbol: str, longest: int) -> str:
    """Returns as many first words as fit in `longest` characters; a longer first word is cut."""
    part = symbol[:longest]
    if symbol[longest:longest + 1] not in ("", "_") and "_" in part.strip("_"):
        part = part[:part.rindex("_")]
    return part.strip("_")


def expression_name(expr: Expr) -> str:
    """Returns a word for an expression, unique among expressions."""
    if expr in NAMED_EXPRESSIONS:
        return NAMED_EXPRESSIONS[expr]
    functions = list(dict.fromkeys(_functions(expr)))
    return "_".join(functions[:3]) + "_" + digest(repr(expr), 4)


def _functions(expr: Expr) -> Iterator[str]:
    if isinstance(expr, (Arg, Const)):
        return
    assert isinstance(expr, Call)
    for operand in expr.args:
        yield from _functions(operand)
    yield expr.fn
