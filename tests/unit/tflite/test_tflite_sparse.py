# SPDX-License-Identifier: Apache-2.0
"""Sparse constants of TFLite files: what they stand for, against LiteRT, and what is wrong with damaged ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tflite_files import Quantized, Sparse, Tensor, litert, written
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.frontends.tflite.sparse import Level, dense
from tvm_megcc.runtime import reference

DRAW = np.random.default_rng(7)


def few(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    values = np.where(DRAW.random(shape) < 0.3, DRAW.integers(-99, 99, shape), 0)
    return values.astype(dtype)


LAYOUTS = {
    "rows": Sparse(few((5, 7)), [0, 1], [0]),
    "columns, all sparse": Sparse(few((5, 7)), [1, 0], wide=2),
    "four axes": Sparse(few((3, 1, 2, 9)), [0, 1, 2, 3], [0, 1, 2], wide=1),
    "blocks of one axis": Sparse(few((6, 8)), [0, 1, 2], [0], {1: 4}),
    "blocks of two axes": Sparse(few((4, 8)), [0, 1, 2, 3], [0], {0: 2, 1: 4}),
    "float16": Sparse(few((4, 6), "float16"), [0, 1], [0]),
    "nothing but zeros": Sparse(np.zeros((3, 4), np.float32), [0, 1], [0]),
}


def densified(constant: Sparse) -> bytes:
    dtype = constant.dtype
    operators = [("DENSIFY", "", {}, ["w"], ["v"])]
    if dtype == "float16":
        operators.append(("DEQUANTIZE", "", {}, ["v"], ["real"]))
    last = "real" if dtype == "float16" else "v"
    operators.append(("ADD", "AddOptions", {}, ["x", last], ["y"]))
    return written({"w": constant, "v": Tensor(constant.shape, dtype), "real": constant.shape, "x": constant.shape,
                    "y": constant.shape}, operators, ["x"], ["y"])


def imported(data: bytes, tmp_path):
    path = tmp_path / "sparse.tflite"
    path.write_bytes(data)
    return import_tflite(path)


@pytest.mark.parametrize("name", LAYOUTS)
def test_constants(name: str, tmp_path):
    """As an array, and as LiteRT reads it."""
    data, x = densified(LAYOUTS[name]), DRAW.standard_normal(LAYOUTS[name].shape).astype(np.float32)
    found = reference.run(imported(data, tmp_path), {"x": x})["y"]
    np.testing.assert_array_equal(found, x + LAYOUTS[name].array.astype(np.float32))
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    np.testing.assert_array_equal(found, litert(data, {"x": x})["y"])


def test_quantised_weights(tmp_path):
    """Without an operator between: LiteRT's sparse weights of a product, with a scale each row."""
    weights = few((16, 32), "int8")
    scales = np.linspace(0.01, 0.1, 16).tolist()
    sparse = Sparse(weights, [0, 1], [0], quantized=Quantized((16, 32), scales, 0, axis=0))
    tensors = {"x": Quantized((2, 32), 0.5, 3), "w": sparse, "v": Quantized((16, 32), scales, 0, axis=0),
               "y": Quantized((2, 16), 2.0, -5)}
    data = written(tensors, [("DENSIFY", "", {}, ["w"], ["v"]),
                             ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["x", "v", ""], ["y"])], ["x"], ["y"])
    x = DRAW.integers(-128, 128, (2, 32)).astype(np.int8)
    found = reference.run(imported(data, tmp_path), {"x": x})["y"]
    dense_data = written({**tensors, "v": Quantized((16, 32), scales, 0, array=weights)},
                         [("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["x", "v", ""], ["y"])], ["x"], ["y"])
    np.testing.assert_array_equal(found, reference.run(imported(dense_data, tmp_path), {"x": x})["y"])


ROWS = np.array([0, 1, 2]), np.array([1, 0])


@pytest.mark.parametrize(("change", "what"), [
    ({"order": [0, 0]}, "axes"), ({"order": [0]}, "axes"), ({"blocks": [2]}, "axes"), ({"levels": [Level(2)]}, "axes"),
    ({"levels": [Level(3), Level(0, *ROWS)]}, "size of an axis"),
    ({"levels": [Level(2), Level(0, ROWS[0], np.array([1, 3]))]}, "indices"),
    ({"levels": [Level(2), Level(0, ROWS[0], np.array([1, -1]))]}, "indices"),
    ({"levels": [Level(2), Level(0, np.array([0, 1, 3]), ROWS[1])]}, "segments"),
    ({"levels": [Level(2), Level(0, np.array([0, 3, 2]), ROWS[1])]}, "segments"),
    ({"levels": [Level(2), Level(0, np.zeros(0, int), ROWS[1])]}, "segments"),
    ({"values": np.zeros(3)}, "values"),
    ({"order": [0, 1, 2], "blocks": [1], "levels": [Level(2), Level(0, *ROWS), Level(2)]}, "blocks"),
    ({"order": [0, 1, 2], "blocks": [1], "levels": [Level(2), Level(0, *ROWS), Level(0)]}, "blocks"),
    ({"order": [0, 1, 2], "blocks": [1], "levels": [Level(2), Level(0, *ROWS), Level(0, *ROWS)]}, "blocks")])
def test_contradictions(change: dict, what: str):
    given = {"values": np.ones(2), "shape": (2, 3), "order": [0, 1], "blocks": [],
             "levels": [Level(2), Level(0, *ROWS)]}
    assert dense(**given).tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(ValueError, match=what):
        dense(**{**given, **change})


@pytest.mark.parametrize("shape", [(1 << 15, 1 << 15), (-1, -4)])
def test_a_small_file_of_many_zeros(shape: tuple[int, int], tmp_path):
    """Zeros take as much memory as numbers do: a file may have some times its own size of them."""
    data = densified(LAYOUTS["rows"])
    known = np.array(LAYOUTS["rows"].shape, np.int32).tobytes()
    assert known in data
    with pytest.raises(ModelError, match="more zeros than a file of this size may have"):
        imported(data.replace(known, np.array(shape, np.int32).tobytes()), tmp_path)
