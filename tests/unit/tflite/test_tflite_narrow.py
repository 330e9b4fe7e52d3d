# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 and 2 bits in TFLite files, with a scale for all, for each channel or for each block of a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tvm_megcc
from tests.tflite_draws import FILES, Draw
from tests.tflite_files import Quantized, litert, written
from tests.unit.tflite.test_tflite_quantised import checked
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.frontends.tflite.importer import import_tflite
from tvm_megcc.runtime import reference
from tvm_megcc.tools import compare

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

#: Rows, inputs, outputs, numbers of a block.
PRODUCTS = [(1, 64, 8, 32), (3, 128, 5, 64), (2, 96, 4, 16), (4, 512, 33, 128), (3, 256, 16, 256), (2, 80, 9, 16)]


class Narrow(Draw):
    """Draws files with weights of 4 bits."""

    def weights(self, shape, axis: int, x: Quantized) -> list[float]:
        scales = super().weights(shape, axis, x)
        w = self.tensors["w"]
        self.tensors["w"] = replace(w, dtype="int4", array=w.array >> 4)
        return scales


def in_blocks(shape: tuple[int, int], size: int, seed: int = 0, bits: int = 4, zeros: bool = False) -> dict:
    """Weights of `bits` bits, w, and the scales of their blocks, s; zeros: with zero points, z."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-1 << bits - 1, 1 << bits - 1, shape).astype(np.int8)
    blocks = (shape[0], max(shape[1] // max(size, 1), 1))
    points = {"z": np.ones(blocks, np.int32)} if zeros else {}
    return {"s": random.uniform(0.01, 0.1, blocks).astype(np.float16), **points,
            "w": Quantized(shape, 1.0, dtype=f"int{bits}", array=numbers, blocks=("s", "z" if zeros else "", size))}


def dense(rows: int, inputs: int, outputs: int, block: int, activation: int = 0, bias: bool = True, **more) -> bytes:
    """FULLY_CONNECTED of floats with weights in blocks."""
    b = {"b": np.random.default_rng(1).standard_normal(outputs).astype(np.float32)} if bias else {}
    fields = {"FusedActivationFunction": activation}
    return written({"x": (rows, inputs), **in_blocks((outputs, inputs), block, inputs, **more), **b,
                    "y": (rows, outputs)},
                   [("FULLY_CONNECTED", "FullyConnectedOptions", fields, ["x", "w", "b" if bias else ""], ["y"])],
                   ["x"], ["y"])


def lookup(columns: int, block: int, bits: int) -> bytes:
    return written({"rows": np.array([3, 0, 3, 6], np.int32), **in_blocks((7, columns), block, bits, bits),
                    "y": (4, columns)}, [("EMBEDDING_LOOKUP", "", {}, ["rows", "w"], ["y"])], [], ["y"])


@pytest.mark.parametrize(("kind", "dtype"), [("CONV_2D", "int8"), ("DEPTHWISE_CONV_2D", "int8"),
                                             ("FULLY_CONNECTED", "int8"), ("FULLY_CONNECTED", "int16")])
def test_quantised_products(kind: str, dtype: str, tmp_path):
    for seed in range(8):
        checked(kind, seed, FILES[kind], tmp_path / "one.tflite", dtype, Narrow)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("bias", [True, False])
def test_products_in_blocks(product: tuple[int, ...], bias: bool, tmp_path):
    """LiteRT's kernel, which only its optimised set has, subtracts the ends of the range of x in float32 and its source
    for other CPUs in float64: a scale differs in the last bit."""
    path = tmp_path / "blocks.tflite"
    path.write_bytes(dense(*product, bias=bias))
    feeds = {"x": np.random.default_rng(2).standard_normal(product[:2]).astype(np.float32)}
    found = reference.run(import_tflite(path), feeds)["y"]
    expected = litert(path.read_bytes(), feeds, optimised=True)["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-7 * np.abs(expected).max())


@pytest.mark.parametrize("columns, block, bits", [(64, 32, 4), (64, 8, 4), (48, 16, 2)])
def test_lookup_in_blocks(columns: int, block: int, bits: int, tmp_path):
    path = tmp_path / "blocks.tflite"
    path.write_bytes(lookup(columns, block, bits))
    np.testing.assert_array_equal(reference.run(import_tflite(path), {})["y"], litert(path.read_bytes(), {})["y"])


def test_dequantised_and_gathered(tmp_path):
    """Weights that are constants of floats but for their bits, and rows of them."""
    path = tmp_path / "rows.tflite"
    numbers = np.arange(30, dtype=np.int8).reshape(6, 5) % 16 - 8
    w = Quantized((6, 5), [0.5, 0.25, 1.5, 2, 3, 0.1], 0, "int4", 0, numbers)
    path.write_bytes(written({"w": w, "y": (6, 5)}, [("DEQUANTIZE", "", {}, ["w"], ["y"])], [], ["y"]))
    np.testing.assert_array_equal(reference.run(import_tflite(path), {})["y"], litert(path.read_bytes(), {})["y"])
    whole = replace(w, scale=0.5)
    tensors = {"w": whole, "at": np.array([2, 0, 5], np.int32), "r": replace(whole, shape=(3, 5), array=None),
               "y": (3, 5)}
    path.write_bytes(written(tensors, [("GATHER", "GatherOptions", {}, ["w", "at"], ["r"]),
                                       ("DEQUANTIZE", "", {}, ["r"], ["y"])], [], ["y"]))
    np.testing.assert_array_equal(reference.run(import_tflite(path), {})["y"], numbers[[2, 0, 5]] * np.float32(0.5))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "native"])
def test_compiled(target: str, tmp_path):
    """Of an open number of rows, with bits equal to the numpy definition's; 4 bits stay packed."""
    path = tmp_path / "blocks.tflite"
    path.write_bytes(dense(1, 512, 96, 64, activation=1))
    artifact = tvm_megcc.compile(path, target, dispatch="x[0]=1..7")
    assert len(artifact.container) < 96 * 512 * 0.6
    graph = import_tflite(path, {"x": ("rows", 512)})
    with tvm_megcc.load(artifact) as session:
        for rows in (1, 2, 7):
            feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 512)).astype(np.float32)}
            np.testing.assert_array_equal(session.run(feeds)["y"], reference.run(graph, feeds)["y"])
            assert session.run(feeds)["y"].min() == 0


@pytest.mark.parametrize("data, message", [
    (lambda: dense(2, 60, 4, 20), "blocks of 20 numbers are not supported; those of 16, and multiples of 32, are"),
    (lambda: dense(2, 60, 4, 32), r"'w' of \[4, 60\] has no scales for rows in blocks of 32 numbers"),
    (lambda: dense(2, 64, 4, 0), "has no scales for rows in blocks of 0 numbers"),
    (lambda: dense(2, 64, 4, 32, zeros=True), "'w' has a zero point for each block of its numbers"),
    (lambda: written({**in_blocks((4, 64), 32), "y": (4, 64)}, [("ABS", "", {}, ["w"], ["y"])], [], ["y"]),
     "has a scale for each block of its numbers, which is supported for weights of FULLY_CONNECTED and"),
    (lambda: written({"x": Quantized((4,), 1.0, dtype="int4"), "y": (4,)}, [("DEQUANTIZE", "", {}, ["x"], ["y"])],
                     ["x"], ["y"]), "input 'x': has element type int4"),
    (lambda: written({"x": (4,), "y": Quantized((4,), 1.0, dtype="int4")},
                     [("QUANTIZE", "QuantizeOptions", {}, ["x"], ["y"])], ["x"], ["y"]),
     "numbers of 4 bits are supported as constants and where they are moved"),
])
def test_refused(data, message: str, tmp_path):
    path = tmp_path / "blocks.tflite"
    path.write_bytes(data())
    with pytest.raises(ModelError, match=message):
        import_tflite(path)


def test_constants_of_another_size(tmp_path):
    path = tmp_path / "short.tflite"
    w = Quantized((2, 9), 1.0, dtype="int4", array=np.ones((2, 8), np.int8))
    path.write_bytes(written({"w": w, "y": (2, 9)}, [("DEQUANTIZE", "", {}, ["w"], ["y"])], [], ["y"]))
    with pytest.raises(ModelError, match="'w' has 18 numbers of 4 bits, and its constant has 8 bytes"):
        import_tflite(path)


def test_comparison(tmp_path):
    """LiteRT's reference kernels take a scale of 0 for weights in blocks."""
    path = tmp_path / "blocks.tflite"
    path.write_bytes(dense(1, 64, 4, 32))
    assert compare.default_reference(path) == "numpy"
    with pytest.raises(MegccError, match="lack FULLY_CONNECTED with scales for blocks of its weights"):
        compare.litert_values(path, {}, ["y"])
