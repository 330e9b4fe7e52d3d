# SPDX-License-Identifier: Apache-2.0
"""Imports linear models, support vector machines, encoders and scalers of ai.onnx.ml, as ONNX Runtime computes them.

Shapes: N rows, F features, C classes or targets, V support vectors. A string is an int64 index in the model's string
table (frontends/onnx/strings.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_equal
from ...ir.dims import product
from ...ir.narrow import is_float
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from ..tensor.move import emit_slice
from .tree_ensembles import (
    apply_post_transform,
    apply_regression_transform,
    choose_label,
    concat_columns,
    emit_labels,
    feature_matrix,
    float_input,
    labels_of,
    ml,
    negate,
    post_transform_of,
)


def _floats(node: OnnxNode, name: str) -> np.ndarray:
    """Returns an attribute that is a list of floats; an absent one is empty."""
    return np.array(node.attr(name) or (), np.float32)


def _weight_matrix(node: OnnxNode, rows: int, columns: int, name: str = "coefficients") -> np.ndarray:
    """Returns an attribute as a matrix float32 [rows, columns]; raises ShapeError if its length is wrong."""
    array = _floats(node, name)
    if not isinstance(columns, int) or rows < 1 or array.size != rows * columns:
        raise ShapeError(f"has {array.size} {name} where {rows} x {columns} are wanted")
    return array.reshape(rows, columns)


def _linear(node: OnnxNode, x: str, weights: np.ndarray, bias: np.ndarray) -> str:
    """Emits x [N, F] times weights [F, C], plus a bias [C]."""
    operands = [x, node.constant(np.ascontiguousarray(weights)), *([node.constant(bias)] if bias.any() else [])]
    return node.emit("matmul", operands, trans_a=0, trans_b=0)[0]


@ml("LinearRegressor")
def linear_regressor(node: OnnxNode) -> tuple[str, ...]:
    """Imports LinearRegressor, [N, F] to [N, targets]."""
    x, targets, bias = float_input(node), node.attr("targets", 1), _floats(node, "intercepts")
    weights = _weight_matrix(node, targets, node.type_of(x).shape[1])
    if bias.size not in (0, targets):
        raise ShapeError(f"has {bias.size} intercepts for {targets} targets")
    kind = post_transform_of(node)
    y = _linear(node, x, weights.T, bias)
    return (apply_regression_transform(node, y, kind, targets),)


@ml("LinearClassifier")
def linear_classifier(node: OnnxNode) -> tuple[str, ...]:
    """Imports LinearClassifier. Results: labels [N], and scores [N, C]. One score decides between two classes."""
    x, bias, kind = float_input(node), _floats(node, "intercepts"), post_transform_of(node)
    labels = labels_of(node, "classlabels_ints")
    weights = _weight_matrix(node, bias.size, node.type_of(x).shape[1])
    scores = _linear(node, x, weights.T, bias)
    if bias.size > 1:
        if len(labels) < bias.size:
            raise ShapeError(f"has {len(labels)} labels for {bias.size} classes")
        (index,) = node.emit("arg_max", (scores,), axis=1, keepdims=False, last=False)
        return emit_labels(node, index, labels), apply_post_transform(node, scores, kind)
    (positive,) = emit_broadcast(node, "greater", (scores, number(node, 0, "float32")))
    if len(labels) == 2:
        return choose_label(node, positive, labels[1], labels[0]), _both_scores(node, scores, kind)
    # For other numbers of labels ONNX Runtime gives 1 or 0, as strings if the labels are, and the score as it is.
    has_strings = node.strings("classlabels_strings") is not None
    yes, no = (node.string_index(text) if has_strings else int(text) for text in ("1", "0"))
    return choose_label(node, positive, yes, no), scores


def _both_scores(node: OnnxNode, score: str, kind: str) -> str:
    """Emits the scores of both classes, [N, 2], from the score of the second one, [N, 1], after post_transform
    `kind`."""
    if kind == "PROBIT":
        raise MegccError("has post_transform PROBIT of one score, of which ONNX Runtime gives no second")
    if kind == "LOGISTIC":
        return apply_post_transform(node, concat_columns(node, negate(node, score), score), kind)
    (first,) = emit_broadcast(node, "sub", (number(node, 1, "float32"), score))
    return concat_columns(node, first, score)


def _kernel_values(node: OnnxNode, x: str, vectors: np.ndarray, kind: str) -> str:
    """Emits the kernel function `kind` (LINEAR, POLY, RBF, SIGMOID) of each row of x [N, F] and each support vector
    [V, F]: [N, V]. Squared distances are computed in float64, since terms cancel."""
    gamma, coef, degree = map(float, node.attr("kernel_params") or (0.0, 0.0, 3.0))
    if kind == "RBF":  # exp(-gamma * |x - v|²), with |x - v|² = x² - 2 x v + v²
        (x,) = cast_to(node, x, "float64")
        float64_vectors = vectors.astype(np.float64)
        (squares,) = node.emit("reduce_sum", node.emit("mul", (x, x)), axes=(1,), keepdims=True)
        products = _linear(node, x, -2 * float64_vectors.T, (float64_vectors * float64_vectors).sum(1))
        (distance,) = emit_broadcast(node, "add", (products, squares))
        (y,) = node.emit("exp", node.emit("mul", (distance, number(node, -gamma, "float64"))))
        return cast_to(node, y, "float32")[0]
    y = _linear(node, x, vectors.T, np.zeros(len(vectors), np.float32))
    if kind == "LINEAR":
        return y
    (y,) = node.emit("mul", (y, number(node, gamma, "float32")))
    (y,) = node.emit("add", (y, number(node, coef, "float32")))
    if kind == "SIGMOID":
        return node.emit("tanh", (y,))[0]
    if kind != "POLY":
        raise MegccError(f"has kernel_type {kind}, which is not supported")
    if degree in (2.0, 3.0):
        (square,) = node.emit("mul", (y, y))
        return square if degree == 2.0 else node.emit("mul", (square, y))[0]
    return emit_broadcast(node, "pow", (y, number(node, degree, "float32")))[0]


@ml("SVMRegressor")
def svm_regressor(node: OnnxNode) -> tuple[str, ...]:
    """Imports SVMRegressor, [N, F] to [N, 1]. With attribute one_class the result is 1 or -1."""
    x, count, rho = float_input(node), node.attr("n_supports", 0), _floats(node, "rho")
    columns, kind = node.type_of(x).shape[1], node.attr("kernel_type", "LINEAR")
    if rho.size < 1:
        raise ShapeError("has no rho")
    if count > 0:
        x = _kernel_values(node, x, _weight_matrix(node, count, columns, "support_vectors"), kind)
        columns = count
    elif kind != "LINEAR":
        raise MegccError(f"has kernel_type {kind} without support vectors")
    y = _linear(node, x, _weight_matrix(node, 1, columns).T, rho[:1])
    if node.attr("one_class", 0):
        (is_positive,) = emit_broadcast(node, "greater", (y, number(node, 0, "float32")))
        return emit_broadcast(node, "where", (is_positive, number(node, 1, "float32"), number(node, -1, "float32")))
    return (y,)


@ml("SVMClassifier")
def svm_classifier(node: OnnxNode) -> tuple[str, ...]:
    """Imports SVMClassifier. Results: labels [N]; and scores: probabilities of the classes [N, C] with attributes
    prob_a and prob_b, else scores of the pairs of classes [N, C * (C - 1) / 2], or of two classes [N, 2]."""
    x, labels = float_input(node), labels_of(node, "classlabels_ints")
    class_sizes = list(node.attr("vectors_per_class") or ())
    columns, rho, transform = node.type_of(x).shape[1], _floats(node, "rho"), post_transform_of(node)
    if len(labels) < 2 or (sum(class_sizes) and len(class_sizes) != len(labels)) or min(class_sizes, default=0) < 0:
        raise ShapeError(f"has {len(labels)} labels for classes of {class_sizes} support vectors")
    if not sum(class_sizes):
        return _linear_svm(node, x, _weight_matrix(node, len(labels), columns), rho, labels, transform)
    vectors = _weight_matrix(node, sum(class_sizes), columns, "support_vectors")
    kernel = _kernel_values(node, x, vectors, node.attr("kernel_type", "LINEAR"))
    pairs, votes = _pair_coefficients(_weight_matrix(node, len(labels) - 1, len(vectors)), class_sizes)
    if rho.size < pairs.shape[1]:
        raise ShapeError(f"has {rho.size} rho for {pairs.shape[1]} pairs of classes")
    scores = _linear(node, kernel, pairs, rho[:pairs.shape[1]])
    (first,) = emit_broadcast(node, "greater", (scores, number(node, 0, "float32")))
    (first_wins,) = cast_to(node, first, "float32")
    # Each pair gives a vote to its first or its second class.
    vote_counts = _linear(node, first_wins, votes, (votes < 0).sum(0).astype(np.float32))
    (index,) = node.emit("arg_max", (vote_counts,), axis=1, keepdims=False, last=False)
    label = emit_labels(node, index, labels)
    if node.attr("prob_a"):
        return label, apply_post_transform(node, _probabilities(node, scores, len(labels)), transform)
    if len(labels) > 2:
        return label, apply_post_transform(node, scores, transform)
    if transform == "NONE":
        return label, concat_columns(node, negate(node, scores), scores)
    return label, _both_scores(node, scores, transform)


def _probabilities(node: OnnxNode, scores: str, classes: int) -> str:
    """Emits class probabilities [N, C] from the scores of pairs of classes [N, C * (C - 1) / 2]: the logistic function
    with slopes prob_a and offsets prob_b (Platt scaling), and pairwise coupling."""
    slope, offset = _floats(node, "prob_a"), _floats(node, "prob_b")
    pairs = classes * (classes - 1) // 2
    if min(slope.size, offset.size) < pairs:
        raise ShapeError(f"has {slope.size} prob_a and {offset.size} prob_b for {pairs} pairs of classes")
    (value,) = emit_broadcast(node, "mul", (scores, node.constant(-slope[:pairs].reshape(1, -1))))
    (value,) = emit_broadcast(node, "sub", (value, node.constant(offset[:pairs].reshape(1, -1))))
    (value,) = node.emit("clip", node.emit("sigmoid", (value,)), lo=1e-7, hi=1 - 1e-7)  # LIBSVM's bounds
    return node.emit("coupled_probabilities", (value,), classes=classes)[0]


def _pair_coefficients(weights: np.ndarray, class_sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the coefficients from kernel values to scores of pairs of classes, [V, pairs], and the votes,
    [pairs, classes]: 1 for the class that a positive score is for, -1 for the other.

    weights: attribute coefficients, [classes - 1, V], in LIBSVM's order: for pair i < j, row j - 1 at the support
    vectors of class i, and row i at those of class j. class_sizes: the numbers of support vectors of each class.
    """
    starts = np.concatenate([[0], np.cumsum(class_sizes)])
    classes = len(class_sizes)
    columns, votes = [], []
    for i in range(classes):
        for j in range(i + 1, classes):
            coefficients, vote = np.zeros(starts[-1], np.float32), np.zeros(classes, np.float32)
            coefficients[starts[i]:starts[i + 1]] = weights[j - 1, starts[i]:starts[i + 1]]
            coefficients[starts[j]:starts[j + 1]] = weights[i, starts[j]:starts[j + 1]]
            vote[i], vote[j] = 1, -1
            columns.append(coefficients)
            votes.append(vote)
    return np.stack(columns, 1), np.stack(votes)


def _linear_svm(node: OnnxNode, x: str, weights: np.ndarray, rho: np.ndarray, labels: Sequence[int],
                transform: str) -> tuple[str, ...]:
    """Emits a classifier without support vectors: a score for each label. ONNX Runtime gives the second of two labels
    if the highest score is positive, or at least 0.5 if no weight is negative; else the label with that score."""
    if rho.size < 1:
        raise ShapeError("has no rho")
    scores = _linear(node, x, weights.T, np.full(len(labels), rho[0], np.float32))
    (index,) = node.emit("arg_max", (scores,), axis=1, keepdims=False, last=False)
    label = emit_labels(node, index, labels)
    if len(labels) == 2:
        (top,) = node.emit("reduce_max", (scores,), axes=(1,), keepdims=True)
        limit = np.float32(0.5 if (weights >= 0).all() else np.nextafter(np.float32(0), np.float32(1)))
        (is_positive,) = emit_broadcast(node, "greater_equal", (top, node.constant(limit)))
        (is_positive,) = node.emit("reshape", (is_positive,), shape=node.type_of(label).shape)
        (label,) = emit_broadcast(node, "where", (is_positive, node.constant(np.array(labels[1], np.int64)), label))
        if node.strings("classlabels_strings") is not None:
            node.as_strings(label)
    return label, apply_post_transform(node, scores, transform)


def _per_feature(values: np.ndarray, columns, what: str) -> np.ndarray:
    """Returns one value for all features as [], or one for each feature as [1, F]. what: a name for the message."""
    if values.size not in (1, columns):
        raise ShapeError(f"has {values.size} of {what} for {columns} features")
    return values.reshape(1, -1) if values.size > 1 else values.reshape(())


@ml("Scaler")
def scaler(node: OnnxNode) -> tuple[str, ...]:
    """Imports Scaler: (x - offset) * scale, float32."""
    x, columns = cast_to(node, node.inputs[0], "float32")[0], node.type(0).shape[-1]
    offset, scale = (_per_feature(_floats(node, name), columns, name) for name in ("offset", "scale"))
    (x,) = emit_broadcast(node, "sub", (x, node.constant(offset)))
    return emit_broadcast(node, "mul", (x, node.constant(scale)))


@ml("Normalizer")
def normalizer(node: OnnxNode) -> tuple[str, ...]:
    """Imports Normalizer: divides each row by its maximum, L1 or L2 norm, unless that is 0."""
    x, kind = cast_to(node, node.inputs[0], "float32")[0], node.attr("norm", "MAX")
    kinds = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}
    if kind not in kinds or not 1 <= node.type(0).rank <= 2:
        raise MegccError(f"has norm {kind} of {node.type(0)}, which is not supported")
    (size,) = node.emit(kinds[kind], (x,), axes=(node.type(0).rank - 1,), keepdims=True)
    (zero,) = emit_broadcast(node, "equal", (size, number(node, 0, "float32")))
    (size,) = emit_broadcast(node, "where", (zero, number(node, 1, "float32"), size))
    return emit_broadcast(node, "div", (x, size))


@ml("Imputer")
def imputer(node: OnnxNode) -> tuple[str, ...]:
    """Imports Imputer: replaces elements that equal a number, which may be NaN, by a value, or by one for each
    feature."""
    x, columns = node.inputs[0], node.type(0).shape[-1]
    dtype = node.type(0).dtype
    suffix = "float" if is_float(dtype) else "int64"
    old, new = node.attr(f"replaced_value_{suffix}", 0), np.array(node.attr(f"imputed_value_{suffix}s") or ())
    values = node.constant(_per_feature(new, columns, "imputed values").astype(np.dtype(dtype)))
    if old != old:  # NaN
        (is_replaced,) = node.emit("is_nan", (x,))
    else:
        (is_replaced,) = emit_broadcast(node, "equal", (x, number(node, old, dtype)))
    return emit_broadcast(node, "where", (is_replaced, values, x))


@ml("OneHotEncoder")
def one_hot(node: OnnxNode) -> tuple[str, ...]:
    """Imports OneHotEncoder, float32 [..., categories]. An unknown category gives zeros, also with attribute zeros = 0,
    for which ONNX Runtime raises an error."""
    strings = node.strings("cats_strings")
    categories = node.attr("cats_int64s") if strings is None else strings
    if categories is None or (strings is not None) != node.is_string(0):
        raise MegccError("encodes strings by numbers, or numbers by strings, or has no categories")
    (x,) = cast_to(node, node.inputs[0], "int64")
    (x,) = node.emit("reshape", (x,), shape=(*node.type(0).shape, 1))
    (hit,) = emit_broadcast(node, "equal", (x, node.constant(np.array(categories, np.int64))))
    return cast_to(node, hit, "float32")


@ml("Binarizer")
def binarizer(node: OnnxNode) -> tuple[str, ...]:
    """Imports Binarizer: 1 for elements above the threshold, 0 for others."""
    dtype = node.type(0).dtype
    (above,) = emit_broadcast(node, "greater", (node.inputs[0], number(node, node.attr("threshold", 0.0), dtype)))
    return cast_to(node, above, dtype)


@ml("FeatureVectorizer")
def feature_vectorizer(node: OnnxNode) -> tuple[str, ...]:
    """Imports FeatureVectorizer: concatenates the operands' columns, each cut or zero-padded to its entry in
    `inputdimensions`. A vector is one row; axes after the second are columns too, as in ONNX Runtime."""
    values, widths = [], node.attr("inputdimensions") or []
    if len(widths) != len(node.inputs) or any(width < 0 for width in widths):
        raise ShapeError(f"inputdimensions {list(widths)} for {len(node.inputs)} operands")
    for index, (name, width) in enumerate(zip(node.inputs, widths, strict=True)):
        shape = node.type(index).shape
        rows, columns = (shape[0], product(shape[1:])) if len(shape) > 1 else (1, product(shape))
        (value,) = cast_to(node, name, "float32")
        (value,) = node.emit("reshape", (value,), shape=(rows, columns))
        if not isinstance(columns, int):
            require_equal(columns, width, f"{columns} columns, and inputdimensions says {width}")
        elif columns > width:
            value = emit_slice(node, value, 1, 0, width)
        elif columns < width:
            (value,) = node.emit("pad", (value,), before=(0, 0), after=(0, width - columns), mode="constant", value=0.0)
        values.append(value)
    return (concat_columns(node, *values) if len(values) > 1 else values[0],)


@ml("ArrayFeatureExtractor")
def array_feature_extractor(node: OnnxNode) -> tuple[str, ...]:
    """Imports ArrayFeatureExtractor: gathers along the last axis at the indices of the second operand. A vector gives
    one row."""
    x, indices = node.inputs[0], node.type(1)
    if node.type(0).rank == 1:
        x = feature_matrix(node)
    (flat,) = node.emit("reshape", node.inputs[1:2], shape=(indices.size,))
    return node.emit("gather", (x, flat), axis=node.type_of(x).rank - 1)


def _label_table(node: OnnxNode, what: str) -> np.ndarray | None:
    """Returns the "keys" or "values" of a LabelEncoder, strings as indices in the string table; None if it has none."""
    strings = node.strings(f"{what}_strings", f"{what}_tensor")
    if strings is not None:
        return strings.reshape(-1)
    tensor = node.attr(f"{what}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    for name, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if node.attr(f"{what}_{name}"):
            return np.array(node.attr(f"{what}_{name}"), dtype)
    return None


def _default_value(node: OnnxNode, values: np.ndarray, is_string: bool) -> np.ndarray:
    """Returns the value that a LabelEncoder gives for an unknown key, of the dtype of `values`."""
    if node.attr("default_tensor") is not None:
        if (node.strings("default_tensor") is not None) != is_string:
            raise MegccError("has a default that is a string among numbers, or a number among strings")
        return np.asarray(node.attr("default_tensor")).reshape(-1)[0]
    if is_string:
        return values.dtype.type(node.string_index(node.attr("default_string", "_Unused")))
    return values.dtype.type(node.attr("default_float", -0.0) if values.dtype.kind == "f" else
                             node.attr("default_int64", -1))


@ml("LabelEncoder")
def label_encoder(node: OnnxNode) -> tuple[str, ...]:
    """Imports LabelEncoder, which maps keys to values, numbers or strings. Before operator set 2 of ai.onnx.ml it maps
    the strings of a list to their indices, or indices to strings."""
    classes = node.strings("classes_strings")
    if classes is not None:
        index = np.arange(classes.size)
        keys, values = (classes, index) if node.is_string(0) else (index, classes)
    else:
        keys, values = _label_table(node, "keys"), _label_table(node, "values")
    if keys is None or values is None or keys.size != values.size or not keys.size:
        raise MegccError("has no keys and values, as many of both")
    by_string = node.is_string(0) if classes is not None else node.strings("keys_strings", "keys_tensor") is not None
    if keys.dtype.name != node.type(0).dtype or by_string != node.is_string(0):
        raise ShapeError(f"has keys of {'strings' if by_string else keys.dtype} for "
                         f"{'strings' if node.is_string(0) else node.type(0)}")
    is_string = node.strings("values_strings", "values_tensor") is not None or (classes is not None and not by_string)
    result = emit_lookup(node, keys, values, _default_value(node, values, is_string))
    return (node.as_strings(result) if is_string else result,)


@ml("CategoryMapper")
def category_mapper(node: OnnxNode) -> tuple[str, ...]:
    """Imports CategoryMapper, which maps numbers to strings, or strings to numbers."""
    strings, numbers = node.strings("cats_strings"), np.array(node.attr("cats_int64s") or (), np.int64)
    if strings is None or strings.size != numbers.size:
        raise MegccError("has no categories, as many strings as numbers")
    if node.is_string(0):
        return (emit_lookup(node, strings, numbers, np.int64(node.attr("default_int64", -1))),)
    if node.type(0).dtype != "int64":
        raise ShapeError(f"has numbers of int64 for {node.type(0)}")
    default = np.int64(node.string_index(node.attr("default_string", "_Unused")))
    return (node.as_strings(emit_lookup(node, numbers, strings, default)),)


def emit_lookup(node: OnnxNode, keys: np.ndarray, values: np.ndarray, unknown: np.generic) -> str:
    """Emits the value of the first key that equals an element, or `unknown`, for each element of the node's operand.

    keys, values: of equal length; the result has the dtype of the values.
    """
    shape = node.type(0).shape
    _, first = np.unique(keys, return_index=True)
    keys, values = keys[np.sort(first)], values[np.sort(first)]
    if node.is_string(0):
        # Row i + 1 of the table is for string i. Indices of other strings, which can be any number, are clamped to the
        # first and the last row, which hold `unknown`.
        table = np.full(int(keys.max()) + 3, unknown, values.dtype)
        table[keys + 1] = values
        (index,) = emit_broadcast(node, "max", (node.inputs[0], number(node, -1, "int64")))
        (index,) = emit_broadcast(node, "min", (index, number(node, len(table) - 2, "int64")))
        (index,) = emit_broadcast(node, "add", (index, number(node, 1, "int64")))
        return node.emit("gather", (node.constant(table), index), axis=0)[0]
    (x,) = node.emit("reshape", node.inputs[:1], shape=(*shape, 1))
    (hits,) = emit_broadcast(node, "equal", (x, node.constant(keys.reshape((1,) * len(shape) + keys.shape))))
    # Since operator set 4 of ai.onnx.ml, the key NaN maps NaNs.
    if node.opset >= 4 and keys.dtype.kind == "f" and np.isnan(keys).any():
        nans = node.constant(np.isnan(keys).reshape((1,) * len(shape) + keys.shape))
        (both,) = emit_broadcast(node, "logical_and", (*node.emit("is_nan", (x,)), nans))
        (hits,) = emit_broadcast(node, "logical_or", (hits, both))
    (hits,) = cast_to(node, hits, "uint8")
    (index,) = node.emit("arg_max", (hits,), axis=len(shape), keepdims=False, last=False)
    (is_known,) = node.emit("reduce_max", (hits,), axes=(len(shape),), keepdims=True)
    (is_known,) = cast_to(node, node.emit("reshape", (is_known,), shape=shape)[0], "bool")
    (value,) = node.emit("gather", (node.constant(values), index), axis=0)
    return emit_broadcast(node, "where", (is_known, value, node.constant(np.asarray(unknown, values.dtype))))[0]
