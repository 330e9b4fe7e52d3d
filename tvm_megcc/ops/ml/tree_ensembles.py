# SPDX-License-Identifier: Apache-2.0
"""Imports tree ensembles of ai.onnx.ml, with labels and probabilities as in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.expr import X, call
from ..base import Decomposition, OnnxNode, decomposes
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from .tree_tables import Ensemble, by_ids, by_index

DOMAIN = "ai.onnx.ml"
FOLDS = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def ml(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Registers a function as the importer of operators of ai.onnx.ml."""
    return decomposes(*(f"{DOMAIN}::{name}" for name in names))


def features(node: OnnxNode) -> str:
    """Returns the operand as a matrix [N, F]; a vector is one row."""
    type_ = node.type_of(node.inputs[0])
    if type_.rank not in (1, 2):
        raise ShapeError(f"wants rows of features, not {type_}")
    if type_.rank == 2:
        return node.inputs[0]
    return node.emit("reshape", node.inputs[:1], shape=(1, type_.shape[0]))[0]


def float_input(node: OnnxNode) -> str:
    """Returns the matrix of `features` as float32."""
    return cast_to(node, features(node), "float32")[0]


def transform_of(node: OnnxNode) -> str:
    name: str = node.attr("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise MegccError(f"has post_transform {name}, which is not supported")
    return name


def transformed(node: OnnxNode, scores: str, kind: str) -> str:
    """Applies attribute post_transform to scores [N, C]."""
    dtype = node.type_of(scores).dtype
    if kind == "LOGISTIC":
        return node.emit("sigmoid", (scores,))[0]
    if kind == "SOFTMAX":
        return node.emit("softmax", (scores,), axis=1)[0]
    if kind == "PROBIT":
        return probit(node, scores)
    if kind == "SOFTMAX_ZERO":  # zeros stay zeros
        (top,) = node.emit("reduce_max", (scores,), axes=(1,), keepdims=True)
        (exponents,) = node.emit("exp", emit_broadcast(node, "sub", (scores, top)))
        (small,) = node.emit("exp", node.emit("neg", (top,)))
        (size,) = node.emit("abs", (scores,))
        (counts,) = emit_broadcast(node, "greater", (size, number(node, 1e-7, dtype)))
        (summed,) = emit_broadcast(node, "where", (counts, exponents, number(node, 0, dtype)))
        (total,) = node.emit("reduce_sum", (summed,), axes=(1,), keepdims=True)
        (scores,) = emit_broadcast(node, "where", (counts, exponents, *emit_broadcast(node, "mul", (scores, small))))
        return emit_broadcast(node, "div", (scores, total))[0]
    return scores


def probit(node: OnnxNode, scores: str) -> str:
    """Emits ONNX Runtime's approximation of the inverse of the normal distribution function."""
    centred = 2 * X - 1
    log = call("log", (1 - centred) * (1 + centred))
    middle = 2 / (3.14159 * 0.147) + 0.5 * log
    root = call("sqrt", call("sqrt", middle * middle - log / 0.147) - middle)
    return node.emit("elementwise", (scores,), expr=1.41421356 * call("if_lt", centred, 0, -root, root))[0]


def labels_of(node: OnnxNode, ints: str = "classlabels_int64s") -> list[int]:
    """Returns the labels of the classes; strings as their codes."""
    strings = node.strings("classlabels_strings")
    return list(node.attr(ints) or []) if strings is None else strings.tolist()


def labelled(node: OnnxNode, index: str, labels: Sequence[int]) -> str:
    """Emits the labels of class indices [N]."""
    if list(labels) != list(range(len(labels))):
        (index,) = node.emit("gather", (node.constant(np.array(labels, np.int64)), index), axis=0)
    return index if node.strings("classlabels_strings") is None else node.as_strings(index)


def chosen(node: OnnxNode, condition: str, yes: int, no: int) -> str:
    """Emits one of two labels for each element of a condition [N, 1]."""
    pair = [node.constant(np.array(label, np.int64)) for label in (yes, no)]
    (label,) = emit_broadcast(node, "where", (condition, *pair))
    (label,) = node.emit("reshape", (label,), shape=node.type_of(label).shape[:1])
    return label if node.strings("classlabels_strings") is None else node.as_strings(label)


def column(node: OnnxNode, scores: str, index: int) -> str:
    """Emits a column of scores, [N, 1]."""
    from ..tensor.move import emit_slice
    return emit_slice(node, scores, 1, index, index + 1)


def negated(node: OnnxNode, value: str) -> str:
    return node.emit("neg", (value,))[0]


def concat_columns(node: OnnxNode, *columns: str) -> str:
    return node.emit("concat", columns, axis=1)[0]


@ml("ZipMap")
def zip_map(node: OnnxNode) -> tuple[str, ...]:
    """Imports ZipMap. The result is the scores in the order of the classes, instead of a map from labels to scores."""
    return node.inputs[:1]


def base_values(node: OnnxNode) -> np.ndarray:
    tensor = node.attr("base_values_as_tensor")
    return np.asarray(node.attr("base_values") or () if tensor is None else tensor, np.float64).reshape(-1)


def _float_list(node: OnnxNode, name: str) -> list[float]:
    tensor = node.attr(f"{name}_as_tensor")
    return list(node.attr(name) or ()) if tensor is None else np.asarray(tensor).reshape(-1).tolist()


def _sums(node: OnnxNode, ensemble: Ensemble, targets: int, fold: str) -> str:
    """Emits the trees' results, [N, targets], in x's dtype; in float32 if x is of integers."""
    x = features(node)
    type_ = node.type_of(x)
    if type_.dtype not in ("float32", "float64"):
        (x,) = cast_to(node, x, "float32")
    if not isinstance(type_.shape[1], int):
        raise ShapeError(f"wants a known number of features, not {type_}")
    tables = ensemble.tables(node.type_of(x).dtype, type_.shape[1], targets)
    (sums,) = node.emit("trees", (x, *map(node.constant, tables)), targets=targets,
                        fold="sum" if fold == "AVERAGE" else fold.lower())
    if fold == "AVERAGE":
        (sums,) = node.emit("div", (sums, number(node, len(ensemble.roots), node.type_of(x).dtype)))
    return sums


def _added(node: OnnxNode, scores: str, values: np.ndarray) -> str:
    dtype = np.dtype(node.type_of(scores).dtype)
    return emit_broadcast(node, "add", (scores, node.constant(values.astype(dtype).reshape(1, -1))))[0]


def _regression(node: OnnxNode, ensemble: Ensemble, targets: int, fold: str, transform: str,
                base: np.ndarray) -> tuple[str, ...]:
    if targets < 1:
        raise ShapeError(f"has {targets} targets")
    scores = _sums(node, ensemble, targets, fold)
    if base.size == targets:
        scores = _added(node, scores, base)
    # With one target ONNX Runtime applies only PROBIT.
    return (transformed(node, scores, transform if targets > 1 or transform == "PROBIT" else "NONE"),)


@ml("TreeEnsembleRegressor")
def regressor(node: OnnxNode) -> tuple[str, ...]:
    fold = node.attr("aggregate_function", "SUM")
    if fold not in FOLDS:
        raise MegccError(f"has aggregate_function {fold}, which is not supported")
    ensemble = by_ids(node.attr, "target", _float_list(node, "target_weights"), _float_list(node, "nodes_values"))
    (y,) = _regression(node, ensemble, node.attr("n_targets", 1), fold, transform_of(node), base_values(node))
    return cast_to(node, y, "float32")


@ml("TreeEnsemble")
def tree_ensemble(node: OnnxNode) -> tuple[str, ...]:
    fold, transform = node.attr("aggregate_function", 1), node.attr("post_transform", 0)
    if not (0 <= fold < len(FOLDS) and 0 <= transform < len(TRANSFORMS)):
        raise MegccError(f"has aggregate_function {fold} and post_transform {transform}, which are not supported")
    (y,) = _regression(node, by_index(node.attr), node.attr("n_targets", 1), FOLDS[fold], TRANSFORMS[transform],
                       np.zeros(0))
    return cast_to(node, y, node.type_of(node.inputs[0]).dtype)


@ml("TreeEnsembleClassifier")
def classifier(node: OnnxNode) -> tuple[str, ...]:
    """Imports TreeEnsembleClassifier. Results: labels [N], and scores [N, classes]."""
    weights, labels = _float_list(node, "class_weights"), labels_of(node)
    ids, base, transform = set(node.attr("class_ids") or ()), base_values(node), transform_of(node)
    if not labels:
        raise ShapeError("has no labels of classes")
    ensemble = by_ids(node.attr, "class", weights, _float_list(node, "nodes_values"))
    scores = _sums(node, ensemble, len(labels), "SUM")
    if len(labels) != 2:
        if base.size == len(labels):
            scores, ids = _added(node, scores, base), set(range(len(labels)))
        label, scores = _best(node, scores, ids, labels), transformed(node, scores, transform)
    else:
        label, scores = _of_two(node, scores, ids, base, transform, min(weights, default=0.0) >= 0, labels)
    return label, *cast_to(node, scores, "float32")


def _best(node: OnnxNode, scores: str, ids: set[int], labels: Sequence[int]) -> str:
    """Emits the label of the greatest score among the classes that leaves vote for."""
    if len(ids) < len(labels):
        never = np.array([0 if index in ids else -np.inf for index in range(len(labels))])
        scores = _added(node, scores, never)
    (index,) = node.emit("arg_max", (scores,), axis=1, keepdims=False, last=False)
    return labelled(node, index, labels)


def _of_two(node: OnnxNode, scores: str, ids: set[int], base: np.ndarray, transform: str, positive: bool,
            labels: Sequence[int]) -> tuple[str, str]:
    """Imports a classifier of two classes as ONNX Runtime does: if leaves vote for one class only, its score is that of
    the second label."""
    single, second = len(ids) == 1, 1 in ids
    if base.size == 2 and second:
        winning = _added(node, column(node, scores, 0), base[1:])
        scores = concat_columns(node, negated(node, winning), winning)
    elif base.size == 2:
        scores = _added(node, scores, base)
    elif base.size == 1:
        scores = _added(node, scores, np.array([base[0], 0.0]))
    winning = column(node, scores, 1 if second else 0)
    dtype = node.type_of(scores).dtype
    limit = 0.5 if single and positive else 0.0
    (is_second,) = emit_broadcast(node, "greater", (winning, number(node, limit, dtype)))
    pair = labels if single else (0, 1)
    label = chosen(node, is_second, pair[1], pair[0])
    if second or base.size == 2:
        if single:  # a class without leaves has the score 0, without the base value
            scores = emit_broadcast(node, "mul", (scores, node.constant(np.array(
                [[0 in ids, second]], np.dtype(dtype)))))[0]
        return label, transformed(node, scores, transform)
    if transform == "PROBIT":
        raise MegccError("has post_transform PROBIT of one score, of which ONNX Runtime gives no second")
    if single and positive:
        (first,) = emit_broadcast(node, "sub", (number(node, 1, dtype), winning))
    else:
        first = negated(node, winning)
        if transform == "LOGISTIC":
            first, winning = (transformed(node, value, transform) for value in (first, winning))
    return label, concat_columns(node, first, winning)
