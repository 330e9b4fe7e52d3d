# SPDX-License-Identifier: Apache-2.0
"""The kernels of attention. They keep the scores of a block of queries in workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...foreign import digest
from ...ir.dims import Dim, ceildiv, dim_min, likely, product
from ...ir.expr import c_float
from ...ops.cache_rows import CACHE_DTYPES, RING_BLOCK, SCALE_ELEMENTS
from ...ops.nn.fused_attention import extents_of
from ..base import FLOAT32, LARGE_CALL, Kernel, Lowered, Operand, extent_symbols, present
from ..parameters import Parameters, Scope
from ..site import Site
from ..tiling import Tiling
from .tiles import AttentionTiles, ColumnsTiles, FewQueriesTiles

#: The most queries whose scores are summed across lanes, in rows, rather than with a query in each lane.
FEW = 4
#: The most keys whose scores are in workspace at a time, on all CPUs: it decides how sums are split.
MAX_KEYS = RING_BLOCK


@dataclass(frozen=True)
class AttentionParameters(Parameters):
    """Parameters of `few_queries.c.j2`.

    q_axes, k_axes, v_axes, y_axes: the axes of operands and result in memory, a letter each, such as "bsnh": b batch,
        n head, s query, t key, h element of a query or key, v element of a value, c operand among several.
    q_index, k_index, v_index: the index of an operand along its axis "c", if it has one.
    scale: the factor of the scores, a float C literal.
    mask: "" if there is none; else which row of the mask query i has: "shared": row 0, "rows": row i, "repeated": row
        i % P.
    mask_b, mask_n: whether the mask differs between batch elements, between heads.
    mask_size: C: elements of one matrix of the mask, all its rows by T keys.
    causal: whether query s sees only the keys up to s + (keys - queries).
    shared: the number of query heads that share a head of keys and values.
    has_spare_rows: whether buffers of keys and values have other numbers of rows than there are keys.
    wraps: whether they are ring buffers.
    blind: whether a query may see no key; its result is then zeros.
    cache: the dtype of keys and values if it is not float32, else "".
    keys: the largest number of keys whose scores are in workspace at a time.
    rows: the number of queries in a tile; in `columns`, of keys in a tile of scores too.
    """

    q_axes: str
    k_axes: str
    v_axes: str
    y_axes: str
    q_index: int
    k_index: int
    v_index: int
    scale: str
    mask: str
    mask_b: bool
    mask_n: bool
    mask_size: str
    causal: bool
    shared: int
    has_spare_rows: bool
    wraps: bool
    blind: bool
    cache: str
    keys: int
    rows: int

    def microkernel(self, scope: Scope) -> AttentionTiles:
        return FewQueriesTiles(self, scope)

    @property
    def operation(self) -> str:
        """Returns the left part of the kernel's name."""
        operands = ((self.q_axes, self.q_index), (self.k_axes, self.k_index), (self.v_axes, self.v_index),
                    (self.y_axes, 0))
        axes = "_".join(axes + (str(index) if "c" in axes else "") for axes, index in operands)
        mask = f"_mask_{self.mask}{'_b' * self.mask_b}{'_n' * self.mask_n}" if self.mask else ""
        kinds = f"_shared{self.shared}" if self.shared > 1 else ""
        kinds += "_ring" if self.wraps else "_spare" * self.has_spare_rows
        kinds += "_blind" * self.blind + (f"_{self.cache}" if self.cache else "")
        return f"attention_{axes}{mask}{'_causal' * self.causal}{kinds}_x{digest(self.scale, 4)}"


@dataclass(frozen=True)
class ColumnsParameters(AttentionParameters):
    """Parameters of `columns.c.j2`.

    vectors: vectors of queries in a task.
    by_lane: tiles load four elements of a key at once, and multiply by their lanes.
    few: the number of queries up to which a task computes them as `few_queries` does; 0: no task does.
    columns: the number of vectors of values in a tile.
    """

    vectors: int
    by_lane: bool
    few: int
    columns: int

    def microkernel(self, scope: Scope) -> AttentionTiles:
        return ColumnsTiles(self, scope)


def likely_extents(site: Site) -> dict[str, int]:
    """Returns the likely extent of each axis, by the letters of `AttentionParameters.q_axes`."""
    return {axis: likely(dim) for axis, dim in extents_of(site.attrs, site.inputs[:3]).items()}


class AttentionColumns(Kernel):
    """Computes a block of queries in one task, one query in each lane. If their number is unknown, a task with a few
    queries computes them as `AttentionFewQueries` does: a decoder has many at first, then one at a time."""

    name = "columns"
    dtypes = (FLOAT32, CACHE_DTYPES, CACHE_DTYPES, FLOAT32)

    def refuse(self, site: Site):
        attrs, keys, values = site.attrs, site.inputs[1].dtype, site.inputs[2].dtype
        has_neighbours = attrs.k_axes.endswith("h")  # keys of other dtypes are converted in vectors along H
        if keys != values or (keys != "float32" and not has_neighbours):
            return f"keys of {keys} with axes {attrs.k_axes}, values of {values}"
        are_neighbours = attrs.v_axes.endswith("v") and attrs.y_axes.endswith("v")
        return None if are_neighbours else "values are not neighbours"

    def tile(self, site: Site) -> tuple[int, int, int]:
        """Returns (rows, vectors, columns): queries, vectors of queries and vectors of values of a tile.

        Scores are tiles of `rows` keys by `vectors` vectors of queries, results of `rows` queries by `columns` vectors
        of values, so both have as many accumulators.
        """
        vectors = columns = 2 if site.isa.lanes >= 8 or site.isa.helium else 4
        queries = extents_of(site.attrs, site.inputs[:3])["s"]
        # One token has a query for each head that shares keys. At `-O size` calls with other numbers share the kernel.
        if site.isa.lanes == 1 and isinstance(queries, int) and not site.compact:
            vectors = max(1, min(vectors, queries))
        rows = 4 if site.isa.lane_fma else min(Tiling.of(site.isa).max_pixels(vectors), 8)
        return rows, vectors, columns

    def lower(self, site: Site) -> Lowered:
        rows, vectors, columns = self.tile(site)
        common = self.parameters(site, rows)
        by_lane = site.isa.lane_fma and common.k_axes.endswith("h")
        params = ColumnsParameters(**vars(common), vectors=vectors, columns=columns, by_lane=by_lane,
                                   few=self.few(site))
        S, T, H = extent_symbols("S", "T", "H")
        widened = 4 * rows * H if params.cache else 0
        width, keys = vectors * site.isa.lanes, MAX_KEYS if site.compact else dim_min(T, MAX_KEYS)
        # float32: transposed queries [H][width]; scores [keys][width]; the keys of a tile [rows][H], if they are not
        # float32; and [few][MAX_KEYS], so that tasks with few queries have space for their scores.
        scratch = 4 * width * (H + keys) + widened + 4 * params.few * MAX_KEYS
        lowered = self.call(site, params, ceildiv(S, width), scratch, self.name)
        # In place is safe where heads of q and y have equal extents: a task reads its queries before it writes their
        # results to the same addresses.
        same_axes = params.q_axes.replace("h", "v") == params.y_axes
        return replace(lowered, in_place=((0, 0),) if same_axes else ())

    @staticmethod
    def few(site: Site) -> int:
        """Returns the number of queries up to which a task sums across lanes. It is 0 if the number of queries is
        known, at `-O size`, if sums must not be reordered, and if elements of a query or key are no neighbours."""
        queries = extents_of(site.attrs, site.inputs[:3])["s"]
        by_rows = site.attrs.q_axes.endswith("h") and site.attrs.k_axes.endswith("h")
        is_open = not isinstance(queries, int) and not site.compact and not site.context.reproducible
        return FEW if is_open and by_rows and site.isa.lanes > 1 else 0

    @staticmethod
    def parameters(site: Site, rows: int) -> AttentionParameters:
        attrs, mask = site.attrs, site.inputs[3].shape if site.has(3) else ()
        mask_rows = "" if not mask else "shared" if mask[2] == 1 else "rows" if attrs.groups == 1 else "repeated"
        key_dtype = site.inputs[1].dtype
        return AttentionParameters(
            q_axes=attrs.q_axes, k_axes=attrs.k_axes, v_axes=attrs.v_axes, y_axes=attrs.y_axes,
            q_index=attrs.q_at, k_index=attrs.k_at, v_index=attrs.v_at, scale=c_float(attrs.scale),
            mask=mask_rows, mask_b=bool(mask) and mask[0] != 1, mask_n=bool(mask) and mask[1] != 1,
            mask_size={"rows": "S * T", "repeated": "P * T"}.get(mask_rows, "T"), causal=attrs.causal,
            shared=attrs.shared, has_spare_rows=attrs.seen is not None, wraps=attrs.wraps, blind=attrs.blind,
            cache="" if key_dtype == "float32" else key_dtype, keys=MAX_KEYS, rows=rows)

    @staticmethod
    def call(site: Site, params: AttentionParameters, blocks: Dim, scratch: Dim, template: str,
             tile: str = "") -> Lowered:
        """Returns the call.

        Args:
            blocks: the number of blocks of queries in a head.
            scratch: bytes of workspace for each worker.
            template, tile: the parts of the algorithm's name.
        """
        extents = extents_of(site.attrs, site.inputs[:3])
        given_extents = {axis.upper(): extents[axis] for axis in "bnsthvc" if axis in extents}
        shares_heads, has_spare_rows = params.shared > 1, params.has_spare_rows
        given_extents |= {"M": extents["m"]} if shares_heads else {}
        given_extents |= {"R": extents["r"]} if has_spare_rows else {}
        if params.mask == "repeated":
            given_extents["P"] = site.inputs[3].shape[2]

        def size(axes: str) -> Dim:
            return product(extent_symbols(*axes.upper()))

        def cache_size(axes: str) -> Dim:
            axes = axes.replace("n", "m" if shares_heads else "n").replace("t", "r" if has_spare_rows else "t")
            return size(axes[:-1]) * (size(axes[-1]) + SCALE_ELEMENTS) if params.cache == "int8" else size(axes)

        mask = "b" * params.mask_b + "n" * params.mask_n + {"rows": "s", "repeated": "p"}.get(params.mask, "") + "t"
        inputs = present(site, Operand("q", 0, size(params.q_axes)), Operand("k", 1, cache_size(params.k_axes)),
                         Operand("v", 2, cache_size(params.v_axes)), Operand("mask", 3, size(mask)))
        return Lowered("attention/" + template, params, given_extents, inputs, (Operand("y", 0, size(params.y_axes)),),
                       size("bn") * blocks, params.operation, template + tile, scratch=scratch)

    def cost(self, site: Site) -> float:
        """Estimates the cycles of the tiles, in whole vectors of queries, the exponentials, and the loads and
        transposes."""
        extents = likely_extents(site)
        _, vectors, _ = self.tile(site)
        width = vectors * site.isa.lanes
        blocks = extents["b"] * extents["n"] * -(-extents["s"] // width)
        columns = -(-extents["v"] // site.isa.lanes)
        products = 0.7 * extents["t"] * (vectors * extents["h"] + min(extents["s"], width) * columns)
        # 0.7: a multiply-add of a tile; 12: an exponential, and the maximum and sum; 4: a transposed query.
        return LARGE_CALL + blocks * (products + vectors * (12 * extents["t"] + 4 * extents["h"]))


class AttentionFewQueries(AttentionColumns):
    """Computes a few queries in one task, which reads the keys once: for decoders, which have one query at a time."""

    name = "few_queries"

    def reorders_sums(self, site: Site) -> bool:
        return True

    def refuse(self, site: Site):
        if not all(axes.endswith("h") for axes in (site.attrs.q_axes, site.attrs.k_axes)):
            return "the numbers of a key are not neighbours"
        return super().refuse(site)

    def lower(self, site: Site) -> Lowered:
        queries = extents_of(site.attrs, site.inputs[:3])["s"]
        rows = max(min(queries, FEW), 1) if isinstance(queries, int) else FEW
        (S,) = extent_symbols("S")
        # Scratch: scores, float32 [rows][MAX_KEYS].
        return self.call(site, self.parameters(site, rows), ceildiv(S, rows), 4 * rows * MAX_KEYS, self.name,
                         f"_{rows}q")

    def cost(self, site: Site) -> float:
        """Estimates the cycles of the sums across lanes, the exponentials and the products."""
        extents, lanes = likely_extents(site), site.isa.lanes
        scores = extents["b"] * extents["n"] * extents["s"] * extents["t"]
        # 6: a sum across lanes; 20: an exponential of a vector; 1.2 and 1: multiply-adds with keys and with values.
        return LARGE_CALL + scores * (
            6 + 20 / lanes + 1.2 * -(-extents["h"] // lanes) + 1.0 * -(-extents["v"] // lanes))
