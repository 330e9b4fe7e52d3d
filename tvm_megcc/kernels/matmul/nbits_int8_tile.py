# SPDX-License-Identifier: Apache-2.0
"""The tiles of `matmul/nbits_int8`: P rows of x by a panel of columns. `y{p}_{v}` are the float sums of row p and
vector v of columns. `c{p}_{v}` are the integer sums of a part of a block; several lanes hold terms of one column. The
other C variables are the template's: `k` is the block's first element; `w` points to the next scales or elements of the
panel; `x` and `x_sum` to the part's elements in the first row and their sum; `x_scale` to its scale or, if parts have
less than 32 elements, to the row's first scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...target import Isa
from ..microkernel.panel_tile import PanelTile
from ..microkernel.printer import Printer, offset
from ..parameters import Scope
from .scale_factors import SUPER_BLOCK

if TYPE_CHECKING:
    from .nbits import NBitsInt8Parameters


@dataclass(frozen=True)
class Dots:
    """Dot products of sixteen elements of x with sixteen elements of each column, which are four vectors `q{v}_0` to
    `q{v}_3`. rows: rows of x that an instruction multiplies, 1 or 2 (SMMLA). bits: of a weight. The functions
    mgc_dots_ are those of megcc_blocks.h. Two rows that SMMLA multiplies have one variable for their sums.
    """

    rows: int
    bits: int

    @property
    def function(self) -> str:
        """The function that multiplies one row."""
        return f"mgc_dots_{self.bits if self.bits in (4, 8) else 6}"

    def load(self, p: int, first: int) -> str:
        """Declares the vectors of elements [first, first + 16) of the rows from p on."""
        x = [offset(f"x{row}", first) for row in range(p, p + self.rows)]
        if self.rows == 1:
            return f"const mgc_dots_input x{p}_0 = mgc_dots_x({x[0]});"
        loads = (f"x{p}_{part} = mgc_dots_x_pair({x[0]}, {x[1]}, {part})" for part in range(2))
        return f"const int8x16_t {', '.join(loads)};"

    def add(self, p: int, v: int) -> str:
        """Adds the products of the rows from p on and vector v of columns to their sums."""
        function, x = ("mgc_dots_pair", f"x{p}_0, x{p}_1") if self.rows == 2 else (self.function, f"x{p}_0")
        return f"c{p}_{v} = {function}(c{p}_{v}, q{v}_0, q{v}_1, q{v}_2, q{v}_3, {x});"

    def total(self, p: int, v: int) -> str:
        """Returns C for the sums of row p, with one lane for each column."""
        return (f"mgc_dots_row(c{p - p % 2}_{v}, {p % 2}, start{p})" if self.rows == 2 else
                f"{self.function.replace('dots', 'dots_sum')}(c{p}_{v}, start{p})")


def scale_and_offset_bytes(offset: str, float16_scales: bool, factored: bool) -> tuple[int, int]:
    """Returns the bytes of the scale and the offset of a block of one column, and of those that a super-block shares.
    The arguments are as in `NBitsInt8Parameters`."""
    scale = 1 if factored else 2 if float16_scales else 4
    return scale + {"": 0, "real": scale, "zero": 1}[offset], (4 if offset == "real" else 2) * factored


def sums_columns(isa: Isa, bits: int, part: int) -> bool:
    """Returns whether an instruction sums the products of sixteen elements of one column (Helium)."""
    return isa.helium and (bits == 8 or (bits == 4 and part == 32))


def has_complements(isa: Isa, bits: int) -> bool:
    """Returns whether rows are multiplied by magnitudes of weights: where products of bytes take unsigned ones."""
    return isa.saturates and bits == 8


def unpacked_bytes(part: int) -> int:
    """Returns the bytes of a part of a row that mgc_dots_unpack has unpacked: a word for two elements, and one more."""
    return 4 * (part // 2 + 1)


class NBitsInt8Tile(PanelTile):
    """Prints the steps of a tile for a block, or a part of a block, of each row and vector.

    params: `NBitsInt8Parameters`.
    """

    def __init__(self, params: NBitsInt8Parameters, scope: Scope):
        super().__init__(params.vectors, scope)
        self.params = params
        self.lanes = scope.isa.lanes
        #: Columns of a panel.
        self.width = params.vectors * scope.isa.lanes
        #: The numbers of rows of tiles, the largest first.
        self.heights = (params.rows, 1) if params.rows > 1 else (1,)
        #: Bytes of a scale, and of an offset that is a float.
        self.scale_bytes = 1 if params.factored else 2 if params.float16_scales else 4
        scales, shared = scale_and_offset_bytes(params.offset, params.float16_scales, params.factored)
        #: Bytes of the scales and offsets of a block, for all columns of a panel.
        self.scales_bytes = self.width * scales
        #: Bytes of the float16 of a super-block, for all columns of a panel.
        self.shared_bytes = self.width * shared
        #: Elements of a column of a super-block.
        self.super_block = SUPER_BLOCK
        #: Bytes of sixteen elements of each column of a panel; if they have 5 or 6 bits, of their lower four bits.
        self.sixteen_bytes = 16 * self.width * (8 if params.bits == 8 else 4) // 8
        #: Bytes of a part of a block of a panel.
        self.part_bytes = params.part * self.width * params.bits // 8
        #: Bytes of a block of a panel: scales and offsets, then elements.
        self.block_bytes = self.scales_bytes + params.block * self.width * params.bits // 8
        #: Whether a block has several parts whose int32 sums are added, in `t{p}_{v}`, before they are scaled.
        self.has_totals = params.block_sums and params.block > params.part
        #: Whether an instruction takes four elements of x from a vector of sixteen (Arm); else they are loaded into all
        #: lanes.
        self.has_x_vectors = bool(scope.isa.dot_product)
        #: Whether rows are multiplied by magnitudes of weights (mgc_dots_8_complement), if a tile has several.
        self.complements = has_complements(scope.isa, params.bits)
        #: Whether the sums of parts of x are read.
        self.reads_sums = bool(params.weight_offset or params.offset)
        #: C type of x in tiles.
        self.x_type = "uint32_t" if params.unpacks else "int8_t"
        #: Elements of x of that type in a part.
        self.x_part = unpacked_bytes(params.part) // 4 if params.unpacks else params.part
        #: Whether an assembler's function multiplies a part of x by four columns, and advances x and w.
        self.is_quad = scope.isa.dsp and self.lanes == 1 and params.bits in (4, 8)

    def begin(self, P: int, statement: str) -> str:
        # A constant lets the compiler leave out the conditions of stores.
        columns = self.scope.known.N
        if self.lanes > 1 or columns is None or columns % self.width:
            return super().begin(P, statement)
        return "\n".join([*(f"const int32_t n{v} = 1;" for v in self.vectors), self.for_each(P, statement), "(void)n;"])

    def store(self, P: int, value: str) -> str:
        ep = self.scope.ep
        if not (self.is_quad and ep.present):
            return super().store(P, value)
        # All results before the first store: the compiler must not exchange it with loads of the epilogue's operands.
        results = [ep(value.format(p=0, v=v, at=v, n=f"n{v}"), channel=f"column + {v}", offset=f"y_index + {v}",
                      n=f"n{v}") for v in self.vectors]
        return "\n".join([*(f"y0_{v} = {result};" for v, result in zip(self.vectors, results, strict=True)),
                          *(f"mgc_store_n(y + y_index + {v}, y0_{v}, n{v});" for v in self.vectors)])

    def panel_bytes(self) -> str:
        """Returns C for the bytes of a panel."""
        if not self.params.factored:
            return f"(K / {self.params.block}) * {self.block_bytes}"
        return f"(K / {SUPER_BLOCK}) * {self.shared_bytes + SUPER_BLOCK // self.params.block * self.block_bytes}"

    def scales_of_super_block(self) -> str:
        """Declares, for each vector of columns, the floats by which the scales and offsets of a super-block are
        multiplied: shared_s{v}, shared_o{v}."""
        c, names = Printer(), ("shared_s", "shared_o") if self.params.offset == "real" else ("shared_s",)
        for v in self.vectors:
            for index, name in enumerate(names):
                at = 2 * (index * self.width + v * self.lanes)
                c(f"const mgc_v {name}{v} = mgc_load_f16((const uint16_t *)(const void *)(w + {at}));")
        return c.text

    def scales_of_block(self) -> str:
        """Declares the scales s{v} and offsets o{v} of a block for each vector of columns."""
        c, params = Printer(), self.params
        if self.scope.isa.dsp and params.float16_scales:
            for index, name in enumerate("so" if params.offset else "s"):
                c(f"float {name}[4];", f"mgc_dots_quad_scales({name}, {offset('w', 8 * index)});",
                  f"const float {', '.join(f'{name}{v} = {name}[{v}]' for v in self.vectors)};")
            return c.text
        for v in self.vectors:
            column = v * self.lanes
            values = [f"s{v} = {self.float_at(column, f'shared_s{v}')}"]
            if params.offset == "zero":
                zero_points = f"mgc_iload_u8(w + {self.width * self.scale_bytes + column})"
                values.append(f"o{v} = mgc_neg(mgc_to_float({zero_points}) * s{v})")
            elif params.offset:
                values.append(f"o{v} = {self.float_at(self.width + column, f'shared_o{v}')}")
            c(f"const mgc_v {', '.join(values)};")
        return c.text

    def float_at(self, index: int, shared: str) -> str:
        """Returns C that loads the scales or offsets from number `index` of the block on, as float32. shared: the
        float by which they are multiplied if they are factored."""
        if self.params.factored:
            return f"mgc_to_float(mgc_iload_i8((const int8_t *)w + {index})) * {shared}"
        load = "mgc_load_f16((const uint16_t *)" if self.params.float16_scales else "mgc_load((const float *)"
        return f"{load}(const void *)(w + {index * self.scale_bytes}))"

    def rows_of_part(self, P: int) -> str:
        """Declares the address, sum and scale of a part of each row."""
        c, params = Printer(), self.params
        for row in range(P):
            if not self.is_quad:
                c(f"const {self.x_type} *x{row} = {offset('x', f'{row} * (ptrdiff_t)K' if row else 0)};")
            if self.reads_sums:
                c(f"const int32_t sum{row} = x_sum[{f'{row} * (ptrdiff_t)(K / {params.part})' if row else 0}];")
            if not params.block_sums:
                # If a block is shorter than the 32 elements that share a scale of x, several blocks read the same one.
                terms = [f"{row} * (ptrdiff_t)(K / 32)"] * (row > 0) + ["k / 32"] * (params.part < 32)
                c(f"const float scale{row} = x_scale[{' + '.join(terms) or 0}];")
        return c.text

    def start(self, row: int) -> str:
        """Returns C for the initial sum of a row: minus `weight_offset` times the sum of x."""
        return f"sum{row} * {-self.params.weight_offset}" if self.params.weight_offset else "0"

    def sums_of_part(self, P: int) -> str:
        """Prints the products of a part, sixteen elements at a time with vectors, and adds their sums to the float
        sums."""
        if self.lanes == 1:
            return self.sums_of_columns()
        params, c = self.params, Printer()
        if sums_columns(self.scope.isa, params.bits, params.part):
            return self.sums_by_column(P)
        dots = Dots(2 if params.pairs and P % 2 == 0 else 1, params.bits)
        groups = range(0, P, dots.rows)
        c(*(f"const mgc_i start{row} = mgc_iset1({self.start(row)});" for row in range(P)))
        complements = self.complements and P > 1
        for row in groups:
            first = [f"mgc_iload_i32(compensation + {v * self.lanes})" if complements else f"mgc_dots_from(start{row})"
                     for v in self.vectors]
            c(f"mgc_dots {', '.join(f'c{row}_{v} = {first[v]}' for v in self.vectors)};")
        for i in range(params.part // 16):
            with c.block(""):
                if not self.has_x_vectors:
                    self.steps(c, P, i, dots)
                    continue
                c(*(dots.load(row, 16 * i) for row in groups))
                for v in self.vectors:
                    for step in range(4):
                        self.elements(c, v, i, step)
                    c(*(dots.add(row, v) for row in groups))
        c(f"w += {self.part_bytes};")
        for row in range(P):
            with c.block(""):
                self.add_to_results(c, row, [dots.total(row, v) for v in self.vectors])
        return c.text

    def add_to_results(self, c: Printer, row: int, totals: Sequence[str]) -> None:
        """Prints the additions of a part's sums to the float sums of a row. totals: C, a vector of int32 for each
        vector of columns."""
        params = self.params
        if not params.block_sums:
            # f: the scale of x; t: the sum of x as float, by which offsets are multiplied.
            t = f", t = mgc_set1(scale{row} * (float)sum{row})" if params.offset else ""
            c(f"const mgc_v f = mgc_set1(scale{row}){t};")
        for v, total in zip(self.vectors, totals, strict=True):
            y = f"y{row}_{v}"
            scale = f"s{v}" if params.block_sums else f"(f * s{v})"
            if self.has_totals:
                c(f"t{row}_{v} = mgc_iadd(t{row}_{v}, {total});")
            else:
                c(f"{y} = {y} + mgc_to_float({total}) * {scale};")
            if params.offset:
                c(f"{y} = {y} + t * o{v};")

    def sums_by_column(self, P: int) -> str:
        """Prints the products of a part with four columns at a time, whose sums are those of instructions."""
        params, c, groups = self.params, Printer(), self.width * 16
        for row in range(P):
            with c.block(""):
                c(f"const mgc_i start = mgc_iset1({self.start(row)});")
                self.add_to_results(c, row, [
                    f"mgc_dots_columns_{params.bits}(start, x{row}, {offset('w', v * 64)}, {groups}, {params.part})"
                    for v in self.vectors])
        c(f"w += {self.part_bytes};")
        return c.text

    def sums_of_columns(self) -> str:
        """Prints the products of a part of one row for code without vectors, and adds their sums to the float sums."""
        params, c, columns = self.params, Printer(), self.vectors
        if self.is_quad:
            c(f"int32_t c[4] = {{ {', '.join([self.start(0)] * 4)} }};",
              f"mgc_dots_quad_{params.bits}(c, &x, &w, {params.part});")
        else:
            c(f"int32_t {', '.join(f'c{v} = {self.start(0)}' for v in columns)};")
        if params.bits in (5, 6):
            self.columns_of_planes(c)
        elif not self.is_quad:
            half, stride = params.part // 2, params.part // 2 * self.width  # bytes from one half of a part to the other
            with c.block(f"for (int32_t j = 0; j < {half}; j++)"):
                c(f"const int32_t a = x0[j], b = x0[j + {half}];")
                for v in columns:
                    first = offset("j", v * half)
                    products = (f"(w[{first}] & 15) * a + (w[{first}] >> 4) * b" if params.bits == 4
                                else f"w[{first}] * a + w[{offset('j', v * half + stride)}] * b")
                    c(f"c{v} += {products};")
        if not self.is_quad:
            c(f"w += {params.part * self.width * params.bits // 8};", f"x += {self.x_part};")
        for v in columns:
            total = f"c[{v}]" if self.is_quad else f"c{v}"
            scale = f"s{v}" if params.block_sums else f"(scale0 * s{v})"
            c(f"t0_{v} += {total};" if self.has_totals else f"y0_{v} += (float){total} * {scale};")
            if params.offset:
                c(f"y0_{v} += (scale0 * (float)sum0) * o{v};")
        return c.text

    def columns_of_planes(self, c: Printer) -> None:
        """Prints the products of a part for elements of 5 or 6 bits, whose upper bits follow the lower ones of all."""
        params, half = self.params, self.params.part // 2
        bits, per_byte = params.bits - 4, 8 // (params.bits - 4)
        with c.block("for (int32_t j = 0; j < 4; j++)"):
            for first in range(0, params.part, 4):
                vector = first // 4
                plane = half * self.width + vector // per_byte * 4 * self.width
                for v in self.vectors:
                    byte = f"w[{offset('j', v * half + first % half)}]"
                    low = f"({byte} & 15)" if first < half else f"({byte} >> 4)"
                    upper = f"(w[{offset('j', plane + 4 * v)}] >> {vector % per_byte * bits} & {(1 << bits) - 1})"
                    c(f"c{v} += ({low} | {upper} << 4) * x0[{offset('j', first)}];")

    def steps(self, c: Printer, P: int, i: int, dots: Dots) -> None:
        """Prints the products of the sixteen elements from 16 * i on, four at a time for all rows and vectors: the
        compiler keeps what is loaded until its last use, and more would take registers of the sums."""
        for step in range(4):
            function, elements = dots.function, [f"q{v}_{step}" for v in self.vectors]
            for v in self.vectors:
                self.elements(c, v, i, step)
            if self.complements and P > 1:
                function, elements = "mgc_dots_8_complement", [f"a{v}_{step}, g{v}_{step}" for v in self.vectors]
                c(*(f"const mgc_i a{v}_{step} = mgc_magnitudes(q{v}_{step}), "
                    f"g{v}_{step} = mgc_negative_bytes(q{v}_{step});" for v in self.vectors))
            for row in range(P):
                x = offset(f"x{row}", 16 * i + 4 * step)
                c(*(f"c{row}_{v} = {function}(c{row}_{v}, {elements[v]}, {x});" for v in self.vectors))

    def compensation(self) -> str:
        """Prints the sums of mgc_dots_8_compensate for a part of all columns, and stores them."""
        c = Printer()
        for v in self.vectors:
            c(f"mgc_i c{v} = mgc_iset1(0);")
        for i in range(self.params.part // 16):
            for v in self.vectors:
                with c.block(""):
                    for step in range(4):
                        self.elements(c, v, i, step)
                        c(f"c{v} = mgc_dots_8_compensate(c{v}, q{v}_{step});")
        c(*(f"mgc_istore_i32(compensation + {v * self.lanes}, c{v});" for v in self.vectors))
        return c.text

    def elements(self, c: Printer, v: int, i: int, step: int) -> None:
        """Declares q{v}_{step}, one of the four 8-bit vectors of the part's sixteen elements from 16 * i on of each
        column of vector v.

        One loaded vector holds the lower four bits of two of them, so for less than 8 bits an even step declares
        q{v}_{step} and q{v}_{step + 1}, and an odd step nothing. h{v} has the upper bits of elements with 5 or 6 bits,
        of four or eight vectors.
        """
        # mgc_bytes_at loads 4 * lanes bytes: `group` neighbouring elements of each of some columns. The vectors of all
        # columns with the first `group` elements are followed, `stride` bytes on, by those with the next. With pairs
        # (SMMLA) a vector of 16 bytes has two columns: q0 and q1 are both groups of the first two columns of v, q2 and
        # q3 those of the last two. A byte of 4-bit elements has one of a group in its low bits, and that of the next
        # group in its high bits.
        group = 8 if self.params.pairs else 4
        bits, stride, first = self.params.bits, self.width * group, i * self.sixteen_bytes + v * self.lanes * group
        if bits == 8:
            offsets = (0, stride, 16, stride + 16) if self.params.pairs else (0, stride, 2 * stride, 3 * stride)
            c(f"const mgc_i q{v}_{step} = mgc_bytes_at(w + {first + offsets[step]});")
        elif step % 2 == 0:
            half = step // 2
            c(f"const mgc_i w{v}_{half} = mgc_bytes_at(w + {first + (0, 16 if self.params.pairs else stride)[half]});")
            lower: tuple[str, ...] = f"mgc_low_int4(w{v}_{half})", f"mgc_high_int4(w{v}_{half})"
            if bits > 4:
                if step == 0:
                    upper = self.sixteen_bytes * (self.params.part // 16) + 4 * self.lanes * v
                    c(f"const mgc_i h{v} = mgc_bytes_at(w + {upper + (4 * self.width * i if bits == 6 else 0)});")
                at = step + (4 * i if bits == 5 else 0)
                lower = tuple(f"mgc_upper_{bits}({each}, h{v}, {at + odd})" for odd, each in enumerate(lower))
            c(f"const mgc_i q{v}_{step} = {lower[0]}, q{v}_{step + 1} = {lower[1]};")
