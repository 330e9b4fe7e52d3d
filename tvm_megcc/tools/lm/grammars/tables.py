# SPDX-License-Identifier: Apache-2.0
"""Prints grammars and the sorted vocabulary as C, for c_runtime/lm/megcc_grammar.c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ....errors import MegccError
from ..tokenizers.arrays import array, heading
from ..tokenizers.tables import token_bytes
from ..tokenizers.tokenizer import Vocabulary
from .automaton import Network, State

#: In the tables: no state follows.
_NO_MOVE = -32768


def tables(name: str, vocabulary: Vocabulary, ends: Sequence[int], grammars: Mapping[str, Network]) -> str:
    """Returns a C source that defines `const megcc_grammar NAME_grammar_GRAMMAR` for each grammar.

    Args:
        name: of the model, a C identifier.
        vocabulary: of the tokenizer, whose tables are `NAME_tokenizer`.
        ends: the tokens that end a text.
        grammars: by their names, C identifiers.

    Raises:
        MegccError: for a grammar whose states have too many calls of rules.
    """
    return "\n".join([heading(f"grammars of {name}", "megcc_grammar.h"), *_sorted_tokens(name, vocabulary, ends),
                      *(line for grammar, network in grammars.items() for line in _grammar(name, grammar, network))])


def _sorted_tokens(name: str, vocabulary: Vocabulary, ends: Sequence[int]) -> list[str]:
    """Returns the vocabulary in the order of the tokens' bytes. Control tokens are no text."""
    encoded = token_bytes(vocabulary)
    control = {token for token, is_control in vocabulary.special if is_control}
    others = {number for number, token in enumerate(vocabulary.tokens) if token in control or not encoded[number]}
    order = sorted(set(range(len(encoded))) - others - set(ends), key=lambda number: (encoded[number], number))
    common = [0, *(_common(encoded[left], encoded[right]) for left, right in pairwise(order))][:len(order)]
    rest = sorted(others - set(ends))
    wide = len(encoded) > 1 << 16
    return [f"extern const megcc_tokenizer {name}_tokenizer;\n",
            array("sorted_token", "uint32_t" if wide else "uint16_t", [*order, *rest]),
            array("common", "uint8_t", common), array("end", "uint32_t", sorted(ends)),
            "static const megcc_sorted_tokens tokens = {",
            f"    &{name}_tokenizer, {len(order)}, {len(ends)}, sorted_token, common, end, {len(rest)}, {int(wide)}",
            "};\n"]


def _common(left: bytes, right: bytes) -> int:
    """Returns the number of bytes that two strings begin with in common, at most 255."""
    count = 0
    while count < min(len(left), len(right), 255) and left[count] == right[count]:
        count += 1
    return count


def _grammar(name: str, grammar: str, network: Network) -> list[str]:
    classes, moves = _merged_classes(network)
    rules = {rule: index for index, rule in enumerate(network.rules)}
    rows: dict[tuple[int, ...], int] = {(_NO_MOVE,) * len(moves[0]): 0}
    lists: dict[tuple[int, ...], int] = {(0,): 0}
    states, used = [], 1
    for number, state in enumerate(network.states):
        row = rows.setdefault(moves[number], len(rows))
        calls = _calls(state, rules)
        if calls not in lists:
            lists[calls] = used
            used += len(calls)
        if max(lists[calls], row) >= 1 << 16:
            raise MegccError(f"the grammar {grammar} is too large: its states have too many calls of rules")
        states.append(f"{lists[calls] << 16 | row}u")
    arrays: dict[str, tuple[str, Sequence[object]]] = {
        "class": ("uint8_t", classes), "state": ("uint32_t", states),
        "move": ("int16_t", [f"{'INT16_MIN' if move == _NO_MOVE else move}" for row in rows for move in row]),
        "call": ("uint16_t", [number for calls in lists for number in calls]),
        "rule": ("uint16_t", list(network.rules.values()))}
    return [*(array(f"{grammar}_{key}", unit, values) for key, (unit, values) in arrays.items()),
            f"extern const megcc_grammar {name}_grammar_{grammar};",
            f"const megcc_grammar {name}_grammar_{grammar} = {{",
            "    &tokens, &megcc_grammar_masks,", *(f"    {grammar}_{key}," for key in arrays),
            f"    {len(moves[0])}, {int(network.matches_empty)}", "};\n"]


def _calls(state: State, rules: Mapping[str, int]) -> tuple[int, ...]:
    """Returns what a state can do without a byte, as megcc_grammar.h has it."""
    return (4 * len(state.calls) + state.ends,
            *(number for rule, target in state.calls.items() for number in (rules[rule], target)))


def _merged_classes(network: Network) -> tuple[list[int], list[tuple[int, ...]]]:
    """Returns the classes of bytes, of which those with the same moves are one; and for each state and class the
    difference of the next state's number."""
    count = max(network.classes) + 1
    columns: list[list[int]] = [[_NO_MOVE] * len(network.states) for _ in range(count)]
    for number, state in enumerate(network.states):
        for class_, target in state.moves.items():
            columns[class_][number] = target - number
    numbers: dict[tuple[int, ...], int] = {}
    merged = [numbers.setdefault(tuple(column), len(numbers)) for column in columns]
    return [merged[class_] for class_ in network.classes], list(zip(*numbers, strict=True))
