# SPDX-License-Identifier: Apache-2.0
"""The kernels of reductions and of what walks along one axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.dims import Dim, Symbol, ceildiv, product
from ..ir.graph import Attrs, Op
from ..ir.types import DTYPES, PLAIN, TensorType
from .base import Kernel, Lowered, Operand, Site, extent_symbols, possible_layouts
from .memory import memory_axes


@dataclass(frozen=True)
class Fold:
    """A reduction in C.

    start: the value of no elements. step: joins accumulator `a` and element `v`, vectors. join: joins two scalars
    `a` and `v`; "" where missing lanes may count as 0 and mgc_sum() joins them. finish: the result of the vector
    `a` of reduced values; `count` is how many elements each came from. Of the tables for scalars all are scalars.
    """

    start: str
    step: str
    join: str = ""
    finish: str = "a"


FOLDS = {
    "sum": Fold("0.0f", "a + v"),
    "mean": Fold("0.0f", "a + v", finish="a / mgc_set1(count)"),
    "max": Fold("-MGC_INF", "mgc_max(a, v)", "v > a ? v : a"),
    "min": Fold("MGC_INF", "mgc_min(a, v)", "v < a ? v : a"),
    "prod": Fold("1.0f", "a * v", "a * v"),
    "l1": Fold("0.0f", "a + mgc_abs(v)"),
    "l2": Fold("0.0f", "mgc_fma(v, v, a)", finish="mgc_sqrt(a)"),
    "sum_square": Fold("0.0f", "mgc_fma(v, v, a)"),
    "log_sum": Fold("0.0f", "a + v", finish="mgc_log(a)"),
}

#: The same for integers, which wrap; start "least" or "most" is the limit of the element type.
INTEGER_FOLDS = {
    "sum": Fold("0", "(T)((U)a + (U)v)"), "prod": Fold("1", "(T)((U)a * (U)v)"),
    "max": Fold("least", "v > a ? v : a"), "min": Fold("most", "v < a ? v : a"),
    "l1": Fold("0", "(T)(v < 0 ? (U)a - (U)v : (U)a + (U)v)"), "sum_square": Fold("0", "(T)((U)a + (U)v * (U)v)"),
}

#: The same for float64.
REAL_FOLDS = {
    "sum": Fold("0.0", "a + v"), "mean": Fold("0.0", "a + v", finish="a / count"),
    "max": Fold("-MGD_INF", "mgd_max(a, v)"), "min": Fold("MGD_INF", "mgd_min(a, v)"), "prod": Fold("1.0", "a * v"),
    "l1": Fold("0.0", "a + mgd_abs(v)"), "l2": Fold("0.0", "mgd_mla(v, v, a)", finish="mgd_sqrt(a)"),
    "sum_square": Fold("0.0", "mgd_mla(v, v, a)"), "log_sum": Fold("0.0", "a + v", finish="mgd_log(a)"),
}


def reduced_axes(x: TensorType, axes: tuple[int, ...]) -> list[tuple[Dim, bool]]:
    """The operand's axes in memory, neighbours merged: extent, and whether it is reduced."""
    merged: list[tuple[Dim, bool]] = []
    for axis, _, extent in memory_axes(x):
        reduced = axis in axes
        if extent == 1:
            continue
        if merged and merged[-1][1] == reduced:
            merged[-1] = (merged[-1][0] * extent, reduced)
        else:
            merged.append((extent, reduced))
    return merged if any(reduced for _, reduced in merged) else [*merged, (1, True)]


class Reduce(Kernel):
    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            # The pad lanes of a blocked tensor are no elements.
            blocked = layout.kind == "nchwc"
            if layout == PLAIN or (site.attrs.keepdims and not (blocked and 1 in site.attrs.axes)):
                yield (layout,), (layout,)

    def lower(self, site: Site) -> Lowered:
        axes = reduced_axes(site.x, site.attrs.axes)
        extents = {f"D{index}": extent for index, (extent, _) in enumerate(axes)}
        d = [Symbol(name) for name in extents]
        kept = [symbol for symbol, (_, reduced) in zip(d, axes, strict=True) if not reduced]
        reduced = tuple(flag for _, flag in axes)
        pattern = "".join("kr"[flag] for flag in reduced)
        return Lowered(
            f"reduce/{self.name}", Attrs(reduced=reduced, **self.params(site.op, site.x)), extents,
            (Operand("x", 0, product(d)),), (Operand("y", 0, product(kept)),), self.tasks(kept, reduced, site.target),
            f"{site.kind}_{pattern}", self.name)

    def tasks(self, kept: list[Symbol], reduced: tuple[bool, ...], target) -> Dim:
        return product(kept)

    def params(self, op: Op, x: TensorType) -> dict:
        raise NotImplementedError

    @staticmethod
    def _name(op: Op) -> str:
        return op.kind.removeprefix("reduce_")


class ReduceVectors(Reduce):
    """float32: along the last axis with vectors of partial results, across it a vector of results at a time."""

    name = "vector"

    def refuse(self, site: Site):
        if self._name(site.op) not in FOLDS:
            return "is several simpler reductions"
        return None if site.x.dtype == "float32" else "only float32"

    def tasks(self, kept, reduced, target) -> Dim:
        return product(kept) if reduced[-1] else product(kept[:-1]) * ceildiv(kept[-1], target.isa.lanes)

    def params(self, op: Op, x: TensorType) -> dict:
        fold = FOLDS[self._name(op)]
        return {"start": fold.start, "step": fold.step, "join": fold.join, "finish": fold.finish}

    def cost(self, site: Site) -> float:
        return site.x.stored * 2 / site.isa.lanes if site.x.is_static else 1e6


class ReduceScalars(Reduce):
    """Integers and float64, one element at a time."""

    name = "scalar"

    def refuse(self, site: Site):
        if site.x.dtype in ("float32", "float16", "bool"):
            return "only integers and float64"
        return None if self._name(site.op) in self._folds(site.x) else "not on integers"

    @staticmethod
    def _folds(x: TensorType) -> dict[str, Fold]:
        return REAL_FOLDS if x.dtype == "float64" else INTEGER_FOLDS

    def params(self, op: Op, x: TensorType) -> dict:
        fold = self._folds(x)[self._name(op)]
        name = x.dtype.upper()
        limits = {"least": f"{name}_MIN" if name.startswith("INT") else "0", "most": f"{name}_MAX"}
        # Without a sign there is nothing to compare with 0.
        step = "(T)((U)a + (U)v)" if self._name(op) == "l1" and x.dtype.startswith("uint") else fold.step
        return {"start": limits.get(fold.start, fold.start), "step": step, "finish": fold.finish,
                "unit": DTYPES[x.dtype][0], "unsigned": "uint64_t" if x.itemsize == 8 else "uint32_t"}


class AlongAxis(Kernel):
    """Operators on the lines of one axis: [OUTER][N][INNER] in memory."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout == PLAIN or (layout.kind == "nhwc" and site.y.rank == 4):
                yield (layout,), (layout,)

    @staticmethod
    def extents(op: Op, x: TensorType) -> dict[str, Dim]:
        axes = memory_axes(x)
        position = next(index for index, (axis, _, _) in enumerate(axes) if axis == op.attrs.axis % x.rank)
        sizes = [extent for _, _, extent in axes]
        return {"OUTER": product(sizes[:position]), "N": sizes[position], "INNER": product(sizes[position + 1:])}


class ArgExtremeScalars(AlongAxis):
    name = "scalar"

    def refuse(self, site: Site):
        return "not float16" if site.x.dtype == "float16" else None

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        better = ("<" if site.kind == "arg_min" else ">") + ("=" if site.attrs.last else "")
        real = site.x.dtype.startswith("float")
        yields = real and site.attrs.get("nan_yields", False)
        keeps = better[0] + ("" if site.attrs.last else "=")
        params = Attrs(better=better, unit=DTYPES[site.x.dtype][0], real=real, keeps=keeps if yields else "")
        return Lowered("reduce/arg_extreme", params, self.extents(site.op, site.x),
                       (Operand("x", 0, outer * n * inner),), (Operand("y", 0, outer * inner),), outer * inner,
                       site.kind + "_last" * site.attrs.last + "_tvm" * yields, self.name)


class CumulativeScalars(AlongAxis):
    name = "scalar"

    def refuse(self, site: Site):
        return f"not {site.x.dtype}" if site.x.dtype in ("float16", "bool") else None

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        dtype, size = site.x.dtype, outer * n * inner
        wide = "uint64_t" if site.x.itemsize == 8 else "uint32_t"
        params = Attrs(unit=DTYPES[dtype][0], sum=DTYPES[dtype][0] if dtype.startswith("float") else wide,
                       exclusive=site.attrs.exclusive, reverse=site.attrs.reverse, product=site.kind == "cumprod")
        what = site.kind + "_exclusive" * site.attrs.exclusive + "_reverse" * site.attrs.reverse
        return Lowered("reduce/cumulative", params, self.extents(site.op, site.x), (Operand("x", 0, size),),
                       (Operand("y", 0, size),), outer * inner, what, self.name)


class SoftmaxRows(AlongAxis):
    """Along the last axis in memory: a row a task."""

    name = "rows"

    def refuse(self, site: Site):
        if site.x.dtype != "float32":
            return "only float32"
        return self.wrong_axis(self.extents(site.op, site.x)["INNER"] == 1)

    def wrong_axis(self, last: bool) -> str | None:
        return None if last else "not the last axis in memory"

    def lower(self, site: Site) -> Lowered:
        extents = self.extents(site.op, site.x)
        outer, n, inner = extent_symbols(*extents)
        last = extents["INNER"] == 1
        size = outer * n if last else outer * n * inner
        if last:
            extents.pop("INNER")
        tasks = outer if last else outer * ceildiv(inner, site.isa.lanes)
        return Lowered(f"softmax/{self.name}", Attrs(log=site.kind == "log_softmax"), extents, (Operand("x", 0, size),),
                       (Operand("y", 0, size),), tasks, site.kind, self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        if not site.x.is_static:
            return 1e6
        extents = self.extents(site.op, site.x)
        line = extents["N"] if extents["INNER"] == 1 else extents["INNER"]
        return 20 * site.x.size // line * ceildiv(line, site.isa.lanes)


class SoftmaxShortRows(SoftmaxRows):
    """Rows of a few elements: a vector of rows a task, turned into columns."""

    name = "short"
    LONGEST = 8

    def refuse(self, site: Site):
        n = self.extents(site.op, site.x)["N"]
        if site.isa.lanes == 1 or not isinstance(n, int) or n > self.LONGEST:
            return f"only vectors of rows of at most {self.LONGEST}"
        return super().refuse(site)

    def lower(self, site: Site) -> Lowered:
        lowered = super().lower(site)
        params = Attrs(log=site.kind == "log_softmax", longest=self.LONGEST)
        return replace(lowered, params=params, tasks=ceildiv(Symbol("OUTER"), site.isa.lanes))

    def cost(self, site: Site) -> float:
        return site.x.stored * (4 + 15 / site.isa.lanes) if site.x.is_static else 1e6


class SoftmaxColumns(SoftmaxRows):
    """Along any other axis: a vector of neighbouring lines a task."""

    name = "columns"

    def wrong_axis(self, last: bool) -> str | None:
        return "the last axis in memory" if last else None
