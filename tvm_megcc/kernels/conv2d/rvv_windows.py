# SPDX-License-Identifier: Apache-2.0
"""The tiles of `conv2d/depthwise` in assembler for RISC-V vectors (RVV) with register groups (LMUL > 1). Compilers load
all that a tile reads before they compute, and spill it, which makes two to three instructions of each load.

Registers, in vectors: the sums; the weights (all, or those of a row of the window); the columns of x in turn. Each
column is loaded once for all pixels that it reaches. Products are added tap by tap, row by row."""

from __future__ import annotations

from ..microkernel.assembler import Assembler, asm_inout, asm_input, registers
from ..microkernel.printer import Printer
from ..tiling import Run


class RvvWindows:
    """The part of `DepthwiseTile` that prints assembler of RISC-V. asm: the assembler that receives instructions.

    It reads these attributes of that class:

    `params`, `bias`: the template's parameters, and whether there is a bias.
    `kh`, `kw`: the rows and columns of the window. `columns`: its taps along a row.
    `keeps_weights`: all weights stay in registers, not only those of a row. `weight_registers`: how many these are.
    `lanes`: the floats in a vector. `group`: its registers (LMUL).
    """

    def tiles(self, run: Run, down: bool) -> str:
        """Prints a loop over `count` tiles of a run: neighbouring tiles whose windows lack the same columns, which are
        beside the image (`run.missing`). They read rows of the window from x0, x1, … and write to `to`.
        down: repeats this for `rows` output rows, which are x_row and y_row floats apart."""
        c, asm = Printer(), Assembler(is_volatile=True)
        c("const float *weight = w;", "ptrdiff_t left = count;")
        if down:
            c("const ptrdiff_t x_bytes = 4 * x_row, y_bytes = 4 * y_row;")
        asm(f"vsetivli zero, {self.lanes}, e32, m{self.group}, ta, ma")
        if self.keeps_weights:
            self.load_weights(asm, run.pixels)
        asm(*["2:", "mv %[left], %[count]"] * down, "1:")
        self.compute(asm, run)
        asm("addi %[left], %[left], -1", "bnez %[left], 1b")
        if down:
            asm(*(f"add %[x{i}], %[x{i}], %[x_row]" for i in range(self.kh)), "add %[to], %[to], %[y_row]",
                "addi %[rows], %[rows], -1", "bnez %[rows], 2b")
        outputs = [*(asm_inout(f"x{i}") for i in range(self.kh)), asm_inout("weight"), asm_inout("to"),
                   asm_inout("left"), *[asm_inout("rows")] * down]
        inputs = [asm_input("w"), *[asm_input("b")] * self.bias,
                  *[asm_input("count"), asm_input("x_row", "x_bytes"), asm_input("y_row", "y_bytes")] * down]
        c(*asm.statement(outputs, inputs, [*registers("v", 32), "vl", "vtype", "memory"]))
        return c.text

    def compute(self, asm: Assembler, run: Run) -> None:
        """Prints one tile, and advances `to` and the addresses in x."""
        P, spare, loaded = run.pixels, self.params.tiling.registers - run.pixels - self.weight_registers, 0
        asm(*["mv %[weight], %[w]"] * (not self.keeps_weights),
            f"vle32.v {self.register(0)}, (%[b])" if self.bias else f"vmv.v.i {self.register(0)}, 0",
            *(f"vmv{self.group}r.v {self.register(p)}, {self.register(0)}" for p in range(1, P)))
        for i in range(self.kh):
            if not self.keeps_weights:
                self.load_weights(asm, P)
            current = 0  # the column that x{i} points to
            for column, uses in self.columns.reads(P, run.missing):
                loaded += 1
                x = self.register(P + self.weight_registers + loaded % spare)
                self.move(asm, f"x{i}", 4 * self.lanes * (column - current))
                current = column
                asm(f"vle32.v {x}, (%[x{i}])")
                first = P + (i * self.kw if self.keeps_weights else 0)
                asm(*(f"vfmacc.vv {self.register(p)}, {self.register(first + tap)}, {x}" for p, tap in uses))
            self.move(asm, f"x{i}", 4 * self.lanes * (P * self.columns.stride - current))
        for p in range(P):
            asm(f"vse32.v {self.register(p)}, (%[to])", f"addi %[to], %[to], {4 * self.lanes}")

    def register(self, index: int) -> str:
        """Returns the first register of the register group with this number."""
        return f"v{index * self.group}"

    def load_weights(self, asm: Assembler, first: int) -> None:
        """Prints loads of weights from `weight` on into registers from `first` on."""
        for j in range(self.weight_registers):
            asm(f"vle32.v {self.register(first + j)}, (%[weight])", f"addi %[weight], %[weight], {4 * self.lanes}")

    @staticmethod
    def move(asm: Assembler, pointer: str, distance: int) -> None:
        """Prints the advance of a pointer, in bytes. One addi adds -2048 to 2047, so a step is at most 2032, a multiple
        of 16."""
        while distance:
            step = max(-2032, min(2032, distance))
            asm(f"addi %[{pointer}], %[{pointer}], {step}")
            distance -= step
