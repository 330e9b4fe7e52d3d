# SPDX-License-Identifier: Apache-2.0
"""The feature `resample`: sound of another sample rate."""

from __future__ import annotations

from math import ceil, gcd
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from .nodes import Nodes
from .settings import MAX_WEIGHTS, Settings
from .steps import MOST_RATE

if TYPE_CHECKING:
    import onnx


def resample(settings: Settings, samples: int) -> onnx.ModelProto:
    """Returns a model from `sound`, float32[samples], to `features`, the same sound at the sample rate `to`: a
    polyphase filter, that is, a convolution with one output channel for each phase, a position of an output sample
    between two input samples.

    Source: the low-pass filter of scipy.signal.resample_poly, a sinc of 20 zero crossings with a Kaiser window of
    beta 5. In the sound at the sample rate `up` times as high, where all but each `up`th sample are 0, it has
    2 * half + 1 elements. Output sample m is at m * down there, and input sample n at n * up.
    """
    before, after = settings.integer("sample_rate", 1, MOST_RATE), settings.integer("to", 1, MOST_RATE)
    shared = gcd(before, after)
    up, down = after // shared, before // shared
    half = 10 * max(up, down)
    # The inputs that the outputs 0 to up - 1 read: those at most `half` from 0 to (up - 1) * down.
    first, last = -(half // up), ((up - 1) * down + half) // up
    taps = last - first + 1
    if up * taps > MAX_WEIGHTS:
        raise MegccError(f"from 'sample_rate' {before} 'to' {after}, a filter has {up * taps} weights, too many")
    response = np.sinc(np.arange(-half, half + 1) / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
    # One of `up` elements meets a sample, the others zeros; so the sum `up` keeps the loudness.
    response *= up / response.sum()
    # [phase, tap]: the element of the filter by which output `phase` multiplies input `first + tap`; 0 beyond its ends.
    index = np.arange(up)[:, None] * down + half - np.arange(first, last + 1) * up
    weights = np.where((index >= 0) & (index <= 2 * half), response[np.clip(index, 0, 2 * half)], 0).astype(np.float32)
    graph, signal = Nodes(), "sound"
    if settings.flag("stream"):
        if samples % down:
            raise MegccError(f"'stream': a run takes {samples} samples, which is no multiple of {down}")
        # A step reads the last `taps` samples, of which `down` are new.
        state_length, steps, result = taps - down, samples // down, samples // down * up  # a step has `up` outputs
        graph.input("before", [state_length])
        signal = graph.add("Concat", ["before", "sound"], axis=0)
        graph.add("Slice", [signal, [samples], [samples + state_length], [0]], "after")
        graph.output("after", [state_length])
        length = samples + state_length
    else:
        result = ceil(samples * up / down)
        steps = ceil(result / up)
        length = (steps - 1) * down + taps
        padding_after = length + first - samples
        signal = graph.add("Pad", [signal, [-first, padding_after]])
    row = graph.add("Reshape", [signal, [1, 1, length]])
    phases = graph.add("Conv", [row, weights[:, None, :]], strides=[down])
    interleaved = graph.add("Reshape", [graph.add("Transpose", [phases], perm=[0, 2, 1]), [steps * up]])
    graph.add("Slice", [interleaved, [0], [result], [0]], "features")
    graph.input("sound", [samples])
    graph.output("features", [result])
    return graph.model("resample")
