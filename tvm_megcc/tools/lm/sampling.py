# SPDX-License-Identifier: Apache-2.0
"""Chooses the next token from logits, as c_runtime/lm/megcc_sampler.c does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import MegccError


@dataclass(frozen=True)
class Sampling:
    """Settings of the choice of the next token. With a temperature of 0 it is the most likely one.

    temperature: logits are divided by it.
    top_k: the number of most likely tokens to choose from, 0 for all.
    top_p: only the most likely tokens with this total probability ("The Curious Case of Neural Text Degeneration",
        Holtzman et al., 2020).
    min_p: only tokens with at least this fraction of the highest probability.
    repetition_penalty: positive logits of earlier tokens are divided by it, negative ones multiplied ("CTRL", Keskar et
        al., 2019).
    seed: the key of the counter-based random numbers: the same logits and seed give the same tokens on every
        machine. The settings above are used as float32.

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
        highest = float(np.finfo(np.float32).max)
        wrong = [name for name, right in (
            ("temperature", 0 <= self.temperature <= highest), ("top_k", self.top_k >= 0),
            ("top_p", 0 < self.top_p <= 1), ("min_p", 0 <= self.min_p <= 1),
            ("repetition_penalty", 0 < self.repetition_penalty <= highest),
            ("seed", 0 <= self.seed < 1 << 64)) if not right]
        if wrong:
            raise MegccError(f"{wrong[0]} is {getattr(self, wrong[0])}, which is out of its range")

    def generator(self) -> Draws:
        return Draws(self.seed)


_MASK = 0xffffffff


class Draws:
    """Counter-based random numbers of a seed: the first 64 bits of each block of Philox 4x32-10 (Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

    def __init__(self, seed: int):
        self.seed, self.count = seed, 0

    def below(self, limit: int) -> int:
        """Returns the next number from 0 to limit - 1: the upper half of the product of `limit` and 64 random bits."""
        block = philox((self.count & _MASK, self.count >> 32, 0, 0), (self.seed & _MASK, self.seed >> 32))
        self.count += 1
        return (block[1] << 32 | block[0]) * limit >> 64


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Returns a block of 4 numbers of 32 bits. Its constants are the multipliers and key increments of Philox 4x32-10
    in the paper (`Draws`)."""
    x0, x1, x2, x3 = counter
    for round_ in range(10):
        a, b = 0xd2511f53 * x0, 0xcd9e8d57 * x2
        k0, k1 = (first + round_ * step & _MASK for first, step in zip(key, (0x9e3779b9, 0xbb67ae85), strict=True))
        x0, x1, x2, x3 = b >> 32 ^ x1 ^ k0, b & _MASK, a >> 32 ^ x3 ^ k1, a & _MASK
    return x0, x1, x2, x3


def choose(logits: np.ndarray, before: Sequence[int], sampling: Sampling, generator: Draws) -> int:
    """Returns the next token.

    After the repetition penalty, which is float32, this is integer arithmetic, so that equal logits give equal tokens
    on every machine, and those of c_runtime/lm/megcc_sampler.c. Tokens have an order, by weights and, if these are
    equal, by their numbers; `top_k`, `top_p` and `min_p` keep its beginning.

    Args:
        logits: float32 [vocabulary].
        before: earlier tokens, for the repetition penalty.
    """
    # float32 settings that are too large become infinite, and those that are too small 0, as in C.
    logits = logits.astype(np.float32)
    with np.errstate(over="ignore"):
        penalty, temperature = np.float32(sampling.repetition_penalty), np.float32(sampling.temperature)
    if penalty > 0 and len(before):
        seen = np.unique(before)
        with np.errstate(over="ignore", invalid="ignore"):
            logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    if not temperature:
        lowest = np.finfo(np.float32).min
        return int(np.where(logits > lowest, logits, lowest).argmax())
    found = weights(logits, temperature)
    order = np.argsort(-found, kind="stable")
    ordered = found[order]
    # The highest weight is 2^31, so `min_p` of it is this number.
    candidates = (ordered > 0) & (ordered >= int(np.float32(sampling.min_p) * np.float32(1 << 31)))
    if sampling.top_k:
        candidates[sampling.top_k:] = False
    if 0 < np.float32(sampling.top_p) < 1:
        sums = np.cumsum(ordered)
        part = int(np.float32(sampling.top_p) * np.float32(1 << 24))  # top_p in units of 2^-24
        # A token is kept if the tokens before it have less than this part of the sum.
        candidates &= sums - ordered < max(1, int(sums[-1]) * part >> 24)
    # As in C, which does not sort: the token at which the sum of weights, by token number, exceeds a random number.
    tokens = np.sort(order[candidates])
    reached = np.cumsum(found[tokens])
    return int(tokens[np.searchsorted(reached, generator.below(int(reached[-1])), side="right")])


#: Tables of 2^(-i / 16) and 2^(-i / 256), for i from 0 to 15, and ln(2): in units of 2^-31.
_COARSE = np.array([
    0x80000000, 0x7a92be8b, 0x75606374, 0x70666f76, 0x6ba27e65, 0x6712460b, 0x62b39509, 0x5e8451d0,
    0x5a82799a, 0x56ac1f75, 0x52ff6b55, 0x4f7a9930, 0x4c1bf829, 0x48e1e9ba, 0x45cae0f2, 0x42d561b4], np.int64)
_FINE = np.array([
    0x80000000, 0x7fa765ad, 0x7f4f08ae, 0x7ef6e8da, 0x7e9f0606, 0x7e476009, 0x7deff6b6, 0x7d98c9e6,
    0x7d41d96e, 0x7ceb2523, 0x7c94acde, 0x7c3e7073, 0x7be86fba, 0x7b92aa88, 0x7b3d20b6, 0x7ae7d21a], np.int64)
_LN2 = 1488522236


def log_probability(logits: np.ndarray, token: int) -> float:
    """Returns the natural logarithm of a token's softmax probability, as megcc_sampler_log_probability does.

    Args:
        logits: float32 [vocabulary]; the error is below 2^-21 + vocabulary * 2^-31.
    """
    fixed, total = _fixed(logits), int(weights(logits, np.float32(1)).sum())
    # log2(total): first its whole part, and x = total / 2^whole in [1, 2), in units of 2^-31. Squaring x doubles its
    # logarithm: a square of 2 or more gives a further bit of 1, and is halved.
    log2, x = total.bit_length() - 1, total >> total.bit_length() - 32
    for _ in range(24):
        x = x * x >> 31
        log2 = 2 * log2 + (x >> 32)
        x >>= x >> 32
    # Now log2 is in units of 2^-24, of a sum in units of 2^-31.
    log_of_sum = (log2 - (31 << 24)) * _LN2 >> 31
    return float(np.float32((int(fixed[token] - fixed.max()) - log_of_sum) / (1 << 24)))


def _fixed(logits: np.ndarray) -> np.ndarray:
    """Returns float32 logits in units of 2^-24 as int64, between -2^54 and 2^54; NaN is the lowest one."""
    limit = np.float32(1 << 30)
    with np.errstate(invalid="ignore"):
        return (np.clip(np.where(np.isnan(logits), -limit, logits), -limit, limit) * np.float32(1 << 24)
                ).astype(np.int64)


def weights(logits: np.ndarray, temperature: float | np.float32) -> np.ndarray:
    """Returns exp((logit - highest) / temperature) of float32 logits as int64, in units of 2^-31; their error is below
    2^-23 of the highest one. NaN is the lowest logit."""
    fixed = _fixed(logits)
    with np.errstate(over="ignore"):
        # 24204406 is log2(e) in units of 2^-24; so x below is the negative binary logarithm of the weight, in units of
        # 2^-48.
        slope = int(min(np.float32(24204406) / np.float32(temperature), np.float32(1 << 40)))
    below = fixed.max() - fixed
    in_range = below <= (33 << 48) // max(slope, 1)  # weights below 2^-33 are 0 in units of 2^-31
    x = below[in_range] * slope
    # 2^-x is a product. The whole part of x is a shift, its first 4 bits after the point index _COARSE, the next 4
    # _FINE. For the rest r, 2^-r = e^-s, about 1 - s + s^2 / 2, with s = r * ln(2).
    rest = (x >> 8 & _MASK) * _LN2 >> 40
    table = _COARSE[x >> 44 & 15] * _FINE[x >> 40 & 15] >> 31
    integers = np.zeros(len(logits), np.int64)
    integers[in_range] = table * ((1 << 31) - rest + (rest * rest >> 32)) >> 31 >> (x >> 48)
    return integers
