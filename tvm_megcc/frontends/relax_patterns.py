# SPDX-License-Identifier: Apache-2.0
"""`patterns.py` and the registry of operators as Relax patterns, registered under the prefix `megcc.`"""

from __future__ import annotations

from collections.abc import Iterable

from tvm import ir
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.dpl.pattern import DFPattern
from tvm.relax.transform import FusionPattern, PatternCheckContext

from .. import patterns
from ..errors import MegccError
from ..ops.base import OPERATORS
from ..target import Target, native
from ._shared import unsupported
from .relax_import import import_match
from .relax_ops import importable

PREFIX = "megcc."

#: The target that checks ask about; `partition_for_megcc` sets it, everything else sees the host's.
_TARGET: list[Target] = []


class checking_for:
    """Within the block, pattern checks ask for kernels of this target."""

    def __init__(self, target: Target):
        self.target = target

    def __enter__(self):
        _TARGET.append(self.target)

    def __exit__(self, *_):
        _TARGET.pop()


def refusal(expr, bindings=None, target: Target | None = None) -> str | None:
    """Why no kernel realises an expression; None if one does."""
    try:
        graph = import_match(expr, bindings)
    except MegccError as error:
        return str(error)
    return unsupported(graph, target or (_TARGET[-1] if _TARGET else native()))


def check(context: PatternCheckContext) -> bool:
    """Asks the code generator's own question about a match."""
    if len(context.matched_bindings) > 1 and has_leaking_intermediate_variables(context):
        return False
    return refusal(context.matched_expr, dict(context.matched_bindings.items())) is None


class _Fold:
    """Neutral terms as Relax patterns; a term that stands at two places is one pattern."""

    def __init__(self):
        self.known: dict[patterns.Term, DFPattern] = {}
        self.available = set(importable())

    def pattern(self, term: patterns.Term) -> DFPattern:
        if term not in self.known:
            self.known[term] = self._new(term)
        return self.known[term]

    def _new(self, term: patterns.Term) -> DFPattern:
        if isinstance(term, patterns.Any):
            return wildcard()
        if isinstance(term, patterns.Const):
            return is_const()
        if isinstance(term, patterns.Call):
            return self._calls(term.kinds, [self.pattern(argument) for argument in term.args])
        value = self.pattern(term.arg)
        return self._calls(term.kinds, [value, *map(self.pattern, term.more)]) | value

    def _calls(self, kinds: Iterable[str], arguments: list[DFPattern]) -> DFPattern:
        found: DFPattern | None = None
        for kind in kinds:
            orders = [arguments]
            if kind in patterns.COMMUTATIVE and len(arguments) == 2:
                orders.append(arguments[::-1])
            for name in _relax_names(kind):
                for order in orders if name in self.available else ():
                    call = is_op(name)(*order, varg_default_wildcard=True)
                    found = call if found is None else found | call
        if found is None:
            raise MegccError(f"Relax has none of {', '.join(kinds)}")
        return found


def _relax_names(kind: str) -> tuple[str, ...]:
    return OPERATORS[kind].relax if kind in OPERATORS else ()


def pattern_table() -> list[FusionPattern]:
    """All patterns, most specific first: the composites, then every operator by itself."""
    composites = [FusionPattern(row.name, _Fold().pattern(row.term), {}, check) for row in patterns.COMPOSITES]
    singles = [FusionPattern(PREFIX + name.removeprefix("relax."), _any_call(name), {}, check)
               for name in importable()]
    return composites + singles


def _any_call(name: str) -> DFPattern:
    """TVM's matcher looks at the operands of some operators (products, quotients), so they stand there."""
    operands = [wildcard() for _ in range(max(ir.Op.get(name).num_inputs, 0))]
    return is_op(name)(*operands, varg_default_wildcard=True)


def register() -> None:
    """Makes the table known to TVM. Of its registry's entries the later have the higher priority."""
    if not get_patterns_with_prefix(PREFIX):
        register_patterns([(row.name, row.pattern, row.annotation_patterns, check)
                           for row in reversed(pattern_table())])


def registered() -> list[FusionPattern]:
    return list(get_patterns_with_prefix(PREFIX))
