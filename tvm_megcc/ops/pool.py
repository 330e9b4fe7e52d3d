# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows and over whole images. A NaN may be lost in a maximum; averages keep it."""

from __future__ import annotations

import numpy as np

from ..errors import MegccError, ShapeError
from ..ir.dims import ceildiv, product, round_up
from ..ir.graph import Attrs
from ..ir.types import PLAIN, TensorType
from .base import Case, Kernel, Lowered, OnnxNode, Operand, Operator, Types, extent_symbols, f32, register
from .conv_kernels import blocked
from .windows import output_extent, window_attrs


def _mode(op) -> str:
    return "max" if "max" in op.kind else "avg"


def _float_refusal(inputs: Types) -> str | None:
    return None if inputs[0].dtype == "float32" else "works on float32 only"


class WindowPool(Kernel):
    """Vectors of channels; neighbouring outputs share their loads."""

    name = "window"
    fuses_epilogue = True

    def layouts(self, op, inputs, outputs, target):
        yield (blocked(target),), (blocked(target),)

    def refuse(self, op, inputs, outputs, target):
        return _float_refusal(inputs)

    def lower(self, op, inputs, outputs, target):
        (kh, kw), (sh, sw), (dh, dw) = op.attrs.kernel, op.attrs.strides, op.attrs.dilations
        mode, counts, lanes = _mode(op), bool(op.attrs.get("count_pads", 0)), target.isa.lanes
        (n, c, ih, iw), (oh, ow) = inputs[0].shape, outputs[0].shape[2:]
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        top, left, bottom, right = op.attrs.pads
        extents = {"N": n, "C": c, "IH": ih, "IW": iw, "OH": oh, "OW": ow, "PT": top, "PL": left}
        if mode == "avg" and counts:
            extents.update(EH=ih + top + bottom, EW=iw + left + right)
        slots = round_up(C, lanes)
        return Lowered(
            "pool/window",
            Attrs(mode=mode, count_pads=counts, kh=kh, kw=kw, sh=sh, sw=sw, dh=dh, dw=dw), extents,
            (Operand("x", 0, N * slots * IH * IW),), (Operand("y", 0, N * slots * OH * OW),),
            N * ceildiv(C, lanes) * OH, _name(op), "window", channels=slots)

    def cost(self, op, inputs, outputs, target):
        if not outputs[0].is_static:
            return 1000.0
        return 200 + outputs[0].stored / target.isa.lanes * (product(op.attrs.kernel) * 1.5 + 2)


class PlainPool(Kernel):
    """Any layout of windows, one output after the other."""

    name = "plain"

    def refuse(self, op, inputs, outputs, target):
        return _float_refusal(inputs)

    def lower(self, op, inputs, outputs, target):
        counts = bool(op.attrs.get("count_pads", 0))
        (n, c, ih, iw), (oh, ow) = inputs[0].shape, outputs[0].shape[2:]
        top, left, bottom, right = op.attrs.pads
        (kh, kw), (sh, sw), (dh, dw) = op.attrs.kernel, op.attrs.strides, op.attrs.dilations
        names = ("R", "IH", "IW", "OH", "OW", "PT", "PL", "EH", "EW")
        values = (n * c, ih, iw, oh, ow, top, left, ih + top + bottom, iw + left + right)
        R, IH, IW, OH, OW = extent_symbols(*names[:5])
        return Lowered("pool/plain",
                       Attrs(mode=_mode(op), count_pads=counts, kh=kh, kw=kw, sh=sh, sw=sw, dh=dh, dw=dw),
                       dict(zip(names, values, strict=True)), (Operand("x", 0, R * IH * IW),),
                       (Operand("y", 0, R * OH * OW),), R * OH, _name(op), "plain")

    def cost(self, op, inputs, outputs, target):
        if not outputs[0].is_static:
            return 100000.0
        return 500 + 4.0 * outputs[0].size * product(op.attrs.kernel)


class GlobalPool(Kernel):
    """A vector of channels at a time over all pixels."""

    name = "global"
    fuses_epilogue = True

    def layouts(self, op, inputs, outputs, target):
        if inputs[0].rank == 4 or target.isa.lanes == 1:
            yield (blocked(target),), (blocked(target),)

    def refuse(self, op, inputs, outputs, target):
        return _float_refusal(inputs)

    def lower(self, op, inputs, outputs, target):
        lanes = target.isa.lanes
        N, C, S = extent_symbols("N", "C", "S")
        n, c = inputs[0].shape[:2]
        return Lowered("pool/global", Attrs(mode=_mode(op)), {"N": n, "C": c, "S": product(inputs[0].shape[2:])},
                       (Operand("x", 0, N * round_up(C, lanes) * S),), (Operand("y", 0, N * round_up(C, lanes)),),
                       N * ceildiv(C, lanes), f"global_{_mode(op)}_pool", "blocks",
                       channels=round_up(C, lanes))

    def cost(self, op, inputs, outputs, target):
        return 200 + inputs[0].stored / target.isa.lanes if inputs[0].is_static else 1000.0


class PlainGlobalPool(Kernel):
    """A channel at a time over its pixels, which lie side by side."""

    name = "global_plain"

    def layouts(self, op, inputs, outputs, target):
        # One value a channel lies the same way in both layouts, up to the pad lanes.
        yield (PLAIN,), (PLAIN,)

    def refuse(self, op, inputs, outputs, target):
        return _float_refusal(inputs)

    def lower(self, op, inputs, outputs, target):
        R, S = extent_symbols("R", "S")
        return Lowered("pool/global_plain", Attrs(mode=_mode(op)),
                       {"R": product(inputs[0].shape[:2]), "S": product(inputs[0].shape[2:])},
                       (Operand("x", 0, R * S),), (Operand("y", 0, R),), R, f"global_{_mode(op)}_pool", "plain")

    def cost(self, op, inputs, outputs, target):
        if not inputs[0].is_static:
            return 2000.0
        return 200 + 1.5 * inputs[0].size / target.isa.lanes + 12 * outputs[0].size


def _name(op) -> str:
    """`max_pool_3x3_s2`: what the kernel's code is specialised to."""
    def size(prefix: str, pair) -> str:
        return prefix + "x".join(map(str, dict.fromkeys(pair)))

    parts = [f"{_mode(op)}_pool_" + "x".join(map(str, op.attrs.kernel))]
    parts += [size("s", op.attrs.strides)] if set(op.attrs.strides) != {1} else []
    parts += [size("d", op.attrs.dilations)] if set(op.attrs.dilations) != {1} else []
    return "_".join(parts + ["pads"] * bool(op.attrs.get("count_pads", 0)))


class _Pool(Operator):
    """Attributes: `kernel`, `strides`, `dilations` (h, w); `pads` (top, left, bottom, right); `ceil`: the last window
    of an axis may hang over its end."""

    channel_axis = 1
    kernels = (WindowPool(), PlainPool())

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 4:
            raise ShapeError(f"wants an operand of rank 4, not {x}")
        spatial = [output_extent(x.shape[2 + i], attrs.kernel[i], attrs.strides[i], attrs.dilations[i],
                                 attrs.pads[i], attrs.pads[2 + i], bool(attrs.ceil)) for i in range(2)]
        return (TensorType(x.dtype, (*x.shape[:2], *spatial)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        x = node.type(0)
        if x.rank not in (3, 4):
            raise ShapeError(f"pooling over {x.rank - 2} spatial axes; only 1 and 2 are supported")
        if node.num_outputs > 1:
            raise MegccError("the indices of the maxima are asked for, which is not supported")
        attrs = {**window_attrs(node, tuple(node.attr("kernel_shape"))), **cls.onnx_attrs(node)}
        if x.rank == 4:
            return node.emit(cls.kind, node.inputs, **attrs)
        (tall,) = node.emit("reshape", node.inputs, shape=(*x.shape[:2], 1, x.shape[2]))
        (y,) = node.emit(cls.kind, (tall,), **attrs)
        shape = node.type_of(y).shape
        return node.emit("reshape", (y,), shape=(*shape[:2], shape[3]))


def _windows(attrs: Attrs, x: np.ndarray, fill: float):
    """The input at each tap of the window, as arrays of the output's shape."""
    (kh, kw), (sh, sw), (dh, dw) = attrs.kernel, attrs.strides, attrs.dilations
    top, left, bottom, right = attrs.pads
    oh = output_extent(x.shape[2], kh, sh, dh, top, bottom, bool(attrs.ceil))
    ow = output_extent(x.shape[3], kw, sw, dw, left, right, bool(attrs.ceil))
    height, width = (oh - 1) * sh + (kh - 1) * dh + 1, (ow - 1) * sw + (kw - 1) * dw + 1
    padded = np.full((*x.shape[:2], max(height, x.shape[2] + top), max(width, x.shape[3] + left)), fill, x.dtype)
    padded[:, :, top:top + x.shape[2], left:left + x.shape[3]] = x
    for i in range(kh):
        for j in range(kw):
            yield padded[:, :, i * dh:i * dh + (oh - 1) * sh + 1:sh, j * dw:j * dw + (ow - 1) * sw + 1:sw]


@register
class MaxPool(_Pool):
    """The largest element of each window; pads never win."""

    kind = "max_pool"
    onnx = ("MaxPool",)
    relax = ("relax.nn.max_pool2d",)
    relay = ("nn.max_pool2d",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (np.maximum.reduce(list(_windows(attrs, x, lowest))),)


@register
class AvgPool(_Pool):
    """The mean of each window, over the elements inside or, with `count_pads`, over those of the padded input."""

    kind = "avg_pool"
    onnx = ("AveragePool",)
    relax = ("relax.nn.avg_pool2d",)
    relay = ("nn.avg_pool2d",)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {"count_pads": node.attr("count_include_pad", 0)}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
        counted = attrs
        if attrs.get("count_pads", 0):
            top, left, bottom, right = attrs.pads
            ones = np.ones((1, 1, x.shape[2] + top + bottom, x.shape[3] + left + right), x.dtype)
            counted = Attrs({**attrs, "pads": (0, 0, 0, 0)})
        total = sum(_windows(attrs, x, 0))
        count = sum(w[..., :total.shape[2], :total.shape[3]] for w in _windows(counted, ones, 0))
        return ((total / np.maximum(count, 1)).astype(x.dtype),)


class _GlobalPool(Operator):
    channel_axis = 1
    kernels = (GlobalPool(), PlainGlobalPool())
    cases = (Case((f32(1, 32, 7, 7),)), Case((f32(2, 19, 5, 3),)), Case((f32(1, 3, 1, 1),)),
             Case((f32(1, 7, 13, 29),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank < 3:
            raise ShapeError(f"wants an operand with spatial axes, not {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:]))),)


@register
class GlobalAvgPool(_GlobalPool):
    """The mean of each channel."""

    kind = "global_avg_pool"
    onnx = ("GlobalAveragePool",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=np.float64).astype(x.dtype),)


@register
class GlobalMaxPool(_GlobalPool):
    """The largest element of each channel."""

    kind = "global_max_pool"
    onnx = ("GlobalMaxPool",)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def _case(x, kernel, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), ceil=False, **more) -> Case:
    return Case((f32(*x),), {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations,
                             "ceil": ceil, **more})


MaxPool.cases = (
    _case((1, 16, 8, 8), (2, 2), (2, 2)),
    _case((2, 20, 23, 37), (3, 3), (2, 2), (1, 1, 1, 1)),
    _case((1, 33, 9, 10), (3, 3), (2, 2), ceil=True),
    _case((1, 5, 26, 26), (5, 5), (1, 1), (2, 2, 2, 2)),
    _case((1, 4, 11, 9), (2, 3), (1, 2), (0, 1, 1, 0), (2, 2)),
    _case((1, 1, 1, 1), (1, 1)),
)
AvgPool.cases = (
    _case((1, 16, 8, 8), (2, 2), (2, 2)),
    _case((1, 64, 25, 5), (25, 5)),
    _case((2, 20, 13, 17), (3, 3), (2, 2), (1, 1, 1, 1)),
    _case((2, 20, 13, 17), (3, 3), (2, 2), (1, 1, 1, 1), count_pads=1),
    _case((1, 33, 9, 10), (3, 3), (2, 2), ceil=True),
    _case((1, 6, 10, 9), (3, 3), (2, 2), (1, 0, 1, 1), ceil=True, count_pads=1),
    _case((1, 3, 10, 40), (2, 3), (1, 1), (1, 1, 0, 2), (2, 2), count_pads=1),
)
