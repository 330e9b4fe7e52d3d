# SPDX-License-Identifier: Apache-2.0
"""Ensembles of decision trees as tables, which kernels traverse without branches; the importers of ai.onnx.ml
(ml/tree_ensembles.py) emit them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, register

#: The number of int32 words of a node, by x's dtype: two children, the feature with a bit, and the bits of the
#: threshold.
WORDS = {"float32": 4, "float64": 5}


@register
class Trees(Operator):
    """y[n, t] is the sum, minimum or maximum of the weights for target t in the leaves that row n of x reaches in all
    trees; 0 for a target without weights.

    Operands: x float32 or float64 [N, F]; nodes int32 [I, words]; roots int32 [R]; first int32 [L + 1]; targets int32
    [W]; weights [W] of x's dtype. Result: x's dtype, [N, targets]. There are N rows, F features, I inner nodes, R
    trees, L leaves and W weights.

    Inner nodes are numbered from 0, leaves from I on. The words of a node are: the first child, which is taken if
    x[n, feature] <= threshold; the second child, which is taken otherwise; 2 * feature, plus 1 if NaN takes the second
    child instead of the first; and the bits of the threshold, one or two words. Leaf l has the weights first[l] to
    first[l + 1] - 1, each for its target.

    Attributes: `fold`: "sum", "min" or "max"; `targets`: the number of targets.
    """

    kind = "trees"
    operands = ("x", "nodes", "roots", "first", "targets", "weights")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, nodes: TensorType, roots: TensorType, first: TensorType,
              targets: TensorType, weights: TensorType) -> tuple[TensorType, ...]:
        tables = (nodes, roots, first, targets)
        if x.rank != 2 or x.dtype not in WORDS or any(table.dtype != "int32" for table in tables) \
                or [table.rank for table in (*tables, weights)] != [2, 1, 1, 1, 1] \
                or nodes.shape[1] != WORDS[x.dtype] or weights != TensorType(x.dtype, targets.shape):
            raise ShapeError(f"trees of {', '.join(map(str, (x, *tables, weights)))}")
        return (TensorType(x.dtype, (x.shape[0], attrs.targets)),)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        _, nodes, _, first, targets, _ = inputs
        last_leaf = nodes.shape[0] + first.shape[0] - 2
        return {2: (0, last_leaf), 3: (0, targets.shape[0]), 4: (0, attrs.targets - 1)}

    @staticmethod
    def compute(attrs: Attrs, x, nodes, roots, first, targets, weights) -> tuple[np.ndarray, ...]:
        inner, rows = len(nodes), np.arange(len(x))[:, None]
        # Words of a node: 0 and 1, its children; 2, the feature; from 3 on, the threshold.
        threshold = np.ascontiguousarray(nodes[:, 3:]).view(x.dtype).reshape(-1)
        # The node that each row of x has reached in each tree.
        position = np.broadcast_to(roots, (len(x), len(roots))).copy()
        while (position < inner).any():
            node = np.where(position < inner, position, 0)
            value, feature_word = x[rows, nodes[node, 2] >> 1], nodes[node, 2]
            is_second = (value > threshold[node]) | (np.isnan(value) & (feature_word & 1 == 1))
            position = np.where(position < inner, nodes[node, is_second.astype(int)], position)
        start = {"sum": 0.0, "min": np.inf, "max": -np.inf}[attrs.fold]
        fold = {"sum": np.add, "min": np.minimum, "max": np.maximum}[attrs.fold]
        y = np.full((len(x), attrs.targets), start, x.dtype)
        for row, leaves in enumerate(position - inner):
            for leaf in leaves:
                for index in range(first[leaf], first[leaf + 1]):
                    y[row, targets[index]] = fold(y[row, targets[index]], weights[index])
        return (np.where(np.isinf(y), 0, y).astype(x.dtype) if attrs.fold != "sum" else y,)


def _case(rows: int, features: int, trees: int, depth: int, targets: int, fold="sum", dtype="float32",
          nan: float = 0.1) -> Case:
    """Returns a case of random trees of this depth, with some leaves higher up. nan: the share of features that are
    NaN."""
    random = np.random.default_rng(rows + 100 * trees)
    links: list[list[int]] = []     # leaves are -1, -2, … until the number of inner nodes is known
    leaves = 0

    def subtree(left: int) -> int:
        nonlocal leaves
        if left == 0 or (left < depth and random.random() < 0.2):
            leaves += 1
            return -leaves
        links.append([0, 0])
        pair = links[-1]
        index = len(links) - 1
        pair[:] = subtree(left - 1), subtree(left - 1)
        return index

    roots = [subtree(depth) for _ in range(trees)]
    nodes = np.zeros((len(links), 3), np.int32)
    nodes[:, :2] = np.array(links)
    nodes[:, :2] = np.where(nodes[:, :2] < 0, len(nodes) - 1 - nodes[:, :2], nodes[:, :2])
    nodes[:, 2] = random.integers(0, 2 * features, len(nodes))
    bits = random.standard_normal(len(nodes)).astype(dtype).view(np.int32).reshape(len(nodes), -1)
    counts = random.integers(0, 3, leaves) if targets > 1 else np.ones(leaves, int)
    first = np.concatenate([[0], np.cumsum(counts)])
    x = random.standard_normal((rows, features))
    x[random.random(x.shape) < nan] = np.nan
    values = {0: x, 1: np.concatenate([nodes, bits], 1), 2: np.array(roots), 3: first,
              4: random.integers(0, targets, first[-1]), 5: random.standard_normal(first[-1])}
    dtypes = (dtype, "int32", "int32", "int32", "int32", dtype)
    return Case(tuple((values[index].shape, dtypes[index]) for index in range(6)),
                {"targets": targets, "fold": fold}, (1, 2, 3, 4, 5), values)


Trees.cases = (_case(1, 5, 3, 2, 1), _case(19, 7, 5, 4, 3), _case(3, 4, 21, 3, 1), _case(9, 3, 2, 3, 2, "min"),
               _case(2, 6, 11, 2, 2, "max"), _case(17, 5, 9, 3, 2, dtype="float64"),
               _case(33, 40, 12, 5, 1, nan=0), _case(90, 6, 4, 3, 1, nan=0.01), _case(70, 6, 9, 3, 2, "max", nan=0),
               _case(50, 6, 9, 3, 2, dtype="float64", nan=0), _case(35, 4, 3, 6, 1, nan=0.02))
