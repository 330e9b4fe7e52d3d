# SPDX-License-Identifier: Apache-2.0
"""The tiles of `matmul/nbits_int8_arm`: rows of x by vectors of four columns, for Arm's dot products (SDOT) and matrix
products (SMMLA) of int8. The integer sums of a part are written in assembler, because compilers spill some registers
and copy others.

The C variables of the template: `x` points to the next elements of the tile's rows, `x_scale`, `x_total` and `x_start`
to their scales, offsets' factors and initial sums; `w` to the scales of the block, `e` to the next elements of the
tile's columns. `mask` selects four bits of each byte.

With SMMLA, two rows by two columns are one vector: `c{p}_{h}` and `y{p}_{h}` have the rows 2 * p and 2 * p + 1 and the
half h of the four columns. Otherwise they have row p and vector h of columns."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ..microkernel.assembler import Assembler, asm_inout, asm_output, registers
from ..microkernel.panel_tile import PanelTile
from ..microkernel.printer import Printer, offset
from ..parameters import Scope
from .nbits_int8_tile import scale_and_offset_bytes

if TYPE_CHECKING:
    from .nbits import NBitsInt8Shared

#: Rows of a tile -> the fewest rows that it is used for; the others are zeros.
LEAST_ROWS = {8: 5, 4: 3}
#: The most rows of x that are packed at once: 32 rows of 1,536 take 48 KB, and weights are read once for them.
PACKED_ROWS = 32


class ArmTile(PanelTile):
    """Prints the steps of a tile for one part of a block.

    rows: 8 or 4 rows of packed x by one vector of columns, or 1 row of x by all vectors of a panel.
    """

    def __init__(self, kernel: NBitsInt8Arm, rows: int):
        self.kernel, self.params, self.rows = kernel, kernel.params, rows
        self.is_packed = rows > 1
        super().__init__(1 if self.is_packed else self.params.vectors, kernel.scope)
        #: Whether a vector has two rows and two columns.
        self.pairs = self.is_packed and self.kernel.pairs
        #: (p, h) of each vector of sums.
        self.sums = [(p, h) for p in range(rows // 2 if self.pairs else rows)
                     for h in (range(2) if self.pairs else self.vectors)]
        #: Elements of `x_scale`, `x_total` and `x_start` for a part.
        self.factors = rows * kernel.copies if self.is_packed else 1

    def declare(self, statement: str) -> str:
        """Prints a statement for each vector of sums, with {p} and {h}."""
        return "\n".join(statement.format(p=p, h=h) for p, h in self.sums)

    def scales_of_block(self) -> str:
        """Declares the scales s{h} and offsets o{h} of a block, as `y{p}_{h}` needs them."""
        c, kernel = Printer(), self.kernel
        for v in self.vectors:
            column = "at" if self.is_packed else f"{4 * v}"
            values = {"s": kernel.float_at(column, 0)}
            if self.params.offset == "zero":
                zero_points = f"mgc_iload_u8(w + {kernel.width * kernel.scale_bytes} + {column})"
                values["o"] = f"mgc_neg(mgc_to_float({zero_points}) * {'s' if self.pairs else f's{v}'})"
            elif self.params.offset:
                values["o"] = kernel.float_at(column, kernel.width)
            for name, value in values.items():
                if self.pairs:
                    c(f"const mgc_v {name} = {value}, {name}0 = mgc_dots_low_half({name}), "
                      f"{name}1 = mgc_dots_high_half({name});")
                else:
                    c(f"const mgc_v {name}{v} = {value};")
        return c.text

    def sums_of_part(self) -> str:
        """Declares `c{p}_{h}` and sets them to the sums of the part; `x` and `e` advance by the part."""
        asm, names = Assembler(), [f"c{p}_{h}" for p, h in self.sums]
        asm(*(self.instructions_of_rows() if self.is_packed else self.instructions_of_row()))
        outputs = [*map(asm_output, names), asm_inout("x"), asm_inout("e"),
                   *[asm_inout("mask", kind="w")] * (self.params.bits == 4)]
        if self.is_packed and self.params.bits == 4:  # one more would not leave one for `mask`
            clobbered = [*registers("v", 6), *registers("v", 8, 16)]
        else:
            clobbered = registers("v", 20 if self.kernel.pairs and not self.is_packed else 16)
        c = Printer()
        c(f"mgc_i {', '.join(names)};", *asm.statement(outputs, [], ["memory", *clobbered]))
        return c.text

    def zeros(self) -> list[str]:
        return [f"movi %[c{p}_{h}].4s, #0" for p, h in self.sums]

    def unpacked(self, low: int, raw: int) -> tuple[list[str], list[int]]:
        """Returns the instructions that unpack the 4-bit elements of the registers `raw` and `raw` + 1, sixteen of each
        of four columns, to these and to `low` and `low` + 1; and the registers, in the order that `products` takes."""
        result = []
        for to, source in ((low, raw), (low + 1, raw + 1)):
            if self.kernel.is_signed:  # 16 times the elements
                result += [f"shl v{to}.16b, v{source}.16b, #4", f"and v{source}.16b, v{source}.16b, %[mask].16b"]
            else:
                result += [f"and v{to}.16b, v{source}.16b, %[mask].16b", f"ushr v{source}.16b, v{source}.16b, #4"]
        return result, ([low, low + 1, raw, raw + 1] if self.kernel.pairs else [low, raw, low + 1, raw + 1])

    def instructions_of_rows(self) -> list[str]:
        """Returns the products of the rows of packed x: [half of a part][rows][16] elements, or for SMMLA
        [quarter of a part][rows][8]. Each load of x, to v8 to v11 or v12 to v15 in turn, comes before the products of
        the load before it: CPUs that keep the order would wait for it."""
        halves = self.params.part // 16
        if self.params.bits == 8:
            result, w = [load("e", 4 * half, 4) for half in range(halves)], [*range(4 * halves)]
            unpacks: list[list[str]] = [[]] * halves
        else:
            result = [load("e", 0, 2 * halves)]
            parts = [self.unpacked(4, 2 * half) for half in range(halves)]
            unpacks, w = [lines for lines, _ in parts], [i for _, of_half in parts for i in of_half]
        # Registers of x; instructions, with {x0} for the first of them.
        steps: list[tuple[int, list[str]]] = []
        for half, i in product(range(halves), range(2)):
            lines = unpacks[half] if i == 0 else []
            if self.pairs:
                steps.append((self.rows // 2, lines + [
                    f"smmla %[c{p}_{h}].4s, v{{x{p}}}.16b, v{w[4 * half + 2 * i + h]}.16b" for p, h in self.sums]))
            elif 4 * i < self.rows:
                steps.append((4, lines + [
                    f"sdot %[c{4 * i + p}_0].4s, v{w[4 * half + group]}.16b, v{{x{p}}}.4b[{group}]"
                    for group in range(4) for p in range(4)]))
        x = [load("x", 8 + i % 2 * 4, count) for i, (count, _) in enumerate(steps)]
        result += [x[0], *self.zeros()]
        for i, (_, lines) in enumerate(steps):
            result += x[i + 1:i + 2]
            result += [text.format(**{f"x{p}": 8 + i % 2 * 4 + p for p in range(4)}) for text in lines]
        return result

    def instructions_of_row(self) -> list[str]:
        """Returns the products of one row of x. The vectors of SMMLA's weights have two columns; SDOT multiplies them
        by eight elements of x, twice, and adds two sums of each column. Two vectors of columns are computed at a time,
        and their instructions alternate: CPUs that keep the order would wait for the results."""
        halves, pairs = self.params.part // 16, self.kernel.pairs
        result = [f"ld1r {{v{8 + i}.2d}}, [%[x]], #8" for i in range(2 * halves)] if pairs else [load("x", 8, halves)]
        zeros = self.zeros() + [f"movi v{16 + v}.4s, #0" for v in self.vectors if pairs]
        for first in self.vectors[::2]:
            two = self.vectors[first:first + 2]
            if self.params.bits == 4:
                result += [load("e", 12 * (v - first), 2 * halves) for v in two] + zeros
                for half in range(halves):
                    parts = [self.unpacked(4 + 2 * (v - first), 12 * (v - first) + 2 * half) for v in two]
                    result += alternated([lines for lines, _ in parts])
                    result += alternated([self.row_products(v, half, w) for v, (_, w) in zip(two, parts, strict=True)])
            else:
                # Elements of a part of a column lie together. Those of both halves of the first vector are loaded
                # before the second vector, whose second half takes the registers of the first one's first half.
                starts = (0, 4, 12, 0) if halves == 2 else (0, 12)
                at = dict(zip(product(two, range(halves)), starts, strict=False))
                loads = [load("e", start, 4) for start in at.values()]
                result += loads[:3] + zeros
                for half in range(halves):
                    result += loads[3:] * half
                    starts_of_half = [(v, at[v, half]) for v in two]
                    result += alternated([self.row_products(v, half, [*range(i, i + 4)]) for v, i in starts_of_half])
            zeros = []
        return result + [f"addp %[c0_{v}].4s, %[c0_{v}].4s, v{16 + v}.4s" for v in self.vectors if pairs]

    def row_products(self, v: int, half: int, w: list[int]) -> list[str]:
        """Returns the products of a half of the row with vector v of columns, whose elements the registers w have."""
        if self.kernel.pairs:
            return [f"sdot {f'v{16 + v}' if i % 2 else f'%[c0_{v}]'}.4s, v{w[i]}.16b, v{8 + 2 * half + i // 2}.16b"
                    for i in range(4)]
        return [f"sdot %[c0_{v}].4s, v{w[i]}.16b, v{8 + half}.4b[{i}]" for i in range(4)]

    def add_part(self) -> str:
        """Adds the sums of the part to the sums of its block, or scaled to the float sums; advances the factors."""
        c, params = Printer(), self.params
        if self.kernel.has_starts:
            start = "mgc_iload_i32(x_start + 4 * {p})" if self.pairs else "mgc_iset1(x_start[{p}])"
            c(*(f"c{p}_{h} = mgc_iadd(c{p}_{h}, {start.format(p=p)});" for p, h in self.sums))
        if params.block_sums:
            total = "n{p}_{h} = mgc_iadd(n{p}_{h}, c{p}_{h});" if self.kernel.has_totals else self.add_block("c{p}_{h}")
            c(*(total.format(p=p, h=h) for p, h in self.sums))
            return c.text
        for name, pointer, wanted in (("f", "x_scale", True), ("t", "x_total", params.offset)):
            if wanted:
                self.declare_factors(c, name, pointer)
        for p, h in self.sums:
            y = f"y{p}_{h}"
            c(f"{y} = {y} + {self.to_float(f'c{p}_{h}')} * ({self.times('s', 'f', p, h)});")
            if params.offset:
                c(f"{y} = {y} + {self.times('o', 't', p, h)};")
        return c.text

    def advance(self) -> str:
        """Prints the statements that advance `e` and the factors to the next part."""
        c, params, kernel = Printer(), self.params, self.kernel
        if self.is_packed and params.vectors > 1:
            c(f"e += {(params.vectors - 1) * kernel.part_bytes};")
        if not params.block_sums and params.part == 32:
            c(f"x_scale += {self.factors};")
        if params.offset and self.is_packed:
            c(f"x_total += {self.factors};")
        if kernel.has_starts and self.is_packed:
            c(f"x_start += {self.factors};")
        return c.text

    def add_block(self, total: str) -> str:
        """Returns a statement, with {p} and {h}, that adds integers times the scale of the block."""
        scale = "s{h}" if self.pairs or not self.is_packed else "s0"
        return f"y{{p}}_{{h}} = y{{p}}_{{h}} + {self.to_float(total)} * {scale};"

    def to_float(self, value: str) -> str:
        return f"mgc_dots_sixteenth({value})" if self.kernel.is_signed else f"mgc_to_float({value})"

    def declare_factors(self, c: Printer, name: str, pointer: str) -> None:
        """Declares vectors of factors: each has those of four rows, with SMMLA of two, or of the only one."""
        # Blocks of 16 share the scale of 32 elements of x.
        if pointer == "x_scale" and self.params.part < 32:
            pointer = f"{pointer} + k / 32 * {self.factors}"
        if self.is_packed:
            values = [f"mgc_load({offset(pointer, 4 * i)})" for i in range(self.factors // 4)]
        else:
            values = [f"mgc_set1(*({pointer}))"]
        c(*(f"const mgc_v {name}{i} = {value};" for i, value in enumerate(values)))

    def times(self, scale: str, factor: str, p: int, h: int) -> str:
        """Returns C for the products of a block's scales or offsets and the factors of `c{p}_{h}`."""
        if self.is_packed and not self.pairs:
            return f"mgc_dots_times_lane({scale}0, {factor}{p // 4}, {p % 4})"
        return f"{factor}{p} * {scale}{h}"

    def store(self, P: int, value: str) -> str:
        """Prints the epilogue and the store of each row that is in y, of `rows`."""
        c = Printer()
        if self.pairs:
            for p in range(P):
                part = "high" if p % 2 else "low"
                c(f"const mgc_v r{p}_0 = mgc_dots_{part}_halves(y{p // 2}_0, y{p // 2}_1);")
            value = value.replace("y{p}", "r{p}")
        for p in range(P):
            with c.block(f"if (rows > {p})", when=p >= LEAST_ROWS.get(P, P)):
                for v in self.vectors:
                    total = value.format(p=p, v=v, at=4 * v, n=f"n{v}")
                    index = f"y_index + {p} * N + {4 * v}"
                    c(self.scope.ep.store("y", index, total, f"column + {4 * v}", f"n{v}") + ";")
        return c.text


def load(pointer: str, first: int, count: int) -> str:
    """Returns the load of `count` registers, from v`first` on; the pointer advances."""
    return f"ld1 {{{', '.join(f'v{first + i}.16b' for i in range(count))}}}, [%[{pointer}]], #{16 * count}"


def alternated(streams: list[list[str]]) -> list[str]:
    """Returns the first instruction of each stream, then the second ones, and so on."""
    return [line for lines in zip(*streams, strict=True) for line in lines]


class NBitsInt8Arm:
    """Facts that the tiles of a kernel share. params: `NBitsInt8Shared`."""

    def __init__(self, params: NBitsInt8Shared, scope: Scope):
        self.params, self.scope = params, scope
        #: Whether an instruction multiplies two rows by two columns (SMMLA).
        self.pairs = scope.isa.dot_product == "smmla"
        #: Columns of a panel.
        self.width = 4 * params.vectors
        #: The numbers of rows of tiles, the largest first.
        self.heights = (*LEAST_ROWS, 1)
        #: Bytes of a scale, and of an offset that is a float.
        self.scale_bytes = 2 if params.float16_scales else 4
        #: Bytes of the scales and offsets of a block, for all columns of a panel.
        self.scales_bytes = self.width * scale_and_offset_bytes(
            params.offset, params.float16_scales, params.factored)[0]
        #: Bytes of the elements of a part of a block, for four columns.
        self.part_bytes = 4 * params.part * params.bits // 8
        #: Bytes of a block of a panel: scales and offsets, then elements.
        self.block_bytes = self.scales_bytes + self.width * params.block * params.bits // 8
        #: Bytes of neighbouring elements of a row of packed x.
        self.unit = 8 if self.pairs else 16
        #: How often a scale of a row is stored in packed x: SMMLA's sums of a row are two neighbouring lanes.
        self.copies = 2 if self.pairs else 1
        #: The most rows of x that are packed at once.
        self.packed_rows = PACKED_ROWS
        #: Whether elements of 4 bits are stored as signed numbers, so that sums are multiplied by 16.
        self.is_signed = params.bits == 4 and not params.offset
        #: Whether sums begin with -weight_offset times the sum of x.
        self.has_starts = bool(params.weight_offset)
        #: Whether a block has several parts whose int32 sums are added, in `n{p}_{h}`, before they are scaled.
        self.has_totals = params.block_sums and params.block > params.part

    def tile(self, rows: int) -> ArmTile:
        """Returns the tile of `rows` rows, which prints the steps for a part of a block (`ArmTile`)."""
        return ArmTile(self, rows)

    def float_at(self, column: str, first: int) -> str:
        """Returns C that loads as float32 the scales of four columns, from `column` on. first: the number of scales of
        a block before those of column 0: none, or for offsets `width`."""
        load = "mgc_load_f16((const uint16_t *)" if self.params.float16_scales else "mgc_load((const float *)"
        index = f"{column} * {self.scale_bytes}" if column == "at" else str(int(column) * self.scale_bytes)
        return f"{load}(const void *)(w + {first * self.scale_bytes} + {index}))"
