# SPDX-License-Identifier: Apache-2.0
"""Decision trees by traversal. Several independent walks at a time hide the latency of loads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...ir.expr import c_float
from ...ops.ml.trees import WORDS
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..packing import packer
from ..parameters import Parameters
from ..site import Site


@packer("leaf_rows")
def with_leaves(nodes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns the nodes, followed by a row for each leaf, whose branches lead to itself."""
    leaves = np.zeros((len(first) - 1, nodes.shape[1]), np.int32)
    leaves[:, :2] = (len(nodes) + np.arange(len(leaves)))[:, None]
    leaves[:, 3:] = np.array([np.inf], np.float32 if nodes.shape[1] == WORDS["float32"] else np.float64).view(np.int32)
    return np.concatenate([nodes, leaves])


@dataclass(frozen=True)
class TreeParameters(Parameters):
    """Parameters of `walk.c.j2`.

    unit: C type of a feature.
    words: int32 words of a node.
    walks: rows that are evaluated at the same time.
    fold: as in the operator.
    start: C literal, initial value of the fold.
    """

    unit: str
    words: int
    walks: int
    fold: str
    start: str


class TreeWalk(Kernel):
    """Walks the trees for one row in a task: several rows through one tree together, or one row through several.

    Trees are summed in order, whatever walks together.
    """

    name = "walk"
    constants = (1, 3)
    dtypes = (("float32", "float64"), ("int32",), ("int32",), ("int32",), ("int32",), ("float32", "float64"))

    def lower(self, site: Site) -> Lowered:
        x, attrs = site.x, site.attrs
        N, F, inner, R, L, W, T = extent_symbols("N", "F", "INNER", "ROOTS", "LEAVES", "WEIGHTS", "TARGETS")
        _, nodes, roots, first, targets, _ = site.inputs
        extents = {"N": x.shape[0], "F": x.shape[1], "INNER": nodes.shape[0], "ROOTS": roots.shape[0],
                   "LEAVES": first.shape[0] - 1, "WEIGHTS": targets.shape[0], "TARGETS": attrs.targets}
        words = WORDS[x.dtype]
        operands = (Operand("x", 0, N * F), Operand("nodes", 1, (inner + L) * words, ("leaf_rows",), also=(3,)),
                    Operand("roots", 2, R), Operand("first", 3, L + 1), Operand("targets", 4, W),
                    Operand("weights", 5, W))
        start = c_float({"sum": 0.0, "min": math.inf, "max": -math.inf}[attrs.fold])
        walks = 8 if site.isa.registers >= 16 else 4
        parameters = TreeParameters(x.c_type, words, walks, attrs.fold, start)
        return Lowered("tree/walk", parameters, extents, operands, (Operand("y", 0, N * T),), N,
                       f"trees_{attrs.fold}", f"walk{walks}")

    def cost(self, site: Site) -> float:
        return 20.0 * site.likely.x.shape[0] * site.inputs[2].shape[0]
