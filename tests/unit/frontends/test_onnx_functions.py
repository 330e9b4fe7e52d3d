# SPDX-License-Identifier: Apache-2.0
"""Subgraphs with a constant condition, functions of the model, and functions of ONNX's schemas."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.onnx_models import graph_proto, model, node, refusal
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference


def branch(name: str, op_type: str) -> onnx.GraphProto:
    return graph_proto([node(op_type, "x", f"{name}_out")], {}, [f"{name}_out"], name=name)


def conditional(condition) -> onnx.ModelProto:
    nodes = [node("If", "c", "y", then_branch=branch("then", "Relu"), else_branch=branch("else", "Neg"))]
    if condition is None:
        return model(nodes, {"x": [2], "c": ("bool", [])}, ["y"])
    return model(nodes, {"x": [2]}, ["y"], {"c": np.array(condition)})


def test_if_with_a_constant_condition():
    assert [op.kind for op in import_onnx(conditional(True)).ops] == ["relu"]
    assert [op.kind for op in import_onnx(conditional(False)).ops] == ["neg"]
    assert "branch" in [op.kind for op in import_onnx(conditional(None)).ops]


def test_functions_of_the_model():
    body = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("LeakyRelu", ["s"], ["r"])]
    body[1].attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "SquareLeaky", ["a"], ["r"], body, opsets, ["slope"])
    proto = model([], {"x": [2]}, ["y"], functions=[function])
    proto.graph.node.append(helper.make_node("SquareLeaky", ["x"], ["y"], name="f", domain="local", slope=0.5))
    graph = import_onnx(proto)
    assert [(op.kind, op.origin) for op in graph.ops] == [("mul", "f"), ("leaky_relu", "f")]
    assert graph.ops[1].attrs.alpha == 0.5


def test_references_in_subgraphs_of_functions():
    """Nodes in subgraphs read attributes of the function too, and leave out the operands that its caller left out."""
    slope = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    then = graph_proto([node("Clip", "a low high", "clipped"), node("LeakyRelu", "clipped", "leaky")], {}, ["leaky"])
    then.node[1].attribute.append(slope)
    body = [node("If", "c", "r", then_branch=then, else_branch=graph_proto([node("Neg", "a", "n")], {}, ["n"]))]
    function = helper.make_function("local", "F", ["a", "c", "low", "high"], ["r"], body, [helper.make_opsetid("", 17)],
                                    ["slope"])
    proto = model([], {"x": [3], "c": ("bool", [])}, ["y"], {"high": np.array(2, np.float32)}, functions=[function])
    proto.graph.node.append(helper.make_node("F", ["x", "c", "", "high"], ["y"], domain="local", slope=0.5))
    graph = import_onnx(proto)
    x = np.array([-4, 1, 3], np.float32)
    for condition, expected in ((True, [-2, 1, 2]), (False, -x)):
        np.testing.assert_array_equal(reference.run(graph, {"x": x, "c": np.array(condition)})["y"], expected)


def test_functions_that_call_themselves():
    body = [helper.make_node("Again", ["a"], ["r"], domain="local")]
    function = helper.make_function("local", "Again", ["a"], ["r"], body, [helper.make_opsetid("local", 1)])
    proto = model([], {"x": [2]}, ["y"], functions=[function])
    proto.graph.node.append(helper.make_node("Again", ["x"], ["y"], name="f", domain="local"))
    assert "calls itself" in str(refusal(proto))


def test_functions_give_each_value_once():
    body = [helper.make_node("Split", ["a"], ["t", "t"], num_outputs=2), helper.make_node("Neg", ["t"], ["b"])]
    function = helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    source = model([helper.make_node("F", ["x"], ["y"], domain="local")], {"x": [4]}, {"y": [2]},
                   opset=18, functions=[function])
    assert "its output 't' is also that of" in str(refusal(source))


def test_operators_expand_from_their_schema():
    """Shrink has no declaration; its ONNX schema has a function body of comparisons and selections."""
    graph = import_onnx(model([node("Shrink", "x", "y", "s", lambd=0.5)], {"x": [4]}, ["y"]))
    x = np.array([-2, -0.1, 0.2, 3], np.float32)
    np.testing.assert_array_equal(reference.run(graph, {"x": x})["y"], [-2, 0, 0, 3])
    assert {op.origin for op in graph.ops} == {"s"}
