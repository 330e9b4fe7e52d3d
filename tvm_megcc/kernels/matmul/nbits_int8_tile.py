# SPDX-License-Identifier: Apache-2.0
"""The tiles of `matmul/nbits_int8`: P rows of x by a panel of columns. `y{p}_{v}` are the float sums of row p and
vector v of columns. `c{p}_{v}` are the integer sums of a part of a block; several lanes hold terms of one column. The
other C variables are the template's: `k` is the block's first element; `w` points to the next scales or elements of the
panel; `x` and `x_sum` to the part's elements in the first row and their sum; `x_scale` to its scale or, if parts have
less than 32 elements, to the row's first scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..microkernel.panel_tile import PanelTile
from ..microkernel.printer import Printer, offset
from ..parameters import Scope

if TYPE_CHECKING:
    from .nbits import NBitsInt8Parameters


@dataclass(frozen=True)
class Dots:
    """Dot products of sixteen elements of x with sixteen elements of each column, which are four vectors `q{v}_0` to
    `q{v}_3`. rows: rows of x that an instruction multiplies, 1 or 2 (SMMLA). bits: of a weight, 4 or 8. The functions
    mgc_dots_ are those of megcc_blocks.h. Two rows that SMMLA multiplies have one variable for their sums.
    """

    rows: int
    bits: int

    def load(self, p: int, first: int) -> str:
        """Declares the vectors of elements [first, first + 16) of the rows from p on."""
        x = [offset(f"x{row}", first) for row in range(p, p + self.rows)]
        if self.rows == 1:
            return f"const mgc_dots_input x{p}_0 = mgc_dots_x({x[0]});"
        loads = (f"x{p}_{part} = mgc_dots_x_pair({x[0]}, {x[1]}, {part})" for part in range(2))
        return f"const int8x16_t {', '.join(loads)};"

    def add(self, p: int, v: int) -> str:
        """Adds the products of the rows from p on and vector v of columns to their sums."""
        function, x = ("pair", f"x{p}_0, x{p}_1") if self.rows == 2 else (self.bits, f"x{p}_0")
        return f"c{p}_{v} = mgc_dots_{function}(c{p}_{v}, q{v}_0, q{v}_1, q{v}_2, q{v}_3, {x});"

    def total(self, p: int, v: int) -> str:
        """Returns C for the sums of row p, with one lane for each column."""
        return (f"mgc_dots_row(c{p - p % 2}_{v}, {p % 2}, start{p})" if self.rows == 2 else
                f"mgc_dots_sum_{self.bits}(c{p}_{v}, start{p})")


def scale_and_offset_bytes(offset: str, float16_scales: bool) -> int:
    """Returns the bytes of the scale and the offset of a block of one column. offset: as in `NBitsInt8Parameters`."""
    scale = 2 if float16_scales else 4
    return scale + {"": 0, "real": scale, "zero": 1}[offset]


class NBitsInt8Tile(PanelTile):
    """Prints the steps of a tile for a block, or a part of a block, of each row and vector.

    `p` are the template's parameters (`NBitsInt8Parameters`):
        bits: the bits of a weight.
        part: the number of elements of x that one step of the loop sums as int32.
        block_sums: x has no scales, so the sums of the parts of a block are added as integers and scaled once;
            otherwise each part is scaled by its scale of x.
        offset: "real", "zero" (zero points) or "" (none).
        float16_scales: scales and real offsets are float16, not float32.
        weight_offset: the number by which stored elements exceed the weights.
        vectors: the vectors of columns of a panel.
        rows: the rows of the tallest tile.
        pairs: rows are multiplied two at a time (SMMLA).
    """

    def __init__(self, params: NBitsInt8Parameters, scope: Scope):
        super().__init__(params.vectors, scope)
        p = self.p = params
        self.lanes = scope.isa.lanes
        #: Columns of a panel.
        self.width = p.vectors * scope.isa.lanes
        #: The numbers of rows of tiles, the largest first.
        self.heights = (p.rows, 1) if p.rows > 1 else (1,)
        #: Bytes of a scale, and of an offset that is a float.
        self.scale_bytes = 2 if p.float16_scales else 4
        #: Bytes of the scales and offsets of a block, for all columns of a panel.
        self.scales_bytes = self.width * scale_and_offset_bytes(p.offset, p.float16_scales)
        #: Bytes of sixteen elements of each column of a panel.
        self.sixteen_bytes = 16 * self.width * p.bits // 8
        #: Bytes of a block of a panel: scales and offsets, then elements.
        self.block_bytes = self.scales_bytes + p.block * self.width * p.bits // 8
        #: Whether a block has several parts whose int32 sums are added, in `t{p}_{v}`, before they are scaled.
        self.has_totals = p.block_sums and p.block > p.part
        #: Whether an instruction takes four elements of x from a vector of sixteen (Arm); else they are loaded into all
        #: lanes.
        self.has_x_vectors = bool(scope.isa.dot_product)
        #: Whether the sums of parts of x are read.
        self.reads_sums = bool(p.weight_offset or p.offset)

    def scales_of_block(self) -> str:
        """Declares the scales s{v} and offsets o{v} of a block for each vector of columns."""
        c, p = Printer(), self.p
        for v in self.vectors:
            column = v * self.lanes
            values = [f"s{v} = {self.float_at(column)}"]
            if p.offset == "zero":
                zero_points = f"mgc_iload_u8(w + {self.width * self.scale_bytes + column})"
                values.append(f"o{v} = mgc_neg(mgc_to_float({zero_points}) * s{v})")
            elif p.offset:
                values.append(f"o{v} = {self.float_at(self.width + column)}")
            c(f"const mgc_v {', '.join(values)};")
        return c.text

    def float_at(self, index: int) -> str:
        """Returns C that loads the scales or offsets from number `index` of the block on, as float32."""
        load = "mgc_load_f16((const uint16_t *)" if self.p.float16_scales else "mgc_load((const float *)"
        return f"{load}(const void *)(w + {index * self.scale_bytes}))"

    def rows_of_part(self, P: int) -> str:
        """Declares the address, sum and scale of a part of each row."""
        c, p = Printer(), self.p
        for row in range(P):
            c(f"const int8_t *x{row} = {offset('x', f'{row} * (ptrdiff_t)K' if row else 0)};")
            if self.reads_sums:
                c(f"const int32_t sum{row} = x_sum[{f'{row} * (ptrdiff_t)(K / {p.part})' if row else 0}];")
            if not p.block_sums:
                # If a block is shorter than the 32 elements that share a scale of x, several blocks read the same one.
                terms = [f"{row} * (ptrdiff_t)(K / 32)"] * (row > 0) + ["k / 32"] * (p.part < 32)
                c(f"const float scale{row} = x_scale[{' + '.join(terms) or 0}];")
        return c.text

    def start(self, row: int) -> str:
        """Returns C for the initial sum of a row: what stored elements exceed the weights by is subtracted."""
        return f"sum{row} * {-self.p.weight_offset}" if self.p.weight_offset else "0"

    def sums_of_part(self, P: int) -> str:
        """Prints the products of a part, sixteen elements at a time, and adds their sums to the float sums."""
        c, p, dots = Printer(), self.p, Dots(2 if self.p.pairs and P % 2 == 0 else 1, self.p.bits)
        groups = range(0, P, dots.rows)
        c(*(f"const mgc_i start{row} = mgc_iset1({self.start(row)});" for row in range(P)))
        for row in groups:
            c(f"mgc_dots {', '.join(f'c{row}_{v} = mgc_dots_from(start{row})' for v in self.vectors)};")
        for i in range(p.part // 16):
            with c.block(""):
                if not self.has_x_vectors:
                    self.steps(c, P, i)
                    continue
                c(*(dots.load(row, 16 * i) for row in groups))
                for v in self.vectors:
                    self.elements(c, v, i * self.sixteen_bytes)
                    c(*(dots.add(row, v) for row in groups))
        c(f"w += {self.sixteen_bytes * (p.part // 16)};")
        for row in range(P):
            with c.block(""):
                if not p.block_sums:
                    # f: the scale of x; t: the sum of x as float, by which offsets are multiplied.
                    t = f", t = mgc_set1(scale{row} * (float)sum{row})" if p.offset else ""
                    c(f"const mgc_v f = mgc_set1(scale{row}){t};")
                for v in self.vectors:
                    y, total = f"y{row}_{v}", dots.total(row, v)
                    scale = f"s{v}" if p.block_sums else f"(f * s{v})"
                    if self.has_totals:
                        c(f"t{row}_{v} = mgc_iadd(t{row}_{v}, {total});")
                    else:
                        c(f"{y} = {y} + mgc_to_float({total}) * {scale};")
                    if p.offset:
                        c(f"{y} = {y} + t * o{v};")
        return c.text

    def steps(self, c: Printer, P: int, i: int) -> None:
        """Prints the products of the sixteen elements from 16 * i on, four at a time for all rows and vectors: the
        compiler keeps what is loaded until its last use, and more would take registers of the sums."""
        for step in range(4):
            for v in self.vectors:
                self.elements_of_step(c, v, i * self.sixteen_bytes, step)
            for row in range(P):
                x = offset(f"x{row}", 16 * i + 4 * step)
                c(*(f"c{row}_{v} = mgc_dots_{self.p.bits}(c{row}_{v}, q{v}_{step}, {x});" for v in self.vectors))

    def elements(self, c: Printer, v: int, first: int) -> None:
        """Declares the four 8-bit vectors of sixteen elements of each column of vector v. first: bytes from w to the
        elements of the first column of the panel."""
        for step in range(4):
            self.elements_of_step(c, v, first, step)

    def elements_of_step(self, c: Printer, v: int, first: int, step: int) -> None:
        """Declares q{v}_{step}, one of the four vectors that `elements` declares. One loaded vector holds two of 4-bit
        elements, so an even step declares q{v}_{step} and q{v}_{step + 1}, and an odd step nothing."""
        # Sixteen elements of each column are stored as [16 / group][columns][group], `stride` elements from one group
        # to the next. A vector has 16 elements: `group` of each of its columns. With pairs, the columns of vector v
        # take two such vectors in a group, 16 elements apart: q0, q2 are of the first group, q1, q3 of the second.
        # A byte of 4-bit elements has one of a group in its low bits, and that of the next group in its high bits.
        group = 8 if self.p.pairs else 4
        stride, first = self.width * group, first + v * self.lanes * group
        if self.p.bits == 8:
            offsets = (0, stride, 16, stride + 16) if self.p.pairs else (0, stride, 2 * stride, 3 * stride)
            c(f"const mgc_i q{v}_{step} = mgc_bytes_at(w + {first + offsets[step]});")
        elif step % 2 == 0:
            i = step // 2
            c(f"const mgc_i w{v}_{i} = mgc_bytes_at(w + {first + (0, 16 if self.p.pairs else stride)[i]});",
              f"const mgc_i q{v}_{step} = mgc_low_int4(w{v}_{i}), q{v}_{step + 1} = mgc_high_int4(w{v}_{i});")
