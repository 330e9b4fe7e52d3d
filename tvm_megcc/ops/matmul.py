# SPDX-License-Identifier: Apache-2.0
"""Matrix products: fully connected layers, attention, batches of matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..context import Context
from ..errors import ShapeError
from ..ir.conditions import require_equal, require_shape
from ..ir.dims import Dim, ceildiv, product, round_up
from ..ir.graph import Attrs
from ..ir.types import DTYPES, TensorType
from .base import Case, Kernel, Lowered, OnnxNode, Operand, Operator, Site, Types, decomposes, extent_symbols, register
from .conv_kernels import has_bias, reach
from .rules import broadcast
from .sharing import Cut
from .tiling import BLOCK, Tiling

_DEPTH = 512
"""Rows of a panel of b that are copied to scratch at a time."""


def _dtype_refusal(inputs: Types, outputs: Types) -> str | None:
    if any(t is not None and t.dtype != "float32" for t in (*inputs, *outputs)):
        return "works on float32 only"
    return None


class PackedMatMul(Kernel):
    """A constant matrix on the right, packed: a 1x1 convolution whose pixels are the rows of a.

    vectors: of columns in the main tile; 0: what covers the shape best.
    """

    name = "packed"
    fuses_epilogue = True
    constants = (1, 2)

    def __init__(self, vectors: int = 0):
        self.vectors = vectors
        self.tile = f"{vectors}v" if vectors else ""

    def refuse(self, site):
        if site.inputs[1].rank != 2:
            return "the second operand must be one matrix"
        if site.attrs.trans_a:
            return "the first operand must not be transposed"
        return _dtype_refusal(site.inputs, site.outputs)

    def _cut(self, rows: Dim, depth: int, columns: int, context: Context) -> Cut:
        tiling = Tiling.of(context.isa, context.isa.lane_fma, self.vectors)
        return Cut.of(tiling, depth, columns, 1, rows, 1, True, context)

    def lower(self, site):
        lanes = site.isa.lanes
        rows, depth, columns = _sizes(site)
        cut = self._cut(rows, depth, columns, site.context)
        tiling, oh, ow, chunks = cut.tiling, cut.rows, cut.pixels, cut.chunks
        row = ow if isinstance(ow, int) else None
        vectors = tiling.best(row, columns)
        block = BLOCK if site.compact else tiling.block(row, vectors)
        packed = (block, vectors * lanes) if block > BLOCK else ()
        IC, OC, OH, OW, CHUNKS = extent_symbols("IC", "OC", "OH", "OW", "CHUNKS")
        extents = {"N": 1, "IC": depth, "IH": oh, "IW": ow, "OC": columns, "OH": oh, "OW": ow, "CHUNKS": chunks}
        N, IH, IW = extent_symbols("N", "IH", "IW")
        operands = [Operand("x", 0, N * reach(IH, OH, 1, 1, 1) * reach(IW, OW, 1, 1, 1) * IC),
                    Operand("w", 1, round_up(OC, lanes) * IC, ("columns", lanes, bool(site.attrs.trans_b), *packed))]
        bias = has_bias(site.op)
        if bias:
            operands.append(Operand("b", 2, round_up(OC, lanes), ("channel", lanes)))
        return Lowered(
            "conv2d/direct",
            Attrs(kh=1, kw=1, sh=1, sw=1, dh=1, dw=1, x_layout="nhwc", y_layout="nhwc", vpad=False, hpad=False,
                  bias=bias, grouped=False, tiling=tiling, block=block, kept=None, chunks_first=False),
            extents, tuple(operands), (Operand("y", 0, N * OH * OW * OC),), N * OH * CHUNKS,
            "matmul" + "_bias" * bias, self.label, channels=round_up(OC, lanes))

    def tiled(self, site):
        rows, _, columns = _sizes(site)
        if isinstance(rows, int):
            cut = PackedMatMul()._cut(*_sizes(site), site.context)
            yield from map(type(self), cut.tiling.others(cut.pixels, columns))

    def cost(self, site):
        rows, depth, columns = _sizes(site)
        if not isinstance(rows, int):
            return float(depth * columns)
        return 200 + rows * depth * -(-columns // site.isa.lanes) * 1.1


class PanelMatMul(Kernel):
    """Any operands; panels of the right one are copied to scratch."""

    name = "panel"
    fuses_epilogue = True

    def refuse(self, site):
        return _dtype_refusal(site.inputs, site.outputs)

    def lower(self, site):
        trans_a, trans_b = bool(site.attrs.trans_a), bool(site.attrs.trans_b)
        tiling = Tiling.of(site.isa)
        vectors = {16: 2, 8: 2}.get(site.isa.lanes, 4)
        rows = min(tiling.most_pixels(vectors), 8)
        m, n = site.y.shape[-2:]
        k = site.x.shape[-2 if trans_a else -1]
        M, K, N = extent_symbols("M", "K", "N")
        extents: dict[str, Dim] = {"M": m, "K": k, "N": n}
        batch = _batch(site.x.shape[:-2], site.inputs[1].shape[:-2])
        a, b, y = M * K, K * N, M * N
        for i, (extent, has_a, has_b) in enumerate(batch):
            (d,) = extent_symbols(f"D{i}")
            extents[f"D{i}"] = extent
            a, b, y = a * (d if has_a else 1), b * (d if has_b else 1), y * d
        panels = ceildiv(N, vectors * site.isa.lanes)
        operands = [Operand("a", 0, a), Operand("b", 1, b)]
        bias = has_bias(site.op)
        if bias:
            operands.append(Operand("bias", 2, N))
        kinds = tuple((has_a, has_b) for _, has_a, has_b in batch)
        what = "matmul" + "_ta" * trans_a + "_tb" * trans_b + "_bias" * bias
        if kinds:
            what += "_batch" + "".join("b" if a_ and b_ else "l" if a_ else "r" for a_, b_ in kinds)
        return Lowered(
            "matmul/panel",
            Attrs(trans_a=trans_a, trans_b=trans_b, bias=bias, batch=kinds, vectors=vectors, rows=rows, depth=_DEPTH),
            extents, tuple(operands), (Operand("y", 0, y),),
            panels * product(extent_symbols(*(f"D{i}" for i in range(len(batch))))), what, "panel",
            scratch=4 * _DEPTH * vectors * site.isa.lanes, epilogue_in_place=False, channels=N)

    def cost(self, site):
        if not site.y.is_static:
            return 2.0 * product(d for d in site.x.shape if isinstance(d, int))
        k = site.x.shape[-2 if site.attrs.trans_a else -1]
        return 500 + 1.4 * site.y.size * k / site.isa.lanes + 3.0 * site.inputs[1].size


class ScalarMatMul(PanelMatMul):
    """Integers, which wrap, and float64: a product a time."""

    name = "scalar"
    fuses_epilogue = False

    def refuse(self, site):
        if site.x.dtype in ("float32", "float16", "bool"):
            return "only integers and float64"
        same = all(t is None or t.dtype == site.x.dtype for t in (*site.inputs, *site.outputs))
        return None if same else "operands of different element types"

    def lower(self, site):
        lowered = super().lower(site)
        kept = {name: lowered.params[name] for name in ("trans_a", "trans_b", "bias", "batch")}
        dtype = site.x.dtype
        params = Attrs(unit=DTYPES[dtype][0], real=dtype == "float64",
                       unsigned="uint64_t" if site.x.itemsize == 8 else "uint32_t", **kept)
        rows = product(extent_symbols("M", *(f"D{i}" for i in range(len(kept["batch"])))))
        return replace(lowered, template="matmul/scalar", params=params, tasks=rows, how="scalar", scratch=0)


def _sizes(site: Site) -> tuple[Dim, int, int]:
    """(rows of a, length of the sums, columns of b) where b is one matrix, whose extents are known."""
    depth = site.inputs[1].shape[-1 if site.attrs.trans_b else -2]
    return product(site.y.shape[:-1]), depth, site.y.shape[-1]


def _batch(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> list[tuple[Dim, bool, bool]]:
    """(extent, is in a, is in b) of the batch axes, neighbours of one kind merged, extents of 1 dropped."""
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


@register
class MatMul(Operator):
    """numpy's matmul of operands of rank 2 and more, plus a bias for each column.

    Attributes: `trans_a`, `trans_b`: the last two axes of the operand are swapped. Operands: bias [N].
    """

    kind = "matmul"
    operands = ("a", "b", "bias?")
    onnx = ("MatMul",)
    relax = ("relax.matmul",)
    relay = ("nn.dense", "nn.batch_matmul")
    channel_axis = -1
    kernels = (PackedMatMul(), PanelMatMul(), ScalarMatMul())

    @staticmethod
    def infer(attrs: Attrs, a: TensorType, b: TensorType, bias: TensorType | None = None) -> tuple[TensorType, ...]:
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(f"wants matrices, not {a} and {b}")
        m, k = a.shape[-2:][::-1] if attrs.trans_a else a.shape[-2:]
        kb, n = b.shape[-2:][::-1] if attrs.trans_b else b.shape[-2:]
        require_equal(k, kb, f"products of {a} and {b} do not match: sums over {k} and over {kb}")
        if bias is not None:
            require_shape(bias.shape, (n,), f"bias {bias} for {n} columns")
        return (TensorType(a.dtype, (*broadcast(a.shape[:-2], b.shape[:-2]), m, n)),)

    @staticmethod
    def compute(attrs: Attrs, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        a = np.swapaxes(a, -1, -2) if attrs.trans_a else a
        b = np.swapaxes(b, -1, -2) if attrs.trans_b else b
        y = np.matmul(a, b)
        return (y if bias is None else y + bias,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        (a, b), (ta, tb) = node.inputs[:2], (node.type(0), node.type(1))
        if ta.rank == 0 or tb.rank == 0:
            raise ShapeError("an operand is a scalar")
        # A vector is a matrix of one row or one column, whose axis the result loses again.
        if ta.rank == 1:
            (a,) = node.emit("reshape", (a,), shape=(1, ta.shape[0]))
        if tb.rank == 1:
            (b,) = node.emit("reshape", (b,), shape=(tb.shape[0], 1))
        (y,) = node.emit("matmul", (a, b), trans_a=0, trans_b=0)
        if min(ta.rank, tb.rank) > 1:
            return (y,)
        shape = list(node.type_of(y).shape)
        if tb.rank == 1:
            del shape[-1]
        if ta.rank == 1:
            del shape[-1 if tb.rank == 1 else -2]
        return node.emit("reshape", (y,), shape=tuple(shape))

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * inputs[0].shape[-2 if attrs.trans_a else -1]


@decomposes("Gemm")
def gemm(node: OnnxNode) -> tuple[str, ...]:
    """alpha * A' @ B' + beta * C. Factors go into constants; what C cannot be as a bias is added behind."""
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    attrs = {"trans_a": node.attr("transA", 0), "trans_b": node.attr("transB", 0)}
    b = node.inputs[1]
    if alpha != 1.0 and node.is_const(1):
        b, alpha = node.constant(node.const(1) * np.float32(alpha)), 1.0
    columns = node.type(1).shape[0 if attrs["trans_b"] else 1]
    addend = node.inputs[2] if node.has(2) and beta != 0.0 else ""
    bias = ""
    if addend and node.is_const(2) and alpha == 1.0:
        value = node.const(2)
        if value.size == 1 or value.shape in ((columns,), (1, columns)):
            node.require_room(columns)
            bias = node.constant(np.broadcast_to(value.reshape(-1) * value.dtype.type(beta), (columns,)).copy())
            addend = ""
    (y,) = node.emit("matmul", (node.inputs[0], b, *filter(None, (bias,))), **attrs)
    if alpha != 1.0:
        (y,) = node.emit("mul", (y, node.constant(np.float32(alpha))))
    if addend:
        if beta != 1.0:
            (addend,) = node.emit("mul", (addend, node.constant(np.float32(beta))))
        (y,) = node.emit("add", (y, addend))
    return (y,)


def _case(a, b, bias=None, trans_a=0, trans_b=0, constant=(), dtype="float32") -> Case:
    operands = ((tuple(a), dtype), (tuple(b), dtype), ((bias,), dtype) if bias else None)
    return Case(operands, {"trans_a": trans_a, "trans_b": trans_b}, constant)


MatMul.cases = (
    _case((1, 64), (64, 10), 10, constant=(1, 2)),
    _case((1, 37), (1000, 37), 1000, trans_b=1, constant=(1, 2)),
    _case((1, 1), (1, 1), constant=(1,)),
    _case((3, 5, 40), (40, 33), 33, constant=(1, 2)),
    _case((31, 17), (17, 48), constant=(1,)),
    _case((7, 13), (13, 21), 21),
    _case((2, 3, 9, 20), (2, 3, 20, 35)),
    _case((2, 1, 9, 20), (3, 20, 8), trans_a=0),
    _case((2, 4, 6, 8), (2, 1, 10, 8), trans_b=1),
    _case((5, 30, 9), (5, 30, 18), trans_a=1),
    _case((2, 700), (700, 19), 19, trans_b=0),
    _case((9, 1100), (40, 1100), trans_b=1),
    _case((600, 3), (3, 1), trans_a=0),
    _case((1, 1), (1, 7)),
    _case((2, 5, 3), (3, 7), 7, dtype="float64"),
    _case((2, 1, 4, 3), (3, 5, 3), trans_b=1, dtype="int32"),
    _case((3, 4), (3, 6), trans_a=1, dtype="uint64"),
)
