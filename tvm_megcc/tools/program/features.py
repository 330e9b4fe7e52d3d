# SPDX-License-Identifier: Apache-2.0
"""Steps that compute features of sound. A feature is a network of ONNX operators, which is compiled like others."""

from __future__ import annotations

from math import ceil, gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import MegccError
from .description import Feature, ValueType
from .nodes import Nodes
from .settings import Settings

if TYPE_CHECKING:
    import onnx

_LOG_MEL = ("preset", "sample_rate", "fft", "window", "hop", "taper", "periodic", "frame", "gain", "dc", "preemphasis",
            "preemphasis_of", "pad", "frames", "power", "mels", "low", "high", "scale", "area", "log", "floor",
            "offset", "range", "normalize", "mean", "std", "layout", "stream")
#: The keys of each function besides input and output.
SETTINGS: dict[str, tuple[str, ...]] = {
    "log_mel": _LOG_MEL, "mfcc": (*_LOG_MEL, "coefficients", "lifter", "energy"),
    "resample": ("sample_rate", "to", "stream")}
#: Settings where a step gives none; those of `mfcc` go over those of its preset.
PRESETS: dict[str, dict[str, Any]] = {
    "kaldi": {"sample_rate": 16000, "fft": 512, "window": 400, "hop": 160, "taper": "povey", "periodic": False,
              "frame": "window", "gain": 32768.0, "dc": "remove", "preemphasis": 0.97, "preemphasis_of": "frames",
              "mels": 80, "low": 20.0, "scale": "kaldi", "floor": 2.0**-23},
    "whisper": {"sample_rate": 16000, "fft": 400, "hop": 160, "pad": "reflect", "mels": 80, "log": "log10",
                "range": 8.0, "mean": -4.0, "std": 4.0, "layout": "mels"},
    "nemo": {"sample_rate": 16000, "fft": 512, "window": 400, "hop": 160, "periodic": False, "preemphasis": 0.97,
             "pad": "zeros", "mels": 80, "offset": 2.0**-24, "normalize": "mels", "layout": "mels"},
    "openwakeword": {"sample_rate": 16000, "fft": 512, "window": 400, "hop": 160, "mels": 32, "low": 60.0,
                     "high": 3800.0, "log": "decibel", "range": 80.0, "mean": -20.0, "std": 10.0}}
_OF_MFCC: dict[str, dict[str, Any]] = {"kaldi": {"mels": 23, "coefficients": 13, "lifter": 22.0, "energy": True}}
_FACTORS = {"natural": 1.0, "log10": 1 / np.log(10), "decibel": 10 / np.log(10)}
_MOST = 1 << 16
_MOST_RATE = 1 << 20
#: The most weights of triangles, fft * mels, and of a filter that resamples.
_MOST_WEIGHTS = 1 << 25


def model(step: Feature, given: ValueType) -> onnx.ModelProto:
    """Returns a feature as a model of ONNX with the input `sound` and the output `features`, float32. One that streams
    has the state `before`, whose next value is `after` (`states`).

    log_mel: sound of [samples] becomes [frames, mels]. Each frame of `window` samples is multiplied by the taper and
    stands in the middle of `fft` samples; magnitudes, or with `power` 2 their squares, are summed over triangles in the
    mel scale, are at least `floor`, and become logarithms. Triangles of scale "slaney" have the same area, as
    librosa has them; those of "htk" have the height 1, as torchaudio has them; those of "kaldi" are linear in mel.

    mfcc: the first coefficients of the orthonormal DCT-II of a frame's log_mel: [frames, coefficients].

    resample: sound of another sample rate, by a polyphase filter, of ceil(samples * to / sample_rate) samples.

    Raises:
        MegccError: for what is no sound, and a setting that is missing, of another kind, or impossible.
    """
    settings = Settings(step, SETTINGS)
    if given.dtype != "float32" or len(given.shape) != 1:
        raise MegccError(f"it takes sound, float32[samples], not {given}")
    if step.function == "resample":
        return _resample(settings, given.shape[0])
    if "preset" in settings:
        preset = settings.one_of("preset", tuple(PRESETS))
        settings = settings.over(PRESETS[preset] | (_OF_MFCC.get(preset, {}) if step.function == "mfcc" else {}))
    return _log_mel(settings, step.function == "mfcc", given.shape[0])


def states(model: onnx.ModelProto) -> dict[str, str]:
    """Returns what a feature keeps between runs: output -> input of its model."""
    return {"after": "before"} if any(value.name == "before" for value in model.graph.input) else {}


def _log_mel(found: Settings, cepstrum: bool, samples: int) -> onnx.ModelProto:
    rate, fft, mels = (found.integer(key, 1, most) for key, most in (
        ("sample_rate", _MOST_RATE), ("fft", _MOST), ("mels", _MOST)))
    window, hop = found.integer("window", 1, fft, fft), found.integer("hop", 1, _MOST, max(1, fft // 2))
    power, log = found.one_of("power", (2, 1), 2), found.one_of("log", tuple(_FACTORS), "natural")
    pad = found.one_of("pad", ("none", "zeros", "reflect"), "none")
    low, high, offset = found.number("low", 0.0), found.number("high", rate / 2), found.number("offset", 0.0)
    floor, std = found.number("floor", 0.0 if offset else 1e-10), found.number("std", 1.0)
    if not 0 <= low < high <= rate / 2 or not floor + offset >= 1e-30 or min(floor, offset) < 0 or std < 1e-30:
        raise MegccError("'low' is less than 'high', that at most half of 'sample_rate'; 'floor' or 'offset' is at "
                         "least 1e-30, neither negative; 'std' is positive")
    if fft * mels > _MOST_WEIGHTS:
        raise MegccError(f"'fft' {fft} times 'mels' {mels} is more than {_MOST_WEIGHTS}")
    dc, emphasis = found.one_of("dc", ("keep", "remove"), "keep"), found.number("preemphasis", 0.0)
    of_frames = found.one_of("preemphasis_of", ("sound", "frames"), "sound") == "frames"
    short = found.one_of("frame", ("fft", "window"), "fft") == "window"
    energy = cepstrum and found.flag("energy")
    stream, span = found.flag("stream"), window if short else fft
    normalize = found.one_of("normalize", ("none", "mels", "mean"), "none")
    lowest = found.number("range") if "range" in found else None
    graph, signal = Nodes(), "sound"
    if stream:
        if pad != "none" or (emphasis and not of_frames) or lowest is not None or normalize != "none":
            raise MegccError("'stream' goes without 'pad', 'range', 'normalize' and a 'preemphasis' of the sound, "
                             "which need all of it")
        if samples % hop:
            raise MegccError(f"'stream': a run takes {samples} samples, which is no multiple of 'hop' {hop}")
        kept = max(span - hop, 0)
        if kept:
            graph.input("before", [kept])
            signal = graph.add("Concat", ["before", "sound"], axis=0)
            graph.add("Slice", [signal, [samples], [samples + kept], [0]], "after")
            graph.output("after", [kept])
    else:
        kept = 0
    length, beside = samples + kept, fft // 2 if pad != "none" else 0
    if length + 2 * beside < span or (pad == "reflect" and samples <= beside):
        raise MegccError(f"{samples} samples are fewer than a frame of {span} has")
    every = 1 + (length + 2 * beside - span) // hop
    frames = found.integer("frames", 1, every, every)
    gain = found.number("gain", 1.0)
    if gain != 1.0:
        signal = graph.add("Mul", [signal, gain])
    if emphasis and not of_frames:
        signal = _emphasized(graph, signal, emphasis, length, 0)
    if beside:
        signal = graph.add("Pad", [signal, [beside, beside]], mode="constant" if pad == "zeros" else "reflect")
        length += 2 * beside
    kind, periodic = found.one_of("taper", ("hann", "hamming", "povey", "none"), "hann"), found.flag("periodic", True)
    taper = taper_of(kind, window, periodic)
    loudness = ""
    if short or dc == "remove" or (emphasis and of_frames) or energy:
        rows = _framed(graph, signal, length, frames, span, hop)
        if dc == "remove":
            rows = graph.add("Sub", [rows, graph.add("ReduceMean", [rows, [1]], keepdims=1)])
        if energy:
            squares = graph.add("ReduceSum", [graph.add("Mul", [rows, rows]), [1]], keepdims=1)
            loudness = graph.add("Log", [graph.add("Max", [squares, max(floor, 1e-30)])])
        if emphasis and of_frames:
            rows = _emphasized(graph, rows, emphasis, span, 1)
        if span < fft:
            rows = graph.add("Pad", [rows, [0, 0, 0, fft - span]])
            taper = np.pad(taper, (0, fft - window))
        signal, hop, shape = rows, fft, [frames, fft, 1]
    else:
        shape = [1, length, 1]
    around = fft - len(taper)
    taper = np.pad(taper, (around // 2, around - around // 2)).astype(np.float32)
    spectrum = graph.add("STFT", [graph.add("Reshape", [signal, shape]), np.array(hop, np.int64), taper,
                                  np.array(fft, np.int64)], onesided=1)
    value = graph.add("ReduceSum", [graph.add("Mul", [spectrum, spectrum]), [3]], keepdims=0)
    value = graph.add("Reshape", [value, [-1, fft // 2 + 1]])
    if power == 1:
        value = graph.add("Sqrt", [value])
    if shape[0] == 1 and frames < every:
        value = graph.add("Slice", [value, [0], [frames], [0]])
    scale = found.one_of("scale", ("slaney", "htk", "kaldi"), "slaney")
    area = found.flag("area", scale == "slaney")
    value = graph.add("MatMul", [value, mel_weights(rate, fft, mels, low, high, scale, area)])
    if floor:
        value = graph.add("Max", [value, floor])
    if offset:
        value = graph.add("Add", [value, offset])
    value = graph.add("Log", [value])
    if log != "natural":
        value = graph.add("Mul", [value, _FACTORS[log]])
    if lowest is not None:
        value = graph.add("Max", [value, graph.add("Sub", [graph.add("ReduceMax", [value], keepdims=1), lowest])])
    columns = mels
    if cepstrum:
        columns = found.integer("coefficients", 1, mels)
        value = graph.add("MatMul", [value, _dct(mels, columns, found.number("lifter", 0.0))])
        if energy:
            rest = [graph.add("Slice", [value, [1], [columns], [1]])] if columns > 1 else []
            value = graph.add("Concat", [loudness, *rest], axis=1)
    if normalize != "none":
        value = graph.add("Sub", [value, graph.add("ReduceMean", [value, [0]], keepdims=1)])
        if normalize == "mels":
            squares = graph.add("ReduceSum", [graph.add("Mul", [value, value]), [0]], keepdims=1)
            spread = graph.add("Sqrt", [graph.add("Mul", [squares, 1 / max(1, frames - 1)])])
            value = graph.add("Div", [value, graph.add("Add", [spread, 1e-5])])
    if (mean := found.number("mean", 0.0)):
        value = graph.add("Sub", [value, mean])
    if std != 1.0:
        value = graph.add("Mul", [value, 1 / std])
    result = [frames, columns]
    if found.one_of("layout", ("frames", "mels"), "frames") == "mels":
        value, result = graph.add("Transpose", [value], perm=[1, 0]), result[::-1]
    graph.add("Reshape", [value, result], "features")
    graph.input("sound", [samples])
    graph.output("features", result)
    return graph.model("features")


def _emphasized(graph: Nodes, value: str, factor: float, length: int, axis: int) -> str:
    """Returns x[n] - factor * x[n - 1]. The first sample of frames has itself before it, that of sound nothing."""
    if length == 1:
        return graph.add("Mul", [value, 1 - factor]) if axis else value
    earlier = graph.add("Slice", [value, [0], [length - 1], [axis]])
    first = graph.add("Slice", [value, [0], [1], [axis]])
    if not axis:
        first = graph.add("Mul", [first, 0.0])
    return graph.add("Sub", [value, graph.add("Mul", [graph.add("Concat", [first, earlier], axis=axis), factor])])


def _framed(graph: Nodes, signal: str, length: int, frames: int, span: int, hop: int) -> str:
    """Returns overlapping frames of `span` samples, [frames, span]: rows of `hop` samples, several in a row."""
    beside = ceil(span / hop)
    rows = frames - 1 + beside
    if rows * hop > length:
        signal = graph.add("Pad", [signal, [0, rows * hop - length]])
    elif rows * hop < length:
        signal = graph.add("Slice", [signal, [0], [rows * hop], [0]])
    table = graph.add("Reshape", [signal, [rows, hop]])
    if beside == 1:
        return table if span == hop else graph.add("Slice", [table, [0], [span], [1]])
    parts = [graph.add("Slice", [table, [at, 0], [at + frames, min(hop, span - at * hop)], [0, 1]])
             for at in range(beside)]
    return graph.add("Concat", parts, axis=1)


def _resample(found: Settings, samples: int) -> onnx.ModelProto:
    """A polyphase filter as a convolution: a channel for each of the places that a sample of the result can have
    between those of the sound.

    Source: the low-pass filter of scipy.signal.resample_poly, a sinc of 20 zero crossings with Kaiser's window, 5.
    """
    before, after = found.integer("sample_rate", 1, _MOST_RATE), found.integer("to", 1, _MOST_RATE)
    shared = gcd(before, after)
    up, down = after // shared, before // shared
    half = 10 * max(up, down)
    first, last = -(half // up), ((up - 1) * down + half) // up
    taps = last - first + 1
    if up * taps > _MOST_WEIGHTS:
        raise MegccError(f"from 'sample_rate' {before} 'to' {after}, a filter has {up * taps} weights, too many")
    response = up * np.sinc(np.arange(-half, half + 1) / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
    response *= up / response.sum()
    at = np.arange(up)[:, None] * down + half - np.arange(first, last + 1) * up
    weights = np.where((at >= 0) & (at <= 2 * half), response[np.clip(at, 0, 2 * half)], 0).astype(np.float32)
    graph, signal = Nodes(), "sound"
    if found.flag("stream"):
        if samples % down:
            raise MegccError(f"'stream': a run takes {samples} samples, which is no multiple of {down}")
        kept, turns, result = taps - down, samples // down, samples // down * up
        graph.input("before", [kept])
        signal = graph.add("Concat", ["before", "sound"], axis=0)
        graph.add("Slice", [signal, [samples], [samples + kept], [0]], "after")
        graph.output("after", [kept])
        length = samples + kept
    else:
        result = ceil(samples * up / down)
        turns = ceil(result / up)
        length = (turns - 1) * down + taps
        behind = length + first - samples
        signal = graph.add("Pad", [signal, [-first, behind]])
    row = graph.add("Reshape", [signal, [1, 1, length]])
    phases = graph.add("Conv", [row, weights[:, None, :]], strides=[down])
    line = graph.add("Reshape", [graph.add("Transpose", [phases], perm=[0, 2, 1]), [turns * up]])
    graph.add("Slice", [line, [0], [result], [0]], "features")
    graph.input("sound", [samples])
    graph.output("features", [result])
    return graph.model("resample")


def mel_weights(sample_rate: int, fft: int, mels: int, low: float, high: float, scale: str,
                area: bool) -> npt.NDArray[np.float32]:
    """Returns the weights of triangles, [fft / 2 + 1][mels], whose corners are equally far apart in a mel scale.

    Source: the formulas of Slaney's Auditory Toolbox ("slaney") or of HTK ("htk", "kaldi"). Triangles of "kaldi" are
    linear in mel, others in Hz. They have the height 1, or with `area` equal areas.
    """
    if scale == "slaney":
        ends = np.array([low, high])
        first, last = np.where(ends < 1000, ends * 3 / 200, 15 + 27 * np.log(np.maximum(ends, 1) / 1000) / np.log(6.4))
        at = np.linspace(float(first), float(last), mels + 2)
        points = np.where(at < 15, at * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (at - 15)))
    else:
        first, last = 2595 * np.log10(1 + np.array([low, high]) / 700)
        at = np.linspace(float(first), float(last), mels + 2)
        points = 700 * (10 ** (at / 2595) - 1)
    bins = np.arange(fft // 2 + 1)[:, None] * (sample_rate / fft)
    corners = points
    if scale == "kaldi":
        corners, bins = at, 2595 * np.log10(1 + bins / 700)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    weights = np.maximum(0, np.minimum(rising, falling)) * (2 / (points[2:] - points[:-2]) if area else 1)
    return np.ascontiguousarray(weights, np.float32)


def taper_of(kind: str, window: int, periodic: bool) -> npt.NDArray[np.float64]:
    """Returns the taper of `window` samples. povey: Hann's to the power of 0.85, as Kaldi has it."""
    angles = 2 * np.pi * np.arange(window) / max(1, window if periodic else window - 1)
    if kind == "hamming":
        return 0.54 - 0.46 * np.cos(angles)
    hann = 0.5 - 0.5 * np.cos(angles)
    return np.ones(window) if kind == "none" else np.power(hann, 0.85) if kind == "povey" else hann


def _dct(mels: int, coefficients: int, lifter: float) -> npt.NDArray[np.float32]:
    """Returns the orthonormal DCT-II, [mels][coefficients]; with a lifter Q, times 1 + Q / 2 * sin(pi * i / Q)."""
    orders = np.arange(coefficients)
    weights = np.cos(np.pi / mels * (np.arange(mels)[:, None] + 0.5) * orders) * np.sqrt(2 / mels)
    weights[:, 0] = np.sqrt(1 / mels)
    if lifter:
        weights *= 1 + lifter / 2 * np.sin(np.pi * orders / lifter)
    return np.ascontiguousarray(weights, np.float32)
