# SPDX-License-Identifier: Apache-2.0
"""The kernel of LSTM layers in integers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, floordiv
from ...ops.quantized.rsqrt import HALF_ROOT, NEWTON_STEPS
from ...ops.recurrent.lstm_int8 import (
    EXP_MINUS_EIGHTH,
    EXP_MINUS_POWERS,
    FACTOR_COUNT,
    GATE_BITS,
    NEWTON_START,
    ONE_THIRD,
)
from ..base import Kernel, Lowered, extent_symbols
from ..integer.dot import zero_name
from ..parameters import Parameters
from ..site import Site
from .operands import operand_names, operands_of


@dataclass(frozen=True)
class FixedLstmParameters(Parameters):
    """Parameters of `fixed.c.j2`.

    operands, results: the names of the operands and results that exist.
    coupled: whether the input gate is 1 minus the forget gate.
    batch_major: with a projection to P results, whether the first P units of each sequence have peepholes; else the
        first N * P cells of all sequences (ops/recurrent/lstm_int8.py).
    cell_bits: integer bits of the cell state, which is int16.
    cell_clip, projection_clip: the bounds of the cell state and of the projection, in their units; 0 for none.
    zero: the zero point of the results.
    hidden_zero: the zero point of the operand of the projection.
    guards: what replaces a variance below 1 of a normalised gate: for i, f, c and o, also if there is no i.
    gate_bits: integer bits of gates, which are int16.
    eighth, third, powers: exp(-1/8), 1/3, and exp(-2^k) for k from -2 on, in Q0.15: constants of the series of exp.
    newton: 48/17 and -32/17 in Q2.13, with which Newton's method for a reciprocal begins.
    steps, half_root: the steps of Newton's method for 1 / sqrt, and sqrt(2) / 2 in Q0.31 (ops/quantized/rsqrt.py).
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    coupled: bool
    batch_major: bool
    cell_bits: int
    cell_clip: int
    projection_clip: int
    zero: int
    hidden_zero: int
    guards: tuple[int, ...]
    gate_bits: int = GATE_BITS
    eighth: int = EXP_MINUS_EIGHTH
    third: int = ONE_THIRD
    powers: tuple[int, ...] = EXP_MINUS_POWERS
    newton: tuple[int, ...] = NEWTON_START
    steps: int = NEWTON_STEPS
    half_root: int = HALF_ROOT


class FixedSteps(Kernel):
    """Computes all steps of one sequence in a task, unit by unit, with the same bits on every CPU."""

    name = "fixed"
    # The operands are x, r, bias, factors, peepholes, norms, norm_bias, projection, projection_bias, initial_h and
    # initial_c.
    dtypes = (("int16",), ("int8",), ("int32",), ("int32",), ("int16",), ("int16",), ("int32",), ("int8",), ("int32",),
              ("int8",), ("int16",))

    def lower(self, site: Site) -> Lowered:
        attrs, (steps, batch, columns) = site.attrs, site.x.shape
        present = tuple(operand_names(site).values())
        gates, projects = 3 if attrs.coupled else 4, "projection" in present
        T, N, H, P = extent_symbols("T", "N", "H", "P")
        extents: dict[str, Dim] = {"T": steps, "N": batch, "H": floordiv(columns, gates)}
        if projects:
            extents["P"] = site.inputs[1].shape[1]
        outputs = P if projects else H
        sizes = {"x": T * N * gates * H, "r": gates * H * outputs, "bias": gates * H, "factors": 2 * FACTOR_COUNT,
                 "peepholes": 3 * H, "norms": gates * H, "norm_bias": gates * H, "projection": P * H,
                 "projection_bias": P, "initial_h": N * outputs, "initial_c": N * H,
                 "y": T * N * outputs, "y_h": N * outputs, "y_c": N * H}
        operands, results = operands_of(site, sizes)
        params = FixedLstmParameters(
            operands=present, results=tuple(result.name for result in results), coupled=bool(attrs.coupled),
            batch_major=bool(attrs.batch_major) and projects and "peepholes" in present, cell_bits=attrs.cell_bits,
            cell_clip=attrs.cell_clip, projection_clip=attrs.projection_clip if projects else 0, zero=attrs.zero,
            hidden_zero=attrs.hidden_zero if projects else 0, guards=attrs.guards if "norms" in present else ())
        # Scratch: int16 cells [H] and sums of gates [gates][H]; then int8: the results before the first step [outputs]
        # and, with a projection, its operand [H].
        return Lowered("rnn/fixed", params, extents, operands, results, N, _operation(params), self.name,
                       scratch=2 * (gates + 1) * H + outputs + (H if projects else 0))

    def cost(self, site: Site) -> float:
        # For each gate of a unit in a step: 1 for a product with a last result, 200 for the functions in fixed point.
        return site.likely.x.size * (site.inputs[1].shape[-1] + 200.0)


def _operation(params: FixedLstmParameters) -> str:
    """Returns the left part of the symbol, which names all that kernels differ in."""
    # The first four operands always exist, and a bias exists with what it belongs to.
    words = [f"lstm_fixed_q{params.cell_bits}", "coupled" if params.coupled else "",
             "batch_major" if params.batch_major else "",
             *(name for name in params.operands[4:] if not name.endswith("bias")), *params.results[1:],
             f"clip{params.cell_clip}" if params.cell_clip else "",
             f"clip_projection{params.projection_clip}" if params.projection_clip else "",
             *(f"g{guard}" for guard in params.guards), zero_name(params.zero).strip("_"),
             zero_name(params.hidden_zero).strip("_") if "projection" in params.operands else ""]
    return "_".join(filter(None, words))
