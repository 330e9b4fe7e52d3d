# SPDX-License-Identifier: Apache-2.0
"""Code that convolutions and pools share: how a sliding window covers an axis."""

from __future__ import annotations

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most
from ...ir.dims import Dim, ceildiv, dim_max, dim_min, floordiv
from ...ir.types import TensorType
from ..base import OnnxNode


def output_extent(extent: Dim, kernel: int, stride: int, dilation: int, before: int, after: int,
                  ceil: bool = False) -> Dim:
    """Number of window positions along an axis. With `ceil`, the last one may hang over, but starts inside."""
    reach = (kernel - 1) * dilation + 1
    room = extent + before + after - reach
    require_at_most(0, room, f"a window of {kernel} with dilation {dilation} does not fit an extent of {extent} "
                             f"with pads {before} and {after}")
    if not ceil:
        return floordiv(room, stride) + 1
    positions = ceildiv(room, stride) + 1
    return positions if stride + after <= reach else dim_min(positions, ceildiv(extent + before, stride))


def require_known_weights(weights: TensorType) -> None:
    """Raises ShapeError where an extent of a convolution's weights is not known: kernels are made for one window."""
    if not weights.is_static:
        raise ShapeError(f"the weights must have known extents, not {weights}")


def window_attrs(node: OnnxNode, kernel: tuple[int, ...]) -> dict:
    """`kernel`, `strides`, `dilations`, `pads` (top, left, bottom, right) and `ceil` of an ONNX node, always for two
    axes: one spatial axis is the second of two.

    Raises:
        MegccError: for attributes that contradict each other.
    """
    axes = len(kernel)
    strides = tuple(node.attr("strides", [1] * axes))
    dilations = tuple(node.attr("dilations", [1] * axes))
    pads = tuple(node.attr("pads", [0] * (2 * axes)))
    if len(strides) != axes or len(dilations) != axes or len(pads) != 2 * axes:
        raise MegccError(f"strides {strides}, dilations {dilations} and pads {pads} do not fit {axes} spatial axes")
    if min(strides) < 1 or min(dilations) < 1 or min(kernel) < 1:
        raise MegccError(f"kernel {kernel}, strides {strides} and dilations {dilations} must be positive")
    auto = node.attr("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if auto == "VALID":
        pads = (0,) * (2 * axes)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(node, kernel, strides, dilations, upper=auto == "SAME_UPPER")
    elif auto not in ("NOTSET", ""):
        raise MegccError(f"auto_pad {auto} is unknown")
    if axes == 1:
        kernel, strides, dilations = (1, *kernel), (1, *strides), (1, *dilations)
        pads = (0, pads[0], 0, pads[1])
    return {"kernel": tuple(kernel), "strides": strides, "dilations": dilations, "pads": pads,
            "ceil": bool(node.attr("ceil_mode", 0))}


def _same_pads(node: OnnxNode, kernel, strides, dilations, upper: bool) -> tuple[int, ...]:
    begins, ends = [], []
    for extent, k, stride, dilation in zip(node.type(0).shape[2:], kernel, strides, dilations, strict=True):
        total = dim_max((ceildiv(extent, stride) - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        if not isinstance(total, int):
            if stride != 1:
                raise MegccError(f"auto_pad with stride {stride} needs a known extent, not {extent}")
            total = (k - 1) * dilation
        begins.append(total // 2 if upper else total - total // 2)
        ends.append(total - begins[-1])
    return (*begins, *ends)
