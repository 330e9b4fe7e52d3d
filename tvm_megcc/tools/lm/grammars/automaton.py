# SPDX-License-Identifier: Apache-2.0
"""Turns the rules of a grammar into automata over bytes that call each other (recursive transition networks; Woods,
"Transition network grammars for natural language analysis", 1970).

Each rule becomes a nondeterministic automaton (Thompson's construction), in which rules without recursion replace their
calls, and then a deterministic one by the subset construction. Every state can reach the end of its rule, so a text
that the automata accept so far is the beginning of a text of the grammar. An automaton never ends without a byte: a
call of a rule that matches the empty string can be passed over, so a parser need not look for empty matches (Aycock and
Horspool, "Practical Earley parsing", 2002).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ....errors import MegccError
from .gbnf import LAST_CHARACTER, read_rules

#: The largest numbers of states: of one rule before and of all rules after the subset construction. Targets in the
#: tables are differences of two numbers of states, as int16_t.
MAX_RULE_STATES, MAX_STATES = 100_000, 32_767
#: The most steps of the subset construction, in members of sets.
_MAX_STEPS = 4_000_000
#: Rules with more states than this, with those that they call, keep their automaton when others call them.
_MAX_INLINED = 20_000
#: The most states that are copied into other rules.
_MAX_ALL_INLINED = 60_000

#: The input that an edge consumes: nothing, one of the bytes (first, last), or a string of a rule.
Label = tuple[int, int] | str | None
Edge = tuple[int, int, Label]


@dataclass(frozen=True)
class Fragment:
    """A part of an automaton, from state `start` to state `end`. Its states and edges are those of two ranges."""

    start: int
    end: int
    states: range
    edges: range


class Automaton:
    """The nondeterministic automaton of a rule, which `Fragments` builds.

    count: number of states. edges: (from, to, label).
    """

    def __init__(self) -> None:
        self.count = 0
        self.edges: list[Edge] = []
        self.start = self.end = 0

    def add_state(self) -> int:
        self.require_space(1)
        self.count += 1
        return self.count - 1

    def require_space(self, states: int) -> None:
        """Raises MegccError if so many more states are too many."""
        if self.count + states > MAX_RULE_STATES:
            raise MegccError(f"a rule of the grammar needs more than {MAX_RULE_STATES:,} states; "
                             "it has too many repetitions or alternatives")


class Fragments:
    """Builds one automaton after another from parts of rules (`gbnf.Notation`)."""

    def __init__(self) -> None:
        self.automaton = Automaton()

    def finish(self, part: Fragment) -> Automaton:
        """Returns the automaton of a rule, and begins the next one."""
        finished, self.automaton = self.automaton, Automaton()
        finished.start, finished.end = part.start, part.end
        return finished

    def _fragment(self, start: int, end: int, first_state: int, first_edge: int) -> Fragment:
        return Fragment(start, end, range(first_state, self.automaton.count),
                        range(first_edge, len(self.automaton.edges)))

    def string(self, string: str) -> Fragment:
        state = self.automaton.add_state()
        first, first_edge = state, len(self.automaton.edges)
        for byte in string.encode():
            following = self.automaton.add_state()
            self.automaton.edges.append((state, following, (byte, byte)))
            state = following
        return self._fragment(first, state, first, first_edge)

    def characters(self, ranges: Sequence[tuple[int, int]], negated: bool) -> Fragment:
        start, first_edge = self.automaton.add_state(), len(self.automaton.edges)
        # States by the byte ranges that are still to come, so that characters share them.
        states: dict[tuple[tuple[int, int], ...], int] = {(): self.automaton.add_state()}
        edges: dict[Edge, None] = {}
        for first, last in _complement(ranges) if negated else ranges:
            for sequence in utf8_ranges(first, last):
                state = start
                for index, span in enumerate(sequence):
                    rest = sequence[index + 1:]
                    if rest not in states:
                        states[rest] = self.automaton.add_state()
                    edges[state, states[rest], span] = None
                    state = states[rest]
        self.automaton.edges += edges
        return self._fragment(start, states[()], start, first_edge)

    def rule(self, name: str) -> Fragment:
        start, end = self.automaton.add_state(), self.automaton.add_state()
        self.automaton.edges.append((start, end, name))
        return self._fragment(start, end, start, len(self.automaton.edges) - 1)

    def sequence(self, parts: Sequence[Fragment]) -> Fragment:
        self.automaton.edges += [(left.end, right.start, None) for left, right in pairwise(parts)]
        return self._fragment(parts[0].start, parts[-1].end, parts[0].states.start, parts[0].edges.start)

    def choice(self, parts: Sequence[Fragment]) -> Fragment:
        if len(parts) == 1:
            return parts[0]
        start, end = self.automaton.add_state(), self.automaton.add_state()
        for part in parts:
            self.automaton.edges += [(start, part.start, None), (part.end, end, None)]
        return self._fragment(start, end, parts[0].states.start, parts[0].edges.start)

    def repeated(self, part: Fragment, least: int, most: int | None) -> Fragment:
        copies = max(least, 1) if most is None else most
        self.automaton.require_space(len(part.states) * max(copies - 1, 0) + 2)
        start, end, edges = self.automaton.add_state(), self.automaton.add_state(), self.automaton.edges
        before, last = start, part
        for copy in range(copies):
            last = self._copy(part) if copy else part
            edges.append((before, last.start, None))
            if copy >= least:   # the text may end before this copy
                edges.append((before, end, None))
            before = last.end
        if most is None:
            edges.append((last.end, last.start, None))
        edges.append((before, end, None))
        return self._fragment(start, end, part.states.start, part.edges.start)

    def _copy(self, part: Fragment) -> Fragment:
        automaton = self.automaton
        first, first_edge = automaton.count, len(automaton.edges)
        moved = first - part.states.start
        automaton.count += len(part.states)
        automaton.edges += [(source + moved, target + moved, label)
                            for source, target, label in automaton.edges[part.edges.start:part.edges.stop]]
        return self._fragment(part.start + moved, part.end + moved, first, first_edge)


def _complement(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the ranges of code points in none of the ranges."""
    begin = 0
    for first, last in sorted(ranges):
        if first > begin:
            yield begin, first - 1
        begin = max(begin, last + 1)
    if begin <= LAST_CHARACTER:
        yield begin, LAST_CHARACTER


def utf8_ranges(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields the bytes of code points first to last, without surrogates, as sequences of ranges of bytes: each sequence
    stands for all strings with one byte of each range."""
    for low, high in ((0, 0x7f), (0x80, 0x7ff), (0x800, 0xd7ff), (0xe000, 0xffff), (0x10000, LAST_CHARACTER)):
        if max(first, low) <= min(last, high):
            yield from _byte_ranges(chr(max(first, low)).encode(), chr(min(last, high)).encode())


def _byte_ranges(low: bytes, high: bytes) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields the strings from low to high, of one length, whose bytes after the first are continuation bytes."""
    if len(low) == 1:
        yield ((low[0], high[0]),)
        return
    lowest, highest = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    first, last = low[0], high[0]
    if first == last:
        yield from (((first, first), *rest) for rest in _byte_ranges(low[1:], high[1:]))
        return
    if low[1:] != lowest:
        yield from (((first, first), *rest) for rest in _byte_ranges(low[1:], highest))
        first += 1
    whole = high[1:] == highest
    if first <= last - (not whole):
        yield from (((first, last - (not whole)), *rest) for rest in _byte_ranges(lowest, highest))
    if not whole:
        yield from (((last, last), *rest) for rest in _byte_ranges(lowest, high[1:]))


@dataclass
class State:
    """A state of a deterministic automaton.

    moves: the state after a byte of each class of bytes, for those that can follow. calls: the state after a rule.
    ends: whether the rule can end here.
    """

    moves: dict[int, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    ends: bool = False


@dataclass(frozen=True)
class Network:
    """The deterministic automata of a grammar.

    states: those of all rules. rules: the first state of each rule; the first rule is the whole text. classes: the
    class of each byte, [256]; no automaton tells bytes of one class apart. matches_empty: whether a text may be empty.
    """

    states: list[State]
    rules: dict[str, int]
    classes: list[int]
    matches_empty: bool


def network_of(text: str) -> Network:
    """Returns the automata of a grammar in GBNF.

    Raises:
        MegccError: as `gbnf.read_rules`; for a grammar that matches no text, and one that needs too many states.
    """
    rules = _reachable(read_rules(text, Fragments()))
    try:
        return _minimized(_determinized(_inlined(rules)))
    except _TooLarge:
        return _minimized(_determinized(rules))     # each rule by itself: slower to match, and smaller


class _TooLarge(MegccError):
    """The subset construction takes too many steps or states."""


def _called(automaton: Automaton) -> list[str]:
    return list(dict.fromkeys(label for _, _, label in automaton.edges if isinstance(label, str)))


def _reachable(rules: Mapping[str, Automaton]) -> dict[str, Automaton]:
    """Returns the rules that a text can have, `root` first."""
    found, pending = {"root": rules["root"]}, ["root"]
    while pending:
        for name in _called(rules[pending.pop()]):
            if name not in found:
                found[name] = rules[name]
                pending.append(name)
    return found


def _postorder(rules: Mapping[str, Automaton]) -> tuple[list[str], set[str]]:
    """Returns the rules, each after those that it calls, if there is no recursion, and the recursive rules among
    them: those that a depth-first search meets again while it is in them."""
    order: list[str] = []
    recursive: set[str] = set()
    state = dict.fromkeys(rules, 0)     # 1: the search is in this rule, 2: it has left it
    stack = [("root", iter(_called(rules["root"])))]
    state["root"] = 1
    while stack:
        name, following = stack[-1]
        called = next(following, None)
        if called is None:
            state[name] = 2
            order.append(name)
            stack.pop()
        elif not state[called]:
            state[called] = 1
            stack.append((called, iter(_called(rules[called]))))
        elif state[called] == 1:
            recursive.add(called)
    return order, recursive


def _inlined(rules: Mapping[str, Automaton]) -> dict[str, Automaton]:
    """Returns the rules with the automata of rules in place of their calls, except of recursive and of large ones. Each
    cycle of calls has a rule that is kept."""
    order, recursive = _postorder(rules)
    found: dict[str, Automaton] = {}
    space = _MAX_ALL_INLINED
    for name in order:
        inlined, automaton = Automaton(), rules[name]
        inlined.count, inlined.start, inlined.end = automaton.count, automaton.start, automaton.end
        for source, target, label in automaton.edges:
            other = found.get(label) if isinstance(label, str) and label not in recursive else None
            if other is None or other.count > min(_MAX_INLINED - inlined.count, space):
                inlined.edges.append((source, target, label))
                continue
            moved, space = inlined.count, space - other.count
            inlined.count += other.count
            inlined.edges += [(source, other.start + moved, None), (other.end + moved, target, None)]
            inlined.edges += [(begin + moved, end + moved, inside) for begin, end, inside in other.edges]
        found[name] = inlined
    return _reachable(found)


def _reached(starts: Iterable[int], edges: Mapping[int, Iterable[int]]) -> set[int]:
    found, pending = set(starts), list(starts)
    while pending:
        for state in edges.get(pending.pop(), ()):
            if state not in found:
                found.add(state)
                pending.append(state)
    return found


def _rules_that(rules: Mapping[str, Automaton], nonempty: bool) -> set[str]:
    """Returns the rules that match the empty string or, with `nonempty`, at least one other string."""
    found: set[str] = set()
    nullable = _rules_that(rules, False) if nonempty else found
    callers: dict[str, list[str]] = defaultdict(list)
    for name, automaton in rules.items():
        for called in _called(automaton):
            callers[called].append(name)
    pending = dict.fromkeys(_postorder(rules)[0])
    while pending:
        name = next(iter(pending))
        del pending[name]
        if name not in found and _matches(rules[name], nullable, found, nonempty):
            found.add(name)
            pending |= dict.fromkeys(callers[name])
    return found


def _matches(automaton: Automaton, nullable: set[str], productive: set[str], nonempty: bool) -> bool:
    """Whether there is a way through the automaton: by edges that consume nothing or, with `nonempty`, by any, one of
    which consumes something. States are counted twice: as they are, and, from `count` on, after a byte."""
    edges: dict[int, list[int]] = defaultdict(list)
    count = automaton.count
    for source, target, label in automaton.edges:
        if label is None or label in nullable:
            edges[source].append(target)
            edges[source + count].append(target + count)
        if nonempty and (isinstance(label, tuple) or label in productive):
            edges[source].append(target + count)
            edges[source + count].append(target + count)
    return automaton.end + (count if nonempty else 0) in _reached([automaton.start], edges)


def _determinized(rules: Mapping[str, Automaton]) -> Network:
    nullable, productive = _rules_that(rules, False), _rules_that(rules, True)
    if "root" not in nullable | productive:
        raise MegccError("the grammar matches no text")
    classes = _byte_classes(rules.values())
    network = Network([], {}, classes, "root" in nullable)
    kept = _reachable({name: _without(automaton, productive, nullable) for name, automaton in rules.items()})
    steps = _MAX_STEPS
    for name, automaton in kept.items():
        network.rules[name] = len(network.states)
        steps = _Subsets(automaton, classes, steps).determinize(network.states)
    return network


def _minimized(network: Network) -> Network:
    """Returns the automata without states that match the same as others (Moore's partition refinement), numbered in the
    order of a breadth-first search, so that copies of a part of a rule are numbered alike."""
    labels: dict[int | str, int] = {}
    edges: list[tuple[int, int, int]] = []
    for number, state in enumerate(network.states):
        following: list[tuple[int | str, int]] = [*state.moves.items(), *state.calls.items()]
        edges += [(number, labels.setdefault(label, len(labels)), target) for label, target in following]
    targets = np.full((len(network.states), len(labels)), len(network.states), np.int64)
    for number, column, target in edges:
        targets[number, column] = target
    # A class is refined by the classes of all targets. A sum with random factors stands for the whole row; in the end
    # the rows themselves are compared.
    factors = np.random.default_rng(1).integers(1, 1 << 63, len(labels) + 1, np.uint64)
    class_ = np.array([state.ends for state in network.states], np.int64)
    count = 0
    while class_.max() >= count:
        count = int(class_.max()) + 1
        sums = (np.append(class_, -1)[targets].astype(np.uint64) * factors[1:]).sum(axis=1, dtype=np.uint64)
        class_ = np.unique(sums + class_.astype(np.uint64) * factors[0], return_inverse=True)[1].reshape(-1)
    rows = np.append(class_, -1)[targets]
    first = np.unique(class_, return_index=True)[1]
    if (rows != rows[first[class_]]).any():
        return network
    return _renumbered(network, class_.tolist())


def _renumbered(network: Network, classes: Sequence[int]) -> Network:
    """Returns the automata with one state for each class of states, without classes that no text reaches."""
    numbers: dict[int, int] = {}
    order: list[State] = []
    found = Network([], {}, network.classes, network.matches_empty)

    def number(state: int) -> int:
        if classes[state] not in numbers:
            numbers[classes[state]] = len(order)
            order.append(network.states[state])
        return numbers[classes[state]]

    for rule, first in network.rules.items():
        found.rules[rule] = number(first)
        while len(found.states) < len(order):
            state = order[len(found.states)]
            found.states.append(State({class_: number(target) for class_, target in state.moves.items()},
                                      {name: number(target) for name, target in state.calls.items()}, state.ends))
    return found


def _without(automaton: Automaton, productive: set[str], nullable: set[str]) -> Automaton:
    """Returns the automaton without calls of rules that match nothing but the empty string, and with edges that pass
    over those that do match it; without states from which the end cannot be reached."""
    edges: list[Edge] = [each for each in automaton.edges if not isinstance(each[2], str) or each[2] in productive]
    edges += [(source, target, None) for source, target, label in automaton.edges if label in nullable]
    backwards: dict[int, list[int]] = defaultdict(list)
    for source, target, _ in edges:
        backwards[target].append(source)
    useful = _reached([automaton.end], backwards)
    found = Automaton()
    found.count, found.start, found.end = automaton.count, automaton.start, automaton.end
    found.edges = [each for each in edges if each[0] in useful and each[1] in useful]
    return found


def _byte_classes(automata: Iterable[Automaton]) -> list[int]:
    """Returns the class of each byte; edges tell only bytes of different classes apart."""
    borders = {0}
    for automaton in automata:
        for _, _, label in automaton.edges:
            if isinstance(label, tuple):
                borders |= {label[0], label[1] + 1}
    classes, found = -1, []
    for byte in range(256):
        classes += byte in borders
        found.append(classes)
    return found


class _Subsets:
    """The subset construction for one rule. steps: how many it may take."""

    def __init__(self, automaton: Automaton, classes: Sequence[int], steps: int):
        self.automaton = automaton
        self.steps = steps
        self.epsilon: dict[int, list[int]] = defaultdict(list)
        self.bytes: dict[int, list[tuple[range, int]]] = defaultdict(list)
        self.calls: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.closures: dict[frozenset[int], frozenset[int]] = {}
        for source, target, label in automaton.edges:
            if label is None:
                self.epsilon[source].append(target)
            elif isinstance(label, str):
                self.calls[source].append((label, target))
            else:
                self.bytes[source].append((range(classes[label[0]], classes[label[1]] + 1), target))

    def closure(self, states: frozenset[int]) -> frozenset[int]:
        """Returns the states that are reached without a byte and matter: the end, and those with other edges."""
        if states not in self.closures:
            found = _reached(states, self.epsilon)
            self.spend(len(found))
            self.closures[states] = frozenset(state for state in found if state in self.bytes or state in self.calls
                                              or state == self.automaton.end)
        return self.closures[states]

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise _TooLarge("the grammar has too many ways to read one text; write it with fewer repetitions of items "
                            "that can be empty or begin alike")

    def determinize(self, states: list[State]) -> int:
        """Appends the states of the rule, in the order of a breadth-first search, so that copies of a part of the rule
        are numbered alike. Returns how many steps are left."""
        numbers: dict[frozenset[int], int] = {}
        # The first state is one of its own, which does not end the rule.
        pending = [self.closure(frozenset([self.automaton.start]))]
        first = len(states)
        states.append(State())

        def number(targets: set[int]) -> int:
            members = self.closure(frozenset(targets))
            if members not in numbers:
                if len(states) == MAX_STATES:
                    raise _TooLarge(f"the grammar needs more than {MAX_STATES:,} states; it has too many repetitions")
                numbers[members] = len(states)
                states.append(State(ends=self.automaton.end in members))
                pending.append(members)
            return numbers[members]

        for index, members in enumerate(pending):
            self.spend(len(members))
            moves, calls = self._following(members)
            state = states[first + index]
            state.moves = {class_: number(targets) for class_, targets in sorted(moves.items())}
            state.calls = {name: number(targets) for name, targets in sorted(calls.items())}
        return self.steps

    def _following(self, members: frozenset[int]) -> tuple[dict[int, set[int]], dict[str, set[int]]]:
        """Returns the states after each class of bytes and after each rule."""
        moves: dict[int, set[int]] = defaultdict(set)
        calls: dict[str, set[int]] = defaultdict(set)
        for state in members:
            for span, target in self.bytes.get(state, ()):
                self.spend(len(span))
                for class_ in span:
                    moves[class_].add(target)
            for name, target in self.calls.get(state, ()):
                calls[name].add(target)
        return moves, calls
