# SPDX-License-Identifier: Apache-2.0
"""Inputs that nobody gave are drawn from what the model takes, as far as its operators say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.ranges import input_ranges
from tvm_megcc.runtime.session import Port
from tvm_megcc.tools import run

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
WORDS = np.arange(12, dtype=np.float32).reshape(4, 3)


def network(nodes, inputs, constants=None):
    """nodes: (operator, operands, result, attributes). The last result is the output."""
    made = [helper.make_node(kind, operands.split(), [result], **attributes)
            for kind, operands, result, attributes in nodes]
    values = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(made, "net", values, [onnx.ValueInfoProto(name=nodes[-1][2])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


IDS = {"ids": (INT64, [2, 5])}
RANGES = {
    "an embedding": ([("Gather", "w ids", "y", {})], IDS, {"w": WORDS}, {"ids": (0, 3)}),
    "moved and converted": (
        [("Cast", "ids", "a", {"to": INT32}), ("Reshape", "a shape", "b", {}), ("Unsqueeze", "b axes", "c", {}),
         ("Slice", "c first last", "d", {}), ("Gather", "w d", "y", {})],
        {"ids": (FLOAT, [2, 5])},
        {"w": WORDS, "shape": np.array([10]), "axes": np.array([0]), "first": np.array([0, 2]),
         "last": np.array([1, 7])}, {"ids": (0, 3)}),
    "shifted by padding": ([("Add", "ids one", "a", {}), ("Gather", "w a", "y", {})], IDS,
                           {"w": WORDS, "one": np.int64(1)}, {"ids": (-1, 2)}),
    "scaled": ([("Mul", "ids two", "a", {}), ("Gather", "w a", "y", {})], IDS, {"w": WORDS, "two": np.int64(2)},
               {"ids": (0, 1)}),
    "two tables": ([("Gather", "w ids", "a", {}), ("Gather", "v ids", "b", {}), ("Add", "a b", "y", {})], IDS,
                   {"w": WORDS, "v": WORDS[:2]}, {"ids": (0, 1)}),
    "lengths": ([("ReverseSequence", "x n", "y", {"time_axis": 0, "batch_axis": 1})],
                {"x": (FLOAT, [6, 2]), "n": (INT64, [2])}, {}, {"n": (0, 6)}),
    "a table of unknown extent": ([("Gather", "x ids", "y", {})], {"x": (FLOAT, ["n", 3]), **IDS}, {}, {"ids": (0, 0)}),
    "no index": ([("Add", "ids ids", "y", {})], IDS, {}, {}),
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
    nodes = [("ReduceMax", "ids", "a", {"axes": [1]}), ("Gather", "w a", "y", {})]
    session = tvm_megcc.load(tvm_megcc.compile(network(nodes, IDS, {"w": WORDS})).save(tmp_path / "net"))
    message = r"(?s)refused the values.*drawn at random.*Give 'ids': int64\[2,5\] as it wants them with --inputs"
    with pytest.raises(MegccError, match=message):
        run.run(session, repeat=1)
    np.savez(tmp_path / "in.npz", ids=np.full((2, 5), 9))
    with pytest.raises(MegccError) as error:
        run.run(session, str(tmp_path / "in.npz"), repeat=1)
    assert "drawn" not in str(error.value)
