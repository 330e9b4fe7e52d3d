# SPDX-License-Identifier: Apache-2.0
"""Lays out a graph with one node in each row, in lanes, as version control systems draw their history: a further lane
is used only if a value passes a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Lanes:
    """A layout.

    lane: that of each row.
    edges: (row, lane, row, lane) from the producer of a value to its reader.
    width: the number of lanes.
    """

    lane: tuple[int, ...]
    edges: tuple[tuple[int, int, int, int], ...]
    width: int


def lanes(rows: Sequence[tuple[Collection[str], Collection[str]]]) -> Lanes:
    """Assigns lanes to rows (values read, values computed), in the order of execution.

    A lane belongs to a row until the last reader of its values, so that lines do not cross nodes.
    """
    maker = {value: index for index, (_, makes) in enumerate(rows) for value in makes}
    last = list(range(len(rows)))
    readers = [dict.fromkeys(maker[value] for value in reads if value in maker) for reads, _ in rows]
    for index, makers in enumerate(readers):
        for source in makers:
            last[source] = index
    lane, busy, edges = [], [], []  # busy: the last row that a lane belongs to
    for index, makers in enumerate(readers):
        source_lane = next((lane[source] for source in makers if last[source] == index), None)
        if source_lane is None:
            source_lane = next((at for at, until in enumerate(busy) if until < index), len(busy))
        if source_lane == len(busy):
            busy.append(index)
        busy[source_lane] = last[index]
        lane.append(source_lane)
        edges += [(source, lane[source], index, source_lane) for source in makers]
    return Lanes(tuple(lane), tuple(edges), max(len(busy), 1))
