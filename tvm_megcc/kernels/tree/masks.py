# SPDX-License-Identifier: Apache-2.0
"""Decision trees by bit masks: each failed test of a row removes leaves from the mask of its tree.

After C. Lucchese et al., "QuickScorer: A Fast Algorithm to Rank Documents with Additive Ensembles of Regression Trees",
SIGIR 2015, and for several rows at a time T. Ye et al., "RapidScorer", KDD 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...ir.expr import c_float
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..packing import packer
from ..parameters import Parameters
from ..site import Site

#: Most leaves of a tree: bits of a mask.
MOST_LEAVES = 64
#: Rows that are evaluated together.
TOGETHER = 16


@dataclass(frozen=True)
class Forest:
    """Trees in which each node and each leaf is reached once.

    leaves: numbers of the leaves, tree by tree, each from left to right.
    base: index of each tree's first leaf, and the number of leaves.
    tree: for each inner node, the index of its tree.
    masks: for each inner node, bits of the leaves outside its first branch.
    """

    leaves: np.ndarray
    base: np.ndarray
    tree: np.ndarray
    masks: np.ndarray

    @staticmethod
    def of(nodes: np.ndarray, roots: np.ndarray, leaf_count: int) -> Forest | None:
        """Returns the trees as a forest; None if a node is shared or a tree has more than `MOST_LEAVES`."""
        inner, leaves, base = len(nodes), [], [0]
        tree, masks = np.full(inner, -1, np.int32), np.zeros(inner, np.uint64)
        children = nodes[:, :2].tolist()
        for number, root in enumerate(roots.tolist()):
            start = len(leaves)
            waiting = [(root, False)]
            begins = {}
            while waiting:      # visits a node again when its first branch is done
                node, seen = waiting.pop()
                if node >= inner:
                    leaves.append(node - inner)
                    if len(leaves) - start > MOST_LEAVES:
                        return None
                elif seen:
                    begin, end = begins[node], len(leaves) - start
                    masks[node] = np.uint64(2**64 - 1 - ((1 << end) - (1 << begin)))
                elif tree[node] != -1:
                    return None
                else:
                    tree[node], begins[node] = number, len(leaves) - start
                    waiting += [(children[node][1], False), (node, True), (children[node][0], False)]
            base.append(len(leaves))
        once = len(leaves) == leaf_count and len(set(leaves)) == leaf_count and (tree >= 0).all()
        return Forest(np.array(leaves, np.int32), np.array(base, np.int32), tree, masks) if once else None


def _order(nodes: np.ndarray) -> np.ndarray:
    """Sorts inner nodes by feature, then by threshold."""
    dtype = np.float32 if nodes.shape[1] == 4 else np.float64
    thresholds = np.ascontiguousarray(nodes[:, 3:]).view(dtype).reshape(-1)
    return np.lexsort((thresholds, nodes[:, 2] >> 1))


@packer("tree_begins")
def begins(nodes: np.ndarray, features: int) -> np.ndarray:
    """Returns where the nodes of each feature begin, and the end of the last ones."""
    return np.searchsorted(np.sort(nodes[:, 2] >> 1), np.arange(features + 1)).astype(np.int32)


@packer("tree_thresholds")
def thresholds(nodes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(nodes[_order(nodes), 3:]).view(np.float32 if nodes.shape[1] == 4 else np.float64)


@packer("tree_numbers")
def numbers(nodes: np.ndarray, roots: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns, for each node, twice its tree, plus 1 if NaN takes the second branch."""
    forest = Forest.of(nodes, roots, len(first) - 1)
    return (2 * forest.tree + (nodes[:, 2] & 1))[_order(nodes)].astype(np.int32)


@packer("tree_masks")
def masks(nodes: np.ndarray, roots: np.ndarray, first: np.ndarray, bits: int) -> np.ndarray:
    found = Forest.of(nodes, roots, len(first) - 1).masks[_order(nodes)]
    return found.astype(np.uint32) if bits == 32 else found


@packer("tree_bases")
def bases(roots: np.ndarray, nodes: np.ndarray, first: np.ndarray) -> np.ndarray:
    return Forest.of(nodes, roots, len(first) - 1).base


@packer("tree_leaves")
def leaves(roots: np.ndarray, nodes: np.ndarray, first: np.ndarray) -> np.ndarray:
    return Forest.of(nodes, roots, len(first) - 1).leaves


@packer("tree_weights")
def weights(values: np.ndarray, nodes: np.ndarray, roots: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns the weight of each leaf, which has only one, in the order of `leaves`."""
    return values[first[:-1]][Forest.of(nodes, roots, len(first) - 1).leaves]


@dataclass(frozen=True)
class MaskParameters(Parameters):
    """Parameters of `masks.c.j2`.

    unit: C type of a feature.
    bits: number of bits of a mask.
    together: rows that are evaluated together.
    fold: as in the operator.
    start: C literal, initial value of the fold.
    single: each leaf has one weight, and there is one target.
    """

    unit: str
    bits: int
    together: int
    fold: str
    start: str
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
        if site.isa.lanes < 4:
            return "there are no vectors"
        if not isinstance(site.x.shape[1], int):
            return "how many features there are is not known"
        if not {1, 2, 3} <= set(site.values):
            return "the trees are not known"
        if self._forest(site) is None:
            return f"a tree has more than {MOST_LEAVES} leaves, or shares nodes with another"
        return None

    def _forest(self, site: Site) -> Forest | None:
        nodes, roots, first = (site.values[index] for index in (1, 2, 3))
        return Forest.of(nodes, roots, len(first) - 1)

    def lower(self, site: Site) -> Lowered:
        x, attrs = site.x, site.attrs
        N, F, inner, R, L, W, T = extent_symbols("N", "F", "INNER", "ROOTS", "LEAVES", "WEIGHTS", "TARGETS")
        _, nodes, roots, first, targets, _ = site.inputs
        extents = {"N": x.shape[0], "F": x.shape[1], "INNER": nodes.shape[0], "ROOTS": roots.shape[0],
                   "LEAVES": first.shape[0] - 1, "WEIGHTS": targets.shape[0], "TARGETS": attrs.targets}
        bits = 32 if np.diff(self._forest(site).base).max() <= 32 else 64
        single = attrs.targets == 1 and targets.shape[0] == first.shape[0] - 1 \
            and bool((np.diff(site.values[3]) == 1).all())
        operands = [Operand("x", 0, N * F), Operand("begins", 1, F + 1, ("tree_begins", x.shape[1])),
                    Operand("thresholds", 1, inner, ("tree_thresholds",), dtype=x.dtype),
                    Operand("numbers", 1, inner, ("tree_numbers",), also=(2, 3)),
                    Operand("masks", 1, inner, ("tree_masks", bits), dtype=f"uint{bits}", also=(2, 3)),
                    Operand("bases", 2, R + 1, ("tree_bases",), also=(1, 3))]
        operands += [Operand("weights", 5, L, ("tree_weights",), also=(1, 2, 3))] if single else [
            Operand("leaves", 2, L, ("tree_leaves",), also=(1, 3)), Operand("first", 3, L + 1),
            Operand("targets", 4, W), Operand("weights", 5, W)]
        start = c_float({"sum": 0.0, "min": math.inf, "max": -math.inf}[attrs.fold])
        parameters = MaskParameters(x.c_type, bits, TOGETHER, attrs.fold, start, single)
        return Lowered("tree/masks", parameters, extents, tuple(operands), (Operand("y", 0, N * T),), N,
                       f"trees_{attrs.fold}" + "_single" * single, f"masks{bits}",
                       scratch=TOGETHER * (R * (bits // 8) + F * (4 if x.dtype == "float32" else 8)))

    def cost(self, site: Site) -> float:
        rows, nodes = site.likely.x.shape[0], site.inputs[1].shape[0]
        return nodes * (0.15 * (rows - rows % TOGETHER) + 0.4 * (rows % TOGETHER))
