# SPDX-License-Identifier: Apache-2.0
"""Tables of layers: largest first, sums by kind, names that keep both ends."""

import pytest

from tvm_megcc.tools import layers

LONG = "/model/" + "decoder/" * 20 + "attention/MatMul"
CALLS = [{"origin": "first", "kind": "relu", "kernel": "relu__vector", "macs": 0},
         {"origin": LONG, "kind": "matmul", "kernel": "matmul__packed", "macs": 1000},
         {"origin": "", "kind": "relu", "kernel": "relu__vector", "macs": 0}]


def test_rows_are_in_the_order_of_execution():
    rows = layers.layers(CALLS, [1.0, 6.0, 3.0])
    assert [row["name"] for row in rows] == ["first", LONG, "relu"]
    assert [row["share"] for row in rows] == pytest.approx([0.1, 0.6, 0.3])
    assert [row["gflops"] for row in rows] == [None, pytest.approx(2e-9 * 1000 / 6), None]


def test_kinds_are_summed():
    assert layers.kinds(layers.layers(CALLS, [1.0, 6.0, 4.0])) == [
        {"kind": "matmul", "calls": 1, "seconds": 6.0, "share": pytest.approx(6 / 11)},
        {"kind": "relu", "calls": 2, "seconds": 5.0, "share": pytest.approx(5 / 11)}]


def test_the_slowest_comes_first_and_names_keep_both_ends():
    lines = layers.text(layers.layers(CALLS, [1.0, 6.0, 3.0]))
    assert [line.split()[0] for line in lines] == ["#", "1", "2", "0", "calls", "1", "2"]
    assert "/model/decoder" in lines[1] and "ention/MatMul  matmul__packed" in lines[1]
    assert max(map(len, lines)) <= 140
    assert layers.text([]) == []
