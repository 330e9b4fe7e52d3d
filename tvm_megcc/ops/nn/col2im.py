# SPDX-License-Identifier: Apache-2.0
"""ONNX's Col2Im, which sums columns into an image, and MaxUnpool, which writes maxima back to their positions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_equal, require_shape
from ...ir.dims import Dim, floordiv, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from .windows import output_extent


@register
class Col2Im(Operator):
    """ONNX's Col2Im over 1 to 3 axes: y[n, c, b*s + k*d - p] += x[n, (c, k), b] for all window positions b and taps k,
    with stride s, dilation d and leading pad p, along each axis.

    Operand: x [N, C * product(kernel), product(blocks)]. Result: [N, C, *image], of x's dtype.

    Attributes with an entry for each axis: `image`: the extents of the result; `blocks`: the numbers of window
    positions; `kernel`, `strides`, `dilations`; `pads`: the leading pads. Attribute `channels`: C.
    """

    kind = "col2im"
    onnx = ("Col2Im",)

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        taps, blocks = product(attrs.kernel), product(attrs.blocks)
        why = f"columns {x} are no windows of {taps} elements"
        if x.rank != 3:
            raise ShapeError(why)
        require_equal(attrs.channels * taps, x.shape[1], why)
        require_equal(blocks, x.shape[2], f"{x.shape[2]} columns where windows have {blocks} positions")
        return (TensorType(x.dtype, (x.shape[0], attrs.channels, *attrs.image)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        axes = list(zip(attrs.blocks, attrs.kernel, attrs.strides, attrs.dilations, attrs.pads, attrs.image,
                        strict=True))
        padded = [max((b - 1) * s + (k - 1) * d + 1, p + extent) for b, k, s, d, p, extent in axes]
        columns = x.reshape(x.shape[0], attrs.channels, *attrs.kernel, *attrs.blocks)
        result = np.zeros((x.shape[0], attrs.channels, *padded), np.float64 if x.dtype.kind == "f" else x.dtype)
        for tap in np.ndindex(*attrs.kernel):
            elements = tuple(slice(t * d, t * d + (b - 1) * s + 1, s)
                             for t, (b, _, s, d, _, _) in zip(tap, axes, strict=True))
            result[(..., *elements)] += columns[(slice(None), slice(None), *tap)]
        return (result[(..., *(slice(p, p + extent) for *_, p, extent in axes))].astype(x.dtype),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        # Where the operand `image_shape` is computed at run time, the model may declare the result's shape.
        x, declared, declared_image = node.type(0), node.declared_shape(), node.declared_if_unknown(1)
        image = node.dims(1, "image_shape") if declared_image is None else declared_image[2:]
        kernel = node.dims(2, "block_shape", limit=x.shape[1])  # x has C * product(kernel) channels
        axes = len(image)
        strides, dilations = (tuple(node.attr(name, [1] * axes)) for name in ("strides", "dilations"))
        pads = tuple(node.attr("pads", [0] * (2 * axes)))
        if not 1 <= axes == len(kernel) == len(strides) == len(dilations) <= 3 or len(pads) != 2 * axes:
            raise MegccError(f"image {image}, block {kernel}, strides {strides}, dilations {dilations} and pads {pads} "
                             "do not belong together, or have more than 3 axes")
        blocks = tuple(output_extent(*row) for row in zip(image, kernel, strides, dilations, pads[:axes], pads[axes:],
                                                          strict=True))
        has_known_kernel = all(isinstance(extent, int) for extent in kernel)
        # The channels are x.shape[1] divided by the kernel's elements; for an unknown kernel, those that the model
        # declares.
        use_declared = declared is not None and not has_known_kernel
        channels = declared[1] if use_declared else floordiv(x.shape[1], product(kernel))
        return node.emit(cls.kind, node.inputs[:1], channels=channels, image=image, blocks=blocks, kernel=kernel,
                         strides=strides, dilations=dilations, pads=pads[:axes])


Col2Im.cases = (
    Case((f32(2, 12, 20),), {"channels": 2, "image": (6, 7), "blocks": (5, 4), "kernel": (2, 3), "strides": (1, 1),
                             "dilations": (1, 2), "pads": (0, 1)}),
    Case((f32(1, 27, 6),), {"channels": 3, "image": (7, 9), "blocks": (2, 3), "kernel": (3, 3), "strides": (3, 2),
                            "dilations": (1, 1), "pads": (1, 0)}),
    Case((f32(1, 24, 12),), {"channels": 2, "image": (5, 4, 6), "blocks": (2, 2, 3), "kernel": (2, 3, 2),
                             "strides": (2, 1, 2), "dilations": (1, 1, 1), "pads": (0, 0, 1)}),
    Case((((2, 3, 5), "int32"),), {"channels": 1, "image": (11,), "blocks": (5,), "kernel": (3,), "strides": (2,),
                                   "dilations": (1,), "pads": (0,)}),
)


@register
class MaxUnpool(Operator):
    """ONNX's MaxUnpool: a tensor of zeros with x[i] at flat index where[i]. Where indices are equal, the last one wins.

    Operands: x, of any shape and dtype; where int64, of x's shape. Attribute `shape`: that of the result.
    """

    kind = "max_unpool"
    operands = ("x", "where")
    onnx = ("MaxUnpool",)
    cases = (Case((f32(1, 2, 2, 3), ((1, 2, 2, 3), "int64")), {"shape": (1, 2, 4, 6)},
                  values={1: np.array([0, 3, 5, 13, 14, 22, 24, 29, 30, 40, 45, 47])}),
             Case((((1, 1, 3), "int8"), ((1, 1, 3), "int64")), {"shape": (1, 1, 7)}, values={1: np.array([6, 1, 6])}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, where: TensorType) -> tuple[TensorType, ...]:
        why = f"indices {where} for elements {x}"
        if where.dtype != "int64":
            raise ShapeError(why)
        require_shape(where.shape, x.shape, why)
        return (TensorType(x.dtype, tuple(attrs.shape)),)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        return {1: (0, product(attrs.shape) - 1)}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, where: np.ndarray) -> tuple[np.ndarray, ...]:
        result = np.zeros(product(attrs.shape), x.dtype)
        result[where.reshape(-1)] = x.reshape(-1)
        return (result.reshape(attrs.shape),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        """Imports MaxUnpool. Indices are flat in the shape that the window gives; `output_shape` then appends zeros."""
        x, kernel = node.type(0), node.attr("kernel_shape")
        axes = len(kernel)
        strides, pads = node.attr("strides", [1] * axes), node.attr("pads", [0] * (2 * axes))
        spatial = [(x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[axes + i] for i in range(axes)]
        shape = (*x.shape[:2], *spatial)
        (value,) = node.emit(cls.kind, node.inputs[:2], shape=shape)
        wanted = node.dims(2, "output_shape")
        if wanted is None or wanted == shape:
            return (value,)
        return node.emit("pad", (value,), before=(0,) * x.rank, mode="constant", value=0,
                         after=tuple(want - have for want, have in zip(wanted, shape, strict=True)))
