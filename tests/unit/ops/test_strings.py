# SPDX-License-Identifier: Apache-2.0
"""Strings in ONNX models: their numbers, what is refused of them, and strings of a run in Python."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.compiled.models.test_strings import TEXT, ml, strings_model
from tests.onnx_models import graph_proto, node
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.option_values import parse_inputs
from tvm_megcc.passes.canonicalize.preprocess import convert_inputs
from tvm_megcc.passes.streaming.states import keep_states
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.strings import StringTable

KEYS = {"keys_strings": ["a", "b"], "values_int64s": [1, 2]}
#: A branch that gives a text of the graph around it.
BRANCH = graph_proto([node("Identity", "x", "b")], {}, {"b": (TEXT, [2])}, name="branch")


@pytest.mark.parametrize("nodes, why", [
    ([node("Unique", "x", "y")], "orders strings, which is not supported; sorted = 0 is"),
    ([node("Add", "x x", "y")], "takes strings, which"),
    ([node("Less", "x x", "y")], "takes strings, which"),
    ([node("Equal", "x n", "y")], "takes strings and numbers together"),
    ([node("Concat", "n x", "y", axis=0)], "takes strings and numbers together"),
    ([node("Where", "c x n", "y")], "takes strings and numbers together"),
    ([node("Gather", "n x", "y")], "takes strings and numbers together"),
    ([node("Cast", "x", "y", to=TensorProto.INT64)], "converts strings and numbers"),
    ([node("Cast", "n", "y", to=TEXT)], "converts strings and numbers"),
    ([node("CastLike", "n x", "y")], "takes strings and numbers together"),
    ([node("StringConcat", "x x", "y")], "makes new strings or reads their characters"),
    ([node("StringNormalizer", "x", "y", case_change_action="LOWER")], "changes the case"),
    ([node("StringNormalizer", "n", "y")], "not a row of strings"),
    ([node("StringNormalizer", "x", "y", stopwords=["a"])], "removes stop words of any case"),
    ([node("If", "flag", "y", then_branch=BRANCH, else_branch=BRANCH)], "output 'y': has strings that come neither"),
    ([node("SequenceConstruct", "x", "s"), node("SequenceAt", "s zero", "y")], "takes strings, which"),
    ([node("Identity", "x", "z")], "output 'y': nothing in the model produces it"),
    ([node("Identity", "n", "y")], "output 'y': has strings that come neither"),
    ([ml("LabelEncoder", "n", "y", **KEYS)], "has keys of strings for int64"),
    ([ml("LabelEncoder", "x", "y", keys_int64s=[1], values_int64s=[2])], "has keys of int64 for strings"),
    ([ml("LabelEncoder", "x", "y", keys_strings=["a"], values_int64s=[2, 3])], "has no keys and values"),
    ([ml("LabelEncoder", "x", "y", keys_strings=["a"], values_int64s=[2],
         default_tensor=helper.make_tensor("t", TEXT, [1], [b"z"]))], "a default that is a string among numbers"),
    ([ml("LabelEncoder", "x", "y", keys_strings=[b"a", b"\xff"], values_int64s=[2, 3])], "not valid UTF-8"),
    ([ml("OneHotEncoder", "x", "y", cats_int64s=[1])], "strings by numbers"),
    ([ml("OneHotEncoder", "n", "y", cats_strings=["1"])], "strings by numbers"),
    ([ml("CategoryMapper", "x", "y", cats_strings=["1"], cats_int64s=[1, 2])], "as many strings as numbers"),
    ([ml("Scaler", "x", "y", offset=[0.0], scale=[1.0])], "takes strings, which"),
    ([node("TfIdfVectorizer", "n", "y", mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
           ngram_counts=[0], ngram_indexes=[0], pool_strings=["a"])], "has a pool of strings for an operand")])
def test_what_is_refused(nodes, why):
    source = strings_model(nodes, {"x": (TEXT, [2]), "n": ("int64", [2]), "c": ("bool", [2]), "flag": ("bool", [])},
                         {"y": (TEXT, [2])}, {"zero": np.array(0)})
    with pytest.raises(ModelError, match=why):
        import_onnx(source)


#: Operators that move strings: nodes, constants, the shape of x, whose strings are s0, s1, …, and the result of those
#: that ONNX's evaluator does not compute, or with a number for an empty string.
MOVING = {
    "Pad": (node("Pad", "x p", "y"), {"p": np.array([0, 1, 1, 0])}, [1, 2], [["", "s0", "s1"], [""] * 3]),
    "Pad with a string": (node("Pad", "x p v", "y"), {"p": np.array([0, 1, -1, 0]), "v": np.array("z", object)}, [2, 2],
                          [["z", "s0", "s1"]]),
    "Pad of its ends": (node("Pad", "x p", "y", mode="edge"), {"p": np.array([0, 1, 0, 2])}, [2, 3], None),
    "CenterCropPad": (node("CenterCropPad", "x s", "y"), {"s": np.array([1, 4])}, [1, 2], [["", "s0", "s1", ""]]),
    "DepthToSpace": (node("DepthToSpace", "x", "y", blocksize=2), {}, [1, 4, 1, 2], None),
    "SpaceToDepth": (node("SpaceToDepth", "x", "y", blocksize=2), {}, [1, 1, 2, 4], None),
    "Trilu": (node("Trilu", "x", "y", upper=0), {}, [2, 2], [["s0", ""], ["s2", "s3"]]),
    "OneHot": (node("OneHot", "i d v", "y"), {"i": np.array([2, 0]), "d": np.array(3),
                                              "v": np.array(["off", "on"], object)}, [1],
               [["off", "off", "on"], ["on", "off", "off"]]),
    "ScatterElements": (node("ScatterElements", "x i u", "y"), {"i": np.array([[1]]), "u": np.array([["q"]], object)},
                        [2, 2], None),
}


@pytest.mark.parametrize("name", MOVING)
def test_moved_strings(name: str):
    only, constants, shape, expected = MOVING[name]
    texts = np.array([f"s{index}" for index in range(int(np.prod(shape)))], object).reshape(shape)
    source = strings_model([only], {"x": (TEXT, shape)}, {"y": (TEXT, None)}, constants)
    graph = import_onnx(source)
    table, others = StringTable(graph.strings), {}
    found = table.strings(reference.run(graph, {"x": table.codes(texts, others)})["y"], others)
    if expected is None:
        expected = ReferenceEvaluator(source).run(["y"], {"x": texts})[0].tolist()
    assert found.tolist() == expected


def test_distinct_strings():
    source = strings_model([node("Unique", "x", "y  inverse counts", sorted=0)], {"x": (TEXT, [6])},
                           {"y": (TEXT, None), "inverse": ("int64", [6]), "counts": ("int64", None)})
    source.graph.node[0].output[:] = ["y", "", "inverse", "counts"]
    graph = import_onnx(source)
    assert graph.string_ports == {"x", "y"}
    table, others = StringTable(graph.strings), {}
    found = reference.run(graph, {"x": table.codes(np.array(["b", "a", "b", "", "a", "b"], object), others)})
    assert table.strings(found["y"], others).tolist() == ["b", "a", ""]
    assert found["inverse"].tolist() == [0, 1, 0, 2, 1, 0] and found["counts"].tolist() == [3, 2, 1]


def test_strings_that_are_not_empty():
    source = strings_model([node("NonZero", "x", "y")], {"x": (TEXT, [2, 2])}, {"y": ("int64", [2, None])})
    graph = import_onnx(source)
    table, others = StringTable(graph.strings), {}
    texts = np.array([["a", ""], ["", "b"]], object)
    assert reference.run(graph, {"x": table.codes(texts, others)})["y"].tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("kind", ["RandomNormalLike", "RandomUniformLike"])
def test_random_numbers_of_the_shape_of_strings(kind: str):
    source = strings_model([node(kind, "x", "y", dtype=TensorProto.FLOAT, seed=3.0)], {"x": (TEXT, [2, 2])},
                           {"y": ("float32", [2, 2])})
    assert len(np.unique(reference.run(import_onnx(source), {"x": np.zeros((2, 2), np.int64)})["y"])) == 4


@pytest.mark.parametrize("damage, why", [
    (lambda tensor: tensor.dims.__setitem__(0, 3), "has 2 strings where 3 are needed"),
    (lambda tensor: tensor.dims.__setitem__(0, -2), "negative extent"),
    (lambda tensor: tensor.string_data.__setitem__(0, b"\xc3("), "not valid UTF-8"),
    (lambda tensor: tensor.dims.__setitem__(0, 1 << 62), "has 2 strings where")])
def test_damaged_texts(damage, why):
    source = strings_model([node("Equal", "x t", "y")], {"x": (TEXT, [2])}, {"y": ("bool", [2])},
                         {"t": np.array(["a", "b"], object)})
    damage(source.graph.initializer[0])
    with pytest.raises(ModelError, match=why):
        import_onnx(source)


def test_numbers_are_places():
    """Equal strings are one, and there are no strings where no input or output is one."""
    source = strings_model([ml("LabelEncoder", "x", "p", **KEYS), ml("LabelEncoder", "p", "y", keys_int64s=[1, 2],
                                                                  values_strings=["b", "c"])],
                         {"x": (TEXT, [3])}, {"y": (TEXT, [3])})
    graph = import_onnx(source)
    assert graph.strings == ("a", "b", "c", "_Unused") and graph.string_ports == {"x", "y"}
    assert reference.run(graph, {"x": np.array([0, 1, -7])})["y"].tolist() == [1, 2, 3]
    assert not import_onnx(source, output_names=["p"], constants={"x": ["b", "a", "?"]}).strings
    known = import_onnx(source, constants={"x": ["b", "a", "?"]})
    assert [known.strings[code] for code in reference.run(known, {})["y"]] == ["c", "b", "_Unused"]
    with pytest.raises(ModelError, match="cannot hold the constant"):
        import_onnx(strings_model([node("Neg", "n", "y")], {"n": ("int64", [1])}, ["y"]), constants={"n": "a"})


def test_constants_and_branches():
    """Strings of Constant nodes; of a branch that is known."""
    source = strings_model([node("Constant", "", "a", value_strings=["u", "v"]),
                          node("Constant", "", "b", value_string="v"),
                          node("Constant", "", "c", value=helper.make_tensor("c", TEXT, [1], [b"w"])),
                          node("Equal", "a b", "e"), node("If", "yes", "i", then_branch=BRANCH, else_branch=BRANCH),
                          node("Concat", "a c i", "y", axis=0)],
                         {"x": (TEXT, [2])}, {"e": ("bool", [2]), "y": (TEXT, [5])}, {"yes": np.array(True)})
    graph = import_onnx(source)
    found = reference.run(graph, {"x": np.array([-1, 0])})
    assert found["e"].tolist() == [False, True]
    assert [graph.strings[code] if code >= 0 else "?" for code in found["y"]] == ["u", "v", "w", "?", "u"]


def test_a_sequence_of_texts():
    source = strings_model([node("SequenceAt", "s one", "t"), node("Equal", "t a", "y"), node("Identity", "t", "z")],
                         [helper.make_tensor_sequence_value_info("s", TEXT, None)],
                         {"y": ("bool", [2]), "z": (TEXT, [2])}, {"one": np.array(1), "a": np.array(["a"], object)})
    graph = import_onnx(source, input_shapes={"s.0": [3], "s.1": [2]})
    assert graph.string_ports == {"s.0", "s.1", "z"}
    found = reference.run(graph, {"s.0": np.array([-1, -1, 0]), "s.1": np.array([-1, 0])})
    assert found["y"].tolist() == [False, True] and found["z"].tolist() == [-1, 0]


def test_texts_of_a_run():
    strings, others = StringTable(["a", "ü"]), {}
    numbers = strings.codes([["ü", "new"], [b"a", "old"]], others)
    assert numbers.tolist() == [[1, -1], [0, -2]]
    assert strings.codes(np.array(["old", "a"]), others).tolist() == [-2, 0]
    assert strings.strings(numbers, others).tolist() == [["ü", "new"], ["a", "old"]]
    assert strings.strings(np.array([7, -9, -2**63]), others).tolist() == ["", "", ""]
    assert strings.codes("new", others).shape == ()
    for wrong in ([1.5], [None], [["a"], ["b", "c"]]):
        with pytest.raises(TypeError, match="is no string"):
            strings.codes(np.array(wrong, object), others)
    assert all(map(StringTable.are, ("a", ["a"], np.array(["a"]), np.array([b"a"]), np.array(["a"], object))))
    assert not StringTable.are([1]) and not StringTable.are(np.zeros(2))


def test_texts_are_no_states_and_not_converted():
    source = strings_model([node("Identity", "x", "y")], {"x": (TEXT, [3])}, {"y": (TEXT, [3])})
    graph = import_onnx(source)
    with pytest.raises(ModelError, match="strings, which cannot be a state"):
        keep_states(graph, {"y": "x"})
    with pytest.raises(ModelError, match="cannot be converted"):
        convert_inputs(graph, parse_inputs({"x": "uint8"}))


def test_models_of_one_folder(tmp_path):
    import tvm_megcc
    from tvm_megcc.codegen.bundle import write
    source = strings_model([ml("LabelEncoder", "x", "y", **KEYS)], {"x": (TEXT, [3])}, {"y": ("int64", [3])})
    made = [tvm_megcc.compile(source, "c", name=name) for name in ("m", "m_strings", "n")]
    folder = write([made[0], made[2]], tmp_path / "two")
    assert (folder / "m_strings.h").exists() and (folder / "n_strings.h").exists()
    with pytest.raises(MegccError, match="declares the strings of another model"):
        write(made[:2], tmp_path / "three")


def test_a_text_that_nothing_knows(tmp_path):
    import tvm_megcc
    source = strings_model([node("Equal", "x z", "y")], {"x": (TEXT, [3]), "z": (TEXT, [3])}, {"y": ("bool", [3])})
    folder = tvm_megcc.compile(source, "c", name="m").save(tmp_path / "m")
    assert not (folder / "m_strings.h").exists() and "the model knows none" in (folder / "m.h").read_text()
