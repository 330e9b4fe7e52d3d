# SPDX-License-Identifier: Apache-2.0
"""The kernels of reductions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.dims import Dim, Symbol, ceildiv, product
from ...ir.graph import Op
from ...ir.types import PLAIN, TensorType
from ...ops.memory import memory_axes
from ..base import FLOAT32, INTEGERS, Kernel, Lowered, Operand, possible_layouts
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class Reducer:
    """A reduction in C, as TVM's commutative reducers are: an identity element, and how an element is combined.

    identity: the result for no elements.
    combine: the accumulator `a` combined with an element `v`, both vectors.
    combine_lanes: `combine` for scalars; "" for a sum, whose missing lanes count as 0 and whose lanes mgc_sums add up.
    finish: the result from a vector `a` of reduced values; `count` is the number of elements in each.

    In the tables for scalars, all of these are scalars.
    """

    identity: str
    combine: str
    combine_lanes: str = ""
    finish: str = "a"


#: Reductions of float32.
FLOAT32_REDUCERS = {
    "sum": Reducer("0.0f", "a + v"),
    "mean": Reducer("0.0f", "a + v", finish="a / mgc_set1(count)"),
    "max": Reducer("-MGC_INF", "mgc_maximum(a, v)", "v <= a || a != a ? a : v"),
    "min": Reducer("MGC_INF", "mgc_minimum(a, v)", "v >= a || a != a ? a : v"),
    "prod": Reducer("1.0f", "a * v", "a * v"),
    "l1": Reducer("0.0f", "a + mgc_abs(v)"),
    "l2": Reducer("0.0f", "mgc_fma(v, v, a)", finish="mgc_sqrt(a)"),
    "sum_square": Reducer("0.0f", "mgc_fma(v, v, a)"),
    "log_sum": Reducer("0.0f", "a + v", finish="mgc_log(a)"),
}


@dataclass(frozen=True)
class ReduceParameters(Parameters):
    """Parameters of both kernels. Axes are those of `reduced_axes`, of which every other one is reduced.

    reduced: for each axis, whether it is reduced.
    identity, combine, finish: as in `Reducer`.
    """

    reduced: tuple[bool, ...]
    identity: str = field(repr=False)
    combine: str = field(repr=False)
    finish: str = field(repr=False)


@dataclass(frozen=True)
class VectorParameters(ReduceParameters):
    """Parameters of `vector.c.j2`. combine_lanes: as in `Reducer`."""

    combine_lanes: str = field(repr=False)


@dataclass(frozen=True)
class ScalarParameters(ReduceParameters):
    """Parameters of `scalar.c.j2`.

    combine: the accumulator `a` combined with an element `v`.
    finish: the result from the reduced value `a`; `count` is the number of elements.
    unit: the C type of an element, T in a reducer.
    unsigned: the C type in which integers are added, so that they wrap; U in a reducer.
    """

    unit: str
    unsigned: str


#: Reductions of integers, which wrap. In C, T is the element type and U the unsigned type of its size. The identities
#: "minimum" and "maximum" are the smallest and the largest value of the element type.
INTEGER_REDUCERS = {
    "sum": Reducer("0", "(T)((U)a + (U)v)"), "prod": Reducer("1", "(T)((U)a * (U)v)"),
    "max": Reducer("minimum", "v > a ? v : a"), "min": Reducer("maximum", "v < a ? v : a"),
    "l1": Reducer("0", "(T)(v < 0 ? (U)a - (U)v : (U)a + (U)v)"), "sum_square": Reducer("0", "(T)((U)a + (U)v * (U)v)"),
}

#: Reductions of float64.
FLOAT64_REDUCERS = {
    "sum": Reducer("0.0", "a + v"), "mean": Reducer("0.0", "a + v", finish="a / count"),
    "max": Reducer("-MGD_INF", "mgd_max(a, v)"), "min": Reducer("MGD_INF", "mgd_min(a, v)"),
    "prod": Reducer("1.0", "a * v"), "l1": Reducer("0.0", "a + mgd_abs(v)"),
    "l2": Reducer("0.0", "mgd_mla(v, v, a)", finish="mgd_sqrt(a)"),
    "sum_square": Reducer("0.0", "mgd_mla(v, v, a)"), "log_sum": Reducer("0.0", "a + v", finish="mgd_log(a)"),
}


def reduced_axes(x: TensorType, axes: tuple[int, ...]) -> list[tuple[Dim, bool]]:
    """Returns (extent, is reduced) of the operand's axes in memory. Neighbours that are both reduced, or both not, are
    merged to one axis; axes of extent 1 are left out."""
    merged: list[tuple[Dim, bool]] = []
    for axis, _, extent in memory_axes(x):
        reduced = axis in axes
        if extent == 1:
            continue
        if merged and merged[-1][1] == reduced:
            merged[-1] = (merged[-1][0] * extent, reduced)
        else:
            merged.append((extent, reduced))
    # Templates have at least one reduced axis: a last one of extent 1 if all others were left out.
    return merged if any(reduced for _, reduced in merged) else [*merged, (1, True)]


class Reduce(Kernel):
    """The base class of both kernels. They see the operand as [D0][D1]…, of which every other axis is reduced."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            # A result without the reduced axes can only be plain. In a blocked layout, reducing the channels would
            # include the pad lanes.
            blocked = layout.kind == "nchwc"
            if layout == PLAIN or (site.attrs.keepdims and not (blocked and 1 in site.attrs.axes)):
                yield (layout,), (layout,)

    def lower(self, site: Site) -> Lowered:
        axes = reduced_axes(site.x, site.attrs.axes)
        extents = {f"D{index}": extent for index, (extent, _) in enumerate(axes)}
        d = [Symbol(name) for name in extents]
        remaining = [symbol for symbol, (_, reduced) in zip(d, axes, strict=True) if not reduced]
        reduced = tuple(flag for _, flag in axes)
        # Each axis by a letter: r is reduced, k is kept.
        pattern = "".join("r" if flag else "k" for flag in reduced)
        return Lowered(
            f"reduce/{self.name}", self.parameters(site.op, site.x, reduced), extents,
            (Operand("x", 0, product(d)),), (Operand("y", 0, product(remaining)),),
            self.tasks(remaining, reduced, site.target),
            f"{site.kind}_{pattern}", self.name)

    def reorders_sums(self, site: Site) -> bool:
        return site.x.layout != PLAIN

    def tasks(self, remaining: list[Symbol], reduced: tuple[bool, ...], target) -> Dim:
        return product(remaining)

    def parameters(self, op: Op, x: TensorType, reduced: tuple[bool, ...]) -> ReduceParameters:
        """Returns the parameters of the template. reduced: for each merged axis, whether it is reduced."""
        raise NotImplementedError

    @staticmethod
    def _name(op: Op) -> str:
        return op.kind.removeprefix("reduce_")


class ReduceVectors(Reduce):
    """Reduces float32 by vectors: along the last axis, or across it with a vector of results at a time."""

    name = "vector"
    dtypes = (FLOAT32,)

    def tasks(self, remaining, reduced, target) -> Dim:
        return product(remaining) if reduced[-1] else product(remaining[:-1]) * ceildiv(remaining[-1], target.isa.lanes)

    def parameters(self, op: Op, x: TensorType, reduced: tuple[bool, ...]) -> VectorParameters:
        reducer = FLOAT32_REDUCERS[self._name(op)]
        return VectorParameters(
            reduced=reduced, identity=reducer.identity, combine=reducer.combine, finish=reducer.finish,
            combine_lanes=reducer.combine_lanes)

    def cost(self, site: Site) -> float:
        # For each vector 2, to load and combine it.
        return site.x.stored * 2 / site.isa.lanes


class ReduceScalars(Reduce):
    """Reduces integers and float64, one element at a time."""

    name = "scalar"
    dtypes = ((*INTEGERS, "float64"),)

    def refuse(self, site: Site):
        return None if self._name(site.op) in self._reducers(site.x) else "not on integers"

    @staticmethod
    def _reducers(x: TensorType) -> dict[str, Reducer]:
        return FLOAT64_REDUCERS if x.dtype == "float64" else INTEGER_REDUCERS

    def parameters(self, op: Op, x: TensorType, reduced: tuple[bool, ...]) -> ScalarParameters:
        reducer, name = self._reducers(x)[self._name(op)], x.dtype.upper()
        limits = {"minimum": f"{name}_MIN" if name.startswith("INT") else "0", "maximum": f"{name}_MAX"}
        # The absolute value of an unsigned element is the element.
        is_unsigned_l1 = self._name(op) == "l1" and x.dtype.startswith("uint")
        combine = INTEGER_REDUCERS["sum"].combine if is_unsigned_l1 else reducer.combine
        return ScalarParameters(
            reduced=reduced, identity=limits.get(reducer.identity, reducer.identity), combine=combine,
            finish=reducer.finish, unit=x.c_type, unsigned=x.c_unsigned)
