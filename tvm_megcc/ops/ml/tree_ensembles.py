# SPDX-License-Identifier: Apache-2.0
"""Imports tree ensembles of ai.onnx.ml, with labels and probabilities as ONNX Runtime computes them; and helpers for
labels and scores that ml/models.py shares.

Shapes: N rows, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.expr import X, call
from ..base import Decomposition, OnnxNode, decomposes
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from ..tensor.move import emit_slice
from .tree_tables import Ensemble, read_by_ids, read_by_index

DOMAIN = "ai.onnx.ml"
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def ml(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Returns a decorator that registers a function as the importer of operators of ai.onnx.ml."""
    return decomposes(*(f"{DOMAIN}::{name}" for name in names))


def feature_matrix(node: OnnxNode) -> str:
    """Emits the node's operand as a matrix [N, F]; a vector is one row. Raises ShapeError for other ranks."""
    type_ = node.type_of(node.inputs[0])
    if type_.rank not in (1, 2):
        raise ShapeError(f"requires rows of features, not {type_}")
    if type_.rank == 2:
        return node.inputs[0]
    return node.emit("reshape", node.inputs[:1], shape=(1, type_.shape[0]))[0]


def float_input(node: OnnxNode) -> str:
    """Emits the node's operand as a matrix float32 [N, F]."""
    return cast_to(node, feature_matrix(node), "float32")[0]


def post_transform_of(node: OnnxNode) -> str:
    """Returns attribute post_transform, one of TRANSFORMS; raises MegccError for others."""
    name: str = node.attr("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise MegccError(f"has post_transform {name}, which is not supported")
    return name


def apply_post_transform(node: OnnxNode, scores: str, kind: str) -> str:
    """Emits scores [N, C] after post_transform `kind`, one of TRANSFORMS, in their dtype."""
    if kind == "LOGISTIC":
        return node.emit("sigmoid", (scores,))[0]
    if kind == "SOFTMAX":
        return node.emit("softmax", (scores,), axis=1)[0]
    if kind == "PROBIT":
        return probit(node, scores)
    return _softmax_zero(node, scores) if kind == "SOFTMAX_ZERO" else scores


def apply_regression_transform(node: OnnxNode, scores: str, kind: str, targets: int) -> str:
    """Emits the scores [N, targets] of a regression after post_transform `kind`. With one target ONNX Runtime applies
    only PROBIT."""
    return scores if targets == 1 and kind != "PROBIT" else apply_post_transform(node, scores, kind)


def _softmax_zero(node: OnnxNode, scores: str) -> str:
    """Emits ONNX Runtime's SOFTMAX_ZERO: a softmax over the scores whose magnitude is above 1e-7; others are multiplied
    by exp(-top) and divided by the sum, so 0 stays 0."""
    dtype = node.type_of(scores).dtype
    (top,) = node.emit("reduce_max", (scores,), axes=(1,), keepdims=True)
    (exponentials,) = node.emit("exp", emit_broadcast(node, "sub", (scores, top)))
    (inverse_of_top,) = node.emit("exp", node.emit("neg", (top,)))
    (magnitude,) = node.emit("abs", (scores,))
    (is_nonzero,) = emit_broadcast(node, "greater", (magnitude, number(node, 1e-7, dtype)))
    (terms,) = emit_broadcast(node, "where", (is_nonzero, exponentials, number(node, 0, dtype)))
    (total,) = node.emit("reduce_sum", (terms,), axes=(1,), keepdims=True)
    (tiny,) = emit_broadcast(node, "mul", (scores, inverse_of_top))
    return emit_broadcast(node, "div", (*emit_broadcast(node, "where", (is_nonzero, exponentials, tiny)), total))[0]


def probit(node: OnnxNode, scores: str) -> str:
    """Emits the probit function, the inverse of the normal distribution function, by ONNX Runtime's approximation
    (Winitzki's, of the inverse error function). The constants are those of its ComputeProbit."""
    centred = 2 * X - 1
    log = call("log", (1 - centred) * (1 + centred))
    middle = 2 / (3.14159 * 0.147) + 0.5 * log
    root = call("sqrt", call("sqrt", middle * middle - log / 0.147) - middle)
    return node.emit("elementwise", (scores,), expr=1.41421356 * call("if_lt", centred, 0, -root, root))[0]


def labels_of(node: OnnxNode, ints: str = "classlabels_int64s") -> list[int]:
    """Returns the labels of the classes; strings as their indices in the string table. ints: the name of the attribute
    for labels that are integers."""
    strings = node.strings("classlabels_strings")
    return list(node.attr(ints) or []) if strings is None else strings.tolist()


def emit_labels(node: OnnxNode, index: str, labels: Sequence[int]) -> str:
    """Emits the labels of class indices [N]: [N], int64 or strings."""
    if list(labels) != list(range(len(labels))):
        (index,) = node.emit("gather", (node.constant(np.array(labels, np.int64)), index), axis=0)
    return index if node.strings("classlabels_strings") is None else node.as_strings(index)


def choose_label(node: OnnxNode, condition: str, yes: int, no: int) -> str:
    """Emits one of two labels for each element of a condition [N, 1]: [N], int64 or strings."""
    pair = [node.constant(np.array(label, np.int64)) for label in (yes, no)]
    (label,) = emit_broadcast(node, "where", (condition, *pair))
    (label,) = node.emit("reshape", (label,), shape=node.type_of(label).shape[:1])
    return label if node.strings("classlabels_strings") is None else node.as_strings(label)


def score_column(node: OnnxNode, scores: str, index: int) -> str:
    """Emits a column of scores, [N, 1]."""
    return emit_slice(node, scores, 1, index, index + 1)


def negate(node: OnnxNode, value: str) -> str:
    return node.emit("neg", (value,))[0]


def concat_columns(node: OnnxNode, *columns: str) -> str:
    return node.emit("concat", columns, axis=1)[0]


@ml("ZipMap")
def zip_map(node: OnnxNode) -> tuple[str, ...]:
    """Imports ZipMap. The result is the scores in the order of the classes, instead of a map from labels to scores."""
    return node.inputs[:1]


def base_values(node: OnnxNode) -> np.ndarray:
    """Returns the attribute base_values, which are added to the scores, float64; an absent one is empty."""
    tensor = node.attr("base_values_as_tensor")
    return np.asarray(node.attr("base_values") or () if tensor is None else tensor, np.float64).reshape(-1)


def _float_list(node: OnnxNode, name: str) -> list[float]:
    """Returns an attribute that is a list of floats, or a tensor whose name ends in _as_tensor."""
    tensor = node.attr(f"{name}_as_tensor")
    return list(node.attr(name) or ()) if tensor is None else np.asarray(tensor).reshape(-1).tolist()


def _emit_trees(node: OnnxNode, ensemble: Ensemble, targets: int, fold: str) -> str:
    """Emits the results of an ensemble for the node's operand x [N, F]: [N, targets], in x's dtype, or in float32 if x
    is of integers. fold: one of AGGREGATES."""
    x = feature_matrix(node)
    type_ = node.type_of(x)
    if type_.dtype not in ("float32", "float64"):
        (x,) = cast_to(node, x, "float32")
    if not isinstance(type_.shape[1], int):
        raise ShapeError(f"requires a known number of features, not {type_}")
    tables = ensemble.tables(node.type_of(x).dtype, type_.shape[1], targets)
    (sums,) = node.emit("trees", (x, *map(node.constant, tables)), targets=targets,
                        fold="sum" if fold == "AVERAGE" else fold.lower())
    if fold == "AVERAGE":
        (sums,) = node.emit("div", (sums, number(node, len(ensemble.roots), node.type_of(x).dtype)))
    return sums


def _add_values(node: OnnxNode, scores: str, values: np.ndarray) -> str:
    """Emits scores [N, C] plus constants [C]."""
    dtype = np.dtype(node.type_of(scores).dtype)
    return emit_broadcast(node, "add", (scores, node.constant(values.astype(dtype).reshape(1, -1))))[0]


def _emit_regression(node: OnnxNode, ensemble: Ensemble, targets: int, fold: str, transform: str,
                     base: np.ndarray) -> tuple[str, ...]:
    """Emits the results of a regression, [N, targets], plus base values, after a post_transform."""
    if targets < 1:
        raise ShapeError(f"has {targets} targets")
    scores = _emit_trees(node, ensemble, targets, fold)
    if base.size == targets:
        scores = _add_values(node, scores, base)
    return (apply_regression_transform(node, scores, transform, targets),)


@ml("TreeEnsembleRegressor")
def regressor(node: OnnxNode) -> tuple[str, ...]:
    """Imports TreeEnsembleRegressor, [N, F] to float32 [N, targets]."""
    fold = node.attr("aggregate_function", "SUM")
    if fold not in AGGREGATES:
        raise MegccError(f"has aggregate_function {fold}, which is not supported")
    ensemble = read_by_ids(node.attr, "target", _float_list(node, "target_weights"), _float_list(node, "nodes_values"))
    (y,) = _emit_regression(node, ensemble, node.attr("n_targets", 1), fold, post_transform_of(node), base_values(node))
    return cast_to(node, y, "float32")


@ml("TreeEnsemble")
def tree_ensemble(node: OnnxNode) -> tuple[str, ...]:
    """Imports TreeEnsemble, [N, F] to [N, targets] of the operand's dtype."""
    fold, transform = node.attr("aggregate_function", 1), node.attr("post_transform", 0)
    if not (0 <= fold < len(AGGREGATES) and 0 <= transform < len(TRANSFORMS)):
        raise MegccError(f"has aggregate_function {fold} and post_transform {transform}, which are not supported")
    (y,) = _emit_regression(node, read_by_index(node.attr), node.attr("n_targets", 1), AGGREGATES[fold],
                            TRANSFORMS[transform], np.zeros(0))
    return cast_to(node, y, node.type_of(node.inputs[0]).dtype)


@ml("TreeEnsembleClassifier")
def classifier(node: OnnxNode) -> tuple[str, ...]:
    """Imports TreeEnsembleClassifier. Results: labels [N], and scores [N, classes]."""
    weights, labels = _float_list(node, "class_weights"), labels_of(node)
    ids, base, transform = set(node.attr("class_ids") or ()), base_values(node), post_transform_of(node)
    if not labels:
        raise ShapeError("has no labels of classes")
    ensemble = read_by_ids(node.attr, "class", weights, _float_list(node, "nodes_values"))
    scores = _emit_trees(node, ensemble, len(labels), "SUM")
    if len(labels) != 2:
        if base.size == len(labels):
            scores, ids = _add_values(node, scores, base), set(range(len(labels)))
        label, scores = _best_label(node, scores, ids, labels), apply_post_transform(node, scores, transform)
    else:
        label, scores = _binary_classifier(node, scores, ids, base, transform, labels,
                                           positive=min(weights, default=0.0) >= 0)
    return label, *cast_to(node, scores, "float32")


def _best_label(node: OnnxNode, scores: str, ids: set[int], labels: Sequence[int]) -> str:
    """Emits the label of the greatest score, [N], among the classes `ids`, those that leaves have weights for."""
    if len(ids) < len(labels):
        never = np.array([0 if index in ids else -np.inf for index in range(len(labels))])
        scores = _add_values(node, scores, never)
    (index,) = node.emit("arg_max", (scores,), axis=1, keepdims=False, last=False)
    return emit_labels(node, index, labels)


def _binary_classifier(node: OnnxNode, scores: str, ids: set[int], base: np.ndarray, transform: str,
                       labels: Sequence[int], *, positive: bool) -> tuple[str, str]:
    """Emits label and scores of a classifier with two labels, as ONNX Runtime's TreeAggregatorClassifier computes them.
    If leaves have weights for one class only, its score decides for the second label.

    Args:
        scores: the trees' results [N, 2].
        ids: the classes that leaves have weights for.
        positive: whether no weight is negative; then the score of a single class is compared with 0.5, else with 0.
    """
    is_single, has_second = len(ids) == 1, 1 in ids
    if base.size == 2 and has_second:
        # ONNX Runtime adds base value 1 to the score of class 0, and ignores base value 0.
        winning = _add_values(node, score_column(node, scores, 0), base[1:])
        scores = concat_columns(node, negate(node, winning), winning)
    elif base.size == 2:
        scores = _add_values(node, scores, base)
    elif base.size == 1:
        scores = _add_values(node, scores, np.array([base[0], 0.0]))
    winning = score_column(node, scores, 1 if has_second else 0)
    dtype = node.type_of(scores).dtype
    threshold = 0.5 if is_single and positive else 0.0
    (is_second,) = emit_broadcast(node, "greater", (winning, number(node, threshold, dtype)))
    # If both classes have weights, ONNX Runtime compares only the second score, with 0, and gives 0 and 1 instead of
    # labels that are integers.
    gives_labels = is_single or node.strings("classlabels_strings") is not None
    label = choose_label(node, is_second, *((labels[1], labels[0]) if gives_labels else (1, 0)))
    if has_second or base.size == 2:
        if is_single:  # a class without leaves has the score 0, without the base value
            scores = emit_broadcast(node, "mul", (scores, node.constant(np.array(
                [[0 in ids, has_second]], np.dtype(dtype)))))[0]
        return label, apply_post_transform(node, scores, transform)
    # The second class has no weights: it gets the score of the first one, whose own score is derived from that. ONNX
    # Runtime applies no post_transform to them but LOGISTIC, and that only if there are negative weights.
    if transform == "PROBIT":
        raise MegccError("has post_transform PROBIT of one score, of which ONNX Runtime gives no second")
    if is_single and positive:
        (first,) = emit_broadcast(node, "sub", (number(node, 1, dtype), winning))
    else:
        first = negate(node, winning)
        if transform == "LOGISTIC":
            first, winning = (apply_post_transform(node, value, transform) for value in (first, winning))
    return label, concat_columns(node, first, winning)
