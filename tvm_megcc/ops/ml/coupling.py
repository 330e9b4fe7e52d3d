# SPDX-License-Identifier: Apache-2.0
"""Pairwise coupling: class probabilities from the probabilities of pairs of classes, for ai.onnx.ml's SVMClassifier."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_equal
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register

#: The number of iterations after which the probabilities are taken even if they have not converged.
MAX_ITERATIONS = 100


@register
class CoupledProbabilities(Operator):
    """The probabilities p [N, classes], with sum 1, that minimise the sum over i, j of (r[j, i] p[i] - r[i, j] p[j])^2.

    Operand: x float32 [N, classes * (classes - 1) / 2], the probabilities r[i, j] of class i given class i or j, for
    i < j. Result: float32 [N, classes]. Attribute `classes`. It is computed in float32.

    Source: T.-F. Wu, C.-J. Lin and R. C. Weng, Probability Estimates for Multi-class Classification by Pairwise
    Coupling, Journal of Machine Learning Research 5 (2004), algorithm 2; as in LIBSVM and ONNX Runtime.
    """

    kind = "coupled_probabilities"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype != "float32" or x.rank != 2 or not 2 <= attrs.classes <= 1024:
            raise ShapeError(f"pairs {x} of {attrs.classes} classes; up to 1024 are supported")
        require_equal(x.shape[1], attrs.classes * (attrs.classes - 1) // 2, f"pairs {x} of {attrs.classes} classes")
        return (TensorType("float32", (x.shape[0], attrs.classes)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        classes, one = attrs.classes, np.float32(1)
        y = np.full((len(x), classes), one / np.float32(classes), np.float32)
        # Names as in kernels/linear/coupling.c.j2: q is the matrix of the quadratic form, qp is q p, pqp is p' q p.
        upper_triangle = np.triu_indices(classes, 1)
        for row, p in zip(x, y, strict=True):
            r = np.zeros((classes, classes), np.float32)
            r[upper_triangle] = row
            r.T[upper_triangle] = one - row
            q = -r.T * r
            np.fill_diagonal(q, 0)
            for i in range(classes):
                for j in range(classes):
                    q[i, i] += r[j, i] * r[j, i]
            for _ in range(MAX_ITERATIONS):
                qp = (q * p).cumsum(1, dtype=np.float32)[:, -1]
                pqp = (p * qp).cumsum(dtype=np.float32)[-1]
                if np.abs(qp - pqp).max() < np.float32(0.005) / np.float32(classes):  # LIBSVM's tolerance
                    break
                for i in range(classes):
                    step = (pqp - qp[i]) / q[i, i]
                    total = one + step
                    p[i] += step
                    pqp = (pqp + step * (step * q[i, i] + 2 * qp[i])) / total / total
                    qp = (qp + step * q[i]) / total
                    p /= total
        return (y,)


def _case(rows: int, classes: int) -> Case:
    pairs = classes * (classes - 1) // 2
    drawn = np.random.default_rng(classes).uniform(0.02, 0.98, (rows, pairs))
    return Case((((rows, pairs), "float32"),), {"classes": classes}, values={0: drawn})


CoupledProbabilities.cases = (_case(5, 2), _case(4, 3), _case(1, 7))
