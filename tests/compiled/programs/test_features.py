# SPDX-License-Identifier: Apache-2.0
"""Features of sound, compiled, beside the same formulas in numpy with float64, and beside other libraries where these
are installed."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Feature

pytestmark = pytest.mark.slow
#: As librosa.feature.mfcc has them.
LIBROSA = {"sample_rate": 16000, "fft": 2048, "hop": 512, "mels": 128, "pad": "zeros", "log": "decibel", "range": 80,
           "coefficients": 20}
FEATURES = {
    "fbank": Feature("log_mel", "x", "fbank", {"preset": "kaldi"}),
    "cepstra": Feature("mfcc", "x", "cepstra", {"preset": "kaldi"}),
    "whisper": Feature("log_mel", "x", "whisper", {"preset": "whisper", "frames": 100}),
    "nemo": Feature("log_mel", "x", "nemo", {"preset": "nemo", "frames": 100}),
    "wake": Feature("log_mel", "x", "wake", {"preset": "openwakeword"}),
    "mfcc": Feature("mfcc", "x", "mfcc", LIBROSA),
    "half": Feature("resample", "x", "half", {"sample_rate": 16000, "to": 8000}),
    "finer": Feature("resample", "x", "finer", {"sample_rate": 16000, "to": 22050}),
    "coarser": Feature("resample", "x", "coarser", {"sample_rate": 44100, "to": 16000})}


def sound(samples: int = 16000) -> np.ndarray:
    """A tone that rises, noise, and a constant."""
    times = np.arange(samples) / 16000
    tone = 0.3 * np.sin(2 * np.pi * (200 + 300 * times) * times) * (1 + 0.5 * np.sin(6 * times))
    return (tone + 0.05 * np.random.default_rng(0).standard_normal(samples) + 0.01).astype(np.float32)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    program = Program("sounds", {"x": "float32[16000]"}, list(FEATURES.values()), list(FEATURES))
    with tvm_megcc.load(program.compile(tmp_path_factory.mktemp("features") / "sounds")) as session:
        return session.run({"x": sound()})


def triangles(fft: int, mels: int, low: float, high: float, scale: str) -> np.ndarray:
    """Weights of each bin of 16 kHz, one after the other."""
    def mel(hertz: float) -> float:
        if scale == "slaney":
            return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)
        return 1127 * np.log(1 + hertz / 700)

    def hertz(mels: float) -> float:
        return 200 * mels / 3 if mels < 15 else 1000 * 6.4 ** ((mels - 15) / 27)

    weights, step = np.zeros((fft // 2 + 1, mels)), (mel(high) - mel(low)) / (mels + 1)
    for band in range(mels):
        corners = [mel(low) + (band + at) * step for at in range(3)]
        if scale == "slaney":
            corners = [hertz(each) for each in corners]
        left, middle, right = corners
        for bin_ in range(fft // 2 + 1):
            at = bin_ * 16000 / fft
            at = mel(at) if scale == "kaldi" else at
            if left < at < right:
                weights[bin_, band] = (at - left) / (middle - left) if at <= middle else (right - at) / (right - middle)
        if scale == "slaney":
            weights[:, band] *= 2 / (right - left)
    return weights


def frames_of(x: np.ndarray, span: int, hop: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, span)[::hop]


def hann(window: int, symmetric: bool) -> np.ndarray:
    return np.hanning(window) if symmetric else np.hanning(window + 1)[:-1]


def powers(frames: np.ndarray, taper: np.ndarray) -> np.ndarray:
    return np.abs(np.fft.rfft(frames * taper)) ** 2


def dct(values: np.ndarray, coefficients: int) -> np.ndarray:
    fft = pytest.importorskip("scipy.fft")
    return fft.dct(values, type=2, norm="ortho", axis=1)[:, :coefficients]


def kaldi(mels: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns log-mel features and the logarithm of each frame's energy."""
    frames = frames_of(sound().astype(np.float64) * 32768, 400, 160)
    frames = frames - frames.mean(1, keepdims=True)
    energy = np.log((frames**2).sum(1))
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], 1)
    power = np.abs(np.fft.rfft(frames * hann(400, True) ** 0.85, 512)) ** 2
    return np.log(np.maximum(power @ triangles(512, mels, 20, 8000, "kaldi"), 2.0**-23)), energy


def decibel(power: np.ndarray, below: float) -> np.ndarray:
    values = 10 * np.log10(np.maximum(power, 1e-10))
    return np.maximum(values, values.max() - below)


def reference(name: str) -> np.ndarray:
    x = sound().astype(np.float64)
    if name == "fbank":
        return kaldi(80)[0]
    if name == "cepstra":
        values, energy = kaldi(23)
        values = dct(values, 13) * (1 + 11 * np.sin(np.pi * np.arange(13) / 22))
        values[:, 0] = energy
        return values
    if name == "whisper":
        power = powers(frames_of(np.pad(x, 200, mode="reflect"), 400, 160), hann(400, False))[:-1]
        values = np.log10(np.maximum(power @ triangles(400, 80, 0, 8000, "slaney"), 1e-10))
        return (np.maximum(values, values.max() - 8).T + 4) / 4
    if name == "nemo":
        x = np.concatenate([x[:1], x[1:] - 0.97 * x[:-1]])
        frames = frames_of(np.pad(x, 256), 512, 160)[:100]
        power = powers(frames, np.pad(hann(400, True), 56))
        values = np.log(power @ triangles(512, 80, 0, 8000, "slaney") + 2.0**-24)
        return ((values - values.mean(0)) / (values.std(0, ddof=1) + 1e-5)).T
    if name == "wake":
        power = powers(frames_of(x, 512, 160), np.pad(hann(400, False), 56))
        return decibel(power @ triangles(512, 32, 60, 3800, "slaney"), 80) / 10 + 2
    if name == "mfcc":
        power = powers(frames_of(np.pad(x, 1024), 2048, 512), hann(2048, False))
        return dct(decibel(power @ triangles(2048, 128, 0, 8000, "slaney"), 80), 20)
    signal = pytest.importorskip("scipy.signal")
    before, after = (FEATURES[name].settings[key] for key in ("sample_rate", "to"))
    return signal.resample_poly(x, after, before)


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_those_of_float64(found, name):
    """The bound is 1e-5 of the largest value."""
    expected = reference(name)
    assert found[name].shape == expected.shape
    np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


def test_features_are_those_of_kaldi(found):
    fbank = pytest.importorskip("kaldi_native_fbank")
    for name, options, mels in (("fbank", fbank.FbankOptions(), 80), ("cepstra", fbank.MfccOptions(), 23)):
        options.frame_opts.dither, options.mel_opts.num_bins = 0, mels
        kind = fbank.OnlineFbank if name == "fbank" else fbank.OnlineMfcc
        other = kind(options)
        other.accept_waveform(16000, (sound() * 32768).tolist())
        other.input_finished()
        expected = np.stack([other.get_frame(at) for at in range(other.num_frames_ready)])
        # it computes in float32 itself
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_features_are_those_of_librosa(found):
    librosa = pytest.importorskip("librosa")
    x = sound().astype(np.float64)
    expected = librosa.feature.mfcc(y=x, sr=16000, n_mfcc=20, n_fft=2048, hop_length=512, n_mels=128).T
    np.testing.assert_allclose(found["mfcc"], expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    power = librosa.feature.melspectrogram(y=x, sr=16000, n_fft=400, hop_length=160, n_mels=80, pad_mode="reflect")
    values = np.log10(np.maximum(power[:, :-1], 1e-10))
    np.testing.assert_allclose(found["whisper"], (np.maximum(values, values.max() - 8) + 4) / 4, rtol=0, atol=1e-5)


def test_streams_are_the_whole_bit_for_bit(tmp_path):
    """Blocks of four frames give what the whole sound gives with zeros before it."""
    blocks, size = 6, 640
    settings = {"fbank": ("log_mel", {"preset": "kaldi"}, 240),
                "cepstra": ("mfcc", {**LIBROSA, "pad": "none", "fft": 512, "hop": 160, "range": None}, 352),
                "apart": ("log_mel", {"sample_rate": 16000, "fft": 128, "hop": 160, "mels": 20}, 0),
                "faster": ("resample", {"sample_rate": 16000, "to": 24000}, 10),
                "slower": ("resample", {"sample_rate": 16000, "to": 8000}, 19)}
    x, results = sound(blocks * size), {}
    for way, samples in (("whole", blocks * size), ("stream", size)):
        steps, inputs = [], {}
        for name, (function, values, before) in settings.items():
            own = {key: value for key, value in values.items() if value is not None}
            stream = way == "stream"
            taken = "x"
            if not stream:
                taken = f"longer_{name}"
                inputs[taken] = f"float32[{samples + before}]"
            else:
                inputs["x"] = f"float32[{samples}]"
            steps.append(Feature(function, taken, name, own | ({"stream": True} if stream else {})))
        with tvm_megcc.load(Program(way, inputs, steps, list(settings)).compile(tmp_path / way)) as session:
            if way == "whole":
                results[way] = session.run({f"longer_{name}": np.concatenate([np.zeros(before, np.float32), x])
                                            for name, (_, _, before) in settings.items()})
            else:
                runs = [session.run({"x": block}) for block in x.reshape(blocks, size)]
                session.reset()
                again = [session.run({"x": block}) for block in x.reshape(blocks, size)]
                results[way] = {name: np.concatenate([run[name] for run in runs]) for name in settings}
                for name in settings:
                    np.testing.assert_array_equal(np.concatenate([run[name] for run in again]), results[way][name])
    for name in settings:
        length = len(results["stream"][name])
        assert 0 <= len(results["whole"][name]) - length < 30, name
        np.testing.assert_array_equal(results["stream"][name], results["whole"][name][:length], err_msg=name)
