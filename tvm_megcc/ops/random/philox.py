# SPDX-License-Identifier: Apache-2.0
"""The operator `draw`: counter-based random numbers. Each block of four words depends only on key and counter, so
results do not depend on the order of computation or the number of threads.

Source: Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, Parallel Random Numbers: As Easy as 1,
2, 3, SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, register

#: The bits of a uniform number, by dtype: the bits of its significand.
PRECISION = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}

#: The constants of Philox4x32: multipliers, and what is added to the key in each round.
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = np.uint64(0xFFFFFFFF)


def philox(key: int, number: int, blocks: int) -> np.ndarray:
    """Returns the 32-bit words for the counters (0, number, 0, 0) to (blocks - 1, number, 0, 0), as uint64
    [blocks, 4]. key: 64 bits."""
    c0, c1 = np.arange(blocks, dtype=np.uint64), np.full(blocks, number, np.uint64)
    c2, c3 = np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64)
    low, high = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF  # the two words of the key
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (second >> np.uint64(32) ^ c1 ^ np.uint64(low), second & _WORD,
                          first >> np.uint64(32) ^ c3 ^ np.uint64(high), first & _WORD)
        low, high = (low + _WEYL[0]) & 0xFFFFFFFF, (high + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], 1)


@register
class Draw(Operator):
    """A tensor of random numbers from a key, int64 [].

    Attributes: `shape`; `number`: the index of this operator among those with the same key; `law`: the distribution;
    `dtype`: float32, float64 or int64; `precision`: the bits of a uniform number.

    Distributions: "uniform", multiples of 2^-precision in [0, 1); "normal", with mean 0 and variance 1, by the method
    of G. E. P. Box and M. E. Muller (Annals of Mathematical Statistics 29, 1958) in float64; "bits", all int64.
    """

    kind = "draw"
    operands = ("key",)
    folds = False
    cases = tuple(Case((((), "int64"),), {"shape": shape, "number": number, "law": law, "dtype": dtype,
                                          "precision": precision}, values={0: np.array(key)})
                  for shape, number, law, dtype, precision, key in (
                      ((3, 7), 0, "uniform", "float32", 24, 0), ((130,), 5, "uniform", "float32", 11, -1),
                      ((2, 1, 9), 2**31 - 1, "uniform", "float64", 53, -2**63), ((1,), 3, "uniform", "float32", 8, 7),
                      ((5, 13), 1, "normal", "float32", 24, 2**63 - 1), ((), 2, "normal", "float32", 24, 1 << 32),
                      ((11, 3), 9, "normal", "float64", 53, 0x0123456789ABCDEF), ((5,), 4, "bits", "int64", 64, 3),
                      ((), 0, "bits", "int64", 64, -5)))

    @staticmethod
    def infer(attrs: Attrs, key: TensorType) -> tuple[TensorType, ...]:
        if key != TensorType("int64", ()):
            raise ShapeError(f"its key is {key}, not int64[]")
        return (TensorType(attrs.dtype, attrs.shape),)

    @staticmethod
    def compute(attrs: Attrs, key: np.ndarray) -> tuple[np.ndarray, ...]:
        count = int(np.prod(attrs.shape, dtype=np.int64))
        elements = elements_per_block(attrs)
        words = philox(int(key), attrs.number, -(-count // elements))
        if elements == 2:
            words = words[:, ::2] << np.uint64(32) | words[:, 1::2]
        bits = random_bits(attrs)
        values = _DISTRIBUTIONS[attrs.law](words >> np.uint64(128 // elements - bits), bits).reshape(-1)[:count]
        return (values.astype(attrs.dtype).reshape(attrs.shape),)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


def elements_per_block(attrs: Attrs) -> int:
    """Returns the number of elements that the four words of a block give."""
    return 4 if attrs.dtype == "float32" else 2


def random_bits(attrs: Attrs) -> int:
    """Returns how many leading bits of an element's word (or pair of words) are used."""
    word = 128 // elements_per_block(attrs)
    bits: int = {"uniform": attrs.precision, "normal": min(word, 53), "bits": word}[attrs.law]
    return bits


def _uniform(words: np.ndarray, bits: int) -> np.ndarray:
    """Returns words of so many bits as numbers in [0, 1)."""
    return words.astype(np.float64) * 2.0**-bits


def _normal(words: np.ndarray, bits: int) -> np.ndarray:
    """Returns two normal numbers from two words, by a radius and an angle (Box-Muller)."""
    above_zero = (words[:, ::2].astype(np.float64) + 1.0) * 2.0**-bits  # in (0, 1], whose logarithm is finite
    radius = np.sqrt(-2.0 * np.log(above_zero))
    angle = words[:, 1::2].astype(np.float64) * (2.0**-bits * (2 * math.pi))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 2)


_DISTRIBUTIONS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "uniform": _uniform, "normal": _normal, "bits": lambda words, bits: words.view(np.int64)}
