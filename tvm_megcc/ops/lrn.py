# SPDX-License-Identifier: Apache-2.0
"""Local response normalisation across channels (Krizhevsky, Sutskever and Hinton 2012)."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..ir.dims import product, round_up
from ..ir.graph import Attrs
from ..ir.types import NHWC, TensorType
from .base import Case, Kernel, Lowered, OnnxNode, Operand, Operator, Site, extent_symbols, f32, register
from .conv_kernels import blocked
from .move_kernels import c_constant, constant_name


class LrnPixels(Kernel):
    """Pixel by pixel: the squares of all its channels lie side by side in scratch, between zeros."""

    name = "pixels"

    def layouts(self, site: Site):
        for layout in (blocked(site.target), NHWC):
            yield (layout,), (layout,)

    def refuse(self, site: Site):
        return None if site.x.dtype == "float32" else "works on float32 only"

    def lower(self, site: Site) -> Lowered:
        lanes, size, layout = site.isa.lanes, site.attrs.size, site.x.layout
        N, C, S = extent_symbols("N", "C", "S")
        shape = site.x.shape
        count = N * S * (C if layout == NHWC else round_up(C, lanes))
        beta, bias, share = (c_constant(value, "float32") for value in
                             (site.attrs.beta, site.attrs.bias, site.attrs.alpha / size))
        params = Attrs(size=size, before=(size - 1) // 2, beta=beta, bias=bias, share=share, nhwc=layout == NHWC)
        return Lowered("norm/lrn", params, {"N": shape[0], "C": shape[1], "S": product(shape[2:])},
                       (Operand("x", 0, count),), (Operand("y", 0, count),), N * S,
                       f"lrn{size}{constant_name(beta, bias, share)}" + "_nhwc" * (layout == NHWC), self.name,
                       scratch=4 * (round_up(C, lanes) + size - 1), in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        if not site.x.is_static:
            return 1e6
        return 200 + site.x.stored * (20.0 + site.attrs.size) / site.isa.lanes


@register
class Lrn(Operator):
    """y = x / (bias + alpha / size * sum of the squares of `size` channels around)^beta; of an even window the greater
    half lies behind. Operand: x [N, C, H, W]."""

    kind = "lrn"
    onnx = ("LRN",)
    relay = ("nn.lrn",)
    kernels = (LrnPixels(),)
    cases = (Case((f32(2, 5, 3, 2),), {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 1.0}),
             Case((f32(1, 37, 4, 5),), {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 2.0}),
             Case((f32(1, 16, 3, 3),), {"size": 4, "alpha": 2.0, "beta": 0.6, "bias": 1.0}),
             Case((f32(1, 3, 2, 2),), {"size": 9, "alpha": 2.0, "beta": 1.5, "bias": 0.5}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 4 or attrs.size < 1:
            raise ShapeError(f"a window of {attrs.size} over the channels of {x}")
        return (x.with_shape(x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        before, channels = (attrs.size - 1) // 2, x.shape[1]
        squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (before, attrs.size - 1 - before), (0, 0), (0, 0)))
        total = sum(squares[:, i:i + channels] for i in range(attrs.size))
        return ((x / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta).astype(x.dtype),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        shape = node.type(0).shape
        (value,) = node.emit("reshape", node.inputs, shape=(*shape[:2], 1, product(shape[2:]))) \
            if len(shape) != 4 else node.inputs
        (value,) = node.emit(cls.kind, (value,), size=node.attr("size"), alpha=node.attr("alpha", 1e-4),
                             beta=node.attr("beta", 0.75), bias=node.attr("bias", 1.0))
        return node.emit("reshape", (value,), shape=shape) if len(shape) != 4 else (value,)
