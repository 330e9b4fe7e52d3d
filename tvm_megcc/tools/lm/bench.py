# SPDX-License-Identifier: Apache-2.0
"""Measures a compiled language model: tokens per second of prefill and decoding, memory, and load time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ...errors import MegccError
from ..bench.peers import resident
from .model import LanguageModel


@dataclass(frozen=True)
class Speed:
    """Figures of a language model on this machine.

    threads: the number of workers of a run.
    load: seconds to load a built folder, tokenizer included.
    prompt, prefill: the number of tokens of a prompt, and how many of them are read in a second.
    tokens, decode: the number of tokens that are generated after it, one by one, and how many of them in a second.
        Both speeds are those of the median sequence.
    weights, arena: bytes of the network's weights, and of the memory for its intermediate values.
    resident: bytes of memory of the process after the last token; None if the system does not tell.
    """

    threads: int
    load: float
    prompt: int
    prefill: float
    tokens: int
    decode: float
    weights: int
    arena: int
    resident: int | None


def measure(folder: str | Path, target: str | None = None, threads: int | None = None, prompt: int = 128,
            tokens: int = 64, repeats: int = 3) -> Speed:
    """Measures a model with prompts of random tokens, after which the most likely tokens are generated.

    Args:
        threads: the number of workers of a run, as `tvm_megcc.load` takes it.
        prompt, tokens: the numbers of tokens that each sequence reads, and then generates.
        repeats: the number of sequences, after a short one that is not counted.

    Raises:
        MegccError: if the context is too short for so many tokens, and as `LanguageModel`.
    """
    LanguageModel(folder, target, threads).session.close()  # so that it is built already
    begin = time.perf_counter()
    model = LanguageModel(folder, target, threads)
    load = time.perf_counter() - begin
    context = model.settings.context
    if prompt + tokens > context and not model.settings.sinks:
        raise MegccError(f"{prompt} tokens of a prompt and {tokens} after it are more than the context of {context}")
    given = np.random.default_rng(0).integers(0, model.tokenizer.get_vocab_size(), prompt).tolist()
    _sequence(model, given[:model.settings.prompt], 1)
    times = [_sequence(model, given, tokens) for _ in range(repeats)]
    program = model.session.program
    return Speed(threads or program["workers"], load, prompt, prompt / statistics.median(first for first, _ in times),
                 tokens, tokens / statistics.median(rest for _, rest in times), program["weight_bytes"],
                 program["arena_bytes"], resident("VmRSS"))


def _sequence(model: LanguageModel, given: Sequence[int], tokens: int) -> tuple[float, float]:
    """Returns the seconds for reading a prompt, and for generating `tokens` tokens after it."""
    model.reset()
    begin = time.perf_counter()
    logits = model.read(given)
    first = time.perf_counter()
    for _ in range(tokens):
        logits = model.read([int(logits.argmax())])
    return first - begin, time.perf_counter() - first


def report(rows: Sequence[Speed]) -> dict:
    return {"speeds": [asdict(row) for row in rows]}


def text(report: dict) -> str:
    """Returns a line for each number of threads."""
    lines = []
    for row in report["speeds"]:
        used = "" if row["resident"] is None else f", {row['resident']:,} resident"
        workers = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        lines.append(f"{workers}: {row['prefill']:.1f} tokens a second of a prompt of {row['prompt']}, "
                     f"{row['decode']:.1f} of {row['tokens']} after it; loaded in "
                     f"{1000 * row['load']:.0f} ms; bytes: {row['weights']:,} of weights, {row['arena']:,} of arena"
                     f"{used}\n")
    return "".join(lines)
