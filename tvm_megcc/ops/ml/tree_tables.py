# SPDX-License-Identifier: Apache-2.0
"""Converts the nodes of ai.onnx.ml's tree ensembles to the tables of operator `trees` (ml/trees.py), and refuses nodes
that form no tree.

ONNX's nodes compare in seven ways; a row of the table knows one test, x > threshold. So each mode becomes one or
several rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import MegccError, ShapeError

#: The modes of inner nodes, in the order of TreeEnsemble's attribute nodes_modes.
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
#: The largest number of nodes of a model; their table, of up to 20 bytes a node, stays below the 2 GB of a tensor.
MAX_NODES = 1 << 26


@dataclass(frozen=True)
class Branch:
    """An inner node: a test of a feature, and the nodes after either answer.

    mode: one of MODES. feature: its index. values: what the feature is compared with; several for BRANCH_MEMBER.
    true, false: an index of a branch, or ~index of a leaf.
    missing: whether NaN takes the branch `true`.
    """

    mode: str
    feature: int
    values: tuple[float, ...]
    true: int
    false: int
    missing: bool = False


@dataclass
class Ensemble:
    """The trees of a model.

    branches: the inner nodes of all trees.
    leaves: (target, weight) pairs of each leaf.
    roots: an index for each tree, as in `Branch.true`.
    rows: the table of inner nodes while `tables` makes it; links are indices as in `Branch.true`.
    """

    branches: list[Branch]
    leaves: list[list[tuple[int, float]]]
    roots: list[int]
    rows: list[list] = field(default_factory=list)

    def tables(self, dtype: str, features: int, targets: int) -> tuple[np.ndarray, ...]:
        """Returns the operands of `trees` after x: nodes, roots, first, targets and weights.

        dtype: that of x. features, targets: their numbers.

        Raises:
            MegccError: for indices of nodes, features and targets that do not exist, and for cycles.
        """
        self._check(features, targets)
        number_type = np.dtype(dtype).type
        self.rows = [[0, 0, 0, number_type(0)] for _ in self.branches]
        for index, branch in enumerate(self.branches):
            _ROW_WRITERS.get(branch.mode, _equal)(self, index, branch, number_type)
        # A model of leaves only gets an inner node that is never reached. Leaves are numbered after the inner nodes.
        inner = max(len(self.rows), 1)
        rows = self.rows or [[~0, ~0, 0, number_type(0)]]
        # [inner nodes, 3]: first child, second child, feature word. A negative child is a leaf.
        links = np.array([row[:3] for row in rows], np.int64)
        links[:, :2] = np.where(links[:, :2] < 0, inner + ~links[:, :2], links[:, :2])
        threshold_bits = np.array([row[3] for row in rows], number_type).view(np.int32).reshape(inner, -1)
        roots = np.array([inner + ~root if root < 0 else root for root in self.roots], np.int32)
        weights = [pair for leaf in self.leaves for pair in leaf]
        first = np.concatenate([[0], np.cumsum([len(leaf) for leaf in self.leaves])]).astype(np.int32)
        return (np.concatenate([links.astype(np.int32), threshold_bits], 1), roots, first,
                np.array([target for target, _ in weights], np.int32),
                np.array([weight for _, weight in weights], number_type))

    def write_row(self, index: int, first: int, second: int, feature: int, threshold, nan_second: bool) -> None:
        """Writes a row of the table: it goes to `second` if the feature is greater than the threshold, else to
        `first`."""
        self.rows[index] = [first, second, 2 * feature + nan_second, threshold]

    def add_row(self) -> int:
        """Adds an empty row, and returns its index."""
        self.rows.append([0, 0, 0, 0])
        return len(self.rows) - 1

    def _check(self, features: int, targets: int) -> None:
        """Raises MegccError for trees that are too large, or that name what does not exist."""
        branches, leaves = len(self.branches), len(self.leaves)
        if not self.roots or not leaves or branches + leaves > MAX_NODES:
            raise MegccError(f"has {len(self.roots)} trees of {branches} inner nodes and {leaves} leaves")
        children = np.array([(branch.true, branch.false) for branch in self.branches], np.int64).reshape(-1, 2)
        for indices in (children, np.array(self.roots, np.int64)):
            if indices.size and (indices.min() < -leaves or indices.max() >= branches):
                raise ShapeError("has a branch to a node that does not exist")
        wrong = [branch.feature for branch in self.branches if not 0 <= branch.feature < features]
        if wrong:
            raise ShapeError(f"compares feature {wrong[0]}; the features are 0 to {features - 1}")
        wrong = [target for leaf in self.leaves for target, _ in leaf if not 0 <= target < targets]
        if wrong:
            raise ShapeError(f"has a leaf for target {wrong[0]} of {targets}")
        self._check_cycles(children)

    def _check_cycles(self, children: np.ndarray) -> None:
        """Sorts the inner nodes topologically (Kahn's algorithm); raises ShapeError if some remain. children: [I,
        2]."""
        parent_counts = np.bincount(children[children >= 0], minlength=len(children))
        ready, visited = np.flatnonzero(parent_counts == 0), 0
        while ready.size:
            visited += ready.size
            following, counts = np.unique(children[ready][children[ready] >= 0], return_counts=True)
            parent_counts[following] -= counts
            ready = following[parent_counts[following] == 0]
        if visited != len(children):
            raise ShapeError("has nodes that lead back to themselves")


# The functions below write the rows of one branch from row `index` on; `number_type` is the scalar type of x. A row
# tests x > threshold, and goes to `second` if that is true. x >= limit is x > the number below the limit. No x is
# greater than a threshold of NaN.


def _below(value):
    """Returns the largest number of its type that is less than a number."""
    return np.nextafter(value, type(value)(-np.inf))


def _at_most(ensemble: Ensemble, index: int, branch: Branch, number_type: Callable) -> None:
    limit = number_type(branch.values[0])
    if np.isnan(limit):  # no value is at most NaN
        ensemble.write_row(index, branch.false, branch.true, branch.feature, limit, branch.missing)
    else:
        ensemble.write_row(index, branch.true, branch.false, branch.feature, limit, not branch.missing)


def _less_than(ensemble: Ensemble, index: int, branch: Branch, number_type: Callable) -> None:
    limit = number_type(branch.values[0])
    if np.isnan(limit) or limit == -np.inf:  # an empty set: no value is in it
        ensemble.write_row(index, branch.false, branch.true, branch.feature, number_type(np.nan), branch.missing)
    else:
        ensemble.write_row(index, branch.true, branch.false, branch.feature, _below(limit), not branch.missing)


def _at_least(ensemble: Ensemble, index: int, branch: Branch, number_type: Callable) -> None:
    limit = number_type(branch.values[0])
    if limit == -np.inf:  # every value is in it
        ensemble.write_row(index, branch.true, branch.false, branch.feature, number_type(np.inf), not branch.missing)
    else:
        ensemble.write_row(index, branch.false, branch.true, branch.feature, _below(limit), branch.missing)


def _greater(ensemble: Ensemble, index: int, branch: Branch, number_type: Callable) -> None:
    ensemble.write_row(index, branch.false, branch.true, branch.feature, number_type(branch.values[0]), branch.missing)


def _equal(ensemble: Ensemble, index: int, branch: Branch, number_type: Callable) -> None:
    """Writes rows that test whether a feature equals one of some values, in ascending order. A feature that is not
    greater than the first value it is compared with, nor equal to it, equals none."""
    yes, no = (branch.false, branch.true) if branch.mode == "BRANCH_NEQ" else (branch.true, branch.false)
    missing = branch.missing and branch.mode != "BRANCH_NEQ"  # NaN takes the branch `yes`
    values = sorted({number_type(value) for value in branch.values if not np.isnan(number_type(value))})
    if not values:
        ensemble.write_row(index, no, yes, branch.feature, number_type(np.nan), missing)
    for position, value in enumerate(values):
        following = ensemble.add_row() if position + 1 < len(values) else no
        if value == -np.inf:
            ensemble.write_row(index, yes, following, branch.feature, value, not missing)
        else:
            below = ensemble.add_row()
            ensemble.write_row(index, below, following, branch.feature, value, nan_second=False)
            ensemble.write_row(below, no, yes, branch.feature, _below(value), missing)
        index = following


_ROW_WRITERS = {"BRANCH_LEQ": _at_most, "BRANCH_LT": _less_than, "BRANCH_GTE": _at_least, "BRANCH_GT": _greater}


def read_by_ids(attr: Callable, leaf: str, weights: Sequence[float], values: Sequence[float]) -> Ensemble:
    """Reads the trees of TreeEnsembleRegressor and TreeEnsembleClassifier, whose nodes and leaves have ids of trees and
    nodes.

    Args:
        attr: returns an attribute by its name, or a default.
        leaf: the prefix of the attributes of leaves, "target" or "class".
        weights, values: the weights of leaves, and what inner nodes compare with.

    Raises:
        ShapeError: for attributes of different lengths, nodes that are there twice, and ids that do not exist.
        MegccError: for modes that are not supported.
    """
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "modes")
    columns = [list(attr(f"nodes_{name}", ())) for name in names]
    missing = list(attr("nodes_missing_value_tracks_true", ())) or [0] * len(values)
    leaf_columns = [list(attr(f"{leaf}_{name}", ())) for name in ("treeids", "nodeids", "ids")]
    if len({len(values), len(missing), *map(len, columns)}) != 1 or len({len(weights), *map(len, leaf_columns)}) != 1:
        raise ShapeError("has attributes of nodes, or of leaves, of different lengths")
    trees, nodes, features, true, false, modes = columns
    indices: dict[tuple[int, int], int] = {}  # (tree, node) -> index as in `Branch.true`
    branches = leaves = 0
    roots: dict[int, int] = {}
    for tree, node, mode in zip(trees, nodes, modes, strict=True):
        if mode not in (*MODES, "LEAF"):
            raise MegccError(f"has a node of mode {mode}, which is not supported")
        if (tree, node) in indices:
            raise ShapeError(f"has node {node} of tree {tree} twice")
        index = ~leaves if mode == "LEAF" else branches
        leaves, branches = leaves + (mode == "LEAF"), branches + (mode != "LEAF")
        indices[tree, node] = index
        roots.setdefault(tree, index)
    leaf_weights: list[list[tuple[int, float]]] = [[] for _ in range(leaves)]
    for tree, node, target, weight in zip(*leaf_columns, weights, strict=True):
        index = indices.get((tree, node), 0)
        if index >= 0:
            raise ShapeError(f"gives a weight to node {node} of tree {tree}, which is no leaf")
        leaf_weights[~index].append((target, weight))
    inner_nodes = []
    for tree, feature, yes, no, mode, value, nan in zip(trees, features, true, false, modes, values, missing,
                                                        strict=True):
        if mode != "LEAF":
            if (tree, yes) not in indices or (tree, no) not in indices:
                raise ShapeError(f"leads to node {no if (tree, yes) in indices else yes} of tree {tree}, which is not "
                                 "there")
            inner_nodes.append(Branch(mode, feature, (value,), indices[tree, yes], indices[tree, no], bool(nan)))
    return Ensemble(inner_nodes, leaf_weights, list(roots.values()))


def read_by_index(attr: Callable) -> Ensemble:
    """Reads the trees of TreeEnsemble, whose links are indices of inner nodes and of leaves.

    attr: returns an attribute by its name, or a default.

    Raises:
        ShapeError: for attributes of different lengths, and negative indices.
        MegccError: for modes that are not supported.
    """
    names = ("featureids", "trueleafs", "truenodeids", "falseleafs", "falsenodeids")
    columns = [list(attr(f"nodes_{name}", ())) for name in names]
    splits, modes = (np.asarray(attr(f"nodes_{name}")).reshape(-1) for name in ("splits", "modes"))
    missing = list(attr("nodes_missing_value_tracks_true", ())) or [0] * len(splits)
    targets, weights = list(attr("leaf_targetids", ())), np.asarray(attr("leaf_weights")).reshape(-1)
    if len({len(splits), len(modes), len(missing), *map(len, columns)}) != 1 or len(targets) != len(weights):
        raise ShapeError("has attributes of nodes, or of leaves, of different lengths")
    if modes.size and (modes.min() < 0 or modes.max() >= len(MODES)):
        raise MegccError(f"has a node of mode {modes.max()}, which is not supported")
    sets = _membership_sets(attr("membership_values"))
    branches = []
    for feature, yes_leaf, yes, no_leaf, no, split, mode, nan in zip(*columns, splits, modes, missing, strict=True):
        if min(yes, no) < 0:
            raise ShapeError("has a branch to a node that does not exist")
        values = (float(split),)
        if MODES[mode] == "BRANCH_MEMBER":
            values = next(sets, ())
        branches.append(Branch(MODES[mode], feature, values, ~yes if yes_leaf else yes, ~no if no_leaf else no,
                               bool(nan)))
    leaves = [[(target, float(weight))] for target, weight in zip(targets, weights, strict=True)]
    return Ensemble(branches, leaves, list(attr("tree_roots", ())))


def _membership_sets(values):
    """Yields the sets of numbers that attribute membership_values holds, with a NaN after each set."""
    members: list[float] = []
    for value in () if values is None else np.asarray(values).reshape(-1).tolist():
        if np.isnan(value):
            yield tuple(members)
            members = []
        else:
            members.append(value)
    if members:
        yield tuple(members)
