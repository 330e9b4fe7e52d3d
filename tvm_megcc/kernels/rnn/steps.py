# SPDX-License-Identifier: Apache-2.0
"""The kernels of recurrent layers: all steps of a layer in one call.

A vector holds one gate of `lanes` units. A tile sums all gates of some vectors of units for some sequences, and turns
them into states while they are in registers. Sequences of a task share the loads of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from ...foreign import digest
from ...ir import lanes
from ...ir.dims import Dim, ceildiv, round_up
from ...ir.expr import c_float, to_c
from ...ir.graph import Op
from ...ir.types import DTYPES
from ...ops.quantized.conv_matmul import INT8_TYPES
from ...target import Isa, Target
from ..base import FLOAT32, Kernel, Lowered, extent_symbols
from ..integer.dot import zero_name
from ..parameters import Parameters, Scope
from ..site import Site
from ..tiling import BLOCK
from .operands import operand_names, operands_of
from .steps_tile import StepsTile

#: The maximum number of bytes of scratch for the sequences of a task; beyond it a task has one sequence.
MAX_SCRATCH = 128 << 10


@dataclass(frozen=True)
class Cell:
    """Properties of a kind of layer that the template needs.

    products: the products with the recurrent weights, in the order in which they depend on each other; of each, the
        number of gates that it computes.
    vectors: the number of arrays of H floats that a sequence needs for its states and within a step.
    """

    products: tuple[int, ...]
    vectors: int


def cell_of(op: Op) -> Cell:
    """Returns the cell of an operator `lstm`, `gru` or `rnn`. A GRU that resets before its product has two products."""
    if op.kind == "lstm":
        return Cell((4,), 3)
    if op.kind == "gru":
        return Cell((3,), 2) if op.attrs.linear_before_reset else Cell((2, 1), 4)
    return Cell((1,), 2)


@dataclass(frozen=True)
class StoredResult:
    """How a result is stored.

    unit: the C type of an element.
    short: for integers, the suffix of mgc functions for the dtype, such as "i8"; "" for floats.
    formula: for integers, the C expression that quantizes a float `x`; "" for floats.
    zero: the C constant that is stored for 0.
    """

    unit: str = "float"
    short: str = ""
    formula: str = ""
    zero: str = "0.0f"

    @staticmethod
    def of(op: Op, result: str) -> StoredResult:
        for name, dtype, expression in op.attrs.get("quantised", ()):
            if name == result:
                zero = lanes.evaluate(expression, [np.zeros((), np.float32)], dtype)
                return StoredResult(DTYPES[dtype].c_type, DTYPES[dtype].short, lanes.to_c(expression, ["x"], ["f"]),
                                    str(int(zero)))
        return StoredResult()


@dataclass(frozen=True)
class StepsParameters(Parameters):
    """Parameters of `steps.c.j2`.

    cell: the kind of the operator: "lstm", "gru" or "rnn".
    gates: the number of gates of a unit.
    products: for each product with the recurrent weights, the number of gates that it computes.
    scratch_vectors: the number of arrays of H floats that a sequence needs for its states and within a step.
    packed: whether the recurrent weights are packed.
    weight: the C type of the recurrent weights.
    weight_short: for 8-bit weights, the suffix of mgc functions for their dtype; "" for floats.
    weight_zero: the zero point of 8-bit weights; None for floats.
    scale: "one" scale for all 8-bit weights, or one for "each" row; "" for floats.
    widened: whether a task converts all 8-bit weights to floats before its first step.
    sequences, vectors: the numbers of sequences, and of vectors of units, in a tile.
    parts: the number of independent partial sums of one gate.
    direction: ONNX's attribute: "forward", "reverse" or "bidirectional".
    input_forget: whether an LSTM's input gate is 1 minus its forget gate.
    operands, results: the names of the operands and results that exist.
    f, g, h: ONNX's activations of these names, as C expressions of a vector x; "" if the cell has fewer.
    cell_clip: the bound of an LSTM's cell state as a C literal; "" for none.
    y, y_h, y_c: how the results are stored (`StoredResult`): C type `unit`, `formula` from float, `zero`.
    """

    cell: str
    gates: int
    products: tuple[int, ...]
    scratch_vectors: int
    packed: bool
    weight: str
    weight_short: str
    weight_zero: int | None
    scale: str
    widened: bool
    sequences: int
    vectors: int
    parts: int
    direction: str
    input_forget: bool
    operands: tuple[str, ...]
    results: tuple[str, ...]
    f: str = field(repr=False)
    g: str = field(default="", repr=False)
    h: str = field(default="", repr=False)
    cell_clip: str = ""
    y: StoredResult = field(default=StoredResult(), repr=False)
    y_h: StoredResult = field(default=StoredResult(), repr=False)
    y_c: StoredResult = field(default=StoredResult(), repr=False)

    def microkernel(self, scope: Scope) -> StepsTile:
        return StepsTile(self, scope)


class Steps(Kernel):
    """The base class of `PackedSteps` and `DotSteps`. packed: whether the recurrent weights are packed."""

    dtypes = (FLOAT32, FLOAT32, ("int32",), FLOAT32)
    packed = True

    def sizes(self, cell: Cell, units: Dim, target: Target) -> tuple[int, int]:
        """Returns (sequences, vectors) of tiles."""
        raise NotImplementedError

    def lower(self, site: Site) -> Lowered:
        lanes, cell = site.isa.lanes, cell_of(site.op)
        steps, batch, _ = site.x.shape
        weights = site.inputs[1]
        directions, _, units = weights.shape
        T, N, D, H = extent_symbols("T", "N", "D", "H")
        gates = sum(cell.products)
        sequences, vectors = self.sizes(cell, units, site.target)
        scratch_of_one = 4 * cell.vectors * round_up(H, lanes)
        too_large = isinstance(units, int) and sequences * 4 * cell.vectors * (units + lanes) > MAX_SCRATCH
        if batch == 1 or too_large:
            sequences = 1
        present = tuple(operand_names(site).values())
        scale = "" if "r_scale" not in present else "one" if site.inputs[-1].size == 1 else "each"
        packed_units = round_up(H, lanes) if self.packed else H
        widened = bool(scale) and _widens(site, gates)
        state = D * N * H
        sizes = {"x": T * N * D * gates * H, "r": D * gates * H * packed_units, "lengths": N, "peepholes": D * 3 * H,
                 "bias": D * H, "r_scale": 1 if scale == "one" else D * gates * H, "initial_h": state,
                 "initial_c": state, "y": T * state, "y_h": state, "y_c": state}
        operands, results = operands_of(site, sizes, ("recurrent", lanes, cell.products) if self.packed else ())
        attrs = site.attrs
        clip = attrs.get("cell_clip", 0.0)
        params = StepsParameters(
            cell=site.kind, gates=gates, products=cell.products, scratch_vectors=cell.vectors, packed=self.packed,
            weight=weights.c_type, weight_short=DTYPES[weights.dtype].short if scale else "",
            weight_zero=attrs.get("r_zero", 0) if scale else None, scale=scale, widened=widened, sequences=sequences,
            vectors=vectors, parts=self.parts(site, sequences, vectors), direction=attrs.direction,
            input_forget=attrs.get("input_forget", False), operands=present,
            results=tuple(result.name for result in results), cell_clip=c_float(clip) if clip else "",
            **{name: to_c(activation, ["x"]) for name, activation in zip("fgh", attrs.activations, strict=False)},
            **{name.lower(): StoredResult.of(site.op, name) for name in attrs.results})
        # Scratch, float32: for each sequence `cell.vectors` arrays of units; then the widened weights of a task.
        scratch = sequences * scratch_of_one + (4 * gates * H * packed_units if widened else 0)
        return Lowered("rnn/steps", params, {"T": steps, "N": batch, "D": directions, "H": units}, operands, results,
                       D * ceildiv(N, sequences), _operation(site.op, params), f"{self.name}_{sequences}x{vectors}",
                       scratch=scratch)

    def parts(self, site: Site, sequences: int, vectors: int) -> int:
        """Returns the number of partial sums of one gate, a power of two up to 4: several if a tile has too few sums to
        hide the latency of multiply-add."""
        return 1

    def cost(self, site: Site) -> float:
        # For each gate of a unit in a step, and each last result: a multiply-add of vectors; 3 if a gate's products are
        # summed across lanes.
        return site.x.size * site.inputs[1].shape[-1] * (1 if self.packed else 3) / site.isa.lanes


def _widens(site: Site, gates: int) -> bool:
    """Returns whether a task converts all its weights to floats once, not in each step: if half of L2 holds them, of 4
    bytes each, and there are enough steps."""
    steps, units = site.x.shape[0], site.inputs[1].shape[-1]
    return not site.compact and isinstance(units, int) and 4 * gates * units * units <= site.target.l2 // 2 \
        and not (isinstance(steps, int) and steps < 4)


def _operation(op: Op, params: StepsParameters) -> str:
    flags = op.attrs.direction[0] + "_input_forget" * params.input_forget
    flags += "_linear" * op.attrs.get("linear_before_reset", False)
    optional = [*params.operands[2:], *params.results]
    clip = f" {params.cell_clip}" if params.cell_clip else ""
    formulas = sha256(f"{params.f} {params.g} {params.h}{clip}".encode()).hexdigest()[:4]
    stored = [getattr(params, name) for name in params.results]
    if params.scale:
        how = f"{params.weight_short}w_{params.scale}{'_widened' * params.widened}"
        optional.append(how + zero_name(params.weight_zero or 0))
    if any(result.formula for result in stored):
        # "to" tells the types of results from those of operands.
        optional.append("to" + "".join(result.short or "f32" for result in stored) + digest(repr(stored), 4))
    return "_".join([op.kind, flags, *optional, formulas])


class PackedSteps(Steps):
    """Constant recurrent weights, packed.

    vectors: vectors of units in the tile of a single sequence; 0: as many as registers hold.
    """

    name = "packed"
    dtypes = (FLOAT32, (*FLOAT32, *INT8_TYPES), ("int32",), FLOAT32)
    constants = (1,)

    def __init__(self, vectors: int = 0):
        self.vectors = vectors
        self.tile = f"{vectors}v" if vectors else ""

    def sizes(self, cell, units, target):
        isa, gates = target.isa, max(cell.products)
        sums = _sums(isa)
        if isa.lanes == 1:
            return 1, self.vectors or 1
        needed = ceildiv(units, isa.lanes) if isinstance(units, int) else sums
        fitting = [vectors for vectors in _tile_vectors(isa) if vectors * gates <= sums and vectors <= max(needed, 1)]
        return min(4, sums // gates), self.vectors or fitting[-1]

    def parts(self, site, sequences, vectors):
        units, gates = site.inputs[1].shape[-1], max(cell_of(site.op).products)
        if site.context.reproducible or sequences > 1 or site.isa.lanes == 1 or not isinstance(units, int):
            return 1
        return max(parts for parts in (1, 2, 4)
                   if parts == 1 or (parts * vectors * gates <= _sums(site.isa) and 2 * parts <= units))

    def other_tiles(self, site):
        cell, units = cell_of(site.op), site.inputs[1].shape[-1]
        default = self.sizes(cell, units, site.target)[1]
        for vectors in _tile_vectors(site.isa):
            if vectors != default and vectors * max(cell.products) < site.isa.registers \
                    and isinstance(units, int) and vectors * site.isa.lanes < units:
                yield PackedSteps(vectors)


class DotSteps(Steps):
    """Unpacked recurrent weights: one dot product for each gate of each unit."""

    name = "dot"
    packed = False

    def reorders_sums(self, site):
        return all(position in site.constants for position in PackedSteps.constants)

    def sizes(self, cell, units, target):
        return 1, 1


def _sums(isa: Isa) -> int:
    """Returns the sums of a tile. Eight hide the latency of multiply-add; more need more than sixteen registers. The
    eight register groups of RISC-V with 128 bits (`wide`) hold only four."""
    return 4 if isa.wide and isa.registers < 16 else 16 if isa.registers > 16 else 8


def _tile_vectors(isa: Isa) -> tuple[int, ...]:
    """Returns the vectors of units that a tile may have: it lies in a block of weights, or covers whole ones."""
    return tuple(vectors for vectors in (1, 2, 4, 8, 16) if isa.lanes >= BLOCK or vectors * isa.lanes <= BLOCK)
