# SPDX-License-Identifier: Apache-2.0
"""The ONNX front end: names, shapes, symbols, folding, and every problem of a bad model in one message."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_models import fed, graph_proto, model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.runtime import reference


def refused(source) -> ModelError:
    with pytest.raises(ModelError) as caught:
        import_onnx(source)
    return caught.value


# Bad models


def test_a_reshape_that_fits_one_batch_only_is_refused():
    reshape = model([node("Reshape", "x shape", "y")], {"x": ["n", 4]}, ["y"], {"shape": np.array([1, 4])})
    with pytest.raises(ModelError, match=r"\[n,4\] with 4\*n elements cannot have shape \[1,4\]"):
        import_onnx(reshape)


def test_missing_file():
    assert "cannot be read" in str(refused("no/such/file.onnx"))


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"not a model at all", bytes(range(256)) * 4])
def test_file_that_is_no_model(content: bytes, tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    assert "bad.onnx" in str(refused(path))


def test_every_truncation_is_refused_by_a_model_error():
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    whole = model([node("MatMul", "x w", "h"), node("Relu", "h", "y")], {"x": [2, 3]}, ["y"],
                  {"w": weights}).SerializeToString()
    assert import_onnx(whole).outputs == ("y",)
    survived = 0
    for length in range(len(whole)):
        try:
            import_onnx(whole[:length])
            survived += 1
        except ModelError:
            pass
    # Only what follows the graph can be cut off unnoticed.
    assert survived <= 4


def test_mutated_files_are_refused_or_imported():
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Shape", "c", "s"), node("Slice", "s a b", "n"),
             node("Concat", "n m", "t", axis=0), node("Reshape", "c t", "r"), node("Softmax", "r", "y", axis=1)]
    whole = model(nodes, {"x": ["batch", 2, 5, 5]}, ["y"],
                  {"w": np.ones((3, 2, 3, 3), np.float32), "a": np.array([0]), "b": np.array([1]),
                   "m": np.array([-1])}).SerializeToString()
    generator = random.Random(0)
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(generator.choice((1, 1, 2, 5))):
            place = generator.randrange(len(data))
            if generator.random() < 0.7:
                data[place] = generator.randrange(256)
            else:
                del data[place:place + generator.randrange(1, 12)]
        try:
            import_onnx(bytes(data))
        except ModelError:
            pass


def test_all_problems_are_listed_at_once():
    bad = model(
        [node("Frobnicate", "x", "a", "unknown_one"),
         node("Relu", "missing", "b", "reads_missing"),
         node("MatMul", "x w", "c", "contradicts"),
         node("Add", "a loop2", "loop1", "cycle_one"), node("Relu", "loop1", "loop2", "cycle_two"),
         node("Softmax", "x", "d", "bad_axis", axis=7),
         node("Concat", "x w", "e", "bad_concat", axis=0),
         node("Sum", "a b c d e loop2", "y", "last")],
        {"x": [2, 3]}, ["y"], {"w": np.zeros((4, 5), np.float32)})
    error = refused(bad)
    text = str(error)
    for name in ("Frobnicate 'unknown_one'", "Relu 'reads_missing'", "MatMul 'contradicts'", "cycle_one", "cycle_two",
                 "Softmax 'bad_axis'", "Concat 'bad_concat'"):
        assert name in text, f"{name} is not in\n{text}"
    assert "'last'" not in text, "an operator behind a problem is no problem itself"
    assert len(error.findings) == 6
    assert "megcc list ops" in text and "weights are missing" in text and "break the cycle" in text


def test_nodes_nobody_needs_do_not_matter():
    graph = import_onnx(model([node("Frobnicate", "x", "z"), node("Relu", "x", "y")], {"x": [2]}, {"y": [2]}))
    assert [op.kind for op in graph.ops] == ["relu"]


def test_unknown_operators_behind_unknown_operators():
    error = refused(model([node("Foo", "x", "a"), node("Bar", "a", "b"), node("Baz", "b", "y")], {"x": [2]}, ["y"]))
    assert len(error.findings) == 3


def test_custom_domain_is_named():
    proto = model([], {"x": [2]}, ["y"])
    proto.graph.node.append(helper.make_node("Norm", ["x"], ["y"], name="n", domain="my.company"))
    assert "my.company::Norm 'n'" in str(refused(proto))


def test_duplicate_names():
    error = refused(model([node("Relu", "x", "y", "one"), node("Neg", "x", "y", "two")], {"x": [2]}, ["y"]))
    assert "'two'" in str(error) and "'one'" in str(error)


def test_two_gigabytes():
    error = refused(model([node("Expand", "x s", "y", "huge")], {"x": [1]}, ["y"],
                          {"s": np.array([1 << 10, 1 << 10, 1 << 10])}))
    assert "Expand 'huge'" in str(error) and "2 GB" in str(error)
    error = refused(model([node("ConstantOfShape", "s", "y", "huge")], [], ["y"], {"s": np.array([1 << 20, 1 << 12])}))
    assert "2 GB" in str(error)
    assert "2 GB" in str(refused(model([node("Relu", "x", "y")], {"x": [1 << 30]}, ["y"])))


def test_initializer_without_data():
    proto = model([node("Add", "x w", "y")], {"x": [2]}, ["y"], {"w": np.ones(2, np.float32)})
    proto.graph.initializer[0].raw_data = b""
    assert "initializer 'w'" in str(refused(proto)) and "missing" in str(refused(proto))
    proto.graph.initializer[0].ClearField("raw_data")
    assert "initializer 'w'" in str(refused(proto))


def test_attribute_of_the_wrong_type():
    assert "ill-formed" in str(refused(model([node("Softmax", "x", "y", axis="first")], {"x": [2, 3]}, ["y"])))
    assert "ill-formed" in str(refused(model([node("Relu", "x x x", "y")], {"x": [2]}, ["y"])))


def test_operator_sets():
    relu = [node("Relu", "x", "y")], {"x": [2]}, ["y"]
    assert "is that of operator set 1" in str(refused(model(*relu, opset=5)))
    assert "newer than" in str(refused(model(*relu, opset=999)))
    for opset in range(6, onnx.defs.onnx_opset_version() + 1):
        assert import_onnx(model(*relu, opset=opset)).ops[0].kind == "relu"


def test_broadcasting_before_operator_set_7():
    """The second operand's axes begin at attribute `axis` of the first."""
    x, b = np.ones((2, 3, 4), np.float32), np.arange(3, dtype=np.float32)
    graph = import_onnx(model([node("Add", "x b", "y", broadcast=1, axis=1)], {"x": [2, 3, 4]},
                              ["y"], {"b": b}, opset=6))
    assert (reference.run(graph, {"x": x})["y"] == x + b[:, None]).all()


#: An operator whose result's shape an operand fixes, and the shape that the model states for it.
STATED = [("Reshape", [2, 6], [3, 4], {}), ("Expand", [2, 1], [2, 5], {}), ("Tile", [2, 3], [2, 9], {}),
          ("Unsqueeze", [2, 3], [2, 1, 3], {}), ("Squeeze", [2, 1, 3], [2, 3], {}),
          ("ReduceSum", [2, 3, 4], [2, 1, 4], {}), ("ReduceMax", [2, 3, 4], [2, 4], {"keepdims": 0}),
          ("Split", [2, 6], [2, 6], {"axis": 1})]


@pytest.mark.parametrize(("op", "shape", "result", "attributes"), STATED, ids=[row[0] for row in STATED])
def test_the_stated_shape_of_a_result_stands_for_an_operand_of_the_run(op, shape, result, attributes):
    inputs = {"x": shape, "s": ("int64", [len(result)])}
    nodes = [node(op, "x s", "y", **attributes)]
    assert import_onnx(model(nodes, inputs, {"y": result}, opset=18)).types["y"].shape == tuple(result)
    if op not in ("Unsqueeze", "Squeeze", "ReduceSum", "ReduceMax"):    # axes are no extents
        assert import_onnx(model(nodes, inputs, ["y"], opset=18)).types["y"].rank == len(result)


def test_bounds_beyond_what_reals_hold():
    """An int64 clipped at 2^53 + 1, which is no double."""
    bound, x = 2**53 + 1, np.array([2**53, 2**53 + 1, 2**53 + 2, -5])
    graph = import_onnx(model([node("Clip", "x lo hi", "y")], {"x": ("int64", [4])},
                              ["y"], {"lo": np.array(0), "hi": np.array(bound)}))
    assert reference.run(graph, {"x": x})["y"].tolist() == [2**53, bound, bound, 0]


def test_a_stated_shape_that_leaves_axes_open_is_refused():
    """Where not even their number is known."""
    inputs = {"x": [2, 3, 3], "s": ("int64", ["n"])}
    proto = model([node("ReduceSum", "x s", "y", keepdims=0)], inputs, {"y": [2, 3]})
    assert "does not tell how many they are" in str(refused(proto))


def test_what_depends_on_data_is_refused():
    """A shape of real numbers, and one of nobody knows how many."""
    for operand in (("float32", [1]), ("int64", ["n"])):
        reshape = model([node("Reshape", "x s", "y", "r")], {"x": [2, 3], "s": operand}, ["y"])
        assert "Reshape 'r'" in str(refused(reshape)) and "a few integers are wanted" in str(refused(reshape))


# External data


def external(tmp_path):
    proto = model([node("Add", "x w", "y")], {"x": [256]}, ["y"], {"w": np.arange(256, dtype=np.float32)})
    path = tmp_path / "m.onnx"
    onnx.save(proto, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_external_data(tmp_path):
    path = external(tmp_path)
    x = np.ones(256, np.float32)
    result = reference.run(import_onnx(path), {"x": x})
    np.testing.assert_array_equal(result["y"], x + np.arange(256, dtype=np.float32))


def test_external_data_missing_short_or_without_folder(tmp_path):
    path = external(tmp_path)
    assert "give the path" in str(refused(path.read_bytes()))
    data = path.with_name("m.data")
    data.write_bytes(data.read_bytes()[:100])
    assert "initializer 'w'" in str(refused(path))
    data.unlink()
    assert "m.data" in str(refused(path))


# Shapes and symbols


def test_symbols_stay():
    graph = import_onnx(model([node("Relu", "x", "y")], {"x": ["batch", 3, 0, None]}, ["y"]))
    expected = (Symbol("batch"), 3, Symbol("x_2"), Symbol("x_3"))
    assert graph.types["x"].shape == graph.types["y"].shape == expected


def test_extents_that_exporters_do_not_know_have_no_name():
    graph = import_onnx(model([node("Relu", "x", "y")], {"x": ["?", 3, "?", "None"]}, ["y"]))
    assert graph.types["y"].shape == (Symbol("x_0"), 3, Symbol("x_2"), Symbol("x_3"))
    proto = model([node("Relu", "x", "y")], {"x": ["?", 3, "?", "?"]}, ["y"])
    assert import_onnx(proto, {"x": (1, 3, 4, 5)}).types["y"].shape == (1, 3, 4, 5)


def test_input_shapes_bind_symbols_everywhere():
    proto = model([node("Add", "a b", "y")], {"a": ["n", 4], "b": ["n", 4]}, ["y"])
    graph = import_onnx(proto, {"a": (3, 4)})
    assert graph.types["b"].shape == graph.types["y"].shape == (3, 4)
    assert import_onnx(proto, {"a": ("rows", 4), "b": ("rows", 4)}).types["y"].shape == (Symbol("rows"), 4)
    assert import_onnx(proto, {"a": (None, 4)}).types["y"].shape == (Symbol("n"), 4)


def test_wrong_input_shapes():
    proto = model([node("Add", "a b", "y")], {"a": ["n"], "b": ["n"]}, ["y"])
    for shapes, message in (({"c": (1,)}, "inputs are: a, b"), ({"a": (1, 2)}, "1 axes"),
                            ({"a": (2,), "b": (3,)}, "gives as 2 and as 3"), ({"a": (-1,)}, "0 or more")):
        with pytest.raises(ModelError, match=message):
            import_onnx(proto, shapes)


def test_shape_arithmetic_disappears():
    """The idiom of PyTorch exports: view(x.size(0), -1) with a symbolic batch."""
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape zero", "batch", axis=0),
             node("Unsqueeze", "batch axis", "batch1"), node("Mul", "batch1 two", "double"),
             node("Concat", "double minus", "target", axis=0), node("Reshape", "x target", "y")]
    constants = {"zero": np.array(0), "axis": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    graph = import_onnx(model(nodes, {"x": ["batch", 6, 4]}, ["y"], constants))
    assert [op.kind for op in graph.ops] == ["reshape"]
    assert graph.types["y"].shape == (2 * Symbol("batch"), 12)
    graph = import_onnx(model(nodes, {"x": ["batch", 6, 4]}, ["y"], constants), {"x": (5, 6, 4)})
    assert graph.types["y"].shape == (10, 12)


def test_shapes_as_data():
    graph = import_onnx(model([node("Shape", "x", "s"), node("Add", "s v", "y")],
                              {"x": ["n", 3], "v": ("int64", [2])}, ["y"]))
    assert [op.kind for op in graph.ops] == ["dims", "add"]
    x, v = np.zeros((7, 3), np.float32), np.array([1, 1])
    assert reference.run(graph, {"x": x, "v": v})["y"].tolist() == [8, 4]


def test_constants_fold():
    nodes = [node("Mul", "a b", "c"), node("Transpose", "c", "d"), node("Add", "x d", "y")]
    graph = import_onnx(model(nodes, {"x": [2]}, ["y"], {"a": np.ones((2, 1), np.float32), "b": np.float32(3)}))
    assert [op.kind for op in graph.ops] == ["add"]


# Outputs


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


def test_ports_have_names_of_their_own():
    once = [node("Neg", "x", "y")]
    assert "input 'x': the name is used twice" in str(refused(model(once, ["x", "x"], {"y": [4]})))


def test_functions_give_each_value_once():
    body = [helper.make_node("Split", ["a"], ["t", "t"], num_outputs=2), helper.make_node("Neg", ["t"], ["b"])]
    function = helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    source = model([helper.make_node("F", ["x"], ["y"], domain="local")], {"x": [4]}, {"y": [2]},
                   opset=18, functions=[function])
    assert "its output 't' is also that of" in str(refused(source))


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


# Subgraphs and functions


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


def test_functions_that_call_themselves():
    body = [helper.make_node("Again", ["a"], ["r"], domain="local")]
    function = helper.make_function("local", "Again", ["a"], ["r"], body, [helper.make_opsetid("local", 1)])
    proto = model([], {"x": [2]}, ["y"], functions=[function])
    proto.graph.node.append(helper.make_node("Again", ["x"], ["y"], name="f", domain="local"))
    assert "calls itself" in str(refused(proto))


def test_operators_expand_from_their_schema():
    """Shrink is not declared; ONNX gives it as a function of comparisons and selections."""
    graph = import_onnx(model([node("Shrink", "x", "y", "s", lambd=0.5)], {"x": [4]}, ["y"]))
    x = np.array([-2, -0.1, 0.2, 3], np.float32)
    np.testing.assert_array_equal(reference.run(graph, {"x": x})["y"], [-2, 0, 0, 3])
    assert {op.origin for op in graph.ops} == {"s"}


def test_the_same_model_gives_the_same_graph():
    proto = model([node("Relu", "x", "h"), node("LayerNormalization", "h w", "y")], {"x": [2, 3]},
                  ["y"], {"w": np.ones(3, np.float32)})
    from tvm_megcc.ir.text import graph_text
    assert graph_text(import_onnx(proto)) == graph_text(import_onnx(proto.SerializeToString()))


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


OUTSIDE = {
    "GatherND": ([[0, 4]], "indices 4 to 4 into an axis of 4", {}, {}),
    "GatherND.batch": ([[0], [2], [-5]], "indices -5 to 2 into an axis of 4", {"batch_dims": 1}, {}),
    "GatherElements": ([[0, 3, 0, 0]], "indices 0 to 3 into an axis of 3", {}, {}),
    "ScatterND": ([[3]], "indices 3 to 3 into an axis of 3", {}, {"u": np.ones((1, 4), np.float32)}),
    "ScatterElements": ([[-4, 0]], "indices -4 to 0 into an axis of 3", {}, {"u": np.ones((1, 2), np.float32)}),
    "ReverseSequence": ([1, 2, 3, 4], "its operand length has 1 to 4, and takes 0 to 3",
                        {"time_axis": 0, "batch_axis": 1}, {}),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_constant_indices_off_their_axis_are_found_before_a_run(name: str, known: bool):
    indices, message, attributes, more = OUTSIDE[name]
    source = {"x": np.ones((3, 4), np.float32)}
    made = model([node(name.split(".")[0], " ".join(["x", "i", *more]), "y", **attributes)],
                 {} if known else fed(source), ["y"], {**(source if known else {}), "i": np.array(indices), **more},
                 opset=16)
    with pytest.raises(ModelError, match=message):
        import_onnx(made)


@pytest.mark.parametrize(("constants", "message"), [
    ({"rate": 1}, "constants names rate, but the inputs are: x, factor"),
    ({"factor": 0.5}, "cannot hold the constant 0.5"), ({"factor": "fast"}, "cannot hold the constant fast"),
    ({"factor": [1, 2]}, "the constant given for it has shape [2]")])
def test_constants_that_do_not_fit(constants, message):
    with pytest.raises(ModelError) as refused:
        import_onnx(scaled_by(TensorProto.INT64, [3]), constants=constants)
    assert message in str(refused.value)


# What operators are told by attributes and shapes


@pytest.mark.parametrize(("op_type", "operands", "attributes", "dtype"), [
    ("QuantizeLinear", {"x": [4]}, {"output_dtype": TensorProto.INT16}, "int16"),
    ("QuantizeLinear", {"x": [4]}, {}, "uint8"),
    ("DequantizeLinear", {"x": [4]}, {"output_dtype": TensorProto.FLOAT16}, "float16"),
])
def test_quantisation_has_the_type_that_is_asked_for(op_type, operands, attributes, dtype):
    given = TensorProto.INT8 if op_type == "DequantizeLinear" else TensorProto.FLOAT
    graph = import_onnx(model([node(op_type, "x s", "y", **attributes)], {"x": (given, [4])}, ["y"],
                              {"s": np.float32(0.5)}, opset=23))
    assert graph.types["y"].dtype == dtype
    blocks = import_onnx(model([node(op_type, "x s", "y", **attributes, axis=0, block_size=2)],
                               {"x": (given, [4])}, ["y"], {"s": np.float32([0.5, 2])}, opset=23))
    assert blocks.types["y"].dtype == dtype


def test_a_precision_of_64_bits_is_refused():
    source = model([node("QuantizeLinear", "x s", "y", precision=TensorProto.DOUBLE)], {"x": [4]},
                   ["y"], {"s": np.float32(0.5)}, opset=23)
    assert "divides in float64" in str(refused(source))


def test_a_signal_needs_no_axis_of_one():
    frames = {"step": np.int64(4), "length": np.int64(8)}
    x = np.random.default_rng(0).standard_normal((2, 20)).astype(np.float32)
    results = [reference.run(import_onnx(model([node("STFT", "x step w length", "y")], {"x": shape}, ["y"],
                                               {**frames, "w": np.hanning(8).astype(np.float32)})),
                             {"x": x.reshape(shape)})["y"] for shape in ([2, 20], [2, 20, 1])]
    assert results[0].shape == (2, 4, 5, 2)
    np.testing.assert_array_equal(*results)
    other = model([node("STFT", "x step w length", "y")], {"x": [20]}, ["y"],
                  {**frames, "w": np.ones(8, np.float32)})
    assert "wants a signal [batch][N] or [batch][N][1 or 2]" in str(refused(other))


@pytest.mark.parametrize(("start", "delta", "count"), [(0, 1, 5), (0, 2, 3), (1, 1, 4), (7, 1, 0), (7, -1, 2)])
def test_a_range_up_to_an_extent(start: int, delta: int, count: int):
    source = model([node("Shape", "x", "s"), node("Squeeze", "s", "n"), node("Range", "a n d", "y")],
                   {"x": ["n"]}, ["y"], {"a": np.int64(start), "d": np.int64(delta)})
    graph = import_onnx(source)
    result = reference.run(graph, {"x": np.zeros(5, np.float32)})["y"]
    np.testing.assert_array_equal(result, np.arange(start, 5, delta))
    assert len(result) == count


def test_models_of_other_domains_say_so():
    trees = model([helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")], {"x": [4]}, ["y"])
    del trees.opset_import[:]
    trees.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert "has 0 trees" in str(refused(trees))
    trees.opset_import[0].domain = "local"
    assert "operators of local only" in str(refused(trees))
    del trees.opset_import[:]
    assert "names no ONNX operator set" in str(refused(trees))


@pytest.mark.parametrize("length", [12, 256])
def test_frames_of_signals_of_any_length(length: int):
    """The number of frames follows from it; a product and a fast transform."""
    window = np.hanning(length).astype(np.float32)
    source = model([node("STFT", "x step w length", "y")], {"x": ["batch", "n"]}, ["y"],
                   {"step": np.int64(5), "w": window, "length": np.int64(length)}, opset=17)
    graph = import_onnx(source)
    for n in (length, length + 4, length + 33):
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        frames = np.stack([x[:, start:start + length] for start in range(0, n - length + 1, 5)], 1)
        wanted = np.fft.rfft(frames * window)
        (found,) = reference.run(graph, {"x": x}).values()
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=1e-4)
    with pytest.raises(ModelError, match="not shorter than a frame"):
        import_onnx(source, input_shapes={"x": (1, length - 1)})
