# SPDX-License-Identifier: Apache-2.0
"""Sounds and pictures that files give to programs: what is read, what is refused, hostile files."""

from __future__ import annotations

import random
import wave
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.errors import MegccError
from tvm_megcc.runtime.session import Port
from tvm_megcc.tools.program import features, media
from tvm_megcc.tools.program.steps import Feature

SOUND, PICTURE = Port("sound", "float32", (1, 8)), Port("frame", "uint8", (4, 6, 3))
PORTS = (SOUND, PICTURE, Port("grey", "uint8", (4, 6, 1)), Port("ids", "int64", (3,)), Port("table", "float32", (2, 3)))


def wav(path: Path, numbers: np.ndarray, width: int, rate: int = 16000) -> Path:
    """numbers: integers of `width` bytes, [samples, channels], as a signed number each."""
    data = (numbers + (128 if width == 1 else 0)).astype("<i4").reshape(-1, 1).view(np.uint8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(numbers.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width(width: int, channels: int, tmp_path):
    ends = (-2 ** (8 * width - 1), 2 ** (8 * width - 1) - 1)
    numbers = np.random.default_rng(width).integers(*ends, (10, channels), endpoint=True)
    numbers[0], numbers[1] = ends
    samples, rate = media.sound(wav(tmp_path / "a.wav", numbers, width))
    assert rate == 16000 and samples.dtype == np.float32
    np.testing.assert_allclose(samples, (numbers / -ends[0]).mean(1), atol=1e-6)


def test_another_sample_rate_is_refused(tmp_path):
    path = wav(tmp_path / "a.wav", np.zeros((5, 1), int), 2, 44100)
    assert media.sound(path, 44100)[1] == 44100
    with pytest.raises(MegccError, match=r"44100 samples a second, but the program requires 16000: .*-ar 16000"):
        media.sound(path, 16000)


def test_files_that_are_no_sound(tmp_path):
    good = wav(tmp_path / "a.wav", np.arange(40).reshape(20, 2), 2).read_bytes()
    (tmp_path / "b.wav").write_bytes(b"RIFF")
    with pytest.raises(MegccError, match="is no WAV file of PCM samples: it ends early"):
        media.sound(tmp_path / "b.wav")
    with pytest.raises(MegccError, match="cannot be read: No such file"):
        media.sound(tmp_path / "c.wav")
    with pytest.raises(MegccError, match="has 0 samples"):
        media.sound(wav(tmp_path / "d.wav", np.zeros((0, 1), int), 2))
    (tmp_path / "e.wav").write_bytes(good[:24] + bytes(4) + good[28:])
    with pytest.raises(MegccError, match="has 0 samples a second"):
        media.sound(tmp_path / "e.wav")
    draw = random.Random(1)
    for _ in range(500):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice((0, 1, 127, 128, 255))
        (tmp_path / "m.wav").write_bytes(data[:draw.choice((len(data), draw.randrange(len(data))))])
        try:
            samples, rate = media.sound(tmp_path / "m.wav")
        except MegccError:
            continue
        assert samples.ndim == 1 and len(samples) and rate > 0 and np.abs(samples).max() <= 1


def test_blocks_are_filled_with_zeros():
    found = media.blocks(np.arange(1, 12, dtype=np.float32), SOUND)
    np.testing.assert_array_equal(found, [[[1, 2, 3, 4, 5, 6, 7, 8]], [[9, 10, 11, 0, 0, 0, 0, 0]]])


@pytest.mark.parametrize(("given", "takes", "name"), [
    ("a.wav", "sound", "sound"), ("sound=a.wav", "sound", "sound"), ("grey=a.png", "picture", "grey")])
def test_inputs_by_name_or_alone(given: str, takes: str, name: str):
    port, path = media.port_of(PORTS, given, takes)
    assert port.name == name and path == Path(given.rpartition("=")[2])


@pytest.mark.parametrize(("given", "takes", "message"), [
    ("a.png", "picture", "2 inputs for a picture: frame, grey; write INPUT=a.png"),
    ("ids=a.wav", "sound", "'ids' is not an input of the program for a sound; there are sound"),
    ("table=a.png", "picture", "'table' is not an input of the program for a picture; there are frame, grey")])
def test_inputs_that_do_not_fit(given: str, takes: str, message: str):
    with pytest.raises(MegccError, match=message):
        media.port_of(PORTS, given, takes)
    with pytest.raises(MegccError, match="the program has no inputs for a"):
        media.port_of(PORTS[3:], "a.png", takes)


def test_pictures(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(media.picture(tmp_path / "a.png", 4, 6, 3), pixels)
    assert media.picture(tmp_path / "a.png", 4, 6, 1).shape == (4, 6, 1)
    pillow.new("RGB", (60, 40), (1, 2, 3)).save(tmp_path / "b.png")
    np.testing.assert_array_equal(media.picture(tmp_path / "b.png", 4, 6, 3), np.full((4, 6, 3), (1, 2, 3)))
    (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:50])
    for name in ("c.png", "none.png"):
        with pytest.raises(MegccError, match="is no picture that Pillow reads"):
            media.picture(tmp_path / name, 4, 6, 3)


def test_pictures_whose_format_has_an_exception_of_its_own(tmp_path, monkeypatch):
    """As damaged files of AVIF have: 'Failed to decode image: Missing or empty image item'."""
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (4, 4)).save(tmp_path / "a.png")

    def fail(*_, **__):
        raise RuntimeError("Failed to decode image")

    monkeypatch.setattr(pillow.Image, "convert", fail)
    with pytest.raises(MegccError, match="is no picture that Pillow reads"):
        media.picture(tmp_path / "a.png", 4, 6, 3)


def test_sample_rates_of_features():
    assert features.sample_rate(Feature("log_mel", "a", "b", {"preset": "whisper"})) == 16000
    assert features.sample_rate(Feature("log_mel", "a", "b", {"preset": "whisper", "sample_rate": 8000})) == 8000
    assert features.sample_rate(Feature("resample", "a", "b", {"sample_rate": 44100, "to": 16000})) == 44100
