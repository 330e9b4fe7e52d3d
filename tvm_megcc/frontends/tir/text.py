# SPDX-License-Identifier: Apache-2.0
"""Collects the C of one TIR function: lines, names in scope, temporaries. `loops.py` prints statements on top of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...errors import MegccError
from ...ir.c_text import UNARY
from ...ir.dims import product
from ...ir.types import DTYPES
from ..tvm_versions import Analyzer, Var
from .values import Memory, require_dtype
from .vectors import Vectors
from .workspace import MAX_LOCAL_BYTES, Temporary

#: Identifiers that variables of loops must not shadow: C's keywords, and names that printed functions use.
RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "begin end scratch call outside lanes half angle asm main index_in NULL".split())
#: A name may not be empty, begin with a digit or a prefix of the runtime, or be a type of C or a helper (`add_i64`).
_FOREIGN_NAME = re.compile(r"\d|megcc|MG|$|(u?int\d+|size|ptrdiff)_t$|\w+_[fiu](8|16|32|64)$")


class FunctionText(Vectors):
    """Collects the statements of one function in `lines`.

    dim: converts an integer expression of TIR to an extent (`ir/dims.py`).
    names: the identifiers in scope.
    temporaries: the buffers in the workspace, with their live ranges: the numbers of the first and the last of the
        function's outermost statements that use them (`memory` extends them).
    position: the number of the outermost statement that is being printed.
    """

    def __init__(self, analyzer: Analyzer, dim):
        super().__init__(analyzer)
        self.dim = dim
        self.lines: list[str] = []
        self.names: list[str] = []
        self.temporaries: dict[Var, Temporary] = {}
        self.position = 0

    def name(self, hint: str) -> str:
        """Returns an identifier that is unused in the current scope."""
        base = re.sub(r"\W+", "_", hint, flags=re.ASCII)
        base = re.sub(r"^_*(mg[cd]_+)*", "", base).rstrip("_")  # prefixes of the runtime's headers
        base = f"v{base}" if _FOREIGN_NAME.match(base) else base
        name, count = base, 1
        while name in self.names or name in RESERVED or name in self.helpers:
            count += 1
            name = f"{base}{count}"
        self.names.append(name)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Yields a scope of C; names that are given in it can be used again after it."""
        known = len(self.names)
        yield
        del self.names[known:]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Prints `head { … }` around the lines of the scope. An `else` continues the line of the brace before it."""
        self.lines.append(f"{self.lines.pop()} {head} {{" if head == "else" else f"{head} {{")
        with self.scope():
            yield
        self.lines.append("}")

    def extract_common(self, strings: list[str]) -> list[str]:
        """Prints definitions of variables for the common subexpressions of a statement, which is complete.

        Args:
            strings: the C of the statement, with placeholders for subexpressions (common_subexpressions.py).

        Returns:
            The strings, in which subexpressions or names of variables replace the placeholders. The next statement
            begins with no subexpressions.
        """
        lines, strings = self.subexpressions.extract_common(strings, self.name)
        self.subexpressions = None
        self.lines += lines
        return strings

    def stored(self, expr, dtype: str) -> str:
        """Returns a value converted to its type in memory."""
        value = self.value(expr)
        return f"mgc_to_float16((double){value.operand(UNARY)})" if dtype == "float16" else value.text

    def allocate(self, buffer, dropped: Iterable[int] = ()) -> None:
        """Allocates a temporary: a small one as a local variable or array. The others get an offset in the workspace
        when all of them are known (workspace.py).

        Args:
            dropped: axes that are not in memory, since each iteration uses only one index of them.
        """
        if len(buffer.strides):
            raise MegccError(f"the buffer {buffer.name} has strides")
        shape, dtype = tuple(buffer.shape), dtype_of_buffer(buffer)
        size = product(self.dim(extent) for axis, extent in enumerate(shape) if axis not in set(dropped))
        name = self.name(buffer.name)
        is_variable = size == 1
        self.buffers[buffer] = Memory(name, dtype, shape, is_variable, frozenset(dropped))
        c_type, bytes_ = DTYPES[dtype].c_type, DTYPES[dtype].bytes
        if is_variable:
            self.lines.append(f"{c_type} {name} = 0;")
        elif isinstance(size, int) and size * bytes_ <= MAX_LOCAL_BYTES:
            self.lines.append(f"{c_type} {name}[{size}] = {{ 0 }};")
        else:
            self.temporaries[buffer] = Temporary(name, dtype, size)

    def memory(self, source) -> Memory:
        """Returns the memory of a buffer that is read or written, and extends the live range of a temporary to the
        statement that is being printed."""
        if source in self.temporaries:
            temporary = self.temporaries[source]
            temporary.first = self.position if temporary.first < 0 else temporary.first
            temporary.last = self.position
        return super().memory(source)


def dtype_of_buffer(buffer) -> str:
    """Returns the dtype of a buffer's elements; raises MegccError for one that is not supported."""
    return require_dtype(str(buffer.dtype))
