# SPDX-License-Identifier: Apache-2.0
"""TFLite's random operators draw by an input of the network, whatever seeds the file gives them."""

import numpy as np
import pytest

from tests.tflite_files import Tensor, written
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference

RANDOM = "RandomOptions", {"Seed": 3, "Seed2": 4}


def network(tmp_path, operators, results, inputs=(), constants=None):
    tensors = {**{name: Tensor(shape) for name, shape in inputs}, **(constants or {}), **results}
    path = tmp_path / "drawn.tflite"
    path.write_bytes(written(tensors, [(kind, *RANDOM, read, [made]) for kind, read, made in operators],
                             [name for name, _ in inputs], list(results)))
    return import_tflite(path)


def test_uniform_and_normal(tmp_path):
    drawn = {"seed": "RANDOM_UNIFORM", "y": "RANDOM_STANDARD_NORMAL", "z": "RANDOM_UNIFORM"}
    graph = network(tmp_path, [(kind, ["n"], name) for name, kind in drawn.items()],
                    {name: Tensor((40, 50)) for name in drawn}, constants={"n": np.array([40, 50], np.int32)})
    # A tensor of the file has the name already.
    assert list(graph.inputs) == ["seed_2"] and list(graph.outputs) == ["seed", "y", "z"]
    first, again, other = (reference.run(graph, {"seed_2": np.array(seed)}) for seed in (5, 5, 6))
    for name, mean, deviation in (("seed", 0.5, 12**-0.5), ("y", 0, 1), ("z", 0.5, 12**-0.5)):
        np.testing.assert_array_equal(first[name], again[name])
        assert (first[name] != other[name]).mean() > 0.99
        assert first[name].dtype == np.float32 and first[name].shape == (40, 50)
        assert abs(first[name].mean() - mean) < 0.1 and abs(first[name].std() - deviation) < 0.05
    assert 0 <= first["z"].min() and first["z"].max() < 1 and (first["z"] != first["seed"]).mean() > 0.99


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_multinomial(tmp_path, dtype):
    graph = network(tmp_path, [("MULTINOMIAL", ["x", "n"], "y")], {"y": Tensor((2, 4000), dtype)}, [("x", (2, 3))],
                    {"n": np.array(4000, np.int32)})
    weights = np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]])
    with np.errstate(divide="ignore"):
        feeds = {"x": np.log(weights).astype(np.float32), "seed": np.array(1)}
    drawn = reference.run(graph, feeds)["y"]
    assert drawn.dtype == dtype
    for row, shares in zip(drawn, weights, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / row.size, shares, atol=0.03)


def test_what_is_no_float32(tmp_path):
    with pytest.raises(ModelError, match="random numbers of float16 are not supported"):
        network(tmp_path, [("RANDOM_UNIFORM", ["n"], "y")], {"y": Tensor((3,), "float16")},
                constants={"n": np.array([3], np.int32)})
