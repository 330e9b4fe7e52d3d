# SPDX-License-Identifier: Apache-2.0
"""Operators over windows: convolution, pooling, resizing."""

from __future__ import annotations

import numpy as np

from ..draw import Draw

SAME = ("SAME_UPPER", "SAME_LOWER")


def window(draw: Draw, extents: list[int], dilate: bool = True, most: int = 3) -> list[int]:
    """Attributes of a window, pads beyond its extents among them; its extents."""
    rank = len(extents)
    kernel = [draw.whole(1, most) for _ in extents]
    draw.maybe("strides", [draw.whole(1, 3) for _ in extents], 0.7)
    dilations = draw.maybe("dilations", [draw.whole(1, 2) for _ in extents], 0.5) if dilate else None
    spread = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations or [1] * rank, strict=True)]
    if draw.chance(0.15):
        auto = draw.maybe("auto_pad", draw.one((*SAME, "VALID", "NOTSET")), 1)
        pads = [0] * 2 * rank
        lost = [max(width - extent, 0) if auto in ("VALID", "NOTSET") or width > taps else 0
                for width, taps, extent in zip(spread, kernel, extents, strict=True)]
    else:
        pads = draw.maybe("pads", [draw.one((0, 0, 1, 1, 2, 3, 4)) for _ in range(2 * rank)], 0.8) or [0] * 2 * rank
        lost = [max(width - extent - pads[at] - pads[at + rank], 0)
                for at, (width, extent) in enumerate(zip(spread, extents, strict=True))]
    for at, missing in enumerate(lost):
        extents[at] += missing
    return kernel


def extents_of(draw: Draw, rank: int) -> list[int]:
    return [draw.whole(1, 6) for _ in range(rank)]


def groups(draw: Draw) -> tuple[int, int, int]:
    """groups, input channels, output channels."""
    count = draw.one((1, 1, 1, 2, 3, 4, 8))
    channels = count * draw.one((1, 1, 2, 3, 4, 8))
    return count, channels, count * draw.one((1, 1, 2, 3, 8))


def filters(draw: Draw, extents: list[int], kernel: list[int]) -> None:
    """The operands of a convolution of reals, transposed or not."""
    count, inputs, outputs = groups(draw)
    if count > 1:
        draw.attributes["group"] = count
    draw.maybe("kernel_shape", kernel, 0.5)
    channels = (inputs, outputs // count) if draw.schema.name == "ConvTranspose" else (outputs, inputs // count)
    draw.add_values((draw.whole(1, 2), inputs, *extents), 0.05)
    draw.add_values((*channels, *kernel), 0.8)
    if draw.chance(0.6):
        draw.add_values((outputs,), 0.8)


def conv(draw: Draw) -> None:
    extents = extents_of(draw, draw.one((1, 2, 2, 2, 3)))
    kernel = window(draw, extents)
    filters(draw, extents, kernel)


def conv_transpose(draw: Draw) -> None:
    extents = extents_of(draw, draw.one((1, 2, 2, 2, 3)))
    rank = len(extents)
    kernel = [draw.whole(1, 3) for _ in extents]
    strides = draw.maybe("strides", [draw.whole(1, 3) for _ in extents], 0.7) or [1] * rank
    dilations = draw.maybe("dilations", [draw.whole(1, 2) for _ in extents], 0.5) or [1] * rank
    sizes = [(extent - 1) * step + (taps - 1) * dilation + 1
             for extent, step, taps, dilation in zip(extents, strides, kernel, dilations, strict=True)]
    if draw.chance(0.8):
        first = [draw.whole(0, min(2, (size - 1) // 2)) for size in sizes]
        draw.attributes["pads"] = first + [draw.whole(0, min(2, (size - 1) // 2)) for size in sizes]
    elif draw.chance(0.5):
        draw.attributes["auto_pad"] = draw.one((*SAME, "VALID"))
    if draw.chance(0.4):
        draw.attributes["output_padding"] = [draw.whole(0, max(step, dilation) - 1)
                                             for step, dilation in zip(strides, dilations, strict=True)]
    filters(draw, extents, kernel)


def pool(draw: Draw) -> None:
    extents = extents_of(draw, draw.one((1, 2, 2, 2, 3)))
    kernel = window(draw, extents, "dilations" in draw.schema.attributes)
    rank = len(extents)
    pads = draw.attributes.get("pads")
    if pads:  # the specification wants a tap of every window inside
        draw.attributes["pads"] = [min(pad, kernel[at % rank] - 1) for at, pad in enumerate(pads)]
        for at in range(rank):
            step = draw.attributes.get("dilations", [1] * rank)[at]
            extents[at] = max(extents[at], (kernel[at] - 1) * step + 1)
    draw.attributes["kernel_shape"] = kernel
    draw.maybe("ceil_mode", draw.whole(0, 1))
    draw.maybe("count_include_pad", draw.whole(0, 1))
    draw.maybe("p", draw.whole(1, 3))
    draw.add_values((draw.whole(1, 2), draw.one((1, 3, 4, 8, 9)), *extents), 0.05)
    if len(draw.schema.outputs) > 1 and draw.chance(0.2):
        draw.outputs = 2


def global_pool(draw: Draw) -> None:
    draw.maybe("p", draw.whole(1, 3))
    draw.add_values((draw.whole(1, 2), draw.whole(1, 9), *extents_of(draw, draw.whole(1, 3))), 0.05)


def lrn(draw: Draw) -> None:
    draw.attributes["size"] = draw.one((1, 3, 5))
    for name, low, high in (("alpha", 0.0, 0.1), ("beta", 0.5, 1.0), ("bias", 0.5, 2.0)):
        draw.maybe(name, float(draw.rng.uniform(low, high)))
    global_pool(draw)


def conv_integer(draw: Draw) -> None:
    extents = extents_of(draw, draw.one((1, 2, 2)))
    kernel = window(draw, extents)
    count, inputs, outputs = groups(draw)
    if count > 1:
        draw.attributes["group"] = count
    draw.add_values((1, inputs, *extents), 0.0, low=-128, high=255)
    draw.add_values((outputs, inputs // count, *kernel), 0.9, low=-128, high=255)
    if draw.chance(0.7):
        draw.add_values((), 0.9, low=-128, high=255)
        if draw.chance(0.5):
            draw.add(draw.values((), draw.input_dtype(1), low=-5, high=5), 1.0)


def qlinear_conv(draw: Draw) -> None:
    extents = extents_of(draw, draw.one((1, 2, 2)))
    kernel = window(draw, extents)
    count, inputs, outputs = groups(draw)
    if count > 1:
        draw.attributes["group"] = count
    scale = draw.rng.uniform(0.01, 0.2, 3).astype("float32")
    x, w, y = (draw.dtype(f"T{at}") for at in (1, 2, 3))
    draw.add(draw.values((1, inputs, *extents), x, low=-128, high=255), 0.0)
    draw.add(scale[0:1].reshape(()), 1)
    draw.add(draw.values((), x, low=-128, high=255), 1)
    draw.add(draw.values((outputs, inputs // count, *kernel), w, low=-128, high=255), 1)
    channels = (outputs,) if draw.chance(0.5) else ()
    draw.add(draw.rng.uniform(0.01, 0.2, channels).astype("float32"), 1)
    draw.add(draw.values(channels, w, low=0, high=0) if w == "int8" else draw.values((), w, low=120, high=130), 1)
    draw.add((scale[1:2] * 20).reshape(()), 1)
    draw.add(draw.values((), y, low=-128, high=255), 1)
    if draw.chance(0.6):
        draw.add(draw.rng.integers(-500, 500, outputs).astype("int32"), 1)


def depth_space(draw: Draw) -> None:
    block = draw.whole(1, 3)
    draw.attributes["blocksize"] = block
    draw.maybe("mode", draw.one(("DCR", "CRD")))
    deep = draw.schema.name == "DepthToSpace"
    batch, channels, height, width = (draw.whole(1, 4) for _ in range(4))
    draw.add_values((batch, channels * block**2, height, width) if deep else
                    (batch, channels, height * block, width * block), 0.05)


def grid_sample(draw: Draw) -> None:
    rank = 2 if draw.opset < 20 or draw.chance(0.7) else 3
    old = draw.opset < 20
    modes = ("bilinear", "nearest", "bicubic") if old else ("linear", "nearest", "cubic")[:5 - rank]
    draw.maybe("mode", draw.one(modes), 0.6)
    if draw.input_dtype(0) == "bool":  # nothing is said of weights times these
        draw.attributes["mode"] = "nearest"
    draw.maybe("padding_mode", draw.one(("zeros", "border", "reflection")))
    draw.maybe("align_corners", draw.whole(0, 1))
    batch = draw.whole(1, 2)
    draw.add_values((batch, draw.whole(1, 4), *(draw.whole(2, 6) for _ in range(rank))), 0.05)
    draw.add(draw.rng.uniform(-1.3, 1.3, (batch, *extents_of(draw, rank), rank)).astype(draw.input_dtype(1)), 0.1)


def resize(draw: Draw) -> None:
    rank = draw.whole(2, 4)
    shape = [draw.one((1, 2)), draw.whole(1, 4), *(draw.whole(1, 6) for _ in range(rank - 2))]
    mode = draw.maybe("mode", draw.one(("nearest", "linear", "cubic")))
    coordinates = draw.maybe("coordinate_transformation_mode", draw.one(
        ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric") + ("half_pixel_symmetric",) * (
            draw.opset >= 19) + ("tf_crop_and_resize",)))
    draw.maybe("nearest_mode", draw.one(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    if mode == "cubic":
        draw.maybe("cubic_coeff_a", draw.one((-0.5, -0.75)))
    if mode in ("linear", "cubic"):
        draw.maybe("antialias", draw.whole(0, 1), 0.2)
        draw.maybe("exclude_outside", int(mode == "cubic" and draw.chance(0.5)), 0.3)
    sizes = [extent if at < 2 else draw.whole(1, 9) for at, extent in enumerate(shape)]
    axes, extents = list(range(rank)), shape
    if "axes" in draw.schema.attributes and rank > 2 and draw.chance(0.3):
        axes = [int(axis) for axis in draw.rng.permutation(range(2, rank))[:draw.whole(1, rank - 2)]]
        draw.attributes["axes"] = [axis - rank * int(draw.chance(0.3)) for axis in axes]
        sizes, extents = [sizes[axis] for axis in axes], [shape[axis] for axis in axes]
    draw.add_values(tuple(shape), 0.05)
    region = np.zeros(0, "float32")
    if coordinates == "tf_crop_and_resize":
        draw.maybe("extrapolation_value", draw.one((0.0, 1.0, -2.5)))
        region = np.array([0.0 if axis < 2 else draw.one((0.0, 0.25, -0.25, 0.4)) for axis in axes] + [
            1.0 if axis < 2 else draw.one((1.0, 0.75, 1.25, 0.6)) for axis in axes], "float32")
    if draw.opset > 10:
        draw.add(None if draw.opset >= 13 and not region.size else region, 1)
    if draw.opset > 10 and draw.chance(0.5):
        draw.maybe("keep_aspect_ratio_policy", draw.one(("stretch", "not_larger", "not_smaller")) if min(
            axes) > 1 else "stretch", 0.3)
        draw.add(None if draw.opset >= 13 else np.zeros(0, "float32"), 1)
        draw.add_ints(sizes, 0.9, "int64")
    else:
        rough = 1.0 if coordinates == "tf_crop_and_resize" or draw.chance(0.7) else draw.one((1.1, 1.3))
        scales = np.array([size / extent * (rough if axis > 1 else 1) for axis, size, extent in zip(
            axes, sizes, extents, strict=True)], "float32")
        if draw.opset == 10:  # ONNX Runtime is the only reference, and rounds this product before it takes the floor
            scales = np.where(scales.astype("float64") * extents < np.float32(scales * np.float32(extents)),
                              np.nextafter(scales, np.float32(9)), scales)
        draw.add(scales, 0.9)


RULES = {"Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": pool, "AveragePool": pool, "LpPool": pool,
         "GlobalAveragePool": global_pool, "GlobalMaxPool": global_pool, "GlobalLpPool": global_pool, "LRN": lrn,
         "ConvInteger": conv_integer, "QLinearConv": qlinear_conv, "DepthToSpace": depth_space,
         "SpaceToDepth": depth_space, "GridSample": grid_sample, "Resize": resize}
