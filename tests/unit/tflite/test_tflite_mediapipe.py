# SPDX-License-Identifier: Apache-2.0
"""Custom operators of MediaPipe's models, against LiteRT's operators that compute the same."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.tflite_files import Tensor, litert, written
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference

X, WEIGHTS = (1, 5, 4, 3), (2, 3, 2, 3)
DRAW = np.random.default_rng(3)
CONSTANTS = {"w": DRAW.standard_normal(WEIGHTS).astype(np.float32), "b": np.array([0.5, -2], np.float32)}


def imported(data: bytes, tmp_path):
    path = tmp_path / "custom.tflite"
    path.write_bytes(data)
    return import_tflite(path)


def custom(options: bytes, result: tuple[int, ...] = (1, 1, 1, 2)) -> bytes:
    return written({"x": X, **CONSTANTS, "y": Tensor(result)}, [
        (":Convolution2DTransposeBias", "", {}, ["x", "w", "b"], ["y"], {"custom": options})], ["x"], ["y"])


@pytest.mark.parametrize(("padding", "stride"), [(1, (2, 2)), (2, (2, 2)), (1, (3, 1)), (2, (1, 2))])
def test_transposed_convolution(padding: int, stride: tuple[int, int], tmp_path):
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    across, down = stride
    height, width = (5 * down, 4 * across) if padding == 1 else (4 * down + 3, 3 * across + 2)
    result = (1, height, width, 2)
    same = written(
        {"shape": np.array(result, np.int32), "x": X, **CONSTANTS, "y": result},
        [("TRANSPOSE_CONV", "TransposeConvOptions", {"Padding": padding - 1, "StrideW": across, "StrideH": down},
          ["shape", "w", "x", "b"], ["y"])], ["x"], ["y"])
    feeds = {"x": DRAW.standard_normal(X).astype(np.float32)}
    graph = imported(custom(struct.pack("<3i", padding, across, down), result), tmp_path)
    np.testing.assert_allclose(reference.run(graph, feeds)["y"], litert(same, feeds)["y"], atol=1e-5)


@pytest.mark.parametrize("options", [
    b"", b"\x01\x00\x00\x00", struct.pack("<3i", 3, 2, 2), struct.pack("<3i", 1, 0, 2)])
def test_damaged_options(options: bytes, tmp_path):
    with pytest.raises(ModelError, match=r"bytes of options|has padding"):
        imported(custom(options), tmp_path)
