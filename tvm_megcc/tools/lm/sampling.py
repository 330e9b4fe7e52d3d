# SPDX-License-Identifier: Apache-2.0
"""Chooses the next token from logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import MegccError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. With a temperature of 0 it is the most likely one.

    temperature: logits are divided by it. top_k: the number of most likely tokens to choose from, 0 for all. top_p:
    only the most likely tokens with this total probability ("The Curious Case of Neural Text Degeneration", Holtzman et
    al., 2020). min_p: only tokens with at least this fraction of the highest probability. repetition_penalty: positive
    logits of earlier tokens are divided by it, negative ones multiplied ("CTRL", Keskar et al., 2019). seed: of the
    random generator, which is counter-based (Philox): the same logits and seed give the same tokens on every machine.

    Raises:
        MegccError: for a number out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [name for name, right in (
            ("temperature", 0 <= self.temperature < np.inf), ("top_k", self.top_k >= 0), ("top_p", 0 < self.top_p <= 1),
            ("min_p", 0 <= self.min_p <= 1), ("repetition_penalty", 0 < self.repetition_penalty < np.inf),
            ("seed", 0 <= self.seed < 1 << 64)) if not right]
        if wrong:
            raise MegccError(f"{wrong[0]} is {getattr(self, wrong[0])}, which is out of its range")

    def generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.seed))


def choose(logits: np.ndarray, before: Sequence[int], sampling: Sampling, generator: np.random.Generator) -> int:
    """Returns the next token.

    Args:
        logits: float [vocabulary].
        before: earlier tokens, for the repetition penalty.
    """
    logits = logits.astype(np.float64)
    if sampling.repetition_penalty != 1 and before:
        seen = np.unique(before)
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / sampling.repetition_penalty,
                                logits[seen] * sampling.repetition_penalty)
    if not sampling.temperature:
        return int(logits.argmax())
    order = np.argsort(-logits, kind="stable")
    weights = np.exp((logits[order] - logits[order[0]]) / sampling.temperature)
    probabilities = weights / weights.sum()
    kept = probabilities >= sampling.min_p * probabilities[0]
    kept &= np.cumsum(probabilities) - probabilities < sampling.top_p
    if sampling.top_k:
        kept[sampling.top_k:] = False
    reached = np.cumsum(np.where(kept, probabilities, 0))
    return int(order[np.searchsorted(reached, generator.random() * reached[-1], side="right")])
