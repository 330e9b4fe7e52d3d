# SPDX-License-Identifier: Apache-2.0
"""Decision trees by bit masks: each failed test of a row removes leaves from the mask of its tree.

After C. Lucchese et al., "QuickScorer: A Fast Algorithm to Rank Documents with Additive Ensembles of Regression Trees",
SIGIR 2015, and for several rows at a time T. Ye et al., "RapidScorer", KDD 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ops.ml.trees import WORDS
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..packing import packer
from ..site import Site
from .walk import AggregateParameters, aggregate_values, tree_extents

#: The maximum number of leaves of a tree: the bits of a mask.
MAX_LEAVES = 64
#: The number of rows that are evaluated together.
ROWS_TOGETHER = 16


@dataclass(frozen=True)
class Forest:
    """Trees in which each node and each leaf is reached once.

    leaves: int32 [leaves], the numbers of the leaves, tree by tree, each from left to right.
    base: int32 [trees + 1], the index in `leaves` of each tree's first leaf, and the number of leaves.
    tree: int32 [inner nodes], the index of a node's tree.
    masks: uint64 [inner nodes], the bits of the leaves outside a node's first branch.
    """

    leaves: np.ndarray
    base: np.ndarray
    tree: np.ndarray
    masks: np.ndarray

    @staticmethod
    def of(nodes: np.ndarray, roots: np.ndarray, leaf_count: int) -> Forest | None:
        """Returns the trees as a forest; None if a node is shared or a tree has more than `MAX_LEAVES`."""
        inner, leaves, base = len(nodes), [], [0]
        tree, masks = np.full(inner, -1, np.int32), np.zeros(inner, np.uint64)
        children = nodes[:, :2].tolist()  # words 0 and 1 of a node: its children (ops/ml/trees.py)
        for number, root in enumerate(roots.tolist()):
            start = len(leaves)
            waiting = [(root, False)]  # (node, whether its first branch is done); a node is visited before and after it
            begins = {}
            while waiting:
                node, has_first_branch = waiting.pop()
                if node >= inner:
                    leaves.append(node - inner)
                    if len(leaves) - start > MAX_LEAVES:
                        return None
                elif has_first_branch:
                    begin, end = begins[node], len(leaves) - start  # the leaves of the first branch
                    masks[node] = np.uint64(2**64 - 1 - ((1 << end) - (1 << begin)))
                elif tree[node] != -1:
                    return None
                else:
                    tree[node], begins[node] = number, len(leaves) - start
                    waiting += [(children[node][1], False), (node, True), (children[node][0], False)]
            base.append(len(leaves))
        is_forest = len(leaves) == leaf_count and len(set(leaves)) == leaf_count and (tree >= 0).all()
        return Forest(np.array(leaves, np.int32), np.array(base, np.int32), tree, masks) if is_forest else None


def _features(nodes: np.ndarray) -> np.ndarray:
    """Returns the feature that each node tests (the words of a node: ops/ml/trees.py)."""
    return nodes[:, 2] >> 1


def _thresholds(nodes: np.ndarray) -> np.ndarray:
    """Returns the threshold of each node: its words from 3 on."""
    dtype = np.float32 if nodes.shape[1] == WORDS["float32"] else np.float64
    return np.ascontiguousarray(nodes[:, 3:]).view(dtype).reshape(-1)


def _sorted_order(nodes: np.ndarray) -> np.ndarray:
    """Returns the indices of inner nodes, sorted by feature, then by threshold."""
    return np.lexsort((_thresholds(nodes), _features(nodes)))


@packer("tree_begins")
def begins(nodes: np.ndarray, features: int) -> np.ndarray:
    """Returns int32 [features + 1]: the index of each feature's first node in the sorted nodes, and their number."""
    return np.searchsorted(np.sort(_features(nodes)), np.arange(features + 1)).astype(np.int32)


@packer("tree_thresholds")
def thresholds(nodes: np.ndarray) -> np.ndarray:
    """Returns the thresholds of the sorted nodes."""
    return _thresholds(nodes)[_sorted_order(nodes)]


@packer("tree_words")
def tree_words(nodes: np.ndarray, roots: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns, for each of the sorted nodes, twice its tree, plus 1 if NaN takes the second branch."""
    forest = Forest.of(nodes, roots, len(first) - 1)
    return (2 * forest.tree + (nodes[:, 2] & 1))[_sorted_order(nodes)].astype(np.int32)


@packer("tree_masks")
def masks(nodes: np.ndarray, roots: np.ndarray, first: np.ndarray, bits: int) -> np.ndarray:
    """Returns `Forest.masks` of the sorted nodes, of 32 or 64 bits."""
    found = Forest.of(nodes, roots, len(first) - 1).masks[_sorted_order(nodes)]
    return found.astype(np.uint32) if bits == 32 else found


@packer("tree_bases")
def bases(roots: np.ndarray, nodes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns `Forest.base`."""
    return Forest.of(nodes, roots, len(first) - 1).base


@packer("tree_leaves")
def leaves(roots: np.ndarray, nodes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns `Forest.leaves`."""
    return Forest.of(nodes, roots, len(first) - 1).leaves


@packer("tree_weights")
def weights(values: np.ndarray, nodes: np.ndarray, roots: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns the weight of each leaf, which has only one, in the order of `leaves`."""
    return values[first[:-1]][Forest.of(nodes, roots, len(first) - 1).leaves]


@dataclass(frozen=True)
class MaskParameters(AggregateParameters):
    """Parameters of `masks.c.j2`.

    bits: the number of bits of a mask.
    together: the number of rows that are evaluated together.
    single: whether each leaf has one weight, and there is one target.
    """

    bits: int
    together: int
    single: bool


class TreeMasks(Kernel):
    """Evaluates trees without walking them (QuickScorer, Lucchese et al., SIGIR 2015), one row in a task.

    The nodes of a feature are sorted by threshold, so those that a row's value exceeds come first. Each of them removes
    the leaves of its first branch from the mask of its tree. The leftmost remaining leaf is where a walk would end.
    Trees are summed in order.
    """

    name = "masks"
    constants = (1, 2, 3, 4, 5)
    dtypes = (("float32", "float64"), ("int32",), ("int32",), ("int32",), ("int32",), ("float32", "float64"))

    def refuse(self, site: Site) -> str | None:
        if site.isa.lanes < 4:  # more nodes are tested than by walks, which only vectors make up for
            return "there are no vectors"
        if not isinstance(site.x.shape[1], int):
            return "how many features there are is not known"
        if not {1, 2, 3} <= set(site.values):  # nodes, roots and first
            return "the trees are not known"
        if self._forest(site) is None:
            return f"a tree has more than {MAX_LEAVES} leaves, or shares nodes with another"
        return None

    def _forest(self, site: Site) -> Forest | None:
        nodes, roots, first = (site.values[index] for index in (1, 2, 3))
        return Forest.of(nodes, roots, len(first) - 1)

    def lower(self, site: Site) -> Lowered:
        x, attrs = site.x, site.attrs
        extents = tree_extents(site)
        N, F, inner, R, L, W, T = extent_symbols(*extents)
        bits = 32 if np.diff(self._forest(site).base).max() <= 32 else 64
        single = attrs.targets == 1 and extents["WEIGHTS"] == extents["LEAVES"] \
            and bool((np.diff(site.values[3]) == 1).all())
        operands = [Operand("x", 0, N * F), Operand("begins", 1, F + 1, ("tree_begins", x.shape[1])),
                    Operand("thresholds", 1, inner, ("tree_thresholds",), dtype=x.dtype),
                    Operand("tree_words", 1, inner, ("tree_words",), also=(2, 3)),
                    Operand("masks", 1, inner, ("tree_masks", bits), dtype=f"uint{bits}", also=(2, 3)),
                    Operand("bases", 2, R + 1, ("tree_bases",), also=(1, 3))]
        operands += [Operand("weights", 5, L, ("tree_weights",), also=(1, 2, 3))] if single else [
            Operand("leaves", 2, L, ("tree_leaves",), also=(1, 3)), Operand("first", 3, L + 1),
            Operand("targets", 4, W), Operand("weights", 5, W)]
        parameters = MaskParameters(*aggregate_values(site), bits=bits, together=ROWS_TOGETHER, single=single)
        # Scratch: the masks of all trees [R][ROWS_TOGETHER], then the values of one feature [ROWS_TOGETHER].
        return Lowered("tree/masks", parameters, extents, tuple(operands), (Operand("y", 0, N * T),), N,
                       f"trees_{attrs.fold}" + "_single" * single, f"masks{bits}",
                       scratch=ROWS_TOGETHER * (R * (bits // 8) + x.itemsize))

    def cost(self, site: Site) -> float:
        rows, nodes = site.likely.x.shape[0], site.inputs[1].shape[0]
        # Cycles of a node for one row, an estimate: 0.15 if rows are evaluated together, else 0.4. They are less than 1
        # because most nodes are never tested.
        return nodes * (0.15 * (rows - rows % ROWS_TOGETHER) + 0.4 * (rows % ROWS_TOGETHER))
