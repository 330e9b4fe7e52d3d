# SPDX-License-Identifier: Apache-2.0
"""Code for `triples` and `pairs`: kernels that multiply the windows of a few pixels, and whose templates import
`windows.c.j2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.dims import Dim
from ...ir.types import DTYPES
from ..base import Lowered, Operand, extent_symbols
from ..conv2d.geometry import ConvParameters, Geometry
from ..integer.dot import packed_zero, zero_name
from ..integer.products import IntegerProducts, pixel_extents
from ..integer.requantize import Requantization, requantization
from ..site import Site


@dataclass(frozen=True)
class WindowsParameters(ConvParameters):
    """Parameters of `windows.c.j2` and of the templates that import it.

    unit, result: C types of an element of x and of y.
    short: suffix of x's type in mgc functions, such as "i8".
    x_zero: the zero point of x.
    single: the kernel multiplies one pixel at a time, for inputs of one or two pixels.
    flat: windows are 1x1 without padding, so pixels of x and y correspond.
    descending: C condition for running from the last pixel to the first, so that y can begin where x does; "1" always,
        "" never.
    has_weight_zero: packed weights have a zero point, the operand `zero`.
    requantization: prints the requantization of a sum (integer/requantize.py): factors(c), store(…).
    """

    unit: str
    result: str
    short: str
    x_zero: int
    single: bool
    flat: bool
    descending: str
    has_weight_zero: bool
    requantization: Requantization


@dataclass(frozen=True)
class Packed:
    """The parts of a call in which the algorithms of `WindowProducts` differ.

    operands: x, packed weights and, if there is one, the bias.
    fields: fields of the parameters besides those of `WindowsParameters`.
    scratch: bytes of workspace for each worker.
    name: a part of the kernel's name.
    """

    operands: tuple[Operand, ...]
    fields: dict[str, int]
    scratch: Dim
    name: str = ""


class WindowProducts(IntegerProducts):
    """The base class of both algorithms. One task computes an image of one group; if windows are 1x1, the pixels of all
    images."""

    parameters: ClassVar[type[WindowsParameters]]
    #: Whether kernels of `-O size` decide at run time in which direction they run, so that layers share them.
    shares_directions: ClassVar[bool] = False

    def packed(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, x: Operand,
               single: bool) -> Packed:
        """Returns operands, scratch and own parameters of the algorithm.

        Args:
            s: the extents of the convolution.
            zeros: the zero points of x and of the weights.
            outputs_first: a weight matrix is [O, I].
            x: the operand x, which the result contains.
            single: as in `WindowsParameters`.
        """
        raise NotImplementedError

    def call(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        flat = s.is_pointwise
        pixels, extents, x_size, y_size = pixel_extents(s)
        single = isinstance(pixels, int) and pixels <= 2
        packed = self.packed(site, s, zeros, outputs_first, Operand("x", 0, x_size), single)
        operands, bias = packed.operands, len(packed.operands) > 2
        weights = site.inputs[1]
        assert weights is not None
        has_weight_zero = packed_zero(weights.dtype, zeros[1]) != 0
        if has_weight_zero:
            operands += (Operand("zero", 1, 1, ("packed_zero", zeros[1]), "int32"),)
        N, G, OC = extent_symbols("N", "G", "OC")
        takes_over, descends = _in_place(site, s, single)
        decided_at_run_time = self.shares_directions and site.compact
        descending = "OC > IC" if decided_at_run_time and takes_over else "1" * descends
        epilogue = requantization(site, zeros, outputs_first)
        params = self.parameters(*s.window, bias, site.x.c_type, site.y.c_type, DTYPES[site.x.dtype].short, zeros[0],
                                 single, flat, descending, has_weight_zero, epilogue, **packed.fields)
        name = ("single" if single else self.name) + "_flat" * flat
        name += "_down" * (descends and not decided_at_run_time)
        # `takes_over` belongs to the kernel: layers of groups that may not compute in place have kernels of their own.
        name += "_not_in_place" * (flat and s.g != 1 and not single and not takes_over)
        return Lowered(f"dsp/{self.name}", params, extents, operands, (Operand("y", 0, y_size),),
                       G if flat else N * G, operation + "_bias" * bias + zero_name(zeros[0]),
                       name + "_weight_zero" * has_weight_zero + packed.name + epilogue.name, takes_over=takes_over,
                       scratch=packed.scratch, channels=G * OC)


def _in_place(site: Site, s: Geometry, single: bool) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Returns (`Lowered.takes_over`, descends): whether y may begin where x does, and whether the loop must then run
    from the last pixel to the first.

    A step packs the windows of a few pixels, then writes their results. Pixel i of y begins at i * OC, that of x at
    i * IC: if OC > IC, results lie over later pixels of x, so these have to be read before. If IC and OC of a group
    differ, its results lie over the x of other groups, which later tasks read."""
    is_known = isinstance(s.ic, int) and isinstance(s.oc, int)
    if single or not s.is_pointwise or site.y.itemsize != 1 or not is_known or (s.g > 1 and s.ic != s.oc):
        return (), False
    return ((0, 0),), s.oc > s.ic
