# SPDX-License-Identifier: Apache-2.0
"""The tiles of `rnn/steps`: the recurrent products of all gates of V vectors of units, for S sequences."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ..microkernel.printer import Printer, joined, offset
from ..parameters import Scope

if TYPE_CHECKING:
    from .steps import StepsParameters, StoredResult


class StepsTile:
    """Prints the functions of tiles, with sums `s{sequence}_{vector}_{gate}`, and those of a step, which call them.
    `steps.c.j2` says how they call each other.

    Several partial sums of a gate have a letter each, the first one none.

    `p` are the template's parameters (`StepsParameters`):

    `cell`: "lstm", "gru" or "rnn". `operands`: those that exist.
    `products`: the gates that each product with the recurrent weights computes.
    `packed`: whether these weights are packed. `widened`: whether they are converted to floats before the first step.
    `weight`, `weight_short`, `weight_zero`: their C type, suffix in mgc functions, and zero point.
    `scale`: "one" scale for all of them, or "each" row its own; "" for floats.
    `sequences`, `vectors`, `parts`: the sequences, vectors of units, and partial sums of a tile.
    """

    def __init__(self, params: StepsParameters, scope: Scope):
        self.p, self.lanes = params, scope.isa.lanes
        #: The C type of the weights that tiles read.
        self.weight_type = "float" if params.widened else params.weight
        #: How the sums of tiles are scaled: as `StepsParameters.scale`, or "" if widened weights have the one scale.
        self.scale = params.scale if params.scale == "each" or not params.widened else ""
        #: The operand that a cell reads besides x: "bias", "peepholes" or "".
        self.cell_operand = next((name for name in ("bias", "peepholes") if name in params.operands), "")
        #: The operands of tiles besides the weights.
        self.operands = [name for name in (self.cell_operand, "r_scale" * bool(self.scale)) if name]
        #: Arrays of a sequence in scratch, besides its results.
        self.states = {"lstm": ["c"], "gru": ["z", "reset"] * (len(params.products) == 2)}.get(params.cell, [])
        self.letters = ["", "b", "c", "d"][:params.parts]
        #: C, the arguments of a step for `operands`: those of the task's direction.
        self.arguments = "".join(f", {name}_d" for name in self.operands)
        #: C, the units whose weights are stored: whole vectors if packed.
        self.stored_units = "units" if params.packed else "H"

    def functions(self) -> str:
        """Prints the tiles of all products, and the steps of one sequence and of several."""
        c, p = Printer(), self.p
        for number in range(len(p.products)):
            for S, V in dict.fromkeys([(1, 1), (1, p.vectors), (p.sequences, 1)]):
                self.tile(c, number, S, V)
        for S in dict.fromkeys([1, p.sequences]):
            self.step(c, S)
        return c.text

    def step(self, c: Printer, S: int) -> None:
        """Prints the function that computes one step of S sequences."""
        p, L = self.p, self.lanes
        c(f"/* Computes one step of {S} sequence{'s' * (S > 1)}. */")
        with c.function(f"static void step_{S}({self.parameters('int32_t H')})"):
            c(f"const int32_t units = (H + {L - 1}) / {L} * {L};", "int32_t unit = 0;")
            for number in range(len(p.products)):
                if number:
                    c(f"r += (ptrdiff_t){p.products[number - 1]} * H * {self.stored_units};", "unit = 0;")
                if S == 1 and p.vectors > 1:
                    with c.block(f"for (; unit + {p.vectors * L} <= units; unit += {p.vectors * L})"):
                        c(f"tile_{number}_1x{p.vectors}({joined(['seq, r, unit, H', *self.operands])});")
                with c.block(f"for (; unit < units; unit += {L})"):
                    c(f"tile_{number}_{S}x1({joined(['seq, r, unit, H', *self.operands])});")

    def parameters(self, extents: str) -> str:
        """Returns the C parameters of a step or a tile. extents: those of its extents."""
        operands = [f"const float *{name}" for name in self.operands]
        return joined([f"const sequence *seq, const {self.weight_type} *r", extents, *operands])

    def tile(self, c: Printer, number: int, S: int, V: int) -> None:
        """Prints the function of a tile of product `number`: it sums, then calls `finish_{number}` for each vector."""
        gates, x = self.p.products[number], "reset" if number else "last"
        parameters = self.parameters("int32_t unit, int32_t H")
        with c.function(f"static MGC_NOINLINE void tile_{number}_{S}x{V}({parameters})"):
            if self.p.packed:
                self.begin(c, gates, S, V, x)
                self.accumulate(c, gates, S, V)
            else:
                self.dots(c, gates, x)
            for s, v in product(range(S), range(V)):
                unit = offset("unit", v * self.lanes)
                sums = [self.scaled(f"s{s}_{v}_{gate}", sum(self.p.products[:number]) + gate, unit)
                        if self.p.packed else f"mgc_load(sums[{gate}])" for gate in range(gates)]
                c(f"finish_{number}({joined([offset('seq', s), unit, 'H', *sums, self.cell_operand])});")

    def dots(self, c: Printer, gates: int, x: str) -> None:
        """Prints the sums of unpacked weights."""
        c(f"float sums[{gates}][{self.lanes}] = {{ {{ 0 }} }};")
        with c.block(f"for (int32_t gate = 0; gate < {gates}; gate++)"), \
                c.block(f"for (int32_t lane = 0; lane < {self.lanes} && unit + lane < H; lane++)"):
            c(f"sums[gate][lane] = dot(r + (gate * (ptrdiff_t)H + unit + lane) * H, seq->{x}, H);")

    def begin(self, c: Printer, gates: int, S: int, V: int, x: str) -> None:
        """Declares the pointers to weights and operands, and sums of 0. x: the field of a sequence to multiply by."""
        L = self.lanes
        # block: the first unit of the block of packed weights; width: its units, 16 or those that the last one has.
        if L == 16:
            c("const ptrdiff_t width = 16, block = unit;")
        else:
            c(f"const int32_t units = (H + {L - 1}) / {L} * {L};",
              "const ptrdiff_t block = unit / 16 * 16, width = units - block < 16 ? units - block : 16;")
        for v in self.blocks(V):
            block = f"({offset('block', 16 * v)})" if v else "block"
            c(f"const {self.weight_type} *w{v} = r + {block} * {gates} * H + (unit - block);")
        c(*(f"const float *x{s} = seq[{s}].{x};" for s in range(S)))
        for letter, s, v in product(self.letters, range(S), range(V)):
            c(f"mgc_v {', '.join(f's{s}_{v}_{gate}{letter} = mgc_zero()' for gate in range(gates))};")

    def blocks(self, V: int) -> range:
        """Returns the vectors that have pointers to their weights; the others are neighbours of the first one."""
        return range(V if self.lanes == 16 else 1)

    def accumulate(self, c: Printer, gates: int, S: int, V: int) -> None:
        """Prints the loop over the elements of the previous result, and the sums of the partial sums."""
        count = len(self.letters)
        if count > 1:
            c("int32_t k = 0;")
            with c.block(f"for (; k + {count} <= H; k += {count})"):
                self.multiply(c, gates, S, V, self.letters)
        with c.block(f"for ({'' if count > 1 else 'int32_t k = 0'}; k < H; k++)"):
            self.multiply(c, gates, S, V, [""])
        while count > 1:
            count //= 2
            for to, gate, v in product(range(count), range(gates), range(V)):
                total, other = (f"s0_{v}_{gate}{self.letters[part]}" for part in (to, to + count))
                c(f"{total} = {total} + {other};")

    def multiply(self, c: Printer, gates: int, S: int, V: int, letters: list[str]) -> None:
        """Prints the products by neighbouring elements of the previous result, one for each partial sum."""
        for part, letter in enumerate(letters):
            c(*(f"const mgc_v v{s}{letter} = mgc_set1(x{s}[{offset('k', part)}]);" for s in range(S)))
            for v, gate in product(range(V), range(gates)):
                row, w = part * gates + gate, f"w{v}_{gate}{letter}"
                address = f"w{v}" if self.lanes == 16 else offset("w0", v * self.lanes)
                c(f"const mgc_v {w} = {self.weights(f'{address} + {row} * width' if row else address)};")
                c(*(f"s{s}_{v}_{gate}{letter} = mgc_fma({w}, v{s}{letter}, s{s}_{v}_{gate}{letter});"
                    for s in range(S)))
        c(*(f"w{v} += {gates * len(letters)} * width;" for v in self.blocks(V)))

    def weights(self, address: str) -> str:
        """Loads a vector of weights as floats."""
        return f"mgc_load({address})" if self.weight_type == "float" else self.integers(address)

    def integers(self, address: str) -> str:
        """Loads a vector of 8-bit weights, as floats that are not scaled."""
        load = f"mgc_iload_{self.p.weight_short}({address})"
        return f"mgc_to_float({f'mgc_isub({load}, mgc_iset1({self.p.weight_zero}))' if self.p.weight_zero else load})"

    def scaled(self, sums: str, row: int, unit: str) -> str:
        """Returns sums times the scale of their weights. row: index of the gate. unit: C, the first unit."""
        if self.scale != "each":
            return sums + " * mgc_set1(r_scale[0])" * bool(self.scale)
        # The units from `unit` on: H - (unit + 8) is printed as H - unit - 8.
        rest = f"H - {unit.replace('+', '-')}"
        n = f"{rest} < {self.lanes} ? {rest} : {self.lanes}"
        return f"{sums} * mgc_load_n(r_scale + {row} * (ptrdiff_t)H + {unit}, {n})"

    def finish(self, number: int) -> str:
        """Opens the function that computes a vector of states or results from the sums of a product, s{gate}. The
        template prints its body and closes it. n: the number of units in the vector, which begins with `unit`."""
        gates = self.p.products[number]
        values = joined([*(f"mgc_v s{gate}" for gate in range(gates)),
                         self.cell_operand and f"const float *{self.cell_operand}"])
        return f"""\
/* Applies the products of {gates} gates to one vector of units. */
static MGC_INLINE void finish_{number}(const sequence *seq, int32_t unit, int32_t H, {values})
{{
const int32_t n = H - unit < {self.lanes} ? H - unit : {self.lanes};"""

    @staticmethod
    def row(operand: str, index: int) -> str:
        """Loads a vector of a row of an operand [rows][H]."""
        return f"mgc_load_n({operand} + {f'{index} * (ptrdiff_t)H + ' if index else ''}unit, n)"

    @staticmethod
    def store(name: str, stored: StoredResult, to: str, value: str) -> str:
        """Stores n elements of a result, converted if `stored` has a formula."""
        return (f"mgc_istore_{stored.short}_n({to}, stored_{name}({value}), n)" if stored.formula else
                f"mgc_store_n({to}, {value}, n)")
