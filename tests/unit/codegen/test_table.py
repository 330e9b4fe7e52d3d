# SPDX-License-Identifier: Apache-2.0
"""Rows of the kernel table: which calls workers share."""

from __future__ import annotations

import re

import pytest

from tests.graphs import Builder
from tvm_megcc.codegen import table
from tvm_megcc.compiler import compile_graph
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.shapes import EVERYTHING, Bucket
from tvm_megcc.target import parse_targets


@pytest.fixture(autouse=True)
def cycles(monkeypatch):
    """The number of cycles that is worth sharing; in other tests everything is (tests/conftest.py)."""
    monkeypatch.setattr(table, "WORTH_CYCLES", 20_000)


def alone(rows, columns: int, threads: int = 2, buckets=(EVERYTHING,)) -> int:
    """Returns `alone` of the kernel of a softmax of [rows, columns]."""
    b = Builder()
    graph = b.graph(b.op("softmax", b.input("x", rows, columns), axis=1))
    artifact = compile_graph(graph, parse_targets("x86-64-v3"), threads=threads, buckets=buckets)
    last_fields = re.findall(r"(\d+) MEGCC_SYMBOL", artifact.sources["kernels.c"])
    assert len(last_fields) == 1
    return int(last_fields[0])


def test_small_calls_are_not_shared():
    assert alone(4, 16) == table.NEVER_SHARED
    assert alone(512, 512) == 0
    assert alone(4, 16, threads=1) == 0


@pytest.mark.parametrize("likely", [1, 512])
def test_bytes_decide_at_run_time(likely: int):
    """A row of 512 elements takes some 1,000 cycles, and has 4 KB in two operands."""
    least = alone(Symbol("n", likely=likely), 512, buckets=(Bucket((("n", 1, 1024),)),))
    assert 14 <= least <= 19
    assert alone(Symbol("n"), 512, threads=1, buckets=(Bucket((("n", 1, 1024),)),)) == 0
