# SPDX-License-Identifier: Apache-2.0
"""Steps that compute features of sound. A feature is a network of ONNX operators, which is compiled like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import MegccError
from .log_mel import LogMel
from .resample import resample
from .settings import Settings
from .steps import Feature, ValueType

if TYPE_CHECKING:
    import onnx

_LOG_MEL = ("preset", "sample_rate", "fft", "window", "hop", "taper", "periodic", "frame", "gain", "dc", "preemphasis",
            "preemphasis_of", "pad", "frames", "power", "mels", "low", "high", "scale", "area", "log", "floor",
            "offset", "range", "normalize", "mean", "std", "layout", "stream")
#: The keys of each function besides input and output; docs/programs.md says what each means.
SETTINGS: dict[str, tuple[str, ...]] = {
    "log_mel": _LOG_MEL, "mfcc": (*_LOG_MEL, "coefficients", "lifter", "energy"),
    "resample": ("sample_rate", "to", "stream")}
#: Settings of a preset, for keys that a step does not give. Sources: the defaults of Kaldi's compute-fbank-feats
#: (`floor` is the epsilon of float32); whisper/audio.py of OpenAI's Whisper; AudioToMelSpectrogramPreprocessor of NeMo;
#: the model melspectrogram.onnx of openWakeWord and the x / 10 + 2 after it in openwakeword/utils.py.
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
#: The settings of a preset that differ for `mfcc`: the defaults of Kaldi's compute-mfcc-feats.
_PRESETS_OF_MFCC: dict[str, dict[str, Any]] = {
    "kaldi": {"mels": 23, "coefficients": 13, "lifter": 22.0, "energy": True}}


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
        raise MegccError(f"it requires sound, float32[samples], not {given}")
    if step.function == "resample":
        return resample(settings, given.shape[0])
    if "preset" in settings:
        preset = settings.one_of("preset", tuple(PRESETS))
        of_mfcc = _PRESETS_OF_MFCC.get(preset, {}) if step.function == "mfcc" else {}
        settings = settings.with_defaults(PRESETS[preset] | of_mfcc)
    return LogMel(settings, given.shape[0], step.function == "mfcc").model()


def sample_rate(step: Feature) -> int:
    """Returns the samples a second of the sound that a feature takes."""
    preset = step.settings.get("preset")
    return int({**(PRESETS[preset] if preset else {}), **step.settings}["sample_rate"])


def states(model: onnx.ModelProto) -> dict[str, str]:
    """Returns what a feature keeps between runs: output -> input of its model."""
    return {"after": "before"} if any(value.name == "before" for value in model.graph.input) else {}
