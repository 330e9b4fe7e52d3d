# SPDX-License-Identifier: Apache-2.0
"""Quantised operators of the TFLite reader, in random files of one: the bits of LiteRT's reference kernels."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from tests.tflite_draws import FILES, FOUND, KEPT, OTHERS, Draw
from tests.tflite_files import Quantized, litert, written
from tests.tflite_hybrid_draws import FLOATS
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.frontends.tflite.quantized.hybrid import HYBRID_IMPORTERS
from tvm_megcc.frontends.tflite.quantized.importers import INT16_IMPORTERS, MOVES, QUANTISED_IMPORTERS
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

#: Files of each operator; more with $MEGCC_RANDOM_TFLITE.
COUNT = int(os.environ.get("MEGCC_RANDOM_TFLITE", "8"))


def test_every_operator_has_files():
    """The others: tests/tflite_cases.py."""
    assert set(FILES) | KEPT <= set(QUANTISED_IMPORTERS) and not set(FILES) & {*MOVES}
    assert set(HYBRID_IMPORTERS) - KEPT == set(FLOATS)


def checked(kind: str, seed: int, file_of: Callable[[Draw], bytes], path, dtype: str = "",
            drawn: type[Draw] = Draw) -> None:
    """One file: integers to the bit; floats as far as sums of them are in the same order."""
    draw = drawn(kind, seed)
    draw.dtype = dtype or draw.dtype
    path.write_bytes(file_of(draw))
    feeds = draw.feeds()
    expected = litert(path.read_bytes(), feeds, optimised=kind in OTHERS and draw.dtype != "uint8")
    found = reference.run(import_tflite(path), feeds)
    if kind == "CUSTOM TFLite_Detection_PostProcess":  # LiteRT leaves rows as they are behind the last one
        rows = int(expected["many"][0]) * draw.rows
        expected, found = ({name: array[:, :rows] if array.ndim > 1 else array for name, array in results.items()}
                           for results in (expected, found))
    for name, wanted in expected.items():
        assert found[name].dtype == wanted.dtype
        message = f"{kind}, file {seed}: {draw.tensors}"
        if wanted.dtype == np.float32:
            limit = 1e-5 * max(np.abs(wanted).max(initial=0), 1)
            np.testing.assert_allclose(found[name], wanted, atol=limit, rtol=0, err_msg=message)
        else:
            np.testing.assert_array_equal(found[name], wanted, err_msg=message)


@pytest.mark.parametrize("kind", FILES)
def test_operator(kind: str, tmp_path):
    for seed in (*range(COUNT), *FOUND.get(kind, ())):
        checked(kind, seed, FILES[kind], tmp_path / "one.tflite")


@pytest.mark.parametrize("kind", FLOATS)
def test_operator_on_floats(kind: str, tmp_path):
    for seed in range(COUNT):
        checked(kind, seed, FLOATS[kind], tmp_path / "one.tflite")


@pytest.mark.parametrize("kind", sorted(
    {*INT16_IMPORTERS} & {*FILES} - {"UNIDIRECTIONAL_SEQUENCE_LSTM", "EQUAL", *KEPT}))
def test_operator_of_16_bits(kind: str, tmp_path):
    """But for EQUAL, which is NOT_EQUAL turned round: LiteRT crashes in some."""
    for seed in range(COUNT):
        checked(kind, seed, FILES[kind], tmp_path / "one.tflite", "int16")


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
def test_shifted_sums(kind: str, tmp_path):
    """Of 16 bits with scales that are powers of two."""
    for shifts in ((0, -3), (-1, 0), (0, 0), (-7, 0)):
        def shifted(draw: Draw, shifts=shifts) -> bytes:
            for name, shift in zip(("x0", "x1", "y"), (*shifts, 0), strict=True):
                draw.add(name, (3, 50), 2.0**(shift - 9))
            return draw.file(f"{kind.title()}Options", {"FusedActivationFunction": 1}, ["x0", "x1"], ["y"])

        checked(kind, 1, shifted, tmp_path / "one.tflite", "int16")


def test_steps_beyond_16_bits_are_the_limit(tmp_path):
    def leaky(draw: Draw) -> bytes:
        draw.add("x", (300,), 0.5)
        draw.add("y", (300,), 0.125)
        return draw.file("LeakyReluOptions", {"Alpha": 0.9}, ["x"], ["y"])

    checked("LEAKY_RELU", 1, leaky, tmp_path / "one.tflite", "int16")


@pytest.mark.parametrize(("scale", "result_scale"), [(0.5, 1.0), (0.5, 0.37), (1e-4, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_numbers_of_int32_in_another_scale(scale, result_scale, dtype, tmp_path):
    """All that int32 has: LiteRT's reference kernel wraps where a scale makes them larger."""
    x = np.array([[-2**31, -100000, -300, -1, 0, 1, 7, 300, 100000, 2**31 - 1]], np.int32)
    for zero_point in (0, 3):
        tensors = {"x": Quantized((1, 10), scale, 0, "int32"),
                   "y": Quantized((1, 10), result_scale, zero_point if dtype == "int8" else 0, dtype)}
        data = written(tensors, [("QUANTIZE", "QuantizeOptions", {}, ["x"], ["y"])], ["x"], ["y"])
        path = tmp_path / "quantize.tflite"
        path.write_bytes(data)
        np.testing.assert_array_equal(reference.run(import_tflite(path), {"x": x})["y"], litert(data, {"x": x})["y"])


def test_gelu_halfway_between_two_numbers(tmp_path):
    """172 / 32 gives 21.5 but for rounding, of which float32 has more than float64."""
    path = tmp_path / "gelu.tflite"
    tensors = {"x": Quantized((256,), 0.03125, 0, "uint8"), "y": Quantized((256,), 0.25, 0, "uint8")}
    path.write_bytes(written(tensors, [("GELU", "GeluOptions", {"Approximate": False}, ["x"], ["y"])], ["x"], ["y"]))
    feeds = {"x": np.arange(256, dtype=np.uint8)}
    expected, found = litert(path.read_bytes(), feeds), reference.run(import_tflite(path), feeds)
    assert expected["y"][172] == 21
    np.testing.assert_array_equal(found["y"], expected["y"])
