# SPDX-License-Identifier: Apache-2.0
"""Steps that compute features of sound. A feature is a network of ONNX operators, which is compiled like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import MegccError
from .description import Feature, ValueType
from .settings import Settings

if TYPE_CHECKING:
    import onnx

#: The keys of each function besides input and output.
SETTINGS: dict[str, tuple[str, ...]] = {
    "log_mel": ("sample_rate", "fft", "window", "hop", "taper", "mels", "low", "high", "scale", "power", "pad", "log",
                "floor")}
_FACTORS = {"natural": 1.0, "log10": 1 / np.log(10), "decibel": 10 / np.log(10)}
_MOST = 1 << 16
_MOST_RATE = 1 << 18
#: The most weights of triangles, fft * mels.
_MOST_WEIGHTS = 1 << 25


def model(step: Feature, given: ValueType) -> onnx.ModelProto:
    """Returns a feature as a model of ONNX with the input `sound` and the output `features`, float32.

    log_mel: sound of [samples] becomes [frames, mels]. Each frame of `window` samples is multiplied by the taper and
    stands in the middle of `fft` samples; magnitudes, or with `power` 2 their squares, are summed over triangles in the
    mel scale, are at least `floor`, and become logarithms. Triangles of scale "slaney" have the same area, as
    librosa has them; those of "htk" have the height 1, as torchaudio has them.

    Raises:
        MegccError: for what is no sound, and a setting that is missing, of another kind, or impossible.
    """
    from onnx import TensorProto, helper, numpy_helper

    found = Settings(step, SETTINGS)
    if given.dtype != "float32" or len(given.shape) != 1:
        raise MegccError(f"it takes sound, float32[samples], not {given}")
    rate, fft, mels = (found.integer(key, 1, most) for key, most in (
        ("sample_rate", _MOST_RATE), ("fft", _MOST), ("mels", _MOST)))
    window, hop = found.integer("window", 1, fft, fft), found.integer("hop", 1, _MOST, max(1, fft // 2))
    power, scale = found.one_of("power", (2, 1), 2), found.one_of("scale", ("slaney", "htk"), "slaney")
    pad, log = found.one_of("pad", ("none", "zeros", "reflect"), "none"), found.one_of("log", (*_FACTORS,), "natural")
    low, high, floor = found.number("low", 0.0), found.number("high", rate / 2), found.number("floor", 1e-10)
    if not 0 <= low < high <= rate / 2 or floor < 1e-30:
        raise MegccError("'low' is less than 'high', that at most half of 'sample_rate', and 'floor' at least 1e-30")
    if fft * mels > _MOST_WEIGHTS:
        raise MegccError(f"'fft' {fft} times 'mels' {mels} is more than {_MOST_WEIGHTS}")
    (samples,) = given.shape
    beside = fft // 2 if pad != "none" else 0
    if samples + 2 * beside < fft or (pad == "reflect" and samples <= beside):
        raise MegccError(f"{samples} samples are fewer than a frame of {fft} has")
    frames = 1 + (samples + 2 * beside - fft) // hop
    taper = _taper(found.one_of("taper", ("hann", "hamming", "none"), "hann"), window, fft)
    constants: dict[str, npt.NDArray[Any]] = {
        "row": np.array([1, samples, 1], np.int64), "pads": np.array([0, beside, 0] * 2, np.int64),
        "hop": np.array(hop, np.int64), "taper": taper,
        "fft": np.array(fft, np.int64), "last": np.array([-1], np.int64), "floor": np.array(floor, np.float32),
        "mel": mel_weights(rate, fft, mels, low, high, scale), "factor": np.array(_FACTORS[log], np.float32),
        "shape": np.array([frames, mels], np.int64)}
    make = helper.make_node
    mode = {"zeros": "constant", "reflect": "reflect"}.get(pad)
    nodes = [
        make("Reshape", ["sound", "row"], ["signal"]),
        *([make("Pad", ["signal", "pads"], ["padded"], mode=mode)] if mode else []),
        make("STFT", ["padded" if mode else "signal", "hop", "taper", "fft"], ["spectrum"], onesided=1),
        make("Mul", ["spectrum", "spectrum"], ["squares"]),
        make("ReduceSum", ["squares", "last"], ["energy"], keepdims=0),
        *([make("Sqrt", ["energy"], ["magnitude"])] if power == 1 else []),
        make("MatMul", ["energy" if power == 2 else "magnitude", "mel"], ["sums"]),
        make("Max", ["sums", "floor"], ["kept"]), make("Log", ["kept"], ["natural"]),
        *([make("Mul", ["natural", "factor"], ["scaled"])] if log != "natural" else []),
        make("Reshape", ["scaled" if log != "natural" else "natural", "shape"], ["features"])]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "log_mel", [helper.make_tensor_value_info("sound", TensorProto.FLOAT, [samples])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [frames, mels])],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mel_weights(sample_rate: int, fft: int, mels: int, low: float, high: float, scale: str) -> npt.NDArray[np.float32]:
    """Returns the weights of triangles, [fft / 2 + 1][mels], whose corners are equally far apart in a mel scale.

    Source: the formulas of Slaney's Auditory Toolbox, with triangles of equal area, or of HTK, with height 1.
    """
    if scale == "htk":
        first, last = 2595 * np.log10(1 + np.array([low, high]) / 700)
        points = 700 * (10 ** (np.linspace(float(first), float(last), mels + 2) / 2595) - 1)
    else:
        ends = np.array([low, high])
        first, last = np.where(ends < 1000, ends * 3 / 200, 15 + 27 * np.log(np.maximum(ends, 1) / 1000) / np.log(6.4))
        at = np.linspace(float(first), float(last), mels + 2)
        points = np.where(at < 15, at * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (at - 15)))
    bins = np.arange(fft // 2 + 1)[:, None] * (sample_rate / fft)
    left, middle, right = points[:-2], points[1:-1], points[2:]
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    weights = np.maximum(0, np.minimum(rising, falling)) * (2 / (right - left) if scale == "slaney" else 1)
    return np.ascontiguousarray(weights, np.float32)


def _taper(kind: str, window: int, fft: int) -> npt.NDArray[np.float32]:
    """Returns the periodic taper of `window` samples in the middle of `fft`."""
    angles = 2 * np.pi * np.arange(window) / window
    values = {"hann": 0.5 - 0.5 * np.cos(angles), "hamming": 0.54 - 0.46 * np.cos(angles), "none": np.ones(window)}
    before = (fft - window) // 2
    return np.pad(values[kind], (before, fft - window - before)).astype(np.float32)
