# SPDX-License-Identifier: Apache-2.0
"""Names of kernels: `<operation>_<extents>_<types>[_<epilogue>]__<algorithm>_<isa>`.

The part before the double underscore tells what is computed, the part after it how and for which ISA. Kernels of the
same name are the same code. The name of a kernel's file is the kernel's, shortened if it would be too long
(`kernel_file`).
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
MAX_FILE_CHARACTERS = 60
#: Characters that a shortened file name keeps from the end of the symbol: algorithm and ISA.
_LAST_CHARACTERS = 20
#: Characters of the digest in a shortened file name, and of the separators and the suffix around it.
_DIGEST_CHARACTERS, _OTHER_CHARACTERS = 8, 4


def kernel_file(symbol: str) -> str:
    """Returns the path of a kernel in the generated folder. The file is named after its symbol or, if that is too long,
    after the symbol's first words, a digest and its last words."""
    if len(symbol) + len(".c") > MAX_FILE_CHARACTERS:
        first = _first_words(symbol, MAX_FILE_CHARACTERS - _DIGEST_CHARACTERS - _LAST_CHARACTERS - _OTHER_CHARACTERS)
        last = _first_words(symbol[::-1], _LAST_CHARACTERS)[::-1]
        symbol = f"{first}_{digest(symbol, _DIGEST_CHARACTERS)}_{last}"
    return f"kernels/{symbol}.c"


def _first_words(symbol: str, characters: int) -> str:
    """Returns as many first words as fit in so many characters; a longer first word is cut."""
    part = symbol[:characters]
    if symbol[characters:characters + 1] not in ("", "_") and "_" in part.strip("_"):
        part = part[:part.rindex("_")]
    return part.strip("_")


def expression_name(expr: Expr) -> str:
    """Returns a name for an expression, different from those of all other expressions: that of NAMED_EXPRESSIONS, or
    its first three functions and a digest."""
    if expr in NAMED_EXPRESSIONS:
        return NAMED_EXPRESSIONS[expr]
    functions = list(dict.fromkeys(_functions(expr)))
    return "_".join(functions[:3]) + "_" + digest(repr(expr), 4)


def _functions(expr: Expr) -> Iterator[str]:
    """Yields the functions of an expression, operands first."""
    if isinstance(expr, (Arg, Const)):
        return
    assert isinstance(expr, Call)
    for operand in expr.args:
        yield from _functions(operand)
    yield expr.fn
