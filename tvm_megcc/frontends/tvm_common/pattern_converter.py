# SPDX-License-Identifier: Apache-2.0
"""Converts the rows of `patterns.py` to patterns of TVM, for both Relax and Relay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from ... import patterns
from ...errors import MegccError


def operand_orders(kind: str, terms: Sequence) -> Iterator[Sequence]:
    """Yields the orders of operands to match: the given one and, for a commutative operator, its reverse."""
    yield terms
    if kind in patterns.COMMUTATIVE and len(terms) == 2:
        yield terms[::-1]


class PatternConverter(ABC):
    """Converts terms of `patterns.py` to patterns of a dialect, which a subclass makes. A term that occurs twice
    becomes one pattern. Alternatives are joined by TVM's operator `|`."""

    #: The dialect's name, for messages.
    dialect: str

    def __init__(self):
        self._patterns: dict[patterns.Term, object] = {}

    @abstractmethod
    def any(self):
        """Returns the pattern of any value."""

    @abstractmethod
    def constant(self):
        """Returns the pattern of any constant."""

    @abstractmethod
    def names(self, kind: str, operands: Sequence[patterns.Term]) -> Iterable[str]:
        """Returns the dialect's operators that are imported as one of ours, applied to these terms."""

    @abstractmethod
    def call(self, name: str, operands: Sequence):
        """Returns the pattern of a call whose first operands match these patterns."""

    def pattern(self, term: patterns.Term):
        """Returns the pattern of a term.

        Raises:
            MegccError: if the dialect has none of its operators.
        """
        if term not in self._patterns:
            self._patterns[term] = self._convert(term)
        return self._patterns[term]

    def _convert(self, term: patterns.Term):
        if isinstance(term, patterns.Any):
            return self.any()
        if isinstance(term, patterns.Const):
            return self.constant()
        if isinstance(term, patterns.Call):
            return self._any_call(term.kinds, term.args)
        return self._any_call(term.kinds, (term.arg, *term.more)) | self.pattern(term.arg)  # an optional call

    def _any_call(self, kinds: Sequence[str], operands: Sequence[patterns.Term]):
        """Returns the pattern of a call of any of our operators `kinds`, with the operands in any allowed order."""
        found = None
        for kind in kinds:
            for name in self.names(kind, operands):
                for order in operand_orders(kind, operands):
                    call = self.call(name, [self.pattern(operand) for operand in order])
                    found = call if found is None else found | call
        if found is None:
            raise MegccError(f"{self.dialect} has none of {', '.join(kinds)}")
        return found
