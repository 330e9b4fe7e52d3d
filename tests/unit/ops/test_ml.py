# SPDX-License-Identifier: Apache-2.0
"""Operators of ai.onnx.ml: random models against ONNX Runtime, and tables that are none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.onnx_models import fed, model
from tvm_megcc.context import Context
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.graph import Attrs, Op
from tvm_megcc.ir.types import TensorType
from tvm_megcc.kernels.site import Site
from tvm_megcc.kernels.tree.masks import TreeMasks
from tvm_megcc.ops.ml.tree_tables import MODES
from tvm_megcc.ops.ml.trees import Trees
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
FEATURES = 5


def ml_model(kind: str, attributes: dict, inputs: dict, outputs: list[str], opset: int = 3) -> onnx.ModelProto:
    made = helper.make_node(kind, list(inputs), outputs, domain="ai.onnx.ml", **attributes)
    proto = model([made], fed(inputs), outputs, opset=18)
    for output in proto.graph.output:
        output.ClearField("type")
    del proto.opset_import[1:]
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", opset))
    return proto


def compare(kind: str, attributes: dict, x: np.ndarray, outputs: str = "y", opset: int = 3) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto = ml_model(kind, attributes, {"x": x}, outputs.split(), opset)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"]).run(None, {"x": x})
    actual = run(import_onnx(proto), {"x": x})
    tolerance = 1e-3 if attributes.get("post_transform") == "PROBIT" else 1e-5
    for name, wanted in zip(outputs.split(), expected, strict=True):
        if wanted.dtype == object:
            wanted = np.array([attributes["classlabels_strings"].index(text) for text in wanted])
        assert (actual[name].dtype, actual[name].shape) == (wanted.dtype, wanted.shape), (kind, attributes)
        np.testing.assert_allclose(actual[name], wanted, rtol=tolerance, atol=tolerance, err_msg=f"{kind} {attributes}")


def drawn_trees(random, count: int, modes, missing: bool) -> tuple[dict, list[tuple[int, int]]]:
    """Attributes of nodes, and trees and nodes of leaves."""
    rows, leaves = [], []
    for tree in range(count):
        waiting, following = [(0, 0)], 1
        while waiting:
            node, depth = waiting.pop(0)
            if depth >= 4 or (depth and random.random() < 0.2):
                rows.append((tree, node, 0, 0, 0, "LEAF", 0.0, 0))
                leaves.append((tree, node))
            else:
                rows.append((tree, node, int(random.integers(FEATURES)), following, following + 1,
                             modes[random.integers(len(modes))], float(random.integers(-3, 4)),
                             int(missing and random.random() < 0.5)))
                waiting += [(following, depth + 1), (following + 1, depth + 1)]
                following += 2
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "modes", "values",
             "missing_value_tracks_true")
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}, leaves


def given(random, what: str, leaves, classes, positive: bool) -> dict:
    rows = [(*leaf, int(each), float(np.float32(random.random() / 12 if positive else random.standard_normal())))
            for leaf in leaves for each in classes]
    return {f"{what}_{name}": list(column) for name, column in
            zip(("treeids", "nodeids", "ids", "weights"), zip(*rows, strict=True), strict=True)}


def drawn_rows(random, dtype: str) -> np.ndarray:
    x = random.integers(-4, 5, (int(random.integers(1, 40)), FEATURES)).astype(dtype)
    if dtype.startswith("float"):
        x[random.random(x.shape) < 0.15] = np.nan
    return x


@pytest.mark.parametrize("seed", range(24))
def test_trees(seed: int):
    """A regressor and a classifier. Where ONNX Runtime leaves base values out of scores that no leaf gave anything, all
    leaves give all."""
    random = np.random.default_rng(seed)
    modes = [MODES[:1], MODES[:6], [MODES[random.integers(6)]]][random.integers(3)]
    nodes, leaves = drawn_trees(random, int(random.integers(1, 12)), modes, seed % 2 == 1)
    transform = TRANSFORMS[random.integers(5)]
    targets = int(random.integers(1, 5))
    more = {"base_values": [0.1 * index for index in range(targets)]} if random.random() < 0.4 else {}
    compare("TreeEnsembleRegressor", {
        **nodes, **given(random, "target", leaves, range(targets), transform == "PROBIT"), **more,
        "n_targets": targets, "post_transform": transform,
        "aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX")[random.integers(4)],
    }, drawn_rows(random, ("float32", "float64")[seed % 2]))
    classes = int(random.integers(2, 5))
    own = [int(random.integers(2))] if classes == 2 and random.random() < 0.6 else range(classes)
    labels = [{"classlabels_strings": ["no", "yes", "cat", "dog"][:classes]},
              {"classlabels_int64s": [7, 3, 9, -2][:classes]}][random.integers(2)]
    more = {"base_values": [0.05 + 0.1 * index for index in range(classes)]} if random.random() < 0.3 else {}
    if list(own) == [0] and transform == "PROBIT":
        transform = "NONE"  # of one score ONNX Runtime gives no second
    compare("TreeEnsembleClassifier", {
        **nodes, **given(random, "class", leaves, own, bool(random.integers(2)) or transform == "PROBIT"), **labels,
        **more, "post_transform": transform,
    }, drawn_rows(random, ("float32", "float64", "int64")[random.integers(3)]), "l p")


def test_thresholds_are_exact():
    """Neighbours of a threshold, infinities and zeros of both signs, in every mode."""
    limits = (0.5, 0.0, -1.25, float("inf"), float("-inf"))
    near = [np.nextafter(np.float32(limit), np.float32(side)) for limit in limits for side in (-np.inf, np.inf)]
    x = np.array([*near, *limits, -0.0, np.nan, 1e-45], np.float32).reshape(-1, 1)
    for mode in MODES[:6]:
        for limit in limits:
            for missing in (0, 1):
                nodes = {"treeids": [0] * 3, "nodeids": [0, 1, 2], "featureids": [0] * 3, "truenodeids": [1, 0, 0],
                         "falsenodeids": [2, 0, 0], "modes": [mode, "LEAF", "LEAF"], "values": [limit, 0.0, 0.0],
                         "missing_value_tracks_true": [missing, 0, 0]}
                compare("TreeEnsembleRegressor", {
                    **{f"nodes_{name}": column for name, column in nodes.items()}, "target_treeids": [0, 0],
                    "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1}, x)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_linear_models_and_support_vectors(kernel: str):
    random = np.random.default_rng(3)

    def floats(*shape):
        return random.standard_normal(int(np.prod(shape))).astype(np.float32).tolist()

    for transform in TRANSFORMS[:4]:
        for classes in (1, 2, 3, 4):
            x = random.standard_normal((int(random.integers(1, 9)), FEATURES)).astype(np.float32)
            labels = {"classlabels_ints": [4, 2, 7, 9][:max(classes, 2)]}
            linear = {"coefficients": floats(classes, FEATURES), "intercepts": floats(classes),
                      "post_transform": transform}
            compare("LinearRegressor", {**linear, "targets": classes}, x)
            compare("LinearClassifier", {**linear, **labels}, x, "l p")
            if classes < 2:
                continue
            counts = random.integers(1, 4, classes).tolist()
            common = {"kernel_params": [0.3, 0.2, 2.0], "post_transform": transform, **labels}
            pairs = classes * (classes - 1) // 2
            for more in ({}, {"prob_a": floats(pairs), "prob_b": floats(pairs)}):
                compare("SVMClassifier", {
                    **common, **more, "kernel_type": kernel, "vectors_per_class": counts, "rho": floats(pairs),
                    "support_vectors": floats(sum(counts), FEATURES), "coefficients": floats(classes - 1, sum(counts))},
                    x, "l p")
            for coefficients in (floats(classes, FEATURES), np.abs(floats(classes, FEATURES)).tolist()):
                compare("SVMClassifier", {**common, "coefficients": coefficients, "rho": floats(1)}, x, "l p")
        for one_class in (0, 1):
            compare("SVMRegressor", {
                "kernel_type": kernel, "kernel_params": [0.3, 0.2, 3.0 - one_class / 2 * (kernel != "POLY")],
                "n_supports": 4, "support_vectors": floats(4, FEATURES), "coefficients": floats(4), "rho": floats(1),
                "one_class": one_class}, x)
    compare("SVMRegressor", {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 1.0], "rho": floats(1),
                             "coefficients": floats(FEATURES)}, x)


def test_scalers_and_encoders():
    random = np.random.default_rng(4)
    x = random.standard_normal((6, 4)).astype(np.float32)
    whole = random.integers(0, 6, (4, 3))
    for many in (1, 4):
        compare("Scaler", {"offset": x[0, :many].tolist(), "scale": x[1, :many].tolist()}, x)
        compare("Imputer", {"imputed_value_floats": x[0, :many].tolist(), "replaced_value_float": float("nan")},
                np.where(x > 1, np.float32(np.nan), x))
    for norm in ("MAX", "L1", "L2"):
        compare("Normalizer", {"norm": norm}, np.where(np.arange(6)[:, None] == 2, np.float32(0), x))
        compare("Normalizer", {"norm": norm}, x[0])
    compare("Imputer", {"imputed_value_int64s": [7], "replaced_value_int64": 2}, whole)
    compare("Binarizer", {"threshold": 0.3}, x)
    for dtype in ("int64", "float32", "float64"):
        compare("OneHotEncoder", {"cats_int64s": [3, 1, 4], "zeros": 1}, whole.astype(dtype))
    compare("LabelEncoder", {"keys_int64s": [3, 1, 4], "values_int64s": [9, 8, 7], "default_int64": -5}, whole)
    compare("LabelEncoder", {"keys_int64s": [3, 1, 4], "values_floats": [9.5, 8, 7]}, whole)
    reals = np.where(whole == 5, np.nan, whole).astype(np.float32)
    for opset in (2, 4):
        compare("LabelEncoder", {"keys_floats": [3.0, float("nan"), 4.0], "values_floats": [9.5, 8, 7],
                                 "default_float": 2.5}, reals, opset=opset)
    compare("LabelEncoder", {"keys_floats": [3.0, 1.0], "values_int64s": [9, 8]}, reals)


def test_columns_and_what_is_dropped():
    x, labels = np.arange(12, dtype=np.float32).reshape(3, 4), ["a", "b", "c", "d"]
    rows = [helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["p"], domain="ai.onnx.ml"),
            helper.make_node("ZipMap", ["x"], ["m"], domain="ai.onnx.ml", classlabels_strings=labels),
            helper.make_node("FeatureVectorizer", ["x", "p"], ["f"], domain="ai.onnx.ml", inputdimensions=[4, 2]),
            helper.make_node("ArgMax", ["x"], ["w"], axis=1, keepdims=0),
            helper.make_node("ArrayFeatureExtractor", ["t", "w"], ["l"], domain="ai.onnx.ml")]
    proto = model(rows, fed({"x": x}), ["p", "m", "f", "l"], {"i": np.array([2, 0])})
    strings = [text.encode() for text in labels]
    proto.graph.initializer.append(helper.make_tensor("t", onnx.TensorProto.STRING, [4], strings))
    result = run(import_onnx(proto), {"x": x})
    np.testing.assert_array_equal(result["p"], x[:, [2, 0]])
    np.testing.assert_array_equal(result["m"], x)
    np.testing.assert_array_equal(result["f"], np.concatenate([x, x[:, [2, 0]]], 1))
    np.testing.assert_array_equal(result["l"], [[3, 3, 3]])


@pytest.mark.parametrize(("shape", "width"), [
    ((1, 1, 4), 4), ((2, 2, 2), 4), ((2, 2, 2), 2), ((4,), 4), ((2, 3), 3), ((2, 3), 2), ((2, 3), 5), ((3, 1), 1)])
def test_as_many_columns_as_are_asked_for(shape, width):
    """A vector is a row; ONNX Runtime takes more axes than the two that ONNX has."""
    x = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    for dtype in ("float32", "int64"):
        compare("FeatureVectorizer", {"inputdimensions": [width]}, x.astype(dtype))
    for widths in ([width, 2], [-1]):
        with pytest.raises(ModelError, match="inputdimensions"):
            import_onnx(ml_model("FeatureVectorizer", {"inputdimensions": widths}, {"x": x}, ["y"], 3))


TREE = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1}


@pytest.mark.parametrize(("attributes", "why"), [
    ({"nodes_truenodeids": [0, 0, 0]}, "lead back to themselves"),
    ({"nodes_falsenodeids": [9, 0, 0]}, "node 9 of tree 0, which is not there"),
    ({"nodes_featureids": [5, 0, 0]}, "feature 5; the"), ({"nodes_featureids": [-1, 0, 0]}, "feature -1; the"),
    ({"target_ids": [0, 1]}, "target 1 of 1"), ({"target_nodeids": [0, 2]}, "which is no leaf"),
    ({"target_nodeids": [1, 7]}, "which is no leaf"), ({"nodes_nodeids": [0, 1, 1]}, "twice"),
    ({"nodes_values": [0.5]}, "different lengths"), ({"nodes_modes": ["BRANCH_ODD", "LEAF", "LEAF"]}, "BRANCH_ODD"),
    ({"n_targets": 0}, "0 targets"), ({"post_transform": "CUBE"}, "CUBE"), ({"aggregate_function": "MEDIAN"}, "MEDIAN"),
])
def test_tables_that_are_none_are_refused(attributes, why):
    x = {"x": np.zeros((2, FEATURES), np.float32)}
    with pytest.raises(ModelError, match=why):
        import_onnx(ml_model("TreeEnsembleRegressor", {**TREE, **attributes}, x, ["y"]))


def ensemble(**changes) -> dict:
    tensors = {"nodes_splits": ("float32", [0.5, 2.0]), "nodes_modes": ("uint8", [0, 6]),
               "leaf_weights": ("float32", [1.0, 2.0, 3.0]), "membership_values": ("float32", [2.0, 4.0, 3.0, np.nan])}
    lists = {"nodes_featureids": [0, 1], "nodes_trueleafs": [1, 1], "nodes_truenodeids": [0, 1],
             "nodes_falseleafs": [0, 1], "nodes_falsenodeids": [1, 2], "leaf_targetids": [0, 0, 0], "tree_roots": [0]}
    made = {name: onnx.numpy_helper.from_array(np.array(values, dtype)) for name, (dtype, values) in tensors.items()}
    return {**made, **lists, "n_targets": 1, **changes}


def test_sets_of_values():
    x = np.array([[0, 0], [1, 2], [1, 2.5], [1, 3], [1, 4], [1, 5], [np.nan, 3], [1, np.nan]], np.float32)
    result = run(import_onnx(ml_model("TreeEnsemble", ensemble(), {"x": x}, ["y"], 5)), {"x": x})["y"]
    np.testing.assert_array_equal(result.reshape(-1), [1, 2, 3, 2, 2, 3, 2, 3])
    for changes, why in (({"nodes_falsenodeids": [0, 2]}, "lead back"), ({"tree_roots": [2]}, "not exist"),
                         ({"nodes_truenodeids": [7, 1]}, "not exist"), ({"nodes_truenodeids": [-1, 1]}, "not exist"),
                         ({"nodes_featureids": [0, 9]}, "feature 9; the features are 0 to 1")):
        with pytest.raises(ModelError, match=why):
            import_onnx(ml_model("TreeEnsemble", ensemble(**changes), {"x": x}, ["y"], 5))


def test_an_ensemble_of_several_targets_adds_weights():
    """Without `aggregate_function` and `post_transform`, a target is the sum of its leaves."""
    x = np.array([[0, 0], [1, 2], [1, 2.5]], np.float32)
    made = ml_model("TreeEnsemble", ensemble(leaf_targetids=[0, 1, 0], n_targets=2), {"x": x}, ["y"], 5)
    assert run(import_onnx(made), {"x": x})["y"].tolist() == [[1, 0], [0, 2], [3, 0]]


def test_masks_need_scratch_for_the_values_of_one_feature():
    """The masks of all trees and the values of a feature, 4 bytes each, of 16 rows; however many features there are."""
    case = Trees.cases[0]
    types = tuple(TensorType(dtype, shape) for shape, dtype in case.inputs)
    op = Op("trees", Attrs(case.attrs), tuple("abcdef"), ("y",))
    site = Site(op, types, Trees.infer(op.attrs, *types), Context(TARGETS["x86-64-v3"]), frozenset(case.constant),
                {index: np.asarray(case.values[index], types[index].dtype) for index in case.constant})
    assert TreeMasks().lower(site).scratch == 16 * (4 * Symbol("ROOTS") + 4)


def test_labels_after_other_strings():
    """The string table of the model has other strings before the labels of the second and of the third node."""
    tree = {"treeids": [0] * 3, "nodeids": [0, 1, 2], "featureids": [0] * 3, "truenodeids": [1, 0, 0],
            "falsenodeids": [2, 0, 0], "modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "values": [0.0] * 3}
    leaves = {"treeids": [0] * 4, "nodeids": [1, 1, 2, 2], "ids": [0, 1, 0, 1], "weights": [1.0, -1.0, -1.0, 1.0]}
    attributes = {**{f"nodes_{name}": column for name, column in tree.items()},
                  **{f"class_{name}": column for name, column in leaves.items()}}
    made = [helper.make_node("TreeEnsembleClassifier", ["x"], [f"l{index}", f"p{index}"], domain="ai.onnx.ml",
                             classlabels_strings=labels, **attributes)
            for index, labels in enumerate((["no", "yes"], ["cat", "dog"]))]
    made.append(helper.make_node("LinearClassifier", ["x"], ["l2", "p2"], domain="ai.onnx.ml", coefficients=[1.0],
                                 intercepts=[0.0], classlabels_strings=["only"]))
    x = np.array([[-1], [1]], np.float32)
    proto = model(made, fed({"x": x}), ["l0", "l1", "l2"], opset=18)
    for output in proto.graph.output:
        output.ClearField("type")
    graph = import_onnx(proto)
    found = run(graph, {"x": x})
    texts = [[graph.strings[index] for index in found[name]] for name in ("l0", "l1", "l2")]
    assert texts == [["no", "yes"], ["cat", "dog"], ["0", "1"]]
