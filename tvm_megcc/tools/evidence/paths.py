# SPDX-License-Identifier: Apache-2.0
"""The most instructions or cycles of a function whose path depends on data, from its machine code.

The instructions of the function form basic blocks and loops (natural loops, A. V. Aho et al., "Compilers", 2nd edition,
section 9.6). The cost is that of the longest path through the body of each loop, times the most executions of the
loop's first block; a loop in a body is counted for itself. So blocks that no run has executed count, too. Paths that
exclude each other are not told apart, so the bound may be above every run.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...runtime.emulator.counting import Disassembly

_CONDITION = r"(?:eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)"
#: Branches that may go on with the next instruction: Arm's and RISC-V's.
_CONDITIONAL = re.compile(rf"b{_CONDITION}|cbn?z|le|letp|wls|wlstp|b(?:eq|ne|lt|ge|gt|le)[uz]?|b(?:lt|ge|gt|le)[uz]z?")
_JUMP = re.compile(r"b|j")
_CALL = re.compile(r"blx?|jalr?")
#: Branches to an address in a register or in memory, with the condition of an IT block.
_LEAVES = re.compile(rf"(?:bx|jr|ret|udf|bkpt|ebreak|pop|ldm\w*|ldr)({_CONDITION})?")
#: qemu's pages of Cortex-M have 1 KB.
_PAGE_BITS = 10
_TARGET = re.compile(r"\b([0-9a-f]+) <")


@dataclass
class Node:
    """A basic block.

    begin: the address of its first instruction.
    lines: its instructions.
    falls: whether the next block may follow. jumps: the addresses of blocks to which it may branch.
    leaves: whether it may leave the function, or comes back from a call.
    """

    begin: int
    lines: list[tuple[str, str]] = field(default_factory=list)
    falls: bool = True
    jumps: list[int] = field(default_factory=list)
    leaves: bool = False


def blocks_of(code: Disassembly, begin: int, end: int) -> dict[int, Node] | None:
    """Returns the basic blocks of a function, by address; None if it branches by a table. end: after its last one."""
    first, last = bisect_left(code.addresses, begin), bisect_left(code.addresses, end)
    rows = [(address, line) for address, line in zip(code.addresses[first:last], code.lines[first:last], strict=True)
            if not line[0].startswith(".")]
    ends = {address: _end(line, begin, end) for address, line in rows}
    if any(found is None for found in ends.values()):
        return None
    leaders = {begin, *(target for found in ends.values() if found for target in found.jumps), *_page_ends(code, rows)}
    nodes: dict[int, Node] = {}
    node = None
    for address, line in rows:
        if node is None or address in leaders:
            node = nodes[address] = Node(address)
        node.lines.append(line)
        found = ends[address]
        if found is not None and (found.jumps or found.leaves or not found.falls):
            node.falls, node.jumps, node.leaves = found.falls, found.jumps, found.leaves
            node = None
    return nodes


def _page_ends(code: Disassembly, rows: Sequence[tuple[int, tuple[str, str]]]) -> Iterator[int]:
    """Yields the first instruction of each page, and those that are in two pages: there the emulator ends a block."""
    before = -1
    for address, _ in rows:
        following = bisect_left(code.addresses, address + 1)
        last = (code.addresses[following] if following < len(code.addresses) else address + 2) - 1
        if len({before >> _PAGE_BITS, address >> _PAGE_BITS, last >> _PAGE_BITS}) > 1:
            yield address
        before = address


def _end(line: tuple[str, str], begin: int, end: int) -> Node | None:
    """Returns how an instruction ends its block, as an empty block; None for a branch by a table."""
    name, operands = line[0].removesuffix(".n").removesuffix(".w"), line[1]
    if name.startswith(("tbb", "tbh")):
        return None
    found = _TARGET.search(operands)
    target = int(found[1], 16) if found else -1
    is_inside = begin <= target < end
    if _CONDITIONAL.fullmatch(name) and found:
        return Node(0, [], True, [target] if is_inside else [], not is_inside)
    if _JUMP.fullmatch(name):
        return Node(0, [], False, [target] if is_inside else [], not is_inside)
    if _CALL.fullmatch(name):
        return Node(0, [], True, [], True)
    leaves = _LEAVES.fullmatch(name)
    if leaves and (name.startswith(("bx", "jr", "ret", "udf", "bkpt", "ebreak")) or re.search(r"\bpc\b", operands)):
        if not (name.startswith("ldr") and not operands.startswith("pc")):
            return Node(0, [], bool(leaves[1]), [], True)
    return Node(0)


def _successors(nodes: Mapping[int, Node]) -> dict[int, list[tuple[int, bool]]]:
    """Returns block -> the blocks that may follow, and whether they do so after a taken branch."""
    order = sorted(nodes)
    following = dict(pairwise(order))
    return {begin: [(target, True) for target in node.jumps]
            + ([(following[begin], node.leaves)] if node.falls and begin in following else [])
            for begin, node in nodes.items()}


def loops_of(nodes: Mapping[int, Node], entry: int) -> dict[int, set[int]] | None:
    """Returns the first block of each loop -> the blocks of the loop; None if a loop has two entries."""
    successors = {begin: [target for target, _ in found] for begin, found in _successors(nodes).items()}
    order, on_path, seen, retreating = [], set(), {entry}, []
    stack = [(entry, iter(successors[entry]))]
    on_path.add(entry)
    while stack:
        block, rest = stack[-1]
        target = next(rest, None)
        if target is None:
            stack.pop()
            on_path.discard(block)
            order.append(block)
        elif target in on_path:
            retreating.append((block, target))
        elif target not in seen:
            seen.add(target)
            on_path.add(target)
            stack.append((target, iter(successors[target])))
    predecessors: dict[int, list[int]] = {block: [] for block in seen}
    for block in seen:
        for target in successors[block]:
            predecessors[target].append(block)
    found: dict[int, set[int]] = {}
    for tail, head in retreating:
        body = found.setdefault(head, {head})
        waiting = [tail]
        while waiting:
            block = waiting.pop()
            if block not in body:
                body.add(block)
                waiting += predecessors[block]
        if entry in body and entry != head:
            return None     # the body is entered elsewhere, too
    for head, body in found.items():
        if any(before not in body for block in body - {head} for before in predecessors[block]):
            return None
    return found


@dataclass(frozen=True)
class Function:
    """A function with its loops.

    nodes: its blocks. loops: first block -> blocks, of each loop; the function itself is one with its entry.
    parents: first block of a loop -> that of the loop around it.
    """

    entry: int
    nodes: Mapping[int, Node]
    loops: Mapping[int, set[int]]
    parents: Mapping[int, int]

    @classmethod
    def read(cls, code: Disassembly, begin: int, end: int) -> Function | None:
        """Returns the function at an address; None if its branches are not known, or a loop has two entries."""
        nodes = blocks_of(code, begin, end)
        loops = loops_of(nodes, begin) if nodes else None
        if nodes is None or loops is None or begin in loops:
            return None
        everything = {**loops, begin: set(nodes)}
        parents = {head: min((other for other in everything if other != head and head in everything[other]),
                             key=lambda other: len(everything[other])) for head in loops}
        return cls(begin, nodes, everything, parents)

    def loop_around(self, block: int) -> int:
        """Returns the first block of the innermost loop with a block."""
        return min((head for head, body in self.loops.items() if block in body),
                   key=lambda head: len(self.loops[head]))

    def longest(self, head: int, cost: Callable[[Node], int], jump: int) -> int:
        """Returns the cost of the longest path through the body of a loop, from its first block. Loops in it cost
        nothing here.

        Args:
            cost: that of a block. jump: that of a branch that is taken.
        """
        body, inner = self.loops[head], {other: each for other, each in self.loops.items()
                                         if self.parents.get(other) == head}
        place = {block: next((other for other, each in inner.items() if block in each), block) for block in body}
        successors = _successors(self.nodes)
        edges: dict[int, list[tuple[int, bool]]] = {}
        for block in body:
            for target, taken in successors[block]:
                if target == head or place.get(target, target) != place[block]:
                    edges.setdefault(place[block], []).append((target, taken))
        known: dict[int, int] = {}

        def total(node: int) -> int:
            if node not in known:
                known[node] = 0     # the path is free of cycles but for those of inner loops
                after = [total(place[target]) if target in body and target != head else 0 for target, _ in
                         edges.get(node, ())]
                after = [rest + jump * taken for rest, (_, taken) in zip(after, edges.get(node, ()), strict=True)]
                own = 0 if node in inner else cost(self.nodes[node])
                known[node] = own + max([*after, jump if self.nodes[node].leaves else 0])
            return known[node]

        return total(head)

    def executions(self, head: int, entries: int, counted: Mapping[int, tuple[int, int]], most: int | None
                   ) -> int | None:
        """Returns the most executions of the first block of a loop; None: unknown.

        Args:
            entries: the most executions of the function.
            counted: address -> the least and the most executions in the runs.
            most: the most iterations of any loop of the function; None: unknown.
        """
        if head == self.entry:
            return entries
        least, found = counted.get(head, (0, 0))
        if least == found and found:
            return found    # so it does not depend on data
        around = self.executions(self.parents[head], entries, counted, most)
        return None if around is None or most is None else around * (most + 1)

    def bound(self, entries: int, counted: Mapping[int, tuple[int, int]], most: int | None,
              cost: Callable[[Node], int], jump: int) -> int | None:
        """Returns the most instructions or cycles of all executions; None: unknown. The arguments are those of
        `executions` and `longest`."""
        total = 0
        for head in self.loops:
            times = self.executions(head, entries, counted, most)
            if times is None:
                return None
            total += times * self.longest(head, cost, jump)
        return total

