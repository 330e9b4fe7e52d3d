# SPDX-License-Identifier: Apache-2.0
"""`megcc lm bench --against`: compares the speed of a language model with that of other programs.

Every engine has a process of its own on the same processors. A round is one sequence of each, in rotating order, so
that other load of the machine affects all equally. Speeds are ratios within a round.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import MegccError
from ...target import native
from ..bench.against import Gone, Process, level, parse_pythons, rotated
from ..bench.against_report import speed_text
from ..bench.cpu import cpu_name
from ..bench.peers import undisturbed
from ..columns import aligned
from .model import LanguageModel
from .peers import GENAI, OURS, PEERS

logger = logging.getLogger(__name__)

#: The seconds after which the answer of a process is not waited for any more.
PATIENCE = 600
#: Bytes of each of the two arrays whose reading is timed; last-level caches are smaller.
READ_BYTES = 96 << 20
#: How often they are read before, and after, each of our sequences.
PASSES = 7


@dataclass(frozen=True)
class Settings:
    """The model, the engines and the size of a measurement.

    folder, target: the compiled model, as `LanguageModel` takes them.
    engines: name -> the model of a peer, or the Python file of a user's engine.
    pythons: the values of `--python`: "PATH" for all engines, "NAME=PATH" for one.
    prompt: the number of tokens that each sequence begins with, which the model reads.
    tokens: the number of tokens that it then generates.
    rounds: the number of sequences of each engine.
    """

    folder: Path
    target: str
    engines: Mapping[str, str]
    pythons: Sequence[str]
    prompt: int
    tokens: int
    rounds: int


def parse_engines(text: str, folder: Path) -> dict[str, str]:
    """Parses `"llama.cpp=model.gguf,mine=engine.py"` to {name: file or folder}. Without one, llama.cpp reads
    FOLDER.gguf, and onnxruntime-genai the folder FOLDER.genai.

    Raises:
        MegccError: for an unknown engine, and a file that does not exist.
    """
    engines: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, file = word.partition("=")
        if name == OURS or (name not in PEERS and not file.endswith(".py")):
            raise MegccError(f"--against {name}: there is no such engine; there are {', '.join(PEERS)}, and "
                             "NAME=FILE.py for one of your own (docs/language-models.md)")
        path = Path(file) if equals else folder.absolute().with_suffix(".genai" if name == GENAI else ".gguf")
        if not path.exists():
            kind = "folder" if name == GENAI else "file"
            raise MegccError(f"--against {word}: there is no {kind} {path}; {name}={kind.upper()} names the model that "
                             "it reads")
        engines[name] = str(path.resolve())
    if not engines:
        raise MegccError(f"--against names no engine; there are {', '.join(PEERS)}")
    return engines


def compare(settings: Settings, threads: int | None) -> dict[str, Any]:
    """Times a model with our engine and others.

    Args:
        threads: the number of threads of every engine; None: as many as the folder was compiled for.

    Returns:
        The conditions, such as machine, target and the fields of `settings`; differences: engine ->
        `_difference`; memory: of each round the bytes that memory gave in a second, right before and after our
        sequence; absent: engine -> the reason why it has no figures; engines: for each one what peers.py
        answers, and the seconds of each round for reading the prompt (`prompt`) and for the tokens after it
        (`generation`).

    Raises:
        MegccError: if the folder cannot be measured. A failure of another engine is not an error but a gap in the
            report, with its reason.
    """
    model = LanguageModel(settings.folder, settings.target or None, threads)
    threads, limits = threads or int(model.session.program["workers"]), model.settings
    if settings.prompt + settings.tokens > limits.context:
        raise MegccError(f"{settings.prompt} tokens of a prompt and {settings.tokens} after it are more than the "
                         f"context of {limits.context}")
    vocabulary, weights = model.tokenizer.get_vocab_size(), int(model.session.program["weight_bytes"])
    model.session.close()
    given = np.random.default_rng(0).integers(0, vocabulary, settings.prompt).tolist()
    # In a job of peers.py, "tokens" is the prompt itself, and "prompt" the most tokens that are read at a time.
    job = {"threads": threads, "context": limits.context, "prompt": limits.prompt, "tokens": given,
           "count": settings.tokens, "level": level(settings.target), "target": settings.target,
           "folder": str(settings.folder.resolve()), "processors": _processors(threads)}
    pythons = parse_pythons(settings.pythons, settings.engines)
    engines: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="megcc-lm-bench-") as scratch, contextlib.ExitStack() as processes:
        workers: dict[str, Process] = {}
        for name in (OURS, *settings.engines):
            logger.info("threads: %d: %s loads the model", threads, name)
            path = settings.engines.get(name, "")
            own = {"model": path, "file": path if path.endswith(".py") else "", "engine": name,
                   "result": str(Path(scratch) / f"{name}.npy")}
            try:
                process = processes.enter_context(contextlib.closing(Process(
                    pythons.get(name, ""), "measure", {**job, **own}, Path(scratch),
                    Path(__file__).with_name("peers.py"))))
                engines[name] = {**process.answer(PATIENCE), "prompt": [], "generation": [], "alone": True}
                workers[name] = process
            except Gone as reason:
                absent[name] = str(reason)
        memory = Memory(threads)
        bandwidths: list[float | None] = []
        for number in range(settings.rounds):
            logger.info("threads: %d: round %d of %d", threads, number + 1, settings.rounds)
            bandwidths += _round(workers, engines, absent, rotated(list(workers), number), memory)
        differences = {name: _difference(Path(scratch), name) for name in engines if name != OURS}
    return {"machine": cpu_name(), "target": level(settings.target) or str(native()), "threads": threads,
            "rounds": settings.rounds, "prompt": settings.prompt, "tokens": settings.tokens, "weights": weights,
            "memory": bandwidths, "engines": engines, "absent": absent, "differences": differences}


def _round(workers: dict[str, Process], engines: dict[str, dict[str, Any]], absent: dict[str, str],
           order: Sequence[str], memory: Memory) -> list[float | None]:
    """Runs one sequence of each engine in the given order. An engine that fails becomes absent. Returns the bandwidth
    of memory beside our sequence, if there was one."""
    beside: list[float | None] = []
    for name in order:
        before = memory.bandwidth() if name == OURS else None
        try:
            answer = workers[name].ask(1, PATIENCE)  # one sequence, whose length is in the job, whatever the number is
        except Gone as reason:
            absent[name] = str(reason)
            del workers[name], engines[name]
            continue
        found = engines[name]
        for part in ("prompt", "generation"):
            found[part].append(answer[part])
        found["peak"], found["alone"] = answer["peak"], found["alone"] and answer["alone"]
        if name == OURS:
            after = memory.bandwidth()
            beside.append((before + after) / 2 if before and after else None)
    return beside


def _processors(threads: int) -> list[int]:
    """Returns the processors that engines are bound to; [] if the system does not support that, or has too few."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[:threads] if len(allowed) >= threads else []


def _difference(scratch: Path, name: str) -> float | None:
    """Returns the largest difference of an engine's logits after the prompt to ours, as a fraction of our largest
    logit; None if their numbers differ."""
    ours, theirs = (np.load(scratch / f"{each}.npy").reshape(-1).astype(np.float64) for each in (OURS, name))
    if ours.shape != theirs.shape:
        return None
    return float(np.abs(ours - theirs).max() / np.abs(ours).max())


class Memory:
    """Reads memory that no cache holds, as a measure of what its bandwidth permits: each thread compares two equal
    arrays by the C library's memcmp()."""

    def __init__(self, threads: int):
        self._pairs = [(np.ones(READ_BYTES, np.uint8), np.ones(READ_BYTES, np.uint8)) for _ in range(threads)]
        try:
            self._compare = ctypes.CDLL(None).memcmp
        except (OSError, TypeError, AttributeError):    # no C library is to be had, as on Windows
            return
        self._compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def bandwidth(self, passes: int = PASSES) -> float | None:
        """Returns the bytes that all threads together read in a second, in the median of some passes; None without a
        C library."""
        if not hasattr(self, "_compare"):
            return None
        seconds = []
        with ThreadPoolExecutor(len(self._pairs)) as pool, undisturbed():
            list(pool.map(self._read, self._pairs))     # starts the threads
            for _ in range(passes):
                begin = time.perf_counter()
                list(pool.map(self._read, self._pairs))
                seconds.append(time.perf_counter() - begin)
        return 2 * READ_BYTES * len(self._pairs) / statistics.median(seconds)

    def _read(self, pair: tuple[np.ndarray, np.ndarray]) -> None:
        self._compare(pair[0].ctypes.data, pair[1].ctypes.data, READ_BYTES)


def text(report: Mapping[str, Any]) -> str:
    """Returns a table for each number of threads."""
    return "\n".join(_table(row) for row in report["comparisons"])


def _table(row: Mapping[str, Any]) -> str:
    engines, ours = row["engines"], row["engines"].get(OURS)
    peers = [name for name in engines if name != OURS]

    def speeds(title: str, part: str, count: int) -> tuple[str, ...]:
        return (title, *(f"{count / statistics.median(found[part]):.1f}" for found in engines.values()),
                *(_ratio(ours, engines[name], part) for name in peers))

    def figures(title: str, cell: Callable[[Mapping[str, Any]], str]) -> tuple[str, ...]:
        return (title, *map(cell, engines.values()), *("" for _ in peers))

    lines = [f"{row['machine']}, {row['target']}, threads: {row['threads']}, rounds: {row['rounds']}"]
    versions = ", ".join(f"{name} {found['version']}" for name, found in engines.items() if found["version"])
    lines += [versions] if versions else []
    if ours and row["rounds"]:
        rows = [("", *engines, *(f"ours / {name}" for name in peers)),
                speeds(f"prompt of {row['prompt']}, tokens/s", "prompt", row["prompt"]),
                speeds(f"{row['tokens']} after it, tokens/s", "generation", row["tokens"]),
                figures("loading, ms", lambda found: f"{1e3 * found['load']:.1f}"),
                figures("loading to the first token, ms", lambda found: f"{1e3 * found['first']:.1f}"),
                figures("memory at most, MB", lambda found: "" if found["peak"] is None else
                        f"{(found['peak'] - found['bare']) / 1e6:.1f}")]
        lines += ["", *("  " + line for line in aligned(rows, left={0})), ""]
    return "\n".join(lines + _remarks(row)) + "\n"


def _ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any], part: str) -> str:
    """Returns our speed relative to another engine's: median, minimum and maximum of the rounds' ratios."""
    ratios = [other / own for own, other in zip(ours[part], theirs[part], strict=True)]
    return speed_text({"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)})


def _remarks(row: Mapping[str, Any]) -> list[str]:
    """Returns a line for each gap with its reason, and notes on the figures."""
    engines = row["engines"]
    lines = [f"no {name}: {reason}" for name, reason in row["absent"].items()]
    lines += [f"{name}: the logits after the prompt differ from ours by {value:.1%} of the largest one"
              if value is not None else f"{name}: has another vocabulary" for name, value in row["differences"].items()]
    if OURS in engines and row["rounds"] and all(row["memory"]):
        rates = [row["tokens"] / seconds * row["weights"] for seconds in engines[OURS]["generation"]]
        parts = sorted(rate / given for rate, given in zip(rates, row["memory"], strict=True))
        part = speed_text({"median": statistics.median(parts), "low": parts[0], "high": parts[-1]})
        own, given = (f"{statistics.median(each) / 1e9:.1f} GB/s" for each in (rates, row["memory"]))
        lines.append(f"weights: {row['weights']:,} bytes, which ours reads at {own}: {part} of the {given} that memory "
                     "gave in the same rounds")
    free = [name for name, found in engines.items() if not found["held"]]
    if free:
        lines.append(f"{', '.join(free)} cannot be held to {row['target']}: they use what the CPU has")
    if not all(found["alone"] for found in engines.values()):
        lines.append("no real-time class here (RLIMIT_RTPRIO, CAP_SYS_NICE): other programs could disturb the rounds")
    return lines
