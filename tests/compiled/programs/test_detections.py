# SPDX-License-Identifier: Apache-2.0
"""Steps between a detector and its boxes, compiled, beside loops in numpy with float64."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.tools.program.detections import FACE
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Detection, Image

pytestmark = pytest.mark.slow
ANCHORS = [[[0.1, 0.2], [0.3, 0.3]], [[0.5, 0.6]]]
SETTINGS = {"size": [64, 96], "strides": [8, 32]}
CELLS = 8 * 12 + 2 * 3


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def overlapping() -> tuple[np.ndarray, np.ndarray]:
    """Boxes and scores, of which some are equal and most overlap."""
    generator = np.random.default_rng(7)
    corner, size = generator.uniform(0, 60, (80, 2)), generator.uniform(8, 30, (80, 2))
    scores = generator.uniform(0, 1, (80, 3))
    scores[5] = scores[9]
    return np.concatenate([corner, corner + size], 1).astype(np.float32), scores.astype(np.float32)


def a_face(angle: float) -> np.ndarray:
    """The five points, turned, scaled, moved and each a little elsewhere."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (FACE @ turn.T * 0.7 + [60, 40] + np.random.default_rng(1).normal(0, 2, (5, 2))).astype(np.float32)


INPUTS = {
    "yolox": drawn(1, CELLS, 8), "rows": np.abs(drawn(1, 20, 9)), "columns": np.abs(drawn(1, 6, 30)),
    "offsets": drawn(1, 2 * 3 * 2 + 1, 4), "cls": drawn(1, CELLS, 1), "obj": drawn(1, CELLS, 1),
    "bbox": drawn(1, CELLS, 4), "kps": drawn(1, CELLS, 10), "boxes": overlapping()[0], "scores": overlapping()[1],
    "faint": overlapping()[1][:, 0] * 0.3, "points": a_face(0.4),
    "picture": np.random.default_rng(3).integers(0, 256, (120, 160, 3), np.uint8)}
STEPS = [
    Detection("yolox", {"results": "yolox"}, {"boxes": "a_boxes", "scores": "a_scores"}, SETTINGS),
    Detection("yolo", {"results": "rows"}, {"boxes": "b_boxes", "scores": "b_scores"}),
    Detection("yolo", {"results": "columns"}, {"boxes": "c_boxes", "scores": "c_scores"}, {"layout": "columns"}),
    Detection("ssd", {"offsets": "offsets"}, {"boxes": "d_boxes"}, {"maps": [[2, 3], [1, 1]], "anchors": ANCHORS,
                                                                    "order": "yx"}),
    Detection("yunet", {"classes": "cls", "objects": "obj", "boxes": "bbox", "points": "kps"},
              {"boxes": "e_boxes", "scores": "e_scores", "points": "e_points"}, SETTINGS),
    Detection("nms", {"boxes": "boxes", "scores": "scores"},
              {"boxes": "f_boxes", "scores": "f_scores", "classes": "f_classes", "indices": "f_indices",
               "count": "f_count"}, {"most": 30, "overlap": 0.4, "least": 0.2}),
    Detection("nms", {"boxes": "boxes", "scores": "faint"}, {"boxes": "g_boxes", "scores": "g_scores",
                                                            "count": "g_count"}, {"most": 9, "least": 0.5}),
    Detection("unletterbox", {"places": "boxes"}, {"places": "h"}, {"size": [64, 96], "picture": [300, 200]}),
    Detection("unletterbox", {"places": "boxes"}, {"places": "placed"}, {"size": [64, 96], "picture": [300, 200],
                                                                   "align": "start"}),
    Detection("five_points", {"points": "points"}, {"matrix": "j"}, {"size": [112, 112]}),
    Image("warp_affine", "picture", "cut", {"size": [112, 112], "matrix": "j"}),
    Image("letterbox", "picture", "boxed", {"size": [64, 64], "align": "start", "value": [114, 114, 114]})]
OUTPUTS = [name for step in STEPS for name in step.produced]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    types = {name: f"{value.dtype}[{','.join(map(str, value.shape))}]" for name, value in INPUTS.items()}
    program = Program("boxes", types, STEPS, OUTPUTS)
    with tvm_megcc.load(program.compile(tmp_path_factory.mktemp("boxes") / "boxes")) as session:
        session.run(INPUTS)
        return session.run(INPUTS)


def near(found: np.ndarray, expected) -> None:
    np.testing.assert_allclose(found, np.array(expected, np.float64), rtol=1e-5, atol=1e-4)


def box(x: float, y: float, width: float, height: float) -> list[float]:
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def cells() -> list[tuple[int, int, int]]:
    """Column, row and stride, row by row."""
    return [(column, row, stride) for stride in (8, 32) for row in range(64 // stride)
            for column in range(96 // stride)]


def test_yolox(found):
    rows = INPUTS["yolox"][0].astype(np.float64)
    near(found["a_boxes"], [box((row[0] + x) * stride, (row[1] + y) * stride, np.exp(row[2]) * stride,
                                np.exp(row[3]) * stride) for row, (x, y, stride) in zip(rows, cells(), strict=True)])
    near(found["a_scores"], rows[:, 5:] * rows[:, 4:5])


def test_yolo_of_rows_and_columns(found):
    rows = INPUTS["rows"][0].astype(np.float64)
    near(found["b_boxes"], [box(*row[:4]) for row in rows])
    near(found["b_scores"], rows[:, 5:] * rows[:, 4:5])
    columns = INPUTS["columns"][0].T
    near(found["c_boxes"], [box(*row[:4]) for row in columns.astype(np.float64)])
    np.testing.assert_array_equal(found["c_scores"], columns[:, 4:])


def test_ssd(found):
    expected, at = [], iter(INPUTS["offsets"][0].astype(np.float64))
    for (rows, columns), shapes in zip(((2, 3), (1, 1)), ANCHORS, strict=True):
        for row in range(rows):
            for column in range(columns):
                for width, height in shapes:
                    dy, dx, dh, dw = next(at)
                    expected.append(box((column + 0.5) / columns + dx * 0.1 * width,
                                        (row + 0.5) / rows + dy * 0.1 * height,
                                        width * np.exp(0.2 * dw), height * np.exp(0.2 * dh)))
    near(found["d_boxes"], expected)


def test_yunet(found):
    both = [np.clip(INPUTS[name][0, :, 0].astype(np.float64), 0, 1) for name in ("cls", "obj")]
    near(found["e_scores"][:, 0], np.sqrt(both[0] * both[1]))
    rows = INPUTS["bbox"][0].astype(np.float64)
    near(found["e_boxes"], [box((row[0] + x) * stride, (row[1] + y) * stride, np.exp(row[2]) * stride,
                                np.exp(row[3]) * stride) for row, (x, y, stride) in zip(rows, cells(), strict=True)])
    near(found["e_points"], [[(value + (x, y)[at % 2]) * stride for at, value in enumerate(row)]
                             for row, (x, y, stride) in zip(INPUTS["kps"][0], cells(), strict=True)])


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = max(sides[0], 0.0) * max(sides[1], 0.0)
    areas = [np.prod(each[2:] - each[:2]) for each in (one, other)]
    return shared / (sum(areas) - shared)


def suppressed(boxes: np.ndarray, scores: np.ndarray, most: int, limit: float, least: float
               ) -> list[tuple[float, int, int]]:
    """Score, class and box of what is kept, by falling score."""
    kept = []
    for class_ in range(scores.shape[1]):
        own: list[int] = []
        for at in np.argsort(-scores[:, class_], kind="stable"):
            if scores[at, class_] >= least and all(overlap(boxes[at], boxes[each]) <= limit for each in own):
                own.append(int(at))
        kept += [(scores[at, class_], class_, at) for at in own[:most]]
    return sorted(kept, key=lambda each: (-each[0], each[1], each[2]))[:most]


def test_suppression_is_greedy_in_each_class(found):
    boxes, scores = overlapping()
    kept = suppressed(boxes.astype(np.float64), scores, 30, 0.4, 0.2)
    assert len(kept) == 30 == found["f_count"].item()
    np.testing.assert_array_equal(found["f_scores"], [score for score, _, _ in kept])
    np.testing.assert_array_equal(found["f_classes"], [class_ for _, class_, _ in kept])
    np.testing.assert_array_equal(found["f_indices"], [at for _, _, at in kept])
    np.testing.assert_array_equal(found["f_boxes"], [boxes[at] for _, _, at in kept])


def test_nothing_is_found_below_the_least_score(found):
    assert found["g_count"].item() == 0
    assert not found["g_scores"].any()
    assert not found["g_boxes"].any()


def test_boxes_before_a_letterbox(found):
    boxes = overlapping()[0].astype(np.float64)
    # 300 by 200 in 64 by 96 is 64 by 43, 26 columns from the left
    for name, left in (("h", 26), ("placed", 0)):
        expected = (boxes - [left, 0] * 2) * ([200 / 43, 300 / 64] * 2)
        near(found[name], np.clip(expected, 0, [200, 300] * 2))
    assert (found["boxed"][48:] == 114).all()
    assert not (found["boxed"][:48] == 114).all()


def test_a_face_is_cut_out_by_five_points(found):
    """The least squares by a singular value decomposition, inverted, and OpenCV's warp."""
    points = INPUTS["points"].astype(np.float64)
    own, target = points - points.mean(0), FACE - FACE.mean(0)
    u, sizes, v = np.linalg.svd(target.T @ own / 5)
    turn, scale = u @ v, sizes.sum() / (own**2).sum() * 5
    assert np.linalg.det(turn) > 0
    forward = np.eye(3)
    forward[:2, :2], forward[:2, 2] = scale * turn, FACE.mean(0) - scale * turn @ points.mean(0)
    near(found["j"].reshape(2, 3), np.linalg.inv(forward)[:2])
    cv2 = pytest.importorskip("cv2")
    cut = cv2.warpAffine(INPUTS["picture"], np.linalg.inv(forward)[:2], (112, 112),
                         flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    assert np.abs(cut.astype(int) - found["cut"]).max() <= 1
