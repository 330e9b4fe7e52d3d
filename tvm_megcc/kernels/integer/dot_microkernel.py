# SPDX-License-Identifier: Apache-2.0
"""The microkernels of `integer/dot`: functions that compute a register tile, neighbouring pixels by vectors of
channels, and the calls that cover a row of the output with tiles. There is one class for each way to sum products."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ...target import Isa
from ..microkernel.printer import Printer, joined, offset
from .neon_sums import ACCUMULATE

if TYPE_CHECKING:
    from .dot import DotParameters


class DotMicrokernel:
    """The microkernel of dot-product instructions, of which one adds `step` products to each lane (`mgc_dot_`).

    `p` are the template's parameters (`DotParameters`): the window (`kh`, `kw`, `sh`, `dw`), `bias`, `step`, and

    `packed_type`, `packed_short`: the C type of packed x, and its suffix in mgc functions. `result`: the C type of y.
    `heights`: the pixels of the tiles. `vectors`, `rest`: the vectors of channels of a tile, and of the last one.
    `balanced`: there are two heights, and the lower one is used as rarely as possible.
    `flat`: windows are 1x1. `has_weight_zero`: packed weights have a zero point.
    `prefetch`: which weights tiles prefetch. `arm_sums`: how Arm sums products.

    `ep` prints the epilogue (codegen/c_source/epilogue.py): `preloaded` loads the operands that all pixels share,
    `store_adjacent` stores vectors that are neighbours in y, `store_scattered` any vectors.
    """

    #: C of the length of the reduction: parameters of a tile's function, and the arguments of its calls.
    steps_parameter: ClassVar[str] = "int32_t steps"
    steps_argument: ClassVar[str] = "steps"
    #: Whether the function computes several tiles, one after the other.
    is_repeated: ClassVar[bool] = False

    def __init__(self, params: DotParameters, isa: Isa, ep, known):
        self.p, self.isa, self.ep, self.known, self.lanes = params, isa, ep, known, isa.lanes
        #: Contiguous runs in a row of the window: single taps if the columns are dilated.
        self.runs = params.kw if params.dw > 1 and params.kw > 1 else 1
        #: Packed rows of x from one row of the output to the next.
        self.row_step = 1 if params.kh == 1 else params.sh
        #: Whether the number of channels is a multiple of the lanes; otherwise the last vector has fewer.
        self.full_vectors = known.OC is not None and known.OC % isa.lanes == 0

    @staticmethod
    def of(params: DotParameters, isa: Isa, ep, known) -> DotMicrokernel:
        """Returns the microkernel for an ISA and a form of packed weights."""
        if params.is_pmaddubsw_form:
            return PmaddubswMicrokernel(params, isa, ep, known)
        if params.arm_sums:
            return ArmMicrokernel(params, isa, ep, known)
        return (RvvMicrokernel if isa.wide else DotMicrokernel)(params, isa, ep, known)

    def types(self) -> str:
        """Returns C declarations before all tiles."""
        return ""

    # A tile: P pixels by V vectors of channels.

    def tile(self, P: int, V: int) -> str:
        """Prints the function of a tile of P pixels by V vectors of channels."""
        c = Printer()
        times = "`tiles` times " * self.is_repeated
        c(f"/* {times}{P} neighbouring pixels by {V} vectors of channels. "
          f"pixel_stride, row_stride{', tap_stride' if self.runs > 1 else ''}: elements from one to the next in x. */")
        with c.function(self.head(P, V)):
            self.body(c, P, V)
            c(self.unused(P))
        return c.text

    def head(self, P: int, V: int) -> str:
        p = self.p
        x = joined([f"const {p.packed_type} *x", "ptrdiff_t pixel_stride", "ptrdiff_t row_stride",
                    self.runs > 1 and "ptrdiff_t tap_stride"])
        w = joined(["const int8_t *w", self.steps_parameter, p.bias and "const int32_t *b", f"{p.result} *y",
                    "ptrdiff_t y_offset", "ptrdiff_t y_stride"])
        rest = joined(["int32_t channel", not self.full_vectors and "int32_t n",
                       p.has_weight_zero and "const int32_t *zero_sums", self.is_repeated and "int32_t tiles"])
        return f"static MGC_NOINLINE void tile_{P}x{V}({x},\n{w},\n{rest}{self.ep.params})"

    def unused(self, P: int) -> str:
        return "(void)" + joined(["channel", P == 1 and not self.is_repeated and "(void)pixel_stride, (void)y_stride",
                                  self.p.kh == 1 and "(void)row_stride"]) + ";"

    def body(self, c: Printer, P: int, V: int) -> None:
        self.begin(c, P, V)
        self.accumulate(c, P, V)
        self.store(c, P, V)

    def begin(self, c: Printer, P: int, V: int) -> None:
        """Prints the numbers of valid lanes, the bias and the initial sums."""
        for v in range(V):
            self.lanes_of(c, v)
            self.bias_of(c, v)
            for p in range(P):
                c(f"mgc_i a{p}_{v} = {self.start(p, v)};")

    def lanes_of(self, c: Printer, v: int) -> None:
        if not self.full_vectors:
            n = f"n - {v * self.lanes}" if v else "n"
            c(f"const int32_t n{v} = {n} < {self.lanes} ? {n} : {self.lanes};")

    def bias_of(self, c: Printer, v: int) -> None:
        if self.p.bias:
            load = "mgc_iload_i32" if self.full_vectors else "mgc_iload_i32_n"
            n = "" if self.full_vectors else f", n{v}"
            c(f"const mgc_i b{v} = {load}({offset('b + channel', v * self.lanes)}{n});")

    def start(self, p: int, v: int) -> str:
        """Returns the C expression of a vector of initial sums."""
        if self.p.has_weight_zero:
            return f"mgc_iadd(b{v}, mgc_iset1(zero_sums[{p}]))" if self.p.bias else f"mgc_iset1(zero_sums[{p}])"
        return f"b{v}" if self.p.bias else "mgc_iset1(0)"

    def accumulate(self, c: Printer, P: int, V: int) -> None:
        """Prints the loop nest: rows of the window, runs of a row, steps of a run."""
        params, kh = self.p, self.p.kh
        with c.loop("kh", kh), c.loop("kw", self.runs):
            c(f"const {params.packed_type} *from = x{' + kh * row_stride' if kh > 1 else ''}"
              f"{' + kw * tap_stride' if self.runs > 1 else ''};")
            self.before_steps(c, P)
            if self.has_parts(P, V):
                self.parts(c)
            with c.block(f"for ({'' if self.has_parts(P, V) else 'int32_t k = 0'}; k < steps; k++)"):
                self.multiply(c, P, V)
                self.prefetch(c, V)
                self.advance(c)
                c(f"w += {V * self.lanes * params.step};")

    def has_parts(self, P: int, V: int) -> bool:
        """Whether the one sum of a tile has four parts: a single one waits for each product. Only where kernels have
        no higher tiles, which compute nearly all pixels."""
        return type(self) is DotMicrokernel and P * V == 1 and self.p.heights == (1,) and self.lanes >= 8

    def parts(self, c: Printer) -> None:
        """Prints all steps but up to three, four at a time, each added to a part of its own of the one sum."""
        form, width = self.p.packed_short, self.lanes * self.p.step
        c(f"mgc_i {', '.join(f'part{i} = mgc_iset1(0)' for i in range(3))};", "int32_t k = 0;")
        with c.block("for (; k + 4 <= steps; k += 4)"):
            for i, sum_ in enumerate(("a0_0", "part0", "part1", "part2")):
                c(f"{sum_} = mgc_dot_{form}({sum_}, mgc_dot_x_{form}({offset('from', i * self.p.step)}), "
                  f"mgc_dot_w_{form}_i8({offset('w', i * width)}));")
            c(f"from += {4 * self.p.step};", f"w += {4 * width};")
        c("a0_0 = mgc_iadd(mgc_iadd(a0_0, part0), mgc_iadd(part1, part2));")

    def before_steps(self, c: Printer, P: int) -> None:
        pass

    def multiply(self, c: Printer, P: int, V: int, pixel: str = "from") -> None:
        """Prints one step of each of the P x V sums."""
        form, width = self.p.packed_short, self.lanes * self.p.step
        for v in range(V):
            c(f"const mgc_i w{v} = mgc_dot_w_{form}_i8({offset('w', v * width)});")
        for p in range(P):
            c(f"const mgc_i x{p} = mgc_dot_x_{form}({pixel}{f' + {p} * pixel_stride' if p else ''});")
            c(*(f"a{p}_{v} = mgc_dot_{form}(a{p}_{v}, x{p}, w{v});" for v in range(V)))

    def prefetch(self, c: Printer, V: int) -> None:
        """Prints prefetches of weights, one for each cache line of 64 bytes."""
        if self.p.prefetch:
            step_bytes = V * self.lanes * self.p.step
            # The function counts in floats, of 4 bytes.
            distance = f"steps * {self.p.kh * self.runs * step_bytes // 4}" if self.p.prefetch == "tile" else "1024"
            c(*(f"mgc_prefetch_ahead(w, {offset(distance, line // 4)});" for line in range(0, step_bytes, 64)))

    def advance(self, c: Printer) -> None:
        """Prints the advance in x. MGC_LOAD_AGAIN keeps compilers from holding elements of x in registers for the next
        step."""
        c(f"from += {self.p.step};", "MGC_LOAD_AGAIN(from);")

    def store(self, c: Printer, P: int, V: int) -> None:
        self.per_channel_operands(c, V)
        c(*self.stores(self.ep.store_scattered, range(P), V, lambda p, v: f"a{p}_{v}"))

    def per_channel_operands(self, c: Printer, V: int) -> None:
        """Prints the operands of the epilogue that all pixels share."""
        for v in range(V):
            c(*(f"{text};" for text in self.ep.preloaded(f"channel + {v * self.lanes}", f"_{v}",
                                                                    "" if self.full_vectors else f"n{v}")))

    def stores(self, store, pixels: Iterable[int], V: int, value) -> list[str]:
        """Returns the stores of some pixels."""
        accumulators = [(p, v) for p in pixels for v in range(V)]
        return [f"{text};" for text in store(
            "y", [f"y_offset + {p} * y_stride + {v * self.lanes}" for p, v in accumulators],
            [value(p, v) for p, v in accumulators], [f"channel + {v * self.lanes}" for _, v in accumulators],
            ["" if self.full_vectors else f"n{v}" for _, v in accumulators],
            [f"_{v}" for _, v in accumulators])]

    # A row of tiles of V vectors of channels.

    def row(self, V: int) -> str:
        """Prints the calls that cover the pixels of each row of a task. Flat windows form a single row."""
        c, params = Printer(), self.p
        if params.flat:
            self.row_of_tiles(c, V)
        else:
            with c.block("for (int32_t oh = 0; oh < rows; oh++)"):
                self.row_of_tiles(c, V)
        return c.text

    def row_of_tiles(self, c: Printer, V: int) -> None:
        params, height = self.p, self.p.heights[0]
        row_offset = "" if params.flat else f" + (ptrdiff_t)oh * {self.row_step} * packed_row"
        c(f"const {params.packed_type} *from = packed_rows{row_offset};")
        c(f"ptrdiff_t to = y_offset{'' if params.flat else ' + (ptrdiff_t)oh * OW * G * OC'} + channel;")
        counts_pixels = not params.balanced or params.has_weight_zero
        if counts_pixels:
            c("int32_t i = 0;")
        if params.balanced:
            # If tiles of `height` would pass the end of the row by some pixels, as many tiles have one pixel less.
            c(f"const int32_t lower_tiles = count % {height} ? {height} - count % {height} : 0;")
        for P in params.heights:
            is_lower = params.balanced and P == params.heights[-1]
            other_pixels = f"{params.heights[1]} * lower_tiles" if params.balanced else "i"
            tiles = "lower_tiles" if is_lower else f"(count - {other_pixels}) / {P}"
            call = self.call(P, V)
            moves = f"from += {P} * pixel;", f"to += {P} * (ptrdiff_t)G * OC;"
            if self.is_repeated:
                with c.block(""):
                    c(f"const int32_t tiles = {tiles};", call, *(f"{move[:-1]} * tiles;" for move in moves))
                    c(*[f"i += {P} * tiles;"] * counts_pixels)
            elif params.balanced:
                with c.block(f"for (int32_t tiles = {tiles}; tiles > 0; tiles--)"):
                    c(call, *moves, *[f"i += {P};"] * params.has_weight_zero)
            else:
                with c.block(f"for (; i + {P} <= count; i += {P})"):
                    c(call, *moves)

    def call(self, P: int, V: int) -> str:
        params = self.p
        zero_sums = f"zero_sums{'' if params.flat else ' + oh * count'} + i"
        x = joined(["from", "pixel", f"(ptrdiff_t){params.dh} * packed_row" if params.kh > 1 else "0",
                    self.runs > 1 and f"{params.dw} * IC"])
        w = joined(["weights", self.steps_argument, params.bias and "b", "y"])
        rest = joined(["to", "(ptrdiff_t)G * OC", "group * OC + channel", not self.full_vectors and "OC - channel",
                       params.has_weight_zero and zero_sums, self.is_repeated and "tiles"])
        return f"tile_{P}x{V}({x}, {w},\n{rest}{self.ep.args});"


class PmaddubswMicrokernel(DotMicrokernel):
    """The microkernel of multiply-adds of pairs (pmaddubsw). Lists say how many entries a run of the window has, and
    how far each entry advances in x (`pmaddubsw.py`)."""

    steps_parameter = "const int32_t *counts, const uint8_t *moves, ptrdiff_t max_offset"
    # An entry loads two elements of packed x, so the last one begins two before the end of the run.
    steps_argument = "list + 1, list_moves, length - 2"

    def before_steps(self, c: Printer, P: int) -> None:
        c("const int32_t steps = *counts++;", "ptrdiff_t offset = 0;")

    def multiply(self, c: Printer, P: int, V: int, pixel: str = "entry_x") -> None:
        # Moves are data of the container: the limit keeps loads in x, whatever they are.
        c("offset += *moves++;", "offset = offset < max_offset ? offset : max_offset;",
          f"const {self.p.packed_type} *entry_x = from + offset;")
        super().multiply(c, P, V, pixel)

    def advance(self, c: Printer) -> None:
        pass


class RvvMicrokernel(DotMicrokernel):
    """The microkernel of RISC-V. Products of int8 are widened to int16. Neighbouring vectors of channels form one C
    vector of several registers, as wide as the compiler accepts."""

    def groups(self, V: int) -> list[tuple[int, int]]:
        """Returns (first, count) of the vectors of channels that form one C vector: V as a sum of powers of two, the
        largest first."""
        return [(V // (2 * width) * 2 * width, width) for width in (8, 4, 2, 1) if V // width % 2]

    def types(self) -> str:
        widths = [w for w in (8, 4, 2, 1) if self.p.vectors // w % 2 or self.p.rest // w % 2]
        return "\n".join(["/* C vectors of the neighbouring channels of several vectors. */",
                          *(_RVV_PRODUCTS.format(width=width, lanes=self.lanes, bytes=width * self.lanes,
                                                  twice=2 * width * self.lanes, fourfold=4 * width * self.lanes)
                            for width in widths), "", ""])

    def begin(self, c: Printer, P: int, V: int) -> None:
        for v in range(V):
            self.lanes_of(c, v)
            self.bias_of(c, v)
        c(*(f"uint32_by_{width} s{p}_{v} = {{ 0 }};" for p in range(P) for v, width in self.groups(V)))

    def before_steps(self, c: Printer, P: int) -> None:
        # The compiler loads x for all unrolled steps first; more steps would spill.
        c(f"#pragma clang loop unroll_count({4 if P <= 6 else 2 if P <= 8 else 1})")

    def multiply(self, c: Printer, P: int, V: int, pixel: str = "from") -> None:
        c(*(f"s{p}_{v} += product_{width}({offset('w', v * self.lanes)}, "
            f"{pixel}[{f'{p} * pixel_stride' if p else 0}]);" for p in range(P) for v, width in self.groups(V)))

    def store(self, c: Printer, P: int, V: int) -> None:
        c(*(f"const mgc_i a{p}_{v} = mgc_iadd({self.start(p, v)}, vector_of_{width}(s{p}_{first}, {v - first}));"
            for p in range(P) for first, width in self.groups(V) for v in range(first, first + width)))
        super().store(c, P, V)


class ArmMicrokernel(DotMicrokernel):
    """The microkernel of Arm. Sums are in assembler (`neon_sums.py`). One function computes several tiles, because a
    call costs as much as the ends of some loops."""

    is_repeated = True

    def body(self, c: Printer, P: int, V: int) -> None:
        sums = ACCUMULATE[self.p.arm_sums](self, P, V)
        for v in range(V):
            self.lanes_of(c, v)
        sums.begin(c)
        with c.block("for (; tiles > 0; tiles--)"):
            sums.print(c)
            self.store(c, P, V)

    def store(self, c: Printer, P: int, V: int) -> None:
        self.per_channel_operands(c, V)
        for p in range(P):
            c(*self.stores(self.ep.store_adjacent, [p], V, lambda p, v: f"mgc_iadd(a{p}_{v}, mgc_iset1(zero_sums[{p}]))"
                         if self.p.has_weight_zero else f"a{p}_{v}"))
        c(*[f"zero_sums += {P};"] * self.p.has_weight_zero, f"x += {P} * pixel_stride;", f"y_offset += {P} * y_stride;")


#: Types and products of `width` neighbouring vectors of `lanes` channels.
_RVV_PRODUCTS = """\
typedef int8_t int8_by_{width} __attribute__((vector_size({bytes})));
typedef int16_t int16_by_{width} __attribute__((vector_size({twice})));
typedef int32_t int32_by_{width} __attribute__((vector_size({fourfold})));
typedef uint32_t uint32_by_{width} __attribute__((vector_size({fourfold})));
static MGC_INLINE uint32_by_{width} product_{width}(const int8_t *w, int32_t x)
{{
    int8_by_{width} v;
    memcpy(&v, w, sizeof v);
    return (uint32_by_{width})__builtin_convertvector(__builtin_convertvector(v, int16_by_{width}), int32_by_{width}) \
* (uint32_t)x;
}}
/* Returns vector number k. */
static MGC_INLINE mgc_i vector_of_{width}(uint32_by_{width} v, int32_t k)
{{
    mgc_u part;
    for (int32_t i = 0; i < {lanes}; i++) {{
        part[i] = v[k * {lanes} + i];
    }}
    return (mgc_i)part;
}}"""
