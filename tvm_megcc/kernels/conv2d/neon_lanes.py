# SPDX-License-Identifier: Apache-2.0
"""The loops over input channels of tiles of `conv2d/direct`, `winograd` and `pixels`, in assembler for 64-bit Arm.

A tile needs all 32 registers, and an instruction that loads four of them needs consecutive ones. Compilers spill and
copy some of them, which costs 10 to 50 % more instructions. The registers from v0 on hold four channels of each pixel,
then one row of weights, or two rows if registers are left. The compiler chooses the registers of the sums. Each product
is a vector of weights times one lane of a pixel.
"""

from __future__ import annotations

from itertools import product

from ..microkernel.assembler import Assembler, asm_inout, asm_input, asm_output, registers
from ..microkernel.printer import Printer


def neighbours(first: int, count: int) -> str:
    """Returns consecutive registers as the instruction ld1 takes them, such as `{ v4.4s, v5.4s }`."""
    return f"{{ {', '.join(f'v{first + i}.4s' for i in range(count))} }}"


class NeonLanes:
    """Prints the loops. In a tile, P: pixels, or vectors of pixels. V: vectors of output channels."""

    @staticmethod
    def covers(V: int, width: int) -> bool:
        """Returns whether there is a loop for tiles of V vectors: a row of weights must be one load. width: floats from
        one row of weights to the next."""
        return V in (1, 2) or (V == 4 and width == 16)

    @staticmethod
    def sums(P: int, V: int, width: int, steps: int | str, even: bool, plane: str, start: str, stride: str = "") -> str:
        """Prints the sums of P pixels x V vectors over input channels. Pixels are read from `xk`, weights from `w` on;
        both pointers are advanced.

        width: floats from one row of weights to the next.
        steps: the number of groups of four input channels, a number or C.
        even: whether `steps` is even.
        plane: C, floats from one group of four channels to the next.
        start: C, the address of the V initial vectors; "" if sums begin with 0.
        stride: C, bytes from the initial vectors of a pixel to those of the next; "" if all pixels share them.
        """
        c, asm, unroll = Printer(), Assembler(), 2 if even else 1
        sets = 2 if P * V + P + 2 * V <= 32 else 1  # registers of sums, pixels and two rows of weights
        sums = [f"a{p}_{v}" for p in range(P) for v in range(V)]
        for p in range(P):
            _set_sums(asm, p, V, bool(start))
            if stride and p + 1 < P:
                asm("add %[start], %[start], %[stride]")
        asm(f"1: .rept {unroll}")
        for p in range(0, P, 4):
            asm(f"ld1 {neighbours(p, min(4, P - p))}, [%[x]], {'#64' if p + 4 < P else '%[step]'}")
        for k in range(4):
            _multiply(asm, P, V, width, k, sets)
        asm(".endr", "subs %[left], %[left], #1", "b.ne 1b")
        c(f"mgc_v {', '.join(sums)};")
        with c.block(""):
            times = steps // unroll if isinstance(steps, int) else f"{steps} / {unroll}" if even else steps
            c(f"int64_t left = {times};",
              *[f"const float *from = {start};"] * bool(stride))
            outputs = [*map(asm_output, sums), asm_inout("x", "xk"), asm_inout("w"), asm_inout("left"),
                       *[asm_inout("start", "from")] * bool(stride)]
            # The last load of a group advances x by `step`: to the next group, since each other load advanced it by 16.
            inputs = [asm_input("step", f"({plane} - {16 * ((P - 1) // 4)}) * 4"),
                      *([asm_input("stride", stride)] if stride else [asm_input("start", start)] if start else [])]
            c(*asm.statement(outputs, inputs, ["cc", "memory", *registers("v", P + sets * V)]))
        return c.text

    @staticmethod
    def pixel_sums(P: int, channels: int, width: int, steps: int, start: str) -> str:
        """Prints the sums of P vectors of pixels in plain layout x `channels` output channels, 4 or 8, over `steps`
        times four input channels from xk on, which are `plane` floats apart. width, start: as in `sums`. The loop
        counter has a fixed register, because GCC allows only 30 operands."""
        c, asm = Printer(), Assembler()
        sums = [f"a{p}_{o}" for o in range(channels) for p in range(P)]
        if start:
            asm("ldp q0, q1, [%[start]]" if channels == 8 else "ldr q0, [%[start]]")
        asm(*(f"dup %[a{p}_{o}].4s, v{o // 4}.s[{o % 4}]" if start else f"movi %[a{p}_{o}].4s, #0"
              for o in range(channels) for p in range(P)))
        asm(f"mov x9, #{steps}", "1: .rept 4", f"ld1 {neighbours(0, P)}, [%[x]], %[step]",
            f"ldp q{P}, q{P + 1}, [%[w]], #{4 * width}" if channels == 8 else f"ldr q{P}, [%[w]], #{4 * width}")
        asm(*(f"fmla %[a{p}_{o}].4s, v{p}.4s, v{P + o // 4}.s[{o % 4}]" for o in range(channels) for p in range(P)))
        asm(".endr", "subs x9, x9, #1", "b.ne 1b")
        c(f"mgc_v {', '.join(sums)};",
          *asm.statement([*map(asm_output, sums), asm_inout("x", "xk"), asm_inout("w")],
                         [asm_input("step", "plane * 4"), *[asm_input("start", start)] * bool(start)],
                         ["cc", "memory", "x9", *registers("v", P + channels // 4)]))
        return c.text


def _set_sums(asm: Assembler, p: int, V: int, is_loaded: bool) -> None:
    """Prints the start of the sums of pixel p: loaded from `start`, else 0."""
    if not is_loaded:
        asm(*(f"movi %[a{p}_{v}].4s, #0" for v in range(V)))
    elif V == 1:
        asm(f"ldr %q[a{p}_0], [%[start]]")
    else:
        asm(*(f"ldp %q[a{p}_{v}], %q[a{p}_{v + 1}], [%[start], #{16 * v}]" for v in range(0, V, 2)))


def _multiply(asm: Assembler, P: int, V: int, width: int, k: int, sets: int) -> None:
    """Prints the products of channel k of four. sets: rows of weights that registers hold, 1 or 2. With two, it loads
    the next row of weights before the products."""
    if sets == 1:
        rows_to_load = [k]
    else:
        rows_to_load = [row for row in ((0, 1) if k == 0 else (k + 1,)) if row < 4]
    for row in rows_to_load:
        to = P + row % sets * V
        asm(f"ldr q{to}, [%[w]], #{4 * width}" if V == 1 else
            f"ldp q{to}, q{to + 1}, [%[w]], #{4 * width}" if V == 2 else
            f"ld1 {neighbours(to, V)}, [%[w]], #{16 * V}")
    asm(*(f"fmla %[a{p}_{v}].4s, v{P + k % sets * V + v}.4s, v{p}.s[{k}]" for p, v in product(range(P), range(V))))
