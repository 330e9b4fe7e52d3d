# SPDX-License-Identifier: Apache-2.0
"""Inputs of networks from files: sounds (WAV) and pictures (whatever Pillow reads)."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import MegccError, quoted
from ...runtime.session import Port


def port_of(ports: Sequence[Port], given: str, takes: str) -> tuple[Port, Path]:
    """Returns the input and the path of an argument [INPUT=]FILE. Without INPUT it is the only input that fits.

    Args:
        takes: "sound", an input of float32 with one axis longer than 1; or "picture", uint8 [height, width, 1 or 3].

    Raises:
        MegccError: for an input that there is not or that does not fit, and where several fit.
    """
    fitting = {port.name: port for port in ports if (_is_sound if takes == "sound" else _is_picture)(port)}
    name, equals, path = given.partition("=")
    if not equals:
        if len(fitting) != 1:
            raise MegccError(f"the program has {len(fitting) or 'no'} inputs for a {takes}"
                             + (f": {', '.join(fitting)}; write INPUT={given}" if fitting else ""))
        (name,), path = fitting, given
    if name not in fitting:
        raise MegccError(f"{quoted(name)} is not an input of the program for a {takes}; there are "
                         f"{', '.join(fitting) or 'none'}")
    return fitting[name], Path(path)


def _is_sound(port: Port) -> bool:
    return port.dtype == "float32" and sum(extent != 1 for extent in port.shape) == 1


def _is_picture(port: Port) -> bool:
    return port.dtype == "uint8" and len(port.shape) == 3 and port.shape[2] in (1, 3)


def sound(path: Path, rate: int | None = None) -> tuple[npt.NDArray[np.float32], int]:
    """Returns the samples of a WAV file, from -1 to 1, and its sample rate in Hz. Channels are averaged.

    rate: the sample rate that is wanted, if that is known.

    Raises:
        MegccError: for a file that is no sound, that is empty or compressed, or that has another sample rate.
    """
    try:
        with wave.open(str(path), "rb") as file:
            found, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            data = file.readframes(file.getnframes())
    except OSError as error:
        raise MegccError(f"{path} cannot be read: {error.strerror}") from None
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:
        raise MegccError(f"{path} is no WAV file of PCM samples: {str(error) or 'it ends early'}") from None
    if not found:
        raise MegccError(f"{path} has 0 samples a second")
    if rate is not None and found != rate:
        raise MegccError(f"{path} has {found} samples a second, but the program requires {rate}: convert it, for "
                         f"example with 'ffmpeg -i {path.name} -ar {rate} converted.wav'")
    count = len(data) // (width * channels)
    if not count or width not in (1, 2, 3, 4):
        raise MegccError(f"{path} has {count} samples of {width} bytes; it needs one at least, of 1 to 4 bytes")
    data = data[:count * width * channels]
    if width == 1:  # without sign
        samples = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    else:
        wide = np.zeros((count * channels, 4), np.uint8)
        wide[:, 4 - width:] = np.frombuffer(data, np.uint8).reshape(-1, width)
        samples = (wide.view("<i4")[:, 0] / 2.0 ** 31).astype(np.float32)
    return samples.reshape(count, channels).mean(1, dtype=np.float32), found


def blocks(samples: npt.NDArray[np.float32], port: Port) -> npt.NDArray[np.float32]:
    """Returns a sound in blocks of the input's shape, [blocks, …]; zeros fill the last one."""
    shape = tuple(map(int, port.shape))
    size = max(shape)
    count = -(-len(samples) // size)
    return np.pad(samples, (0, count * size - len(samples))).reshape(count, *shape)


def picture(path: Path, height: int, width: int, channels: int) -> npt.NDArray[np.uint8]:
    """Returns a picture resized to [height, width, channels]: grey for one channel, else RGB.

    Raises:
        MegccError: for a file that is no picture, and where Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MegccError("pictures are read by Pillow: pip install pillow") from None
    try:
        with Image.open(path) as image:
            found: Any = image.convert("L" if channels == 1 else "RGB").resize(
                (width, height), Image.Resampling.BILINEAR)
    except Exception:  # of a damaged file: each of Pillow's formats has its own exceptions
        raise MegccError(f"{path} is no picture that Pillow reads") from None
    return np.asarray(found, np.uint8).reshape(height, width, channels)
