# SPDX-License-Identifier: Apache-2.0
"""The picture of a graph: lines run along lanes that no other row stands on."""

import random

import pytest

from tvm_megcc.tools.report.graph_lanes import lanes


def test_a_chain_is_one_lane():
    found = lanes([((), "a"), ("a", "b"), ("b", "c")])
    assert found.lane == (0, 0, 0) and found.width == 1
    assert found.edges == ((0, 0, 1, 0), (1, 0, 2, 0))


def test_a_skip_has_a_lane_beside_it():
    found = lanes([((), "a"), ("a", "b"), ("ab", "c")])
    assert found.lane[1] != found.lane[0] and found.width == 2
    assert {(source, reader) for source, _, reader, _ in found.edges} == {(0, 1), (0, 2), (1, 2)}


def test_nothing():
    assert lanes([]).width == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_row_stands_on_the_line_of_another(seed):
    rng = random.Random(seed)
    rows = [([f"v{rng.randrange(i)}" for _ in range(rng.randint(0, 3))] if i else [], [f"v{i}"]) for i in range(40)]
    found = lanes(rows)
    for source, lane, reader, end in found.edges:
        assert (lane, end) == (found.lane[source], found.lane[reader])
        assert all(found.lane[row] != lane for row in range(source + 1, reader)), (source, reader)
