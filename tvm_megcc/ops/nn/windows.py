# SPDX-License-Identifier: Apache-2.0
"""The extents, pads and attributes of sliding windows, which convolutions and pools share."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most
from ...ir.dims import Dim, ceildiv, dim_max, dim_min, floordiv
from ...ir.types import TensorType
from ..base import OnnxNode

_SAME = ("SAME_UPPER", "SAME_LOWER")


def output_extent(extent: Dim, kernel: int, stride: int, dilation: int, before: int, after: int,
                  ceil: bool = False) -> Dim:
    """Returns the number of window positions along an axis.

    before, after: the pads. ceil: whether the last window may extend beyond the padded axis; it must start inside of
    the axis or the pad before it.

    Raises:
        ShapeError: if the window does not fit the padded axis.
    """
    reach = (kernel - 1) * dilation + 1
    span = extent + before + after - reach
    require_at_most(0, span, f"a window of {kernel} with dilation {dilation} does not fit an extent of {extent} "
                             f"with pads {before} and {after}")
    if not ceil:
        return floordiv(span, stride) + 1
    # The last window starts at most at span + stride - 1, which is before the end, extent + before, if
    # stride + after <= reach. Otherwise only the windows that start before the end count.
    positions = ceildiv(span, stride) + 1
    return positions if stride + after <= reach else dim_min(positions, ceildiv(extent + before, stride))


def require_known_weights(weights: TensorType) -> None:
    """Raises ShapeError if an extent of a convolution's weights is symbolic, since kernels are specialised for it."""
    if not weights.is_static:
        raise ShapeError(f"the weights must have known extents, not {weights}")


def convolution_attrs(attrs: dict) -> dict:
    """Returns the attributes of `window_attrs` that convolutions have; their weights tell the kernel."""
    return {name: attrs[name] for name in ("strides", "dilations", "pads")}


def pad_for_windows(node: OnnxNode, value: str, kernel: tuple[int, ...], fill: float) -> tuple[str, dict]:
    """Returns the value over which a node's windows slide, and the attributes as from `window_attrs`.

    The pads of `auto_pad` with strides > 1 on a symbolic extent are no numbers; then they are a `pad` of the value,
    with `fill`, and the attributes have no pads.
    """
    pads, axes = symbolic_pads(node, kernel), len(kernel)
    if not pads:
        return value, window_attrs(node, kernel)
    (value,) = node.emit("pad", (value,), before=(0, 0, *pads[:axes]), after=(0, 0, *pads[axes:]),
                         mode="constant", value=fill)
    return value, window_attrs(node, kernel, pads=(0,) * (2 * axes))


def symbolic_pads(node: OnnxNode, kernel: tuple[int, ...]) -> tuple[Dim, ...]:
    """Returns the pads (all begins, then all ends) of a node with `auto_pad` and strides > 1 on a symbolic extent;
    () for other nodes, whose pads are numbers."""
    auto, axes = _auto_pad(node), len(kernel)
    strides = node.attr("strides", [1] * axes)
    if auto not in _SAME or len(strides) != axes or all(
            isinstance(extent, int) or stride == 1
            for extent, stride in zip(node.type(0).shape[2:], strides, strict=False)):
        return ()
    # `window_attrs` checks the attributes; it has two axes if the node has one.
    dilations = window_attrs(node, kernel, pads=(0,) * (2 * axes))["dilations"][-axes:]
    return _same_pads(node, kernel, strides, dilations, auto == "SAME_UPPER")


def count_window_elements(node: OnnxNode, kernel: tuple[int, ...], pads: tuple[Dim, ...]) -> list[str]:
    """Emits for each spatial axis how many elements of the node's operand each window covers along that axis: float32
    [1, 1, …, window positions, …]. pads: all begins, then all ends."""
    shape, axes = node.type(0).shape[2:], len(kernel)
    strides, dilations = (node.attr(name, [1] * axes) for name in ("strides", "dilations"))
    one = node.constant(np.ones((1, 1, 1, 1), np.float32))
    counts = []
    for axis, extent in enumerate(shape):
        (ones,) = node.emit("expand", (one,), shape=(1, 1, extent, 1))
        (ones,) = node.emit("pad", (ones,), before=(0, 0, pads[axis], 0), after=(0, 0, pads[axes + axis], 0),
                            mode="constant", value=0)
        (count,) = node.emit("sum_pool", (ones,), kernel=(kernel[axis], 1), strides=(strides[axis], 1),
                             dilations=(dilations[axis], 1), pads=(0, 0, 0, 0), ceil=False)
        positions = tuple(node.type_of(count).shape[2] if each == axis else 1 for each in range(axes))
        counts += node.emit("reshape", (count,), shape=(1, 1, *positions))
    return counts


def window_attrs(node: OnnxNode, kernel: tuple[int, ...], pads: tuple[int, ...] | None = None) -> dict:
    """Returns the attributes `kernel`, `strides`, `dilations`, `pads` (all begins, then all ends) and `ceil` for the
    windows of an ONNX node. They are those for two axes if it has one spatial axis, which becomes the second one.

    pads: replace the node's own; None for those.

    Raises:
        MegccError: for attributes that contradict each other.
    """
    axes = len(kernel)
    strides = tuple(node.attr("strides", [1] * axes))
    dilations = tuple(node.attr("dilations", [1] * axes))
    auto = "NOTSET" if pads is not None else _auto_pad(node)
    pads = tuple(node.attr("pads", [0] * (2 * axes))) if pads is None else pads
    if len(strides) != axes or len(dilations) != axes or len(pads) != 2 * axes:
        raise MegccError(f"strides {strides}, dilations {dilations} and pads {pads} do not fit {axes} spatial axes")
    if min(strides) < 1 or min(dilations) < 1 or min(kernel) < 1:
        raise MegccError(f"kernel {kernel}, strides {strides} and dilations {dilations} must be positive")
    if auto == "VALID":
        pads = (0,) * (2 * axes)
    elif auto in _SAME:
        pads = _same_pads(node, kernel, strides, dilations, upper=auto == "SAME_UPPER")
        for extent, stride, pad in zip(node.type(0).shape[2:], strides, pads, strict=False):
            if not isinstance(pad, int):
                raise MegccError(f"auto_pad with stride {stride} needs a known extent, not {extent}")
    if axes == 1:
        kernel, strides, dilations = (1, *kernel), (1, *strides), (1, *dilations)
        pads = (0, pads[0], 0, pads[1])
    return {"kernel": tuple(kernel), "strides": strides, "dilations": dilations, "pads": pads,
            "ceil": bool(node.attr("ceil_mode", 0))}


def _auto_pad(node: OnnxNode) -> str:
    """Returns the value of `auto_pad`.

    Raises:
        MegccError: for a value that ONNX does not define.
    """
    auto = node.attr("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if auto not in (*_SAME, "VALID", "NOTSET", ""):
        raise MegccError(f"auto_pad {auto} is unknown")
    return auto


def _same_pads(node: OnnxNode, kernel, strides, dilations, upper: bool) -> tuple[Dim, ...]:
    """Returns the pads (all begins, then all ends) of auto_pad SAME_UPPER (`upper`) or SAME_LOWER, so that there are
    ceil(extent / stride) window positions along each axis."""
    begins, ends = [], []
    for extent, k, stride, dilation in zip(node.type(0).shape[2:], kernel, strides, dilations, strict=True):
        reach = (k - 1) * dilation + 1
        total = (ceildiv(extent, stride) - 1) * stride + reach - extent
        # total >= reach - stride, because ceildiv(extent, stride) * stride >= extent; so a symbolic total needs a
        # maximum with 0 only if reach < stride. A window of one element gets no pads: its total is never positive.
        if isinstance(total, int) or reach < stride:
            total = dim_max(total, 0) if reach > 1 else 0
        begins.append(total // 2 if upper else total - total // 2)
        ends.append(total - begins[-1])
    return (*begins, *ends)
