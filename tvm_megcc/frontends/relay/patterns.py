# SPDX-License-Identifier: Apache-2.0
"""Registers with Relay what we have kernels for: the pattern table "megcc", from `patterns.py`, of sequences that
become one kernel; and the attribute "target.megcc" of every operator that can be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tvm import ir
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tvm.relay.op.contrib.register import get_pattern_table, register_pattern_table

from ... import patterns
from ...errors import MegccError
from ...ops.base import OPERATORS
from ...target import Target, native
from ..tvm_common.pattern_converter import PatternConverter
from ..tvm_common.support import why_unsupported
from .importer import import_call
from .ops import IMPORTERS
from .terms import matched_calls, relay_names

COMPILER = "megcc"

#: The last is the target that checks ask about. `partition_for_megcc` adds it; without one it is the host.
_TARGETS: list[Target] = []


@contextmanager
def checking_for(target: Target) -> Iterator[None]:
    """Makes checks within the block ask for kernels of this target."""
    _TARGETS.append(target)
    try:
        yield
    finally:
        _TARGETS.pop()


def refusal(call, target: Target | None = None) -> str | None:
    """Returns why no kernel realises the call of an operator, None if one does."""
    try:
        graph = import_call(call)
    except MegccError as error:
        return str(error)
    return why_unsupported(graph, target or (_TARGETS[-1] if _TARGETS else native()))


def check_of(row: patterns.Composite) -> Callable[[object], bool]:
    """Returns the check of a pattern: whether a kernel realises every call of a match, as the code generator would
    find."""
    def check(root) -> bool:
        calls = matched_calls(row.term, root)
        return bool(calls) and all(refusal(call) is None for call in calls)
    return check


def importable() -> list[str]:
    """Returns the names of the operators of the installed TVM that can be imported."""
    declared = [name for declaration in OPERATORS.values() for name in declaration.relay]
    known = {str(name) for name in ir.Op.list_op_names()}
    return [name for name in dict.fromkeys((*IMPORTERS, *declared)) if name in known]


class _Converter(PatternConverter):
    """Builds Relay patterns from the rows of `patterns.py`. Further operands of a call may be anything."""

    dialect = "Relay"

    def __init__(self):
        super().__init__()
        self.available = set(importable())

    def any(self) -> DFPattern:
        return wildcard()

    def constant(self) -> DFPattern:
        return is_constant()

    def names(self, kind: str, operands: Sequence[patterns.Term]) -> list[str]:
        return [name for name in relay_names(kind, operands) if name in self.available]

    def call(self, name: str, operands: Sequence[DFPattern]) -> DFPattern:
        others = ir.Op.get(name).num_inputs - len(operands)
        return is_op(name)(*operands, *(wildcard() for _ in range(others)))


def pattern_table() -> list[tuple]:
    """Returns (name, pattern, check) for each pattern, most specific first."""
    return [(row.name, _Converter().pattern(row.term), check_of(row)) for row in patterns.COMPOSITES]


def registered() -> list[tuple]:
    return list(get_pattern_table(COMPILER))


def register() -> None:
    """Registers the pattern table and the operators' attributes with TVM."""
    register_pattern_table(COMPILER, pattern_table)
    for name in importable():
        ir.register_op_attr(name, f"target.{COMPILER}", lambda call: refusal(call) is None)
