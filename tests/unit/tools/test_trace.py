# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --trace`: calls as events of Chromium's trace format."""

from __future__ import annotations

import pytest

from tvm_megcc.tools.bench.trace import trace


def report(**unit) -> dict:
    names = next(iter(unit.values()))
    rows = [{"name": f"layer {n}", "kind": "conv2d", "kernel": "k", "share": 0.5, "gflops": None,
             **{name: values[n] for name, values in unit.items()}} for n in range(len(names))]
    return {"model": "net", "target": "c", "calls": rows}


@pytest.mark.parametrize("unit, lengths", [
    ({"seconds": [2e-6, 5e-6, 1e-6]}, [2.0, 5.0, 1.0]),
    ({"instructions": [10, 20, 30], "cycles": [12, 40, 33]}, [12.0, 40.0, 33.0]),
    ({"instructions": [10, 20, 30]}, [10.0, 20.0, 30.0])])
def test_calls_follow_each_other(unit, lengths):
    events = [event for event in trace(report(**unit))["traceEvents"] if event["ph"] == "X"]
    assert [event["dur"] for event in events] == pytest.approx(lengths)
    assert [event["ts"] for event in events] == pytest.approx([sum(lengths[:n]) for n in range(3)])
    assert all(event["args"]["kernel"] == "k" and "gflops" not in event["args"] for event in events)


def test_a_model_without_calls_has_an_empty_trace():
    assert not [event for event in trace({"model": "net", "target": "c", "calls": []})["traceEvents"]
                if event["ph"] == "X"]
