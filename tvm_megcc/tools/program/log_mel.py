# SPDX-License-Identifier: Apache-2.0
"""The features `log_mel` and `mfcc`: the spectrum of each frame of sound, a mel filter bank, logarithms and, for
`mfcc`, cepstral coefficients."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from .mel import dct, mel_weights, taper_of
from .nodes import Nodes
from .settings import MAX_WEIGHTS, Settings
from .steps import MOST_RATE

if TYPE_CHECKING:
    import onnx

#: The natural logarithm times this is the logarithm of the setting `log`.
_FACTORS = {"natural": 1.0, "log10": 1 / np.log(10), "decibel": 10 / np.log(10)}
#: The most samples of a frame, samples between frames, and filters.
_MOST = 1 << 16
#: The smallest argument of a logarithm, and the smallest divisor: normal float32 numbers, with some distance to 2^-126.
_LEAST = 1e-30
#: The number that is added to a standard deviation before the division by it, as in NeMo's normalize_batch.
_EPSILON = 1e-5


class LogMel:
    """Builds the model of a feature: from `sound`, float32[samples], to `features`, float32[frames, mels] or
    float32[frames, coefficients]. Each method adds the nodes of one stage.

    Raises:
        MegccError: for a setting that is missing, of another kind, or impossible, and for too few samples.
    """

    def __init__(self, settings: Settings, samples: int, cepstrum: bool):
        """Reads and checks the settings. samples: the number that a run takes. cepstrum: the feature is `mfcc`."""
        self.settings, self.samples, self.cepstrum, self.graph = settings, samples, cepstrum, Nodes()
        self.rate, self.fft, self.mels = (settings.integer(key, 1, most) for key, most in (
            ("sample_rate", MOST_RATE), ("fft", _MOST), ("mels", _MOST)))
        self.window = settings.integer("window", 1, self.fft, self.fft)
        self.hop = settings.integer("hop", 1, _MOST, max(1, self.fft // 2))
        self.pad = settings.one_of("pad", ("none", "zeros", "reflect"), "none")
        self.low, self.high = settings.number("low", 0.0), settings.number("high", self.rate / 2)
        self.offset = settings.number("offset", 0.0)
        self.floor = settings.number("floor", 0.0 if self.offset else 1e-10)
        self.mean, self.std = settings.number("mean", 0.0), settings.number("std", 1.0)
        self.removes_dc = settings.one_of("dc", ("keep", "remove"), "keep") == "remove"
        self.preemphasis = settings.number("preemphasis", 0.0)
        emphasized = settings.one_of("preemphasis_of", ("sound", "frames"), "sound")
        self.emphasizes_sound = self.preemphasis != 0 and emphasized == "sound"
        self.emphasizes_frames = self.preemphasis != 0 and emphasized == "frames"
        #: Whether a frame has `window` samples, followed by zeros up to `fft`.
        self.is_short = settings.one_of("frame", ("fft", "window"), "fft") == "window"
        self.frame = self.window if self.is_short else self.fft
        self.energy = cepstrum and settings.flag("energy")
        self.stream = settings.flag("stream")
        self.normalize = settings.one_of("normalize", ("none", "mels", "mean"), "none")
        self.range = settings.number("range") if "range" in settings else None
        self._check()
        #: Samples of the previous run that a stream keeps, and samples that `pad` adds at each end of the sound.
        self.kept = max(self.frame - self.hop, 0) if self.stream else 0
        self.padding = self.fft // 2 if self.pad != "none" else 0
        self.length = samples + self.kept + 2 * self.padding
        if self.length < self.frame or (self.pad == "reflect" and samples <= self.padding):
            raise MegccError(f"{samples} samples are fewer than a frame of {self.frame} has")
        #: The number of frames of the sound, and of those that the setting `frames` keeps.
        self.all_frames = 1 + (self.length - self.frame) // self.hop
        self.frames = settings.integer("frames", 1, self.all_frames, self.all_frames)

    def _check(self) -> None:
        """Checks settings that depend on each other."""
        are_ordered = 0 <= self.low < self.high <= self.rate / 2
        has_logarithms = min(self.floor, self.offset) >= 0 and self.floor + self.offset >= _LEAST
        if not are_ordered or not has_logarithms or self.std < _LEAST:
            raise MegccError("'low' is less than 'high', that at most half of 'sample_rate'; 'floor' or 'offset' is at "
                             f"least {_LEAST:g}, neither negative; 'std' is positive")
        if self.fft * self.mels > MAX_WEIGHTS:
            raise MegccError(f"'fft' {self.fft} times 'mels' {self.mels} is more than {MAX_WEIGHTS}")
        if self.stream and (self.pad != "none" or self.emphasizes_sound or self.range is not None
                            or self.normalize != "none"):
            raise MegccError("'stream' goes without 'pad', 'range', 'normalize' and a 'preemphasis' of the sound, "
                             "which need all of it")
        if self.stream and self.samples % self.hop:
            raise MegccError(f"'stream': a run takes {self.samples} samples, which is no multiple of 'hop' {self.hop}")

    def model(self) -> onnx.ModelProto:
        """Returns the model of all stages."""
        graph = self.graph
        power, loudness = self._power(self._signal())
        value = self._logarithms(power)
        columns = self.mels
        if self.cepstrum:
            value, columns = self._coefficients(value, loudness)
        value = self._normalized(value)
        result = [self.frames, columns]
        if self.settings.one_of("layout", ("frames", "mels"), "frames") == "mels":
            value, result = graph.add("Transpose", [value], perm=[1, 0]), result[::-1]
        graph.add("Reshape", [value, result], "features")
        graph.input("sound", [self.samples])
        graph.output("features", result)
        return graph.model("features")

    def _signal(self) -> str:
        """Returns the sound after the samples of the previous run, with gain, preemphasis and padding: [length]."""
        graph, signal, samples, state_length = self.graph, "sound", self.samples, self.kept
        if state_length:
            graph.input("before", [state_length])
            signal = graph.add("Concat", ["before", "sound"], axis=0)
            graph.add("Slice", [signal, [samples], [samples + state_length], [0]], "after")
            graph.output("after", [state_length])
        gain = self.settings.number("gain", 1.0)
        if gain != 1.0:
            signal = graph.add("Mul", [signal, gain])
        if self.emphasizes_sound:
            signal = _emphasized(graph, signal, self.preemphasis, samples + state_length, 0)
        if self.padding:
            signal = graph.add("Pad", [signal, [self.padding, self.padding]],
                               mode="constant" if self.pad == "zeros" else "reflect")
        return signal

    def _power(self, signal: str) -> tuple[str, str]:
        """Returns the spectrum of each frame, [frames, fft / 2 + 1], as magnitudes or their squares; and the logarithm
        of each frame's energy, [frames, 1], or "" without the setting `energy`."""
        graph, fft = self.graph, self.fft
        power = self.settings.one_of("power", (2, 1), 2)
        taper = taper_of(self.settings.one_of("taper", ("hann", "hamming", "povey", "none"), "hann"), self.window,
                         self.settings.flag("periodic", True))
        loudness, hop, shape = "", self.hop, [1, self.length, 1]
        # The operator STFT cuts sound into frames itself, unless something is done to each frame before its taper. Then
        # the frames are cut first, and STFT gets them one after the other, without overlap.
        by_frames = self.is_short or self.removes_dc or self.emphasizes_frames or self.energy
        if by_frames:
            signal, loudness = self._separate_frames(signal)
            hop, shape = fft, [self.frames, fft, 1]
            if self.is_short:
                taper = np.pad(taper, (0, fft - self.window))
        around = fft - len(taper)  # a shorter taper is in the middle of the `fft` samples
        taper = np.pad(taper, (around // 2, around - around // 2)).astype(np.float32)
        spectrum = graph.add("STFT", [graph.add("Reshape", [signal, shape]), np.array(hop, np.int64), taper,
                                      np.array(fft, np.int64)], onesided=1)
        value = graph.add("ReduceSum", [graph.add("Mul", [spectrum, spectrum]), [3]], keepdims=0)
        value = graph.add("Reshape", [value, [-1, fft // 2 + 1]])
        if power == 1:
            value = graph.add("Sqrt", [value])
        if not by_frames and self.frames < self.all_frames:
            value = graph.add("Slice", [value, [0], [self.frames], [0]])
        return value, loudness

    def _separate_frames(self, signal: str) -> tuple[str, str]:
        """Returns frames, [frames, fft], short ones followed by zeros; and the logarithms of their energies."""
        graph, frame, loudness = self.graph, self.frame, ""
        rows = _framed(graph, signal, self.length, self.frames, frame, self.hop)
        if self.removes_dc:
            rows = graph.add("Sub", [rows, graph.add("ReduceMean", [rows, [1]], keepdims=1)])
        if self.energy:
            squares = graph.add("ReduceSum", [graph.add("Mul", [rows, rows]), [1]], keepdims=1)
            loudness = graph.add("Log", [graph.add("Max", [squares, max(self.floor, _LEAST)])])
        if self.emphasizes_frames:
            rows = _emphasized(graph, rows, self.preemphasis, frame, 1)
        if frame < self.fft:
            rows = graph.add("Pad", [rows, [0, 0, 0, self.fft - frame]])
        return rows, loudness

    def _logarithms(self, value: str) -> str:
        """Returns logarithms of the mel filter bank's outputs: [frames, mels]."""
        graph = self.graph
        log = self.settings.one_of("log", tuple(_FACTORS), "natural")
        scale = self.settings.one_of("scale", ("slaney", "htk", "kaldi"), "slaney")
        area = self.settings.flag("area", scale == "slaney")
        value = graph.add("MatMul", [value, mel_weights(self.rate, self.fft, self.mels, self.low, self.high, scale,
                                                        area)])
        if self.floor:
            value = graph.add("Max", [value, self.floor])
        if self.offset:
            value = graph.add("Add", [value, self.offset])
        value = graph.add("Log", [value])
        if log != "natural":
            value = graph.add("Mul", [value, _FACTORS[log]])
        if self.range is not None:  # values further below the highest one than this are raised
            highest = graph.add("ReduceMax", [value], keepdims=1)
            value = graph.add("Max", [value, graph.add("Sub", [highest, self.range])])
        return value

    def _coefficients(self, value: str, loudness: str) -> tuple[str, int]:
        """Returns cepstral coefficients, [frames, coefficients], and their number. With `energy`, the first is the
        logarithm of the frame's energy."""
        graph, count = self.graph, self.settings.integer("coefficients", 1, self.mels)
        value = graph.add("MatMul", [value, dct(self.mels, count, self.settings.number("lifter", 0.0))])
        if self.energy:
            others = [graph.add("Slice", [value, [1], [count], [1]])] if count > 1 else []
            value = graph.add("Concat", [loudness, *others], axis=1)
        return value, count

    def _normalized(self, value: str) -> str:
        """Returns values normalized over all frames, as the setting `normalize` says: without their mean, or divided by
        their standard deviation, too. Then subtracts `mean` and divides by `std`."""
        graph = self.graph
        if self.normalize != "none":
            value = graph.add("Sub", [value, graph.add("ReduceMean", [value, [0]], keepdims=1)])
        if self.normalize == "mels":
            squares = graph.add("ReduceSum", [graph.add("Mul", [value, value]), [0]], keepdims=1)
            spread = graph.add("Sqrt", [graph.add("Mul", [squares, 1 / max(1, self.frames - 1)])])
            value = graph.add("Div", [value, graph.add("Add", [spread, _EPSILON])])
        if self.mean:
            value = graph.add("Sub", [value, self.mean])
        if self.std != 1.0:
            value = graph.add("Mul", [value, 1 / self.std])
        return value


def _emphasized(graph: Nodes, value: str, factor: float, length: int, axis: int) -> str:
    """Returns x[n] - factor * x[n - 1] along `axis`: 0 for sound, [length], in which x[-1] is 0, and 1 for frames,
    [frames, length], in which x[-1] is x[0]."""
    if length == 1:  # x[n - 1] is x[0] or 0; slices of no elements are left out
        return graph.add("Mul", [value, 1 - factor]) if axis else value
    earlier = graph.add("Slice", [value, [0], [length - 1], [axis]])
    first = graph.add("Slice", [value, [0], [1], [axis]])
    if not axis:
        first = graph.add("Mul", [first, 0.0])
    return graph.add("Sub", [value, graph.add("Mul", [graph.add("Concat", [first, earlier], axis=axis), factor])])


def _framed(graph: Nodes, signal: str, length: int, frames: int, span: int, hop: int) -> str:
    """Returns overlapping frames, [frames, span]: the signal as rows of `hop` samples, of which a frame is several."""
    rows_per_frame = ceil(span / hop)
    rows = frames - 1 + rows_per_frame
    if rows * hop > length:
        signal = graph.add("Pad", [signal, [0, rows * hop - length]])
    elif rows * hop < length:
        signal = graph.add("Slice", [signal, [0], [rows * hop], [0]])
    table = graph.add("Reshape", [signal, [rows, hop]])
    if rows_per_frame == 1:
        return table if span == hop else graph.add("Slice", [table, [0], [span], [1]])
    parts = [graph.add("Slice", [table, [offset, 0], [offset + frames, min(hop, span - offset * hop)], [0, 1]])
             for offset in range(rows_per_frame)]
    return graph.add("Concat", parts, axis=1)
