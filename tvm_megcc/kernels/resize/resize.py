# SPDX-License-Identifier: Apache-2.0
"""The kernels of resizing by tables of indices and weights."""

from __future__ import annotations

from dataclasses import dataclass

from ...foreign import digest
from ...ir.dims import Dim, Symbol, product
from ...ir.graph import Op
from ...ir.types import TensorType
from ...ops.memory import memory_axes
from ...ops.vision.resize_tables import CROP, interpolation_of
from ..base import ANY, FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair, possible_layouts
from ..move.copies import copy_cost
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class LinearParameters(Parameters):
    """Parameters of `resize_linear.c.j2`. is_2d: whether two axes are resized, not one."""

    is_2d: bool


@dataclass(frozen=True)
class NearestParameters(LinearParameters):
    """Parameters of `resize_nearest.c.j2`. unit: the C type of an element."""

    unit: str


@dataclass(frozen=True)
class TablesParameters(Parameters):
    """Parameters of `resize_tables.c.j2`.

    mode, coordinates: ONNX's attributes `mode` and `coordinate_transformation_mode`.
    rounding: ONNX's `nearest_mode` for mode "nearest"; otherwise "".
    cubic_a: ONNX's `cubic_coeff_a` for mode "cubic"; otherwise 0.
    exclude_outside, antialias: ONNX's attributes `exclude_outside` and `antialias`.
    has_taps: whether each result is a weighted sum of several taps.
    """

    mode: str
    coordinates: str
    rounding: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    has_taps: bool


class TablesKernel(Kernel):
    """Computes the tables of indices and weights of one axis, in doubles. One task does one element of the axis."""

    name = "doubles"

    def lower(self, site: Site) -> Lowered:
        attrs, has_taps = site.attrs, interpolation_of(site.attrs).has_windows
        names = ["index"] if attrs.mode == "nearest" else ["first" if has_taps else "lower", "weight"]
        if attrs.coordinates == CROP:
            names.append("outside")
        out, taps = extent_symbols("OUT", "TAPS")
        params = TablesParameters(
            mode=attrs.mode, coordinates=attrs.coordinates, rounding=attrs.rounding if attrs.mode == "nearest" else "",
            cubic_a=attrs.cubic_a if attrs.mode == "cubic" else 0.0, exclude_outside=attrs.excludes and has_taps,
            antialias=attrs.antialias, has_taps=has_taps)
        extents = {"OUT": attrs.size, **({"TAPS": attrs.taps} if has_taps else {})}
        return Lowered("resize/resize_tables", params, extents,
                       (Operand("scale", 0, 1), Operand("extent", 1, 1), *(
                           (Operand("region", 2, 2),) if attrs.coordinates == CROP else ())),
                       tuple(Operand(name, i, out * taps if has_taps and name == "weight" else out)
                             for i, name in enumerate(names)), out, _tables_name(params), self.name)


def _tables_name(params: TablesParameters) -> str:
    return "_".join(filter(None, (
        "tables", params.mode, params.coordinates, params.rounding, "windows" * params.has_taps,
        "inside" * params.exclude_outside, "antialias" * params.antialias,
        f"a{digest(repr(params.cubic_a), 4)}" if params.mode == "cubic" else "")))


class ResizeNearest(Kernel):
    """Resizes [OUTER][H][W][INNER] to [OUTER][OH][OW][INNER] by tables of indices.

    If only one axis is resized, H is 1 and has no table. `ResizeLinear` inherits all but the parameters; it also has
    tables of weights.
    """

    name = "nearest"

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if self._position(site.op, site.x.with_layout(layout)) is not None:
                yield layout_pair(site, layout)

    @staticmethod
    def _position(op: Op, x: TensorType) -> int | None:
        """Returns the position in memory of the first resized axis; None if the resized axes are not neighbours
        there."""
        # -1 stands for each part of a channel axis in blocks, which cannot be resized.
        order = [axis if part == "" else -1 for axis, part, _ in memory_axes(x)]
        first = op.attrs.axes[0]
        if first not in order:
            return None
        position = order.index(first)
        return position if tuple(order[position:position + len(op.attrs.axes)]) == op.attrs.axes else None

    def refuse(self, site: Site):
        return None if site.attrs.mode == "nearest" else "is not nearest"

    def lower(self, site: Site) -> Lowered:
        source, result = ([extent for _, _, extent in memory_axes(t)] for t in (site.x, site.y))
        position, is_2d = self._position(site.op, site.x), len(site.attrs.axes) == 2
        last = position + 1 if is_2d else position
        extents: dict[str, Dim] = {"OUTER": product(source[:position]), "W": source[last], "OW": result[last],
                                   "INNER": product(source[last + 1:])}
        if is_2d:
            extents.update(H=source[position], OH=result[position])
        outer, w, ow, inner, h, oh = extent_symbols("OUTER", "W", "OW", "INNER", "H", "OH")
        rows, result_rows = (outer * h, outer * oh) if is_2d else (outer, outer)
        names = ("row", "column") if is_2d else ("column",)
        if site.attrs.mode == "linear":
            names = tuple(name for axis in names for name in (axis, f"{axis}_weight"))
        tables = [Operand(name, index, oh if name.startswith("row") else ow) for index, name in enumerate(names, 1)]
        return Lowered(f"resize/resize_{self.name}", self.parameters(is_2d, site.x), extents,
                       (Operand("x", 0, rows * w * inner), *tables),
                       (Operand("y", 0, result_rows * ow * inner),), result_rows, f"resize{1 + is_2d}d", self.name,
                       scratch=self.scratch(site, is_2d, extents["INNER"]))

    def scratch(self, site: Site, is_2d: bool, inner: Dim) -> Dim:
        """Returns the bytes of scratch of a worker."""
        return 0

    def parameters(self, is_2d: bool, type_: TensorType) -> Parameters:
        return NearestParameters(is_2d, type_.c_type)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=1.0)


class ResizeLinear(ResizeNearest):
    """Interpolates linearly, by tables of the lower neighbours' indices and the upper neighbours' weights."""

    name = "linear"
    dtypes = (FLOAT32, ANY)

    def refuse(self, site: Site):
        return None if site.attrs.mode == "linear" else "is not linear"

    def scratch(self, site: Site, is_2d: bool, inner: Dim) -> Dim:
        blends_rows = is_2d and inner == 1 and site.isa.lanes > 1 and not site.compact
        # A row between two rows of x, float32 [W], then two vectors of its last element, which right neighbours of the
        # last column read.
        return 4 * (Symbol("W") + 2 * site.isa.lanes) if blends_rows else 0

    def parameters(self, is_2d: bool, type_: TensorType) -> Parameters:
        return LinearParameters(is_2d)
