# SPDX-License-Identifier: Apache-2.0
"""The tiles of 8-bit depthwise convolution: neighbouring pixels of a row, a vector of channels each, that are summed
over all taps of the window. They read packed rows of x from `from` on, which are `columns` pixels long."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ..microkernel.assembler import Assembler, asm_inout, asm_input, asm_output, registers
from ..microkernel.printer import Printer, offset
from ..parameters import Scope


@dataclass(frozen=True)
class Products:
    """How packed elements of x are multiplied by packed weights.

    element: the C type of a lane; it holds one float, or several integers of neighbouring rows.
    vector: the C type of a vector of lanes.
    load: the mgc function that loads a vector.
    add: C that adds the products of `{x}` and `{w}` to the sum `{a}`.
    zero: C of initial sums of 0, if the bias is added to the result; "" if sums begin with the bias.
    """

    element: str
    vector: str
    load: str
    add: str
    zero: str = ""


FLOATS = Products("float", "mgc_v", "mgc_load", "mgc_fma({x}, {w}, {a})", "mgc_zero()")
#: Two rows of int16; four rows of uint8 in x, and of int8 in weights.
PAIRS = Products("int32_t", "mgc_i", "mgc_iload_i32", "mgc_dot_i16({a}, {x}, {w})")
QUADS = Products("int32_t", "mgc_i", "mgc_iload_i32", "mgc_dot_u8({a}, {x}, {w})")


class VectorTile:
    """Tiles of P pixels by one vector of channels. The sum of pixel p is the C variable `a{p}`.

    params: parameters with the window's extents and steps (`kh`, `kw`, `sh`, `sw`, `dh`, `dw`), `bias`, `in_registers`
        (the weights of all taps stay in registers) and `pixels_at_once` (P of the widest tile).
    packed_weights: a C pointer to the packed weights of the window.
    """

    def __init__(self, params, scope: Scope, products: Products, packed_weights: str = "row_taps"):
        self.params, self.scope, self.products, self.lanes = params, scope, products, scope.isa.lanes
        self.packed_weights = packed_weights

    def weights(self, rows: int) -> str:
        """Declares the weights, if they stay in registers. rows: the number of packed rows that a window reads."""
        c, products = Printer(), self.products
        if self.params.in_registers:
            c(*(f"const {products.vector} w{k} = {products.load}({self.packed_weights} + {k * self.lanes});"
                for k in range(rows * self.params.kw)))
        return c.text

    def row(self, rows: int, dilation: int = 1) -> str:
        """Prints the loops over the pixels of a row, from ow on; they read `columns` and `n` as well, and advance
        `from` and `y_index`. rows: as for `weights`. dilation: packed rows from one of them to the next."""
        c, L, P, known = Printer(), self.lanes, self.params.pixels_at_once, self.scope.known
        # (pixels of a tile, C for its channels, head of the loop), the widest tiles first. "": a full vector.
        loops = []
        if known.C is None or known.C >= L:
            loops.append((P, "", f"for (; n == {L} && ow + {P} <= OW; ow += {P})"))
        # A last vector of n channels, if there is known to be one. Quads compute its pixels one by one.
        if known.C is not None and known.C % L and self.products != QUADS:
            loops.append((P, "n", f"for (; ow + {P} <= OW; ow += {P})"))
        loops.append((1, "n", "for (; ow < OW; ow++)"))
        for pixels, n, head in loops:
            with c.block(head):
                self.pixels(c, pixels, n, rows, dilation)
                c(f"from += {pixels * self.params.sw * L};",
                  "y_index += C;" if pixels == 1 else f"y_index += {pixels} * (ptrdiff_t)C;")
        return c.text

    def pixels(self, c: Printer, P: int, n: str, rows: int, dilation: int) -> None:
        """Prints the sums of P pixels and their stores. n: C, the number of channels; "" for a full vector."""
        params, products, L = self.params, self.products, self.lanes
        start = products.zero or ("bias" if params.bias else "mgc_iset1(0)")
        c(*(f"{products.vector} a{p} = {start};" for p in range(P)))
        for k in range(rows * params.kw):
            i, j = divmod(k, params.kw)
            with c.block(""):
                tap = f"w{k}" if params.in_registers else f"{products.load}({self.packed_weights} + {k * L})"
                address = offset(f"from + (ptrdiff_t){i * dilation} * columns * {L}", j * params.dw * L)
                c(f"const {products.vector} tap = {tap};", f"const {products.element} *tap_x = {address};")
                for p in range(P):
                    x = f"{products.load}({offset('tap_x', p * params.sw * L)})"
                    c(f"a{p} = {products.add.format(a=f'a{p}', x=x, w='tap')};")
        indices = [f"y_index + {p} * C" if p else "y_index" for p in range(P)]
        if not products.zero:
            c(*(f"{text};" for text in self.scope.ep.store_scattered(
                "y", indices, [f"a{p}" for p in range(P)], ["channel"] * P, [n] * P, ["_0"] * P)))
            return
        for p, index in enumerate(indices):
            with c.block(""):
                total = f"mgc_to_int(a{p})"
                c(f"const mgc_i sum{p} = {f'mgc_iadd({total}, bias)' if params.bias else total};",
                  self.scope.ep.store("y", index, f"sum{p}", channel="channel", n=n, preloaded="_0") + ";")


class ArmTile:
    """Tiles of X pixels by 8 channels, by int16 products. The C variable `a{x}_{v}` is the sum of pixel x for the first
    (v = 0) or last four channels. params: as in `VectorTile`; `pixels_at_once` is X of the widest tile."""

    def __init__(self, params, scope: Scope):
        self.params, self.scope, self.columns = params, scope, params.taps.columns
        #: Whether all blocks have 8 channels; otherwise the last one has `n`.
        self.full_blocks = scope.known.C is not None and scope.known.C % 8 == 0

    def begin(self) -> str:
        """Declares initial sums, the operands of the epilogue, and the weights that stay in registers."""
        c = Printer()
        c(*["const int32_t n0 = n < 4 ? n : 4, n1 = n < 4 ? 0 : n - 4 < 4 ? n - 4 : 4;"] * (not self.full_blocks))
        for v in range(2):
            load, n = ("mgc_iload_i32", "") if self.full_blocks else ("mgc_iload_i32_n", f"n{v}")
            start = f"{load}({', '.join([offset('b + channel', 4 * v), *[n] * bool(n)])})"
            c(f"const int32x4_t start_{v} = (int32x4_t){start if self.params.bias else 'mgc_iset1(0)'};",
              *(f"{text};" for text in self.scope.ep.preloaded(f"channel + {4 * v}", f"_{v}", n)))
        if self.params.in_registers:
            self.weights(c)
        return c.text

    def weights(self, c: Printer) -> None:
        c(*(f"const int16x8_t w{k} = vld1q_s16({offset('taps', 8 * k)});"
            for k in range(self.params.kh * self.params.kw)))

    def row(self) -> str:
        """Prints the loops over the pixels of a row, from ow on; they read `columns`, `taps` and `n` as well, and
        advance `from` to the end of the row and `y_index` to the next row of y."""
        c, X = Printer(), self.params.pixels_at_once
        with c.block("if (n >= 8)", when=not self.full_blocks), c.block(f"for (; ow + {X} <= OW; ow += {X})"):
            self.pixels(c, X, full_vectors=True)
        if X > 1 or not self.full_blocks:
            with c.block("for (; ow < OW; ow++)"):
                self.pixels(c, 1, self.full_blocks)
        return c.text

    def pixels(self, c: Printer, X: int, full_vectors: bool) -> None:
        """Prints the sums of X pixels of 8 channels and their stores."""
        params = self.params
        c(*(f"int32x4_t a{x}_0 = start_0, a{x}_1 = start_1;" for x in range(X)))
        for i in range(params.kh):
            for column, uses in self.columns.reads(X):
                with c.block(""):
                    row = f"from + (ptrdiff_t)columns * {8 * i * params.dh}" if i else "from"
                    c(f"const int16x8_t d = vld1q_s16({offset(row, 8 * column)});")
                    for x, j in uses:
                        k = i * params.kw + j
                        tap = f"w{k}" if params.in_registers else f"vld1q_s16(taps + {8 * k})"
                        c(f"a{x}_0 = vmlal_s16(a{x}_0, vget_low_s16(d), vget_low_s16({tap}));",
                          f"a{x}_1 = mgc_mlal_high(a{x}_1, d, {tap});")
        for x in range(X):
            self.store(c, f"a{x}", f"y_index + {x} * C" if x else "y_index", full_vectors)
        c(f"from += {8 * X * params.sw};", f"y_index += {X} * (ptrdiff_t)C;")

    def store(self, c: Printer, total: str, index: str, full_vectors: bool) -> None:
        """Prints the store of 8 channels of a pixel. total: prefix of the names of its sums. index: C, that in y of the
        first."""
        c(*(f"{text};" for text in self.scope.ep.store_adjacent(
            "y", [index, index + " + 4"], [f"(mgc_i){total}_{v}" for v in range(2)], ["channel", "channel + 4"],
            ["", ""] if full_vectors else ["n0", "n1"], ["_0", "_1"])))


class Dot4Tile(ArmTile):
    """Tiles of X pixels of R output rows by 8 channels, by dot products of four packed rows. `a{r}_{x}_{v}` is the sum
    of row r, pixel x and half v of the channels. params (`Dot4Parameters`): also `rows_at_once`, which is R, and
    `quads`, the groups of four packed rows that these output rows read."""

    def weights_offset(self, q: int, j: int, r: int, v: int) -> int:
        """Returns the offset, in bytes, of the packed weights of quad q of rows and column j for output row r and half
        v of the channels."""
        return (((q * self.params.kw + j) * self.params.rows_at_once + r) * 2 + v) * 16

    def weights(self, c: Printer) -> None:
        for q, j, r in self.packed_taps():
            c("const int8x16_t " + ", ".join(f"w{q}_{j}_{r}_{v} = vld1q_s8(taps + {self.weights_offset(q, j, r, v)})"
                                             for v in range(2)) + ";")

    def packed_taps(self) -> list[tuple[int, int, int]]:
        """Returns (quad of rows, column, output row) of the packed weights."""
        return list(product(range(self.params.quads), range(self.params.kw), range(self.params.rows_at_once)))

    def pixels(self, c: Printer, X: int, full_vectors: bool) -> None:
        params, output_rows = self.params, range(self.params.rows_at_once)
        c(*(f"int32x4_t a{r}_{x}_0 = start_0, a{r}_{x}_1 = start_1;" for r in output_rows for x in range(X)))
        for q in range(params.quads):
            for column, uses in self.columns.reads(X):
                with c.block(""):
                    row = f"from + (ptrdiff_t)columns * {32 * q}" if q else "from"
                    c(f"const int8_t *column = {offset(row, 32 * column)};",
                      "const int8x16_t d0 = vld1q_s8(column), d1 = vld1q_s8(column + 16);")
                    for x, j in uses:
                        for r, v in product(output_rows, range(2)):
                            tap = f"w{q}_{j}_{r}_{v}" if params.in_registers else \
                                f"vld1q_s8(taps + {self.weights_offset(q, j, r, v)})"
                            c(f"a{r}_{x}_{v} = vdotq_s32(a{r}_{x}_{v}, d{v}, {tap});")
        for r in output_rows:
            with c.block(f"if (rows > {r})", when=r > 0):
                for x in range(X):
                    self.store(c, f"a{r}_{x}", "y_index" + f" + {x} * C" * (x > 0) + f" + {r} * y_row" * (r > 0),
                               full_vectors)
        c(f"from += {32 * X * params.sw};", f"y_index += {X} * (ptrdiff_t)C;")


class RvvRow:
    """Prints the sums of an output row for a block of channels, in assembler.

    Compilers would load all taps first and spill. v0 to v17: weights, v18: x, v20: products, v24: sums.
    params: `WideParameters`.
    """

    def __init__(self, params, scope: Scope):
        self.params, self.tap_count = params, params.kh * params.kw
        #: Whether the weights of all taps stay in registers.
        self.in_registers = self.tap_count <= 9
        #: The vector registers that hold a block of bytes (RISC-V's LMUL): one has lanes * registers / 8 bytes, because
        #: the `registers` groups of `lanes` floats make up all 32.
        self.lmul = 8 * params.block // (scope.isa.lanes * scope.isa.registers)

    def sums(self) -> str:
        """Prints the assembler that computes the sums of a row and stores them."""
        # Labels: 1 pixels, 2 rows of the window, 3 columns of the window.
        params, asm, B = self.params, Assembler(is_volatile=True), self.params.block
        kw, taps, int16_taps = params.kw, self.tap_count, params.int16_taps
        right, skip, load = f"addi %[x], %[x], {params.dw * B}", "add %[x], %[x], %[skip]", f"addi %[w], %[w], {B}"
        if self.in_registers:
            asm(self.bytes(1), *(line for k in range(taps) for line in (f"vle8.v v{2 * k}, (%[w])", load)))
        asm("1:", self.bytes(4), "vle32.v v24, (%[starts])", "mv %[x], %[from]", self.bytes(1))
        if self.in_registers:
            for k in range(taps):
                self.tap(asm, k % int16_taps, [right] if (k + 1) % kw else [skip] * (k + 1 < taps), k)
                if (k + 1) % int16_taps == 0 or k + 1 == taps:
                    self.add(asm)
        else:
            asm("mv %[w], %[taps]", f"li %[row], {params.kh}", "2:")
            if kw >= int16_taps:
                asm(f"li %[column], {kw // int16_taps}", "3:")
                for k in range(int16_taps):
                    self.tap(asm, k, [right, "vle8.v v0, (%[w])", load])
                self.add(asm)
                asm("addi %[column], %[column], -1", "bnez %[column], 3b")
            if kw % int16_taps:
                self.tap(asm, 0, [right, "vle8.v v0, (%[w])", load])
                self.add(asm)
            asm(skip, "addi %[row], %[row], -1", "bnez %[row], 2b")
        asm(self.bytes(4), "vse32.v v24, (%[to])", f"addi %[from], %[from], {params.sw * B}",
            f"addi %[to], %[to], {4 * B}", "addi %[left], %[left], -1", "bnez %[left], 1b")
        rows = [asm_output("row", "r"), asm_output("column", "r")] * (not self.in_registers)
        return "\n".join(asm.statement(
            [asm_output("x", "r"), asm_inout("w"), *rows, asm_inout("from"), asm_inout("to"), asm_inout("left", "OW")],
            [asm_input("n", f"(ptrdiff_t){B}"), asm_input("starts"), *[asm_input("taps")] * (not self.in_registers),
             asm_input("skip")],
            [*registers("v", 32), "vl", "vtype", "memory"]))

    def bytes(self, k: int) -> str:
        """Sets the vector length to a block of elements of k bytes."""
        return f"vsetvli zero, %[n], e{8 * k}, m{self.lmul * k}, ta, ma"

    def tap(self, asm: Assembler, earlier: int, moves: list[str], weight: int = 0) -> None:
        """Prints the product of a tap. earlier: products in int16 that it is added to."""
        asm("vle8.v v18, (%[x])", *moves, f"{'vwmacc.vv' if earlier else 'vwmul.vv'} v20, v18, v{2 * weight}")

    def add(self, asm: Assembler) -> None:
        """Adds the int16 products to the int32 sums."""
        asm(self.bytes(2), "vwadd.wv v24, v24, v20", self.bytes(1))
