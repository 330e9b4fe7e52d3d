# SPDX-License-Identifier: Apache-2.0
"""The kernel of LSTM layers in integers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.base import operator
from ...ops.lstm_fixed import EIGHTH, FACTORS, GATE_BITS, NEWTON, POWERS, THIRD
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..integer.dot import zero_name
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class FixedLstmParameters(Parameters):
    """Of `fixed.c.j2`. operands, results: those that are there. The others as ops/lstm_fixed.py has them."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    coupled: bool
    gate_bits: int
    cell_bits: int
    cell_clip: int
    zero: int
    eighth: int
    third: int
    powers: tuple[int, ...]
    newton: tuple[int, ...]


class FixedSteps(Kernel):
    """A task is a sequence: all its steps, unit by unit. The same bits on every CPU."""

    name = "fixed"
    dtypes = (("int16",), ("int8",), ("int32",), ("int32",), ("int16",), ("int8",), ("int16",))

    def lower(self, site: Site) -> Lowered:
        attrs, (steps, batch, _) = site.attrs, site.x.shape
        T, N, H = extent_symbols("T", "N", "H")
        gates = 3 if attrs.coupled else 4
        names = [name.removesuffix("?") for name in operator(site.kind).operands]
        sizes = {"x": T * N * gates * H, "r": gates * H * H, "bias": gates * H, "factors": 2 * FACTORS,
                 "peepholes": 3 * H}
        there = [index for index in range(len(site.inputs)) if site.has(index)]
        results = tuple(name.lower() for name in attrs.results)
        parameters = FixedLstmParameters(tuple(names[index] for index in there), results, bool(attrs.coupled),
                                         GATE_BITS, attrs.cell_bits, attrs.cell_clip, attrs.zero, EIGHTH, THIRD,
                                         POWERS, NEWTON)
        operands = tuple(Operand(names[index], index, sizes.get(names[index], N * H)) for index in there)
        return Lowered("rnn/fixed", parameters, {"T": steps, "N": batch, "H": site.inputs[1].shape[1]}, operands,
                       tuple(Operand(name, index, T * N * H if name == "y" else N * H)
                             for index, name in enumerate(results)),
                       N, _what(parameters), self.name, scratch=4 * H)

    def cost(self, site: Site) -> float:
        return site.likely.x.size * (site.inputs[1].shape[-1] + 200.0)


def _what(params: FixedLstmParameters) -> str:
    """Left part of the symbol: all that kernels differ in."""
    words = [f"lstm_fixed_q{params.cell_bits}", "coupled" if params.coupled else "",
             *(name for name in params.operands[4:]), *params.results[1:],
             f"clip{params.cell_clip}" if params.cell_clip else "", zero_name(params.zero).strip("_")]
    return "_".join(filter(None, words))
