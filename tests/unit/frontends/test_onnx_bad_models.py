# SPDX-License-Identifier: Apache-2.0
"""Models that the ONNX front end refuses: every problem of a model is listed in one message."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.onnx_models import model, node, refusal
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.frontends.onnx import import_onnx


def test_a_reshape_that_fits_one_batch_only_is_refused():
    reshape = model([node("Reshape", "x shape", "y")], {"x": ["n", 4]}, ["y"], {"shape": np.array([1, 4])})
    with pytest.raises(ModelError, match=r"\[n,4\] with 4\*n elements cannot have shape \[1,4\]"):
        import_onnx(reshape)


def test_missing_file():
    with pytest.raises(MegccError, match=r"no/such/file\.onnx does not exist"):
        import_model("no/such/file.onnx")


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"not a model at all", bytes(range(256)) * 4])
def test_file_that_is_no_model(content: bytes, tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    assert "bad.onnx" in str(refusal(path))


def test_every_truncation_is_refused_by_a_model_error():
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    serialised = model([node("MatMul", "x w", "h"), node("Relu", "h", "y")], {"x": [2, 3]}, ["y"],
                  {"w": weights}).SerializeToString()
    assert import_onnx(serialised).outputs == ("y",)
    num_imported = 0
    for length in range(len(serialised)):
        try:
            import_onnx(serialised[:length])
            num_imported += 1
        except ModelError:
            pass
    # A truncation is not noticed if only the fields after the graph are cut off.
    assert num_imported <= 4


def test_mutated_files_are_refused_or_imported():
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Shape", "c", "s"), node("Slice", "s a b", "n"),
             node("Concat", "n m", "t", axis=0), node("Reshape", "c t", "r"), node("Softmax", "r", "y", axis=1)]
    serialised = model(nodes, {"x": ["batch", 2, 5, 5]}, ["y"],
                  {"w": np.ones((3, 2, 3, 3), np.float32), "a": np.array([0]), "b": np.array([1]),
                   "m": np.array([-1])}).SerializeToString()
    generator = random.Random(0)
    for _ in range(1500):
        data = bytearray(serialised)
        for _ in range(generator.choice((1, 1, 2, 5))):
            position = generator.randrange(len(data))
            if generator.random() < 0.7:
                data[position] = generator.randrange(256)
            else:
                del data[position:position + generator.randrange(1, 12)]
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
    error = refusal(bad)
    text = str(error)
    for name in ("Frobnicate 'unknown_one'", "Relu 'reads_missing'", "MatMul 'contradicts'", "cycle_one", "cycle_two",
                 "Softmax 'bad_axis'", "Concat 'bad_concat'"):
        assert name in text, f"{name} is not in\n{text}"
    assert "'last'" not in text, "an operator after one with a problem is not reported"
    assert len(error.findings) == 6
    assert "megcc list ops" in text and "weights are missing" in text and "break the cycle" in text


def test_nodes_nobody_needs_do_not_matter():
    graph = import_onnx(model([node("Frobnicate", "x", "z"), node("Relu", "x", "y")], {"x": [2]}, {"y": [2]}))
    assert [op.kind for op in graph.ops] == ["relu"]


def test_unknown_operators_behind_unknown_operators():
    error = refusal(model([node("Foo", "x", "a"), node("Bar", "a", "b"), node("Baz", "b", "y")], {"x": [2]}, ["y"]))
    assert len(error.findings) == 3


def test_custom_domain_is_named():
    proto = model([], {"x": [2]}, ["y"])
    proto.graph.node.append(helper.make_node("Norm", ["x"], ["y"], name="n", domain="my.company"))
    assert "my.company::Norm 'n'" in str(refusal(proto))


def test_duplicate_names():
    error = refusal(model([node("Relu", "x", "y", "one"), node("Neg", "x", "y", "two")], {"x": [2]}, ["y"]))
    assert "'two'" in str(error) and "'one'" in str(error)


def test_two_gigabytes():
    error = refusal(model([node("Expand", "x s", "y", "huge")], {"x": [1]}, ["y"],
                          {"s": np.array([1 << 10, 1 << 10, 1 << 10])}))
    assert "Expand 'huge'" in str(error) and "2 GB" in str(error)
    error = refusal(model([node("ConstantOfShape", "s", "y", "huge")], [], ["y"], {"s": np.array([1 << 20, 1 << 12])}))
    assert "2 GB" in str(error)
    assert "2 GB" in str(refusal(model([node("Relu", "x", "y")], {"x": [1 << 30]}, ["y"])))


def test_initializer_without_data():
    proto = model([node("Add", "x w", "y")], {"x": [2]}, ["y"], {"w": np.ones(2, np.float32)})
    proto.graph.initializer[0].raw_data = b""
    assert "initializer 'w'" in str(refusal(proto)) and "missing" in str(refusal(proto))
    proto.graph.initializer[0].ClearField("raw_data")
    assert "initializer 'w'" in str(refusal(proto))


def test_attribute_of_the_wrong_type():
    assert "ill-formed" in str(refusal(model([node("Softmax", "x", "y", axis="first")], {"x": [2, 3]}, ["y"])))
    assert "ill-formed" in str(refusal(model([node("Relu", "x x x", "y")], {"x": [2]}, ["y"])))


def test_operator_sets():
    relu = [node("Relu", "x", "y")], {"x": [2]}, ["y"]
    assert "is that of operator set 1" in str(refusal(model(*relu, opset=5)))
    assert "newer than" in str(refusal(model(*relu, opset=999)))
    for opset in range(6, onnx.defs.onnx_opset_version() + 1):
        assert import_onnx(model(*relu, opset=opset)).ops[0].kind == "relu"


def test_what_depends_on_data_is_refused():
    """A shape operand of float32, and one with a symbolic number of elements."""
    for operand in (("float32", [1]), ("int64", ["n"])):
        reshape = model([node("Reshape", "x s", "y", "r")], {"x": [2, 3], "s": operand}, ["y"])
        assert "Reshape 'r'" in str(refusal(reshape)) and "a few integers are wanted" in str(refusal(reshape))


def test_models_of_other_domains_say_so():
    trees = model([helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")], {"x": [4]}, ["y"])
    del trees.opset_import[:]
    trees.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert "has 0 trees" in str(refusal(trees))
    trees.opset_import[0].domain = "local"
    assert "operators of local only" in str(refusal(trees))
    del trees.opset_import[:]
    assert "names no ONNX operator set" in str(refusal(trees))


def test_ports_have_names_of_their_own():
    once = [node("Neg", "x", "y")]
    assert "input 'x': the name is used twice" in str(refusal(model(once, ["x", "x"], {"y": [4]})))


@pytest.mark.parametrize("kind", ["Attention", "CenterCropPad", "NegativeLogLikelihoodLoss"])
def test_a_sequence_in_place_of_a_tensor(kind: str):
    """Operators whose function body depends on the types of their operands are refused as those with an importer."""
    model = onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: ['' : 24]> g (float[3, 4] x) => (float[3, 4] y) {{"
        f" s = SequenceConstruct(x, x) y = {kind}(s) }}".replace("'", '"'))
    with pytest.raises(ModelError, match="operand is a sequence"):
        import_onnx(model)
