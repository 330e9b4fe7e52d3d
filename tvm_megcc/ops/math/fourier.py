# SPDX-License-Identifier: Apache-2.0
"""The fast Fourier transform, an operator of our own, which math/spectral.py emits for ONNX's DFT and STFT."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import number
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, register

#: The factors of a length for which the kernel has passes, in the order in which they are divided out.
FACTORS = (4, 2, 3, 5)


def factors_of(length: int) -> tuple[int, ...] | None:
    """Factorises a length into `FACTORS`, in the order of the kernel's passes; returns None if it has other prime
    factors. There is at most one 2, since two make a 4; its pass is the first."""
    found: list[int] = []
    for factor in FACTORS:
        while length > 1 and length % factor == 0:
            found.insert(0 if factor == 2 else len(found), factor)
            length //= factor
    return tuple(found) if length == 1 and found else None


def twiddles(length: int, inverse: bool, dtype: str) -> np.ndarray:
    """Returns the twiddle factors exp(-2 pi i k / length), or their conjugates for the inverse transform: real and
    imaginary parts [length, 2]."""
    angle = (2 if inverse else -2) * np.pi * np.arange(length) / length
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.dtype(dtype))


@register
class Fourier(Operator):
    """The discrete Fourier transform of complex or real numbers along an axis, by a fast algorithm.

    Operands: x float32 or float64 [..., N, 2], real and imaginary parts; twiddles of x's dtype, the result of
    `twiddles` for N. Result: [..., N, 2]. N has no prime factors but 2, 3 and 5.

    Attributes: `inverse`: whether the transform is inverted (and divided by N); `pairs`: x holds 2N real numbers, N
    pairs of neighbours; the twiddles are those for 2N, and the result is the first half of the spectrum,
    [..., N + 1, 2].

    Sources: C. Temperton, Self-sorting mixed-radix fast Fourier transforms, Journal of Computational Physics 52 (1983);
    for `pairs`, W. H. Press et al., Numerical Recipes in C (1992), 12.3.
    """

    kind = "fourier"
    operands = ("x", "twiddles")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, table: TensorType) -> tuple[TensorType, ...]:
        why = f"twiddles {table} for lines {x}"
        if x.rank < 2 or x.dtype != table.dtype or not isinstance(x.shape[-2], int) or factors_of(x.shape[-2]) is None:
            raise ShapeError(why)
        require_shape(x.shape[-1:], (2,), why)
        require_shape(table.shape, (x.shape[-2] * (2 if attrs.pairs else 1), 2), why)
        return (x.with_shape((*x.shape[:-2], x.shape[-2] + 1, 2)) if attrs.pairs else x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, ...]:
        if attrs.pairs:
            result = np.fft.rfft(x.reshape(*x.shape[:-2], 2 * x.shape[-2]).astype(np.float64), axis=-1)
        else:
            numbers = x[..., 0].astype(np.float64) + 1j * x[..., 1].astype(np.float64)
            result = (np.fft.ifft if attrs.inverse else np.fft.fft)(numbers, axis=-1)
        return (np.stack([result.real, result.imag], -1).astype(x.dtype),)

    @classmethod
    def of(cls, node: OnnxNode, value: str, inverse: bool, pairs: bool = False) -> str:
        """Emits the transform of a value, with constant twiddles."""
        type_ = node.type_of(value)
        length = type_.shape[-2] * (2 if pairs else 1)
        node.require_budget(length, 2)
        table = node.constant(twiddles(number(length), inverse, type_.dtype))
        return node.emit(cls.kind, (value, table), inverse=int(inverse), pairs=int(pairs))[0]


def _case(shape: tuple[int, ...], inverse: int, dtype: str = "float32", pairs: int = 0) -> Case:
    length = shape[-2] * (pairs + 1)
    return Case(((shape, dtype), ((length, 2), dtype)), {"inverse": inverse, "pairs": pairs}, constant=(1,),
                values={1: twiddles(length, bool(inverse), dtype)})


Fourier.cases = (_case((3, 10, 2), 1), _case((2, 2, 60, 2), 0), _case((1, 16, 2), 0), _case((8, 2), 1),
                 _case((2, 81, 2), 1, "float64"), _case((1, 2, 2), 0), _case((2, 400, 2), 0),
                 _case((3, 30, 2), 0, pairs=1), _case((2, 4, 2), 0, "float64", 1), _case((1, 200, 2), 0, pairs=1))
