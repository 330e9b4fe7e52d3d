# SPDX-License-Identifier: Apache-2.0
"""Decision trees by traversal. Several independent walks at a time hide the latency of loads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...ir.dims import Dim
from ...ir.expr import c_float
from ...ops.ml.trees import WORDS
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..packing import packer
from ..parameters import Parameters
from ..site import Site


@packer("leaf_rows")
def with_leaves(nodes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns the nodes, followed by a node for each leaf. Both children of such a node are itself, so that a walk that
    has arrived stays there while others go on.

    nodes: [I, words], with the words of a node as in `Trees` (ops/ml/trees.py): two children, the feature, the
        threshold. first: [L + 1], which tells the number of leaves.
    """
    leaves = np.zeros((len(first) - 1, nodes.shape[1]), np.int32)
    leaves[:, :2] = (len(nodes) + np.arange(len(leaves)))[:, None]
    # An infinite threshold, which no feature exceeds.
    leaves[:, 3:] = np.array([np.inf], np.float32 if nodes.shape[1] == WORDS["float32"] else np.float64).view(np.int32)
    return np.concatenate([nodes, leaves])


@dataclass(frozen=True)
class AggregateParameters(Parameters):
    """Parameters of `aggregate.c.j2`.

    unit: the C type of a feature and of a weight.
    fold: how the weights of a target are aggregated: "sum", "min" or "max".
    identity: the result of no weights as a C literal: 0, or an infinity for "min" and "max".
    """

    unit: str
    fold: str
    identity: str


def aggregate_values(site: Site) -> tuple[str, str, str]:
    """Returns the values of `AggregateParameters`."""
    fold = site.attrs.fold
    return site.x.c_type, fold, c_float({"sum": 0.0, "min": math.inf, "max": -math.inf}[fold])


def tree_extents(site: Site) -> dict[str, Dim]:
    """Returns the extents of both kernels: rows, features, inner nodes, trees, leaves, weights and targets."""
    _, nodes, roots, first, targets, _ = site.inputs
    return {"N": site.x.shape[0], "F": site.x.shape[1], "INNER": nodes.shape[0], "ROOTS": roots.shape[0],
            "LEAVES": first.shape[0] - 1, "WEIGHTS": targets.shape[0], "TARGETS": site.attrs.targets}


@dataclass(frozen=True)
class WalkParameters(AggregateParameters):
    """Parameters of `walk.c.j2`.

    words: the number of int32 words of a node: 4 with a threshold of float, 5 of double.
    walks: the number of walks that advance together, so that loads of one hide behind those of others.
    """

    words: int
    walks: int


class TreeWalk(Kernel):
    """Walks the trees for one row in a task: several rows through one tree together, or one row through several.

    Trees are summed in order, whatever walks together.
    """

    name = "walk"
    constants = (1, 3)
    dtypes = (("float32", "float64"), ("int32",), ("int32",), ("int32",), ("int32",), ("float32", "float64"))

    def lower(self, site: Site) -> Lowered:
        extents = tree_extents(site)
        N, F, inner, R, L, W, T = extent_symbols(*extents)
        words = WORDS[site.x.dtype]
        operands = (Operand("x", 0, N * F), Operand("nodes", 1, (inner + L) * words, ("leaf_rows",), also=(3,)),
                    Operand("roots", 2, R), Operand("first", 3, L + 1), Operand("targets", 4, W),
                    Operand("weights", 5, W))
        walks = 8 if site.isa.registers >= 16 else 4  # 8 hide the latency of loads; few registers fit only 4
        parameters = WalkParameters(*aggregate_values(site), words, walks)
        return Lowered("tree/walk", parameters, extents, operands, (Operand("y", 0, N * T),), N,
                       f"trees_{site.attrs.fold}", f"walk{walks}")

    def cost(self, site: Site) -> float:
        # 20 cycles, an estimate, for a walk from the root of a tree to a leaf.
        return 20.0 * site.likely.x.shape[0] * site.inputs[2].shape[0]
