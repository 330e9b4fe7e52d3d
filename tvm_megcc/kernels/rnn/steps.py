# SPDX-License-Identifier: Apache-2.0
"""The kernels of recurrent layers: all steps of a layer in one call.

A vector holds one gate of `lanes` units. A tile sums up all gates of some vectors of units for some sequences and
turns them into states while they are in registers; sequences that run side by side share the loads of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from ...ir.dims import Dim, ceildiv, round_up
from ...ir.expr import c_float, to_c
from ...ir.graph import Op
from ...ops.base import operator
from ...target import Isa, Target
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site
from ..tiling import BLOCK

#: Bytes of scratch that sequences side by side may take.
SCRATCH = 128 << 10


@dataclass(frozen=True)
class Cell:
    """What the template knows of a kind of layer.

    products: gates of each product with the recurrent weights; one waits for the result of those before it.
    vectors: arrays of H floats that a sequence needs between steps and inside one.
    """

    products: tuple[int, ...]
    vectors: int


def cell_of(op: Op) -> Cell:
    if op.kind == "lstm":
        return Cell((4,), 3)
    if op.kind == "gru":
        return Cell((3,), 2) if op.attrs.linear_before_reset else Cell((2, 1), 4)
    return Cell((1,), 2)


@dataclass(frozen=True)
class StepsParameters(Parameters):
    """Of `steps.c.j2`.

    cell: kind of the layer. gates: of a unit. products, scratch_vectors: as `Cell` has them. packed: the recurrent
    weights are. sequences, vectors: of a tile. operands, results: those that are there. f, g, h: activations, C over x;
    "" where the cell has no such. cell_clip: bound of an LSTM's cell in C, "" without one.
    """

    cell: str
    gates: int
    products: tuple[int, ...]
    scratch_vectors: int
    packed: bool
    sequences: int
    vectors: int
    direction: str
    input_forget: bool
    operands: tuple[str, ...]
    results: tuple[str, ...]
    f: str = field(repr=False)
    g: str = field(default="", repr=False)
    h: str = field(default="", repr=False)
    cell_clip: str = ""


class Steps(Kernel):
    """What both kernels share."""

    dtypes = (FLOAT32, FLOAT32, ("int32",), FLOAT32)
    packed = True

    def sizes(self, cell: Cell, units: Dim, target: Target) -> tuple[int, int]:
        """Of tiles: sequences side by side, vectors of units of a single sequence."""
        raise NotImplementedError

    def lower(self, site: Site) -> Lowered:
        lanes, cell = site.isa.lanes, cell_of(site.op)
        steps, batch, _ = site.x.shape
        directions, _, units = site.inputs[1].shape
        T, N, D, H = extent_symbols("T", "N", "D", "H")
        gates = sum(cell.products)
        sequences, vectors = self.sizes(cell, units, site.target)
        scratch_of_one = 4 * cell.vectors * round_up(H, lanes)
        too_large = isinstance(units, int) and sequences * 4 * cell.vectors * (units + lanes) > SCRATCH
        if batch == 1 or too_large:
            sequences = 1
        present = [i for i, t in enumerate(site.inputs) if t is not None]
        names = [name.removesuffix("?") for name in operator(site.kind).operands]
        packed_units = round_up(H, lanes) if self.packed else H
        sizes = {"x": T * N * D * gates * H, "r": D * gates * H * packed_units, "lengths": N, "peepholes": D * 3 * H,
                 "bias": D * H}
        state = D * N * H
        operands = [Operand(names[i], i, sizes.get(names[i], state),
                            ("recurrent", lanes, cell.products) if i == 1 and self.packed else ()) for i in present]
        results = [Operand(name.lower(), i, T * state if name == "Y" else state)
                   for i, name in enumerate(site.attrs.results)]
        clip = site.attrs.get("cell_clip", 0.0)
        params = StepsParameters(
            site.kind, gates, cell.products, cell.vectors, self.packed, sequences, vectors, site.attrs.direction,
            site.attrs.get("input_forget", False), tuple(names[i] for i in present),
            tuple(name.lower() for name in site.attrs.results),
            *(to_c(expression, ["x"]) for expression in site.attrs.activations),
            cell_clip=c_float(clip) if clip else "")
        return Lowered("rnn/steps", params, {"T": steps, "N": batch, "D": directions, "H": units}, tuple(operands),
                       tuple(results), D * ceildiv(N, sequences), _what(site.op, params),
                       f"{self.name}_{sequences}x{vectors}", scratch=sequences * scratch_of_one)

    def cost(self, site: Site) -> float:
        return site.x.size * site.inputs[1].shape[-1] * (1 if self.packed else 3) / site.isa.lanes


def _what(op: Op, params: StepsParameters) -> str:
    flags = op.attrs.direction[0] + "_input_forget" * params.input_forget
    flags += "_linear" * op.attrs.get("linear_before_reset", False)
    optional = [name for name in (*params.operands[2:], *params.results)]
    clip = f" {params.cell_clip}" if params.cell_clip else ""
    formulas = sha256(f"{params.f} {params.g} {params.h}{clip}".encode()).hexdigest()[:4]
    return "_".join([op.kind, flags, *optional, formulas])


class PackedSteps(Steps):
    """Constant recurrent weights, packed.

    vectors: of units in the tile of a single sequence; 0: as many as registers hold.
    """

    name = "packed"
    constants = (1,)

    def __init__(self, vectors: int = 0):
        self.vectors = vectors
        self.tile = f"{vectors}v" if vectors else ""

    def sizes(self, cell, units, target):
        isa, gates = target.isa, max(cell.products)
        # Eight sums hide the latency of multiply-add; with sixteen registers there is room for no more.
        sums = 16 if isa.registers > 16 else 8
        if isa.lanes == 1:
            return 1, self.vectors or 1
        needed = ceildiv(units, isa.lanes) if isinstance(units, int) else sums
        fitting = [vectors for vectors in _widths(isa) if vectors * gates <= sums and vectors <= max(needed, 1)]
        return min(4, sums // gates), self.vectors or fitting[-1]

    def tiled(self, site):
        cell, units = cell_of(site.op), site.inputs[1].shape[-1]
        own = self.sizes(cell, units, site.target)[1]
        for vectors in _widths(site.isa):
            if vectors != own and vectors * max(cell.products) < site.isa.registers \
                    and isinstance(units, int) and vectors * site.isa.lanes < units:
                yield PackedSteps(vectors)


class DotSteps(Steps):
    """Recurrent weights as they lie in a tensor: a scalar product for each gate of each unit."""

    name = "dot"
    packed = False

    def reorders(self, site):
        return all(position in site.constants for position in PackedSteps.constants)

    def sizes(self, cell, units, target):
        return 1, 1


def _widths(isa: Isa) -> tuple[int, ...]:
    """Vectors of units a tile may have: it stays in a block of the weights or takes whole blocks."""
    return tuple(vectors for vectors in (1, 2, 4, 8, 16) if isa.lanes >= BLOCK or vectors * isa.lanes <= BLOCK)
