# SPDX-License-Identifier: Apache-2.0
"""The tuner: times all candidates of all distinct calls of graphs on one target, and writes the times into a log.

Candidates are compiled in batches, a library for each. A device loads the library of a batch and runs its jobs. The
unfinished jobs of a lost device go back into the queue. Every result is written to the log at once.
"""

from __future__ import annotations

import hashlib
import math
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.c_source.bind import KernelSpec
from ..codegen.c_source.render import render_kernel
from ..context import Context
from ..errors import MegccError, MegccWarning
from ..ir.graph import Graph, network_bytes
from ..passes import before_layouts
from ..target import Target
from ..tuning_log import LogWriter, Row, TuningLog
from . import reference
from .candidates import Call, Candidate, calls_of
from .timing import Library, LocalRunner, Lost, Measurement, Sample, library

#: The number of candidates in a library.
BATCH = 16
#: The number of devices that may be lost while they run a candidate, before it fails.
ATTEMPTS = 2
#: The seconds for the connection, and for each candidate, after which a device counts as lost.
CONNECT_SECONDS, JOB_SECONDS = 90, 90


@dataclass(frozen=True)
class Job:
    """Candidates of a call with the same code and extents, which are measured once.

    code: the digest of the kernel's C.
    network_bytes: the size of the weights of the call's network.
    """

    call: Call
    candidates: tuple[Candidate, ...]
    code: str
    network_bytes: int

    @property
    def spec(self) -> KernelSpec:
        return self.candidates[0].bound.spec

    def rows(self, target: Target, optimize: str, device: str, sample: Sample) -> Iterator[Row]:
        """Yields the rows of the log for a measurement: one for each candidate."""
        ns = round(min(sample.ns), 1) if sample.ns else None
        for candidate in self.candidates:
            yield Row(target.name, optimize, self.call.text, candidate.kernel.name, candidate.kernel.tile,
                      candidate.layouts, ns, round(candidate.cost, 1), self.code, sample.error, device,
                      self.network_bytes)


@dataclass
class Summary:
    """A summary of a tuning run.

    calls, candidates: the number of distinct calls and of their candidates.
    known, measured: the number of candidates that were in the log before, and that were measured.
    failed: pairs of a candidate and the reason why it has no time.
    devices: the names of the devices that measured.
    seconds: the duration of the run.
    """

    calls: int = 0
    candidates: int = 0
    known: int = 0
    measured: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    seconds: float = 0.0


def tune(graphs: Sequence[Graph], target: Target, log: str | Path, *, optimize: str = "speed",
         trials: int | None = None, runner=None, cc: str | None = None,
         progress: Callable[[int], Any] | None = None, weights: int | None = None) -> Summary:
    """Measures all candidates that are not in the log.

    Args:
        graphs: imported graphs with static shapes.
        target: the CPU to measure for.
        log: the file to which results are appended; it is created if it does not exist.
        optimize: as in `CompileOptions`.
        trials: the largest number of candidates of a call, in the order of estimated costs; None: all.
        runner: `timing.LocalRunner` (the default) or `remote.RpcRunner`.
        cc: the C compiler.
        progress: takes the number of measurements and returns an object with `update(n)` and `close()`.
        weights: bytes of weights that an inference reads, if graphs are parts of a network; None: each graph is one.

    Raises:
        MegccError: for a log with a line that is not a row; if this machine does not run the target and no runner is
            given; if every device is lost. The log has all measurements until then.
    """
    begin = time.monotonic()
    runner = runner or LocalRunner()
    runner.require(target)
    logged = TuningLog.read(log) if Path(log).exists() else TuningLog()
    summary = Summary()
    jobs: list[Job] = []
    seen_keys: set[tuple[str, ...]] = set()
    values: dict[int, dict[str, np.ndarray]] = {}
    for graph in graphs:
        context = Context(target, optimize, network_bytes(graph) if weights is None else weights)
        calls = calls_of(before_layouts(graph, context), context)
        for call in calls:
            keys = [(call.text, candidate.kernel.label, candidate.layouts) for candidate in call.candidates]
            call.candidates = [candidate for candidate, key in zip(call.candidates, keys, strict=True)
                               if key not in seen_keys]
            seen_keys.update(keys)
        fresh = [job for call in calls for job in _jobs(call, context, trials, logged, summary)]
        if fresh:
            values[id(fresh[0].call.graph)] = _values(fresh)
        jobs += fresh
    summary.calls = len({call_text for call_text, *_ in seen_keys})
    writer = LogWriter(log)
    try:
        _Tuning(jobs, values, target=target, optimize=optimize, runner=runner, cc=cc, writer=writer, summary=summary,
                progress=progress).run()
    finally:
        writer.close()
        summary.seconds = time.monotonic() - begin
    return summary


def progress_bar(quiet: bool = False) -> Callable[[int], object]:
    """Returns a function that shows a progress bar on stderr, if that is a terminal."""
    def start(total: int):
        from tqdm import tqdm

        return tqdm(total=total, desc="tuning", unit="kernel", disable=True if quiet else None)

    return start


def _jobs(call: Call, context: Context, trials: int | None, logged: TuningLog, summary: Summary) -> list[Job]:
    """Returns the jobs of a call whose times are not in the log. summary: its counts are increased."""
    chosen = call.candidates
    # Relayouts are never left out: the choice of layouts compares their times.
    if trials is not None and call.op.kind != "relayout":
        chosen = sorted(chosen, key=lambda candidate: candidate.cost)[:trials]
    summary.candidates += len(chosen)
    same: dict[tuple, list[Candidate]] = {}  # (kernel, extents) -> the candidates
    for candidate in chosen:
        same.setdefault((candidate.bound.spec, candidate.bound.extents), []).append(candidate)
    jobs = []
    for candidates in same.values():
        job = Job(call, tuple(candidates), code_of(candidates[0].bound.spec), context.weight_bytes)
        rows = [logged.rows.get(row.key) for row in job.rows(context.target, context.optimize, "", Sample())]
        # Times of other code are measured again, and those of old versions, which have no network_bytes and were
        # measured with the weights in the caches.
        if all(row is not None and row.code == job.code and row.network_bytes is not None for row in rows):
            summary.known += len(rows)
        else:
            jobs.append(job)
    return jobs


def code_of(spec: KernelSpec) -> str:
    """Returns a digest of a kernel's C code without its head comment."""
    return hashlib.sha256(render_kernel(spec).partition("*/")[2].encode()).hexdigest()[:12]


def _values(jobs: Sequence[Job]) -> dict[str, np.ndarray]:
    """Returns the operands and results of the jobs' calls by name, from the numpy reference on seeded random inputs:
    normally distributed floats, and integers 0 and 1, which are valid indices for most operators."""
    graph = jobs[0].call.graph
    generator = np.random.default_rng(0)
    feeds = {}
    for name in graph.inputs:
        type_ = graph.types[name]
        dtype = np.dtype(type_.dtype)
        if dtype.kind == "f":
            feeds[name] = generator.standard_normal(type_.shape).astype(dtype)
        else:
            feeds[name] = generator.integers(0, 2, type_.shape).astype(dtype)
    needed = {name for job in jobs for name in (*job.call.op.inputs, *job.call.op.outputs)}
    return reference.run(graph, feeds, [name for name in needed if name in graph.types])


@dataclass
class _Batch:
    """A batch of jobs with the library of their kernels."""

    jobs: list[Job]
    library: Library


@dataclass
class _Report:
    """A message from a device's thread: the sample of a job or, after a failure, the reason and the unfinished batch.

    device: the device's name; "" if no session was opened.
    job, outcome: the job and its sample, or None and the error.
    batch: the unfinished batch, after a failure.
    ended: the thread takes no further batch.
    """

    thread: _Device
    device: str
    job: Job | None
    outcome: Sample | Exception
    batch: _Batch | None = None
    ended: bool = False


class _Device(threading.Thread):
    """A thread that measures on one device at a time, and takes batches until none are left. If its device is lost, it
    takes another one.

    working: the current batch, and the name of the device.
    deadline: the time by which it must report.
    """

    def __init__(self, tuning: _Tuning):
        super().__init__(daemon=True)
        self.tuning = tuning
        self.working: tuple[_Batch, str] | None = None
        self.deadline = math.inf

    def run(self) -> None:
        """Measures batches until there are none, or the runner has no further device."""
        while True:
            batch = self.tuning.batches.get()
            if batch is None:
                return
            self.working, error = (batch, ""), None
            try:
                self._measure(batch)
            except Exception as caught:
                error = caught
            self.deadline = math.inf
            if error is not None:
                device = self.working[1]    # "" if the runner gave none: there is no other to be had
                ended = not device or not isinstance(error, Lost)
                self.tuning.reports.put(_Report(self, device, None, error, batch, ended))
                if ended:
                    return

    def _measure(self, batch: _Batch) -> None:
        self.deadline = time.monotonic() + CONNECT_SECONDS
        with self.tuning.runner.session(batch.library, CONNECT_SECONDS + JOB_SECONDS * len(batch.jobs)) as session:
            self.working = batch, session.device
            while batch.jobs and not self.tuning.stop.is_set():
                self.deadline = time.monotonic() + JOB_SECONDS
                job = batch.jobs[0]
                sample = session.measure(self.tuning.measurement(job), batch.library.index[job.spec])
                batch.jobs.pop(0)
                self.tuning.reports.put(_Report(self, session.device, job, sample))


class _Tuning:
    """A tuning run: compiles batches of jobs, which a thread for each device measures.

    values: id of a graph -> its operands and results by name.
    batches: the batches that wait for a device.
    reports: the messages of the threads.
    lost: id of a job -> the number of devices that were lost while they ran it.
    """

    def __init__(self, jobs, values, *, target, optimize, runner, cc, writer, summary, progress):
        self.jobs, self.values, self.target, self.optimize, self.runner = jobs, values, target, optimize, runner
        self.cc, self.writer, self.summary = cc, writer, summary
        self.progress = progress(len(jobs)) if progress and jobs else None
        self.batches: queue.Queue[_Batch | None] = queue.Queue()
        self.reports: queue.Queue[_Report] = queue.Queue()
        self.lost: dict[int, int] = {}
        self.stop = threading.Event()
        self.devices: list[_Device] = []

    def run(self) -> None:
        """Compiles and measures all jobs."""
        if not self.jobs:
            return
        count = self.runner.devices
        # Few jobs make smaller batches, so that each device gets two and none waits long for the last one.
        size = max(1, min(BATCH, -(-len(self.jobs) // (2 * count))))
        self.devices = [_Device(self) for _ in range(count)]
        for thread in self.devices:
            thread.start()
        try:
            with ExitStack() as libraries:
                pending = 0
                for start in range(0, len(self.jobs), size):
                    batch = self._build(self.jobs[start:start + size], libraries)
                    pending += len(batch.jobs)
                    self.batches.put(batch)
                    # This machine measures only while it does not compile; devices have one batch in reserve.
                    while pending > (0 if self.runner.program else 2 * size * count):
                        pending -= self._take()
                while pending:
                    pending -= self._take()
        finally:
            self.stop.set()
            for _ in range(count):
                self.batches.put(None)
            if self.progress is not None:
                self.progress.close()
        for thread in self.devices:
            thread.join(timeout=5)

    def _build(self, jobs: list[Job], libraries: ExitStack) -> _Batch:
        specs = list(dict.fromkeys(job.spec for job in jobs))
        built = libraries.enter_context(library(specs, self.target, self.runner.program, self.cc))
        for job in jobs:
            if job.spec in built.failed:
                self._record(job, "", Sample(error="it does not compile: " + built.failed[job.spec][:300]))
        return _Batch([job for job in jobs if job.spec in built.index], built)

    def measurement(self, job: Job) -> Measurement:
        return job.call.measurement(job.candidates[0], self.values[id(job.call.graph)], job.network_bytes)

    def _take(self) -> int:
        """Handles one report; returns the number of jobs that it finishes."""
        report = self._next_report()
        if report.job is not None:
            if report.device not in self.summary.devices:
                self.summary.devices.append(report.device)
            self._record(report.job, report.device, report.outcome)
            return 1
        if not isinstance(report.outcome, Lost):
            raise report.outcome
        return self._lose(report)

    def _next_report(self) -> _Report:
        """Waits for the next report. A thread that misses its deadline counts as having lost its device; its later
        reports are ignored."""
        while True:
            try:
                report = self.reports.get(timeout=1)
            except queue.Empty:
                late = [thread for thread in self.devices if time.monotonic() > thread.deadline]
                if not late:
                    continue
                batch, device = late[0].working
                batch = _Batch(list(batch.jobs), batch.library)
                report = _Report(late[0], device, None, Lost(f"no answer for {JOB_SECONDS} s"), batch, ended=True)
            if report.thread in self.devices:
                return report

    def _lose(self, report: _Report) -> int:
        """Requeues the unfinished jobs of a lost device, except a job that lost several devices."""
        batch, done = report.batch, 0
        if report.ended:
            self.devices.remove(report.thread)
        if report.device and batch.jobs:
            warnings.warn(f"device {report.device} was lost: {report.outcome}", MegccWarning, stacklevel=2)
            first = batch.jobs[0]
            self.lost[id(first)] = self.lost.get(id(first), 0) + 1
            if self.lost[id(first)] >= ATTEMPTS:
                self._record(first, report.device, Sample(error=f"{ATTEMPTS} devices were lost with it"))
                batch.jobs.pop(0)
                done = 1
        if not self.devices:
            raise MegccError(f"no device is left: {report.outcome}\n  What was measured until now is in the log; "
                             "the same command goes on from there.")
        if batch.jobs:
            self.batches.put(batch)
        return done

    def _record(self, job: Job, device: str, sample: Sample) -> None:
        for row in job.rows(self.target, self.optimize, device, sample):
            self.writer.write(row)
            if sample.error:
                name = f"{row.kernel}{'_' * bool(row.tile)}{row.tile} ({row.layouts}) of {row.call}"
                self.summary.failed.append((name, sample.error))
                warnings.warn(f"candidate {name} is left out: {sample.error}", MegccWarning, stacklevel=2)
        self.summary.measured += len(job.candidates)
        if self.progress is not None:
            self.progress.update(1)
