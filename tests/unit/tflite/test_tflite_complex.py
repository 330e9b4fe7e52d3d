# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of TFLite files, and what becomes of complex numbers, against LiteRT's kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tflite_files import Tensor, litert, written
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def complex_(*shape: int) -> Tensor:
    return Tensor(shape, "complex64")


def transformed(shape: tuple[int, ...], lengths: tuple[int, int], operators: list, tensors: dict, outputs: list[str]) \
        -> bytes:
    """A file that transforms x, to z."""
    lines = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    return written({"x": shape, "lengths": np.array(lengths, np.int32), "z": complex_(*lines), **tensors},
                   [("RFFT2D", "Rfft2dOptions", {}, ["x", "lengths"], ["z"]), *operators], ["x"], outputs)


def require_equal(data: bytes, shape: tuple[int, ...], path) -> None:
    path.write_bytes(data)
    x = np.random.default_rng(len(data)).standard_normal(shape).astype(np.float32)
    found, wanted = reference.run(import_tflite(path), {"x": x}), litert(data, {"x": x})
    for name, expected in wanted.items():
        assert found[name].shape == expected.shape
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1))


@pytest.mark.parametrize("shape, lengths", [((1, 16), (1, 16)), ((2, 3, 1, 512), (1, 512)), ((2, 4, 8), (4, 8)),
                                            ((5, 21), (8, 16)), ((3, 11), (2, 32))], ids=str)
def test_parts(shape, lengths, tmp_path):
    """Lines that are as long as the transform, longer and shorter."""
    lines = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    kinds = {"REAL": "", "IMAG": "", "COMPLEX_ABS": "", "CAST": "CastOptions"}
    operators = [(kind, options, {}, ["z"], [kind.lower()]) for kind, options in kinds.items()]
    tensors = {kind.lower(): lines for kind in kinds}
    require_equal(transformed(shape, lengths, operators, tensors, list(tensors)), shape, tmp_path / "one.tflite")


def test_moves(tmp_path):
    """Spectra of several frames, turned and cut before their magnitude is taken."""
    shape = (3, 1, 16)
    tensors = {"s": complex_(3, 9), "t": complex_(9, 3), "c": complex_(4, 3), "both": complex_(8, 3), "y": (8, 3),
               **{name: np.array(pair, np.int32)
                  for name, pair in (("perm", (1, 0)), ("begin", (2, 0)), ("size", (4, 3)))}}
    operators = [("SQUEEZE", "SqueezeOptions", {"SqueezeDims": np.array([1], np.int32)}, ["z"], ["s"]),
                 ("TRANSPOSE", "", {}, ["s", "perm"], ["t"]), ("SLICE", "", {}, ["t", "begin", "size"], ["c"]),
                 ("CONCATENATION", "ConcatenationOptions", {"Axis": 0}, ["c", "c"], ["both"]),
                 ("COMPLEX_ABS", "", {}, ["both"], ["y"])]
    path = tmp_path / "one.tflite"
    path.write_bytes(transformed(shape, (1, 16), operators, tensors, ["y"]))
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    part = np.abs(np.fft.rfft(x[:, 0])).T[2:6]
    (found,) = reference.run(import_tflite(path), {"x": x}).values()
    np.testing.assert_allclose(found, np.concatenate([part, part]), atol=1e-4)


REFUSED = {
    "an output": ([], {}, "z", "complex numbers are no output"),
    "a sum": ([("ADD", "AddOptions", {}, ["z", "z"], ["y"])], {"y": complex_(1, 9)}, "y", "not supported for complex"),
    "a cast to complex": ([("CAST", "CastOptions", {}, ["z"], ["y"])], {"y": complex_(1, 9)}, "y",
                          "gives complex64 of complex numbers"),
    "a real move": ([("SQUEEZE", "SqueezeOptions", {}, ["z"], ["y"])], {"y": (9,)}, "y", "float32 by the file"),
    "a real that is called complex": ([("NEG", "", {}, ["x"], ["y"])], {"y": complex_(1, 16)}, "y",
                                      "complex64.* by the file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path):
    operators, tensors, output, message = REFUSED[name]
    path = tmp_path / "one.tflite"
    path.write_bytes(transformed((1, 16), (1, 16), operators, tensors, [output]))
    with pytest.raises(ModelError, match=message):
        import_tflite(path)


@pytest.mark.parametrize("lengths", [(1, 12), (0, 16), (1, -4)], ids=str)
def test_lengths_that_are_none(lengths, tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(transformed((1, 16), (1, 16), [("REAL", "", {}, ["z"], ["y"])], {
        "y": (1, 9), "lengths": np.array(lengths, np.int32)}, ["y"]))
    with pytest.raises(ModelError, match="lengths that are powers of two"):
        import_tflite(path)
