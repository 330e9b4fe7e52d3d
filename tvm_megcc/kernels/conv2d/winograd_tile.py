# SPDX-License-Identifier: Apache-2.0
"""Prints the transforms of `conv2d/winograd`, and its products, which are register tiles of `conv2d/direct`.

A tile of x, d (6x6), and a kernel g (3x3) give size x size outputs (Lavin and Gray, "Fast algorithms for convolutional
neural networks", CVPR 2016; Toom-Cook at the points 0, ±a, ±b and infinity, where a is `near`, b is `far`, and ab = 1):

    y = A' [(G g G') * (B' d B)] A        * multiplies elementwise, at 36 positions

With s = a² + b²,

         | 1    0   -s    0   1   0 |        | 1  1   1   1   1   0 |
         | 0  -ab²  -b²   a   1   0 |        | 0  a  -a   b  -b   0 |
    B' = | 0   ab²  -b²  -a   1   0 |   A' = | 0  a²  a²  b²  b²  0 |
         | 0  -a²b  -a²   b   1   0 |        | 0  a³ -a³  b³ -b³  1 |
         | 0   a²b  -a²  -b   1   0 |
         | 0    1    0   -s   0   1 |

where A' has its first `size` rows, and the 1 of infinity in the last of them. A row of G belongs to a finite point p:
1, p and p², each over the product of the differences of p to the other finite points. The last row is 0, 0, 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING

from ..microkernel.printer import Printer, offset
from ..microkernel.window import Taps, Window
from ..packing import BLOCK
from ..parameters import Scope
from .register_tile import Reduction

if TYPE_CHECKING:
    from .winograd import WinogradParameters

#: Rows and columns of x that a tile reads, and of its transform.
WINDOW = 6


class WinogradTile(Reduction):
    """Prints the transforms of tiles and of weights, and the products at one position of a transformed tile.

    `forward` and `backward` are transforms along one axis: they print the terms that several results share, and return
    a C expression for each result. To a `Reduction`, each position of a transformed tile is a tap.

    `p` are the template's parameters (`WinogradParameters`):

    `ic`, `oc`: the input and output channels.
    `size`: the rows and columns of y that a tile computes. `near`, `far`: a and b above.
    `pixels`, `vectors`: the Winograd tiles, and the vectors of output channels, in a register tile of the products.
    `raw`: the kernel transforms the weights itself, those of `depth` input channels at a time, by `kernel`, the
    matrix G.
    """

    def __init__(self, params: WinogradParameters, scope: Scope):
        p, L = params, scope.isa.lanes
        # A position is a tap. Raw weights are transformed for one row of six positions at a time, in scratch, where
        # each position has one row more than `depth`, so that positions lie in different cache sets.
        window = Window(Taps(1 if p.raw else WINDOW, 1, 1), Taps(WINDOW, 1, 1))
        #: Rows of the transformed weights of a position.
        self.weight_rows = p.depth + 1 if p.raw else p.ic
        super().__init__(scope, p.tiling, window, self.weight_rows, "nchwc" if L > 1 else "plain", weights_in_l1=p.raw)
        self.p, self.lanes = params, L
        #: The ranges of output channels that register tiles of one width cover (`ChannelRange`).
        self.channel_ranges = p.tiling.channel_ranges(p.pixels, p.oc, p.vectors)
        #: (vectors, channels in a block of weights) of the register tiles of products.
        self.products = list(dict.fromkeys((part.vectors, part.width) for part in self.channel_ranges))
        #: Numbers of input channels whose weights are transformed together.
        self.depths = [p.depth, *[p.ic % p.depth] * (p.ic % p.depth > 0)]
        #: Vectors of input channels.
        self.blocks = -(-p.ic // L)
        #: Chunks begin at multiples of this number of output channels, so that they have whole blocks of packed weights
        #: (`BLOCK` = 16 channels) and whole register tiles.
        self.chunk_step = max(BLOCK, p.vectors * L)
        #: The number of steps of `chunk_step` channels in all output channels; the last may have fewer.
        self.chunk_steps = -(-p.oc // self.chunk_step)

    def position_stride(self, vectors: int) -> int:
        """Returns the floats from one position of a transformed tile to the next. vectors: those of one position, of
        inputs or products. The distance is an odd number of vectors, so that positions lie in different cache sets."""
        return (vectors * self.p.pixels // 2 * 2 + 1) * self.lanes

    def weights_stride(self, width: int) -> int:
        """Returns the floats from the transformed weights of one position to those of the next. width: channels in a
        block of weights."""
        return self.weight_rows * width

    def forward(self, c: Printer, x: str) -> list[str]:
        """Transforms six inputs, {x}0 to {x}5, along one axis. Results are for the points 0, near, -near, far, -far and
        infinity; those for ±near, and for ±far, share an even and an odd part."""
        near, far = self.p.near, self.p.far
        for name, other in (("near", far), ("far", near)):
            square = number(-other * other)
            c(f"const mgc_v {x}_{name}_even = mgc_fma({square}, {x}2, {x}4), "
              f"{x}_{name}_odd = mgc_fma({square}, {x}1, {x}3);")
        squares = number(-near * near - far * far)
        return [f"mgc_fma({squares}, {x}2, {x}0 + {x}4)",
                *(f"mgc_fma({number(point)}, {x}_{name}_odd, {x}_{name}_even)"
                  for name, point in (("near", near), ("near", -near), ("far", far), ("far", -far))),
                f"mgc_fma({squares}, {x}3, {x}1 + {x}5)"]

    def backward(self, c: Printer, x: str) -> list[str]:
        """Transforms six products, {x}0 to {x}5, to `size` outputs along one axis: output i sums the products times
        their points to the power of i."""
        c(f"const mgc_v {x}_near_sum = {x}1 + {x}2, {x}_near_difference = {x}1 - {x}2, "
          f"{x}_far_sum = {x}3 + {x}4, {x}_far_difference = {x}3 - {x}4;")
        results = [f"{x}0 + {x}_near_sum + {x}_far_sum"]
        for i in range(1, self.p.size):
            kind, factor = "difference" if i % 2 else "sum", number(self.p.near ** i)
            near = (f"mgc_fma({factor}, {x}_near_{kind}, {x}5)" if i + 1 == self.p.size else
                    f"{factor} * {x}_near_{kind}")
            results.append(f"mgc_fma({number(self.p.far ** i)}, {x}_far_{kind}, {near})")
        return results

    def weights(self, width: int) -> str:
        """Prints the transform of the 3x3 weights at `tap` to one row of six positions: first along columns, with
        factors p0 to p2 for the three rows, then along the row.

        The factors are a row of G, from the C array `points`. The rows of G for 0 and infinity have one element: they
        give the first and the last position. Those for p and -p differ in the sign of the middle element, so both
        positions share the terms of the other two, `near_even` and `far_even`. kernel: G."""
        c, kernel = Printer(), self.p.kernel
        for j in range(3):
            first, second, third = (f"mgc_load({offset('tap', (i + j) * width)})" for i in (0, 3, 6))
            c(f"const mgc_v w{j} = mgc_fma(p2, {third}, mgc_fma(p1, {second}, p0 * {first}));")
        near, far = (f"mgc_fma({number(kernel[i][2])}, w2, {number(kernel[i][0])} * w0)" for i in (1, 3))
        c(f"const mgc_v near_even = {near}, far_even = {far};")
        middle = (f"mgc_fma({number(kernel[j][1])}, w1, {'near' if j < 3 else 'far'}_even)" for j in range(1, 5))
        c(*stores("to", (self.p.depth + 1) * width, ("w0", *middle, "w2")))
        return c.text

    def columns(self, transform: Callable[[Printer, str], list[str]], address: Callable[[int, int], str]) -> str:
        """Prints the transform of a window along its columns, which is half of the transform, to `half_transformed`. It
        takes two columns at a time, so that loads and stores are of neighbouring vectors. address: C, the address of
        element (row, column) of the window."""
        c = Printer()
        for j in range(0, WINDOW, 2):
            with c.block(""):
                for i in range(WINDOW):
                    c(f"const mgc_v l{i} = mgc_load({address(i, j)});",
                      f"const mgc_v r{i} = mgc_load({address(i, j + 1)});")
                c(*(left := named("left", transform(c, "l"))))
                c(*named("right", transform(c, "r")))
                for i in range(len(left)):
                    element = (i * WINDOW + j) * self.lanes
                    c(f"mgc_store(half_transformed + {element}, left{i});",
                      f"mgc_store(half_transformed + {element + self.lanes}, right{i});")
        return c.text

    def input_columns(self) -> str:
        """Prints the first half of the transform of an input tile."""
        return self.columns(self.forward, lambda i, j: offset(f"x{i}", j * self.lanes))

    def edge_column(self) -> str:
        """Prints the transform of one column of an input tile, whose elements are `j` floats after x0 to x5."""
        c = Printer()
        c(*named("v", (f"mgc_load(x{i} + j)" for i in range(WINDOW))))
        c(*stores("column", WINDOW * self.lanes, self.forward(c, "v")))
        return c.text

    def input_rows(self) -> str:
        """Prints the second half of the transform of an input tile, along its rows."""
        c, L, stride = Printer(), self.lanes, self.position_stride(self.blocks)
        c("const float *row = half_transformed;", "float *to = input;")
        with c.block(f"for (int32_t i = 0; i < 6; i++, row += {WINDOW * L}, to += {WINDOW * stride})"):
            c(*named("v", (f"mgc_load({offset('row', j * L)})" for j in range(WINDOW))))
            c(*stores("to", stride, self.forward(c, "v")))
        return c.text

    def sums_of_position(self, vectors: int, width: int, n: int) -> str:
        """Prints the sums of a register tile at one position, over `n` input channels, and their stores."""
        c, tile, pixels = Printer(), self.tile(self.p.pixels, vectors, width), self.p.pixels
        address = {(p, v): f"yt + {(v * pixels + p) * self.lanes}" for p, v in tile.accumulators}
        c(self.sums(tile, n))
        if self.p.depth < self.p.ic:
            with c.block("if (more)"):
                c(*(f"a{p}_{v} = a{p}_{v} + mgc_load({address[p, v]});" for p, v in tile.accumulators))
        c(*(f"mgc_store({address[p, v]}, a{p}_{v});" for v, p in product(range(vectors), range(pixels))))
        return c.text

    def output_columns(self, vectors: int) -> str:
        """Prints the first half of the transform of products to outputs."""
        return self.columns(self.backward, lambda i, j: offset("x", (i * WINDOW + j) * self.position_stride(vectors)))

    def output_row(self) -> str:
        """Prints the second half of the transform of products, for one row of `half_transformed`, with the epilogue and
        the stores to a row of y. The row of y has `columns` elements."""
        c, size = Printer(), self.p.size
        c(*(f"const mgc_v v{j} = mgc_load({offset('row', j * self.lanes)}){' + bias' * (self.p.bias and j == 0)};"
            for j in range(WINDOW)))
        c(*named("y", self.backward(c, "v")))
        with c.block(f"if (columns == {size})"):
            c(*map(self.store, range(size)))
        with c.otherwise():
            c(self.store(0))
            for j in range(1, size - 1):
                with c.block(f"if (columns > {j})"):
                    c(self.store(j))
        return c.text

    def store(self, j: int) -> str:
        """Returns the store of output j of a row."""
        index, value = offset("y_index", j * self.lanes), f"y{j}{' + bias' * (self.p.bias and j > 0)}"
        return f"mgc_store(y + {index}, {self.scope.ep(value, channel='oc', offset=index)});"


def number(value: float) -> str:
    """Returns C for a vector whose lanes have the value."""
    return f"mgc_set1({value:.9g}f)"


def named(name: str, values: Iterable[str]) -> list[str]:
    """Returns declarations of vectors {name}0, {name}1, … with these values."""
    return [f"const mgc_v {name}{i} = {value};" for i, value in enumerate(values)]


def stores(address: str, stride: int, values: Iterable[str]) -> list[str]:
    """Returns stores of vectors, `stride` floats apart, from an address on."""
    return [f"mgc_store({offset(address, i * stride)}, {value});" for i, value in enumerate(values)]
