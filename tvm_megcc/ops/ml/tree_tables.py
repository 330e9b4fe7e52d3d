# SPDX-License-Identifier: Apache-2.0
"""Converts the nodes of ai.onnx.ml's trees to the tables of operator `trees`, and refuses nodes that form no tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import MegccError, ShapeError

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
#: The most nodes of a model.
MOST = 1 << 26


@dataclass(frozen=True)
class Branch:
    """An inner node: a test of a feature, and the nodes after either answer.

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
    """Trees.

    branches: all inner nodes.
    leaves: targets and weights of each leaf.
    roots: indices as in `Branch`.
    """

    branches: list[Branch]
    leaves: list[list[tuple[int, float]]]
    roots: list[int]
    rows: list[list] = field(default_factory=list)

    def tables(self, dtype: str, features: int, targets: int) -> tuple[np.ndarray, ...]:
        """Returns the operands of `trees` after the first.

        Raises:
            MegccError: for indices of nodes, features and targets that do not exist, and for cycles.
        """
        self._check(features, targets)
        number_type = np.dtype(dtype).type
        self.rows = [[0, 0, 0, number_type(0)] for _ in self.branches]
        for index, branch in enumerate(self.branches):
            _LOWER.get(branch.mode, _equal)(self, index, branch, number_type)
        inner = max(len(self.rows), 1)
        rows = self.rows or [[~0, ~0, 0, number_type(0)]]
        links = np.array([row[:3] for row in rows], np.int64)
        links[:, :2] = np.where(links[:, :2] < 0, inner + ~links[:, :2], links[:, :2])
        bits = np.array([row[3] for row in rows], number_type).view(np.int32).reshape(inner, -1)
        roots = np.array([inner + ~root if root < 0 else root for root in self.roots], np.int32)
        flat = [pair for leaf in self.leaves for pair in leaf]
        first = np.concatenate([[0], np.cumsum([len(leaf) for leaf in self.leaves])]).astype(np.int32)
        return (np.concatenate([links.astype(np.int32), bits], 1), roots, first,
                np.array([target for target, _ in flat], np.int32),
                np.array([weight for _, weight in flat], number_type))

    def row(self, index: int, first: int, second: int, feature: int, threshold, nan_second: bool) -> None:
        """Writes a row of the table: it goes to `second` if the feature is greater than the threshold, else to
        `first`."""
        self.rows[index] = [first, second, 2 * feature + nan_second, threshold]

    def more(self) -> int:
        self.rows.append([0, 0, 0, 0])
        return len(self.rows) - 1

    def _check(self, features: int, targets: int) -> None:
        branches, leaves = len(self.branches), len(self.leaves)
        if not self.roots or not leaves or branches + leaves > MOST:
            raise MegccError(f"has {len(self.roots)} trees of {branches} inner nodes and {leaves} leaves")
        ways = np.array([(branch.true, branch.false) for branch in self.branches], np.int64).reshape(-1, 2)
        for node in (ways, np.array(self.roots, np.int64)):
            if node.size and (node.min() < -leaves or node.max() >= branches):
                raise ShapeError("leads to a node that is not there")
        wrong = [branch.feature for branch in self.branches if not 0 <= branch.feature < features]
        if wrong:
            raise ShapeError(f"asks for feature {wrong[0]} of {features}, and the first one is 0")
        wrong = [target for leaf in self.leaves for target, _ in leaf if not 0 <= target < targets]
        if wrong:
            raise ShapeError(f"has a leaf for target {wrong[0]} of {targets}")
        self._check_cycles(ways)

    def _check_cycles(self, ways: np.ndarray) -> None:
        """Sorts the nodes topologically; raises ShapeError if some remain."""
        inner = ways[ways >= 0]
        waiting = np.bincount(inner, minlength=len(ways))
        free, seen = np.flatnonzero(waiting == 0), 0
        while free.size:
            seen += free.size
            following, counts = np.unique(ways[free][ways[free] >= 0], return_counts=True)
            waiting[following] -= counts
            free = following[waiting[following] == 0]
        if seen != len(ways):
            raise ShapeError("has nodes that lead back to themselves")


def _below(value):
    return np.nextafter(value, type(value)(-np.inf))


def _at_most(e: Ensemble, index: int, b: Branch, number_type: Callable) -> None:
    limit = number_type(b.values[0])
    if np.isnan(limit):
        e.row(index, b.false, b.true, b.feature, limit, b.missing)
    else:
        e.row(index, b.true, b.false, b.feature, limit, not b.missing)


def _less_than(e: Ensemble, index: int, b: Branch, number_type: Callable) -> None:
    limit = number_type(b.values[0])
    if np.isnan(limit) or limit == -np.inf:  # an empty set: no value is in it
        e.row(index, b.false, b.true, b.feature, number_type(np.nan), b.missing)
    else:
        e.row(index, b.true, b.false, b.feature, _below(limit), not b.missing)


def _at_least(e: Ensemble, index: int, b: Branch, number_type: Callable) -> None:
    limit = number_type(b.values[0])
    if limit == -np.inf:  # every value is in it
        e.row(index, b.true, b.false, b.feature, number_type(np.inf), not b.missing)
    else:
        e.row(index, b.false, b.true, b.feature, _below(limit), b.missing)


def _greater(e: Ensemble, index: int, b: Branch, number_type: Callable) -> None:
    e.row(index, b.false, b.true, b.feature, number_type(b.values[0]), b.missing)


def _equal(e: Ensemble, index: int, b: Branch, number_type: Callable) -> None:
    """Writes rows that test whether a feature equals one of some values, in ascending order: a value that is neither
    greater than one of them nor equal to it equals none."""
    yes, no = (b.false, b.true) if b.mode == "BRANCH_NEQ" else (b.true, b.false)
    missing = b.missing and b.mode != "BRANCH_NEQ"  # NaN takes the branch `yes`
    values = sorted({number_type(value) for value in b.values if not np.isnan(number_type(value))})
    if not values:
        e.row(index, no, yes, b.feature, number_type(np.nan), missing)
    for position, value in enumerate(values):
        following = e.more() if position + 1 < len(values) else no
        if value == -np.inf:
            e.row(index, yes, following, b.feature, value, not missing)
        else:
            below = e.more()
            e.row(index, below, following, b.feature, value, False)
            e.row(below, no, yes, b.feature, _below(value), missing)
        index = following


_LOWER = {"BRANCH_LEQ": _at_most, "BRANCH_LT": _less_than, "BRANCH_GTE": _at_least, "BRANCH_GT": _greater}


def by_ids(attr: Callable, leaf: str, weights: Sequence[float], values: Sequence[float]) -> Ensemble:
    """Reads the trees of TreeEnsembleRegressor and -Classifier: nodes and leaves with ids of trees and nodes. leaf:
    "target" or "class"."""
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "modes")
    columns = [list(attr(f"nodes_{name}", ())) for name in names]
    missing = list(attr("nodes_missing_value_tracks_true", ())) or [0] * len(values)
    ends = [list(attr(f"{leaf}_{name}", ())) for name in ("treeids", "nodeids", "ids")]
    if len({len(values), len(missing), *map(len, columns)}) != 1 or len({len(weights), *map(len, ends)}) != 1:
        raise ShapeError("has attributes of nodes, or of leaves, of different lengths")
    trees, nodes, features, true, false, modes = columns
    indices: dict[tuple[int, int], int] = {}
    number: list[int] = []
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
        number.append(index)
        roots.setdefault(tree, index)
    gives: list[list[tuple[int, float]]] = [[] for _ in range(leaves)]
    for tree, node, target, weight in zip(*ends, weights, strict=True):
        index = indices.get((tree, node), 0)
        if index >= 0:
            raise ShapeError(f"gives a weight to node {node} of tree {tree}, which is no leaf")
        gives[~index].append((target, weight))
    tables = []
    for tree, feature, yes, no, mode, value, nan in zip(trees, features, true, false, modes, values, missing,
                                                        strict=True):
        if mode != "LEAF":
            if (tree, yes) not in indices or (tree, no) not in indices:
                raise ShapeError(f"leads to node {no if (tree, yes) in indices else yes} of tree {tree}, which is not "
                                 "there")
            tables.append(Branch(mode, feature, (value,), indices[tree, yes], indices[tree, no], bool(nan)))
    return Ensemble(tables, gives, list(roots.values()))


def by_index(attr: Callable) -> Ensemble:
    """Reads the trees of TreeEnsemble, whose nodes and leaves are indices."""
    names = ("featureids", "trueleafs", "truenodeids", "falseleafs", "falsenodeids")
    columns = [list(attr(f"nodes_{name}", ())) for name in names]
    splits, modes = (np.asarray(attr(f"nodes_{name}")).reshape(-1) for name in ("splits", "modes"))
    missing = list(attr("nodes_missing_value_tracks_true", ())) or [0] * len(splits)
    targets, weights = list(attr("leaf_targetids", ())), np.asarray(attr("leaf_weights")).reshape(-1)
    if len({len(splits), len(modes), len(missing), *map(len, columns)}) != 1 or len(targets) != len(weights):
        raise ShapeError("has attributes of nodes, or of leaves, of different lengths")
    if modes.size and (modes.min() < 0 or modes.max() >= len(MODES)):
        raise MegccError(f"has a node of mode {modes.max()}, which is not supported")
    sets = _sets(attr("membership_values"))
    branches = []
    for feature, yes_leaf, yes, no_leaf, no, split, mode, nan in zip(*columns, splits, modes, missing, strict=True):
        if min(yes, no) < 0:
            raise ShapeError("leads to a node that is not there")
        values = (float(split),)
        if MODES[mode] == "BRANCH_MEMBER":
            values = next(sets, ())
        branches.append(Branch(MODES[mode], feature, values, ~yes if yes_leaf else yes, ~no if no_leaf else no,
                               bool(nan)))
    leaves = [[(target, float(weight))] for target, weight in zip(targets, weights, strict=True)]
    return Ensemble(branches, leaves, list(attr("tree_roots", ())))


def _sets(values):
    """Returns sets of numbers; a NaN separates them in the attribute."""
    found: list[float] = []
    for value in () if values is None else np.asarray(values).reshape(-1).tolist():
        if np.isnan(value):
            yield tuple(found)
            found = []
        else:
            found.append(value)
    if found:
        yield tuple(found)
