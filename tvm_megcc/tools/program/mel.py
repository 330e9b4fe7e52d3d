# SPDX-License-Identifier: Apache-2.0
"""Constants of features of sound: weights of mel filters, tapers, and the DCT of cepstral coefficients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def mel_weights(sample_rate: int, fft: int, mels: int, lowest_hz: float, highest_hz: float, scale: str,
                area: bool) -> npt.NDArray[np.float32]:
    """Returns the weights of triangles, [fft / 2 + 1][mels], whose corners are equally far apart in a mel scale.

    Source: the formulas of Slaney's Auditory Toolbox ("slaney") or of HTK ("htk", "kaldi"). Slaney's scale is linear up
    to 1000 Hz, which is 15 mel, and then logarithmic: 27 mel are a factor of 6.4. HTK's is 2595 log10(1 + Hz / 700).
    Triangles of "kaldi" are linear in mel, others in Hz. They have the height 1, or with `area` equal areas.
    """
    if scale == "slaney":
        ends = np.array([lowest_hz, highest_hz])
        first, last = np.where(ends < 1000, ends * 3 / 200, 15 + 27 * np.log(np.maximum(ends, 1) / 1000) / np.log(6.4))
        edges = np.linspace(float(first), float(last), mels + 2)
        corners_hz = np.where(edges < 15, edges * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (edges - 15)))
    else:
        first, last = 2595 * np.log10(1 + np.array([lowest_hz, highest_hz]) / 700)
        edges = np.linspace(float(first), float(last), mels + 2)
        corners_hz = 700 * (10 ** (edges / 2595) - 1)
    bins = np.arange(fft // 2 + 1)[:, None] * (sample_rate / fft)
    corners = corners_hz
    if scale == "kaldi":
        corners, bins = edges, 2595 * np.log10(1 + bins / 700)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    weights = np.maximum(0, np.minimum(rising, falling)) * (2 / (corners_hz[2:] - corners_hz[:-2]) if area else 1)
    return np.ascontiguousarray(weights, np.float32)


def taper_of(kind: str, window: int, periodic: bool) -> npt.NDArray[np.float64]:
    """Returns the taper of `window` samples.

    kind: "hann", "hamming", "none" (ones), or "povey", Hann's to the power of 0.85, as Kaldi has it. periodic: the
    period is `window` samples, so that the first value comes again after the last one; else `window - 1`.
    """
    angles = 2 * np.pi * np.arange(window) / max(1, window if periodic else window - 1)
    if kind == "hamming":
        return 0.54 - 0.46 * np.cos(angles)
    hann = 0.5 - 0.5 * np.cos(angles)
    return np.ones(window) if kind == "none" else np.power(hann, 0.85) if kind == "povey" else hann


def dct(mels: int, coefficients: int, lifter: float) -> npt.NDArray[np.float32]:
    """Returns the orthonormal DCT-II, [mels][coefficients]; with a lifter Q, times 1 + Q / 2 * sin(pi * i / Q)."""
    orders = np.arange(coefficients)
    weights = np.cos(np.pi / mels * (np.arange(mels)[:, None] + 0.5) * orders) * np.sqrt(2 / mels)
    weights[:, 0] = np.sqrt(1 / mels)
    if lifter:
        weights *= 1 + lifter / 2 * np.sin(np.pi * orders / lifter)
    return np.ascontiguousarray(weights, np.float32)
