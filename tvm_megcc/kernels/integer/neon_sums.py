# SPDX-License-Identifier: Apache-2.0
"""The sums of a tile of `integer/dot` on Arm. In assembler, a tile uses all 32 registers. Compilers spill some and copy
others, which takes a fifth more instructions.

The C around it declares `x` and its strides `pixel_stride`, `row_stride` and `tap_stride`, `w`, and the number of
`steps` of a run of the window. The assembler declares the sums, `a0_0` and so on, whose registers the compiler chooses.
Other values have fixed registers: pixels from v0 on, the weights after them; addresses, strides and trip counts in x2
to x17. GCC allows 30 operands, so strides and trip counts come in an array, `counts`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING

from ..microkernel.assembler import Assembler, asm_input, asm_output, registers
from ..microkernel.printer import Printer, offset

if TYPE_CHECKING:
    from .dot_microkernel import DotMicrokernel


class ArmSums:
    """Prints the sums of P pixels by V vectors of four channels. `p` are the parameters of `kernel`, which explains
    them; `runs` is the number of contiguous runs in a row of the window.

    Labels of the assembler: 1 rows of the window, 2 runs of a row, 3 iterations of 16 bytes of each pixel, 4 their end,
    5 steps after the last 16 bytes, 6 the end of a run.
    """

    #: Copies of each vector of the bias in `start`.
    copies = 1
    #: Iterations have this many times 16 bytes of a pixel.
    unrolled = 1
    #: Dot products after the last 16 bytes of a run whose length is known. They load 16 bytes, too, some of which lie
    #: after the run; packed x has enough bytes after its end. 0: a loop computes these dot products one by one.
    tail = 0
    #: Whether the load of the tail advances the pixels' addresses to the next row of the window.
    merged = False

    def __init__(self, kernel: DotMicrokernel, P: int, V: int):
        self.P, self.V, self.kernel = P, V, kernel
        self.p, self.kh, self.runs = kernel.p, kernel.p.kh, kernel.runs
        #: C, the address of the initial sums; empty: 0.
        self.start = "" if not kernel.p.bias else "b + channel" if kernel.full_vectors and self.copies == 1 else "start"

    def begin(self, c: Printer) -> None:
        """Declares the values that all tiles of a call share."""
        self.declare_start(c)
        self.declare_strides(c)

    def declare_start(self, c: Printer) -> None:
        """Declares `start`, the initial sums, unless they are read from the bias itself or are 0."""
        if self.start == "start":
            lanes = self.kernel.lanes
            c(f"int32_t start[{self.V * lanes * self.copies}];")
            for v in range(self.V):
                self.kernel.bias_of(c, v)
                self.store_start(c, v, lanes)

    def declare_strides(self, c: Printer) -> None:
        """Declares `counts`, which `addresses` loads: the strides of pixels, rows and runs; the trip counts of the
        iterations and of the steps after them."""
        run, steps_of_16_bytes = f"{self.p.step} * steps", 16 // self.p.step
        # A stride is added to addresses that have already advanced by one run, or by all runs of a row.
        row = f"row_stride - {f'{self.runs} * tap_stride' if self.runs > 1 else run}"
        if self.merged:
            row = offset(row, 4 * self.tail)  # the tail has not advanced them yet
        c(f"const int64_t counts[] = {{ {'pixel_stride' if self.P > 1 else 0}, {row if self.kh > 1 else 0}, "
          f"{f'tap_stride - {run}' if self.runs > 1 else 0}, steps / {steps_of_16_bytes * self.unrolled}, "
          f"steps % {steps_of_16_bytes} }};")

    def store_start(self, c: Printer, v: int, lanes: int) -> None:
        c(f"mgc_istore_i32({offset('start', v * lanes)}, b{v});")

    def addresses(self, asm: Assembler) -> None:
        """Loads the registers that loops use. x9 and those after it: the addresses of the pixels; x5: that of the
        weights; x2, x3, x4: the strides of x from one pixel, row and run to the next; x6: the trip count of iterations;
        x7: the steps after them."""
        asm("ldp x2, x3, [%[counts]]", "ldp x4, x6, [%[counts], #16]", *self.load_rest, "mov x5, %[w]", "mov x9, %[x]")
        asm(*(f"add x{9 + p}, x{8 + p}, x2" for p in range(1, self.P)))

    #: Loads the number of steps after the last 16 bytes of a run.
    load_rest = ("ldr x7, [%[counts], #32]",)

    @contextmanager
    def window(self, asm: Assembler) -> Iterator[None]:
        """Opens the loops over rows of the window and runs of a row."""
        with asm.loop_of(1, "x17", self.kh):
            with asm.loop_of(2, "x8", self.runs):
                yield
                if self.runs > 1:
                    asm(*(f"add x{9 + p}, x{9 + p}, x4" for p in range(self.P)))
            if self.kh > 1 and not self.merged:
                asm(*(f"add x{9 + p}, x{9 + p}, x3" for p in range(self.P)))

    def statement(self, c: Printer, asm: Assembler, sums: list[str], vectors: int, start: str = "") -> None:
        """Prints the declaration of the sums and the assembler. vectors: vector registers besides the sums."""
        inputs = [asm_input("x"), asm_input("w"), asm_input("counts"), *[asm_input("start", start)] * bool(start)]
        clobbers = ["cc", "memory", *registers("x", 2, 9 + self.P), *["x17"] * (self.kh > 1),
                    *registers("v", vectors)]
        c(f"mgc_i {', '.join(sums)};", *asm.statement(map(asm_output, sums), inputs, clobbers))

    def print(self, c: Printer) -> None:
        raise NotImplementedError


class Sdot(ArmSums):
    """Sums dot products of four bytes (`sdot`): 16 bytes of a pixel at a time, then four."""

    def __init__(self, kernel: DotMicrokernel, P: int, V: int):
        super().__init__(kernel, P, V)
        spare = 32 - P * V - P  # registers that neither sums nor pixels take
        #: Vectors of weights that are loaded at once.
        self.at_once = 4 if spare >= 4 else 2 if spare >= 2 else 1
        #: Registers for weights: for two loads, if there are so many, so that one can run while the weights of the
        #: other are multiplied.
        self.count = min(2 * self.at_once, spare // self.at_once * self.at_once)
        #: For a run of known length: the number of 16-byte blocks, and of dot products of four bytes after them.
        self.blocks: int | None = None
        self.dots: int | None = None
        if kernel.known.IC is not None:
            run_bytes = kernel.known.IC * (1 if self.runs > 1 else self.p.kw)
            self.blocks, self.dots = divmod((run_bytes + 3) // 4, 4)
        self.tail = self.dots if self.dots and self.p.packs_x else 0
        self.unrolled = 2 if self.blocks and self.blocks % 2 == 0 else 1
        self.merged = bool(self.tail) and self.runs == 1 and self.kh > 1

    def print(self, c: Printer) -> None:
        asm = Assembler()
        self.addresses(asm)
        self.set_sums(asm)
        with self.window(asm):
            self.add_blocks(asm)
            if self.tail:
                load = "ld1 {{ v{0}.16b }}, [x{1}], x3" if self.merged else f"ldr q{{0}}, [x{{1}}], #{4 * self.tail}"
                asm(*(load.format(p, 9 + p) for p in range(self.P)))
                self.multiply(asm, self.tail)
            elif self.dots != 0:
                with asm.loop(5, "x2", "x7", skip_to=6):
                    asm(*(f"ldr s{p}, [x{9 + p}], #4" for p in range(self.P)))
                    self.multiply(asm, 1)
            asm("6:")
        self.statement(c, asm, [f"a{p}_{v}" for p in range(self.P) for v in range(self.V)], self.P + self.count,
                       self.start)

    def set_sums(self, asm: Assembler) -> None:
        for p in range(self.P):
            if not self.start:
                asm(*(f"movi %[a{p}_{v}].4s, #0" for v in range(self.V)))
                continue
            asm(*(f"ldp %q[a{p}_{v}], %q[a{p}_{v + 1}], [%[start], #{16 * v}]" for v in range(0, self.V - 1, 2)))
            if self.V % 2:
                asm(f"ldr %q[a{p}_{self.V - 1}], [%[start], #{16 * self.V - 16}]")

    def add_blocks(self, asm: Assembler) -> None:
        def add_block():
            for _ in range(self.unrolled):
                asm(*(f"ldr q{p}, [x{9 + p}], #16" for p in range(self.P)))
                self.multiply(asm, 4)

        if self.blocks == 0:
            return
        if self.blocks == self.unrolled:  # one iteration, so no loop: x2 and the label are not used
            asm("mov x2, x6", "3:")
            add_block()
        else:
            with asm.loop(3, "x2", "x6", skip_to=4 if self.blocks is None else 0):
                add_block()
        asm("4:")

    def multiply(self, asm: Assembler, dots: int) -> None:
        """Prints `dots` dot products of each pixel."""
        for w in range(dots * self.V):
            to, registers = self.P + w % self.count, min(self.at_once, dots * self.V - w)
            if w % self.at_once == 0:
                asm(f"ldr q{to}, [x5], #16" if registers == 1 else
                    f"ldp q{to}, q{to + 1}, [x5], #32" if registers == 2 else
                    f"ld1 {{ v{to}.16b-v{to + registers - 1}.16b }}, [x5], #{16 * registers}")
            asm(*(f"sdot %[a{p}_{w % self.V}].4s, v{to}.16b, v{p}.4b[{w // self.V}]" for p in range(self.P)))


class Smmla(ArmSums):
    """Sums by `smmla`, which multiplies two rows by two rows of eight int8: two pixels by two channels. `start` holds
    the initial sums of two pixels by two channels, then of the next two channels, and so on."""

    copies = 2

    def __init__(self, kernel: DotMicrokernel, P: int, V: int):
        super().__init__(kernel, P, V)
        self.pairs = (P + 1) // 2
        #: Registers for weights, of which a load takes two: as many as sums and pairs of pixels leave, at most four.
        self.count = min(4, (32 - 2 * self.pairs * V - self.pairs) // 2 * 2)

    def store_start(self, c: Printer, v: int, lanes: int) -> None:
        c(f"mgc_istore_i32({offset('start', 2 * v * lanes)}, mgc_ilower(b{v}, b{v}));",
          f"mgc_istore_i32(start + {(2 * v + 1) * lanes}, mgc_iupper(b{v}, b{v}));")

    def print(self, c: Printer) -> None:
        asm = Assembler()
        self.addresses(asm)
        for p, i in product(range(self.pairs), range(0, 2 * self.V, 2)):
            asm(*[f"ldp %q[s{p}_{i}], %q[s{p}_{i + 1}], [%[start], #{16 * i}]"] if self.start else
                [f"movi %[s{p}_{i}].4s, #0", f"movi %[s{p}_{i + 1}].4s, #0"])
        with self.window(asm):
            with asm.loop(3, "x2", "x6", skip_to=4):
                self.multiply(asm)
                self.multiply(asm)
            # A run has at most one step of eight bytes after the iterations of 16.
            asm("4:", "cbz x7, 6f")
            self.multiply(asm)
            asm("6:")
        self.statement(c, asm, [f"s{p}_{i}" for p in range(self.pairs) for i in range(2 * self.V)],
                       self.pairs + self.count, self.start)
        c(*(f"const mgc_i a{p}_{v} = mgc_i{'upper' if p % 2 else 'lower'}(s{p // 2}_{2 * v}, s{p // 2}_{2 * v + 1});"
            for v in range(self.V) for p in range(self.P)))

    def multiply(self, asm: Assembler) -> None:
        """Prints products with eight bytes of each pixel."""
        asm(*(f"ld1 {{ v{p // 2}.d }}[1], [x{9 + p}], #8" if p % 2 else f"ldr d{p // 2}, [x{9 + p}], #8"
              for p in range(self.P)))
        for v in range(self.V):
            to = self.pairs + 2 * v % self.count
            asm(f"ldp q{to}, q{to + 1}, [x5], #32")
            asm(*(f"smmla %[s{pair}_{2 * v + i}].4s, v{pair}.16b, v{to + i}.16b"
                  for i in range(2) for pair in range(self.pairs)))


class Smull(ArmSums):
    """Sums without dot-product instructions, by 16 bytes of a pixel and of each channel. 8-bit products are added in
    int16, two at a time if no weight is -128 (`narrow`), then in four int32 lanes per sum."""

    load_rest = ()
    #: C, the cast of a sum to mgc_i.
    cast = ""

    def print(self, c: Printer) -> None:
        asm, P, C = Assembler(), self.P, 4 * self.V
        spare = 32 - P * C - P - 2  # registers besides the sums, the pixels and the weights of two channels
        self.addresses(asm)
        asm(*(f"movi %[s{p}_{i}].4s, #0" for p in range(P) for i in range(C)))
        with self.window(asm), asm.loop(3, "x2", "x6"):
            asm(*(f"ldr q{p}, [x{9 + p}], #16" for p in range(P)))
            for channel in range(0, C, 2):
                self.multiply(asm, channel, spare)
        self.statement(c, asm, [f"s{p}_{i}" for p in range(P) for i in range(C)], 32 - P * C)
        self.add_lanes(c)

    def multiply(self, asm: Assembler, channel: int, spare: int) -> None:
        """Prints the products of two channels. They wait in `spare` registers to hide the latency of multiplication."""
        waiting, P = [], self.P
        asm(f"ldp q{P}, q{P + 1}, [x5], #32")
        for i, p in product(range(2), range(P)):
            to = P + 2 + (i * P + p) % spare
            add = f"sadalp %[s{p}_{channel + i}].4s, v{to}.8h"
            if len(waiting) == spare:
                asm(waiting.pop(0))
            asm(f"smull v{to}.8h, v{p}.8b, v{P + i}.8b")
            if self.p.narrow:
                asm(f"smlal2 v{to}.8h, v{p}.16b, v{P + i}.16b")
            else:
                asm(add, f"smull2 v{to}.8h, v{p}.16b, v{P + i}.16b")
            waiting.append(add)
        asm(*waiting)

    def add_lanes(self, c: Printer) -> None:
        """Prints the addition of the four lanes of each sum."""
        for v in range(self.V):
            if self.start:
                c(f"const mgc_i start_{v} = mgc_iload_i32({offset(self.start, 4 * v)});")
            for p in range(self.P):
                total = f"mgc_isummed({', '.join(f'{self.cast}s{p}_{4 * v + i}' for i in range(4))})"
                c(f"const mgc_i a{p}_{v} = {f'mgc_iadd(start_{v}, {total})' if self.start else total};")


class SmullInC(Smull):
    """The same in C, for 32-bit Arm: with half as many registers, assembler would be no better than the compiler."""

    cast = "(mgc_i)"

    def begin(self, c: Printer) -> None:
        self.declare_start(c)

    def print(self, c: Printer) -> None:
        P, C = range(self.P), range(4 * self.V)
        c(*(f"int32x4_t s{p}_{i} = vdupq_n_s32(0);" for p in P for i in C), "const int8_t *wk = w;")
        with c.loop("kh", self.kh), c.loop("kw", self.runs):
            c(f"const int8_t *x0 = x{' + kh * row_stride' if self.kh > 1 else ''}"
              f"{' + kw * tap_stride' if self.runs > 1 else ''};")
            c(*(f"const int8_t *x{p} = x{p - 1} + pixel_stride;" for p in P[1:]))
            with c.block("for (int32_t k = 0; k < steps; k++)"):
                for p in P:
                    c(f"const int8x16_t d{p} = vld1q_s8(x{p});", f"x{p} += 16;")
                for i in C:
                    with c.block(""):
                        c("const int8x16_t wc = vld1q_s8(wk);", "wk += 16;")
                        for p in P:
                            self.multiply_in_c(c, f"s{p}_{i}", f"d{p}")
        self.add_lanes(c)

    def multiply_in_c(self, c: Printer, sum_: str, x: str) -> None:
        low, high = (f"vget_{half}_s8({x}), vget_{half}_s8(wc)" for half in ("low", "high"))
        products = [f"vmlal_s8(vmull_s8({low}), {high})"] if self.p.narrow else \
            [f"vmull_s8({low})", f"vmull_s8({high})"]
        c(*(f"{sum_} = vpadalq_s16({sum_}, {product});" for product in products))


#: The class for each value of `DotParameters.arm_sums`.
ACCUMULATE = {"sdot": Sdot, "smmla": Smmla, "smull": Smull, "smull_in_c": SmullInC}
