# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --trace FILE`: a report as the events that Perfetto and chrome://tracing show.

The format is the Trace Event Format of Chromium: metadata events (`ph` M), which name the process and the thread, and
complete events (`ph` X), whose `ts` and `dur` are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Fields of a call that may say its length, the best first -> microseconds of one. Microcontrollers have no times, so
#: a cycle, or an instruction, is shown as a microsecond.
UNITS = (("seconds", 1e6), ("cycles", 1.0), ("instructions", 1.0))
#: Facts of a call that are shown beside its length.
FACTS = ("kernel", "share", "gflops", "instructions", "cycles")


def trace(report: Mapping) -> dict:
    """Returns the trace of one run: the calls of a report of `megcc bench` one after the other, each as long as it took
    on average."""
    unit, scale = next((name, scale) for name, scale in UNITS
                       if not report["calls"] or name in report["calls"][0])
    events: list[dict] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": name, "args": {"name": text}}
        for name, text in (("process_name", f"{report['model']} on {report['target']}"),
                           ("thread_name", f"calls, in {unit}"))]
    begin = 0.0
    for call in report["calls"]:
        length = call[unit] * scale
        events.append({"ph": "X", "pid": 1, "tid": 1, "name": call["name"], "cat": call["kind"], "ts": begin,
                       "dur": length, "args": {name: call[name] for name in FACTS if call.get(name) is not None}})
        begin += length
    return {"displayTimeUnit": "ms", "traceEvents": events}
