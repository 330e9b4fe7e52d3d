# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --blocks N`: times each of many runs on one CPU, in a real-time scheduling class if permitted, and
reports the slowest. It counts page faults and interruptions, and times an empty loop between the runs, to tell whether
the machine or the network caused a late run."""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...codegen.bundle import read_manifest
from ...errors import MegccError
from ...ir.streams import Streamed
from ...runtime.device import DeviceSession
from ..run import asking_for_inputs, inputs_of
from .bench import quantile

#: The seconds of blocks without a pause, and those of the pause, since Linux throttles real-time threads that never
#: sleep.
BURST, PAUSE = 0.1, 0.02
#: Priority in the class SCHED_FIFO.
PRIORITY = 50
#: The goal for the slowest block, as a multiple of the median; the sample rate that is assumed for audio, in Hz.
GOAL, RATE = 1.3, 48_000
#: MCL_CURRENT | MCL_FUTURE of sys/mman.h on Linux: mlockall locks the pages of now and of later.
_MCL_CURRENT_FUTURE = 1 | 2


def realtime(session: DeviceSession, blocks: int, processor: int | None = None, inputs: str | None = None,
             seed: int = 0) -> dict:
    """Times each of many runs and reports.

    Args:
        blocks: the number of timed runs.
        processor: the one that the thread is bound to; None: the last one that it may run on.
        inputs: .npz file with arrays by tensor name; else seeded random numbers.

    Returns:
        seconds: median, worst and quantiles; `over`: how many took more than `GOAL` times the median; `empty`: the same
        figures of as many iterations of a loop that only waits, each as long as the median; `during`: the number of
        page faults, and how often the thread was interrupted while it had work.

    Raises:
        MegccError: where this system binds no threads, or there is no such processor.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise MegccError("--blocks binds a thread to a processor, which this system does not offer")
    allowed = os.sched_getaffinity(0)
    processor = max(allowed) if processor is None else processor
    if processor not in allowed:
        raise MegccError(f"this process may not run on processor {processor}; allowed are {sorted(allowed)}")
    feeds = inputs_of(session.inputs, inputs, seed)
    with asking_for_inputs(session.inputs, inputs), ExitStack() as stack:
        stack.enter_context(_bound(processor, allowed))
        scheduled = stack.enter_context(_scheduled())
        once = statistics.median(session.times(feeds, runs=20, watched=0).seconds)
        burst = int(min(max(BURST / max(once, 1e-9), 1), blocks))
        seconds: list[float] = []
        empty: list[float] = []
        before = resource.getrusage(resource.RUSAGE_SELF)
        while len(seconds) < blocks:
            seconds += session.times(feeds, runs=min(burst, blocks - len(seconds)), watched=0).seconds
            time.sleep(PAUSE)
            empty += session.idle(once, len(seconds) - len(empty))
            time.sleep(PAUSE)
        after = resource.getrusage(resource.RUSAGE_SELF)
    stream = next((row["stream"] for row in read_manifest(session.folder)["models"]
                   if row["name"] == session.name and "stream" in row), None)
    return {"model": session.name, "target": str(session.target), "blocks": blocks, "processor": processor,
            "isolated": _isolated(processor), **scheduled,
            "block": Streamed.of(stream).block if stream else None,
            **_summary(seconds), "empty": _summary(empty),
            "during": {"interrupted": after.ru_nivcsw - before.ru_nivcsw,
                       "page_faults": after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt}}


def _summary(seconds: list[float]) -> dict:
    ordered = sorted(seconds)
    median, worst = quantile(ordered, 0.5), ordered[-1]
    parts = {"p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
    return {"seconds": {"median": median, "worst": worst,
                        **{name: quantile(ordered, part) for name, part in parts.items()}},
            "worst_over_median": worst / median if median else None,
            "over": sum(value > GOAL * median for value in ordered)}


@contextmanager
def _bound(processor: int, allowed: set[int]) -> Iterator[None]:
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def _scheduled() -> Iterator[dict]:
    """Puts the thread into a real-time scheduling class and locks its memory, as far as permitted. Yields what was
    permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    locked = libc.mlockall(_MCL_CURRENT_FUTURE) == 0
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    realtime_class = _permitted(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY)))
    try:
        yield {"realtime_class": realtime_class, "memory_locked": locked}
    finally:
        if realtime_class:
            os.sched_setscheduler(0, policy, parameters)
        if locked:
            libc.munlockall()


def _permitted(act: Callable[[], None]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True


def _isolated(processor: int) -> bool:
    """Whether the system keeps other threads away from a processor (isolcpus)."""
    try:
        text = Path("/sys/devices/system/cpu/isolated").read_text("ascii").strip()
    except OSError:
        return False
    spans = (part.partition("-") for part in text.split(",") if part)
    return any(int(first) <= processor <= int(last or first) for first, _, last in spans)


def text(report: dict) -> str:
    seconds, during, empty = report["seconds"], report["during"], report["empty"]
    ratio = report["worst_over_median"]
    notes = ["" if report["isolated"] else "not isolated: other threads run on it too",
           "" if report["realtime_class"] else "no real-time class: not permitted",
           "" if report["memory_locked"] else "memory not locked: not permitted"]
    lines = [f"{report['model']} on {report['target']}, processor {report['processor']}"
             + "".join(f"; {part}" for part in notes if part),
             f"  {report['blocks']:,} blocks: median {_us(seconds['median'])}, 99 % {_us(seconds['p99'])}, "
             f"99.9 % {_us(seconds['p99.9'])}, 99.99 % {_us(seconds['p99.99'])}, worst {_us(seconds['worst'])}",
             f"  worst is {ratio:.2f} of the median; {report['over']:,} blocks took more than {GOAL} of it; "
             f"the thread was interrupted {during['interrupted']:,} times, {during['page_faults']:,} page faults",
             f"  an empty loop of as long, alternating: worst {_us(empty['seconds']['worst'])}, "
             f"{empty['worst_over_median']:.2f} of the median; {empty['over']:,} iterations over {GOAL} of it"]
    if report["block"]:
        period = report["block"] / RATE
        lines.append(f"  a block of {report['block']} at {RATE // 1000} kHz lasts {_us(period)}: the median takes "
                     f"{seconds['median'] / period:.2%} of it, the worst {seconds['worst'] / period:.2%}")
    return "\n".join(lines) + "\n"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f} us"
