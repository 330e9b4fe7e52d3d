# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs in the ONNX front end: names, outputs and constants that the user chooses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.masks import input_masks
from tvm_megcc.runtime import reference


def test_outputs_have_their_names():
    """Also where an output is a constant, an input, or the same value as another one."""
    nodes = [node("Identity", "x", "same"), node("Relu", "x", "r"), node("Identity", "r", "again"),
             node("Shape", "x", "shape")]
    graph = import_onnx(model(nodes, {"x": [2]}, ["same", "r", "again", "shape"]))
    assert graph.outputs == ("same", "r", "again", "shape")
    x = np.array([-1, 1], np.float32)
    results = reference.run(graph, {"x": x})
    np.testing.assert_array_equal(results["same"], x)
    np.testing.assert_array_equal(results["again"], results["r"])
    assert results["shape"].tolist() == [2]


@pytest.mark.parametrize("name", ["a.arg_max", "a.equal", "a.constant", "a.cast", "x.value", "w.value"])
def test_outputs_are_not_mistaken_for_what_operators_made(name):
    """An output may have a name that an importer gave a value of its own."""
    nodes = [node("Hardmax", "x", "a", axis=0), node("Neg", "a", name)]
    graph = import_onnx(model(nodes, {"x": [4]}, {"w": [1], name: [4]}, {"w": np.float32([1])}))
    assert len({output for op in graph.ops for output in op.outputs}) == sum(len(op.outputs) for op in graph.ops)
    results = reference.run(graph, {"x": np.float32([1, 4, 2, 3])})
    np.testing.assert_array_equal(results[name], [0, -1, 0, 0])
    np.testing.assert_array_equal(results["w"], [1])


def test_chosen_outputs():
    proto = model([node("Relu", "x", "h"), node("Neg", "h", "y")], {"x": [2]}, ["y"])
    graph = import_onnx(proto, output_names=["h"])
    assert graph.outputs == ("h",) and [op.kind for op in graph.ops] == ["relu"]
    with pytest.raises(ModelError, match="nothing in the model produces it"):
        import_onnx(proto, output_names=["z"])


def test_a_model_that_lists_no_outputs():
    proto = model([node("Relu", "x", "h"), node("Neg", "h", "y")], {"x": [2]}, ["y"])
    proto.graph.output[0].name = "end"
    with pytest.raises(ModelError, match="output 'end': nothing in the model produces it; output_names takes others, "
                                         "such as y"):
        import_onnx(proto)
    del proto.graph.output[:]
    with pytest.raises(ModelError, match='lists no outputs; choose some of its values, such as output_names="y"'):
        import_onnx(proto)
    assert import_onnx(proto, output_names=["y"]).outputs == ("y",)
    del proto.graph.node[:]
    with pytest.raises(ModelError, match="no graph with outputs"):
        import_onnx(proto)


def test_a_cut_model_has_the_inputs_that_it_needs():
    proto = model([node("Relu", "a", "h"), node("Add", "h b", "y")], {"a": [2], "b": [2]}, ["y"])
    assert import_onnx(proto, output_names=["h"]).inputs == ("a",)
    assert import_onnx(proto, output_names=["b", "h"], input_shapes={"b": (2,)}).inputs == ("a", "b")
    unused = model([node("Relu", "a", "y")], {"a": [2], "b": [2]}, ["y"])
    assert import_onnx(unused).inputs == ("a", "b")


def scaled_by(dtype: int, shape: list) -> onnx.ModelProto:
    return model([node("Mul", "x factor", "y")], {"x": (dtype, [2, 3]), "factor": (dtype, shape)},
                 {"y": (dtype, [2, 3])})


@pytest.mark.parametrize(("dtype", "shape", "value"), [
    (TensorProto.FLOAT, [], 0.1), (TensorProto.INT64, [3], 7), (TensorProto.INT64, [3], [1, 2, 3])])
def test_an_input_can_be_a_constant(dtype, shape, value):
    graph = import_onnx(scaled_by(dtype, shape), constants={"factor": value})
    assert graph.inputs == ("x",)
    x = np.ones((2, 3), helper.tensor_dtype_to_np_dtype(dtype))
    np.testing.assert_array_equal(reference.run(graph, {"x": x})["y"], np.asarray(value, x.dtype) * x)


@pytest.mark.parametrize(("constants", "message"), [
    ({"rate": 1}, "constants names rate, but the inputs are: x, factor"),
    ({"factor": 0.5}, "cannot hold the constant 0.5"), ({"factor": "fast"}, "cannot hold the constant fast"),
    ({"factor": [1, 2]}, "the constant given for it has shape [2]")])
def test_constants_that_do_not_fit(constants, message):
    with pytest.raises(ModelError) as refused:
        import_onnx(scaled_by(TensorProto.INT64, [3]), constants=constants)
    assert message in str(refused.value)


def test_the_same_model_gives_the_same_graph():
    proto = model([node("Relu", "x", "h"), node("LayerNormalization", "h w", "y")], {"x": [2, 3]},
                  ["y"], {"w": np.ones(3, np.float32)})
    from tvm_megcc.ir.text import graph_text
    assert graph_text(import_onnx(proto)) == graph_text(import_onnx(proto.SerializeToString()))


@pytest.mark.parametrize(("dtype", "is_mask"), [
    ("INT64", True), ("BOOL", True), ("FLOAT16", False), ("BFLOAT16", False)])
def test_masks_are_integers_or_bool(dtype: str, is_mask: bool):
    """An input of floats that is added to scores holds scores of its own."""
    proto = model([node("Cast", "m", "bias", to=TensorProto.FLOAT), node("Add", "x bias", "scores"),
                   node("Softmax", "scores", "y")], {"x": [2, 3], "m": [2, 3]}, ["y"])
    proto.graph.input[1].type.tensor_type.elem_type = getattr(TensorProto, dtype)
    graph = import_onnx(proto)
    assert input_masks(graph) == ({"m"} if is_mask else set())
