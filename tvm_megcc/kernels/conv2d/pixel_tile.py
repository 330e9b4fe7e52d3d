# SPDX-License-Identifier: Apache-2.0
"""The register tiles of `conv2d/pixels`: P vectors of neighbouring pixels by C output channels. `a{p}_{o}` is the sum
of vector p and channel o. A depthwise tile is R rows of P vectors of one channel, with sums `a{r}_{p}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..microkernel.printer import Printer, joined, offset
from ..microkernel.tile import Count, Multiply
from ..parameters import Scope
from .neon_lanes import NeonLanes

if TYPE_CHECKING:
    from .pixels import PixelParameters

#: The least and the most taps of a window for which depthwise tiles compute two output rows at once.
MIN_ROW_TAPS, MAX_ROW_TAPS = 4, 25


class PixelTile:
    """Prints the functions of the tiles of `pixels.c.j2`, and their calls.

    `params` are the template's parameters (`PixelParameters`): the window (`kh`, `kw`, `sh`, `sw`, `dh`, `dw`), `bias`,
    `in_place` (pixels are read from x, not from a copy) and `tiling`, which chooses the tiles of the ISA.

    In the methods, P: vectors of pixels. C: output channels. W: channels in a block of weights, a number or the C
    variable `width`. c: the printer.
    """

    def __init__(self, params: PixelParameters, scope: Scope):
        known, tiling, self.lanes = scope.known, params.tiling, scope.isa.lanes
        self.params, self.scope = params, scope
        #: The rows and columns of the window (`Window`).
        self.window = params.taps
        #: The number of taps of the window.
        self.taps = params.kh * params.kw
        #: Whether the channels are known, so that tiles are chosen for them.
        self.speed = None not in (known.OC, known.IC)
        #: Whether the size of y is not known.
        self.any_row = None in (known.OW, known.OH)
        #: Whether some extent that a tile needs is known at run time only.
        self.is_open = self.any_row or not self.speed
        #: Input channels of a group, a number or C.
        self.ic = known.IC if self.speed else "IC"
        #: (vectors of pixels, output channels) of the largest tile.
        self.max_tile = tiling.pixel_tile(known.OW, known.OC) if self.speed else tiling.compact_pixel_tile()
        #: (vectors of a tile, number of such tiles) along a row.
        self.runs: tuple[tuple[int, int], ...] = ()
        if self.speed:
            self.runs = tiling.any_length_pixel_runs(self.max_tile[0]) if self.any_row else \
                tiling.pixel_runs(known.OW, self.max_tile[0])
        #: The number of stride phases (column % sw) in the copy of x, which is [IC][rows][phases][COLUMNS]: columns of
        #: one phase are neighbours.
        self.phases = min(params.sw, self.window.columns.extent(1))
        #: Elements of y from one channel to the next.
        self.y_plane: Count = "y_plane" if self.is_open else known.OH * known.OW
        #: Whether depthwise tiles compute two output rows at once, which share rows of x. Weights are lanes of vectors
        #: of four: a window has at least 4 taps, which fill one, and at most 25 (5x5), which seven registers hold.
        self.by_rows = scope.isa.lane_fma and not self.is_open and (known.OC, known.IC) == (1, 1) \
            and MIN_ROW_TAPS <= self.taps <= MAX_ROW_TAPS
        self.multiply = Multiply(number=scope.float if scope.isa.helium else "")
        self.start = "b + c" * params.bias

    def tiles(self) -> list[str]:
        """Prints the functions of all tiles."""
        P, C = self.max_tile
        if self.by_rows:
            return [self.rows(P, R) for P, _ in self.runs for R in (2, 1)]
        if not self.speed:
            # One large tile, and tiles of a single vector or channel for what is left over.
            return [self.tile(*shape, "width") for shape in dict.fromkeys([(P, C), (1, C), (P, 1), (1, 1)])]
        shapes = [(P, C, W) for P, _ in self.runs for W, tiles in self.blocks for C, _ in tiles]
        return [self.tile(*shape) for shape in dict.fromkeys(shapes)]

    @property
    def blocks(self) -> tuple:
        """Returns (channels, tiles) of full blocks of weights and of the last one; a tile is (channels, first channel
        in the block)."""
        return self.params.tiling.pixel_blocks(self.scope.known.OC, self.max_tile[1])

    def name(self, P: int, C: int, W: Count) -> str:
        return f"tile_{P}x{C}" + (f"_w{W}" if W not in ("width", 16) else "")

    def parameters(self, first: int = 0) -> list[tuple[str, str]]:
        """Returns (declaration, argument) of each parameter of a tile's function. first: the tile's first channel,
        counted from c."""
        params, window = self.params, [("ptrdiff_t row", "row")] * (self.params.kh > 1)
        return [("const float *x", "xt"), ("ptrdiff_t plane", "plane"), *window,
                *[("ptrdiff_t phase", "phase")] * (params.sw > 1 and params.kw > 1),
                ("const float *w", offset("wc", first)), *[("const float *b", "b")] * params.bias, ("float *y", "y"),
                ("ptrdiff_t y_index", offset("y_index", self.y_step(first) if first else 0)),
                ("int32_t c", offset("group * OC + c", first)), ("int32_t n", "last"),
                *[("int32_t IC", "IC"), ("int32_t width", "width")] * (not self.speed),
                *[("ptrdiff_t y_plane", "y_plane")] * self.is_open]

    def y_step(self, channels: int, pixels: int | None = None) -> str:
        """Returns the elements of y from a pixel to the one `pixels` later and `channels` channels later."""
        if not self.is_open:
            return f"{channels * self.y_plane + (pixels or 0)}"
        return f"{channels} * y_plane" + (f" + {pixels}" if pixels is not None else "")

    def call(self, P: int, C: int, W: Count = "width", first: int = 0) -> str:
        """Prints the call of a tile for the channels from c + first on."""
        arguments = joined(argument for _, argument in self.parameters(first))
        return f"{self.name(P, C, W)}({arguments}{self.scope.ep.args});"

    def tile(self, P: int, C: int, W: Count) -> str:
        """Prints the function of a tile from channel c on, stored at y + y_index. The last vector has `n` pixels."""
        c, params, ic = Printer(), self.params, self.ic
        declarations = joined(declaration for declaration, _ in self.parameters())
        with c.function(f"static MGC_NOINLINE void {self.name(P, C, W)}({declarations}{self.scope.ep.params})"):
            c(*["(void)y_plane;"] * (self.is_open and C == 1))
            if self.is_in_assembler(P, C, W):
                c("const float *xk = x;", NeonLanes.pixel_sums(P, C, W, ic // 4, self.start))
                if ic % 4:
                    with c.block(f"for (int32_t k = 0; k < {ic % 4}; k++, xk += plane, w += {W})"):
                        self.step(c, P, C, W, 0)
            else:
                for o in range(C):
                    first = f"mgc_set1(b[{offset('c', o)}])" if params.bias else "mgc_zero()"
                    c("mgc_v " + joined([f"a0_{o} = {first}", *(f"a{p}_{o} = a0_{o}" for p in range(1, P))]) + ";")
                self.sums(c, P, C, W)
            for o in range(C):
                stores = [(f"a{p}_{o}", f"y_index + {self.y_step(o, p * self.lanes)}") for p in range(P)]
                self.store(c, stores, offset("c", o))
            c("(void)c, (void)plane;")
        return c.text

    def is_in_assembler(self, P: int, C: int, W: Count) -> bool:
        """Returns whether the loop over input channels is that of `NeonLanes.pixel_sums`, which loads up to four
        vectors of pixels and one or two whole vectors of weights at once."""
        return self.params.tiling.assembler and self.speed and self.taps == 1 and P <= 4 and C in (4, 8) \
            and self.ic >= 4 and W % 4 == 0

    def sums(self, c: Printer, P: int, C: int, W: Count) -> None:
        """Prints the sums over all input channels, 16 at a time. x moves on from block to block."""
        ic = self.ic
        if self.taps == 1:
            self.block(c, P, C, W, ic)
        elif self.speed:
            if ic >= 16:
                with c.block(f"for (int32_t i0 = 0; i0 < {ic // 16}; i0++)"):
                    self.block(c, P, C, W, 16)
                    c("x += 16 * plane;")
            if ic % 16:
                self.block(c, P, C, W, ic % 16)
        else:
            with c.block("for (int32_t i0 = 0; i0 < IC; i0 += 16)"):
                c("const int32_t channels = IC - i0 < 16 ? IC - i0 : 16;")
                self.block(c, P, C, W, "channels")
                c("x += 16 * plane;")

    def block(self, c: Printer, P: int, C: int, W: Count, n: Count) -> None:
        """Prints the sums over all taps of `n` input channels."""
        kh, kw, dw, sw = self.params.kh, self.params.kw, self.params.dw, self.params.sw
        # In the copy, column j * dw of the window is in phase j * dw % sw, of which it is column j * dw / sw.
        column = f" + j * {dw}" if sw == 1 else f" + j * {dw} % {sw} * phase + j * {dw} / {sw}"
        with c.loop("i", kh), c.block(f"for (int32_t j = 0; j < {kw}; j++)" if kw > 1 else ""):
            c(f"const float *xk = x{' + i * row' * (kh > 1)}{column * (kw > 1)};")
            if isinstance(n, int) and n <= 4:
                for k in range(n):
                    with c.block(""):
                        self.step(c, P, C, W, k)
                c(f"w += {n * W};")
            else:
                with c.block(f"for (int32_t k = 0; k < {n}; k++, xk += plane, w += {W})"):
                    self.step(c, P, C, W, 0)

    def step(self, c: Printer, P: int, C: int, W: Count, k: int) -> None:
        """Prints the products of input channel k, counted from that at xk, with a row of weights."""
        x = f"xk + {k} * plane" if k else "xk"
        c(*(f"const mgc_v x{p} = mgc_load({offset(x, p * self.lanes)});" for p in range(P)))
        for o in range(C):
            c(self.multiply.load(f"w{o}", f"w[{f'{k * W} + {o}' if k else o}]"),
              *(self.multiply.add(f"a{p}_{o}", f"x{p}", f"w{o}") for p in range(P)))

    def rows(self, P: int, R: int) -> str:
        """Prints the function of R rows of P vectors of pixels of one channel, stored at y + y_index."""
        c, params, taps, L, known = Printer(), self.params, self.taps, self.lanes, self.scope.known
        with c.function(f"static MGC_NOINLINE void rows_{P}x{R}(const float *x, const float *w"
                        f"{', const float *b' * params.bias}, float *y, ptrdiff_t y_index, int32_t c, int32_t n"
                        f"{self.scope.ep.params})"):
            # Vectors w0, w4, … of four weights. The last one ends with the last weight, so it may repeat others.
            c(*(f"const mgc_v w{t} = mgc_load({offset('w', min(t, taps - 4))});" for t in range(0, taps, 4)))
            sums = [f"a{r}_{p}" for r in range(R) for p in range(P)]
            c("mgc_v " + joined([f"a0_0 = {'mgc_set1(b[c])' if params.bias else 'mgc_zero()'}",
                                 *(f"{total} = a0_0" for total in sums[1:])]) + ";")
            # row: of x; uses: (output row, row of the window) of each product that reads it.
            for row, uses in self.window.rows.reads(R):
                for j in range(params.kw):
                    column = j * params.dw
                    # The index in the copy of a channel, [rows][phases][COLUMNS].
                    first_column = (row * self.phases + column % params.sw) * known.COLUMNS + column // params.sw
                    with c.block(""):
                        c(*(f"const mgc_v x{p} = mgc_load(x + {first_column + p * L});" for p in range(P)))
                        for r, i in uses:
                            tap = i * params.kw + j
                            first = tap // 4 * 4
                            lane = tap - min(first, taps - 4)
                            c(*(f"a{r}_{p} = mgc_fma_lane(a{r}_{p}, x{p}, w{first}, {lane});" for p in range(P)))
            for r in range(R):
                self.store(c, [(f"a{r}_{p}", f"y_index + {r * known.OW + p * L}") for p in range(P)], "c")
            c("(void)c;")
        return c.text

    def store(self, c: Printer, sums: list[tuple[str, str]], channel: str) -> None:
        """Prints the stores of vectors of pixels of a channel. sums: (sum, its index in y), both C. The last vector has
        `n` valid pixels."""
        for total, index in sums[:-1]:
            c(f"mgc_store(y + {index}, {self.scope.ep(total, channel=channel, offset=index, one_channel=True)});")
        total, index = sums[-1]
        result = self.scope.ep(total, channel=channel, offset=index, n='n', one_channel=True)
        c(f"mgc_store_n(y + {index}, {result}, n);")
