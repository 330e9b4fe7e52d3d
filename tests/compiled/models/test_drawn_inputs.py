# SPDX-License-Identifier: Apache-2.0
"""Inputs that nobody gave are drawn from what the model takes, as far as its operators say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.ranges import input_ranges
from tvm_megcc.runtime.session import Port
from tvm_megcc.tools import run

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
WORDS = np.arange(12, dtype=np.float32).reshape(4, 3)


def network(nodes, inputs, constants=None):
    """The last result is the output, of whatever type it has."""
    return model(nodes, inputs, [onnx.ValueInfoProto(name=nodes[-1].output[0])], constants)


IDS = {"ids": (INT64, [2, 5])}
RANGES = {
    "an embedding": ([node("Gather", "w ids", "y")], IDS, {"w": WORDS}, {"ids": (0, 3)}),
    "moved and converted": (
        [node("Cast", "ids", "a", to=INT32), node("Reshape", "a shape", "b"), node("Unsqueeze", "b axes", "c"),
         node("Slice", "c first last", "d"), node("Gather", "w d", "y")],
        {"ids": (FLOAT, [2, 5])},
        {"w": WORDS, "shape": np.array([10]), "axes": np.array([0]), "first": np.array([0, 2]),
         "last": np.array([1, 7])}, {"ids": (0, 3)}),
    "shifted by padding": ([node("Add", "ids one", "a"), node("Gather", "w a", "y")], IDS,
                           {"w": WORDS, "one": np.int64(1)}, {"ids": (-1, 2)}),
    "scaled": ([node("Mul", "ids two", "a"), node("Gather", "w a", "y")], IDS, {"w": WORDS, "two": np.int64(2)},
               {"ids": (0, 1)}),
    "two tables": ([node("Gather", "w ids", "a"), node("Gather", "v ids", "b"), node("Add", "a b", "y")], IDS,
                   {"w": WORDS, "v": WORDS[:2]}, {"ids": (0, 1)}),
    "lengths": ([node("ReverseSequence", "x n", "y", time_axis=0, batch_axis=1)],
                {"x": (FLOAT, [6, 2]), "n": (INT64, [2])}, {}, {"n": (0, 6)}),
    "a table of unknown extent": ([node("Gather", "x ids", "y")], {"x": (FLOAT, ["n", 3]), **IDS}, {}, {"ids": (0, 0)}),
    "no index": ([node("Add", "ids ids", "y")], IDS, {}, {}),
}


@pytest.mark.parametrize("what", RANGES)
def test_ranges_follow_from_the_operators(what: str):
    nodes, inputs, constants, expected = RANGES[what]
    assert input_ranges(import_onnx(network(nodes, inputs, constants))) == expected


def test_what_the_model_takes_is_drawn(tmp_path):
    nodes, inputs, constants, _ = RANGES["shifted by padding"]
    session = tvm_megcc.load(tvm_megcc.compile(network(nodes, inputs, constants)).save(tmp_path / "net"))
    assert session.inputs == (Port("ids", "int64", (2, 5), (-1, 2)),)
    drawn = run.seeded(session.inputs)["ids"]
    assert set(drawn.flat) == {-1, 0, 1, 2}
    run.run(session, repeat=1)


def test_an_error_in_drawn_values_names_the_inputs_to_give(tmp_path):
    """The greatest of two ids is followed by nobody."""
    nodes = [node("ReduceMax", "ids", "a", axes=[1]), node("Gather", "w a", "y")]
    session = tvm_megcc.load(tvm_megcc.compile(network(nodes, IDS, {"w": WORDS})).save(tmp_path / "net"))
    message = r"(?s)refused the values.*random numbers.*Give valid values of 'ids': int64\[2,5\] with arrays="
    with pytest.raises(MegccError, match=message):
        run.run(session, repeat=1)
    np.savez(tmp_path / "in.npz", ids=np.full((2, 5), 9))
    with pytest.raises(MegccError) as error:
        run.run(session, str(tmp_path / "in.npz"), repeat=1)
    assert "random numbers" not in str(error.value)
