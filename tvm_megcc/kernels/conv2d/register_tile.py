# SPDX-License-Identifier: Apache-2.0
"""The register tiles of `conv2d/direct`: P neighbouring pixels of a row by V vectors of output channels. `a{p}_{v}` is
the sum of pixel p and vector v, `x{p}` an input of pixel p, `w{v}` a vector of weights. If one instruction takes
several vectors (`Tile.parts`), `a{p}_{v}` holds the sums of all of them, from v on. `conv2d/winograd` multiplies by the
same loops, where each position of a transform is a tap.

Tiles and their calls use C variables of direct.c.j2: `xt`, the tile's input, which is in x or in a padded copy; `plane`
and `row`, the elements from one block of channels and from one row of the window to the next, in x (`plane_now` and
`row_now`: where xt is); `w_group`, the weights of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.types import DTYPES
from ..microkernel.printer import Printer, joined, offset
from ..microkernel.tile import Count, Multiply, Tile, Vectors, quotient, remainder, times
from ..microkernel.window import Window
from ..packing import BLOCK
from ..parameters import Scope
from ..tiling import Tiling
from .neon_lanes import NeonLanes

if TYPE_CHECKING:
    from .direct import DirectParameters

#: The maximum of terms in a float16 sum before it is added to a float32 sum: 16 input channels (a block) by 3x3 taps.
MAX_FLOAT16_TERMS = 144
#: Input channels of a 1x1 convolution whose products are one float16 sum.
MAX_FLOAT16_CHANNELS = 64


class Reduction:
    """The loop nest of a tile's sums: over blocks of input channels, taps, vectors of channels, channels.

    ic: input channels of a group; None: known at run time. x_layout: kind of the input's layout.
    weights_in_l1: weights are in the L1 cache, so none is prefetched.
    part: input channels that a call sums over; 0: all.
    weights: the dtype of stored weights, if it is narrower than that of the products, else "".
    """

    def __init__(self, scope: Scope, tiling: Tiling, window: Window, ic: int | None, x_layout: str,
                 weights_in_l1: bool = False, part: int = 0, weights: str = ""):
        isa = scope.isa
        self.scope, self.isa, self.tiling, self.ic, self.part = scope, isa, tiling, ic, part
        #: The C type of a weight in memory, and its name in functions that widen it; "" if it is not widened.
        self.weight_type = DTYPES[weights].c_type if weights else scope.float
        self.widened = DTYPES[weights].short if weights else ""
        #: The window (`Window`).
        self.window = window
        self.x_layout, self.weights_in_l1, self.stride = x_layout, weights_in_l1, window.columns.stride
        #: The number of taps of the window.
        self.taps = window.rows.count * window.columns.count
        #: Products of one output.
        self.depth: Count = ic * self.taps if ic is not None else f"(IC * {self.taps})" if self.taps > 1 else "IC"
        #: Elements of x from one pixel to the next.
        self.pixel: Count = {"nchwc": isa.lanes, "plain": 1, "nhwc": "IC" if ic is None else ic}[x_layout]
        #: Elements of x from the window of one output pixel to that of the next.
        self.x_step = times(self.stride, self.pixel)
        #: Elements of x from one vector of input channels to the next, and from one block of 16 to the next.
        self.next_vector = "plane" if x_layout == "nchwc" else isa.lanes
        self.next_block = {"nchwc": f"{16 // isa.lanes} * plane" if isa.lanes < 16 else "plane", "plain": "16 * plane",
                           "nhwc": "16"}[x_layout]
        #: Whether x is loaded as vectors, and weights are multiplied by their lanes.
        self.by_lanes = isa.lane_fma and x_layout != "plain"
        #: Whether input channels are read a vector at a time, else one by one.
        self.by_vectors = x_layout == "nchwc" or (
            x_layout == "nhwc" and (self.by_lanes or (isa.helium and not scope.compact)))
        #: Whether sums are float16, which lose precision. After some terms they are added to the float32 sums `totals`.
        self.folds = isa.is_half and (ic is None or self.depth > MAX_FLOAT16_TERMS)
        # Helium and RISC-V multiply vectors by a number in a general register.
        self.multiply = Multiply(number=scope.float if isa.helium or isa.wide else "")
        #: C, the beginning of a loop over channels, which the compiler must not unroll if it hoists loads.
        self.loop = "MGC_STEP_BY_STEP for" if tiling.hoists_loads else "for"

    def tile(self, P: int, V: int, width: int | None) -> Tile:
        """Returns the register tile of P pixels and V vectors of channels, for packed weights in blocks of `width`
        output channels, None if that is known at run time only. `Tile.parts` are the groups of vectors that one
        instruction loads or multiplies; a group is a variable in C."""
        return Tile(self.tiling, P, V, width)

    def sums(self, tile: Tile, n: Count, start: str = "", stride: str = "") -> str:
        """Declares the sums, and adds the products of `n` input channels of one tap, from xk and w on.

        start: C, address of the V initial vectors; empty: sums begin with 0.
        stride: C, floats from the initial vectors of a pixel to those of the next; empty: all pixels share them.
        """
        c, V, width = Printer(), tile.vectors, tile.width
        # NeonLanes has the loop over groups of four channels in assembler; channels after the last group follow in C.
        # counts: the values of n. In C, it is `part` or, after the last whole part, the channels that are left.
        counts = [n] if isinstance(n, int) else [self.part, self.ic % self.part]
        if self.tiling.assembler and self.x_layout == "nchwc" and self.stride == 1 and width \
                and all(count >= 4 for count in counts) and NeonLanes.covers(V, width):
            # The loop takes two groups in an iteration if their number is always even.
            even = all(count // 4 % 2 == 0 for count in counts)
            c(NeonLanes.sums(tile.pixels, V, width, steps=quotient(n, 4), even=even, plane="plane", start=start,
                             stride=stride and f"4 * ({stride})"))
            if any(count % 4 for count in counts):
                with c.block(f"for (int32_t k = 0; k < {remainder(n, 4)}; k++, w += {width})"):
                    self.step(c, tile, 0, "(xk + k)")
            return c.text
        self.begin(c, tile, start, stride)
        if self.folds:
            size = MAX_FLOAT16_CHANNELS
            with c.block(f"for (int32_t done = 0; done < {n}; done += {size})"):
                c(f"const int32_t some = {n} - done < {size} ? {n} - done : {size};")
                self.channels(c, tile, "some")
                self.fold(c, tile)
        else:
            self.channels(c, tile, n)
        return c.text

    def begin(self, c: Printer, tile: Tile, start: str, stride: str = "") -> None:
        """Declares the sums. Arguments: as in `sums`."""
        L = self.isa.lanes
        for part, vectors in tile.types:
            c(part.declared(f"a0_{v} = {part.load(start and f'{start} + {v * L}')}" for v in vectors))
            for p in range(1, tile.pixels):
                c(part.declared(f"a{p}_{v} = " + (part.load(f"{start} + {p} * ({stride}) + {v * L}") if stride else
                                                  f"a0_{v}") for v in vectors))

    def channels(self, c: Printer, tile: Tile, n: Count) -> None:
        """Prints the sums over `n` input channels of one tap, which advance w past their weights."""
        if not self.by_vectors or (self.isa.helium and not tile.width and self.x_layout == "nhwc"):
            # One input channel in each iteration: `vector` would not unroll the steps of Helium without a known width.
            x = "xk += plane" if self.x_layout == "plain" else "xk++"
            with c.block(f"{self.loop} (int32_t k = 0; k < {n}; k++, {x}, w += {tile.rows()})"):
                self.step(c, tile, 0, "xk")
            return
        vector_steps, rest = quotient(n, self.isa.lanes), remainder(n, self.isa.lanes)
        move = f"xk += {self.next_vector}"
        if vector_steps:
            with c.block(f"for (int32_t s = 0; s < {vector_steps}; s++, {move})" if vector_steps != 1 else ""):
                self.vector(c, tile)
            c(*[f"{move};"] * (vector_steps == 1 and rest != 0))
        if rest:
            with c.block(f"{self.loop} (int32_t k = 0; k < {rest}; k++, w += {tile.rows()})"):
                self.step(c, tile, 0, "(xk + k)")

    def vector(self, c: Printer, tile: Tile) -> None:
        """Prints the steps of a vector of input channels: by lanes of x, or a few in an iteration."""
        L, size, V = self.isa.lanes, len(tile.accumulators), range(tile.vectors)
        if self.by_lanes:
            with c.block(""):
                c(*(f"const mgc_v x{p} = mgc_load(xk + {self.x_offset(p, 0)});" for p in range(tile.pixels)))
                for k in range(L):
                    c(*(f"const mgc_v w{k}_{v} = {Vectors(1).load(self.weight_address(tile, k, v), self.widened)};"
                        for v in V),
                      *(f"a{p}_{v} = mgc_fma_lane(a{p}_{v}, w{k}_{v}, x{p}, {k});" for p, v in tile.accumulators))
            c(f"w += {tile.rows(L)};")
            return
        # Tiles of few sums take several channels in an iteration, so that its decrement and branch weigh less.
        single = size > 8 or not tile.width or self.scope.compact or self.tiling.hoists_loads
        unroll = 1 if single else 2 if size > 4 else 4
        with c.block(f"{self.loop} (int32_t k = 0; k < {L}; k += {unroll}, w += {tile.rows(unroll)})"):
            for k in range(unroll):
                with c.block(""):
                    self.step(c, tile, k, "(xk + k)")

    def step(self, c: Printer, tile: Tile, k: int, x: str) -> None:
        """Prints the products of input channel k after address `x` (C) of each pixel with a row of weights."""
        self.prefetch(c, tile, k)
        c(*("const " + part.declared([f"w{v} = {part.load(self.weight_address(tile, k, v), self.widened)}"])
            for v, part in tile.parts))
        for p in range(tile.pixels):
            c(self.multiply.load(f"x{p}", f"{x}[{self.x_offset(p, k)}]"),
              *(self.multiply.add(f"a{p}_{v}", f"w{v}", f"x{p}", part.suffix) for v, part in tile.parts))

    def prefetch(self, c: Printer, tile: Tile, k: int) -> None:
        """Prints prefetches of weights, because the CPU does not predict short streams: those of the next tile's
        channels if they are few (`isa.prefetch_bytes`), else those 128 rows later. A single pixel does not prefetch,
        because its loads of weights are its bottleneck."""
        max_distance, depth, L = self.isa.prefetch_bytes, self.depth, self.isa.lanes
        if max_distance and isinstance(depth, int) and tile.pixels > 1 and tile.width == 16 \
                and not (self.weights_in_l1 or self.scope.compact):
            channels = tile.vectors * L
            of_next_tile = depth >= 16 and 4 * depth * channels <= max_distance
            for channel in range(0, channels, max(16, L)):
                blocks = (channel + channels * of_next_tile) // 16
                distance = offset(f"{blocks} * 16 * (ptrdiff_t)({depth})", 16 * (k if of_next_tile else k + 128))
                # The distance is in floats, of which each holds two weights of 16 bits.
                c(f"mgc_prefetch_ahead(w, {f'({distance}) / 2' if self.widened else distance});")

    def weight_address(self, tile: Tile, k: int, v: int) -> str:
        """Returns the address of vector v of step k in the weights."""
        block, channel = tile.width or 16, v * self.isa.lanes
        text = offset(f"w + {tile.rows(k)}" if k else "w", channel % block)
        return offset(text, times(channel // block * block, self.depth) if channel >= block else 0)

    def x_offset(self, p: int, k: int) -> Count:
        """Returns the elements of x from channel 0 of the tile's first pixel to channel k of pixel p."""
        pixel = times(p * self.stride, self.pixel)
        return pixel + k if isinstance(pixel, int) else f"{pixel} + {k}"

    def total(self, tile: Tile, p: int, v: int, array: str = "totals") -> str:
        """Returns the address of a sum in an array of all sums of a tile; by default, that of the float32 sums."""
        return offset(array, (p * tile.vectors + v) * self.isa.lanes)

    def fold(self, c: Printer, tile: Tile) -> None:
        """Prints the additions of the float16 sums to `totals`, after which they begin with 0."""
        for p, v in tile.accumulators:
            c(f"mgc_fold({self.total(tile, p, v)}, a{p}_{v});", f"a{p}_{v} = mgc_zero();")


class DirectTile(Reduction):
    """Prints the functions of the tiles of `direct.c.j2`, and their calls.

    `params` are the template's parameters (`DirectParameters`): the window (`kh`, `kw`, `sh`, `sw`, `dh`, `dw`),
    `bias`, the layouts `x_layout` and `y_layout`, `block`, the output channels in a block of weights, `vpad` and
    `hpad`, some window reaches outside x, `cache_block`, the weights that stay in L1, and `tiling`, which chooses the
    tiles of the ISA.
    """

    def __init__(self, params: DirectParameters, scope: Scope):
        ic, cache_block, oc, lanes = scope.fixed.IC, params.cache_block, scope.fixed.OC, scope.isa.lanes
        super().__init__(scope, params.tiling, params.taps, ic, params.x_layout,
                         part=cache_block.depth if cache_block and ic is not None and cache_block.depth < ic else 0,
                         weights=params.weights)
        self.params, self.float, self.is_nhwc = params, scope.float, params.y_layout == "nhwc"
        self.is_known = not self.is_nhwc and None not in (scope.fixed.OH, scope.fixed.OW)
        #: Elements from one block of output channels to the next.
        self.y_plane: Count = scope.fixed.OH * scope.fixed.OW * lanes if self.is_known else "y_plane"
        #: Whether y is nhwc, and some vector has lanes after the last channel.
        self.is_partial = self.is_nhwc and lanes > 1 and (oc is None or oc % lanes > 0)
        #: Whether float16 sums are folded after each row of a window, not after all of its taps.
        self.folds_rows = self.folds and BLOCK * self.taps > MAX_FLOAT16_TERMS and params.kh > 1

    def parameters(self, tile: Tile) -> list[tuple[str, str]]:
        """Returns the declarations and arguments of those parameters that only some tiles have."""
        return [*[("ptrdiff_t plane", "plane_now")] * (self.x_layout != "nhwc"),
                *[("ptrdiff_t row", "row_now")] * (self.params.kh > 1),
                *[("int32_t top", "top"), ("int32_t rows", "rows")] * self.params.vpad,
                *[("int32_t IC", "IC")] * (self.ic is None), *[("int32_t width", "width")] * (not tile.width),
                *[("ptrdiff_t y_plane", "y_plane")] * (not self.is_nhwc and not self.is_known),
                *[("ptrdiff_t y_pixel", "y_pixel")] * self.is_nhwc, *[("int32_t oc_end", "OC")] * self.is_partial,
                *[("int32_t ic", "ic"), (f"{self.float} *partial", "partial")] * bool(self.part)]

    def call(self, P: int, V: int, width: int | None, x: str = "xt", pixel: str = "") -> str:
        """Prints the call of a tile for the output channels from oc on. x: C, address of its input. pixel: C, the
        number of its first pixel after ow. variables that it reads: oc, ow, K, w_group, channel, y_row, y_plane,
        y_pixel, plane_now, row_now, top, rows, width; for a part of the input channels also ic, the first of them, and
        partial, to which it adds their products."""
        tile, L, block = self.tile(P, V, width), self.isa.lanes, self.params.block
        ic = f"ic * {width} + " * bool(self.part)
        weights = "w_group" if self.params.grouped else "w"
        w = f"{weights} + (ptrdiff_t)(oc / {block}) * {block} * K + {ic}oc % {block}"
        pixel_stride = "y_pixel" if self.is_nhwc else L
        channels = "(ptrdiff_t)ow * y_pixel + oc" if self.is_nhwc else \
            f"(ptrdiff_t)(oc / {L}) * {self.y_plane} + (ptrdiff_t)ow * {L}"
        return (f"{tile.name}({joined([x, w, self.params.bias and 'b', 'y'])},\n"
                f"y_row + {channels}{pixel and f' + (ptrdiff_t){pixel} * {pixel_stride}'},\n"
                + joined(["channel + oc" if self.params.grouped else "oc", *(argument for _,
                                                                             argument in self.parameters(tile))])
                + f"{self.scope.ep.args});")

    def function(self, P: int, V: int, width: int | None) -> str:
        """Prints the function of a tile for the output channels from oc on. It stores at y + y_index."""
        tile, c, bias, pointer = self.tile(P, V, width), Printer(), self.params.bias, f"const {self.float} *"
        declarations = joined([f"{pointer}x", f"const {self.weight_type} *w", bias and f"{pointer}b",
                               f"{self.float} *y", "ptrdiff_t y_index", "int32_t oc",
                               *(declaration for declaration, _ in self.parameters(tile))])
        with c.function(f"static MGC_NOINLINE void {tile.name}({declarations}{self.scope.ep.params})"):
            if self.folds:
                c(f"float totals[{len(tile.accumulators) * self.isa.lanes}] = {{0.0f}};")
            if self.taps == 1 and not self.params.vpad and self.ic is not None:
                c(f"{pointer}xk = x;")
                if self.part:
                    self.partial_sums(c, tile)
                else:
                    c(self.sums(tile, self.ic, "b + oc" * bias))
            else:
                self.begin(c, tile, "b + oc" * bias)
                self.window_sums(c, tile)
            for p in range(P):
                for first, part in tile.parts:
                    for v in range(part.count):
                        total = f"a{p}_{first}"
                        self.store(c, tile, p, first + v,
                                   f"mgc_part{part.count}({total}, {v})" if part.count > 1 else total)
            c(joined(["(void)oc", self.is_nhwc and P == 1 and "(void)y_pixel", self.is_partial and "(void)oc_end",
                      self.x_layout != "nhwc" and "(void)plane",
                      not self.is_nhwc and not self.is_known and "(void)y_plane"]) + ";")
        return c.text

    def partial_sums(self, c: Printer, tile: Tile) -> None:
        """Prints the sums over a part of the input channels, which begin with the sums over the parts before."""
        n, ic, size, bias = self.part, self.ic, tile.vectors * self.isa.lanes, self.params.bias
        c("/* `partial` holds the sums over earlier input channels, and receives these while more follow. */",
          *[f"const int32_t n = {ic} - ic < {n} ? {ic} - ic : {n};"] * (ic % n > 0),
          *[f"static const {self.float} zeros[{size}] = {{0.0f}};"] * (not bias),
          f"const {self.float} *start = ic > 0 ? partial : {'b + oc' if bias else 'zeros'};",
          self.sums(tile, "n" if ic % n else n, "start", f"(ptrdiff_t)(ic > 0 ? {size} : 0)"))
        with c.block(f"if (ic < {(ic - 1) // n * n})"):
            c(*(f"mgc_store({self.total(tile, p, v, 'partial')}, a{p}_{v});"
                for p, v in tile.accumulators),
              "return;")

    def window_sums(self, c: Printer, tile: Tile) -> None:
        """Prints the sums over all input channels, a block of weights at a time."""
        ic, channels = self.ic, "IC" if self.ic is None else self.ic
        # The weights of a 1x1 convolution are one block; float16 sums are folded after some of its channels.
        if self.taps == 1 and not self.folds:
            with c.block(""):
                self.block(c, tile, channels, is_last=True)
            return
        size, move = (BLOCK, f"x += {self.next_block};") if self.taps > 1 else \
            (MAX_FLOAT16_CHANNELS, f"x += {MAX_FLOAT16_CHANNELS // BLOCK} * {self.next_block};")
        if size > BLOCK or ic is None or (self.scope.compact and ic > 16 and ic % 16):
            # The code of all blocks is the same, although the last may have fewer channels.
            with c.block(f"for (int32_t c = 0; c < {channels}; c += {size})"):
                c(f"const int32_t n = {channels} - c < {size} ? {channels} - c : {size};")
                self.block(c, tile, "n")
                c(move)
        else:
            if ic >= 16:
                with c.block(f"for (int32_t c = 0; c < {ic // 16}; c++)" if ic >= 32 else ""):
                    self.block(c, tile, 16, is_last=ic == 16)
                    c(*[move] * (ic >= 32))
                c(*[move] * (16 < ic < 32))
            if ic % 16:
                with c.block(""):
                    self.block(c, tile, ic % 16, is_last=True)

    def block(self, c: Printer, tile: Tile, n: Count, is_last: bool = False) -> None:
        """Prints the sums over all taps of `n` input channels, which are one block of the weights. With vpad, the taps
        are those of `rows` rows of the window, from row `top` on. is_last: no other block follows."""
        kh, kw, vpad, row = self.params.kh, self.params.kw, self.params.vpad, tile.rows()
        rows = f"for (int32_t i = 0; i < {'rows' if vpad else kh}; i++, xr += row)" if kh > 1 else "if (rows > 0)"
        tap = times(self.params.dw, self.pixel)
        tap = f" + j * {tap if isinstance(tap, int) else f'({tap})'}" * (kw > 1)
        with c.block("", when=vpad):
            if vpad:
                c(*[f"const {self.float} *const w_next = w + {self.taps} * {n} * {row};"] * (not is_last),
                  f"w += top * {kw} * {n} * {row};")
            c(*[f"const {self.float} *xr = x;"] * (kh > 1))
            with c.block(rows, when=kh > 1 or vpad):
                with c.loop("j", kw):
                    c(f"const {self.float} *xk = x{'r' * (kh > 1)}{tap};")
                    self.channels(c, tile, n)
                if self.folds_rows:
                    self.fold(c, tile)
            c(*["w = w_next;"] * (vpad and not is_last))
        if self.folds and not self.folds_rows:
            self.fold(c, tile)

    def store(self, c: Printer, tile: Tile, p: int, v: int, total: str) -> None:
        """Prints the epilogue and the store of vector v of pixel p. total: C, the sum."""
        ep, channel, pixel = self.scope.ep, v * self.isa.lanes, p * self.isa.lanes
        total = f"mgc_folded({self.total(tile, p, v)})" if self.folds else total
        index = f"y_index + {p} * y_pixel + {channel}" if self.is_nhwc else \
            f"y_index + {v * self.y_plane + pixel}" if self.is_known else \
            f"y_index + {v} * y_plane + {pixel}" if v else f"y_index + {pixel}"
        oc, left = offset("oc", channel), f"oc_end - oc - {channel}" if channel else "oc_end - oc"
        last = self.is_partial and v + 1 == tile.vectors
        with c.block(f"if ({left} >= {self.isa.lanes})", when=last):
            c(f"mgc_store(y + {index}, {ep(total, channel=oc, offset=index)});")
        if last:
            with c.otherwise():
                c(f"mgc_store_n(y + {index}, {ep(total, channel=oc, offset=index, n=left)}, {left});")
