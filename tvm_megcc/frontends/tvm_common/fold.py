# SPDX-License-Identifier: Apache-2.0
"""The rows of `patterns.py` as patterns of TVM, which Relax and Relay write differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from ... import patterns
from ...errors import MegccError


def orders(kind: str, terms: Sequence) -> Iterator[Sequence]:
    """Ways to read the operands of an operator."""
    yield terms
    if kind in patterns.COMMUTATIVE and len(terms) == 2:
        yield terms[::-1]


class Fold(ABC):
    """Neutral terms as patterns; a term that stands at two places is one pattern. Patterns are joined by `|`."""

    #: Who has none of the operators, for messages.
    dialect: str

    def __init__(self):
        self.known: dict[patterns.Term, object] = {}

    @abstractmethod
    def any(self):
        """The pattern of any value."""

    @abstractmethod
    def constant(self):
        """The pattern of any constant."""

    @abstractmethod
    def names(self, kind: str, operands: Sequence[patterns.Term]) -> Iterable[str]:
        """Returns the names under which one of our operators, applied to these terms, can be imported."""

    @abstractmethod
    def call(self, name: str, operands: Sequence):
        """The pattern of a call whose first operands match these patterns."""

    def pattern(self, term: patterns.Term):
        """Returns the pattern of a term.

        Raises:
            MegccError: if the dialect has none of its operators.
        """
        if term not in self.known:
            self.known[term] = self._new(term)
        return self.known[term]

    def _new(self, term: patterns.Term):
        if isinstance(term, patterns.Any):
            return self.any()
        if isinstance(term, patterns.Const):
            return self.constant()
        if isinstance(term, patterns.Call):
            return self._calls(term.kinds, term.args)
        return self._calls(term.kinds, (term.arg, *term.more)) | self.pattern(term.arg)

    def _calls(self, kinds: Sequence[str], operands: Sequence[patterns.Term]):
        found = None
        for kind in kinds:
            for name in self.names(kind, operands):
                for order in orders(kind, operands):
                    call = self.call(name, [self.pattern(operand) for operand in order])
                    found = call if found is None else found | call
        if found is None:
            raise MegccError(f"{self.dialect} has none of {', '.join(kinds)}")
        return found
