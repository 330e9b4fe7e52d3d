# SPDX-License-Identifier: Apache-2.0
"""The kernels of matmul: `packed` for constant weights, `panel` for any float operands, `dots` for one column, `scalar`
for integers and float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import Dim, ceildiv, dim_max, product, round_up
from ..base import ANY, CALL, FLOAT32, INTEGERS, LARGE_CALL, Kernel, Lowered, Operand, Tiled, extent_symbols, present
from ..blocking import CacheBlock
from ..conv2d.direct import DirectParameters
from ..conv2d.geometry import POINT
from ..microkernel.panel_tile import PanelTile
from ..microkernel.tile import Multiply
from ..parameters import Parameters, Scope
from ..sharing import TaskGrid
from ..site import Site
from ..tiling import Tiling
from .weight_dtype import weight_dtype

#: Rows of a panel of b that `panel` copies to scratch at a time: 32 KB with 16 columns, as much as L1 holds.
_PANEL_ROWS = 512


class PackedMatMul(Tiled):
    """Product with a packed constant matrix on the right. It is a 1x1 convolution in layout nhwc, whose pixels are the
    rows of a, and uses the template of `direct`."""

    name = "packed"
    dtypes = (FLOAT32,)
    float16 = True
    fuses_epilogue = True
    constants = (1, 2)

    def refuse(self, site):
        if site.inputs[1].rank != 2:
            return "the second operand must be one matrix"
        if site.attrs.trans_a:
            return "the first operand must not be transposed"
        return None

    def lower(self, site):
        lanes = site.isa.lanes
        _, depth, columns = _sizes(site)
        # The rows of a become an image of `oh` rows of `ow` pixels: the template computes a row in a task, and the grid
        # of least cost has rows that tiles fill, and enough of them for several threads.
        grid = task_grid(site, *_sizes(site), vectors=self.vectors)
        tiling, oh, ow, chunks = grid.tiling, grid.rows, grid.pixels, grid.chunks
        row = ow if isinstance(ow, int) else None
        vectors = tiling.best_vectors(row, columns)
        cache_block = None
        # A block of weights that stays in L1 gains if several tiles of a row use it. Only the kernels for V8 loop over
        # such blocks here (docs/web.md).
        has_several_tiles = row is not None and row > tiling.max_pixels(vectors)
        if tiling.hoists_loads and has_several_tiles and not site.compact:
            cache_block = CacheBlock.of(depth, vectors * lanes, row, site.target)
        N, IC, IH, IW, OC, OH, OW, CHUNKS = extent_symbols("N", "IC", "IH", "IW", "OC", "OH", "OW", "CHUNKS")
        extents = {"N": 1, "IC": depth, "IH": oh, "IW": ow, "OC": columns, "OH": oh, "OW": ow, "CHUNKS": chunks}
        # The kernel addresses x by IH and IW, and reads OH rows of OW pixels. They are equal here, but the kernel may
        # not rely on it, so the size holds for any four extents.
        weights, block, _ = packed_weights(site, grid, IC, OC)
        operands = present(
            site, Operand("x", 0, N * dim_max(IH, OH) * dim_max(IW, OW) * IC),
            weights, Operand("b", 2, round_up(OC, lanes), ("channel", lanes)))
        parameters = DirectParameters(
            *POINT, bias=site.has(2), tiling=tiling, x_layout="nhwc", y_layout="nhwc", block=block,
            cache_block=cache_block, weights=weights.dtype)
        # Scratch, with a cache block of some input channels: the sums of a row between blocks (blocking.py).
        return Lowered(
            "conv2d/direct", parameters, extents, operands, (Operand("y", 0, N * OH * OW * OC),), N * OH * CHUNKS,
            "matmul" + "_bias" * site.has(2), self.label, channels=round_up(OC, lanes),
            scratch=cache_block.partial_sum_bytes(depth, row) if cache_block else 0)

    def other_tiles(self, site):
        rows, _, columns = _sizes(site)
        if isinstance(rows, int):
            grid = task_grid(site, *_sizes(site))  # with the default tile, whatever this one is
            yield from map(type(self), grid.tiling.other_tile_vectors(grid.pixels, columns))

    def cost(self, site):
        rows, depth, columns = _sizes(site)
        # 1.1: a multiply-add of vectors with its loads.
        return CALL + rows * depth * -(-columns // site.isa.lanes) * 1.1


def task_grid(site: Site, rows: Dim, depth: int, columns: int, vectors: int = 0) -> TaskGrid:
    """Returns the division of a packed product into tasks. rows, columns: of the result. depth: the length of a sum.
    vectors: of columns in a tile; 0: chosen for the shape."""
    tiling = Tiling.of(site.isa, lane_fma=site.isa.lane_fma, vectors=vectors)
    if not site.compact:  # a tile has no more rows, 4 * depth bytes apart, than the L1 cache holds
        tiling = tiling.for_rows(4 * depth, site.target)
    return TaskGrid.of(tiling, depth=depth, channels=columns, images=1, rows=rows, pixels=1, any_rows=True,
                       context=site.context)


def packed_weights(site: Site, grid: TaskGrid, depth: Dim, columns: Dim) -> tuple[Operand, int, int]:
    """Returns operand 1 of a packed product, the columns in a block of it, and the columns of a tile.

    depth, columns: symbols of extents: the length of a sum, and the columns of the result.
    """
    lanes, trans_b = site.isa.lanes, bool(site.attrs.trans_b)
    known_columns = site.inputs[1].shape[0 if trans_b else 1]
    block, packer_block = grid.packed_block(known_columns, site.compact)
    step = packer_block[1] if packer_block else block
    return Operand("w", 1, round_up(columns, lanes) * depth, ("columns", lanes, trans_b, *packer_block),
                   dtype=weight_dtype(site)), block, step


@dataclass(frozen=True)
class ProductParameters(Parameters):
    """Parameters of matrix products.

    trans_a, trans_b: whether a is stored as [K][M], b as [N][K].
    bias: whether there is a bias, an element for each column.
    batch: for each batch axis, the outermost first, (whether a has it, whether b has it); else it is broadcast.
    """

    trans_a: bool
    trans_b: bool
    bias: bool
    batch: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True)
class PanelParameters(ProductParameters):
    """Parameters of `panel.c.j2`.

    vectors: vectors of columns in a panel of b.
    rows: rows of a tile.
    depth: rows of b that are copied at a time.
    """

    vectors: int
    rows: int
    depth: int

    def microkernel(self, scope: Scope) -> PanelTile:
        # Helium multiplies vectors by an element in a general register.
        return PanelTile(self.vectors, scope, Multiply(scope.float if scope.isa.helium else ""))


class PanelMatMul(Kernel):
    """Product of any float operands. It copies panels of b, which are some columns, to scratch."""

    name = "panel"
    dtypes = (FLOAT32,)
    fuses_epilogue = True

    def lower(self, site):
        trans_a, trans_b = bool(site.attrs.trans_a), bool(site.attrs.trans_b)
        tiling = Tiling.of(site.isa)
        # Panels of 16 columns, of 32 on vectors of 16 lanes; of 4 without vectors.
        vectors = {16: 2, 8: 2}.get(site.isa.lanes, 4)
        rows = min(tiling.max_pixels(vectors), 8)
        m, n = site.y.shape[-2:]
        k = site.x.shape[-2 if trans_a else -1]
        M, K, N = extent_symbols("M", "K", "N")
        extents: dict[str, Dim] = {"M": m, "K": k, "N": n}
        batch = _batch(site.x.shape[:-2], site.inputs[1].shape[:-2])
        a_size, b_size, y_size = M * K, K * N, M * N
        for i, (extent, has_a, has_b) in enumerate(batch):
            (d,) = extent_symbols(f"D{i}")
            extents[f"D{i}"] = extent
            a_size, b_size, y_size = a_size * (d if has_a else 1), b_size * (d if has_b else 1), y_size * d
        panels = ceildiv(N, vectors * site.isa.lanes)
        bias = site.has(2)
        batch_axes = tuple((has_a, has_b) for _, has_a, has_b in batch)
        operation = "matmul" + "_ta" * trans_a + "_tb" * trans_b + "_bias" * bias
        if batch_axes:
            # An axis of both operands, of the left one or of the right one.
            operation += "_batch" + "".join({(True, True): "b", (True, False): "l", (False, True): "r"}[axis]
                                            for axis in batch_axes)
        # Scratch: _PANEL_ROWS rows of the panel, float32 [512][columns of the panel]. Until the last of them, y holds
        # partial sums, so no operand of the epilogue may share its memory.
        return Lowered(
            "matmul/panel",
            PanelParameters(trans_a=trans_a, trans_b=trans_b, bias=bias, batch=batch_axes, vectors=vectors, rows=rows,
                            depth=_PANEL_ROWS),
            extents, present(site, Operand("a", 0, a_size), Operand("b", 1, b_size), Operand("bias", 2, N)),
            (Operand("y", 0, y_size),),
            panels * product(extent_symbols(*(f"D{i}" for i in range(len(batch))))), operation, "panel",
            scratch=4 * _PANEL_ROWS * vectors * site.isa.lanes, epilogue_in_place=False, channels=N)

    def cost(self, site):
        k = site.x.shape[-2 if site.attrs.trans_a else -1]
        # A few columns cost as much as a whole vector.
        columns = max(site.y.shape[-1], site.isa.lanes)
        # 1.4: a multiply-add of vectors with its loads; 3: an element of b is copied to a panel.
        return LARGE_CALL + 1.4 * product(site.y.shape[:-1]) * columns * k / site.isa.lanes + 3.0 * site.inputs[1].size


@dataclass(frozen=True)
class DotsParameters(Parameters):
    """Parameters of `dots.c.j2`.

    bias: whether there is a bias.
    columns: whether each matrix of a batch has a column b of its own; else there is one b.
    """

    bias: bool
    columns: bool


class DotsMatMul(Kernel):
    """A matrix times one column, or each of several matrices times a column of its own. Each row has a vector of
    partial sums, and as many rows as a vector has lanes are computed at once."""

    name = "dots"
    dtypes = (FLOAT32,)
    fuses_epilogue = True

    def reorders_sums(self, site: Site) -> bool:
        return True

    def refuse(self, site):
        if site.y.shape[-1] != 1 or self._has_columns(site) is None:
            return "the second operand must be one column, or one for each matrix"
        if site.attrs.trans_a:
            return "the first operand must not be transposed"
        if site.isa.lanes == 1:
            return "there are no vectors"
        return None

    @staticmethod
    def _has_columns(site: Site) -> bool | None:
        """Says whether each matrix has a column of its own; None if several share one, but not all."""
        axes = [(has_a, has_b) for _, has_a, has_b in _batch(site.x.shape[:-2], site.inputs[1].shape[:-2])]
        if not any(has_b for _, has_b in axes):
            return False
        return True if axes == [(True, True)] else None

    def lower(self, site):
        M, K, R = extent_symbols("M", "K", "R")
        bias, columns = site.has(2), self._has_columns(site)
        extents = {"M": product(site.y.shape[:-1]), "K": site.x.shape[-1]}
        if columns:
            extents["R"] = site.y.shape[-2]
        return Lowered(
            "matmul/dots", DotsParameters(bias, columns), extents,
            present(site, Operand("a", 0, M * K), Operand("b", 1, ceildiv(M, R) * K if columns else K),
                    Operand("bias", 2, 1)), (Operand("y", 0, M),),
            ceildiv(M, site.isa.lanes), "matmul_column" + "s" * columns + "_bias" * bias, "dots",
            channels=1)

    def cost(self, site):
        lanes, depth = site.isa.lanes, site.x.shape[-1]
        rows = ceildiv(product(site.y.shape[:-1]), lanes) * lanes
        # For each row: 1.1 for a multiply-add of vectors with its loads, 3 for the sum across its lanes.
        return CALL + rows * (ceildiv(depth, lanes) * 1.1 + 3)


@dataclass(frozen=True)
class ScalarParameters(ProductParameters):
    """Parameters of `scalar.c.j2`. unit: C type of an element. unsigned: C type in which integers are added, because
    its overflow wraps. is_float: elements are float64."""

    unit: str
    unsigned: str
    is_float: bool


class ScalarMatMul(PanelMatMul):
    """Products of integers, which wrap, or of float64, one element at a time."""

    name = "scalar"
    dtypes, uniform = ((*INTEGERS, "float64"), ANY), True
    fuses_epilogue = False

    def lower(self, site):
        lowered = super().lower(site)
        panel: PanelParameters = lowered.params
        params = ScalarParameters(
            trans_a=panel.trans_a, trans_b=panel.trans_b, bias=panel.bias, batch=panel.batch, unit=site.x.c_type,
            unsigned=site.x.c_unsigned, is_float=site.x.dtype == "float64")
        rows = product(extent_symbols("M", *(f"D{i}" for i in range(len(panel.batch)))))
        # The template copies no panel, so it needs no scratch.
        return replace(lowered, template="matmul/scalar", params=params, tasks=rows, algorithm="scalar", scratch=0)


def _sizes(site: Site) -> tuple[Dim, int, int]:
    """Returns (rows of a in all its matrices, length of a sum, columns of b) of a product whose b is one matrix."""
    depth = site.inputs[1].shape[-1 if site.attrs.trans_b else -2]
    return product(site.y.shape[:-1]), depth, site.y.shape[-1]


def _batch(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> list[tuple[Dim, bool, bool]]:
    """Returns (extent, a has it, b has it) for each axis of the batch. a, b: extents of the operands without the last
    two. Axes of extent 1 are left out; neighbouring axes that the same operands have become one."""
    rank = max(len(a), len(b))
    merged: list[tuple[Dim, bool, bool]] = []
    for da, db in zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True):
        has_a, has_b = da != 1, db != 1
        if not (has_a or has_b):
            continue
        extent = da if has_a else db
        if merged and merged[-1][1:] == (has_a, has_b):
            merged[-1] = (merged[-1][0] * extent, has_a, has_b)
        else:
            merged.append((extent, has_a, has_b))
    return merged
