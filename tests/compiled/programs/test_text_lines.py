# SPDX-License-Identifier: Apache-2.0
"""Boxes of text and the lines cut out by them: beside rapidocr's boxes and OpenCV's perspective crops where these are
installed, beside matrices of numpy elsewhere, and under AddressSanitizer with maps of NaN and infinities."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.ops.vision.db_boxes import DbBoxes
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Detection, Image, Loop

pytestmark = pytest.mark.slow
SIZE = 32, 160


def page(seed: int, height: int = 120, width: int = 160, angles: tuple[float, ...] = (0,)) -> np.ndarray:
    """A map of probabilities with lines of text, which touch at times."""
    random = np.random.default_rng(seed)
    scores = random.uniform(0, 0.28, (height, width))
    rows, columns = np.mgrid[:height, :width]
    for _ in range(8):
        x, y, angle = random.uniform(0, width), random.uniform(0, height), random.choice(angles)
        u = (columns - x) * np.cos(angle) + (rows - y) * np.sin(angle)
        v = (rows - y) * np.cos(angle) - (columns - x) * np.sin(angle)
        inside = (np.abs(u) < random.uniform(3, width / 4)) & (np.abs(v) < random.uniform(2, height / 16))
        scores[inside] = random.uniform(0.45, 1) * random.uniform(0.8, 1, inside.sum())
    return scores.astype(np.float32)


@pytest.mark.parametrize("angles", [(0,), (0.05, -0.4, 1.2)])
def test_boxes_are_those_of_rapidocr(angles):
    """Within a pixel, and in the same order, on maps without a box whose score is near the lowest one."""
    theirs = pytest.importorskip("rapidocr_onnxruntime.ch_ppocr_det.text_detect")
    sort = pytest.importorskip("rapidocr_onnxruntime.main").RapidOCR.sorted_boxes
    detector = type("Detector", (), {name: getattr(theirs.TextDetector, name) for name in (
        "order_points_clockwise", "clip_det_res", "filter_tag_det_res")})()
    attrs = type("Attrs", (), {"threshold": 0.3, "least": 0.5, "ratio": 1.6, "dilated": 1, "most": 100, "height": 120,
                               "width": 160})
    total = 0
    for seed in range(60):
        scores = page(seed, angles=angles)
        boxes, likely = theirs.DBPostProcess(thresh=0.3, box_thresh=0.46, max_candidates=1000, unclip_ratio=1.6,
                                             use_dilation=True)(scores[None, None], (120, 160))
        if not len(boxes) or min(likely) < 0.54:
            continue
        expected = sort(detector.filter_tag_det_res(boxes, (120, 160)))
        found, scores_found, count = DbBoxes.compute(attrs, scores)
        assert count[0] == len(expected)
        np.testing.assert_allclose(sorted(scores_found[:count[0]]), sorted(likely), atol=0.03)
        np.testing.assert_allclose(found[:count[0]], expected, atol=1)
        total += len(expected)
    assert total > 25


POINTS = np.array([[[20, 30], [120, 24], [124, 50], [22, 54]], [[60, 20], [80, 22], [78, 110], [58, 108]],
                   [[5, 5], [155, 5], [155, 12], [5, 12]], [[0, 0], [0, 0], [0, 0], [0, 0]]], np.float32)


def cuts() -> Program:
    return Program("cuts", {"points": "float32[4,4,2]", "count": "int64[1]", "picture": "uint8[120,160,3]"}, [
        Detection("text_lines", {"points": "points"}, {"matrices": "matrices", "rotated": "rotated", "masks": "masks",
                                                       "widths": "widths"}, {"size": list(SIZE)}),
        Loop("lines", [Image("warp_perspective", "picture", "cut", {"size": list(SIZE), "matrix": "place",
                                                                    "border": "replicate"}),
                       Image("warp_perspective", "picture", "turned", {"size": list(SIZE), "matrix": "back",
                                                                       "border": "replicate"})],
             4, count="count", for_each={"place": "matrices", "back": "rotated"},
             outputs={"lines": "cut", "upside_down": "turned"})],
        ["matrices", "rotated", "masks", "widths", "lines", "upside_down"])


def expected_matrix(points: np.ndarray, rotated: bool) -> tuple[np.ndarray, int]:
    """The matrix from pixels of a line to those of the picture, and the line's width, by solving equations."""
    across, down = (int(max(np.linalg.norm(points[a] - points[b]) for a, b in pairs))
                    for pairs in (((0, 1), (2, 3)), ((0, 3), (1, 2))))
    if down >= 1.5 * across:
        points, across, down = np.roll(points, -1, 0), down, across
    width = min(int(np.ceil(SIZE[0] * across / down)), SIZE[1])
    rows = []
    corners = ((0, 0), (across, 0), (across, down), (0, down))
    for (x, y), (u, v) in zip(corners, points.astype(np.float64), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    matrix = np.append(np.linalg.solve(rows, points.reshape(-1)), 1).reshape(3, 3)
    back = np.array([[-1, 0, across - 1], [0, -1, down - 1], [0, 0, 1]]) if rotated else np.eye(3)
    x, y = across / width, down / SIZE[0]
    return matrix @ back @ np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5], [0, 0, 1]]), width


def test_lines_are_cut_out(tmp_path):
    picture = np.random.default_rng(1).integers(0, 256, (15, 20, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    with tvm_megcc.load(cuts().compile(tmp_path / "cuts")) as session:
        found = session.run({"points": POINTS, "count": np.array([3]), "picture": picture})
    grid = np.stack([*np.meshgrid(np.arange(SIZE[1]), np.arange(SIZE[0])), np.ones(SIZE[::-1]).T], -1)
    for row in range(3):
        for name, crop, rotated in (("matrices", "lines", False), ("rotated", "upside_down", True)):
            matrix, width = expected_matrix(POINTS[row], rotated)
            assert found["widths"][row] == width == found["masks"][row].sum()
            moved, places = (grid @ m.T for m in (found[name][row].reshape(3, 3).astype(np.float64), matrix))
            np.testing.assert_allclose(moved[..., :2] / moved[..., 2:], places[..., :2] / places[..., 2:], atol=2e-3)
            try:
                import cv2
            except ImportError:
                continue
            theirs = cv2.warpPerspective(picture, found[name][row].reshape(3, 3).astype(np.float64), SIZE[::-1],
                                         flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE)
            assert np.abs(found[crop][row].astype(int) - theirs).max() <= _rounding(picture)
    assert not found["lines"][3].any() and np.isfinite(found["matrices"][3]).all()


def _rounding(picture: np.ndarray) -> int:
    """How far OpenCV's pixels may be: it rounds places to 1/32 of a pixel."""
    steps = [np.abs(np.diff(picture.astype(int), axis=axis)).max() for axis in (0, 1)]
    return 1 + int(sum(steps)) // 32


def test_hostile_maps_under_asan(tmp_path):
    """Generated C, from map to lines: no read or write beyond its memory, whatever the map has."""
    program = Program("hostile", {"map": "float32[40,56]", "picture": "uint8[80,112,1]"}, [
        Detection("db_boxes", {"map": "map"}, {"points": "points", "count": "count"}, {
            "most": 6, "picture": [80, 112]}),
        Detection("text_lines", {"points": "points"}, {"matrices": "matrices"}, {"size": [8, 24]}),
        Loop("lines", [Image("warp_perspective", "picture", "cut", {"size": [8, 24], "matrix": "place"})], 6,
             count="count", for_each={"place": "matrices"}, outputs={"lines": "cut"})], ["lines", "count"])
    folder, made = program.compile(tmp_path / "hostile"), tmp_path / "run"
    sources = [path for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
    subprocess.run([*find_compiler(native()).command, "-std=c99", "-O1", "-g", "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", *native().cflags, f"-I{folder}", f"-I{folder / 'runtime/include'}",
                    *map(str, sources), "-o", str(made), "-pthread"], check=True)
    random, records = np.random.default_rng(5), []
    for turn in range(400):
        scores = page(turn, 40, 56, (0, 0.3, 1.5))
        if turn % 4 == 1:
            scores[random.random(scores.shape) < 0.1] = random.choice([np.nan, np.inf, -np.inf, 3e38])
        elif turn % 4 == 2:
            scores = random.standard_normal(scores.shape).astype(np.float32)
        elif turn % 4 == 3:
            scores = random.integers(0, 1 << 32, scores.shape, np.uint32).view(np.float32)
        records += [scores.tobytes(), random.integers(0, 256, 80 * 112, np.uint8).tobytes()]
    data = subprocess.run([str(made), str(folder / "hostile.megcc")], input=b"".join(records), capture_output=True,
                          check=True).stdout
    counts = np.frombuffer(data, np.dtype([("lines", np.uint8, 6 * 8 * 24), ("count", np.int64)]))["count"]
    assert len(counts) == 400 and counts.min() >= 0 and counts.max() == 6
