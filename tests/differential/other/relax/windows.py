# SPDX-License-Identifier: Apache-2.0
"""Rules of convolutions, pools, resizing and sampling."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .draw import FLOATS, Draw, Rule

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _padding(node: Draw, axes: int, most: int = 2):
    """One number, one for each axis, or one for each side."""
    sides = [node.whole(0, most) for _ in range(2 * axes)]
    return node.one(sides[0], sides[:axes], sides)


def _in_layout(values: np.ndarray, logical: str, layout: str) -> np.ndarray:
    return np.ascontiguousarray(values.transpose([logical.index(letter) for letter in layout]))


def _some(node: Draw, axes: int, low: int, high: int) -> list[int]:
    return [node.whole(low, high) for _ in range(axes)]


def conv(node: Draw) -> None:
    axes, transposed = int(node.kind[7]), node.kind.endswith("transpose")
    spatial, dtype = SPATIAL[axes], node.one("float32", "float32", "float32", "float16", "float64")
    groups = node.one(1, 1, 2, 3)
    inner, outer = node.whole(1, 4), node.whole(1, 4)
    if node.chance(0.2):
        groups, inner, outer = node.whole(2, 5), 1, node.one(1, 1, 2)
    data = node.one(f"NC{spatial}", f"NC{spatial}", f"N{spatial}C")
    kernel = node.one(f"IO{spatial}", f"IO{spatial}", f"{spatial}OI") if transposed else \
        node.one(f"OI{spatial}", f"OI{spatial}", f"{spatial}IO", f"O{spatial}I")
    x = node.values((node.whole(1, 2), groups * inner, *_some(node, axes, 3, 7)), dtype, -1, 1)
    window = _some(node, axes, 1, 3)
    w = node.values((groups * inner, outer, *window) if transposed else (groups * outer, inner, *window), dtype, -1, 1)
    node.add(_in_layout(x, f"NC{spatial}", data))
    node.add(_in_layout(w, ("IO" if transposed else "OI") + spatial, kernel), 0.7)
    strides = _some(node, axes, 1, 3)
    node.attributes = {"groups": groups, "data_layout": data, "kernel_layout": kernel}
    node.maybe("strides", strides, 0.7)
    node.maybe("padding", _padding(node, axes), 0.7)
    node.maybe("dilation", _some(node, axes, 1, 2), 0.3)
    node.maybe("out_layout", node.one(f"NC{spatial}", f"N{spatial}C"), 0.2)
    if dtype == "float16":
        node.maybe("out_dtype", "float32", 0.3)
    if transposed and "strides" in node.attributes:
        node.maybe("output_padding", [node.whole(0, stride - 1) for stride in strides], 0.4)


def pool(node: Draw) -> None:
    axes = int(node.kind[-2])
    spatial = SPATIAL[axes]
    layout = node.one(f"NC{spatial}", f"NC{spatial}", f"N{spatial}C")
    dtype = node.one(*FLOATS, *(("int8", "int32") if "max" in node.kind else ()))
    x = node.values((node.whole(1, 2), node.whole(1, 5), *_some(node, axes, 3, 7)), dtype)
    node.add(_in_layout(x, f"NC{spatial}", layout))
    window = _some(node, axes, 1, 3)
    node.attributes = {"pool_size": window, "layout": layout}
    node.maybe("strides", _some(node, axes, 1, 3), 0.7)
    least = min(window) - 1
    node.maybe("padding", _padding(node, axes, least), 0.6)
    node.maybe("dilation", _some(node, axes, 1, 2), 0.3)
    node.maybe("ceil_mode", bool(node.whole(0, 1)))
    node.maybe("count_include_pad", bool(node.whole(0, 1)))
    node.maybe("out_layout", node.one(f"NC{spatial}", f"N{spatial}C"), 0.2)


def adaptive(node: Draw) -> None:
    axes = int(node.kind[-2])
    spatial = SPATIAL[axes]
    layout = node.one(f"NC{spatial}", f"N{spatial}C")
    x = node.values((node.whole(1, 2), node.whole(1, 5), *_some(node, axes, 1, 8)), node.one(*FLOATS))
    node.add(_in_layout(x, f"NC{spatial}", layout))
    node.attributes = {"layout": layout}
    node.maybe("output_size", node.one(1, node.whole(1, 4), _some(node, axes, 1, 5)), 0.9)


def resize(node: Draw) -> None:
    axes = int(node.kind[-2])
    spatial = SPATIAL[axes]
    layout = node.one(f"NC{spatial}", f"N{spatial}C")
    x = node.values((node.whole(1, 2), node.whole(1, 3), *_some(node, axes, 1, 6)), node.one(*FLOATS))
    node.add(_in_layout(x, f"NC{spatial}", layout))
    node.attributes = {"size": _some(node, axes, 1, 9), "layout": layout,
                       "method": node.one("nearest_neighbor", "linear", *(["cubic"] if axes == 2 else [])),
                       "coordinate_transformation_mode": node.one("half_pixel", "align_corners", "asymmetric",
                                                                  "pytorch_half_pixel")}
    node.maybe("rounding_method", node.one("round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    node.maybe("cubic_alpha", node.one(-0.5, -0.75))
    node.maybe("cubic_exclude", node.whole(0, 1), 0.3)


def grid_sample(node: Draw) -> None:
    layout, batch = node.one("NCHW", "NCHW", "NHWC"), node.whole(1, 2)
    x = node.values((batch, node.whole(1, 3), node.whole(2, 6), node.whole(2, 6)), "float32")
    node.add(_in_layout(x, "NCHW", layout))
    node.add(node.values((batch, 2, node.whole(1, 5), node.whole(1, 5)), "float32", -1.3, 1.3))
    node.attributes = {"method": node.one("bilinear", "nearest", "bicubic"), "layout": layout,
                       "padding_mode": node.one("zeros", "border", "reflection"),
                       "align_corners": bool(node.whole(0, 1))}


def regions(node: Draw) -> None:
    layout = node.one("NCHW", "NCHW", "NHWC") if node.kind.endswith("align") else "NCHW"
    batch, count = node.whole(1, 2), node.whole(1, 4)
    height, width = node.whole(4, 8), node.whole(4, 8)
    x = node.values((batch, node.whole(1, 3), height, width), "float32")
    corners = [np.sort(node.rng.uniform(0, extent - 1, (count, 2)), axis=1) for extent in (width, height)]
    rows = np.stack([node.rng.integers(0, batch, count), corners[0][:, 0], corners[1][:, 0], corners[0][:, 1],
                     corners[1][:, 1]], axis=1).astype(np.float32)
    node.add(_in_layout(x, "NCHW", layout))
    node.add(rows if node.kind.endswith("align") else np.rint(rows), 0.3)
    node.attributes = {"pooled_size": node.one(2, (node.whole(1, 3), node.whole(1, 3))), "layout": layout,
                       "spatial_scale": node.one(1.0, 0.5)}
    if node.kind.endswith("align"):
        node.maybe("sample_ratio", node.one(-1, 1, 2))
        node.maybe("aligned", bool(node.whole(0, 1)))
        node.maybe("mode", node.one("avg", "max"), 0.3)


def attention(node: Draw) -> None:
    batch, heads, width = node.whole(1, 2), node.whole(1, 3), node.whole(1, 8)
    rows, columns, values = node.whole(1, 6), node.whole(1, 6), node.whole(1, 8)
    for shape in ((batch, rows, heads, width), (batch, columns, heads, width), (batch, columns, heads, values)):
        node.add(node.values(shape, "float32", -1, 1))
    has_bias = node.kind.endswith("bias")
    if has_bias:
        node.add(node.values((batch, heads, rows, columns) if node.chance(0.6) else (batch, 1, rows, columns),
                             "float32"), 0.3)
    node.maybe("scale", 0.3)
    node.maybe("causal_mask", node.one("TopLeft", "BottomRight"), 0.4)
    given = dict(node.attributes)
    if "scale" in given:
        from tvm import tirx

        given["scale"] = tirx.FloatImm("float32", 0.3)
    node.make = lambda q, k, v, *bias: relax.op.nn.attention(q, k, v, *bias, **given)


RULES: dict[str, Rule] = {
    **{f"nn.conv{axes}d{suffix}": conv for axes in SPATIAL for suffix in ("", "_transpose")},
    **{f"nn.{mode}_pool{axes}d": pool for axes in SPATIAL for mode in ("max", "avg")},
    **{f"nn.adaptive_avg_pool{axes}d": adaptive for axes in SPATIAL},
    "image.resize2d": resize, "image.resize3d": resize, "image.grid_sample": grid_sample,
    "vision.roi_align": regions, "vision.roi_pool": regions, "nn.attention": attention,
    "nn.attention_bias": attention}
