# SPDX-License-Identifier: Apache-2.0
"""Block-quantised weights: 4-bit or 8-bit numbers with a scale and an offset for each block of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..base import OnnxNode
from ..elementwise import cast_to
from ..spelling import onnx_operator
from .int4 import packed
from .nbits import centre


@dataclass(frozen=True)
class Blocks:
    """Weights with value = scale * number + offset.

    numbers: uint8 [rows, K], less than 1 << bits.
    scale, offset: float32 [rows, K / block].
    bits: 4 or 8.
    """

    bits: int
    block: int
    numbers: np.ndarray
    scale: np.ndarray
    offset: np.ndarray

    def dequantized(self) -> np.ndarray:
        """Returns the values, float32 [rows, K]; the product is rounded, then the sum."""
        scale, offset = (np.repeat(array, self.block, 1) for array in (self.scale, self.offset))
        return self.numbers.astype(np.float32) * scale + offset

    @property
    def stored(self) -> np.ndarray:
        """Returns the numbers as stored: two in a byte if they have 4 bits."""
        return packed(self.numbers) if self.bits == 4 else self.numbers

    def centred(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns equivalent numbers and offsets. If all values are scale * (number - zero) with one zero point, the
        numbers are shifted so that it becomes 2^(bits - 1), and the offsets are None."""
        found = np.flatnonzero(self.scale)
        steps = -self.offset.flat[found[0]] / self.scale.flat[found[0]] if found.size else 0.0
        zero, middle = int(np.rint(np.clip(steps, 0, 1 << self.bits))), centre(self.bits)
        moved = self.numbers.astype(np.int16) + (middle - zero)
        if np.array_equal(self.offset, -zero * self.scale) and moved.min() >= 0 and moved.max() < 2 * middle:
            return moved.astype(np.uint8), None
        return self.numbers, self.offset

    def zero_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns zero, uint8, and rest, float32, both [rows, K / block], with value = scale * (number - zero) + rest.
        """
        steps = np.divide(-self.offset, self.scale, out=np.zeros_like(self.offset), where=self.scale != 0)
        zero = np.clip(np.rint(steps), 0, (1 << self.bits) - 1)
        return zero.astype(np.uint8), self.offset + zero * self.scale


def block_product(node: OnnxNode, a: str, weights: Blocks) -> str:
    """Emits a, float32 [..., M, K], times the transpose of the weights: [..., M, rows]."""
    numbers, offset = weights.centred()
    (y,) = node.emit("matmul_nbits", (a, node.constant(replace(weights, numbers=numbers).stored),
                                      node.constant(weights.scale), "" if offset is None else node.constant(offset)),
                     bits=weights.bits, block=weights.block, activations="int8")
    return y


def block_rows(node: OnnxNode, indices: str, weights: Blocks) -> str:
    """Gathers rows of the weights: float32 [..., K] for indices [...]."""

    def rows(array: np.ndarray) -> str:
        return onnx_operator(node, "Gather", node.constant(array), indices, axis=0)

    blocks = weights.scale.shape[1]
    numbers, scale = rows(weights.stored), rows(weights.scale)
    outer = node.type_of(indices).shape
    if weights.bits == 4:
        zero, rest = weights.zero_points()
        (value,) = node.emit("dequantize_int4", (numbers, scale, rows(zero)), block=weights.block,
                             depth=blocks * weights.block)
        factors = [("add", rows(rest))] if rest.any() else []
    else:
        (value,) = cast_to(node, numbers, "float32")
        factors = [("mul", scale), ("add", rows(weights.offset))]
    (value,) = node.emit("reshape", (value,), shape=(*outer, blocks, weights.block))
    for kind, factor in factors:
        (factor,) = node.emit("reshape", (factor,), shape=(*outer, blocks, 1))
        (value,) = node.emit(kind, (value, factor))
    return node.emit("reshape", (value,), shape=(*outer, blocks * weights.block))[0]
