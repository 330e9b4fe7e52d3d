# SPDX-License-Identifier: Apache-2.0
"""The kernel of recurrent layers that quantize their results by range, project them or normalize their gates."""

from __future__ import annotations

from dataclasses import dataclass

from ...foreign import digest
from ...ops.base import operator
from ...ops.recurrent.hybrid import EPSILON
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class HybridParameters(Parameters):
    """Parameters of `hybrid.c.j2`.

    operands, results: the names of the operands and results that exist.
    gates: the number of gates: 4, 3 without an input gate, or 1 for a layer without cells.
    weight: the C type of the recurrent weights, int8_t or float.
    activation: of the cell and its gate: "tanh", "relu" or "affine".
    cell_clip, projection_clip: bounds of the cell state and of the projection, as C literals; "" for none.
    asymmetric: whether states are quantised with a zero point.
    epsilon: what is added to the variance of a normalised gate, as a C literal.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    gates: int
    weight: str
    activation: str
    cell_clip: str
    projection_clip: str
    asymmetric: bool
    epsilon: str


class HybridSteps(Kernel):
    """Computes all steps of one sequence in a task, with the same bits on every CPU (functions of megcc_double.h)."""

    name = "hybrid"
    dtypes = (("float32",), ("int8", "float32"), ("float32",), ("float32",), ("float32",), ("int8", "float32"),
              ("float32",), ("float32",), ("float32",))

    def lower(self, site: Site) -> Lowered:
        attrs, (steps, batch, _) = site.attrs, site.x.shape
        T, N, U, R = extent_symbols("T", "N", "U", "R")
        gates, outputs = attrs.gates, site.inputs[1].shape[1]
        names = [name.removesuffix("?") for name in operator(site.kind).operands]
        sizes = {"x": T * N * gates * U, "r": gates * U * R, "scales": gates + 1, "peepholes": 3 * U,
                 "norms": 2 * gates * U, "projection": U * R, "projection_bias": R, "initial_h": N * R,
                 "initial_c": N * U, "y": T * N * R, "y_h": N * R, "y_c": N * U}
        there = [index for index in range(len(site.inputs)) if site.has(index)]
        results = tuple(name.lower() for name in attrs.results)
        present = tuple(names[index] for index in there)
        parameters = HybridParameters(present, results, gates, site.inputs[1].c_type, attrs.activation,
                                        _limit(attrs.cell_clip), _limit(attrs.projection_clip),
                                        bool(attrs.asymmetric), f"{float(EPSILON):.9g}f")
        units = site.inputs[names.index("projection")].shape[1] if "projection" in present else outputs
        floats, centred = (gates + 2) * U + R, U + R  # numbers of float32 and of int16 in scratch
        return Lowered("rnn/hybrid", parameters, {"T": steps, "N": batch, "U": units, "R": outputs},
                       tuple(Operand(names[index], index, sizes[names[index]]) for index in there),
                       tuple(Operand(name, index, sizes[name]) for index, name in enumerate(results)),
                       N, _what(site.inputs[1].dtype, parameters), self.name,
                       scratch=4 * floats + 2 * centred)

    def cost(self, site: Site) -> float:
        return site.likely.x.size * (site.inputs[1].shape[-1] + 200.0)


def _what(dtype: str, params: HybridParameters) -> str:
    """Returns the left part of the symbol, which names all that kernels differ in."""
    clips = params.cell_clip, params.projection_clip
    words = [f"recurrent_steps_{dtype}_{params.gates}", params.activation, "asymmetric" if params.asymmetric else "",
             *(name for name in params.operands if name not in ("x", "r", "scales")), *params.results[1:],
             f"clip_{digest(repr(clips), 4)}" if any(clips) else ""]
    return "_".join(filter(None, words))


def _limit(value: float) -> str:
    return f"{value:.9g}f" if "." in f"{value:.9g}" or "e" in f"{value:.9g}" else f"{value:.9g}.0f" if value else ""
