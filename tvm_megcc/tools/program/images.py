# SPDX-License-Identifier: Apache-2.0
"""Steps that are functions on images: what each makes of an image, and its call in C (docs/cv.md)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...errors import MegccError
from .settings import Settings
from .steps import Image, ValueType

#: The keys of each function besides input and output.
SETTINGS: dict[str, tuple[str, ...]] = {
    "resize": ("size", "method"), "letterbox": ("size", "method", "value", "align"), "crop": ("x", "y", "size"),
    "rotate": ("degrees",), "flip": ("mirrored",), "color": ("code",), "blur": ("size", "sigma"),
    "warp_affine": ("size", "matrix", "border", "value"), "warp_perspective": ("size", "matrix", "border", "value")}
_METHODS = ("linear", "nearest", "area")
_MIRRORED = ("columns", "rows", "both")
_BORDERS = ("constant", "replicate")
#: Channels of the names in codes of colours; NV12 and NV21 have one, in 3 / 2 of the rows.
_CHANNELS = {"RGB": 3, "BGR": 3, "RGBA": 4, "GRAY": 1, "YUV": 3, "NV12": 1, "NV21": 1}
_CODES = ("RGB_BGR", "RGB_RGBA", "RGBA_RGB", "RGBA_BGR", "RGB_GRAY", "BGR_GRAY", "RGBA_GRAY", "GRAY_RGB", "GRAY_RGBA",
          "RGB_YUV", "BGR_YUV", "YUV_RGB", "YUV_BGR", "NV12_RGB", "NV12_BGR", "NV21_RGB", "NV21_BGR")
#: The largest side of an image in pixels.
_MAX_SIDE = 1 << 15
#: The largest side of the kernel of a blur, as in megcc_cv.h.
_MAX_KERNEL = 63
#: The bytes of a float.
_FLOAT = 4


class Call(NamedTuple):
    """A step in C.

    function: of megcc_cv.h, without prefix and suffix.
    arguments: those after the two images, as C; `work` and `matrix` stand for what the caller declares.
    result: the type of the image that it makes.
    rectangle: x, y, width and height of the part of the result that is written; the rest has `fill`.
    fill: the value of each channel in a letterbox, () elsewhere.
    matrix, value: numbers that become constant arrays; a matrix that is a value of the program is its name.
    work: bytes of workspace.
    """

    function: str
    arguments: tuple[str, ...]
    result: ValueType
    rectangle: tuple[int, int, int, int]
    fill: tuple[float, ...] = ()
    matrix: tuple[float, ...] | str = ()
    value: tuple[float, ...] = ()
    work: int = 0


def call(step: Image, given: ValueType, matrix: ValueType | None) -> Call:
    """Returns the call of a step on an image of a type. matrix: the type of the value that is its matrix, if one is.

    Raises:
        MegccError: for what is no image, and a setting that is missing, of another kind, or impossible for the image.
    """
    if len(given.shape) != 3 or given.dtype not in ("uint8", "float32") or not 1 <= given.shape[2] <= 4 \
            or max(given.shape) > _MAX_SIDE:
        raise MegccError(f"it requires an image, uint8 or float32 of [height, width, 1 to 4 channels], not {given}")
    settings = Settings(step, SETTINGS)
    height, width, channels = given.shape
    if step.function in ("resize", "letterbox"):
        return _resized(step.function, settings, given)
    if step.function == "crop":
        size = settings.sides("size", _MAX_SIDE)
        x, y = (settings.integer(key, 0, _MAX_SIDE) for key in ("x", "y"))
        if x + size[1] > width or y + size[0] > height:
            raise MegccError(f"the crop of {size[0]} by {size[1]} at x = {x}, y = {y} reaches beyond the image, "
                             f"{given}")
        return _whole("copy_roi", (str(x), str(y)), given.dtype, *size, channels)
    if step.function == "rotate":
        degrees = settings.one_of("degrees", (90, 180, 270))
        sides = (height, width) if degrees == 180 else (width, height)
        return _whole("rotate", (str(degrees // 90),), given.dtype, *sides, channels)
    if step.function == "flip":
        code = {"columns": "MEGCC_CV_COLUMNS", "rows": "MEGCC_CV_ROWS", "both": "MEGCC_CV_COLUMNS | MEGCC_CV_ROWS"}
        return _whole("flip", (code[settings.one_of("mirrored", _MIRRORED)],), given.dtype, height, width, channels)
    if step.function == "color":
        return _coloured(settings.one_of("code", _CODES), given)
    if step.function == "blur":
        return _blurred(settings, given)
    return _warped(step, settings, given, matrix)


def _whole(function: str, arguments: tuple[str, ...], dtype: str, height: int, width: int, channels: int,
           **others: Any) -> Call:
    """Returns a call that writes the whole result. others: further fields of `Call`."""
    return Call(function, arguments, ValueType(dtype, (height, width, channels)), (0, 0, width, height), **others)


def _resized(function: str, settings: Settings, given: ValueType) -> Call:
    (rows, columns), (height, width, channels) = settings.sides("size", _MAX_SIDE), given.shape
    method = settings.one_of("method", _METHODS, "linear")
    x, y, across, down = 0, 0, columns, rows
    fill: tuple[float, ...] = ()
    if function == "letterbox":
        x, y, across, down = letterboxed(rows, columns, height, width, settings)
        fill = settings.numbers("value", channels, [0] * channels)
    # As megcc_cv_resize_bytes. linear: a weight and a position for each column, and two interpolated rows. area: a row
    # of the source.
    floats = {"nearest": 0, "linear": 2 * across + 2 * across * channels, "area": width * channels}[method]
    work = _FLOAT * floats
    return Call("resize", (f"MEGCC_CV_{method.upper()}", "work" if work else "NULL"),
                ValueType(given.dtype, (rows, columns, channels)), (x, y, across, down), fill=fill, work=work)


def letterboxed(rows: int, columns: int, height: int, width: int, settings: Settings) -> tuple[int, int, int, int]:
    """Returns left, top, width and height of an image of [height, width] in a letterbox of [rows, columns]."""
    middle = settings.one_of("align", ("middle", "start"), "middle") == "middle"
    scale = min(rows / height, columns / width)
    across, down = (max(1, min(round(side * scale), most)) for side, most in ((width, columns), (height, rows)))
    return (columns - across) // 2 * middle, (rows - down) // 2 * middle, across, down


def _coloured(code: str, given: ValueType) -> Call:
    source, result = code.split("_")
    height, width, channels = given.shape
    is_nv = source.startswith("NV")
    # NV12 and NV21 have a row of luminance for each row of the picture, and then a row of chrominance for each two.
    rows = height // 3 * 2 if is_nv else height
    fits = channels == _CHANNELS[source]
    if is_nv:
        fits &= given.dtype == "uint8" and width % 2 == 0 and height % 3 == 0 and rows % 2 == 0
    if not fits:
        wanted = "one channel of uint8, an even width and height, in 3 / 2 of the rows" if is_nv else \
            f"{_CHANNELS[source]} channels"
        raise MegccError(f"'code' {code} requires an image of {wanted}, not {given}")
    return _whole("color", (f"MEGCC_CV_{code}",), given.dtype, rows, width, _CHANNELS[result])


def _blurred(settings: Settings, given: ValueType) -> Call:
    rows, columns = settings.sides("size", _MAX_SIDE)
    if not all(side % 2 and side <= _MAX_KERNEL for side in (rows, columns)):
        raise MegccError(f"'size' {rows}, {columns} of a blur: both are odd and at most {_MAX_KERNEL}")
    sigma_rows, sigma_columns = settings.numbers("sigma", 2, (0, 0))  # 0: as the size says
    width, channels = given.shape[1:]
    work = _FLOAT * (width + columns) * channels  # as megcc_cv_gaussian_blur_bytes
    return _whole("gaussian_blur", (str(columns), str(rows), literal(sigma_columns), literal(sigma_rows), "work"),
                  given.dtype, *given.shape, work=work)


def _warped(step: Image, settings: Settings, given: ValueType, matrix: ValueType | None) -> Call:
    count = 6 if step.function == "warp_affine" else 9  # elements of a matrix [2, 3] or [3, 3]
    size, channels = settings.sides("size", _MAX_SIDE), given.shape[2]
    named = settings.name("matrix")
    if named is not None:
        if matrix is None or matrix.dtype != "float32" or math.prod(matrix.shape) != count:
            raise MegccError(f"'matrix' is {matrix}, and has to be float32 with {count} elements")
        numbers: tuple[float, ...] | str = named
    else:
        numbers = settings.numbers("matrix", count)
    border = settings.one_of("border", _BORDERS, "constant")
    return _whole(step.function, ("matrix", f"MEGCC_CV_{border.upper()}", "value"), given.dtype, *size, channels,
                  matrix=numbers, value=settings.numbers("value", channels, [0] * channels))


def literal(number: float) -> str:
    """Returns a float32 as C writes it, with all its bits."""
    text = str(np.float32(number))
    return f"{text}{'' if '.' in text or 'e' in text else '.0'}f"
