# SPDX-License-Identifier: Apache-2.0
"""The kernel of recurrent layers that quantize their results by range, project them or normalize their gates."""

from __future__ import annotations

from dataclasses import dataclass

from ...foreign import digest
from ...ir.dims import Dim, dim_max
from ...ops.recurrent.hybrid import EPSILON
from ..base import Kernel, Lowered, extent_symbols
from ..parameters import Parameters
from ..site import Site
from .operands import operands_of


@dataclass(frozen=True)
class HybridParameters(Parameters):
    """Parameters of `hybrid.c.j2`.

    operands, results: the names of the operands and results that exist.
    gates: the number of gates: 4, 3 without an input gate, or 1 for a layer without cells.
    weight: the C type of the recurrent weights, int8_t or float.
    activation: the function of the cell's new value and of its output: "tanh", "relu" or "affine".
    cell_clip, projection_clip: bounds of the cell state and of the projection, as C literals; "" for none.
    asymmetric: whether states are quantized with a zero point.
    epsilon: what is added to the variance of a normalized gate, as a C literal.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    gates: int
    weight: str
    activation: str
    cell_clip: str
    projection_clip: str
    asymmetric: bool
    epsilon: str = f"{float(EPSILON):.9g}f"


class HybridSteps(Kernel):
    """Computes all steps of one sequence in a task, with the same bits on every CPU (functions of megcc_double.h)."""

    name = "hybrid"
    # The operands are x, r, scales, peepholes, norms, projection, projection_bias, initial_h and initial_c.
    dtypes = (("float32",), ("int8", "float32"), ("float32",), ("float32",), ("float32",), ("int8", "float32"),
              ("float32",), ("float32",), ("float32",))

    def lower(self, site: Site) -> Lowered:
        attrs, (steps, batch, _) = site.attrs, site.x.shape
        T, N, U, R = extent_symbols("T", "N", "U", "R")
        gates, results_of_step = attrs.gates, site.inputs[1].shape[1]
        sizes = {"x": T * N * gates * U, "r": gates * U * R, "scales": gates + 1, "peepholes": 3 * U,
                 "norms": 2 * gates * U, "projection": U * R, "projection_bias": R, "initial_h": N * R,
                 "initial_c": N * U, "y": T * N * R, "y_h": N * R, "y_c": N * U}
        operands, results = operands_of(site, sizes)
        positions = {operand.name: operand.index for operand in operands}
        params = HybridParameters(
            operands=tuple(positions), results=tuple(result.name for result in results), gates=gates,
            weight=site.inputs[1].c_type, activation=attrs.activation, cell_clip=_literal(attrs.cell_clip),
            projection_clip=_literal(attrs.projection_clip), asymmetric=bool(attrs.asymmetric))
        units = site.inputs[positions["projection"]].shape[1] if "projection" in positions else results_of_step
        # Scratch: float32 gates [gates][U], cell states [U], operand of the projection [U] and last results [R]; then
        # int16, for int8 weights: last results or operand of the projection, quantized.
        floats = (gates + 2) * U + R
        quantized: Dim = dim_max(U, R) if params.weight == "int8_t" else 0
        return Lowered("rnn/hybrid", params, {"T": steps, "N": batch, "U": units, "R": results_of_step}, operands,
                       results, N, _operation(site.inputs[1].dtype, params), self.name,
                       scratch=4 * floats + 2 * quantized)

    def cost(self, site: Site) -> float:
        # For each gate of a unit in a step: 1 for a product with a last result, 200 for the functions in double.
        return site.likely.x.size * (site.inputs[1].shape[-1] + 200.0)


def _operation(dtype: str, params: HybridParameters) -> str:
    """Returns the left part of the symbol, which names all that kernels differ in."""
    clips = params.cell_clip, params.projection_clip
    words = [f"recurrent_steps_{dtype}_{params.gates}", params.activation, "asymmetric" if params.asymmetric else "",
             *(name for name in params.operands if name not in ("x", "r", "scales")), *params.results[1:],
             f"clip_{digest(repr(clips), 4)}" if any(clips) else ""]
    return "_".join(filter(None, words))


def _literal(clip: float) -> str:
    """Returns a clip as a C literal of float; "" for 0, which means none."""
    text = f"{clip:.9g}"
    return (f"{text}f" if "." in text or "e" in text else f"{text}.0f") if clip else ""
