# SPDX-License-Identifier: Apache-2.0
"""The tiles of attention: products of queries with keys, and of scores with values, and where their operands lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from ...ir.types import DTYPES
from ...ops.cache_rows import SCALE_ELEMENTS
from ..microkernel.panel_tile import PanelTile
from ..microkernel.printer import Printer
from ..microkernel.tile import Multiply
from ..parameters import Scope
from .prefetch import CachePrefetch

if TYPE_CHECKING:
    from .queries import AttentionParameters, ColumnsParameters


#: The least number of keys for which masks are searched for hidden keys.
MIN_KEYS = 64
#: A mask that adds at most this number to a score hides the key: exp(score - maximum) is 0.
HIDDEN = "-1e30f"
#: C, the least finite float32, with which a maximum of scores begins.
LEAST_FLOAT = "-3.402823466e38f"


class AttentionTiles:
    """Prints the code that both templates share: addresses, the loop over parts of the keys, and products of scores
    with values.

    sizes: numbers of queries, or keys, in tiles, the largest first.
    query_stride, key_stride: elements from the scores of one query, or key, to those of the next.
    prefix: the beginning of the names of the tiles' functions.
    prefetch: prints prefetches of keys and values, if tiles prefetch them.

    Q: queries of a tile. U: keys of a tile. W: vectors of values of a tile.

    `p` are the template's parameters (`AttentionParameters`). Those that the class reads:

    `q_axes`, `k_axes`, …: the letters of an operand's axes in memory. `q_index`, …: its index along axis "c".
    `mask`: the row of the mask that query i has; "" without a mask. `mask_b`, `mask_n`, `mask_size`: its strides.
    `causal`: query s sees no later key. `blind`: a query may see no key.
    `shared`: the query heads for each head of keys and values.
    `has_spare_rows`: buffers of keys and values have R rows for T keys. `wraps`: they are ring buffers.
    `cache`: the dtype of keys and values if it is not float32.
    `keys`: the most keys of a part. `rows`: the queries of a tile.
    """

    sizes: list[int]
    query_stride: int
    key_stride: int
    prefix = ""
    prefetch: CachePrefetch | None = None

    def __init__(self, params: AttentionParameters, scope: Scope):
        self.p, self.scope, self.lanes = params, scope, scope.isa.lanes
        open_keys = scope.known.T is None
        #: Whether keys are taken in parts, because workspace may not hold the scores of all.
        self.has_parts = open_keys or scope.known.T > params.keys
        #: Whether keys are skipped that the mask hides from all queries of a task.
        self.skips_keys = bool(params.mask) and not params.causal and not scope.compact and (
            open_keys or scope.known.T >= MIN_KEYS)
        #: C, the first key of a task.
        self.first_key = "first_key" if self.skips_keys and self.has_parts else "0"
        #: C, the row in which the first key of a part is; those after it are neighbours.
        self.first_row = "first_row" if params.wraps else "key"
        #: C type of keys and values.
        self.unit = DTYPES[params.cache or "float32"].c_type
        #: C: the factor of the results of query r, 1 / sum, which replaces its `sum` after the last keys. Without keys,
        #: and if query r sees none (`blind`), `sum` and the results are 0; a finite factor keeps them.
        self.factor = "T == 0 ? 1.0f : " * open_keys + "sum[r] == 0.0f ? 0.0f : " * params.blind + "1.0f / sum[r]"

    def panel(self, vectors: int) -> PanelTile:
        multiply = Multiply(number=self.scope.float if self.scope.isa.helium else "")
        return PanelTile(vectors, self.scope, multiply)

    def stride(self, axes: str, axis: str) -> str:
        """Returns C: elements between neighbours of an operand along an axis, the product of the extents of the axes
        after it; 0 if the operand lacks the axis.

        axes: the operand's axes in memory, a letter each, such as "bsnh": b batch, n head, s query, t key, h element of
        a query or key, v element of a value, c operand among several. axis: one of these letters. The extent of an axis
        is the C variable of its letter in capitals. Keys and values, the operands with axis t, have others: M heads
        instead of N if several query heads share one, and R rows instead of T if not all rows of their buffers are in
        use.
        """
        if axis not in axes or axes.endswith(axis):
            return "1" if axis in axes else "0"
        inner = axes.partition(axis)[2].upper()
        inner = inner.replace("N", "M") if "t" in axes and self.p.shared > 1 else inner
        *outer, row = list(inner.replace("T", "R") if self.p.has_spare_rows else inner)
        has_scale = "t" in axes and self.p.cache == "int8"
        return "(ptrdiff_t)" + " * ".join((*outer, f"({row} + {SCALE_ELEMENTS})" if has_scale else row))

    def load(self, at: str, n: str = "") -> str:
        """Returns C: a vector of keys or values as floats, of int8 without their scale; with n its first lanes."""
        name, more = {"": "mgc_load", "float16": "mgc_load_f16", "int8": "mgc_iload_i8"}[self.p.cache], "_n" * bool(n)
        value = f"{name}{more}({at}{f', {n}' * bool(n)})"
        return f"mgc_to_float({value})" if self.p.cache == "int8" else value

    def scale_function(self) -> str:
        """Prints the function that returns the scale of a row of int8."""
        c = Printer()
        if self.p.cache == "int8":
            c("/* Returns the scale of a row of n elements, which is stored after them. */")
            with c.function("static MGC_INLINE float scale_of(const int8_t *row, int32_t n)"):
                c("float scale;", "memcpy(&scale, row + n, sizeof scale);", "return scale;")
        return c.text

    def scaled_values(self) -> str:
        """Prints the multiplication of scores by the scales of the values of their keys."""
        c = Printer()
        with c.block("for (int32_t row = 0; row < part; row++)"):
            c(f"const float scale = scale_of(v_head + ({self.first_row} + row) * v_row, V);")
            with c.block("for (int32_t i = 0; i < n; i++)"):
                c(f"s[i * {self.query_stride} + row * {self.key_stride}] *= scale;")
        return c.text

    def head_offset(self, axes: str, index: int) -> str:
        """Returns C: the offset of a head in an operand. index: the operand's index along axis "c", if queries, keys
        and values are packed in one tensor."""
        head = f"head / {self.p.shared}" if "t" in axes and self.p.shared > 1 else "head"
        return "".join(f" + {position} * ({self.stride(axes, axis)})"
                       for axis, position in (("b", "batch"), ("n", head), ("c", index)) if axis in axes)

    def begin(self, rows: int) -> str:
        """Declares where a task's operands are, and the running maxima and sums of `rows` queries."""
        c, p = Printer(), self.p
        c(f"const float *q_head = q{self.head_offset(p.q_axes, p.q_index)} + first * q_row;",
          f"const {self.unit} *k_head = k{self.head_offset(p.k_axes, p.k_index)}, "
          f"*v_head = v{self.head_offset(p.v_axes, p.v_index)};",
          f"float *y_head = y{self.head_offset(p.y_axes, 0)} + first * y_row;",
          f"float maximum[{rows}], sum[{rows}], rescale[{rows}];", "(void)head, (void)batch;")
        if p.mask:
            batch = f" + batch * (ptrdiff_t){'N * ' * p.mask_n}{p.mask_size}" * p.mask_b
            c(f"const float *mask_head = mask{batch}{f' + head * (ptrdiff_t){p.mask_size}' * p.mask_n};")
        with c.block(f"for (int32_t r = 0; r < {rows}; r++)"):
            c(f"maximum[r] = {LEAST_FLOAT};", "sum[r] = 0.0f;")
        return c.text

    def visible_keys(self) -> str:
        """Prints the functions with which `parts` skips keys that a mask hides from all queries of a task."""
        c, L = Printer(), self.lanes
        if not self.skips_keys:
            return ""
        c(f"/* Returns whether the mask hides {L} keys from n queries. The mask of query i is row i % P. */")
        with c.function("static MGC_NOINLINE int32_t hides(const float *mask, int32_t first, int32_t n, int32_t P, "
                        "int32_t T)"):
            c(f"mgc_v highest = mgc_set1({HIDDEN});", "int32_t row = first % P;")
            with c.block("for (int32_t r = 0; r < n; r++)"):
                c("highest = mgc_max(highest, mgc_load(mask + row * (ptrdiff_t)T));",
                  "row = row + 1 == P ? 0 : row + 1;")
            c(f"return mgc_hmax(highest) <= {HIDDEN};")
        c("", "/* Finds the keys that n queries see: they lie in [begin, *seen). Returns begin, rounded down to a",
          f" * multiple of {self.p.keys}. If the mask hides all keys from one of the queries, its softmax is over all",
          " * of them: returns 0, and *seen is T. */")
        with c.function("static MGC_NOINLINE int32_t visible_keys(const float *mask, int32_t first, int32_t n, "
                        "int32_t P, int32_t T, int32_t *seen)"):
            c("int32_t begin = 0, end = T;")
            with c.block(f"while (end >= {L} && hides(mask + end - {L}, first, n, P, T))"):
                c(f"end -= {L};")
            with c.block(f"while (begin + {L} <= end && hides(mask + begin, first, n, P, T))"):
                c(f"begin += {L};")
            with c.block("for (int32_t r = 0; r < n && (begin > 0 || end < T); r++)"):
                c("const float *row = mask + (first + r) % P * (ptrdiff_t)T;", "int32_t key = end;")
                with c.block(f"while (key > begin && row[key - 1] <= {HIDDEN})"):
                    c("key--;")
                with c.block("if (key == begin)"):
                    c("begin = 0;", "end = T;")
            c("*seen = end;", f"return begin / {self.p.keys} * {self.p.keys};")
        return c.text

    def parts(self) -> str:
        """Opens the loop over parts of the keys that a task sees: `part` keys from `key` on. If it sees none, the loop
        runs once with a part of 0 keys, which sets the results."""
        seen = f"const int32_t seen = {'first + n + T - S' if self.p.causal else 'T'};\n"
        if self.skips_keys:
            # The arguments first, n, P of `visible_keys`: the mask of query i is row i % P.
            rows_of_mask = {"shared": "0, 1, 1", "rows": "first, n, S", "repeated": "first, n, P"}[self.p.mask]
            result = "const int32_t first_key =" if self.has_parts else "(void)"
            seen = f"int32_t seen;\n{result} visible_keys(mask_head, {rows_of_mask}, T, &seen);\n"
        row = "\nconst int32_t first_row = key % R;" * self.p.wraps
        if not self.has_parts:
            return seen + "{\nconst int32_t key = 0, part = seen;" + row
        keys, first = self.p.keys, self.first_key
        return f"""{seen}for (int32_t key = {first}; key < seen || key == {first}; key += {keys}) {{
const int32_t part = seen - key < {keys} ? seen - key : {keys};{row}"""

    def results(self, begin: str) -> str:
        """Prints the calls that add the products of a part's scores and values to the results, which they multiply by
        `rescale` before; those of the first part set the results. begin: C that sets r to 0."""
        raise NotImplementedError

    def add_values(self, Q: int, W: int) -> str:
        """Returns the call for Q queries and W vectors of values, of which `count` columns are valid."""
        more = f", key == {self.first_key}, key + part >= seen, rescale + r" * self.has_parts
        values = f"v_head + {self.first_row} * v_row + column"
        after = f", column + count < V ? {values} + count : next_keys" * (self.prefetch is not None)
        return (f"{self.prefix}values_{Q}_{W}(s + r * {self.query_stride}, {values}, "
                f"v_row, part, count{more}, sum + r{after}, y_head + r * y_row + column, y_row);")

    @contextmanager
    def for_columns(self, c: Printer, W: int) -> Iterator[None]:
        """Puts the lines of the `with` statement in a loop over tiles of W vectors of values."""
        columns = W * self.lanes
        with c.block(f"for (; column {f'+ {columns} <= V' if W > 1 else '< V'}; column += {columns})"):
            c(f"const int32_t count = {columns if W > 1 else f'V - column < {columns} ? V - column : {columns}'};")
            yield

    @property
    def next_parameter(self) -> str:
        """C: the parameter for the rows that are read after those of a call, if they are prefetched; else empty."""
        return f", const {self.unit} *next" * (self.prefetch is not None)

    def prefetched_values(self, W: int) -> list[str]:
        """Returns the call that prefetches W vectors of values in the loop over the keys t."""
        if self.prefetch is None:
            return []
        return [self.prefetch.call(f"prefetch_values_{W}", "v", "v_row", self.scope.known.V, 0, "keys - t")]

    @property
    def query_sizes(self) -> list[int]:
        """The numbers of queries in tiles: those of `sizes` that are no more than the queries, if their number is
        known."""
        queries = self.scope.known.S
        return self.sizes if queries is None else [size for size in self.sizes if size <= max(queries, 1)]

    def values(self, Q: int, W: int) -> str:
        """Prints the function that computes W vectors of the results of Q queries."""
        c, tile, n, has_parts = Printer(), self.panel(W), ", n" * (W == 1), self.has_parts
        load, store = ("mgc_load_n", "mgc_store_n") if n else ("mgc_load", "mgc_store")
        rescale_parameters = ", int32_t first, int32_t last, const float *rescale" * has_parts
        c(f"/* Computes {W} vectors of the results of {Q} queries{'; the first n lanes are valid' * (W == 1)}. */")
        with c.function(f"static MGC_NOINLINE void {self.prefix}values_{Q}_{W}(const float *s, const {self.unit} *v, "
                        f"ptrdiff_t v_row, int32_t keys, int32_t n{rescale_parameters}, const float *factor"
                        f"{self.next_parameter}, float *y, ptrdiff_t y_row)"):
            c(tile.for_each(Q, "mgc_v a{p}_{v} = mgc_zero();"))
            if has_parts:
                with c.block("if (!first)"):
                    c(tile.for_each(Q, f"a{{p}}_{{v}} = {load}(y + {{p}} * y_row + {{at}}{n})"
                                       " * mgc_set1(rescale[{p}]);"))
            if self.scope.isa.dsp and self.scope.isa.lanes == 1:
                c("MGC_TWICE")
            with c.block(f"for (int32_t t = 0; t < keys; t++, s += {self.key_stride}, v += v_row)"):
                c(*self.prefetched_values(W),
                  tile.for_each(1, f"const mgc_v b{{v}} = {self.load('v + {at}', 'n' * bool(n))};"))
                # The scores of four neighbouring queries are one vector, whose lanes are operands of multiply-adds.
                if self.scope.isa.lane_fma and self.query_stride == 1 and Q % 4 == 0:
                    c(*(f"const mgc_v x{p} = mgc_load(s + {p});" for p in range(0, Q, 4)),
                      *(f"a{p}_{v} = mgc_fma_lane(a{p}_{v}, b{v}, x{p // 4 * 4}, {p % 4});"
                        for p, v in product(range(Q), tile.vectors)))
                else:
                    c(tile.products(Q, "b", f"s[{{p}} * {self.query_stride}]"))
            with c.block("if (last)", when=has_parts):
                c(tile.for_each(Q, "a{p}_{v} = a{p}_{v} * mgc_set1(factor[{p}]);"))
            c(tile.for_each(Q, f"{store}(y + {{p}} * y_row + {{at}}, a{{p}}_{{v}}{n});"), "(void)n;",
              *["(void)y_row;"] * (Q == 1))
        return c.text


class ColumnsTiles(AttentionTiles):
    """Tiles with one query in each lane, so scores of neighbouring queries are neighbours.

    It also reads these parameters:

    `vectors`: the vectors of queries in a task.
    `by_lane`: whether tiles load four elements of a key at once and multiply by their lanes.
    `few`: the queries up to which a task uses `FewQueriesTiles`.
    `columns`: the vectors of values in a tile.
    """

    p: ColumnsParameters

    def __init__(self, params: ColumnsParameters, scope: Scope):
        super().__init__(params, scope)
        self.vectors = params.vectors
        #: Queries of a task.
        self.width = params.vectors * self.lanes
        self.sizes = [params.rows, *(size for size in ((1,) if scope.compact else (4, 2, 1)) if size < params.rows)]
        self.query_stride, self.key_stride = 1, self.width
        #: Numbers of vectors of values in tiles.
        self.widths = [params.columns, *[1] * (params.columns > 1)]
        #: The tiles of tasks with at most `few` queries.
        self.few = FewQueriesTiles(replace(params, rows=params.few), scope, "few_") if params.few else None

    def for_each(self, statement: str) -> str:
        """Prints a statement for each vector v of queries; `{at}` in it stands for the first query of the vector."""
        return self.panel(self.vectors).for_each(1, statement)

    def results(self, begin: str) -> str:
        c = Printer()
        c("int32_t column = 0;")
        for W in self.widths:
            with self.for_columns(c, W):
                c(begin)
                for Q in self.query_sizes:
                    with c.block(f"for (; r + {Q} <= n; r += {Q})"):
                        c(self.add_values(Q, W))
        return c.text

    def transpose(self) -> str:
        """Prints a transpose in registers, by zips of the rows of one half with those of the other."""
        c, L, last = Printer(), self.lanes, self.lanes.bit_length() - 1
        c(*(f"const mgc_v r0_{i} = {i} < n ? mgc_load_n(from + {i} * row, count) : mgc_zero();" for i in range(L)))
        for stage, i, (half, name) in product(range(last), range(L // 2), enumerate(("low", "high"))):
            rows = f"r{stage}_{i}, r{stage}_{i + L // 2}"
            c(f"const mgc_v r{stage + 1}_{2 * i + half} = mgc_zip_{name}({rows});")
        for i in range(L):
            with c.block(f"if ({i} < count)"):
                c(f"mgc_store(to + {i} * to_row, r{last}_{i} * factor);")
        return c.text

    def scores(self, U: int) -> str:
        """Prints the function that computes the scores of U keys."""
        c, tile, width, shared = Printer(), self.panel(self.vectors), self.width, self.p.mask == "shared"
        accumulators = list(product(range(U), tile.vectors))
        c(f"/* Computes the scores of {U} keys. */")
        with c.function(f"static MGC_NOINLINE void scores_{U}(const float *transposed, const float *k, "
                        f"ptrdiff_t k_row, ptrdiff_t k_step, int32_t H{', const float *mask' * shared}, float *s)"):
            for p in range(U):
                c(f"mgc_v {', '.join(f'a{p}_{v} = mgc_zero()' for v in tile.vectors)};")
            c("int32_t h = 0;")
            if self.p.by_lane:
                with c.block("for (; h + 4 <= H; h += 4, k += 4)"):
                    c(*(f"const mgc_v x{p} = mgc_load(k + {p} * k_row);" for p in range(U)))
                    for lane in range(4):
                        c(*(f"const mgc_v b{lane}_{v} = mgc_load(transposed + {lane * width + v * self.lanes});"
                            for v in tile.vectors),
                          *(f"a{p}_{v} = mgc_fma_lane(a{p}_{v}, b{lane}_{v}, x{p}, {lane});" for p, v in accumulators))
                    c(f"transposed += {4 * width};")
            with c.block(f"for (; h < H; h++, k += k_step, transposed += {width})"):
                c(self.for_each("const mgc_v b{v} = mgc_load(transposed + {at});"),
                  tile.products(U, "b", "k[{p} * k_row]"))
            c(*(f"mgc_store(s + {p * width + v * self.lanes}, a{p}_{v}{f' + mgc_set1(mask[{p}])' * shared});"
                for p, v in accumulators), *["(void)k_row;"] * (U == 1))
        return c.text


class FewQueriesTiles(AttentionTiles):
    """Tiles with a row of scores for each query."""

    def __init__(self, params: AttentionParameters, scope: Scope, prefix: str = ""):
        super().__init__(params, scope)
        self.prefix = prefix
        open_queries = scope.known.S is None and not scope.compact
        self.sizes = list(range(params.rows, 0, -1)) if open_queries else [params.rows, *[1] * (params.rows > 1)]
        self.query_stride, self.key_stride = params.keys, 1
        #: A cache is read from memory; other keys and values have just been computed.
        if params.has_spare_rows and scope.isa.prefetch_bytes and scope.known.H and scope.known.V and not scope.compact:
            self.prefetch = CachePrefetch(scope, params.cache, prefix)

    @property
    def next_values(self) -> str:
        """C: its argument for keys: the values of the same part."""
        return f", v_head + {self.first_row} * v_row" * (self.prefetch is not None)

    def prefetch_functions(self) -> str:
        """Prints the functions that prefetch a key, and as many values of a row as a tile reads."""
        if self.prefetch is None:
            return ""
        H, V = self.scope.known.H, self.scope.known.V
        widths = sorted({W for Q in self.sizes for W in self.widths(Q)})
        return "\n".join((self.prefetch.function("prefetch_key", H), *(
            self.prefetch.function(f"prefetch_values_{W}", min(W * self.lanes, V)) for W in widths), ""))

    def prefetched_keys(self, U: int) -> list[str]:
        """Returns the calls that prefetch U keys in the loop over the keys t."""
        return [] if self.prefetch is None else [
            self.prefetch.call("prefetch_key", "k + t * k_row", "k_row", self.scope.known.H, u, "part - t")
            for u in range(U)]

    def next_head(self, axes: str) -> str:
        """Returns C: elements from the keys or values of a task to those of the next one."""
        stride, shared = self.stride(axes, "n"), self.p.shared
        return f"(head % {shared} == {shared - 1} ? {stride} : 0)" if shared > 1 else stride

    def next_keys(self) -> list[str]:
        """Declares `next_keys`, the keys that a task reads after a part: those of its next part, then those of the next
        head."""
        return [] if self.prefetch is None else [
            f"const {self.unit} *next_keys = "
            f"k_head + (key + part < seen ? ({self.first_row} + part) * k_row : {self.next_head(self.p.k_axes)});"]

    def prefetched_pages(self) -> str:
        """Prints the prefetches of the pages of the next task's keys and values, which are pages of their own if heads
        lie one after the other."""
        c, known, rows = Printer(), self.scope.known, "T < R ? T : R" if self.p.wraps else "T"
        if self.prefetch is not None and all("nt" in axes for axes in (self.p.k_axes, self.p.v_axes)):
            with c.block("if (task + 1 < end)"):
                c(f"const int32_t rows = {rows};",
                  self.prefetch.pages("k_head", "k_row", known.H, self.next_head(self.p.k_axes)),
                  self.prefetch.pages("v_head", "v_row", known.V, self.next_head(self.p.v_axes)))
        return c.text

    def widths(self, Q: int) -> list[int]:
        """Returns the numbers of vectors of values in tiles of Q queries, the largest first: as many as registers hold,
        so that whole rows of values are read, and those for the rest of a row."""
        # A tile keeps Q * W sums, a score and, if there are several queries, W vectors of values. Helium has no
        # multiply-add that reads memory, and without vectors the sums of one query should leave some registers.
        isa, V = self.scope.isa, self.scope.known.V
        widest = next(W for W in (8, 4, 2, 1) if (Q + (Q > 1)) * W < isa.registers)
        widest = min(widest, 2 if isa.helium else 8 if isa.lanes > 1 else 4)
        if V is None:
            return [widest, *[1] * (widest > 1)]
        rest, widths = V // self.lanes, []
        for W in (8, 4, 2):
            if W <= widest and W <= rest:
                widths.append(W)
                rest %= W
        return [*widths, *[1] * (rest > 0 or V % self.lanes > 0)]

    def results(self, begin: str) -> str:
        c = Printer()
        c(begin, *self.next_keys())
        for Q in self.query_sizes:
            with c.block(f"for (; r + {Q} <= n; r += {Q})"):
                c("int32_t column = 0;")
                for W in self.widths(Q):
                    with self.for_columns(c, W):
                        c(self.add_values(Q, W))
        return c.text

    @staticmethod
    def tile_keys(Q: int) -> tuple[int, int]:
        """Returns the numbers of keys in tiles of Q queries."""
        return (4, 1) if Q == 1 else (2, 1)

    def products(self, Q: int, U: int) -> str:
        """Prints the function that computes the scores of Q queries with U keys."""
        c, L, H, accumulators = Printer(), self.lanes, self.scope.known.H, list(product(range(Q), range(U)))
        c(f"/* Computes the scores of {Q} queries with {U} keys. */")
        with c.function(f"static MGC_INLINE void {self.prefix}products_{Q}_{U}(const float *q, ptrdiff_t q_row, "
                        f"const {self.unit} *k, ptrdiff_t k_row, int32_t H, float *s)"):
            for p in range(Q):
                c(f"mgc_v {', '.join(f'a{p}_{u} = mgc_zero()' for u in range(U))};")
            c("int32_t h = 0;")
            with c.block(f"for (; h + {L} <= H; h += {L})"):
                self.add(c, Q, U)
            if L > 1 and (H is None or H % L):
                with c.block("if (h < H)"):
                    self.add(c, Q, U, "H - h")
            factors = [f" * scale_of(k + {u} * k_row, H)" * (self.p.cache == "int8") for u in range(U)]
            c(*(f"s[{p * self.query_stride + u}] = mgc_sum(a{p}_{u}){factors[u]};" for p, u in accumulators),
              "(void)q_row, (void)k_row;")
        return c.text

    def add(self, c: Printer, Q: int, U: int, n: str = "") -> None:
        """Prints the products of a vector of Q queries and of U keys, from element h on. n: C, the valid lanes; empty:
        all."""
        c(*(f"const mgc_v b{u} = {self.load(f'k + {u} * k_row + h', n)};" for u in range(U)))
        load, lanes = ("mgc_load_n", f", {n}") if n else ("mgc_load", "")
        for p in range(Q):
            c(f"const mgc_v x{p} = {load}(q + {p} * q_row + h{lanes});",
              *(f"a{p}_{u} = mgc_fma(x{p}, b{u}, a{p}_{u});" for u in range(U)))
