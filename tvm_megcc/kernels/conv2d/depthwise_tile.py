# SPDX-License-Identifier: Apache-2.0
"""The tiles of `conv2d/depthwise`: neighbouring pixels of a row, a vector of channels each. `a{p}` is the sum of pixel
p, `w{tap}` a vector of weights, `v{row}_{column}` an input. Each load of x serves all pixels that it reaches."""

from __future__ import annotations

from ..microkernel.printer import Printer, joined
from ..microkernel.tile import Count, times
from ..parameters import Scope
from ..tiling import Run
from .rvv_windows import RvvWindows

#: The maximum of taps in a window that the code unrolls: 5x5.
MAX_UNROLLED_TAPS = 25
#: The maximum of rows in a window whose addresses fit in the general registers of a statement in assembler.
MAX_ASSEMBLER_ROWS = 9
#: The maximum of columns in a window whose tiles in nhwc have as many pixels as there are registers for.
MAX_WIDE_COLUMNS = 7
#: The maximum of pixels in a tile that loops over the rows of the window, unless the length of a row is known.
MAX_LOOP_PIXELS = 4
#: Bytes of an input that stays in a small L1 cache.
L1_BYTES = 16384


class DepthwiseTile(RvvWindows):
    """Prints the functions of the tiles, and their calls for a row of the output. c: the printer. P: pixels.

    `params` are the template's parameters (`DepthwiseParameters`): the window (`kh`, `kw`, `sh`, `sw`, `dh`, `dw`),
    `bias`, `channels_last` (the layout is nhwc, not nchwc) and `tiling`, which chooses the tiles of the ISA.
    """

    def __init__(self, params, scope: Scope):
        self.params, self.scope, self.bias, self.lanes = params, scope, params.bias, scope.isa.lanes
        self.kh, self.kw = params.kh, params.kw
        #: The window along a column of x: its rows (`Taps`).
        self.rows = params.taps.rows
        #: The window along a row of x: its columns (`Taps`).
        self.columns = params.taps.columns
        known, tiling = scope.known, params.tiling
        #: The number of taps of the window.
        self.taps = self.kh * self.kw
        self.channels_last, channels = params.channels_last, known.C
        #: Elements from one pixel to the next.
        self.pixel: Count = (channels or "pixel") if self.channels_last else self.lanes
        #: Whether there are vectors of channels whose lanes are all valid.
        self.has_whole = not self.channels_last or channels is None or channels >= self.lanes
        #: Whether the last vector of channels has only `n` valid lanes; never in nchwc, which has pad lanes.
        self.has_tail = self.channels_last and self.lanes > 1 and (channels is None or channels % self.lanes > 0)
        #: Whether all weights of a tile stay in registers, not only those of one row of the window.
        self.keeps_weights = tiling.keeps_weights(self.taps)
        self.weight_registers = self.taps if self.keeps_weights else self.kw
        #: Registers of a register group (LMUL): `isa.registers` counts the groups among RISC-V's 32 registers.
        self.group = 32 // scope.isa.registers
        #: Whether the rows of the window are unrolled, and sums and weights lie in registers.
        self.in_registers = self.taps <= MAX_UNROLLED_TAPS and known.C is not None and not self.channels_last
        #: Whether the length of a row is known at run time only.
        self.any_row = self.in_registers and None in (known.OW, known.IW)
        # A sum and an element of x need registers beside the weights of a row of the window.
        row_fits_registers = self.keeps_weights or self.kw + 2 <= tiling.registers
        # After the assembler, the epilogue reads the sums from y: y must not be the memory of a full operand, too.
        has_full_operand = any(operand.kind == "full" for operand in scope.ep.operands)
        #: Whether the tiles are in assembler for RISC-V. Each row of the window needs an address in a general register.
        self.in_assembler = self.in_registers and scope.isa.wide and self.kh <= MAX_ASSEMBLER_ROWS \
            and row_fits_registers and not has_full_operand
        max_pixels = tiling.max_window_pixels(self.taps, self.kw)
        #: The tiles along a row.
        self.runs: tuple[Run, ...] = ()
        if self.in_registers:
            self.runs = tiling.any_length_runs(max_pixels) if self.any_row else \
                tiling.runs(known.OW, known.IW, known.PL, self.columns, max_pixels)
        #: Whether a tile goes down the rows whose windows lie inside x, so that it loads its weights once. With several
        #: tiles in a row, it does so only if a channel block of the input stays in L1.
        self.down = self.in_assembler and not self.any_row and (len(self.runs) == 1 or (
            known.IH is not None and 4 * self.lanes * known.IH * known.IW <= L1_BYTES))
        #: The tiles that loop over the rows of the window: the widest, and that of one pixel.
        self.row_tiles = tuple(Run(pixels, count=0, missing=()) for pixels in (
            min(tiling.max_window_pixels(self.kw), MAX_LOOP_PIXELS), 1))
        #: The tiles along a row of known length, which also loop over the rows of the window, without the taps that
        #: fall outside the row; empty if the length is known at run time only.
        self.row_runs: tuple[Run, ...] = ()
        if self.channels_last and not scope.compact and None not in (known.C, known.OW, known.IW):
            most = tiling.max_window_pixels(self.kw) if self.kw <= MAX_WIDE_COLUMNS else self.row_tiles[0].pixels
            self.row_runs = tiling.runs(known.OW, known.IW, known.PL, self.columns, most)

    def name(self, run: Run) -> str:
        """Returns the name of the function, such as `tile_4_0_1`: 4 pixels, whose columns 0 and 1 are padding."""
        return "_".join(map(str, ("tile", run.pixels, *run.missing)))

    def functions(self) -> list[str]:
        """Prints the functions of all tiles."""
        if not self.in_registers:
            runs = {self.name(run): run for run in self.row_runs or self.row_tiles}
            return [self.rows_tile(run, n) for run in runs.values() for n in self.valid_lanes]
        return [self.tile(run) for run in {self.name(run): run for run in self.runs}.values()]

    def call(self, run: Run, x_offset: str, count: str) -> str:
        """Prints the call of `count` tiles of a run. x_offset: C, such as ` + 16`:
        elements from each x{i} to the window of the first pixel."""
        x = joined(f"x{i}{x_offset}" for i in range(self.kh))
        if not self.in_assembler:
            return f"{self.name(run)}({x}, w_block, width{', bias' * self.bias}, y, y_index, c, {count}" \
                   f"{self.scope.ep.args});"
        pixels, L = run.count * run.pixels, self.lanes
        down = f", rows, {self.params.sh} * row_stride - {pixels * self.params.sw * L}, " \
               f"(ptrdiff_t)OW * {L} - {pixels * L}"
        return f"{self.name(run)}({x}, w_block{', b + c' * self.bias}, y + y_index, {count}{down * self.down});"

    def row(self) -> str:
        """Prints the calls for a row of known length."""
        c, column = Printer(), -self.scope.known.PL
        for run in self.runs:
            x_offset = f" {'-' if column < 0 else '+'} {abs(column) * self.lanes}" if column else ""
            c(self.call(run, x_offset, str(run.count)), f"y_index += {run.count * run.pixels * self.lanes};")
            column += run.count * run.pixels * self.params.sw
        return "\n".join(c.lines[:-1])  # after the last run, nothing reads y_index

    def tile(self, run: Run) -> str:
        """Prints the function of `count` tiles of a run."""
        c, ep, float_, L = Printer(), self.scope.ep, self.scope.float, self.lanes
        head = f"static MGC_NOINLINE void {self.name(run)}({joined(f'const {float_} *x{i}' for i in range(self.kh))}, "
        if self.in_assembler:
            bias = f", const {float_} *b" * self.bias
            with c.function(f"{head}const {float_} *w{bias}, {float_} *to,\nptrdiff_t count"
                            f"{', ptrdiff_t rows, ptrdiff_t x_row, ptrdiff_t y_row' * self.down})"):
                c(self.tiles(run, self.down))
            return c.text
        with c.function(f"{head}const {float_} *w, int32_t width{', mgc_v bias' * self.bias},\n"
                        f"{float_} *y, ptrdiff_t y_index, int32_t c, int32_t count{ep.params})"):
            used_columns = self.columns.used(run.pixels, run.missing)
            c(*(f"const mgc_v w{tap} = mgc_load(w + {tap} * width);"
                for tap in range(self.taps * self.keeps_weights) if tap % self.kw in used_columns))
            with c.block("for (int32_t i = 0; i < count; i++)"):
                self.begin(c, run.pixels)
                for i in range(self.kh):
                    self.products(c, run, i)
                    c(f"x{i} += {run.pixels * self.params.sw * L};")
                self.store(c, run.pixels)
                c(f"y_index += {run.pixels * L};")
            c("(void)c, (void)w, (void)width;")
        return c.text

    @property
    def valid_lanes(self) -> list[str]:
        """The valid lanes of the vectors that occur: "" for all, "n" for fewer."""
        return [""] * self.has_whole + ["n"] * self.has_tail

    def takes_taps(self, run: Run) -> bool:
        """Returns whether the tile is one pixel whose window has the taps from `left` to `right`."""
        return run.pixels == 1 and not self.row_runs

    def rows_call(self, run: Run, n: str = "") -> str:
        """Prints the call of `rows_tile` with the C variables x_row, iw, rows, w_row, width and, for one pixel of a row
        of unknown length, left and right. n: C, the valid lanes; empty: all."""
        c = " + c" * self.channels_last
        arguments = joined([f"x_row + (ptrdiff_t)iw * {self.pixel}{c}", f"{self.params.dh} * row_stride, rows",
                            "w_row, width",
                            self.bias and ("mgc_load(b + c)" if self.channels_last else "bias"),
                            self.takes_taps(run) and "left, right", f"y, y_index{c}, c",
                            self.pixel == "pixel" and "pixel", n])
        return f"{self.name(run)}{'_n' * bool(n)}({arguments}{self.scope.ep.args});"

    def rows_tile(self, run: Run, n: str = "") -> str:
        """Prints the function of a tile that loops over `rows` rows of the window. n: "n" if only n lanes are valid."""
        c, float_, P = Printer(), self.scope.float, run.pixels
        if not self.row_runs:
            taps = " from tap `left` to tap `right`" * (P == 1)
            c(f"/* {P} pixels whose window{taps} lies inside the row. */")
        declarations = joined([f"const {float_} *x, ptrdiff_t row, int32_t rows, const {float_} *w, int32_t width",
                               self.bias and "mgc_v bias", self.takes_taps(run) and "int32_t left, int32_t right",
                               f"{float_} *y, ptrdiff_t y_index, int32_t c",
                               self.pixel == "pixel" and "ptrdiff_t pixel", n and "int32_t n"])
        name = self.name(run) + "_n" * bool(n)
        with c.function(f"static MGC_NOINLINE void {name}({declarations}{self.scope.ep.params})"):
            self.begin(c, P)
            with c.block(f"for (int32_t i = 0; i < rows; i++, x += row, w += {self.kw} * width)"):
                if self.takes_taps(run):
                    with c.block("for (int32_t j = left; j < right; j++)"):
                        step = times(self.params.dw, self.pixel)
                        x = self.load(f"x + j * {step if isinstance(step, int) else f'({step})'}", n)
                        c(f"a0 = mgc_fma(mgc_load(w + j * width), {x}, a0);")
                else:
                    used = self.columns.used(P, run.missing)
                    c(*(f"const mgc_v w{j} = mgc_load(w + {j} * width);" for j in range(self.kw) if j in used))
                    self.products(c, run, n=n)
            self.store(c, P, n)
            c("(void)c;" + " (void)pixel;" * (self.pixel == "pixel"))
        return c.text

    def begin(self, c: Printer, P: int) -> None:
        """Declares the sums of P pixels."""
        c(*(f"mgc_v a{p} = {'bias' if self.bias else 'mgc_zero()'};" for p in range(P)))

    @staticmethod
    def load(address: str, n: str = "") -> str:
        """Returns C that loads a vector. n: its valid lanes; empty: all."""
        return f"mgc_load_n({address}, {n})" if n else f"mgc_load({address})"

    def products(self, c: Printer, run: Run, row: int | None = None, n: str = "") -> None:
        """Prints the products with a row of the window. row: its number; None: that of the loop. n: valid lanes."""
        x, v = ("x", "v") if row is None else (f"x{row}", f"v{row}_")
        for column, uses in self.columns.reads(run.pixels, run.missing):
            c(f"const mgc_v {v}{column} = {self.load(f'{x} + {times(column, self.pixel)}', n)};")
            for p, j in uses:
                tap = (row or 0) * self.kw + j
                weight = f"w{tap}" if self.keeps_weights or row is None else f"mgc_load(w + {tap} * width)"
                c(f"a{p} = mgc_fma({weight}, {v}{column}, a{p});")

    def store(self, c: Printer, P: int, n: str = "") -> None:
        """Prints the epilogue and the stores of P pixels. n: valid lanes; empty: all."""
        for p in range(P):
            c(self.scope.ep.store("y", f"y_index + {times(p, self.pixel)}", f"a{p}", channel="c", n=n) + ";")
