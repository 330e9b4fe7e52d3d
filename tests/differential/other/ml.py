# SPDX-License-Identifier: Apache-2.0
"""Operators of ai.onnx.ml, beside ONNX Runtime. Classifiers with names for labels are in tests/unit/ops/test_ml.py."""

from __future__ import annotations

import numpy as np

from .node import Node, Rule

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _table(node: Node, dtypes=("float32",)) -> np.ndarray:
    """Rows of features."""
    return node.add(node.reals(node.whole(1, 9), node.whole(1, 7), dtype=node.one(*dtypes)))


def _list(node: Node, *shape: int) -> list[float]:
    return node.reals(int(np.prod(shape))).tolist()


def binarizer(node: Node) -> None:
    node.add(node.reals(*node.shape()))
    node.maybe("threshold", node.one(0.0, 0.3, -0.5))


def scaler(node: Node) -> None:
    x = _table(node, ("float32", "float32", "float64", "int64", "int32"))
    count = node.one(1, x.shape[1])
    node.attributes = {"offset": _list(node, count), "scale": _list(node, count)}


def normalizer(node: Node) -> None:
    x = _table(node, ("float32", "float32", "float64", "int64", "int32"))
    x[node.rng.random(len(x)) < 0.2] = 0
    node.maybe("norm", node.one("MAX", "L1", "L2"), 0.9)


def imputer(node: Node) -> None:
    if node.chance(0.5):
        x = _table(node)
        x[node.rng.random(x.shape) < 0.2] = np.nan
        node.attributes = {"imputed_value_floats": _list(node, node.one(1, x.shape[1])),
                           "replaced_value_float": float("nan")}
    else:
        x = node.add(node.integers("int64", node.whole(1, 9), node.whole(1, 7), low=-3, high=3))
        node.attributes = {"imputed_value_int64s": [7, 8, 9, 1, 2, 3, 4][:node.one(1, x.shape[1])],
                           "replaced_value_int64": node.whole(-1, 1)}


def one_hot(node: Node) -> None:
    node.add(node.integers("int64", *node.shape(1, 3), low=0, high=6).astype(node.one("int64", "float32", "float64")))
    node.attributes = {"cats_int64s": [int(each) for each in node.rng.permutation(7)]}  # without zeros all are known
    node.maybe("zeros", node.whole(0, 1))


def vectorizer(node: Node) -> None:
    rows, widths = node.whole(1, 9), [node.whole(1, 5) for _ in range(node.whole(1, 3))]
    dtype = node.one("float32", "float64", "int64", "int32")
    for width in widths:
        node.add(node.reals(rows, width, dtype=dtype))
    node.attributes["inputdimensions"] = widths


def extractor(node: Node) -> None:
    x = node.add(node.reals(*node.shape(1, 3), dtype=node.one("float32", "float64", "int64", "int32")))
    node.add(node.integers("int64", node.whole(1, 5), low=0, high=x.shape[-1] - 1), 0.7)


def label_encoder(node: Node) -> None:
    node.version = node.one(2, 3, 4)
    kinds = node.one("int64s int64s", "int64s floats", "floats floats", "floats int64s").split()
    count = node.whole(1, 7)
    keys, values = node.rng.permutation(9)[:count], node.integers("int64", count, low=-9, high=9)
    for name, kind, numbers in zip(("keys", "values"), kinds, (keys, values), strict=True):
        node.attributes[f"{name}_{kind}"] = [float(each) if kind == "floats" else int(each) for each in numbers]
    if node.chance(0.5):
        node.attributes.update({"default_int64": -5} if kinds[1] == "int64s" else {"default_float": 2.5})
    node.add(node.integers("int64", *node.shape(1, 3), low=0, high=9).astype(
        "int64" if kinds[0] == "int64s" else "float32"))


def linear_regressor(node: Node) -> None:
    x, targets = _table(node), node.whole(1, 4)
    node.attributes = {"coefficients": _list(node, targets, x.shape[1]), "targets": targets}
    node.maybe("intercepts", _list(node, targets))
    node.maybe("post_transform", node.one(*TRANSFORMS))


def _labels(node: Node, classes: int) -> dict[str, list[int]]:
    return {"classlabels_ints": [int(each) for each in node.rng.permutation(9)[:classes]]}


def linear_classifier(node: Node) -> None:
    x, classes = _table(node, ("float32", "float32", "float64", "int64", "int32")), node.whole(2, 5)
    node.attributes = {"coefficients": _list(node, classes, x.shape[1]), "intercepts": _list(node, classes),
                       **_labels(node, classes)}
    node.maybe("post_transform", node.one(*TRANSFORMS))
    node.results = ("l", "p")


def svm_regressor(node: Node) -> None:
    x, count = _table(node), node.whole(1, 6)
    kernel = node.one("LINEAR", "POLY", "RBF", "SIGMOID")
    node.attributes = {"kernel_type": kernel, "kernel_params": [0.3, 0.2, node.one(2.0, 3.0)], "n_supports": count,
                       "support_vectors": _list(node, count, x.shape[1]), "coefficients": _list(node, count),
                       "rho": _list(node, 1)}
    node.maybe("one_class", node.whole(0, 1))


def svm_classifier(node: Node) -> None:
    x, classes = _table(node), node.whole(2, 4)
    counts, pairs = [node.whole(1, 3) for _ in range(classes)], classes * (classes - 1) // 2
    node.attributes = {"kernel_type": node.one("LINEAR", "POLY", "RBF", "SIGMOID"), "kernel_params": [0.3, 0.2, 2.0],
                       "vectors_per_class": counts, "rho": _list(node, pairs), **_labels(node, classes),
                       "support_vectors": _list(node, sum(counts), x.shape[1]),
                       "coefficients": _list(node, classes - 1, sum(counts))}
    if node.chance(0.5):
        node.attributes |= {"prob_a": _list(node, pairs), "prob_b": _list(node, pairs)}
    node.maybe("post_transform", node.one(*TRANSFORMS))
    node.results = ("l", "p")


def _trees(node: Node, features: int) -> list[tuple[int, int]]:
    """Nodes of some trees become attributes; trees and nodes of their leaves."""
    rows, leaves = [], []
    modes = node.one(MODES, MODES[:1], (node.one(*MODES),))
    for tree in range(node.whole(1, 5)):
        waiting, following = [(0, 0)], 1
        while waiting:
            place, depth = waiting.pop(0)
            if depth >= node.whole(1, 4):
                rows.append((tree, place, 0, 0, 0, "LEAF", 0.0, 0))
                leaves.append((tree, place))
            else:
                rows.append((tree, place, node.whole(0, features - 1), following, following + 1, node.one(*modes),
                             float(node.whole(-3, 3)) / 2, node.whole(0, 1)))
                waiting += [(following, depth + 1), (following + 1, depth + 1)]
                following += 2
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "modes", "values",
             "missing_value_tracks_true")
    node.attributes |= {f"nodes_{name}": list(column)
                        for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return leaves


def _weights(node: Node, what: str, leaves, ids) -> None:
    rows = [(*leaf, each, float(np.float32(node.rng.standard_normal()))) for leaf in leaves for each in ids]
    node.attributes |= {f"{what}_{name}": list(column) for name, column in
                        zip(("treeids", "nodeids", "ids", "weights"), zip(*rows, strict=True), strict=True)}


def tree_regressor(node: Node) -> None:
    x = _table(node, ("float32", "float64"))
    x[node.rng.random(x.shape) < 0.1] = np.nan
    targets = node.whole(1, 4)
    _weights(node, "target", _trees(node, x.shape[1]), range(targets))
    node.attributes["n_targets"] = targets
    node.maybe("base_values", _list(node, targets), 0.4)
    node.maybe("post_transform", node.one(*TRANSFORMS))
    node.maybe("aggregate_function", node.one("SUM", "AVERAGE", "MIN", "MAX"))
    node.version = 3


def tree_classifier(node: Node) -> None:
    x, classes = _table(node, ("float32", "float64", "int64", "int32")), node.whole(2, 5)
    _weights(node, "class", _trees(node, x.shape[1]), range(classes))
    node.attributes |= {"classlabels_int64s": _labels(node, classes)["classlabels_ints"]}
    node.maybe("base_values", _list(node, classes), 0.3)
    node.maybe("post_transform", node.one(*TRANSFORMS))
    node.results, node.version = ("l", "p"), 3


RULES: dict[str, Rule] = {
    "Binarizer": binarizer, "Scaler": scaler, "Normalizer": normalizer, "Imputer": imputer, "OneHotEncoder": one_hot,
    "FeatureVectorizer": vectorizer, "ArrayFeatureExtractor": extractor, "LabelEncoder": label_encoder,
    "LinearRegressor": linear_regressor, "LinearClassifier": linear_classifier, "SVMRegressor": svm_regressor,
    "SVMClassifier": svm_classifier, "TreeEnsembleRegressor": tree_regressor,
    "TreeEnsembleClassifier": tree_classifier}
