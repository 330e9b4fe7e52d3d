# SPDX-License-Identifier: Apache-2.0
"""The products of `integer/winograd` on Arm, in assembler, by lanes of vectors of eight input channels. P tiles are
multiplied by V vectors of four output channels at each of 16 positions. C pointers: `x`, int16 [16][P][depth], the
transformed tiles; `w`, int16 [16][depth][4 * V], the transformed weights; `sums`, int32 [16][P][4 * V], the results."""

from __future__ import annotations

from ..microkernel.assembler import Assembler, asm_inout, asm_input, asm_output, registers
from ..microkernel.printer import joined


def on_arm64(P: int, V: int, depth: int) -> str:
    """Prints the products. Vector registers hold first tiles, because a factor that is one lane must be in v0 to v15,
    then weights, then sums."""
    asm, spare = Assembler(is_volatile=True), 32 - P - P * V  # registers that neither tiles nor sums take
    # Vectors of weights that are loaded at once, and registers for weights: for two loads, if there are so many.
    at_once = 4 if spare >= 4 else 2
    count = min(2 * at_once, spare // at_once * at_once)
    # The first register of sums; the vectors of eight int16 weights that one input channel has.
    sums, loads = P + count, V // 2

    def multiply_8(first: bool) -> None:
        """Prints the products of eight input channels. first: they initialise the sums."""
        asm(*(f"ldr q{p}, [x{9 + p}], #16" for p in range(P)))
        for w in range(8 * loads):
            to, lane = P + w % count, w // loads
            if w % at_once == 0:
                asm(f"ld1 {{ v{to}.8h-v{to + at_once - 1}.8h }}, [x5], #{16 * at_once}" if at_once > 2 else
                    f"ldp q{to}, q{to + 1}, [x5], #32")
            multiply = "smull" if first and lane == 0 else "smlal"
            for p in range(P):
                a = sums + p * V + w % loads * 2
                asm(f"{multiply} v{a}.4s, v{to}.4h, v{p}.h[{lane}]",
                    f"{multiply}2 v{a + 1}.4s, v{to}.8h, v{p}.h[{lane}]")

    asm("mov x2, %[x]", "mov x5, %[w]", "mov x6, %[sums]")
    with asm.loop(1, "x7", "#16"):
        asm("mov x9, x2", *(f"add x{9 + p}, x{8 + p}, #{2 * depth}" for p in range(1, P)))
        multiply_8(first=True)
        if depth > 8:
            with asm.loop(2, "x3", f"#{depth // 8 - 1}"):
                multiply_8(first=False)
        asm(*(f"stp q{a}, q{a + 1}, [x6], #32" for a in range(sums, sums + P * V, 2)), f"mov x2, x{8 + P}")
    clobbers = ["cc", "memory", "x2", "x3", "x5", "x6", "x7", *registers("x", 9, 9 + P), *registers("v", sums + P * V)]
    return "\n".join(asm.statement([], [asm_input("x"), asm_input("w"), asm_input("sums")], clobbers))


def on_armv7(P: int, V: int, depth: int) -> str:
    """Prints the same for 32-bit Arm: tiles in the first eight double registers, then weights, sums from q8 on.

    Operands of the assembler besides x, w and sums: `more`, the groups of eight input channels after the first; and
    `others`, the bytes from the end of a tile at one position to its begin at the next.
    """
    asm = Assembler(is_volatile=True)

    def multiply_8(first: bool) -> None:
        asm(*(f"vld1.16 {{ d{2 * p}-d{2 * p + 1} }}, [%[x{p}]]!" for p in range(P)))
        for lane in range(8):
            to, multiply = 2 * P + lane % 2 * V, "vmull" if first and lane == 0 else "vmlal"
            asm(f"vld1.16 {{ d{to}-d{to + V - 1} }}, [%[w]]!",
                *(f"{multiply}.s16 q{8 + p * V + v}, d{to + v}, d{2 * p + lane // 4}[{lane % 4}]"
                  for p in range(P) for v in range(V)))

    asm("1:")
    multiply_8(first=True)
    asm("mov %[k], %[more]", "cmp %[k], #0", "beq 3f", "2:")
    multiply_8(first=False)
    asm("subs %[k], #1", "bne 2b", "3:",
        *(f"vst1.32 {{ d{16 + 2 * a}-d{19 + 2 * a} }}, [%[sums]]!" for a in range(0, P * V, 2)),
        *(f"add %[x{p}], %[others]" for p in range(P)), "subs %[positions], #1", "bne 1b")
    pointers = joined(["const int16_t *x0 = x", *(f"*x{p} = x + {p * depth}" for p in range(1, P))])
    return "\n".join([f"{pointers};", "int32_t positions = 16, k;", *asm.statement(
        [asm_inout("w"), asm_inout("sums"), asm_inout("positions"), asm_output("k", "r"),
         *(asm_inout(f"x{p}") for p in range(P))],
        [asm_input("more", str(depth // 8 - 1)), asm_input("others", str(2 * (P - 1) * depth))],
        ["cc", "memory", *registers("d", 2 * P + 2 * V), *registers("q", 8, 8 + P * V)])])
