# SPDX-License-Identifier: Apache-2.0
"""Reads samples for `megcc quantize` from a .npz file, arrays or a folder of images, and converts them to inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import MegccError
from ...passes.canonicalize.preprocess import Input
from ..program import media
from ..run import network_input, read_npz

#: Suffixes of images.
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
#: Names of arrays with the class of each sample.
LABELS = ("labels", "label")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Samples:
    """Samples.

    feeds: the network's inputs, a dictionary for each sample.
    labels: classes, int [samples, rows of one sample, which may be a batch]; None if not given.
    """

    feeds: tuple[Arrays, ...]
    labels: np.ndarray | None = None


def read_samples(source: str | Path | Mapping[str, np.ndarray], shapes: Mapping[str, Sequence],
                 given: Mapping[str, Input], dtypes: Mapping[str, str], most: int) -> Samples:
    """Returns at most `most` samples, evenly spaced over all.

    Args:
        source: a .npz file or arrays by input name, whose first axis counts samples: either an axis of its own or the
            network's, in batches; or a folder of images, for a network of one input.
        shapes, dtypes: of the network's inputs; extents that are open are no numbers.
        given: how samples are given (`--input`); images are uint8, NHWC and RGB if it does not say otherwise.

    Raises:
        MegccError: if there are no samples, or they do not fit the inputs.
    """
    if not isinstance(source, Mapping) and Path(source).is_dir():
        arrays: Arrays = _images(Path(source), shapes, given, most)
    else:
        arrays = read_npz(source, list(shapes))
    counts = {name: _split(name, array, shapes[name]) for name, array in arrays.items()}
    number = min(len(steps) for steps in counts.values())
    if not number or any(len(steps) != number for steps in counts.values()):
        raise MegccError(f"{', '.join(f'{len(steps)} samples of {name}' for name, steps in counts.items())}: every "
                         "input needs the same number of samples, at least one")
    chosen = np.linspace(0, number - 1, min(number, most)).astype(int)
    feeds = tuple({name: _converted(name, steps[index], given.get(name)).astype(dtypes[name])
                   for name, steps in counts.items()} for index in chosen)
    for name in counts:
        for feed in feeds:
            _require_fit(name, feed[name].shape, shapes[name])
        if not all(np.isfinite(feed[name].astype(np.float64)).all() for feed in feeds):
            raise MegccError(f"samples of {name} have numbers that are infinite or NaN")
    labels = _labels(source, number)
    return Samples(feeds, None if labels is None else labels[chosen])


def _split(name: str, array: np.ndarray, shape: Sequence) -> list[np.ndarray]:
    """Returns the samples of an array, each of the rank of the input: the elements of an additional first axis or, if
    the array has the input's rank, batches of as many rows as the input has."""
    if array.ndim == len(shape) + 1:
        return list(array)
    if array.ndim != len(shape):
        raise MegccError(f"samples of {name} have {array.ndim} axes, the network's input has {len(shape)}: give them "
                         "as many, or one more in front, for the samples")
    step = shape[0] if shape and isinstance(shape[0], int) else 1
    if array.ndim == 0 or array.shape[0] % step:
        raise MegccError(f"samples of {name}: the first extent of {array.shape} is not a multiple of the batch, {step}")
    return [array[first:first + step] for first in range(0, array.shape[0], step)]


def _require_fit(name: str, sample: tuple[int, ...], shape: Sequence) -> None:
    """Raises MegccError if a sample does not fit the network's input."""
    if len(sample) != len(shape) or any(isinstance(extent, int) and size != extent
                                        for size, extent in zip(sample, shape, strict=True)):
        wanted = ",".join(str(extent) if isinstance(extent, int) else "N" for extent in shape)
        raise MegccError(f"a sample of {name} is [{','.join(map(str, sample))}], the network's input is [{wanted}]")


def _labels(source: str | Path | Mapping[str, np.ndarray], number: int) -> np.ndarray | None:
    """Returns the array of LABELS in a source with so many samples, a row for each; None if there is none."""
    if not isinstance(source, Mapping):
        if Path(source).is_dir():
            return None
        with np.load(source) as file:
            source = {name: file[name] for name in LABELS if name in file}
    found = next((np.asarray(source[name]).reshape(-1) for name in LABELS if name in source), None)
    if found is not None and len(found) % number:
        raise MegccError(f"{len(found)} labels for {number} samples")
    return None if found is None else found.reshape(number, -1)


def _converted(name: str, array: np.ndarray, given: Input | None) -> np.ndarray:
    """Converts a sample from the form that the caller gives to the network's own input."""
    if given is None:
        return array
    return network_input(name, array, given, "float32")


def _images(folder: Path, shapes: Mapping[str, Sequence], given: Mapping[str, Input], most: int) -> Arrays:
    """Returns at most `most` images, evenly spaced over all and resized to the network's input: uint8
    [images, 1, height, width, channels], or with channels before height as `given` says."""
    if len(shapes) != 1 or len(next(iter(shapes.values()))) != 4:
        raise MegccError(f"{folder}: a folder of images is for networks of one input of 4 axes; save arrays by input "
                         "name with numpy.savez instead")
    ((name, shape),) = shapes.items()
    if name not in given:
        raise MegccError(f"{folder}: describe the images that the network requires, such as --input "
                         f"\"{name}=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4\"")
    channels, height, width = shape[1:] if given[name].network == "NCHW" else (shape[3], *shape[1:3])
    if not all(isinstance(extent, int) for extent in (channels, height, width)) or channels not in (1, 3):
        raise MegccError(f"{folder}: images need an input of known size with 1 or 3 channels, not {tuple(shape)}")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGES)
    if not files:
        raise MegccError(f"{folder} has no images ({', '.join(IMAGES)})")
    chosen = np.linspace(0, len(files) - 1, min(len(files), most)).astype(int)
    batch = np.stack([media.picture(files[index], height, width, channels)[None] for index in chosen])
    if given[name].order == "BGR":
        batch = batch[..., ::-1]
    return {name: np.moveaxis(batch, -1, 2) if given[name].layout == "NCHW" else batch}
