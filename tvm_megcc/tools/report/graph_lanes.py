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
    producer = {value: index for index, (_, computed) in enumerate(rows) for value in computed}
    # The rows whose values each row reads, and the last reader of each row.
    sources = [dict.fromkeys(producer[value] for value in reads if value in producer) for reads, _ in rows]
    last_reader = list(range(len(rows)))
    for index, read_rows in enumerate(sources):
        for source in read_rows:
            last_reader[source] = index
    lane, busy, edges = [], [], []  # busy: the last row that a lane belongs to
    for index, read_rows in enumerate(sources):
        # The lane of a source that ends here, else the first free lane, else a new one.
        own_lane = next((lane[source] for source in read_rows if last_reader[source] == index), None)
        if own_lane is None:
            own_lane = next((at for at, until in enumerate(busy) if until < index), len(busy))
        if own_lane == len(busy):
            busy.append(index)
        busy[own_lane] = last_reader[index]
        lane.append(own_lane)
        edges += [(source, lane[source], index, own_lane) for source in read_rows]
    return Lanes(tuple(lane), tuple(edges), max(len(busy), 1))
