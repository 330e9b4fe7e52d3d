# SPDX-License-Identifier: Apache-2.0
"""`megcc cv`: operators on images against what they mean in numpy, and OpenCV where it is installed."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.cli import main
from tvm_megcc.codegen.packages import image_library
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, native

NEAREST, LINEAR, AREA = range(3)
CODES = ("RGB_BGR", "RGB_RGBA", "RGBA_RGB", "RGBA_BGR", "RGB_GRAY", "BGR_GRAY", "RGBA_GRAY", "GRAY_RGB", "GRAY_RGBA",
         "RGB_YUV", "BGR_YUV", "YUV_RGB", "YUV_BGR", "NV12_RGB", "NV12_BGR", "NV21_RGB", "NV21_BGR")
#: Sides and channels: one pixel, fewer than a vector, more than several, none a multiple of anything.
IMAGES = ((1, 1, 1), (3, 5, 3), (17, 70, 1), (9, 67, 4), (31, 23, 2))
TYPES = (("u8", np.uint8), ("f32", np.float32))
TARGET_NAMES = [pytest.param("c"), pytest.param(native().name),
                *(pytest.param(name, marks=pytest.mark.slow) for name in ("x86-64", "x86-64-v3"))]


class Image(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("width", ctypes.c_int32), ("height", ctypes.c_int32),
                ("channels", ctypes.c_int32), ("row_bytes", ctypes.c_ssize_t))


def image_of(array: np.ndarray) -> Image:
    return Image(array.ctypes.data, array.shape[1], array.shape[0], array.shape[2], array.strides[0])


def library(name: str, folder: Path) -> ctypes.CDLL:
    target = TARGETS[name]
    if native().isa.code < target.isa.code and name != "c":
        pytest.skip(f"this machine does not run {name}")
    for path, content in image_library.files(target).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    result = folder / "libcv.so"
    subprocess.run([*find_compiler(native()).command, "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror",
                    f"-I{folder / 'include'}", "-fPIC", "-shared", "-o", str(result),
                    *map(str, sorted(folder.glob("*.c")))], check=True)
    loaded = ctypes.CDLL(str(result))
    loaded.megcc_cv_resize_bytes.restype = loaded.megcc_cv_gaussian_blur_bytes.restype = ctypes.c_size_t
    return loaded


@pytest.fixture(scope="module", params=TARGET_NAMES)
def functions(request, tmp_path_factory):
    return library(request.param, tmp_path_factory.mktemp("cv"))


def drawn(shape: tuple[int, int, int], dtype) -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    return generator.integers(0, 256, shape, np.uint8) if dtype == np.uint8 else \
        generator.standard_normal(shape).astype(np.float32)


def called(functions, name: str, x: np.ndarray, shape: tuple[int, int, int], *arguments, status: int = 0) -> np.ndarray:
    """The result, in rows that are longer than it, which nothing else is written to."""
    suffix = "u8" if x.dtype == np.uint8 else "f32"
    room = np.full((shape[0], shape[1] + 3, shape[2]), 77, x.dtype)
    y = room[:, :shape[1]]
    found = getattr(functions, f"megcc_cv_{name}_{suffix}")(
        ctypes.byref(image_of(x)), ctypes.byref(image_of(y)), *arguments)
    assert found == status
    assert (room[:, shape[1]:] == 77).all()
    return y


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    """expected: in float64. Bytes are rounded; a half may have become less."""
    if actual.dtype == np.uint8:
        rounded = np.clip(np.rint(expected), 0, 255)
        apart = np.abs(actual.astype(int) - rounded) > 0
        assert (np.abs(np.abs(expected - np.floor(expected)) - 0.5)[apart] < 1e-3).all()
        assert np.abs(actual - expected).max(initial=0) < 0.51 or expected.max() > 255 or expected.min() < 0
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5)


def axis_weights(source: int, result: int, method: int) -> np.ndarray:
    """[result, source]: how much each pixel of the source counts."""
    weights, scale = np.zeros((result, source)), source / result
    for at in range(result):
        if method == NEAREST:
            weights[at, min(int(at * scale), source - 1)] = 1
        elif method == LINEAR:
            centre = min(max((at + 0.5) * scale - 0.5, 0), source - 1)
            low = int(centre)
            weights[at, low] += 1 - (centre - low)
            weights[at, min(low + 1, source - 1)] += centre - low
        else:
            for pixel in range(source):
                weights[at, pixel] = max(0, min(pixel + 1, (at + 1) * scale) - max(pixel, at * scale)) / scale
    return weights


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "dtype"), TYPES)
def test_sizes(functions, suffix, dtype):
    for shape in IMAGES:
        x = drawn(shape, dtype)
        for sides in ((1, 1), (4, 33), (40, 7), shape[:2]):
            for method in (NEAREST, LINEAR, AREA):
                work = np.empty(100_000, np.float32)
                to = (*sides, shape[2])
                bytes_ = functions.megcc_cv_resize_bytes(ctypes.byref(image_of(x)),
                                                         ctypes.byref(image_of(np.empty(to, dtype))), method)
                work[bytes_ // 4:] = 5
                y = called(functions, "resize", x, to, method, work.ctypes.data_as(ctypes.c_void_p))
                assert (work[bytes_ // 4:] == 5).all()
                down, across = (axis_weights(shape[axis], sides[axis], method) for axis in (0, 1))
                close(y, np.einsum("yi,ijc,xj->yxc", down, x.astype(np.float64), across))


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "dtype"), TYPES)
def test_moves(functions, suffix, dtype):
    for height, width, channels in (*IMAGES, (33, 53, 3), (37, 34, 4)):
        x = drawn((height, width, channels), dtype)
        for quarters in (1, 2, 3):
            expected = np.rot90(x, -quarters)
            np.testing.assert_array_equal(called(functions, "rotate", x, expected.shape, quarters), expected)
        for mirrored, axes in ((1, (1,)), (2, (0,)), (3, (0, 1))):
            np.testing.assert_array_equal(called(functions, "flip", x, x.shape, mirrored), np.flip(x, axes))
        top, left = height // 3, width // 2
        part = x[top:, left:left + max(1, width // 4)]
        np.testing.assert_array_equal(called(functions, "copy_roi", x, part.shape, left, top), part)
        called(functions, "copy_roi", x, part.shape, left + 1, height, status=1)
        called(functions, "rotate", x, (height + 1, width, channels), 2, status=1)


def warped(x: np.ndarray, shape, matrix: np.ndarray, replicate: bool, value) -> np.ndarray:
    rows, columns = np.mgrid[:shape[0], :shape[1]].astype(np.float64)
    places = np.einsum("ij,jyx->iyx", matrix, np.stack([columns, rows, np.ones_like(rows)]))
    u, v = places[0] / places[2], places[1] / places[2]
    height, width = x.shape[:2]
    around = np.pad(x.astype(np.float64), ((2, 2), (2, 2), (0, 0)), "edge" if replicate else "constant")
    if not replicate:
        inside = np.zeros((height + 4, width + 4, 1), bool)
        inside[2:-2, 2:-2] = True
        around = np.where(inside, around, np.asarray(value, np.float64))
    u, v = (np.clip(place, -1.5, extent + 0.5) for place, extent in ((u, width), (v, height)))
    if replicate:
        u, v = np.clip(u, 0, width - 1), np.clip(v, 0, height - 1)
    x0, y0 = np.floor(u).astype(int), np.floor(v).astype(int)
    across, down = (u - x0)[..., None], (v - y0)[..., None]
    four = [[around[y0 + i + 2, x0 + j + 2] for j in (0, 1)] for i in (0, 1)]
    lines = [pair[0] * (1 - across) + pair[1] * across for pair in four]
    return lines[0] * (1 - down) + lines[1] * down


@pytest.mark.parametrize(("suffix", "dtype"), TYPES)
def test_warps(functions, suffix, dtype):
    for shape in IMAGES[1:]:
        y, x = np.mgrid[:shape[0], :shape[1]]
        smooth = np.stack([100 + 3 * x + (2 + c) * y % 200 for c in range(shape[2])], -1)
        x = np.clip(smooth, 0, 250).astype(dtype)
        to, value = (13, 75, shape[2]), np.arange(10, 50, 10, dtype=np.float32)[:shape[2]]
        affine = np.array([[0.75, 0.125, -1.5], [-0.25, 0.5, 2.25], [0, 0, 1]])
        bent = np.array([[0.75, 0.125, -1.5], [-0.25, 0.5, 2.25], [0.002, -0.004, 1]])
        for name, matrix in (("warp_affine", affine), ("warp_perspective", bent)):
            for border in (0, 1):
                numbers = np.ascontiguousarray(matrix if name == "warp_perspective" else matrix[:2], np.float32)
                actual = called(functions, name, x, to, numbers.ctypes.data_as(ctypes.c_void_p), border,
                                value.ctypes.data_as(ctypes.c_void_p))
                expected = warped(x, to, numbers if len(numbers) == 3 else np.vstack([numbers, [0, 0, 1]]),
                                  bool(border), value)
                # Places are floats: in bent images they are off by some of their last bits, and values vary by 200.
                assert np.abs(actual - expected).max() < (0.55 if dtype == np.uint8 else 0.02)
        nowhere = np.full(9, np.nan, np.float32)
        called(functions, "warp_perspective", x, to, nowhere.ctypes.data_as(ctypes.c_void_p), 1, None)


@pytest.mark.parametrize(("suffix", "dtype"), TYPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_warps_right_before_the_edge(functions, suffix, dtype, channels):
    """The float before 32 plus 1 is rounded to 33: column 32 does not exist, and the address is that of the next row.
    """
    x, value = np.zeros((4, 32, channels), dtype), np.full(channels, 200, np.float32)
    for shift in (np.nextafter(np.float32(32), 0), np.nextafter(np.float32(-1), 0), np.float32(31.5)):
        matrix = np.array([[1, 0, shift], [0, 1, 0]], np.float32)
        actual = called(functions, "warp_affine", x, (4, 1, channels), matrix.ctypes.data_as(ctypes.c_void_p), 0,
                        value.ctypes.data_as(ctypes.c_void_p))
        np.testing.assert_allclose(actual, 100 if shift == 31.5 else 200, atol=0.01)


def colours(x: np.ndarray, code: str, dtype) -> np.ndarray:
    source, result = code.split("_")
    half, one = (128, 255) if dtype == np.uint8 else (0.5, 1)
    x = x.astype(np.float64)
    if source.startswith("NV"):
        height = x.shape[0] * 2 // 3
        pairs = x[height:, :, 0].reshape(height // 2, -1, 2).repeat(2, 0).repeat(2, 1) - 128
        u, v = (pairs[..., 0], pairs[..., 1]) if source == "NV12" else (pairs[..., 1], pairs[..., 0])
        light = 1.164 * (x[:height, :, 0] - 16)
        rgb = np.stack([light + 1.596 * v, light - 0.813 * v - 0.391 * u, light + 2.018 * u], -1)
    elif source == "YUV":
        light, u, v = x[..., 0], x[..., 1] - half, x[..., 2] - half
        rgb = np.stack([light + 1.140 * v, light - 0.395 * u - 0.581 * v, light + 2.032 * u], -1)
    else:
        rgb = x[..., ::-1] if source == "BGR" else x[..., :3].repeat(3 if source == "GRAY" else 1, -1)
    gray = rgb @ [0.299, 0.587, 0.114]
    if result == "GRAY":
        return gray[..., None]
    if result == "YUV":
        return np.stack([gray, 0.492 * (rgb[..., 2] - gray) + half, 0.877 * (rgb[..., 0] - gray) + half], -1)
    rgb = rgb[..., ::-1] if result == "BGR" else rgb
    return np.concatenate([rgb, np.full((*rgb.shape[:2], 1), one)], -1) if result == "RGBA" else rgb


@pytest.mark.parametrize(("suffix", "dtype"), TYPES)
def test_colours(functions, suffix, dtype):
    channels = {"GRAY": 1, "RGBA": 4, "NV12": 1, "NV21": 1}
    for number, code in enumerate(CODES):
        source = code.split("_")[0]
        for height, width in ((2, 2), (6, 70), (4, 130)):
            frame = source.startswith("NV")
            x = drawn((height * 3 // 2 if frame else height, width, channels.get(source, 3)), dtype)
            expected = np.clip(colours(x, code, dtype), 0, 255) if dtype == np.uint8 else colours(x, code, dtype)
            if frame and dtype == np.float32:
                called(functions, "color", x, expected.shape, number, status=1)
            else:
                close(called(functions, "color", x, expected.shape, number), expected)
    called(functions, "color", drawn((4, 4, 3), dtype), (4, 4, 4), 0, status=1)


@pytest.mark.parametrize(("suffix", "dtype"), TYPES)
def test_blur(functions, suffix, dtype):
    for shape in IMAGES:
        x = drawn(shape, dtype)
        for columns, rows, sigma in ((1, 1, 0.0), (5, 3, 1.25), (7, 15, 0.0), (1, 63, 9.0)):
            bytes_ = functions.megcc_cv_gaussian_blur_bytes(ctypes.byref(image_of(x)), columns)
            work = np.full(bytes_ // 4 + 8, 5, np.float32)
            actual = called(functions, "gaussian_blur", x, shape, columns, rows, ctypes.c_float(sigma),
                            ctypes.c_float(sigma), work.ctypes.data_as(ctypes.c_void_p))
            assert (work[-8:] == 5).all()
            expected = x.astype(np.float64)
            for axis, size in ((0, rows), (1, columns)):
                away = np.arange(size) - size // 2
                weights = np.exp(-away**2 / (2 * (sigma or 0.15 * size + 0.35)**2))
                mode = "reflect" if expected.shape[axis] > 1 else "edge"
                padding = [(size // 2, size // 2) if at == axis else (0, 0) for at in range(3)]
                padded = np.pad(expected, padding, mode)
                expected = sum(weight / weights.sum() * padded.take(range(k, k + expected.shape[axis]), axis)
                               for k, weight in enumerate(weights))
            close(actual, expected)


def test_opencv_agrees(functions):
    other = pytest.importorskip("cv2")
    x = drawn((48, 64, 3), np.uint8)
    work = np.empty(100_000, np.float32)
    pointer = work.ctypes.data_as(ctypes.c_void_p)
    for method, name in ((NEAREST, other.INTER_NEAREST), (LINEAR, other.INTER_LINEAR), (AREA, other.INTER_AREA)):
        expected = other.resize(x, (32, 24), interpolation=name)
        assert np.abs(called(functions, "resize", x, (24, 32, 3), method, pointer) - expected.astype(int)).max() <= 1
    for code, name in ((4, other.COLOR_RGB2GRAY), (9, other.COLOR_RGB2YUV), (11, other.COLOR_YUV2RGB)):
        expected = other.cvtColor(x, name).reshape(48, 64, -1)
        assert np.abs(called(functions, "color", x, expected.shape, code) - expected.astype(int)).max() <= 2
    expected = other.GaussianBlur(x, (5, 3), 1.25)
    actual = called(functions, "gaussian_blur", x, x.shape, 5, 3, ctypes.c_float(1.25), ctypes.c_float(1.25), pointer)
    assert np.abs(actual - expected.astype(int)).max() <= 1


def test_the_command(tmp_path, capsys):
    """Writes a folder, but not over one with something else in it."""
    folder = tmp_path / "cv"
    assert main(["cv", "--target", "arm64", "-o", str(folder)]) == 0
    assert "cv_warp.c" in capsys.readouterr().out
    assert "for arm64:" in (folder / "megcc_cv.h").read_text()
    assert sorted(path.name for path in (folder / "include" / "simd").iterdir()) == ["neon.h", "neon_integer.h"]
    (folder / "mine.txt").write_text("keep")
    assert main(["cv", "--target", "arm64", "-o", str(folder)]) == 1
    assert main(["cv", "--target", "arm64,c", "-o", str(tmp_path / "two")]) == 1
    assert "one target a folder" in capsys.readouterr().err
