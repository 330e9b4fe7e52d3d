# SPDX-License-Identifier: Apache-2.0
"""Strings with tokens as a trie in breadth-first order, for `megcc_trie` of c_runtime/lm/megcc_strings.h."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from .arrays import array

#: Nodes for which the trie has one pair of counts, and nodes with children for which it has one first child, as in
#: megcc_strings.h.
_COUNTED, _PARENTS = 128, 64


@dataclass(frozen=True)
class Trie:
    """A trie (LOUDS; Jacobson 1989). Node 0 is the empty string; siblings are neighbours, in the order of their bytes.

    labels: the last byte of each node's string.
    parents, lasts, ends: of each node, whether it has children, is the last one of its siblings, and has a token.
    children: the first child of each node that has children.
    tokens: the token of each node that has one.
    """

    labels: bytes
    parents: tuple[bool, ...]
    lasts: tuple[bool, ...]
    ends: tuple[bool, ...]
    children: tuple[int, ...]
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, tokens: Mapping[bytes, int]) -> Trie:
        """Returns the trie of strings, none of them empty, with their tokens."""
        strings = sorted(tokens)
        # A node is a range of strings, which share a prefix of `depth` bytes.
        nodes, depth = [(0, len(strings))], 0
        labels, lasts = bytearray(1), [True]
        parents, ends, children, found = [], [], [], []
        while nodes:
            following: list[tuple[int, int]] = []
            below = len(labels)
            for low, high in nodes:
                ends.append(low < high and len(strings[low]) == depth)
                if ends[-1]:
                    found.append(tokens[strings[low]])
                    low += 1
                parents.append(low < high)
                if parents[-1]:
                    children.append(below + len(following))
                    groups = list(_groups(strings, low, high, depth))
                    following += groups
                    labels += bytes(strings[begin][depth] for begin, _ in groups)
                    lasts += [False] * (len(groups) - 1) + [True]
            nodes, depth = following, depth + 1
        return cls(bytes(labels), tuple(parents), tuple(lasts), tuple(ends), tuple(children), tuple(found))

    def node(self, text: bytes) -> int:
        """Returns the node of a string, 0 if no string begins with it."""
        at = 0
        for byte in text:
            if not self.parents[at]:
                return 0
            child = self.children[sum(self.parents[:at])]
            while self.labels[child] != byte and not self.lasts[child]:
                child += 1
            if self.labels[child] != byte:
                return 0
            at = child
        return at

    def text(self, name: str) -> str:
        """Returns C that defines `static const megcc_trie NAME`."""
        bits = max(1, max(self.tokens, default=0).bit_length())
        both = [*zip(accumulate(self.parents, initial=0), accumulate(self.ends, initial=0), strict=True)]
        counts = [count for pair in both[:len(self.labels):_COUNTED] for count in pair]
        arrays = {"label": ("uint8_t", self.labels), "parents": ("uint32_t", _set(self.parents)),
                  "lasts": ("uint32_t", _set(self.lasts)), "ends": ("uint32_t", _set(self.ends)),
                  "count": ("uint32_t", counts), "first": ("uint32_t", self.children[::_PARENTS]),
                  "token": ("uint32_t", _packed(self.tokens, bits))}
        return "\n".join([
            *(array(f"{name}_{key}", unit, values) for key, (unit, values) in arrays.items()),
            f"static const megcc_trie {name} = {{", *(f"    {name}_{key}," for key in arrays), f"    {bits},", "};",
            ""])


def _groups(strings: list[bytes], low: int, high: int, depth: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges of strings whose byte at `depth` is the same."""
    begin = low
    for at in range(low + 1, high + 1):
        if at == high or strings[at][depth] != strings[begin][depth]:
            yield begin, at
            begin = at


def _set(flags: tuple[bool, ...]) -> list[int]:
    """Returns a bit for each flag in words of 32 bits, the lowest first."""
    return [sum(flag << bit for bit, flag in enumerate(flags[at:at + 32])) for at in range(0, len(flags), 32)]


def _packed(numbers: tuple[int, ...], bits: int) -> list[int]:
    """Returns numbers of so many bits in words of 32 bits, the lowest first, and a word of zeros."""
    data = "".join(f"{number:0{bits}b}"[::-1] for number in numbers)
    return [*(int(data[at:at + 32][::-1], 2) for at in range(0, len(data), 32)), 0]
